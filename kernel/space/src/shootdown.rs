//! What CPUs hold of others' doing and have to drop: translations of addresses, at once; and the
//! simulator's translations of code.
//!
//! # Shootdown
//!
//! Quiescence drops translations within a round. Who cannot wait asks for a *ticket*; every CPU that
//! is awake then gets a message, drops its TLB when it takes it, and notes the ticket in its word
//! of the space. The kernel never waits: the caller asks, as often as it likes, whether all have.
//!
//! ```text
//! caller:   unmap ... ; ticket = add(tickets, 1) + 1; fence; message to each CPU; own TLB
//! receiver: t = tickets; flush TLB; flushed[me] = t
//! done(ticket): every CPU that takes part has flushed >= ticket
//! ```
//!
//! The receiver reads the number before it flushes, so what it notes is never too new. CPUs that
//! sleep, and those of dead nodes, hold nothing: they do not count. A CPU whose inbox is full has the
//! call refused with `Again`; the ticket is not handed out then.
//!
//! Bounds: one message per CPU of the system, at most 63; asking reads as many words.
//!
//! # Code
//!
//! Translated code is dropped by the simulator only when its own machine stores to the page. A
//! frame's executed-on bits say which nodes may hold translations of it; each of them has to rewrite
//! the frame itself before anything else in it is executed there.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_coherence::GlobalMem;
use dyad_ring::Message;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::{FrameEntry, PhysAddr};

use crate::Platform;
use crate::cpu::FIRST_CPU;
use crate::cx::Cx;
use crate::inbox;
use crate::mapping::In;
use crate::node::Node;
use crate::object::find;
use crate::object::space::Space;

fn word_of(node: NodeId, cpu: CpuId) -> usize {
    node.index() * MAX_CPUS + cpu.index()
}

/// CPUs that may hold translations.
fn holders(cx: &Cx) -> impl Iterator<Item = (NodeId, CpuId)> + '_ {
    let node = cx.node;
    node.all().filter(|&n| node.is_live(n)).flat_map(move |n| {
        let awake = cx.epochs().publication(n).awake();
        CpuId::first(node.params.cpus)
            .filter(move |c| awake >> c.index() & 1 != 0)
            .map(move |c| (n, c))
    })
}

/// Drops this CPU's translations in the name of a ticket.
fn flush_here<P: Platform>(node: &Node, cpu: CpuId, space: &Space) {
    let ticket = node.words.read(&space.tickets);
    node.words.fence();
    if !lacks!("shootdown::flush_here::tlb") {
        P::flush_tlb();
    }
    node.words
        .write(&space.flushed[word_of(node.id(), cpu)], ticket);
}

/// Asks all CPUs to drop their translations. Returns the ticket.
///
/// # Errors
///
/// [`Error::Again`] if some CPU has too many messages; try again.
pub fn request<P: Platform>(this: &In<'_>) -> Result<u64> {
    let cx = this.cx;
    let ticket = cx.words().increase(&this.space.tickets, 1) + 1;
    cx.words().fence();
    let message = Message([inbox::kind::SHOOTDOWN, this.object.bits(), 0, 0, 0, 0, 0, 0]);
    let me = (cx.node.id(), cx.cpu());
    for (n, c) in holders(cx).filter(|&to| to != me) {
        match inbox::send::<P>(n, c, &message) {
            // A node that dies counts no more.
            Ok(()) | Err(Error::NodeDead) => {}
            Err(Error::Full) => return Err(Error::Again),
            Err(e) => return Err(e),
        }
    }
    flush_here::<P>(cx.node, cx.cpu(), this.space);
    Ok(ticket)
}

/// Whether all CPUs have dropped what they held when the ticket was given.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such ticket.
pub fn is_done(this: &In<'_>, ticket: u64) -> Result<bool> {
    let words = this.cx.words();
    if ticket > words.read(&this.space.tickets) {
        return Err(Error::BadArgument);
    }
    Ok(holders(this.cx).all(|(n, c)| words.read(&this.space.flushed[word_of(n, c)]) >= ticket))
}

/// A [`SHOOTDOWN`](inbox::kind::SHOOTDOWN) message has come.
///
/// # Errors
///
/// [`Error::BadArgument`] if it makes no sense. The TLB is dropped also if the space is gone.
pub fn receive<P: Platform>(node: &'static Node, cpu: CpuId, space: u64) -> Result<()> {
    let object = WeakRef::from_bits(space).ok_or(Error::BadArgument)?;
    match find::<Space>(node, object, Space::KIND) {
        Ok(space) => flush_here::<P>(node, cpu, space),
        Err(_) => P::flush_tlb(),
    }
    Ok(())
}

/// Address of the word with the executed-on bits of a frame.
fn executed_word(node: &Node, pa: PhysAddr) -> Result<PhysAddr> {
    let record = FrameRef::of(pa).and_then(|f| node.tables.frames.record_at(f));
    Ok(record
        .ok_or(Error::BadArgument)?
        .add(core::mem::offset_of!(FrameEntry, w1) as u64))
}

const fn bit(n: NodeId) -> u64 {
    1 << n.index()
}

/// Rewrites a frame in place so that this machine drops its translations of it, and says so.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such frame.
pub fn publish_here<P: Platform>(node: &Node, pa: PhysAddr) -> Result<()> {
    let executed = executed_word(node, pa)?;
    let words = node
        .map
        .get::<[AtomicU64; PAGE_SIZE as usize / 8]>(pa)
        .ok_or(Error::BadArgument)?;
    for w in words {
        // A compare-exchange of the same value is a store to the translator even when it changes
        // nothing, and loses no update of another node. User memory counts as coherent.
        let v = w.load(Ordering::Relaxed);
        let _ = w.compare_exchange(v, v, Ordering::Relaxed, Ordering::Relaxed);
    }
    P::sync_code(node.map, pa, PAGE_SIZE);
    node.words.and(executed, !bit(node.id()));
    Ok(())
}

/// Makes the present contents of a frame fit to be executed by the nodes of an ISA, and notes that
/// they may. One frame is rewritten here at most; other nodes that hold translations are asked to.
///
/// # Errors
///
/// [`Error::Again`] as long as others have not rewritten it.
pub fn make_executable<P: Platform>(cx: &Cx, pa: PhysAddr, isa: Isa) -> Result<()> {
    let (node, words) = (cx.node, cx.words());
    let executed = executed_word(node, pa)?;
    let frame = FrameRef::of(pa).ok_or(Error::BadArgument)?.bits() as u64;
    let on = node.nodes_with(isa) as u64;
    let stale = words.load_fresh(executed, Ordering::Acquire) & on;
    let mut wait = false;
    for n in node.others().filter(|&n| stale & bit(n) != 0) {
        let ask = [inbox::kind::PUBLISH_CODE, frame, 0, 0, 0, 0, 0, 0];
        match inbox::send::<P>(n, FIRST_CPU, &Message(ask)) {
            // The machine is gone, and its translations with it.
            Err(Error::NodeDead) => {
                words.and(executed, !bit(n));
            }
            Ok(()) | Err(Error::Full) => wait = true,
            Err(e) => return Err(e),
        }
    }
    if stale & bit(node.id()) != 0 {
        publish_here::<P>(node, pa)?;
    }
    if wait && !lacks!("shootdown::make_executable::wait") {
        return Err(Error::Again);
    }
    words.or(executed, on);
    Ok(())
}
