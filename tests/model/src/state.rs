//! The state of the model.

use crate::scenario::{CPUS, Kind, NODES, OWNER, Scenario, Weakening};

/// The frame that is mapped, used as a kernel object and given up.
pub(crate) const FRAME: usize = 0;
/// The table that has node 1's entry.
pub(crate) const TABLE: usize = 1;

/// Version that capabilities and weak references carry, and generation of what they mean.
pub(crate) const REFERENCE: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Untyped,
    Retyping(u8),
    FrozenUser,
    FrozenKernel,
    User,
    Kernel,
}

impl Type {
    pub(crate) fn is_frozen(self) -> bool {
        matches!(self, Type::FrozenUser | Type::FrozenKernel)
    }

    pub(crate) fn frozen(self) -> Type {
        match self {
            Type::User => Type::FrozenUser,
            Type::Kernel => Type::FrozenKernel,
            other => other,
        }
    }

    pub(crate) fn thawed(self) -> Type {
        match self {
            Type::FrozenUser => Type::User,
            Type::FrozenKernel => Type::Kernel,
            other => other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub ty: Type,
    pub version: u8,
    pub refs: i8,
    pub w1: u8,
    /// Generation of the contents.
    pub contents: u8,
    /// Generation of the contents that are in memory; caches may have newer ones.
    pub memory: u8,
}

impl Frame {
    /// Whether weak references to what is there at first resolve.
    pub(crate) fn resolves(&self) -> bool {
        self.version == REFERENCE && matches!(self.ty, Type::Kernel | Type::FrozenKernel)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pte {
    Empty(u8),
    Closing(u8),
    Present {
        /// Generation of what it gives access to.
        contents: u8,
        write: bool,
    },
}

impl Pte {
    pub(crate) fn is_present(self) -> bool {
        matches!(self, Pte::Present { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    Free,
    Reserved(u8),
    Active,
    Closing(u8),
}

/// An operation in progress: where it is and what it has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Op {
    pub kind: Kind,
    pub pc: u8,
    pub stamp: u8,
    pub seen: u8,
    pub node: u8,
    pub entry: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Up,
    /// The last CPU awake, on the idle root.
    Leaving,
    /// The same, caches flushed.
    Flushed,
    Asleep,
    /// Runs without having said so (a weakening).
    Unannounced,
    /// Not there: its machine is gone or starts.
    Off,
}

/// What a TLB has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Translation {
    pub contents: u8,
    pub write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cpu {
    pub phase: Phase,
    pub op: Option<Op>,
    /// What a recoverer can read of `op`: the row, the entry, and the frame's version.
    pub intent: Option<(Kind, u8, u8)>,
    pub tlb: Option<Translation>,
    /// Generation + 1 of the current thread; 0: the idle one.
    pub current: u8,
    pub acknowledged: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Vacant,
    Joining,
    Live,
    Dead,
    Recovering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Round {
    Quiet,
    Lines(u8),
    Waiting(u8),
    /// Weakened: acknowledgements are asked for, lines still there.
    Early(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub life: Life,
    pub suspect: bool,
    pub published: u8,
    pub awake: u8,
    pub leaving: bool,
    pub request: u8,
    /// CPUs that have been asked to acknowledge, and have not been seen to be past that.
    pub asked: u8,
    pub round: Round,
    /// Cached copy of an entry: its own; if all nodes walk the entry, or change it in their caches,
    /// that of node 1.
    pub line: Option<Pte>,
    /// The copy is newer than memory (a weakening).
    pub dirty: bool,
    /// Generation of the cached copy of the frame's contents.
    pub data: Option<u8>,
    /// Cached copy of the slot: whether it is active, and the generation of its contents.
    pub slot: Option<(bool, u8)>,
    /// The logs name the line of the entry, and this node has not dropped it yet.
    pub entry_logged: bool,
    /// The logs name the line of the slot, and this node has not dropped it yet.
    pub slot_logged: bool,
    /// The logs name the frame, and this node has not dropped it yet.
    pub logged: bool,
    /// The round that goes on has to drop it.
    pub taken: bool,
    /// Which CPU recovers it, plus one.
    pub claim: u8,
    pub cpus: [Cpu; CPUS],
}

/// A state of a [`Scenario`](crate::Scenario).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) epoch: u8,
    pub(crate) frames: [Frame; 2],
    /// Node 0's and node 1's.
    pub(crate) entries: [Pte; 2],
    pub(crate) slot: Slot,
    pub(crate) slot_epoch: u8,
    /// Generation of the slot's contents.
    pub(crate) filled: u8,
    pub(crate) nodes: [Node; NODES],
    /// An address has been mapped anew while its old translation could still be used.
    pub(crate) doubled: bool,
    /// The entry counts as read-only.
    pub(crate) sealed: bool,
    /// The frame has been unmapped from all tables.
    pub(crate) gone: bool,
    pub(crate) ops: u8,
    pub(crate) crashes: u8,
    pub(crate) joins: u8,
    pub(crate) recoveries: u8,
}

impl State {
    pub(crate) fn first(c: &Scenario) -> State {
        let cpu = Cpu {
            phase: Phase::Off,
            op: None,
            intent: None,
            tlb: None,
            current: 0,
            acknowledged: 0,
        };
        let absent = Node {
            life: Life::Vacant,
            suspect: false,
            published: 0,
            awake: 0,
            leaving: false,
            request: 0,
            asked: 0,
            round: Round::Quiet,
            line: None,
            dirty: false,
            data: None,
            slot: None,
            entry_logged: false,
            slot_logged: false,
            logged: false,
            taken: false,
            claim: 0,
            cpus: [cpu; CPUS],
        };
        let mut nodes = [absent; NODES];
        for (i, n) in nodes[..c.nodes].iter_mut().enumerate() {
            n.life = Life::Live;
            n.published = 1;
            n.awake = (1 << c.cpus_of(i)) - 1;
            for cpu in &mut n.cpus[..c.cpus_of(i)] {
                cpu.phase = Phase::Up;
            }
        }
        let refs = i8::from(c.mapped);
        let pins = if c.lacks(Weakening::P1TableNotPinned) {
            0
        } else {
            refs
        };
        let frame = |ty, refs| Frame {
            ty,
            version: REFERENCE,
            refs,
            w1: 0,
            contents: REFERENCE - u8::from(ty == Type::Untyped),
            memory: REFERENCE - u8::from(ty == Type::Untyped),
        };
        let mut entries = [Pte::Empty(0); 2];
        if c.mapped {
            entries[OWNER] = Pte::Present {
                contents: REFERENCE,
                write: true,
            };
        }
        let ty = match (c.kernel, c.untyped) {
            (true, _) => Type::Kernel,
            (_, true) => Type::Untyped,
            _ => Type::User,
        };
        State {
            epoch: 1,
            frames: [frame(ty, refs), frame(Type::Kernel, pins)],
            entries,
            slot: if c.slot { Slot::Active } else { Slot::Free },
            slot_epoch: 0,
            filled: 0,
            nodes,
            doubled: false,
            sealed: false,
            gone: false,
            ops: 0,
            crashes: 0,
            joins: 0,
            recoveries: 0,
        }
    }

    /// Something has been used for something else.
    pub(crate) fn has_reused(&self) -> bool {
        self.frames.iter().any(|f| f.contents > REFERENCE) || self.filled > 0
    }

    /// Whether a node has been recovered.
    pub(crate) fn has_recovered(&self) -> bool {
        self.recoveries > 0
    }

    /// A frame is untyped.
    pub(crate) fn has_given_up(&self) -> bool {
        self.frames.iter().any(|f| f.ty == Type::Untyped)
    }

    /// A slot that was active is free.
    pub(crate) fn has_freed(&self) -> bool {
        self.slot == Slot::Free && self.slot_epoch > 0
    }
}
