//! Floating-point registers of a side that waits in `Migrate`: whatever the thread does on that ISA
//! meanwhile, it finds them when it comes back, and nothing else does.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, CapType, ObjectKind, Rights, ThreadOp};
use dyad_abi::user::{away_window, gate, only_window};
use dyad_abi::{Error, Isa};
use dyad_captbl::{Contents, SlotPlace};
use dyad_shm::frame::WeakRef;

use super::fp_tests::swap;
use super::thread_tests::{SERVICE, dispatch, op, pair};
use super::travel_tests::{hears, traveller};
use super::{Machine, MockA64, MockX86};
use crate::ktest::rig::Rig;
use crate::sched::fp;
use crate::syscall::entry;
use dyad_machine::Platform;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::thread::Thread;

/// One of the two machines, with what it needs to run the thread.
#[derive(Clone, Copy)]
struct Side<'r> {
    rig: &'r Rig<'r>,
    m: Machine,
    t: &'static Thread,
    /// Of the thread, in its own table.
    cap: CapIndex,
    scheduler: WeakRef,
}

impl Side<'_> {
    fn node(&self) -> u64 {
        self.m.node().id().index() as u64
    }

    /// The thread arrives here and runs.
    fn arrives<P: Platform>(&self) {
        assert!(hears::<P>(self.rig, self.m, self.scheduler).is_some());
        let object = dyad_object::reference(self.m.node(), self.t).unwrap();
        let cap = self.rig.cap(ObjectKind::Thread, object, Rights::ALL);
        dispatch::<P>(self.rig, self.m, cap.unwrap(), 0);
    }

    fn migrates<P: Platform>(&self, to: u64) {
        self.m
            .call::<P>(self.t, op(self.cap, ThreadOp::Migrate as u64), &[to]);
    }

    fn invokes<P: Platform>(&self, sinv: CapIndex) {
        self.m.call::<P>(self.t, op(sinv, 0), &[1, 2, 3, 4]);
    }

    fn returns<P: Platform>(&self) {
        self.m.call::<P>(self.t, 0, &[0; 4]);
    }

    /// The thread executes what is on the other ISA only.
    fn crosses<P: Platform>(&self, address: u64) {
        let fault = UserFault {
            kind: FaultKind::Execute,
            address,
            raw: 0,
        };
        self.m.enter();
        self.m
            .kernel(|| entry::foreign_fault::<P>(self.t.regs(P::ISA), fault));
    }

    /// The thread puts a value into its registers, and another thread wants them. What was there before.
    fn swaps<P: Platform>(&self, value: u64) -> u64 {
        let before = swap::<P>(self.m, self.t, value);
        self.m.enter();
        fp::put_away::<P>(self.m.local());
        before
    }
}

/// What the thread does between leaving the side that waits and coming back to it.
struct Between<'r> {
    /// The side that waits, and the one where the thread runs.
    waits: Side<'r>,
    runs: Side<'r>,
    /// A service on the ISA of the side that waits; in that one's table, a service on the other ISA.
    service: CapIndex,
    second: CapIndex,
}

fn sides<W: Platform, R: Platform>(between: impl Fn(&Between<'_>)) {
    pair(|(rx, x), (ra, a)| {
        let (cap, t, scheduler) = traveller(rx, x);
        let side = |rig, m| Side {
            rig,
            m,
            t,
            cap,
            scheduler,
        };
        let (waits, runs) = match W::ISA {
            Isa::X86_64 => (side(rx, x), side(ra, a)),
            Isa::Aarch64 => (side(ra, a), side(rx, x)),
        };
        // In the table of the thread's component, and of the service.
        let (service, _, leaf) = rx.other_component()?;
        let (second, _, _) = rx.other_component()?;
        for (what, at) in [(service, waits), (second, runs)] {
            let c: &Component = find(x.node(), what, Component::KIND)?;
            c.home.store(1 << at.node(), Ordering::Relaxed);
        }
        let contents = Contents {
            ty: CapType::Sinv,
            rights: Rights::ALL,
            object: Some(second),
            guard: None,
            payload: [SERVICE, 0, 0],
        };
        let at = SlotPlace::new(leaf, 5).ok_or(Error::Corrupt)?;
        crate::syscall::ops::captbl::activate(&rx.k, at, &contents)?;
        let b = Between {
            waits,
            runs,
            service: rx.sinv(service, SERVICE, 0)?,
            second: CapIndex(5),
        };
        if W::ISA == Isa::Aarch64 {
            runs.migrates::<R>(waits.node());
            waits.arrives::<W>();
        }
        assert_eq!(waits.swaps::<W>(7), 0);
        // Another value each time: an older one may still be in the other area.
        for round in 0..3 {
            waits.migrates::<W>(runs.node());
            runs.arrives::<R>();
            between(&b);
            runs.migrates::<R>(waits.node());
            waits.arrives::<W>();
            let found = waits.swaps::<W>(8 + round);
            assert_eq!(found, 7 + round, "round {round}");
        }
        waits.m.call::<W>(t, op(cap, ThreadOp::Exit as u64), &[0]);
        Ok(None)
    });
}

/// A service on the ISA of the side that waits, before or after which the running side uses its own
/// registers, or not.
fn services<W: Platform, R: Platform>() {
    for [before, inside, after] in (0..8).map(|n| [0, 1, 2].map(|bit| n >> bit & 1 != 0)) {
        sides::<W, R>(|b| {
            for _ in 0..2 {
                if before {
                    b.runs.swaps::<R>(5);
                }
                b.runs.invokes::<R>(b.service);
                b.waits.arrives::<W>();
                if inside {
                    assert_eq!(b.waits.swaps::<W>(9), 0, "the service finds the thread's");
                }
                b.waits.returns::<W>();
                b.runs.arrives::<R>();
                if after {
                    assert_eq!(b.runs.swaps::<R>(6), 0, "the thread finds others'");
                }
            }
        });
    }
}

#[test]
fn a_service_on_the_isa_of_a_side_that_waits_takes_nothing_from_it() {
    services::<MockX86, MockA64>();
    services::<MockA64, MockX86>();
}

/// A service there that invokes one on the ISA where the thread runs, and uses registers again afterwards.
fn services_in_services<W: Platform, R: Platform>() {
    sides::<W, R>(|b| {
        b.runs.swaps::<R>(5);
        b.runs.invokes::<R>(b.service);
        b.waits.arrives::<W>();
        assert_eq!(b.waits.swaps::<W>(9), 0);
        b.waits.invokes::<W>(b.second);
        b.runs.arrives::<R>();
        assert_eq!(b.runs.swaps::<R>(10), 0);
        b.runs.returns::<R>();
        b.waits.arrives::<W>();
        assert_eq!(b.waits.swaps::<W>(11), 0);
        b.waits.returns::<W>();
        b.runs.arrives::<R>();
        assert_eq!(b.runs.swaps::<R>(12), 0);
    });
}

#[test]
fn services_of_services_take_nothing_from_a_side_that_waits() {
    services_in_services::<MockX86, MockA64>();
    services_in_services::<MockA64, MockX86>();
}

/// A crossing call to the ISA of the side that waits, with something in the registers or without; the
/// function calls one on the other ISA.
fn calls<W: Platform, R: Platform>() {
    let function = |isa| away_window(isa).0 + 0x1000;
    let comes_back = |isa: Isa| only_window(isa).0 + gate::RETURN;
    for changes in [false, true] {
        // The side that runs has something from the round before.
        let has = Cell::new(0);
        sides::<W, R>(|b| {
            if changes {
                assert_eq!(b.runs.swaps::<R>(5), has.replace(5));
            }
            b.runs.crosses::<R>(function(W::ISA));
            b.waits.arrives::<W>();
            assert_eq!(b.waits.swaps::<W>(9), has.replace(12));
            b.waits.crosses::<W>(function(R::ISA));
            b.runs.arrives::<R>();
            assert_eq!(b.runs.swaps::<R>(10), 9);
            b.runs.crosses::<R>(comes_back(W::ISA));
            b.waits.arrives::<W>();
            assert_eq!(b.waits.swaps::<W>(11), 10);
            b.waits.crosses::<W>(comes_back(R::ISA));
            b.runs.arrives::<R>();
            assert_eq!(b.runs.swaps::<R>(12), 11);
        });
    }
}

#[test]
fn crossing_calls_take_nothing_from_a_side_that_waits() {
    calls::<MockX86, MockA64>();
    calls::<MockA64, MockX86>();
}
