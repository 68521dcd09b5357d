//! Owner words of threads of a dead node that another CPU steps while recovery takes them.

use core::cell::Cell;
use std::rc::Rc;
use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::{ThreadOp, Woken};
use dyad_core::host::{MockX86, crash};
use dyad_core::migrate::carried::{HandoffKind, store_handoff};
use dyad_core::sched::dispatch;
use dyad_core::syscall::ops;
use dyad_object::component::Entry;
use dyad_object::endpoint::Waiter;
use dyad_object::thread::{State, Thread};

use super::threads::{Cast, RELAXED, sound, wait};
use super::{Trio, node};

/// All words of a thread but for the owner word and those of event lists.
fn words(s: &Trio, t: &'static Thread) -> Vec<u64> {
    let map = s.machines[0].node().map;
    let at = map.physical(core::ptr::from_ref(t) as u64).unwrap();
    let events = core::mem::offset_of!(Thread, event_link) as u64;
    (8..4096)
        .step_by(8)
        .filter(|at| !(events..events + 64).contains(at))
        .map(|offset| map.word(at.add(offset)).load(RELAXED))
        .collect()
}

/// What another CPU does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    Stops,
    Wakes,
    TakesBack,
}

/// Node 2 dies with the thread in a state, and another CPU changes the owner word before each step of the
/// recoverer in turn. How often the other CPU was faster, and how often the recoverer was.
fn race(state: State, other: Other) -> [u32; 2] {
    let mut faster = [0; 2];
    for steps in 0.. {
        let s = Trio::new();
        let c = Cast::new(&s);
        let t = c.thread(&s);
        // On both ISAs: recovery steps what it says of the one that the dead node does not have.
        for isa in Isa::ALL {
            c.started(&s, isa, 1);
        }
        t.budget.store(1, RELAXED);
        let to = Entry {
            component: c.scheduler,
            address: 0x5000,
            badge: 0x6000,
        };
        store_handoff(t, HandoffKind::Jump, [1, 2, 3, 4], to);
        t.leaves(node(0), true);
        match state {
            State::Blocked => {
                wait(&s, &c, 2);
            }
            _ => {
                c.own(&s, state, 2);
            }
        }
        let before = words(&s, t);
        s.dies(2);
        let from = c.owner(&s);
        let mine = dyad_object::thread::Owner {
            state: State::Running,
            node: node(0),
            incarnation: 1,
            seq: 4,
        };
        let won = Rc::new(Cell::new(None));
        let (result, k) = (won.clone(), s.cx(0));
        let act = move || {
            // Once the thread is another node's, this is an operation like any other.
            if t.owner(k.words()).is_none_or(|now| now.node != from.node) {
                return;
            }
            let stop = ThreadOp::Stop as u64;
            let done = match other {
                Other::Stops => ops::thread::dispatch::<MockX86>(&k, t, stop, [0; 5]).is_ok(),
                Other::Wakes => {
                    let waiter = Waiter {
                        thread: t,
                        number: from.seq,
                    };
                    dispatch::wake::<MockX86>(&k, waiter, Woken::Ready).is_ok()
                }
                Other::TakesBack => t.change(k.words(), from, mine),
            };
            result.set(Some(done));
        };
        let came = crash::between(steps, act, || s.recover(0));
        let now = c.owner(&s);
        match won.get() {
            Some(true) => {
                faster[0] += 1;
                let told = std::format!("{state:?} {other:?} before step {steps}");
                match other {
                    // The thread was not the recoverer's: nothing of it has been stored to.
                    Other::Stops => {
                        assert_eq!((now.state, now.node), (State::Stopped, from.node), "{told}");
                    }
                    Other::TakesBack => assert_eq!(now, mine, "{told}"),
                    Other::Wakes => {
                        assert_eq!((now.state, now.node), (State::Ready, node(0)), "{told}");
                    }
                }
                if other != Other::Wakes {
                    assert!(words(&s, t) == before, "the recoverer has stored: {told}");
                }
            }
            Some(false) => {
                faster[1] += 1;
                assert!(matches!(now.state, State::Ready | State::Stopped));
                assert_eq!(now.node, node(0));
            }
            None => {}
        }
        if other != Other::TakesBack {
            assert_eq!(
                c.endpoints(&s, c.waits)
                    .line(9)
                    .unwrap()
                    .waiter
                    .load(RELAXED),
                0
            );
        }
        if !matches!(now.state, State::Running) {
            sound(&s);
        }
        if !came {
            break;
        }
    }
    faster
}

#[test]
fn a_thread_that_another_cpu_takes_from_a_dead_node_is_left_as_it_was() {
    for (state, other) in [
        (State::Ready, Other::Stops),
        (State::Blocked, Other::Stops),
        (State::Blocked, Other::Wakes),
        (State::Transit, Other::TakesBack),
    ] {
        let faster = race(state, other);
        assert!(
            faster.iter().all(|&n| n != 0),
            "{state:?} {other:?} {faster:?}"
        );
    }
}
