//! Threads: plain functions that run beside each other, on any node.
//!
//! ```no_run
//! use dyad::thread;
//!
//! # fn main() -> dyad::Result<()> {
//! let sum = thread::spawn(|| (1..=10u64).sum::<u64>())?;
//! let there = thread::spawn_on(dyad::NodeId::new(1).unwrap(), || dyad::isa())?;
//! assert_eq!(sum.join()?, 55);
//! println!("{}", there.join()?);
//! # Ok(())
//! # }
//! ```
//!
//! A program has up to 64 threads, including that of its main task. They share everything: a thread on one
//! node uses memory that a thread on another node has allocated, at the same address, and synchronises with
//! it by the types of [`sync`](crate::sync). Starting a thread is a request to the process service, on the
//! caller's own thread; waiting and waking involve no service and no message.
//!
//! | | |
//! |---|---|
//! | the main task ends, or any thread exits | the program ends, with all its threads |
//! | a thread panics | its message is printed, then the program ends with 101 |
//! | a thread is lost with its node | the others continue; [`JoinHandle::join`] returns `NodeDead` at once |
//! | a thread comes to a [migration point](migrate_point) and is asked to move | it continues on the new node, in programs with `#[dyad::main]` |
//! | async tasks | run on the first thread only: spawning and awaiting on other threads panics |
//!
//! # Moving
//!
//! In programs with [`#[dyad::main]`](macro@crate::main) a thread can move wherever [`migrate_point`] is
//! called, at any depth of calls, with closures, trait objects and library code in between. Everything that
//! locals refer to stays in place. The build proves that this is safe, or reports the line that prevents it.
//!
//! ```no_run
//! #![no_std]
//! #![no_main]
//! use dyad::prelude::thread::*;
//!
//! fn count(n: u64) -> u64 {
//!     migrate_point();
//!     if n == 0 { 0 } else { 1 + count(n - 1) }
//! }
//!
//! #[dyad::main]
//! fn main() -> Result<()> {
//!     println!("on {}", isa());
//!     migrate(isa().other())?;
//!     println!("on {}, counted {}", isa(), count(10));
//!     Ok(())
//! }
//! ```
//!
//! | migration points | made by |
//! |---|---|
//! | at explicit calls | [`migrate_point`], [`migrate`], [`migrate_to`], [`migrate_with_pages`] |
//! | in the loops of a function | [`#[dyad::points(loops)]`](macro@crate::points) |
//! | at every system call of the program | [`#[dyad::main(points = "syscalls")]`](macro@crate::main) |
//!
//! [`request_migration`] asks any thread of the program to move at its next point.
//!
//! A thread keeps the CPU's other threads waiting for its slice at most; a waiting thread keeps no other
//! thread waiting. The executor runs on the first thread: a task that joins a thread keeps all tasks waiting.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use dyad_rt::Lock;
use dyad_rt::crossing::Policy;
use dyad_rt::futex::{self, What};
use dyad_sys as sys;
use dyad_sys::thread::Number;
use dyad_sys::{CpuId, NodeId};

use crate::{Error, Instant, Result};

mod park;
mod scope;

pub use crate::plain::{
    migrate, migrate_point, migrate_to, migrate_with_pages, request_migration, withdraw_migration,
};
pub use park::{park, park_timeout};
pub use scope::{Scope, ScopedJoinHandle, scope};

/// The most threads of a program at a time.
pub const MAX: usize = dyad_abi::user::MAX_PROGRAM_THREADS as usize;

/// The size of a thread's stack, in bytes: of the part that migrates, and of that on each ISA.
pub const STACK_SIZE: usize = dyad_abi::user::STACK_SIZE as usize;

const _: () = assert!(dyad_abi::user::STACK_SIZE == dyad_abi::user::DATA_STACK_SIZE);

/// The function that a new thread runs.
type Work = Box<dyn FnOnce() + Send>;

dyad_rt::program_local! {
    /// Numbers in use: bit 0 is the first thread's.
    static USED: AtomicU64 = AtomicU64::new(1);
}
dyad_rt::program_local! {
    /// The functions of threads that are being started, and the policies by which the threads call functions
    /// of the other ISA.
    static WORK: [Lock<Option<(Work, Policy)>>; MAX] = [const { Lock::new(None) }; MAX];
}

dyad_rt::program_local! {
    /// The names of threads.
    static NAMES: [Lock<Option<Arc<str>>>; MAX] = [const { Lock::new(None) }; MAX];
}

/// How long a start waits for the last thread of a number to end. With several kernels messages tell the end of a thread, and
/// a busy host delays messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// The value that a thread leaves, and whether it has ended.
struct Packet<T> {
    done: AtomicU32,
    value: Lock<Option<T>>,
}

/// A thread that was started. Dropping the handle lets the thread run on.
#[must_use = "the thread runs anyway, but its value is lost"]
pub struct JoinHandle<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
}

/// The identity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    number: Number,
    id: u32,
}

impl Thread {
    /// The thread's id: unique among the live threads of the whole system, and the same on every node.
    pub const fn id(self) -> u32 {
        self.id
    }

    /// The thread's number in the program; that of the first thread is 0.
    pub const fn number(self) -> usize {
        self.number.get() as usize
    }

    /// Whether the thread was lost with its node. No other thread ends a wait for something that only this thread would
    /// have done, so loops around [`park`] and [`yield_now`] test this too. One load. If the thread has ended, the
    /// answer may be that of a newer thread with the same number.
    pub fn is_lost(self) -> bool {
        sys::thread::is_lost(self.number)
    }

    /// The thread's name, if it was [given](Builder::name) one; of a thread that has ended, this is the name of a
    /// newer thread with the same number.
    pub fn name(self) -> Option<Arc<str>> {
        name_of(self.number)
    }

    /// The thread's number for system calls.
    pub(crate) const fn of_program(self) -> Number {
        self.number
    }
}

/// The calling thread.
///
/// # Panics
///
/// In an invocation, where the thread belongs to the caller.
pub fn current() -> Thread {
    let here = sys::thread::id().zip(sys::thread::number());
    let (id, number) = here.expect("an invocation is on a thread of its caller");
    Thread { number, id }
}

/// Lets other threads of this CPU run: those of the program, and when all of them have yielded, those of others.
pub fn yield_now() {
    sys::yield_now();
}

/// Waits for a duration, without using the CPU.
///
/// On the first thread, async tasks wait too; a task uses [`task::sleep`](crate::task::sleep) instead.
pub fn sleep(d: Duration) {
    sleep_until(Instant::now() + d);
}

/// Waits until a point of time, without using the CPU.
pub fn sleep_until(deadline: Instant) {
    while Instant::now() < deadline {
        // Waking early only costs a turn.
        let _ = sys::sleep_until(deadline.as_nanos());
    }
}

/// The number of CPUs of all live nodes.
///
/// # Errors
///
/// The errors of [`system`](crate::system()).
pub fn available_parallelism() -> Result<NonZeroUsize> {
    let system = crate::system()?;
    let cpus: usize = system
        .nodes()
        .filter(|n| n.live)
        .map(|n| n.cpus as usize)
        .sum();
    NonZeroUsize::new(cpus).ok_or_else(|| Error::msg("the system has no CPUs"))
}

/// Starts a thread on the caller's node.
///
/// # Errors
///
/// The errors of [`Builder::spawn`].
pub fn spawn<F, T>(f: F) -> Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f)
}

/// Starts a thread on a node.
///
/// # Errors
///
/// The errors of [`Builder::spawn`].
pub fn spawn_on<F, T>(node: NodeId, f: F) -> Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().node(node).spawn(f)
}

/// The place where a thread will run, its name and what it needs.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    node: Option<NodeId>,
    cpu: Option<CpuId>,
    name: Option<Arc<str>>,
    stack: usize,
}

impl Builder {
    /// A place on the caller's node, on its CPUs in turn.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the node.
    #[must_use]
    pub fn node(self, node: NodeId) -> Builder {
        let node = Some(node);
        Builder { node, ..self }
    }

    /// Sets the CPU of the node.
    #[must_use]
    pub fn cpu(self, cpu: CpuId) -> Builder {
        let cpu = Some(cpu);
        Builder { cpu, ..self }
    }

    /// Sets the name, which the message of a panic of the thread has.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Builder {
        let name = Some(Arc::from(name.into()));
        Builder { name, ..self }
    }

    /// Asks for a stack of at least so many bytes. All threads have stacks of [`STACK_SIZE`] bytes, and a larger
    /// one is refused when the thread is started.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Builder {
        Builder {
            stack: bytes,
            ..self
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the stack cannot be so large; `Full` if the program has [`MAX`] threads; `NoSuchNode`, `NodeDead`, `BadArgument` if there is no such
    /// node or CPU; the errors of [`system`](crate::system()).
    pub fn spawn<F, T>(self, f: F) -> Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let packet = Packet::new();
        let work = packet.clone().work(f);
        let thread = self.start(Box::new(work))?;
        Ok(JoinHandle { thread, packet })
    }

    /// Starts a thread that does `work` and then ends.
    fn start(self, work: Work) -> Result<Thread> {
        if self.stack > STACK_SIZE {
            return Err(Error::limit(
                sys::Error::TooLarge,
                format_args!(
                    "the stack of a thread has at most {} KiB, not {}",
                    STACK_SIZE >> 10,
                    self.stack.div_ceil(1 << 10)
                ),
            ));
        }
        let node = match self.node {
            Some(node) => node,
            None => crate::node(),
        };
        let cpus = match self.cpu {
            Some(_) => 1,
            None => crate::system()?.node(node).map_or(1, |n| n.cpus).max(1),
        };
        let number = take_number()?;
        let in_turn = || CpuId::new(number.get() % u64::from(cpus));
        let Some(cpu) = self.cpu.or_else(in_turn) else {
            give_number_back(number);
            return Err(sys::Error::Corrupt.into());
        };
        park::reset(number);
        put_name(number, self.name);
        put_work(number, Some((work, dyad_rt::crossing::current_policy())));
        let end = Instant::now() + PATIENCE;
        let id = loop {
            match sys::thread::start(number, node, cpu) {
                // The last thread with this number has not quite ended.
                Err(sys::Error::Again) if Instant::now() < end => sys::yield_now(),
                started => break started,
            }
        };
        match id {
            Ok(id) => Ok(Thread { number, id }),
            Err(e) => {
                drop(put_work(number, None));
                give_number_back(number);
                Err(e.into())
            }
        }
    }
}

/// Replaces the name of a thread that is being started.
fn put_name(number: Number, name: Option<Arc<str>>) {
    let old =
        NAMES.with_any(|all| core::mem::replace(&mut *all[number.get() as usize].lock(), name));
    // Not under the lock: freeing takes that of the heap.
    drop(old);
}

/// The name of a thread, if it has one that is not being changed.
pub(crate) fn name_of(number: Number) -> Option<Arc<str>> {
    NAMES.with_any(|all| all[number.get() as usize].try_lock()?.clone())
}

/// Replaces the function of a thread that is being started, and returns the previous one.
fn put_work(number: Number, work: Option<(Work, Policy)>) -> Option<(Work, Policy)> {
    WORK.with_any(|all| core::mem::replace(&mut *all[number.get() as usize].lock(), work))
}

/// Takes the lowest free number whose last thread was not lost. A thread that was lost after it had given its
/// number back keeps the number for ever.
fn take_number() -> Result<Number> {
    let mut taken = Err(sys::Error::Full);
    let free = |used: u64| {
        let number = lowest_free(used, sys::thread::lost());
        taken = number.ok_or(sys::Error::Full);
        number.map(|n| used | n.bit())
    };
    let _ = USED.with_any(|used| used.fetch_update(Ordering::Acquire, Ordering::Relaxed, free));
    taken.map_err(|e| {
        let text =
            format_args!("a program has at most {MAX} threads at a time, its first one included");
        Error::limit(e, text)
    })
}

/// The lowest number that no thread has, and no lost thread has had.
fn lowest_free(used: u64, lost: u64) -> Option<Number> {
    Number::new((used | lost).trailing_ones().into())
}

fn give_number_back(number: Number) {
    USED.with_any(|used| used.fetch_and(!number.bit(), Ordering::Release));
}

impl<T> Packet<T> {
    fn new() -> Arc<Packet<T>> {
        Arc::new(Packet {
            done: AtomicU32::new(0),
            value: Lock::new(None),
        })
    }

    /// The work of a thread that leaves the value of `f` in this packet.
    fn work<'a, F>(self: Arc<Self>, f: F) -> impl FnOnce() + Send + 'a
    where
        F: FnOnce() -> T + Send + 'a,
        T: Send + 'a,
    {
        move || {
            let value = f();
            *self.value.lock() = Some(value);
            // Before anybody can know that this thread has ended. It is started again only once it
            // really has, and needs nothing from here on that goes by its number.
            if let Some(number) = sys::thread::number() {
                give_number_back(number);
            }
            self.done.store(1, Ordering::Release);
            futex::wake_all(&self.done);
        }
    }

    /// Waits for the value of `thread`.
    fn wait(&self, thread: Thread) -> Result<T, sys::Error> {
        loop {
            let is_lost = || sys::thread::is_lost(thread.number);
            match ended(is_lost, || self.done.load(Ordering::Acquire) != 0) {
                Some(Ok(())) => break,
                Some(Err(e)) => return Err(e),
                None => {}
            }
            let deadline = Instant::now() + Duration::from_nanos(dyad_rt::sync::PATIENCE_NS);
            let of = (What::End, u8::try_from(thread.number.get()).ok());
            let waited = futex::wait_for(of, &self.done, 0, deadline.as_nanos());
            if waited == Err(sys::Error::Denied) {
                return Err(sys::Error::Denied);
            }
            // Whatever else ends the wait: both are looked at again.
        }
        self.value.lock().take().ok_or(sys::Error::Corrupt)
    }
}

/// Whether a thread is done, or will never be. What it had done before it was lost counts: so it is looked at whether it
/// was lost first.
fn ended(
    is_lost: impl FnOnce() -> bool,
    is_done: impl FnOnce() -> bool,
) -> Option<Result<(), sys::Error>> {
    let lost = is_lost();
    match is_done() {
        true => Some(Ok(())),
        false => lost.then_some(Err(sys::Error::NodeDead)),
    }
}

impl<T> JoinHandle<T> {
    /// The identity of the thread.
    pub fn thread(&self) -> Thread {
        self.thread
    }

    /// Whether [`join`](JoinHandle::join) would return at once: the thread has ended, or was lost with its node.
    pub fn is_finished(&self) -> bool {
        self.packet.done.load(Ordering::Acquire) != 0 || self.thread.is_lost()
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

/// Runs a thread that is not the first. Called at the program's entry, or, in programs with `#[dyad::main]`,
/// in the root of the spine, so that all of the thread can migrate.
pub(crate) fn enter(number: Number) -> ! {
    let Some((work, policy)) = put_work(number, None) else {
        panic!("a thread has come to an ISA for the first time, without being able to go on there");
    };
    dyad_rt::crossing::policy(policy);
    work();
    sys::thread::end()
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A thread that ends, and is lost with its node, between two looks at it.
    #[test]
    fn what_a_thread_has_done_before_it_was_lost_counts() {
        let looks = Cell::new(0);
        let happened = || looks.replace(looks.get() + 1) > 0;
        assert_eq!(ended(happened, happened), Some(Ok(())));
        assert_eq!(ended(|| false, || false), None);
        let dead = Some(Err(sys::Error::NodeDead));
        assert_eq!(ended(|| true, || false), dead);
    }

    #[test]
    fn numbers_of_lost_threads_are_not_given_out_again() {
        for (used, lost, number) in [
            (0b1, 0, Some(1)),
            (0b1, 0b10, Some(2)),
            (0b101, 0b10, Some(3)),
            (u64::MAX >> 1, 1 << 63, None),
        ] {
            let found = lowest_free(used, lost).map(Number::get);
            assert_eq!(found, number);
        }
    }
}
