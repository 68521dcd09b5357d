//! Scheduling, hand-over, and what happens to threads when nodes die.

use core::sync::atomic::Ordering;

use dyad_abi::boot::OnDeath;
use dyad_abi::syscall::Syscall;
use dyad_abi::{Error, Isa, NodeId};
use dyad_shm::superblock::{NodeState, activity};

use super::{Did, IDLE_ROOT, Left, Machine, MockA64, MockX86, World, result};
use crate::thread::{Owner, OwnerState, ThreadFrame};
use crate::{Platform, migrate, sched};

const PAIR: [Isa; 2] = [Isa::X86_64, Isa::Aarch64];
const ENTRY: u64 = 0x4100_0000;

fn run<P: Platform>(m: Machine) -> Left {
    m.kernel(|| sched::run::<P>())
}

/// A system whose node 0 runs a thread, and that thread.
fn running(w: &World) -> (Machine, Machine, &'static ThreadFrame) {
    let (x, a) = (w.machine(0), w.machine(1));
    let t = x.thread::<MockX86>();
    x.enter();
    sched::make_ready(x.node(), x.local(), t);
    assert_eq!(run::<MockX86>(x), Left::User(ENTRY));
    assert_eq!(run::<MockA64>(a), Left::Asleep);
    (x, a, t)
}

fn owner(t: &ThreadFrame) -> (OwnerState, usize) {
    let o = t.owner().unwrap();
    (o.state, o.node.index())
}

#[test]
fn a_thread_goes_there_and_back() {
    let w = World::new(&PAIR, 40);
    let (x, a, t) = running(&w);
    let op = Syscall::Migrate as u64;
    for round in 1..100u64 {
        assert_eq!(x.call::<MockX86>(t, op, &[1]), Left::Asleep);
        assert_eq!(owner(t), (OwnerState::Transit, 1));
        let there = run::<MockA64>(a);
        assert_eq!(owner(t), (OwnerState::Running, 1));
        // Afresh the first time, then out of its own call.
        assert_eq!(there, Left::User(ENTRY + 4 * (round - 1)));
        if round > 1 {
            assert_eq!(result::<MockA64>(t), (0, 1));
        }
        assert_eq!(a.call::<MockA64>(t, op, &[0]), Left::Asleep);
        assert_eq!(run::<MockX86>(x), Left::User(ENTRY + 4 * round));
        assert_eq!(result::<MockX86>(t), (0, 0));
    }
    assert_eq!(t.migrations.load(Ordering::Relaxed), 198);
}

/// The program may end over there at once and its tables be freed, while this CPU still is on
/// its way to the idle loop.
#[test]
fn the_address_space_is_left_before_the_thread_is_given_away() {
    let w = World::new(&PAIR, 40);
    let (x, _, t) = running(&w);
    x.did();
    x.call::<MockX86>(t, Syscall::Migrate as u64, &[1]);
    let did = x.did();
    let at = |d: Did| did.iter().position(|&e| e == d);
    let rang = did.iter().position(|d| matches!(d, Did::Rang { .. }));
    assert!(at(Did::SavedFp).is_some(), "{did:?}");
    let left = at(Did::SwitchedRoot(IDLE_ROOT)).expect("the space is left");
    assert!(rang.is_none_or(|r| left < r), "{did:?}");
    // Not only before the doorbell, but before the message: the call itself must have done it.
    let t = w.machine(0).thread::<MockX86>();
    let y = w.machine(0);
    y.enter();
    sched::make_ready(y.node(), y.local(), t);
    run::<MockX86>(y);
    y.did();
    y.enter();
    let to = NodeId::new(1).unwrap();
    migrate::away::<MockX86>(y.node(), t, to).unwrap();
    assert!(y.did().contains(&Did::SwitchedRoot(IDLE_ROOT)));
}

#[test]
fn a_sleeping_receiver_is_rung_and_an_attentive_one_is_not() {
    let w = World::new(&PAIR, 40);
    let (x, a, t) = running(&w);
    let to = a.node().id();
    a.node().entry().doorbell.store(4, Ordering::Relaxed);
    let e = x.node().sb.cpu(to, dyad_abi::CpuId::new(0).unwrap());
    assert_eq!(e.activity.load(Ordering::Relaxed), activity::ASLEEP);
    x.did();
    x.call::<MockX86>(t, Syscall::Migrate as u64, &[1]);
    assert!(x.did().contains(&Did::Rang { peer: 3, vector: 0 }));
    run::<MockA64>(a);
    a.did();
    x.enter();
    crate::inbox::attentive::<MockX86>();
    x.node().entry().doorbell.store(1, Ordering::Relaxed);
    a.call::<MockA64>(t, Syscall::Migrate as u64, &[0]);
    assert!(!a.did().iter().any(|d| matches!(d, Did::Rang { .. })));
}

#[test]
fn migration_to_where_nobody_is_fails_and_the_thread_goes_on() {
    let w = World::new(&PAIR, 40);
    let (x, _, t) = running(&w);
    let op = Syscall::Migrate as u64;
    let go = |to: u64, pc: u64, want: (u64, u64)| {
        assert_eq!(x.call::<MockX86>(t, op, &[to]), Left::User(ENTRY + pc));
        assert_eq!(result::<MockX86>(t), want);
        assert_eq!(owner(t), (OwnerState::Running, 0));
    };
    go(0, 4, (0, 0));
    go(2, 8, (Error::NoSuchNode.code(), 0));
    go(8, 12, (Error::NoSuchNode.code(), 0));
    go(u64::MAX, 16, (Error::NoSuchNode.code(), 0));
    for (i, state) in [
        NodeState::Vacant,
        NodeState::Joining,
        NodeState::Suspect,
        NodeState::Recovering,
        NodeState::Left,
    ]
    .into_iter()
    .enumerate()
    {
        w.set_state(x.node(), 1, state);
        go(1, 20 + 4 * i as u64, (Error::NodeDead.code(), 0));
    }
    assert_eq!(t.migrations.load(Ordering::Relaxed), 0);
}

#[test]
fn a_full_ring_fails_the_migration_only() {
    let w = World::new(&PAIR, 40);
    let (x, a, t) = running(&w);
    x.enter();
    let cpu = dyad_abi::CpuId::new(0).unwrap();
    let nonsense = dyad_ring::Message([99, 0, 0, 0, 0, 0, 0, 0]);
    while crate::inbox::send::<MockX86>(a.node().id(), cpu, &nonsense).is_ok() {}
    let left = x.call::<MockX86>(t, Syscall::Migrate as u64, &[1]);
    assert_eq!(left, Left::User(ENTRY + 4));
    assert_eq!(result::<MockX86>(t), (Error::Full.code(), 0));
    // The receiver drops the nonsense, and the next attempt succeeds.
    assert_eq!(run::<MockA64>(a), Left::Asleep);
    assert!(a.printed().contains("dropped"));
    x.call::<MockX86>(t, Syscall::Migrate as u64, &[1]);
    assert_eq!(run::<MockA64>(a), Left::User(ENTRY));
}

#[test]
fn stale_and_forged_hand_overs_are_dropped() {
    let w = World::new(&PAIR, 40);
    let (x, a, t) = running(&w);
    let frame = crate::thread::reference(&x.node().map, t);
    let now = t.owner().unwrap();
    let transit = Owner {
        state: OwnerState::Transit,
        node: a.node().id(),
        incarnation: 1,
        seq: now.seq + 1,
    };
    a.enter();
    let try_ = |frame, owner| migrate::receive::<MockA64>(a.node(), frame, owner, 0);
    for (frame, word) in [
        (frame, transit.bits()),
        (frame, now.bits()),
        (frame, !0),
        (frame + 1, transit.bits()),
        (0, transit.bits()),
        (!0, transit.bits()),
    ] {
        assert_eq!(try_(frame, word), Err(Error::NotFound));
    }
    // The true one works once.
    t.owner.store(transit.bits(), Ordering::Relaxed);
    let older = Owner {
        incarnation: 0,
        ..transit
    };
    assert_eq!(try_(frame, older.bits()), Err(Error::NotFound));
    assert_eq!(try_(frame, transit.bits()), Ok(()));
    assert_eq!(try_(frame, transit.bits()), Err(Error::NotFound));
}

/// The receiver dies before it takes the thread: it comes back with an error.
#[test]
fn a_thread_on_its_way_to_a_dead_node_comes_back() {
    let w = World::new(&PAIR, 40);
    let (x, _, t) = running(&w);
    x.node()
        .sb
        .program
        .store(t.space.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let s = crate::space::Space::find(x.node(), t.space.load(Ordering::Relaxed)).unwrap();
    let main = crate::thread::reference(&x.node().map, t) + 1;
    s.frame().main_thread.store(main, Ordering::Relaxed);
    assert_eq!(
        x.call::<MockX86>(t, Syscall::Migrate as u64, &[1]),
        Left::Asleep
    );
    w.set_state(x.node(), 1, NodeState::Dead);
    assert_eq!(run::<MockX86>(x), Left::User(ENTRY + 4));
    assert_eq!(result::<MockX86>(t), (Error::NodeDead.code(), 0));
    assert_eq!(owner(t), (OwnerState::Running, 0));
    assert_eq!(
        x.node().sb.node_word(NodeId::new(1).unwrap()).state,
        NodeState::Vacant
    );
}

/// Of three nodes the receiver dies while the giver is between storing the owner word and sending
/// the message, and the recoverer is faster: the giver must not go on with the thread, which will
/// come back to it by a message.
#[test]
fn a_thread_the_recoverer_has_taken_is_not_taken_back() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64, Isa::X86_64], 40);
    let (x, _, t) = running(&w);
    let mine = t.owner().unwrap();
    let handed = Owner {
        state: OwnerState::Transit,
        node: NodeId::new(1).unwrap(),
        incarnation: 1,
        seq: mine.seq + 1,
    };
    let recovered = Owner {
        state: OwnerState::Transit,
        node: x.node().id(),
        incarnation: 1,
        seq: mine.seq + 2,
    };
    t.owner.store(recovered.bits(), Ordering::Relaxed);
    assert_eq!(migrate::take_back(t, handed, mine, Error::NodeDead), Ok(()));
    assert_eq!(t.owner(), Some(recovered));
    t.owner.store(handed.bits(), Ordering::Relaxed);
    assert_eq!(
        migrate::take_back(t, handed, mine, Error::NodeDead),
        Err(Error::NodeDead)
    );
    assert_eq!(t.owner(), Some(mine));
}

#[test]
fn a_program_whose_node_dies_is_lost_and_its_memory_is_not() {
    let w = World::new(&PAIR, 40);
    let (x, a, t) = running(&w);
    x.node()
        .sb
        .program
        .store(t.space.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let s = crate::space::Space::find(x.node(), t.space.load(Ordering::Relaxed)).unwrap();
    let main = crate::thread::reference(&x.node().map, t) + 1;
    s.frame().main_thread.store(main, Ordering::Relaxed);
    w.set_state(a.node(), 0, NodeState::Dead);
    assert_eq!(run::<MockA64>(a), Left::Exited(1));
    assert!(a.printed().contains("is lost"));
    assert_eq!(x.used(), 0);
}

/// Nothing would ever happen again: the survivors end the run, unless node 0 is started again.
#[test]
fn a_program_that_was_never_started_is_not_waited_for() {
    for (on_death, left) in [
        (OnDeath::Survive, Left::Exited(1)),
        (OnDeath::Restart, Left::Asleep),
    ] {
        let w = World::new(&PAIR, 40);
        w.on_death.set(on_death);
        let a = w.machine(1);
        w.set_state(a.node(), 0, NodeState::Dead);
        assert_eq!(run::<MockA64>(a), left);
    }
}

/// The program has exited, its memory is half free, and the node that did it dies before it has
/// told anybody.
#[test]
fn a_take_down_that_was_interrupted_ends_the_run() {
    for (ending, left) in [(1, Left::Exited(1)), (0, Left::Asleep), (2, Left::Asleep)] {
        let w = World::new(&PAIR, 40);
        let (x, a, t) = running(&w);
        x.node()
            .sb
            .program
            .store(t.space.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        t.retire();
        x.node().sb.ending.store(ending, Ordering::Relaxed);
        w.set_state(a.node(), 0, NodeState::Dead);
        assert_eq!(run::<MockA64>(a), left);
    }
}

#[test]
fn sleepers_wake_in_time_and_yield_goes_on() {
    let w = World::new(&PAIR, 40);
    let (x, _, t) = running(&w);
    assert_eq!(
        x.call::<MockX86>(t, Syscall::Yield as u64, &[]),
        Left::User(ENTRY + 4)
    );
    let op = Syscall::SleepUntil as u64;
    assert_eq!(x.call::<MockX86>(t, op, &[0]), Left::User(ENTRY + 8));
    let soon = crate::clock::now::<MockX86>().0 + 200_000;
    assert_eq!(x.call::<MockX86>(t, op, &[soon]), Left::Asleep);
    let mut turns = 0;
    let woke = loop {
        match run::<MockX86>(x) {
            Left::Asleep => turns += 1,
            other => break other,
        }
        assert!(turns < 1000, "never woke");
    };
    assert_eq!(woke, Left::User(ENTRY + 12));
    assert!(crate::clock::now::<MockX86>().0 >= soon);
    assert_eq!(x.call::<MockX86>(t, op, &[u64::MAX]), Left::Asleep);
    for _ in 0..50 {
        assert_eq!(run::<MockX86>(x), Left::Asleep);
    }
}
