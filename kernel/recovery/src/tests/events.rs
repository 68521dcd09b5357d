//! Lists of threads that schedulers are to be told of, when a node dies that has some of them in hand.

use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::{Event, Woken};
use dyad_core::host::{MockX86, crash};
use dyad_machine::Platform;
use dyad_object::endpoint::Vouched;
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::{find, ids};

use super::threads::{Cast, RELAXED, sound};
use super::{Trio, node};
use crate::{Pace, SETTLE_NS};

fn event_of(tag: u32) -> u64 {
    let why = Woken::Ready;
    Event { tag, why }.bits()
}

/// Another thread of the same scheduler, ready at a node.
pub(super) fn another(s: &Trio, c: &Cast, which: usize, tag: u64) -> &'static Thread {
    let object = s.object(Thread::KIND);
    let t: &'static Thread = find(s.machines[0].node(), object, Thread::KIND).unwrap();
    let owner = Owner {
        state: State::Ready,
        node: node(which),
        incarnation: 1,
        seq: 5,
    };
    t.owner.store(owner.bits(), RELAXED);
    t.scheduler.store(c.scheduler.bits(), RELAXED);
    t.tag.store(tag, RELAXED);
    t.id.store(100 + tag, RELAXED);
    ids::claim(s.machines[0].node(), 100 + tag, object).unwrap();
    t
}

/// Tags of all threads of which the scheduler of a node's CPU is told.
pub(super) fn told(s: &Trio, c: &Cast, which: usize) -> Vec<u64> {
    let (line, n) = (c.heard(s, which), s.machines[which].node());
    let events = std::iter::from_fn(|| Some(line.take(n)).filter(|&e| e != 0));
    let mut tags: Vec<u64> = events.map(|e| e & 0xffff_ffff).collect();
    tags.sort_unstable();
    tags
}

/// The dead node's scheduler was being told of threads, and live nodes had taken two of them before. Each
/// thread is reported once, whatever the scheduler had in hand; so are those that it had been told of before.
#[test]
fn news_that_a_dead_node_had_in_hand_are_told_anew() {
    let mut died = 0;
    for before in 0..3 {
        for changes in 0.. {
            let s = Trio::new();
            let c = Cast::new(&s);
            let (t, m) = (c.thread(&s), s.machines[1]);
            c.started(&s, Isa::Aarch64, 1);
            c.own(&s, State::Ready, 1);
            let moved = [71, 72].map(|tag| another(&s, &c, 2, tag));
            m.enter();
            // The last is taken first: the one that is still the dead node's comes in different places.
            let mut list = [moved[0], moved[1], t];
            list.rotate_right(before);
            for t in list {
                c.heard(&s, 1)
                    .push_event(m.node(), t, Woken::Ready)
                    .unwrap();
            }
            // It has taken one off before, so that the rest is no longer on the list of events.
            c.heard(&s, 1).take_thread(m.node()).unwrap();
            let whole = crash::after(changes, || {
                c.heard(&s, 1).take_thread(m.node()).unwrap();
            });
            s.dies(1);
            s.recover(0);
            // It was stopped, as there is no node like the one that died.
            assert_eq!(told(&s, &c, 0), [70], "{before}, {changes}");
            // A thread that has been taken off and not been passed on looks like one that the scheduler knows of.
            assert_eq!(told(&s, &c, 2), [71, 72], "{before}, {changes}");
            for t in list {
                assert_eq!(t.event.load(RELAXED), 0);
            }
            sound(&s);
            if whole.is_some() {
                break;
            }
            died += 1;
        }
    }
    assert!(died >= 12, "{died}");
}

/// It was putting a thread on a list of another node when it died.
#[test]
fn a_thread_that_a_dead_node_was_putting_on_a_list_is_put_there() {
    for changes in 0.. {
        let s = Trio::new();
        let c = Cast::new(&s);
        let (t, m) = (another(&s, &c, 2, 71), s.machines[1]);
        m.enter();
        let line = c.heard(&s, 2);
        // These are on the lists already: one has been taken off the list of events, but not told of.
        for tag in [73, 74, 75] {
            let t = another(&s, &c, 2, tag);
            line.push_event(m.node(), t, Woken::Ready).unwrap();
        }
        assert_eq!(line.take(m.node()), event_of(75));
        line.push_event(m.node(), another(&s, &c, 2, 76), Woken::Ready)
            .unwrap();
        let whole = crash::after(changes, || {
            line.push_event(m.node(), t, Woken::Ready).unwrap()
        });
        s.dies(1);
        s.recover(0);
        // Also before the first change, and of one that has been told of: they are ready.
        assert_eq!(told(&s, &c, 2), [71, 73, 74, 75, 76], "{changes}");
        assert_eq!(t.event.load(RELAXED), 0);
        sound(&s);
        if whole.is_some() {
            assert!(changes >= 3, "{changes}");
            break;
        }
    }
}

/// A CPU that lives is stopped while it takes a thread off its list, for longer than recovery waits. Recovery does
/// not know then which threads are on the list, and tells of none of them anew: the CPU finds them when it goes on.
#[test]
fn threads_of_a_list_that_stays_in_use_are_left_where_they_are() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let m = s.machines[2];
    m.enter();
    let line = c.heard(&s, 2);
    let listed = [71, 72].map(|tag| another(&s, &c, 2, tag));
    for t in listed {
        line.push_event(m.node(), t, Woken::Ready).unwrap();
    }
    // It has made the list its own, and has done nothing else.
    assert!(crash::after(1, || line.take_thread(m.node())).is_none());
    let (events, taken) = (line.events.load(RELAXED), line.taken.load(RELAXED));
    assert_ne!((events, taken), (0, 0));
    s.dies(1);
    s.recover(0);
    for t in listed {
        assert_eq!(t.event.load(RELAXED), Woken::Ready as u64);
    }
    assert_eq!(
        (line.events.load(RELAXED), line.taken.load(RELAXED)),
        (events, taken)
    );
    line.taken.store(0, RELAXED);
    assert_eq!(told(&s, &c, 2), [71, 72]);
    sound(&s);
}

/// A node that is silent, and may live, was putting a thread on a list. Recovery does not wait for it for ever, and then does not
/// take the thread for one that a dead node has lost: the silent node would put it on the list a second time.
#[test]
fn threads_that_a_silent_node_puts_on_a_list_are_left_to_it() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let (line, t, m) = (c.heard(&s, 2), another(&s, &c, 2, 71), s.machines[2]);
    m.enter();
    // It has noted the reason in the thread, and has done nothing else.
    let pushed = crash::after(1, || line.push_event(m.node(), t, Woken::Ready));
    assert!(pushed.is_none());
    s.cx(0).epochs().suspect(node(2)).unwrap();
    s.dies(1);
    while s.step(0) != Pace::Later {}
    let since = MockX86::clock_ns();
    while MockX86::clock_ns() - since <= SETTLE_NS {}
    s.recover(0);
    assert_eq!(line.events.load(RELAXED), 0, "it is on the list");
    assert_eq!(t.event.load(RELAXED), Woken::Ready as u64);
}

/// It was giving endpoints up when it died: the lists that it had closed are open again.
#[test]
fn lists_that_a_dead_node_had_closed_are_open() {
    for changes in [1, 2, 63, 1_000] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let m = s.machines[1];
        m.enter();
        let endpoints = c.endpoints(&s, c.scheduler);
        let whole = crash::after(changes, || endpoints.close(m.node()));
        assert_eq!(whole.is_some(), changes == 1_000);
        s.dies(1);
        s.recover(0);
        for which in [0, 2] {
            let t = another(&s, &c, which, 71 + which as u64);
            let pushed = c
                .heard(&s, which)
                .push_event(s.machines[which].node(), t, Woken::Ready);
            assert_eq!(pushed, Ok(()), "{changes}, {which}");
        }
    }
}

/// Threads of a list that a CPU is taking from stay in doubt as long as its node lives. Of a dead node's CPU nothing is
/// waited for.
#[test]
fn who_takes_from_a_list_is_waited_for_as_long_as_it_lives() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let (line, m) = (c.heard(&s, 2), s.machines[1]);
    m.enter();
    line.push_event(m.node(), another(&s, &c, 2, 71), Woken::Ready)
        .unwrap();
    assert!(crash::after(1, || line.take_thread(m.node())).is_none());
    let vouched = || line.vouch(s.machines[0].node(), None, 9).0;
    s.machines[0].enter();
    assert_eq!(vouched(), Vouched::Busy);
    s.dies(1);
    assert_eq!(vouched(), Vouched::All);
}
