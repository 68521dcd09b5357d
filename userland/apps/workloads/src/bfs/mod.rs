//! Breadth-first search of a random graph: Graph500 in small.
//!
//! ```text
//!  Kronecker (edges) ─▶ Graph (rows) ─▶ Search: level by level ─▶ validate
//! ```
//!
//! Who searches decides level by level where that is done, and may do something for each new
//! vertex: call a function on the other side, as Flick's measurement does. For that one there are
//! also [`Lists`]: the same graph, in which each edge costs what it costs in a large one.

pub mod graph;
pub mod kronecker;
pub mod lists;
pub mod search;
pub mod validate;

pub use graph::Graph;
pub use kronecker::Kronecker;
pub use lists::Lists;
pub use search::{NONE, Search};
pub use validate::{Invalid, validate};
