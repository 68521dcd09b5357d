//! Page-level distributed shared memory: the protocol by which the nodes of a group keep one copy of each page
//! writable or several copies readable. Everything here is a decision; a peer service carries it out.
//!
//! ```text
//!              fault, message, deadline, room, death
//!   peer ───────────────────────────────────────────────▶ Dsm::step
//!   peer ◀─────────────────────────────────────────────── actions, in order:
//!              protect · quiesce · copy out · send · fill · map · wake · defer
//! ```
//!
//! The *origin* is the node where the program starts. It has the directory: for each page, which nodes have a copy.
//! Each node, the origin included, is a *holder*: for each page it has a right (none, read, write) and a frame. All
//! protocol messages go between the origin and a holder. The origin exchanges the same messages with itself, within
//! one step and without a ring.
//!
//! | module | what |
//! |---|---|
//! | [`ids`] | numbers that messages carry, ranges of pages, sets of nodes |
//! | [`wire`] | messages and their fixed encoding |
//! | [`event`] | what a node is told, what a peer has to do, why something is refused |
//! | [`node`] | the state of one node and its step function |
//! | [`table`] | records of pages, in chunks found by a hash |
//! | [`counters`] | messages by kind, and what was refused |
//! | [`weakening`] | rules that tests take away |
//!
//! # What the peer promises
//!
//! 1. It executes the actions of a step in their order, before the next step.
//! 2. Messages of an ordered pair of nodes arrive in the order in which they were sent.
//! 3. It tells the origin of the death of a node ([`Event::Down`]) after all messages that the node had sent.
//! 4. The contents of a received message stay readable until its step is over.
//!
//! # What holds then
//!
//! A node that may write a page is the only node with a translation of it. A read gives the value of the last write
//! in the order of grants. Each fault is answered: with the page, or with the reason why not. A page is lost only if
//! its owner died. A full ring delays messages and loses none. `tests/model` visits all interleavings of three nodes
//! within its bounds, with this step function.
//!
//! All capacities are constants of the type [`Dsm`]. Records of pages alone are allocated, a chunk at a time; without
//! memory for a chunk a thread gets the error, as without a frame.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counters;
mod directory;
pub mod event;
mod holder;
pub mod ids;
mod list;
pub mod node;
pub mod record;
pub mod regions;
pub mod table;
pub mod weakening;
pub mod wire;

pub use counters::Counters;
pub use event::{Action, Event, Outcome, Port, Refusal, Source};
pub use ids::{Access, Incarnation, NodeSet, Page, Range, Right, Seq, ThreadNo, Time, Txn};
pub use list::List;
pub use node::{Config, Dsm, WOKEN_NS};
pub use record::{Copies, Record};
pub use table::{Item, Table};
pub use weakening::Weakening;
pub use wire::{Body, Cause, Grant, Message, WireError};
