//! Threads of a program that is a process on each node: how they go from one process to another.
//!
//! Kernels do not move them. A thread has a kernel thread in each process, all but one of which wait in a call of their
//! peer (`process::MOVE`, `process::ARRIVED`) until the thread comes back. The call says where it goes on.
//!
//! ```text
//!   node a:  runs ── frames laid out for b ──▶ MOVE ............ waits ............▶ goes on
//!   node b:           waits in MOVE or ARRIVED ──▶ goes on ── frames laid out for a ──▶ MOVE
//! ```
//!
//! The frames that the thread lays out lie on the stack on which the kernel thread over there waits. So that waits on a
//! small stack of its own, below the frames, and jumps from there. Nodes of one ISA share the native stack, so each node has a
//! small stack there. What runs on the small stack has no frames that could go
//! with the thread. So it is entered from outside, as the build sees it: its functions are exported, and have no migration
//! points, even if the program asks for points before its system calls.

#![allow(unsafe_code)]

use core::sync::atomic::Ordering;

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::peer::ORIGIN;
use dyad_abi::service::{process, slot};
use dyad_abi::user::migrate_word::WITH_PAGES;
use dyad_abi::user::stack_slot;
use dyad_abi::{Error, Isa, NodeId, Result};

use crate::cap::{Cap, Sinv};
use crate::entry::{Entry, Target};
use crate::is_multiple;
use crate::tcb::block;
use crate::thread::own;

const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);
/// Bytes of a small stack.
const EACH: u64 = 8 << 10;
/// Bytes at the lower end of a native stack for the small stacks of all nodes.
pub const WAITING: u64 = EACH * MAX_NODES as u64;

fn here() -> Result<NodeId> {
    Ok(crate::where_am_i()?.node)
}

/// The stack pointer at the start of a function on an empty stack of an ISA.
pub const fn empty_on(isa: Isa, top: u64) -> u64 {
    match isa {
        // As after a call.
        Isa::X86_64 => top - 8,
        Isa::Aarch64 => top,
    }
}

/// The lower end of this thread's native stack here.
fn bottom() -> u64 {
    stack_slot(crate::isa(), block().thread as u32).0
}

/// The stack pointer on this thread's empty small stack of a node, which is the node that it is on.
fn waiting_stack(here: NodeId) -> u64 {
    let top = bottom() + EACH * (here.index() as u64 + 1);
    empty_on(crate::isa(), top)
}

/// What runs on the small stack. It gets one argument; the others make it of a kind that no function of a program has. So
/// calls through pointers cannot mean it, as the build sees them.
type Waits = extern "C" fn(u64, u64, u64, u64, u64, u64) -> !;

/// Continues in a function on the small stack. Returns only if that is refused.
///
/// # Safety
///
/// What is on the native stack is not needed any more, but above the small stack until `entry` has read it.
#[inline(always)]
unsafe fn on_waiting_stack(entry: Waits, argument: u64) -> Error {
    match here() {
        Ok(here) => {
            let stack = [waiting_stack(here), 0];
            // SAFETY: 1. The function does not return, and the stack is this thread's; the caller says that what is on it
            // may go.
            unsafe { own().jump(here, entry as usize as u64, stack, argument) }
        }
        Err(e) => e,
    }
}

/// Goes on as the peer says; `None`: after the call.
#[inline(always)]
fn land([status, pc, sp, last]: [u64; 4]) -> Option<Error> {
    if let Some(e) = Error::from_code(status) {
        return Some(e);
    }
    let (fp, argument) = match pc & process::WITH_ARGUMENT {
        0 => (last, 0),
        _ => (0, last),
    };
    let pc = pc & !process::WITH_ARGUMENT;
    if pc == 0 {
        return None;
    }
    Some(match here() {
        // SAFETY: 1. The thread itself has said in the other process where it goes on here, with frames that the build
        // has verified; the peers have passed that on.
        Ok(here) => unsafe { own().jump(here, pc, [sp, fp], argument) },
        Err(e) => e,
    })
}

#[inline(always)]
fn ask(words: [u64; 4]) -> Option<Error> {
    match PROCESS.invoke_all(words) {
        Ok(reply) => land(reply),
        Err(e) => Some(e),
    }
}

/// Continues the calling thread on another node, at `pc` with these stack and frame pointers, or with `argument` in the
/// place of the latter. Returns only if it cannot leave.
///
/// # Safety
///
/// As for [`Cap::jump`](crate::cap::Cap::jump).
pub unsafe fn leave(node: NodeId, pc: u64, sp: u64, fp_or_argument: u64) -> Error {
    // What can be refused is refused here: later there is no way back.
    match crate::is_live(node) {
        Ok(true) => {}
        Ok(false) => return Error::NodeDead,
        Err(e) => return e,
    }
    let ahead = match block().migrate[WITH_PAGES].swap(0, Ordering::Relaxed) {
        0 => 0,
        _ => process::AHEAD,
    };
    let departure = [
        process::MOVE | (node.index() as u64) << 8 | ahead,
        pc,
        sp,
        fp_or_argument,
    ];
    let at = &raw const departure as u64;
    if at < bottom() + WAITING {
        return Error::TooDeep;
    }
    // SAFETY: 1. The caller gives up what is on the stack, and the words are read first.
    unsafe { on_waiting_stack(dyad_group_wait, at) }
}

#[unsafe(no_mangle)]
extern "C" fn dyad_group_wait(departure: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    // SAFETY: 1. `leave` has put the words there, above this stack, and nothing has been there since.
    let words =
        unsafe { core::ptr::with_exposed_provenance::<[u64; 4]>(departure as usize).read() };
    group_is_over(ask(words))
}

/// The calling thread ends. Its kernel thread waits until the thread with this number begins again.
pub fn end() -> ! {
    // SAFETY: 1. The thread has ended: nothing that is on its stack is needed.
    group_is_over(Some(unsafe { on_waiting_stack(dyad_group_ended, 0) }))
}

#[unsafe(no_mangle)]
extern "C" fn dyad_group_ended(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    group_is_over(ask([process::END_THREAD, 0, 0, 0]))
}

/// The group has ended, or the peer says what it cannot say.
fn group_is_over(_: Option<Error>) -> ! {
    crate::abandon(process::LOST_CODE as u32)
}

/// At the entry of a thread that runs plain functions. With one kernel it comes back. With several, the thread goes on in
/// `begin`, on an empty stack, if it begins here; or where it comes from, when it has come.
pub fn arrive(argument: u64, begin: Target) {
    if is_multiple() {
        let start = [argument, begin as usize as u64];
        // SAFETY: 1. Nothing that is on the stack of a thread that has just begun is needed but the words, which are read
        // first.
        let e = unsafe { on_waiting_stack(dyad_group_arrived, &raw const start as u64) };
        group_is_over(Some(e));
    }
}

#[unsafe(no_mangle)]
extern "C" fn dyad_group_arrived(start: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    // SAFETY: 1. `arrive` has put the words there, above this stack.
    let [argument, begin] =
        unsafe { core::ptr::with_exposed_provenance::<[u64; 2]>(start as usize).read() };
    if let Some(e) = ask([process::ARRIVED, 0, 0, 0]) {
        group_is_over(Some(e));
    }
    let isa = crate::isa();
    let (_, top) = stack_slot(isa, block().thread as u32);
    let stack = [empty_on(isa, top), 0];
    // SAFETY: 1. The second word is `begin` of `arrive`.
    let begin = unsafe { core::mem::transmute::<u64, Target>(begin) };
    let e = match here() {
        // SAFETY: 1. The stack is this thread's, and nothing is on it.
        Ok(here) => unsafe { own().jump(here, Entry::Begins.to(begin), stack, argument) },
        Err(e) => e,
    };
    group_is_over(Some(e))
}

/// At the entry of a thread that runs tasks: it waits until it has come. It comes back on the node where the program starts,
/// and nowhere else: what the thread runs is on the heap, and it goes on there.
///
/// The kernel thread on that node begins when those on all other nodes wait, so no other one uses its stack meanwhile.
pub fn arrive_with_tasks() {
    if !is_multiple() {
        return;
    }
    let refused = match here() {
        Ok(ORIGIN) => ask([process::ARRIVED, 0, 0, 0]),
        // SAFETY: 1. Nothing that is on the stack of a thread that has just begun is needed.
        Ok(_) => Some(unsafe { on_waiting_stack(dyad_group_comes, 0) }),
        Err(e) => Some(e),
    };
    if let Some(e) = refused {
        group_is_over(Some(e));
    }
}

#[unsafe(no_mangle)]
extern "C" fn dyad_group_comes(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    group_is_over(ask([process::ARRIVED, 0, 0, 0]))
}
