//! Channels from many threads to one, as in `std::sync::mpsc`.
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
//! [`channel`] is unbounded; the sender of a [`sync_channel`] waits while it is full. The ends can be used on
//! any node: values lie in the program's heap. Tasks have [`task::channel`](crate::task::channel).
//!
//! # When threads are lost
//!
//! A thread that is lost with its node drops nothing. The holder of an end is known from its use: a sender
//! whose users were all lost counts as lost, and so does a receiver whose last user was lost. Losses of other
//! threads have no effect.
//!
//! | waiting call | after [`PATIENCE_NS`] without a change |
//! |---|---|
//! | [`Receiver::recv`], [`recv_timeout`](Receiver::recv_timeout) | `Lost`, unless a sender is left whose users all live |
//! | [`Receiver::iter`] | panics if all remaining senders are lost |
//! | [`Sender::send`] | returns the value if the receiver is lost |
//!
//! A sender that was moved to a thread and not used there yet has an unknown holder. After a loss, `recv`
//! returns `Lost` if there is no other sender, and may be called again; `iter` continues. Values that are in
//! the channel are received before all that.
//!
//! Any use of a channel in an invocation panics.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use dyad_rt::sync::{Condvar, Mutex, MutexGuard, PATIENCE_NS};
use dyad_sys::thread::{self, Number, lost};

use crate::{Instant, sys};

/// A set of threads of the program: one bit for each number.
type Threads = u64;

struct Inside<T> {
    values: VecDeque<T>,
    /// The threads that have used each sender; `None` where a sender has gone.
    senders: Vec<Option<Threads>>,
    has_receiver: bool,
    /// The thread that last used the receiver.
    receives: Threads,
}

/// The state of the remaining senders after losses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// At least one sender has been used only by threads that are alive.
    Lives,
    /// Any of the senders may have been held by a lost thread.
    MayBeLost,
    /// All senders were held by lost threads.
    Lost,
}

impl<T> Inside<T> {
    /// Records that thread `by` uses a sender.
    fn uses(&mut self, sender: usize, by: Threads) {
        if let Some(Some(users)) = self.senders.get_mut(sender) {
            *users |= by;
        }
    }

    /// Adds a sender, which no thread has used yet, and returns its number.
    fn add_sender(&mut self) -> usize {
        match self.senders.iter().position(Option::is_none) {
            Some(free) => {
                self.senders[free] = Some(0);
                free
            }
            None => {
                self.senders.push(Some(0));
                self.senders.len() - 1
            }
        }
    }

    fn has_senders(&self) -> bool {
        self.senders.iter().any(Option::is_some)
    }

    /// The state of the remaining senders after the loss of these threads.
    fn left(&self, lost: Threads) -> Left {
        let mut left = Left::Lost;
        for &users in self.senders.iter().flatten() {
            match users {
                _ if lost == 0 => return Left::Lives,
                0 => left = Left::MayBeLost,
                _ if users & lost == 0 => return Left::Lives,
                _ if users & !lost != 0 => left = Left::MayBeLost,
                _ => {}
            }
        }
        left
    }
}

/// The calling thread, as a set.
fn me() -> Threads {
    thread::number().map_or(0, Number::bit)
}

struct Shared<T> {
    inside: Mutex<Inside<T>>,
    /// Signalled when a value has come in, or the last sender has gone.
    came: Condvar,
    /// Signalled when there is room, or the receiver has gone.
    room: Condvar,
    /// The most values in the channel.
    bound: usize,
    /// The threads that had been lost when the channel was made.
    lost: Threads,
}

/// The sending end of a channel. Clones send into the same channel.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// The number of this end among the senders.
    number: usize,
}

/// The receiving end of a channel. Only one thread at a time can hold it:
///
/// ```compile_fail,E0277
/// fn is_sync(_: impl Sync) {}
/// is_sync(dyad::sync::mpsc::channel::<u8>().1);
/// ```
/// ```
/// fn is_send(_: impl Send) {}
/// let (send, receive) = dyad::sync::mpsc::channel::<u8>();
/// is_send(receive);
/// is_send(&send);
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Makes the type not `Sync`.
    of_thread: PhantomData<Cell<()>>,
}

/// Iterator over the values of a channel, until all senders have gone: [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// Iterator over the values of a channel, until all senders have gone. It owns the receiver.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

/// The error of a send whose receiver has gone or was lost; it contains the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The reason why nothing was sent, with the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver has gone.
    Disconnected(T),
}

/// The reason why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// The channel is empty.
    Empty,
    /// The time has passed.
    Timeout,
    /// All senders have gone.
    Disconnected,
    /// Threads that held the senders, or may have held them, were lost, and nothing comes.
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
            TrySendError::Disconnected(_) => "the receiver has gone",
        })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
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

/// Makes an unbounded channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    sync_channel(usize::MAX)
}

/// Makes a channel for at most `bound` values, 1 or more. A sender waits for room.
///
/// # Panics
///
/// If `bound` is 0.
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel has room for one value at least");
    let shared = Arc::new(Shared {
        inside: Mutex::new(Inside {
            values: VecDeque::new(),
            senders: vec![Some(0)],
            has_receiver: true,
            receives: 0,
        }),
        came: Condvar::new(),
        room: Condvar::new(),
        bound,
        lost: lost(),
    });
    let send = Sender {
        shared: shared.clone(),
        number: 0,
    };
    let receive = Receiver {
        shared,
        of_thread: PhantomData,
    };
    (send, receive)
}

impl<T> Shared<T> {
    /// Locks the channel; `None` if the thread that holds the lock was lost.
    fn inside(&self) -> Option<MutexGuard<'_, Inside<T>>> {
        match self.inside.lock_or_lost() {
            Ok(inside) => Some(inside),
            Err(sys::Error::NodeDead) => None,
            Err(e) => panic!("a channel of threads cannot be used in an invocation: {e}"),
        }
    }

    /// The threads that have been lost since the channel was made.
    fn lost(&self) -> Threads {
        lost() & !self.lost
    }

    /// Waits for a condition, for a bounded time. Returns the guard, and whether nothing has changed for
    /// [`PATIENCE_NS`]. If `deadline` ends the wait earlier, the second value is false.
    fn wait<'a>(
        &'a self,
        condition: &Condvar,
        guard: MutexGuard<'a, Inside<T>>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inside<T>>, bool) {
        let patience = Instant::now() + Duration::from_nanos(PATIENCE_NS);
        let until = deadline.map_or(patience, |d| d.min(patience));
        let (guard, woken) = condition.wait_until(guard, until.as_nanos());
        (guard, !woken && until == patience)
    }
}

impl<T> Sender<T> {
    /// Sends a value, and waits for room if necessary.
    ///
    /// # Errors
    ///
    /// If the receiver has gone, or if it was lost and there is no room.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let Some(mut inside) = self.inside() else {
            return Err(SendError(value));
        };
        loop {
            if !inside.has_receiver {
                return Err(SendError(value));
            }
            if inside.values.len() < self.shared.bound {
                break;
            }
            let is_over;
            (inside, is_over) = self.shared.wait(&self.shared.room, inside, None);
            let is_full = inside.values.len() >= self.shared.bound;
            if is_over && is_full && inside.receives & self.shared.lost() != 0 {
                return Err(SendError(value));
            }
        }
        inside.values.push_back(value);
        drop(inside);
        self.shared.came.notify_one();
        Ok(())
    }

    /// Sends a value if there is room now.
    ///
    /// # Errors
    ///
    /// If there is no room, or the receiver has gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        match self.inside() {
            Some(mut inside) if inside.has_receiver => {
                if inside.values.len() >= self.shared.bound {
                    return Err(TrySendError::Full(value));
                }
                inside.values.push_back(value);
            }
            _ => return Err(TrySendError::Disconnected(value)),
        }
        self.shared.came.notify_one();
        Ok(())
    }

    /// Locks the channel, and records a use of this sender.
    fn inside(&self) -> Option<MutexGuard<'_, Inside<T>>> {
        let mut inside = self.shared.inside()?;
        inside.uses(self.number, me());
        Some(inside)
    }
}

impl<T> Receiver<T> {
    /// Receives a value, and waits for it if necessary.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if there is none and all senders have gone; [`RecvError::Lost`].
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None, |left| left != Left::Lives)
    }

    /// Receives a value like [`recv`](Receiver::recv), and waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`recv`](Receiver::recv); [`RecvError::Timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        let deadline = Instant::now() + timeout;
        self.recv_until(Some(deadline), |left| left != Left::Lives)
    }

    /// Receives a value if there is one now.
    ///
    /// # Errors
    ///
    /// [`RecvError::Empty`] if there is none; [`RecvError::Disconnected`]; [`RecvError::Lost`] if a thread
    /// was lost while it held the channel's lock.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let mut inside = self.inside()?;
        self.take(&mut inside)
    }

    /// Locks the channel, and records a use of this receiver.
    fn inside(&self) -> Result<MutexGuard<'_, Inside<T>>, RecvError> {
        let mut inside = self.shared.inside().ok_or(RecvError::Lost)?;
        inside.receives = me();
        Ok(inside)
    }

    fn take(&self, inside: &mut Inside<T>) -> Result<T, RecvError> {
        match inside.values.pop_front() {
            Some(value) => {
                self.shared.room.notify_one();
                Ok(value)
            }
            None if !inside.has_senders() => Err(RecvError::Disconnected),
            None => Err(RecvError::Empty),
        }
    }

    /// Receives a value. Gives up when nothing has come for [`PATIENCE_NS`] and `is_in_vain` returns true for
    /// the remaining senders.
    fn recv_until(
        &self,
        deadline: Option<Instant>,
        is_in_vain: impl Fn(Left) -> bool,
    ) -> Result<T, RecvError> {
        let mut inside = self.inside()?;
        let mut is_over = false;
        loop {
            match self.take(&mut inside) {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            if is_over && is_in_vain(inside.left(self.shared.lost())) {
                return Err(RecvError::Lost);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(RecvError::Timeout);
            }
            (inside, is_over) = self.shared.wait(&self.shared.came, inside, deadline);
        }
    }

    /// Iterates over the values that come, until all senders have gone. It continues as long as a sender may
    /// be alive.
    ///
    /// # Panics
    ///
    /// The iterator panics if the remaining senders were lost and nothing comes, because their values are
    /// missing. [`recv`](Receiver::recv) reports that without a panic.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    fn next(&self) -> Option<T> {
        match self.recv_until(None, |left| left == Left::Lost) {
            Ok(value) => Some(value),
            Err(RecvError::Lost) => panic!("threads that use a channel were lost"),
            Err(_) => None,
        }
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        // If the lock was lost, nothing is sent any more.
        let number = self.inside().map_or(usize::MAX, |mut i| i.add_sender());
        Sender {
            shared: self.shared.clone(),
            number,
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Some(mut inside) = self.shared.inside() else {
            return;
        };
        if let Some(sender) = inside.senders.get_mut(self.number) {
            *sender = None;
        }
        let was_last = !inside.has_senders();
        drop(inside);
        if was_last {
            self.shared.came.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let Some(mut inside) = self.shared.inside() else {
            return;
        };
        inside.has_receiver = false;
        let left = core::mem::take(&mut inside.values);
        drop(inside);
        // Values may have senders of their own: dropped with no lock held.
        drop(left);
        self.shared.room.notify_all();
    }
}
