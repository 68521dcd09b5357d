//! References: what the frame table counts, as the objects themselves have it.
//!
//! | in | entry | is a reference to |
//! |---|---|---|
//! | page table of either ISA, user half | page, table | the block mapped (unless RESERVED), or the table linked; and the table it is in |
//! | root of a capability table | leaf | the leaf, and the root |
//! | address space | root of an ISA | the root, and the space |
//! | component | capability table, space | those, and the component |
//!
//! [`Tally`] counts references to a few blocks; a full walk over all objects that hold references
//! gives their numbers.

use dyad_abi::cap::ROOT_ENTRIES;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_captbl::RootEntry;
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Pte};
use dyad_retype::{KernelKind, Refs};
use dyad_shm::frame::WeakRef;
use dyad_shm::{FrameRef, PhysAddr};

use dyad_machine::cx::Cx;
use dyad_object::component::Component;
use dyad_object::space::{CLOSING, Space};
use dyad_object::table_kind;

/// Entries of a page table.
const ENTRIES: usize = (PAGE_SIZE / 8) as usize;
/// Entries of a root that belong to users.
const USER_ENTRIES: usize = ENTRIES / 2;

/// The kind of a capability table's root.
pub const CAPTBL_ROOT: KernelKind = match KernelKind::captbl(1) {
    Some(k) => k,
    None => unreachable!(),
};
/// The kind of its leaves.
pub const CAPTBL_LEAF: KernelKind = match KernelKind::captbl(0) {
    Some(k) => k,
    None => unreachable!(),
};

/// Something in an object that is, or may be, a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A reference to the block around this frame, which is this.
    To(FrameRef, Wanted),
    /// It also is one to the object it is in.
    Own,
    /// Somebody is changing this entry: this node, or `None` if it does not say who.
    Changing(Option<NodeId>),
    /// The word of an entry that nobody writes.
    Odd(u64),
}

/// What a reference is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A page of user memory, or one of the system's.
    Page,
    /// An object.
    Object(KernelKind),
    /// An object in this version.
    Version(WeakRef, KernelKind),
}

/// ISA and level of a page table.
pub fn table_of(kind: KernelKind) -> Option<(Isa, Level)> {
    Isa::ALL
        .into_iter()
        .flat_map(|isa| Level::ALL.into_iter().map(move |level| (isa, level)))
        .find(|&(isa, level)| table_kind(isa, level) == kind)
}

/// Whether objects of a kind hold references.
pub fn refers(kind: KernelKind) -> bool {
    kind == CAPTBL_ROOT
        || kind == Space::KIND
        || kind == Component::KIND
        || table_of(kind).is_some()
}

/// Calls `each` for every reference that an object holds: at most 1024 times.
pub fn references(cx: &Cx, object: FrameRef, kind: KernelKind, each: &mut impl FnMut(Reference)) {
    let at = object.address();
    if let Some((isa, level)) = table_of(kind) {
        let entries = match level {
            Level::L4 => USER_ENTRIES,
            _ => ENTRIES,
        };
        for i in 0..entries {
            let raw = fresh(cx, at.add(i as u64 * 8));
            if raw != 0 {
                entry(dyad_pgtbl::decode(isa, raw, level), (isa, level), each);
            }
        }
    } else if kind == CAPTBL_ROOT {
        for i in 0..ROOT_ENTRIES {
            match cx.captbls().entry(at, i) {
                Ok(RootEntry::Empty(_)) => {}
                Ok(RootEntry::Present(leaf)) => {
                    each(Reference::To(leaf, Wanted::Object(CAPTBL_LEAF)));
                    each(Reference::Own);
                }
                Ok(RootEntry::Closing(owner)) => each(Reference::Changing(Some(owner.node))),
                Err(_) => each(Reference::Odd(fresh(cx, at.add(i as u64 * 8)))),
            }
        }
    } else if kind == Space::KIND {
        let Some(space) = cx.node.map.get::<Space>(at) else {
            return;
        };
        for isa in Isa::ALL {
            match cx.words().read(&space.roots[isa.index()]) {
                0 => {}
                CLOSING => each(Reference::Changing(None)),
                word => {
                    weak(word, table_kind(isa, Level::L4), each);
                    each(Reference::Own);
                }
            }
        }
    } else if kind == Component::KIND {
        let Some(component) = cx.node.map.get::<Component>(at) else {
            return;
        };
        let parts = [
            (&component.captbl, CAPTBL_ROOT),
            (&component.space, Space::KIND),
        ];
        for (part, kind) in parts {
            match cx.words().read(part) {
                0 => {}
                word => {
                    weak(word, kind, each);
                    each(Reference::Own);
                }
            }
        }
    }
}

fn fresh(cx: &Cx, at: PhysAddr) -> u64 {
    cx.words()
        .load_fresh(at, core::sync::atomic::Ordering::Acquire)
}

fn weak(word: u64, kind: KernelKind, each: &mut impl FnMut(Reference)) {
    match WeakRef::from_bits(word) {
        Some(to) => each(Reference::To(to.frame, Wanted::Version(to, kind))),
        None => each(Reference::Odd(word)),
    }
}

fn entry(pte: Pte, (isa, level): (Isa, Level), each: &mut impl FnMut(Reference)) {
    let (to, wanted) = match pte {
        Pte::Empty { .. } => return,
        Pte::Closing { node } => return each(Reference::Changing(Some(node))),
        Pte::Other(raw) => return each(Reference::Odd(raw)),
        Pte::Leaf(leaf) => (leaf.pa, Wanted::Page),
        Pte::Parked { pa, .. } => (pa, Wanted::Page),
        Pte::Table(table) => {
            // No table is decoded at the lowest level.
            let below = level.below().unwrap_or(level);
            (table, Wanted::Object(table_kind(isa, below)))
        }
    };
    match FrameRef::of(to) {
        Some(frame) => each(Reference::To(frame, wanted)),
        None => each(Reference::Odd(to.0)),
    }
    each(Reference::Own);
}

/// A block whose references are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its head.
    pub head: FrameRef,
    /// Its size.
    pub frames: u64,
    /// References that its record had when counting began.
    pub before: Refs,
    /// References found so far.
    pub found: u32,
}

/// A few blocks whose references are counted, by their heads.
#[derive(Clone, Copy, Debug)]
pub struct Tally<const N: usize> {
    list: [Counted; N],
    len: usize,
}

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        Tally::new()
    }
}

impl<const N: usize> Tally<N> {
    /// Of no block.
    pub const fn new() -> Tally<N> {
        let Some(head) = FrameRef::from_bits(0) else {
            unreachable!()
        };
        Tally {
            list: [Counted {
                head,
                frames: 0,
                before: Refs::ZERO,
                found: 0,
            }; N],
            len: 0,
        }
    }

    /// Counts this block, too. `false`: there is no room.
    pub fn add(&mut self, head: FrameRef, frames: u64) -> bool {
        let at = self.list[..self.len].partition_point(|c| c.head < head);
        if at < self.len && self.list[at].head == head {
            return true;
        }
        if self.len == N {
            return false;
        }
        self.list.copy_within(at..self.len, at + 1);
        self.list[at] = Counted {
            head,
            frames,
            before: Refs::ZERO,
            found: 0,
        };
        self.len += 1;
        true
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Counted] {
        &self.list[..self.len]
    }

    /// The blocks, to be changed.
    pub fn blocks_mut(&mut self) -> &mut [Counted] {
        &mut self.list[..self.len]
    }

    /// Whether there is room for more.
    pub const fn is_full(&self) -> bool {
        self.len == N
    }

    /// Counts one reference to the block around `frame`, if that is one of these.
    pub fn count(&mut self, frame: FrameRef) {
        let at = self.list[..self.len].partition_point(|c| c.head <= frame);
        if let Some(c) = at.checked_sub(1).and_then(|at| self.list.get_mut(at))
            && ((frame.bits() - c.head.bits()) as u64) < c.frames
        {
            c.found = c.found.saturating_add(1);
        }
    }

    /// Counts the references that an object holds. `false`: `wait` wants to wait for a change that
    /// is under way, and nothing has been counted.
    pub fn count_in(
        &mut self,
        cx: &Cx,
        object: FrameRef,
        kind: KernelKind,
        wait: impl Fn(Option<NodeId>) -> bool,
    ) -> bool {
        let before = *self;
        let mut changing = false;
        self.count_each(cx, object, kind, |who| changing |= wait(who));
        if changing {
            *self = before;
        }
        !changing
    }

    /// The same without waiting for anything.
    pub fn count_all(&mut self, cx: &Cx, object: FrameRef, kind: KernelKind) {
        self.count_each(cx, object, kind, |_| ());
    }

    fn count_each(
        &mut self,
        cx: &Cx,
        object: FrameRef,
        kind: KernelKind,
        mut changing: impl FnMut(Option<NodeId>),
    ) {
        references(cx, object, kind, &mut |r| match r {
            Reference::To(frame, _) => self.count(frame),
            Reference::Own => self.count(object),
            Reference::Changing(who) => changing(who),
            Reference::Odd(_) => {}
        });
    }
}
