//! The scheduler of one CPU: what to do next.

use dyad_abi::cap::Woken;

use crate::ready::{Group, PRIORITIES, Popped, Priority, ReadyQueues};
use crate::timers::Timers;

/// The parameters by which a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Priority of the thread.
    pub priority: Priority,
    /// Threads of one group share the time of one: a program's.
    pub group: Group,
    /// Time for which the thread may run, in nanoseconds, before others of its group have their turn; and its group,
    /// before others of the same priority have theirs.
    pub slice_ns: u64,
    /// Whether what makes the thread run is for others to decide: then it has its priority for [`ALLOWANCE`] of each
    /// [`PERIOD`] only, and for the rest it is a group among those of [`SHARED`].
    pub on_allowance: bool,
}

/// How long all threads of a CPU that are on an allowance may have their priorities in each period, in nanoseconds.
pub const ALLOWANCE: u64 = 500_000;
/// That period, in nanoseconds.
pub const PERIOD: u64 = 10_000_000;
/// The priority of programs, which share the time.
pub const SHARED: Priority = Priority::of(8);

/// The reason why a dispatched thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread has yielded: others of its group go first now, and if all have done so, other groups.
    Turn,
    /// The slice that the thread was dispatched with is over, or an event came in for the scheduler. The
    /// thread continues with the rest of its turn; if nothing is left, others of its group go first now, and if
    /// nothing is left of the turn of its group, other groups.
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

impl News {
    /// What an event of a thread means for its scheduler; `None` if the thread has ended. `waits_until` asks the thread for
    /// its deadline, and is called only if the thread waits.
    pub fn of(why: Woken, waits_until: impl FnOnce() -> Option<u64>) -> Option<News> {
        match why {
            Woken::Ready | Woken::Arrived | Woken::NodeDied => Some(News::Ready),
            // A message has switched to it and it has stopped again, without `Dispatch`.
            Woken::Sleeps => Some(News::Sleeps(waits_until())),
            Woken::Ended => None,
        }
    }
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

/// What is left of the allowance of a CPU.
struct Allowance {
    /// Until when nothing is added to it.
    until: u64,
    /// Nanoseconds.
    left: u64,
}

impl Allowance {
    /// Whether threads that are on the allowance share the time with programs.
    const fn is_used_up(&self) -> bool {
        self.left < MIN_SLICE
    }
}

/// A thread that was dispatched.
#[derive(Clone, Copy, Debug)]
struct Run {
    thread: usize,
    /// Whether its time comes off the allowance.
    on_allowance: bool,
    priority: Priority,
    group: Group,
    /// Fused time when it was decided.
    since: u64,
    /// Time that was left of its turn then, in nanoseconds.
    left: u64,
    /// Whether it was interrupted and is at the front of its queue: it goes on with what is left.
    goes_on: bool,
    /// Whether the turn of its group has ended with it.
    ends: bool,
}

/// The scheduler of one CPU, for thread numbers below `N`.
///
/// A group has a *turn* of one slice, and within it its threads, however many there are; a thread has one of one slice,
/// be it in one turn of its group or in several. Interruptions and deadlines of others cut turns into pieces: no
/// thread gets more by being interrupted, and none less. What a group does not use of its turn is lost.
///
/// ```text
///   next: the group that has the turn, or else the next one by number; the first in its queue,
///     ▲     for what is left of both turns ──▶ dispatched
///     │                                            │
///     ├── at the front, less the time until this `next` ◀── Interrupted, something is left of its turn
///     └── at the back, a whole turn ◀── Interrupted, nothing is left; Turn; ready after it has waited
///
///   a group's turn ends: when it is used up; when nothing of the group is ready; when the first of its threads
///     that has passed the CPU on (Turn) would have it again
/// ```
///
/// So between two turns of a group each other group of its priority that is ready has one turn of a slice at most: with
/// `k` groups the only thread of one waits `k - 1` slices at most, whatever threads of others begin, end, wait, wake
/// and pass on.
pub struct Scheduler<const N: usize> {
    ready: ReadyQueues<N>,
    timers: Timers<N>,
    /// Remaining time of each thread's turn, in nanoseconds; 0 means the whole turn.
    left: [u64; N],
    /// Remaining time of the group's turn of each priority, in nanoseconds; 0 means the whole turn.
    rest: [u64; PRIORITIES],
    allowance: Allowance,
    /// Threads that are among programs because the allowance is used up.
    waiting: [bool; N],
    /// The thread that was dispatched last: it and its group have not been charged for its time yet.
    last: Option<Run>,
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
            rest: [0; PRIORITIES],
            allowance: Allowance {
                until: 0,
                left: ALLOWANCE,
            },
            waiting: [false; N],
            last: None,
        }
    }

    /// Begins a new period if it is time. Threads that have waited for it have their priorities again.
    fn renew(&mut self, now: u64, entry: &impl Fn(usize) -> Option<Entry>) {
        if now < self.allowance.until {
            return;
        }
        self.allowance = Allowance {
            until: now.saturating_add(PERIOD),
            left: ALLOWANCE,
        };
        for thread in 0..N {
            if core::mem::take(&mut self.waiting[thread])
                && self.ready.remove(thread)
                && let Some(e) = entry(thread)
            {
                self.ready.push_back(thread, e.priority, e.group);
            }
        }
    }

    /// Charges the thread that was dispatched last, and its group, for its time, which is known now.
    fn charge(&mut self, now: u64) {
        let Some(run) = self.last.take() else {
            return;
        };
        let used = now.saturating_sub(run.since);
        if run.on_allowance {
            self.allowance.left = self.allowance.left.saturating_sub(used);
        }
        if run.ends {
            return;
        }
        // No turn has begun since; if that of the run has ended, this changes nothing.
        let rest = &mut self.rest[run.priority.index()];
        *rest = rest.saturating_sub(used);
        if *rest < MIN_SLICE {
            self.ready.end(run.priority);
        }
        if !run.goes_on {
            return;
        }
        let left = run.left.saturating_sub(used);
        let over = left < MIN_SLICE;
        self.left[run.thread] = if over { 0 } else { left };
        // It may have been dropped since.
        if over && self.ready.remove(run.thread) {
            self.ready.push_back(run.thread, run.priority, run.group);
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
        self.ready.push_back(thread, entry.priority, entry.group);
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
        self.renew(now, &entry);
        while let Some(popped) = self.ready.pop() {
            let Popped {
                thread,
                priority,
                group,
                begins,
            } = popped;
            let rest = &mut self.rest[priority.index()];
            if begins {
                *rest = 0;
            }
            // A thread that has been taken out of the table since is nobody's.
            let Some(e) = entry(thread) else {
                self.timers.cancel(thread);
                continue;
            };
            let waits = e.on_allowance && self.allowance.is_used_up();
            if waits && priority != SHARED {
                self.waiting[thread] = true;
                self.ready.push_back(thread, SHARED, group);
                continue;
            }
            let slice = e.slice_ns.max(MIN_SLICE);
            let mut until_timer = self
                .timers
                .next_above(priority)
                .map_or(u64::MAX, |t| t.saturating_sub(now).max(MIN_SLICE));
            // Whichever thread runs: one that waits for the allowance may be more urgent then.
            if self.allowance.is_used_up() {
                let renewed = self.allowance.until.saturating_sub(now);
                until_timer = until_timer.min(renewed.max(MIN_SLICE));
            } else if e.on_allowance {
                until_timer = until_timer.min(self.allowance.left);
            }
            if *rest == 0 {
                *rest = slice;
            }
            let left = match self.left[thread] {
                0 => slice,
                left => left,
            };
            self.last = Some(Run {
                thread,
                on_allowance: e.on_allowance && !waits,
                priority,
                group,
                since: now,
                left,
                goes_on: false,
                ends: false,
            });
            return Next::Run {
                thread,
                priority,
                slice_ns: left.min(*rest).min(until_timer),
            };
        }
        Next::Wait(self.timers.next())
    }

    /// The thread that was run has stopped.
    pub fn stopped(&mut self, thread: usize, entry: Entry, why: Stop) {
        if !matches!(why, Stop::Refused(_)) {
            self.timers.cancel(thread);
        }
        let goes_on =
            why == Stop::Interrupted && self.ready.push_front(thread, entry.priority, entry.group);
        let run = self.last.as_mut().filter(|r| r.thread == thread);
        let ran_at = run.map(|run| {
            run.goes_on = goes_on;
            run.priority
        });
        if why == Stop::Interrupted {
            return;
        }
        self.forget(thread);
        match why {
            Stop::Turn => {
                self.ready.push_back(thread, entry.priority, entry.group);
                self.ready.pass(thread, entry.priority, entry.group);
            }
            Stop::Interrupted => {}
            Stop::Blocked(Some(at)) | Stop::Refused(Some(at)) => {
                self.timers.set(thread, at, entry.priority);
            }
            // Without one: what is known of it otherwise stays true.
            Stop::Blocked(None) | Stop::Refused(None) => {}
            Stop::Gone => self.dropped(thread),
        }
        // A group of which nothing is ready any more does not find the rest of its turn when it wakes up again.
        if let Some(priority) = ran_at
            && !self.ready.has(priority, entry.group)
        {
            self.ready.leave(priority, entry.group);
            if let Some(run) = &mut self.last {
                run.ends = true;
            }
        }
    }
}
