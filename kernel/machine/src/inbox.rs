//! Requests between CPUs: threads that are handed over, shootdowns, messages.
//!
//! Threads and shootdowns are bits, for which there is always room:
//!
//! | request | place | protocol |
//! |---|---|---|
//! | a thread has been handed to a node, and a CPU of the node must take it ([`announce`]) | a bit for each thread id at each CPU, with a summary word | [`dyad_ring::arrivals`] |
//! | a CPU must drop its translations ([`ask_to_flush`]) | a word of each CPU | `dyad_space::shootdown` |
//!
//! Everything else is a message. Every CPU has one inbox (a [`dyad_ring`] ring) per sender node in the CXL
//! pool. A sender pushes, then notifies: it sets its bit in the receiver's `pending` word, and rings the
//! doorbell only if the bit was clear and the receiver is not attentive. The receiver takes the word and then
//! reads the inboxes of the nodes whose bits were set. [`dyad_ring::wake`] has the protocol and its orderings.
//!
//! | step | order |
//! |---|---|
//! | send: message into the ring; bit in `pending`; fence; `activity` | a receiver that announced sleep before the bit is rung, one that announces it later sees the bit |
//! | receive: `pending` taken (to 0); rings of the bits that were set | acquire: messages pushed before the bit are seen |
//! | some are left: the bit is set again | it is read before the CPU sleeps or runs user code |
//!
//! This module has the sending half, and the places of rings and words; `dyad_core::run_loop::messages`
//! handles messages.
//!
//! A slow receiver makes the senders of messages fail with [`Error::Full`], never wait: no operation waits
//! for another CPU, which might be waiting itself. The caller of the operation gets the error, and may try
//! again; no thread depends on a message.

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_ring::arrivals::{self, Arrivals};
use dyad_ring::wake::{self, WakeLine};
use dyad_ring::{Consumer, Message, Producer, PushError, RING_BYTES};
use dyad_shm::permitted::Permitted;
use dyad_shm::superblock::{
    ARRIVALS_OFFSET, ARRIVALS_SPACE, CpuEntry, INBOX_OFFSET, INBOX_SPACE, activity,
};
use dyad_shm::{LayoutHash, PhysAddr, PoolId};

use crate::Platform;
use crate::cpu::{CpuLocal, FIRST_CPU};
use crate::node::{Node, node};

/// Kinds of messages: word 0 of a message.
pub mod kind {
    /// `[kind, frame]`: a hint that this node has been asked to rewrite the frame, so that it has no stale
    /// translation of it. The frame's record says whether it has; see `dyad_retype::executed`.
    pub const PUBLISH_CODE: u64 = 2;
    /// `[kind, thread, cpu]`: makes a thread the root thread of a CPU.
    pub const ROOT: u64 = 5;
    /// `[kind, sender, number]`: counted; for tests.
    pub const TEST: u64 = 3;
}

const _: () = {
    assert!(RING_BYTES * (MAX_NODES * MAX_CPUS * MAX_NODES) as u64 <= INBOX_SPACE);
    assert!(arrivals::BYTES * (MAX_NODES * MAX_CPUS) as u64 <= ARRIVALS_SPACE);
    assert!(arrivals::IDS as u64 == dyad_abi::service::MAX_THREAD_IDS);
};

/// Adds message kinds and the places of inboxes to a hash: see [`dyad_shm::layout`].
pub const fn layout(h: LayoutHash) -> LayoutHash {
    h.text("inbox")
        .word(kind::ROOT)
        .word(kind::PUBLISH_CODE)
        .word(kind::TEST)
        .word(MAX_NODES as u64)
        .word(MAX_CPUS as u64)
}

/// The address of the ring from a sender node to a CPU.
pub fn ring_at(receiver: NodeId, cpu: CpuId, sender: NodeId) -> PhysAddr {
    let i = (receiver.index() * MAX_CPUS + cpu.index()) * MAX_NODES + sender.index();
    PoolId::Cxl.base().add(INBOX_OFFSET + i as u64 * RING_BYTES)
}

/// The address of a CPU's entry in the superblock.
fn entry_at(n: NodeId, c: CpuId) -> PhysAddr {
    PoolId::Cxl.base().add(
        (core::mem::offset_of!(dyad_shm::Superblock, cpus)
            + (n.index() * MAX_CPUS + c.index()) * size_of::<CpuEntry>()) as u64,
    )
}

/// The words by which a CPU is woken: on the two lines of its entry in the superblock.
pub fn wake_line(n: NodeId, c: CpuId) -> WakeLine {
    let at = entry_at(n, c);
    WakeLine {
        pending: at.add(core::mem::offset_of!(CpuEntry, pending) as u64),
        activity: at.add(core::mem::offset_of!(CpuEntry, activity) as u64),
    }
}

/// The words with the threads that have been handed to a CPU.
pub fn arrivals(n: NodeId, c: CpuId) -> Arrivals {
    let i = (n.index() * MAX_CPUS + c.index()) as u64;
    Arrivals {
        summary: entry_at(n, c).add(core::mem::offset_of!(CpuEntry, arrived) as u64),
        words: PoolId::Cxl
            .base()
            .add(ARRIVALS_OFFSET + i * arrivals::BYTES),
    }
}

/// Attaches this node's sending ends; once, while joining.
pub fn attach_outboxes(node: &Node) {
    let mem = node.words;
    for n in node.all() {
        for c in CpuId::first(node.params.cpus) {
            *node.outboxes[n.index()][c.index()].lock() =
                Some(Producer::attach(mem, ring_at(n, c, node.id())));
        }
    }
}

/// Attaches this CPU's receiving ends. Messages to an older incarnation are dropped.
pub fn attach_inboxes(node: &Node, local: &CpuLocal) {
    let mem = node.words;
    let mut inboxes = local.inboxes.borrow_mut();
    for n in node.all() {
        inboxes[n.index()] = Some(Consumer::attach(mem, ring_at(node.id(), local.id(), n)));
    }
}

/// Tells senders that this CPU polls its inboxes.
pub fn attentive<P: Platform>() {
    let node = node();
    wake::attentive(node.words, &wake_line(node.id(), P::cpu()));
}

/// Announces that this CPU is about to run user code or to sleep. Returns `false` if something has come in,
/// and it must do neither.
pub fn prepare<P: Platform>(what: u64) -> bool {
    let node = node();
    wake::prepare(node.words, &wake_line(node.id(), P::cpu()), what)
}

/// The bit of this CPU in the `pending` words of others.
fn sender_bit<P: Platform>() -> u32 {
    (node().id().index() * MAX_CPUS + P::cpu().index()) as u32
}

/// Sets this CPU's bit at a CPU of another node (or this one) and rings its doorbell if needed.
pub fn notify<P: Platform>(to: NodeId, cpu: CpuId) {
    let node = node();
    let mem = node.words;
    if wake::notify(mem, &wake_line(to, cpu), sender_bit::<P>()) {
        ring_doorbell::<P>(to, cpu);
    }
}

fn ring_doorbell<P: Platform>(to: NodeId, cpu: CpuId) {
    let node = node();
    let peer = node.words.read(&node.sb.node(to).doorbell);
    // Zero: it has not told its identifier yet. It looks at its inboxes once it is up.
    if peer != 0 && cpu.index() < node.params.cpus {
        node.words.increase(&node.sb.cpu(to, cpu).rung, 1);
        P::ring(to, cpu, peer - 1);
    }
}

/// Checks that a CPU exists, and that its node is live.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`].
fn check(node: &Node, to: NodeId, cpu: CpuId) -> Result<()> {
    if to.index() >= node.params.node_count || cpu.index() >= node.params.cpus {
        return Err(Error::NoSuchNode);
    }
    match node.is_live(to) {
        true => Ok(()),
        false => Err(Error::NodeDead),
    }
}

/// Notifies a CPU of a thread that has been handed to its node; the thread's owner word names the node
/// already. There is always room.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`]; [`Error::Corrupt`] if there is no such thread id.
pub fn announce<P: Platform>(to: NodeId, cpu: CpuId, thread_id: u64) -> Result<()> {
    let node = node();
    check(node, to, cpu)?;
    let id = u32::try_from(thread_id).map_err(|_| Error::Corrupt)?;
    if !arrivals::post(node.words, &arrivals(to, cpu), id) {
        return Err(Error::Corrupt);
    }
    notify::<P>(to, cpu);
    Ok(())
}

/// Asks a CPU of any node to drop its translations. There is always room.
pub fn ask_to_flush<P: Platform>(to: NodeId, cpu: CpuId) {
    let node = node();
    node.words.set_bits(&node.sb.cpu(to, cpu).flush, 1);
    notify::<P>(to, cpu);
}

/// Sends a message to a CPU of another node.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`], [`Error::Full`] (try again later),
/// [`Error::Corrupt`] if the receiver's index is impossible.
pub fn send<P: Platform>(to: NodeId, cpu: CpuId, m: &Message) -> Result<()> {
    let node = node();
    check(node, to, cpu)?;
    let mem = node.words;
    {
        let mut outbox = node.outboxes[to.index()][cpu.index()].lock();
        let producer = outbox.as_mut().ok_or(Error::NodeDead)?;
        producer.push(mem, m).map_err(|e| match e {
            PushError::Full => Error::Full,
            PushError::Corrupt => Error::Corrupt,
        })?;
    }
    notify::<P>(to, cpu);
    Ok(())
}

/// Whether a CPU of another node has taken every message from this node.
pub fn is_drained(to: NodeId, cpu: CpuId) -> bool {
    let node = node();
    let outbox = node.outboxes[to.index()][cpu.index()].lock();
    let drained = |p: &Producer| p.is_drained(node.words);
    outbox.as_ref().is_some_and(drained)
}

/// How many doorbells this node has rung at CPUs of other nodes, or their earlier incarnations.
pub fn rung(node: &Node) -> u64 {
    let cpus = |n| CpuId::first(node.params.cpus).map(move |c| node.sb.cpu(n, c));
    node.others()
        .flat_map(cpus)
        .map(|cpu| node.words.read(&cpu.rung))
        .sum()
}

/// How many messages this node, or its earlier incarnations, have sent.
pub fn sent(node: &Node) -> u64 {
    let all = node.outboxes.iter().flatten();
    all.map(|outbox| outbox.lock().as_ref().map_or(0, Producer::sent))
        .sum()
}

/// The CPU of `to` that is best placed to take work: one that does not run user code, else one chosen by
/// `hint`.
pub fn pick_cpu(node: &Node, to: NodeId, hint: u64) -> CpuId {
    let free = |c: &CpuId| {
        let word = &node.sb.cpu(to, *c).activity;
        let doing = node.words.hint::<{ Permitted::Placement as u32 }>(word);
        matches!(
            doing & activity::KIND,
            activity::ATTENTIVE | activity::ASLEEP
        )
    };
    let cpus = node.params.cpus;
    CpuId::first(cpus)
        .find(free)
        .or_else(|| CpuId::first(cpus).nth(hint as usize % cpus))
        .unwrap_or(FIRST_CPU)
}
