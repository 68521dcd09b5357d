//! What a CPU does between two traps: attend to others, pick a thread, or sleep.
//!
//! ```text
//!   attend ──▶ a thread? ──yes──▶ announce USER ──nothing came in──▶ resume it
//!     ▲            │no                  │something came in
//!     │            ▼                    │
//!     │     spin a little, then         │
//!     └──── announce ASLEEP, wait ◀─────┘ (back to attend)
//! ```
//!
//! A CPU is *attentive* whenever it is here: senders then need no doorbell. Queues are per CPU,
//! first in first out, with a time slice of one tick; policy comes at user level later.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_shm::superblock::activity;

use crate::clock::{self, FusedTime};
use crate::cpu::CpuLocal;
use crate::node::{Node, node};
use crate::space::Space;
use crate::thread::{OwnerState, ThreadFrame, reference};
use crate::{Platform, death, end, error, inbox, join};

/// Housekeeping interval and time slice.
pub const TICK_NS: u64 = 100_000_000;
/// How long an idle CPU polls before it sleeps. A doorbell costs far more than this.
const SPIN_NS: u64 = 20_000;

/// Ready and sleeping threads of one CPU, linked through their frames.
pub struct RunQueue {
    head: Cell<u64>,
    tail: Cell<u64>,
    sleepers: Cell<u64>,
}

impl RunQueue {
    /// An empty queue.
    pub const fn new() -> RunQueue {
        RunQueue {
            head: Cell::new(0),
            tail: Cell::new(0),
            sleepers: Cell::new(0),
        }
    }

    /// Whether no thread is ready.
    pub fn is_empty(&self) -> bool {
        self.head.get() == 0
    }

    fn push(&self, node: &Node, t: &'static ThreadFrame) {
        let me = reference(&node.map, t) + 1;
        t.link.store(0, Ordering::Relaxed);
        match self.tail.get() {
            0 => self.head.set(me),
            last => {
                if let Ok(last) = ThreadFrame::find(&node.map, last - 1) {
                    last.link.store(me, Ordering::Relaxed);
                }
            }
        }
        self.tail.set(me);
    }

    fn pop(&self, node: &Node) -> Option<&'static ThreadFrame> {
        let first = self.head.get();
        let t = ThreadFrame::find(&node.map, first.checked_sub(1)?).ok();
        let next = t.map_or(0, |t| t.link.load(Ordering::Relaxed));
        self.head.set(next);
        if next == 0 {
            self.tail.set(0);
        }
        t
    }

    fn sleep(&self, node: &Node, t: &'static ThreadFrame) {
        t.link.store(self.sleepers.get(), Ordering::Relaxed);
        self.sleepers.set(reference(&node.map, t) + 1);
    }

    /// Moves sleepers whose time has come to the ready queue; returns the earliest deadline left.
    fn wake(&self, node: &Node, now: FusedTime) -> Option<u64> {
        let mut at = self.sleepers.replace(0);
        let mut earliest = None;
        while let Some(t) = at
            .checked_sub(1)
            .and_then(|r| ThreadFrame::find(&node.map, r).ok())
        {
            at = t.link.load(Ordering::Relaxed);
            let due = t.wake_at.load(Ordering::Relaxed);
            if due <= now.0 {
                t.wake_at.store(0, Ordering::Relaxed);
                self.push(node, t);
            } else {
                earliest = Some(earliest.map_or(due, |e: u64| e.min(due)));
                self.sleep(node, t);
            }
        }
        earliest
    }
}

impl Default for RunQueue {
    fn default() -> RunQueue {
        RunQueue::new()
    }
}

/// Puts a thread owned by this node into this CPU's ready queue.
pub fn make_ready(node: &Node, local: &CpuLocal, t: &'static ThreadFrame) {
    local.queue.push(node, t);
}

/// Takes the current thread off this CPU: its floating-point state is saved, so that it may be
/// queued or handed over.
pub fn park<P: Platform>(local: &CpuLocal, t: &'static ThreadFrame) {
    P::save_fp(t.fp(P::ISA));
    local.current.set(None);
    local.loaded.set(None);
}

/// Lets other ready threads of this CPU run before the current one.
pub fn yield_current<P: Platform>(node: &Node, local: &CpuLocal) {
    if let Some(t) = local.current.get()
        && !local.queue.is_empty()
    {
        park::<P>(local, t);
        local.queue.push(node, t);
    }
}

/// Puts the current thread to sleep until `deadline`.
pub fn sleep_current<P: Platform>(node: &Node, local: &CpuLocal, deadline: FusedTime) {
    if let Some(t) = local.current.get() {
        park::<P>(local, t);
        t.wake_at.store(deadline.0.max(1), Ordering::Relaxed);
        local.queue.sleep(node, t);
    }
}

/// Housekeeping and everything others want of this CPU. Returns when it has to be here next.
fn attend<P: Platform>(node: &'static Node, local: &CpuLocal) -> u64 {
    if end::stop_requested(node) {
        end::stop::<P>(node, local);
    }
    inbox::drain::<P>();
    let now = clock::now::<P>();
    if local.id().index() == 0 {
        join::serve_clock::<P>(node);
        if node.sb.shutdown.load(Ordering::Acquire) != 0 {
            end::finish::<P>(node);
        }
        death::look::<P>(node);
    }
    if now.0 >= local.last_tick.get() + TICK_NS || local.last_tick.get() > now.0 {
        local.last_tick.set(now.0);
        if local.id().index() == 0 {
            node.entry().heartbeat.fetch_add(1, Ordering::Relaxed);
        }
    }
    if local.take_timer() {
        yield_current::<P>(node, local);
    }
    let tick = local.last_tick.get() + TICK_NS;
    local
        .queue
        .wake(node, now)
        .map_or(tick, |due| due.min(tick))
}

/// The loop. Entered with an empty kernel stack after every trap from user mode.
pub fn run<P: Platform>() -> ! {
    let node = node();
    let local = P::local();
    loop {
        local.turns.set(local.turns.get() + 1);
        let next = attend::<P>(node, local);
        if local.current.get().is_none() {
            local.current.set(local.queue.pop(node));
        }
        match local.current.get() {
            Some(t) => {
                if let Err(e) = load::<P>(node, local, t) {
                    error!(P, "a thread cannot run here: {e}");
                    local.current.set(None);
                    end::program_failed::<P>(node, Some(t));
                    continue;
                }
                if inbox::prepare::<P>(activity::USER) {
                    P::set_timer(Some(clock::to_local(FusedTime(next))));
                    P::resume_user(t.regs(P::ISA));
                }
            }
            None => idle::<P>(node, local, next),
        }
    }
}

/// Makes this CPU hold a thread's address space and floating-point state.
fn load<P: Platform>(
    node: &Node,
    local: &CpuLocal,
    t: &'static ThreadFrame,
) -> dyad_abi::Result<()> {
    if local.loaded.get().is_some_and(|l| core::ptr::eq(l, t)) {
        return Ok(());
    }
    Space::find(node, t.space.load(Ordering::Relaxed))?.enter::<P>()?;
    local.idle_root.set(false);
    P::restore_fp(t.fp(P::ISA));
    if let Some(o) = t.owner() {
        t.owner
            .store(o.with(OwnerState::Running).bits(), Ordering::Release);
    }
    local.loaded.set(Some(t));
    Ok(())
}

fn idle<P: Platform>(node: &Node, local: &CpuLocal, next: u64) {
    leave_space::<P>(local);
    let me = node.sb.cpu(node.id(), local.id());
    let came = clock::wait_until::<P>(SPIN_NS, || me.pending.load(Ordering::Relaxed) != 0);
    if !came && inbox::prepare::<P>(activity::ASLEEP) {
        P::set_timer(Some(clock::to_local(FusedTime(next))));
        P::wait();
        inbox::attentive::<P>();
    }
}

/// Leaves whatever address space this CPU is in: nobody else can tell that it still uses the
/// tables.
pub fn leave_space<P: Platform>(local: &CpuLocal) {
    if !local.idle_root.replace(true) {
        P::switch_root(P::idle_root());
    }
    local.loaded.set(None);
}
