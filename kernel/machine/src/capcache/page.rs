//! Page tables, blocks and regions that this CPU has cached, so that changing one more page near the last
//! ones is fast. Coherent caches only.
//!
//! | entry | covers | checked before each use | also relies on |
//! |---|---|---|---|
//! | table | the tables of level 1 of a space | the entry above | see below |
//! | block | blocks of user memory | version, type and order of the head | nothing |
//! | region | the action of faults at an address | the space's count of changes | nothing |
//!
//! The entry above a table proves that it is linked: a table with a present entry cannot be unlinked, so all
//! tables above are linked too, the root among them, and a root pins its space. A closed entry is filled
//! again only after a round, in which every CPU empties its cache ([`crate::capcache::CapCache::forget`]), so
//! an unchanged entry has been valid all the time. While the table is linked its frame is pinned, and keeps
//! version and kind; a freeze shows when it is pinned once more. For the same reason, an entry that leads
//! nowhere does so as long as it has not changed.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use dyad_abi::Isa;
use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_mapping::{Known, Pinned, Plain};
use dyad_pgtbl::{Level, plain};
use dyad_retype::Refs;
use dyad_retype::row::is_but_for_references;
use dyad_retype::word::{kernel_pinned, user_order};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameEntry, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::{EpochSource, Intents};

use crate::cpu::CpuLocal;
use crate::kernel_ctx::KernelCtx;
use crate::memory::{CoherentWord, CoherentWords, load_coherent};
use crate::node::node;
use crate::object::space::Space;
use crate::object::{find, table_kind};

use super::services;

/// Cached tables; the tables of the two ISAs for one address have different entries.
const TABLES: usize = 32;
const BLOCKS: usize = 16;
const REGIONS: usize = 16;
/// The shift of the range that one table of level 1 covers; it also selects the entry of a block.
const COVER: u32 = 21;

type Entries = [AtomicU64; 512];
type Line = [AtomicU64; 8];

static NOTHING: AtomicU64 = AtomicU64::new(0);
static NO_LINE: Line = [const { AtomicU64::new(0) }; 8];

/// A cache entry for a table, with what a row needs besides, so that one lookup finds both.
#[repr(align(128))]
struct CachedTable {
    /// The space: a weak reference; 0 means empty.
    space: Cell<u64>,
    key: Cell<u64>,
    link: Cell<&'static AtomicU64>,
    link_value: Cell<u64>,
    frame: Cell<&'static AtomicU64>,
    /// The word without references.
    frame_value: Cell<u64>,
    /// The table: a weak reference.
    table: Cell<u64>,
    at: Cell<PhysAddr>,
    /// `None` means that there is no table; `link` is then the entry where the walk ended.
    entries: Cell<Option<(CoherentWords, &'static Entries)>>,
    /// This CPU's intents.
    intent: Cell<&'static Line>,
    /// The shared epoch.
    epoch: Cell<&'static AtomicU64>,
    /// The word that this node stores in an entry that it closes.
    closing: Cell<u64>,
}

struct CachedBlock {
    first: Cell<u64>,
    /// Bytes; 0 means empty.
    len: Cell<u64>,
    word: Cell<&'static AtomicU64>,
    /// The word without references.
    value: Cell<u64>,
    /// The head: a weak reference.
    head: Cell<u64>,
}

struct CachedRegion {
    /// The space: a weak reference; 0 means empty.
    space: Cell<u64>,
    start: Cell<u64>,
    len: Cell<u64>,
    changes: Cell<u64>,
    place: Cell<Option<(CoherentWords, &'static Space)>>,
    kind: Cell<Option<RegionKind>>,
}

/// The page tables, blocks and regions that one CPU has cached.
pub struct PageCache {
    tables: [CachedTable; TABLES],
    blocks: [CachedBlock; BLOCKS],
    regions: [CachedRegion; REGIONS],
    /// The newest stamp that is known to be quiesced; all earlier stamps are quiesced too.
    quiet: Cell<Epoch>,
}

impl PageCache {
    pub(super) const fn new() -> PageCache {
        PageCache {
            tables: [const {
                CachedTable {
                    space: Cell::new(0),
                    key: Cell::new(0),
                    link: Cell::new(&NOTHING),
                    link_value: Cell::new(0),
                    frame: Cell::new(&NOTHING),
                    frame_value: Cell::new(0),
                    table: Cell::new(0),
                    at: Cell::new(PhysAddr(0)),
                    entries: Cell::new(None),
                    intent: Cell::new(&NO_LINE),
                    epoch: Cell::new(&NOTHING),
                    closing: Cell::new(0),
                }
            }; TABLES],
            blocks: [const {
                CachedBlock {
                    first: Cell::new(0),
                    len: Cell::new(0),
                    word: Cell::new(&NOTHING),
                    value: Cell::new(0),
                    head: Cell::new(0),
                }
            }; BLOCKS],
            regions: [const {
                CachedRegion {
                    space: Cell::new(0),
                    start: Cell::new(0),
                    len: Cell::new(0),
                    changes: Cell::new(0),
                    place: Cell::new(None),
                    kind: Cell::new(None),
                }
            }; REGIONS],
            quiet: Cell::new(Epoch::ZERO),
        }
    }

    /// How many tables, blocks and regions are cached.
    #[cfg(any(test, feature = "host"))]
    pub(super) fn cached(&self) -> [usize; 3] {
        let tables = self.tables.iter().filter(|t| t.space.get() != 0);
        let blocks = self.blocks.iter().filter(|b| b.len.get() != 0);
        let regions = self.regions.iter().filter(|r| r.space.get() != 0);
        [tables.count(), blocks.count(), regions.count()]
    }

    /// Forgets tables, blocks and regions.
    pub(super) fn forget(&self) {
        for t in &self.tables {
            t.space.set(0);
        }
        for b in &self.blocks {
            b.len.set(0);
        }
        for r in &self.regions {
            r.space.set(0);
        }
    }
}

/// The entry of a 4 KiB page in a cached table. It is valid until another page is looked up.
#[derive(Clone, Copy)]
pub struct CachedPte {
    cached: &'static CachedTable,
    /// Tables are cached only where caches are coherent.
    pub words: CoherentWords,
    /// The ISA of the table.
    pub isa: Isa,
    /// The entry.
    pub entry: &'static AtomicU64,
    index: usize,
}

impl CachedPte {
    /// The entry with a page: `empty` and `page` are its words without the page and with it.
    #[inline(always)]
    pub fn entry<'a>(&'a self, block: &'a Block, empty: u64, page: u64) -> Entry<'a> {
        Plain {
            cached: Both { pte: self, block },
            empty,
            page,
        }
    }

    /// The intent of a row about a page.
    #[inline(always)]
    pub fn intent(&self, row: Row, block: &Block) -> IntentRecord {
        IntentRecord {
            row,
            frame: WeakRef::from_checked(block.frame),
            table: Some(self.table()),
            place: PhysAddr(self.cached.at.get().0 | (self.index as u64) << 3),
        }
    }

    /// A weak reference to the table.
    #[inline(always)]
    pub fn table(&self) -> WeakRef {
        WeakRef::from_checked(self.cached.table.get())
    }

    /// Epochs and intents of this CPU.
    #[inline(always)]
    pub fn services(&self) -> impl EpochSource + Intents + Copy + use<> {
        services::Known {
            words: self.words,
            intent: self.cached.intent.get(),
            epoch: self.cached.epoch.get(),
            // The caller has looked.
            quiet: |_| true,
        }
    }
}

/// An entry of a page table that this CPU has cached, and a page.
pub type Entry<'a> = Plain<Both<'a>>;

/// An entry, and the block of a page.
#[derive(Clone, Copy)]
pub struct Both<'a> {
    pte: &'a CachedPte,
    block: &'a Block,
}

impl Known for Both<'_> {
    type Word = CoherentWord;

    #[inline(always)]
    fn isa(&self) -> Isa {
        self.pte.isa
    }

    #[inline(always)]
    fn entry(&self) -> CoherentWord {
        self.pte.words.word(self.pte.entry)
    }

    #[inline(always)]
    fn above(&self) -> CoherentWord {
        self.pte.words.word(self.pte.cached.link.get())
    }

    #[inline(always)]
    fn link(&self) -> u64 {
        self.pte.cached.link_value.get()
    }

    #[inline(always)]
    fn table(&self) -> Pinned<CoherentWord> {
        Pinned {
            word: self.pte.words.word(self.pte.cached.frame.get()),
            value: self.pte.cached.frame_value.get(),
        }
    }

    #[inline(always)]
    fn block(&self) -> Pinned<CoherentWord> {
        Pinned {
            word: self.pte.words.word(self.block.word),
            value: self.block.value,
        }
    }

    #[inline(always)]
    fn closing(&self) -> u64 {
        self.pte.cached.closing.get()
    }
}

/// A block of user memory in use.
#[derive(Clone, Copy)]
pub struct Block {
    /// Frame word of its head.
    pub word: &'static AtomicU64,
    /// The value of the word, without references.
    pub value: u64,
    /// The number of the requested frame, with the version of the block.
    pub frame: u64,
}

/// An address space on a fast path.
#[derive(Clone, Copy)]
pub struct FastSpace {
    /// The CPU that runs the fast path.
    pub local: &'static CpuLocal,
    /// The frame of the space, which is alive: a weak reference.
    pub object: u64,
}

const fn key(isa: Isa, va: u64) -> u64 {
    va >> COVER << 1 | isa as u64
}

impl FastSpace {
    /// The context for the slow paths. (The fast paths avoid looking up the node.)
    pub fn cx(self) -> KernelCtx {
        KernelCtx {
            node: node(),
            local: self.local,
        }
    }

    /// The entry of the page at `va`, an address of the user half; `None` if there is no table for it.
    #[inline(always)]
    pub fn pte(self, isa: Isa, va: u64) -> Option<CachedPte> {
        if !self.local.cache.fast() {
            return None;
        }
        let key = key(isa, va);
        let cached = &self.local.cache.pages.tables[key as usize % TABLES];
        if cached.space.get() != self.object
            || cached.key.get() != key
            || load_coherent(cached.link.get()) != cached.link_value.get()
        {
            self.fill_table(isa, va, cached)?;
        }
        let (words, entries) = cached.entries.get()?;
        let index = (va >> 12) as usize % 512;
        Some(CachedPte {
            cached,
            words,
            isa,
            entry: &entries[index],
            index,
        })
    }

    /// Whether the page at `va`, for which [`pte`](FastSpace::pte) has found nothing, is unmapped and stays
    /// so until a table is linked.
    #[inline]
    pub fn no_table(self, isa: Isa, va: u64) -> bool {
        let key = key(isa, va);
        let cached = &self.local.cache.pages.tables[key as usize % TABLES];
        cached.space.get() == self.object
            && cached.key.get() == key
            && cached.entries.get().is_none()
    }

    /// Walks the table and fills the entry. Each word is read after the one that led to it.
    #[cold]
    #[inline(never)]
    fn fill_table(self, isa: Isa, va: u64, cached: &CachedTable) -> Option<()> {
        cached.space.set(0);
        let cx = self.cx();
        let words = cx.words().if_coherent()?;
        let map = cx.words().map();
        let space: &'static Space =
            find(cx.node, WeakRef::from_bits(self.object)?, Space::KIND).ok()?;
        let mut at = space.root(cx.words(), isa)?;
        let mut last = None;
        for level in [Level::L4, Level::L3, Level::L2] {
            let entries: &'static Entries = map.get(at)?;
            let link = &entries[level.index(va)];
            let value = load_coherent(link);
            let Some(next) = plain::table_in(isa, value) else {
                plain::empty_in(isa, value)?;
                cached.key.set(key(isa, va));
                cached.link.set(link);
                cached.link_value.set(value);
                cached.entries.set(None);
                cached.space.set(self.object);
                return None;
            };
            last = Some((link, value));
            at = next;
        }
        let (link, link_value) = last?;
        let frame = FrameRef::of(at)?;
        let record: &'static FrameEntry = map.get(cx.frames().record_at(frame)?)?;
        let frame_value = load_coherent(&record.w0);
        kernel_pinned(frame_value, table_kind(isa, Level::L1))?;
        let version = dyad_retype::word::version_in(frame_value);
        cached.key.set(key(isa, va));
        cached.link.set(link);
        cached.link_value.set(link_value);
        cached.frame.set(&record.w0);
        cached
            .frame_value
            .set(frame_value & !u64::from(Refs::MAX.get()));
        cached.table.set(WeakRef { frame, version }.bits());
        cached.at.set(at);
        cached.entries.set(Some((words, map.get(at)?)));
        cached.intent.set(map.get(cx.intents().line())?);
        cached.epoch.set(&cx.node.sb.epoch);
        cached.closing.set(plain::closing(isa, cx.node.id()));
        cached.space.set(self.object);
        Some(())
    }

    /// The block that a page belongs to; `None` if it is not user memory in use.
    #[inline(always)]
    pub fn block(self, pa: PhysAddr) -> Option<Block> {
        if !self.local.cache.fast() {
            return None;
        }
        let cached = &self.local.cache.pages.blocks[(pa.0 >> COVER) as usize % BLOCKS];
        let now = load_coherent(cached.word.get());
        let mut into = pa.0.wrapping_sub(cached.first.get());
        if into >= cached.len.get() || !is_but_for_references(now, cached.value.get()) {
            self.fill_block(pa, cached)?;
            into = pa.0.wrapping_sub(cached.first.get());
        }
        Some(Block {
            word: cached.word.get(),
            value: cached.value.get(),
            // A frame of the block is in the same pool: its number stays in its half.
            frame: cached.head.get().wrapping_add(into / PAGE_SIZE),
        })
    }

    #[cold]
    #[inline(never)]
    fn fill_block(self, pa: PhysAddr, cached: &CachedBlock) -> Option<()> {
        cached.len.set(0);
        let cx = self.cx();
        let (head, _) = cx.frames().head_now(FrameRef::of(pa)?).ok()?;
        let at = cx.frames().record_at(head.frame)?;
        let record: &'static FrameEntry = cx.words().map().get(at)?;
        let value = load_coherent(&record.w0);
        let len = user_order(value)?.frames() * PAGE_SIZE;
        let first = head.frame.address().0;
        // What was found first must be what is kept.
        if dyad_retype::word::version_in(value) != head.version || pa.0.wrapping_sub(first) >= len {
            return None;
        }
        cached.first.set(first);
        cached.word.set(&record.w0);
        cached.value.set(value & !u64::from(Refs::MAX.get()));
        cached.head.set(head.bits());
        cached.len.set(len);
        Some(())
    }

    /// Whether a word is that of an empty entry that may be filled again.
    #[inline(always)]
    pub fn may_fill(self, isa: Isa, raw: u64) -> bool {
        plain::is_empty_since(isa, raw, self.local.cache.pages.quiet.get())
            || self.fill_quiesced(isa, raw)
    }

    #[cold]
    #[inline(never)]
    fn fill_quiesced(self, isa: Isa, raw: u64) -> bool {
        let Some(stamp) = plain::empty_in(isa, raw) else {
            return false;
        };
        let is = self.cx().node.tables.quiesced(stamp);
        if is {
            // Once true it stays true, and older stamps are quiesced before newer ones.
            self.local.cache.pages.quiet.set(stamp);
        }
        is
    }
}

/// The space, and the kind of the region at `va`, if there is one; `None` if there is no space.
#[inline(always)]
pub fn region(
    local: &'static CpuLocal,
    space: u64,
    va: u64,
) -> Option<(CoherentWords, &'static Space, Option<RegionKind>)> {
    if !local.cache.fast() {
        return None;
    }
    let cached = &local.cache.pages.regions[(va >> COVER) as usize % REGIONS];
    if let Some((words, place)) = cached.place.get()
        && cached.space.get() == space
        && va.wrapping_sub(cached.start.get()) < cached.len.get()
        && load_coherent(&place.region_changes) == cached.changes.get()
    {
        return Some((words, place, cached.kind.get()));
    }
    fill_region(local, space, va, cached)
}

#[cold]
#[inline(never)]
fn fill_region(
    local: &'static CpuLocal,
    space: u64,
    va: u64,
    cached: &CachedRegion,
) -> Option<(CoherentWords, &'static Space, Option<RegionKind>)> {
    cached.space.set(0);
    let cx = KernelCtx {
        node: node(),
        local,
    };
    let words = cx.words().if_coherent()?;
    let place: &'static Space = find(cx.node, WeakRef::from_bits(space)?, Space::KIND).ok()?;
    // Before the regions: later changes show.
    let changes = load_coherent(&place.region_changes);
    let (mut start, mut end, mut kind) = (0, u64::MAX, None);
    for (from, to, slot) in place.bounds(cx.words()) {
        if to <= va {
            start = to.max(start);
        } else if from > va {
            end = from.min(end);
        } else if let Some(r) = Space::read_slot(cx.words(), slot) {
            (start, end, kind) = match r.stripes.map(|s| s.around(va)) {
                None => (r.start, r.end, Some(r.kind)),
                Some((start, end, true)) => (start, end, Some(r.kind)),
                // Between two pieces.
                Some((start, end, false)) => (start, end, None),
            };
            break;
        }
    }
    let changes = match lacks!("capcache::page::fill_region::first") {
        false => changes,
        true => load_coherent(&place.region_changes),
    };
    cached.start.set(start);
    cached.len.set(end - start);
    cached.changes.set(changes);
    cached.place.set(Some((words, place)));
    cached.kind.set(kind);
    cached.space.set(space);
    Some((words, place, kind))
}
