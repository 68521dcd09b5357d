//! Shootdowns: what CPUs ask each other to flush. Messages between them.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::Error;

use super::resolve_tests::incoherent;
use super::system::{System, cpu, cx, this};
use super::{Did, MockA64, MockX86, crash};
use crate::run_loop::messages;
use crate::sched::quiet;
use dyad_machine::inbox;
use dyad_space::shootdown;

#[test]
fn a_shootdown_is_over_when_every_cpu_that_is_awake_has_dropped_its_tlb() {
    let s = System::new(120);
    let space = s.space();
    let (x, a) = (s.x(), s.a());
    let c = cx(x);
    let t = this(&c, space);
    x.did();
    let is_done = |ticket| {
        x.enter();
        shootdown::is_done::<MockX86>(&t, ticket)
    };
    let ticket = shootdown::request::<MockX86>(&t);
    assert!(x.did().contains(&Did::FlushedTlb));
    assert_eq!(is_done(ticket), Ok(false));
    assert_eq!(is_done(ticket + 1), Err(Error::BadArgument));
    a.enter();
    a.did();
    messages::drain::<MockA64>();
    assert_eq!(a.did(), [Did::FlushedTlb]);
    assert_eq!(is_done(ticket), Ok(true));
    let later = shootdown::request::<MockX86>(&t);
    assert_eq!(is_done(later), Ok(false), "asked anew");
    assert_eq!(is_done(ticket), Ok(true));
    // A node that is dead, or asleep, holds nothing.
    s.world
        .set_state(x.node(), 1, dyad_shm::superblock::NodeState::Dead);
    assert_eq!(is_done(later), Ok(true));
}

/// Requests without end, of the same space or of another one, cost another CPU one flush each time that it
/// looks, and are never refused; a ticket is done once that CPU has looked twice.
#[test]
fn shootdowns_that_are_asked_for_without_end_hold_up_no_other() {
    let s = System::new(200);
    let (space, other) = (s.space(), s.space());
    let (x, a) = (s.x(), s.a());
    let c = cx(x);
    let (t, u) = (this(&c, space), this(&c, other));
    let looks = || {
        a.enter();
        a.did();
        messages::drain::<MockA64>();
        let did = a.did();
        x.enter();
        did
    };
    let flood = |times: u64| {
        for _ in 0..times {
            shootdown::request::<MockX86>(&t);
            shootdown::request::<MockX86>(&u);
        }
    };
    flood(1_000);
    let ticket = shootdown::request::<MockX86>(&t);
    assert_eq!(ticket, 1_001, "a number of its space alone");
    for round in 0..2 {
        assert_eq!(
            shootdown::is_done::<MockX86>(&t, ticket),
            Ok(false),
            "{round}"
        );
        flood(1_000);
        assert_eq!(looks(), [Did::FlushedTlb], "one flush for all");
        flood(1);
    }
    assert_eq!(shootdown::is_done::<MockX86>(&t, ticket), Ok(true));
    // What it was asked for later is not done.
    let later = shootdown::request::<MockX86>(&t);
    looks();
    assert_eq!(shootdown::is_done::<MockX86>(&t, later), Ok(false));
    looks();
    assert_eq!(shootdown::is_done::<MockX86>(&t, later), Ok(true));
}

/// A CPU that slept when it was to be asked, or whose asker died before, is asked by the caller that waits.
#[test]
fn a_cpu_that_has_not_been_asked_to_flush_is_asked_again() {
    let s = System::new(120);
    let space = s.space();
    let (x, a) = (s.x(), s.a());
    let c = cx(x);
    let t = this(&c, space);
    let ticket = shootdown::request::<MockX86>(&t);
    let asked = a.node().sb.cpu(a.node().id(), cpu(0));
    for word in [&asked.flush, &asked.pending] {
        word.store(0, Ordering::Relaxed);
    }
    assert_eq!(shootdown::is_done::<MockX86>(&t, ticket), Ok(false));
    a.enter();
    messages::drain::<MockA64>();
    x.enter();
    assert_eq!(shootdown::is_done::<MockX86>(&t, ticket), Ok(true));
}

/// A CPU that asks for a flush drops its own translations first, each time that it asks.
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

/// A CPU that has not taken all messages, or all threads, comes back for the others.
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
    let drained = || {
        let mut turns = 0;
        while pending() {
            messages::drain::<MockA64>();
            turns += 1;
        }
        turns
    };
    let turns = drained();
    let mut inboxes = a.local().inboxes.borrow_mut();
    let next = inboxes[0].as_mut().map(|i| i.pop(a.node().words));
    assert!(
        matches!(next, Some(Ok(None))),
        "{sent} sent, {turns} turns: {next:?}"
    );
    drop(inboxes);
    // More than one turn takes, of one sender. No thread has these ids: nothing else sets a bit.
    for id in 0..=dyad_ring::arrivals::BATCH as u64 {
        inbox::announce::<MockX86>(a.node().id(), first, id).unwrap();
    }
    assert_eq!(drained(), 2, "turns");
}

/// A CPU that finds work before all of its caches are dropped drops all of them when it next falls asleep: it may have used
/// shared words meanwhile.
#[test]
fn a_cpu_that_does_not_fall_asleep_begins_anew_the_next_time() {
    let s = System::new(120);
    let Some(c) = incoherent(s.x()) else {
        return; // This host cannot flush lines.
    };
    quiet::attach(&c);
    quiet::join::<MockX86>(&c).unwrap();
    // How often it looks for work until it sleeps, or until it has looked `most` times.
    let looks = |most| {
        let seen = Cell::new(0);
        let work = || seen.replace(seen.get() + 1) == most;
        let sleeps = quiet::sleep::<MockX86>(&c, work);
        quiet::wake(&c);
        (sleeps, seen.get())
    };
    let (sleeps, whole) = looks(u32::MAX);
    assert!(sleeps && whole > 4, "{sleeps}, {whole}");
    assert!(!looks(whole / 2).0);
    assert_eq!(looks(u32::MAX), (true, whole));
    *c.local.log.borrow_mut() = None;
}
