//! A table with one entry, the entry above it, and pages: as each instantiation of the rows reaches them.
#![allow(dead_code)]

use dyad_abi::boot::CXL_BASE;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::{GlobalMem, WordAt};
use dyad_mapping::{Around, Known, NotMapped, NotUnmapped, Pinned, Plain, Walked, row};
use dyad_pgtbl::{Leaf, Level, Memory, Perms, Pte, PteSlot, RemoteCpu, encode, plain};
use dyad_retype::{
    Epoch, FrameTable, FrameType, FrameWord, KernelKind, Order, PoolTables, Refs, Refused, Version,
    WeakRef,
};
use dyad_shm::frame::FrameRef;
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::{PhysAddr, PoolId};
use dyad_shm::protocol::{EpochSource, Intents};

/// Frames of the pool: page tables, and the pages.
pub const UPPER: u64 = 8;
pub const TABLE: u64 = 9;
pub const OTHER_TABLE: u64 = 10;
pub const PAGE: u64 = 12;
pub const VERSION: u32 = 5;

pub const ISA: Isa = Isa::X86_64;

pub fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

pub fn frame(index: u64) -> FrameRef {
    FrameRef::of(address(index)).unwrap()
}

pub fn address(index: u64) -> PhysAddr {
    PhysAddr(CXL_BASE + index * PAGE_SIZE)
}

pub fn pools() -> PoolTables {
    PoolTables::new().with(PoolId::Cxl, PhysAddr(CXL_BASE), 16)
}

pub fn w0(index: u64) -> PhysAddr {
    pools().record(frame(index)).unwrap()
}

pub fn w1(index: u64) -> PhysAddr {
    w0(index).add(8)
}

pub fn weak(index: u64) -> WeakRef {
    WeakRef {
        frame: frame(index),
        version: Version(VERSION),
    }
}

pub fn kind() -> KernelKind {
    KernelKind::page_table(ISA, 0).unwrap()
}

pub fn word(ty: FrameType, refs: u32) -> u64 {
    FrameWord {
        version: Version(VERSION),
        ty,
        refs: Refs::new(refs).unwrap(),
    }
    .bits()
}

pub const USER: FrameType = FrameType::User(Order::FRAME);

pub fn table_word(refs: u32) -> u64 {
    word(FrameType::Kernel(kind()), refs)
}

/// The entry above that leads to a table.
pub fn link(table: u64) -> u64 {
    encode(ISA, Pte::Table(address(table)), Level::L2).unwrap()
}

/// A page, as faults map it.
pub fn leaf() -> Leaf {
    Leaf {
        pa: address(PAGE),
        perms: Perms::READ | Perms::USER | Perms::WRITE,
        memory: Memory::Normal,
        global: false,
        accessed: false,
        dirty: false,
    }
}

pub fn page_word() -> u64 {
    plain::page(ISA, leaf().pa, leaf().perms).unwrap()
}

/// An entry of one of the tables, and where the entry above it is.
#[derive(Clone, Copy)]
pub struct At {
    pub table: u64,
    pub entry: PhysAddr,
    pub above: PhysAddr,
}

pub const fn at(table: u64) -> At {
    At {
        table,
        entry: PhysAddr(CXL_BASE + table * PAGE_SIZE + 8),
        above: PhysAddr(CXL_BASE + UPPER * PAGE_SIZE + table * 8),
    }
}

#[derive(Clone, Copy)]
struct NoLogs;

impl Around for NoLogs {
    fn is_root(&self, _: PhysAddr) -> bool {
        unreachable!("no table here is a root")
    }

    fn log_table(&self, _: PhysAddr) {}

    fn log_page(&self, _: PhysAddr, _: Level) {}
}

/// What a caller remembers of it.
struct Remembered<'m, M> {
    mem: &'m M,
    at: At,
    n: u64,
}

impl<'m, M: GlobalMem> Remembered<'m, M> {
    fn word(&self, at: PhysAddr) -> WordAt<'m, M> {
        WordAt { mem: self.mem, at }
    }
}

impl<'m, M: GlobalMem> Known for Remembered<'m, M> {
    type Word = WordAt<'m, M>;

    fn isa(&self) -> Isa {
        ISA
    }

    fn entry(&self) -> Self::Word {
        self.word(self.at.entry)
    }

    fn above(&self) -> Self::Word {
        self.word(self.at.above)
    }

    fn link(&self) -> u64 {
        link(self.at.table)
    }

    fn table(&self) -> Pinned<Self::Word> {
        Pinned {
            word: self.word(w0(self.at.table)),
            value: table_word(0),
        }
    }

    fn block(&self) -> Pinned<Self::Word> {
        Pinned {
            word: self.word(w0(PAGE)),
            value: word(USER, 0),
        }
    }

    fn closing(&self) -> u64 {
        plain::closing(ISA, node(self.n))
    }
}

/// Which instantiation of the rows acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// [`Walked`].
    Walk,
    /// [`Plain`], of the fast path.
    FastPath,
}

pub const BOTH: [By; 2] = [By::Walk, By::FastPath];

fn place(at: At, raw: u64) -> PteSlot {
    PteSlot {
        entry: at.entry,
        raw,
        level: Level::L1,
        above: Some(at.above),
    }
}

const ORDER: core::sync::atomic::Ordering = core::sync::atomic::Ordering::Acquire;

/// Does `f` with the entry and the record of the row.
macro_rules! with_entry {
    ($by:expr, $mem:expr, $n:expr, $at:expr, $raw:expr, $row:expr, |$entry:ident, $intent:ident| $f:expr) => {{
        let (mem, at) = ($mem, $at);
        let place = place(at, $raw);
        let frames = FrameTable::new(mem, pools(), node($n));
        let table = frames.as_found(frame(at.table)).unwrap();
        let $intent = IntentRecord {
            row: $row,
            frame: weak(PAGE),
            table: Some(table.1),
            place: at.entry,
        };
        match $by {
            By::Walk => {
                let driver = RemoteCpu::new(mem, ISA, address(UPPER));
                let $entry = &Walked {
                    frames: &frames,
                    driver: &driver,
                    place: &place,
                    table,
                    table_kind: kind(),
                    leaf: leaf(),
                    head: Some(weak(PAGE)),
                    span: Order::FRAME,
                    node: node($n),
                    around: NoLogs,
                };
                $f
            }
            By::FastPath => {
                let empty = match plain::empty_in(ISA, place.raw) {
                    Some(_) => place.raw,
                    None => 0,
                };
                let $entry = &Plain {
                    cached: Remembered { mem, at, n: $n },
                    empty,
                    page: page_word(),
                };
                $f
            }
        }
    }};
}

impl By {
    pub fn maps<M: GlobalMem>(
        self,
        mem: &M,
        n: u64,
        at: At,
        services: &(impl EpochSource + Intents),
    ) -> Result<(), NotMapped> {
        let raw = mem.load_fresh(at.entry, ORDER);
        with_entry!(self, mem, n, at, raw, Row::Map, |entry, intent| row::map(
            entry, &intent, services
        ))
    }

    /// Shows the page of another table's entry.
    pub fn copies<M: GlobalMem>(
        self,
        mem: &M,
        n: u64,
        (from, to): (At, At),
        services: &(impl EpochSource + Intents + Copy),
    ) -> Result<(), NotMapped> {
        let still = || mem.load_fresh(from.entry, ORDER) == page_word();
        if !still() {
            return Err(NotMapped::Gone);
        }
        let raw = mem.load_fresh(to.entry, ORDER);
        with_entry!(self, mem, n, to, raw, Row::Map, |entry, intent| row::copy(
            entry, &intent, still, services
        ))
    }

    pub fn unmaps<M: GlobalMem>(
        self,
        mem: &M,
        n: u64,
        at: At,
        services: &(impl EpochSource + Intents),
    ) -> Result<Epoch, NotUnmapped> {
        let raw = mem.load_fresh(at.entry, ORDER);
        if raw != page_word() {
            return Err(NotUnmapped::Refused(Refused::Stale));
        }
        with_entry!(self, mem, n, at, raw, Row::Unmap, |entry, intent| {
            row::unmap(entry, &intent, services)
        })
    }
}
