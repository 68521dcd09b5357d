//! Memory and objects of the model checks.
//!
//! One word says whether an object is there, another is its contents. Node 0 takes the object
//! away, stamps it, and writes new contents if node 1 has moved on; node 1 looks at the first word
//! and then uses the second. Node 0 itself does not count: its own CPU knows what it does.

use core::mem::{offset_of, size_of};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;
use dyad_coherence::model::mutant::Orders;
use dyad_coherence::model::{Lacks, LoomMem};
use dyad_quiesce::{Epoch, NodeHardware, Quiescence};
use dyad_shm::PhysAddr;
use dyad_shm::quiesce::{CpuAcknowledgement, FlushLog, IntentLine, NodePublication, QuiesceArea};
use dyad_shm::superblock::{NodeEntry, NodeState, NodeWord, Superblock};
use loom::sync::atomic::Ordering;

pub const SUPERBLOCK: u64 = 0x40_0000_0000;
pub const AREA: u64 = 0x50_0000_0000;
pub const THERE: PhysAddr = PhysAddr(0x60_0000_0000);
pub const CONTENTS: PhysAddr = PhysAddr(0x60_0000_1000);
/// What the contents are after reuse.
pub const NEW: u64 = 2;
/// The epoch at the start.
pub const START: u64 = 5;

pub fn node0() -> NodeId {
    NodeId::new(0).unwrap()
}

pub fn node1() -> NodeId {
    NodeId::new(1).unwrap()
}

pub fn cpu(c: u64) -> CpuId {
    CpuId::new(c).unwrap()
}

/// What node 1 has published, and which of its CPUs are awake.
pub const PUBLISHED: u64 =
    AREA + (offset_of!(QuiesceArea, publications) + size_of::<NodePublication>()) as u64;
/// Node 1's state.
pub const STATE: u64 = state(1);
/// Head and first entry of the log of node 0's CPU 0.
pub const HEAD: u64 = AREA + offset_of!(QuiesceArea, logs) as u64;
pub const ENTRY: u64 = HEAD + offset_of!(FlushLog, entries) as u64;

/// The set of logs.
pub const LOG_SET: u64 = AREA + offset_of!(QuiesceArea, log_set) as u64;

/// A word of the intent line of node 1's CPU 0.
pub const fn intent(word: u64) -> u64 {
    let line = offset_of!(QuiesceArea, intents) + 8 * size_of::<IntentLine>();
    AREA + line as u64 + 8 * word
}

/// The acknowledgement of a CPU of node 1.
pub const fn acknowledged(cpu: usize) -> u64 {
    let line = offset_of!(QuiesceArea, acknowledgements);
    AREA + (line + (8 + cpu) * size_of::<CpuAcknowledgement>()) as u64
}

const fn state(n: u64) -> u64 {
    let entry = offset_of!(Superblock, nodes) as u64 + n * size_of::<NodeEntry>() as u64;
    SUPERBLOCK + entry + offset_of!(NodeEntry, state) as u64
}

/// Node 1 is live, its CPU 0 awake, and it has published the present epoch. `tracked` words are
/// explored besides those that always are, or have other values.
pub fn memory(lacks: Lacks, orders: &Orders, tracked: &[(u64, u64)]) -> Arc<LoomMem> {
    let area = |offset: usize| AREA + offset as u64;
    let mut all = vec![
        (SUPERBLOCK + offset_of!(Superblock, epoch) as u64, START),
        (PUBLISHED, START << 16 | 1),
        (area(offset_of!(QuiesceArea, requests)) + 64, START),
        (acknowledged(0), START),
        (THERE.0, 1),
        (CONTENTS.0, 1),
    ];
    // A word that is named again has the value named last.
    all.extend(tracked);
    let mut plain = vec![SUPERBLOCK, AREA, acknowledged(1), LOG_SET];
    plain.extend((0..8).map(state));
    let logs = area(offset_of!(QuiesceArea, logs));
    plain.extend((0..64).map(|i| logs + i * size_of::<FlushLog>() as u64));
    plain.extend((0..504).map(|i| ENTRY + 8 * i));
    // Full flushes of node 1.
    plain.push(area(offset_of!(QuiesceArea, requests)) + 64 + 8);
    plain.retain(|w| !tracked.iter().any(|t| t.0 == *w));
    let mem = LoomMem::new(lacks, &all, &plain).with_orders(orders);
    if !tracked.iter().any(|t| t.0 == STATE) {
        let live = NodeWord {
            state: NodeState::Live,
            incarnation: 1,
        };
        mem.store(PhysAddr(STATE), live.bits(), Ordering::SeqCst);
    }
    Arc::new(mem)
}

pub fn words(mem: &LoomMem) -> Quiescence<'_, LoomMem> {
    Quiescence::new(mem, PhysAddr(SUPERBLOCK), PhysAddr(AREA)).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Lines(PhysAddr),
    Everything,
    Call(CpuId),
}

/// A CPU. Writes down what a round does.
#[derive(Default)]
pub struct Hardware<'m> {
    did: RefCell<Vec<Did>>,
    /// Where the object is that the CPU uses, if it uses any.
    uses: Option<&'m LoomMem>,
    /// Whether the TLB has a translation of the object.
    translates: Cell<bool>,
}

impl<'m> Hardware<'m> {
    /// A CPU that has found the object, or not, and uses it until it has dropped it: whatever it looks up anew, and by the
    /// translation that its TLB has.
    pub fn using(mem: &'m LoomMem, found: bool) -> Hardware<'m> {
        Hardware {
            uses: Some(mem),
            translates: Cell::new(found),
            ..Hardware::default()
        }
    }

    pub fn did(&self, what: Did) -> bool {
        self.did.borrow().contains(&what)
    }

    fn looks_up(&self) {
        if let Some(mem) = self.uses {
            use_it(mem);
        }
    }
}

impl NodeHardware for Hardware<'_> {
    fn writeback_invalidate(&self, at: PhysAddr, _len: u64) {
        self.did.borrow_mut().push(Did::Lines(at));
    }
    fn flush_everything(&self, _piece: u64) -> bool {
        self.did.borrow_mut().push(Did::Everything);
        true
    }
    // The translation is used up to the moment at which it is dropped.
    fn flush_tlb(&self) {
        if let Some(mem) = self.uses
            && self.translates.replace(false)
        {
            look(mem);
        }
    }
    // What the CPU runs in is looked up anew.
    fn revalidate(&self) {
        self.looks_up();
    }
    // What has been in use is put away.
    fn detach(&self) {
        self.looks_up();
    }
    fn call(&self, cpu: CpuId) {
        self.did.borrow_mut().push(Did::Call(cpu));
    }
}

pub fn find(mem: &LoomMem) -> bool {
    mem.load(THERE, Ordering::Acquire) == 1
}

/// Reads and writes the object. Contents are odd until it is reused.
pub fn look(mem: &LoomMem) {
    let seen = mem.load(CONTENTS, Ordering::Relaxed);
    assert_eq!(seen % 2, 1, "reused under a node that uses it");
    mem.store(CONTENTS, seen + 2, Ordering::Relaxed);
}

pub fn use_it(mem: &LoomMem) {
    if find(mem) {
        look(mem);
    }
}

pub fn by_protocol(q: &Quiescence<'_, LoomMem>, stamp: Epoch) -> bool {
    q.quiesced(stamp).is_ok()
}

/// Sees all that users have written, and makes something else of the object.
pub fn reuse(mem: &LoomMem) {
    let seen = mem.load(CONTENTS, Ordering::Relaxed);
    let last = mem.swap(CONTENTS, NEW);
    assert_eq!(seen, last, "reused before the last use");
}

/// Takes the object away, and reuses it if that is allowed at once.
pub fn take_and_reuse(
    mem: &LoomMem,
    quiet: impl Fn(&Quiescence<'_, LoomMem>, Epoch) -> bool,
) -> bool {
    let q = words(mem);
    mem.cas(THERE, 1, 0).unwrap();
    let stamp = q.now();
    let quiet = quiet(&q, stamp);
    if quiet {
        reuse(mem);
    }
    quiet
}
