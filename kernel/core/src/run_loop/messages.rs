//! Requests of other CPUs to this one: shootdowns, threads that are handed over, messages.
//!
//! [`inbox`] has the bits, the rings and the sending half.
//!
//! | step | order |
//! |---|---|
//! | the pending bits are taken, all at once; then the flush word, the arrivals, and the rings of the senders are read | acquire: what was stored before a bit that was taken is seen. A later request sets its bit again |
//! | the flush word is taken; then translations are dropped | a later shootdown sets the word again |
//! | [`BATCH`](arrivals::BATCH) threads; if there are more, this CPU's own bit is set | the others come next turn, round robin: no thread waits for ever |
//! | some messages of a sender, then the next sender; the bit is set again for what is left | a sender that never stops does not keep this CPU from others, and is not forgotten |
//!
//! Bits of threads are hints: the owner word decides. A bit that is set twice, or late, does no harm. If the
//! sender of a thread dies before it sets the bit, recovery sets it.
//!
//! A CPU that drives rounds, or waits for other nodes, also calls [`drain`]: a CPU that waits for its
//! messages to be taken must take its own.
//!
//! Contents are not trusted. A message that names a missing object, or one in another state than the message
//! says, is dropped and reported.

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

/// Most messages taken from one inbox before the next sender's turn.
const BATCH: usize = 8;
/// Most messages taken at once: bounds the time a CPU spends here.
const TOTAL: usize = 12;

/// Takes pending requests. Bounded: at most [`BATCH`](arrivals::BATCH) threads, `BATCH` messages per sender
/// and `TOTAL` messages. If more are left, a bit is set again, and the CPU neither sleeps nor runs user code
/// before its next call. Each turn begins with another sender, so that all senders are served.
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

/// Takes threads that have been handed to this CPU, at most [`BATCH`](arrivals::BATCH).
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

/// Handles a message. The sender does not wait for an answer: an error is reported here, and nothing has been
/// done then. The sender may have died since, and the ring's number of the sender may be forged: no message
/// gives a sender anything that it could not do itself.
fn handle<P: Platform>(node: &'static Node, from: NodeId, m: &Message) {
    let result = match m.0[0] {
        kind::ROOT => become_root::<P>(&KernelCtx::here::<P>(), m.0[1], m.0[2]),
        kind::PUBLISH_CODE => publish_code_here::<P>(&KernelCtx::here::<P>(), m.0[1]),
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

/// Handles a [`ROOT`](kind::ROOT) message. Root threads are private to a node, so that the run loop need not
/// read shared words in each turn; other nodes change them by this message.
///
/// # Errors
///
/// [`Error::Revoked`] if the thread is gone by now, [`Error::BadArgument`]; the errors of
/// [`dispatch::set_root`].
fn become_root<P: Platform>(cx: &KernelCtx, thread: u64, cpu: u64) -> Result<()> {
    let (t, _) = dyad_object::follow::<Thread>(cx.node, thread, Thread::KIND)?;
    let cpu = CpuId::new(cpu)
        .filter(|c| c.index() < cx.node.params.cpus)
        .ok_or(Error::BadArgument)?;
    dispatch::set_root::<P>(cx, cpu, t)
}

/// Handles a [`PUBLISH_CODE`](kind::PUBLISH_CODE) message. Any frame of a pool may be named: see
/// [`shootdown::publish_asked`].
///
/// # Errors
///
/// [`Error::BadArgument`] if the frame is in no pool; those of [`shootdown::publish_asked`].
pub(crate) fn publish_code_here<P: Platform>(cx: &KernelCtx, frame: u64) -> Result<()> {
    let frame = u32::try_from(frame)
        .ok()
        .and_then(FrameRef::from_bits)
        .ok_or(Error::BadArgument)?;
    shootdown::publish_asked::<P>(cx, frame)
}
