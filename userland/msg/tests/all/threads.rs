//! Stations of threads of this process: many messages, with waiting in each mode.

use crate::common;

use std::sync::Arc;
use std::thread;

use common::{Node, SplitMix64, Threads, contents};
use dyad_msg::words::{Line, lines};
use dyad_msg::{Config, Counters, Delay, Error, Kind, Level, Mode, Station};

type S = Station<Arc<[Line]>, Node>;

/// Messages of a stream; a million in the tier `long`.
fn count() -> u64 {
    dyad_tier::size(20_000, 60_000, 1_000_000)
}

fn layer(config: Config) -> (Threads, Arc<[Line]>) {
    let w = lines(config.memory_lines());
    config.format(&w).expect("a valid layout");
    (Threads::new(config.stations), w)
}

/// Sends messages of random sizes and levels; the receiver checks order and contents of each level.
fn stream(mode: Mode, config: Config, count: u64, largest: u64) -> [Counters; 2] {
    let (threads, w) = layer(config);
    let sender = {
        let (threads, w) = (threads.clone(), w.clone());
        thread::spawn(move || {
            let mut s: S = Station::open(w, threads.node(0), 0, mode).unwrap();
            let mut random = SplitMix64(1);
            let mut numbers = [0; 3];
            let mut bytes = vec![];
            for _ in 0..count {
                let level = random.below(3) as usize;
                let len = random.below(largest + 1) as usize >> random.below(6);
                let tag = numbers[level];
                numbers[level] += 1;
                contents(tag * 3 + level as u64, len, &mut bytes);
                s.send(1, Level::ALL[level], tag, &bytes, None).unwrap();
            }
            s.counters()
        })
    };
    let mut s: S = Station::open(w, threads.node(1), 1, mode).unwrap();
    let mut next = [0; 3];
    let (mut got, mut expected) = (vec![], vec![]);
    for _ in 0..count {
        let e = s.recv(&mut got, None).unwrap();
        let level = e.level as usize - 1;
        assert_eq!(e.tag, next[level], "order of {:?}", e.level);
        next[level] += 1;
        contents(e.tag * 3 + level as u64, got.len(), &mut expected);
        assert!(got == expected, "contents of {e:?}");
    }
    assert_eq!(s.try_recv(&mut got), Ok(None));
    let c = [sender.join().unwrap(), s.counters()];
    assert_eq!(
        (c[0].sent, c[0].sent_bytes),
        (c[1].received, c[1].received_bytes)
    );
    c
}

#[test]
fn a_stream_by_doorbell() {
    let [sent, received] = stream(Mode::Doorbell, Config::new(2), count(), 4096);
    eprintln!("{sent:?}\n{received:?}");
    // Rings hold many: there are fewer doorbells than messages, and none for a receiver that has not
    // said that it sleeps.
    assert!(sent.doorbells < count());
    assert!(sent.doorbells <= received.sleeps + received.called_off);
}

#[test]
fn a_stream_by_polling_rings_for_nobody() {
    let [sent, received] = stream(Mode::Polling, Config::new(2), count(), 4096);
    assert_eq!((sent.doorbells, received.doorbells), (0, 0));
    assert_eq!((sent.sleeps, received.sleeps), (0, 0));
}

#[test]
fn a_stream_by_both_with_parts() {
    stream(Mode::Adaptive(100), Config::new(2), count() / 20, 65_536);
}

#[test]
fn a_stream_with_delays() {
    let config = Config {
        delay: Delay::TCP,
        ..Config::new(2)
    };
    stream(Mode::Adaptive(100), config, count() / 20, 4096);
}

/// A message that is here, and to be seen soon, is not slept for, unless that is what was asked for.
#[test]
fn who_polls_does_not_sleep_for_a_delay() {
    for (mode, sleeps) in [
        (Mode::Polling, false),
        (Mode::Adaptive(0), false),
        (Mode::Doorbell, true),
    ] {
        let (nodes, w) = layer(Config {
            delay: Delay::per_round_trip(300_000),
            ..Config::new(2)
        });
        let mut s: S = Station::open(w, nodes.node(0), 0, mode).unwrap();
        let mut got = vec![];
        let start = dyad_msg::Host::now(s.host());
        s.try_send(0, Level::Normal, 0, b"to itself").unwrap();
        s.recv(&mut got, None).unwrap();
        let took = dyad_msg::Host::now(s.host()) - start;
        assert!(took >= 150_000, "{mode:?}: {took} ns");
        // A thread that was not run for a while finds the time come, and does not wait at all.
        if !sleeps || took < 200_000 {
            assert_eq!(s.counters().sleeps > 0, sleeps, "{mode:?}: {took} ns");
        }
    }
}

/// Every station sends to every other one, in small rings that are often full.
#[test]
fn all_to_all() {
    const STATIONS: usize = 4;
    let config = Config {
        lines: Config::MIN_LINES,
        ..Config::new(STATIONS)
    };
    let (nodes, w) = layer(config);
    let each = count() / 10;
    let threads: Vec<_> = (0..STATIONS)
        .map(|own| {
            let (nodes, w) = (nodes.clone(), w.clone());
            thread::spawn(move || {
                let mut s: S = Station::open(w, nodes.node(own), own, Mode::Adaptive(50)).unwrap();
                let mut random = SplitMix64(own as u64);
                let (mut sent, mut next) = ([0; STATIONS], [0; STATIONS]);
                let (mut got, mut bytes) = (vec![], vec![]);
                let others = STATIONS as u64 - 1;
                while sent.iter().sum::<u64>() + next.iter().sum::<u64>() < 2 * others * each {
                    let to = random.below(STATIONS as u64) as usize;
                    if to != own && sent[to] < each {
                        let len = random.below(4097) as usize >> random.below(10);
                        contents(sent[to] + to as u64, len, &mut bytes);
                        // Nobody waits for room here: each takes what others have sent meanwhile.
                        match s.try_send(to, Level::Normal, sent[to], &bytes) {
                            Ok(()) => sent[to] += 1,
                            Err(Error::Full) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                    while let Some(e) = s.try_recv(&mut got).unwrap() {
                        assert_eq!(e.tag, next[e.from]);
                        next[e.from] += 1;
                        contents(e.tag + own as u64, got.len(), &mut bytes);
                        assert!(got == bytes);
                    }
                    if sent.iter().sum::<u64>() == others * each
                        && next.iter().sum::<u64>() < others * each
                    {
                        let e = s.recv(&mut got, None).unwrap();
                        assert_eq!(e.tag, next[e.from]);
                        next[e.from] += 1;
                    }
                }
                s.counters()
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
}

#[test]
fn calls_from_two_sides_at_once() {
    const STATIONS: usize = 3;
    let (nodes, w) = layer(Config::new(STATIONS));
    let calls = count() / 10;
    let server = {
        let (nodes, w) = (nodes.clone(), w.clone());
        thread::spawn(move || {
            let mut s: S = Station::open(w, nodes.node(0), 0, Mode::Doorbell).unwrap();
            let mut got = vec![];
            for _ in 0..2 * calls {
                let e = s.recv(&mut got, None).unwrap();
                assert_eq!(e.kind, Kind::Call);
                got.reverse();
                s.reply(&e, e.tag + 1, &got, None).unwrap();
            }
            s.counters()
        })
    };
    let clients: Vec<_> = (1..STATIONS)
        .map(|own| {
            let (nodes, w) = (nodes.clone(), w.clone());
            thread::spawn(move || {
                let mut s: S = Station::open(w, nodes.node(own), own, Mode::Doorbell).unwrap();
                let mut random = SplitMix64(own as u64);
                let (mut bytes, mut reply) = (vec![], vec![]);
                for n in 0..calls {
                    contents(n, random.below(2000) as usize, &mut bytes);
                    let e = s
                        .call(0, Level::Normal, n, &bytes, &mut reply, None)
                        .unwrap();
                    bytes.reverse();
                    assert_eq!(e.tag, n + 1);
                    assert!(reply == bytes);
                }
            })
        })
        .collect();
    for c in clients {
        c.join().unwrap();
    }
    let c = server.join().unwrap();
    assert_eq!((c.received, c.sent), (2 * calls, 2 * calls));
}

/// The server waits for room for its answers while the client waits for room for its questions: the
/// client takes answers meanwhile, so neither waits for ever.
#[test]
fn who_waits_for_room_takes_answers() {
    const CALLS: u64 = 300;
    let (nodes, w) = layer(Config {
        lines: Config::MIN_LINES,
        ..Config::new(2)
    });
    let server = {
        let (nodes, w) = (nodes.clone(), w.clone());
        thread::spawn(move || {
            let mut s: S = Station::open(w, nodes.node(0), 0, Mode::Doorbell).unwrap();
            let (mut got, mut messages) = (vec![], 0);
            while messages < CALLS {
                let e = s.recv(&mut got, None).unwrap();
                match e.kind {
                    Kind::Call => s.reply(&e, 0, &[7; 4096], None).unwrap(),
                    _ => messages += 1,
                }
            }
        })
    };
    let mut s: S = Station::open(w, nodes.node(1), 1, Mode::Doorbell).unwrap();
    let mut calls = vec![];
    for n in 0..CALLS {
        calls.extend(s.begin_call(0, Level::Urgent, n, &[]));
        let patience = Some(dyad_msg::Host::now(s.host()) + 20_000_000_000);
        s.send(0, Level::Normal, n, &[1; 1000], patience).unwrap();
    }
    let mut reply = vec![];
    for id in calls {
        while s.take_reply(id, &mut reply).unwrap().is_none() {
            thread::yield_now();
        }
        assert_eq!(reply, [7; 4096]);
    }
    server.join().unwrap();
}

#[test]
fn members_come_and_go_while_a_group_is_written() {
    const MEMBERS: usize = 3;
    let (nodes, w) = layer(Config {
        group_lines: Config::MIN_LINES,
        ..Config::new(MEMBERS + 1)
    });
    let messages = count() / 2;
    let mut writer: S = Station::open(w.clone(), nodes.node(0), 0, Mode::Adaptive(50)).unwrap();
    writer.open_group(0).unwrap();
    // The first one stays; the others join and leave.
    let members: Vec<_> = (1..=MEMBERS)
        .map(|own| {
            let (nodes, w) = (nodes.clone(), w.clone());
            thread::spawn(move || {
                let mut s: S = Station::open(w, nodes.node(own), own, Mode::Adaptive(50)).unwrap();
                s.join(0).unwrap();
                s.send(0, Level::Normal, 0, &[], None).unwrap();
                let mut random = SplitMix64(own as u64);
                let mut last = None;
                let mut received = 0u64;
                let (mut got, mut bytes) = (vec![], vec![]);
                loop {
                    let e = s.recv(&mut got, None).unwrap();
                    let expected = last.map_or(e.tag, |last: u64| last + 1);
                    assert_eq!(e.tag, expected, "member {own}");
                    contents(e.tag, got.len(), &mut bytes);
                    assert!(got == bytes, "contents");
                    received += 1;
                    last = Some(e.tag);
                    if e.tag == messages - 1 {
                        return received;
                    }
                    // Nobody leaves near the end: there must be one more to receive.
                    if own > 1 && random.below(50) == 0 && e.tag < messages / 2 {
                        s.leave(0).unwrap();
                        s.join(0).unwrap();
                        last = None;
                    }
                }
            })
        })
        .collect();
    let (mut bytes, mut random) = (vec![], SplitMix64(0));
    for _ in 0..MEMBERS {
        writer.recv(&mut bytes, None).unwrap();
    }
    for tag in 0..messages {
        contents(tag, random.below(300) as usize, &mut bytes);
        let members = writer.multicast(0, tag, &bytes, None).unwrap();
        assert!((1..=MEMBERS as u32).contains(&members));
    }
    let received: Vec<_> = members.into_iter().map(|m| m.join().unwrap()).collect();
    assert_eq!(received[0], messages, "who stays gets all");
    assert_eq!(writer.counters().multicasts, messages);
}
