//! Takes from others what it can, through the services that it shares with them. It runs beside
//! the program `victim`, with the same arguments:
//! `cargo xtask run --app victim --beside rival -- --scene console`.
//!
//! | `--scene` | what it does |
//! |---|---|
//! | `console` | writes to the console without a pause, in every second phase of [`phase`]; computes in the others; ends after [`LENGTH`] |
//! | `reports` | reports checks and counters under names of others, with control characters, and without a pause |
//! | `memory` | takes every range the pager gives, then touches memory until there is none; that ends it |
//! | `moves` | asks for moves of its threads as late as it may, until init takes no more, and asks for others all the time; ends after [`LENGTH`] |
//! | `state` | asks for the state of memory without a pause, from [`ASKERS`] threads on all nodes; ends after [`LENGTH`] |
//! | `threads` | computes in [`CROWD`] threads on all nodes, in every second phase; ends after [`crowded`] |
//! | `churn` | in every second phase starts threads on the last node that end at once, while [`SLEEPERS`] others sleep there; ends after [`crowded`] |
//! | `spin` | as `churn`, but computes where that starts threads: what the victim has beside that is right |
//! | `asks` | in every second phase asks, on the last node, that a thread that computes there be moved to where it is, while [`SLEEPERS`] others sleep; ends after [`crowded`] |
//! | `end` | takes all the addresses that it can have, touches a page in each of [`TOUCHED`] tables, and ends: what it had is taken back |
//! | `input` | looks for standard input: its own, then where that of the victim is; the second look ends it |
//!
//! With `--brief on`, which is for simulated time, phases and scenes are short.
//!
//! It reports `rival.moves-end` (a move at a time that never comes is refused) and `rival.moves-full` (it gets
//! [`MOVES`] entries, not one more), `rival.state` (none of its questions is refused), `rival.threads` (all its threads have run to their end, and have computed) and `rival.input` (it has
//! none).
#![no_std]
#![no_main]
// The word that says what init may interpret, the pages of the hoard, and what is another program's; in one function
// each.
#![deny(unsafe_code)]

extern crate alloc;

use core::hint::black_box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use dyad::io::stdin;
use dyad::prelude::task::*;
use dyad::{emulation, report, sys, thread};
use dyad_abi::emulation::{Page, page, ready};
use dyad_abi::record::name;
use dyad_abi::service::INPUT_BASE;
use dyad_abi::service::memory::Question;

/// Whether all takes little time.
static BRIEF: AtomicBool = AtomicBool::new(false);

/// The first number of milliseconds, or the second one if all takes little time.
fn times(usual: u64, brief: u64) -> Duration {
    Duration::from_millis(match BRIEF.load(Ordering::Relaxed) {
        true => brief,
        false => usual,
    })
}

/// Length of a phase; even ones, counted by fused time, are fair.
fn phase() -> Duration {
    times(100, 20)
}

/// How long it computes: longer than the victim, which begins later.
fn crowded() -> Duration {
    times(8500, 450)
}

/// How long the flood is.
const LENGTH: Duration = Duration::from_millis(6500);
/// How long the flood of reports is.
const FLOOD: Duration = Duration::from_millis(1500);
/// Bytes of a write: what the console takes at once.
const PAGE: usize = 4096;
/// Bytes that the hoarder wants.
const HOARD: usize = 1 << 30;
/// Moves of a program that init notes at a time.
const MOVES: usize = 8;
/// How late a move is asked for: not later than init takes, and later than the victim asks for its own.
const LATE: Duration = Duration::from_secs(9);
/// How long init may have no time for a request.
const LATENCY: Duration = Duration::from_secs(1);
/// Threads that compute: nearly as many as a program can have.
const CROWD: usize = 60;
/// Threads that sleep, so that there are many to look after.
const SLEEPERS: usize = 58;
/// Bytes of addresses that it takes at its end, in so many ranges, and pages that it touches in them.
const RANGE: u64 = 4 << 30;
const RANGES: u64 = 62;
const TOUCHED: u64 = 1100;
/// Threads that ask for the state of memory.
const ASKERS: usize = 8;

/// Whether this is a phase of attack.
fn attacks() -> bool {
    Instant::now().as_nanos() / phase().as_nanos() as u64 % 2 == 1
}

/// Writes that are cheap for the writer and dear for the console: many lines, long lines, lines
/// without end.
fn flood() -> Result<()> {
    let texts = [
        "\n".repeat(PAGE),
        "flood\n".repeat(PAGE / 6),
        "x".repeat(PAGE),
    ];
    let end = Instant::now() + LENGTH;
    let (mut writes, mut bytes, mut refused) = (0u64, 0u64, 0u64);
    while Instant::now() < end {
        if !attacks() {
            (0..1000u64).for_each(|n| {
                black_box(n);
            });
            continue;
        }
        writes += 1;
        match sys::write(&texts[writes as usize % texts.len()]) {
            Ok(n) => bytes += n as u64,
            Err(_) => refused += 1,
        }
    }
    for (name, n) in [
        ("rival.writes", writes),
        ("rival.bytes", bytes),
        ("rival.refused", refused),
    ] {
        report::counter(name, n);
    }
    Ok(())
}

/// Checks and counters: in the names of others, with texts that would change what the launcher prints, and
/// more than the console takes.
fn reports() -> Result<()> {
    let wrong = |name: &&str, why| {
        sys::report_check(name, true, "forged") != Err(why)
            || sys::report_counter(name, u64::MAX) != Err(why)
    };
    let reserved = name::ALL.iter().copied().chain(["sim.closure"]);
    let taken = reserved.filter(|n| wrong(n, sys::Error::Denied)).count();
    let odd = ["", "a b", "a\nb", "a\u{9b}31mb", "a\u{202e}b"];
    let odd = (odd.iter())
        .filter(|n| wrong(n, sys::Error::BadArgument))
        .count();
    report::check(
        "rival.names",
        (taken, odd) == (0, 0),
        format_args!("{taken} of others and {odd} odd ones are not refused"),
    );
    // Of the program beside that is the victim: neither decides the run, nor is added to its own.
    let forged =
        "x)\n[0 x86_64/-  +0.001] check app.exit: ok\nok: 99 checks passed\u{9b}31m\u{202e}";
    report::check("victim.reports", false, forged);
    report::counter("victim.reported", u64::MAX);
    let end = Instant::now() + FLOOD;
    let (mut bytes, mut refused) = (0u64, 0u64);
    let (name, detail) = ("f".repeat(64), "x".repeat(256));
    while Instant::now() < end {
        let told = match refused % 2 {
            0 => sys::report_check(&name, true, &detail),
            _ => sys::report_counter(&name, 1),
        };
        match told {
            Ok(()) => bytes += name.len() as u64,
            Err(_) => refused += 1,
        }
    }
    report::counter("rival.bytes", bytes);
    report::counter("rival.refused", refused);
    Ok(())
}

/// Takes everything. Does not come back.
fn hoard() -> Result<()> {
    // More than there are frames for; of this nothing is there yet. Not from the heap, which would refuse it.
    let hoard = sys::map_anon(HOARD as u64)?;
    let mut ranges = 0u64;
    // The pager's book has room for so many only.
    let refusal = loop {
        match sys::map_anon(PAGE as u64) {
            Ok(_) => ranges += 1,
            Err(e) => break e,
        }
    };
    report::counter("rival.ranges", ranges);
    let full = refusal == sys::Error::Full;
    report::check("rival.ranges-end", full, format_args!("with: {refusal}"));
    println!("rival: has {ranges} ranges");
    // While it has them, others go on.
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        black_box(sys::map_anon(PAGE as u64).is_err());
    }
    println!("rival: takes all memory");
    for page in 0..HOARD / PAGE {
        touch(hoard, page);
    }
    Err(Error::msg("there is no end of memory"))
}

/// Touches a page of the hoard.
#[allow(unsafe_code)]
fn touch(hoard: NonNull<u8>, page: usize) {
    assert!(page < RANGE as usize / PAGE);
    // SAFETY: 1. The hoard has so many pages. 2. Nothing else uses them.
    unsafe { hoard.add(page * PAGE).write_volatile(1) };
}

/// Says that all threads of this program can be interpreted. They cannot: init is not to rely on it.
#[allow(unsafe_code)]
fn pretend() {
    let word = page(0) as usize + core::mem::offset_of!(Page, ready);
    // SAFETY: 1. `enable` has had the page mapped, writable. 2. The word is read by init alone.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(word).write_volatile(ready::ALL) };
}

/// Reads where the standard input of programs is.
#[allow(unsafe_code)]
fn peek() -> Result<()> {
    let mut own = Vec::new();
    stdin().read_to_end(&mut own)?;
    report::check(
        "rival.input",
        own.is_empty(),
        format_args!("{} bytes", own.len()),
    );
    println!("rival: reads the input");
    let input = core::ptr::with_exposed_provenance::<u8>(INPUT_BASE as usize);
    // SAFETY: 1. Nothing is there, as this shows: the program ends here.
    let byte = unsafe { input.read_volatile() };
    println!("rival: has read {byte}");
    Ok(())
}

/// Has all entries for moves that a program can have, for as long as it may.
fn take_moves() -> Result<()> {
    let end = Instant::now() + LENGTH;
    while let Err(e) = emulation::enable() {
        if e != sys::Error::Again || Instant::now() > end {
            return Err(e.into());
        }
    }
    pretend();
    let mut others = Vec::new();
    for _ in 0..MOVES + 2 {
        let handle = thread::spawn(|| thread::sleep(4 * LENGTH))?;
        others.push(handle.thread().number());
        core::mem::forget(handle);
    }
    let to = dyad::system()?.nodes().count() - 1;
    let to = NodeId::first(to + 1).last().ok_or(sys::Error::NoSuchNode)?;
    let never = Instant::from_nanos(u64::MAX);
    let refused = emulation::request_thread(others[0], to, never);
    report::check(
        "rival.moves-end",
        refused == Err(sys::Error::BadArgument),
        format_args!("a move that is never due: {refused:?}"),
    );
    let taken = others.iter().map(|&n| {
        let until = Instant::now() + LATENCY;
        loop {
            match emulation::request_thread(n, to, Instant::now() + LATE) {
                Err(sys::Error::Again) if Instant::now() < until => {}
                done => break done,
            }
        }
    });
    let taken: Vec<_> = taken.collect();
    let granted = taken.iter().filter(|t| t.is_ok()).count();
    let full = taken
        .iter()
        .filter(|&t| *t == Err(sys::Error::Full))
        .count();
    report::check(
        "rival.moves-full",
        (granted, full) == (MOVES, others.len() - MOVES),
        format_args!("{taken:?}"),
    );
    println!("rival: has {granted} moves");
    let (mut more, mut asked) = (0u64, 0u64);
    while Instant::now() < end {
        for &n in &others {
            asked += 1;
            more += u64::from(emulation::request_thread(n, to, Instant::now() + LATE).is_ok());
        }
    }
    report::counter("rival.moves-asked", asked);
    report::counter("rival.moves-more", more);
    Ok(())
}

/// Asks for the state of memory, from all nodes.
fn ask_state() -> Result<()> {
    let end = Instant::now() + LENGTH;
    let nodes = dyad::system()?.nodes().count();
    let mut askers = Vec::new();
    for n in 0..ASKERS {
        let node = NodeId::first(nodes).nth(n % nodes);
        let node = node.ok_or(sys::Error::NoSuchNode)?;
        askers.push(thread::spawn_on(node, move || {
            let (mut answers, mut refused) = (0u64, 0u64);
            while Instant::now() < end {
                let all = Question::ALL.into_iter();
                let fails = all.filter(|&q| sys::memory_state(q, node).is_err()).count();
                refused += fails as u64;
                answers += (Question::ALL.len() - fails) as u64;
            }
            (answers, refused)
        })?);
    }
    println!("rival: asks for the state of memory");
    let (mut answers, mut refused) = (0, 0);
    for asker in askers {
        let (a, r) = asker.join()?;
        answers += a;
        refused += r;
    }
    report::check(
        "rival.state",
        answers > 0 && refused == 0,
        format_args!("{answers} answers, {refused} refused"),
    );
    Ok(())
}

/// The last node.
fn last() -> Result<NodeId> {
    let nodes = dyad::system()?.nodes().count();
    Ok(NodeId::first(nodes).last().ok_or(sys::Error::NoSuchNode)?)
}

/// Threads that sleep on the last node until the end.
fn sleepers(end: Instant) -> Result<Vec<thread::JoinHandle<()>>> {
    let last = last()?;
    let mut all = Vec::new();
    for _ in 0..SLEEPERS {
        all.push(thread::spawn_on(last, move || {
            while Instant::now() < end {
                thread::sleep(phase());
            }
        })?);
    }
    Ok(all)
}

/// Starts threads that end at once, on the last node; or computes there, to compare with.
fn churn(fair: bool) -> Result<()> {
    let end = Instant::now() + crowded();
    let last = last()?;
    let sleepers = sleepers(end)?;
    // Its fair share of the first node, besides.
    let first = NodeId::first(1).next().ok_or(sys::Error::NoSuchNode)?;
    let computes = thread::spawn_on(first, move || {
        while Instant::now() < end {
            if !attacks() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    })?;
    println!("rival: churns on node {last}");
    let churns = thread::spawn_on(last, move || {
        let (mut started, mut refused) = (0u64, 0u64);
        while Instant::now() < end {
            if !attacks() {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            if fair {
                continue;
            }
            match thread::spawn_on(last, || ()) {
                Ok(one) => {
                    let _ = one.join();
                    started += 1;
                }
                Err(_) => refused += 1,
            }
        }
        (started, refused)
    })?;
    let (started, refused) = churns.join()?;
    computes.join()?;
    for one in sleepers {
        one.join()?;
    }
    report::counter("rival.started", started);
    report::counter("rival.refused", refused);
    Ok(())
}

/// Asks for moves that lead nowhere, on the last node.
fn asks() -> Result<()> {
    let end = Instant::now() + crowded();
    while let Err(e) = emulation::enable() {
        if e != sys::Error::Again || Instant::now() > end {
            return Err(e.into());
        }
    }
    pretend();
    let last = last()?;
    let sleepers = sleepers(end)?;
    println!("rival: asks on node {last}");
    let mut busy = Vec::new();
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let one = thread::spawn_on(last, move || {
            while Instant::now() < end {
                if !attacks() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        })?;
        numbers.push(one.thread().number());
        busy.push(one);
    }
    let asker = thread::spawn_on(last, move || {
        let (mut asked, mut refused) = (0u64, 0u64);
        while Instant::now() < end {
            if !attacks() {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            for &n in &numbers {
                match emulation::request_thread(n, last, Instant::now()) {
                    Ok(()) => asked += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        (asked, refused)
    })?;
    let (asked, refused) = asker.join()?;
    for one in sleepers.into_iter().chain(busy) {
        one.join()?;
    }
    report::counter("rival.asked", asked);
    report::counter("rival.refused", refused);
    Ok(())
}

/// Takes addresses, and ends.
fn end() -> Result<()> {
    const TABLE: usize = 2 << 20;
    thread::sleep(Duration::from_secs(2));
    let (mut ranges, mut touched) = (0u64, 0u64);
    while ranges < RANGES
        && let Ok(at) = sys::map_anon(RANGE)
    {
        ranges += 1;
        for n in 0..RANGE as usize / TABLE {
            if touched < TOUCHED && ranges <= 2 {
                touch(at, n * TABLE / PAGE);
                touched += 1;
            }
        }
    }
    println!("rival: has {ranges} ranges, {touched} pages; ends");
    Ok(())
}

/// Computes in many threads, which sleep in fair phases.
fn crowd() -> Result<()> {
    let end = Instant::now() + crowded();
    let nodes = dyad::system()?.nodes().count();
    let mut threads = Vec::new();
    for n in 0..CROWD {
        let node = NodeId::first(nodes).nth(n % nodes);
        let node = node.ok_or(sys::Error::NoSuchNode)?;
        threads.push(thread::spawn_on(node, move || {
            let mut work = 0u64;
            while Instant::now() < end {
                if attacks() {
                    (0..1000u64).for_each(|n| {
                        black_box(n);
                    });
                    work += 1;
                } else {
                    let phase = self::phase().as_nanos() as u64;
                    let left = phase - Instant::now().as_nanos() % phase;
                    thread::sleep(Duration::from_nanos(left));
                }
            }
            work
        })?);
    }
    println!("rival: computes in {CROWD} threads");
    let (mut idle, mut all) = (0u64, 0u64);
    for thread in threads {
        let work = thread.join()?;
        idle += u64::from(work == 0);
        all += work;
    }
    // All are ready in a phase of attack, but which of them have a slice before its end is the scheduler's choice.
    report::check(
        "rival.threads",
        all > 0,
        format_args!("{idle} of {CROWD} have done nothing, the others {all}"),
    );
    Ok(())
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--scene", "--brief"])?;
    let brief = args.one_of("--brief", &["on", "off"], "off")? == "on";
    BRIEF.store(brief, Ordering::Relaxed);
    match args.one_of(
        "--scene",
        &[
            "console", "reports", "memory", "moves", "state", "threads", "churn", "spin", "asks",
            "end", "input",
        ],
        "console",
    )? {
        "reports" => reports(),
        "memory" => hoard(),
        "moves" => take_moves(),
        "state" => ask_state(),
        "threads" => crowd(),
        "churn" => churn(false),
        "spin" => churn(true),
        "asks" => asks(),
        "end" => end(),
        "input" => peek(),
        _ => flood(),
    }
}
