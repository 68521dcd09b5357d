//! Threads that are moved wherever they are: the programs `emulate-tasks` (a task) and `emulate-threads` (plain threads)
//! are stopped while they compute, interpreted on the other ISA and native from there on; or refused, and
//! native where they were. Nodes die meanwhile.
//!
//! In the tier `long` the first thread of `emulate-threads` goes there and back ten thousand times, and nodes die at
//! twenty moments while threads are moved all the time.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use dyad_abi::Error;
use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_abi::emulation::refused;
use dyad_abi::record::Level;
use dyad_launcher::ask::{
    Failed as AskFailed, Moved, Question, Refusal, Reply, Run, Target, Wanted,
};
use dyad_launcher::config::{RunConfig, Work};
use dyad_launcher::console::Line;
use dyad_launcher::launch::{self, Event};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console::{self, Kept};
use crate::kill::{self, Kill, says};
use crate::times;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = |tiers, name: &str, nodes: &'static [Isa], cpus: usize| {
        let name = format!("emulation::{name}");
        times::test(tiers, name, move || moves(nodes, cpus))
    };
    vec![
        test(
            Tiers::FULL,
            "moves_threads_that_compute",
            &[X86_64, Aarch64],
            1,
        ),
        test(
            Tiers::FULL,
            "moves_threads_that_compute_in_reversed_order",
            &[Aarch64, X86_64],
            1,
        ),
        test(
            Tiers::FULL,
            "moves_threads_from_any_cpu_of_three_nodes",
            &[X86_64, Aarch64, X86_64],
            2,
        ),
        drifts(
            Tiers::FULL.and(Tiers::LONG),
            "moves_plain_threads",
            &[X86_64, Aarch64],
            1,
        ),
        drifts(
            Tiers::FULL.and(Tiers::LONG),
            "moves_plain_threads_from_any_cpu_of_three_nodes",
            &[Aarch64, X86_64, Aarch64],
            2,
        ),
        times::test(
            Tiers::FULL,
            "emulation::moves_threads_by_request_from_outside",
            asked,
        ),
        times::test(
            Tiers::FULL,
            "emulation::the_launcher_has_an_entry_of_a_full_list",
            asked_of_a_full_list,
        ),
        times::test(Tiers::FULL, "emulation::of_nodes_that_die", || {
            doomed(&[X86_64, Aarch64, Aarch64])?;
            doomed(&[Aarch64, X86_64, X86_64])
        }),
        times::test(
            Tiers::FULL.and(Tiers::LONG),
            "emulation::at_any_moment_a_node_dies",
            storms,
        ),
    ]
}

/// Runs of `emulate-threads`.
fn drifts(tiers: Tiers, name: &str, nodes: &'static [Isa], cpus: usize) -> Trial {
    let name = format!("emulation::{name}");
    times::test(tiers, name, move || threads(nodes, cpus))
}

/// Trips of a run: each is stopped at another instruction.
const TRIPS: u64 = 12;

fn moves(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let checks = [
        "emulate-tasks.moved",
        "emulate-tasks.result",
        "emulate-tasks.refused",
    ];
    let args = format!("--trips {TRIPS}");
    run((nodes, cpus), "emulate-tasks", &args, &checks, TRIPS * 1000)
}

fn threads(nodes: &[Isa], cpus: usize) -> Result<(), Failed> {
    let trips = size(50, 50, 10_000);
    let checks = [
        "emulate-threads.moved",
        "emulate-threads.intact",
        "emulate-threads.between",
        "emulate-threads.refused",
        "emulate-threads.crosses",
        "emulate-threads.outside",
        "emulate-threads.withdrawn",
        "emulate-threads.threads",
    ];
    let args = format!("--trips {trips} --threads 4 --thread-trips 4");
    run(
        (nodes, cpus),
        "emulate-threads",
        &args,
        &checks,
        trips * 100,
    )
}

/// A run of a program, which has to pass its checks and to have at least so many instructions
/// interpreted.
fn run(
    (nodes, cpus): (&[Isa], usize),
    app: &str,
    args: &str,
    checks: &[&str],
    least: u64,
) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: console::app(app, args),
        timeout: Some(times::limit(180, 1800)),
        ..RunConfig::default()
    };
    let ran = console::good(&config)?;
    console::passed(&ran, checks)?;
    match ran.0.counters.get(&format!("{app}.steps")) {
        Some(&steps) if steps > least => Ok(()),
        other => console::because(&ran.1, format!("{other:?} instructions interpreted")),
    }
}

/// How soon a run ends after the last machine has died that dies.
const PROMPT: Duration = Duration::from_secs(40);
/// Frames that machines can have been changing when they died.
const LEAKED: u64 = 16;

/// A run of `emulate-threads` in which machines die.
fn dying(nodes: &[Isa], args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        work: console::app("emulate-threads", args),
        on_death: OnDeath::Survive,
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

/// The machine dies that threads are interpreted on, or were stopped on; then the one on which the program's
/// first thread is interpreted, with which the program ends.
fn doomed(nodes: &[Isa]) -> Result<(), Failed> {
    let kills = vec![
        (Kill::of(1), says("node 1 may die now")),
        (Kill::of(2), says("node 2 may die now")),
    ];
    let ended = kill::run_each(&dying(nodes, "--doomed 1"), kills);
    for name in ["asks", "lands", "back", "waits", "lost"] {
        let name = format!("emulate-threads.doomed-{name}");
        if !ended.passed(&name) {
            return ended.because(format_args!("{nodes:?}: check {name} has not passed"));
        }
    }
    ended.within(PROMPT)?;
    let why = ended.report.failure().unwrap_or_default();
    if !why.contains("its thread was lost with a node that has died") {
        return ended.because(format_args!(
            "on {nodes:?}, it does not say why it ends: {why}"
        ));
    }
    ended.lost_no_more_than(LEAKED)
}

/// Threads are moved all the time, and a machine dies at some moment: the program ends, soon, and says why.
fn storms() -> Result<(), Failed> {
    let moments: Vec<u64> = size(vec![40], vec![40], (1..=20).map(|n| 7 * n).collect());
    for (n, ms) in moments.into_iter().enumerate() {
        let nodes = [[X86_64, Aarch64], [Aarch64, X86_64]][n % 2];
        let kill = Kill::after(1, Duration::from_millis(ms));
        let args = "--trips 0 --threads 4 --thread-trips 1000000";
        let ended = kill::run(&dying(&nodes, args), kill, says("is moved from here on"));
        ended.within(PROMPT)?;
        let why = ended.report.failure().unwrap_or_default();
        // Threads were there, or hear that they cannot go there, or wait for a lock that one of them has.
        let told = why.ends_with("ended with code 1") && ended.text.contains("error: ");
        let locked = why.ends_with("ended with code 101")
            && ended
                .text
                .contains("was lost with its node while it held a lock");
        if !told && !locked {
            return ended.because(format_args!(
                "on {nodes:?}, it does not say why it ends: {why}"
            ));
        }
        ended.lost_no_more_than(LEAKED)?;
    }
    Ok(())
}

/// Moves from outside, an odd number: the thread ends on the other ISA.
const ASKED: u64 = 5;

/// By the way of `cargo xtask migrate --emulate`: refused where the program comes to what is not interpreted,
/// on both ISAs, and moved in between; programs and threads that cannot be moved so.
fn asked() -> Result<(), Failed> {
    let args = format!("--asked {ASKED}");
    asks(
        ("emulate-threads", args),
        "works on",
        questions,
        "emulate-threads.asked",
    )
}

/// The program has as many requests as it may have. The launcher has an entry that is kept for it, and its request
/// replaces one of the program that is not due.
fn asked_of_a_full_list() -> Result<(), Failed> {
    let args = "--scene moves".to_owned();
    asks(
        ("rival", args),
        "rival: has 8 moves",
        full,
        "rival.moves-full",
    )
}

fn full(run: &Run, _: &Receiver<String>) -> Result<(), Failed> {
    // One that the program has a request for, and one that it has none for.
    for thread in [1, 0] {
        match emulate_within(run, thread, Aarch64, 2000) {
            // What becomes of it is not asked: one waits, the other one is mostly in services.
            Ok(_) => {}
            // Init has tried, and given it up.
            Err(AskFailed::Refused(Refusal::Refused { why }))
                if why == Error::NotReady.to_string() => {}
            Err(AskFailed::Refused(
                Refusal::Back { .. } | Refusal::TimedOut { .. } | Refusal::Ended | Refusal::Gone,
            )) => {}
            other => return Err(format!("thread {thread}: {other:?}").into()),
        }
    }
    Ok(())
}

/// Runs a program, asks questions once it has said some words, and wants a check of it to have passed.
fn asks(
    (app, args): (&str, String),
    words: &str,
    questions: impl FnOnce(&Run, &Receiver<String>) -> Result<(), Failed>,
    check: &str,
) -> Result<(), Failed> {
    let config = RunConfig {
        work: Work::App {
            app: app.into(),
            args,
        },
        timeout: Some(Duration::from_secs(180)),
        ..RunConfig::default()
    };
    let dir = launch::new_run_dir("emulate-").map_err(|e| e.to_string())?;
    let (say, said) = channel();
    let thread = std::thread::spawn({
        let dir = dir.clone();
        move || {
            let mut kept = Kept::new(|e: &Event<'_>| {
                if let Event::Line {
                    line: Line::Log { level, text, .. },
                    ..
                } = e
                    && *level == Level::User
                {
                    let _ = say.send(text.clone());
                }
            });
            let report = launch::run_in(&config, Some(dir), &mut kept);
            let text = kept.text(&report);
            (report, text)
        }
    });
    let questions = until(&said, words).and_then(|()| {
        let run = Run::at(&dir).map_err(|e| e.to_string())?;
        questions(&run, &said)
    });
    let (report, text) = thread.join().map_err(|_| "the launcher panicked")?;
    questions.map_err(|why| {
        let why = why.message().unwrap_or_default().to_owned();
        Failed::from(format!("{why}\n\nconsole:\n{text}"))
    })?;
    let good = report.checks.iter().any(|c| c.ok && c.name == check);
    match report.failure() {
        None if good => Ok(()),
        why => Err(format!("{why:?}\n\nconsole:\n{text}").into()),
    }
}

/// Waits until the program says something.
fn until(said: &Receiver<String>, words: &str) -> Result<(), Failed> {
    loop {
        let line = said.recv_timeout(Duration::from_secs(300));
        if line
            .map_err(|_| format!("it does not say {words:?}"))?
            .contains(words)
        {
            return Ok(());
        }
    }
}

fn emulate(run: &Run, thread: u16, to: Isa) -> Result<Moved, AskFailed> {
    emulate_within(run, thread, to, 20_000)
}

fn emulate_within(run: &Run, thread: u16, to: Isa, wait_ms: u64) -> Result<Moved, AskFailed> {
    let wanted = Wanted {
        program: None,
        thread,
        to: Target::Isa(to.index() as u64),
        wait_ms,
    };
    match run.ask(&Question::Emulate(wanted))? {
        Reply::Moved(moved) => Ok(moved),
        other => panic!("{other:?}"),
    }
}

fn questions(run: &Run, said: &Receiver<String>) -> Result<(), Failed> {
    let refused_on = |isa: Isa, first: &str| match emulate(run, 0, isa.other()) {
        Err(AskFailed::Refused(Refusal::Back {
            outcome: refused::UNKNOWN,
            at,
            bytes,
            ..
        })) if at != 0 && bytes.starts_with(first) => Ok(()),
        other => Err(Failed::from(format!("on {isa}: {other:?}"))),
    };
    match emulate(run, 1, Aarch64) {
        Err(AskFailed::Refused(Refusal::NoThread { thread: 1, .. })) => {}
        other => return Err(format!("{other:?}").into()),
    }
    match emulate(run, 0, X86_64) {
        Ok(moved) if moved.already => {}
        other => return Err(format!("{other:?}").into()),
    }
    refused_on(X86_64, "d9 d0")?;
    let mut isa = X86_64;
    for n in 1..=ASKED {
        isa = isa.other();
        let moved = emulate(run, 0, isa).map_err(|e| format!("{n}: {e:?}"))?;
        // After the last move it says so, and may be seen on its way to the console.
        let now = moved.now == moved.to || n == ASKED;
        let there = !moved.already && moved.from == 1 - moved.to && now;
        if !there || moved.interpreted.is_none_or(|i| i.instructions == 0) {
            return Err(format!("{n}: {moved:?}").into());
        }
    }
    until(said, "times, to aarch64")?;
    refused_on(Aarch64, "ff 4f df 9a")
}
