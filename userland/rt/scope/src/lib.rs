//! Work that borrows from the stack of the thread that hands it out.
//!
//! ```text
//!   begin ──▶ handed to a thread, counted ──run, or dropped──▶ not counted ──none left──▶ the scope ends
//! ```
//!
//! The lifetime of work is erased when the work is handed out. This is sound because the scope does not end
//! before the work is done: work that is neither run nor dropped keeps the scope waiting for ever.

#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dyad_rt::{futex, sync};
use dyad_sys::thread;

/// Work of another thread.
pub type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A scope for handing out work that borrows data which lives as long as `'env`.
pub struct Scope<'scope, 'env: 'scope> {
    out: Arc<AtomicU32>,
    /// Numbers of the threads that have been given work, by bit.
    threads: AtomicU64,
    // Invariant: neither may be made shorter or longer.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Work that has been handed out.
struct Out {
    work: Option<Work<'static>>,
    count: Arc<AtomicU32>,
}

impl Out {
    fn run(mut self) {
        if let Some(work) = self.work.take() {
            work();
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // First whatever it has borrowed.
        drop(self.work.take());
        if self.count.fetch_sub(1, Ordering::Release) == 1 {
            futex::wake_all(&self.count);
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Hands `work` to `start`, which runs it or has it run, or drops it.
    pub fn hand_out<R>(
        &'scope self,
        work: Work<'scope>,
        start: impl FnOnce(Work<'static>) -> R,
    ) -> R {
        self.out.fetch_add(1, Ordering::Relaxed);
        // SAFETY: 1. The types differ in a lifetime only. 2. The work is run or dropped before it stops
        // being counted, and `scope` does not return before that; nothing unwinds out of it.
        let work = unsafe { transmute::<Work<'scope>, Work<'static>>(work) };
        let out = Out {
            work: Some(work),
            count: self.out.clone(),
        };
        start(Box::new(move || out.run()))
    }

    /// Thread `n` has been started for work of this scope: if it is lost, the scope cannot end.
    pub fn has_started(&self, n: thread::Number) {
        self.threads.fetch_or(n.bit(), Ordering::Relaxed);
    }

    fn wait(&self) {
        loop {
            let lost = thread::lost() & self.threads.load(Ordering::Relaxed);
            let out = self.out.load(Ordering::Acquire);
            if out == 0 {
                return;
            }
            assert!(
                lost == 0,
                "a thread that borrows from this one was lost with its node"
            );
            // Whatever ends the wait: both are looked at again.
            let _ = sync::wait(&self.out, out);
        }
    }
}

/// Calls `f` with a scope and returns when all work of the scope has been done.
///
/// # Panics
///
/// If work has not been done and a thread that was [started](Scope::has_started) for it was lost with its
/// node: the borrowed data cannot be given back.
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let scope = Scope {
        out: Arc::new(AtomicU32::new(0)),
        threads: AtomicU64::new(0),
        scope: PhantomData,
        env: PhantomData,
    };
    let wait = Wait(&scope);
    let result = f(&scope);
    drop(wait);
    result
}

/// Waits for the work when it is dropped, including after a panic of `f` on the host, where panics unwind.
struct Wait<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for Wait<'_, '_, '_> {
    fn drop(&mut self) {
        let out = &self.0.out;
        while out.load(Ordering::Acquire) != 0 {
            self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes how much work is counted when it is dropped.
    struct Borrows<'a> {
        out: &'a AtomicU32,
        seen: &'a AtomicU32,
    }

    impl Drop for Borrows<'_> {
        fn drop(&mut self) {
            let out = self.out.load(Ordering::Relaxed);
            self.seen.store(out, Ordering::Relaxed);
        }
    }

    /// Work that is never run gives back what it borrows while it still counts: the scope may end as soon as it does not.
    #[test]
    fn work_is_dropped_before_it_stops_being_counted() {
        let seen = AtomicU32::new(0);
        scope(|s| {
            let (out, seen) = (&*s.out, &seen);
            let work = Borrows { out, seen };
            s.hand_out(Box::new(move || drop(work)), drop);
        });
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
}
