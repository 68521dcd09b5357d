//! What the tests of this crate share: table frames and leaves to try.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use aarch64_paging::descriptor::El1Attributes as Attr;
use dyad_abi::Isa;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{Epoch, FrameSource, Leaf, Level, Memory, Perms};
use dyad_shm::PhysAddr;
use proptest::test_runner::Config as ProptestConfig;
use x86_64::structures::paging::PageTableFlags as Flags;

/// Where table frames come from, in order.
pub const TABLES: u64 = 0x4_0000_0000;

/// One of this many words is overwritten when a frame is freed.
const SPOILT: usize = if cfg!(miri) { 64 } else { 1 };

/// One of this many leaves is tried.
const LEAVES: usize = if cfg!(miri) { 29 } else { 1 };

/// An epoch.
pub fn at(n: u64) -> Epoch {
    Epoch::new(n).unwrap()
}

/// Hands out frames from [`TABLES`] on, in order, and knows which are in use. On incoherent memory it makes the
/// flushes that freeing and taking memory require.
#[derive(Clone)]
pub struct Frames<'m, M = HostMem> {
    mem: &'m M,
    state: Arc<Mutex<State>>,
    limit: usize,
}

#[derive(Default)]
struct State {
    used: BTreeSet<u64>,
    /// Frames that have been freed, to be used again before new ones; nothing if they are not.
    freed: Option<Vec<u64>>,
    next: u64,
}

impl<'m, M: GlobalMem> Frames<'m, M> {
    pub fn new(mem: &'m M) -> Frames<'m, M> {
        Frames::with_limit(mem, usize::MAX)
    }

    /// At most `limit` frames at a time.
    pub fn with_limit(mem: &'m M, limit: usize) -> Frames<'m, M> {
        Frames {
            mem,
            state: Arc::default(),
            limit,
        }
    }

    /// Frames that are used again after they have been freed.
    pub fn reusing(mem: &'m M) -> Frames<'m, M> {
        let frames = Frames::new(mem);
        frames.state.lock().unwrap().freed = Some(vec![]);
        frames
    }

    /// A view of these frames for a node with its own memory, which takes and gives back frames.
    pub fn on(&self, mem: &'m M) -> Frames<'m, M> {
        Frames {
            mem,
            state: self.state.clone(),
            limit: self.limit,
        }
    }

    pub fn in_use(&self) -> Vec<PhysAddr> {
        let state = self.state.lock().unwrap();
        state.used.iter().map(|&f| PhysAddr(f)).collect()
    }

    /// Stores to one of `step` words.
    fn fill(&self, pa: PhysAddr, word: u64, step: usize) {
        for i in (0..512).step_by(step) {
            self.mem.store(pa.add(8 * i), word, Ordering::Relaxed);
        }
    }
}

impl<M: GlobalMem> FrameSource for Frames<'_, M> {
    fn alloc_table(&self) -> Option<PhysAddr> {
        let mut state = self.state.lock().unwrap();
        if state.used.len() >= self.limit {
            return None;
        }
        let used_before = state.freed.as_mut().and_then(Vec::pop);
        let pa = match used_before {
            Some(pa) => PhysAddr(pa),
            None => {
                state.next += 4096;
                PhysAddr(TABLES + state.next - 4096)
            }
        };
        state.used.insert(pa.0);
        drop(state);
        self.mem.invalidate(pa, 4096);
        // The memory of tests is zeroed.
        if used_before.is_some() || !cfg!(miri) {
            self.fill(pa, 0, 1);
        }
        Some(pa)
    }

    fn free_table(&self, pa: PhysAddr) {
        let used = self.state.lock().unwrap().used.remove(&pa.0);
        assert!(used, "freed twice or never allocated");
        // A CPU that still reads it should notice.
        self.mem.invalidate(pa, 4096);
        self.fill(pa, u64::MAX, SPOILT);
        self.mem.writeback(pa, 4096);
        if let Some(freed) = &mut self.state.lock().unwrap().freed {
            freed.push(pa.0);
        }
    }
}

/// All combinations of what a leaf can say, sensible or not (some of them under Miri).
pub fn all_leaves(pa: PhysAddr) -> impl Iterator<Item = Leaf> {
    let all = (0..16u8).flat_map(move |perms| {
        (0..16u8).map(move |bits| Leaf {
            pa,
            perms: Perms::from_bits_truncate(perms),
            memory: if bits & 1 != 0 {
                Memory::Device
            } else {
                Memory::Normal
            },
            global: bits & 2 != 0,
            accessed: bits & 4 != 0,
            dirty: bits & 8 != 0,
        })
    });
    all.step_by(LEAVES)
}

/// What the owner's CPU does to an entry when it uses a page, in terms of the manuals' bits:
/// x86-64 sets A (5) and D (6); AArch64 sets AF (10) and, if DBM (51) allows, clears AP[2] (7).
pub fn hardware_use(isa: Isa, raw: u64, write: bool) -> u64 {
    match isa {
        Isa::X86_64 if write && raw & 2 != 0 => raw | 1 << 5 | 1 << 6,
        Isa::X86_64 => raw | 1 << 5,
        Isa::Aarch64 if write && raw >> 51 & 1 != 0 => (raw | 1 << 10) & !(1 << 7),
        Isa::Aarch64 => raw | 1 << 10,
    }
}

/// What a leaf is in the terms of the `x86_64` crate.
pub fn x86_flags(leaf: &Leaf, level: Level) -> Flags {
    let mut flags = Flags::PRESENT;
    flags.set(Flags::WRITABLE, leaf.perms.contains(Perms::WRITE));
    flags.set(Flags::USER_ACCESSIBLE, leaf.perms.contains(Perms::USER));
    flags.set(Flags::NO_EXECUTE, !leaf.perms.contains(Perms::EXECUTE));
    flags.set(Flags::NO_CACHE, leaf.memory == Memory::Device);
    flags.set(Flags::ACCESSED, leaf.accessed);
    flags.set(Flags::DIRTY, leaf.dirty);
    flags.set(Flags::GLOBAL, leaf.global);
    flags.set(Flags::HUGE_PAGE, level != Level::L1);
    flags
}

/// What a leaf is in the terms of `aarch64-paging`; a page or block, as its function for ranges
/// decides.
pub fn a64_attributes(leaf: &Leaf) -> Attr {
    let has = |p| leaf.perms.contains(p);
    let mut attr = Attr::VALID | Attr::INNER_SHAREABLE;
    attr |= match leaf.memory {
        Memory::Normal => Attr::ATTRIBUTE_INDEX_0,
        Memory::Device => Attr::ATTRIBUTE_INDEX_1,
    };
    attr.set(Attr::USER, has(Perms::USER));
    attr.set(Attr::DBM, has(Perms::WRITE));
    attr.set(Attr::READ_ONLY, !(has(Perms::WRITE) && leaf.dirty));
    attr.set(Attr::SWFLAG_0, !has(Perms::WRITE) && leaf.dirty);
    attr.set(Attr::ACCESSED, leaf.accessed);
    attr.set(Attr::NON_GLOBAL, !leaf.global);
    let execute = has(Perms::EXECUTE);
    attr.set(Attr::UXN, !execute || !has(Perms::USER));
    attr.set(Attr::PXN, !execute || has(Perms::USER));
    attr
}

/// Runs that many cases and leaves no file behind when one fails.
pub fn cases(n: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        // Miri is some hundred times slower.
        ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { n })
    }
}
