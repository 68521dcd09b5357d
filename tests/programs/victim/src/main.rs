//! Does honest work, and says what it got done while the program `rival` ran beside it, with the
//! same arguments: `cargo xtask run --app victim --beside rival -- --scene console`.
//!
//! | `--scene` | work | checks |
//! |---|---|---|
//! | `console` | computes and writes lines, on node 0 and on the last node | `victim.console.nodeN`: lines and work while the rival attacks are a share of those while it is fair, and no line takes too long |
//! | `reports` | reports, and waits | `victim.reports`: it has a name of its own, whatever the rival reports under it |
//! | `memory` | asks for memory, uses it, gives it back | `victim.memory`: everything is granted, zero-filled, in time; `victim.refused`: what is too much is refused with the right error |
//! | `moves` | has itself moved to the other ISA and back, wherever it is | `victim.moves`: every request is taken in time, and every move is made |
//! | `state` | asks for the state of memory, and uses memory that it has not used before | `victim.state`: no question is refused, and no page takes too long |
//! | `threads` | computes, on node 0 and on the last node | `victim.threads.nodeN`: work while [many threads](CROWDED) of the rival compute beside its only one is nearly half of that while they sleep |
//! | `churn`, `spin`, `asks`, `end` | the same | the same, whatever else the rival does; less if it keeps wardens busy |
//! | `input` | reads its standard input | `victim.input`: it gets all of it |
//!
//! Of `console` and the scenes that compute, the rival attacks in every second phase of [`phase`], by fused time. With `--brief on`,
//! which is for simulated time, phases and scenes are short.
#![no_std]
#![no_main]
// Memory of the pager is raw; in one function.
#![deny(unsafe_code)]

extern crate alloc;

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use dyad::io::stdin;
use dyad::prelude::task::*;
use dyad::{emulation, report, sys};
use dyad_abi::emulation::status;
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

/// Length of a phase; even ones are fair.
fn phase() -> Duration {
    times(100, 20)
}

/// How long it works on a node.
fn work_time() -> Duration {
    times(3000, 160)
}

/// How long it waits afterwards: also until the rival, whose last write may have cost what two seconds bring,
/// can say what it did.
fn time_after() -> Duration {
    times(5000, 250)
}

/// How long the victim waits until the rival has what it wants.
fn time_before() -> Duration {
    times(1500, 60)
}

/// Share of what it gets done in fair phases that it must get done in others, in percent. 100 is
/// right; the rest is what the host makes of it.
const SHARE: u64 = 25;
/// Share of a CPU that it must have beside a program with many threads, in percent. One share for each program
/// is 50; the rest is for those who serve both, and for threads that go to sleep and wake up.
const CROWDED: u64 = 40;
/// The same where the rival keeps wardens busy, which have turns among the programs then. 40 is right; short phases have parts of
/// turns.
const BESIDE_WARDENS: u64 = 27;
/// What its only thread waits beside one other program is a slice, of 10 ms. A wait of more than three is counted and
/// said; it is no failure, as a busy host makes some.
const LONG_WAIT: Duration = Duration::from_millis(30);
/// No request to a service may take longer: many slices, because the host may be busy.
const LATENCY: Duration = Duration::from_secs(3);
/// How long memory is asked for: longer than the rival lives.
const MEMORY: Duration = Duration::from_secs(6);
/// Pages of a request.
const PAGES: usize = 16;
/// How often the victim is moved.
const MOVES: usize = 4;
/// How long a move may take, until it is interpreted.
const MOVED: Duration = Duration::from_secs(10);
/// MiB of memory that the victim uses while it asks for the state of memory.
const GROWS: usize = 48;
const PAGE: usize = 4096;

/// Whether the rival attacks now.
fn is_attacked() -> bool {
    Instant::now().as_nanos() / phase().as_nanos() as u64 % 2 == 1
}

/// Something that takes time.
fn compute() {
    for n in 0..2000u64 {
        black_box(n);
    }
}

/// Lines and work, in fair phases and in others.
async fn console() -> Result<()> {
    let last = dyad::system()?.nodes().count() - 1;
    let mut line = 0u64;
    for node in NodeId::first(last + 1).filter(|n| [0, last].contains(&n.index())) {
        migrate_to(node).await?;
        let (mut lines, mut work, mut longest) = ([0u64; 2], [0u64; 2], Duration::ZERO);
        let end = Instant::now() + work_time();
        while Instant::now() < end {
            let phase = usize::from(is_attacked());
            for _ in 0..200 {
                compute();
                work[phase] += 1;
            }
            let before = Instant::now();
            line += 1;
            println!("victim: line {line} from node {node}");
            longest = longest.max(before.elapsed());
            lines[usize::from(is_attacked())] += 1;
        }
        let share = |of: [u64; 2]| of[1] * 100 / of[0].max(1);
        let enough = share(lines) >= SHARE && share(work) >= SHARE && lines[1] > 0;
        report::check(
            &format!("victim.console.node{node}"),
            enough && longest < LATENCY,
            format_args!(
                "lines {lines:?} ({} %), work {work:?} ({} %), longest {longest:?}",
                share(lines),
                share(work)
            ),
        );
    }
    report::counter("victim.lines", line);
    // Until the rival has said what it did.
    sleep(time_after()).await;
    println!("victim: after all that");
    Ok(())
}

/// Work beside many threads, and beside none.
async fn threads(least: u64) -> Result<()> {
    sleep(time_before()).await;
    let last = dyad::system()?.nodes().count() - 1;
    for node in NodeId::first(last + 1).filter(|n| [0, last].contains(&n.index())) {
        migrate_to(node).await?;
        let (mut work, mut longest, mut waits) = ([0u64; 2], Duration::ZERO, 0u64);
        let end = Instant::now() + work_time();
        let mut before = Instant::now();
        while before < end {
            let phase = usize::from(is_attacked());
            compute();
            work[phase] += 1;
            let waited = before.elapsed();
            longest = longest.max(waited);
            waits += u64::from(waited > LONG_WAIT);
            before = Instant::now();
        }
        let share = work[1] * 100 / work[0].max(1);
        report::check(
            &format!("victim.threads.node{node}"),
            share >= least && longest < LATENCY,
            format_args!(
                "work {work:?} ({share} %), longest wait {longest:?}, {waits} above {LONG_WAIT:?}"
            ),
        );
    }
    // Until the rival has said what it did.
    sleep(time_after()).await;
    Ok(())
}

/// Reports beside a rival that reports the same.
async fn reports() -> Result<()> {
    report::check("victim.reports", true, "its own");
    report::counter("victim.reported", 1);
    sleep(time_after()).await;
    println!("victim: after all that");
    Ok(())
}

/// Maps pages, looks at them, writes to them and gives them back; `false` if one was not empty.
#[allow(unsafe_code)]
fn use_memory() -> sys::Result<bool> {
    let len = (PAGES * PAGE) as u64;
    let start = sys::map_anon(len)?;
    let mut clean = true;
    for page in 0..PAGES {
        // SAFETY: 1. The page is inside of what was just mapped, which nobody else knows of.
        let at = unsafe { start.add(page * PAGE) };
        // SAFETY: 1. As above. 2. It is aligned.
        clean &= unsafe { at.cast::<u64>().read_volatile() } == 0;
        // SAFETY: 1. As above.
        unsafe { at.cast::<u64>().write_volatile(!0) };
    }
    // SAFETY: 1. Nothing refers to it any more.
    unsafe { sys::unmap(start, len)? };
    Ok(clean)
}

async fn memory() -> Result<()> {
    let (mut granted, mut longest) = (0u64, Duration::ZERO);
    let mut trouble = None;
    let mut said = 0;
    let start = Instant::now();
    while start.elapsed() < MEMORY {
        let before = Instant::now();
        match use_memory() {
            Ok(true) => granted += 1,
            Ok(false) => trouble = Some("memory was not empty".to_string()),
            Err(e) => trouble = Some(e.to_string()),
        }
        longest = longest.max(before.elapsed());
        if start.elapsed().as_millis() / 500 > said {
            said += 1;
            println!("victim: {granted} times so far");
        }
    }
    report::check(
        "victim.memory",
        granted > 0 && trouble.is_none() && longest < LATENCY,
        format_args!("{granted} times granted, longest {longest:?}, trouble: {trouble:?}"),
    );
    let refused = sys::map_anon(1 << 50).err();
    report::check(
        "victim.refused",
        refused == Some(sys::Error::TooLarge),
        format_args!("{refused:?}"),
    );
    Ok(())
}

/// Has itself moved to a node of the other ISA, and gives how long init took to take that on.
async fn move_away() -> Result<Duration> {
    let to = dyad::system()?.nearest(dyad::isa().other(), dyad::node());
    let to = to.ok_or(sys::Error::NoIsa)?;
    let asked = Instant::now();
    emulation::request(to, asked)?;
    let took = asked.elapsed();
    let is_emulated = || emulation::progress().is_some_and(|p| p.status == status::EMULATED);
    while !is_emulated() && dyad::node() != to {
        compute();
        if asked.elapsed() > MOVED {
            let p = emulation::progress();
            return Err(Error::msg(format!("{p:?} after {MOVED:?}")));
        }
    }
    // The poll ends, and what is interpreted with it.
    dyad::task::yield_now().await;
    match dyad::node() == to {
        true => Ok(took),
        false => Err(Error::msg(format!("it is on {}", dyad::node()))),
    }
}

async fn moves() -> Result<()> {
    emulation::enable()?;
    sleep(time_before()).await;
    let (mut made, mut longest) = (0, Duration::ZERO);
    let mut trouble = None;
    while made < MOVES && trouble.is_none() {
        match move_away().await {
            Ok(took) => {
                made += 1;
                longest = longest.max(took);
                println!("victim: moved {made} times");
            }
            Err(e) => trouble = Some(e.to_string()),
        }
    }
    report::check(
        "victim.moves",
        trouble.is_none() && longest < LATENCY,
        format_args!("{made} moves, longest request {longest:?}, trouble: {trouble:?}"),
    );
    Ok(())
}

/// Asks for the state of memory all the time, and uses memory in between.
async fn state() -> Result<()> {
    sleep(time_before()).await;
    let (mut answers, mut refused, mut longest) = (0u64, 0u64, Duration::ZERO);
    let mut all: Vec<Vec<u8>> = Vec::new();
    let end = Instant::now() + work_time();
    while Instant::now() < end || all.len() < GROWS {
        for question in Question::ALL {
            match sys::memory_state(question, dyad::node()) {
                Ok(_) => answers += 1,
                Err(_) => refused += 1,
            }
        }
        if all.len() < GROWS {
            let before = Instant::now();
            all.push(vec![1; 1 << 20]);
            longest = longest.max(before.elapsed());
        }
    }
    black_box(&all);
    report::check(
        "victim.state",
        answers > 0 && refused == 0 && longest < LATENCY,
        format_args!("{answers} answers, {refused} refused, longest MiB {longest:?}"),
    );
    println!("victim: has asked");
    Ok(())
}

/// Reads numbers, one a line, before the rival looks for them and afterwards.
async fn input() -> Result<()> {
    let number = |line: Result<String>| Ok(line?.parse::<u64>()?);
    let before: Vec<u64> = stdin()
        .lines()
        .take(10)
        .map(number)
        .collect::<Result<_>>()?;
    sleep(time_before()).await;
    let after: Vec<u64> = stdin().lines().map(number).collect::<Result<_>>()?;
    let numbers = before.iter().chain(&after).copied();
    report::check(
        "victim.input",
        before.len() == 10 && after.len() >= 1000 && numbers.eq(0..10 + after.len() as u64),
        format_args!("{} and {} numbers", before.len(), after.len()),
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
        "reports" => reports().await,
        "memory" => memory().await,
        "moves" => moves().await,
        "state" => state().await,
        "threads" | "spin" | "end" => threads(CROWDED).await,
        "churn" | "asks" => threads(BESIDE_WARDENS).await,
        "input" => input().await,
        _ => console().await,
    }
}
