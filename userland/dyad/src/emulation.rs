//! Threads that are moved while they compute: stopped at any instruction, and interpreted on their new node
//! until a task's poll ends, or a plain thread comes to its next migration point.
//!
//! [`migrate`](crate::task::migrate) moves a task where it awaits. A task that computes for a long time awaits
//! nothing; if somebody else wants the thread on another node it can be moved all the same, if the program
//! has called [`enable`]: the code of the ISA where it was stopped is interpreted on the new node, on the
//! program's memory, up to the end of the poll. From there on everything runs natively. The same is done to
//! the threads of programs with `#[dyad::main]`, up to the next [`migrate_point`](crate::thread::migrate_point), which
//! they leave with all their frames.
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
//! A thread that comes to an instruction that is not interpreted goes back and runs it natively; see
//! [`Progress::outcome`]. Interpreting takes some hundred instructions for each.

use dyad_rt::emulation::Point;
use dyad_sys as sys;

pub use dyad_abi::emulation::{Registers, refused, status};
pub use dyad_rt::emulation::{Progress, WINDOW, strange, strange_at};

use crate::{Instant, NodeId, Result, executor};

/// Where threads that run tasks can go on natively, and its address.
fn point() -> (&'static Point, u64) {
    static POINT: Point = Point::of_tasks(executor::land);
    (&POINT, executor::between_rounds as fn() as usize as u64)
}

/// Called at the entry of programs whose main function is a task.
pub(crate) fn at_entry(argument: u64) {
    let (point, at) = point();
    dyad_rt::emulation::at_entry(argument, point, at);
}

/// From here on the program's first thread runs tasks, and did not before.
pub(crate) fn set_first_point() {
    let (point, at) = point();
    dyad_rt::emulation::set_first_point(point, at);
}

/// Lets threads of the program be moved while they compute. From here on the program has an interpreter
/// of each ISA in it.
///
/// # Errors
///
/// `Again` if init has no time; `Full`, `NoMemory` if the program's text cannot be shown to the other ISA.
pub fn enable() -> Result<(), sys::Error> {
    dyad_rt::emulation::enable()
}

/// Asks that the program's first thread be stopped at a time, or now if the time has passed, and be continued
/// on `node`. Returns at once; [`progress`] tells what has become of the request.
///
/// # Errors
///
/// `NotReady` before [`enable`]; `NoSuchNode`, `NodeDead`; `BadArgument` if `at` is more than 10 s away; `Exists` if it has
/// been asked already; `Again` if init is busy; `Full` if the program has 8 requests.
pub fn request(node: NodeId, at: Instant) -> Result<(), sys::Error> {
    request_thread(0, node, at)
}

/// Asks that a thread, by its [number](crate::thread::Thread::number), be stopped and be continued on `node`.
/// In a program of tasks, and once the first thread runs tasks ([`task::run`](crate::task::run)), only the first
/// thread has a point where the interpretation could end.
///
/// # Errors
///
/// As [`request`]; `NotFound` if there is no such thread, `Denied` if it has no point.
pub fn request_thread(thread: usize, node: NodeId, at: Instant) -> Result<(), sys::Error> {
    dyad_rt::emulation::request(thread as u64, node, at.as_nanos())
}

/// What has become of the last [`request`]; `None` before [`enable`].
pub fn progress() -> Option<Progress> {
    progress_of(0)
}

/// What has become of the last [`request_thread`]; `None` before [`enable`].
pub fn progress_of(thread: usize) -> Option<Progress> {
    dyad_rt::emulation::progress(thread as u64)
}

/// The registers with which a thread was stopped when it was last moved; `None` before [`enable`]. If it has
/// gone back, those with which it went on.
pub fn stopped_with(thread: usize) -> Option<Registers> {
    dyad_rt::emulation::stopped_with(thread as u64)
}
