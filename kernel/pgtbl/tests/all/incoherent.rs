//! Page tables shared by nodes without coherent caches: the remote CPU drivers work,
//! whatever the caches do (the register of mutants leaves out each of their flushes); and what
//! the owner's hardware, which walks tables through its cache, makes of them.

use crate::common;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use common::{Frames, at, hardware_use};
use dyad_abi::{Isa, NodeId};
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::Flushes;
use dyad_coherence::stale::{Fault, Habits, StaleMem, StaleNode, Task};
use dyad_pgtbl::{Epoch, FrameSource, Leaf, Level, MapError, Perms, Pte, RemoteCpu, decode};
use dyad_shm::PhysAddr;

const VA: u64 = 0x10_0000_3000;
const FRAME: PhysAddr = PhysAddr(0x40_0000_7000);
const EPOCH: PhysAddr = PhysAddr(0x40_0000_0040);
const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };
/// Of the lines of old frames one of this many is looked at.
const LINES: usize = if cfg!(miri) { 8 } else { 1 };
/// More operations than any run takes in which no node waits for ever.
const STEPS: u64 = 100_000;

type Outcome = Result<(), String>;

fn page(n: u64) -> Leaf {
    Leaf::user(FRAME.add(4096 * n), Perms::WRITE)
}

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

/// A root that a node has made and shown to all others.
fn root(frames: &Frames<'_, impl GlobalMem>, mem: &impl GlobalMem) -> PhysAddr {
    let root = frames.alloc_table().unwrap();
    mem.writeback(root, 4096);
    root
}

/// Table frames that have been something else, which two nodes have in their caches.
fn used_before<M: GlobalMem>(frames: &Frames<'_, M>, one: &M, two: &M) {
    let old: Vec<_> = (0..8).filter_map(|_| frames.alloc_table()).collect();
    for frame in old {
        frames.free_table(frame);
        for at in (0..4096).step_by(64 * LINES) {
            for mem in [one, two] {
                mem.load_fresh(frame.add(at), Ordering::Relaxed);
            }
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Outcome {
    if is == should {
        Ok(())
    } else {
        Err(format!("{what}: {is:?}, not {should:?}"))
    }
}

/// One operation after the other, on two nodes in turn: each sees what the other has done, to
/// entries that it has looked at before.
fn take_turns(mem: &StaleMem, isa: Isa, flushes: &Flushes) -> Outcome {
    let [one, two] = [0, 1].map(|n| flushes.on(mem.node(n)));
    let frames = Frames::reusing(&one);
    used_before(&frames, &one, &two);
    let root = root(&frames, &one);
    let (a, b) = (
        RemoteCpu::new(&one, isa, root),
        RemoteCpu::new(&two, isa, root),
    );
    let others = frames.on(&two);
    same("empty", b.walk(VA).pte, Pte::Empty { epoch: Epoch::ZERO })?;
    for (n, (mapper, user)) in [(a, b), (b, a), (a, b)].into_iter().enumerate() {
        let frames = if n == 1 { &others } else { &frames };
        let leaf = page(n as u64);
        let map = mapper.map(VA, leaf, Level::L1, frames);
        same("map", map, Ok(()))?;
        let seen = user.translate(VA);
        same("translate", seen, Some((leaf.pa, leaf, Level::L1)))?;
        let again = user.map(VA, page(9), Level::L1, frames);
        same("map again", again, Err(MapError::Exists(leaf)))?;
        // In the same tables, on other lines.
        for beside in [VA + (64 << 12), VA + (64 << 21), VA + (64 << 30)] {
            same(
                "beside",
                user.walk(beside).pte,
                Pte::Empty { epoch: Epoch::ZERO },
            )?;
        }
        same("protect", user.protect(VA, Perms::READ), Ok(leaf))?;
        let perms = mapper.translate(VA).map(|t| t.1.perms);
        same("protected", perms, Some(Perms::READ | Perms::USER))?;
        let unmapped = user
            .unmap(VA, node(1), |_, _| (), || at(7))
            .map(|(l, _)| l.pa);
        same("unmap", unmapped, Ok(leaf.pa))?;
        same("gone", mapper.translate(VA), None)?;
        let gone = mapper.unmap(VA, node(0), |_, _| (), || at(8));
        same("unmap again", gone, Err(MapError::NotMapped))?;
        let early = mapper.map_when(VA, leaf, Level::L1, frames, |s| s < at(7));
        same("map early", early, Err(MapError::NotQuiesced(at(7))))?;
    }
    b.free_tables(&others);
    same("frames", frames.in_use(), vec![root])?;
    same("freed", a.walk(VA).pte, Pte::Empty { epoch: Epoch::ZERO })
}

/// Two nodes map the same pages and make tables for them, at the same time; then both unmap them.
/// Each page is mapped by one and unmapped by one, and no table is lost.
fn race(mem: &StaleMem, isa: Isa, flushes: &Flushes) -> Outcome {
    const PAGES: u64 = 3;
    let nodes = [0, 1].map(|n| flushes.on(mem.node(n)));
    let frames = Frames::reusing(&nodes[0]);
    used_before(&frames, &nodes[0], &nodes[1]);
    let root = root(&frames, &nodes[0]);
    // Each in an L1 table of its own.
    let va = |n: u64| VA + (n << 21);
    let (mapped, unmapped) = (Mutex::new(vec![]), Mutex::new(vec![]));
    let map = |me: usize| -> Task<'_> {
        let (frames, table) = (frames.on(&nodes[me]), RemoteCpu::new(&nodes[me], isa, root));
        let mapped = &mapped;
        Box::new(move || {
            (0..PAGES).try_for_each(|n| {
                let (mine, theirs) = (page(2 * n + me as u64), page(2 * n + 1 - me as u64));
                match table.map(va(n), mine, Level::L1, &frames) {
                    Ok(()) => mapped.lock().unwrap().push((n, mine)),
                    Err(MapError::Exists(l)) if l == theirs => {}
                    Err(e) => return Err(format!("map {n}: {e}")),
                }
                match table.translate(va(n)) {
                    Some((_, leaf, _)) if [mine, theirs].contains(&leaf) => Ok(()),
                    other => Err(format!("after map {n}: {other:?}")),
                }
            })
        })
    };
    mem.interleave(STEPS, vec![map(0), map(1)])?;
    same("tables", frames.in_use().len() as u64, 3 + PAGES)?;
    let unmap = |me: usize| -> Task<'_> {
        let (mem, table) = (&nodes[me], RemoteCpu::new(&nodes[me], isa, root));
        let unmapped = &unmapped;
        Box::new(move || {
            (0..PAGES).try_for_each(|n| {
                match table.unmap(va(n), node(me), |_, _| (), || at(mem.add(EPOCH, 1))) {
                    Ok((leaf, _)) => unmapped.lock().unwrap().push((n, leaf)),
                    Err(MapError::NotMapped | MapError::Closing) => {}
                    Err(e) => return Err(format!("unmap {n}: {e}")),
                }
                same("gone", table.translate(va(n)), None)
            })
        })
    };
    mem.interleave(STEPS, vec![unmap(0), unmap(1)])?;
    let [mut mapped, mut unmapped] = [mapped, unmapped].map(|m| m.into_inner().unwrap());
    mapped.sort_by_key(|m| m.0);
    unmapped.sort_by_key(|m| m.0);
    same("pages", mapped.len() as u64, PAGES)?;
    same("unmapped", unmapped, mapped)
}

type Scenario = fn(&StaleMem, Isa, &Flushes) -> Outcome;

/// All flushes in place: the behaviour is right, nothing stale is read and nothing undone.
fn clean(scenario: Scenario) {
    for (seed, isa) in (0..SEEDS).flat_map(|seed| Isa::ALL.map(|isa| (seed, isa))) {
        let mem = StaleMem::new(2, seed);
        let outcome = scenario(&mem, isa, &Flushes::all()).and_then(|()| mem.check());
        assert_eq!(outcome, Ok(()), "{isa}, seed {seed}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow; `model.rs` does as much on such memory")]
fn nodes_see_what_each_other_has_done_to_tables() {
    clean(take_turns);
}

#[test]
#[cfg_attr(miri, ignore = "slow; `driver.rs` has threads that do so")]
fn of_nodes_that_map_and_unmap_the_same_pages_one_wins() {
    clean(race);
}

/// A CPU of node 0: what its hardware does with tables, through its cache.
struct Hardware<'m> {
    mem: StaleNode<'m>,
    isa: Isa,
    root: PhysAddr,
    /// The translation of [`VA`] that it holds.
    tlb: Cell<Option<PhysAddr>>,
}

impl Hardware<'_> {
    /// Reads or writes the page at [`VA`]: from the TLB, else by a walk.
    fn access(&self, write: bool) -> Option<PhysAddr> {
        if self.tlb.get().is_none() {
            self.tlb.set(self.walk(write));
        }
        self.tlb.get()
    }

    fn walk(&self, write: bool) -> Option<PhysAddr> {
        let mut table = self.root;
        for level in Level::ALL {
            let entry = table.add(8 * level.index(VA) as u64);
            let raw = self.mem.load(entry, Ordering::Relaxed);
            match decode(self.isa, raw, level) {
                Pte::Table(next) => table = next,
                Pte::Leaf(leaf) => {
                    let used = hardware_use(self.isa, raw, write);
                    if used != raw {
                        self.mem.store(entry, used, Ordering::Relaxed);
                    }
                    return Some(leaf.pa);
                }
                _ => return None,
            }
        }
        None
    }

    /// The part of a round that is about caches: what the log of written tables names.
    fn flush_cache(&self, tables: &[PhysAddr]) {
        for &table in tables {
            self.mem.invalidate(table, 4096);
        }
    }
}

/// Runs a test in which node 0 owns the table, its CPU has used the page at [`VA`], mapped by
/// `leaf`, and node 1 has unmapped it since. The test gets the CPU, the memory, the entry, and the
/// tables.
fn unmapped_by_another(leaf: Leaf, test: impl Fn(&Hardware<'_>, &StaleMem, PhysAddr, &[PhysAddr])) {
    for isa in Isa::ALL {
        let mem = StaleMem::with_habits(2, 0, Habits::LAZY);
        let [one, two] = [0, 1].map(|n| mem.node(n));
        let frames = Frames::new(&one);
        let root = root(&frames, &one);
        let [own, remote] = [&one, &two].map(|mem| RemoteCpu::new(mem, isa, root));
        own.map(VA, leaf, Level::L1, &frames).unwrap();
        let cpu = Hardware {
            mem: one,
            isa,
            root,
            tlb: Cell::new(None),
        };
        assert_eq!(cpu.access(true), Some(leaf.pa));
        remote.unmap(VA, node(1), |_, _| (), || at(7)).unwrap();
        let entry = remote.walk(VA).entry;
        test(&cpu, &mem, entry, &frames.in_use());
    }
}

/// Scenario I5: caches come before TLBs in a round. The other way round the TLB is filled again
/// from a stale line, and the round is published with the translation in it.
#[test]
fn a_round_flushes_caches_before_tlbs() {
    let leaf = page(0).preset();
    for caches_first in [true, false] {
        unmapped_by_another(leaf, |cpu, _, _, tables| {
            if caches_first {
                cpu.flush_cache(tables);
            }
            cpu.tlb.set(None);
            // The CPU goes on using the page in the middle of the round.
            cpu.access(false);
            if !caches_first {
                cpu.flush_cache(tables);
            }
            let left = (!caches_first).then_some(leaf.pa);
            assert_eq!(cpu.access(false), left, "{}", cpu.isa);
        });
    }
}

/// Scenario I6: hardware that sets accessed or dirty in its cache undoes, when the line is
/// written back, what another node has done to the entry; so both bits are preset.
#[test]
fn only_preset_leaves_survive_the_hardware() {
    unmapped_by_another(page(0).preset(), |cpu, mem, entry, tables| {
        cpu.flush_cache(tables);
        let found = decode(cpu.isa, mem.in_memory(entry), Level::L1);
        assert_eq!(found, Pte::Empty { epoch: at(7) });
    });
    unmapped_by_another(page(0), |cpu, mem, entry, tables| {
        cpu.flush_cache(tables);
        let found = decode(cpu.isa, mem.in_memory(entry), Level::L1);
        assert_eq!(found, Pte::Leaf(page(0).preset()), "mapped again");
        let faults = mem.faults();
        let overwritten = |f: &Fault| matches!(f, Fault::Overwritten { at, .. } if *at == entry);
        assert!(faults.iter().any(overwritten), "{faults:?}");
    });
}

/// Drivers for incoherent machines keep the bits preset, whatever is done to a page before its CPU
/// writes to it. Those for coherent machines do not, and the unmapping by another node is undone.
#[test]
fn preset_drivers_leave_nothing_to_the_hardware() {
    type Change = fn(&RemoteCpu<'_, StaleNode<'_>>);
    let changes: [(Perms, Change); 3] = [
        (Perms::WRITE, |t| {
            t.harvest(VA).unwrap();
        }),
        (Perms::READ, |t| {
            t.protect(VA, Perms::READ | Perms::WRITE).unwrap();
        }),
        (Perms::WRITE, |_| ()),
    ];
    for (isa, preset) in Isa::ALL.into_iter().flat_map(|i| [(i, true), (i, false)]) {
        for (perms, change) in changes {
            let mem = StaleMem::with_habits(2, 0, Habits::LAZY);
            let [one, two] = [0, 1].map(|n| mem.node(n));
            let frames = Frames::new(&one);
            let root = root(&frames, &one);
            let [own, remote] = [&one, &two]
                .map(|mem| RemoteCpu::new(mem, isa, root))
                .map(|t| if preset { t.preset() } else { t });
            own.map(VA, Leaf::user(FRAME, perms), Level::L1, &frames)
                .unwrap();
            change(&remote);
            let cpu = Hardware {
                mem: one,
                isa,
                root,
                tlb: Cell::new(None),
            };
            assert_eq!(cpu.access(true), Some(FRAME));
            let (leaf, _) = remote.unmap(VA, node(1), |_, _| (), || at(7)).unwrap();
            cpu.flush_cache(&frames.in_use());
            let left = own.translate(VA).map(|t| t.0);
            assert_eq!(left, (!preset).then_some(FRAME), "{isa}");
            // What the other node got says that the page may have been written.
            assert_eq!(leaf.dirty, preset, "{isa}");
        }
    }
}

/// What has been writable stays dirty when it no longer is, until it is unmapped.
#[test]
fn preset_drivers_report_every_page_that_may_have_been_written() {
    for isa in Isa::ALL {
        let mem = StaleMem::new(1, 0);
        let mem = mem.node(0);
        let frames = Frames::new(&mem);
        let table = RemoteCpu::new(&mem, isa, root(&frames, &mem)).preset();
        table
            .map(VA, Leaf::user(FRAME, Perms::READ), Level::L1, &frames)
            .unwrap();
        assert_eq!(table.harvest(VA), Ok((true, false)));
        table.protect(VA, Perms::READ | Perms::WRITE).unwrap();
        table.protect(VA, Perms::READ).unwrap();
        for _ in 0..2 {
            assert_eq!(table.harvest(VA), Ok((true, true)), "{isa}");
        }
    }
}

/// A mapping made by another node is not seen by hardware whose cache has the empty entry: the
/// fault path must invalidate the entry's line when its own look at memory finds a leaf.
#[test]
fn a_fault_may_be_due_to_a_stale_empty_entry() {
    for isa in Isa::ALL {
        let mem = StaleMem::with_habits(2, 0, Habits::LAZY);
        let [one, two] = [0, 1].map(|n| mem.node(n));
        let frames = Frames::new(&one);
        let root = root(&frames, &one);
        let (own, remote) = (
            RemoteCpu::new(&one, isa, root),
            RemoteCpu::new(&two, isa, root),
        );
        own.map(VA + 4096, page(1), Level::L1, &frames).unwrap();
        let cpu = Hardware {
            mem: one,
            isa,
            root,
            tlb: Cell::new(None),
        };
        assert_eq!(cpu.access(false), None);
        let leaf = page(0).preset();
        remote.map(VA, leaf, Level::L1, &frames.on(&two)).unwrap();
        assert_eq!(cpu.access(false), None, "the cache has the empty entry");
        // `walk` reads every entry on the way at memory, which leaves fresh copies of them.
        assert_eq!(own.walk(VA).pte, Pte::Leaf(leaf));
        assert_eq!(cpu.access(false), Some(leaf.pa));
    }
}
