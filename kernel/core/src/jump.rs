//! `Jump`: the running thread goes on at a place of its choice, on a node of its choice.
//!
//! A runtime that has translated a thread's frames for another ISA has nothing to come back to where
//! it was, and no call of its own pending where it goes. So it says where the thread goes on and with
//! which stack, and what the kernel has kept of it on either ISA is forgotten:
//!
//! ```text
//!   node n: RUNNING ──leave: parked, as for `Migrate`──▶ TRANSIT(m) ──arrive──▶ READY at (pc, sp, fp)
//!                                                          │ m dies             nothing parked anywhere
//!                                                          ▼
//!                                             the call returns `NodeDead`, at n
//! ```
//!
//! To the node where it is already it goes at once, and hands nothing over.
//!
//! | step | order |
//! |---|---|
//! | leave: registers parked; words carried; owner word | release: whoever takes it over for a node that dies finds the call it made |
//! | arrive: owner word; registers set; what was parked is forgotten | nobody else looks at them meanwhile |

use core::sync::atomic::Ordering;

use dyad_abi::user::{USER_END, tcb_address};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_shm::frame::WeakRef;

use crate::crossing::Crossing;
use crate::cx::Cx;
use crate::dispatch::{self, After};
use crate::handover::{self, what};
use crate::object::component::Entry;
use crate::object::thread::{Thread, begun};
use crate::{Platform, fp};

/// `Jump` of the running thread: node, program counter, stack pointer, frame pointer, argument.
///
/// # Errors
///
/// [`Error::NoSuchNode`]; [`Error::TooDeep`] within an invocation or a crossing call; [`Error::BadAddress`] if the program
/// counter is 0, or it or the stack pointer is no user address; as [`handover::send`]. The thread goes
/// on where it was, and keeps what it had.
pub fn jump<P: Platform>(cx: &Cx, [to, pc, sp, fp, arg]: [u64; 5]) -> Result<After> {
    let t = dispatch::current(cx);
    let to = NodeId::new(to).ok_or(Error::NoSuchNode)?;
    if t.depth.load(Ordering::Relaxed) != 0 || Crossing::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    if pc == 0 || pc >= USER_END || sp >= USER_END {
        return Err(Error::BadAddress);
    }
    if to == cx.node.id() {
        // The whole area is replaced: what is missing of it need not be completed. What is in
        // floating-point registers is lost before they can be saved.
        cx.local.short_entry.set(false);
        fp::forget::<P>(cx.local);
        arrive::<P>(t, (pc, sp), (fp, arg));
        return Ok(After::Switched);
    }
    let at = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: pc,
        badge: sp,
    };
    handover::leave::<P>(cx, t, to, (what::JUMP, [arg, fp, 0, 0], at))
}

/// Sets a thread up to go on with program and stack pointer, frame pointer and argument. Nothing is left
/// of it but these and its thread pointer.
pub fn arrive<P: Platform>(t: &Thread, (pc, sp): (u64, u64), (fp, arg): (u64, u64)) {
    let id = t.id.load(Ordering::Relaxed) as u32;
    let area = t.regs(P::ISA);
    P::init_regs(area, pc, sp, arg, tcb_address(id));
    P::set_user_pc_sp(area, pc, sp);
    P::set_frame_pointer(area, fp);
    fp::renew_all(t);
    for isa in Isa::ALL {
        let there = if isa == P::ISA {
            begun::HERE
        } else {
            begun::NOT
        };
        t.set_begun(isa, there);
    }
}
