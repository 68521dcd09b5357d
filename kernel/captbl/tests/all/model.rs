//! Random operations against a naive model: every answer, every slot and every entry is as the
//! model has it, and no capability permits or refers to more than the one it was copied from (I7).

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use common::*;
use dyad_abi::cap::{CapType, Rights};
use dyad_captbl::{Contents, Narrowed, Refused, RootEntry, SlotHeader, Table, narrow};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_shm::frame::WeakRef;
use proptest::prelude::*;

const LEAVES: [u64; 2] = [LEAF, OTHER_LEAF];
const SLOTS: u32 = 4;
const ENTRIES: u32 = 3;
const GUARDS: u64 = 3;
const TYPES: [CapType; 5] = [
    CapType::Memory,
    CapType::Frame,
    CapType::Liveness,
    CapType::ThreadIds,
    CapType::Sinv,
];
/// Rights that there are here.
const BITS: [u32; 4] = [0, 2, 30, 31];

type At = (u64, u32);

#[derive(Clone, Copy, Debug)]
enum Op {
    Fill {
        at: At,
        ty: CapType,
        rights: u32,
        parts: (u64, u64),
    },
    Empty {
        at: At,
    },
    Copy {
        from: (u32, u32),
        at: At,
        rights: u32,
        guard: Option<u64>,
        part: (u64, u64),
    },
    Cons {
        entry: u32,
        leaf: u64,
    },
    Decons {
        entry: u32,
    },
    Revoke {
        guard: u64,
    },
    /// Node 1 dies while it fills or empties the slot.
    Die {
        at: At,
    },
    Recover {
        at: At,
        incarnation: u32,
    },
    Round {
        node: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let at = || (prop::sample::select(&LEAVES[..]), 1..=SLOTS);
    let rights = || 0..16u32;
    let ty = || prop::sample::select(&TYPES[..]);
    let guard = prop_oneof![1 => Just(None), 1 => (0..GUARDS).prop_map(Some)];
    // Often where there is something, and so that the copy can be copied.
    let entry = prop_oneof![3 => Just(0), 1 => 0..ENTRIES];
    let kept = prop_oneof![2 => rights().prop_map(|r| r | 8), 1 => rights()];
    let part = prop_oneof![1 => Just((0, 0)), 1 => (0..4u64, 0..5u64)];
    prop_oneof![
        5 => (at(), ty(), rights(), (0..8u64, 1..8u64))
            .prop_map(|(at, ty, rights, parts)| Op::Fill { at, ty, rights: rights | 8, parts }),
        4 => at().prop_map(|at| Op::Empty { at }),
        8 => ((entry, 1..=SLOTS), at(), kept, guard, part)
            .prop_map(|(from, at, rights, guard, part)| Op::Copy { from, at, rights, guard, part }),
        3 => (0..ENTRIES, prop::sample::select(&LEAVES[..]))
            .prop_map(|(entry, leaf)| Op::Cons { entry, leaf }),
        1 => (0..ENTRIES).prop_map(|entry| Op::Decons { entry }),
        1 => (0..GUARDS).prop_map(|guard| Op::Revoke { guard }),
        1 => at().prop_map(|at| Op::Die { at }),
        2 => (at(), 1..3u32).prop_map(|(at, incarnation)| Op::Recover { at, incarnation }),
        5 => (0..2usize).prop_map(|node| Op::Round { node }),
    ]
}

/// A capability as sets.
#[derive(Clone, Debug, PartialEq)]
struct Cap {
    ty: CapType,
    rights: BTreeSet<u32>,
    /// The parts that the capability is for, one by one; `None`: types without parts.
    parts: Option<BTreeSet<u64>>,
    guard: Option<(u64, u64)>,
    /// The one it was copied from.
    source: Option<Box<Cap>>,
}

fn set(bits: u32) -> BTreeSet<u32> {
    let has = |i: &usize| bits >> i & 1 != 0;
    (0..BITS.len()).filter(has).map(|i| BITS[i]).collect()
}

impl Cap {
    fn original(ty: CapType, rights: u32, (first, count): (u64, u64)) -> Cap {
        Cap {
            ty,
            rights: set(rights),
            parts: (ty != CapType::Sinv).then(|| (first..first + count).collect()),
            guard: None,
            source: None,
        }
    }

    fn contents(&self) -> Contents {
        let first = |p: &BTreeSet<u64>| *p.first().unwrap();
        let payload = match (&self.parts, self.ty) {
            (None, _) => [1, 2, 3],
            (Some(p), CapType::Memory) => [frame(first(p)).bits() as u64, p.len() as u64, 0],
            (Some(p), _) => [first(p), p.len() as u64, 0],
        };
        let guard = |(entry, count)| {
            dyad_captbl::GuardRef::new(weak(LIVENESS), entry, count).expect("a small count")
        };
        Contents {
            ty: self.ty,
            rights: Rights(self.rights.iter().fold(0, |all, r| all | 1 << r)),
            object: (self.ty != CapType::Memory).then(|| weak(OBJECT)),
            guard: self.guard.map(guard),
            payload,
        }
    }

    fn copy(
        &self,
        rights: u32,
        guard: Option<(u64, u64)>,
        (at, n): (u64, u64),
    ) -> Result<Cap, Refused> {
        if !self.rights.contains(&31) {
            return Err(Refused::Denied);
        }
        if self.guard.is_some() && guard.is_some() {
            return Err(Refused::Guarded);
        }
        let all = (at, n) == (0, 0);
        let parts = match &self.parts {
            None if !all => return Err(Refused::BadRange),
            None => None,
            Some(p) if all => Some(p.clone()),
            Some(p) => {
                let part: BTreeSet<_> = p
                    .iter()
                    .skip(at as usize)
                    .take(n as usize)
                    .copied()
                    .collect();
                if n == 0 || (part.len() as u64) < n {
                    return Err(Refused::BadRange);
                }
                Some(part)
            }
        };
        Ok(Cap {
            ty: self.ty,
            rights: self.rights.intersection(&set(rights)).copied().collect(),
            parts,
            guard: self.guard.or(guard),
            source: Some(Box::new(self.clone())),
        })
    }

    /// I7, for this and all it comes from.
    fn is_narrower(&self) -> bool {
        let Some(source) = &self.source else {
            return true;
        };
        let parts = match (&self.parts, &source.parts) {
            (Some(mine), Some(its)) => mine.is_subset(its),
            (mine, its) => mine == its,
        };
        let guard = source.guard.is_none() || self.guard == source.guard;
        self.rights.is_subset(&source.rights) && parts && guard && source.is_narrower()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
enum State {
    #[default]
    Free,
    Held(Cap),
    /// Node 1 died here in this incarnation.
    Left(u32),
}

#[derive(Clone, Debug, Default)]
struct Model {
    slots: BTreeMap<At, (State, u64)>,
    entries: BTreeMap<u32, (Option<u64>, u64)>,
    counts: BTreeMap<u64, u64>,
    deaths: u32,
}

impl Model {
    fn slot(&mut self, at: At) -> &mut (State, u64) {
        self.slots.entry(at).or_default()
    }

    fn count(&self, guard: u64) -> u64 {
        self.counts.get(&guard).copied().unwrap_or(0)
    }

    fn found(&self, (entry, slot): (u32, u32)) -> Option<&Cap> {
        let leaf = self.entries.get(&entry)?.0?;
        match self.slots.get(&(leaf, slot)) {
            Some((State::Held(cap), _)) => Some(cap),
            _ => None,
        }
    }
}

struct Run<'m> {
    mem: &'m HostMem,
    t: Table<'m, HostMem>,
    world: World,
    nodes: Nodes,
    model: Model,
}

impl Run<'_> {
    fn quiet(&self, stamp: u64) -> bool {
        self.world.published.iter().all(|p| p.get() > stamp)
    }

    /// What filling a slot should answer; fills it in the model.
    fn fill(&mut self, at: At, cap: Cap) -> Result<(), Refused> {
        let (state, stamp) = self.model.slot(at).clone();
        match state {
            State::Held(_) => return Err(Refused::Occupied),
            State::Left(_) => return Err(Refused::Busy),
            State::Free if !self.quiet(stamp) => return Err(Refused::NotQuiesced),
            State::Free => {}
        }
        self.model.slot(at).0 = State::Held(cap);
        Ok(())
    }

    fn empty(&mut self, at: At) {
        let done = self.t.slot_deactivate(place(at.0, at.1), None, &self.world);
        let now = self.world.now.get();
        let slot = self.model.slot(at);
        let expected = match slot.0 {
            State::Free => Err(Refused::NoCap),
            State::Left(_) => Err(Refused::Busy),
            State::Held(_) => Ok(now),
        };
        assert_eq!(done.map(|e| e.get()), expected);
        if done.is_ok() {
            *slot = (State::Free, now);
        }
    }

    fn copy(
        &mut self,
        from: (u32, u32),
        at: At,
        rights: u32,
        guard: Option<u64>,
        part: (u64, u64),
    ) {
        let found = self.t.lookup(frame(ROOT).address(), cap(from.0, from.1));
        let Some(source) = self.model.found(from).cloned() else {
            return assert_eq!(found, Err(Refused::NoCap));
        };
        let contents = self.t.contents(&found.unwrap()).unwrap();
        let how = Narrowed {
            rights: Rights(set(rights).iter().fold(0, |all, r| all | 1 << r)),
            guard: guard.map(|g| self.t.expected(weak(LIVENESS), g).unwrap()),
        };
        let parts = |ty, payload| narrow(ty, payload, part.0, part.1);
        let done = self
            .t
            .copy(&contents, place(at.0, at.1), how, parts, &self.world);
        let guard = guard.map(|g| (g, self.model.count(g)));
        let expected = source.copy(rights, guard, part).and_then(|copy| {
            let contents = copy.contents();
            self.fill(at, copy).map(|()| contents)
        });
        assert_eq!(done, expected);
    }

    fn cons(&mut self, entry: u32, leaf: u64) {
        let done = self
            .t
            .cons(weak(ROOT), entry, weak(leaf), &self.nodes, &self.world);
        let (present, stamp) = *self.model.entries.entry(entry).or_default();
        let expected = match present {
            Some(_) => Err(Refused::Occupied),
            None if !self.quiet(stamp) => Err(Refused::NotQuiesced),
            None => Ok(()),
        };
        assert_eq!(done, expected);
        if done.is_ok() {
            self.model.entries.insert(entry, (Some(leaf), stamp));
        }
    }

    fn decons(&mut self, entry: u32) {
        let done = self
            .t
            .decons(weak(ROOT), entry, &self.nodes, &self.world)
            .map(|d| (d.leaf, d.stamp.get()));
        let now = self.world.now.get();
        let (present, _) = *self.model.entries.entry(entry).or_default();
        let expected = present
            .map(|leaf| (frame(leaf), now))
            .ok_or(Refused::NoLeaf);
        assert_eq!(done, expected);
        if done.is_ok() {
            self.model.entries.insert(entry, (None, now));
        }
    }

    fn die(&mut self, at: At) {
        self.model.deaths += 1;
        let incarnation = self.model.deaths % 2 + 1;
        let dead = owner(1, incarnation);
        let slot = self.model.slot(at);
        let header = match slot.0 {
            State::Free => SlotHeader::Reserved(dead),
            State::Held(_) => SlotHeader::Closing(dead),
            State::Left(_) => return,
        };
        slot.0 = State::Left(incarnation);
        let at = place(at.0, at.1).address();
        self.mem.store(at, header.bits(), Relaxed);
    }

    fn recover(&mut self, at: At, incarnation: u32) {
        let dead = owner(1, incarnation);
        let done = self.t.recover_slot(place(at.0, at.1), dead, &self.world);
        let now = self.world.now.get();
        let slot = self.model.slot(at);
        let left = slot.0 == State::Left(incarnation);
        assert_eq!(done, Ok(left));
        if left {
            *slot = (State::Free, now);
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Fill {
                at,
                ty,
                rights,
                parts,
            } => {
                let cap = Cap::original(ty, rights, parts);
                let contents = cap.contents();
                let done = self
                    .t
                    .slot_activate(place(at.0, at.1), &contents, &self.world);
                assert_eq!(done, self.fill(at, cap));
            }
            Op::Empty { at } => self.empty(at),
            Op::Copy {
                from,
                at,
                rights,
                guard,
                part,
            } => self.copy(from, at, rights, guard, part),
            Op::Cons { entry, leaf } => self.cons(entry, leaf),
            Op::Decons { entry } => self.decons(entry),
            Op::Revoke { guard } => {
                self.t.revoke(frame(LIVENESS), guard, &self.world).unwrap();
                *self.model.counts.entry(guard).or_default() += 1;
            }
            Op::Die { at } => self.die(at),
            Op::Recover { at, incarnation } => self.recover(at, incarnation),
            Op::Round { node } => self.world.round(node),
        }
        self.compare();
    }

    fn compare(&self) {
        let live = |f: WeakRef| f == weak(LIVENESS);
        assert_eq!(self.world.open.get(), None);
        for (&(leaf, slot), (state, stamp)) in &self.model.slots {
            let read = self.t.read(place(leaf, slot).address()).unwrap();
            let State::Held(cap) = state else {
                assert_eq!(read.contents, None);
                if *state == State::Free {
                    assert_eq!((read.header, read.stamp.get()), (SlotHeader::Free, *stamp));
                }
                continue;
            };
            assert_eq!(read.contents, Some(cap.contents()));
            assert!(cap.is_narrower(), "{cap:?}");
            let mut line = Some(cap);
            let mut alive = true;
            while let Some(cap) = line {
                alive &= cap.guard.is_none_or(|(g, n)| self.model.count(g) == n);
                line = cap.source.as_deref();
            }
            let guard = cap.contents().guard;
            let lives = guard.is_none_or(|g| self.t.guard_alive(g, live).is_ok());
            assert_eq!(lives, alive, "{cap:?}");
        }
        let root = frame(ROOT).address();
        for entry in 0..ENTRIES {
            let (leaf, _) = self.model.entries.get(&entry).copied().unwrap_or_default();
            let present = |leaf| RootEntry::Present(frame(leaf));
            match (self.t.entry(root, entry).unwrap(), leaf) {
                (RootEntry::Empty(_), None) => {}
                (there, leaf) => assert_eq!(Some(there), leaf.map(present)),
            }
            for slot in 1..=SLOTS {
                let found = self.t.lookup(root, cap(entry, slot)).ok();
                let found = found.map(|f| self.t.contents(&f).unwrap());
                let expected = self.model.found((entry, slot)).map(Cap::contents);
                assert_eq!(found, expected);
            }
        }
        for leaf in LEAVES {
            let edges = self.model.entries.values();
            let edges = edges.filter(|(l, _)| *l == Some(leaf)).count();
            assert_eq!(self.nodes.refs(leaf), edges as i64);
        }
    }
}

/// A root with one leaf, and what `ops` make of it.
fn run(ops: Vec<Op>) {
    let mem = HostMem::new();
    let mut run: Run<'_> = Run {
        mem: &mem,
        t: table(&mem, 0),
        world: World::default(),
        nodes: Nodes::default(),
        model: Model::default(),
    };
    run.apply(Op::Cons {
        entry: 0,
        leaf: LEAF,
    });
    for op in ops {
        run.apply(op);
    }
}

fn sequence() -> impl Strategy<Value = Vec<Op>> {
    const MOST: usize = if cfg!(miri) { 30 } else { 100 };
    prop::collection::vec(op(), 1..MOST)
}

proptest! {
    #![proptest_config(common::cases(300, 2))]

    #[test]
    fn any_sequence_does_what_the_model_does(ops in sequence()) {
        run(ops);
    }
}
