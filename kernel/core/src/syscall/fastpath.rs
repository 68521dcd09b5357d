//! Operations that complete on what this CPU has cached: a few words are compared, a few are changed, and the
//! thread continues with its result in registers.
//!
//! Only frequent operations have a fast path, and, except for `Receive` and `Dispatch`, only where caches are
//! coherent. Everything unexpected, and every error but a missing right, is left to the slow path
//! ([`crate::syscall::ops`]), which has the same effect and finds the reason. Nothing has been done then.
//!
//! Nothing is looked up here: all that an operation needs is in the cache entry of its capability and in the
//! entries that it names. A valid entry has been correct since it was filled. A fast path therefore checks
//! only the caller's arguments: the part, the address, the rights.
//!
//! The cache of a CPU is private to it and needs no lock. It is emptied in each round and before the CPU
//! sleeps, and nothing that its entries rely on is reused before that.
//!
//! Functions are split so that each is reached by one jump and pays only for what it uses itself. A call that
//! is refused, or takes the slow path, still has its arguments in their registers.
//!
//! | operation | reads | equivalent to |
//! |---|---|---|
//! | any | root entry, slot header, frame word of the object: unchanged since the fill | [`dyad_machine::capcache`] |
//! | `Liveness.Revoke` | nothing else | [`liveness`](crate::syscall::ops::captbl::liveness) |
//! | `Captbl.CopyIn` of a whole capability, without a guard; `Deactivate` | the entry of the leaf | the rows slot activate and slot deactivate |
//! | `Space.Map`, `Unmap`, `Protect` of 4 KiB | see [`dyad_space::mapping`] | the rows there |
//! | `Send` to an endpoint without a waiter | its waiter, the CPU that it is bound to | `post` of the endpoint |
//! | `Receive` | the endpoint's words | [`receive_at`](crate::syscall::ops::endpoint::receive_at) |
//! | `Thread.Dispatch` without a budget | its owner word | [`dispatch::dispatch`](crate::sched::dispatch::dispatch) |
//! | `Thread.Jump` to a CPU that spins for the thread | its owner word, that CPU's node | [`crate::migrate::jump`] |
//! | `Memory.RetypeKernel`, `RetypeUser` and `RetypeUntyped` of a frame | its record | [`capcache::frames`] |

mod memory;

use dyad_abi::Isa;
use dyad_abi::cap::{
    CaptblOp, FrameOp, LivenessOp, MAP_WRITE, MemoryOp, ReceiveOp, Rights, SendOp, SpaceOp,
    TableAt, ThreadOp,
};
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_pgtbl::Perms;
use dyad_shm::frame::Epoch;

use crate::syscall::slowpath::{
    FastReturn, dispatched, jump_or_slow, received, sent, slow_cached, slow_syscall,
};
use dyad_machine::Platform;
use dyad_machine::capcache::{self, CachedCap, Family, ObjectAt, leaf};
use dyad_machine::cpu::CpuLocal;
use dyad_object::memory::load_coherent;
use dyad_space::mapping::{FastRows, FastSpace};

/// Handles a system call; `word` has an operation that is not 0.
#[inline(always)]
pub fn syscall<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    let Some(cached) = capcache::called(P::local(), word) else {
        return slow_syscall::<P>(word, a0, a1, a2, a3, a4);
    };
    let number = (word >> 32) as u32 & 31;
    if !cached.rights().contains(Rights(1 << number)) && !lacks!("fastpath::syscall::right") {
        return FastReturn::refused(cached.refusal());
    }
    permitted::<P>(word, a0, a1, a2, a3, a4)
}

/// Carries out an operation that the capability permits. It is a function of its own, with the same arguments
/// in the same registers, so that a refused call does not pay for what this needs.
#[inline(never)]
fn permitted<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    const REVOKE: u64 = key(Family::Liveness, LivenessOp::Revoke as u32);
    const MAP: u64 = key(Family::Space, SpaceOp::Map as u32);
    const UNMAP: u64 = key(Family::Space, SpaceOp::Unmap as u32);
    const PROTECT: u64 = key(Family::Space, SpaceOp::Protect as u32);
    const COPY_IN: u64 = key(Family::Captbl, CaptblOp::CopyIn as u32);
    const DEACTIVATE: u64 = key(Family::Captbl, CaptblOp::Deactivate as u32);
    const USER: u64 = key(Family::Memory, MemoryOp::RetypeUser as u32);
    const KERNEL: u64 = key(Family::Memory, MemoryOp::RetypeKernel as u32);
    const UNTYPED: u64 = key(Family::Memory, MemoryOp::RetypeUntyped as u32);
    const DISPATCH: u64 = key(Family::Thread, ThreadOp::Dispatch as u32);
    const JUMP: u64 = key(Family::Thread, ThreadOp::Jump as u32);
    const RECEIVE: u64 = key(Family::Receive, ReceiveOp::Receive as u32);
    const SEND: u64 = key(Family::Send, SendOp::Send as u32);
    let cached = capcache::last_called(P::local(), word);
    match key(cached.family(), (word >> 32) as u32) {
        REVOKE => revoke::<P>(cached, a0),
        MAP => map::<P>(cached, a0, a1, a2, a3, a4),
        UNMAP => unmap::<P>(cached, a0, a1),
        PROTECT => protect::<P>(cached, a0, a1, a2),
        COPY_IN => copy_in::<P>(cached, a0, a1, a2, a3, a4),
        DEACTIVATE => deactivate::<P>(cached, a0),
        KERNEL => memory::retype_kernel::<P>(cached, a0, a1),
        USER => memory::retype_user::<P>(cached, a0, a1),
        SEND => send::<P>(cached),
        RECEIVE => receive::<P>(cached, a0, a1),
        DISPATCH => dispatch::<P>(cached, a0, a1),
        JUMP => jump::<P>(cached, word, [a0, a1, a2, a3, a4]),
        UNTYPED => memory::untype::<P>(cached, a0),
        _ => slow_cached::<P>(word, a0, a1, a2, a3, a4),
    }
}

/// Family (3 bits) and operation above it as one number, so that one jump selects the function.
#[inline(always)]
const fn key(family: Family, number: u32) -> u64 {
    (number as u64) << 3 | family as u64
}

/// `Liveness.Revoke`: increments an entry. The stamp is read after a full fence: a CPU that still uses what
/// the entry guards has read the entry before, and has left the kernel when the stamp is quiesced.
#[inline(never)]
fn revoke<P: Platform>(cached: &'static CachedCap, index: u64) -> FastReturn {
    // What a capability counts from is in the frame: looked at when it was learnt. The index is the
    // caller's, and compared with how many there are.
    let (first, count) = (cached.payload(0), cached.payload(1));
    if let ObjectAt::Liveness(words, counts, epoch) = cached.place()
        && let Some(entry) = counts.get(first.wrapping_add(index) as usize)
        && index < count
    {
        words.increase(entry, 1);
        words.fence();
        return FastReturn::value(Epoch::saturating(load_coherent(epoch)).get());
    }
    slow_syscall::<P>(cached.call(LivenessOp::Revoke as u32), index, 0, 0, 0, 0)
}

/// `Thread.Dispatch` without a budget. It makes the same checks as the slow path.
#[inline(never)]
fn dispatch<P: Platform>(cached: &'static CachedCap, how: u64, time: u64) -> FastReturn {
    match cached.place() {
        ObjectAt::Thread(t) if time == 0 => dispatched::<P>(t, how),
        _ => slow_syscall::<P>(cached.call(ThreadOp::Dispatch as u32), how, time, 0, 0, 0),
    }
}

/// `Thread.Jump` to a CPU that spins for the thread: see [`crate::migrate::jump`].
#[inline(never)]
fn jump<P: Platform>(cached: &'static CachedCap, word: u64, a: [u64; 5]) -> FastReturn {
    match cached.place() {
        ObjectAt::Thread(t) => jump_or_slow::<P>(word, t, a),
        _ => {
            let [a0, a1, a2, a3, a4] = a;
            slow_syscall::<P>(word, a0, a1, a2, a3, a4)
        }
    }
}

/// `Receive`: takes what is pending, or waits, like the slow path.
#[inline(never)]
fn receive<P: Platform>(cached: &'static CachedCap, index: u64, deadline: u64) -> FastReturn {
    // Which endpoints a capability is for was looked at when it was learnt.
    let (first, count) = (cached.payload(0), cached.payload(1));
    let at = first.wrapping_add(index);
    if let ObjectAt::Endpoints(e) = cached.place()
        && (index < count || lacks!("fastpath::receive::range"))
        && let Some(line) = e.lines.get(at as usize)
    {
        return received::<P>(cached.object(), (line, at), deadline);
    }
    slow_syscall::<P>(
        cached.call(ReceiveOp::Receive as u32),
        index,
        deadline,
        0,
        0,
        0,
    )
}

/// `Send`. The bits are set before the waiter is read, as in the slow path. If there is a waiter, the rest is
/// as long as the slow path.
#[inline(never)]
fn send<P: Platform>(cached: &'static CachedCap) -> FastReturn {
    let ObjectAt::Line(Some(words), line) = cached.place() else {
        return slow_syscall::<P>(cached.call(SendOp::Send as u32), 0, 0, 0, 0, 0);
    };
    words.set_bits(&line.bits, cached.payload(1));
    words.fence();
    let waiter = load_coherent(&line.waiter);
    let bound = load_coherent(&line.bound);
    if waiter | bound == 0 || lacks!("fastpath::send::waiter") {
        return FastReturn::value(0);
    }
    sent::<P>(cached, line)
}

/// `Captbl.CopyIn`.
#[inline(never)]
fn copy_in<P: Platform>(
    cached: &'static CachedCap,
    index: u64,
    source: u64,
    how: u64,
    p0: u64,
    p1: u64,
) -> FastReturn {
    match copy(P::local(), cached, index, source, how, p0 | p1) {
        Some(()) => FastReturn::value(0),
        None => {
            let word = cached.call(CaptblOp::CopyIn as u32);
            slow_syscall::<P>(word, index, source, how, p0, p1)
        }
    }
}

/// Copies a capability without a guard and with the whole range of its source.
#[inline(always)]
fn copy(
    local: &'static CpuLocal,
    table: &CachedCap,
    index: u64,
    source: u64,
    how: u64,
    part: u64,
) -> Option<()> {
    // A guard, a part, or what is no index.
    if how >> 32 != 0 || part != 0 || source >> 32 != 0 {
        return None;
    }
    // What this CPU has cached is alive, and has no guard.
    let source = capcache::called(local, source)?;
    if !source.rights().contains(Rights::COPY) && !lacks!("fastpath::copy::right") {
        return None;
    }
    let to = source.copied(Rights(how as u32));
    // The source is copied as it was when it was looked at: that it goes meanwhile is as if it had gone
    // just after.
    let slot = leaf::slot(local, table.object(), table.payload(0) != 0, index)?;
    slot.activate(&to, |stamp| local.quiet.covers(stamp))
}

/// `Captbl.Deactivate`. A slot that is empty, or that another CPU is changing, is left to the slow path for
/// its error.
#[inline(never)]
fn deactivate<P: Platform>(cached: &'static CachedCap, index: u64) -> FastReturn {
    let done = leaf::slot(P::local(), cached.object(), cached.payload(0) != 0, index)
        .and_then(|slot| slot.deactivate());
    match done {
        Some(stamp) => FastReturn::value(stamp.get()),
        None => slow_syscall::<P>(cached.call(CaptblOp::Deactivate as u32), index, 0, 0, 0, 0),
    }
}

/// The ISA of a table argument of the last level. Tables of other levels, and large pages, are for the slow
/// path.
#[inline(always)]
fn last_level(at: u64) -> Option<Isa> {
    match at {
        X86_L1 => Some(Isa::X86_64),
        A64_L1 => Some(Isa::Aarch64),
        _ => None,
    }
}

const X86_L1: u64 = TableAt {
    isa: Isa::X86_64,
    level: 1,
}
.bits();
const A64_L1: u64 = TableAt {
    isa: Isa::Aarch64,
    level: 1,
}
.bits();

/// Whether programs may use an address. Drivers of formats do not check addresses.
#[inline(always)]
fn is_user(va: u64) -> bool {
    (USER_MIN..USER_END).contains(&va)
}

/// `Space.Map`.
#[inline(never)]
fn map<P: Platform>(
    cached: &'static CachedCap,
    at: u64,
    va: u64,
    frame: u64,
    first: u64,
    how: u64,
) -> FastReturn {
    let space = FastSpace {
        local: P::local(),
        object: cached.object(),
    };
    // One copy of the code for each format: the ISA is a constant in both.
    let done = match last_level(at) {
        Some(Isa::X86_64) => map_in(space, Isa::X86_64, va, frame, first, how),
        Some(Isa::Aarch64) => map_in(space, Isa::Aarch64, va, frame, first, how),
        None => None,
    };
    match done {
        Some(()) => FastReturn::value(0),
        None => slow_syscall::<P>(cached.call(SpaceOp::Map as u32), at, va, frame, first, how),
    }
}

/// Maps a page in the table of an ISA. The rights are those of [`crate::syscall::ops::space`]. Executable
/// pages take the slow path, because other nodes may have to rewrite the code. The row checks that the block
/// is unchanged, in the word that it exchanges.
#[inline(always)]
fn map_in(space: FastSpace, isa: Isa, va: u64, frame: u64, first: u64, how: u64) -> Option<()> {
    const WRITE: u32 = FrameOp::Write as u32;
    let (frame, base, mut perms) = capcache::frame(space.local, frame)?;
    let needs = FrameOp::Map.right().or(Rights((how as u32) << WRITE));
    let fits = how <= MAP_WRITE
        && (frame.rights().contains(needs) || lacks!("fastpath::map_in::right"))
        && first < frame.payload(1)
        && is_user(va)
        && va & (PAGE_SIZE - 1) == 0;
    if !fits {
        return None;
    }
    // What the page may become is in `perms` already, as the capability says.
    perms.set(Perms::WRITE, how == MAP_WRITE);
    let (block, page) = frame.page(base, first);
    space.map(isa, va, &block, page, perms)
}

/// `Space.Unmap` of a page that users have mapped. An error is one of the row once it has begun: the slow
/// path would no longer find the page.
#[inline(never)]
fn unmap<P: Platform>(cached: &'static CachedCap, at: u64, va: u64) -> FastReturn {
    let space = FastSpace {
        local: P::local(),
        object: cached.object(),
    };
    let done = match last_level(at).filter(|_| is_user(va)) {
        Some(Isa::X86_64) => space.unmap(Isa::X86_64, va),
        Some(Isa::Aarch64) => space.unmap(Isa::Aarch64, va),
        None => None,
    };
    match done {
        Some(Ok(stamp)) => FastReturn::value(stamp.get()),
        Some(Err(e)) => FastReturn::refused(e),
        None => slow_syscall::<P>(cached.call(SpaceOp::Unmap as u32), at, va, 0, 0, 0),
    }
}

/// `Space.Protect`, to writable or read-only. The driver checks in the page's entry whether the page may
/// become that.
#[inline(never)]
fn protect<P: Platform>(cached: &'static CachedCap, at: u64, va: u64, how: u64) -> FastReturn {
    let space = FastSpace {
        local: P::local(),
        object: cached.object(),
    };
    let done = match last_level(at).filter(|_| is_user(va) && how <= MAP_WRITE) {
        Some(Isa::X86_64) => space.protect(Isa::X86_64, va, how == MAP_WRITE),
        Some(Isa::Aarch64) => space.protect(Isa::Aarch64, va, how == MAP_WRITE),
        None => None,
    };
    match done {
        Some(stamp) => FastReturn::value(stamp.get()),
        None => slow_syscall::<P>(cached.call(SpaceOp::Protect as u32), at, va, how, 0, 0),
    }
}
