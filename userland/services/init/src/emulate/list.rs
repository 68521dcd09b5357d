//! Requests to move threads: one list for each program, each with its own lock.
//!
//! The lock is for the threads of one program, and for init. A thread of a program that is not dispatched while it holds
//! the lock delays the moves of its own program only. If it is not dispatched because it is to be moved itself, who wants the
//! lock has it dispatched.
//!
//! | word | whose |
//! |---|---|
//! | requests | the holder of the lock |
//! | whether there is one: `moving` | the holder; written after a request is whole |

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::{program, sched};
use dyad_abi::{Error, NodeId, Result};
use dyad_services::keeper::Keeper;
use dyad_services::quota::{Asker, ENTRIES, free_entry};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Thread};

use super::pages::hold;
use super::{Request, Step};
use crate::blocks::Who;
use crate::threads::{self, GUESTS};

/// How often it is looked whether the lock is free before the list is left for later, and when that is.
const SPINS: u32 = 2000;
const LATER_NS: u64 = 100_000;

/// The requests of a program.
pub(super) struct List {
    requests: UnsafeCell<[Option<Request>; ENTRIES]>,
    /// Of each of them, the index of the thread's capability, 0 for none: for those who do not have the lock.
    moving: [AtomicU64; ENTRIES],
    /// How many requests have been entered. Written after `moving`, before the request can be taken out.
    entered: AtomicU64,
    keeper: Keeper,
}

// SAFETY: 1. Only the holder of `keeper` looks at the requests.
unsafe impl Sync for List {}

static LISTS: [List; GUESTS] = [const {
    List {
        requests: UnsafeCell::new([None; ENTRIES]),
        moving: [const { AtomicU64::new(0) }; ENTRIES],
        entered: AtomicU64::new(0),
        keeper: Keeper::new(),
    }
}; GUESTS];

/// The list of a program.
///
/// # Errors
///
/// `NotFound` if there is no such program, or it is a service.
pub(super) fn of(number: u64) -> Result<&'static List> {
    number
        .checked_sub(program::FIRST)
        .and_then(|n| LISTS.get(usize::try_from(n).ok()?))
        .ok_or(Error::NotFound)
}

/// Whether a thread is being moved: it may be stopped without having ended.
pub fn is_moving(thread: Cap<Thread>) -> bool {
    LISTS.iter().any(|list| list.has(thread))
}

/// How many moves have been asked for so far.
pub fn moves() -> u64 {
    let entered = |list: &List| list.entered.load(Ordering::Acquire);
    LISTS.iter().map(entered).sum()
}

/// What a warden does of what is to be done, and when it is to look again.
pub fn attend(node: NodeId) -> Option<u64> {
    LISTS.iter().filter_map(|list| list.attend(node)).min()
}

/// The requests of a list, for the holder of its lock.
pub(super) struct Held<'a> {
    requests: &'a mut [Option<Request>; ENTRIES],
    moving: &'a [AtomicU64; ENTRIES],
    entered: &'a AtomicU64,
}

impl List {
    /// Does something with the requests.
    ///
    /// # Errors
    ///
    /// `Again` if another thread has the lock.
    pub fn with<T>(&self, me: Who, f: impl FnOnce(Held<'_>) -> Result<T>) -> Result<T> {
        let goes_on = |other| Who::of(other).goes_on();
        let (turn, before) = self
            .keeper
            .succeed(me.name(), goes_on)
            .inspect_err(|_| self.let_holder_run())?;
        // SAFETY: 1. This thread holds the lock, and of a holder that has ended nothing is run any more.
        let requests = unsafe { &mut *self.requests.get() };
        if before.is_some() {
            for (slot, moving) in requests.iter_mut().zip(&self.moving) {
                // One that was just being entered, or taken out.
                if moving.load(Ordering::Acquire) == 0 {
                    *slot = None;
                } else if slot.is_none() {
                    moving.store(0, Ordering::Release);
                }
            }
        }
        let done = f(Held {
            requests,
            moving: &self.moving,
            entered: &self.entered,
        });
        drop(turn);
        done
    }

    /// Has the holder of the lock dispatched. It may be held: a warden has found it running before it took the lock. If it has
    /// given the lock back meanwhile, the next step holds it again.
    fn let_holder_run(&self) {
        let holder = self.keeper.holder();
        if let Some((program, n)) = holder.and_then(|name| Who::of(name).thread()) {
            hold(sched::tag(threads::scheduled(program, n)), false);
        }
    }

    fn has(&self, thread: Cap<Thread>) -> bool {
        let index = u64::from(thread.index().get());
        let is = |m: &AtomicU64| m.load(Ordering::Acquire) == index;
        self.moving.iter().any(is)
    }

    fn attend(&self, node: NodeId) -> Option<u64> {
        let is_asked = |m: &AtomicU64| m.load(Ordering::Acquire) != 0;
        if !self.moving.iter().any(is_asked) {
            return None;
        }
        // All wardens look at the same time, and none of them for long.
        for _ in 0..SPINS {
            if self.keeper.holder().is_none() {
                break;
            }
            dyad_sys::raw::relax();
        }
        let now = rt::hardware(node).now().ok()?;
        let next = Who::warden(node).map(|me| self.with(me, |held| Ok(held.step(node, now))));
        match next {
            Some(Ok(next)) => next,
            _ => Some(now + LATER_NS),
        }
    }
}

impl Held<'_> {
    /// Does the next step of each request, and says when the next one is due.
    fn step(self, node: NodeId, now: u64) -> Option<u64> {
        let mut next = None::<u64>;
        for (slot, moving) in self.requests.iter_mut().zip(self.moving) {
            let Some(request) = slot else {
                continue;
            };
            match request.step(node, now) {
                Step::Done => remove(slot, moving),
                Step::At(t) => next = Some(next.map_or(t, |n| n.min(t))),
            }
        }
        next
    }

    /// The request for a thread.
    pub fn find(&mut self, thread: Cap<Thread>) -> Option<&mut Request> {
        let mut all = self.requests.iter_mut().flatten();
        all.find(|r| r.thread == thread)
    }

    /// Enters a request.
    ///
    /// # Errors
    ///
    /// `Full` if there is no entry for this asker.
    pub fn enter(&mut self, asker: Asker, request: Request) -> Result<()> {
        let in_use = core::array::from_fn(|n| self.requests[n].is_some());
        let n = free_entry(asker, in_use)?;
        self.requests[n] = Some(request);
        // A thread that sees that it is moved finds the request whole.
        self.moving[n].store(request.thread.index().get().into(), Ordering::Release);
        self.entered.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes all requests out, after it has done something with each.
    pub fn clear(self, f: impl Fn(&Request)) {
        for (slot, moving) in self.requests.iter_mut().zip(self.moving) {
            if let Some(request) = slot {
                f(request);
                remove(slot, moving);
            }
        }
    }
}

/// Takes a request out of a list.
fn remove(slot: &mut Option<Request>, moving: &AtomicU64) {
    *slot = None;
    moving.store(0, Ordering::Release);
}
