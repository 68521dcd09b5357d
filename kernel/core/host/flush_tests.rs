//! What CPUs ask each other for: flushes of translations, messages.

use core::sync::atomic::Ordering;

use super::system::{System, cx, this};
use super::{Did, MockA64, MockX86, crash};
use crate::run_loop::messages;
use dyad_machine::inbox;
use dyad_space::shootdown;

/// Who asks for a flush has dropped its own translations when it goes on, also if a round is under way.
#[test]
fn own_translations_go_with_every_request() {
    let s = System::new(200);
    let space = s.space();
    let x = s.x();
    let c = cx(x);
    for n in 0..4 {
        x.did();
        shootdown::request::<MockX86>(&this(&c, space));
        assert!(x.did().contains(&Did::FlushedTlb), "request {n}");
    }
}

/// A flush that is asked for while a CPU does what it has been asked for is done, at once or later.
#[test]
fn no_flush_is_lost_that_is_asked_for_during_another() {
    let mut steps = 0;
    loop {
        let s = System::new(200);
        let (x, a) = (s.x(), s.a());
        let first = dyad_machine::cpu::FIRST_CPU;
        x.enter();
        inbox::ask_to_flush::<MockX86>(a.node().id(), first);
        a.enter();
        let act = move || {
            x.enter();
            inbox::ask_to_flush::<MockX86>(a.node().id(), first);
            a.enter();
            a.did();
        };
        let came = crash::between(steps, act, messages::drain::<MockA64>);
        if !came {
            break;
        }
        messages::drain::<MockA64>();
        assert!(a.did().contains(&Did::FlushedTlb), "step {steps}");
        steps += 1;
    }
    assert!(steps > 1);
}

/// A CPU that has not taken all messages comes back for the others.
#[test]
fn messages_are_all_taken() {
    let s = System::new(200);
    let (x, a) = (s.x(), s.a());
    let first = dyad_machine::cpu::FIRST_CPU;
    x.enter();
    let mut sent = 0;
    // Numbered ones of tests: what is refused is reported, and reports of all tests of the process have one budget.
    let message = |n| {
        let mut m = dyad_ring::Message::default();
        (m.0[0], m.0[2]) = (inbox::kind::TEST, n);
        m
    };
    while inbox::send::<MockX86>(a.node().id(), first, &message(sent)).is_ok() {
        sent += 1;
    }
    assert!(sent > 20, "{sent}");
    a.enter();
    let pending = || {
        a.node()
            .sb
            .cpu(a.node().id(), first)
            .pending
            .load(Ordering::Relaxed)
            != 0
    };
    let mut turns = 0;
    while pending() {
        messages::drain::<MockA64>();
        turns += 1;
    }
    let mut inboxes = a.local().inboxes.borrow_mut();
    let next = inboxes[0].as_mut().map(|i| i.pop(a.node().words));
    assert!(
        matches!(next, Some(Ok(None))),
        "{sent} sent, {turns} turns: {next:?}"
    );
}
