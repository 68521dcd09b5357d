//! Groups: each has one share, however many threads it has and whatever they do.

use super::*;
use std::collections::BTreeMap;

/// Threads that there can be: for each group as many.
const ALL: usize = 160;
const EACH: usize = ALL / GROUPS;
const SLICE: u64 = 10_000_000;
/// What rounding takes off a turn at most: no dispatch is shorter.
const ROUNDED: u64 = 10_000;

fn of_group(thread: usize) -> u8 {
    (thread / EACH) as u8
}

fn entry(thread: usize) -> Entry {
    Entry {
        priority: priority(8),
        group: group(of_group(thread)),
        slice_ns: SLICE,
        on_allowance: false,
    }
}

fn found(thread: usize) -> Option<Entry> {
    Some(entry(thread))
}

/// A turn of a group, as it was seen: the threads that ran in it, each with its time.
struct Turn {
    group: u8,
    runs: Vec<(usize, u64)>,
}

impl Turn {
    fn time(&self) -> u64 {
        self.runs.iter().map(|r| r.1).sum()
    }
}

/// Threads that are always ready, all interrupted as often as `pieces` say, for so many dispatches.
fn turns_of(counts: &[usize], pieces: &[u64], dispatches: usize) -> Vec<Turn> {
    let mut s = Scheduler::<ALL>::new();
    for (g, &count) in counts.iter().enumerate() {
        for n in 0..count {
            s.ready(g * EACH + n, entry(g * EACH + n));
        }
    }
    let (mut now, mut turns) = (0, Vec::<Turn>::new());
    for n in 0..dispatches {
        let Next::Run {
            thread, slice_ns, ..
        } = s.next(now, found)
        else {
            panic!("all are ready");
        };
        let time = slice_ns.min(pieces[n % pieces.len()]);
        now += time;
        let group = of_group(thread);
        match turns.last_mut().filter(|t| t.group == group) {
            // Of one group alone, turns follow each other.
            Some(turn) if counts.len() > 1 => match turn.runs.last_mut() {
                Some(run) if run.0 == thread => run.1 += time,
                _ => turn.runs.push((thread, time)),
            },
            _ => turns.push(Turn {
                group,
                runs: std::vec![(thread, time)],
            }),
        }
        s.stopped(thread, entry(thread), Stop::Interrupted);
    }
    // The last one may go on.
    let last = turns.pop().map_or(0, |t| t.time());
    assert!(last <= SLICE, "a turn of {last} ns");
    turns
}

fn assert_about(time: u64, what: &str) {
    assert!((SLICE - ROUNDED..=SLICE).contains(&time), "{what}: {time}");
}

#[test]
fn sixty_threads_of_one_program_leave_half_to_the_program_beside_it() {
    const THREADS: usize = 61;
    let entry = |thread| Entry {
        priority: priority(8),
        group: group(if thread == 60 { 2 } else { 1 }),
        slice_ns: SLICE,
        on_allowance: false,
    };
    let mut s = Scheduler::<THREADS>::new();
    (0..THREADS).for_each(|thread| s.ready(thread, entry(thread)));
    let (mut now, mut ran) = (0, 0);
    let (mut last, mut gap) = (0, 0);
    for _ in 0..1000 {
        let Next::Run {
            thread, slice_ns, ..
        } = s.next(now, |t| Some(entry(t)))
        else {
            panic!("all are ready");
        };
        if thread == 60 {
            gap = gap.max(now - last);
            last = now + slice_ns;
            ran += slice_ns;
        }
        now += slice_ns;
        s.stopped(thread, entry(thread), Stop::Interrupted);
    }
    assert_eq!(ran, now / 2);
    assert_eq!(gap, SLICE);
}

/// Each decision and each thread that is woken take time, and threads of one program sleep for so short a time that some
/// deadline has always passed.
#[test]
fn sixty_sleepers_leave_half_to_the_program_beside_them() {
    const THREADS: usize = 61;
    let entry = |thread| Entry {
        priority: priority(8),
        group: group(if thread == 60 { 2 } else { 1 }),
        slice_ns: SLICE,
        on_allowance: false,
    };
    for sleep in [1_000, 50_000, 900_000] {
        let mut s = Scheduler::<THREADS>::new();
        (0..THREADS).for_each(|thread| s.ready(thread, entry(thread)));
        let (mut now, mut ran) = (0, 0);
        while now < 2_000_000_000 {
            while let Some(thread) = s.expired(now) {
                now += 2_000;
                s.told(thread, entry(thread), News::Ready);
            }
            now += 5_000;
            match s.next(now, |t| Some(entry(t))) {
                Next::Run { slice_ns, .. } if slice_ns > SLICE => panic!("{slice_ns}"),
                Next::Run {
                    thread: 60,
                    slice_ns,
                    ..
                } => {
                    now += slice_ns;
                    ran += slice_ns;
                    s.stopped(60, entry(60), Stop::Interrupted);
                }
                Next::Run { thread, .. } => {
                    now += 1_000;
                    s.stopped(thread, entry(thread), Stop::Blocked(Some(now + sleep)));
                }
                Next::Wait(_) => panic!("one is ready"),
            }
        }
        let part = ran as f64 / now as f64;
        assert!(part >= 0.49, "asleep for {sleep} ns: {part}");
    }
}

#[test]
fn a_thread_that_yields_leaves_the_rest_to_its_program_until_all_have_yielded() {
    let (a, b, c) = (0, 1, EACH);
    let mut s = Scheduler::<ALL>::new();
    [a, b, c].into_iter().for_each(|t| s.ready(t, entry(t)));
    let mut now = 0;
    let mut run = |s: &mut Scheduler<ALL>, time: u64, why| {
        let Next::Run {
            thread, slice_ns, ..
        } = s.next(now, found)
        else {
            panic!("all are ready");
        };
        now += time.min(slice_ns);
        s.stopped(thread, entry(thread), why);
        (thread, slice_ns)
    };
    assert_eq!(run(&mut s, 1000, Stop::Turn), (a, SLICE));
    assert_eq!(run(&mut s, 1000, Stop::Turn), (b, SLICE - 1000));
    assert_eq!(run(&mut s, 1000, Stop::Turn), (c, SLICE), "both have");
    assert_eq!(run(&mut s, 2000, Stop::Turn), (a, SLICE), "c is alone");
    // What a thread leaves of its group's turn is for others of it, and what they do not use is lost.
    let waits = Stop::Blocked(None);
    assert_eq!(run(&mut s, 3000, waits), (b, SLICE - 2000));
    assert_eq!(run(&mut s, SLICE, waits), (c, SLICE), "a has yielded");
    s.ready(c, entry(c));
    assert_eq!(run(&mut s, 1000, waits), (a, SLICE));
    s.ready(b, entry(b));
    assert_eq!(run(&mut s, 1000, waits), (c, SLICE), "a's turn was over");
}

/// A thread that was interrupted is at the front of its group, and its group keeps the turn, whatever was more urgent.
#[test]
fn an_urgent_thread_does_not_take_the_turn_from_a_group() {
    let urgent = Entry {
        priority: priority(62),
        group: group(0),
        slice_ns: SLICE,
        on_allowance: false,
    };
    let (a, b, c) = (EACH, EACH + 1, 2 * EACH);
    let mut s = Scheduler::<ALL>::new();
    [a, b, c].into_iter().for_each(|t| s.ready(t, entry(t)));
    let find = |t: usize| if t == 0 { Some(urgent) } else { found(t) };
    let run = |thread: usize, slice_ns| Next::Run {
        thread,
        priority: find(thread).unwrap().priority,
        slice_ns,
    };
    assert_eq!(s.next(0, find), run(a, SLICE));
    s.stopped(a, entry(a), Stop::Interrupted);
    s.ready(0, urgent);
    assert_eq!(s.next(4_000_000, find), run(0, SLICE));
    s.stopped(0, urgent, Stop::Blocked(None));
    assert_eq!(s.next(9_000_000, find), run(a, SLICE - 4_000_000));
    s.stopped(a, entry(a), Stop::Interrupted);
    assert_eq!(s.next(15_000_000, find), run(c, SLICE));
    s.stopped(c, entry(c), Stop::Interrupted);
    assert_eq!(s.next(25_000_000, find), run(b, SLICE));
}

/// News of a thread that does not run end no turn of the one that does.
#[test]
fn news_of_others_of_its_program_do_not_cost_a_thread_its_turn() {
    let (a, b, c) = (EACH, EACH + 1, 2 * EACH);
    let mut s = Scheduler::<ALL>::new();
    [a, c].into_iter().for_each(|t| s.ready(t, entry(t)));
    let run = |thread: usize, slice_ns| Next::Run {
        thread,
        priority: entry(thread).priority,
        slice_ns,
    };
    assert_eq!(s.next(0, found), run(a, SLICE));
    s.told(b, entry(b), News::Sleeps(Some(1 << 40)));
    s.stopped(a, entry(a), Stop::Interrupted);
    assert_eq!(s.next(1_000_000, found), run(a, SLICE - 1_000_000));
    s.stopped(a, entry(a), Stop::Interrupted);
    s.told(b, entry(b), News::Sleeps(None));
    assert_eq!(s.next(2_000_000, found), run(a, SLICE - 2_000_000));
    s.stopped(a, entry(a), Stop::Blocked(None));
    assert_eq!(s.next(3_000_000, found), run(b, SLICE - 3_000_000));
    s.stopped(b, entry(b), Stop::Refused(Some(1 << 40)));
    s.ready(a, entry(a));
    assert_eq!(s.next(3_000_000, found), run(c, SLICE), "it was over");
}

/// What threads of other programs do when they stop, by number.
fn stop(n: u8, now: u64) -> Stop {
    match n % 8 {
        0..3 => Stop::Turn,
        3 => Stop::Blocked(None),
        4 => Stop::Blocked(Some(now + 15_000)),
        5 => Stop::Gone,
        6 => Stop::Refused(None),
        _ => Stop::Interrupted,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Programs with threads that are always ready, however many each has, and however they are interrupted: turns
    /// go round, each is one slice, and threads of a program have turns in order, of one slice each.
    #[test]
    fn each_program_has_one_slice_in_turn_whatever_its_number_of_threads(
        counts in prop::collection::vec(1..=EACH, 1..=GROUPS),
        pieces in prop::collection::vec(
            prop_oneof![Just(u64::MAX), Just(SLICE - 1), 10_001..100_000u64, 700_000..SLICE], 1..5
        ),
    ) {
        let k = counts.len();
        let turns = turns_of(&counts, &pieces, 3000);
        if k > 1 {
            for (n, turn) in turns.iter().enumerate() {
                prop_assert_eq!(turn.group as usize, n % k, "turns go round");
                assert_about(turn.time(), "turn of a program");
            }
            // So a program's only thread, or any one of its threads by itself:
            for (n, turn) in turns.iter().enumerate().skip(k) {
                let between: u64 = turns[n + 1 - k..n].iter().map(Turn::time).sum();
                prop_assert!(between <= (k as u64 - 1) * SLICE);
                prop_assert_eq!(turns[n - k].group, turn.group);
            }
        }
        // Within each program.
        let mut runs: BTreeMap<u8, Vec<(usize, u64)>> = BTreeMap::new();
        for (thread, time) in turns.iter().flat_map(|t| &t.runs).copied() {
            let all = runs.entry(of_group(thread)).or_default();
            match all.last_mut() {
                Some(last) if last.0 == thread && counts[of_group(thread) as usize] > 1 => last.1 += time,
                _ => all.push((thread, time)),
            }
        }
        for (g, all) in runs {
            let count = counts[g as usize];
            if count == 1 {
                continue;
            }
            let whole = all.len() - 1;
            for (n, (thread, time)) in all.into_iter().enumerate() {
                prop_assert_eq!(thread % EACH, n % count, "threads take turns");
                if n < whole {
                    assert_about(time, "turn of a thread");
                }
            }
        }
    }

    /// One thread that is always ready, beside programs whose threads yield, sleep, wake, begin and end, and of
    /// which news come late and twice: it waits no longer than a slice for each of them.
    #[test]
    fn nothing_that_threads_do_gains_their_program_a_turn(
        rivals in 1..GROUPS,
        victim in 0..GROUPS,
        acts in prop::collection::vec(
            (any::<u8>(), prop_oneof![Just(u64::MAX), 0..20_000u64, 0..SLICE], 0..ALL, 0..5u8), 50..400
        ),
    ) {
        let mut s = Scheduler::<ALL>::new();
        let me = victim * EACH;
        let is_rival = |t: usize| (1..=rivals).any(|n| (victim + n) % GROUPS == of_group(t) as usize);
        for t in (0..ALL).filter(|&t| t == me || is_rival(t)) {
            s.ready(t, entry(t));
        }
        // Since the victim's last turn: the time of others, and what of them.
        let (mut now, mut waited, mut turn) = (0, None, 0);
        let (mut own, mut all) = (0, 0);
        for (how, length, other, news) in acts.into_iter().cycle().take(2000) {
            while let Some(thread) = s.expired(now) {
                s.ready(thread, entry(thread));
            }
            if is_rival(other) {
                match news {
                    0 => s.dropped(other),
                    1 => s.told(other, entry(other), News::Sleeps(Some(now + 20_000))),
                    2 => s.stopped(other, entry(other), Stop::Refused(None)),
                    _ => s.told(other, entry(other), News::Ready),
                }
            }
            let Next::Run { thread, slice_ns, .. } = s.next(now, found) else {
                panic!("the victim is ready");
            };
            prop_assert!((ROUNDED..=SLICE).contains(&slice_ns));
            let time = length.min(slice_ns);
            now += time;
            all += time;
            if thread == me {
                if let Some(waited) = waited.filter(|&w| w > 0) {
                    prop_assert!(waited <= rivals as u64 * SLICE, "it waited {} ns", waited);
                    turn = 0;
                }
                (waited, turn, own) = (Some(0), turn + time, own + time);
                // It never gives the CPU back by itself.
                s.stopped(thread, entry(thread), Stop::Interrupted);
            } else {
                if waited == Some(0) && time > 0 {
                    // Several, if it was alone.
                    prop_assert!(turn >= SLICE - ROUNDED, "it had {} ns", turn);
                }
                waited = waited.map(|w| w + time);
                s.stopped(thread, entry(thread), stop(how, now));
                // Sometimes it is ready again at once.
                if how & 8 != 0 {
                    s.ready(thread, entry(thread));
                }
            }
        }
        let others = all - own;
        let least = (others / rivals as u64).saturating_sub(SLICE);
        prop_assert!(own + own / 500 >= least, "{} of {} ns beside {}", own, all, rivals);
    }
}
