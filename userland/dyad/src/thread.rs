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
//! A program has up to 64 threads, the one of its main task included. They share everything: a thread
//! on one node uses what one on another has allocated, at the same address, and meets it in the types
//! of [`sync`](crate::sync). Starting one is a request to the process service, on the caller's own
//! thread; waiting and waking involve no service and no message.
//!
//! | | |
//! |---|---|
//! | the main task ends, or any thread exits | the program ends, with all its threads |
//! | a thread panics | its message, then the program ends with 101 |
//! | a thread is lost with its node | the others go on; [`JoinHandle::join`] says `NodeDead` at once |
//! | a thread comes to a [migration point](migrate_point) and is asked to move | it goes on there, in programs with `#[dyad::main]` |
//! | async tasks | are for the first thread only: spawning and awaiting elsewhere panics |
//!
//! # Moving
//!
//! In programs with [`#[dyad::main]`](macro@crate::main) a thread can move wherever [`migrate_point`] is called, at any
//! depth of calls, closures, trait objects and library code in between; everything that locals refer to stays where it
//! is. The build proves it, or says which line stands against it.
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
//! | migration points | by |
//! |---|---|
//! | where the program says so | [`migrate_point`], [`migrate`], [`migrate_to`] |
//! | in the loops of a function | [`#[dyad::points(loops)]`](macro@crate::points) |
//! | at every system call of the program | [`#[dyad::main(points = "syscalls")]`](macro@crate::main) |
//!
//! [`request_migration`] asks any thread of the program to move at its next point.
//!
//! A thread blocks the CPU's other threads no more than its slice; one that waits blocks nobody. The
//! executor runs on the first thread: a task that joins a thread keeps all tasks waiting.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use dyad_rt::crossing::Policy;
use dyad_rt::{Lock, futex};
use dyad_sys as sys;
use dyad_sys::thread::Number;
use dyad_sys::{CpuId, NodeId};

use crate::{Error, Instant, Result};

mod park;
mod scope;

pub use crate::plain::{migrate, migrate_point, migrate_to, request_migration, withdraw_migration};
pub use park::{park, park_timeout};
pub use scope::{Scope, ScopedJoinHandle, scope};

/// Most threads of a program at a time.
pub const MAX: usize = dyad_abi::user::MAX_PROGRAM_THREADS as usize;

/// What a thread that is being started is to do.
type Work = Box<dyn FnOnce() + Send>;

dyad_rt::program_local! {
    /// Numbers in use: bit 0 is the first thread's.
    static USED: AtomicU64 = AtomicU64::new(1);
}
dyad_rt::program_local! {
    /// What threads that are being started are to do, and by what policy they call functions of the other
    /// ISA.
    static WORK: [Lock<Option<(Work, Policy)>>; MAX] = [const { Lock::new(None) }; MAX];
}

/// How long a number is waited for whose last thread has not quite ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a thread leaves, and whether it has.
struct Packet<T> {
    done: AtomicU32,
    value: Lock<Option<T>>,
}

/// A thread that was started. Dropping it lets the thread run on.
#[must_use = "the thread runs anyway, but its value is lost"]
pub struct JoinHandle<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
}

/// Which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    number: Number,
    id: u32,
}

impl Thread {
    /// Its id: no two threads that live have the same, in the whole system, and every node sees the
    /// same one.
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Its number in the program, from 0, the first one's.
    pub const fn number(self) -> usize {
        self.number.get() as usize
    }

    /// Its number, for system calls.
    pub(crate) const fn of_program(self) -> Number {
        self.number
    }
}

/// The calling thread.
///
/// # Panics
///
/// In an invocation, where the thread is somebody else's.
pub fn current() -> Thread {
    let here = sys::thread::id().zip(sys::thread::number());
    let (id, number) = here.expect("an invocation is on a thread of its caller");
    Thread { number, id }
}

/// Lets other threads of this CPU run.
pub fn yield_now() {
    sys::yield_now();
}

/// Waits for a duration, without the CPU.
///
/// On the first thread, async tasks wait too: there use [`task::sleep`](crate::task::sleep).
pub fn sleep(d: Duration) {
    sleep_until(Instant::now() + d);
}

/// Waits until a point of time, without the CPU.
pub fn sleep_until(deadline: Instant) {
    while Instant::now() < deadline {
        // Waking early only costs a turn.
        let _ = sys::sleep_until(deadline.as_nanos());
    }
}

/// How many CPUs the live nodes have together.
///
/// # Errors
///
/// As [`system`](crate::system()).
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
/// As [`Builder::spawn`].
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
/// As [`Builder::spawn`].
pub fn spawn_on<F, T>(node: NodeId, f: F) -> Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().node(node).spawn(f)
}

/// Where a thread is to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builder {
    node: Option<NodeId>,
    cpu: Option<CpuId>,
}

impl Builder {
    /// On the caller's node, on its CPUs in turn.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// On this node.
    #[must_use]
    pub fn node(self, node: NodeId) -> Builder {
        let node = Some(node);
        Builder { node, ..self }
    }

    /// On this CPU of the node.
    #[must_use]
    pub fn cpu(self, cpu: CpuId) -> Builder {
        let cpu = Some(cpu);
        Builder { cpu, ..self }
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// `Full` if the program has [`MAX`] threads; `NoSuchNode`, `NodeDead`, `BadArgument` if there is
    /// no such node or CPU; as [`system`](crate::system()).
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
        put_work(number, Some((work, dyad_rt::crossing::current_policy())));
        let end = Instant::now() + PATIENCE;
        let id = loop {
            match sys::thread::start(number, node, cpu) {
                // Whoever had the number has not quite ended.
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

/// Changes what a thread is to do, and gives what it was to do before.
fn put_work(number: Number, work: Option<(Work, Policy)>) -> Option<(Work, Policy)> {
    WORK.with_any(|all| core::mem::replace(&mut *all[number.get() as usize].lock(), work))
}

/// Takes the lowest number that nobody has, and whose last thread was not lost: one that was lost after it had
/// given its number back has it for ever.
fn take_number() -> Result<Number> {
    let mut taken = Err(sys::Error::Full);
    let free = |used: u64| {
        let gone = used | sys::thread::lost();
        let number = Number::new(gone.trailing_ones().into());
        taken = number.ok_or(sys::Error::Full);
        number.map(|n| used | n.bit())
    };
    let _ = USED.with_any(|used| used.fetch_update(Ordering::Acquire, Ordering::Relaxed, free));
    Ok(taken?)
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

    /// What a thread does that leaves the value of `f` here.
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

    /// Waits for it.
    fn wait(&self, thread: Thread) -> Result<T, sys::Error> {
        loop {
            // In this order: what it had done before it was lost counts.
            let lost = sys::thread::is_lost(thread.number);
            if self.done.load(Ordering::Acquire) != 0 {
                break;
            }
            if lost {
                return Err(sys::Error::NodeDead);
            }
            let deadline = Instant::now() + Duration::from_nanos(dyad_rt::sync::PATIENCE_NS);
            let waited = futex::wait(&self.done, 0, deadline.as_nanos());
            if waited == Err(sys::Error::Denied) {
                return Err(sys::Error::Denied);
            }
            // Whatever else ends the wait: both are looked at again.
        }
        self.value.lock().take().ok_or(sys::Error::Corrupt)
    }
}

impl<T> JoinHandle<T> {
    /// Which thread it is.
    pub fn thread(&self) -> Thread {
        self.thread
    }

    /// Whether [`join`](JoinHandle::join) would give the value at once.
    pub fn is_finished(&self) -> bool {
        self.packet.done.load(Ordering::Acquire) != 0
    }

    /// Waits until the thread has ended, and gives its value.
    ///
    /// # Errors
    ///
    /// `NodeDead` if it was lost with its node; `Denied` in an invocation.
    pub fn join(self) -> Result<T> {
        Ok(self.packet.wait(self.thread)?)
    }
}

/// The life of a thread that is not the first: called at the program's entry, or, in programs with
/// `#[dyad::main]`, in the root of the spine, so that all of it can migrate.
pub(crate) fn enter(number: Number) -> ! {
    let Some((work, policy)) = put_work(number, None) else {
        panic!("a thread has come to an ISA for the first time, without being able to go on there");
    };
    dyad_rt::crossing::policy(policy);
    work();
    sys::thread::end()
}
