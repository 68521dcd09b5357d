//! This node's part in quiescence: rounds, sleep, and the hardware operations for them.
//!
//! User level drives rounds (`FlushStep`), a bounded number of steps at a time; this module has what they
//! need. A CPU acknowledges where it enters the kernel. It then holds no shared reference but the running
//! thread, whose component and address space are looked up anew.

//!
//! ```text
//!            wake: this CPU counts again, before it looks at anything shared
//!         ┌────────────────────────────────────────────────────────────────┐
//!         ▼                                                                │
//!   AWAKE, holds what it has looked up ──acknowledge──▶ AWAKE, holds nothing older than the round
//!         └──sleep: caches, TLB and address space dropped ──▶ ASLEEP ───────┘
//! ```
//!
//! | what | dropped | relied on by |
//! |---|---|---|
//! | lines of shared words that the logs name | at the beginning of a node's round | the CPUs that have written them before |
//! | capability cache, TLB | when a CPU acknowledges, and before it sleeps | code that reuses a frame, a slot, an entry |
//! | component, address space | when a CPU acknowledges (looked up anew), and before it sleeps (left) | code that reuses a table or a root |
//!
//! The order within a round (cache, TLB, leaving the kernel, publication) is that of
//! [`dyad_quiesce`], which calls [`Hardware`].
//!
//! Bounds: acknowledging is a flush and three lookups. A round advances by the steps that its driver asks
//! for, at most [`MAX_STEPS`] at once. Falling asleep checks for work, and takes interrupts, after every few
//! steps.

use core::marker::PhantomData;

use dyad_abi::{CpuId, Error, Result};
use dyad_coherence::GlobalMem;
use dyad_quiesce::{Idle, LogWriter, NodeHardware, Progress};
use dyad_shm::PhysAddr;

use crate::sched::{dispatch, fp};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FLUSH_BYTES;
use dyad_machine::{Platform, inbox};
use dyad_object::component::Component;
use dyad_object::space::Space;
use dyad_object::thread::Thread;
use dyad_object::{find, follow, reference};

/// Most steps of one `FlushStep`.
pub const MAX_STEPS: u64 = 80;
/// Bytes that cost one more step where caches are not coherent: 8 lines.
const STEP_BYTES: u64 = 512;

/// This CPU as rounds use it. What a method drops is gone when the method returns.
pub struct Hardware<'c, P> {
    cx: &'c KernelCtx,
    platform: PhantomData<P>,
}

impl<'c, P: Platform> Hardware<'c, P> {
    /// The CPU of a context.
    pub const fn new(cx: &'c KernelCtx) -> Hardware<'c, P> {
        Hardware {
            cx,
            platform: PhantomData,
        }
    }
}

impl<P: Platform> NodeHardware for Hardware<'_, P> {
    // One call for both: lines are written back when they are dropped.
    fn writeback_invalidate(&self, at: PhysAddr, len: u64) {
        self.cx.words().invalidate(at, len);
    }

    fn steps(&self, len: u64) -> u32 {
        match self.cx.words().is_coherent() {
            true => 1,
            false => 1 + len.div_ceil(STEP_BYTES).min(MAX_STEPS) as u32,
        }
    }

    fn flush_everything(&self, piece: u64) -> bool {
        self.cx.words().is_coherent() || P::flush_caches(piece)
    }

    fn steps_of_everything(&self) -> u32 {
        self.steps(FLUSH_BYTES)
    }

    // Cache entries are to capabilities what the TLB is to pages: what they lead to may be reused after this.
    fn flush_tlb(&self) {
        if !lacks!("quiet::flush_tlb::views") {
            self.cx.local.cache.forget();
        }
        if !lacks!("quiet::flush_tlb::tlb") {
            P::flush_tlb();
        }
    }

    fn revalidate(&self) {
        let cx = self.cx;
        let Some(t) = cx.local.thread.get() else {
            dispatch::leave_space::<P>(cx);
            return;
        };
        // The thread itself: only stopped threads are given up, so it is what it was. What it runs
        // in may be gone, or have another table or root by now; the old ones may be reused soon.
        let word = cx.local.component.get();
        let anew = follow::<Component>(cx.node, word, Component::KIND).and_then(|(c, _)| {
            let parts = c.parts(cx.words());
            let (captbl, space) = (parts.captbl_root()?, parts.space()?);
            let frame = find::<Space>(cx.node, space, Space::KIND)?;
            let root = frame.root(cx.words(), P::ISA).ok_or(Error::NoIsa)?;
            Ok((captbl, space, root))
        });
        match anew {
            Ok((captbl, space, root)) if reference::<Thread>(cx.node, t).is_some() => {
                P::switch_root(root);
                cx.local.space.set(space.bits());
                if !lacks!("quiet::revalidate::captbl") {
                    cx.local.captbl.set(captbl);
                }
            }
            _ => self.detach(),
        }
    }

    // Nothing of a thread stays here: this CPU may sleep for long, and another one run the thread.
    fn detach(&self) {
        let cx = self.cx;
        fp::put_away::<P>(cx.local);
        cx.local.holding.set(None);
        dispatch::leave_space::<P>(cx);
    }

    // By the bit and the doorbell of an empty message: it comes into the run loop, and acknowledges
    // there.
    fn call(&self, cpu: CpuId) {
        if cpu != self.cx.cpu() {
            inbox::notify::<P>(self.cx.node.id(), cpu);
        }
    }
}

/// Gives this CPU its flush log, and the number of its node. Called once, before the CPU takes part in
/// rounds; no other node has seen what it changed before.
pub fn attach(cx: &KernelCtx) {
    let log = LogWriter::attach(cx.epochs(), cx.node.id(), cx.cpu());
    *cx.local.log.borrow_mut() = Some(log);
    cx.local.home.set(1 << cx.node.id().index());
}

/// Publishes that this node, which is joining, holds nothing from before. The node may become LIVE
/// afterwards; its other CPUs join by [`wake`].
///
/// # Errors
///
/// [`Error::Full`] if the epochs are used up.
pub fn join<P: Platform>(cx: &KernelCtx) -> Result<()> {
    let round = cx
        .epochs()
        .publish_joining(cx.node.id(), cx.cpu(), &Hardware::<P>::new(cx))
        .map_err(|_| Error::Full)?;
    *cx.node.round.lock() = Some(round);
    Ok(())
}

/// Acknowledges a round of this node, if there is one: drops what may have been looked up before the round,
/// and looks up anew what the running thread runs in. Called where this CPU holds no shared reference.
pub fn acknowledge<P: Platform>(cx: &KernelCtx) {
    cx.epochs()
        .acknowledge(cx.node.id(), cx.cpu(), &Hardware::<P>::new(cx));
}

/// `FlushStep`: drives this node's round. Returns the epoch that the round has published, or 0 if there is
/// more to do. Steps are bounded, and CPUs that have not acknowledged are notified, not waited for.
///
/// # Errors
///
/// [`Error::Again`] if another CPU is driving the round.
pub fn flush_step<P: Platform>(cx: &KernelCtx, steps: u64) -> Result<u64> {
    // The caller's CPU is one of those that a round waits for.
    acknowledge::<P>(cx);
    let Some(mut round) = cx.node.round.try_lock() else {
        return Err(Error::Again);
    };
    let round = round.as_mut().ok_or(Error::NotReady)?;
    let steps = steps.clamp(1, MAX_STEPS) as u32;
    match round.flush_step(cx.epochs(), &Hardware::<P>::new(cx), steps) {
        Ok(Progress::Published(epoch)) => Ok(epoch.get()),
        Ok(Progress::Working | Progress::Waiting(_)) => Ok(0),
        Err(_) => Err(Error::Full),
    }
}

/// Steps of falling asleep between two checks for work. The number is small because each step may flush a
/// part of all caches.
const IDLE_STEPS: u32 = 6;

/// Falls asleep as far as the protocol is concerned; returns `true` if this CPU may halt now. Interrupts are
/// taken between two parts. An interrupt that has to be delivered counts as work; an expired timer does not,
/// because the CPU sets its timer anew.
pub fn sleep<P: Platform>(cx: &KernelCtx, work: impl Fn() -> bool) -> bool {
    let work = || work() || cx.local.has_other();
    let hardware = Hardware::<P>::new(cx);
    let (node, cpu) = (cx.node.id(), cx.cpu());
    while !work() {
        let idle = match cx.node.round.try_lock().as_mut().map(|r| r.as_mut()) {
            Some(Some(round)) => round.idle_step(cx.epochs(), &hardware, cpu, IDLE_STEPS, work),
            // No rounds yet: this node does not count.
            Some(None) => return true,
            None => cx.epochs().idle_beside_others(node, cpu, &hardware, work),
        };
        match idle {
            Idle::Asleep => return true,
            Idle::Work => return false,
            // Nothing shared is in hand here.
            Idle::Working | Idle::Contended => P::breathe(),
        }
    }
    // There is work, for which this CPU will use shared words: what it has dropped of the caches as the
    // last one awake is to be dropped once more when it next falls asleep.
    if let Some(Some(round)) = cx.node.round.try_lock().as_mut().map(|r| r.as_mut()) {
        round.stay();
    }
    false
}

/// Brings this CPU back into the protocol before it reads anything shared: sets its bit, then executes a full
/// fence. A CPU that has not waited for this one has not seen the bit, and this CPU then sees the other's
/// earlier changes.
pub fn wake(cx: &KernelCtx) {
    cx.epochs().wake(cx.node.id(), cx.cpu());
}
