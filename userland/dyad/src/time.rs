//! Fused time, which is one clock for all nodes, and wall-clock time.

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

/// A point of wall-clock time: the time of day.
///
/// The clock is read once, when the machines are started; from then on it runs with fused time. It is ahead of
/// the clock of the computer that runs the machines, or behind it, by what the boot takes. In strict order and
/// with `--random-seed` the machines start at 2026-01-01 00:00:00 UTC, so that runs repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemTime(u64);

impl SystemTime {
    /// 1970-01-01 00:00:00 UTC.
    pub const UNIX_EPOCH: SystemTime = SystemTime(0);

    /// The present time.
    pub fn now() -> SystemTime {
        let (start, _) = dyad_sys::wall_and_seed().unwrap_or_default();
        SystemTime(start.saturating_add(Instant::now().as_nanos()))
    }

    /// Time since an earlier point.
    ///
    /// # Errors
    ///
    /// If the other point is later: the time until that.
    pub fn duration_since(self, earlier: SystemTime) -> Result<Duration, Duration> {
        let since = |a: u64, b: u64| a.checked_sub(b).map(Duration::from_nanos);
        since(self.0, earlier.0).ok_or(Duration::from_nanos(earlier.0.saturating_sub(self.0)))
    }

    /// Time from this point until now.
    ///
    /// # Errors
    ///
    /// If this point is in the future: the time until it.
    pub fn elapsed(self) -> Result<Duration, Duration> {
        SystemTime::now().duration_since(self)
    }
}

impl Add<Duration> for SystemTime {
    type Output = SystemTime;

    fn add(self, d: Duration) -> SystemTime {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        SystemTime(self.0.saturating_add(ns))
    }
}

impl Sub<Duration> for SystemTime {
    type Output = SystemTime;

    fn sub(self, d: Duration) -> SystemTime {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        SystemTime(self.0.saturating_sub(ns))
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
