//! Threads of live nodes that the dead node was just waking or passing on.
//!
//! A waker makes three changes: it takes the thread off its endpoint (the waiter word), makes it ready (the
//! owner word), and tells its scheduler (the event word, and a list). Between these changes no other CPU acts
//! for the thread. If the waker dies there:
//!
//! | after | the thread is | found by | then |
//! |---|---|---|---|
//! | setting bits, before the waiter word | the waiter of an endpoint with news | [`endpoints`](super::endpoints) | it is woken |
//! | the waiter word | blocked, and the waiter of nothing | two looks with a round in between | it is woken |
//! | the owner word | ready, and its event is 0 | one look | its scheduler is told |
//! | the event word | as its event says, and on no list | doubt: [`dyad_object::endpoint`] | its scheduler is told |
//! | taking it off a list to pass it on | as before, and its event is 0 | one look | its scheduler is told |
//!
//! Live wakers are between these changes for a moment only: hence the second look. A thread that is there
//! at both by chance is woken early, which is what `Resume` does, too. Its waker finds that this wait is
//! over.
//!
//! A thread that is ready, or sleeps until a deadline, and of which its scheduler knows, looks just like
//! one of which it does not. So schedulers are told of all of them: what they know already changes
//! nothing for them.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Woken;
use dyad_shm::FrameRef;

use dyad_core::sched::dispatch;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::endpoint::Waiter;
use dyad_object::thread::{Owner, State, Thread};

/// Number of threads that are kept between the two looks. A CPU wakes at most one thread at a time, so this
/// suffices for the CPUs of the largest system; but a walk may also find threads that live CPUs are just
/// waking.
pub(crate) const ROOM: usize = 64;
/// How often the walk is repeated because more threads were found than there is room for.
pub const WALKS: u32 = 16;

/// Threads that were blocked, and the waiters of nothing.
#[derive(Clone, Copy, Debug)]
pub struct HalfWoken {
    /// Frame and owner word.
    found: [Option<(FrameRef, u64)>; ROOM],
    used: usize,
    more: bool,
}

impl HalfWoken {
    /// No threads.
    pub const NONE: HalfWoken = HalfWoken {
        found: [None; ROOM],
        used: 0,
        more: false,
    };

    /// Notes a thread that is blocked and the waiter of nothing: the first look.
    pub fn look(&mut self, cx: &KernelCtx, frame: FrameRef) {
        let Some(word) = is_adrift(cx, frame) else {
            return;
        };
        match self.found.get_mut(self.used) {
            Some(place) => {
                *place = Some((frame, word));
                self.used += 1;
            }
            None => self.more = true,
        }
    }

    /// The second look at thread number `which` of those that were noted: wakes it if it has not changed.
    /// Returns `false` if there are fewer threads.
    pub fn wake<P: Platform>(&self, cx: &KernelCtx, which: usize) -> bool {
        let Some((frame, word)) = self.found.iter().take(self.used).flatten().nth(which) else {
            return false;
        };
        if is_adrift(cx, *frame) == Some(*word)
            && !lacks!("half_woken::wake")
            && let Some(t) = cx.node.map.get::<Thread>(frame.address())
            && let Some(owner) = Owner::from_bits(*word)
        {
            // Refused if it has been stopped; a scheduler that is gone is told nothing.
            let _ = dispatch::wake::<P>(cx, Waiter::of(t, owner), Woken::Ready);
        }
        true
    }

    /// Forgets all of them. `false`: there were more than could be kept.
    pub fn end(&mut self) -> bool {
        let more = self.more;
        *self = HalfWoken::NONE;
        !more
    }
}

/// Whether the node lives that an owner word names, in the incarnation that it names.
fn lives(cx: &KernelCtx, owner: Owner) -> bool {
    let now = cx.node.word_of(owner.node);
    now.state.is_live() && owner.is(owner.node, now.incarnation)
}

/// The owner word of a thread that is a live node's, blocked, and not the waiter of where it waits.
fn is_adrift(cx: &KernelCtx, frame: FrameRef) -> Option<u64> {
    let t: &'static Thread = cx.node.map.get(frame.address())?;
    let owner = t.owner(cx.words())?;
    (owner.state == State::Blocked && lives(cx, owner) && !dispatch::is_waiter(cx, t))
        .then(|| owner.bits())
}

/// Tells the scheduler of a thread that is ready, or that sleeps until a deadline, and is on no list.
pub fn tell<P: Platform>(cx: &KernelCtx, frame: FrameRef) {
    let Some(t) = cx.node.map.get::<Thread>(frame.address()) else {
        return;
    };
    let Some(owner) = t.owner(cx.words()).filter(|&o| lives(cx, o)) else {
        return;
    };
    let why = match owner.state {
        State::Ready => Woken::Ready,
        // A root thread's deadline is its CPU's own affair.
        State::Blocked
            if t.deadline.load(Ordering::Relaxed) != 0
                && t.scheduler.load(Ordering::Relaxed) != 0 =>
        {
            Woken::Sleeps
        }
        _ => return,
    };
    if cx.words().read(&t.event) == 0 && !lacks!("half_woken::tell") {
        let _ = dispatch::tell_scheduler::<P>(cx, t, why);
    }
}
