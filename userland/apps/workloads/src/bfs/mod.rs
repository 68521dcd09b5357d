//! Breadth-first search of a random graph: Graph500 in small.
//!
//! ```text
//!  Kronecker (edges) ─▶ Graph (rows) ─▶ Search: level by level ─▶ validate
//! ```
//!
//! Who searches decides level by level where that is done, and may do something for each new
//! vertex: call a function on the other side, as Flick's measurement does.

pub mod graph;
pub mod kronecker;
pub mod search;
pub mod validate;

pub use graph::Graph;
pub use kronecker::Kronecker;
pub use search::{NONE, Search};
pub use validate::{Invalid, validate};
