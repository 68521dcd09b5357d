//! A store of keys and values in shared memory, which all nodes read in place, without coherent caches.
//!
//! ```text
//!   key ─hash─▶ shard ─▶ its writer: one node, which alone changes the shard's buckets
//!                  └──▶ two buckets of the shard, each a root of 8 references ─▶ items
//!
//!   item:  | key (2 words) | version << 16 | length | value ... |      a block of `dyad-quiet`
//! ```
//!
//! A put makes a new item and has a bucket refer to it; the old item is retired. So a reader finds the old item or the new one,
//! whole, and who begins to read after a put has returned finds that put or a later one.
//!
//! | what | type |
//! |---|---|
//! | places of everything in memory | [`Layout`] |
//! | keys, their shards and buckets | [`Key`], [`Shard`] |
//! | reading, on any node | [`Table`] |
//! | changing, on the node that has the shard | [`Writer`] |
//! | which node has which shard | [`owner`] |
//! | the same as replicas that agree by messages, to compare with | [`replica`] |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod item;
mod key;
mod layout;
pub mod replica;
mod table;
mod writer;

pub use item::{MAX_VALUE, Version, lines};
pub use key::{Key, SHARDS, Shard, owner};
pub use layout::{Layout, LayoutError};
pub use table::{Cursor, Entry, Table};
pub use writer::{StoreError, Writer};
