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
//! frame's record says which nodes may hold translations of it; each of them has to rewrite
//! the frame itself before anything else in it is executed there. [`executed`] has the states and their steps:
//!
//! ```text
//! make_executable: nodes that are executed -> asked, a message to each that this call has asked; any left: Again
//!                  this node's translations are dropped here, last; all nodes -> executed
//! message:         asked? user memory? rewrite the frame; asked -> rewritten
//! ```
//!
//! A call that finds a node asked already sends nothing, unless the node has taken all messages of this node and is
//! asked all the same: the message was lost, was another node's, or is being handled. So however often a caller tries again,
//! a ring has one message for the frame.
//!
//! What a program writes into a frame while another call for the same frame is under way, and while the frame is
//! executable through another mapping, may be executed in its old form. That is between those who share the frame: the
//! next owner's code is never missed.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_coherence::{GlobalMem, Word, WordAt};
use dyad_retype::{Use, executed};
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

/// The word with the states of a frame's nodes.
fn states(cx: &KernelCtx, frame: FrameRef) -> Result<impl Word> {
    let mem = cx.words();
    let at = cx.frames().record_at(frame).ok_or(Error::BadArgument)?;
    let at = at.add(core::mem::offset_of!(FrameEntry, w1) as u64);
    Ok(WordAt { mem, at })
}

/// Whether a frame is user memory. It is no kernel object then before this CPU has been quiet.
fn is_user(cx: &KernelCtx, frame: FrameRef) -> bool {
    let found = cx.frames().head(frame);
    found.is_ok_and(|(_, word)| word.ty.in_use() == Some(Use::User))
        || lacks!("shootdown::is_user::kind")
}

/// Rewrites a frame of user memory in place, so that this machine drops its translations of the old code.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such frame.
pub fn publish_here<P: Platform>(node: &Node, pa: PhysAddr) -> Result<()> {
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
    Ok(())
}

/// Does what another node has asked this one for. A request that is old changes nothing: this node is not asked any more, or
/// the frame is no user memory.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such frame; [`Error::Again`]: the node is still asked.
pub fn publish_asked<P: Platform>(cx: &KernelCtx, frame: FrameRef) -> Result<()> {
    let (word, me) = (states(cx, frame)?, cx.node.id());
    // In this order: see the table of `executed`.
    if !executed::is_asked(&word, me) || !is_user(cx, frame) {
        return Ok(());
    }
    publish_here::<P>(cx.node, frame.address())?;
    Ok(executed::done(&word, me)?)
}

/// Makes the present contents of a frame fit to be executed by the nodes of an ISA, and notes that
/// they may. One frame is rewritten here at most; other nodes that may hold translations are asked to.
/// Nothing happens to a frame that is no user memory: it cannot be mapped.
///
/// # Errors
///
/// [`Error::Again`] as long as others have not rewritten it.
pub fn make_executable<P: Platform>(cx: &KernelCtx, frame: FrameRef, isa: Isa) -> Result<()> {
    let (node, me) = (cx.node, cx.node.id());
    let word = states(cx, frame)?;
    if !is_user(cx, frame) {
        return Ok(());
    }
    let on = node.nodes_with(isa);
    let asked = executed::ask(&word, on & !executed::bit(me))?;
    let mut wait = false;
    for n in node.others() {
        let (now, before) = (
            asked.now & executed::bit(n) != 0,
            asked.before & executed::bit(n) != 0,
        );
        if !now && !before {
            continue;
        }
        // The machine is gone, and its translations with it.
        if !node.is_live(n) {
            executed::gone(&word, n)?;
            continue;
        }
        wait = true;
        if now || inbox::is_drained(n, FIRST_CPU) {
            tell::<P>(&word, frame, n)?;
        }
    }
    let no_wait = lacks!("shootdown::make_executable::wait");
    if wait && !no_wait {
        return Err(Error::Again);
    }
    let mut rewritten = if no_wait { u8::MAX } else { 0 };
    if executed::is_stale(&word, me) && on & executed::bit(me) != 0 {
        publish_here::<P>(node, frame.address())?;
        rewritten |= executed::bit(me);
    }
    Ok(executed::begin(&word, on, rewritten)?)
}

/// Sends a node that has been asked to rewrite a frame the message that says so.
fn tell<P: Platform>(word: &impl Word, frame: FrameRef, to: NodeId) -> Result<()> {
    let kind = inbox::kind::PUBLISH_CODE;
    let message = Message([kind, frame.bits() as u64, 0, 0, 0, 0, 0, 0]);
    match inbox::send::<P>(to, FIRST_CPU, &message) {
        Ok(()) => Ok(()),
        // The next call for this frame asks the node again.
        Err(Error::Full) => Ok(executed::take_back(word, to)?),
        Err(Error::NodeDead) => Ok(executed::gone(word, to)?),
        Err(e) => Err(e),
    }
}
