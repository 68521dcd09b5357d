//! Moving threads while they compute: a thread is stopped at any instruction, and interpreted on its new node
//! until a task's poll ends, or a plain thread comes to its next migration point.
//!
//! [`migrate`](crate::task::migrate) moves a task where it awaits. A task that computes for a long time
//! awaits nothing. A request can still move its thread to another node, if the program has called [`enable`]:
//! the code of the ISA where the thread was stopped is interpreted on the new node, on the program's memory,
//! up to the end of the poll. From there on everything runs natively. Threads of programs with
//! `#[dyad::main]` are interpreted up to the next [`migrate_point`](crate::thread::migrate_point), and leave
//! it natively with all their frames.
//!
//! ```no_run
//! # async fn task() -> dyad::Result<()> {
//! use dyad::emulation;
//!
//! emulation::enable()?;
//! // Ten milliseconds from now, wherever this is.
//! let node = dyad::system()?.nearest(dyad::isa().other(), dyad::node());
//! emulation::request(node.ok_or(dyad::sys::Error::NoIsa)?, dyad::Instant::now())?;
//! # Ok(()) }
//! ```
//!
//! A thread that comes to an instruction that cannot be interpreted goes back and runs it natively; see
//! [`Progress::outcome`]. Interpreting an instruction takes some hundred instructions.

use dyad_rt::emulation::Point;
use dyad_sys as sys;

pub use dyad_abi::emulation::{Registers, refused, status};
pub use dyad_rt::emulation::{Progress, WINDOW, strange, strange_at};

use crate::{Instant, NodeId, Result, executor};

/// The point where threads that run tasks can continue natively, and its address.
fn point() -> (&'static Point, u64) {
    static POINT: Point = Point::of_tasks(executor::land);
    (&POINT, executor::between_rounds as fn() as usize as u64)
}

/// Sets the point at the entry of programs whose main function is a task.
pub(crate) fn at_entry(argument: u64) {
    let (point, at) = point();
    dyad_rt::emulation::at_entry(argument, point, at);
}

/// Sets the point of the program's first thread when it begins to run tasks.
pub(crate) fn set_first_point() {
    let (point, at) = point();
    dyad_rt::emulation::set_first_point(point, at);
}

/// Lets threads of the program be moved while they compute. The program contains an interpreter of each ISA
/// from now on.
///
/// # Errors
///
/// `Again` if init is busy; `Full`, `NoMemory` if the program's text cannot be mapped for the other ISA.
pub fn enable() -> Result<(), sys::Error> {
    dyad_rt::emulation::enable()
}

/// Requests that the program's first thread be stopped at a time, or now if the time has passed, and be
/// continued on `node`. Returns at once; [`progress`] reports the outcome.
///
/// # Errors
///
/// `NotReady` before [`enable`]; `NoSuchNode`, `NodeDead`; `BadArgument` if `at` is more than 10 s away;
/// `Exists` if a request for the thread is pending; `Again` if init is busy; `Full` if the program has 8
/// requests.
pub fn request(node: NodeId, at: Instant) -> Result<(), sys::Error> {
    request_thread(0, node, at)
}

/// Requests that a thread, given by its [number](crate::thread::Thread::number), be stopped and continued on
/// `node`. In a program of tasks, and once the first thread runs tasks ([`task::run`](crate::task::run)),
/// only the first thread has a point where the interpretation could end.
///
/// # Errors
///
/// The errors of [`request`]; `NotFound` if there is no such thread, `Denied` if it has no point.
pub fn request_thread(thread: usize, node: NodeId, at: Instant) -> Result<(), sys::Error> {
    dyad_rt::emulation::request(thread as u64, node, at.as_nanos())
}

/// The progress of the last [`request`]; `None` before [`enable`].
pub fn progress() -> Option<Progress> {
    progress_of(0)
}

/// The progress of the last [`request_thread`] for a thread; `None` before [`enable`].
pub fn progress_of(thread: usize) -> Option<Progress> {
    dyad_rt::emulation::progress(thread as u64)
}

/// The registers with which a thread was stopped when it was last moved; `None` before [`enable`]. If the
/// thread has gone back, the registers with which it continued.
pub fn stopped_with(thread: usize) -> Option<Registers> {
    dyad_rt::emulation::stopped_with(thread as u64)
}
