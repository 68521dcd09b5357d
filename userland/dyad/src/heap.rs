//! Memory on a chosen node.
//!
//! By default the memory that a program allocates lies, page by page, on the node that touches it first. That
//! is right for data that stays with its thread. A thread that makes data on one node for a thread on another
//! node chooses the place:
//!
//! ```no_run
//! use dyad::Isa;
//! use dyad::heap::{self, Placed};
//!
//! # fn main() -> dyad::Result<()> {
//! let there = heap::on(Isa::Aarch64)?;
//! let mut table: Placed<[u64; 512]> = there.boxed([0; 512]);
//! table[3] = 5; // used like any other box, from anywhere
//! let mut keys: Vec<u64> = there.vec(1 << 20);
//! keys.push(table[3]); // it grows where it is
//! let names = there.run(|| vec![String::from("here"), String::from("there")]);
//! assert_eq!(heap::node_of(&keys[0]), Some(there.node()));
//! # drop(names);
//! # Ok(())
//! # }
//! ```
//!
//! Each node has a heap for this beside the program's general one, at addresses that are the same on all
//! ISAs. The types are the usual ones: [`run`](On::run) selects the heap for its thread's allocations. Freed
//! memory returns to its own heap, and a growing allocation stays in its heap, whichever thread frees it or
//! lets it grow.
//!
//! | condition | pages |
//! |---|---|
//! | normal | come from the node's supply: its local pool first, then [blocks](crate::blocks) of the CXL pool that it is given |
//! | `--model separated`, `shared` | the local pool is near to its node and far from the others; the CXL pool is near to node 0 or to none |
//! | `--model fully-shared` | all memory is near to all nodes: placement changes addresses and nothing else |
//! | the node has no memory left | it asks for a block, as for its other pages; if there is none, allocation fails |
//! | the node is dead | [`on`] returns `NodeDead`; existing pages stay usable; new pages of a heap from before are placed as without a choice |
//!
//! A page is placed when it is first touched, and its later use does not move it. If a block is taken from
//! the node, the block's pages move to other memory of that node's supply.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

use dyad_sys as sys;
use dyad_sys::{Isa, NodeId};

pub use dyad_rt::heap::HeapUse;

use crate::Result;

/// A requested place for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// This node.
    Node(NodeId),
    /// A node of this ISA: the caller's if it has the ISA, else the first live one.
    Isa(Isa),
}

impl From<NodeId> for Home {
    fn from(node: NodeId) -> Home {
        Home::Node(node)
    }
}

impl From<Isa> for Home {
    fn from(isa: Isa) -> Home {
        Home::Isa(isa)
    }
}

/// The heap of a node; see [`on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct On(NodeId);

/// Chooses the heap of a node.
///
/// # Errors
///
/// `NoSuchNode`, `NodeDead`; `NoIsa` if no node of the ISA is live; the errors of
/// [`system`](crate::system()).
pub fn on(place: impl Into<Home>) -> Result<On> {
    let system = crate::system()?;
    let node = match place.into() {
        Home::Node(id) => system.node(id).ok_or(sys::Error::NoSuchNode)?,
        Home::Isa(isa) => {
            let nearest = system.nearest(isa, crate::node());
            let id = nearest.ok_or(sys::Error::NoIsa)?;
            system.node(id).ok_or(sys::Error::NoSuchNode)?
        }
    };
    match node.live {
        true => Ok(On(node.id)),
        false => Err(sys::Error::NodeDead.into()),
    }
}

impl On {
    /// The node of the heap.
    pub const fn node(self) -> NodeId {
        self.0
    }

    /// The size of the heap; `None` on the host.
    pub fn usage(self) -> Option<dyad_rt::heap::HeapUse> {
        #[cfg(target_os = "none")]
        return Some(crate::HEAP.usage_on(self.0));
        #[cfg(not(target_os = "none"))]
        return None;
    }

    /// Calls `f`; allocations of the calling thread meanwhile come from this heap. Calls nest.
    ///
    /// Only memory that `f` allocates is placed. An empty `Vec` has no memory yet, and allocates it where it
    /// first needs some.
    pub fn run<R>(self, f: impl FnOnce() -> R) -> R {
        /// Restores the previous choice, also on the host if `f` panics.
        struct Back(Option<NodeId>);
        impl Drop for Back {
            fn drop(&mut self) {
                dyad_rt::heap::choose(self.0);
            }
        }
        let _back = Back(dyad_rt::heap::choose(Some(self.0)));
        f()
    }

    /// Makes a value in this heap.
    pub fn boxed<T>(self, value: T) -> Placed<T> {
        Placed {
            value: self.run(|| Box::new(value)),
            node: self.0,
        }
    }

    /// Makes an empty vector in this heap, with room for `capacity` values.
    ///
    /// # Panics
    ///
    /// For the same reasons as [`Vec::with_capacity`].
    pub fn vec<T>(self, capacity: usize) -> Vec<T> {
        self.run(|| Vec::with_capacity(capacity))
    }
}

/// A value in the heap of a node: a box with the number of its node.
pub struct Placed<T: ?Sized> {
    value: Box<T>,
    node: NodeId,
}

impl<T> Placed<T> {
    /// Places a value on a node.
    ///
    /// # Errors
    ///
    /// The errors of [`on`].
    pub fn new(value: T, place: impl Into<Home>) -> Result<Placed<T>> {
        Ok(on(place)?.boxed(value))
    }
}

impl<T: ?Sized> Placed<T> {
    /// The node that the value was placed on.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// The box of the value, which stays in its heap.
    pub fn into_box(self) -> Box<T> {
        self.value
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for Placed<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed")
            .field("node", &self.node)
            .field("value", &&self.value)
            .finish()
    }
}

/// The node whose memory has the page in which a value begins, by the page tables; `None` if that is the CXL
/// pool, or if no node has touched the page yet.
pub fn node_of<T: ?Sized>(value: &T) -> Option<NodeId> {
    let address = (&raw const *value).cast::<u8>() as u64;
    let system = crate::system().ok()?;
    let seen = |isa| sys::translate(address, isa).ok();
    let physical = Isa::ALL.into_iter().find_map(seen)?.physical;
    system.pool_of(physical)?.owner
}
