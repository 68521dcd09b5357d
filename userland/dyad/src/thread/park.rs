//! Threads that wait until another thread unparks them.
//!
//! ```text
//!   EMPTY ──park──▶ PARKED ──unpark──▶ NOTIFIED ──the thread goes on──▶ EMPTY
//!     └───unpark──▶ NOTIFIED ──park, which does not wait──▶ EMPTY
//! ```

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use dyad_rt::futex::{self, What};
use dyad_rt::sync::PATIENCE_NS;
use dyad_sys as sys;
use dyad_sys::thread::Number;

use super::{MAX, Thread};
use crate::Instant;

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// The word of a thread; words of different threads do not share cache lines.
#[repr(align(64))]
struct Token(AtomicU32);

dyad_rt::program_local! {
    static TOKENS: [Token; MAX] = [const { Token(AtomicU32::new(EMPTY)) }; MAX];
}

fn of<R>(thread: Number, f: impl FnOnce(&AtomicU32) -> R) -> R {
    TOKENS.with_any(|tokens| f(&tokens[thread.get() as usize].0))
}

/// Resets the word of a number before a new thread starts, because an unpark of the number's last thread is
/// not for the new one. The starter calls this before the thread can run, so that no later
/// [`unpark`](Thread::unpark) is lost.
pub(super) fn reset(thread: Number) {
    of(thread, |word| word.store(EMPTY, Ordering::Relaxed));
}

/// Waits until another thread [unparks](Thread::unpark) this one. Returns at once if this thread was unparked
/// since it last waited. May also return spuriously, so callers must test their condition again.
///
/// Also returns once after each loss of threads of the program with a node. If the thread that was to unpark this one is
/// among them, no other thread will: a loop around `park` that is to survive the loss tests [`Thread::is_lost`].
///
/// ```no_run
/// use core::sync::atomic::{AtomicBool, Ordering};
/// use dyad::thread;
///
/// # fn main() -> dyad::Result<()> {
/// static READY: AtomicBool = AtomicBool::new(false);
///
/// let waiter = thread::spawn(|| {
///     while !READY.load(Ordering::Acquire) {
///         thread::park();
///     }
/// })?;
/// READY.store(true, Ordering::Release);
/// waiter.thread().unpark();
/// waiter.join()?;
/// # Ok(())
/// # }
/// ```
///
/// On the first thread, async tasks wait too.
///
/// # Panics
///
/// In an invocation, where the thread belongs to the caller.
pub fn park() {
    wait(None);
}

/// Waits like [`park`], for at most `time`.
///
/// # Panics
///
/// In an invocation, where the thread belongs to the caller.
pub fn park_timeout(time: Duration) {
    wait(Some(Instant::now() + time));
}

fn wait(deadline: Option<Instant>) {
    let own = sys::thread::number().expect("an invocation is on a thread of its caller");
    of(own, |word| {
        let (order, look) = (Ordering::Acquire, Ordering::Relaxed);
        if word.compare_exchange(EMPTY, PARKED, order, look).is_ok() {
            loop {
                let patience = Instant::now() + Duration::from_nanos(PATIENCE_NS);
                let until = deadline.map_or(patience, |d| d.min(patience));
                let of = (What::Unpark, None);
                let waited = futex::wait_for(of, word, PARKED, until.as_nanos());
                let is_over = deadline.is_some_and(|d| Instant::now() >= d);
                if waited != Err(sys::Error::TimedOut) || is_over {
                    break;
                }
            }
        }
        word.swap(EMPTY, Ordering::Acquire);
    });
}

impl Thread {
    /// Ends the thread's [`park`], or makes its next one return at once. If the thread has ended, this does
    /// nothing, or wakes a newer thread with the same number.
    pub fn unpark(self) {
        of(self.of_program(), |word| {
            if word.swap(NOTIFIED, Ordering::Release) == PARKED {
                futex::wake(word, 1);
            }
        });
    }
}
