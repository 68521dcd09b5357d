//! What a CPU does between two traps: poll for work, run a thread, or sleep.
//!
//! ```text
//!   attend ──▶ a thread? ──yes──▶ announce USER ──nothing came in──▶ resume it
//!     ▲            │no                  │something came in
//!     │            ▼                    │
//!     │     spin a little, then         │
//!     └──── announce ASLEEP, wait ◀─────┘ (back to attend)
//! ```
//!
//! Work is polled in each turn, in this order:
//!
//! | work | reason for its place |
//! |---|---|
//! | a stop request | the states that are reported are those of this moment |
//! | a round of this node | the round's driver waits for this CPU; no shared reference is held here |
//! | messages | threads that have arrived are there when the scheduler looks |
//! | on the first CPU: clock exchanges, the end of the run, the life of other nodes, requests from outside | one CPU of a node is enough, and other nodes wait for it |
//! | the heartbeat | after all that: it shows that the node still does its work, not just that its timer runs |
//! | interrupts | they become messages at endpoints |
//! | the end of a slice | it changes which thread runs, so it comes last |
//! | a piece of the report of a fault | after all that other CPUs wait for; then comes another turn |
//!
//! Each of these is bounded, and none waits: what is left is done in the next turn. Interrupts are taken
//! between two turns, so interrupts are never masked for longer than a turn.
//!
//! | step | order |
//! |---|---|
//! | announce USER or ASLEEP; fence; check whether something has come | pairs with a sender, which posts, fences, and reads what was announced: one of them sees the other ([`dyad_ring::wake`]) |
//! | leave the user half; fall asleep for rounds; announce ASLEEP; wait | a sleeping CPU holds no translation and is in no round, so no CPU waits for it |
//! | wake up for rounds before anything shared is read | what the CPU reads is not reused before it has left the kernel again |
//!
//! A CPU is *attentive* whenever it is here: senders then ring no doorbell. Fast paths through the kernel
//! (see [`crate::syscall::entry`]) do not pass here: for senders they are part of user code, and a doorbell
//! that is rung meanwhile is taken when they end.

pub mod barrier;
pub mod faults;
pub mod messages;
pub mod shutdown;

use dyad_abi::marker::Marker;
use dyad_abi::service::ASKED;
use dyad_coherence::LINE_BYTES;
use dyad_shm::PoolId;
use dyad_shm::superblock::{ASK_OFFSET, activity, control};

use crate::migrate::{IntoRunLoop, spin_handoff};
use crate::sched::timer::{self, TICK_NS};
use crate::sched::{dispatch, quiet};
use dyad_machine::clock::{self, FusedTime};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, inbox};

/// How long an idle CPU polls before it sleeps. A doorbell costs far more than this.
const SPIN_NS: u64 = 20_000;

/// Housekeeping and everything others want of this CPU. Returns when it has to be here next.
fn poll_work<P: Platform>(cx: &KernelCtx) -> u64 {
    let (node, local) = (cx.node, cx.local);
    let wanted = node.words.read(&node.sb.control);
    if shutdown::is_stop(wanted) {
        shutdown::stop::<P>(node, local);
    }
    quiet::acknowledge::<P>(cx);
    messages::drain::<P>();
    let now = clock::now::<P>();
    // The first CPU of a node looks after others; on it the node also ends.
    if local.id().index() == 0 {
        clock::answer::<P>(node);
        if node.words.read(&node.sb.shutdown) != 0 {
            shutdown::finish::<P>(node);
        }
        if let Some(look) = local.look_after_others.get() {
            look(node, local);
        }
        let asked = control::asked(wanted);
        if local.asked.replace(asked) != asked {
            // The launcher has written it; the thread that is told reads it here.
            let line = PoolId::Cxl.base().add(ASK_OFFSET);
            node.words.refresh(node.map.word(line), LINE_BYTES);
            deliver::<P>(cx, ASKED as usize);
        }
    } else if node.params.audit && node.words.read(&node.sb.shutdown) != 0 {
        shutdown::park::<P>(node, local);
    }
    // Also if time has gone back: joining sets the clock.
    if now.0 >= local.last_tick.get() + TICK_NS || local.last_tick.get() > now.0 {
        local.last_tick.set(now.0);
        if local.id().index() == 0 {
            node.words.increase(&node.entry().heartbeat, 1);
        }
    }
    while let Some(n) = cx.local.take_other() {
        deliver::<P>(cx, n as usize);
    }
    if now.0 >= local.slice_end() {
        dispatch::slice_over::<P>(cx);
    }
    local.last_tick.get() + TICK_NS
}

/// Sends the message of interrupt `number` of this node, if the interrupt is attached to an endpoint.
pub fn deliver<P: Platform>(cx: &KernelCtx, number: usize) {
    // Not held while the message is sent: who wakes up may change it.
    let target = cx.node.interrupts.get(number).and_then(|slot| *slot.lock());
    if let Some((object, line, bits)) = target {
        // Refused if the endpoint is gone: no thread waits for the news any more.
        let _ = dispatch::post::<P>(cx, object, line, bits);
    }
}

/// The run loop, entered after every trap from user mode that does not end by a fast path.
///
/// A thread is resumed only if nothing has come since USER was announced: an earlier message rang no
/// doorbell, and would wait for as long as the thread runs. If resuming returns, the thread's component or
/// address space is gone. The thread has ended, and perhaps those under it, and the loop continues.
pub fn run<P: Platform>() -> ! {
    let cx = KernelCtx::here::<P>();
    let mut again = false;
    loop {
        if core::mem::replace(&mut again, true) {
            // What this turn has masked is over. Interrupts that have come meanwhile are noted, and
            // attended to below.
            P::breathe();
        }
        cx.local.turns.set(cx.local.turns.get() + 1);
        let next = poll_work::<P>(&cx);
        // Before the next thread runs here: it may fault, too.
        if faults::write_piece::<P>(cx.node, cx.local) {
            continue;
        }
        if cx.local.thread.get().is_none() {
            dispatch::take_root(&cx);
        }
        if cx.local.thread.get().is_none() {
            idle::<P>(&cx, next);
            continue;
        }
        dispatch::serve_root::<P>(&cx);
        if cx.local.thread.get().is_none() {
            continue;
        }
        if inbox::prepare::<P>(activity::USER) {
            timer::set::<P>(&cx, next);
            dispatch::resume::<P>(&cx);
            inbox::attentive::<P>();
        }
    }
}

/// Resumes the thread that runs here after an operation has changed it, without a turn of the run loop: for
/// other CPUs it is as if one thread had continued. The timer is set only if it would expire too late for the
/// new thread's slice. If it expires too early, no slice is over, and the run loop sets it again.
pub fn switched<P: Platform>(cx: &KernelCtx) -> ! {
    if let Some((t, to)) = cx.local.spins.get() {
        let IntoRunLoop = spin_handoff::wait::<P>(cx, t, to);
        run::<P>()
    }
    if cx.local.thread.get().is_some() {
        if cx.local.slice_end() < cx.local.timer_at.get() {
            timer::set::<P>(cx, u64::MAX);
        }
        dispatch::resume::<P>(cx);
    }
    inbox::attentive::<P>();
    run::<P>()
}

/// Idles this CPU, which has no thread to run: polls for a short time, then sleeps until something comes or
/// housekeeping is due.
///
/// The CPU leaves the user half before it falls asleep for rounds: a sleeping CPU is not asked to flush its
/// TLB.
fn idle<P: Platform>(cx: &KernelCtx, next: u64) {
    let node = cx.node;
    let me = node.sb.cpu(node.id(), cx.cpu());
    let work = || node.words.read(&me.pending) != 0 || dispatch::root_ready(cx);
    dispatch::root_timeout::<P>(cx);
    // How often it looks is no part of what is measured.
    P::mark::<{ Marker::WAITS.word() }>();
    let came = clock::wait_until::<P>(SPIN_NS, work);
    P::mark::<{ Marker::WORKS.word() }>();
    if came {
        return;
    }
    dispatch::leave_space::<P>(cx);
    // Refused if there is work: then nothing has been announced.
    if !quiet::sleep::<P>(cx, work) {
        return;
    }
    if inbox::prepare::<P>(activity::ASLEEP) {
        let at = next.min(dispatch::root_deadline(cx));
        cx.local.timer_at.set(at);
        P::set_timer(Some(clock::to_local(FusedTime(at))));
        P::wait();
    }
    quiet::wake(cx);
    inbox::attentive::<P>();
    dispatch::root_timeout::<P>(cx);
}
