//! What a station does, with time that stands still.

use crate::common;

use std::sync::Arc;

use common::{Node, Threads, contents};
use dyad_msg::words::{Line, Words, lines};
use dyad_msg::{Config, Delay, Error, Kind, Level, MAX_MESSAGE_BYTES, Mode, STARVATION, Station};
use std::sync::atomic::Ordering::Relaxed;

type S = Station<Arc<[Line]>, Node>;

fn system(config: Config) -> (Threads, Arc<[Line]>, Vec<S>) {
    let w = lines(config.memory_lines());
    config.format(&w).expect("a valid layout");
    let threads = Threads::new(config.stations);
    threads.set_time(1_000);
    let stations = (0..config.stations)
        .map(|n| open(&w, &threads, n))
        .collect();
    (threads, w, stations)
}

fn open(w: &Arc<[Line]>, threads: &Threads, n: usize) -> S {
    Station::open(w.clone(), threads.node(n), n, Mode::Doorbell).expect("a station")
}

fn small() -> Config {
    Config {
        lines: Config::MIN_LINES,
        group_lines: Config::MIN_LINES,
        ..Config::new(3)
    }
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let (_, _, mut s) = system(Config {
        lines: 2048,
        ..Config::new(2)
    });
    let mut got = vec![];
    let mut sent = vec![];
    for len in (0..200).chain([1024, 4095, 4096, 4097, 8192, 50_000, MAX_MESSAGE_BYTES]) {
        contents(len as u64, len, &mut sent);
        s[0].try_send(1, Level::Normal, len as u64, &sent)
            .expect("there is room");
        let e = s[1].try_recv(&mut got).unwrap().expect("it has come");
        assert_eq!((e.from, e.tag, e.kind), (0, len as u64, Kind::Message));
        assert_eq!(got, sent);
    }
    assert_eq!(s[1].try_recv(&mut got), Ok(None));
    let too_large = vec![0; MAX_MESSAGE_BYTES + 1];
    let refused = s[0].try_send(1, Level::Normal, 0, &too_large);
    assert_eq!(refused, Err(Error::TooLarge));
    let (c0, c1) = (s[0].counters(), s[1].counters());
    assert_eq!((c0.sent, c0.sent_bytes), (c1.received, c1.received_bytes));
    assert_eq!(c0.sent, 207);
}

#[test]
fn a_full_ring_loses_nothing_and_says_so() {
    let (_, _, mut s) = system(small());
    let mut n = 0;
    let mut bytes = vec![];
    while s[0].try_send(1, Level::Bulk, n, &[7; 100]) == Ok(()) {
        n += 1;
    }
    assert_eq!(n, Config::MIN_LINES / 3);
    assert_eq!(
        s[0].try_send(1, Level::Bulk, n, &[7; 100]),
        Err(Error::Full)
    );
    // Other levels and stations have rings of their own.
    assert_eq!(s[0].try_send(1, Level::Urgent, n, &[]), Ok(()));
    assert_eq!(s[0].try_send(2, Level::Bulk, n, &[]), Ok(()));
    assert_eq!(s[1].try_recv(&mut bytes).unwrap().unwrap().tag, n);
    for tag in 0..n {
        let e = s[1].try_recv(&mut bytes).unwrap().expect("one of them");
        assert_eq!((e.tag, e.level), (tag, Level::Bulk));
        assert_eq!(bytes, [7; 100]);
    }
    assert_eq!(s[1].try_recv(&mut bytes), Ok(None));
}

#[test]
fn urgent_messages_overtake_but_nobody_starves() {
    let (_, _, mut s) = system(Config {
        lines: 1024,
        ..Config::new(2)
    });
    for tag in 0..10 {
        s[0].try_send(1, Level::Bulk, tag, &[]).unwrap();
        s[0].try_send(1, Level::Normal, tag, &[]).unwrap();
    }
    for tag in 0..500 {
        s[0].try_send(1, Level::Urgent, tag, &[]).unwrap();
    }
    let mut got = vec![];
    let mut order = vec![];
    while let Some(e) = s[1].try_recv(&mut got).unwrap() {
        order.push((e.level, e.tag));
    }
    assert_eq!(order.len(), 520);
    for level in Level::ALL {
        let tags: Vec<_> = order.iter().filter(|o| o.0 == level).map(|o| o.1).collect();
        assert!(tags.is_sorted(), "order within a level");
        let mut passed = 0;
        for o in &order {
            passed = if o.0 < level { passed + 1 } else { 0 };
            let others = Level::ALL.len() as u32 - 1;
            assert!(passed <= STARVATION + others, "{level:?} starves");
            if order.iter().rev().find(|x| x.0 == level) == Some(o) {
                break;
            }
        }
    }
    assert_eq!(
        order[..STARVATION as usize],
        *(0..STARVATION as u64)
            .map(|n| (Level::Urgent, n))
            .collect::<Vec<_>>()
    );
}

#[test]
fn senders_take_turns() {
    let (_, _, mut s) = system(small());
    let [a, b, c] = &mut s[..] else { panic!() };
    for tag in 0..10 {
        a.try_send(2, Level::Normal, tag, &[]).unwrap();
        b.try_send(2, Level::Normal, tag, &[]).unwrap();
    }
    let mut got = vec![];
    let from: Vec<_> = (0..20)
        .map(|_| c.try_recv(&mut got).unwrap().unwrap().from)
        .collect();
    assert!(
        from.chunks(2)
            .all(|pair| pair.contains(&0) && pair.contains(&1))
    );
}

#[test]
fn one_doorbell_when_idle_and_none_while_one_is_pending() {
    let (threads, _, mut s) = system(small());
    let mut got = vec![];
    for round in 1..=5 {
        assert_eq!(s[1].try_recv(&mut got), Ok(None));
        assert_eq!(s[0].is_asleep(1), Ok(false));
        assert!(s[1].prepare());
        assert_eq!(s[0].is_asleep(1), Ok(true));
        for tag in 0..10 {
            s[0].try_send(1, Level::Normal, tag, &[]).unwrap();
        }
        assert_eq!(threads.rung(), round, "ten messages, one doorbell");
        assert_eq!(s[0].is_asleep(1), Ok(false), "it has been told");
        s[1].attentive();
        for _ in 0..10 {
            // A receiver that drains is not rung for.
            assert!(s[1].try_recv(&mut got).unwrap().is_some());
            s[0].try_send(1, Level::Bulk, 0, &[]).unwrap();
        }
        while s[1].try_recv(&mut got).unwrap().is_some() {}
        assert_eq!(threads.rung(), round);
    }
    s[0].try_send(1, Level::Normal, 0, &[]).unwrap();
    let slept = s[1].counters().sleeps;
    assert!(!s[1].prepare(), "something has come in");
    assert_eq!(s[1].counters().sleeps, slept, "it has not slept");
    assert_eq!(s[1].counters().called_off, 1);
    let c = s[0].counters();
    assert_eq!((c.doorbells, c.sent), (5, 5 * 20 + 1));
}

#[test]
fn calls_are_answered_by_number() {
    let (_, _, mut s) = system(small());
    let (mut got, mut reply) = (vec![], vec![]);
    let first = s[0].begin_call(1, Level::Normal, 1, b"one").unwrap();
    let second = s[0].begin_call(1, Level::Urgent, 2, b"two").unwrap();
    let third = s[0].begin_call(1, Level::Bulk, 3, b"three").unwrap();
    assert_eq!(s[0].take_reply(first, &mut reply), Ok(None));
    while let Some(e) = s[1].try_recv(&mut got).unwrap() {
        assert_eq!(e.kind, Kind::Call);
        got.reverse();
        s[1].try_reply(&e, e.tag * 10, &got).unwrap();
    }
    s[0].cancel(third);
    let e = s[0]
        .take_reply(first, &mut reply)
        .unwrap()
        .expect("an answer");
    assert_eq!((e.tag, &reply[..]), (10, &b"eno"[..]));
    let e = s[0]
        .take_reply(second, &mut reply)
        .unwrap()
        .expect("an answer");
    assert_eq!((e.tag, &reply[..]), (20, &b"owt"[..]));
    assert_eq!(s[0].take_reply(third, &mut reply), Err(Error::NotFound));
    assert_eq!(s[0].take_reply(first, &mut reply), Err(Error::NotFound));
    assert_eq!(s[0].counters().late_replies, 1);
    // What is no call has no answer; nor do answers of others count.
    s[0].try_send(1, Level::Normal, 0, &[]).unwrap();
    let e = s[1].try_recv(&mut got).unwrap().unwrap();
    assert_eq!(s[1].try_reply(&e, 0, &[]), Err(Error::Denied));
    let id = s[0].begin_call(1, Level::Normal, 0, &[]).unwrap();
    let mut call = s[1].try_recv(&mut got).unwrap().unwrap();
    call.from = 0;
    s[2].try_reply(&call, 66, &[]).unwrap();
    assert_eq!(s[0].take_reply(id, &mut reply), Ok(None));
    assert_eq!(s[0].counters().late_replies, 2);
}

#[test]
fn waits_end() {
    let (threads, _, mut s) = system(small());
    let mut got = vec![];
    assert_eq!(s[0].recv(&mut got, Some(1_000)), Err(Error::TimedOut));
    let called = s[0].call(1, Level::Normal, 0, &[], &mut got, Some(1_000));
    assert_eq!(called, Err(Error::TimedOut));
    while s[0].try_send(1, Level::Normal, 0, &[0; 4096]) == Ok(()) {}
    let sent = s[0].send(1, Level::Normal, 0, &[0; 4096], Some(1_000));
    assert_eq!(sent, Err(Error::TimedOut));
    threads.kill(1);
    let dead = Error::NodeDead { station: 1 };
    assert_eq!(s[0].send(1, Level::Normal, 0, &[0; 4096], None), Err(dead));
    let called = s[0].call(1, Level::Urgent, 0, &[], &mut got, None);
    assert_eq!(called, Err(dead));
    // Who receives is told once, too.
    assert_eq!(s[2].recv(&mut got, None), Err(dead));
    assert_eq!(s[2].recv(&mut got, Some(1_000)), Err(Error::TimedOut));
}

/// Each call that names a dead station fails, although none of them would have to wait; and none of them has an effect.
#[test]
fn calls_that_name_the_dead_fail_at_once() {
    let (threads, w, mut s) = system(small());
    let mut got = vec![];
    let id = s[0].begin_call(1, Level::Normal, 0, &[]).unwrap();
    s[1].try_send(0, Level::Normal, 3, b"last words").unwrap();
    let asked = s[1].begin_call(0, Level::Normal, 4, &[]).unwrap();
    s[1].open_group(0).unwrap();
    s[0].open_group(1).unwrap();
    for n in [1, 2] {
        s[n].join(1).unwrap();
    }
    while s[1].try_recv(&mut got).unwrap().is_some() {}
    assert!(s[1].prepare());
    assert_eq!(s[0].is_asleep(1), Ok(true));
    threads.kill(1);
    let used = used_words(&w);
    let dead = Error::NodeDead { station: 1 };
    let a = &mut s[0];
    assert_eq!(a.check_peer(1), Err(dead));
    assert_eq!(a.is_asleep(1), Err(dead));
    assert_eq!(a.try_send(1, Level::Normal, 0, &[]), Err(dead));
    assert_eq!(a.send(1, Level::Urgent, 0, &[], None), Err(dead));
    assert_eq!(a.send(1, Level::Bulk, 0, &[0; 20_000], None), Err(dead));
    assert_eq!(a.want_room(1, Level::Normal, 4096), Err(dead));
    assert_eq!(a.begin_call(1, Level::Normal, 0, &[]), Err(dead));
    let called = a.call(1, Level::Normal, 0, &[], &mut got, None);
    assert_eq!(called, Err(dead));
    assert_eq!(a.join(0), Err(dead), "nobody writes the group any more");
    assert_eq!(used_words(&w), used, "nothing has been written");
    assert_eq!(a.take_reply(id, &mut got), Err(dead));
    // What it had said before is still there, but nobody waits for the answer.
    assert_eq!(a.try_recv(&mut got).unwrap().unwrap().tag, 3);
    let question = a.try_recv(&mut got).unwrap().unwrap();
    assert_eq!((question.tag, question.id), (4, asked));
    assert_eq!(a.try_reply(&question, 0, &[]), Err(dead));
    assert_eq!(a.reply(&question, 0, &[], None), Err(dead));
    // A group has one member less.
    assert_eq!(a.try_multicast(1, 0, &[]), Ok(1));
    assert_eq!(a.counters().put_out, 1);
    assert_eq!(a.counters().full_waits, 0);
}

/// A death is told once to a station that receives, and each time when nobody is left that could send.
#[test]
fn a_receiver_is_told_again_when_nobody_is_left() {
    let (threads, _, mut s) = system(small());
    let mut got = vec![];
    threads.kill(1);
    let recv = |s: &mut [S], got: &mut Vec<u8>| s[0].recv(got, Some(1_001));
    let dead = |station| Err(Error::NodeDead { station });
    assert_eq!(recv(&mut s, &mut got), dead(1));
    s[2].try_send(0, Level::Normal, 5, &[]).unwrap();
    assert_eq!(recv(&mut s, &mut got).map(|e| e.tag), Ok(5));
    threads.kill(2);
    assert_eq!(recv(&mut s, &mut got), dead(2));
    for _ in 0..3 {
        assert_eq!(recv(&mut s, &mut got), dead(2));
    }
    // One that comes back is told of again.
    threads.revive(1);
    s[1].try_send(0, Level::Normal, 6, &[]).unwrap();
    assert_eq!(recv(&mut s, &mut got).map(|e| e.tag), Ok(6));
}

#[test]
fn an_answer_that_came_before_the_death_counts() {
    let (threads, _, mut s) = system(small());
    let mut got = vec![];
    let id = s[0].begin_call(1, Level::Normal, 0, &[]).unwrap();
    let e = s[1].try_recv(&mut got).unwrap().unwrap();
    s[1].try_reply(&e, 5, &[]).unwrap();
    threads.kill(1);
    assert_eq!(s[0].take_reply(id, &mut got).unwrap().unwrap().tag, 5);
}

#[test]
fn stations_close_and_come_back() {
    let (threads, w, mut s) = system(small());
    let mut got = vec![];
    s[0].try_send(1, Level::Normal, 1, &[]).unwrap();
    s.remove(1).close();
    assert_eq!(s[0].try_send(1, Level::Normal, 2, &[]), Err(Error::Closed));
    let mut again = open(&w, &threads, 1);
    assert_eq!(again.try_recv(&mut got), Ok(None), "that was for another");
    s[0].try_send(1, Level::Normal, 3, &[]).unwrap();
    assert_eq!(again.try_recv(&mut got).unwrap().unwrap().tag, 3);
}

#[test]
fn a_station_that_closes_leaves_its_groups() {
    let (_, _, mut s) = system(small());
    s[0].open_group(0).unwrap();
    s[1].join(0).unwrap();
    assert_eq!(s[0].try_multicast(0, 1, &[]), Ok(1));
    s.remove(1).close();
    assert_eq!(s[0].try_multicast(0, 2, &[]), Ok(0));
}

#[test]
fn who_does_not_wait_for_room_any_more_is_not_told() {
    let (_, _, mut s) = system(small());
    let mut got = vec![];
    while s[0].try_send(1, Level::Normal, 0, &[0; 4096]) == Ok(()) {}
    let wait = s[0].send(1, Level::Normal, 0, &[0; 4096], Some(1_000));
    assert_eq!(wait, Err(Error::TimedOut));
    while s[1].try_recv(&mut got).unwrap().is_some() {}
    assert!(!s[0].is_pending());
    // But who does is, when there is room.
    while s[0].try_send(1, Level::Normal, 0, &[0; 4096]) == Ok(()) {}
    s[0].want_room(1, Level::Normal, 4096).unwrap();
    assert!(!s[0].is_pending());
    while s[1].try_recv(&mut got).unwrap().is_some() {}
    assert!(s[0].is_pending());
}

#[test]
fn what_is_sent_before_the_first_opening_waits() {
    let config = small();
    let w = lines(config.memory_lines());
    config.format(&w).unwrap();
    let threads = Threads::new(3);
    let mut a = open(&w, &threads, 0);
    a.try_send(1, Level::Normal, 9, b"early").unwrap();
    let mut b = open(&w, &threads, 1);
    let mut got = vec![];
    assert_eq!(b.try_recv(&mut got).unwrap().unwrap().tag, 9);
}

#[test]
fn delayed_messages_are_not_seen_before_their_time() {
    let (threads, _, mut s) = system(Config {
        delay: Delay::TCP,
        ..Config::new(2)
    });
    let mut got = vec![];
    let id = s[0].begin_call(1, Level::Normal, 1, &[]).unwrap();
    assert_eq!(s[1].try_recv(&mut got), Ok(None));
    assert_eq!(s[1].next_visible(), Some(38_500));
    threads.set_time(38_499);
    assert_eq!(s[1].try_recv(&mut got), Ok(None));
    threads.set_time(38_500);
    let e = s[1].try_recv(&mut got).unwrap().expect("half a round trip");
    s[1].try_reply(&e, 2, &[]).unwrap();
    threads.set_time(75_999);
    assert_eq!(s[0].take_reply(id, &mut got), Ok(None));
    threads.set_time(76_000);
    assert_eq!(s[0].take_reply(id, &mut got).unwrap().unwrap().tag, 2);
}

#[test]
fn a_multicast_is_written_once() {
    let (_, w, mut s) = system(small());
    let mut got = vec![];
    assert_eq!(s[1].join(0), Err(Error::NotFound), "nobody writes it");
    s[0].open_group(0).unwrap();
    assert_eq!(s[1].open_group(0), Err(Error::Denied));
    assert_eq!(s[1].try_multicast(0, 0, &[]), Err(Error::Denied));
    assert_eq!(s[0].try_multicast(0, 1, b"to nobody"), Ok(0));
    s[1].join(0).unwrap();
    s[2].join(0).unwrap();
    assert_eq!(s[1].join(0), Err(Error::Denied));
    let large: Vec<u8> = (0..4000u32).map(|n| n as u8 | 1).collect();
    let before = used_words(&w);
    assert_eq!(s[0].try_multicast(0, 2, &large), Ok(2));
    // The contents, and a handful of words beside them: once, not twice.
    let written = used_words(&w) - before;
    assert!((500..530).contains(&written), "{written} words written");
    for n in [1, 2] {
        let e = s[n].try_recv(&mut got).unwrap().expect("it is for all");
        assert_eq!((e.from, e.group, e.tag), (0, Some(0), 2));
        assert_eq!(got, large);
        assert_eq!(s[n].try_recv(&mut got), Ok(None));
    }
    let c = s[0].counters();
    assert_eq!((c.multicasts, c.multicast_members, c.sent), (2, 2, 0));
}

fn used_words(w: &Arc<[Line]>) -> usize {
    (0..w.count()).filter(|&n| w.load(n, Relaxed) != 0).count()
}

#[test]
fn the_slowest_member_bounds_the_writer_until_it_is_put_out() {
    let (threads, _, mut s) = system(small());
    let mut got = vec![];
    s[0].open_group(1).unwrap();
    s[1].join(1).unwrap();
    s[2].join(1).unwrap();
    let mut n = 0;
    while let Ok(members) = s[0].try_multicast(1, n, &[1; 64]) {
        assert_eq!(members, 2);
        n += 1;
        s[1].try_recv(&mut got).unwrap().expect("the quick one");
    }
    assert_eq!(n, Config::MIN_LINES / 2);
    // It leaves: there is room again.
    s[2].leave(1).unwrap();
    assert_eq!(s[0].try_multicast(1, n, &[1; 64]), Ok(1));
    s[2].join(1).unwrap();
    let fill = |s: &mut [S], got: &mut Vec<u8>| {
        while s[0].try_multicast(1, 0, &[1; 64]).is_ok() {
            while s[1].try_recv(got).unwrap().is_some() {}
        }
    };
    fill(&mut s, &mut got);
    // It dies: it is put out.
    threads.kill(2);
    assert_eq!(s[0].multicast(1, 5, &[1; 64], None), Ok(1));
    assert_eq!(s[0].counters().put_out, 1);
    assert_eq!(s[2].try_recv(&mut got), Err(Error::PutOut { group: 1 }));
    // It comes back, and is slow: it is put out when the time has come.
    threads.revive(2);
    s[2].join(1).unwrap();
    fill(&mut s, &mut got);
    assert_eq!(s[0].multicast(1, 6, &[1; 64], Some(1_000)), Ok(1));
    assert_eq!(s[0].counters().put_out, 2);
}

#[test]
fn parts_of_a_message_that_was_given_up_are_dropped() {
    let (_, _, mut s) = system(small());
    let mut got = vec![];
    // Larger than the ring: it goes in parts, and nobody takes them.
    let large = vec![3; 20_000];
    let sent = s[0].send(1, Level::Normal, 1, &large, Some(1_000));
    assert_eq!(sent, Err(Error::TimedOut));
    assert_eq!(s[1].try_recv(&mut got), Ok(None));
    s[0].try_send(1, Level::Normal, 2, b"whole").unwrap();
    assert_eq!(s[1].try_recv(&mut got).unwrap().unwrap().tag, 2);
    assert_eq!(got, b"whole");
    assert_eq!(s[1].counters().cut_short, 1);
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let w = lines(Config::new(2).memory_lines());
    let refused = |c: Config| assert_eq!(c.format(&w), Err(Error::BadLayout));
    refused(Config {
        stations: 0,
        ..Config::new(2)
    });
    refused(Config {
        stations: 17,
        ..Config::new(2)
    });
    refused(Config {
        lines: 100,
        ..Config::new(2)
    });
    refused(Config {
        lines: 64,
        ..Config::new(2)
    });
    refused(Config {
        lines: 1 << 40,
        ..Config::new(2)
    });
    refused(Config {
        groups: 65,
        ..Config::new(2)
    });
    refused(Config::new(3));
    assert!(Config::of(&w).is_err(), "not formatted");
    Config::new(2).format(&w).unwrap();
    assert_eq!(Config::of(&w), Ok(Config::new(2)));
    let threads = Threads::new(2);
    let opened = Station::open(w.clone(), threads.node(0), 2, Mode::Polling);
    assert!(matches!(opened, Err(Error::NotFound)));
    w.store(3, 512, Relaxed);
    let opened = Station::open(w.clone(), threads.node(0), 0, Mode::Polling);
    assert!(matches!(opened, Err(Error::BadLayout)));
}
