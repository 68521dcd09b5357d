//! Model checks: what was unpublished is not reused while a CPU uses it, in any interleaving
//! and with any weak ordering; and what this needs, shown by taking it away: rules one by one, and
//! fences and orders one place in the source after the other.

use crate::common::model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dyad_coherence::GlobalMem;
use dyad_coherence::model::mutant::Kind::{self, Acquire, Fence, Release};
use dyad_coherence::model::mutant::{Orders, Site, try_each};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_quiesce::{DirtyEntry, Idle, IntentRecord, Intents, LogWriter, Progress, Round, Row};
use dyad_shm::quiesce::LOG_ENTRIES;
use dyad_shm::{PhysAddr, WeakRef};
use loom::sync::atomic::Ordering;
use loom::thread;
use model::*;

/// Runs `reuser` against `user`; the thread that changes less starts last. The model must have
/// come to a reuse, or it has shown nothing.
fn against(
    lacks: Lacks,
    orders: &Orders,
    tracked: &'static [(u64, u64)],
    reuser: impl Fn(&LoomMem) -> bool + Clone + Send + Sync + 'static,
    user: impl Fn(&LoomMem) + Clone + Send + Sync + 'static,
) {
    let reused = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (reused.clone(), orders.clone());
    explore(None, move || {
        let mem = memory(lacks, &orders, tracked);
        let (m, u) = (mem.clone(), user.clone());
        let other = thread::spawn(move || u(&m));
        let now = reuser(&mem);
        other.join().unwrap();
        if now {
            seen.store(true, Relaxed);
            let after = mem.load(CONTENTS, Ordering::Relaxed);
            assert_eq!(after, NEW, "used after it was reused");
        }
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

fn keeps_to_it(m: &LoomMem) -> bool {
    take_and_reuse(m, by_protocol)
}

fn use_round_use(mem: &LoomMem) {
    let q = words(mem);
    let mut round = Round::new(&q, node1());
    let hw = Hardware::using(mem, find(mem));
    let waiting = round.flush_step(&q, &hw, 1000).unwrap();
    assert_eq!(waiting, Progress::Waiting(cpu(0)));
    q.acknowledge(node1(), cpu(0), &hw);
    let done = round.flush_step(&q, &hw, 1000).unwrap();
    assert!(matches!(done, Progress::Published(_)));
    use_it(mem);
}

fn rounds(orders: &Orders) {
    against(Lacks::Nothing, orders, &[], keeps_to_it, use_round_use);
}

#[test]
fn a_round_keeps_reuse_away_from_users() {
    rounds(&Orders::all());
}

/// A1b.
#[test]
#[should_panic(expected = "reused")]
fn mutant_published_as_much_instead_of_more() {
    let reuser = |m: &LoomMem| take_and_reuse(m, |q, s| q.publication(node1()).epoch() >= s);
    let orders = Orders::all();
    against(Lacks::Nothing, &orders, &[], reuser, use_round_use);
}

/// A1c.
#[test]
#[should_panic(expected = "reused")]
fn mutant_stamp_taken_before_unpublishing() {
    let reuser = |m: &LoomMem| {
        let early = words(m).now();
        take_and_reuse(m, move |q, _| by_protocol(q, early))
    };
    let orders = Orders::all();
    against(Lacks::Nothing, &orders, &[], reuser, use_round_use);
}

fn use_sleep_use(mem: &LoomMem) {
    let q = words(mem);
    let mut round = Round::new(&q, node1());
    let hw = Hardware::using(mem, find(mem));
    let idle = round.idle_step(&q, &hw, cpu(0), 1000, || false);
    assert_eq!(idle, Idle::Asleep);
    q.wake(node1(), cpu(0));
    use_it(mem);
}

fn sleep(orders: &Orders) {
    against(Lacks::Nothing, orders, &[], keeps_to_it, use_sleep_use);
}

#[test]
fn a_node_that_sleeps_is_quiet_and_one_that_wakes_is_not() {
    sleep(&Orders::all());
}

/// L2.
#[test]
#[should_panic(expected = "reused")]
fn mutant_use_before_withdrawal() {
    let user = |mem: &LoomMem| {
        let (q, hw) = (words(mem), Hardware::default());
        let mut round = Round::new(&q, node1());
        round.idle_step(&q, &hw, cpu(0), 1000, || false);
        use_it(mem);
        q.wake(node1(), cpu(0));
    };
    let orders = Orders::all();
    against(Lacks::Nothing, &orders, &[], keeps_to_it, user);
}

/// The node's round is driven by another of its CPUs than the one that uses the object; here the
/// driver is also who reuses it. `held`: the user acknowledges with the object in hand.
///
/// The driver is told when to look at the acknowledgement again, because loom does not try to
/// look later by itself: the user loads that word before it stores it. What tells it is nothing
/// that loom knows, and so orders nothing.
fn driven_by_another_cpu(held: bool, orders: &Orders) {
    let reused = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (reused.clone(), orders.clone());
    explore(None, move || {
        let mem = memory(Lacks::Nothing, &orders, &[]);
        let passed = Arc::new(AtomicBool::new(false));
        let (m, p, reuses) = (mem.clone(), passed.clone(), seen.clone());
        let driver = thread::spawn(move || {
            let (q, hw) = (words(&m), Hardware::default());
            let mut round = Round::new(&q, node1());
            m.cas(THERE, 1, 0).unwrap();
            let stamp = q.now();
            let asked = round.flush_step(&q, &hw, 1000).unwrap();
            if matches!(asked, Progress::Waiting(_)) {
                while !p.load(Relaxed) {
                    thread::yield_now();
                }
                let _ = round.flush_step(&q, &hw, 1000).unwrap();
            }
            if by_protocol(&q, stamp) {
                reuse(&m);
                reuses.store(true, Relaxed);
            }
        });
        let found = find(&mem);
        let hw = Hardware::using(&mem, found && !held);
        words(&mem).acknowledge(node1(), cpu(0), &hw);
        passed.store(true, Relaxed);
        if found && held {
            look(&mem);
        }
        use_it(&mem);
        driver.join().unwrap();
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

fn other_cpu(orders: &Orders) {
    driven_by_another_cpu(false, orders);
}

#[test]
fn acknowledgements_of_another_cpu_are_enough() {
    other_cpu(&Orders::all());
}

#[test]
#[should_panic(expected = "reused")]
fn mutant_acknowledged_with_a_reference_in_hand() {
    driven_by_another_cpu(true, &Orders::all());
}

/// CPU 0 drives the round and reuses; CPU 1 uses, sleeps, and uses again.
fn beside(orders: &Orders) {
    const BOTH_AWAKE: [(u64, u64); 1] = [(PUBLISHED, START << 16 | 0b11)];
    let driver = |mem: &LoomMem| {
        let (q, hw) = (words(mem), Hardware::default());
        let mut round = Round::new(&q, node1());
        mem.cas(THERE, 1, 0).unwrap();
        let stamp = q.now();
        let _ = round.flush_step(&q, &hw, 1000).unwrap();
        q.acknowledge(node1(), cpu(0), &hw);
        let _ = round.flush_step(&q, &hw, 1000).unwrap();
        let quiet = by_protocol(&q, stamp);
        if quiet {
            reuse(mem);
        }
        quiet
    };
    against(Lacks::Nothing, orders, &BOTH_AWAKE, driver, |mem| {
        let q = words(mem);
        let hw = Hardware::using(mem, find(mem));
        let idle = q.idle_beside_others(node1(), cpu(1), &hw, || false);
        if idle == Idle::Asleep {
            q.wake(node1(), cpu(1));
            use_it(mem);
        }
    });
}

#[test]
fn a_cpu_that_sleeps_beside_others_needs_not_acknowledge() {
    beside(&Orders::all());
}

/// CPU 1 of node 1 is started, or wakes up, anywhere in the round that CPU 0 drives, and uses the object;
/// node 0 takes it away and reuses it.
fn comes_up(orders: &Orders) {
    let reused = Arc::new(AtomicBool::new(false));
    let (seen, orders) = (reused.clone(), orders.clone());
    explore(Some(3), move || {
        let mem = memory(Lacks::Nothing, &orders, &[]);
        let (m, k) = (mem.clone(), mem.clone());
        let starting = thread::spawn(move || {
            words(&m).wake(node1(), cpu(1));
            use_it(&m);
        });
        let driver = thread::spawn(move || {
            let (q, hw) = (words(&k), Hardware::default());
            let mut round = Round::new(&q, node1());
            let _ = round.flush_step(&q, &hw, 1000).unwrap();
            q.acknowledge(node1(), cpu(0), &hw);
            // Ends, or waits for CPU 1.
            let _ = round.flush_step(&q, &hw, 1000).unwrap();
        });
        let now = keeps_to_it(&mem);
        starting.join().unwrap();
        driver.join().unwrap();
        if now {
            seen.store(true, Relaxed);
            let after = mem.load(CONTENTS, Ordering::Relaxed);
            assert_eq!(after, NEW, "used after it was reused");
        }
    });
    assert!(reused.load(Relaxed), "nothing was ever reused");
}

#[test]
fn a_cpu_that_comes_up_during_a_round_is_waited_for_or_holds_nothing() {
    comes_up(&Orders::all());
}

/// Node 1 joins and uses the object at once.
fn joins(orders: &Orders) {
    const VACANT: [(u64, u64); 2] = [(STATE, 0), (PUBLISHED, 0)];
    against(Lacks::Nothing, orders, &VACANT, keeps_to_it, |mem| {
        let (q, hw) = (words(mem), Hardware::default());
        q.join(node1(), cpu(0), &hw).unwrap();
        use_it(mem);
    });
}

#[test]
fn a_node_that_joins_counts_before_it_uses_anything() {
    joins(&Orders::all());
}

/// A CPU of node 0 comes up, logs what it has changed and takes a stamp, while node 1 goes through a round
/// that counts for that stamp or not.
fn logged(orders: &Orders) {
    let orders = orders.clone();
    explore(None, move || {
        let log = [(HEAD, 0), (ENTRY, 0), (LOG_SET, 0)];
        let mem = memory(Lacks::Nothing, &orders, &log);
        let mut round = Round::new(&words(&mem), node1());
        let m = mem.clone();
        let reader = thread::spawn(move || {
            let (q, hw) = (words(&m), Hardware::default());
            let epoch = loop {
                match round.flush_step(&q, &hw, 1000).unwrap() {
                    Progress::Published(epoch) => break epoch,
                    _ => q.acknowledge(node1(), cpu(0), &hw),
                };
            };
            assert!(!hw.did(Did::Everything), "an entry is not what was logged");
            (epoch, hw.did(Did::Lines(THERE)))
        });
        let q = words(&mem);
        let mut log = LogWriter::attach(&q, node0(), cpu(0));
        log.record(&q, DirtyEntry::Line(THERE));
        let stamp = q.now();
        let (epoch, dropped) = reader.join().unwrap();
        assert!(dropped || epoch <= stamp, "quiet, with a stale copy");
    });
}

#[test]
fn what_is_logged_before_the_stamp_is_dropped_by_rounds_that_count() {
    logged(&Orders::all());
}

/// The entry that node 1 reads is overwritten meanwhile.
fn overwritten(orders: &Orders) {
    let orders = orders.clone();
    explore(Some(3), move || {
        let log = [(HEAD, 0), (ENTRY, 0), (LOG_SET, 0)];
        let mem = memory(Lacks::Nothing, &orders, &log);
        let q = words(&mem);
        let mut round = Round::new(&q, node1());
        let mut log = LogWriter::attach(&q, node0(), cpu(0));
        for _ in 1..LOG_ENTRIES {
            log.record(&q, DirtyEntry::Line(THERE));
        }
        let m = mem.clone();
        let reader = thread::spawn(move || {
            let (q, hw) = (words(&m), Hardware::default());
            // A new epoch, the log's end, the first entry, and another step.
            let _ = round.flush_step(&q, &hw, 4).unwrap();
            let first = hw.did(Did::Lines(THERE)) && !hw.did(Did::Lines(CONTENTS));
            assert!(
                first || hw.did(Did::Everything),
                "takes it for another entry"
            );
        });
        log.record(&q, DirtyEntry::Line(CONTENTS));
        log.record(&q, DirtyEntry::Line(CONTENTS));
        reader.join().unwrap();
    });
}

#[test]
fn an_overwritten_entry_is_not_taken_for_another() {
    overwritten(&Orders::all());
}

/// CPU 1 wakes up while CPU 0 asks for acknowledgements: the round does not wait for it, or it is called.
fn unheard(orders: &Orders) {
    let orders = orders.clone();
    explore(None, move || {
        let mem = memory(Lacks::Nothing, &orders, &[]);
        let m = mem.clone();
        let waker = thread::spawn(move || {
            let q = words(&m);
            q.wake(node1(), cpu(1));
            q.acknowledge(node1(), cpu(1), &Hardware::default());
        });
        let (q, hw) = (words(&mem), Hardware::default());
        let mut round = Round::new(&q, node1());
        let asked = round.flush_step(&q, &hw, 1000).unwrap();
        assert_eq!(asked, Progress::Waiting(cpu(0)));
        q.acknowledge(node1(), cpu(0), &hw);
        waker.join().unwrap();
        let heard = mem.load(PhysAddr(acknowledged(1)), Ordering::Relaxed) > START;
        let ended = match round.flush_step(&q, &hw, 1000).unwrap() {
            Progress::Published(_) => true,
            other => {
                assert_eq!(other, Progress::Waiting(cpu(1)));
                assert!(!heard, "its acknowledgement does not count");
                false
            }
        };
        assert!(ended || hw.did(Did::Call(cpu(1))), "unheard");
    });
}

#[test]
fn a_cpu_that_wakes_up_during_a_request_is_called_if_it_is_waited_for() {
    unheard(&Orders::all());
}

/// Node 0 gives node 1 work, and rings if it sees it asleep.
fn work(orders: &Orders) {
    let orders = orders.clone();
    explore(None, move || {
        let mem = memory(Lacks::Nothing, &orders, &[]);
        let m = mem.clone();
        let sleeper = thread::spawn(move || {
            let q = words(&m);
            let mut round = Round::new(&q, node1());
            let given = || m.load(CONTENTS, Ordering::Acquire) == NEW;
            round.idle_step(&q, &Hardware::default(), cpu(0), 1000, given)
        });
        mem.store(CONTENTS, NEW, Ordering::Release);
        mem.fence();
        let rings = words(&mem).publication(node1()).awake() == 0;
        let idle = sleeper.join().unwrap();
        assert!(rings || idle == Idle::Work, "slept through");
    });
}

#[test]
fn work_is_not_slept_through() {
    work(&Orders::all());
}

/// Node 1 dies anywhere in a row that changes a word from 1 to 2 and then to 3, or lives on.
fn intents(orders: &Orders) {
    let orders = orders.clone();
    explore(Some(3), move || {
        let line = [0, 1, 2, 3].map(|w| (intent(w), 0));
        let mem = memory(Lacks::Nothing, &orders, &line);
        let record = IntentRecord {
            row: Row::Map,
            frame: WeakRef::from_bits(7 << 32).unwrap(),
            table: WeakRef::from_bits(8 << 32 | 1),
            place: CONTENTS,
        };
        let m = mem.clone();
        let dying = thread::spawn(move || {
            let q = words(&m);
            let mine = q.intents(node1(), cpu(0));
            mine.begin(&record);
            m.cas(CONTENTS, 1, 2).unwrap();
            m.cas(CONTENTS, 2, 3).unwrap();
            mine.clear();
        });
        let q = words(&mem);
        let theirs = q.intents(node1(), cpu(0));
        if let Some(read) = theirs.read() {
            assert_eq!(read, record, "half a record");
        }
        let half = mem.load(CONTENTS, Ordering::Acquire) == 2;
        if half && theirs.read().is_none() {
            let now = mem.load(CONTENTS, Ordering::Relaxed);
            assert_eq!(now, 3, "nobody repairs this");
        }
        dying.join().unwrap();
    });
}

#[test]
fn whoever_dies_in_a_row_leaves_its_intent() {
    intents(&Orders::all());
}

/// A name, a scenario, and the places it needs: file and what is there, in the order of the source.
type Judge = (&'static str, fn(&Orders), &'static [(&'static str, Kind)]);

const JUDGES: [Judge; 11] = [
    // The stamp comes after the unpublishing; who reuses has acquired the publication.
    (
        "rounds",
        rounds,
        &[("words.rs", Fence), ("words.rs", Acquire)],
    ),
    // Of `wake`: as for `rounds`, the stamp comes after the unpublishing.
    (
        "sleep",
        sleep,
        &[
            ("idle.rs", Fence),
            ("words.rs", Fence),
            ("words.rs", Acquire),
        ],
    ),
    // Who drives the round has acquired the acknowledgement.
    ("other_cpu", other_cpu, &[("round.rs", Acquire)]),
    ("beside", beside, &[("idle.rs", Fence)]),
    // Of `wake`; the stamp, the new epoch.
    (
        "comes_up",
        comes_up,
        &[("idle.rs", Fence), ("words.rs", Fence), ("words.rs", Fence)],
    ),
    // LIVE comes before the first use.
    ("joins", joins, &[("life.rs", Fence), ("words.rs", Fence)]),
    // Head: written and read. The stamp comes after the log, the new epoch before it is read.
    (
        "logged",
        logged,
        &[
            ("log.rs", Release),
            ("log.rs", Acquire),
            ("words.rs", Fence),
            ("words.rs", Fence),
        ],
    ),
    // Entry: written after the head before it, read before the head is looked at again.
    (
        "overwritten",
        overwritten,
        &[("log.rs", Release), ("log.rs", Acquire)],
    ),
    // A round waits for the CPUs that it has called, and for no others. No order of accesses decides that.
    ("unheard", unheard, &[]),
    // The last look for work.
    ("work", work, &[("idle.rs", Fence)]),
    // Read; begin; clear.
    (
        "intents",
        intents,
        &[
            ("intent.rs", Acquire),
            ("intent.rs", Release),
            ("intent.rs", Release),
        ],
    ),
];

/// Nothing is wrong without these, and why.
const SPARE: [(&str, Kind); 8] = [
    // `idle_beside_others`: the CAS that follows releases what came before.
    ("idle.rs", Fence),
    // `attach`: the only writer reads its own word.
    ("log.rs", Acquire),
    // The request: the fence after the new epoch comes before it.
    ("round.rs", Release),
    // `acknowledge` orders twice, by the request's acquire and its own release, and by the fence
    // between the two; either is enough.
    ("round.rs", Acquire),
    ("round.rs", Fence),
    ("round.rs", Release),
    // `now`: no node looks at anything because of an epoch that it has loaded here.
    ("words.rs", Acquire),
    // A node's state: its fence when it joins, and that before the stamp, decide whether the stamp
    // concerns it.
    ("words.rs", Acquire),
];

fn places<'s>(sites: impl IntoIterator<Item = &'s Site>) -> Vec<(&'static str, Kind)> {
    let place = |s: &Site| (s.file.rsplit('/').next().unwrap_or(s.file), s.kind);
    sites.into_iter().map(place).collect()
}

#[test]
fn every_order_is_needed() {
    let (mut caught, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (name, scenario, needs) in JUDGES {
        let verdict = try_each(scenario);
        assert_eq!(places(&verdict.caught), needs, "{name}");
        all.extend(verdict.survived);
        all.extend(verdict.caught.iter().copied());
        caught.extend(verdict.caught);
    }
    let spare: Vec<_> = all.difference(&caught).copied().collect();
    assert_eq!(places(&spare), SPARE);
    // They do not stand in for each other, but for the fence of `acknowledge`.
    let fence = 4;
    let others = spare.iter().enumerate().filter(|(i, _)| *i != fence);
    let others = Orders::without(others.map(|(_, s)| *s));
    for (_, scenario, _) in JUDGES {
        scenario(&others);
    }
    let none = Orders::without(spare);
    let wrong = std::thread::spawn(move || other_cpu(&none)).join();
    assert!(wrong.is_err(), "acknowledged without any order");
}
