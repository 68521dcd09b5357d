//! Programs whose threads change their ISA inside plain functions: functions for [`thread`](crate::thread),
//! and functions that the code of `#[dyad::main]` calls.

use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "none")]
use dyad_rt::emulation::Point;
use dyad_sys as sys;
use dyad_sys::thread::Number;
use dyad_sys::{Isa, NodeId};

use crate::rt::{Outcome, exit_code};
use crate::thread::Thread;
use crate::{Args, Result};

static USED: AtomicBool = AtomicBool::new(false);

/// Whether the program's main function is a plain one, and the first thread does not run tasks
/// ([`task::run`](crate::task::run)).
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed) && !crate::rt::runs_tasks()
}

/// A place where the calling thread moves to another node, if a request asks for it.
///
/// Only in programs with `#[dyad::main]`. Costs a few instructions without a request. Within an async task
/// the thread does not move here: it moves once the task waits.
#[inline(always)]
pub fn migrate_point() {
    dyad_rt::spine::point();
}

/// Continues the calling thread on a node of the given ISA: this node if it has that ISA, else the live one
/// with the lowest number.
///
/// # Errors
///
/// `NoIsa` if no live node has that ISA; the errors of [`migrate_to`].
#[inline(always)]
pub fn migrate(isa: Isa) -> Result<(), sys::Error> {
    migrate_to(nearest(isa)?)
}

/// Continues the calling thread on the given node, where this returns.
///
/// # Errors
///
/// `NoSuchNode` or `NodeDead`; `NotReady` if the thread has no scheduler; `TooDeep` in an
/// invocation, or if the thread's frames leave too little of the other stack (128 KiB); `Denied` in an async
/// task, which moves by [`task::migrate_to`](crate::task::migrate_to), and below a function that is entered
/// from outside of the program. The thread then continues on its node.
#[inline(always)]
pub fn migrate_to(node: NodeId) -> Result<(), sys::Error> {
    dyad_rt::spine::migrate(node)
}

/// Continues the calling thread on the given node, where this returns, and brings the program's pages along that the node has
/// which the thread leaves: they are there before the thread is, so touching them there is no fault.
///
/// That matters over kernels that exchange messages. Over a fused kernel this is [`migrate_to`]: there pages are used from
/// wherever they are.
///
/// # Errors
///
/// As for [`migrate_to`]. A page for which the other node has no memory stays, and is asked for when it is touched.
#[inline(always)]
pub fn migrate_with_pages(node: NodeId) -> Result<(), sys::Error> {
    dyad_rt::spine::migrate_with_pages(node)
}

/// Requests that a thread of the program move to a node at its next migration point. Replaces a request that
/// the thread has not carried out yet, and returns it. A request for the calling thread makes no system call.
///
/// The thread is what [`current`](crate::thread::current) and the handles of threads return:
///
/// ```no_run
/// use dyad::prelude::thread::*;
/// use dyad::thread;
///
/// # fn f(there: NodeId) -> Result<()> {
/// let worker = thread::spawn(|| (0..1000u64).inspect(|_| migrate_point()).sum::<u64>())?;
/// request_migration(worker.thread(), there)?;
/// # worker.join()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `NotFound` if the thread has ended and no newer one has its number; `NoSuchNode`, `NodeDead`; `Again` if other requests keep
/// arriving. A request for the calling thread does not check the node; the migration point does.
pub fn request_migration(thread: Thread, to: NodeId) -> Result<Option<NodeId>, sys::Error> {
    if sys::thread::id() == Some(thread.id()) {
        return Ok(dyad_rt::spine::request(to));
    }
    sys::request_move(thread.of_program().get(), to)
}

/// Withdraws the pending migration request of a thread, and returns it: `None` if there was none, or the
/// thread has begun to carry it out.
///
/// # Errors
///
/// The errors of [`request_migration`].
pub fn withdraw_migration(thread: Thread) -> Result<Option<NodeId>, sys::Error> {
    if sys::thread::id() == Some(thread.id()) {
        return Ok(dyad_rt::spine::withdraw());
    }
    sys::withdraw_request(thread.of_program().get())
}

#[inline(never)]
fn nearest(isa: Isa) -> Result<NodeId, sys::Error> {
    crate::system::nearest(isa, crate::node())
}

/// Whether a thread that is at its entry may come from elsewhere. It has a data stack then. Calls nothing.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn comes(argument: u64) -> bool {
    let multiple = sys::is_multiple();
    if multiple && let Some(number) = Number::of_argument(argument) {
        let id = sys::thread::id_of(number.get());
        let (_, top) = dyad_abi::user::data_stack(id);
        dyad_rt::spine::block()
            .data_sp
            .store(top, Ordering::Relaxed);
    }
    multiple
}

/// Waits until the thread comes, or begins.
#[cfg(target_os = "none")]
pub fn arrive(argument: u64) {
    sys::group::arrive(argument, begin);
}

#[cfg(target_os = "none")]
fn begin(argument: u64) -> ! {
    start(argument)
}

/// The entry of plain threads.
#[cfg(target_os = "none")]
pub fn start(argument: u64) -> ! {
    static POINT: Point = Point::of_threads(dyad_rt::spine::land);
    USED.store(true, Ordering::Relaxed);
    dyad_rt::emulation::at_entry(argument, &POINT, dyad_rt::spine::point_address());
    dyad_rt::spine::enter(argument)
}

/// Runs a plain thread whose main function takes arguments; returns the exit code.
#[inline(always)]
pub fn main_with_args<R: Outcome>(argument: u64, main: fn(Args) -> R) -> u64 {
    run(argument, || main(Args::load()?).result())
}

/// Runs a plain thread whose main function takes no arguments; returns the exit code.
#[inline(always)]
pub fn main_without_args<R: Outcome>(argument: u64, main: fn() -> R) -> u64 {
    run(argument, || {
        Args::load()?.expect_options(&[])?;
        main().result()
    })
}

#[inline(always)]
fn run(argument: u64, main: impl FnOnce() -> Result<()>) -> u64 {
    USED.store(true, Ordering::Relaxed);
    match Number::of_argument(argument) {
        Some(number) if number != Number::FIRST => crate::thread::enter(number),
        #[cfg(not(target_os = "none"))]
        _ if crate::rt::runs_tasks() => crate::executor::run(),
        _ => exit_code(main()).into(),
    }
}

/// The slow path of a migration point.
#[cfg(target_os = "none")]
pub fn leave(frame: u64, back: u64) {
    dyad_rt::spine::leave(frame, back);
}

/// Ends the program after its main function has returned.
pub fn done(code: u64) -> ! {
    sys::exit(code as u32)
}

/// Uses of the attributes of plain programs that must fail to compile.
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
/// Uses that compile:
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
