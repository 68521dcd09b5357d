//! The table of object kinds: how the frame table, capabilities, the walks over references, and untyping
//! treat each kind. A new kind is a row here; a row with a field missing does not compile.

use dyad_abi::cap::{CapType, ObjectKind, TableAt};
use dyad_abi::{Isa, ident::ISA_COUNT};
use dyad_pgtbl::Level;
use dyad_retype::KernelKind;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The kind's number in the frame table.
    pub kernel: KernelKind,
    /// Type of the capability for an object.
    pub cap: CapType,
    /// Payload of the capability for a whole object, with all its lines, budgets or entries.
    pub payload: [u64; 3],
    /// The references in an object.
    pub holds: Holds,
    /// The step before the frame of an object is untyped.
    pub farewell: Farewell,
}

impl Kind {
    /// Type and payload of the capability for a whole object.
    pub const fn capability(&self) -> (CapType, [u64; 3]) {
        (self.cap, self.payload)
    }
}

/// The references in an object, each of which pins its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No pinned references. Capabilities do not count, because they are weak references.
    Nothing,
    /// Entries of a page table.
    Pages(Isa, Level),
    /// The leaves of a capability table.
    Leaves,
    /// The roots of a space's page tables.
    Roots,
    /// A component's capability table and address space.
    Parts,
}

/// The step before the frame of an object is untyped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// No step: the frame's record alone decides, also on the fast path.
    Nothing,
    /// The parts of a component are removed.
    TakeParts,
    /// A thread is ended for good.
    EndThread,
    /// The lists of endpoints are closed.
    CloseLists,
}

/// Frame-table kinds of the page tables of an ISA, by level.
const TABLES: [[KernelKind; Level::ALL.len()]; ISA_COUNT] = {
    let mut all = [[KernelKind::ADDRESS_SPACE; Level::ALL.len()]; ISA_COUNT];
    let mut isa = 0;
    while isa < ISA_COUNT {
        let mut level = 0;
        while level < Level::ALL.len() {
            all[isa][level] = match KernelKind::page_table(Isa::ALL[isa], level as u8) {
                Some(kind) => kind,
                None => panic!("the frame table has no name for a level"),
            };
            level += 1;
        }
        isa += 1;
    }
    all
};

const fn captbl(level: u8) -> KernelKind {
    match KernelKind::captbl(level) {
        Some(kind) => kind,
        None => panic!("the frame table has no name for a level"),
    }
}

/// A leaf of a capability table.
pub const CAPTBL_LEAF: KernelKind = captbl(0);
/// The root of a capability table.
pub const CAPTBL_ROOT: KernelKind = captbl(1);

/// The frame-table kind of a page table.
#[inline]
pub const fn table_kind(isa: Isa, level: Level) -> KernelKind {
    let row = match level {
        Level::L1 => 0,
        Level::L2 => 1,
        Level::L3 => 2,
        Level::L4 => 3,
    };
    TABLES[isa.index()][row]
}

/// The row of a kind.
pub const fn of(kind: ObjectKind) -> Kind {
    const fn table(isa: Isa, level: Level) -> Kind {
        let at = TableAt {
            isa,
            level: level as u8,
        };
        Kind {
            kernel: table_kind(isa, level),
            cap: CapType::PageTable,
            payload: [at.bits(), 0, 0],
            holds: Holds::Pages(isa, level),
            farewell: Farewell::Nothing,
        }
    }
    match kind {
        ObjectKind::CaptblLeaf => Kind {
            kernel: CAPTBL_LEAF,
            cap: CapType::Captbl,
            payload: [0; 3],
            holds: Holds::Nothing,
            farewell: Farewell::Nothing,
        },
        ObjectKind::CaptblRoot => Kind {
            kernel: CAPTBL_ROOT,
            cap: CapType::Captbl,
            payload: [1, 0, 0],
            holds: Holds::Leaves,
            farewell: Farewell::Nothing,
        },
        ObjectKind::PageTableX86L1 => table(Isa::X86_64, Level::L1),
        ObjectKind::PageTableX86L2 => table(Isa::X86_64, Level::L2),
        ObjectKind::PageTableX86L3 => table(Isa::X86_64, Level::L3),
        ObjectKind::PageTableX86L4 => table(Isa::X86_64, Level::L4),
        ObjectKind::PageTableA64L1 => table(Isa::Aarch64, Level::L1),
        ObjectKind::PageTableA64L2 => table(Isa::Aarch64, Level::L2),
        ObjectKind::PageTableA64L3 => table(Isa::Aarch64, Level::L3),
        ObjectKind::PageTableA64L4 => table(Isa::Aarch64, Level::L4),
        ObjectKind::Space => Kind {
            kernel: KernelKind::ADDRESS_SPACE,
            cap: CapType::Space,
            payload: [0; 3],
            holds: Holds::Roots,
            farewell: Farewell::Nothing,
        },
        ObjectKind::Component => Kind {
            kernel: KernelKind::COMPONENT,
            cap: CapType::Component,
            payload: [0; 3],
            holds: Holds::Parts,
            farewell: Farewell::TakeParts,
        },
        ObjectKind::Thread => Kind {
            kernel: KernelKind::THREAD,
            cap: CapType::Thread,
            payload: [0; 3],
            holds: Holds::Nothing,
            farewell: Farewell::EndThread,
        },
        ObjectKind::Endpoints => Kind {
            kernel: KernelKind::ENDPOINTS,
            cap: CapType::Receive,
            payload: [0, 64, 0],
            holds: Holds::Nothing,
            farewell: Farewell::CloseLists,
        },
        ObjectKind::Time => Kind {
            kernel: KernelKind::TIME,
            cap: CapType::Time,
            payload: [0, 64, 0],
            holds: Holds::Nothing,
            farewell: Farewell::Nothing,
        },
        ObjectKind::Liveness => Kind {
            kernel: KernelKind::LIVENESS,
            cap: CapType::Liveness,
            payload: [0, 512, 0],
            holds: Holds::Nothing,
            farewell: Farewell::Nothing,
        },
    }
}

/// The number of kinds that the frame table can name.
const NAMES: usize = 32;

/// The rows, by the kind's number in the frame table.
static BY_NAME: [Option<Kind>; NAMES] = {
    let mut all = [None; NAMES];
    let mut i = 0;
    while i < ObjectKind::ALL.len() {
        let row = of(ObjectKind::ALL[i]);
        let name = row.kernel.get() as usize;
        assert!(all[name].is_none(), "two kinds have one name");
        all[name] = Some(row);
        i += 1;
    }
    all
};

/// The row of a frame-table kind; `None` if it is no object.
#[inline]
pub fn named(kind: KernelKind) -> Option<&'static Kind> {
    BY_NAME.get(usize::from(kind.get()))?.as_ref()
}

/// The kinds whose frames are untyped by their records alone, one bit for each number of the frame table.
pub const PLAIN: u32 = {
    let mut kinds = 0;
    let mut i = 0;
    while i < ObjectKind::ALL.len() {
        let row = of(ObjectKind::ALL[i]);
        if let Farewell::Nothing = row.farewell {
            kinds |= 1 << row.kernel.get();
        }
        i += 1;
    }
    kinds
};

/// The kind of object that capabilities of a type refer to; `None` for a block of user memory, or no object.
#[inline]
pub const fn referred(ty: CapType, payload: &[u64; 3]) -> Option<KernelKind> {
    match ty {
        CapType::Captbl => Some(match payload[0] {
            0 => CAPTBL_LEAF,
            _ => CAPTBL_ROOT,
        }),
        CapType::PageTable => match TableAt::from_bits(payload[0]) {
            Some(at) => KernelKind::page_table(at.isa, at.level - 1),
            None => None,
        },
        CapType::Space => Some(KernelKind::ADDRESS_SPACE),
        CapType::Component | CapType::Sinv => Some(KernelKind::COMPONENT),
        CapType::Thread => Some(KernelKind::THREAD),
        CapType::Send | CapType::Receive => Some(KernelKind::ENDPOINTS),
        CapType::Time => Some(KernelKind::TIME),
        CapType::Liveness => Some(KernelKind::LIVENESS),
        CapType::Memory | CapType::Frame | CapType::Hardware | CapType::ThreadIds => None,
    }
}

/// Capabilities for objects refer to objects of their kind.
const _: () = {
    let mut i = 0;
    while i < ObjectKind::ALL.len() {
        let row = of(ObjectKind::ALL[i]);
        match referred(row.cap, &row.payload) {
            Some(kind) => assert!(kind.get() == row.kernel.get()),
            None => panic!("the capability for an object refers to none"),
        }
        i += 1;
    }
};
