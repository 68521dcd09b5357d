//! Nodes die while threads are interpreted: where they are, or where they come from.
//!
//! | check | the node that dies is | what becomes of the thread |
//! |---|---|---|
//! | `emulate-threads.doomed-lands` | that it was stopped on | it comes to its point, and goes on natively where it is |
//! | `emulate-threads.doomed-back` | that it was stopped on; then it comes to an instruction that is not interpreted | it goes on natively on another node of that ISA |
//! | `emulate-threads.doomed-lost` | that it is on | it is lost, like any thread whose node dies: `join` says so |
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

/// Comes to its point then.
fn lands() -> Result<(bool, NodeId)> {
    let same = until_dead();
    let mut rounds = 0;
    while emulation::progress_of(thread::current().number())
        .is_some_and(|p| p.status == status::EMULATED)
        && rounds < 10
    {
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
    let landing = thread::spawn_on(doomed, lands)?;
    let going_back = thread::spawn_on(doomed, goes_back)?;
    let lost = thread::spawn_on(home, until_dead)?;
    let threads = [
        (landing.thread().number(), home),
        (going_back.thread().number(), home),
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
        let is = |p: emulation::Progress| p.status == status::EMULATED;
        Ok((threads.iter()).all(|&(n, _)| emulation::progress_of(n).is_some_and(is)))
    })?;
    println!("node {node} may die now");
    wait("a node dies", || Ok(!lives(doomed)?))?;
    let refused = emulation::request(doomed, Instant::now());
    report::check(
        "emulate-threads.doomed-asks",
        refused == Err(sys::Error::NodeDead),
        format_args!("{refused:?}"),
    );
    DEAD.store(1, Ordering::Release);

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
    let joined = lost.join().err().and_then(|e| e.system());
    report::check(
        "emulate-threads.doomed-lost",
        joined == Some(sys::Error::NodeDead),
        format_args!("{joined:?}"),
    );

    until_emulated(other)?;
    println!("node {other} may die now");
    loop {
        work::registers(5, 50);
    }
}
