//! Locks, barriers and channels between threads, on any nodes.
//!
//! | type | use |
//! |---|---|
//! | [`Mutex`] | one thread at a time |
//! | [`RwLock`] | many readers, or one writer |
//! | [`Condvar`] | waiting for something that a mutex protects |
//! | [`Semaphore`] | a bounded number of threads at a time |
//! | [`Barrier`] | waiting until all threads have arrived |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | an action that happens once, a value that is made once, a value that its first user makes |
//! | [`mpsc`] | values from many threads to one |
//!
//! [`dyad_rt::sync`] describes what happens when a thread is lost with its node. Tasks share one thread and
//! need none of these: they have [`task::channel`](crate::task::channel).

pub mod mpsc;

pub use dyad_rt::sync::{
    Barrier, Condvar, Last, LazyLock, Mutex, MutexGuard, Once, OnceLock, PATIENCE_NS, RwLock,
    RwLockReadGuard, RwLockWriteGuard, Semaphore, wait,
};
