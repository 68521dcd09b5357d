//! Channels: values from many threads to one, as in `std::sync::mpsc`.
//!
//! ```no_run
//! use dyad::sync::mpsc;
//! use dyad::thread;
//!
//! # fn main() -> dyad::Result<()> {
//! let (send, receive) = mpsc::channel();
//! for n in 1..=3u64 {
//!     let send = send.clone();
//!     drop(thread::spawn(move || send.send(n * n))?);
//! }
//! drop(send);
//! assert_eq!(receive.iter().sum::<u64>(), 14);
//! # Ok(())
//! # }
//! ```
//!
//! [`channel`] takes as many values as come; the sender of a [`sync_channel`] waits while it is full. The ends are
//! used on any node: values lie in the program's heap. Tasks have [`task::channel`](crate::task::channel).
//!
//! # When threads are lost
//!
//! A thread that is lost with its node drops nothing, so its end stays open. A wait that a lost thread could have ended
//! fails: if a thread of the program has been lost since the channel was made and nothing has come for
//! [`PATIENCE_NS`], the error is `Lost`. Values that are in the channel are received before that.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use dyad_rt::sync::{Condvar, Mutex, MutexGuard, PATIENCE_NS};
use dyad_sys::thread::lost;

use crate::Instant;

struct Inside<T> {
    values: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

struct Shared<T> {
    inside: Mutex<Inside<T>>,
    /// Something has come in, or the last sender has gone.
    came: Condvar,
    /// There is room, or the receiver has gone.
    room: Condvar,
    /// Most values in it.
    bound: usize,
    /// The threads that had been lost when it was made.
    lost: u64,
}

/// The sending end of a channel. Clones send into the same one.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving end of a channel.
pub struct Receiver<T>(Arc<Shared<T>>);

/// The receiver has gone, or was lost; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why nothing was sent; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver has gone.
    Disconnected(T),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// There is nothing now.
    Empty,
    /// The time has come.
    Timeout,
    /// All senders have gone.
    Disconnected,
    /// A thread was lost that may have been a sender, and nothing comes.
    Lost,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvError::Empty => "the channel is empty",
            RecvError::Timeout => "nothing came in time",
            RecvError::Disconnected => "all senders have gone",
            RecvError::Lost => "a thread was lost, and nothing comes",
        })
    }
}

impl core::error::Error for RecvError {}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver has gone")
    }
}

impl<T: fmt::Debug> core::error::Error for SendError<T> {}

/// A channel that takes as many values as come.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    sync_channel(usize::MAX)
}

/// A channel for at most `bound` values, 1 or more. A sender waits for room.
///
/// # Panics
///
/// If `bound` is 0.
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel has room for one value at least");
    let shared = Arc::new(Shared {
        inside: Mutex::new(Inside {
            values: VecDeque::new(),
            senders: 1,
            has_receiver: true,
        }),
        came: Condvar::new(),
        room: Condvar::new(),
        bound,
        lost: lost(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Shared<T> {
    /// `None` if the thread that has it was lost.
    fn inside(&self) -> Option<MutexGuard<'_, Inside<T>>> {
        self.inside.lock_or_lost().ok()
    }

    /// Waits for a condition, for a while. Gives the guard, and whether waiting on is in vain: nothing has come, and a
    /// thread has been lost since the channel was made.
    fn wait<'a>(
        &'a self,
        condition: &Condvar,
        guard: MutexGuard<'a, Inside<T>>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inside<T>>, bool) {
        let patience = Instant::now() + Duration::from_nanos(PATIENCE_NS);
        let until = deadline.map_or(patience, |d| d.min(patience));
        let (guard, woken) = condition.wait_until(guard, until.as_nanos());
        (guard, !woken && lost() != self.lost)
    }
}

impl<T> Sender<T> {
    /// Sends a value, waiting for room if need be.
    ///
    /// # Errors
    ///
    /// If the receiver has gone, or a thread was lost and there is no room.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let Some(mut inside) = self.0.inside() else {
            return Err(SendError(value));
        };
        loop {
            if !inside.has_receiver {
                return Err(SendError(value));
            }
            if inside.values.len() < self.0.bound {
                break;
            }
            let in_vain;
            (inside, in_vain) = self.0.wait(&self.0.room, inside, None);
            if in_vain && inside.values.len() >= self.0.bound {
                return Err(SendError(value));
            }
        }
        inside.values.push_back(value);
        drop(inside);
        self.0.came.notify_one();
        Ok(())
    }

    /// Sends a value if there is room now.
    ///
    /// # Errors
    ///
    /// If there is none, or the receiver has gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        match self.0.inside() {
            Some(mut inside) if inside.has_receiver => {
                if inside.values.len() >= self.0.bound {
                    return Err(TrySendError::Full(value));
                }
                inside.values.push_back(value);
            }
            _ => return Err(TrySendError::Disconnected(value)),
        }
        self.0.came.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Receives a value, waiting for it.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if there is none and all senders have gone; [`RecvError::Lost`].
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None)
    }

    /// As [`recv`](Receiver::recv), for a time.
    ///
    /// # Errors
    ///
    /// As [`recv`](Receiver::recv); [`RecvError::Timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.recv_until(Some(Instant::now() + timeout))
    }

    /// Receives a value that is there.
    ///
    /// # Errors
    ///
    /// [`RecvError::Empty`] if there is none; [`RecvError::Disconnected`]; [`RecvError::Lost`].
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let mut inside = self.0.inside().ok_or(RecvError::Lost)?;
        self.take(&mut inside)
    }

    fn take(&self, inside: &mut Inside<T>) -> Result<T, RecvError> {
        match inside.values.pop_front() {
            Some(value) => {
                self.0.room.notify_one();
                Ok(value)
            }
            None if inside.senders == 0 => Err(RecvError::Disconnected),
            None => Err(RecvError::Empty),
        }
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        let mut inside = self.0.inside().ok_or(RecvError::Lost)?;
        let mut in_vain = false;
        loop {
            match self.take(&mut inside) {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            if in_vain {
                return Err(RecvError::Lost);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(RecvError::Timeout);
            }
            (inside, in_vain) = self.0.wait(&self.0.came, inside, deadline);
        }
    }

    /// What comes, until all senders have gone.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        core::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        if let Some(mut inside) = self.0.inside() {
            inside.senders += 1;
        }
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Some(mut inside) = self.0.inside() else {
            return;
        };
        inside.senders = inside.senders.saturating_sub(1);
        let was_last = inside.senders == 0;
        drop(inside);
        if was_last {
            self.0.came.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let Some(mut inside) = self.0.inside() else {
            return;
        };
        inside.has_receiver = false;
        let left = core::mem::take(&mut inside.values);
        drop(inside);
        // Values may have senders of their own: dropped with no lock held.
        drop(left);
        self.0.room.notify_all();
    }
}
