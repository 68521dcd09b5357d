//! Numbers that messages carry, ranges of pages, sets of nodes.

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::{PAGE_SIZE, USER_END};

/// Number of pages of the user's half of an address space.
pub const PAGES_END: u64 = USER_END / PAGE_SIZE;

/// A virtual page: an address divided by the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(u64);

impl Page {
    /// The page with this number, if it is in the user's half of an address space.
    pub const fn new(number: u64) -> Option<Page> {
        if number < PAGES_END {
            Some(Page(number))
        } else {
            None
        }
    }

    /// The page that an address is in.
    pub const fn of(address: u64) -> Option<Page> {
        Page::new(address / PAGE_SIZE)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The address of its first byte.
    pub const fn address(self) -> u64 {
        self.0 * PAGE_SIZE
    }
}

/// Consecutive pages, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: Page,
    pages: u64,
}

impl Range {
    /// `pages` pages from `first` on. `None` if there are none, or if they run over the end of the user's half.
    pub const fn new(first: Page, pages: u64) -> Option<Range> {
        if pages == 0 || pages > PAGES_END - first.0 {
            return None;
        }
        Some(Range { first, pages })
    }

    /// One page.
    pub const fn one(page: Page) -> Range {
        Range {
            first: page,
            pages: 1,
        }
    }

    /// The first page.
    pub const fn first(self) -> Page {
        self.first
    }

    /// How many pages.
    pub const fn pages(self) -> u64 {
        self.pages
    }

    /// Whether a page is among them.
    pub const fn contains(self, page: Page) -> bool {
        page.0 >= self.first.0 && page.0 - self.first.0 < self.pages
    }

    /// Whether the two ranges have a page in common.
    pub const fn overlaps(self, other: Range) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }
}

/// How often a node has joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u16);

/// Number of a request of one node. A later request has a larger number; the first one is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Number of a transaction of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txn(pub u64);

/// Fused time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time `ns` nanoseconds later.
    #[must_use]
    pub const fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

/// Threads of a program on one node.
pub const MAX_THREADS: usize = 64;

/// A thread of the program on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadNo(u8);

impl ThreadNo {
    /// The thread with this number, if it is below [`MAX_THREADS`].
    pub const fn new(n: u8) -> Option<ThreadNo> {
        if (n as usize) < MAX_THREADS {
            Some(ThreadNo(n))
        } else {
            None
        }
    }

    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// A set with this thread only.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// What a thread wants to do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
}

/// What a node may do with a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Nothing (state I).
    #[default]
    None,
    /// Loads (state S).
    Read,
    /// Loads and stores (state X).
    Write,
}

impl Right {
    /// Whether an access needs no more than this.
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => !matches!(self, Right::None),
            Access::Write => matches!(self, Right::Write),
        }
    }
}

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u8);

const _: () = assert!(MAX_NODES <= 8);

impl NodeSet {
    /// No node.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// The nodes with the lowest numbers: so many.
    pub const fn first(count: usize) -> NodeSet {
        NodeSet(((1u16 << count) - 1) as u8)
    }

    /// One node.
    pub const fn one(node: NodeId) -> NodeSet {
        NodeSet(1 << node.index())
    }

    /// Whether a node is in it.
    pub const fn has(self, node: NodeId) -> bool {
        self.0 & 1 << node.index() != 0
    }

    /// The set and this node.
    #[must_use]
    pub const fn with(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 | 1 << node.index())
    }

    /// The set without this node.
    #[must_use]
    pub const fn without(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 & !(1 << node.index()))
    }

    /// Whether it has no node.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes, the lowest first.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        NodeId::first(MAX_NODES).filter(move |&n| self.has(n))
    }

    /// The preferred node if it is in the set, else the lowest.
    pub fn prefer(self, node: NodeId) -> Option<NodeId> {
        match self.has(node) {
            true => Some(node),
            false => self.iter().next(),
        }
    }
}
