//! The state that kernels share: the words of fused memory, the system's tables, kernel objects; and the
//! private state by which a node finds them.
//!
//! | module | concern |
//! |---|---|
//! | [`memory`] | shared words, with coherent caches or without |
//! | [`tables`] | the places of the system's tables |
//! | [`node`] | a machine's private state |
//! | [`thread`], [`component`], [`endpoint`], [`space`], [`time`] | kernel objects |
//! | [`ids`] | the table of thread ids |
//! | [`kinds`] | the table of object kinds |
//!
//! Nothing here depends on a machine, and nothing here is policy: this crate has layouts, and the protocol
//! for changing each.
//!
//! # Objects
//!
//! Each object is one frame of fused memory, retyped from memory that users have supplied.
//!
//! Objects refer to each other by weak references (frame and version), which one load checks. No reference is
//! an address, so every node can follow it. A target that must not vanish is *pinned* in the frame table
//! instead: tables by the entries that lead to them, a component's capability table and address space by the
//! component.
//!
//! A reference that has been checked can be used until this CPU leaves the kernel, whatever happens to the
//! object: its frame is not reused before every CPU has left the kernel once.

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

pub mod component;
pub mod endpoint;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod ids;
pub mod kinds;
pub mod memory;
pub mod node;
#[cfg(feature = "ktest")]
pub mod seeded;
pub mod space;
pub mod tables;
pub mod thread;
pub mod time;

use dyad_abi::{Error, Result};
use dyad_retype::KernelKind;
use dyad_shm::LayoutHash;
use dyad_shm::frame::{FrameRef, Version, WeakRef};
use dyad_shm::map::Shared;

pub use crate::kinds::table_kind;
use crate::node::Node;

/// A weak reference that refers to nothing: its frame is in no pool.
pub const NO_REFERENCE: u64 = u32::MAX as u64;

/// Adds the layouts of all objects to a hash: see [`dyad_shm::layout`].
pub const fn layout(h: LayoutHash) -> LayoutHash {
    ids::layout(space::layout(time::layout(endpoint::layout(
        component::layout(thread::layout(h)),
    ))))
}

/// The object that a weak reference refers to.
///
/// # Errors
///
/// [`Error::Revoked`] if the frame has been retyped.
#[inline]
pub fn find<T: Shared>(node: &Node, object: WeakRef, kind: KernelKind) -> Result<&'static T> {
    if !node.tables.frames.is_object(object, kind) {
        return Err(Error::Revoked);
    }
    node.map.get(object.frame.address()).ok_or(Error::Corrupt)
}

/// The object that a stored reference word refers to, with the reference.
///
/// # Errors
///
/// [`Error::NotFound`] if the word refers to nothing; the errors of [`find`].
#[inline]
pub fn follow<T: Shared>(
    node: &Node,
    word: u64,
    kind: KernelKind,
) -> Result<(&'static T, WeakRef)> {
    let object = WeakRef::from_bits(word).ok_or(Error::NotFound)?;
    Ok((find(node, object, kind)?, object))
}

/// The reference to the frame at whose start a structure lies, with the frame's present version.
pub fn reference<T>(node: &Node, object: &'static T) -> Option<WeakRef> {
    let frame = frame_of(node, object)?;
    let (word, _) = node.tables.frames.read(frame).ok()?;
    Some(WeakRef {
        frame,
        version: word.version,
    })
}

/// The frame at whose start a structure lies.
pub fn frame_of<T>(node: &Node, object: &'static T) -> Option<FrameRef> {
    node.map
        .physical(core::ptr::from_ref(object) as u64)
        .and_then(FrameRef::of)
}

/// The link word of a frame: its number plus one. 0 is no frame.
pub fn link_to(frame: FrameRef) -> u64 {
    frame.bits() as u64 + 1
}

/// The frame of a link word.
pub fn linked(word: u64) -> Option<FrameRef> {
    u32::try_from(word.checked_sub(1)?)
        .ok()
        .and_then(FrameRef::from_bits)
}

/// A weak reference to version 0: for tests and for the objects made at boot.
pub const fn first(frame: FrameRef) -> WeakRef {
    WeakRef {
        frame,
        version: Version(0),
    }
}
