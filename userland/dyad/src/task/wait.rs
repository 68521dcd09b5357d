//! Waiting for one of several futures, or for a time.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;

use crate::Instant;
use crate::time::sleep_until;

/// The output of [`select`]: that of the future that was ready first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The output of the first future.
    Left(A),
    /// The output of the second future.
    Right(B),
}

/// Waits for either of two futures, within this task. The other one is dropped. If both are ready, the first
/// one counts.
///
/// ```no_run
/// # use dyad::prelude::task::*;
/// use dyad::task::{Either, select};
///
/// # async fn f(a: JoinHandle<u64>, b: JoinHandle<String>) {
/// match select(a, b).await {
///     Either::Left(n) => dyad::println!("a number, {n}"),
///     Either::Right(text) => dyad::println!("a text, {text}"),
/// }
/// # }
/// ```
pub async fn select<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        if let Poll::Ready(value) = a.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(value));
        }
        b.as_mut().poll(cx).map(Either::Right)
    })
    .await
}

/// The error of [`timeout`]: the time passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it took too long")
    }
}

impl core::error::Error for Elapsed {}

/// Waits for a future for at most `time`, then drops it.
///
/// ```no_run
/// # use dyad::prelude::task::*;
/// use dyad::task::timeout;
///
/// # async fn f(answer: JoinHandle<u64>) {
/// match timeout(Duration::from_millis(5), answer).await {
///     Ok(n) => dyad::println!("{n}"),
///     Err(e) => dyad::println!("{e}"),
/// }
/// # }
/// ```
///
/// # Errors
///
/// [`Elapsed`] if the future was not ready in time.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + time, future).await
}

/// Waits for a future until a point of time, like [`timeout`].
///
/// # Errors
///
/// [`Elapsed`] if the future was not ready in time.
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    match select(future, sleep_until(deadline)).await {
        Either::Left(value) => Ok(value),
        Either::Right(()) => Err(Elapsed),
    }
}
