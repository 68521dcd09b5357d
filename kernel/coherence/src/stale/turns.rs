//! Threads that run one at a time, in an order that a seed decides.
//!
//! ```text
//!   waiting ──── current = me ────▶ running ──── task ends, or fails ────▶ gone
//!      ▲                               │
//!      └── step: another is chosen ────┘
//! ```
//!
//! The lock orders everything: who runs has been handed the turn under it.

use core::cell::Cell;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::thread_local;
use std::vec::Vec;

use super::Random;

/// A task for a thread of [`StaleMem::interleave`](super::StaleMem::interleave).
pub type Task<'t> = Box<dyn FnOnce() -> Result<(), String> + Send + 't>;

/// A thread is unwound with this when the steps are used up or another one has failed.
struct GiveUp;

/// The turns this thread takes part in, and its number there.
type Seat = Option<(*const Turns, usize)>;

thread_local! {
    static SEAT: Cell<Seat> = const { Cell::new(None) };
    static PAUSE: Cell<bool> = const { Cell::new(false) };
}

/// Lets the others go on before this thread's next operation: for loops that wait for them.
pub fn pause() {
    PAUSE.set(true);
}

#[derive(Debug)]
struct State {
    /// The thread whose turn it is.
    current: usize,
    /// The threads that have not ended.
    running: Vec<usize>,
    steps_left: u64,
    random: Random,
    failure: Option<String>,
}

impl State {
    /// Gives the turn to one of those that have not ended.
    fn choose(&mut self) {
        self.current = self.running[self.random.below(self.running.len())];
    }
}

#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    switch: u8,
}

impl Turns {
    pub(super) fn new(seed: u64, switch: u8) -> Turns {
        Turns {
            state: Mutex::new(State {
                current: 0,
                running: Vec::new(),
                steps_left: 0,
                random: Random::new(seed.rotate_left(32)),
                failure: None,
            }),
            changed: Condvar::new(),
            switch,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is this thread's turn again, after it may have been another's. Nothing for
    /// threads that take no turns here.
    pub(super) fn step(&self) {
        let Some((turns, me)) = SEAT.get() else {
            return;
        };
        // Who is unwound may still drop what accesses memory.
        if !core::ptr::eq(turns, self) || thread::panicking() {
            return;
        }
        let pause = PAUSE.replace(false);
        let mut state = self.state();
        if state.steps_left == 0 && state.failure.is_none() {
            state.failure = Some("a task waits for what never comes".to_string());
        }
        state.steps_left = state.steps_left.saturating_sub(1);
        if state.failure.is_none() && (pause || state.random.happens(self.switch)) {
            state.choose();
            self.changed.notify_all();
        }
        let state = self.wait(state, me);
        if state.failure.is_some() {
            drop(state);
            // Not a panic: nothing is to be printed.
            resume_unwind(Box::new(GiveUp));
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, me: usize) -> MutexGuard<'a, State> {
        while state.current != me && state.failure.is_none() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn end(&self, me: usize, failure: Option<String>) {
        let mut state = self.state();
        state.running.retain(|&t| t != me);
        if state.failure.is_none() {
            state.failure = failure;
        }
        if !state.running.is_empty() {
            state.choose();
        }
        self.changed.notify_all();
    }

    pub(super) fn run(&self, steps: u64, tasks: Vec<Task<'_>>) -> Result<(), String> {
        if tasks.is_empty() {
            return Ok(());
        }
        {
            let mut state = self.state();
            state.running = (0..tasks.len()).collect();
            state.steps_left = steps;
            state.failure = None;
            state.choose();
        }
        let lacking = crate::lacks::here();
        thread::scope(|s| {
            for (me, task) in tasks.into_iter().enumerate() {
                s.spawn(move || {
                    lacking.take_over();
                    SEAT.set(Some((self, me)));
                    drop(self.wait(self.state(), me));
                    let failure = match catch_unwind(AssertUnwindSafe(task)) {
                        Ok(result) => result.err(),
                        Err(why) if why.is::<GiveUp>() => None,
                        Err(why) => Some(
                            why.downcast_ref::<String>()
                                .cloned()
                                .or_else(|| why.downcast_ref::<&str>().map(|s| s.to_string()))
                                .unwrap_or_else(|| "a task panicked".to_string()),
                        ),
                    };
                    self.end(me, failure);
                });
            }
        });
        self.state().failure.take().map_or(Ok(()), Err)
    }
}
