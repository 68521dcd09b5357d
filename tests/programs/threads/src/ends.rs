//! How threads, and programs with threads, end.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad::prelude::task::*;
use dyad::sync::{Condvar, Mutex};
use dyad::{heap, report, sys, thread};

use dyad_abi::service::{process, slot};
use sys::cap::{Cap, Sinv, Thread};

use crate::nodes;

static NEVER: Mutex<()> = Mutex::new(());
static NOTHING: Condvar = Condvar::new();
static HELD: Mutex<u32> = Mutex::new(0);
static READY: AtomicU32 = AtomicU32::new(0);

/// Words that are placed on a node that dies, and the first one of the last page of a copy.
const PLACED: usize = 4096;
const LAST_PAGE: usize = PLACED - 512;

fn ready() {
    READY.fetch_add(1, Ordering::Release);
    dyad::futex::wake_all(&READY);
}

/// Waits until so many threads are what they are to be.
fn until_ready(count: u32) {
    loop {
        let now = READY.load(Ordering::Acquire);
        if now >= count {
            return;
        }
        let end = Instant::now() + Duration::from_millis(100);
        let _ = dyad::futex::wait(&READY, now, end.as_nanos());
    }
}

/// Exits with codes that no exit code is, then with one that init uses itself.
pub fn codes() -> Result<()> {
    let process = Cap::<Sinv>::at(slot::PROCESS);
    for code in [1 << 32, 1 << 63, u64::MAX] {
        let refused = process.request([process::EXIT, code, 0, 0]);
        report::check(
            "threads.codes",
            refused == Err(sys::Error::BadArgument),
            format_args!("{code:#x}: {refused:?}"),
        );
    }
    sys::exit(process::LOST_CODE as u32)
}

/// Ends the first thread as only the kernel knows.
pub fn leave() -> Result<()> {
    Err(Cap::<Thread>::at(slot::THREAD).exit(0).into())
}

/// Threads begin on all nodes, each with a number that no thread has had, while the program ends, after so many milliseconds.
pub fn begin_and_exit(millis: u64) -> Result<()> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    fn begin_for_ever(nodes: &[NodeId]) {
        loop {
            let n = STARTED.fetch_add(1, Ordering::Relaxed) as usize;
            // Without a free number nothing begins.
            let _ = thread::spawn_on(nodes[n % nodes.len()], || {
                thread::sleep(Duration::from_secs(60));
            });
        }
    }
    let nodes = nodes()?;
    for n in 0..3 {
        let all = nodes.clone();
        let _ = thread::spawn_on(nodes[n % nodes.len()], move || {
            if n == 0 {
                until_ready(1);
                let end = Instant::now() + Duration::from_millis(millis);
                while Instant::now() < end {}
                let process = Cap::<Sinv>::at(slot::PROCESS);
                let _ = process.request([process::EXIT, 0, 0, 0]);
            }
            begin_for_ever(&all)
        })?;
    }
    ready();
    begin_for_ever(&nodes);
    Ok(())
}

fn wait_for_ever() {
    ready();
    let mut guard = NEVER.lock();
    loop {
        guard = NOTHING.wait(guard);
    }
}

fn compute_for_ever() {
    ready();
    let mut n = 0u64;
    loop {
        n = core::hint::black_box(n).wrapping_add(1);
    }
}

fn print_for_ever() {
    ready();
    loop {
        println!("still here");
        thread::sleep(Duration::from_millis(5));
    }
}

fn allocate_for_ever() {
    ready();
    for n in 0.. {
        core::hint::black_box(vec![n; 1 + n as usize % 5000]);
    }
}

fn map_for_ever() {
    ready();
    loop {
        if let Ok(start) = sys::map_anon(1 << 16) {
            core::hint::black_box(start);
        }
        thread::yield_now();
    }
}

/// Starts threads that never end, of every kind on every node; gives when all are at it.
fn crowd(kinds: &[fn()]) -> Result<()> {
    let mut started = 0;
    for &node in &nodes()? {
        for &kind in kinds {
            drop(thread::spawn_on(node, kind)?);
            started += 1;
        }
    }
    until_ready(started);
    Ok(())
}

/// Ends the program in a thread, in the middle of everything.
pub fn exit() -> Result<()> {
    crowd(&[
        wait_for_ever,
        compute_for_ever,
        print_for_ever,
        allocate_for_ever,
        map_for_ever,
    ])?;
    thread::sleep(Duration::from_millis(20));
    let last = nodes()?.last().copied().unwrap_or(dyad::node());
    drop(thread::spawn_on(last, || -> () { sys::exit(7) })?);
    compute_for_ever();
    Ok(())
}

/// One panics, others wait for what it will never do.
pub fn panic() -> Result<()> {
    crowd(&[wait_for_ever, wait_for_ever])?;
    let last = nodes()?.last().copied().unwrap_or(dyad::node());
    let thread = thread::spawn_on(last, || -> u32 {
        let held = HELD.lock();
        ready();
        thread::sleep(Duration::from_millis(5));
        panic!("nobody will open what holds {}", *held);
    })?;
    until_ready(
        READY
            .load(Ordering::Relaxed)
            .max(2 * nodes()?.len() as u32 + 1),
    );
    drop(HELD.lock());
    report::check(
        "threads.panic",
        false,
        "the lock of a thread that panics was opened",
    );
    thread.join().map(drop)
}

/// One faults, others wait for it.
#[allow(unsafe_code)]
pub fn fault() -> Result<()> {
    crowd(&[wait_for_ever])?;
    let last = nodes()?.last().copied().unwrap_or(dyad::node());
    let thread = thread::spawn_on(last, || -> u64 {
        let nowhere = core::ptr::with_exposed_provenance::<u64>(0x1234_5678);
        // SAFETY: 1. It is not: nothing is mapped there, which is the test.
        unsafe { nowhere.read_volatile() }
    })?;
    thread.join().map(drop)
}

/// Runs out of stack.
#[allow(unconditional_recursion)]
fn deep(n: u64) -> u64 {
    let room = core::hint::black_box([n; 64]);
    deep(n + 1) + room[n as usize % 64]
}

/// One runs out of stack, others wait for it.
pub fn overflow() -> Result<()> {
    crowd(&[wait_for_ever])?;
    let last = nodes()?.last().copied().unwrap_or(dyad::node());
    thread::spawn_on(last, || deep(0))?.join().map(drop)
}

/// State of the first thread is used by another one.
pub fn asynchronous() -> Result<()> {
    thread::spawn(|| drop(dyad::task::spawn(async {})))?.join()
}

static PILE: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
static DONE: AtomicU32 = AtomicU32::new(0);

/// A thread that works until the time is over; gives how often it has.
fn worker(n: u64, end: Instant) -> u64 {
    let mut rounds = 0u64;
    while Instant::now() < end {
        let mut pile = PILE.lock();
        let mine = vec![n; 1 + rounds as usize % 300];
        let others = match pile.len() {
            0..8 => None,
            _ => pile.pop(),
        };
        pile.push(mine);
        drop(pile);
        if let Some(others) = others {
            assert!(others.iter().all(|&w| w == others[0]));
        }
        DONE.fetch_add(1, Ordering::Release);
        dyad::futex::wake(&DONE, 1);
        if rounds.is_multiple_of(16) {
            let now = DONE.load(Ordering::Acquire);
            let soon = Instant::now() + Duration::from_millis(1);
            let _ = dyad::futex::wait(&DONE, now, soon.as_nanos());
        }
        rounds += 1;
    }
    rounds
}

/// Threads on all nodes work for a while. Of those that are lost it is said; if one was lost while it
/// held what all need, the program ends with a panic that says so.
pub fn work(args: &Args) -> Result<()> {
    let seconds = args.number("--seconds", 1, 0..=1_000_000)?;
    println!("threads: at work");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut threads = Vec::new();
    for n in 0..8 {
        let nodes = nodes()?;
        let node = nodes[n as usize % nodes.len()];
        match thread::spawn_on(node, move || worker(n, end)) {
            Ok(thread) => threads.push(thread),
            Err(e) if e.system() == Some(sys::Error::NodeDead) => {}
            Err(e) => return Err(e),
        }
    }
    let (mut rounds, mut lost) = (0, 0u64);
    for thread in threads {
        match thread.join() {
            Ok(n) => rounds += n,
            Err(e) if e.system() == Some(sys::Error::NodeDead) => lost += 1,
            Err(e) => return Err(e),
        }
    }
    println!("threads: {rounds} rounds, {lost} threads lost");
    report::counter("threads.rounds", rounds);
    report::counter("threads.lost", lost);
    Ok(())
}

/// Node 1 dies, and with it the threads that run there.
#[allow(unsafe_code)]
pub fn lost() -> Result<()> {
    let there = NodeId::new(1).ok_or(sys::Error::NoSuchNode)?;
    let holder = thread::spawn_on(there, || {
        let held = HELD.lock();
        compute_for_ever();
        drop(held);
    })?;
    let sleeper = thread::spawn_on(there, wait_for_ever)?;
    let on_there = heap::on(there)?;
    let mut words: Vec<u64> = on_there.vec(PLACED);
    words.extend(0..PLACED as u64);
    let placed = words.iter().all(|w| heap::node_of(w) == Some(there));
    until_ready(2);
    println!("threads: node 1 may die now");
    let joined = holder.join().err().and_then(|e| e.system());
    let dead = Some(sys::Error::NodeDead);
    report::check(
        "threads.lost-join",
        joined == dead,
        format_args!("{joined:?}"),
    );
    let joined = sleeper.join().err().and_then(|e| e.system());
    report::check(
        "threads.lost-waiting",
        joined == dead,
        format_args!("{joined:?}"),
    );
    let locked = HELD.lock_or_lost().err();
    report::check(
        "threads.lost-lock",
        locked == dead,
        format_args!("{locked:?}"),
    );
    // SAFETY: 1. The lost thread has lent nothing that its guard gave out, and has not leaked it.
    let taken = unsafe { HELD.take_from_lost() }.is_some();
    report::check("threads.lost-taken", taken, "");
    // Whoever is left goes on; of a thread that is lost the number is gone, and no other.
    let sum = thread::spawn(|| (1..=100u64).sum::<u64>())?.join()?;
    report::check("threads.lost-others", sum == 5050, format_args!("{sum}"));
    let refused = thread::spawn_on(there, || ())
        .err()
        .and_then(|e| e.system());
    report::check(
        "threads.lost-node",
        refused == dead,
        format_args!("{refused:?}"),
    );
    // What was placed there is there still; nothing more is, and whoever asks is told.
    let refused = heap::on(there).err().and_then(|e| e.system());
    report::check(
        "threads.lost-heap",
        refused == dead,
        format_args!("{refused:?}"),
    );
    let same = (0..).zip(&words).all(|(n, w)| n == *w) && words.len() == PLACED;
    let more = on_there.run(|| words.clone());
    let elsewhere = more[LAST_PAGE..]
        .iter()
        .all(|w| heap::node_of(w) != Some(there));
    report::check(
        "threads.lost-placed",
        placed && same && elsewhere && more == words,
        format_args!("placed {placed}, the same {same}, new ones elsewhere {elsewhere}"),
    );
    Ok(())
}
