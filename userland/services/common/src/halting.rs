//! How init ends the threads of a program, and how long it waits for what comes back.
//!
//! All bounds are times of a clock that the caller has: on machines the fused clock.

use dyad_abi::{Error, Result};

/// How long threads may take to end, and lists of schedulers to be free of them.
const HALT_NS: u64 = 10_000_000_000;
/// How often it is looked whether they have.
const STEP_NS: u64 = 500_000;
/// The longest time that quiescence may take.
const QUIESCENCE_NS: u64 = 10_000_000_000;
/// Interval of checks for quiescence.
const LOOK_NS: u64 = 5_000_000;

/// A clock, and a way to let it go on.
pub trait Clock {
    /// Now.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn now(&self) -> Result<u64>;

    /// Lets others run until a time, or less.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn sleep(&self, until: u64) -> Result<()>;
}

/// The threads of a program that is to end.
pub trait Threads {
    /// From here on no request to start a thread is accepted. One that has been accepted is carried out.
    fn close(&self);

    /// Gives up requests to move threads: none goes on that was stopped in order to be moved.
    ///
    /// # Errors
    ///
    /// `Again` if one is just being moved; as the kernel says.
    fn forget(&self) -> Result<()>;

    /// Looks at one thread after the other; `true`: each had stopped when it was looked at. Wakes those that wait.
    fn have_stopped(&self) -> bool;

    /// Takes the code of the program away, so that threads of it fault.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn take_code(&self) -> Result<()>;
}

/// Ends the threads of a program that still run, wherever they are: what they execute is taken away
/// from under them, so that each faults, and ends. One that is in a service first does there what it
/// was invoked for, and holds nothing there when it ends; one that waits is woken for this.
///
/// # Errors
///
/// `TimedOut` if one of them does not end; as the kernel says.
pub fn halt(clock: &impl Clock, threads: &impl Threads) -> Result<()> {
    let end = clock.now()? + HALT_NS;
    threads.close();
    loop {
        match threads.forget() {
            Err(Error::Again) => {}
            done => break done?,
        }
        step(clock, end)?;
    }
    if have_stopped(threads) {
        return Ok(());
    }
    threads.take_code()?;
    while !have_stopped(threads) {
        step(clock, end)?;
    }
    Ok(())
}

/// Whether all have stopped. Looks twice: one that has been seen to have stopped may have been started since, by a
/// thread that was just about to, and by no other.
fn have_stopped(threads: &impl Threads) -> bool {
    threads.have_stopped() && threads.have_stopped()
}

/// Waits a little, if it is not the end yet.
fn step(clock: &impl Clock, end: u64) -> Result<()> {
    let now = clock.now()?;
    if now > end {
        return Err(Error::TimedOut);
    }
    clock.sleep(now + STEP_NS)
}

/// Does something for which no thread may be on a scheduler's list. One that was lost with its node, or told
/// of by recovery, is on it until the scheduler comes to that.
///
/// # Errors
///
/// As `f`: `NotReady` only if that lasts.
pub fn unlisted<T>(clock: &impl Clock, mut f: impl FnMut() -> Result<T>) -> Result<T> {
    let end = clock.now()? + HALT_NS;
    loop {
        let now = clock.now()?;
        match f() {
            Err(Error::NotReady) if now < end => clock.sleep(now + STEP_NS)?,
            result => return result,
        }
    }
}

/// Waits until what was given up is quiesced, as `is_quiet` says.
///
/// # Errors
///
/// `TimedOut`; as `is_quiet`.
pub fn wait(clock: &impl Clock, mut is_quiet: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = clock.now()? + QUIESCENCE_NS;
    while !is_quiet()? {
        let now = clock.now()?;
        if now > end {
            return Err(Error::TimedOut);
        }
        clock.sleep(now + LOOK_NS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::cell::{Cell, RefCell};
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// A thread of a program that would rather go on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Thread {
        Stopped,
        /// In the program's code: goes on until there is none.
        Runs,
        /// Waits until it is woken, and then runs.
        Waits,
        /// In a service, for so many looks; then it starts the thread with that number, if there is one, and runs.
        Serves(u32, Option<usize>),
        /// Never stops.
        Stays,
    }
    use Thread::*;

    struct Model {
        clock: Cell<u64>,
        threads: RefCell<Vec<Thread>>,
        has_code: Cell<bool>,
        closed: Cell<bool>,
        moving: Cell<u32>,
    }

    impl Model {
        fn new(threads: Vec<Thread>, moving: u32) -> Model {
            Model {
                clock: Cell::new(0),
                threads: RefCell::new(threads),
                has_code: Cell::new(true),
                closed: Cell::new(false),
                moving: Cell::new(moving),
            }
        }

        /// All threads go on a little.
        fn go_on(&self) {
            let mut threads = self.threads.borrow_mut();
            for n in 0..threads.len() {
                match threads[n] {
                    Runs if !self.has_code.get() => threads[n] = Stopped,
                    Serves(0, started) => {
                        threads[n] = Runs;
                        if let Some(other) = started {
                            // It takes a while to get a CPU.
                            threads[other] = Serves(4, None);
                        }
                    }
                    Serves(left, started) => threads[n] = Serves(left - 1, started),
                    _ => {}
                }
            }
        }
    }

    impl Clock for Model {
        fn now(&self) -> Result<u64> {
            Ok(self.clock.get())
        }

        fn sleep(&self, until: u64) -> Result<()> {
            assert!(until > self.clock.get(), "it does not wait");
            self.clock.set(until);
            self.go_on();
            Ok(())
        }
    }

    impl Threads for Model {
        fn close(&self) {
            self.closed.set(true);
        }

        fn forget(&self) -> Result<()> {
            match self.moving.get() {
                0 => Ok(()),
                n => {
                    self.moving.set(n - 1);
                    Err(Error::Again)
                }
            }
        }

        fn have_stopped(&self) -> bool {
            assert!(self.closed.get(), "threads are still started");
            assert_eq!(self.moving.get(), 0, "one is still moved");
            let mut all = true;
            let count = self.threads.borrow().len();
            for n in 0..count {
                let now = self.threads.borrow()[n];
                all &= now == Stopped;
                if now == Waits {
                    self.threads.borrow_mut()[n] = Runs;
                }
                // Meanwhile.
                self.go_on();
            }
            all
        }

        fn take_code(&self) -> Result<()> {
            self.has_code.set(false);
            Ok(())
        }
    }

    /// When init says that the threads have stopped, none runs: whatever each of them was doing, and whichever thread
    /// was just being started.
    #[test]
    fn no_thread_runs_when_they_have_been_halted() {
        let mut states = vec![Stopped, Runs, Waits];
        for looks in 0..6 {
            states.extend([None, Some(0), Some(1), Some(2)].map(|who| Serves(looks, who)));
        }
        for &a in &states {
            for &b in &states {
                for &c in &states {
                    for moving in [0, 2] {
                        let model = Model::new(vec![a, b, c], moving);
                        let what = (a, b, c, moving);
                        assert_eq!(halt(&model, &model), Ok(()), "{what:?}");
                        for _ in 0..8 {
                            assert_eq!(*model.threads.borrow(), [Stopped; 3], "{what:?}");
                            model.go_on();
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn threads_that_do_not_stop_and_moves_that_do_not_end_are_waited_for_so_long_only() {
        let threads = [(vec![Runs, Stays], 0), (vec![Stopped], u32::MAX)];
        for (threads, moving) in threads {
            let model = Model::new(threads, moving);
            assert_eq!(halt(&model, &model), Err(Error::TimedOut));
            assert!((HALT_NS..HALT_NS * 2).contains(&model.clock.get()));
        }
    }

    /// What stands in the way for a while is waited for; what stays is told.
    #[test]
    fn what_is_listed_or_not_quiet_is_waited_for() {
        for (after, ok) in [
            (0, true),
            (1, true),
            (HALT_NS - STEP_NS, true),
            (u64::MAX, false),
        ] {
            let model = Model::new(Vec::new(), 0);
            let is = unlisted(&model, || match model.clock.get() >= after {
                true => Ok(7),
                false => Err(Error::NotReady),
            });
            assert_eq!(is, if ok { Ok(7) } else { Err(Error::NotReady) });
            let model = Model::new(Vec::new(), 0);
            let is = wait(&model, || Ok(model.clock.get() >= after));
            assert_eq!(is, if ok { Ok(()) } else { Err(Error::TimedOut) });
            assert!(!ok || model.clock.get() >= after, "not yet");
        }
        let model = Model::new(Vec::new(), 0);
        assert_eq!(
            unlisted::<()>(&model, || Err(Error::Again)),
            Err(Error::Again)
        );
        assert_eq!(wait(&model, || Err(Error::Revoked)), Err(Error::Revoked));
        assert_eq!(model.clock.get(), 0, "for nothing");
    }
}
