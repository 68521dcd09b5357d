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
    /// Its slice is used up, or it gave the CPU back: others of its priority go first now.
    Turn,
    /// Something came in for the scheduler: it goes on where it was.
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

/// The scheduler of one CPU, for thread numbers below `N`.
#[derive(Default)]
pub struct Scheduler<const N: usize> {
    ready: ReadyQueues<N>,
    timers: Timers<N>,
}

impl<const N: usize> Scheduler<N> {
    /// Nothing to do.
    pub const fn new() -> Self {
        Scheduler {
            ready: ReadyQueues::new(),
            timers: Timers::new(),
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
    }

    /// What to do now, at fused time `now`. A thread that is to run is not queued any more.
    pub fn next(&mut self, now: u64, entry: impl Fn(usize) -> Option<Entry>) -> Next {
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
            return Next::Run {
                thread,
                priority,
                slice_ns: e.slice_ns.max(MIN_SLICE).min(until_timer),
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
            Stop::Turn => {
                self.ready.push_back(thread, entry.priority);
            }
            Stop::Interrupted => {
                self.ready.push_front(thread, entry.priority);
            }
            Stop::Blocked(Some(at)) | Stop::Refused(Some(at)) => {
                self.timers.set(thread, at);
            }
            // Without one: what is known of it otherwise stays true.
            Stop::Blocked(None) | Stop::Refused(None) => {}
            Stop::Gone => self.dropped(thread),
        }
    }
}
