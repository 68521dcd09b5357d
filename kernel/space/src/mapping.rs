//! The rows of the protocol that change mappings, in the table of any ISA.
//!
//! Map, map from peer and unmap are written in [`dyad_mapping`]; here they are done to what a walk has found, and `fastpath`
//! does them to an entry that a CPU has cached.
//!
//! | row | steps, in order |
//! |---|---|
//! | link | intent; pin parent; pin child, which has no other pin; child's stamp quiesced; then as map |
//! | unlink | intent; as unmap; CAS table -> Closing; fence; only the link pins it (else back); log; s = E; stamp the child; Closing -> Empty(s); unpin both; intent cleared |
//!
//! These two, and roots, are in `tables`. Every present entry pins the table it is in, so a table whose only pin is its link is empty:
//! unlinking looks at one word, not at 512 entries. *Map* looks at the link after it has pinned the
//! table, *unlink* at the pins after it has closed the link: one of them sees the other. The stamp
//! of a table that has been taken out keeps it from being linked elsewhere while CPUs may still
//! walk through it.
//!
//! A frame that a fault has taken ([`Perms::OWNED`]) goes back to untyped with its last pin. No
//! component may have a live capability for it: the capability would die.
//!
//! Every function does a constant number of steps.

mod fastpath;
mod tables;

pub use fastpath::{FastRows, resolve_fastpath};

use dyad_abi::{Error, Isa, Result};
use dyad_coherence::GlobalMem;
use dyad_mapping::{Around, NotUnmapped, Walked, row};
use dyad_pgtbl::{Leaf, Level, MapError, Memory, Perms, Pte, PteSlot, RemoteCpu};
use dyad_quiesce::DirtyEntry;
use dyad_retype::{FrameType, Order, Refs, Refused, Use};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;

pub use crate::capcache::page::FastSpace;
use crate::kernel_ctx::KernelCtx;
use crate::memory::Words;
use crate::object::space::Space;
pub use crate::object::table_kind;

/// The accessor functions for one page table.
pub type Driver = RemoteCpu<'static, Words>;

/// An address space, as an operation works on it.
#[derive(Clone, Copy)]
pub struct SpaceCtx<'c> {
    /// The context of the CPU that carries the operation out.
    pub cx: &'c KernelCtx,
    /// The space.
    pub space: &'static Space,
    /// The frame of the space.
    pub object: WeakRef,
}

/// The reasons why a page was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMapped {
    /// A page is mapped there already.
    Exists(Leaf),
    /// Anything else.
    Refused(Error),
}

impl From<NotMapped> for Error {
    fn from(why: NotMapped) -> Error {
        match why {
            NotMapped::Exists(_) => Error::Exists,
            NotMapped::Refused(e) => e,
        }
    }
}

impl From<Refused> for NotMapped {
    fn from(r: Refused) -> NotMapped {
        NotMapped::Refused(r.into())
    }
}

/// The error of an operation for which the driver has refused a change.
pub fn refusal(e: MapError) -> Error {
    match e {
        MapError::Exists(_) | MapError::Conflict(_) => Error::Exists,
        MapError::NotMapped | MapError::BadAddress => Error::BadAddress,
        MapError::Closing | MapError::NotQuiesced(_) | MapError::Contended => Error::Again,
        MapError::NoMemory => Error::NoMemory,
        MapError::Misaligned | MapError::Encode(_) => Error::BadArgument,
    }
}

/// The error for a page that was there a moment ago: if the page is gone, another CPU is changing the entry.
pub fn refusal_of_known(e: MapError) -> Error {
    match e {
        MapError::NotMapped => Error::Again,
        e => refusal(e),
    }
}

/// The number of frames that an entry of a level maps; `None` for levels without user pages.
#[inline]
pub fn span(level: Level) -> Option<Order> {
    match level {
        Level::L1 => Some(Order::FRAME),
        Level::L2 => Order::new(9),
        Level::L3 | Level::L4 => None,
    }
}

/// A user page of normal memory that has not been used yet.
#[inline]
pub const fn page(pa: PhysAddr, perms: Perms) -> Leaf {
    Leaf {
        pa,
        perms: perms.union(Perms::READ).union(Perms::USER),
        memory: Memory::Normal,
        global: false,
        accessed: false,
        dirty: false,
    }
}

impl SpaceCtx<'_> {
    /// The accessor functions for the page table of an ISA.
    ///
    /// # Errors
    ///
    /// [`Error::NoIsa`] if the space has none.
    #[inline]
    pub fn driver(&self, isa: Isa) -> Result<Driver> {
        let words = self.cx.words();
        let root = self.space.root(words, isa).ok_or(Error::NoIsa)?;
        let driver = RemoteCpu::new(words, isa, root);
        Ok(if words.is_coherent() {
            driver
        } else {
            driver.preset()
        })
    }

    /// Whether the table of a place still belongs to the space. After its pin.
    #[inline]
    pub(crate) fn is_linked(&self, d: &Driver, place: &PteSlot) -> bool {
        self.cx.words().fence();
        match place.level {
            Level::L4 => self.space.root(self.cx.words(), d.isa()) == Some(place.table()),
            _ => d.is_linked(place),
        }
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.cx.node.tables.quiesced(stamp)
    }

    fn intent(&self, row: Row, frame: WeakRef, table: WeakRef, place: PhysAddr) {
        self.cx.intents().begin(&IntentRecord {
            row,
            frame,
            table: Some(table),
            place,
        });
    }

    /// The entry at a place, and a page that is mapped or unmapped there. `head` is the block of the page,
    /// unless the page is the system's.
    #[inline]
    fn entry<'a>(
        &'a self,
        d: &'a Driver,
        place: &'a PteSlot,
        leaf: Leaf,
        head: Option<WeakRef>,
    ) -> Result<Entry<'a>> {
        let frames = self.cx.frames();
        let table = FrameRef::of(place.table()).ok_or(Error::Corrupt)?;
        Ok(Walked {
            frames,
            driver: d,
            place,
            table: frames.as_found(table)?,
            table_kind: table_kind(d.isa(), place.level),
            leaf,
            head,
            span: span(place.level).ok_or(Error::BadArgument)?,
            node: self.cx.node.id(),
            around: Surroundings {
                this: self,
                isa: d.isa(),
            },
        })
    }

    /// Row map: `leaf`, which maps some of the block that `head` heads.
    ///
    /// # Errors
    ///
    /// [`NotMapped`]. The frame has no pin of this row then; an owned one may have gone back.
    #[inline]
    pub fn map(
        &self,
        d: &Driver,
        place: &PteSlot,
        head: WeakRef,
        leaf: Leaf,
    ) -> core::result::Result<(), NotMapped> {
        let (entry, frame) = self.coming(d, place, leaf, head)?;
        row::map(&entry, &entry.intent(Row::Map, frame), self.cx)
            .map_err(|why| self.not_mapped(&entry, why))
    }

    /// The entry that a page comes to, and the frame that the intent names.
    #[inline]
    fn coming<'a>(
        &'a self,
        d: &'a Driver,
        place: &'a PteSlot,
        leaf: Leaf,
        head: WeakRef,
    ) -> core::result::Result<(Entry<'a>, WeakRef), NotMapped> {
        let bad = NotMapped::Refused(Error::BadArgument);
        let frame = FrameRef::of(leaf.pa).ok_or(bad)?;
        let entry = self.entry(d, place, leaf, Some(head)).map_err(|_| bad)?;
        Ok((entry, WeakRef { frame, ..head }))
    }

    /// Cleans up after a row that has not mapped its page: tables or frames that were unlinked or untyped
    /// while they were pinned are returned now.
    #[cold]
    fn not_mapped(&self, entry: &Entry<'_>, why: row::NotMapped) -> NotMapped {
        let again = NotMapped::Refused(Error::Again);
        let (isa, level) = (entry.driver.isa(), entry.place.level);
        let gone = |given_back: bool| {
            if given_back {
                self.table_may_be_gone(isa, level, entry.table.1.frame);
            }
        };
        let refused = match why {
            // `Reclaim` takes empty tables out: the table of the place may be something else since it was found.
            row::NotMapped::Refused(why)
                if self.is_linked(entry.driver, entry.place)
                    || lacks!("mapping::not_mapped::pruned") =>
            {
                return why.into();
            }
            row::NotMapped::Refused(_) => {
                // The table has been pinned for a moment, if only the frame is refused.
                gone(!lacks!("mapping::not_mapped::given-back"));
                return again;
            }
            row::NotMapped::Unlinked => again,
            row::NotMapped::Occupied(MapError::Exists(there)) => NotMapped::Exists(there),
            row::NotMapped::Occupied(other) => NotMapped::Refused(refusal(other)),
            row::NotMapped::Gone => again,
        };
        if why != row::NotMapped::Gone {
            gone(true);
        }
        if let Some(head) = entry.head
            && entry.leaf.perms.contains(Perms::OWNED)
        {
            self.give_back(head, Use::User);
        }
        refused
    }

    /// Puts a page of a frame that belongs to the system (the archive) where nothing is. Such frames
    /// are never retyped, so only the table is pinned.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if the frame is not of that kind, else as [`map`](SpaceCtx::map).
    pub fn map_reserved(&self, d: &Driver, place: &PteSlot, leaf: Leaf) -> Result<()> {
        let frame = FrameRef::of(leaf.pa).ok_or(Error::BadArgument)?;
        if self.cx.frames().read(frame)?.0.ty != FrameType::Reserved
            && !lacks!("mapping::map_reserved::type")
        {
            return Err(Error::Denied);
        }
        let entry = self.entry(d, place, leaf, None)?;
        let intent = entry.intent(Row::Map, self.cx.frames().current(frame)?);
        row::map(&entry, &intent, self.cx).map_err(|why| self.not_mapped(&entry, why).into())
    }

    /// Row map from peer: shows the page of `from` at `to`, an empty place of the same level or a
    /// lower one. `va` is the address of the page.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if it has changed meanwhile, else as [`map`](SpaceCtx::map).
    pub fn copy(
        &self,
        (source, from, found): (&Driver, &PteSlot, &Leaf),
        (d, to): (&Driver, &PteSlot),
        va: u64,
    ) -> core::result::Result<(), NotMapped> {
        let into = va & (from.level.size() - 1) & !(to.level.size() - 1);
        let leaf = Leaf {
            pa: found.pa.add(into),
            accessed: true,
            dirty: found.perms.contains(Perms::WRITE),
            ..*found
        };
        let frame = FrameRef::of(leaf.pa).ok_or(NotMapped::Refused(Error::Corrupt))?;
        let (head, _) = self.cx.frames().head_now(frame)?;
        let (entry, named) = self.coming(d, to, leaf, head)?;
        let still = || {
            let now = source.again(from);
            now.raw == from.raw
                || matches!(source.meaning(&now), Pte::Leaf(l) if l.same_mapping(found))
        };
        row::copy(&entry, &entry.intent(Row::Map, named), still, self.cx)
            .map_err(|why| self.not_mapped(&entry, why))
    }

    /// Row unmap. Returns the stamp.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if it is not that leaf any more.
    #[inline]
    pub fn unmap(&self, d: &Driver, place: &PteSlot, leaf: &Leaf) -> Result<Epoch> {
        let frame = FrameRef::of(leaf.pa).ok_or(Error::Corrupt)?;
        let (head, counted) = self.cx.frames().head_now(frame)?;
        let entry = self.entry(d, place, *leaf, counted.then_some(head))?;
        let intent = entry.intent(Row::Unmap, WeakRef { frame, ..head });
        let stamp = row::unmap(&entry, &intent, self.cx).map_err(|why| match why {
            NotUnmapped::Refused(why) => why.into(),
            NotUnmapped::Changed(why) => refusal_of_known(why),
            NotUnmapped::Lost => Error::NodeDead,
        })?;
        if leaf.perms.contains(Perms::OWNED) {
            self.give_back(head, Use::User);
        }
        Ok(stamp)
    }

    /// Untypes a frame that a fault has taken, if nothing pins it any more.
    pub fn give_back(&self, what: WeakRef, used: Use) {
        let frames = self.cx.frames();
        // The CPU that drops the last pin comes here after it: no frame is forgotten.
        if let Ok((word, _)) = frames.read(what.frame)
            && word.refs == Refs::ZERO
            && word.version == what.version
        {
            // Refused only if another CPU was faster, or uses it again.
            let _ = frames.to_untyped(what, used, self.cx.epochs(), &self.cx.intents(), self.cx);
        }
    }

    /// Cleans up after a row that has pinned a table and has failed. If the table was unlinked meanwhile, the
    /// CPU that unlinked it found it pinned and did not give it back, so this function does. Not for roots:
    /// only users retype those.
    #[cold]
    fn table_may_be_gone(&self, isa: Isa, level: Level, table: FrameRef) {
        if level != Level::L4
            && self.space.is_supplied(self.cx.words(), table)
            && let Ok(weak) = self.cx.frames().current(table)
        {
            self.give_back(weak, Use::Kernel(table_kind(isa, level)));
        }
    }
}

/// An entry that a walk has found.
type Entry<'a> = Walked<'a, 'static, Words, Surroundings<'a>>;

/// The context of an entry of a space.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    this: &'a SpaceCtx<'a>,
    isa: Isa,
}

impl Around for Surroundings<'_> {
    #[inline]
    fn is_root(&self, table: PhysAddr) -> bool {
        let this = self.this;
        this.space.root(this.cx.words(), self.isa) == Some(table)
    }

    #[inline]
    fn log_table(&self, table: PhysAddr) {
        self.this.cx.log(DirtyEntry::Table(table));
    }

    #[inline]
    fn log_page(&self, page: PhysAddr, level: Level) {
        self.this.cx.log(match level {
            Level::L1 => DirtyEntry::User(page),
            _ => DirtyEntry::LargeUser(page),
        });
    }
}
