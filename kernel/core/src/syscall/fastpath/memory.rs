//! Retyping of single frames: the rows to and from untyped, for frames that are blocks by themselves.
//!
//! The slow path handles blocks that have to be split, objects that refer to others or are on lists, and
//! frames that are not quiesced as far as this CPU knows. The record's word is compared whole, and exchanged
//! once for each step; zeros are written in between, while no other CPU reads the frame
//! ([`dyad_machine::capcache::frames`]).

use dyad_abi::cap::{MemoryOp, ObjectKind};
use dyad_retype::{Use, plain};

use super::FastReturn;
use crate::syscall::slowpath::slow_syscall;
use dyad_machine::Platform;
use dyad_machine::capcache::frames::OneFrame;
use dyad_machine::capcache::{CachedCap, ObjectAt};
use dyad_object::kinds::{self, PLAIN};
use dyad_object::node::node;

/// The low half of the record words of objects, by the number of their kind.
const OBJECTS: [u64; 32] = {
    let mut words = [0; 32];
    let mut i = 0;
    while i < ObjectKind::ALL.len() {
        let kind = ObjectKind::ALL[i];
        words[kind as usize] = plain::used(Use::Kernel(kinds::of(kind).kernel));
        i += 1;
    }
    words
};

/// `RetypeKernel`. A number that is no kind has no word, and takes the slow path.
#[inline(never)]
pub fn retype_kernel<P: Platform>(cached: &'static CachedCap, at: u64, kind: u64) -> FastReturn {
    let done = OBJECTS
        .get(kind as usize)
        .filter(|&&used| used != 0)
        .and_then(|&used| retype::<P>(cached, at, used));
    match done {
        Some(()) => FastReturn::value(0),
        None => {
            let word = cached.call(MemoryOp::RetypeKernel as u32);
            slow_syscall::<P>(word, at, kind, 0, 0, 0)
        }
    }
}

/// `RetypeUser` of one frame. Larger blocks have more than one record and take the slow path.
#[inline(never)]
pub fn retype_user<P: Platform>(cached: &'static CachedCap, at: u64, order: u64) -> FastReturn {
    const USED: u64 = plain::used(Use::User);
    if order == 0 && retype::<P>(cached, at, USED).is_some() {
        return FastReturn::value(0);
    }
    let word = cached.call(MemoryOp::RetypeUser as u32);
    slow_syscall::<P>(word, at, order, 0, 0, 0)
}

/// The row from untyped. Writes zeros if the frame has been used before; a frame that cannot be zeroed is
/// left untyped.
#[inline(always)]
fn retype<P: Platform>(cached: &CachedCap, at: u64, used: u64) -> Option<()> {
    let local = P::local();
    let frame = frame::<P>(cached, at)?;
    frame.retype(
        used,
        |stamp| local.quiet.covers(stamp),
        || match frame.address() {
            Some(pa) => P::zero_frame(node().map, pa),
            None => false,
        },
    )
}

/// Frame `at` of the capability's range; `None` beyond its end.
#[inline(always)]
fn frame<P: Platform>(cached: &CachedCap, at: u64) -> Option<OneFrame> {
    match cached.place() {
        ObjectAt::Memory(range) => range.frame(P::local(), cached.payload(0), at),
        _ => None,
    }
}

/// `RetypeUntyped` of user memory and of objects that refer to nothing.
#[inline(never)]
pub fn untype<P: Platform>(cached: &'static CachedCap, at: u64) -> FastReturn {
    match frame::<P>(cached, at).and_then(|f| f.untype(PLAIN)) {
        Some(stamp) => FastReturn::value(stamp.get()),
        None => slow_syscall::<P>(cached.call(MemoryOp::RetypeUntyped as u32), at, 0, 0, 0, 0),
    }
}
