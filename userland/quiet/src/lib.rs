//! Structures that several nodes read in place, in memory that caches do not keep coherent.
//!
//! ```text
//!   writer: fill block ─▶ stamp ─▶ write back ─▶ store root ─▶ write back        retire the old block
//!                                                 │                                     │ when all nodes have
//!   reader: begin section ─▶ invalidate root ─▶ read root ─▶ read block ─▶ end section   ▼ ended older sections
//!                                                            stamp differs: stale copy   reuse
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`block`] | blocks of lines, each with a stamp, and references to them |
//! | [`section`] | sections of readers, and rounds that say when older ones have ended |
//! | [`root`] | lines of references that one node writes and all nodes read |
//! | [`heap`] | the lines of one node: which are free, and which will be |
//!
//! # What holds
//!
//! 1. A reader that has found a reference within a section reads the block as it was published, until the section ends.
//! 2. Who begins to read a root after a writer has returned from publishing finds what was published, or something newer.
//! 3. A block that was retired is reused when each live node has ended the sections that had begun before.
//!
//! # Why no copy is old
//!
//! A root line is invalidated before it is read. A block is not: a block that was read is in the caches of its readers, which is
//! why reading in place is fast. But a cache may keep a copy of a line from the time before it was reused, and may fetch a
//! line unasked at any time. So each line has a stamp of its own, which is another one after each reuse, and a reference
//! says which stamp it means. The stamp is written last: a copy with the right stamp has the right contents, and any other copy
//! is dropped and read again.
//!
//! All memory is accessed through [`GlobalMem`](dyad_coherence::GlobalMem). An address is one of its back end: in
//! programs a virtual one.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod block;
pub mod heap;
pub mod root;
pub mod section;

pub use block::{Blocks, PAYLOAD, Ref};
pub use heap::{Heap, HeapError};
pub use root::{Root, WORDS};
pub use section::{Rounds, Section, Sections};
