//! Fused time: one clock for all nodes.

use core::future::Future;
use core::ops::{Add, Sub};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::executor;

/// A point of fused time. Comparable between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The present time.
    pub fn now() -> Instant {
        Instant(executor::now())
    }

    /// The point `ns` nanoseconds after the first node started.
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(ns)
    }

    /// Nanoseconds since the first node started.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since this point; zero if it lies in the future.
    pub fn elapsed(self) -> Duration {
        Instant::now() - self
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(ns))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Time from the earlier to the later point; zero if their order is reversed.
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Waits for a duration.
pub fn sleep(d: Duration) -> Sleep {
    sleep_until(Instant::now() + d)
}

/// Waits until a point of time.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        timer: None,
    }
}

/// Future of [`sleep`] and [`sleep_until`].
#[must_use = "nothing waits until this is awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline.0;
        self.timer = Some(executor::set_timer(
            deadline,
            self.timer,
            cx.waker().clone(),
        ));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            executor::cancel_timer(self.deadline.0, timer);
        }
    }
}
