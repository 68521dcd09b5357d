//! Operations on a node's hardware.
//!
//! A Hardware capability is for one node; init starts with one for each node.
//!
//! | operation | acts on | with a caller on another node |
//! |---|---|---|
//! | `Now`, `Where`, `NodeState`, `Quiesced`, `Shutdown`, `Inside` | the system | works |
//! | `StartCpu` | a CPU of the capability's node | works, by a message |
//! | `FlushStep`, `FlushTlb`, `AttachIrq`, `Write`, `Report` | the node the caller runs on | [`Error::NotReady`] |
//!
//! The operations of the last row use what is private to a node (its round, its TLBs, its table of
//! interrupts, its serial line), which no other node can reach. A caller that may run on several nodes has to
//! hold the capability for each.
//!
//! | operation | needs besides its right |
//! |---|---|
//! | `StartCpu` | the thread, with the right to resume it |
//! | `AttachIrq` | a sending end, with the right to send and without a guard |
//!
//! Nothing here is undone when a capability is removed: an interrupt stays attached, and a root thread stays
//! one, until another call changes it. Their targets are checked at each use.
//!
//! Bounds: a step of a round does at most [`quiet::MAX_STEPS`] steps, a text has at most [`MAX_WRITE`] bytes
//! and one line, and every other operation accesses a fixed number of words.

use dyad_abi::cap::{CapIndex, CapType, HardwareOp, SendOp};
use dyad_abi::clock::{KernelCounter, SimCounter};
use dyad_abi::user::{MAX_WRITE, Where};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_shm::frame::Epoch;

use super::inside;
use crate::run_loop::shutdown;
use crate::sched::{dispatch, quiet};
use crate::syscall::report;
use dyad_machine::fused;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_machine::{Platform, clock, console, inbox};
use dyad_object::find;
use dyad_object::thread::Thread;
use dyad_space::copy;

/// Carries out an operation on hardware.
///
/// # Errors
///
/// [`Error::NotReady`] as in the table above, or if rounds have not begun; [`Error::NoSuchNode`],
/// [`Error::BadArgument`]; [`Error::Again`] if another CPU drives the round, or a message does not fit now;
/// the errors of [`copy::copy_in`] for user memory, and of [`KernelCtx::operand`] for capabilities in
/// arguments.
pub fn dispatch<P: Platform>(
    cx: &KernelCtx,
    this: &Operand,
    op: HardwareOp,
    a: [u64; 5],
) -> Result<u64> {
    let node = NodeId::new(this.payload[0]).ok_or(Error::Corrupt)?;
    // These are true everywhere: they read or write words that all nodes share.
    match op {
        HardwareOp::Now => return Ok(clock::now::<P>().0),
        HardwareOp::Where => {
            return Ok(Where {
                node: cx.node.id(),
                cpu: cx.cpu(),
                isa: P::ISA,
            }
            .pack());
        }
        // Of whichever CPU this is: the simulator observes, it does not belong to a node.
        HardwareOp::Count => {
            if let Some(counter) = KernelCounter::from_number(a[0]) {
                return Ok(match counter {
                    KernelCounter::Doorbells => inbox::rung(cx.node),
                    KernelCounter::Messages => inbox::sent(cx.node),
                });
            }
            let counter = SimCounter::from_number(a[0]).ok_or(Error::BadArgument)?;
            return fused::count::<P>(counter).ok_or(Error::NotReady);
        }
        HardwareOp::NodeState => {
            let of = NodeId::new(a[0])
                .filter(|n| n.index() < cx.node.params.node_count)
                .ok_or(Error::NoSuchNode)?;
            let word = cx.node.word_of(of);
            return Ok((word.incarnation as u64) << 32 | word.state as u64);
        }
        // A caller may ask as often as it likes: waiting for a round is done at user level.
        HardwareOp::Quiesced => {
            let stamp = Epoch::new(a[0]).ok_or(Error::BadArgument)?;
            return Ok(cx.node.tables.quiesced(stamp) as u64);
        }
        HardwareOp::Inside => return inside::inside::<P>(cx, a[0]),
        HardwareOp::StartCpu => return start_cpu::<P>(cx, node, a),
        // For the whole system, and for good: the first code counts. The caller runs on until its
        // node ends.
        HardwareOp::Shutdown => {
            let code = u32::try_from(a[0]).map_err(|_| Error::BadArgument)?;
            shutdown::shut_down::<P>(cx.node, code);
            return Ok(0);
        }
        _ => {}
    }
    if node != cx.node.id() && !lacks!("ops::hardware::dispatch::node") {
        return Err(Error::NotReady);
    }
    match op {
        HardwareOp::FlushStep => quiet::flush_step::<P>(cx, a[0]),
        // All of it, and this CPU's only: quiescence and shootdowns are what reach others.
        HardwareOp::FlushTlb => {
            P::flush_tlb();
            Ok(0)
        }
        HardwareOp::AttachIrq => attach(cx, a),
        HardwareOp::Write => write::<P>(cx, a[0], a[1]),
        HardwareOp::Report => report::report::<P>(cx, a[0]),
        _ => Err(Error::BadSyscall),
    }
}

/// Makes a thread the root thread of a CPU. For a CPU of another node, that node's first CPU does it, because
/// root threads are private to a node. The caller is not told the outcome: a message that is no longer valid
/// is dropped and reported on that node's console.
fn start_cpu<P: Platform>(cx: &KernelCtx, node: NodeId, a: [u64; 5]) -> Result<u64> {
    let cpu = CpuId::new(a[0])
        .filter(|c| c.index() < cx.node.params.cpus)
        .ok_or(Error::BadArgument)?;
    let thread = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let thread = cx.operand(
        thread,
        CapType::Thread,
        dyad_abi::cap::ThreadOp::Resume.right(),
    )?;
    let object = thread.object()?;
    // The CPU that takes the message looks at it again: the thread may be given up on the way.
    let t: &'static Thread = find(cx.node, object, Thread::KIND)?;
    if node == cx.node.id() {
        dispatch::set_root::<P>(cx, cpu, t)?;
        return Ok(0);
    }
    let m = dyad_ring::Message([
        inbox::kind::ROOT,
        object.bits(),
        cpu.index() as u64,
        0,
        0,
        0,
        0,
        0,
    ]);
    // Any CPU of the node can do it; the first one is there as long as the node is.
    let first = CpuId::first(1).next().ok_or(Error::Corrupt)?;
    inbox::send::<P>(node, first, &m)?;
    Ok(0)
}

/// Attaches an interrupt of this node to the endpoint of a Send capability: the interrupt then sends the
/// capability's bits.
///
/// The kernel keeps a weak reference: when the endpoint is gone, interrupts have no effect. The capability is
/// not checked again, so it must not be guarded: a revoked guard would go unnoticed.
fn attach(cx: &KernelCtx, a: [u64; 5]) -> Result<u64> {
    let slot = usize::try_from(a[0])
        .ok()
        .and_then(|n| cx.node.interrupts.get(n))
        .ok_or(Error::BadArgument)?;
    // The lock is held for a word, never while a message is sent: who wakes up may come here.
    if a[1] == 0 {
        slot.lock().take();
        return Ok(0);
    }
    let send = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let send = cx
        .operand(send, CapType::Send, SendOp::Send.right())?
        .unguarded()?;
    *slot.lock() = Some((send.object()?, send.payload[0], send.payload[1]));
    Ok(0)
}

/// Writes text of the caller to this node's console, up to the end of a line and at most [`MAX_WRITE`] bytes.
/// Value: the number of bytes taken; the caller continues after them.
///
/// # Errors
///
/// The errors of [`copy::copy_in`].
fn write<P: Platform>(cx: &KernelCtx, at: u64, len: u64) -> Result<u64> {
    let n = len.min(MAX_WRITE as u64) as usize;
    let mut text = [0; MAX_WRITE];
    copy::copy_in::<P>(cx, cx.space()?, at, &mut text[..n])?;
    Ok(console::user::<P>(&text[..n]) as u64)
}
