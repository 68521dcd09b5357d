//! Components: what code runs with.
//!
//! A component has a capability table, an address space, a place where faults of its threads go,
//! and the nodes it may run on. It pins table and space: they cannot be given up before the
//! component is given up or gets others. Each of them pins the component, too: it is given up without.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_coherence::LINE_BYTES;
use dyad_retype::KernelKind;
use dyad_shm::frame::WeakRef;
use dyad_shm::{LayoutHash, PhysAddr, shared_layout, shared_struct};

use crate::NO_REFERENCE;
use crate::memory::Words;

const REST: usize = PAGE_SIZE as usize / 8 - 8;

shared_struct! {
    /// A component.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Component {
        /// Root of the capability table: a weak reference; 0 before it is configured.
        pub captbl: AtomicU64,
        /// Address space: a weak reference.
        pub space: AtomicU64,
        /// Component that handles faults: a weak reference; 0 if there is none.
        pub handler: AtomicU64,
        /// Entry point of the handler.
        pub handler_entry: AtomicU64,
        /// Badge the handler is told.
        pub handler_badge: AtomicU64,
        /// Bit set of the nodes its code may run on; 0: all.
        pub home: AtomicU64,
        /// Changes of all the words above, after each of them.
        pub generation: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 1],
        /// Unused; zero.
        pub rest: [AtomicU64; REST],
    }
}

const _: () = assert!(size_of::<Component>() as u64 == PAGE_SIZE);

/// What is looked at together lies in one line.
const _: () = assert!(core::mem::offset_of!(Component, rest) as u64 == LINE_BYTES);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h; Component {
        captbl, space, handler, handler_entry, handler_badge, home, generation, reserved, rest,
    })
}

/// Where an invocation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The component.
    pub component: WeakRef,
    /// Its entry point.
    pub address: u64,
    /// What it is told about which capability was used.
    pub badge: u64,
}

impl Component {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::COMPONENT;

    /// What it consists of now. Where caches are not coherent, this node's copy is dropped first: any
    /// node may have configured it anew, and neither finds out from a copy that is older, nor from the
    /// logs, what has been put into it since.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn parts(&self, words: &Words) -> Parts<'_> {
        words.refresh(&self.captbl, LINE_BYTES);
        Parts(self)
    }
}

/// What a component consists of, as it was when it was [looked at](Component::parts).
#[derive(Clone, Copy, Debug)]
pub struct Parts<'c>(&'c Component);

impl<'c> Parts<'c> {
    /// The word that counts changes.
    #[inline]
    pub fn generation(&self) -> &'c AtomicU64 {
        &self.0.generation
    }

    /// Bit set of the nodes its code may run on.
    #[inline]
    pub fn home(&self) -> u64 {
        match self.0.home.load(Ordering::Acquire) {
            0 => u64::MAX,
            nodes => nodes,
        }
    }

    /// Physical address of the root of its capability table.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if it has not been configured.
    #[inline]
    pub fn captbl_root(&self) -> Result<PhysAddr> {
        let word = self.0.captbl.load(Ordering::Acquire);
        match WeakRef::from_bits(word) {
            Some(root) if word != 0 => Ok(root.frame.address()),
            _ => Err(Error::NotReady),
        }
    }

    /// Its address space.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if it has not been configured.
    #[inline]
    pub fn space(&self) -> Result<WeakRef> {
        let word = self.0.space.load(Ordering::Acquire);
        match WeakRef::from_bits(word) {
            Some(space) if word != 0 => Ok(space),
            _ => Err(Error::NotReady),
        }
    }

    /// Whether its code may run on a node.
    #[inline]
    pub fn runs_on(&self, node: NodeId) -> bool {
        self.home() >> node.index() & 1 != 0
    }

    /// Where faults go.
    pub fn fault_entry(&self) -> Option<Entry> {
        let word = self.0.handler.load(Ordering::Acquire);
        if word == 0 || word == NO_REFERENCE {
            return None;
        }
        Some(Entry {
            component: WeakRef::from_bits(word)?,
            address: self.0.handler_entry.load(Ordering::Relaxed),
            badge: self.0.handler_badge.load(Ordering::Relaxed),
        })
    }
}
