//! What CPUs hold of others' doing and have to drop: translations of addresses, at once; and the
//! simulator's translations of code.
//!
//! # Shootdown
//!
//! Quiescence drops translations within a round. A caller that cannot wait asks for a *ticket*: it is done
//! when every CPU that is awake has dropped its TLB since. The kernel never waits: the caller asks, as often as
//! it likes, whether all have.
//!
//! A CPU is asked by one word ([`ask_to_flush`](inbox::ask_to_flush)), whoever asks and for whichever spaces: its TLB
//! is dropped as a whole. So there is always room, and many requests at once cost a CPU one flush. What a CPU
//! has done is said for all spaces, too: it notes the *stamp*, the number of rounds started in the system,
//! as it was before the flush. A space translates between its tickets and stamps, one round at a time:
//!
//! ```text
//! request: unmap ... ; ticket = add(space.tickets, 1) + 1; advance; own TLB
//! advance: the round (t, s) is over, as every CPU that takes part has flushed >= s: confirmed = t
//!          tickets > t: s' = add(shootdowns, 1) + 1; ask each CPU; round (t, s) := (tickets, s')  (CAS)
//! CPU:     s = shootdowns; flush TLB; flushed = s
//! done(ticket): advance; confirmed >= ticket
//! ```
//!
//! | step | order |
//! |---|---|
//! | a round's ticket is read before its stamp is taken | all that was unmapped for tickets up to that one comes before the stamp |
//! | the stamp is taken before CPUs are asked | a CPU that flushes because it was asked notes this stamp or a later one |
//! | CPUs are asked before the round says so | a CPU that dies in between leaves no round of which nobody knows; of two that start a round one wins, and the other one has asked for nothing worse than a flush |
//! | a CPU reads the stamp before it flushes | what it notes is never too new |
//!
//! Only the round that is under way is waited for, so a caller who asks again and again holds up no other caller:
//! a ticket is done after the round under way and the one that follows. A ticket is a number of its space
//! alone: it says nothing of other spaces.
//!
//! CPUs that sleep, and those of dead nodes, hold nothing: they do not count. Whoever looks whether a round is over
//! asks those again that have not flushed: a CPU that slept when the round began, or whose asker has died.
//!
//! The word of the round has the low 32 bits of either number: there are never as many tickets or stamps within a
//! round as would be needed to take one for another, as every ticket given out looks whether the round is over.
//!
//! Bounds: one word per CPU of the system, at most 63, is read, and set if need be.
//!
//! # Code
//!
//! Translated code is dropped by the simulator only when its own machine stores to the page. A
//! frame's executed-on bits say which nodes may hold translations of it; each of them has to rewrite
//! the frame itself before anything else in it is executed there.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_coherence::GlobalMem;
use dyad_ring::Message;
use dyad_shm::frame::FrameRef;
use dyad_shm::{FrameEntry, PhysAddr};

use crate::Platform;
use crate::cpu::FIRST_CPU;
use crate::inbox;
use crate::kernel_ctx::KernelCtx;
use crate::mapping::SpaceCtx;
use crate::node::Node;
use crate::object::space::Space;

/// CPUs that may hold translations.
fn holders(cx: &KernelCtx) -> impl Iterator<Item = (NodeId, CpuId)> + '_ {
    let node = cx.node;
    node.all().filter(|&n| node.is_live(n)).flat_map(move |n| {
        let awake = cx.epochs().publication(n).awake();
        CpuId::first(node.params.cpus)
            .filter(move |c| awake >> c.index() & 1 != 0)
            .map(move |c| (n, c))
    })
}

/// Drops this CPU's translations and publishes that, on request of another CPU or its own.
pub fn flush_here<P: Platform>(node: &Node, cpu: CpuId) {
    let stamp = node.words.read(&node.sb.shootdowns);
    node.words.fence();
    if !lacks!("shootdown::flush_here::tlb") {
        P::flush_tlb();
    }
    node.words
        .write(&node.sb.cpu(node.id(), cpu).flushed, stamp);
}

/// Bits of either number in the word of a round.
const HALF: u32 = 32;

/// The word of a round.
const fn round(ticket: u64, stamp: u64) -> u64 {
    ticket << HALF | stamp & u32::MAX as u64
}

/// The last number, up to `now`, whose low half is this.
const fn last_with(now: u64, low: u64) -> u64 {
    now.wrapping_sub(now.wrapping_sub(low) & u32::MAX as u64)
}

/// Ends the round of a space if it is over, and starts another one if there are tickets for it. Gives the last
/// ticket that is done, and whether this CPU has started a round, for which it flushes itself.
fn advance<P: Platform>(cx: &KernelCtx, space: &Space) -> (u64, bool) {
    let (words, sb) = (cx.words(), cx.node.sb);
    let mut confirmed = words.read(&space.confirmed);
    // In this order: neither number in the word is newer than what is read behind it.
    let under_way = words.read(&space.round);
    let tickets = words.read(&space.tickets);
    let ticket = last_with(tickets, under_way >> HALF);
    if ticket > confirmed {
        let stamp = last_with(words.read(&sb.shootdowns), under_way);
        if !has_flushed_everywhere::<P>(cx, stamp) {
            return (confirmed, false);
        }
        // Only another CPU that has found this round over, or a later one, changes it in between.
        if !words.exchange(&space.confirmed, confirmed, ticket) {
            confirmed = words.read(&space.confirmed);
        } else {
            confirmed = ticket;
        }
    }
    if tickets == ticket {
        return (confirmed, false);
    }
    let stamp = words.increase(&sb.shootdowns, 1) + 1;
    words.fence();
    let me = (cx.node.id(), cx.cpu());
    for (n, c) in holders(cx).filter(|&to| to != me) {
        inbox::ask_to_flush::<P>(n, c);
    }
    let started = words.exchange(&space.round, under_way, round(tickets, stamp));
    if started {
        flush_here::<P>(cx.node, cx.cpu());
    }
    (confirmed, started)
}

/// Whether every CPU that takes part has flushed since a stamp. Those that have not are asked, this one does it.
fn has_flushed_everywhere<P: Platform>(cx: &KernelCtx, stamp: u64) -> bool {
    let (words, me) = (cx.words(), (cx.node.id(), cx.cpu()));
    let mut all = true;
    for (n, c) in holders(cx) {
        let cpu = cx.node.sb.cpu(n, c);
        if words.read(&cpu.flushed) >= stamp {
            continue;
        }
        if (n, c) == me {
            flush_here::<P>(cx.node, c);
            continue;
        }
        all = lacks!("shootdown::has_flushed_everywhere::wait");
        if words.read(&cpu.flush) == 0 || words.read(&cpu.pending) == 0 {
            inbox::ask_to_flush::<P>(n, c);
        }
    }
    all
}

/// Asks all CPUs to drop their translations. Returns the ticket. This CPU's are dropped when it returns.
pub fn request<P: Platform>(this: &SpaceCtx<'_>) -> u64 {
    let cx = this.cx;
    let ticket = cx.words().increase(&this.space.tickets, 1) + 1;
    cx.words().fence();
    let (_, flushed) = advance::<P>(cx, this.space);
    if !flushed {
        flush_here::<P>(cx.node, cx.cpu());
    }
    ticket
}

/// Whether all CPUs have dropped the translations that they held when the ticket was given.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such ticket.
pub fn is_done<P: Platform>(this: &SpaceCtx<'_>, ticket: u64) -> Result<bool> {
    let words = this.cx.words();
    if ticket > words.read(&this.space.tickets) {
        return Err(Error::BadArgument);
    }
    Ok(
        words.read(&this.space.confirmed) >= ticket
            || advance::<P>(this.cx, this.space).0 >= ticket,
    )
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

/// Rewrites a frame in place so that this machine drops its translations of the old code, and clears its
/// executed-on bit.
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
pub fn make_executable<P: Platform>(cx: &KernelCtx, pa: PhysAddr, isa: Isa) -> Result<()> {
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
