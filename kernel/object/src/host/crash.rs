//! Machines that die between two changes of shared memory, and CPUs that act between two accesses of another one.

use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::vec::Vec;

use dyad_coherence::LINE_BYTES;

std::thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

struct Died;

/// What another CPU does, and when.
struct Other {
    /// Steps to come before.
    left: u32,
    /// Whether looks are steps, too, or only changes.
    looks: bool,
    act: Box<dyn FnOnce()>,
}

/// One access to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the line of the word: its physical address, or its address on the host, in lines.
    pub line: u64,
    /// Whether the step changes the word.
    pub is_change: bool,
}

std::thread_local! {
    /// Whether steps matter: another CPU waits for one, or they are written down.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static OTHER: RefCell<Option<Other>> = const { RefCell::new(None) };
    static TRACE: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
}

/// Called before every change of a shared word.
pub fn change(word: &AtomicU64) {
    step(word, true);
    match LEFT.get() {
        None => {}
        Some(0) => {
            LEFT.set(None);
            resume_unwind(Box::new(Died));
        }
        Some(n) => LEFT.set(Some(n - 1)),
    }
}

/// Called before every look at a shared word.
pub fn look(word: &AtomicU64) {
    step(word, false);
}

/// Notes whether steps matter, after a change of that.
fn watch() {
    let watched = OTHER.with_borrow(Option::is_some) || TRACE.with_borrow(Option::is_some);
    WATCHED.set(watched);
}

fn step(word: &AtomicU64, is_change: bool) {
    if !WATCHED.get() {
        return;
    }
    let due = OTHER.with_borrow_mut(|other| {
        let o = other.as_mut().filter(|o| is_change || o.looks)?;
        match o.left.checked_sub(1) {
            None => other.take(),
            Some(left) => {
                o.left = left;
                None
            }
        }
    });
    if let Some(other) = due {
        watch();
        (other.act)();
    }
    TRACE.with_borrow_mut(|trace| {
        if let Some(trace) = trace {
            let line = line_of(word);
            trace.push(Step { line, is_change });
        }
    });
}

fn line_of(word: &AtomicU64) -> u64 {
    let at = core::ptr::from_ref(word) as u64;
    let physical = super::current_node().and_then(|n| n.map.physical(at));
    physical.map_or(at, |pa| pa.0) / LINE_BYTES
}

/// Runs `f`: what it returns, and its steps until then.
pub fn traced<T>(f: impl FnOnce() -> T) -> (T, Vec<Step>) {
    let before = TRACE.replace(Some(Vec::new()));
    watch();
    let value = f();
    let steps = TRACE.replace(before);
    watch();
    (value, steps.unwrap_or_default())
}

/// The steps so far of what [`traced`] runs: for what another CPU does in between.
pub fn steps_so_far<T>(f: impl FnOnce(&[Step]) -> T) -> T {
    TRACE.with_borrow(|trace| f(trace.as_deref().unwrap_or_default()))
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

/// Runs `f`; before its change number `changes` (from 0 on) another CPU does `act` as a whole.
/// Whether it came to that.
pub fn between_changes(changes: u32, act: impl FnOnce() + 'static, f: impl FnOnce()) -> bool {
    before(changes, false, act, f)
}

/// Runs `f`; before its step number `steps` (from 0 on), a change of a shared word or a look at one, another CPU
/// does `act` as a whole. Whether it came to that.
pub fn between(steps: u32, act: impl FnOnce() + 'static, f: impl FnOnce()) -> bool {
    before(steps, true, act, f)
}

fn before(left: u32, looks: bool, act: impl FnOnce() + 'static, f: impl FnOnce()) -> bool {
    let came = Rc::new(Cell::new(false));
    let comes = came.clone();
    let act = Box::new(move || {
        comes.set(true);
        act();
    });
    OTHER.set(Some(Other { left, looks, act }));
    watch();
    f();
    if !came.get() {
        OTHER.take();
        watch();
    }
    came.get()
}

/// From within what another CPU does: it does the rest of it before step number `steps` from then on.
pub fn later(steps: u32, act: impl FnOnce() + 'static) {
    OTHER.set(Some(Other {
        left: steps,
        looks: true,
        act: Box::new(act),
    }));
    watch();
}

/// Lets the other CPU do what it has not done yet.
pub fn now() {
    if let Some(other) = OTHER.take() {
        watch();
        (other.act)();
    }
}

/// Runs the actions of other nodes in between, in which no node dies.
pub fn never(f: impl FnOnce()) {
    let left = LEFT.take();
    f();
    LEFT.set(left);
}

#[test]
fn machines_die_where_they_are_told_to() {
    let word = AtomicU64::new(0);
    let count = |n| {
        let mut done = 0;
        let end = after(n, || {
            for _ in 0..3 {
                look(&word);
                change(&word);
                done += 1;
            }
        });
        (end, done)
    };
    assert_eq!(count(0), (None, 0));
    assert_eq!(count(2), (None, 2));
    assert_eq!(count(3), (Some(()), 3));
}

#[test]
fn another_cpu_acts_before_the_step_that_is_named() {
    let words: [AtomicU64; 2] = Default::default();
    let two = || {
        look(&words[0]);
        change(&words[1]);
    };
    let seen = |steps: u32| {
        let seen = Rc::new(Cell::new(usize::MAX));
        let sees = seen.clone();
        let act = move || steps_so_far(|s| sees.set(s.len()));
        let (came, all) = traced(|| between(steps, act, two));
        assert_eq!(all.iter().filter(|s| s.is_change).count(), 1);
        came.then(|| seen.get())
    };
    assert_eq!([0, 1, 2].map(seen), [Some(0), Some(1), None]);
    assert!(between_changes(0, || {}, two));
    assert!(!between_changes(1, || {}, two));
}
