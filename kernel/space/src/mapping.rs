//! The rows of the protocol that change mappings, in the table of any ISA.
//!
//! | row | steps, in order |
//! |---|---|
//! | map | intent; pin table; pin frame; fence, table still linked; quiesced(s); CAS Empty(s) -> leaf; log the table; intent cleared |
//! | map from peer | map, with the frame's current version; fence; look at the source again; if it has changed, unmap; only then intent cleared |
//! | unmap | intent; fence, neither frame nor table is being recovered; CAS leaf -> Closing; log frame and table; fence, s = E; Closing -> Empty(s); unpin both; intent cleared |
//! | link | intent; pin parent; pin child, which has no other pin; child's stamp quiesced; then as map |
//! | unlink | intent; as unmap; CAS table -> Closing; fence; only the link pins it (else back); log; s = E; stamp the child; Closing -> Empty(s); unpin both; intent cleared |
//!
//! The last two, and roots, are in `tables`. Every present entry pins the table it is in, so a table whose only pin is its link is empty:
//! unlinking looks at one word, not at 512 entries. *Map* looks at the link after it has pinned the
//! table, *unlink* at the pins after it has closed the link: one of them sees the other. The stamp
//! of a table that has been taken out keeps it from being linked elsewhere while CPUs may still
//! walk through it.
//!
//! A frame that a fault has taken ([`Perms::OWNED`]) goes back to untyped with its last pin. Nobody
//! else may have a capability for it that lives: it would die.
//!
//! Every function does a constant number of steps.

mod quick;
mod tables;

pub use quick::{QuickRows, resolve_quickly};

use dyad_abi::{Error, Isa, Result};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Leaf, Level, MapError, Memory, Perms, Place, Pte, RemoteCpu};
use dyad_quiesce::Touched;
use dyad_retype::{FrameType, Order, Placing, Refs, Refused, Use};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;

use crate::cx::Cx;
use crate::memory::Words;
use crate::object::space::Space;
pub use crate::object::table_kind;
pub use crate::view::page::Near;

/// The accessor functions for one page table.
pub type Driver = RemoteCpu<'static, Words>;

/// An address space, as an operation works on it.
#[derive(Clone, Copy)]
pub struct In<'c> {
    /// The CPU that does.
    pub cx: &'c Cx,
    /// The space.
    pub space: &'static Space,
    /// Its frame.
    pub object: WeakRef,
}

/// Why a page was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMapped {
    /// There is this page already.
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

/// What a refusal of a driver means to whoever asked for the operation.
pub fn refusal(e: MapError) -> Error {
    match e {
        MapError::Exists(_) | MapError::Conflict(_) => Error::Exists,
        MapError::NotMapped | MapError::BadAddress => Error::BadAddress,
        MapError::Closing | MapError::NotQuiesced(_) | MapError::Contended => Error::Again,
        MapError::NoMemory => Error::NoMemory,
        MapError::Misaligned | MapError::Encode(_) => Error::BadArgument,
    }
}

/// The same, of a page that was there a moment ago: if it is not any more, somebody else changes it.
pub fn refusal_of_known(e: MapError) -> Error {
    match e {
        MapError::NotMapped => Error::Again,
        e => refusal(e),
    }
}

/// How many frames an entry of a level maps; `None` for levels that user pages do not have.
#[inline]
pub fn span(level: Level) -> Option<Order> {
    match level {
        Level::L1 => Some(Order::FRAME),
        Level::L2 => Order::new(9),
        Level::L3 | Level::L4 => None,
    }
}

/// A user page of normal memory that nobody has used yet.
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

impl In<'_> {
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
    pub(crate) fn is_linked(&self, d: &Driver, place: &Place) -> bool {
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

    /// Row map: `leaf`, which maps some of the block that `head` heads.
    ///
    /// # Errors
    ///
    /// [`NotMapped`]. The frame has no pin of this row then; an owned one may have gone back.
    #[inline]
    pub fn map(
        &self,
        d: &Driver,
        place: &Place,
        head: WeakRef,
        leaf: Leaf,
    ) -> core::result::Result<(), NotMapped> {
        self.begin_map(d, place, head, leaf)?;
        self.cx.intents().clear();
        Ok(())
    }

    /// [`map`](In::map), but the intent stays if it succeeds.
    #[inline]
    fn begin_map(
        &self,
        d: &Driver,
        place: &Place,
        head: WeakRef,
        leaf: Leaf,
    ) -> core::result::Result<(), NotMapped> {
        let bad = NotMapped::Refused(Error::BadArgument);
        let frames = self.cx.frames();
        let intents = self.cx.intents();
        let (table, frame) = (FrameRef::of(place.table()), FrameRef::of(leaf.pa));
        let placing = Placing {
            table: table.ok_or(bad)?,
            table_kind: table_kind(d.isa(), place.level),
            head,
            frame: frame.ok_or(bad)?,
            span: span(place.level).ok_or(bad)?,
            entry: place.entry,
        };
        if let Err(why) = frames.map_pins_at(&placing, &intents) {
            // `Reclaim` takes empty tables out: the table of the place may be something else since it was found.
            if self.is_linked(d, place) || lacks!("mapping::begin_map::pruned") {
                return Err(why.into());
            }
            // It has been pinned for a moment, if only the frame is refused.
            if !lacks!("mapping::begin_map::given-back") {
                self.table_may_be_gone(d.isa(), place.level, placing.table);
            }
            return Err(NotMapped::Refused(Error::Again));
        }
        let done = if self.is_linked(d, place) || lacks!("mapping::begin_map::linked") {
            d.fill(place, Pte::Leaf(leaf), |s| self.quiesced(s))
        } else {
            Err(MapError::Contended)
        };
        let Err(why) = done else {
            self.cx.log(Touched::Table(place.table()));
            return Ok(());
        };
        frames.unmap_unpin_at(head.frame, placing.table, &intents)?;
        self.table_may_be_gone(d.isa(), place.level, placing.table);
        if leaf.perms.contains(Perms::OWNED) {
            self.give_back(head, Use::User);
        }
        Err(match why {
            MapError::Exists(there) => NotMapped::Exists(there),
            other => NotMapped::Refused(refusal(other)),
        })
    }

    /// Puts a page of a frame that belongs to the system (the archive) where nothing is. Such frames
    /// are never retyped, so only the table is pinned.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if the frame is not of that kind, else as [`map`](In::map).
    pub fn map_reserved(&self, d: &Driver, place: &Place, leaf: Leaf) -> Result<()> {
        let frame = FrameRef::of(leaf.pa).ok_or(Error::BadArgument)?;
        if self.cx.frames().read(frame)?.0.ty != FrameType::Reserved
            && !lacks!("mapping::map_reserved::type")
        {
            return Err(Error::Denied);
        }
        let table = FrameRef::of(place.table()).ok_or(Error::Corrupt)?;
        let table = self.cx.frames().current(table)?;
        self.intent(
            Row::Map,
            self.cx.frames().current(frame)?,
            table,
            place.entry,
        );
        let done = self
            .cx
            .frames()
            .pin_kernel(table, table_kind(d.isa(), place.level))
            .map_err(Error::from)
            .and_then(|()| {
                let filled = d.fill(place, Pte::Leaf(leaf), |s| self.quiesced(s));
                filled.map_err(|e| {
                    let _ = self.cx.frames().unpin(table.frame);
                    self.table_may_be_gone(d.isa(), place.level, table.frame);
                    refusal(e)
                })
            });
        self.cx.log(Touched::Table(place.table()));
        self.cx.intents().clear();
        done
    }

    /// Row map from peer: shows the page of `from` at `to`, an empty place of the same level or a
    /// lower one. `va` is the address of the page.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if it has changed meanwhile, else as [`map`](In::map).
    pub fn copy(
        &self,
        (source, from, found): (&Driver, &Place, &Leaf),
        (d, to): (&Driver, &Place),
        va: u64,
    ) -> core::result::Result<(), NotMapped> {
        let again = NotMapped::Refused(Error::Again);
        let into = va & (from.level.size() - 1) & !(to.level.size() - 1);
        let leaf = Leaf {
            pa: found.pa.add(into),
            accessed: true,
            dirty: found.perms.contains(Perms::WRITE),
            ..*found
        };
        let frame = FrameRef::of(leaf.pa).ok_or(NotMapped::Refused(Error::Corrupt))?;
        let (head, _) = self.cx.frames().head_now(frame)?;
        // Until the second look, whoever recovers this node must know of the entry.
        self.begin_map(d, to, head, leaf)?;
        self.cx.words().fence();
        let now = source.again(from);
        let same = lacks!("mapping::copy::second-look")
            || now.raw == from.raw
            || matches!(source.meaning(&now), Pte::Leaf(l) if l.same_mapping(found));
        if same {
            self.cx.intents().clear();
            return Ok(());
        }
        // Its owner has unmapped it, and may have looked here before it was there.
        let here = d.again(to);
        if let Pte::Leaf(mine) = d.meaning(&here)
            && mine.same_mapping(&leaf)
        {
            // Part of this row: not refused if a recovery has begun meanwhile.
            let _ = self.take_out(d, &here, &mine, head, true);
        } else {
            self.cx.intents().clear();
        }
        Err(again)
    }

    /// Row unmap. Returns the stamp.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if it is not that leaf any more.
    #[inline]
    pub fn unmap(&self, d: &Driver, place: &Place, leaf: &Leaf) -> Result<Epoch> {
        let frames = self.cx.frames();
        let table = FrameRef::of(place.table()).ok_or(Error::Corrupt)?;
        let frame = FrameRef::of(leaf.pa).ok_or(Error::Corrupt)?;
        let (head, counted) = frames.head_now(frame)?;
        let (pinned, _) = frames.head_now(table)?;
        self.intent(Row::Unmap, WeakRef { frame, ..head }, pinned, place.entry);
        if let Err(why) = frames.may_unpin(head.frame, table)
            && !lacks!("mapping::unmap::frozen")
        {
            self.cx.intents().clear();
            return Err(why.into());
        }
        self.take_out(d, place, leaf, head, counted)
    }

    /// The rest of [`unmap`](In::unmap), after its intent.
    #[inline]
    fn take_out(
        &self,
        d: &Driver,
        place: &Place,
        leaf: &Leaf,
        head: WeakRef,
        counted: bool,
    ) -> Result<Epoch> {
        let frames = self.cx.frames();
        let node = self.cx.node.id();
        let table = FrameRef::of(place.table()).ok_or(Error::Corrupt)?;
        let gone = match d.close(place, leaf, node) {
            Ok(gone) => gone,
            Err(e) => {
                self.cx.intents().clear();
                return Err(refusal_of_known(e));
            }
        };
        if !lacks!("mapping::take_out::log") {
            self.log_user(gone.pa, place.level);
            self.cx.log(Touched::Table(place.table()));
        }
        let stamp = if lacks!("mapping::take_out::stamp") {
            Epoch::ZERO
        } else {
            self.cx.epochs().now()
        };
        // Only a node that thinks this one dead has changed it meanwhile; it counts pins anew.
        d.empty(place, node, stamp).map_err(|_| Error::NodeDead)?;
        if counted {
            frames.unmap_unpin_at(head.frame, table, &self.cx.intents())?;
        } else {
            // A frame of the system: only the table has been pinned.
            frames.unpin(table)?;
            self.cx.intents().clear();
        }
        if leaf.perms.contains(Perms::OWNED) {
            self.give_back(head, Use::User);
        }
        Ok(stamp)
    }

    /// Frames of a page that has been unmapped: before the stamp, and before the pin goes.
    fn log_user(&self, pa: PhysAddr, level: Level) {
        self.cx.log(match level {
            Level::L1 => Touched::User(pa),
            _ => Touched::LargeUser(pa),
        });
    }

    /// What a fault has taken becomes untyped if nothing pins it any more.
    pub fn give_back(&self, what: WeakRef, used: Use) {
        let frames = self.cx.frames();
        // Whoever drops the last pin comes here after it: no frame is forgotten.
        if let Ok((word, _)) = frames.read(what.frame)
            && word.refs == Refs::ZERO
            && word.version == what.version
        {
            // Refused only if somebody else was faster, or uses it again.
            let _ = frames.to_untyped(what, used, self.cx.epochs(), &self.cx.intents(), self.cx);
        }
    }

    /// After a row that has pinned a table and comes to nothing: if the table has been taken out
    /// meanwhile, whoever took it out has found it pinned, and has not given it back. Not for roots,
    /// which nobody but users takes and gives back.
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
