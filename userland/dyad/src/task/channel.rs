//! Channels between tasks.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// A channel for at most `bound` values, 1 or more, between tasks: a task that sends waits for room, one that receives
/// waits for a value, and others run meanwhile.
///
/// ```no_run
/// # use dyad::prelude::task::*;
/// # async fn f() {
/// let (send, mut receive) = dyad::task::channel(8);
/// drop(spawn(async move {
///     for n in 0..3 {
///         let _ = send.send(n).await;
///     }
/// }));
/// let mut sum = 0;
/// while let Some(n) = receive.recv().await {
///     sum += n;
/// }
/// assert_eq!(sum, 3);
/// # }
/// ```
///
/// # Panics
///
/// If `bound` is 0.
pub fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel has room for one value at least");
    let shared = Rc::new(RefCell::new(Shared {
        values: VecDeque::new(),
        bound,
        senders: 1,
        has_receiver: true,
        receiver: None,
        waiting: Vec::new(),
    }));
    (Sender(shared.clone()), Receiver(shared))
}

struct Shared<T> {
    values: VecDeque<T>,
    bound: usize,
    senders: usize,
    has_receiver: bool,
    receiver: Option<Waker>,
    /// Wakers of tasks that wait for room. All are woken when there is some.
    waiting: Vec<Waker>,
}

/// The sending end of a [`channel`]. Clones send into the same one.
pub struct Sender<T>(Rc<RefCell<Shared<T>>>);

/// The receiving end of a [`channel`].
pub struct Receiver<T>(Rc<RefCell<Shared<T>>>);

/// The receiver has gone; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why nothing was sent; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver has gone.
    Closed(T),
}

impl<T> Sender<T> {
    /// Sends a value if there is room now.
    ///
    /// # Errors
    ///
    /// If there is none, or the receiver has gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let receiver = {
            let mut shared = self.0.borrow_mut();
            if !shared.has_receiver {
                return Err(TrySendError::Closed(value));
            }
            if shared.values.len() >= shared.bound {
                return Err(TrySendError::Full(value));
            }
            shared.values.push_back(value);
            shared.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }

    /// Sends a value, once there is room.
    ///
    /// # Errors
    ///
    /// If the receiver has gone.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        poll_fn(|cx| {
            let Some(mine) = value.take() else {
                unreachable!("it is polled once more than it was ready");
            };
            match self.try_send(mine) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(TrySendError::Closed(mine)) => Poll::Ready(Err(SendError(mine))),
                Err(TrySendError::Full(mine)) => {
                    value = Some(mine);
                    self.0.borrow_mut().waiting.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Receiver<T> {
    /// The next value, once there is one; `None` if all senders have gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let (value, waiting) = {
                let mut shared = self.0.borrow_mut();
                match shared.values.pop_front() {
                    Some(value) => (value, core::mem::take(&mut shared.waiting)),
                    None if shared.senders == 0 => return Poll::Ready(None),
                    None => {
                        shared.receiver = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            waiting.into_iter().for_each(Waker::wake);
            Poll::Ready(Some(value))
        })
        .await
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.borrow_mut().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let receiver = {
            let mut shared = self.0.borrow_mut();
            shared.senders -= 1;
            match shared.senders {
                0 => shared.receiver.take(),
                _ => None,
            }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (values, waiting) = {
            let mut shared = self.0.borrow_mut();
            shared.has_receiver = false;
            let values = core::mem::take(&mut shared.values);
            (values, core::mem::take(&mut shared.waiting))
        };
        drop(values);
        waiting.into_iter().for_each(Waker::wake);
    }
}
