//! Nodes die while threads are interpreted: where they are, or where they come from.
//!
//! | check | the node that dies is | what becomes of the thread |
//! |---|---|---|
//! | `emulate-threads.doomed-lands` | that it was stopped on | it comes to its point, and goes on natively where it is |
//! | `emulate-threads.doomed-back` | that it was stopped on; then it comes to an instruction that is not interpreted | it goes on natively on another node of that ISA |
//! | `emulate-threads.doomed-waits` | that it is on, while it waits | it goes on on another node of that ISA, and comes to its point there |
//! | `emulate-threads.doomed-lost` | that it is on | if it ran just then it is lost: `join` says so; otherwise as if it had waited |
//! | `emulate-threads.doomed-asks` | that it is to be moved to | refused: `NodeDead` |
//!
//! The program says which node is to die when all threads are where they are to be. In the end the first thread
//! itself waits, interpreted, for the death of the node that it is on, which ends the program.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad::emulation::{self, refused, status};
use dyad::prelude::thread::*;
use dyad::{report, sys, thread};

use crate::strange::until_emulated;
use crate::work;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that have begun, by bit of their number.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Whether the node has died.
static DEAD: AtomicU64 = AtomicU64::new(0);
/// Whether the thread that is to wait is about to.
static WAITS: AtomicU64 = AtomicU64::new(0);
/// How long that one has until it does.
const ABOUT: Duration = Duration::from_millis(100);

/// Computes until the node has died.
fn until_dead() -> bool {
    let number = thread::current().number();
    let expected = work::registers(5, 50);
    BEGUN.fetch_or(1 << number, Ordering::Release);
    let mut same = true;
    while DEAD.load(Ordering::Acquire) == 0 {
        same &= work::registers(5, 50) == expected;
    }
    same
}

/// Waits until the node has died, from when on it is interpreted.
fn waits_until_dead() -> bool {
    let number = thread::current().number();
    let expected = work::registers(5, 50);
    BEGUN.fetch_or(1 << number, Ordering::Release);
    let mut same = true;
    while !is_interpreted(number) {
        same &= work::registers(5, 50) == expected;
    }
    WAITS.store(1, Ordering::Release);
    while DEAD.load(Ordering::Acquire) == 0 {
        thread::park();
    }
    same
}

fn is_interpreted(thread: usize) -> bool {
    emulation::progress_of(thread).is_some_and(|p| p.status == status::EMULATED)
}

/// Comes to its point then.
fn lands(until_dead: fn() -> bool) -> Result<(bool, NodeId)> {
    let same = until_dead();
    let mut rounds = 0;
    while is_interpreted(thread::current().number()) && rounds < 10 {
        dyad::thread::migrate_point();
        rounds += 1;
    }
    let round = work::round(3, 7, 20);
    Ok((same && round.is_ok(), sys::where_am_i()?.node))
}

/// Comes to an instruction then that is not interpreted.
fn goes_back() -> Result<(bool, NodeId)> {
    let same = until_dead();
    emulation::strange();
    let round = work::round(3, 7, 20);
    Ok((same && round.is_ok(), sys::where_am_i()?.node))
}

/// Waits for something, without the CPU.
fn wait(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !done()? {
        if begin.elapsed() > PATIENCE {
            return Err(Error::msg(format_args!("{what}: not after {PATIENCE:?}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn lives(node: NodeId) -> Result<bool> {
    Ok(dyad::system()?.node(node).is_some_and(|n| n.live))
}

/// Whether a thread has done all that it was to do, on a node.
fn went_on(end: &Result<Result<(bool, NodeId)>>, node: NodeId) -> bool {
    matches!(end, Ok(Ok((true, at))) if *at == node)
}

/// Plays all scenes in which a node dies.
pub fn all(node: u64) -> Result<()> {
    let (home, doomed) = (
        dyad::node(),
        NodeId::new(node).ok_or(sys::Error::NoSuchNode)?,
    );
    let other = (dyad::system()?.nodes())
        .find(|n| n.isa != dyad::isa() && n.id != doomed)
        .ok_or(sys::Error::NoIsa)?
        .id;
    let landing = thread::spawn_on(doomed, || lands(until_dead))?;
    let going_back = thread::spawn_on(doomed, goes_back)?;
    let waiting = thread::spawn_on(home, || lands(waits_until_dead))?;
    let lost = thread::spawn_on(home, || lands(until_dead))?;
    let threads = [
        (landing.thread().number(), home),
        (going_back.thread().number(), home),
        (waiting.thread().number(), doomed),
        (lost.thread().number(), doomed),
    ];
    let begun = threads.iter().fold(0, |all, (n, _)| all | 1 << n);
    wait("threads begin", || {
        Ok(BEGUN.load(Ordering::Acquire) == begun)
    })?;
    for (thread, to) in threads {
        emulation::request_thread(thread, to, Instant::now())?;
    }
    wait("threads are interpreted", || {
        let all = threads.iter().all(|&(n, _)| is_interpreted(n));
        Ok(all && WAITS.load(Ordering::Acquire) != 0)
    })?;
    thread::sleep(ABOUT);
    println!("node {node} may die now");
    wait("a node dies", || Ok(!lives(doomed)?))?;
    let refused = emulation::request(doomed, Instant::now());
    report::check(
        "emulate-threads.doomed-asks",
        refused == Err(sys::Error::NodeDead),
        format_args!("{refused:?}"),
    );
    DEAD.store(1, Ordering::Release);
    waiting.thread().unpark();

    let (same, at) = landing.join()??;
    let p = emulation::progress_of(threads[0].0).ok_or(sys::Error::NotReady)?;
    report::check(
        "emulate-threads.doomed-lands",
        same && at == home && p.status == status::LANDED,
        format_args!("it {p}, and is on node {at}"),
    );
    let (same, at) = going_back.join()??;
    let p = emulation::progress_of(threads[1].0).ok_or(sys::Error::NotReady)?;
    let back = p.status == status::BACK && p.outcome == refused::UNKNOWN;
    report::check(
        "emulate-threads.doomed-back",
        same && at == other && back,
        format_args!("it {p}, and is on node {at}"),
    );
    let end = waiting.join();
    let p = emulation::progress_of(threads[2].0).ok_or(sys::Error::NotReady)?;
    report::check(
        "emulate-threads.doomed-waits",
        went_on(&end, other) && p.status == status::LANDED,
        format_args!("{end:?}, it {p}"),
    );
    let end = lost.join();
    let p = emulation::progress_of(threads[3].0).ok_or(sys::Error::NotReady)?;
    let why = end.as_ref().err().and_then(|e| e.system());
    report::check(
        "emulate-threads.doomed-lost",
        why == Some(sys::Error::NodeDead) || went_on(&end, other) && p.status == status::LANDED,
        format_args!("{end:?}, it {p}"),
    );

    until_emulated(other)?;
    println!("node {other} may die now");
    loop {
        work::registers(5, 50);
    }
}
