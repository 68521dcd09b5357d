//! The state of the model, what must hold in it, and the bounds of a search.

/// Most nodes of a scenario.
pub(crate) const NODES: usize = 3;
/// Most CPUs of a node.
pub(crate) const CPUS: usize = 2;
/// The node whose table has the entry.
pub(crate) const OWNER: usize = 1;

/// Something left out of a row. The names are those of the protocol's table of weakenings where
/// it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Weakening {
    A1bPublishedAsMuch,
    A1dStampBeforeRetyping,
    B2NoRevalidation,
    S3CheckBeforeReserve,
    C1bSlotStampBeforeClosing,
    I5TlbBeforeCache,
    L2UseBeforeWithdrawal,
    Z3IdleWithoutCacheFlush,
    /// A node that goes to sleep drops what logs name by then, and nothing else.
    IdleFlushesLoggedOnly,
    D1RecoverWithoutVersion,
    D2RecoverWithoutMappings,
    D3RecoverWithoutSlots,
    D4DeclaredDeadWhileRunning,
    /// Recovery counts without a round in between.
    RecountWithoutRound,
    /// Two nodes recover one without a claim that excludes the other.
    RecoverWithoutClaim,
    /// A round publishes when one CPU has acknowledged.
    OneCpuAcknowledges,
    /// The last CPU sleeps although another one was awake during its flush.
    VisitForgotten,
    /// A CPU that wakes counts as having acknowledged the present epoch.
    WakeAcknowledges,
    /// LIVE before the publication.
    JoinBeforePublication,
    /// Shared access before LIVE.
    UseBeforeLive,
    /// A place is taken before its former node has been recovered.
    JoinFromDead,
    /// Unmap logs the frame after it has given up its reference.
    LogAfterReference,
    /// Unmapped user frames are dropped from caches before the TLBs are flushed, and not after.
    FramesBeforeTlb,
}

/// Operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Map,
    Unmap,
    ToUntyped,
    ToKernel,
    ToUser,
    /// Resolve a weak reference, then use it.
    Read,
    /// Resolve a weak reference and make it the CPU's current thread.
    Dispatch,
    Activate,
    Deactivate,
    Lookup,
    /// Not chosen: dead nodes cause it.
    Recover,
}

/// The bounds of a search, and what is left out.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Nodes that are live at first.
    pub nodes: usize,
    /// CPUs of node 1, whose table has the entry; the others have one.
    pub cpus: usize,
    /// Nodes that start operations, as bits.
    pub actors: u8,
    /// Operations to choose from.
    pub kinds: &'static [Kind],
    /// How many of them may be started.
    pub ops: u8,
    /// The last epoch; it is 1 at first.
    pub last_epoch: u8,
    /// Whether caches are incoherent.
    pub incoherent: bool,
    /// Nodes whose CPUs may sleep, as bits.
    pub idle: u8,
    /// How many nodes may crash: node 0 first, then the one with the highest number.
    pub crashes: u8,
    /// How often a vacant place may be taken again.
    pub joins: u8,
    /// The frame is mapped at first.
    pub mapped: bool,
    /// The frame is a kernel object at first.
    pub kernel: bool,
    /// The slot is active at first.
    pub slot: bool,
    /// What is left out.
    pub weakening: Option<Weakening>,
}

impl Scenario {
    /// Two nodes, one CPU each, coherent, all act, nobody sleeps or dies; a user frame that nobody
    /// maps.
    pub const fn new(kinds: &'static [Kind], ops: u8, last_epoch: u8) -> Scenario {
        Scenario {
            nodes: 2,
            cpus: 1,
            actors: 0b111,
            kinds,
            ops,
            last_epoch,
            incoherent: false,
            idle: 0,
            crashes: 0,
            joins: 0,
            mapped: false,
            kernel: false,
            slot: false,
            weakening: None,
        }
    }

    pub(crate) fn cpus_of(&self, node: usize) -> usize {
        if node == OWNER { self.cpus } else { 1 }
    }

    pub(crate) fn lacks(&self, w: Weakening) -> bool {
        self.weakening == Some(w)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Untyped,
    Retyping(u8),
    Frozen,
    User,
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pte {
    Empty(u8),
    Closing(u8),
    /// With the generation of the contents it gives access to.
    Present(u8),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cpu {
    pub phase: Phase,
    pub op: Option<Op>,
    /// What a recoverer can read of `op`: the row.
    pub intent: Option<Kind>,
    /// Generation + 1 of what the TLB reaches; 0: nothing.
    pub tlb: u8,
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
    pub published: u8,
    pub awake: u8,
    pub leaving: bool,
    pub request: u8,
    pub round: Round,
    /// Cached copy of the entry.
    pub line: Option<Pte>,
    /// Generation of the cached copy of the frame's contents.
    pub data: Option<u8>,
    /// The logs name the frame, and this node has not dropped it yet.
    pub logged: bool,
    /// The round that goes on has to drop it.
    pub taken: bool,
    /// Who recovers it, plus one.
    pub claim: u8,
    pub cpus: [Cpu; CPUS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub epoch: u8,
    pub version: u8,
    pub ty: Type,
    pub refs: i8,
    pub w1: u8,
    /// Generation of the frame's contents.
    pub contents: u8,
    pub pte: Pte,
    pub slot: Slot,
    pub slot_epoch: u8,
    /// Generation of the slot's contents.
    pub filled: u8,
    pub nodes: [Node; NODES],
    pub ops: u8,
    pub crashes: u8,
    pub joins: u8,
    pub recoveries: u8,
}

/// Version that capabilities and weak references to the frame carry, and generation of what they
/// mean.
pub(crate) const REFERENCE: u8 = 1;

impl State {
    pub(crate) fn first(c: &Scenario) -> State {
        let cpu = Cpu {
            phase: Phase::Off,
            op: None,
            intent: None,
            tlb: 0,
            current: 0,
            acknowledged: 0,
        };
        let absent = Node {
            life: Life::Vacant,
            published: 0,
            awake: 0,
            leaving: false,
            request: 0,
            round: Round::Quiet,
            line: None,
            data: None,
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
        State {
            epoch: 1,
            version: REFERENCE,
            ty: if c.kernel { Type::Kernel } else { Type::User },
            refs: i8::from(c.mapped),
            w1: 0,
            contents: REFERENCE,
            pte: if c.mapped {
                Pte::Present(REFERENCE)
            } else {
                Pte::Empty(0)
            },
            slot: if c.slot { Slot::Active } else { Slot::Free },
            slot_epoch: 0,
            filled: 0,
            nodes,
            ops: 0,
            crashes: 0,
            joins: 0,
            recoveries: 0,
        }
    }

    pub(crate) fn has_reused(&self) -> bool {
        self.contents > REFERENCE || self.filled > 0
    }

    pub(crate) fn has_recovered(&self) -> bool {
        self.recoveries > 0
    }

    /// What must never be.
    pub(crate) fn violation(&self, c: &Scenario) -> Option<&'static str> {
        for (n, node) in self.nodes.iter().enumerate() {
            if c.incoherent && node.data.is_some_and(|g| g != self.contents) {
                return Some("a cached line has contents from before the reuse");
            }
            for cpu in &node.cpus {
                if cpu.tlb != 0 && cpu.tlb - 1 != self.contents {
                    return Some("a TLB reaches a frame that was reused");
                }
                if cpu.current != 0 && cpu.current - 1 != self.contents {
                    return Some("the current thread's frame was reused");
                }
                if let Some(v) = cpu.op.and_then(|op| self.violation_of(n, op)) {
                    return Some(v);
                }
            }
        }
        if let Pte::Present(g) = self.pte {
            if g != self.contents {
                return Some("an entry maps a frame that was reused");
            }
            if !matches!(self.ty, Type::User | Type::Frozen) {
                return Some("an entry maps a frame that is no user frame");
            }
        }
        if self.ty == Type::Kernel && self.version == REFERENCE && self.contents != REFERENCE {
            return Some("an old reference resolves to a new object");
        }
        if self.refs < 0 {
            return Some("fewer than no references");
        }
        self.leak()
    }

    fn violation_of(&self, n: usize, op: Op) -> Option<&'static str> {
        match op.kind {
            Kind::Read if op.pc == 1 && op.seen != self.contents => {
                Some("an object was reused between check and use")
            }
            Kind::Lookup if op.pc == 1 && op.seen != self.filled => {
                Some("a slot was filled again under a reader")
            }
            Kind::ToKernel | Kind::ToUser if op.pc >= 4 && self.ty != Type::Retyping(n as u8) => {
                Some("a node initialises a frame that it has lost")
            }
            _ => None,
        }
    }

    /// When nothing is in progress and nobody dead, everything is accounted for.
    fn leak(&self) -> Option<&'static str> {
        let busy = self.nodes.iter().any(|n| {
            matches!(n.life, Life::Dead | Life::Recovering) || n.cpus.iter().any(|c| c.op.is_some())
        });
        if busy {
            return None;
        }
        let present = i8::from(matches!(self.pte, Pte::Present(_)));
        if self.refs != present {
            return Some("references and entries differ when nothing is in progress");
        }
        if matches!(self.pte, Pte::Closing(_))
            || matches!(self.ty, Type::Retyping(_) | Type::Frozen)
        {
            return Some("a frame or entry is stuck");
        }
        if matches!(self.slot, Slot::Reserved(_) | Slot::Closing(_)) {
            return Some("a slot is stuck");
        }
        None
    }
}
