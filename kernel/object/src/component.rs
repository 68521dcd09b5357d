//! Components: protection domains.
//!
//! A component has a capability table, an address space, a fault handler for its threads, and the nodes it
//! may run on. It pins table and space: they cannot be untyped before the component is untyped or gets
//! others. Each of them also pins the component, which cannot be untyped while it has them.
//!
//! Some changes affect several words: table and space; component, entry and badge of the fault handler. One
//! CPU at a time makes such a change ([`Component::change`]). A second one is refused. A node that dies
//! during a change leaves its claim behind, and the next CPU takes the claim over.
//!
//! ```text
//! changer:  0 ──CAS──▶ claim of a CPU ──▶ 0
//!                       └── its node has died: CAS ──▶ claim of another CPU
//! handler:  n: handlers[n % 2] holds. The other record is filled, then: n ──▶ n + 1
//! ```
//!
//! | step | order |
//! |---|---|
//! | set the handler: the words of the inactive record; `handler` | release, each: a CPU that reads a word of the next change finds that `handler` has changed |
//! | read it: `handler`; the words of its record; `handler` again, which must be unchanged | acquire, each |
//!
//! A reader therefore finds a complete handler or tries again, and a node that dies leaves the old handler or
//! the new one.

use core::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_coherence::LINE_BYTES;
use dyad_retype::KernelKind;
use dyad_shm::frame::WeakRef;
use dyad_shm::{LayoutHash, PhysAddr, shared_layout, shared_struct};

use crate::NO_REFERENCE;
use crate::memory::{Words, load_coherent};
use crate::node::Node;
use dyad_coherence::lacks;

const REST: usize = PAGE_SIZE as usize / 8 - 3 * 8;
/// Attempts of a reader at reading the fault handler. An attempt fails only if two changes have been made
/// during it, or one between its reads of the same word.
const READS: usize = 16;

shared_struct! {
    /// A fault handler.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct HandlerRecord {
        /// The component that handles faults: a weak reference; 0 if there is none.
        pub component: AtomicU64,
        /// The entry point in that component.
        pub entry: AtomicU64,
        /// The badge that the handler gets.
        pub badge: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 5],
    }
}

shared_struct! {
    /// A component.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Component {
        /// Root of the capability table: a weak reference; 0 before it is configured.
        pub captbl: AtomicU64,
        /// Address space: a weak reference.
        pub space: AtomicU64,
        /// Changes of the fault handler so far; modulo 2, the number of the active record.
        pub handler: AtomicU64,
        /// The CPU that changes several words: see [`Component::change`]; 0 means none.
        pub changer: AtomicU64,
        /// Bit set of the nodes that its code may run on; 0 means all.
        pub home: AtomicU64,
        /// The count of changes of all the words above; incremented after each.
        pub generation: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 2],
        /// The active and the inactive fault handler.
        pub handlers: [HandlerRecord; 2],
        /// Unused; zero.
        pub rest: [AtomicU64; REST],
    }
}

const _: () = assert!(size_of::<Component>() as u64 == PAGE_SIZE);

/// Checks that the words that are read together lie in one line.
const _: () = assert!(core::mem::offset_of!(Component, handlers) as u64 == LINE_BYTES);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h;
        HandlerRecord { component, entry, badge, reserved },
        Component {
            captbl, space, handler, changer, home, generation, reserved, handlers, rest,
        },
    )
}

/// The target of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The component.
    pub component: WeakRef,
    /// The entry point in the component.
    pub address: u64,
    /// The badge of the capability that was used.
    pub badge: u64,
}

impl Component {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::COMPONENT;

    /// The bit set of nodes that the word `home` stands for: 0 means all.
    #[inline]
    pub const fn nodes(home: u64) -> u64 {
        match home {
            0 => u64::MAX,
            nodes => nodes,
        }
    }

    /// The present parts of the component. Where caches are not coherent, this node's copy is dropped first:
    /// any node may have configured the component, and neither an older copy nor the logs would show that.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn parts(&self, words: &Words) -> Parts<'_> {
        words.refresh(&self.captbl, LINE_BYTES);
        Parts {
            component: self,
            // Before every other word of it: a change after this look shows in the generation.
            generation: load_coherent(&self.generation),
        }
    }

    /// Begins a change of several words. Only [`Change::end`] ends it, or the death of the node.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if a CPU of a live node is making one.
    pub fn change(&self, node: &'static Node, cpu: CpuId) -> Result<Change<'_>> {
        let claim = 1 << 63
            | (node.incarnation() as u64) << 16
            | (cpu.index() as u64) << 8
            | node.id().index() as u64;
        let now = node.words.read(&self.changer);
        if is_claimed(node, now) && !lacks!("component::change::claim")
            || !node.words.exchange(&self.changer, now, claim)
        {
            return Err(Error::Again);
        }
        Ok(Change {
            component: self,
            words: node.words,
            claim,
        })
    }
}

/// Whether a word is the claim of a CPU whose node lives, in the incarnation that made the claim.
fn is_claimed(node: &Node, word: u64) -> bool {
    let Some(claimer) = NodeId::new(word & 0xff).filter(|_| word != 0) else {
        return false;
    };
    let now = node.word_of(claimer);
    now.state.is_live() && now.incarnation == (word >> 16) as u32
}

/// A change of several words of a component, which excludes all other CPUs.
#[derive(Debug)]
#[must_use]
pub struct Change<'c> {
    component: &'c Component,
    words: &'c Words,
    claim: u64,
}

impl Change<'_> {
    /// Sets the fault handler. A concurrent fault finds the previous handler or this one.
    pub fn set_handler(&self, to: Option<Entry>) {
        let n = self.words.read(&self.component.handler);
        let next = n.wrapping_add(1);
        let record = &self.component.handlers[(next % 2) as usize];
        let (component, entry, badge) = match to {
            Some(to) => (to.component.bits(), to.address, to.badge),
            None => (0, 0, 0),
        };
        self.words.replace(&record.component, component);
        self.words.replace(&record.entry, entry);
        self.words.replace(&record.badge, badge);
        self.words.replace(&self.component.handler, next);
    }

    /// Ends the change. The CPU that makes the next change sees all words of this one.
    pub fn end(self) {
        // No other CPU takes the claim of a live node.
        self.words.exchange(&self.component.changer, self.claim, 0);
    }
}

/// The parts of a component, since [`Component::parts`]. Every word is read on demand, and is at least as new
/// as [`generation`](Parts::generation).
#[derive(Clone, Copy, Debug)]
pub struct Parts<'c> {
    component: &'c Component,
    generation: u64,
}

impl<'c> Parts<'c> {
    /// The word that counts changes, and its value before any other word was read. If the word is unchanged,
    /// all that has been read since is still valid.
    #[inline]
    pub fn generation(&self) -> (&'c AtomicU64, u64) {
        (&self.component.generation, self.generation)
    }

    /// Bit set of the nodes that the component's code may run on.
    #[inline]
    pub fn home(&self) -> u64 {
        Component::nodes(load_coherent(&self.component.home))
    }

    /// Physical address of the root of the capability table.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if the component has not been configured.
    #[inline]
    pub fn captbl_root(&self) -> Result<PhysAddr> {
        let word = load_coherent(&self.component.captbl);
        match WeakRef::from_bits(word) {
            Some(root) if word != 0 => Ok(root.frame.address()),
            _ => Err(Error::NotReady),
        }
    }

    /// The address space.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if the component has not been configured.
    #[inline]
    pub fn space(&self) -> Result<WeakRef> {
        let word = load_coherent(&self.component.space);
        match WeakRef::from_bits(word) {
            Some(space) if word != 0 => Ok(space),
            _ => Err(Error::NotReady),
        }
    }

    /// Whether the component's code may run on a node.
    #[inline]
    pub fn runs_on(&self, node: NodeId) -> bool {
        self.home() >> node.index() & 1 != 0
    }

    /// The fault handler, read from memory.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if it has changed during each of a number of attempts.
    pub fn fault_entry(&self, words: &Words) -> Result<Option<Entry>> {
        for _ in 0..READS {
            let n = words.read(&self.component.handler);
            let record = &self.component.handlers[(n % 2) as usize];
            let component = words.read(&record.component);
            let (address, badge) = (words.read(&record.entry), words.read(&record.badge));
            if words.read(&self.component.handler) == n || lacks!("component::fault_entry::again") {
                let there = component != 0 && component != NO_REFERENCE;
                let component = WeakRef::from_bits(component).filter(|_| there);
                return Ok(component.map(|component| Entry {
                    component,
                    address,
                    badge,
                }));
            }
        }
        Err(Error::Again)
    }
}
