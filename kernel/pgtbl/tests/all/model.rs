//! Random operations on both formats against a naive model, with the owner's CPU setting accessed
//! and dirty bits in between; then everything is freed and every frame must be back. The same with
//! operations from three nodes without coherent caches.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Frames, at, hardware_use};
use dyad_abi::user::USER_END;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::stale::StaleMem;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{Epoch, FrameSource, Leaf, Level, MapError, Perms, Pte, RemoteCpu};
use dyad_shm::PhysAddr;
use proptest::prelude::*;

const ALLOWED: [Perms; 3] = [
    Perms::READ,
    Perms::READ.union(Perms::WRITE),
    Perms::READ.union(Perms::EXECUTE),
];

#[derive(Clone, Copy, Debug)]
enum Op {
    Map {
        va: u64,
        level: Level,
        perms: Perms,
        frame: u64,
        published: Epoch,
    },
    Unmap {
        va: u64,
        epoch: Epoch,
    },
    Protect {
        va: u64,
        perms: Perms,
    },
    Use {
        va: u64,
        write: bool,
    },
    Harvest {
        va: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let i = || prop::sample::select(&[0u64, 1, 511][..]);
    let va = || {
        (
            0..2u64,
            0..2u64,
            i(),
            i(),
            prop::sample::select(&[0u64, 0x123][..]),
        )
            .prop_map(|(l4, l3, l2, l1, byte)| {
                (l4 * 255) << 39 | l3 << 30 | l2 << 21 | l1 << 12 | byte
            })
    };
    let perms = || prop::sample::select(&ALLOWED[..]);
    let level = prop::sample::select(&[Level::L1, Level::L1, Level::L2, Level::L3][..]);
    prop_oneof![
        4 => (va(), level, perms(), 0..64u64, (1..8u64).prop_map(at)).prop_map(
            |(va, level, perms, frame, published)| Op::Map {
                va: va & !(level.size() - 1), level, perms, frame, published,
            }
        ),
        3 => (va(), (1..6u64).prop_map(at)).prop_map(|(va, epoch)| Op::Unmap { va, epoch }),
        2 => (va(), perms()).prop_map(|(va, perms)| Op::Protect { va, perms }),
        2 => (va(), any::<bool>()).prop_map(|(va, write)| Op::Use { va, write }),
        1 => va().prop_map(|va| Op::Harvest { va }),
    ]
}

/// Translations, by level and start address.
#[derive(Default)]
struct Model {
    leaves: BTreeMap<(Level, u64), Leaf>,
    tables: BTreeSet<(Level, u64)>,
    stamps: BTreeMap<(Level, u64), Epoch>,
}

impl Model {
    fn place(level: Level, va: u64) -> (Level, u64) {
        (level, va & !(level.size() - 1))
    }

    /// The leaf that covers `va`; without one, the level at which a walk ends.
    fn find(&self, va: u64) -> Result<(Level, u64), Level> {
        for level in Level::ALL {
            let place = Model::place(level, va);
            if self.leaves.contains_key(&place) {
                return Ok(place);
            }
            if !self.tables.contains(&place) {
                return Err(level);
            }
        }
        unreachable!("tables lead nowhere")
    }

    fn free_for(&self, place: (Level, u64), published: Epoch) -> Result<(), MapError> {
        match self.stamps.get(&place) {
            Some(&s) if published <= s => Err(MapError::NotQuiesced(s)),
            _ => Ok(()),
        }
    }

    fn map(&mut self, va: u64, level: Level, leaf: Leaf, published: Epoch) -> Result<(), MapError> {
        for above in Level::ALL.into_iter().filter(|&l| l > level) {
            let place = Model::place(above, va);
            if self.leaves.contains_key(&place) {
                return Err(MapError::Conflict(above));
            }
            if !self.tables.contains(&place) {
                self.free_for(place, published)?;
                self.stamps.remove(&place);
                self.tables.insert(place);
            }
        }
        let place = Model::place(level, va);
        if let Some(there) = self.leaves.get(&place) {
            return Err(MapError::Exists(*there));
        }
        if self.tables.contains(&place) {
            return Err(MapError::Conflict(level));
        }
        self.free_for(place, published)?;
        self.stamps.remove(&place);
        self.leaves.insert(place, leaf);
        Ok(())
    }

    /// Changes the leaf that covers `va`; what it was before.
    fn change(&mut self, va: u64, f: impl FnOnce(&mut Leaf)) -> Result<Leaf, MapError> {
        let place = self.find(va).map_err(|_| MapError::NotMapped)?;
        let leaf = self.leaves.get_mut(&place).unwrap();
        let before = *leaf;
        f(leaf);
        Ok(before)
    }
}

/// Each operation is done by the next of the nodes, whose views of the memory these are.
fn run<M: GlobalMem>(isa: Isa, ops: &[Op], nodes: &[M]) -> Result<(), TestCaseError> {
    let shared = Frames::reusing(&nodes[0]);
    let root = shared.alloc_table().unwrap();
    nodes[0].writeback(root, 4096);
    let node = NodeId::new(3).unwrap();
    let mut model = Model::default();
    for (&op, mem) in ops.iter().zip(nodes.iter().cycle()) {
        let (table, frames) = (RemoteCpu::new(mem, isa, root), shared.on(mem));
        match op {
            Op::Map {
                va,
                level,
                perms,
                frame,
                published,
            } => {
                let leaf = Leaf::user(PhysAddr(0x40_0000_0000 + frame * level.size()), perms);
                let ours = table.map_when(va, leaf, level, &frames, |s| published > s);
                prop_assert_eq!(ours, model.map(va, level, leaf, published));
            }
            Op::Unmap { va, epoch } => {
                let ours = table.unmap(
                    va,
                    node,
                    |_, _| (),
                    || {
                        // The stamp is taken after the entry has been cleared.
                        assert_eq!(table.walk(va).pte, Pte::Closing { node });
                        assert_eq!(table.translate(va), None);
                        epoch
                    },
                );
                let theirs = model
                    .find(va)
                    .map_err(|_| MapError::NotMapped)
                    .map(|place| {
                        model.stamps.insert(place, epoch);
                        (model.leaves.remove(&place).unwrap(), place.0)
                    });
                prop_assert_eq!(ours, theirs);
            }
            Op::Protect { va, perms } => {
                let theirs = model.change(va, |l| l.perms = perms | Perms::USER);
                prop_assert_eq!(table.protect(va, perms), theirs);
            }
            Op::Use { va, write } => {
                let walk = table.walk(va);
                if let Pte::Leaf(_) = walk.pte {
                    let used = hardware_use(isa, walk.raw, write);
                    prop_assert_eq!(mem.swap(walk.entry, used), walk.raw);
                }
                let _ = model.change(va, |l| {
                    l.accessed = true;
                    l.dirty |= write && l.perms.contains(Perms::WRITE);
                });
            }
            Op::Harvest { va } => {
                let theirs = model.change(va, |l| (l.accessed, l.dirty) = (false, false));
                let theirs = theirs.map(|l| (l.accessed, l.dirty));
                prop_assert_eq!(table.harvest(va), theirs);
            }
        }
        prop_assert_eq!(frames.in_use().len(), 1 + model.tables.len());
        let (Op::Map { va, .. }
        | Op::Unmap { va, .. }
        | Op::Protect { va, .. }
        | Op::Use { va, .. }
        | Op::Harvest { va }) = op;
        match model.find(va) {
            Ok(place) => {
                let leaf = model.leaves[&place];
                let byte = leaf.pa.add(va - place.1);
                prop_assert_eq!(table.translate(va), Some((byte, leaf, place.0)));
            }
            Err(level) => {
                let epoch = model.stamps.get(&Model::place(level, va));
                let epoch = epoch.copied().unwrap_or_default();
                let walk = table.walk(va);
                prop_assert_eq!((walk.pte, walk.level), (Pte::Empty { epoch }, level));
            }
        }
    }

    let (mem, frames) = (&nodes[0], &shared);
    let table = RemoteCpu::new(mem, isa, root);
    let mut found = vec![];
    table.for_each_leaf(0..USER_END, &mut |va, level, leaf| {
        found.push((va, level, leaf));
    });
    let mut expected: Vec<_> = model.leaves.iter().map(|(p, l)| (p.1, p.0, *l)).collect();
    expected.sort_by_key(|e| e.0);
    prop_assert_eq!(&found, &expected);
    for &(va, level, leaf) in &expected {
        let mut inside = vec![];
        let last = va + level.size() - 1;
        table.for_each_leaf(last..last + 1, &mut |a, b, c| inside.push((a, b, c)));
        prop_assert_eq!(inside, vec![(va, level, leaf)]);
    }

    table.free_tables(frames);
    prop_assert_eq!(frames.in_use(), vec![root]);
    let mut left = 0;
    table.for_each_leaf(0..u64::MAX, &mut |_, _, _| left += 1);
    prop_assert_eq!(left, 0);
    Ok(())
}

/// Operations of a sequence, at most.
const MOST: usize = if cfg!(miri) { 15 } else { 60 };
/// Most operations of a sequence if caches are simulated.
const MOST_CACHED: usize = if cfg!(miri) { 4 } else { 40 };

proptest! {
    #![proptest_config(common::cases(192))]

    #[test]
    fn x86_tables_do_what_the_model_does(ops in prop::collection::vec(op(), 1..MOST)) {
        run(Isa::X86_64, &ops, &[HostMem::new()])?;
    }

    #[test]
    fn a64_tables_do_what_the_model_does(ops in prop::collection::vec(op(), 1..MOST)) {
        run(Isa::Aarch64, &ops, &[HostMem::new()])?;
    }

    #[test]
    fn tables_are_the_same_to_all_nodes_whatever_their_caches_do(
        ops in prop::collection::vec(op(), 1..MOST_CACHED),
        seed in any::<u64>(),
    ) {
        for isa in Isa::ALL {
            let mem = StaleMem::new(3, seed);
            run(isa, &ops, &[0, 1, 2].map(|n| mem.node(n)))?;
            prop_assert_eq!(mem.check(), Ok(()));
        }
    }
}
