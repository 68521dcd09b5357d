//! Scoped threads, which borrow from the stack of the thread that starts them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::PhantomData;

use dyad_sys::NodeId;

use super::{Builder, Packet, Thread};
use crate::Result;

/// A scope for threads that borrow data of lifetime `'env`; see [`scope`].
#[derive(Clone, Copy)]
pub struct Scope<'scope, 'env: 'scope>(&'scope dyad_scope::Scope<'scope, 'env>);

/// A thread that was started in a [`Scope`].
pub struct ScopedJoinHandle<'scope, T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
    scope: PhantomData<&'scope ()>,
}

/// Calls `f` with a scope in which threads can be started. All of them have ended when this returns.
///
/// ```no_run
/// use dyad::thread;
///
/// # fn main() -> dyad::Result<()> {
/// let mut halves = [0u64; 2];
/// let [low, high] = &mut halves;
/// thread::scope(|s| -> dyad::Result<()> {
///     s.spawn(|| *low = (0..500).sum())?;
///     s.spawn(|| *high = (500..1000).sum())?;
///     Ok(())
/// })?;
/// assert_eq!(halves[0] + halves[1], 499_500);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// If a thread of the scope is lost with its node: its borrows cannot be returned.
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(Scope<'scope, 'env>) -> R,
{
    dyad_scope::scope(|s| f(Scope(s)))
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread on the caller's node.
    ///
    /// # Errors
    ///
    /// The errors of [`Builder::spawn`].
    pub fn spawn<F, T>(self, f: F) -> Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_with(Builder::new(), f)
    }

    /// Starts a thread on a node.
    ///
    /// # Errors
    ///
    /// The errors of [`Builder::spawn`].
    pub fn spawn_on<F, T>(self, node: NodeId, f: F) -> Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_with(Builder::new().node(node), f)
    }

    /// Starts a thread at the place in `builder`.
    ///
    /// # Errors
    ///
    /// The errors of [`Builder::spawn`].
    pub fn spawn_with<F, T>(self, builder: Builder, f: F) -> Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let packet = Packet::new();
        let work = Box::new(packet.clone().work(f));
        let thread = self.0.hand_out(work, |work| builder.start(work))?;
        self.0.has_started(thread.of_program());
        Ok(ScopedJoinHandle {
            thread,
            packet,
            scope: PhantomData,
        })
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// The identity of the thread.
    pub fn thread(&self) -> Thread {
        self.thread
    }

    /// Waits until the thread has ended, and returns its value.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the thread was lost with its node; `Denied` in an invocation.
    pub fn join(self) -> Result<T> {
        Ok(self.packet.wait(self.thread)?)
    }
}
