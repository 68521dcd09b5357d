//! What an operation does when another CPU changes the entry between its look and its CAS:
//! deterministic, unlike the races between threads.

use crate::common;

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use common::{Frames, at, hardware_use};
use dyad_abi::{Isa, NodeId};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{FrameSource, Leaf, Level, MapError, Perms, Pte, RemoteCpu, encode};
use dyad_shm::PhysAddr;

/// Memory in which something happens to a word right before the first CAS on it.
struct Meddled<'m> {
    mem: &'m HostMem,
    plan: RefCell<Option<(PhysAddr, u64)>>,
}

impl GlobalMem for Meddled<'_> {
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        let due = self.plan.borrow().filter(|p| p.0 == at);
        if let Some((_, value)) = due {
            self.plan.replace(None);
            self.mem.store(at, value, Ordering::Relaxed);
        }
        self.mem.cas(at, old, new)
    }

    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.mem.contains(at, len)
    }
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.mem.load(at, order)
    }
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.mem.store(at, value, order);
    }
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.mem.swap(at, value)
    }
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.mem.add(at, n)
    }
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.mem.or(at, bits)
    }
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.mem.and(at, bits)
    }
    fn fence(&self) {
        self.mem.fence();
    }
    fn writeback(&self, at: PhysAddr, len: u64) {
        self.mem.writeback(at, len);
    }
    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.mem.invalidate(at, len);
    }
}

const VA: u64 = 0x4100_0000;
const PAGE: Leaf = Leaf::user(PhysAddr(0x40_0000_7000), Perms::WRITE);
const NODE: u64 = 2;

type Table<'a, 'm> = RemoteCpu<'a, Meddled<'m>>;

/// Sets up a table with `before` in its entry for [`VA`], lets it become `meanwhile` at the first
/// CAS of `act`, and checks what is in it afterwards.
fn interfere<R>(
    isa: Isa,
    before: Pte,
    meanwhile: impl Fn(u64) -> u64,
    act: impl Fn(&Table<'_, '_>, &Frames<'_>) -> R,
    after: impl Fn(u64) -> u64,
) -> R {
    let mem = HostMem::new();
    let frames = Frames::new(&mem);
    let root = frames.alloc_table().unwrap();
    let entry = RemoteCpu::new(&mem, isa, root)
        .entry_for(VA, Level::L1, &frames, |_| true)
        .unwrap();
    let before = encode(isa, before, Level::L1).unwrap();
    mem.store(entry, before, Ordering::Relaxed);
    let meddled = Meddled {
        mem: &mem,
        plan: RefCell::new(Some((entry, meanwhile(before)))),
    };
    let result = act(&RemoteCpu::new(&meddled, isa, root), &frames);
    assert_eq!(meddled.plan.take(), None, "no CAS at all");
    let found = mem.load(entry, Ordering::Relaxed);
    assert_eq!(found, after(meanwhile(before)), "{isa}");
    result
}

fn unmap(t: &Table<'_, '_>, _: &Frames<'_>) -> Result<Leaf, MapError> {
    t.unmap(VA, NodeId::new(NODE).unwrap(), |_, _| (), || at(7))
        .map(|(l, _)| l)
}

fn protect(t: &Table<'_, '_>, _: &Frames<'_>) -> Result<Leaf, MapError> {
    t.protect(VA, Perms::READ)
}

fn harvest(t: &Table<'_, '_>, _: &Frames<'_>) -> Result<Leaf, MapError> {
    let (accessed, dirty) = t.harvest(VA)?;
    Ok(Leaf {
        accessed,
        dirty,
        ..PAGE
    })
}

type Change = fn(&Table<'_, '_>, &Frames<'_>) -> Result<Leaf, MapError>;

#[test]
fn use_by_the_owner_is_waited_out_and_seen() {
    let used = PAGE.preset();
    let narrowed = Leaf {
        perms: Perms::READ | Perms::USER,
        ..used
    };
    let cases: [(Change, Pte); 3] = [
        (unmap, Pte::Empty { epoch: at(7) }),
        (protect, Pte::Leaf(narrowed)),
        (harvest, Pte::Leaf(PAGE)),
    ];
    for isa in Isa::ALL {
        for (change, after) in cases {
            let word = encode(isa, after, Level::L1).unwrap();
            let touch = |raw| hardware_use(isa, raw, true);
            let seen = interfere(isa, Pte::Leaf(PAGE), touch, change, |_| word);
            assert_eq!(seen, Ok(used));
        }
    }
}

#[test]
fn what_others_put_there_is_left_alone() {
    let moved = Leaf {
        pa: PAGE.pa.add(4096),
        ..PAGE
    };
    let narrowed = Leaf {
        perms: Perms::READ | Perms::USER,
        ..PAGE
    };
    let node = NodeId::new(5).unwrap();
    let changes: [Change; 3] = [unmap, protect, harvest];
    for isa in Isa::ALL {
        for (theirs, error) in [
            (Pte::Leaf(moved), MapError::Contended),
            (Pte::Leaf(narrowed), MapError::Contended),
            (Pte::Empty { epoch: at(3) }, MapError::NotMapped),
            (Pte::Closing { node }, MapError::Closing),
            (Pte::Other(0xdead_beec), MapError::Conflict(Level::L1)),
        ] {
            let word = encode(isa, theirs, Level::L1).unwrap();
            for change in changes {
                let result = interfere(isa, Pte::Leaf(PAGE), |_| word, change, |w| w);
                assert_eq!(result, Err(error), "{isa} {theirs:?}");
            }
        }
    }
}

#[test]
fn a_mapping_gives_way_to_one_that_was_faster() {
    let other = Leaf {
        pa: PAGE.pa.add(4096),
        ..PAGE
    };
    let node = NodeId::new(5).unwrap();
    for isa in Isa::ALL {
        for (theirs, error) in [
            (Pte::Leaf(other), MapError::Exists(other)),
            // Mapped and unmapped again: a stamp that has not been checked.
            (Pte::Empty { epoch: at(9) }, MapError::Contended),
            (Pte::Closing { node }, MapError::Closing),
        ] {
            let word = encode(isa, theirs, Level::L1).unwrap();
            let empty = Pte::Empty { epoch: at(2) };
            let map = |t: &Table<'_, '_>, frames: &Frames<'_>| {
                t.map_when(VA, PAGE, Level::L1, frames, |s| s < at(3))
            };
            let result = interfere(isa, empty, |_| word, map, |w| w);
            assert_eq!(result, Err(error), "{isa} {theirs:?}");
        }
    }
}
