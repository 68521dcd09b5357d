//! The points at which the threads of a program can continue natively.
//!
//! A program begins with one point for all of its threads. Its first thread gets another point when it begins
//! to run tasks; from then on only that thread can be asked to move wherever it is. Other threads that were
//! asked before keep their point.
//!
//! | step | order |
//! |---|---|
//! | a point, then the word for init that says which threads have one | release, and a full fence in between |
//! | looks once more whether the first thread has got another point | behind a full fence |

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use dyad_abi::emulation::ready;

use super::Land;

/// A place from where threads can go on natively: a function or routine that is about to be called.
#[derive(Debug)]
pub struct Point {
    pub(super) at: AtomicU64,
    pub(super) land: Land,
    /// Whether a thread calls the point only if it has been asked to move.
    pub(super) is_asked: bool,
}

impl Point {
    /// The point of the first thread between its tasks.
    pub const fn of_tasks(land: Land) -> Point {
        Point::new(land, false)
    }

    /// The point that every thread reaches after it has been asked to move
    /// ([`request`](dyad_abi::user::request)).
    pub const fn of_threads(land: Land) -> Point {
        Point::new(land, true)
    }

    const fn new(land: Land, is_asked: bool) -> Point {
        Point {
            at: AtomicU64::new(0),
            land,
            is_asked,
        }
    }
}

/// The points of a program.
#[derive(Debug)]
pub(super) struct Points {
    /// The point of all threads.
    all: AtomicPtr<Point>,
    /// The point of the first thread, if it has its own.
    first: AtomicPtr<Point>,
}

impl Points {
    pub(super) const fn new() -> Points {
        Points {
            all: AtomicPtr::new(null_mut()),
            first: AtomicPtr::new(null_mut()),
        }
    }

    /// Registers the program's first point. Called when the program begins, on any thread and ISA; the point
    /// of the first call stays.
    pub(super) fn begin(&self, point: &'static Point, at: u64) {
        point.at.store(at, Ordering::Relaxed);
        let point = core::ptr::from_ref(point).cast_mut();
        let (order, look) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.all.compare_exchange(null_mut(), point, order, look);
    }

    /// The first thread has a point of its own from here on.
    pub(super) fn set_first(&self, point: &'static Point, at: u64) {
        point.at.store(at, Ordering::Relaxed);
        let point = core::ptr::from_ref(point).cast_mut();
        self.first.store(point, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn first(&self) -> Option<&'static Point> {
        // SAFETY: 1. It is null, or a reference that lives for ever.
        unsafe { self.first.load(Ordering::Acquire).as_ref() }
    }

    /// The point of thread `n`.
    pub(super) fn of(&self, n: u64) -> Option<&'static Point> {
        // SAFETY: 1. It is null, or a reference that lives for ever.
        let all = || unsafe { self.all.load(Ordering::Acquire).as_ref() };
        self.first().filter(|_| n == 0).or_else(all)
    }

    /// The threads that may be asked to move: a value of [`ready`].
    fn ready(&self) -> u64 {
        match (self.first(), self.of(0)) {
            (None, Some(point)) if point.is_asked => ready::ALL,
            (_, Some(_)) => ready::FIRST,
            (_, None) => ready::NOT,
        }
    }

    /// Stores in a word which threads may be asked to move. If several threads call this concurrently, the
    /// word is right after the last call.
    pub(super) fn say(&self, word: &AtomicU64) {
        let said = self.ready();
        word.store(said, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.ready() != said {
            word.store(self.ready(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Apart, Arrived, Going};
    use super::*;
    use dyad_abi::{Error, Result};

    fn nowhere(_: &Arrived, _: Apart) -> Result<Going> {
        Err(Error::Denied)
    }

    static THREADS: Point = Point::of_threads(nowhere);
    static TASKS: Point = Point::of_tasks(nowhere);

    fn is(points: &Points, n: u64, point: &'static Point) -> bool {
        points.of(n).is_some_and(|p| core::ptr::eq(p, point))
    }

    fn said(points: &Points) -> u64 {
        let word = AtomicU64::new(7);
        points.say(&word);
        word.into_inner()
    }

    #[test]
    fn a_first_thread_that_runs_tasks_has_a_point_of_its_own() {
        let points = Points::new();
        assert!(points.of(0).is_none() && points.of(1).is_none());
        assert_eq!(said(&points), ready::NOT);
        points.begin(&THREADS, 1);
        assert!(is(&points, 0, &THREADS) && is(&points, 1, &THREADS));
        assert_eq!(said(&points), ready::ALL);
        points.set_first(&TASKS, 2);
        assert!(is(&points, 0, &TASKS) && is(&points, 1, &THREADS));
        assert_eq!(said(&points), ready::FIRST);
        // A thread that begins later, and has not heard of it, changes nothing.
        points.begin(&THREADS, 1);
        assert!(is(&points, 0, &TASKS) && is(&points, 1, &THREADS));
        assert_eq!(said(&points), ready::FIRST);
    }

    #[test]
    fn a_program_of_tasks_begins_with_their_point() {
        let points = Points::new();
        points.begin(&TASKS, 2);
        points.begin(&THREADS, 1);
        assert!(is(&points, 0, &TASKS) && is(&points, 1, &TASKS));
        assert_eq!(said(&points), ready::FIRST);
    }
}
