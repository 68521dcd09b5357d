//! Random sequences of operations against a simple model: queues without bounds or memory.

use crate::common;

use std::collections::VecDeque;
use std::sync::Arc;

use common::{Node, Threads, contents};
use dyad_msg::words::{Line, lines};
use dyad_msg::{Config, Delay, Error, Kind, Level, Mode, Station};
use proptest::prelude::*;

const STATIONS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Send(usize, usize, usize, usize),
    Call(usize, usize, usize),
    Receive(usize),
    Multicast(usize, usize),
    Join(usize, usize),
    Leave(usize, usize),
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let s = 0..STATIONS;
    let len = prop_oneof![0..100usize, 0..5000usize];
    prop_oneof![
        6 => (s.clone(), s.clone(), 0..3usize, len.clone())
            .prop_map(|(a, b, l, n)| Step::Send(a, b, l, n)),
        2 => (s.clone(), s.clone(), len.clone()).prop_map(|(a, b, n)| Step::Call(a, b, n)),
        9 => s.clone().prop_map(Step::Receive),
        3 => (s.clone(), len).prop_map(|(a, n)| Step::Multicast(a, n)),
        1 => (s.clone(), s.clone()).prop_map(|(a, g)| Step::Join(a, g)),
        1 => (s.clone(), s).prop_map(|(a, g)| Step::Leave(a, g)),
        3 => (0..60_000u64).prop_map(Step::Time),
    ]
}

/// One message: its tag, from which its contents follow, its length, when it is seen.
type Sent = (u64, usize, u64);

fn run(steps: Vec<Step>, delay: Delay) -> Result<(), TestCaseError> {
    let config = Config {
        lines: Config::MIN_LINES,
        group_lines: Config::MIN_LINES,
        groups: STATIONS,
        delay,
        ..Config::new(STATIONS)
    };
    let w = lines(config.memory_lines());
    config.format(&w).unwrap();
    let threads = Threads::new(STATIONS);
    let mut now = 1;
    threads.set_time(now);
    let mut s: Vec<Station<Arc<[Line]>, Node>> = (0..STATIONS)
        .map(|n| Station::open(w.clone(), threads.node(n), n, Mode::Polling).unwrap())
        .collect();
    for (n, s) in s.iter_mut().enumerate() {
        s.open_group(n).unwrap();
    }
    // By sender, receiver and level; by group and member, if it is one.
    let mut queues = vec![VecDeque::<Sent>::new(); STATIONS * STATIONS * 3];
    let mut members = vec![None::<VecDeque<Sent>>; STATIONS * STATIONS];
    let mut answers = vec![vec![]; STATIONS];
    let mut tag = 0;
    let (mut bytes, mut got) = (vec![], vec![]);
    for step in steps {
        tag += 1;
        match step {
            Step::Send(from, to, level, len) => {
                contents(tag, len, &mut bytes);
                match s[from].try_send(to, Level::ALL[level], tag, &bytes) {
                    Ok(()) => queues[(from * STATIONS + to) * 3 + level].push_back((
                        tag,
                        len,
                        now + delay.of(len),
                    )),
                    Err(e) => prop_assert_eq!(e, Error::Full),
                }
            }
            Step::Call(from, to, len) => {
                contents(tag, len, &mut bytes);
                match s[from].begin_call(to, Level::Normal, tag, &bytes) {
                    Ok(id) => {
                        answers[from].push((id, tag, len));
                        let sent = (tag, len, now + delay.of(len));
                        queues[(from * STATIONS + to) * 3 + 1].push_back(sent);
                    }
                    Err(e) => prop_assert_eq!(e, Error::Full),
                }
            }
            Step::Multicast(from, len) => {
                contents(tag, len, &mut bytes);
                let of_group = from * STATIONS..(from + 1) * STATIONS;
                match s[from].try_multicast(from, tag, &bytes) {
                    Ok(count) => {
                        let mut there = 0;
                        for m in members[of_group].iter_mut().flatten() {
                            m.push_back((tag, len, now + delay.of(len)));
                            there += 1;
                        }
                        prop_assert_eq!(count, there);
                    }
                    Err(e) => {
                        prop_assert_eq!(e, Error::Full);
                        prop_assert!(members[of_group].iter().flatten().any(|m| !m.is_empty()));
                    }
                }
            }
            Step::Join(n, group) => {
                let m = &mut members[group * STATIONS + n];
                let joined = s[n].join(group);
                prop_assert_eq!(joined.is_ok(), m.is_none());
                m.get_or_insert_default();
            }
            Step::Leave(n, group) => {
                let m = &mut members[group * STATIONS + n];
                prop_assert_eq!(s[n].leave(group).is_ok(), m.take().is_some());
            }
            Step::Time(ns) => {
                now += ns;
                threads.set_time(now);
            }
            Step::Receive(n) => {
                let visible = |q: &VecDeque<Sent>| q.front().is_some_and(|m| m.2 <= now);
                let Some(e) = s[n].try_recv(&mut got).unwrap() else {
                    for from in 0..STATIONS {
                        for level in 0..3 {
                            prop_assert!(!visible(&queues[(from * STATIONS + n) * 3 + level]));
                        }
                        let m = &members[from * STATIONS + n];
                        prop_assert!(!m.as_ref().is_some_and(visible));
                    }
                    continue;
                };
                let queue = match e.group {
                    Some(group) => members[group * STATIONS + n].as_mut().unwrap(),
                    None => &mut queues[(e.from * STATIONS + n) * 3 + e.level as usize - 1],
                };
                let (tag, len, at) = queue.pop_front().expect("it was sent");
                prop_assert_eq!((e.tag, got.len()), (tag, len));
                prop_assert!(at <= now);
                contents(tag, len, &mut bytes);
                prop_assert!(got == bytes);
                if e.kind == Kind::Call {
                    let answered = s[n].try_reply(&e, tag, &got);
                    if answered.is_err() {
                        prop_assert_eq!(answered, Err(Error::Full));
                        answers[e.from].retain(|a| a.0 != e.id);
                        s[e.from].cancel(e.id);
                    }
                }
            }
        }
    }
    // In the end all calls that were received are answered, and everything comes.
    for round in 0..4 {
        now += 1_000_000 * (round + 1);
        threads.set_time(now);
        for n in 0..STATIONS {
            while let Some(e) = s[n].try_recv(&mut got).unwrap() {
                if e.kind == Kind::Call && s[n].try_reply(&e, e.tag, &got).is_err() {
                    answers[e.from].retain(|a| a.0 != e.id);
                    s[e.from].cancel(e.id);
                }
            }
        }
    }
    now += 1_000_000_000;
    threads.set_time(now);
    for (s, answers) in s.iter_mut().zip(answers) {
        for (id, tag, len) in answers {
            let e = s.take_reply(id, &mut got).unwrap().expect("an answer");
            contents(tag, len, &mut bytes);
            prop_assert!(e.tag == tag && got == bytes);
        }
        prop_assert_eq!(s.counters().late_replies, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn queues_behave_like_queues(steps in prop::collection::vec(step(), 1..300)) {
        run(steps, Delay::NONE)?;
    }

    #[test]
    fn so_do_slow_ones(steps in prop::collection::vec(step(), 1..300)) {
        run(steps, Delay { message_ns: 20_000, kib_ns: 0 })?;
    }
}
