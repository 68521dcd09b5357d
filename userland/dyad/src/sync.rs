//! Locks, meeting points and channels of threads, on any nodes.
//!
//! | type | for |
//! |---|---|
//! | [`Mutex`] | one thread at a time |
//! | [`RwLock`] | many readers, or one writer |
//! | [`Condvar`] | waiting for something that a mutex protects |
//! | [`Semaphore`] | so many threads at a time |
//! | [`Barrier`] | waiting until all have come |
//! | [`Once`], [`OnceLock`] | something that happens once, a value that is made once |
//! | [`mpsc`] | values from many threads to one |
//!
//! What happens when a thread is lost with its node is in [`dyad_rt::sync`]. Tasks of one thread need none of these:
//! they have [`task::channel`](crate::task::channel).

pub mod mpsc;

pub use dyad_rt::sync::{
    Barrier, Condvar, Last, Mutex, MutexGuard, Once, OnceLock, PATIENCE_NS, RwLock,
    RwLockReadGuard, RwLockWriteGuard, Semaphore, wait,
};
