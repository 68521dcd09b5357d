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
//! A thread that is lost with its node drops nothing. Its end of a channel is known by its use: a sender whose users were
//! all lost counts as lost, and so does a receiver whose last user was lost. The losses of other threads mean nothing.
//!
//! | what waits | and nothing has changed for [`PATIENCE_NS`] |
//! |---|---|
//! | [`Receiver::recv`], [`recv_timeout`](Receiver::recv_timeout) | `Lost`, unless a sender is left whose users all live |
//! | [`Receiver::iter`] | panics if all senders that are left are lost |
//! | [`Sender::send`] | the value comes back if the receiver is lost |
//!
//! A sender that was moved to a thread and not used there yet has an unknown holder. After a loss, `recv` says `Lost` if
//! there is no other, and may be called again; `iter` goes on. Values that are in the channel are received before all that.
//!
//! In an invocation, whatever is done with a channel panics.

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

/// Threads of the program: a bit for each number.
type Threads = u64;

struct Inside<T> {
    values: VecDeque<T>,
    /// By sender: the threads that have used it; `None` where a sender has gone.
    senders: Vec<Option<Threads>>,
    has_receiver: bool,
    /// The thread that has used the receiver last.
    receives: Threads,
}

/// What losses say about the senders that are left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// A sender has been used by threads that live, and by no others.
    Lives,
    /// A lost thread may have had each of them.
    MayBeLost,
    /// Lost threads had all of them.
    Lost,
}

impl<T> Inside<T> {
    /// Thread `by` uses a sender.
    fn uses(&mut self, sender: usize, by: Threads) {
        if let Some(Some(users)) = self.senders.get_mut(sender) {
            *users |= by;
        }
    }

    /// One more sender, which no thread has used. Gives its number.
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

    /// What the loss of these threads says.
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

/// The calling thread.
fn me() -> Threads {
    thread::number().map_or(0, Number::bit)
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
    lost: Threads,
}

/// The sending end of a channel. Clones send into the same one.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// Its number among the senders.
    number: usize,
}

/// The receiving end of a channel. One thread at a time has it:
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
    /// Not `Sync`.
    of_thread: PhantomData<Cell<()>>,
}

/// The values of a channel, until all senders have gone: [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// The values of a channel, until all senders have gone, with the receiver.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

/// The receiver has gone, or was lost; the value comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why nothing was sent; the value comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// Threads were lost that were the senders, or may have been, and nothing comes.
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
    /// `None` if the thread that has it was lost.
    fn inside(&self) -> Option<MutexGuard<'_, Inside<T>>> {
        match self.inside.lock_or_lost() {
            Ok(inside) => Some(inside),
            Err(sys::Error::NodeDead) => None,
            Err(e) => panic!("a channel of threads cannot be used in an invocation: {e}"),
        }
    }

    /// The threads that have been lost since it was made.
    fn lost(&self) -> Threads {
        lost() & !self.lost
    }

    /// Waits for a condition, for a while. Gives the guard, and whether nothing has changed for as long as threads are
    /// patient. A deadline that ends the wait earlier says nothing about that.
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
    /// Sends a value, waiting for room if need be.
    ///
    /// # Errors
    ///
    /// If the receiver has gone, or was lost and there is no room.
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
    /// If there is none, or the receiver has gone.
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

    /// What is inside, for a use of this sender.
    fn inside(&self) -> Option<MutexGuard<'_, Inside<T>>> {
        let mut inside = self.shared.inside()?;
        inside.uses(self.number, me());
        Some(inside)
    }
}

impl<T> Receiver<T> {
    /// Receives a value, waiting for it.
    ///
    /// # Errors
    ///
    /// [`RecvError::Disconnected`] if there is none and all senders have gone; [`RecvError::Lost`].
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None, |left| left != Left::Lives)
    }

    /// As [`recv`](Receiver::recv), for a time.
    ///
    /// # Errors
    ///
    /// As [`recv`](Receiver::recv); [`RecvError::Timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        let deadline = Instant::now() + timeout;
        self.recv_until(Some(deadline), |left| left != Left::Lives)
    }

    /// Receives a value that is there.
    ///
    /// # Errors
    ///
    /// [`RecvError::Empty`] if there is none; [`RecvError::Disconnected`]; [`RecvError::Lost`] if a thread was lost that
    /// had the channel's lock.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        let mut inside = self.inside()?;
        self.take(&mut inside)
    }

    /// What is inside, for a use of this receiver.
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

    /// Receives a value. Gives up when nothing has come for a while and `is_in_vain` says so of the senders that are
    /// left.
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

    /// What comes, until all senders have gone. It goes on as long as a sender may live.
    ///
    /// # Panics
    ///
    /// The iterator panics if the senders that are left were lost, and nothing comes: what they would have sent is
    /// missing. [`recv`](Receiver::recv) says so without a panic.
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
