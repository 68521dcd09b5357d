//! Quiescence between nodes without coherent caches: after a round nothing is stale, the
//! protocol's own words are not read stale, whatever the caches do, and each flush is needed, shown
//! by leaving out one after the other.

use crate::common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use common::{AREA, SUPERBLOCK, cpu, node};
use core::mem::{offset_of, size_of};
use dyad_abi::CpuId;
use dyad_abi::ident::MAX_CPUS;
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::Kind::{self, Invalidate, LoadFresh, StoreThrough, Writeback};
use dyad_coherence::stale::mutant::{Flushes, Mutant, Site, try_each};
use dyad_coherence::stale::{Fault, Habits, StaleMem, StaleNode};
use dyad_quiesce::{
    DirtyEntry, Epoch, Error, Idle, IntentRecord, Intents, LogWriter, NodeHardware, Progress,
    Quiescence, Round, Row,
};
use dyad_shm::quiesce::{
    CpuAcknowledgement, IntentLine, LOG_ENTRIES, NodePublication, NodeRequest, QuiesceArea,
};
use dyad_shm::superblock::{NodeEntry, NodeState, Superblock};
use dyad_shm::{FrameRef, PhysAddr, Version};

const OBJECT: PhysAddr = PhysAddr(AREA.0 + 0x100_0000);
const FRAME: PhysAddr = PhysAddr(AREA.0 + 0x200_0000);
const NODES: usize = 3;
const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };

/// The caches of one node.
struct Caches<'m> {
    mem: &'m StaleMem,
    node: usize,
    /// A mutant drops nothing that logs name.
    drops: bool,
    /// How often everything was dropped.
    everything: Cell<u32>,
    /// What the TLB of this node's CPU 1 leads to.
    translation: Cell<Option<u64>>,
}

impl NodeHardware for Caches<'_> {
    fn writeback_invalidate(&self, at: PhysAddr, len: u64) {
        if self.drops {
            self.mem.node(self.node).invalidate(at, len);
        }
    }
    fn flush_everything(&self, _piece: u64) -> bool {
        self.everything.set(self.everything.get() + 1);
        self.mem.evict_all(self.node);
        true
    }
    // Calls in these scenarios are made for CPU 1, if it is awake.
    fn flush_tlb(&self) {
        self.translation.set(None);
    }
    fn revalidate(&self) {}
    fn detach(&self) {}
    fn call(&self, _cpu: CpuId) {}
}

type Outcome = Result<(), String>;

fn check(holds: bool, why: &str) -> Outcome {
    if holds { Ok(()) } else { Err(why.to_string()) }
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?}, not {expected:?}"))
    }
}

fn text(e: Error) -> String {
    e.to_string()
}

/// The words of the protocol that the scenarios share, one address on each line.
fn protocol_lines() -> Vec<PhysAddr> {
    let mut lines = vec![SUPERBLOCK.add(offset_of!(Superblock, epoch) as u64)];
    for n in 0..NODES {
        let area = |array: usize, size: usize| AREA.add((array + n * size) as u64);
        let state = offset_of!(Superblock, nodes) + n * size_of::<NodeEntry>();
        lines.extend([
            SUPERBLOCK.add(state as u64),
            area(
                offset_of!(QuiesceArea, publications),
                size_of::<NodePublication>(),
            ),
            area(offset_of!(QuiesceArea, requests), size_of::<NodeRequest>()),
            area(
                offset_of!(QuiesceArea, acknowledgements),
                MAX_CPUS * size_of::<CpuAcknowledgement>(),
            ),
            area(
                offset_of!(QuiesceArea, intents),
                MAX_CPUS * size_of::<IntentLine>(),
            ),
        ]);
    }
    // The log of node 0's CPU 0.
    lines.push(AREA.add(offset_of!(QuiesceArea, log_set) as u64));
    let log = AREA.add(offset_of!(QuiesceArea, logs) as u64);
    lines.extend((0..4).map(|n| log.add(n * 64)));
    lines
}

/// A system of nodes, as scenarios find it.
struct World<'m> {
    mem: &'m StaleMem,
    nodes: [Mutant<'m, StaleNode<'m>>; NODES],
    caches: [Caches<'m>; NODES],
    /// Whether caches have copies of everything at bad moments.
    copies: bool,
}

impl<'m> World<'m> {
    fn new(mem: &'m StaleMem, flushes: &'m Flushes, copies: bool) -> World<'m> {
        let caches = |node| Caches {
            mem,
            node,
            drops: true,
            everything: Cell::new(0),
            translation: Cell::new(None),
        };
        World {
            mem,
            nodes: [0, 1, 2].map(|n| flushes.on(mem.node(n))),
            caches: [0, 1, 2].map(caches),
            copies,
        }
    }

    fn q(&self, n: usize) -> Quiescence<'_, Mutant<'m, StaleNode<'m>>> {
        Quiescence::new(&self.nodes[n], SUPERBLOCK, AREA).unwrap()
    }

    /// The caches have everything as it is now, or as it was when they fetched it.
    fn fetch(&self) {
        if self.copies {
            for n in 0..NODES {
                for at in protocol_lines() {
                    self.mem.node(n).load(at, Ordering::Relaxed);
                }
            }
        }
    }

    fn join(&self, n: usize) -> Result<Round, String> {
        let joined = self.q(n).join(node(n as u64), cpu(0), &self.caches[n]);
        self.caches[n].everything.set(0);
        Ok(joined.map_err(text)?.0)
    }

    fn pair(&self) -> Result<[Round; 2], String> {
        self.fetch();
        let pair = [self.join(0)?, self.join(1)?];
        self.fetch();
        Ok(pair)
    }

    fn round(&self, n: usize, r: &mut Round) -> Result<Epoch, String> {
        let (q, caches) = (self.q(n), &self.caches[n]);
        for _ in 0..100 {
            match r.flush_step(&q, caches, 64).map_err(text)? {
                Progress::Working => {}
                Progress::Waiting(cpu) => {
                    let seen = q.acknowledge(node(n as u64), cpu, caches);
                    check(seen, "no request seen")?;
                }
                Progress::Published(epoch) => return Ok(epoch),
            }
        }
        Err("the round never ends".to_string())
    }

    /// Node 0 changes an object and a user frame of which node 1 holds copies, and logs it.
    fn change(&self, log: &mut LogWriter, value: u64) {
        for at in [OBJECT, FRAME] {
            self.mem.node(1).load(at, Ordering::Relaxed);
            self.mem.node(0).swap(at, value);
        }
        log.record(&self.q(0), DirtyEntry::Line(OBJECT));
        log.record(&self.q(0), DirtyEntry::User(FRAME));
    }

    fn nothing_is_stale(&self, value: u64) -> Outcome {
        for at in [OBJECT, FRAME] {
            let seen = self.mem.node(1).load(at, Ordering::Relaxed);
            check(seen == value, "stale after a round")?;
        }
        Ok(())
    }
}

/// Node 0 changes things, again and again; each time both nodes go through a round.
fn rounds(w: &World<'_>) -> Outcome {
    let [mut r0, mut r1] = w.pair()?;
    let q0 = w.q(0);
    let mut log = LogWriter::attach(&q0, node(0), cpu(0));
    for n in 1..6 {
        w.change(&mut log, n);
        let stamp = q0.now();
        check(q0.quiesced(stamp).is_err(), "quiesced before any round")?;
        // Node 0's own round would write back what it has failed to.
        w.round(1, &mut r1)?;
        let early = q0.quiesced(stamp).is_ok();
        check(!early, "quiesced before node 0's round")?;
        w.round(0, &mut r0)?;
        check(q0.quiesced(stamp).is_ok(), "not quiesced after all rounds")?;
        w.nothing_is_stale(n)?;
        let named = w.caches[1].everything.get() == 0;
        check(named, "dropped everything, for what the log names")?;
        w.fetch();
    }
    Ok(())
}

/// CPU 1 of node 1 wakes up after each number of steps of its node's round, and fetches a translation that
/// node 0 has changed before.
fn comes_up(w: &World<'_>) -> Outcome {
    let [_r0, mut r1] = w.pair()?;
    let (q0, q1) = (w.q(0), w.q(1));
    let caches = &w.caches[1];
    let mut log = LogWriter::attach(&q0, node(0), cpu(0));
    let mut last = 0;
    for after in 0.. {
        let value = after + 1;
        w.change(&mut log, value);
        let stamp = q0.now();
        let mut steps = 0;
        let mut came = false;
        loop {
            if steps == after {
                q1.wake(node(1), cpu(1));
                let seen = w.mem.node(1).load(OBJECT, Ordering::Relaxed);
                caches.translation.set(Some(seen));
                came = true;
            }
            match r1.flush_step(&q1, caches, 1).map_err(text)? {
                Progress::Working => steps += 1,
                Progress::Waiting(c) => {
                    let held = caches.translation.get();
                    q1.acknowledge(node(1), c, caches);
                    if c != cpu(1) {
                        caches.translation.set(held);
                    }
                }
                Progress::Published(_) => break,
            }
        }
        check(
            q1.publication(node(1)).is_quiet_since(stamp),
            "too early a round",
        )?;
        let held = caches.translation.get();
        check(held.is_none_or(|v| v == value), "stale after a round")?;
        if !came {
            last = after;
            break;
        }
        let idle = q1.idle_beside_others(node(1), cpu(1), caches, || false);
        same("idle", idle, Idle::Asleep)?;
    }
    // An epoch, a log, a request, a CPU, the log again: before each of these, and between.
    check(last > 8, "a round without steps")
}

/// Node 1 goes through a round right before the stamp is taken, which does not count.
fn stamps(w: &World<'_>) -> Outcome {
    let [mut r0, mut r1] = w.pair()?;
    let q0 = w.q(0);
    for _ in 0..3 {
        w.fetch();
        w.round(1, &mut r1)?;
        let stamp = q0.now();
        w.round(0, &mut r0)?;
        let early = q0.quiesced(stamp).is_ok();
        check(!early, "quiesced by a round before the stamp")?;
        w.round(1, &mut r1)?;
        check(q0.quiesced(stamp).is_ok(), "not quiesced after all rounds")?;
    }
    Ok(())
}

/// A log runs over: everything is dropped.
fn laps(w: &World<'_>) -> Outcome {
    let [_r0, mut r1] = w.pair()?;
    let mut log = LogWriter::attach(&w.q(0), node(0), cpu(0));
    w.change(&mut log, 1);
    for _ in 0..LOG_ENTRIES {
        log.record(&w.q(0), DirtyEntry::Line(AREA));
    }
    w.round(1, &mut r1)?;
    w.nothing_is_stale(1)?;
    same("full flushes", w.caches[1].everything.get(), 2)?;
    let of_node1 = offset_of!(QuiesceArea, requests) + size_of::<NodeRequest>();
    let count = of_node1 + offset_of!(NodeRequest, full_flushes);
    let counted = w.nodes[0].load_fresh(AREA.add(count as u64), Ordering::Relaxed);
    same("counted", counted, 1)
}

/// Node 1 falls asleep and wakes up; node 0 sees it.
fn sleeps(w: &World<'_>) -> Outcome {
    let [mut r0, mut r1] = w.pair()?;
    let (q0, q1) = (w.q(0), w.q(1));
    for _ in 0..3 {
        let idle = r1.idle_step(&q1, &w.caches[1], cpu(0), 1000, || false);
        same("idle", idle, Idle::Asleep)?;
        let stamp = q0.now();
        w.round(0, &mut r0)?;
        check(q0.quiesced(stamp).is_ok(), "not seen asleep")?;
        w.fetch();
        q1.wake(node(1), cpu(0));
        check(q0.quiesced(q0.now()).is_err(), "not seen awake")?;
        w.fetch();
    }
    Ok(())
}

/// Node 2 joins and dies; node 0 begins to recover it and dies; node 1 does the rest.
fn lives(w: &World<'_>) -> Outcome {
    let [mut r0, mut r1] = w.pair()?;
    let [q0, q1] = [w.q(0), w.q(1)];
    w.join(2)?;
    let stamp = q0.now();
    w.round(0, &mut r0)?;
    w.round(1, &mut r1)?;
    let blocking = q0.quiesced(stamp).err().map(|e| e.node);
    same("blocked by", blocking, Some(node(2)))?;
    w.fetch();
    q0.die(node(2)).map_err(text)?;
    check(q1.quiesced(stamp).is_ok(), "blocked by a dead node")?;
    w.fetch();
    let first = q0.recover(node(2), node(0), cpu(0)).map_err(text)?;
    let refused = q1.recover(node(2), node(1), cpu(0)).map(|_| ());
    same("claim of two", refused, Err(Error::Claimed(node(0))))?;
    w.fetch();
    q1.die(node(0)).map_err(text)?;
    let second = q1.recover(node(2), node(1), cpu(0)).map_err(text)?;
    let void = q0.recovered(first);
    same("a dead node's claim", void, Err(Error::Contended))?;
    q1.recovered(second).map_err(text)?;
    w.join(2)?;
    let state = q1.node(node(2)).map(|s| (s.state, s.incarnation));
    same("state", state, Ok((NodeState::Live, 2)))
}

/// Another node reads what a CPU was doing when it stopped.
fn intents(w: &World<'_>) -> Outcome {
    w.pair()?;
    let (q0, q1) = (w.q(0), w.q(1));
    let [theirs, seen] = [q1.intents(node(1), cpu(0)), q0.intents(node(1), cpu(0))];
    for n in 1..4 {
        w.fetch();
        let frame = FrameRef::of(FRAME).ok_or("no frame")?;
        let record = IntentRecord::frame(Row::Unmap, frame, Version(n));
        theirs.begin(&record);
        same("intent", seen.read(), Some(record))?;
        theirs.clear();
        same("intent", seen.read(), None)?;
    }
    Ok(())
}

/// The last epoch is the last for all.
fn ends(w: &World<'_>) -> Outcome {
    let [mut r0, mut r1] = w.pair()?;
    // One round is begun yet, the next is not.
    let last = Epoch::MAX.get() - 9;
    w.mem.node(2).swap(protocol_lines()[0], last);
    w.fetch();
    same("round", w.round(1, &mut r1).map(Epoch::get), Ok(last + 1))?;
    let refused = r0.flush_step(&w.q(0), &w.caches[0], 1);
    same("round", refused, Err(Error::EpochsExhausted))
}

type Scenario = fn(&World<'_>) -> Outcome;
/// A name, a scenario, and the flushes it needs: file and kind, in the order of the source.
type Judge = (&'static str, Scenario, &'static [(&'static str, Kind)]);

const JUDGES: [Judge; 8] = [
    // Entry and head of the log, written and read; the set of logs; what has been published.
    (
        "rounds",
        rounds,
        &[
            ("log.rs", StoreThrough),
            ("log.rs", StoreThrough),
            ("log.rs", LoadFresh),
            ("log.rs", LoadFresh),
            ("log.rs", LoadFresh),
            ("words.rs", LoadFresh),
        ],
    ),
    // Head, written and read; the set of logs.
    (
        "comes_up",
        comes_up,
        &[
            ("log.rs", StoreThrough),
            ("log.rs", LoadFresh),
            ("log.rs", LoadFresh),
        ],
    ),
    // The epoch for a stamp; what has been published.
    (
        "stamps",
        stamps,
        &[("words.rs", LoadFresh), ("words.rs", LoadFresh)],
    ),
    // The log's head; the set of logs.
    (
        "laps",
        laps,
        &[
            ("log.rs", StoreThrough),
            ("log.rs", LoadFresh),
            ("log.rs", LoadFresh),
        ],
    ),
    // What has been published.
    ("sleeps", sleeps, &[("words.rs", LoadFresh)]),
    // Claim: taken and ended. Epoch, publication, a node's state.
    (
        "lives",
        lives,
        &[
            ("life.rs", LoadFresh),
            ("life.rs", LoadFresh),
            ("words.rs", LoadFresh),
            ("words.rs", LoadFresh),
            ("words.rs", LoadFresh),
        ],
    ),
    // Read; begin; clear.
    (
        "intents",
        intents,
        &[
            ("intent.rs", Invalidate),
            ("intent.rs", Writeback),
            ("intent.rs", StoreThrough),
        ],
    ),
    // The epoch when a new one is taken.
    ("ends", ends, &[("words.rs", LoadFresh)]),
];

/// All. Under Miri, where they take a minute each, every other one, from this one on; and not the one
/// that fills a log: `rounds.rs` does so there, with less around it.
fn judges(first: usize) -> impl Iterator<Item = Judge> {
    let quick = |(name, ..): &Judge| !cfg!(miri) || *name != "laps";
    let (skip, step) = if cfg!(miri) { (first, 2) } else { (0, 1) };
    JUDGES.into_iter().filter(quick).skip(skip).step_by(step)
}

/// Nothing is wrong without these, and why.
const SPARE: [(&str, Kind); 6] = [
    // `attach`: only this CPU stores to its head, and what its node held before it has dropped when
    // it joined.
    ("log.rs", LoadFresh),
    // The number of full flushes: the flush that follows writes it back.
    ("round.rs", StoreThrough),
    // Request and acknowledgement pass between CPUs of one node, whose caches are coherent. They
    // are in memory for people who want to know why a round does not end.
    ("round.rs", StoreThrough),
    ("round.rs", LoadFresh),
    ("round.rs", StoreThrough),
    ("round.rs", LoadFresh),
];

fn run(scenario: Scenario, seed: u64, flushes: &Flushes, copies: bool) -> (Outcome, Vec<Fault>) {
    let mem = StaleMem::new(NODES, seed);
    let outcome = scenario(&World::new(&mem, flushes, copies));
    (outcome, mem.faults())
}

#[test]
fn nothing_is_stale_after_a_round_and_no_word_of_the_protocol_ever() {
    let seeds = if cfg!(miri) { SEEDS } else { 2 * SEEDS };
    for (name, scenario, _) in judges(0) {
        for seed in 0..seeds {
            let (outcome, faults) = run(scenario, seed, &Flushes::all(), false);
            assert_eq!(outcome, Ok(()), "{name}, seed {seed}");
            let inside = faults.into_iter().find(|f| {
                let (Fault::StaleRead { at, .. }
                | Fault::Undone { at, .. }
                | Fault::Overwritten { at, .. }) = *f;
                at < OBJECT
            });
            assert_eq!(inside, None, "{name}, seed {seed}");
        }
    }
}

#[test]
fn nothing_goes_wrong_whatever_caches_hold() {
    for (name, scenario, _) in judges(1) {
        for seed in 0..SEEDS {
            let (outcome, _) = run(scenario, seed, &Flushes::all(), true);
            assert_eq!(outcome, Ok(()), "{name}, seed {seed}");
        }
    }
}

fn places<'s>(sites: impl IntoIterator<Item = &'s Site>) -> Vec<(&'static str, Kind)> {
    let place = |s: &Site| (s.file.rsplit('/').next().unwrap_or(s.file), s.kind);
    sites.into_iter().map(place).collect()
}

#[test]
#[cfg_attr(miri, ignore = "needs many seeds")]
fn every_flush_is_needed() {
    let (mut caught, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (name, scenario, needs) in JUDGES {
        let verdict = try_each(SEEDS, |seed, flushes| run(scenario, seed, flushes, true).0);
        let verdict = verdict.unwrap_or_else(|why| panic!("{name}: {why}"));
        let here: Vec<_> = verdict.caught.iter().map(|c| c.site).collect();
        assert_eq!(places(&here), needs, "{name}");
        all.extend(verdict.survived);
        all.extend(here.iter().copied());
        caught.extend(here);
    }
    let spare: Vec<_> = all.difference(&caught).copied().collect();
    assert_eq!(places(&spare), SPARE);
    // They do not stand in for each other.
    let without = Flushes::without(spare);
    for (name, scenario, _) in JUDGES {
        for seed in 0..SEEDS {
            let outcome = run(scenario, seed, &without, true).0;
            assert_eq!(outcome, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[test]
fn mutant_that_drops_nothing() {
    let mem = StaleMem::with_habits(NODES, 0, Habits::LAZY);
    let flushes = Flushes::all();
    let mut world = World::new(&mem, &flushes, false);
    world.caches[1].drops = false;
    assert_eq!(rounds(&world), Err("stale after a round".to_string()));
}

/// An object is given up and its frame filled anew as soon as it may be, while a CPU of another node
/// uses it until it acknowledges.
fn object_given_up(logged: impl Fn(PhysAddr) -> DirtyEntry) -> u64 {
    let mem = StaleMem::with_habits(NODES, 0, Habits::LAZY);
    let flushes = Flushes::all();
    let w = World::new(&mem, &flushes, false);
    let [_r0, mut r1] = w.pair().unwrap();
    let (q0, q1) = (w.q(0), w.q(1));
    let look = || mem.node(1).load(FRAME, Ordering::Relaxed);
    assert_eq!(look(), 0);
    LogWriter::attach(&q0, node(0), cpu(0)).record(&q0, logged(FRAME));
    let stamp = q0.now();
    loop {
        match r1.flush_step(&q1, &w.caches[1], 1).unwrap() {
            Progress::Working => {}
            Progress::Waiting(cpu) => {
                look();
                assert!(q1.acknowledge(node(1), cpu, &w.caches[1]));
            }
            Progress::Published(_) => break,
        }
    }
    assert!(q1.publication(node(1)).is_quiet_since(stamp));
    mem.node(0).swap(FRAME, 7);
    look()
}

#[test]
fn objects_are_dropped_after_cpus_have_acknowledged() {
    assert_eq!(object_given_up(DirtyEntry::Object), 7);
    // As a table it would be dropped before, and brought back.
    assert_eq!(object_given_up(DirtyEntry::Table), 0);
}
