//! A task that is moved while it computes: stopped at any instruction, and interpreted on its new node until
//! its poll ends.
//!
//! [`migrate`](crate::migrate()) moves a task where it awaits. A task that computes for a long time awaits
//! nothing; if somebody else wants the thread on another node it can be moved all the same, if the program
//! has called [`enable`]: the code of the ISA where it was stopped is interpreted on the new node, on the
//! program's memory, up to the end of the poll. From there on everything runs natively.
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

use dyad_sys as sys;
use dyad_sys::emulation::Point;

pub use dyad_abi::emulation::{refused, status};
pub use dyad_sys::emulation::Progress;

use crate::{Instant, NodeId, Result, executor};

/// Lets the program's thread be moved while a task computes. From here on the program has an interpreter
/// of each ISA in it.
///
/// # Errors
///
/// `Again` if init has no time; `Full`, `NoMemory` if the program's text cannot be shown to the other ISA.
pub fn enable() -> Result<(), sys::Error> {
    static POINT: Point = Point::new(executor::between_rounds, executor::land);
    sys::emulation::enable(&POINT)
}

/// Asks that the program's thread be stopped at a time, or now if that has passed, and go on on `node`.
/// Comes back at once; what becomes of it, [`progress`] tells.
///
/// # Errors
///
/// `NotReady` before [`enable`]; `NoSuchNode`, `NodeDead`; `Exists` if it has been asked already;
/// `Again`, `Full` if init is busy.
pub fn request(node: NodeId, at: Instant) -> Result<(), sys::Error> {
    sys::emulation::request(node, at.as_nanos())
}

/// What has become of the last [`request`]; `None` before [`enable`].
pub fn progress() -> Option<Progress> {
    sys::emulation::progress()
}
