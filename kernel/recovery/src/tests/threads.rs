//! What becomes of the threads of a dead node.

use core::sync::atomic::Ordering;
use std::string::String;
use std::vec::Vec;

use dyad_abi::cap::{Event, ThreadOp, Woken};
use dyad_abi::service::scheduler_line;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::{Trio, cpu, node};
use crate::Pace;
use dyad_core::host::{MockX86, crash, result};
use dyad_core::migrate::carried::{HandoffKind, store_handoff};
use dyad_core::sched::dispatch::{self, OpOutcome};
use dyad_core::sched::fp;
use dyad_core::syscall::invoke;
use dyad_core::syscall::ops;
use dyad_object::component::{Component, Entry};
use dyad_object::endpoint::{Endpoints, Line};
use dyad_object::thread::{Owner, State, Thread, begun, info};
use dyad_object::time::INHERITED;
use dyad_object::{find, ids};

const PC: usize = 8;
pub(super) const RELAXED: Ordering = Ordering::Relaxed;

pub(super) struct Cast {
    thread: WeakRef,
    component: WeakRef,
    service: WeakRef,
    pub(super) scheduler: WeakRef,
    pub(super) waits: WeakRef,
}

impl Cast {
    pub(super) fn new(s: &Trio) -> Cast {
        let cast = Cast {
            thread: s.object(Thread::KIND),
            component: s.object(Component::KIND),
            service: s.object(Component::KIND),
            scheduler: s.object(Endpoints::KIND),
            waits: s.object(Endpoints::KIND),
        };
        let t = cast.thread(s);
        t.component.store(cast.component.bits(), RELAXED);
        t.scheduler.store(cast.scheduler.bits(), RELAXED);
        t.id.store(7, RELAXED);
        ids::claim(s.machines[0].node(), 7, cast.thread).unwrap();
        t.tag.store(70, RELAXED);
        t.entry.store(0x4000_0000, RELAXED);
        cast
    }

    pub(super) fn thread(&self, s: &Trio) -> &'static Thread {
        find(s.machines[0].node(), self.thread, Thread::KIND).unwrap()
    }

    pub(super) fn endpoints(&self, s: &Trio, which: WeakRef) -> &'static Endpoints {
        find(s.machines[0].node(), which, Endpoints::KIND).unwrap()
    }

    /// Where the scheduler of a node's first CPU hears of threads.
    pub(super) fn heard(&self, s: &Trio, which: usize) -> &'static Line {
        let at = scheduler_line(node(which), cpu(0));
        self.endpoints(s, self.scheduler).line(at).unwrap()
    }

    pub(super) fn own(&self, s: &Trio, state: State, which: usize) -> Owner {
        let owner = Owner {
            state,
            node: node(which),
            incarnation: 1,
            seq: 5,
        };
        self.thread(s).owner.store(owner.bits(), RELAXED);
        owner
    }

    pub(super) fn owner(&self, s: &Trio) -> Owner {
        let words = s.machines[0].node().words;
        self.thread(s).owner(words).unwrap()
    }

    pub(super) fn started(&self, s: &Trio, isa: Isa, how: u64) {
        self.thread(s).started[isa.index()].store(how, RELAXED);
    }

    /// Puts an invocation on the thread's stack, from a node if it has crossed.
    fn push(&self, s: &Trio, component: WeakRef, pc: u64, from: Option<usize>) {
        let t = self.thread(s);
        let depth = t.depth.fetch_add(1, RELAXED);
        let f = &t.frames[depth as usize];
        f.component.store(component.bits(), RELAXED);
        f.pc.store(pc, RELAXED);
        f.sp.store(pc + 0x1000, RELAXED);
        let special = from.map_or(0, |n| info::CROSSED | (n as u64) << 8);
        f.info.store(special, RELAXED);
    }
}

fn pc(t: &Thread, isa: Isa) -> u64 {
    t.regs(isa).0[PC].load(RELAXED)
}

pub(super) fn sound(s: &Trio) {
    assert_eq!(s.faults(), Vec::<String>::new());
}

fn event(why: Woken) -> u64 {
    Event { tag: 70, why }.bits()
}

/// It had crossed to the dead node and ran there, two invocations deep.
#[test]
fn a_thread_that_had_crossed_returns_with_an_error_where_it_came_from() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.started(&s, Isa::X86_64, 1);
    c.push(&s, c.component, 0x5000, Some(2));
    c.push(&s, c.service, 0x6000, None);
    c.thread(&s).component.store(c.service.bits(), RELAXED);
    // The second one handled a fault.
    c.thread(&s).fault.store(1, RELAXED);
    c.thread(&s).frames[1].info.store(info::FAULT, RELAXED);
    // Its dispatcher there had given it time.
    c.thread(&s).budget.store(INHERITED, RELAXED);
    c.own(&s, State::Running, 1);
    s.dies(1);
    s.recover(0);
    let (t, o) = (c.thread(&s), c.owner(&s));
    assert_eq!((o.state, o.node), (State::Ready, node(2)));
    assert_eq!(t.budget.load(RELAXED), 0, "it is on no budget of that node");
    assert_eq!(t.depth.load(RELAXED), 0);
    assert_eq!(t.fault.load(RELAXED), 0);
    assert_eq!(pc(t, Isa::X86_64), 0x5000);
    assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
    assert_eq!(t.component.load(RELAXED), c.component.bits());
    let line = c.heard(&s, 2);
    assert_eq!(line.take(s.machines[2].node()), event(Woken::NodeDied));
    sound(&s);
}

/// Caller on node 2, callee on node 0, called from there on node 1: node 1 dies, and node 0 goes on
/// with the error. If node 0 is gone as well, node 2 does.
#[test]
fn it_returns_to_the_last_caller_whose_node_lives() {
    for both in [false, true] {
        let s = Trio::new();
        let c = Cast::new(&s);
        c.push(&s, c.component, 0x5000, Some(2));
        c.push(&s, c.service, 0x6000, None);
        c.push(&s, c.service, 0x7000, Some(0));
        c.own(&s, State::Running, 1);
        s.dies(1);
        if both {
            s.dies(0);
        }
        if both {
            s.recover(2);
        } else {
            // Node 0 has the lower number.
            assert_eq!(s.step(2), Pace::Idle);
            s.recover(0);
        }
        let (t, o) = (c.thread(&s), c.owner(&s));
        let (to, depth, at) = if both { (2, 0, 0x5000) } else { (0, 2, 0x7000) };
        assert_eq!((o.state, o.node), (State::Ready, node(to)));
        assert_eq!(t.depth.load(RELAXED), depth);
        assert_eq!(pc(t, Isa::X86_64), at);
    }
}

/// The faults that those further in were dealing with are over, and nothing of them is in
/// floating-point registers.
#[test]
fn faults_further_in_are_over() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.push(&s, c.component, 0x5000, Some(2));
    c.push(&s, c.service, 0x6000, None);
    let t = c.thread(&s);
    t.frames[1].info.store(info::FAULT, RELAXED);
    t.fault.store(1, RELAXED);
    // Also what a side that waits in `Migrate` has, which is the thread's own.
    let waits = fp::kept(Isa::X86_64);
    t.used_fp.store(fp::USED | waits, RELAXED);
    c.own(&s, State::Running, 1);
    s.dies(1);
    s.recover(0);
    assert_eq!(t.fault.load(RELAXED), 0);
    // Of both ISAs: that of the node that has died may be with what a service had.
    assert_eq!(t.used_fp.load(RELAXED), waits);
}

/// On its way to the dead node: the message is lost.
#[test]
fn a_thread_on_its_way_to_the_dead_node_comes_back() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let t = c.thread(&s);
    t.leaves(node(2), false);
    // An invocation.
    c.push(&s, c.component, 0x5000, Some(2));
    let to = Entry {
        component: c.service,
        address: 0x9000,
        badge: 3,
    };
    store_handoff(t, HandoffKind::Invoke, [1, 2, 3, 4], to);
    c.own(&s, State::Transit, 1);
    s.dies(1);
    s.recover(0);
    let o = c.owner(&s);
    assert_eq!((o.state, o.node), (State::Ready, node(2)));
    assert_eq!(pc(t, Isa::X86_64), 0x5000);
    assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
    sound(&s);
}

#[test]
fn a_thread_that_migrates_or_jumps_to_the_dead_node_stays_behind() {
    for (came_from, how) in [
        (2, HandoffKind::Migrate),
        (0, HandoffKind::Migrate),
        (2, HandoffKind::Jump),
        (2, HandoffKind::Load),
    ] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let t = c.thread(&s);
        t.leaves(node(came_from), false);
        // A jump leaves its registers where they are.
        let (left, area, other) = match how {
            HandoffKind::Jump => (begun::JUMPED, &t.regs, &t.parked),
            _ => (begun::PARKED, &t.parked, &t.regs),
        };
        c.started(&s, Isa::X86_64, left);
        area[Isa::X86_64.index()].0[PC].store(0x5550, RELAXED);
        other[Isa::X86_64.index()].0[PC].store(0x6660, RELAXED);
        let to = Entry {
            component: c.service,
            address: 0,
            badge: 0,
        };
        store_handoff(t, how, [0; 4], to);
        // What an older crossing has left.
        t.frames[0].info.store(info::CROSSED, RELAXED);
        t.frames[0].pc.store(0x1110, RELAXED);
        c.own(&s, State::Transit, 1);
        s.dies(1);
        s.recover(0);
        let o = c.owner(&s);
        assert_eq!((o.state, o.node), (State::Ready, node(came_from)));
        assert_eq!(pc(t, Isa::X86_64), 0x5550);
        assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
        assert_eq!(t.started[Isa::X86_64.index()].load(RELAXED), 1);
    }
}

/// What a thread was doing is not guessed from damaged words: nothing of it is taken up again.
#[test]
fn a_thread_in_transit_whose_words_are_damaged_is_stopped() {
    for damaged in [0, 11, 99, u64::MAX] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let t = c.thread(&s);
        t.leaves(node(2), false);
        c.started(&s, Isa::X86_64, begun::PARKED);
        let to = Entry {
            component: c.service,
            address: 0,
            badge: 0,
        };
        store_handoff(t, HandoffKind::Migrate, [0; 4], to);
        t.carried[0].store(damaged, RELAXED);
        c.own(&s, State::Transit, 1);
        s.dies(1);
        s.recover(0);
        assert_eq!(c.owner(&s).state, State::Stopped, "{damaged}");
        assert_eq!(t.begun(Isa::X86_64), begun::LOST, "{damaged}");
    }
}

/// `Resume` on a node's first CPU.
fn resume(s: &Trio, c: &Cast, which: u64) -> Result<OpOutcome, Error> {
    let place = 1 << 63 | which;
    let a = [place, 0, 0, 0, 0];
    ops::thread::dispatch::<MockX86>(&s.cx(0), c.thread(s), ThreadOp::Resume as u64, a)
}

/// It had crossed to a service on the dead node. The service's registers, as it was last interrupted there, are still in the
/// thread's frame: not even on a node of that ISA does its owner get them.
#[test]
fn what_a_service_has_left_on_a_dead_node_is_not_read() {
    for left in [begun::HERE, begun::PARKED] {
        let s = Trio::new();
        let c = Cast::new(&s);
        let t = c.thread(&s);
        c.started(&s, Isa::Aarch64, begun::HERE);
        c.started(&s, Isa::X86_64, left);
        c.push(&s, c.component, 0x5000, Some(1));
        t.component.store(c.service.bits(), RELAXED);
        t.regs(Isa::X86_64).0[3].store(0x5ec2e7, RELAXED);
        c.own(&s, State::Running, 2);
        s.dies(2);
        s.recover(0);
        let o = c.owner(&s);
        assert_eq!((o.state, o.node), (State::Ready, node(1)));
        assert_eq!(t.depth.load(RELAXED), 0);
        let k = s.cx(0);
        let call = |op, a| ops::thread::dispatch::<MockX86>(&k, t, op as u64, a);
        assert_eq!(call(ThreadOp::Stop, [0; 5]), Ok(OpOutcome::Value(0)));
        let x86 = Isa::X86_64 as u64;
        for n in 0..8 {
            let read = call(ThreadOp::ReadRegister, [x86, n, 0, 0, 0]);
            assert_eq!(read, Err(Error::NoIsa), "register {n}, {left}");
            let write = call(ThreadOp::WriteRegister, [x86, n, 1, 0, 0]);
            assert_eq!(write, Err(Error::NoIsa), "register {n}, {left}");
        }
        sound(&s);
    }
}

/// Its registers died with the machine, and no thread called it from elsewhere. It does not begin anew on
/// the other ISA as if nothing had been.
#[test]
fn a_thread_that_ran_there_is_stopped_and_its_scheduler_told() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.started(&s, Isa::Aarch64, 1);
    c.push(&s, c.component, 0x5000, None);
    c.own(&s, State::Running, 1);
    s.dies(1);
    s.recover(0);
    let o = c.owner(&s);
    assert_eq!((o.state, o.node), (State::Stopped, node(0)));
    let line = c.heard(&s, 0);
    assert_eq!(line.take(s.machines[0].node()), event(Woken::Ended));
    for which in [0, 2] {
        assert_eq!(resume(&s, &c, which), Err(Error::NodeDead));
    }
    sound(&s);
}

/// Node 2 dies, whose ISA node 0 has.
#[test]
fn a_ready_thread_goes_on_on_another_node_of_its_isa() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.started(&s, Isa::X86_64, 1);
    let t = c.thread(&s);
    t.regs(Isa::X86_64).0[PC].store(0x7770, RELAXED);
    c.push(&s, c.component, 0x5000, None);
    c.own(&s, State::Ready, 2);
    // Its scheduler had not been told yet.
    let m = s.machines[2];
    m.enter();
    c.heard(&s, 2)
        .push_event(m.node(), t, Woken::Ready)
        .unwrap();
    s.dies(2);
    s.recover(0);
    let o = c.owner(&s);
    assert_eq!((o.state, o.node), (State::Ready, node(0)));
    assert_eq!(pc(t, Isa::X86_64), 0x7770);
    assert_eq!(t.depth.load(RELAXED), 1);
    assert_ne!(c.heard(&s, 0).take(s.machines[0].node()), 0);
    assert_eq!(c.heard(&s, 2).take(s.machines[0].node()), 0);
    sound(&s);
}

#[test]
fn a_ready_thread_without_a_node_for_it_is_stopped_or_returns() {
    for crossed in [false, true] {
        // Of another ISA, and not permitted elsewhere.
        for (victim, home) in [(1, 0), (2, 1 << 2)] {
            let s = Trio::new();
            let c = Cast::new(&s);
            let isa = super::TRIO[victim];
            c.started(&s, isa, 1);
            if victim == 1 {
                c.started(&s, Isa::X86_64, 1);
            }
            c.push(&s, c.component, 0x5000, crossed.then_some(0));
            let component: &'static Component =
                find(s.machines[0].node(), c.service, Component::KIND).unwrap();
            component.home.store(home, RELAXED);
            c.thread(&s).component.store(c.service.bits(), RELAXED);
            c.own(&s, State::Ready, victim);
            s.dies(victim);
            s.recover(0);
            let o = c.owner(&s);
            let state = if crossed {
                State::Ready
            } else {
                State::Stopped
            };
            assert_eq!((o.state, o.node), (state, node(0)));
            if victim == 1 && !crossed {
                // What it was doing was for the other ISA, and a service may have left something here.
                assert_eq!(resume(&s, &c, 0), Err(Error::NoIsa));
            }
            sound(&s);
        }
    }
}

pub(super) fn wait(s: &Trio, c: &Cast, which: usize) -> &'static Line {
    let t = c.thread(s);
    let line = c.endpoints(s, c.waits).line(9).unwrap();
    t.waits_at.store(c.waits.bits(), RELAXED);
    t.waits_line.store(9, RELAXED);
    t.result.store(2, RELAXED);
    let owner = c.own(s, State::Running, which);
    let m = s.machines[which];
    m.enter();
    assert_eq!(dispatch::sleep_at(&s.cx(which), t, owner, line), Ok(true));
    line
}

#[test]
fn a_waiting_thread_is_woken_elsewhere_and_is_no_waiter_any_more() {
    for victim in [1, 2] {
        let s = Trio::new();
        let c = Cast::new(&s);
        c.started(&s, super::TRIO[victim], 1);
        let line = wait(&s, &c, victim);
        sound(&s);
        s.dies(victim);
        s.recover(0);
        assert_eq!(line.waiter.load(RELAXED), 0);
        let state = if victim == 2 {
            State::Ready
        } else {
            State::Stopped
        };
        assert_eq!((c.owner(&s).state, c.owner(&s).node), (state, node(0)));
        // It finds what comes meanwhile.
        let m = s.machines[0];
        m.enter();
        assert!(line.post(m.node(), 4).is_none());
        sound(&s);
    }
}

/// The dead node had handed the thread over and had not sent the message.
#[test]
fn a_thread_that_was_leaving_the_dead_node_arrives() {
    let s = Trio::new();
    let c = Cast::new(&s);
    let t = c.thread(&s);
    t.leaves(node(1), false);
    let to = Entry {
        component: c.component,
        address: 0x5000,
        badge: 0x6000,
    };
    store_handoff(t, HandoffKind::Return, [1, 2, 3, 4], to);
    c.own(&s, State::Transit, 2);
    s.dies(1);
    s.recover(0);
    let o = c.owner(&s);
    assert_eq!((o.state, o.node), (State::Ready, node(2)));
    assert_eq!(pc(t, Isa::X86_64), 0x5000);
    assert_eq!(result::<MockX86>(t), (0, 1));
    sound(&s);
}

/// The thread runs on node 0, in a service that it has entered by these crossings, and returns once node 1 is dead.
fn returns_once_node_1_is_dead(from: &[usize]) -> (Trio, Cast) {
    let s = Trio::new();
    let c = Cast::new(&s);
    let t = c.thread(&s);
    for isa in Isa::ALL {
        c.started(&s, isa, begun::HERE);
    }
    for (i, &n) in from.iter().enumerate() {
        c.push(&s, c.component, 0x5000 + i as u64, Some(n));
    }
    t.component.store(c.service.bits(), RELAXED);
    c.own(&s, State::Running, 0);
    let k = s.cx(0);
    k.local.thread.set(Some(t));
    s.dies(1);
    let left = invoke::leave::<MockX86>(&k, [1, 2, 3, 4]);
    assert_eq!(left, Ok(invoke::Returned::Switched));
    (s, c)
}

/// The caller's node has died meanwhile: only the callers further out can be told.
#[test]
fn a_return_to_a_dead_node_leads_to_the_last_caller_that_lives() {
    let (s, c) = returns_once_node_1_is_dead(&[2, 1]);
    s.recover(0);
    let (t, o) = (c.thread(&s), c.owner(&s));
    assert_eq!((o.state, o.node), (State::Ready, node(2)));
    assert_eq!(t.depth.load(RELAXED), 0);
    assert_eq!(pc(t, Isa::X86_64), 0x5000);
    assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
    assert_eq!(t.component.load(RELAXED), c.component.bits());
    let line = c.heard(&s, 2);
    assert_eq!(line.take(s.machines[2].node()), event(Woken::NodeDied));
    sound(&s);
}

/// Without a caller that lives the thread does not stay in the service, and no scheduler resumes it there.
#[test]
fn a_thread_all_of_whose_callers_have_died_ends_when_it_returns() {
    let (s, c) = returns_once_node_1_is_dead(&[1, 1]);
    let k = s.cx(0);
    assert!(k.local.thread.get().is_none());
    assert_eq!(c.owner(&s).state, State::Stopped);
    let resume = ThreadOp::Resume as u64;
    let resumed = ops::thread::dispatch::<MockX86>(&k, c.thread(&s), resume, [0; 5]);
    assert_eq!(resumed.err(), Some(Error::NodeDead));
    s.recover(0);
    sound(&s);
}

/// The root thread of a CPU is nobody else's.
#[test]
fn root_threads_are_stopped() {
    for state in [State::Ready, State::Running, State::Blocked] {
        let s = Trio::new();
        let c = Cast::new(&s);
        c.thread(&s).scheduler.store(0, RELAXED);
        c.started(&s, Isa::X86_64, 1);
        if state == State::Blocked {
            wait(&s, &c, 2);
        } else {
            c.own(&s, state, 2);
        }
        s.dies(2);
        s.recover(0);
        assert_eq!(c.owner(&s).state, State::Stopped);
        sound(&s);
    }
}

/// Threads of others, and of another incarnation, are left alone.
#[test]
fn threads_of_others_are_left_alone() {
    let s = Trio::new();
    let c = Cast::new(&s);
    for (state, which) in [(State::Running, 0), (State::Ready, 2), (State::Stopped, 1)] {
        let s0 = c.own(&s, state, which);
        if which == 1 {
            s.dies(1);
            s.recover(0);
        }
        assert_eq!(c.owner(&s), s0);
    }
}

/// A thread that the dead node was just configuring or resuming may be half changed: no CPU runs it
/// before it has been configured anew.
#[test]
fn threads_that_were_being_changed_are_stopped_for_good() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.started(&s, Isa::X86_64, 1);
    c.push(&s, c.component, 0x5000, Some(2));
    c.own(&s, State::Changing, 1);
    s.dies(1);
    s.recover(0);
    let (t, o) = (c.thread(&s), c.owner(&s));
    assert_eq!((o.state, o.node), (State::Stopped, node(0)));
    for isa in Isa::ALL {
        assert_eq!(t.begun(isa), begun::LOST);
    }
    sound(&s);
}

/// Wherever the recoverer dies, the thread comes back exactly once.
#[test]
fn threads_come_back_once_wherever_the_recoverer_dies() {
    let s = Trio::new();
    let c = Cast::new(&s);
    c.started(&s, Isa::X86_64, 1);
    c.push(&s, c.component, 0x5000, Some(2));
    c.push(&s, c.service, 0x6000, None);
    c.push(&s, c.service, 0x7000, None);
    for state in [State::Running, State::Transit, State::Ready, State::Blocked] {
        if state == State::Blocked {
            wait(&s, &c, 1);
        } else {
            c.own(&s, state, 1);
        }
        let saved = s.save();
        for steps in 0.. {
            s.restore(&saved);
            s.dies(1);
            let ended = crash::after(steps, || while s.step(0) != Pace::Idle {}).is_some();
            // Those who live take what has come by then, or later.
            if steps % 2 == 0 {
                s.drain();
            }
            s.dies(0);
            s.recover(2);
            let (t, o) = (c.thread(&s), c.owner(&s));
            assert_eq!((o.state, o.node), (State::Ready, node(2)), "{steps}");
            assert_eq!(t.depth.load(RELAXED), 0, "{state:?} {steps}");
            assert_eq!(pc(t, Isa::X86_64), 0x5000);
            assert_eq!(result::<MockX86>(t).0, Error::NodeDead.code());
            assert_ne!(c.heard(&s, 2).take(s.machines[2].node()), 0);
            sound(&s);
            if ended {
                break;
            }
        }
        s.restore(&saved);
    }
}
