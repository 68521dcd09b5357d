//! The scheduler of one CPU: what to do next.

use crate::ready::{Priority, ReadyQueues};
use crate::timers::Timers;

/// The parameters by which a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Priority of the thread.
    pub priority: Priority,
    /// Time for which the thread may run, in nanoseconds, before others of the same priority have their turn.
    pub slice_ns: u64,
}

/// The reason why a dispatched thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread has yielded: others of its priority go first now.
    Turn,
    /// The slice that the thread was dispatched with is over, or an event came in for the scheduler. The
    /// thread continues with the rest of its turn; if nothing is left, others of its priority go first now.
    Interrupted,
    /// The thread waits; if there is a deadline, it must be woken then.
    Blocked(Option<u64>),
    /// The thread no longer belongs to this scheduler: it has ended, or has moved.
    Gone,
    /// The thread was not ready after all, so the event that said so was old. If it waits, this is its
    /// deadline. Late events replace newer ones, so this may be the only report of its wait.
    Refused(Option<u64>),
}

/// An event of a thread that the scheduler has not dispatched. Late events can replace newer ones, so an
/// event means only that the thread must be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The thread has become ready, or has come to this scheduler, or its node has died.
    Ready,
    /// The thread waits; if it still does, until this deadline.
    Sleeps(Option<u64>),
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Dispatch the thread, for at most that long.
    Run {
        /// The thread.
        thread: usize,
        /// Priority of the thread.
        priority: Priority,
        /// The slice, in nanoseconds: not beyond the next deadline of a more urgent thread.
        slice_ns: u64,
    },
    /// Wait for events, until the deadline if there is one.
    Wait(Option<u64>),
}

/// Shortest slice, in nanoseconds: a timer that is due in a moment must not cost a switch now and
/// another then.
const MIN_SLICE: u64 = 10_000;

/// A thread that was dispatched.
#[derive(Clone, Copy, Debug)]
struct Run {
    thread: usize,
    /// Fused time when it was decided.
    since: u64,
    /// Time that was left of its turn then, in nanoseconds.
    left: u64,
}

/// The scheduler of one CPU, for thread numbers below `N`.
///
/// A thread has a *turn* of one slice, however many interruptions and deadlines of others cut it into pieces: nobody
/// gets more by being interrupted, and nobody less.
///
/// ```text
///   next: the first in its queue, for what is left of its turn ──▶ dispatched
///     ▲                                                              │
///     ├── at the front, less the time until this `next` ◀── Interrupted, something is left
///     └── at the back, a whole turn ◀── Interrupted, nothing is left; Turn; ready after it has waited
/// ```
pub struct Scheduler<const N: usize> {
    ready: ReadyQueues<N>,
    timers: Timers<N>,
    /// Remaining time of each thread's turn, in nanoseconds; 0 means the whole turn.
    left: [u64; N],
    /// The thread that was dispatched last.
    last: Option<Run>,
    /// The thread that was interrupted last: it is at the front of its queue and has not been charged for its
    /// time yet.
    uncharged: Option<(Run, Priority)>,
}

impl<const N: usize> Default for Scheduler<N> {
    fn default() -> Self {
        Scheduler::new()
    }
}

impl<const N: usize> Scheduler<N> {
    /// A scheduler without threads.
    pub const fn new() -> Self {
        Scheduler {
            ready: ReadyQueues::new(),
            timers: Timers::new(),
            left: [0; N],
            last: None,
            uncharged: None,
        }
    }

    /// Charges the thread that was interrupted last for its time, which is known now.
    fn charge(&mut self, now: u64) {
        let Some((run, priority)) = self.uncharged.take() else {
            return;
        };
        let left = run.left.saturating_sub(now.saturating_sub(run.since));
        let over = left < MIN_SLICE;
        self.left[run.thread] = if over { 0 } else { left };
        // It may have been dropped since.
        if over && self.ready.remove(run.thread) {
            self.ready.push_back(run.thread, priority);
        }
    }

    /// The next turn of a thread is a whole one.
    fn forget(&mut self, thread: usize) {
        if let Some(left) = self.left.get_mut(thread) {
            *left = 0;
        }
    }

    /// Makes a thread ready, as an event says. Its deadline, if it has one, stays until it has run: the event
    /// may be old, and the thread may wait again.
    pub fn ready(&mut self, thread: usize, entry: Entry) {
        self.ready.push_back(thread, entry.priority);
    }

    /// Processes an event of a thread.
    pub fn told(&mut self, thread: usize, entry: Entry, news: News) {
        match news {
            News::Sleeps(Some(at)) => self.stopped(thread, entry, Stop::Blocked(Some(at))),
            // If it does not wait any more, these news may have taken the place of those that it is
            // ready. If it is not, it is refused.
            News::Ready | News::Sleeps(None) => self.ready(thread, entry),
        }
    }

    /// A sleeping thread whose deadline has passed. The caller must wake it; an event follows when that has
    /// worked.
    pub fn expired(&mut self, now: u64) -> Option<usize> {
        self.timers.expired(now)
    }

    /// A thread that is not to be scheduled here any more.
    pub fn dropped(&mut self, thread: usize) {
        self.timers.cancel(thread);
        self.ready.remove(thread);
        self.forget(thread);
    }

    /// The next action at fused time `now`. A thread that is to run is removed from its queue.
    pub fn next(&mut self, now: u64, entry: impl Fn(usize) -> Option<Entry>) -> Next {
        self.charge(now);
        while let Some((thread, priority)) = self.ready.pop() {
            // A thread that has been taken out of the table since is nobody's.
            let Some(e) = entry(thread) else {
                self.timers.cancel(thread);
                continue;
            };
            let until_timer = self
                .timers
                .next()
                .map_or(u64::MAX, |t| t.saturating_sub(now).max(MIN_SLICE));
            let left = match self.left[thread] {
                0 => e.slice_ns.max(MIN_SLICE),
                left => left,
            };
            let since = now;
            self.last = Some(Run {
                thread,
                since,
                left,
            });
            return Next::Run {
                thread,
                priority,
                slice_ns: left.min(until_timer),
            };
        }
        Next::Wait(self.timers.next())
    }

    /// The thread that was run has stopped.
    pub fn stopped(&mut self, thread: usize, entry: Entry, why: Stop) {
        if !matches!(why, Stop::Refused(_)) {
            self.timers.cancel(thread);
        }
        match why {
            Stop::Interrupted => {
                let queued = self.ready.push_front(thread, entry.priority);
                let run = self.last.take().filter(|r| queued && r.thread == thread);
                self.uncharged = run.map(|r| (r, entry.priority));
                return;
            }
            _ => self.forget(thread),
        }
        match why {
            Stop::Turn => {
                self.ready.push_back(thread, entry.priority);
            }
            Stop::Interrupted => {}
            Stop::Blocked(Some(at)) | Stop::Refused(Some(at)) => {
                self.timers.set(thread, at);
            }
            // Without one: what is known of it otherwise stays true.
            Stop::Blocked(None) | Stop::Refused(None) => {}
            Stop::Gone => self.dropped(thread),
        }
    }
}
