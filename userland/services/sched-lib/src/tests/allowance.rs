//! What others can keep busy leaves programs their time.

use super::*;

/// A thread of the system that is on the allowance, and threads of two programs.
const LEADER: usize = 0;
const PROGRAMS: [usize; 2] = [1, 2];

fn table(thread: usize) -> Option<Entry> {
    Some(Entry {
        priority: priority(if thread == LEADER { 62 } else { 8 }),
        group: group(thread as u8),
        slice_ns: if thread == LEADER {
            3_000_000
        } else {
            10_000_000
        },
        on_allowance: thread == LEADER,
    })
}

/// The parts of the time that threads get while `programs` are always ready and the leader is made ready again as soon as it has
/// stopped, `piece` after it has begun; and the longest time in which the leader has not run.
fn parts(programs: &[usize], piece: u64, why: Stop) -> ([f64; 3], u64) {
    let mut s = Scheduler::<3>::new();
    for &thread in programs.iter().chain([&LEADER]) {
        s.ready(thread, table(thread).unwrap());
    }
    let (mut now, mut ran) = (0, [0; 3]);
    let (mut last, mut gap) = (0, 0);
    while now < 10_000_000_000 {
        let Next::Run {
            thread, slice_ns, ..
        } = s.next(now, table)
        else {
            panic!("one is ready");
        };
        let entry = table(thread).unwrap();
        let time = match thread {
            LEADER => slice_ns.min(piece),
            _ => slice_ns,
        };
        if thread == LEADER {
            gap = gap.max(now - last);
            last = now + time;
        }
        now += time;
        ran[thread] += time;
        let is_cut = time == slice_ns;
        s.stopped(
            thread,
            entry,
            if thread == LEADER && !is_cut {
                why
            } else {
                Stop::Interrupted
            },
        );
        if thread == LEADER {
            s.told(LEADER, entry, News::Ready);
        }
    }
    (ran.map(|ran| ran as f64 / now as f64), gap)
}

#[test]
fn a_leader_that_never_sleeps_leaves_programs_their_shares() {
    for piece in [10_000, 55_000, 400_000, u64::MAX] {
        for why in [Stop::Blocked(None), Stop::Turn, Stop::Refused(None)] {
            let (parts, gap) = parts(&PROGRAMS, piece, why);
            // A turn of 3 ms beside two of 10 ms, and its allowance.
            let most = 3.0 / 23.0 + ALLOWANCE as f64 / PERIOD as f64;
            assert!(parts[LEADER] <= most, "{piece} {why:?}: {parts:?}");
            for program in PROGRAMS {
                assert!(parts[program] >= 0.4, "{piece} {why:?}: {parts:?}");
            }
            assert!(gap <= PERIOD, "{piece} {why:?}: {gap}");
        }
    }
}

/// One that has much to do when all want the time gets it done.
#[test]
fn a_leader_goes_on_whatever_programs_do() {
    let (parts, _) = parts(&PROGRAMS, u64::MAX, Stop::Blocked(None));
    assert!(parts[LEADER] >= 3.0 / 23.0, "{parts:?}");
}

#[test]
fn what_no_program_wants_is_the_leaders() {
    for piece in [55_000, u64::MAX] {
        let (parts, _) = parts(&[], piece, Stop::Blocked(None));
        assert_eq!(parts, [1.0, 0.0, 0.0]);
    }
}

#[test]
fn a_leader_that_is_woken_goes_first_until_its_allowance_is_used_up() {
    let mut s = Scheduler::<3>::new();
    let entry = |thread| table(thread).unwrap();
    let run = |thread, priority, slice_ns| Next::Run {
        thread,
        priority: self::priority(priority),
        slice_ns,
    };
    s.ready(1, entry(1));
    assert_eq!(s.next(0, table), run(1, 8, 10_000_000));
    s.told(LEADER, entry(LEADER), News::Ready);
    s.stopped(1, entry(1), Stop::Interrupted);
    assert_eq!(s.next(2_000_000, table), run(LEADER, 62, ALLOWANCE));
    s.stopped(LEADER, entry(LEADER), Stop::Interrupted);
    // The program goes on, until the leader has a new allowance.
    assert_eq!(s.next(3_000_000, table), run(1, 8, 7_000_000));
    s.stopped(1, entry(1), Stop::Interrupted);
    assert_eq!(s.next(10_000_000, table), run(LEADER, 62, ALLOWANCE));
    // One that has slept, and was not ready when the period began, is where it is told to be.
    s.stopped(LEADER, entry(LEADER), Stop::Interrupted);
    assert_eq!(s.next(11_000_000, table), run(1, 8, 1_000_000));
    s.stopped(1, entry(1), Stop::Blocked(None));
    assert_eq!(s.next(11_500_000, table), run(LEADER, 8, 1_000_000));
    s.stopped(LEADER, entry(LEADER), Stop::Blocked(None));
    assert_eq!(s.next(12_000_000, table), Next::Wait(None));
    s.told(LEADER, entry(LEADER), News::Ready);
    assert_eq!(s.next(25_000_000, table), run(LEADER, 62, ALLOWANCE));
}
