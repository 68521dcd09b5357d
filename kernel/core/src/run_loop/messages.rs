//! What other CPUs have for this one: shootdowns, threads that are handed over, messages.
//!
//! Bits, rings and the sending half are in [`inbox`].
//!
//! | step | order |
//! |---|---|
//! | the pending bits are taken, all at once; then the flush word, the arrivals, and the rings of the senders are looked at | acquire: what was there before a bit that was taken is seen. What comes later sets its bit anew |
//! | the flush word is taken; then translations are dropped | a shootdown that is asked for later sets the word anew |
//! | [`BATCH`](arrivals::BATCH) threads; if there are more, this CPU's own bit is set | those that are left come next turn, in the order of a circle: no thread waits for ever |
//! | some messages of a sender, then the next one's turn; what is left has its bit set again | a sender who never stops does not keep this CPU from others, and is not forgotten |
//!
//! Bits of threads are hints: the owner word decides. So one that is set twice, or late, does no harm; a thread
//! whose giver has died before it set the bit is announced once more by recovery.
//!
//! Whoever drives rounds, or waits for other nodes, also comes here: a CPU that waits for messages
//! to be taken must take its own.
//!
//! Contents are not trusted: a message that names
//! something that is not there, or not in the state the message says, is dropped and reported.

use core::sync::atomic::Ordering;

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::record::Level;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_ring::wake::{self, WakeLine};
use dyad_ring::{Consumer, Message, arrivals};
use dyad_shm::FrameRef;

use crate::migrate::handoff;
use crate::sched::dispatch;
use dyad_machine::inbox::{self, kind, ring_at, wake_line};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, console};
use dyad_object;
use dyad_object::node::{Node, node};
use dyad_object::thread::Thread;
use dyad_space::shootdown;

/// Most messages taken from one inbox before others get their turn.
const BATCH: usize = 8;
/// Most messages taken at once: bounds the time a CPU spends here.
const TOTAL: usize = 12;

/// Takes what has come in. Bounded: at most [`BATCH`](arrivals::BATCH) threads, `BATCH` messages per sender and
/// `TOTAL` of all; if more are left a bit is set again, and the CPU neither sleeps nor runs user code before it
/// has come back. The first sender is another one in each turn, so that all have theirs.
pub fn drain<P: Platform>() {
    let node = node();
    let local = P::local();
    let mem = node.words;
    let line = wake_line(node.id(), local.id());
    let pending = wake::take_pending(mem, &line);
    if pending == 0 {
        return;
    }
    let me = node.sb.cpu(node.id(), local.id());
    if node.words.read(&me.flush) != 0 {
        node.words.replace(&me.flush, 0);
        shootdown::flush_here::<P>(node, local.id());
    }
    take_arrivals::<P>(node, &line);
    // A bit says which CPU of a node has sent, the ring only which node: a node's CPUs share it.
    let count = node.params.node_count;
    let first = local.turns.get() as usize % count.max(1);
    let mut left = TOTAL;
    let turn = (first..count).chain(0..first);
    for from in turn.filter_map(|n| NodeId::new(n as u64)) {
        if pending >> (from.index() * MAX_CPUS) & ((1 << MAX_CPUS) - 1) == 0 {
            continue;
        }
        for i in 0..=BATCH {
            if i == BATCH || left == 0 {
                // Not done yet: come back before sleeping or running user code.
                let bit = (from.index() * MAX_CPUS) as u32;
                let _ = wake::notify(mem, &line, bit);
                break;
            }
            left -= 1;
            // Borrowed for this message only: what handles it may send, and look in here.
            let next = {
                let mut inboxes = local.inboxes.borrow_mut();
                let Some(inbox) = inboxes[from.index()].as_mut() else {
                    break;
                };
                inbox.pop(mem)
            };
            match next {
                Ok(Some(m)) => handle::<P>(node, from, &m),
                Ok(None) => break,
                // The sender has written nonsense, or something else has: begin anew where it says it
                // is. What was between is lost, but this CPU is not.
                Err(_) => {
                    console::log_limited::<P>(
                        Level::Warn,
                        format_args!("inbox from node {from}: impossible index, messages dropped"),
                    );
                    local.inboxes.borrow_mut()[from.index()] =
                        Some(Consumer::attach(mem, ring_at(node.id(), local.id(), from)));
                    break;
                }
            }
        }
    }
}

/// Takes threads that have been handed to this CPU.
fn take_arrivals<P: Platform>(node: &'static Node, line: &WakeLine) {
    let local = P::local();
    let mut next = local.next_arrival.get();
    let at = inbox::arrivals(node.id(), local.id());
    let batch = arrivals::take(node.words, &at, &mut next);
    local.next_arrival.set(next);
    for id in batch.ids() {
        if let Err(e) = handoff::receive::<P>(&KernelCtx::here::<P>(), id as u64) {
            console::log_limited::<P>(
                Level::Warn,
                format_args!("thread {id} has come, and is not taken: {e}"),
            );
        }
    }
    if batch.more {
        let me = node.id().index() * MAX_CPUS + local.id().index();
        let _ = wake::notify(node.words, line, me as u32);
    }
}

/// Does what a message says. Nobody waits for an answer: what goes wrong is reported here, and
/// nothing has been done then. The sender may have died since, and may have been another one than
/// the ring says if it is a liar: no message gives it anything that it could not do by itself.
fn handle<P: Platform>(node: &'static Node, from: NodeId, m: &Message) {
    let result = match m.0[0] {
        kind::ROOT => become_root::<P>(&KernelCtx::here::<P>(), m.0[1], m.0[2]),
        kind::PUBLISH_CODE => publish_code_here::<P>(node, m.0[1]),
        kind::TEST => {
            // Numbered by its sender, from 0 on: the count is also the next number expected.
            let seen = node.test_received[from.index()].fetch_add(1, Ordering::AcqRel);
            if m.0[2] != seen {
                node.test_disorder.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
        _ => Err(Error::BadArgument),
    };
    if let Err(e) = result {
        console::log_limited::<P>(
            Level::Warn,
            format_args!("message from node {from} dropped: {:x?}: {e}", &m.0[..3]),
        );
    }
}

/// A [`ROOT`](kind::ROOT) message has come. Root threads are private to a node, so that no other node's
/// word has to be looked at in each turn of the run loop; this is how others change them.
///
/// # Errors
///
/// [`Error::Revoked`] if the thread is gone by now, [`Error::BadArgument`], else as
/// [`dispatch::set_root`].
fn become_root<P: Platform>(cx: &KernelCtx, thread: u64, cpu: u64) -> Result<()> {
    let (t, _) = dyad_object::follow::<Thread>(cx.node, thread, Thread::KIND)?;
    let cpu = CpuId::new(cpu)
        .filter(|c| c.index() < cx.node.params.cpus)
        .ok_or(Error::BadArgument)?;
    dispatch::set_root::<P>(cx, cpu, t)
}

/// Rewrites a frame in place so that this machine drops its translations of it. Any frame that is in a
/// pool may be named: its words stay what they are.
///
/// # Errors
///
/// [`Error::BadArgument`] if it is in no pool.
pub(crate) fn publish_code_here<P: Platform>(node: &Node, frame: u64) -> Result<()> {
    let pa = u32::try_from(frame)
        .ok()
        .and_then(FrameRef::from_bits)
        .ok_or(Error::BadArgument)?
        .address();
    shootdown::publish_here::<P>(node, pa)
}
