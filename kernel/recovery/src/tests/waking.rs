//! Threads of live nodes that a node was waking when it died.

use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::{Event, Woken};
use dyad_core::host::{MockA64, crash};
use dyad_core::sched::dispatch;
use dyad_object::endpoint::{Line, Waits};
use dyad_object::link_to;
use dyad_object::thread::{State, Thread};

use super::events::{another, told};
use super::threads::{Cast, RELAXED, sound, wait};
use super::{Trio, node};

fn state(s: &Trio, t: &Thread) -> State {
    t.owner(s.machines[0].node().words).unwrap().state
}

/// The scheduler of node 2's CPU, which waits for news, and has no scheduler itself.
fn root(s: &Trio, c: &Cast, line: &Line) -> &'static Thread {
    let t = another(s, c, 2, 0);
    t.scheduler.store(0, RELAXED);
    t.waits_at.store(c.scheduler.bits(), RELAXED);
    t.waits_line.store(
        dyad_abi::service::scheduler_line(node(2), super::cpu(0)),
        RELAXED,
    );
    let owner = t.owner(s.machines[0].node().words).unwrap();
    t.owner.store(owner.with(State::Running).bits(), RELAXED);
    let m = s.machines[2];
    m.enter();
    let owner = owner.with(State::Running);
    assert_eq!(dispatch::sleep_at(&s.cx(2), t, owner, line), Ok(true));
    t
}

/// The sender dies at every point. If its bits are at the endpoint, the waiting thread runs, and its scheduler
/// runs if it waited; if not, both keep waiting.
#[test]
fn who_was_just_being_woken_is_woken() {
    let mut outcomes = [0; 2];
    for changes in 0.. {
        let s = Trio::new();
        let c = Cast::new(&s);
        c.started(&s, Isa::X86_64, 1);
        let (t, line) = (c.thread(&s), wait(&s, &c, 2));
        let root = root(&s, &c, c.heard(&s, 2));
        sound(&s);
        let m = s.machines[1];
        m.enter();
        let whole = crash::after(changes, || {
            dispatch::post::<MockA64>(&s.cx(1), c.waits, 9, 4).unwrap();
        });
        s.dies(1);
        s.recover(0);
        let sent = line.bits.load(RELAXED) == 4;
        let (state_of, told) = (|t| state(&s, t), told(&s, &c, 2));
        match sent {
            true => {
                assert_eq!(state_of(t), State::Ready, "{changes}");
                assert_eq!(line.waiter.load(RELAXED), 0);
                assert_eq!(told, [70], "{changes}");
                assert_eq!(state_of(root), State::Ready, "{changes}");
                assert_eq!(c.heard(&s, 2).waiter.load(RELAXED), 0);
            }
            false => {
                assert_eq!(state_of(t), State::Blocked, "{changes}");
                assert_ne!(line.waiter.load(RELAXED), 0);
                assert_eq!(told, Vec::<u64>::new());
                assert_eq!(state_of(root), State::Blocked, "{changes}");
            }
        }
        assert_eq!(c.owner(&s).node, node(2));
        outcomes[usize::from(sent)] += 1;
        sound(&s);
        if whole.is_some() {
            break;
        }
    }
    // Bits, waiter, owner, event, list, and the scheduler's waiter and owner.
    assert!(outcomes[0] >= 1 && outcomes[1] >= 7, "{outcomes:?}");
}

/// Sleepers whose schedulers a dead node was to tell of that are told of again; others are left alone.
#[test]
fn sleepers_are_told_of_again_and_waiters_wait_on() {
    for deadline in [0, 1_000_000] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let line = wait(&s, &c, 2);
        c.thread(&s).deadline.store(deadline, RELAXED);
        s.dies(1);
        s.recover(0);
        assert_eq!(state(&s, c.thread(&s)), State::Blocked);
        assert_ne!(line.waiter.load(RELAXED), 0);
        let why = Woken::Sleeps;
        let news = match deadline {
            0 => 0,
            _ => Event { tag: 70, why }.bits(),
        };
        assert_eq!(c.heard(&s, 2).take(s.machines[2].node()), news);
        sound(&s);
    }
}

/// The dead node had taken a thread out of scheduling, but not off its endpoint. The frame may be another object by then.
#[test]
fn waiters_that_do_not_wait_are_taken_off() {
    for is_thread in [true, false] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let line = wait(&s, &c, 0);
        c.own(&s, State::Stopped, 0);
        if !is_thread {
            let other = link_to(c.waits.frame);
            line.waiter.store(other, RELAXED);
        }
        assert_eq!(s.faults().len(), 1);
        s.dies(1);
        s.recover(0);
        assert_eq!(line.waiter.load(RELAXED), 0, "{is_thread}");
        sound(&s);
    }
}

/// A thread that is about to wait when it is looked at, and waits at the second look, is not woken.
#[test]
fn who_is_about_to_wait_is_left_alone() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let line = wait(&s, &c, 2);
    line.waiter.store(0, RELAXED);
    s.dies(1);
    let m = s.machines[2];
    let mut steps = 0;
    loop {
        let before = s.step(0);
        steps += 1;
        // Somewhere in the round behind the first look.
        if before == crate::Pace::Later && line.waiter.load(RELAXED) == 0 {
            m.enter();
            let t = c.thread(&s);
            let number = t.owner(m.node().words).unwrap().seq;
            let waits = line.wait(m.node(), t, number);
            assert!(matches!(waits, Ok(Waits::Yes { .. })));
        }
        if before == crate::Pace::Idle {
            break;
        }
        assert!(steps < 10_000);
    }
    assert_eq!(state(&s, c.thread(&s)), State::Blocked);
    assert_ne!(line.waiter.load(RELAXED), 0);
    sound(&s);
}

/// More threads are blocked, and the waiter of nothing, than recovery keeps in mind at a time: it walks again.
#[test]
fn all_who_were_just_being_woken_are_woken_however_many_they_are() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let adrift = |tag| {
        let t = another(&s, &c, 2, tag);
        t.waits_at.store(c.waits.bits(), RELAXED);
        t.waits_line.store(9, RELAXED);
        let owner = t.owner(s.machines[0].node().words).unwrap();
        t.owner.store(owner.with(State::Blocked).bits(), RELAXED);
        t
    };
    let count = crate::half_woken::ROOM as u64 + 2;
    let all: Vec<_> = (0..count).map(|n| adrift(200 + n)).collect();
    s.dies(1);
    s.recover(0);
    for t in all {
        assert_eq!(state(&s, t), State::Ready);
    }
    let expected: Vec<u64> = (0..count).map(|n| 200 + n).collect();
    assert_eq!(told(&s, &c, 2), expected);
}
