//! Programs whose threads change their ISA inside of plain functions: what [`thread`](crate::thread) has for them, and
//! what `#[dyad::main]` generates calls of.

use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "none")]
use dyad_rt::emulation::Point;
use dyad_sys as sys;
use dyad_sys::thread::Number;
use dyad_sys::{Isa, NodeId};

use crate::rt::{Outcome, exit_code};
use crate::{Args, Result};

static USED: AtomicBool = AtomicBool::new(false);

/// Whether the program's main function is a plain one, and the first thread has not been given to
/// tasks ([`task::run`](crate::task::run)).
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed) && !crate::rt::runs_tasks()
}

/// A place where the calling thread may change its node, if it has been asked to.
///
/// Only in programs with `#[dyad::main]`. Costs a few instructions if nobody has. Within an async task the
/// thread does not move here: it moves once the task waits.
#[inline(always)]
pub fn migrate_point() {
    dyad_rt::spine::point();
}

/// Continues the calling thread on a node of the given ISA: this one if it has it, else the live one
/// with the lowest number.
///
/// # Errors
///
/// `NoIsa` if no live node has that ISA; those of [`migrate_to`].
#[inline(always)]
pub fn migrate(isa: Isa) -> Result<(), sys::Error> {
    migrate_to(nearest(isa)?)
}

/// Continues the calling thread on the given node; it goes on there when this returns.
///
/// # Errors
///
/// `NoSuchNode` or `NodeDead`; `Full` or `TimedOut` if the node does not take the thread; `TooDeep` in
/// an invocation, or if the thread's frames leave too little of the other stack (128 KiB); `Denied` in an async task, which
/// moves by [`task::migrate_to`](crate::task::migrate_to), and below a function that is entered from outside of the
/// program. The thread then goes on where it is.
#[inline(always)]
pub fn migrate_to(node: NodeId) -> Result<(), sys::Error> {
    dyad_rt::spine::migrate(node)
}

/// Asks a thread of the program, by its [number](crate::thread::Thread::number), to move to a node at its next
/// migration point. Replaces a request that the thread has not carried out yet, and returns it. A thread that
/// asks itself makes no system call.
///
/// # Errors
///
/// `NotFound` if the program has no such thread; `NoSuchNode`, `NodeDead`; `Again` if others keep asking. A thread that
/// asks itself learns at its point whether there is such a node.
pub fn request_migration(thread: usize, to: NodeId) -> Result<Option<NodeId>, sys::Error> {
    match sys::thread::number() {
        Some(own) if own.get() == thread as u64 => Ok(dyad_rt::spine::request(to)),
        _ => sys::request_move(thread as u64, to),
    }
}

/// Takes back what a thread is asked. Gives what that was: `None` if it was asked nothing, or has begun
/// to do it.
///
/// # Errors
///
/// As [`request_migration`].
pub fn withdraw_migration(thread: usize) -> Result<Option<NodeId>, sys::Error> {
    match sys::thread::number() {
        Some(own) if own.get() == thread as u64 => Ok(dyad_rt::spine::withdraw()),
        _ => sys::withdraw_request(thread as u64),
    }
}

#[inline(never)]
fn nearest(isa: Isa) -> Result<NodeId, sys::Error> {
    let nearest = crate::system()?.nearest(isa, crate::node());
    nearest.ok_or(sys::Error::NoIsa)
}

/// Where plain threads start.
#[cfg(target_os = "none")]
pub fn start(argument: u64) -> ! {
    static POINT: Point = Point::of_threads(dyad_rt::spine::land);
    USED.store(true, Ordering::Relaxed);
    dyad_rt::emulation::at_entry(argument, &POINT, dyad_rt::spine::point_address());
    let is_first = Number::of_argument(argument).is_none_or(|n| n == Number::FIRST);
    if is_first && crate::rt::runs_tasks() {
        crate::rt::continue_tasks();
    }
    dyad_rt::spine::enter(argument)
}

/// What a plain thread does, if the main function takes arguments; gives the exit code.
#[inline(always)]
pub fn main_with_args<R: Outcome>(argument: u64, main: fn(Args) -> R) -> u64 {
    run(argument, || main(Args::load()?).result())
}

/// What a plain thread does, if the main function takes none.
#[inline(always)]
pub fn main_without_args<R: Outcome>(argument: u64, main: fn() -> R) -> u64 {
    run(argument, || main().result())
}

#[inline(always)]
fn run(argument: u64, main: impl FnOnce() -> Result<()>) -> u64 {
    USED.store(true, Ordering::Relaxed);
    match Number::of_argument(argument) {
        Some(number) if number != Number::FIRST => crate::thread::enter(number),
        #[cfg(not(target_os = "none"))]
        _ if crate::rt::runs_tasks() => crate::rt::continue_tasks(),
        _ => exit_code(main()).into(),
    }
}

/// The slow part of a migration point.
#[cfg(target_os = "none")]
pub fn leave(frame: u64, back: u64) {
    dyad_rt::spine::leave(frame, back);
}

/// The main function has returned.
pub fn done(code: u64) -> ! {
    sys::exit(code as u32)
}

/// What the attributes of plain programs refuse: each of these must fail to compile.
///
/// ```compile_fail
/// #![no_main]
/// #[dyad::main]
/// async fn main() {}
/// ```
/// ```compile_fail
/// #![no_main]
/// #[dyad::main(points = "everywhere")]
/// fn main() {}
/// ```
/// ```compile_fail
/// #[dyad::points]
/// fn work() {}
/// ```
/// ```compile_fail
/// #[dyad::points(calls)]
/// fn work() {}
/// ```
/// ```compile_fail
/// #[dyad::points(loops)]
/// async fn work() {}
/// ```
/// ```compile_fail
/// #[dyad::points(loops)]
/// struct Work;
/// ```
///
/// And these are right:
///
/// ```
/// #[dyad::points(loops)]
/// fn work<T: Copy + Into<u64>>(all: &[T]) -> u64 {
///     all.iter().map(|v| (*v).into()).sum()
/// }
/// assert_eq!(work(&[1u32, 2]), 3);
/// ```
/// ```no_run
/// #![no_main]
/// #[dyad::main(points = "syscalls")]
/// fn main() {}
/// ```
#[cfg(doctest)]
pub struct RefusedByMain;
