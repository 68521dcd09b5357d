//! Migration: handing a thread to another node.
//!
//! The giving CPU has left the thread's context and saved its floating-point state before it
//! gives the thread up (release store of the owner word); the taking CPU wins it by CAS
//! (acquire). Between the two the thread belongs to nobody, and if the receiver dies before
//! taking it, [`crate::death`] brings it back with [`Error::NodeDead`].

use core::sync::atomic::Ordering;

use dyad_abi::{Error, NodeId, Result};
use dyad_ring::Message;
use dyad_shm::superblock::NodeState;

use crate::cpu::CpuLocal;
use crate::inbox::{self, kind};
use crate::node::Node;
use crate::thread::{Owner, OwnerState, ThreadFrame, reference};
use crate::{Platform, sched};

/// Hands the current thread, stopped in its `Migrate` call, to another node. On success it is
/// not this CPU's thread any more.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`], [`Error::Full`]: the thread goes on here.
pub fn away<P: Platform>(node: &Node, thread: &'static ThreadFrame, to: NodeId) -> Result<()> {
    if to.index() >= node.params.node_count {
        return Err(Error::NoSuchNode);
    }
    let local = P::local();
    sched::park::<P>(local, thread);
    // As soon as the thread is there its program may end, and its page tables with it.
    sched::leave_space::<P>(local);
    let result = give::<P>(node, thread, to, 0);
    match result {
        Ok(()) => {
            node.entry().migrations.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => {
            local.current.set(Some(thread));
            Err(e)
        }
    }
}

/// Sends a parked thread of this node to `to`; when it runs there its call returns `status`.
pub(crate) fn give<P: Platform>(
    node: &Node,
    thread: &'static ThreadFrame,
    to: NodeId,
    status: u64,
) -> Result<()> {
    let target = node.sb.node_word(to);
    if target.state != NodeState::Live {
        return Err(Error::NodeDead);
    }
    let mine = thread.owner().ok_or(Error::Corrupt)?;
    let handed = Owner {
        state: OwnerState::Transit,
        node: to,
        incarnation: target.incarnation,
        seq: mine.seq.wrapping_add(1),
    };
    thread
        .came_from
        .store(node.id().index() as u64 + 1, Ordering::Relaxed);
    thread.migrations.fetch_add(1, Ordering::Relaxed);
    thread.owner.store(handed.bits(), Ordering::Release);
    let cpu = inbox::pick_cpu(node, to, thread.id.load(Ordering::Relaxed));
    let m = Message([
        kind::HANDOVER,
        reference(&node.map, thread),
        handed.bits(),
        status,
        0,
        0,
        0,
        0,
    ]);
    match inbox::send::<P>(to, cpu, &m) {
        Ok(()) => Ok(()),
        Err(e) => take_back(thread, handed, mine, e),
    }
}

/// Undoes a hand-over whose message could not be sent. Normally nobody has seen the thread and it
/// is still this node's: `Err(why)`. But if the receiver has died, its recoverer may have found
/// the thread in transit and taken it; then it is *not* ours, and comes back by a message.
pub(crate) fn take_back(
    thread: &ThreadFrame,
    handed: Owner,
    mine: Owner,
    why: Error,
) -> Result<()> {
    let ours = thread
        .owner
        .compare_exchange(
            handed.bits(),
            mine.bits(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
        .is_ok();
    if !ours {
        return Ok(());
    }
    thread.migrations.fetch_sub(1, Ordering::Relaxed);
    Err(why)
}

/// Takes a thread over that a message says has been handed to this node.
///
/// # Errors
///
/// [`Error::NotFound`] if the message is stale or names no thread.
pub(crate) fn receive<P: Platform>(
    node: &'static Node,
    frame: u64,
    owner: u64,
    status: u64,
) -> Result<()> {
    let thread = ThreadFrame::find(&node.map, frame)?;
    let handed = Owner::from_bits(owner).ok_or(Error::NotFound)?;
    let for_us = handed.state == OwnerState::Transit
        && handed.node == node.id()
        && handed.incarnation == node.incarnation();
    if !for_us {
        return Err(Error::NotFound);
    }
    take(thread, handed, handed)?;
    arrive::<P>(node, P::local(), thread, status);
    Ok(())
}

/// Wins a thread in transit; `to` says whose it becomes.
pub(crate) fn take(thread: &ThreadFrame, handed: Owner, to: Owner) -> Result<()> {
    thread
        .owner
        .compare_exchange(
            handed.bits(),
            to.with(OwnerState::Ready).bits(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
        .map(|_| ())
        .map_err(|_| Error::NotFound)
}

/// Makes a thread that has come here ready: at its entry point the first time it is on this ISA,
/// else returning from its call.
pub(crate) fn arrive<P: Platform>(
    node: &'static Node,
    local: &CpuLocal,
    thread: &'static ThreadFrame,
    status: u64,
) {
    if thread.started[P::ISA.index()].load(Ordering::Relaxed) == 0 {
        thread.start_here::<P>();
    } else {
        let value = if status == 0 {
            node.id().index() as u64
        } else {
            0
        };
        P::set_result(thread.regs(P::ISA), status, value);
    }
    sched::make_ready(node, local, thread);
}
