//! Registers of threads: one at a time, and all of them as a page.
//!
//! A page of registers ([`Registers`](dyad_abi::emulation::Registers)) has a layout that other ISAs can read.
//! `Unload` writes one for a stopped thread, so that an emulator can continue it; `Load` makes the calling
//! thread continue with one, on any node of the page's ISA.
//!
//! ```text
//!   STOPPED ──take──▶ CHANGING: registers read ──▶ STOPPED ──▶ the caller's memory
//!   RUNNING ──the caller's memory read, looked at──▶ its area, on this node
//!                                     └──▶ `saved`, `saved_fp` ──TRANSIT──▶ its area, on another one
//! ```
//!
//! | step | order |
//! |---|---|
//! | unload: the thread is taken, read, and given back; then the caller's memory is written | a thread that cannot be read, or memory that cannot be written, leaves both unchanged |
//! | load elsewhere: the registers are in the frame, then the owner word changes | release, as for any handoff |
//!
//! The registers that a thread carries lie in the save area of faults, which is free because a thread outside
//! of invocations has no fault under way. If the thread cannot leave, or its new node dies before it arrives,
//! it returns from `Load` with an error, and its state is unchanged.

use core::sync::atomic::Ordering;

use dyad_abi::cap::ThreadOp;
use dyad_abi::emulation::{WORDS, general, stack_pointer};
use dyad_abi::user::USER_END;
use dyad_abi::{Error, Isa, NodeId, Result};

use crate::migrate::crossing_state::CrossingState;
use crate::migrate::handoff;
use crate::sched::dispatch::{self, OpOutcome, take, untake};
use crate::sched::fp;
use crate::sched::registers::{self, GENERAL_WORDS};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{Owner, State, Thread, begun};
use dyad_space::copy;

/// Words that are copied at once.
const PART: usize = 32;

/// Reads or writes one register of a stopped thread, on the ISA of this node: only its `arch` crate knows the
/// layout of a register area.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread is not stopped; [`Error::TooDeep`] within an invocation, where the
/// registers are the service's; [`Error::NoIsa`] if this node does not have the ISA asked for, or the thread goes on on
/// another one; [`Error::NodeDead`], [`Error::BadArgument`].
pub fn access<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    op: ThreadOp,
    a: [u64; 5],
) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if owner.state != State::Stopped && !lacks!("ops::registers::access::state") {
        return Err(Error::NotReady);
    }
    let isa = Isa::from_index(a[0]).ok_or(Error::BadArgument)?;
    if isa != P::ISA {
        return Err(Error::NoIsa);
    }
    let taken = take(cx, t, owner).ok_or(Error::NotReady)?;
    let done = match is_of_service::<P>(cx, t, owner) {
        false => register::<P>(t, op, a),
        true => Err(Error::NoIsa),
    };
    // It goes on where it was, if it is resumed.
    untake::<P>(cx, t, taken, owner)?;
    done
}

/// Whether what a taken thread has in the registers of this ISA may be what a service has left there: the thread goes on
/// elsewhere, where it has crossed from.
fn is_of_service<P: Platform>(cx: &KernelCtx, t: &Thread, owner: Owner) -> bool {
    let is_here = |isa: Isa| t.begun(isa) == begun::HERE;
    cx.node.isa(owner.node) != P::ISA
        && is_here(P::ISA.other())
        && !t.is_invoking()
        && !matches!(t.begun(P::ISA), begun::NOT | begun::LOST)
}

/// Reads or writes a register of a taken thread. A thread that has not begun at all is first set up at its entry point,
/// so that a debugger sees where it begins. One that has begun on another ISA is not: it would have registers on both, and
/// could be resumed on this one, with the result of a call that it has made on the other.
fn register<P: Platform>(t: &'static Thread, op: ThreadOp, a: [u64; 5]) -> Result<u64> {
    if t.is_invoking() && !lacks!("ops::registers::register::depth") {
        return Err(Error::TooDeep);
    }
    let has_begun = || Isa::ALL.iter().any(|&isa| t.begun(isa) != begun::NOT);
    match t.begun(P::ISA) {
        begun::NOT if has_begun() && !lacks!("ops::registers::register::begun") => {
            return Err(Error::NoIsa);
        }
        begun::NOT => dispatch::start::<P>(t),
        begun::LOST => return Err(Error::NodeDead),
        _ => {}
    }
    let area = t.regs(P::ISA);
    match op {
        ThreadOp::ReadRegister => P::read_register(area, a[1]).ok_or(Error::BadArgument),
        _ if P::write_register(area, a[1], a[2]) => Ok(0),
        _ => Err(Error::BadArgument),
    }
}

/// `Unload`: writes all registers of a stopped thread to memory of the caller. Value: the node on which it
/// was stopped.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread is not stopped, or was stopped while it waited: its registers are not
/// final before it has the result of its wait. [`Error::TooDeep`] within an invocation, where the registers
/// are the service's. [`Error::NoIsa`] if this node does not have the ISA asked for, or the thread does not
/// run on that ISA; [`Error::NodeDead`] if the registers were lost; [`Error::BadArgument`]; the errors of
/// [`copy::copy_out`] for the memory.
pub fn unload<P: Platform>(cx: &KernelCtx, t: &'static Thread, a: [u64; 5]) -> Result<u64> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if owner.state != State::Stopped {
        return Err(Error::NotReady);
    }
    let isa = Isa::from_index(a[0]).ok_or(Error::BadArgument)?;
    if isa != P::ISA {
        return Err(Error::NoIsa);
    }
    let taken = take(cx, t, owner).ok_or(Error::NotReady)?;
    // What a service has left on another ISA is not the thread's.
    let words = match cx.node.isa(owner.node) == isa {
        true => all::<P>(t),
        false => Err(Error::NoIsa),
    };
    untake::<P>(cx, t, taken, owner)?;
    let words = words?;
    let space = cx.space()?;
    for (part, at) in words.chunks(PART).zip((0..).step_by(8 * PART)) {
        let mut bytes = [0; 8 * PART];
        for (to, word) in bytes.chunks_exact_mut(8).zip(part) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let to = a[1].checked_add(at).ok_or(Error::BadAddress)?;
        copy::copy_out::<P>(cx, space, to, &bytes[..8 * part.len()])?;
    }
    Ok(owner.node.index() as u64)
}

/// All registers of a taken thread.
fn all<P: Platform>(t: &Thread) -> Result<[u64; WORDS]> {
    if t.is_invoking() || CrossingState::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    match t.begun(P::ISA) {
        begun::HERE => {}
        begun::LOST => return Err(Error::NodeDead),
        _ => return Err(Error::NoIsa),
    }
    let area = t.regs(P::ISA);
    // What a call of its returns is put into its registers when it next runs, or now.
    match t.result.load(Ordering::Acquire) {
        0 => {}
        1 => {
            t.result.store(0, Ordering::Relaxed);
            let status = t.result_status.load(Ordering::Relaxed);
            P::set_result(area, status, t.result_value.load(Ordering::Relaxed));
        }
        _ => return Err(Error::NotReady),
    }
    let count = general(P::ISA);
    let register = |n: usize| P::read_register(area, n as u64).unwrap_or(0);
    let mut words = [0; WORDS];
    words[0] = P::ISA as u64;
    words[1] = P::user_pc_sp(area).0;
    words[2] = register(count + 1);
    words[3] = register(count + 2);
    for (n, word) in words[4..4 + count].iter_mut().enumerate() {
        *word = register(n);
    }
    words[GENERAL_WORDS..].copy_from_slice(&fp::words::<P>(t));
    Ok(words)
}

/// `Load`: the running thread continues with registers that are in its memory.
///
/// # Errors
///
/// [`Error::TooDeep`] within an invocation; [`Error::NoSuchNode`]; [`Error::NoIsa`] if the registers are not
/// of that node's ISA; [`Error::BadAddress`] if program counter or stack pointer is no user address; the
/// errors of [`copy::copy_in`] for the memory, and of [`handoff::send`] for another node. The thread then
/// continues after the call.
pub fn load<P: Platform>(cx: &KernelCtx, t: &'static Thread, a: [u64; 5]) -> Result<OpOutcome> {
    if t.is_invoking() || CrossingState::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    let node = NodeId::new(a[1])
        .filter(|n| n.index() < cx.node.params.node_count)
        .ok_or(Error::NoSuchNode)?;
    let space = cx.space()?;
    let mut words = [0; WORDS];
    for (part, at) in words.chunks_mut(PART).zip((0..).step_by(8 * PART)) {
        let mut bytes = [0; 8 * PART];
        let bytes = &mut bytes[..8 * part.len()];
        let from = a[0].checked_add(at).ok_or(Error::BadAddress)?;
        copy::copy_in::<P>(cx, space, from, bytes)?;
        for (word, from) in part.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = from.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
        }
    }
    let isa = cx.node.isa(node);
    if words[0] != isa as u64 {
        return Err(Error::NoIsa);
    }
    let (pc, sp) = (words[1], words[4 + stack_pointer(isa)]);
    if pc == 0 || pc >= USER_END || sp >= USER_END {
        return Err(Error::BadAddress);
    }
    if node != cx.node.id() {
        return handoff::load::<P>(cx, t, node, &words);
    }
    dispatch::complete_frame::<P>(cx, t);
    fp::forget::<P>(cx.local);
    registers::set_all::<P>(cx, t, &words);
    Ok(OpOutcome::Switched)
}
