//! Memory ownership of nodes, as the block allocator knows it.
//!
//! A program gets memory by touching it, and need not do anything else. Each node begins with little memory,
//! and gets another block whenever 70 % of its memory is in use.
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

/// Asks the block allocator a question. The answer to a question that is not about one node is the same for
/// each node.
///
/// # Errors
///
/// `NoSuchNode`; `NodeDead` if the allocator's books were lost with a node.
pub fn ask(question: Question, node: NodeId) -> Result<u64, sys::Error> {
    sys::memory_state(question, node)
}
