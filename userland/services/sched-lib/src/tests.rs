//! Against naive models, and the decisions that matter.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const N: usize = 12;

fn priority(n: u8) -> Priority {
    Priority::new(n).unwrap()
}

/// What ready queues are supposed to be.
#[derive(Default)]
struct Naive {
    /// Thread and priority, by order of arrival within a priority.
    list: Vec<(usize, Priority)>,
}

impl Naive {
    fn has(&self, thread: usize) -> bool {
        self.list.iter().any(|q| q.0 == thread)
    }

    fn push(&mut self, thread: usize, p: Priority, front: bool) -> bool {
        if thread >= N || self.has(thread) {
            return false;
        }
        if front {
            self.list.insert(0, (thread, p));
        } else {
            self.list.push((thread, p));
        }
        true
    }

    fn first(&self) -> Option<(usize, Priority)> {
        let most = self.list.iter().map(|q| q.1).max()?;
        self.list.iter().find(|q| q.1 == most).copied()
    }

    fn remove(&mut self, thread: usize) -> bool {
        let had = self.has(thread);
        self.list.retain(|q| q.0 != thread);
        had
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize, u8, bool),
    Remove(usize),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    // Two threads more than there can be; few priorities, so that queues get long.
    let thread = 0..N + 2;
    let level = prop_oneof![Just(0u8), Just(7), Just(62), Just(63)];
    prop_oneof![
        3 => (thread.clone(), level, any::<bool>()).prop_map(|(t, p, f)| Step::Push(t, p, f)),
        1 => thread.prop_map(Step::Remove),
        2 => Just(Step::Pop),
    ]
}

proptest! {
    #[test]
    fn ready_queues_are_the_naive_model(steps in prop::collection::vec(step(), 0..200)) {
        let mut real = ReadyQueues::<N>::new();
        let mut naive = Naive::default();
        for s in steps {
            match s {
                Step::Push(t, p, true) => prop_assert_eq!(
                    real.push_front(t, priority(p)),
                    naive.push(t, priority(p), true)
                ),
                Step::Push(t, p, false) => prop_assert_eq!(
                    real.push_back(t, priority(p)),
                    naive.push(t, priority(p), false)
                ),
                Step::Remove(t) => prop_assert_eq!(real.remove(t), naive.remove(t)),
                Step::Pop => {
                    let expected = naive.first();
                    if let Some((t, _)) = expected {
                        naive.remove(t);
                    }
                    prop_assert_eq!(real.pop(), expected);
                }
            }
            prop_assert_eq!(real.first(), naive.first());
            for t in 0..N + 2 {
                prop_assert_eq!(real.contains(t), naive.has(t));
            }
        }
    }

    #[test]
    fn timers_are_the_naive_model(
        steps in prop::collection::vec((0..N + 2, 0u64..50, 0u8..3), 0..200)
    ) {
        let mut real = Timers::<N>::new();
        let mut naive: Vec<(u64, usize)> = Vec::new();
        for (thread, time, what) in steps {
            let had = naive.iter().any(|t| t.1 == thread);
            match what {
                0 => {
                    naive.retain(|t| t.1 != thread);
                    if thread < N {
                        naive.push((time, thread));
                    }
                    prop_assert_eq!(real.set(thread, time), thread < N);
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
                        prop_assert!(naive.contains(&(due, thread)));
                        naive.retain(|t| t.1 != thread);
                    }
                }
            }
            prop_assert_eq!(real.next(), naive.iter().map(|t| t.0).min());
        }
    }
}

const URGENT: Entry = Entry {
    priority: Priority::HIGHEST,
    slice_ns: 1_000_000,
};
const IDLE: Entry = Entry {
    priority: Priority::LOWEST,
    slice_ns: 5_000_000,
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
