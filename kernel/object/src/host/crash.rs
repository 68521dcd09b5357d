//! Machines that die between two changes of shared memory.

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

std::thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

struct Died;

/// What somebody else does, and after how many changes.
type Other = (u32, Box<dyn FnOnce()>);

std::thread_local! {
    static OTHER: RefCell<Option<Other>> = const { RefCell::new(None) };
}

/// Called before every change of a shared word.
pub fn point() {
    let other = OTHER.take();
    match other {
        None => {}
        Some((0, act)) => act(),
        Some((n, act)) => OTHER.set(Some((n - 1, act))),
    }
    match LEFT.get() {
        None => {}
        Some(0) => {
            LEFT.set(None);
            resume_unwind(Box::new(Died));
        }
        Some(n) => LEFT.set(Some(n - 1)),
    }
}

/// Runs `f` until it has made `changes` changes and is about to make another one. What it returns,
/// if it came to its end.
pub fn after<T>(changes: u32, f: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(changes));
    let done = catch_unwind(AssertUnwindSafe(f));
    LEFT.set(None);
    match done {
        Ok(value) => Some(value),
        Err(e) if e.is::<Died>() => None,
        Err(e) => resume_unwind(e),
    }
}

/// Runs `f`; before its change number `changes` (from 0 on) somebody else does `act` as a whole.
/// Whether it came to that.
pub fn between(changes: u32, act: impl FnOnce() + 'static, f: impl FnOnce()) -> bool {
    let came = Rc::new(Cell::new(false));
    let comes = came.clone();
    OTHER.set(Some((
        changes,
        Box::new(move || {
            comes.set(true);
            act();
        }),
    )));
    f();
    if !came.get() {
        OTHER.take();
    }
    came.get()
}

/// From within what somebody else does: they do the rest of it before change number `changes` from
/// then on.
pub fn later(changes: u32, act: impl FnOnce() + 'static) {
    OTHER.set(Some((changes, Box::new(act))));
}

/// Does what somebody else has not come to do yet.
pub fn now() {
    if let Some((_, act)) = OTHER.take() {
        act();
    }
}

/// Runs what others do meanwhile: nobody dies in it.
pub fn never(f: impl FnOnce()) {
    let left = LEFT.take();
    f();
    LEFT.set(left);
}

#[test]
fn machines_die_where_they_are_told_to() {
    let count = |n| {
        let mut done = 0;
        let end = after(n, || {
            for _ in 0..3 {
                point();
                done += 1;
            }
        });
        (end, done)
    };
    assert_eq!(count(0), (None, 0));
    assert_eq!(count(2), (None, 2));
    assert_eq!(count(3), (Some(()), 3));
}
