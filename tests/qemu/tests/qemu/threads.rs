//! Threads of a program, on all nodes: program `threads`, whose header says what its scenes are.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, TestOptions};
use dyad_launcher::launch::RunReport;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because, run};
use crate::kill::{self, Ended, Kill, says};
use crate::times;

const PAIR: &[Isa] = &[X86_64, Aarch64];
const REVERSED: &[Isa] = &[Aarch64, X86_64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// Frames that a machine can have been changing when it died.
const LEAKED: u64 = 8;

/// How long a run may take to end once a machine has died.
const PROMPT: Duration = Duration::from_secs(40);

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("threads");
    vec![
        test(Tiers::FULL, "on_the_pair", || whole(PAIR, 1, "all")),
        test(Tiers::FULL, "in_reversed_order", || {
            whole(REVERSED, 1, "all")
        }),
        test(Tiers::FULL, "with_two_cpus", || whole(PAIR, 2, "all")),
        test(Tiers::FULL, "on_three_nodes", || whole(THREE, 1, "all")),
        test(Tiers::FULL, "beside_another_program", beside),
        test(Tiers::FULL, "one_exits_while_others_run", || {
            ends(PAIR, 2, "exit", 7, &[])
        }),
        test(
            Tiers::FULL,
            "one_exits_while_others_run_on_one_cpu_each",
            || ends(REVERSED, 1, "exit", 7, &[]),
        ),
        test(
            Tiers::FULL,
            "exit_codes_are_not_taken_for_other_ends",
            codes,
        ),
        test(
            Tiers::FULL,
            "a_first_thread_that_only_stops_has_made_no_fault",
            || {
                let says = "ended with code 102: thread 0 stopped without saying why";
                let text = ends_so(PAIR, 1, "leave", 102, &[says])?;
                match text.contains("at pc 0x") {
                    true => because(&text, "there was no fault"),
                    false => Ok(()),
                }
            },
        ),
        test(Tiers::FULL, "one_panics_while_others_wait", || {
            let message = "nobody will open what holds 0";
            ends(PAIR, 1, "panic", 101, &["panic in thread 5 at ", message])
        }),
        test(Tiers::FULL, "one_faults_while_others_wait", || {
            let says = "thread 3: read of 0x12345678 at pc 0x";
            ends(PAIR, 1, "fault", 102, &[says, "on aarch64"])
        }),
        test(
            Tiers::FULL,
            "one_runs_out_of_stack_while_others_wait",
            overflow,
        ),
        test(Tiers::FULL, "async_calls_elsewhere_are_refused", || {
            let says = "are not for other threads";
            ends(PAIR, 1, "async", 101, &["panic in thread 1 at ", says])
        }),
        test(Tiers::FULL, "lost_threads_are_told_of", || lost(THREE)),
        test(Tiers::FULL, "lost_threads_are_told_of_on_the_pair", || {
            lost(PAIR)
        }),
        test(Tiers::FULL, "waiters_are_woken_by_counts", || {
            counted(PAIR, 1, 1)
        }),
        test(Tiers::FULL, "page_table_race_of_programs", || {
            race(PAIR, 1, 200)
        }),
        test(Tiers::LONG, "waiters_are_woken_by_counts_for_long", || {
            for nodes in [PAIR, REVERSED, THREE] {
                counted(nodes, 1, 30)?;
            }
            counted(PAIR, 2, 30)
        }),
        test(Tiers::LONG, "page_table_race_of_programs_for_long", || {
            race(REVERSED, 1, 50_000)?;
            race(THREE, 1, 50_000)
        }),
        test(Tiers::FULL, "work_goes_on_when_nodes_die", || {
            [150, 400, 700]
                .into_iter()
                .try_for_each(|ms| dies_at_work(PAIR, 1, ms))
        }),
        test(Tiers::FULL, "work_ends_when_the_first_node_dies", || {
            [200, 600]
                .into_iter()
                .try_for_each(|ms| dies_at_work(THREE, 0, ms))
        }),
        test(Tiers::FULL, "a_wake_up_rings_once_at_most", doorbells),
    ]
}

fn config(nodes: &[Isa], cpus: usize, args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: console::app("threads", args),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

fn counter(report: &RunReport, text: &str, name: &str) -> Result<u64, Failed> {
    match report.counters.get(name) {
        Some(&n) => Ok(n),
        None => because(text, format_args!("no counter {name}")),
    }
}

/// A scene all of whose checks pass.
fn whole(nodes: &[Isa], cpus: usize, scene: &str) -> Result<(), Failed> {
    const SCENES: &str =
        "spawn ids heap mutex rwlock channel parking barrier scope-nested many futex";
    let names = SCENES.split(' ').map(|name| format!("threads.{name}"));
    let ran = console::good(&config(nodes, cpus, &format!("--scene {scene}")))?;
    console::passed(&ran, names)
}

/// Two programs, whose threads have different ids; the other one ends first, and gives everything back.
fn beside() -> Result<(), Failed> {
    let config = RunConfig {
        test: TestOptions {
            beside: Some("hop".into()),
            ..TestOptions::default()
        },
        ..config(PAIR, 1, "")
    };
    let ran = console::good(&config)?;
    console::passed(&ran, ["threads.many", "beside.returned", "frames.returned"])?;
    let other = &ran.0.beside.checks;
    match other.iter().any(|c| c.name == "hop.migrations" && c.ok) {
        true => Ok(()),
        false => because(&ran.1, "no check hop.migrations"),
    }
}

/// A scene that ends the program with a code, while threads run and wait: nothing is left of it.
fn ends_so(
    nodes: &[Isa],
    cpus: usize,
    scene: &str,
    code: u32,
    says: &[&str],
) -> Result<String, Failed> {
    let (report, text) = run(&config(nodes, cpus, &format!("--scene {scene}")));
    let found = |name: &str, ok: bool, detail: &str| {
        let mut checks = report.checks.iter();
        checks.any(|c| c.name == name && c.ok == ok && c.detail.contains(detail))
    };
    if !found("app.exit", false, &format!("ended with code {code}")) {
        return because(&text, format_args!("it must end with code {code}"));
    }
    if !found("frames.returned", true, "") {
        return because(&text, "not all frames came back");
    }
    match says.iter().find(|s| !text.contains(*s)) {
        Some(missing) => because(&text, format_args!("it must say {missing:?}")),
        None => Ok(text),
    }
}

/// Runs a scene that ends with an exit code, and checks what it prints.
fn ends(nodes: &[Isa], cpus: usize, scene: &str, code: u32, says: &[&str]) -> Result<(), Failed> {
    ends_so(nodes, cpus, scene, code, says).map(drop)
}

/// Codes with more than 32 bits are refused. One that init uses itself says nothing else.
fn codes() -> Result<(), Failed> {
    let (report, text) = run(&config(PAIR, 1, "--scene codes"));
    let of = |name: &str| -> Vec<_> { report.checks.iter().filter(|c| c.name == name).collect() };
    let refused = of("threads.codes");
    if refused.len() != 3 || refused.iter().any(|c| !c.ok) {
        return because(
            &text,
            format_args!("large codes must be refused: {refused:?}"),
        );
    }
    match of("app.exit")[..] {
        [end] if !end.ok && end.detail.ends_with("ended with code 103") => Ok(()),
        ref other => because(&text, format_args!("{other:?}")),
    }
}

/// The stack of a thread that is not the first ends in a guard.
fn overflow() -> Result<(), Failed> {
    const SAYS: &str = "thread 3: write to 0x";
    const WHY: &str = "its stack of 1024 KiB has run over";
    let text = ends_so(PAIR, 1, "overflow", 102, &[SAYS, WHY])?;
    let id = dyad_abi::service::thread_id(dyad_abi::service::program::FIRST, 3);
    let (bottom, _) = dyad_abi::user::stack_slot(Aarch64, id);
    let address = text
        .split(SAYS)
        .nth(1)
        .and_then(|t| u64::from_str_radix(t.split_whitespace().next()?, 16).ok());
    // The kernel has kept where the calls came from, which the handler of the fault cannot see.
    if !text.contains("user backtrace of cpu") || !text.contains(" times more") {
        return because(&text, format_args!("no callers are told"));
    }
    match address {
        Some(at) if (bottom - 4096..bottom).contains(&at) => Ok(()),
        _ => because(&text, format_args!("{address:x?} is not below {bottom:#x}")),
    }
}

/// Checks of the scene in which node 1 dies.
const LOST: &[&str] = &[
    "threads.lost-join",
    "threads.lost-waiting",
    "threads.lost-lock",
    "threads.lost-taken",
    "threads.lost-others",
    "threads.lost-node",
    "threads.lost-heap",
    "threads.lost-placed",
    "app.exit",
];
/// Node 1 dies when the program says that it may.
fn lost(nodes: &[Isa]) -> Result<(), Failed> {
    let config = RunConfig {
        on_death: OnDeath::Survive,
        ..config(nodes, 1, "--scene lost")
    };
    let ended = kill::run(&config, Kill::of(1), says("node 1 may die now"));
    ended.killed()?;
    for name in LOST {
        if !ended.passed(name) {
            return ended.because(format_args!("check {name} has not passed"));
        }
    }
    ended.lost_no_more_than(LEAKED)
}

/// Runs a scene several times, and checks that all checks of each run pass, `frames.returned` among them.
fn played(
    nodes: &[Isa],
    cpus: usize,
    scene: &str,
    rounds: u64,
    checks: &[&str],
) -> Result<(), Failed> {
    let args = format!("--scene {scene} --rounds {rounds}");
    console::passed(&console::good(&config(nodes, cpus, &args))?, checks)
}

/// All nodes touch the same new pages at once, and all frames come back.
fn race(nodes: &[Isa], cpus: usize, rounds: u64) -> Result<(), Failed> {
    let checks = ["threads.page_table_race", "frames.returned"];
    played(nodes, cpus, "race", rounds, &checks)
}

fn counted(nodes: &[Isa], cpus: usize, rounds: u64) -> Result<(), Failed> {
    let checks = ["threads.counts", "threads.counts-cost", "frames.returned"];
    played(nodes, cpus, "counts", rounds, &checks)
}

/// A node dies at some moment of work. Whatever it held, the run ends soon, and everything comes back; if
/// nobody needs what was lost with it, the program does not even notice.
fn dies_at_work(nodes: &[Isa], victim: usize, after_ms: u64) -> Result<(), Failed> {
    let config = RunConfig {
        on_death: OnDeath::Survive,
        ..config(nodes, 1, "--scene work --seconds 1")
    };
    let kill = Kill::after(victim, Duration::from_millis(after_ms));
    let ended = kill::run(&config, kill, says("threads: at work"));
    ended.within(PROMPT)?;
    // With node 0 the console is gone, and the first thread.
    if victim == 0 {
        return Ok(());
    }
    let Ended { report, text, .. } = &ended;
    match report.checks.iter().find(|c| c.name == "app.exit") {
        Some(c) if c.ok => {}
        Some(c) if c.detail.contains("code 101") && text.contains("lost") => {}
        other => return ended.because(format_args!("{other:?}")),
    }
    ended.lost_no_more_than(LEAKED)
}

/// More turns ring no more doorbells than there are more contended wake-ups, and send no messages.
fn doorbells() -> Result<(), Failed> {
    let mut seen = Vec::new();
    for turns in [50, 2050] {
        let (report, text) =
            console::good(&config(PAIR, 1, &format!("--scene futex --turns {turns}")))?;
        let rung = counter(&report, &text, "doorbells_rung")?;
        let sends = counter(&report, &text, "futex.sends")?;
        let messages = counter(&report, &text, "messages_sent")?;
        seen.push((rung, sends, messages, text));
    }
    let [(few, few_sends, some, _), (many, many_sends, more, text)] = &seen[..] else {
        return Err("two runs".into());
    };
    // Rounds of quiescence, and what else goes on in a longer run.
    const OTHERS: u64 = 40;
    if *many_sends < 500 {
        return because(text, format_args!("only {many_sends} contended wake-ups"));
    }
    if many.saturating_sub(*few) > many_sends.saturating_sub(*few_sends) + OTHERS {
        return because(
            text,
            format_args!(
                "{} doorbells more for {} wake-ups more",
                many - few,
                many_sends - few_sends
            ),
        );
    }
    // Starting and ending cost the same in both.
    if more.saturating_sub(*some) > 8 {
        return because(text, format_args!("{some} messages, then {more}"));
    }
    Ok(())
}
