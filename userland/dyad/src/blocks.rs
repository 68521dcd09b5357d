//! Which node owns how much memory: what the block allocator knows.
//!
//! A program need not do anything to be given memory: touching it is enough. Each node begins with
//! little, and is given another block whenever 70 % of what it owns are in use.
//!
//! ```no_run
//! use dyad::blocks::{self, Question};
//!
//! # fn main() -> Result<(), dyad::sys::Error> {
//! let here = dyad::node();
//! let (owned, free) = (blocks::ask(Question::Frames, here)?, blocks::ask(Question::Free, here)?);
//! dyad::println!("node {here} owns {owned} frames; {free} blocks are free");
//! # Ok(())
//! # }
//! ```

use dyad_sys as sys;
use dyad_sys::NodeId;

pub use dyad_abi::service::memory::{PRESSURE, Question};

/// Asks the block allocator. What is not about one node is the same for each.
///
/// # Errors
///
/// `NoSuchNode`; `NodeDead` if the allocator's books were lost with a node.
pub fn ask(question: Question, node: NodeId) -> Result<u64, sys::Error> {
    sys::memory_state(question, node)
}
