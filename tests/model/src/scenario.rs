//! What is searched: operations, bounds, and what is left out of the rows.

/// Most nodes of a scenario.
pub(crate) const NODES: usize = 3;
/// Most CPUs of a node.
pub(crate) const CPUS: usize = 2;
/// The node whose table has the entry that most rows work on.
pub(crate) const OWNER: usize = 1;

/// Something left out of a row. The names are those of the protocol's table of weakenings where
/// it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Weakening {
    /// Map looks at the type of the frame, not at its version.
    M1TypeOnly,
    A1bPublishedAsMuch,
    /// Unmap takes its stamp before it closes the entry.
    A1cStampBeforeClosing,
    A1dStampBeforeRetyping,
    /// Map from peer does not look at the peer's entry again.
    A2NoSecondLook,
    /// Unmap from all tables begins with the peers, and comes to the source last.
    A2PeersFirst,
    /// Entries do not pin the table they are in.
    P1TableNotPinned,
    B2NoRevalidation,
    S3CheckBeforeReserve,
    C1bSlotStampBeforeClosing,
    /// Entries are changed in private caches: written back when all is done, TLBs before caches.
    I1PrivateCaches,
    /// Entries are changed in private caches: written back before the stamp, TLBs before caches.
    I2PrivateCaches,
    /// Entries are changed in private caches: written back after the stamp, caches before TLBs.
    I3PrivateCaches,
    /// Written back before the stamp, caches before TLBs.
    I4PrivateCaches,
    I5TlbBeforeCache,
    /// The MMU sets accessed and dirty bits in the line it has.
    I6AccessedNotPreset,
    L2UseBeforeWithdrawal,
    Z3IdleWithoutCacheFlush,
    /// A node that goes to sleep drops what logs name by then, and nothing else.
    IdleFlushesLoggedOnly,
    D1RecoverWithoutVersion,
    D2RecoverWithoutMappings,
    /// Recovery counts the frame's references, not the table's.
    D2RecoverWithoutTable,
    D3RecoverWithoutSlots,
    D4DeclaredDeadWhileRunning,
    /// A suspected node does not count.
    SuspectsDoNotCount,
    /// Map does not wait for the old translation of the address.
    EmptyNotAwaited,
    /// Unmap swaps the entry for what it writes.
    UnmapBySwap,
    /// Protect stores what it has made of what it loaded.
    ProtectByStore,
    /// Protect counts as done when the entry is narrower.
    ProtectCountsAtOnce,
    /// Protect takes its stamp before it narrows the entry.
    ProtectStampsEarly,
    /// CPUs acknowledge while they are in the kernel.
    AcknowledgeInKernel,
    /// A frame is in use before its contents are in memory.
    PublishBeforeWriteBack,
    /// Who initialises a frame keeps its lines, clean.
    WriteBackKeepsLine,
    /// Giving up a kernel object does not log its frame.
    GiveUpWithoutLog,
    /// A frame is given up whatever its references.
    GiveUpIgnoresRefs,
    /// A claim compares the type of the frame, not its version.
    ClaimTypeOnly,
    /// A claim loads w1 before w0.
    ClaimLoadsStampFirst,
    /// Map installs the entry, then pins.
    PinsAfterEntry,
    /// Unmap gives the frame back, then closes the entry.
    UnpinBeforeClosing,
    /// Recovery does not stamp the frame that it gives up.
    RecoverWithoutStamp,
    /// Recovery does not stamp the slot that it frees.
    RecoverSlotWithoutStamp,
    /// The log of a kernel object that is given up comes before it is taken.
    GiveUpLogsEarly,
    /// Map pins frozen frames.
    MapIgnoresFrozen,
    /// Unmap empties entries of frozen frames.
    UnmapIgnoresFrozen,
    /// Recovery counts without a round in between.
    RecountWithoutRound,
    /// Two nodes recover one without a claim that excludes the other.
    RecoverWithoutClaim,
    /// Claims of different dead nodes do not exclude each other.
    ClaimPerVictim,
    /// Two CPUs of a node may hold the same claim.
    ClaimPerNode,
    /// Recovery of a mapping logs the frame only if it closes an entry.
    RecoveryLogsClosedOnly,
    /// Recovery of a frame does not log it.
    RecoverFrameWithoutLog,
    /// Recovery leaves entries in place that rows which were not over have made or not yet closed.
    RecoveryKeepsHalfMaps,
    /// A round publishes when one CPU has acknowledged.
    OneCpuAcknowledges,
    /// A round looks which CPUs are awake, and have to acknowledge, before it drops lines.
    AsksBeforeLines,
    /// The last CPU sleeps although another one was awake during its flush.
    VisitForgotten,
    /// A CPU that wakes counts as having acknowledged the present epoch.
    WakeAcknowledges,
    /// A CPU that wakes publishes the present epoch, as if it were the only one.
    WakePublishes,
    /// LIVE before the publication.
    JoinBeforePublication,
    /// Shared access before LIVE.
    UseBeforeLive,
    /// A place is taken before its former node has been recovered.
    JoinFromDead,
    /// Rows log the line of an entry after they have taken its stamp.
    EntryLoggedLate,
    /// Deactivate logs the line of the slot after it has taken its stamp.
    SlotLoggedLate,
    /// A slot is ACTIVE before it has its contents.
    ActiveBeforeFill,
    /// Recovery does not log the slots that it frees.
    RecoverSlotWithoutLog,
    /// Unmap logs the frame after it has given up its reference.
    LogAfterReference,
    /// Frames that were given up are dropped from caches before CPUs acknowledge, and not after.
    FramesBeforeTlb,
}

/// Operations. There is one frame, one table with an entry of node 1, one entry of node 0 in a
/// table that is never given up, and one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Map,
    Unmap,
    /// Node 0 maps what node 1 maps.
    MapPeer,
    /// Unmap from node 1's table, then from node 0's.
    UnmapAll,
    /// Take the right to write away.
    Protect,
    ToUntyped,
    ToKernel,
    ToUser,
    TableToUntyped,
    TableToUser,
    /// Resolve a weak reference, then use it.
    Read,
    /// Resolve a weak reference to the table, follow its entry, use what is there: where the entry
    /// is an edge.
    Walk,
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
    /// Which node may start which of them; if empty, all may start all.
    pub roles: &'static [(u8, Kind)],
    /// How many operations may be started.
    pub ops: u8,
    /// The last epoch; it is 1 at first.
    pub last_epoch: u8,
    /// Whether caches are incoherent.
    pub incoherent: bool,
    /// Nodes whose CPUs may sleep, as bits.
    pub idle: u8,
    /// Which of their CPUs, as bits.
    pub idle_cpus: u8,
    /// Nodes that may crash, in this order.
    pub victims: &'static [u8],
    /// How often a vacant place may be taken again.
    pub joins: u8,
    /// Nodes that live and do nothing, as bits.
    pub stalled: u8,
    /// Node 1 may be suspected.
    pub suspicion: bool,
    /// The entry is the edge of a capability table: no TLB, but all nodes walk it.
    pub edge: bool,
    /// The frame is mapped at first.
    pub mapped: bool,
    /// The frame is a kernel object at first.
    pub kernel: bool,
    /// The frame is untyped at first. References are to what it becomes next.
    pub untyped: bool,
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
            roles: &[],
            ops,
            last_epoch,
            incoherent: false,
            idle: 0,
            idle_cpus: 0b11,
            victims: &[],
            joins: 0,
            stalled: 0,
            suspicion: false,
            edge: false,
            mapped: false,
            kernel: false,
            untyped: false,
            slot: false,
            weakening: None,
        }
    }

    pub(crate) fn cpus_of(&self, node: usize) -> usize {
        if node == OWNER { self.cpus } else { 1 }
    }

    pub(crate) fn may_start(&self, node: usize, kind: Kind) -> bool {
        self.actors >> node & 1 != 0
            && (self.roles.is_empty() || self.roles.contains(&(node as u8, kind)))
    }

    pub(crate) fn lacks(&self, w: Weakening) -> bool {
        self.weakening == Some(w)
    }

    /// Entries are changed in private caches: whether they are written back before the stamp.
    pub(crate) fn private_entries(&self) -> Option<bool> {
        use Weakening::{I1PrivateCaches, I2PrivateCaches, I3PrivateCaches, I4PrivateCaches};
        match self.weakening? {
            I1PrivateCaches | I3PrivateCaches => Some(false),
            I2PrivateCaches | I4PrivateCaches => Some(true),
            _ => None,
        }
    }

    /// Rounds flush TLBs before they drop lines.
    pub(crate) fn tlb_first(&self) -> bool {
        use Weakening::{I1PrivateCaches, I2PrivateCaches, I5TlbBeforeCache};
        matches!(
            self.weakening,
            Some(I1PrivateCaches | I2PrivateCaches | I5TlbBeforeCache)
        )
    }
}
