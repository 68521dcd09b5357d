//! What a CPU does between two traps: attend to others, run a thread, or sleep.
//!
//! ```text
//!   attend ──▶ a thread? ──yes──▶ announce USER ──nothing came in──▶ resume it
//!     ▲            │no                  │something came in
//!     │            ▼                    │
//!     │     spin a little, then         │
//!     └──── announce ASLEEP, wait ◀─────┘ (back to attend)
//! ```
//!
//! A CPU is *attentive* whenever it is here: senders then need no doorbell. Short ways through the
//! kernel (see [`crate::entry`]) do not come here: for senders they are part of running user code,
//! and a doorbell that is rung meanwhile is taken when they end.

use core::sync::atomic::Ordering;

use dyad_shm::superblock::activity;

use crate::clock::{self, FusedTime};
use crate::cx::Cx;
use crate::{Platform, dispatch, end, inbox, messages, ops, quiet};

/// Housekeeping interval.
pub const TICK_NS: u64 = 100_000_000;
/// How long an idle CPU polls before it sleeps. A doorbell costs far more than this.
const SPIN_NS: u64 = 20_000;

/// Housekeeping and everything others want of this CPU. Returns when it has to be here next.
fn attend<P: Platform>(cx: &Cx) -> u64 {
    let (node, local) = (cx.node, cx.local);
    if end::stop_requested(node) {
        end::stop::<P>(node, local);
    }
    quiet::acknowledge::<P>(cx);
    messages::drain::<P>();
    let now = clock::now::<P>();
    if local.id().index() == 0 {
        clock::answer::<P>(node);
        if node.sb.shutdown.load(Ordering::Acquire) != 0 {
            end::finish::<P>(node);
        }
        P::look_after_others(cx);
    } else if node.params.audit && node.sb.shutdown.load(Ordering::Acquire) != 0 {
        end::park::<P>(node, local);
    }
    if now.0 >= local.last_tick.get() + TICK_NS || local.last_tick.get() > now.0 {
        local.last_tick.set(now.0);
        if local.id().index() == 0 {
            node.entry().heartbeat.fetch_add(1, Ordering::Relaxed);
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

/// Sends the message of interrupt `number` of this node, if somebody wants to hear of it.
pub fn deliver<P: Platform>(cx: &Cx, number: usize) {
    // Not held while the message is sent: who wakes up may change it.
    let target = cx.node.interrupts.get(number).and_then(|slot| *slot.lock());
    if let Some((object, line, bits)) = target {
        // Refused if the endpoint is gone: nobody wants to know any more.
        let _ = ops::endpoint::post::<P>(cx, object, line, bits);
    }
}

/// The loop. Entered after every trap from user mode that does not end by a short way.
pub fn run<P: Platform>() -> ! {
    let cx = Cx::here::<P>();
    loop {
        cx.local.turns.set(cx.local.turns.get() + 1);
        let next = attend::<P>(&cx);
        if cx.local.thread.get().is_none() {
            dispatch::take_root(&cx);
        }
        if cx.local.thread.get().is_none() {
            idle::<P>(&cx, next);
            continue;
        }
        dispatch::serve_root::<P>(&cx);
        if inbox::prepare::<P>(activity::USER) {
            set_timer::<P>(&cx, next);
            dispatch::resume::<P>(&cx);
            inbox::attentive::<P>();
        }
    }
}

/// Sets this CPU's timer for the end of the slice or the next housekeeping.
fn set_timer<P: Platform>(cx: &Cx, next: u64) {
    let at = next.min(cx.local.slice_end());
    cx.local.timer_at.set(at);
    P::set_timer(Some(clock::to_local(FusedTime(at))));
}

/// After an operation that has changed who runs here: goes on with that thread by the shortest
/// way.
pub fn switched<P: Platform>(cx: &Cx) -> ! {
    if cx.local.thread.get().is_some() {
        if cx.local.slice_end() < cx.local.timer_at.get() {
            set_timer::<P>(cx, u64::MAX);
        }
        dispatch::resume::<P>(cx);
    }
    inbox::attentive::<P>();
    run::<P>()
}

fn idle<P: Platform>(cx: &Cx, next: u64) {
    let node = cx.node;
    let me = node.sb.cpu(node.id(), cx.cpu());
    let work = || me.pending.load(Ordering::Relaxed) != 0 || dispatch::root_ready(cx);
    dispatch::root_timeout::<P>(cx);
    let came = clock::wait_until::<P>(SPIN_NS, work);
    if came {
        return;
    }
    dispatch::leave_space::<P>(cx);
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
