//! Channels between tasks.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// Makes a channel for at most `bound` values, 1 or more, between tasks. A task that sends waits for room,
/// and one that receives waits for a value, while other tasks run. Tasks that wait for room send in the order
/// in which they began to wait.
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
        waiting: VecDeque::new(),
        next_turn: 0,
    }));
    (Sender(shared.clone()), Receiver(shared))
}

struct Shared<T> {
    values: VecDeque<T>,
    bound: usize,
    senders: usize,
    has_receiver: bool,
    receiver: Option<Waker>,
    /// Sends that wait for room, by turn. If there is room for n values, the first n of them have been woken.
    waiting: VecDeque<(u64, Waker)>,
    next_turn: u64,
}

impl<T> Shared<T> {
    /// The number of values that there is room for.
    fn room(&self) -> usize {
        self.bound - self.values.len()
    }

    /// The waker of the send that may now continue. Called after the room has grown by one, or a send with
    /// room has left the queue.
    fn next(&self) -> Option<Waker> {
        let last = self.room().checked_sub(1)?;
        self.waiting.get(last).map(|(_, waker)| waker.clone())
    }

    /// The position of a turn in the queue.
    fn place(&self, turn: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&turn, |w| w.0).ok()
    }
}

/// The place of a send in the queue of a channel. Dropping it leaves the queue.
struct QueuedSend<'a, T> {
    shared: &'a RefCell<Shared<T>>,
    turn: Option<u64>,
}

impl<T> QueuedSend<'_, T> {
    /// Sends the value if it is the caller's turn; otherwise returns the value.
    fn try_send(&mut self, value: T) -> Result<(), TrySendError<T>> {
        let (receiver, _left) = {
            let mut shared = self.shared.borrow_mut();
            if !shared.has_receiver {
                return Err(TrySendError::Closed(value));
            }
            let place = self.turn.and_then(|turn| shared.place(turn));
            // Room belongs to the sends that wait for it.
            if place.unwrap_or(shared.waiting.len()) >= shared.room() {
                return Err(TrySendError::Full(value));
            }
            self.turn = None;
            let left = place.and_then(|place| shared.waiting.remove(place));
            shared.values.push_back(value);
            (shared.receiver.take(), left)
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }

    /// Queues the caller, and stores the waker that is woken when it may send.
    fn wait(&mut self, waker: &Waker) {
        let waker = waker.clone();
        let _before = {
            let mut shared = self.shared.borrow_mut();
            match self.turn.and_then(|turn| shared.place(turn)) {
                Some(place) => Some(core::mem::replace(&mut shared.waiting[place].1, waker)),
                None => {
                    let turn = shared.next_turn;
                    shared.next_turn += 1;
                    self.turn = Some(turn);
                    shared.waiting.push_back((turn, waker));
                    None
                }
            }
        };
    }
}

impl<T> Drop for QueuedSend<'_, T> {
    fn drop(&mut self) {
        let (_left, next) = {
            let mut shared = self.shared.borrow_mut();
            let Some(place) = self.turn.and_then(|turn| shared.place(turn)) else {
                return;
            };
            let left = shared.waiting.remove(place);
            // Its room is the next one's.
            (
                left,
                (place < shared.room()).then(|| shared.next()).flatten(),
            )
        };
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// The sending end of a [`channel`]. Clones send into the same channel.
pub struct Sender<T>(Rc<RefCell<Shared<T>>>);

/// The receiving end of a [`channel`].
pub struct Receiver<T>(Rc<RefCell<Shared<T>>>);

/// The error of a send whose receiver has gone; it contains the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The reason why nothing was sent, with the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver has gone.
    Closed(T),
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver has gone")
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").finish_non_exhaustive()
    }
}

impl<T> core::error::Error for SendError<T> {}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Closed(_) => "the receiver has gone",
        })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> core::error::Error for TrySendError<T> {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl<T> Sender<T> {
    /// Sends a value if there is room now.
    ///
    /// # Errors
    ///
    /// If there is no room, or the waiting sends need all of it; if the receiver has gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.place().try_send(value)
    }

    /// A send that is not in the queue.
    fn place(&self) -> QueuedSend<'_, T> {
        QueuedSend {
            shared: &self.0,
            turn: None,
        }
    }

    /// Sends a value, once there is room. Waiting sends are served in the order in which they began to wait.
    ///
    /// # Errors
    ///
    /// If the receiver has gone.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let mut place = self.place();
        poll_fn(|cx| {
            let Some(mine) = value.take() else {
                unreachable!("it is polled once more than it was ready");
            };
            match place.try_send(mine) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(TrySendError::Closed(mine)) => Poll::Ready(Err(SendError(mine))),
                Err(TrySendError::Full(mine)) => {
                    value = Some(mine);
                    place.wait(cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Receiver<T> {
    /// Receives the next value, once there is one; `None` if all senders have gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let (value, next) = {
                let mut shared = self.0.borrow_mut();
                match shared.values.pop_front() {
                    Some(value) => (value, shared.next()),
                    None if shared.senders == 0 => return Poll::Ready(None),
                    None => {
                        shared.receiver = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            if let Some(next) = next {
                next.wake();
            }
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
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}
