//! The two words of a frame record, decoded. The module header of the crate has the layout.
//!
//! Decoding is strict: it accepts exactly the words that encoding produces, so that damage is
//! noticed before anything is done because of it.

use core::fmt;

use dyad_abi::{Isa, NodeId};
use dyad_shm::LayoutHash;
use dyad_shm::frame::{Epoch, Version};
use dyad_shm::permitted::Permitted;

const TYPE_SHIFT: u32 = 29;
pub(crate) const KIND_SHIFT: u32 = 24;
const KIND_BITS: u32 = 5;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const VERSION_SHIFT: u32 = 32;

const RESERVED: u64 = 0;
const UNTYPED: u64 = 1;
const RETYPING: u64 = 2;
const FROZEN: u64 = 3;
const USER: u64 = 4;
const KERNEL: u64 = 5;
const TAIL: u64 = 6;
const RETIRED: u64 = 7;

/// `kind` of a frozen user frame; no kernel object has it.
const FROZEN_USER: u64 = KIND_MASK;

/// References to a frame: page-table entries and edges of capability tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Refs(u32);

impl Refs {
    /// Bits of the field, the lowest of a word.
    pub(crate) const BITS: u32 = KIND_SHIFT;

    /// No references.
    pub const ZERO: Refs = Refs(0);
    /// As many references as the word has room for.
    pub const MAX: Refs = Refs((1 << KIND_SHIFT) - 1);

    /// This number of references, if the word has room for it.
    pub const fn new(n: u32) -> Option<Refs> {
        if n <= Refs::MAX.0 {
            Some(Refs(n))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Size of a block, as the logarithm of its number of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One frame.
    pub const FRAME: Order = Order(0);
    /// The largest block: 4 GiB.
    pub const MAX: Order = Order(20);

    /// The order with this number, if it is not beyond [`Order::MAX`].
    pub const fn new(n: u64) -> Option<Order> {
        if n <= Order::MAX.0 as u64 {
            Some(Order(n as u8))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// Frames in a block of this order.
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// The order of each half.
    pub const fn half(self) -> Option<Order> {
        match self.0.checked_sub(1) {
            Some(n) => Some(Order(n)),
            None => None,
        }
    }

    /// The order of two blocks together.
    pub const fn double(self) -> Option<Order> {
        Order::new(self.0 as u64 + 1)
    }
}

/// The kind of a kernel object. All objects are one frame large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct KernelKind(u8);

impl KernelKind {
    /// An address space.
    pub const ADDRESS_SPACE: KernelKind = KernelKind(16);
    /// A component.
    pub const COMPONENT: KernelKind = KernelKind(17);
    /// A thread.
    pub const THREAD: KernelKind = KernelKind(18);
    /// Asynchronous endpoints.
    pub const ENDPOINTS: KernelKind = KernelKind(19);
    /// Temporal capabilities.
    pub const TIME: KernelKind = KernelKind(20);
    /// Liveness entries.
    pub const LIVENESS: KernelKind = KernelKind(21);

    /// The kind with this number, if there may be one.
    pub const fn new(n: u64) -> Option<KernelKind> {
        if n < FROZEN_USER {
            Some(KernelKind(n as u8))
        } else {
            None
        }
    }

    /// A page table of an ISA; level 0 holds entries of pages. `None` beyond level 3.
    pub const fn page_table(isa: Isa, level: u8) -> Option<KernelKind> {
        if level < 4 {
            Some(KernelKind(isa.index() as u8 * 4 + level))
        } else {
            None
        }
    }

    /// A node of a capability table; level 0 holds slots. `None` beyond level 7.
    pub const fn captbl(level: u8) -> Option<KernelKind> {
        if level < 8 {
            Some(KernelKind(8 + level))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Mapped by user programs.
    User,
    /// Holds a kernel object.
    Kernel(KernelKind),
}

/// Type and kind of a frame. The module header of the crate has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// Holds structures of the system; never changes.
    Reserved,
    /// Head of a block that is not in use.
    Untyped(Order),
    /// Belongs to one node, which is changing it. The order is that of the block's
    /// [tails](crate::FrameTable::order_by_tails).
    Retyping(NodeId),
    /// In use, but frozen: takes no new references until it has been recovered.
    Frozen(Use),
    /// Head of a block of user memory.
    User(Order),
    /// A kernel object.
    Kernel(KernelKind),
    /// Not the first frame of its block. The order is that of the largest block that it could head: the
    /// number of trailing zeros of its index.
    Tail(Order),
    /// Retired: its version cannot grow any more, and it is never used again.
    Retired,
}

impl FrameType {
    /// The use of a frame of this type, if it is in use.
    pub const fn in_use(self) -> Option<Use> {
        match self {
            FrameType::User(_) => Some(Use::User),
            FrameType::Kernel(kind) => Some(Use::Kernel(kind)),
            FrameType::Frozen(was) => Some(was),
            _ => None,
        }
    }

    #[inline]
    const fn encode(self) -> (u64, u64) {
        match self {
            FrameType::Reserved => (RESERVED, 0),
            FrameType::Untyped(order) => (UNTYPED, order.0 as u64),
            FrameType::Retyping(node) => (RETYPING, node.index() as u64),
            FrameType::Frozen(Use::User) => (FROZEN, FROZEN_USER),
            FrameType::Frozen(Use::Kernel(kind)) => (FROZEN, kind.0 as u64),
            FrameType::User(order) => (USER, order.0 as u64),
            FrameType::Kernel(kind) => (KERNEL, kind.0 as u64),
            FrameType::Tail(order) => (TAIL, order.0 as u64),
            FrameType::Retired => (RETIRED, 0),
        }
    }

    const fn decode(bits: u64, kind: u64) -> Option<FrameType> {
        match (bits, kind) {
            (RESERVED, 0) => Some(FrameType::Reserved),
            (RETIRED, 0) => Some(FrameType::Retired),
            (FROZEN, FROZEN_USER) => Some(FrameType::Frozen(Use::User)),
            (UNTYPED, n) => match Order::new(n) {
                Some(order) => Some(FrameType::Untyped(order)),
                None => None,
            },
            (USER, n) => match Order::new(n) {
                Some(order) => Some(FrameType::User(order)),
                None => None,
            },
            (TAIL, n) => match Order::new(n) {
                Some(order) => Some(FrameType::Tail(order)),
                None => None,
            },
            (RETYPING, n) => match NodeId::new(n) {
                Some(node) => Some(FrameType::Retyping(node)),
                None => None,
            },
            (FROZEN, n) => match KernelKind::new(n) {
                Some(kind) => Some(FrameType::Frozen(Use::Kernel(kind))),
                None => None,
            },
            (KERNEL, n) => match KernelKind::new(n) {
                Some(kind) => Some(FrameType::Kernel(kind)),
                None => None,
            },
            _ => None,
        }
    }
}

/// The first word of a record, `w0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameWord {
    /// References to older versions are dead.
    pub version: Version,
    /// Type and kind.
    pub ty: FrameType,
    /// References; zero unless the frame is in use.
    pub refs: Refs,
}

impl FrameWord {
    /// A word without references.
    pub const fn new(version: Version, ty: FrameType) -> FrameWord {
        FrameWord {
            version,
            ty,
            refs: Refs::ZERO,
        }
    }

    /// The word of a block after it is untyped: untyped with the next version, or retired if there is none.
    pub(crate) const fn given_up(version: Version, order: Order) -> FrameWord {
        match version.next() {
            Some(next) => FrameWord::new(next, FrameType::Untyped(order)),
            None => FrameWord::new(version, FrameType::Retired),
        }
    }

    /// The word.
    #[inline]
    pub const fn bits(self) -> u64 {
        let (ty, kind) = self.ty.encode();
        (self.version.0 as u64) << VERSION_SHIFT
            | ty << TYPE_SHIFT
            | kind << KIND_SHIFT
            | self.refs.0 as u64
    }

    /// Decodes a word; `None` if it is malformed (damaged memory).
    pub const fn from_bits(w: u64) -> Option<FrameWord> {
        let Some(ty) = FrameType::decode(w >> TYPE_SHIFT & 7, w >> KIND_SHIFT & KIND_MASK) else {
            return None;
        };
        let refs = Refs((w & Refs::MAX.0 as u64) as u32);
        if refs.0 != 0 && ty.in_use().is_none() {
            return None;
        }
        Some(FrameWord {
            version: Version((w >> VERSION_SHIFT) as u32),
            ty,
            refs,
        })
    }
}

/// The order in the word of the head of a block of user memory.
#[inline]
pub const fn user_order(raw: u64) -> Option<Order> {
    if raw >> TYPE_SHIFT & 7 == USER {
        Order::new(raw >> KIND_SHIFT & KIND_MASK)
    } else {
        None
    }
}

/// Whether a word is that of a block of user memory or a kernel object.
#[inline]
pub(crate) const fn is_used(raw: u64) -> bool {
    let ty = raw >> TYPE_SHIFT & 7;
    ty == USER || ty == KERNEL
}

/// The word of a kernel object of that kind with one more reference, whatever its version; `None` if the word
/// is of another kind, or has no room.
#[inline]
pub const fn kernel_pinned(raw: u64, kind: KernelKind) -> Option<u64> {
    let wanted = KERNEL << TYPE_SHIFT | (kind.0 as u64) << KIND_SHIFT;
    let refs = Refs::MAX.0 as u64;
    let same = (raw ^ wanted) as u32 >> KIND_SHIFT == 0;
    if same && raw & refs != refs {
        Some(raw + 1)
    } else {
        None
    }
}

/// The version in a word, whatever its other fields are.
#[inline]
pub const fn version_in(raw: u64) -> Version {
    Version((raw >> VERSION_SHIFT) as u32)
}

/// Adds one word of each type to the layout hash, with every field other than zero.
pub(crate) const fn samples(h: LayoutHash) -> LayoutHash {
    let order = Order(3);
    let kind = KernelKind(5);
    let types = [
        (FrameType::Reserved, Refs(0)),
        (FrameType::Untyped(order), Refs(0)),
        (FrameType::Frozen(Use::User), Refs(1)),
        (FrameType::Frozen(Use::Kernel(kind)), Refs(1)),
        (FrameType::User(order), Refs(1)),
        (FrameType::Kernel(kind), Refs(1)),
        (FrameType::Tail(order), Refs(0)),
        (FrameType::Retired, Refs(0)),
    ];
    let mut h = h;
    let mut i = 0;
    while i < types.len() {
        let (ty, refs) = types[i];
        let version = Version(1);
        h = h.word(FrameWord { version, ty, refs }.bits());
        i += 1;
    }
    h.word(RETYPING << TYPE_SHIFT).word(
        StampWord {
            epoch: Epoch::MAX,
            executed_on: 1,
            asked: 2,
        }
        .bits(),
    )
}

// The sanitizer takes the same words for those of kernel objects.
const _: () = {
    let mut ty = 0;
    while ty <= RETIRED {
        let old = ty << TYPE_SHIFT;
        let is_object = ty == FROZEN || ty == KERNEL;
        assert!(Permitted::Object.matters(old, !old) == is_object);
        assert!(!Permitted::Object.matters(old, old | Refs::MAX.0 as u64));
        ty += 1;
    }
};

impl fmt::Display for FrameWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} v{} refs {}", self.ty, self.version.0, self.refs.0)
    }
}

/// The second word of a record, `w1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StampWord {
    /// The epoch at which the frame was last untyped.
    pub epoch: Epoch,
    /// Bit n: node n may hold translations of code in the frame.
    pub executed_on: u8,
    /// Bit n: node n has been asked to rewrite the frame; see [`executed`](crate::executed).
    pub asked: u8,
}

impl StampWord {
    const EPOCH_SHIFT: u32 = 8;
    pub(crate) const ASKED_SHIFT: u32 = StampWord::EPOCH_SHIFT + Epoch::BITS;

    /// The word.
    pub const fn bits(self) -> u64 {
        (self.asked as u64) << StampWord::ASKED_SHIFT
            | self.epoch.get() << StampWord::EPOCH_SHIFT
            | self.executed_on as u64
    }

    /// Reads a word; every word is one.
    pub const fn from_bits(w: u64) -> StampWord {
        StampWord {
            epoch: Epoch::saturating(w >> StampWord::EPOCH_SHIFT & Epoch::MAX.get()),
            executed_on: w as u8,
            asked: (w >> StampWord::ASKED_SHIFT) as u8,
        }
    }
}
