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

use core::ops::Range;

use dyad_abi::cap::ROOT_ENTRIES;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_captbl::RootEntry;
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Pte};
use dyad_retype::{KernelKind, Refs};
use dyad_shm::frame::WeakRef;
use dyad_shm::{FrameRef, PhysAddr};

use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::component::Component;
use dyad_object::kinds::{self, CAPTBL_LEAF, CAPTBL_ROOT, Holds, table_kind};
use dyad_object::space::{CLOSING, Space};

/// Entries of a page table.
const ENTRIES: usize = (PAGE_SIZE / 8) as usize;
/// Entries of a root that belong to users.
const USER_ENTRIES: usize = ENTRIES / 2;

/// The kinds of what a component refers to.
const COMPONENT_PARTS: [KernelKind; 2] = [CAPTBL_ROOT, Space::KIND];

/// A word in an object that is, or may be, a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A reference to the block around this frame, which is this.
    To(FrameRef, Wanted),
    /// The reference is also one to the object that it is in.
    Own,
    /// The entry is being changed by this node, or by a node that the entry does not name (`None`).
    Changing(Option<NodeId>),
    /// The word of an entry has a value that nothing writes.
    Odd(u64),
}

/// What a reference must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A page of user memory, or one of the system's.
    Page,
    /// An object.
    Object(KernelKind),
    /// An object in this version.
    Version(WeakRef, KernelKind),
}

/// The references that objects of a kind hold; none if the frame table names no such object.
fn held(kind: KernelKind) -> Holds {
    kinds::named(kind).map_or(Holds::Nothing, |k| k.holds)
}

/// ISA and level of a page table.
pub fn table_of(kind: KernelKind) -> Option<(Isa, Level)> {
    match held(kind) {
        Holds::Pages(isa, level) => Some((isa, level)),
        _ => None,
    }
}

/// Whether objects of a kind hold references.
pub fn refers(kind: KernelKind) -> bool {
    held(kind) != Holds::Nothing
}

/// Entries of an object of a kind that may be references: 512 at most, 0 if it holds none.
pub fn entries(kind: KernelKind) -> usize {
    match held(kind) {
        Holds::Nothing => 0,
        Holds::Pages(_, Level::L4) => USER_ENTRIES,
        Holds::Pages(..) => ENTRIES,
        Holds::Leaves => ROOT_ENTRIES as usize,
        Holds::Roots => Isa::ALL.len(),
        Holds::Parts => COMPONENT_PARTS.len(),
    }
}

/// Calls `each` for every reference that an object holds: at most 1024 times.
pub fn references(
    cx: &KernelCtx,
    object: FrameRef,
    kind: KernelKind,
    each: &mut impl FnMut(Reference),
) {
    let all = 0..entries(kind);
    references_in(cx, object, kind, all, &mut |_, r| each(r));
}

/// Calls `each` for the references in some of the [`entries`] of an object, with the number of the entry.
pub fn references_in(
    cx: &KernelCtx,
    object: FrameRef,
    kind: KernelKind,
    some: Range<usize>,
    each: &mut impl FnMut(usize, Reference),
) {
    let at = object.address();
    match held(kind) {
        Holds::Nothing => {}
        Holds::Pages(isa, level) => {
            for i in some {
                let raw = fresh(cx, at.add(i as u64 * 8));
                if raw != 0 {
                    let pte = dyad_pgtbl::decode(isa, raw, level);
                    entry(pte, (isa, level), &mut |r| each(i, r));
                }
            }
        }
        Holds::Leaves => {
            for i in some {
                match cx.captbls().entry(at, i as u32) {
                    Ok(RootEntry::Empty(_)) => {}
                    Ok(RootEntry::Present(leaf)) => {
                        each(i, Reference::To(leaf, Wanted::Object(CAPTBL_LEAF)));
                        each(i, Reference::Own);
                    }
                    Ok(RootEntry::Closing(owner)) => each(i, Reference::Changing(Some(owner.node))),
                    Err(_) => each(i, Reference::Odd(fresh(cx, at.add(i as u64 * 8)))),
                }
            }
        }
        Holds::Roots => {
            let Some(space) = cx.node.map.get::<Space>(at) else {
                return;
            };
            for (i, isa) in Isa::ALL.into_iter().enumerate() {
                match cx.words().read(&space.roots[isa.index()]) {
                    _ if !some.contains(&i) => {}
                    0 => {}
                    CLOSING => each(i, Reference::Changing(None)),
                    word => {
                        each(i, weak(word, table_kind(isa, Level::L4)));
                        each(i, Reference::Own);
                    }
                }
            }
        }
        Holds::Parts => {
            let Some(component) = cx.node.map.get::<Component>(at) else {
                return;
            };
            let parts = [&component.captbl, &component.space];
            for (i, (part, kind)) in parts.into_iter().zip(COMPONENT_PARTS).enumerate() {
                match cx.words().read(part) {
                    _ if !some.contains(&i) => {}
                    0 => {}
                    word => {
                        each(i, weak(word, kind));
                        each(i, Reference::Own);
                    }
                }
            }
        }
    }
}

fn fresh(cx: &KernelCtx, at: PhysAddr) -> u64 {
    cx.words()
        .load_fresh(at, core::sync::atomic::Ordering::Acquire)
}

fn weak(word: u64, kind: KernelKind) -> Reference {
    match WeakRef::from_bits(word) {
        Some(to) => Reference::To(to.frame, Wanted::Version(to, kind)),
        None => Reference::Odd(word),
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
    /// Head of the block.
    pub head: FrameRef,
    /// Size of the block in frames.
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
    /// A tally of no blocks.
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

    /// Counts `n` references to the block around `frame`, if the list has that block.
    pub fn count(&mut self, frame: FrameRef, n: u32) {
        let at = self.list[..self.len].partition_point(|c| c.head <= frame);
        if let Some(c) = at.checked_sub(1).and_then(|at| self.list.get_mut(at))
            && ((frame.bits() - c.head.bits()) as u64) < c.frames
        {
            c.found = c.found.saturating_add(n);
        }
    }

    /// Counts the references in some of the [`entries`] of an object.
    ///
    /// # Errors
    ///
    /// The first entry in which a change is under way that `wait` wants to wait for. The entries before it
    /// have been counted, it and those behind it have not.
    pub fn count_in(
        &mut self,
        cx: &KernelCtx,
        (object, kind): (FrameRef, KernelKind),
        some: Range<usize>,
        wait: impl Fn(Option<NodeId>) -> bool,
    ) -> Result<(), usize> {
        let mut changing = None;
        let mut own = 0;
        references_in(cx, object, kind, some, &mut |i, r| match r {
            _ if changing.is_some() => {}
            Reference::To(frame, _) => self.count(frame, 1),
            Reference::Own => own += 1,
            Reference::Changing(who) if wait(who) => changing = Some(i),
            Reference::Changing(_) | Reference::Odd(_) => {}
        });
        self.count(object, own);
        changing.map_or(Ok(()), Err)
    }

    /// Counts the references that an object holds, without waiting for anything.
    pub fn count_all(&mut self, cx: &KernelCtx, object: FrameRef, kind: KernelKind) {
        // It waits for nothing, so it does not fail.
        let _ = self.count_in(cx, (object, kind), 0..entries(kind), |_| false);
    }
}
