//! Where everything is.
//!
//! ```text
//!   base: | sections of quiescence | buckets, shard by shard | lines of items, writer by writer |
//! ```

use core::fmt;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_coherence::LINE_BYTES;
use dyad_quiet::block::MAX_LINES;
use dyad_quiet::{Blocks, Root, Sections, section};
use dyad_shm::PhysAddr;

use crate::key::{SHARDS, Shard};

/// Memory of a store, which is zero at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    base: PhysAddr,
    buckets: u64,
    lines: u64,
}

/// Why there can be no such store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The memory does not begin a line.
    Unaligned,
    /// No buckets, or no lines.
    Empty,
    /// More lines than references can name.
    TooManyLines,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutError::Unaligned => "the memory of a store begins at a multiple of 64 bytes",
            LayoutError::Empty => {
                "a store has at least one bucket in each shard and one line for each writer"
            }
            LayoutError::TooManyLines => "a store has at most 2^28 - 1 lines of items",
        })
    }
}

impl Layout {
    /// A store from `base` on, with `buckets` buckets of 8 references in each shard, and `lines` lines of items for each
    /// node.
    ///
    /// # Errors
    ///
    /// If there can be no such store.
    pub const fn new(base: PhysAddr, buckets: u64, lines: u64) -> Result<Layout, LayoutError> {
        if !base.0.is_multiple_of(LINE_BYTES) {
            return Err(LayoutError::Unaligned);
        }
        if buckets == 0 || lines == 0 {
            return Err(LayoutError::Empty);
        }
        if lines > MAX_LINES / MAX_NODES as u64 || buckets > MAX_LINES / SHARDS {
            return Err(LayoutError::TooManyLines);
        }
        Ok(Layout {
            base,
            buckets,
            lines,
        })
    }

    /// Bytes that it takes.
    pub const fn bytes(self) -> u64 {
        let items = self.lines * MAX_NODES as u64;
        section::BYTES + (SHARDS * self.buckets + items) * LINE_BYTES
    }

    /// Buckets of a shard.
    pub const fn buckets(self) -> u64 {
        self.buckets
    }

    pub(crate) const fn sections(self) -> Sections {
        Sections::new(self.base)
    }

    pub(crate) fn bucket(self, shard: Shard, n: u64) -> Root {
        let line = shard.index() * self.buckets + n % self.buckets;
        Root::at(self.base.add(section::BYTES + line * LINE_BYTES))
    }

    pub(crate) fn blocks(self) -> Blocks {
        let before = section::BYTES + SHARDS * self.buckets * LINE_BYTES;
        Blocks::new(self.base.add(before), self.lines * MAX_NODES as u64)
    }

    /// The lines of a writer.
    pub(crate) fn lines(self, writer: NodeId) -> core::ops::Range<u64> {
        let first = 1 + writer.index() as u64 * self.lines;
        first..first + self.lines
    }
}
