//! The scheduler of one CPU: what to do next.

use crate::ready::{Priority, ReadyQueues};
use crate::timers::Timers;

/// How a thread is to be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its priority.
    pub priority: Priority,
    /// How long it may run, in nanoseconds, before others of the same priority have their turn.
    pub slice_ns: u64,
}

/// How a dispatched thread came to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It gave the CPU back: others of its priority go first now.
    Turn,
    /// The slice that it was dispatched with is over, or something came in for the scheduler. It goes on with what
    /// is left of its turn; if nothing is left, others of its priority go first now.
    Interrupted,
    /// It waits; with a deadline it is to be woken then.
    Blocked(Option<u64>),
    /// It is not this scheduler's any more: ended, or gone.
    Gone,
    /// It was not ready after all, so the news that it was are old; if it waits, until then. News that
    /// come late take the place of newer ones: this may be all that is heard of its waiting.
    Refused(Option<u64>),
}

/// What a scheduler is told of a thread that it has not dispatched. News that are told late can take the
/// place of newer ones, so either means no more than that the thread is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has become ready, or has come, or its node has died.
    Ready,
    /// It waits; if it still does, until then.
    Sleeps(Option<u64>),
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Dispatch the thread, for at most that long.
    Run {
        /// The thread.
        thread: usize,
        /// Its priority.
        priority: Priority,
        /// The slice, in nanoseconds: not beyond the next deadline of a more urgent thread.
        slice_ns: u64,
    },
    /// Wait for news, until the deadline if there is one.
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
    /// What was left of its turn then, in nanoseconds.
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
    /// What is left of each thread's turn, in nanoseconds; 0: all of it.
    left: [u64; N],
    /// Who was dispatched last.
    last: Option<Run>,
    /// Who was interrupted last: it is at the front of its queue, and its time has not been charged yet.
    uncharged: Option<(Run, Priority)>,
}

impl<const N: usize> Default for Scheduler<N> {
    fn default() -> Self {
        Scheduler::new()
    }
}

impl<const N: usize> Scheduler<N> {
    /// Nothing to do.
    pub const fn new() -> Self {
        Scheduler {
            ready: ReadyQueues::new(),
            timers: Timers::new(),
            left: [0; N],
            last: None,
            uncharged: None,
        }
    }

    /// Charges the thread that was interrupted last for its time, now that it is known.
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

    /// A thread has become ready, as far as the news go. Its deadline, if it has one, stays until it
    /// has run: these may be old news, and it waits again.
    pub fn ready(&mut self, thread: usize, entry: Entry) {
        self.ready.push_back(thread, entry.priority);
    }

    /// There is news of a thread.
    pub fn told(&mut self, thread: usize, entry: Entry, news: News) {
        match news {
            News::Sleeps(Some(at)) => self.stopped(thread, entry, Stop::Blocked(Some(at))),
            // If it does not wait any more, these news may have taken the place of those that it is
            // ready. If it is not, it is refused.
            News::Ready | News::Sleeps(None) => self.ready(thread, entry),
        }
    }

    /// A sleeping thread whose time has come. It is to be woken; there is news when that has worked.
    pub fn expired(&mut self, now: u64) -> Option<usize> {
        self.timers.expired(now)
    }

    /// A thread that is not to be scheduled here any more.
    pub fn dropped(&mut self, thread: usize) {
        self.timers.cancel(thread);
        self.ready.remove(thread);
        self.forget(thread);
    }

    /// What to do now, at fused time `now`. A thread that is to run is not queued any more.
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
