//! Rounds, logs and idleness, one thread.

use crate::common;

use common::*;
use dyad_coherence::HostMem;
use dyad_quiesce::{DirtyEntry, Epoch, Idle, LogWriter, Progress, Quiescence, Round};
use dyad_shm::PhysAddr;
use dyad_shm::quiesce::LOG_ENTRIES;

#[test]
fn reuse_needs_a_round_of_every_node_after_the_stamp() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let hw = Hardware::default();
    let stamp = q.now();
    assert!(q.quiesced(stamp).is_err(), "equal is not enough");
    whole_round(&q, 0, &mut a, &hw);
    assert_eq!(q.quiesced(stamp).unwrap_err().node, node(1));
    whole_round(&q, 1, &mut b, &hw);
    assert_eq!(q.quiesced(stamp), Ok(()));
    assert!(q.quiesced(q.now()).is_err());
}

#[test]
fn a_round_drops_lines_before_it_asks_and_asks_before_it_publishes() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    let line = PhysAddr(AREA.0 + 0x10_0040);
    log.record(&q, DirtyEntry::Line(line));
    log.record(&q, DirtyEntry::Table(PhysAddr(AREA.0 + 0x20_0000)));
    log.record(&q, DirtyEntry::User(PhysAddr(AREA.0 + 0x30_0000)));
    log.record(&q, DirtyEntry::Object(PhysAddr(AREA.0 + 0x40_0000)));
    let stamp = q.now();
    let waiting = loop {
        // One step at a time: each does one thing.
        match a.flush_step(&q, &hw, 1).unwrap() {
            Progress::Working => assert!(!q.publication(node(0)).is_quiet_since(stamp)),
            other => break other,
        }
    };
    assert_eq!(waiting, Progress::Waiting(cpu(0)));
    let expected = [
        Did::Lines(line, 64),
        Did::Lines(PhysAddr(AREA.0 + 0x20_0000), 4096),
        Did::Call(cpu(0)),
    ];
    assert_eq!(hw.take(), expected);
    assert!(q.acknowledge(node(0), cpu(0), &hw));
    assert!(!q.acknowledge(node(0), cpu(0), &hw), "once is enough");
    assert_eq!(hw.take(), [Did::Revalidate, Did::Tlb]);
    let done = loop {
        match a.flush_step(&q, &hw, 1).unwrap() {
            Progress::Working => assert!(!q.publication(node(0)).is_quiet_since(stamp)),
            other => break other,
        }
    };
    assert!(matches!(done, Progress::Published(e) if e > stamp));
    // Until the TLB was flushed user code could bring its lines back, and the kernel those of an
    // object that it had in hand.
    let user = Did::Lines(PhysAddr(AREA.0 + 0x30_0000), 4096);
    let object = Did::Lines(PhysAddr(AREA.0 + 0x40_0000), 4096);
    assert_eq!(hw.take(), [user, object]);
    assert!(q.publication(node(0)).is_quiet_since(stamp));
    whole_round(&q, 0, &mut a, &hw);
    assert!(
        !hw.take().iter().any(|d| matches!(d, Did::Lines(..))),
        "what has been dropped is not dropped again"
    );
}

/// Goes on with a round until it waits or has ended.
fn drive(q: &Quiescence<'_, HostMem>, round: &mut Round, hw: &Hardware) -> Progress {
    loop {
        match round.flush_step(q, hw, 1).unwrap() {
            Progress::Working => {}
            other => return other,
        }
    }
}

#[test]
fn every_cpu_that_is_awake_has_to_acknowledge() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    q.wake(node(0), cpu(2));
    assert_eq!(drive(&q, &mut a, &hw), Progress::Waiting(cpu(0)));
    q.acknowledge(node(0), cpu(0), &hw);
    assert_eq!(drive(&q, &mut a, &hw), Progress::Waiting(cpu(2)));
    // A CPU that falls asleep is past the request too.
    assert_eq!(
        q.idle_beside_others(node(0), cpu(2), &hw, || false),
        Idle::Asleep
    );
    assert!(matches!(drive(&q, &mut a, &hw), Progress::Published(_)));
}

#[test]
fn a_reader_that_was_lapped_flushes_everything_before_and_after_tlbs() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    hw.pieces.set(2);
    let mut log = LogWriter::attach(&q, node(1), cpu(3));
    for n in 0..=LOG_ENTRIES as u64 {
        log.record(&q, DirtyEntry::Line(AREA.add(64 * n)));
    }
    whole_round(&q, 0, &mut a, &hw);
    let did = hw.take();
    let tlb = did.iter().position(|d| *d == Did::Tlb).unwrap();
    assert_eq!(&did[..tlb - 2], [Did::Everything; 3]);
    assert_eq!(&did[tlb + 1..], [Did::Everything; 3]);
    assert!(!did.iter().any(|d| matches!(d, Did::Lines(..))));
    // As many as fit are read one by one, but for the place that is being written.
    for n in 0..LOG_ENTRIES as u64 - 1 {
        log.record(&q, DirtyEntry::Line(AREA.add(64 * n)));
    }
    whole_round(&q, 0, &mut a, &hw);
    let did = hw.take();
    let lines = did.iter().filter(|d| matches!(d, Did::Lines(..))).count();
    assert_eq!(lines, LOG_ENTRIES - 1);
    assert!(!did.contains(&Did::Everything));
}

/// A round waits for a CPU to acknowledge while another CPU writes more than a log holds: what was given up before the
/// round began is overwritten before the second pass reads it, and what is given up meanwhile is the next round's.
#[test]
fn a_reader_that_is_lapped_while_it_waits_flushes_everything_after_tlbs() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    let frame = |n: u64| DirtyEntry::User(PhysAddr(AREA.0 + 0x1000 * n));
    log.record(&q, frame(0));
    assert_eq!(drive(&q, &mut a, &hw), Progress::Waiting(cpu(0)));
    assert!(!hw.take().contains(&Did::Everything));
    for n in 1..=LOG_ENTRIES as u64 {
        log.record(&q, frame(n));
    }
    let stamp = q.now();
    assert!(q.acknowledge(node(0), cpu(0), &hw));
    assert!(matches!(drive(&q, &mut a, &hw), Progress::Published(e) if e <= stamp));
    assert!(hw.take().contains(&Did::Everything), "after TLBs");
    // Of the entries since then, the next round drops all, and once more after TLBs.
    whole_round(&q, 0, &mut a, &hw);
    let did = hw.take();
    let tlb = did.iter().position(|d| *d == Did::Tlb).unwrap();
    let lines = did[tlb..].iter();
    let everything = did[tlb..].contains(&Did::Everything);
    assert!(everything || lines.filter(|d| matches!(d, Did::Lines(..))).count() == LOG_ENTRIES);
    assert!(q.publication(node(0)).is_quiet_since(stamp));
}

/// A log does not have room for the frames of a large page: it is one entry, and readers drop everything, before
/// and after TLBs.
#[test]
fn a_large_page_is_one_entry_and_costs_a_full_flush() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    log.record(&q, DirtyEntry::Line(AREA));
    log.record(&q, DirtyEntry::LargeUser(PhysAddr(AREA.0 + 0x20_0000)));
    whole_round(&q, 0, &mut a, &hw);
    let did = hw.take();
    let tlb = did.iter().position(|d| *d == Did::Tlb).unwrap();
    assert!(did[..tlb].contains(&Did::Everything));
    assert!(did[tlb..].contains(&Did::Everything));
    assert!(!did.contains(&Did::Lines(PhysAddr(AREA.0 + 0x20_0000), 2 << 20)));
    // It has been read: the next round drops nothing.
    whole_round(&q, 0, &mut a, &hw);
    assert!(!hw.take().contains(&Did::Everything));
}

/// Steps follow the logs and CPUs there are, also when they come or go in the middle.
#[test]
fn steps_follow_logs_and_cpus() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let mut logs = 0;
    for awake in 1..=3 {
        for n in 0..2 {
            LogWriter::attach(&q, node(n), cpu(awake - 1));
            logs += 1;
        }
        if awake > 1 {
            q.wake(node(0), cpu(awake - 1));
        }
        let mut steps = 0;
        loop {
            match a.flush_step(&q, &hw, 1).unwrap() {
                Progress::Waiting(c) => assert!(q.acknowledge(node(0), c, &hw)),
                Progress::Working => steps += 1,
                Progress::Published(_) => break,
            }
        }
        // Two passes; epoch, request in two steps, the CPUs, what comes after them, publication.
        assert_eq!(steps + 1, 2 * (2 * logs + 1) + 3 + awake + 1 + 1);
    }
}

/// A call that may take so many steps drops only so many pieces of everything.
#[test]
fn pieces_of_a_full_flush_cost_steps() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    hw.pieces.set(20);
    hw.everything.set(33);
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    log.record(&q, DirtyEntry::LargeUser(AREA));
    let mut most = 0;
    while hw.did.borrow().len() < 20 {
        let before = hw.did.borrow().len();
        assert_eq!(a.flush_step(&q, &hw, 80), Ok(Progress::Working));
        most = most.max(hw.did.borrow().len() - before);
    }
    assert!(hw.take().iter().all(|d| *d == Did::Everything));
    assert_eq!(most, 3);
}

#[test]
fn log_entries_that_name_nothing_cost_a_full_flush() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    log.record(&q, DirtyEntry::Line(PhysAddr(0x1000)));
    whole_round(&q, 0, &mut a, &hw);
    assert!(hw.take().contains(&Did::Everything));
}

#[test]
fn a_node_that_sleeps_is_always_quiet_until_it_wakes() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let hw = Hardware::default();
    assert_eq!(b.idle_step(&q, &hw, cpu(0), 1000, || false), Idle::Asleep);
    let did = hw.take();
    assert_eq!(did.first(), Some(&Did::Detach));
    assert_eq!(did.last(), Some(&Did::Tlb), "caches before TLB");
    whole_round(&q, 0, &mut a, &hw);
    let stamp = Epoch::new(q.now().get() - 1).unwrap();
    assert_eq!(q.quiesced(stamp), Ok(()));
    q.wake(node(1), cpu(0));
    assert_eq!(q.quiesced(stamp).unwrap_err().node, node(1));
    whole_round(&q, 1, &mut b, &hw);
    assert_eq!(q.quiesced(stamp), Ok(()));
}

#[test]
fn work_that_comes_at_the_last_moment_is_not_slept_through() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [_a, mut b] = pair(&q);
    let hw = Hardware::default();
    let told = std::cell::Cell::new(false);
    let idle = b.idle_step(&q, &hw, cpu(0), 1000, || {
        told.set(q.publication(node(1)).awake() == 0);
        true
    });
    assert_eq!(idle, Idle::Work);
    assert!(told.get(), "the last look comes after the publication");
    assert_eq!(q.publication(node(1)).awake(), 1);
}

/// While the last CPU flushes in order to sleep, another one wakes up, works and sleeps again.
/// The word looks as before, but what was flushed was flushed before that work.
#[test]
fn a_visit_during_the_last_flush_makes_it_start_over() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [_a, mut b] = pair(&q);
    let hw = Hardware::default();
    hw.pieces.set(20);
    assert_eq!(b.idle_step(&q, &hw, cpu(0), 10, || false), Idle::Working);
    q.wake(node(1), cpu(1));
    let mut log = LogWriter::attach(&q, node(1), cpu(0));
    log.record(&q, DirtyEntry::Line(AREA));
    let other = q.idle_beside_others(node(1), cpu(1), &hw, || false);
    assert_eq!(other, Idle::Asleep);
    hw.take();
    assert_eq!(
        b.idle_step(&q, &hw, cpu(0), 1000, || false),
        Idle::Contended
    );
    assert_eq!(b.idle_step(&q, &hw, cpu(0), 1000, || false), Idle::Asleep);
    assert_eq!(q.publication(node(1)).awake(), 0);
}

#[test]
fn the_last_cpu_cannot_sleep_beside_others() {
    let mem = HostMem::new();
    let q = words(&mem);
    pair(&q);
    let idle = q.idle_beside_others(node(1), cpu(0), &Hardware::default(), || false);
    assert_eq!(idle, Idle::Contended);
    assert_eq!(q.publication(node(1)).awake(), 1);
}

/// Logs that were given up are not forgotten because the full flush was interrupted.
#[test]
fn an_interrupted_full_flush_is_done_by_the_next_round() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, _b] = pair(&q);
    let hw = Hardware::default();
    hw.pieces.set(9);
    LogWriter::attach(&q, node(1), cpu(0)).record(&q, DirtyEntry::Line(PhysAddr(0x1000)));
    while hw.did.borrow().is_empty() {
        a.flush_step(&q, &hw, 1).unwrap();
    }
    assert_eq!(a.idle_step(&q, &hw, cpu(0), 3, || false), Idle::Working);
    a.stay();
    hw.take();
    whole_round(&q, 0, &mut a, &hw);
    let pieces = |did: Vec<Did>| did.iter().filter(|d| **d == Did::Everything).count();
    assert_eq!(pieces(hw.take()), 20);
    whole_round(&q, 0, &mut a, &hw);
    assert_eq!(pieces(hw.take()), 0);
}
