//! Against naive models, and the decisions that matter.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

mod allowance;
mod fair;
mod news;

const N: usize = 12;

fn priority(n: u8) -> Priority {
    Priority::new(n).unwrap()
}

fn group(n: u8) -> Group {
    Group::new(n).unwrap()
}

/// What the queues of one priority are supposed to be.
#[derive(Clone)]
struct NaiveLevel {
    /// Thread and group, by order of arrival within a group.
    list: Vec<(usize, u8)>,
    /// The group that had the turn last, whether that is over, and the thread that passed on first in it.
    turn: u8,
    over: bool,
    passed: Option<usize>,
}

impl NaiveLevel {
    fn first_of(&self, group: u8) -> Option<usize> {
        Some(self.list.iter().find(|q| q.1 == group)?.0)
    }

    /// The thread that goes first, its group, and whether the group's turn begins.
    fn first(&self) -> Option<(usize, u8, bool)> {
        match self.first_of(self.turn) {
            Some(thread) if !self.over && self.passed != Some(thread) => {
                Some((thread, self.turn, false))
            }
            _ => (1..=GROUPS as u8)
                .map(|n| (self.turn + n) % GROUPS as u8)
                .find_map(|g| Some((self.first_of(g)?, g, true))),
        }
    }
}

/// What ready queues are supposed to be.
struct Naive {
    levels: Vec<NaiveLevel>,
}

impl Naive {
    fn new() -> Naive {
        let level = NaiveLevel {
            list: Vec::new(),
            turn: GROUPS as u8 - 1,
            over: true,
            passed: None,
        };
        Naive {
            levels: std::vec![level; PRIORITIES],
        }
    }

    fn has(&self, thread: usize) -> bool {
        let mut all = self.levels.iter().flat_map(|l| &l.list);
        all.any(|q| q.0 == thread)
    }

    fn push(&mut self, thread: usize, (p, g): (u8, u8), front: bool) -> bool {
        if thread >= N || self.has(thread) {
            return false;
        }
        let list = &mut self.levels[p as usize].list;
        list.insert(if front { 0 } else { list.len() }, (thread, g));
        true
    }

    fn first(&self) -> Option<Popped> {
        let (p, level) = (self.levels.iter().enumerate().rev()).find(|l| !l.1.list.is_empty())?;
        let (thread, g, begins) = level.first()?;
        Some(Popped {
            thread,
            priority: priority(p as u8),
            group: group(g),
            begins,
        })
    }

    fn pop(&mut self) -> Option<Popped> {
        let first = self.first()?;
        self.remove(first.thread);
        let level = &mut self.levels[first.priority.get() as usize];
        level.turn = first.group.get();
        level.over = false;
        if first.begins {
            level.passed = None;
        }
        Some(first)
    }

    fn remove(&mut self, thread: usize) -> bool {
        let had = self.has(thread);
        for level in &mut self.levels {
            level.list.retain(|q| q.0 != thread);
        }
        had
    }

    fn is_on(&self, (p, g): (u8, u8)) -> bool {
        let level = &self.levels[p as usize];
        level.turn == g && !level.over
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize, (u8, u8), bool),
    Remove(usize),
    Pop,
    End(u8),
    Leave((u8, u8)),
    Pass(usize, (u8, u8)),
}

fn step() -> impl Strategy<Value = Step> {
    // Two threads more than there can be; few priorities and groups, so that queues get long.
    let thread = 0..N + 2;
    let level = prop_oneof![Just(0u8), Just(7), Just(62), Just(63)];
    let place = (
        level.clone(),
        prop_oneof![Just(0u8), Just(1), Just(2), Just(7)],
    );
    prop_oneof![
        6 => (thread.clone(), place.clone(), any::<bool>()).prop_map(|(t, p, f)| Step::Push(t, p, f)),
        2 => thread.clone().prop_map(Step::Remove),
        4 => Just(Step::Pop),
        1 => level.prop_map(Step::End),
        1 => place.clone().prop_map(Step::Leave),
        1 => (thread, place).prop_map(|(t, p)| Step::Pass(t, p)),
    ]
}

proptest! {
    #[test]
    fn ready_queues_are_the_naive_model(steps in prop::collection::vec(step(), 0..200)) {
        let mut real = ReadyQueues::<N>::new();
        let mut naive = Naive::new();
        for s in steps {
            match s {
                Step::Push(t, (p, g), true) => prop_assert_eq!(
                    real.push_front(t, priority(p), group(g)),
                    naive.push(t, (p, g), true)
                ),
                Step::Push(t, (p, g), false) => prop_assert_eq!(
                    real.push_back(t, priority(p), group(g)),
                    naive.push(t, (p, g), false)
                ),
                Step::Remove(t) => prop_assert_eq!(real.remove(t), naive.remove(t)),
                Step::Pop => prop_assert_eq!(real.pop(), naive.pop()),
                Step::End(p) => {
                    real.end(priority(p));
                    naive.levels[p as usize].over = true;
                }
                Step::Leave((p, g)) => {
                    real.leave(priority(p), group(g));
                    naive.levels[p as usize].over |= naive.is_on((p, g));
                }
                Step::Pass(t, (p, g)) => {
                    real.pass(t, priority(p), group(g));
                    if naive.is_on((p, g)) && t < N {
                        naive.levels[p as usize].passed.get_or_insert(t);
                    }
                }
            }
            prop_assert_eq!(real.first(), naive.first());
            for t in 0..N + 2 {
                prop_assert_eq!(real.contains(t), naive.has(t));
            }
            for (p, g) in [(0, 0), (7, 1), (62, 2), (63, 7)] {
                prop_assert_eq!(real.is_on(priority(p), group(g)), naive.is_on((p, g)));
                let has = naive.levels[p as usize].list.iter().any(|q| q.1 == g);
                prop_assert_eq!(real.has(priority(p), group(g)), has);
            }
        }
    }

    #[test]
    fn timers_are_the_naive_model(
        steps in prop::collection::vec((0..N + 2, 0u64..50, 0u8..3, 0u8..64), 0..300)
    ) {
        let mut real = Timers::<N>::new();
        let mut naive: Vec<(u64, usize, u8)> = Vec::new();
        for (thread, time, what, p) in steps {
            // Few priorities with many threads, and many with few.
            let p = if thread % 2 == 0 { p / 32 * 9 } else { p };
            let had = naive.iter().any(|t| t.1 == thread);
            match what {
                0 => {
                    naive.retain(|t| t.1 != thread);
                    if thread < N {
                        naive.push((time, thread, p));
                    }
                    prop_assert_eq!(real.set(thread, time, priority(p)), thread < N);
                }
                1 => {
                    naive.retain(|t| t.1 != thread);
                    prop_assert_eq!(real.cancel(thread), had);
                }
                _ => {
                    let due = naive.iter().map(|t| t.0).min().filter(|&t| t <= time);
                    let got = real.expired(time);
                    prop_assert_eq!(got.is_some(), due.is_some());
                    if let (Some(thread), Some(due)) = (got, due) {
                        prop_assert!(naive.iter().any(|t| (t.0, t.1) == (due, thread)));
                        naive.retain(|t| t.1 != thread);
                    }
                }
            }
            prop_assert_eq!(real.next(), naive.iter().map(|t| t.0).min());
            for p in [0, 8, 9, 31, 62, 63] {
                let above = naive.iter().filter(|t| t.2 > p).map(|t| t.0).min();
                prop_assert_eq!(real.next_above(priority(p)), above);
            }
        }
    }
}

const URGENT: Entry = Entry {
    priority: Priority::HIGHEST,
    group: Group::new(0).unwrap(),
    slice_ns: 1_000_000,
    on_allowance: false,
};
const IDLE: Entry = Entry {
    priority: Priority::LOWEST,
    group: Group::new(0).unwrap(),
    slice_ns: 5_000_000,
    on_allowance: false,
};

fn table(thread: usize) -> Option<Entry> {
    match thread {
        0 => Some(URGENT),
        1 | 2 => Some(IDLE),
        _ => None,
    }
}

fn runs(s: &mut Scheduler<N>, now: u64) -> Option<usize> {
    match s.next(now, table) {
        Next::Run { thread, .. } => Some(thread),
        Next::Wait(_) => None,
    }
}

#[test]
fn turns_go_round_and_interruptions_do_not_cost_one() {
    let mut s = Scheduler::<N>::new();
    s.ready(1, IDLE);
    s.ready(2, IDLE);
    assert_eq!(runs(&mut s, 0), Some(1));
    s.stopped(1, IDLE, Stop::Interrupted);
    s.ready(0, URGENT);
    assert_eq!(runs(&mut s, 0), Some(0), "the more urgent first");
    s.stopped(0, URGENT, Stop::Blocked(None));
    assert_eq!(runs(&mut s, 0), Some(1), "then who was interrupted");
    s.stopped(1, IDLE, Stop::Turn);
    assert_eq!(runs(&mut s, 0), Some(2));
}

#[test]
fn a_slice_ends_where_a_sleeper_wakes() {
    let mut s = Scheduler::<N>::new();
    s.stopped(0, URGENT, Stop::Blocked(Some(1_000_000)));
    s.ready(1, IDLE);
    let run = |slice_ns| Next::Run {
        thread: 1,
        priority: IDLE.priority,
        slice_ns,
    };
    assert_eq!(s.next(400_000, table), run(600_000));
    s.stopped(1, IDLE, Stop::Interrupted);
    assert_eq!(s.expired(999_999), None);
    assert_eq!(s.expired(1_000_000), Some(0));
    s.ready(0, URGENT);
    assert_eq!(runs(&mut s, 1_000_000), Some(0));
    assert_eq!(s.next(1_000_000, table), run(IDLE.slice_ns - 600_000));
    // One that is not more urgent would not run before the slice is over.
    s.stopped(2, IDLE, Stop::Blocked(Some(1_200_000)));
    s.stopped(1, IDLE, Stop::Interrupted);
    assert_eq!(s.next(1_100_000, table), run(IDLE.slice_ns - 700_000));
}

/// Threads of one priority that never wait, while interruptions and deadlines come as an attacker likes: each gets its
/// turns in order, and runs as long as the others.
#[test]
fn nobody_gets_time_by_being_interrupted_or_by_cutting_others_short() {
    // The first thread is interrupted after so long, and the second one.
    for pieces in [
        [30_000, u64::MAX],
        [u64::MAX, 30_000],
        [10_001, 4_999_999],
        [700, 1_300_000],
    ] {
        let mut s = Scheduler::<N>::new();
        s.ready(1, IDLE);
        s.ready(2, IDLE);
        let (mut now, mut ran) = (0, [0; 2]);
        let mut turns = Vec::new();
        for _ in 0..10_000 {
            let Next::Run {
                thread, slice_ns, ..
            } = s.next(now, table)
            else {
                panic!("both are ready");
            };
            let time = slice_ns.min(pieces[thread - 1]);
            now += time;
            ran[thread - 1] += time;
            if turns.last() != Some(&thread) {
                turns.push(thread);
            }
            s.stopped(thread, IDLE, Stop::Interrupted);
        }
        let most = ran[0].max(ran[1]) - ran[0].min(ran[1]);
        assert!(most <= 2 * IDLE.slice_ns, "{pieces:?}: {ran:?} ns");
        let least = now / IDLE.slice_ns;
        assert!(
            turns.len() as u64 >= least,
            "{pieces:?}: {} turns",
            turns.len()
        );
    }
}

/// What was left of a turn belongs to that turn.
#[test]
fn a_thread_that_has_waited_or_given_the_cpu_back_begins_a_whole_turn() {
    for how in [Stop::Turn, Stop::Blocked(None), Stop::Gone] {
        let mut s = Scheduler::<N>::new();
        s.ready(1, IDLE);
        assert_eq!(runs(&mut s, 0), Some(1));
        s.stopped(1, IDLE, Stop::Interrupted);
        assert_eq!(runs(&mut s, 2_000_000), Some(1));
        s.stopped(1, IDLE, how);
        s.ready(1, IDLE);
        let whole = Next::Run {
            thread: 1,
            priority: IDLE.priority,
            slice_ns: IDLE.slice_ns,
        };
        assert_eq!(s.next(3_000_000, table), whole, "{how:?}");
    }
}

#[test]
fn nothing_to_do_is_waiting_for_the_next_deadline() {
    let mut s = Scheduler::<N>::new();
    assert_eq!(s.next(0, table), Next::Wait(None));
    s.stopped(1, IDLE, Stop::Blocked(Some(77)));
    assert_eq!(s.next(0, table), Next::Wait(Some(77)));
    // It is woken by a message first: the deadline is void once it has run.
    s.ready(1, IDLE);
    assert_eq!(runs(&mut s, 0), Some(1));
    s.stopped(1, IDLE, Stop::Blocked(None));
    assert_eq!(s.next(0, table), Next::Wait(None));
}

#[test]
fn late_and_double_news_do_no_harm() {
    let mut s = Scheduler::<N>::new();
    s.ready(1, IDLE);
    s.ready(1, IDLE);
    assert_eq!(runs(&mut s, 0), Some(1));
    assert_eq!(runs(&mut s, 0), None, "queued once");
    // Old news: it waits, and its deadline must not be lost.
    s.ready(1, IDLE);
    s.stopped(1, IDLE, Stop::Blocked(Some(5)));
    assert_eq!(runs(&mut s, 0), Some(1));
    s.stopped(1, IDLE, Stop::Refused(None));
    assert_eq!(s.next(0, table), Next::Wait(Some(5)));
    s.ready(1, IDLE);
    assert_eq!(runs(&mut s, 0), Some(1));
    s.stopped(1, IDLE, Stop::Refused(None));
    assert_eq!(s.expired(10), Some(1));
    s.ready(1, IDLE);
    assert_eq!(runs(&mut s, 0), Some(1));
    s.stopped(1, IDLE, Stop::Gone);
    assert_eq!(s.next(0, table), Next::Wait(None));
    // A thread that is not in the table, or cannot be.
    s.ready(3, IDLE);
    s.ready(N, IDLE);
    assert_eq!(s.next(0, table), Next::Wait(None));
}

/// What the kernel knows of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// With a deadline, or for ever.
    Waits(Option<u64>),
}

/// Threads of one CPU, the list on which its scheduler hears of them, and those who are just putting some
/// there: with news that may be old by then.
struct World {
    now: u64,
    states: [State; N],
    /// Why it is on the list; `None`: it is not.
    events: [Option<State>; N],
    list: Vec<usize>,
    hands: Vec<(usize, State)>,
    scheduler: Scheduler<N>,
}

impl World {
    fn new() -> World {
        World {
            now: 0,
            states: [State::Waits(None); N],
            events: [None; N],
            list: Vec::new(),
            hands: Vec::new(),
            scheduler: Scheduler::new(),
        }
    }

    /// A thread on the list gets the reason that comes last, whichever is newer.
    fn push(&mut self, thread: usize, why: State) {
        if self.events[thread].replace(why).is_none() {
            self.list.push(thread);
        }
    }

    fn waits_until(&self, thread: usize) -> Option<u64> {
        match self.states[thread] {
            State::Waits(until) => until,
            State::Ready => None,
        }
    }

    /// One round of the scheduler. The thread that runs waits again afterwards.
    fn round(&mut self, until: Option<u64>) -> Next {
        let entry = |_| Some(IDLE);
        for thread in core::mem::take(&mut self.list) {
            let news = match self.events[thread].take() {
                Some(State::Ready) => News::Ready,
                Some(State::Waits(_)) => News::Sleeps(self.waits_until(thread)),
                None => unreachable!(),
            };
            self.scheduler.told(thread, IDLE, news);
        }
        while let Some(thread) = self.scheduler.expired(self.now) {
            // `Resume`.
            if self.states[thread] != State::Ready {
                self.states[thread] = State::Ready;
                self.push(thread, State::Ready);
            }
        }
        let next = self.scheduler.next(self.now, entry);
        if let Next::Run { thread, .. } = next {
            let how = match self.states[thread] {
                State::Ready => {
                    self.states[thread] = State::Waits(until);
                    Stop::Blocked(until)
                }
                State::Waits(until) => Stop::Refused(until),
            };
            self.scheduler.stopped(thread, IDLE, how);
        }
        next
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A thread is woken, and the scheduler is about to hear of it.
    Wake(usize),
    /// A message has a thread run at once, without the scheduler; it waits again, and says so.
    Switch(usize, Option<u64>),
    /// A CPU takes a thread off the list, to put it there, or where it is now, again.
    Take(usize),
    /// One of those who are about to say something does.
    Say(usize),
    Round(Option<u64>),
    Time(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let until = prop::option::of(1u64..40);
    prop_oneof![
        3 => (0..4usize).prop_map(Act::Wake),
        3 => (0..4usize, until.clone()).prop_map(|(t, d)| Act::Switch(t, d)),
        2 => (0..4usize).prop_map(Act::Take),
        3 => (0..4usize).prop_map(Act::Say),
        3 => until.prop_map(Act::Round),
        1 => (0..30u64).prop_map(Act::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// However late the news come: who is ready runs, and who sleeps is woken.
    #[test]
    fn nobody_is_forgotten_because_of_old_news(acts in prop::collection::vec(act(), 0..60)) {
        let mut w = World::new();
        let after = |w: &World, d: Option<u64>| d.map(|d| w.now + d);
        for a in acts {
            match a {
                Act::Wake(t) if w.states[t] != State::Ready => {
                    w.states[t] = State::Ready;
                    w.hands.push((t, State::Ready));
                }
                Act::Switch(t, d) if w.states[t] != State::Ready => {
                    let waits = State::Waits(after(&w, d));
                    w.states[t] = waits;
                    if d.is_some() {
                        w.push(t, waits);
                    }
                }
                Act::Take(i) if i < w.list.len() => {
                    let t = w.list.remove(i);
                    let why = w.events[t].take().unwrap();
                    w.hands.push((t, why));
                }
                Act::Say(i) if i < w.hands.len() => {
                    let (t, why) = w.hands.remove(i);
                    w.push(t, why);
                }
                Act::Round(d) => drop(w.round(after(&w, d))),
                Act::Time(t) => w.now += t,
                _ => {}
            }
        }
        for (t, why) in core::mem::take(&mut w.hands) {
            w.push(t, why);
        }
        for _ in 0..1000 {
            match w.round(None) {
                Next::Wait(None) if w.list.is_empty() => break,
                Next::Wait(Some(at)) => w.now = w.now.max(at),
                _ => {}
            }
        }
        for t in 0..N {
            prop_assert_eq!(w.states[t], State::Waits(None), "thread {}", t);
        }
    }
}
