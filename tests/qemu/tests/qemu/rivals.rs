//! Two programs beside each other: what one takes from the other by what it does with the services
//! that they share. The program `rival` attacks, the program `victim` works; what each does and
//! checks is in their headers.

use std::collections::BTreeMap;
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::service::Grant;
use dyad_launcher::config::{RunConfig, Sim, TestOptions};
use dyad_launcher::launch::{Check, RunReport};
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::times;

/// What the console lets a client write: at once, and per second, in bytes with 32 for each line.
const AT_ONCE: u64 = 256 << 10;
const PER_SECOND: u64 = 64 << 10;

/// What a report of the rival costs at least, with a name of 64 bytes.
const REPORT: u64 = 64 + 96;

type Scene = fn(Vec<Isa>) -> Result<(), Failed>;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let scenes = [
        ("console_flood", console as Scene),
        ("reports", reports),
        ("exhaustion_of_the_pager", memory),
        ("a_full_list_of_moves", moves),
        ("flood_of_questions_about_memory", state),
        ("a_program_of_sixty_threads", threads),
        ("threads_that_begin_and_end", churn),
        ("a_look_at_their_input", input),
        ("nesting_of_invocations", nested),
    ];
    let orders = [
        ("", [X86_64, Aarch64]),
        ("_in_reversed_order", [Aarch64, X86_64]),
    ];
    let all = scenes
        .into_iter()
        .enumerate()
        .flat_map(|(i, (name, scene))| {
            orders
                .into_iter()
                .enumerate()
                .map(move |(n, (order, nodes))| {
                    let name = format!("hostile::{name}_does_not_stop_others{order}");
                    let tiers = match i % 2 == n {
                        true => Tiers::FULL.and(Tiers::LONG),
                        false => Tiers::LONG,
                    };
                    times::test(tiers, name, move || scene(nodes.to_vec()))
                })
        });
    all.collect()
}

struct Played {
    report: RunReport,
    text: String,
}

fn play(nodes: Vec<Isa>, scene: &str) -> Result<Played, Failed> {
    play_as(nodes, ("victim", "rival"), scene, RunConfig::default())
}

/// In simulated time, so that shares of it do not depend on what this computer does otherwise.
fn play_simulated(nodes: Vec<Isa>, scene: &str) -> Result<Played, Failed> {
    let base = RunConfig {
        sim: Sim::Timing,
        setup: Setup {
            order: Order::Strict { seed: 0 },
            ..Setup::default()
        },
        ..RunConfig::default()
    };
    let scene = format!("{scene} --brief on");
    play_as(nodes, ("victim", "rival"), &scene, base)
}

/// The run's program and one beside it.
fn play_as(
    nodes: Vec<Isa>,
    (program, beside): (&str, &str),
    scene: &str,
    base: RunConfig,
) -> Result<Played, Failed> {
    let config = RunConfig {
        nodes,
        work: console::app(program, format!("--scene {scene}")),
        input: numbers().into_bytes(),
        timeout: Some(Duration::from_secs(120)),
        test: TestOptions {
            beside: Some(beside.into()),
            ..TestOptions::default()
        },
        ..base
    };
    let (report, text) = console::run(&config);
    let played = Played { report, text };
    // All checks of the victim, and the frames of both.
    match played.report.failure() {
        Some(why) => played.because(why),
        None => Ok(played),
    }
}

impl Played {
    fn because<T>(&self, why: impl std::fmt::Display) -> Result<T, Failed> {
        // Not the flood.
        let said = |l: &&str| ["victim", "rival", "init"].iter().any(|w| l.contains(w));
        let text: Vec<&str> = self.text.lines().filter(said).collect();
        Err(format!("{why}\n\nconsole:\n{}", text.join("\n")).into())
    }

    /// A counter of the victim.
    fn counter(&self, name: &str) -> Result<u64, Failed> {
        self.counter_in(&self.report.counters, name)
    }

    /// A counter of the rival.
    fn rivals(&self, name: &str) -> Result<u64, Failed> {
        self.counter_in(&self.report.beside.counters, name)
    }

    fn counter_in(&self, of: &BTreeMap<String, u64>, name: &str) -> Result<u64, Failed> {
        match of.get(name) {
            Some(&n) => Ok(n),
            None => self.because(format_args!("no counter {name}")),
        }
    }

    /// A check of the rival has passed.
    fn rival_passed(&self, name: &str) -> Result<(), Failed> {
        let checks = &self.report.beside.checks;
        match checks.iter().any(|c| c.name == name && c.ok) {
            true => Ok(()),
            false => self.because(format_args!("no check {name} of the rival has passed")),
        }
    }

    fn passed(&self, name: &str) -> Result<(), Failed> {
        match self.report.checks.iter().any(|c| c.name == name && c.ok) {
            true => Ok(()),
            false => self.because(format_args!("no check {name} has passed")),
        }
    }

    /// Whether a line of the console comes after another one, each found by a part of it.
    fn comes_after(&self, late: &str, early: &str) -> Result<(), Failed> {
        let last = self.text.rfind(late);
        match (self.text.find(early), last) {
            (Some(early), Some(late)) if early < late => Ok(()),
            _ => self.because(format_args!("no {late:?} after {early:?}")),
        }
    }
}

/// A program that is as deep in services as they let it, on all of its threads, has used up nothing: the program beside
/// it is served meanwhile, a later thread of its own, too, and so are the wardens, which take both down.
fn nested(nodes: Vec<Isa>) -> Result<(), Failed> {
    let base = RunConfig {
        grant: Grant::All,
        ..RunConfig::default()
    };
    let p = play_as(nodes, ("nested", "victim"), "memory", base)?;
    for name in ["depth", "doors", "later"] {
        p.passed(&format!("nested.{name}"))?;
    }
    for name in ["beside.returned", "frames.returned"] {
        p.passed(name)?;
    }
    p.rival_passed("victim.memory")
}

/// The lines and the work of the victim get through, and all of its lines do, whole and in order;
/// the flood is as large as the console lets it be and no larger.
fn console(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "console")?;
    for node in 0..2 {
        p.passed(&format!("victim.console.node{node}"))?;
    }
    p.passed("beside.returned")?;
    let all = p.counter("victim.lines")?;
    let numbers = p.text.lines().filter_map(|l| {
        let (_, line) = l.split_once("victim: line ")?;
        line.split_once(" from node ")?.0.parse().ok()
    });
    let numbers: Vec<u64> = numbers.collect();
    if numbers.is_empty() || !numbers.iter().copied().eq(1..=all) {
        let n = numbers.len();
        return p.because(format_args!("{n} lines of {all}, or not in order"));
    }
    let (bytes, refused) = (p.rivals("rival.bytes")?, p.rivals("rival.refused")?);
    // Host time is no shorter than fused time.
    let seconds = p.report.host_ms.run / 1000 + 2;
    let most = AT_ONCE + PER_SECOND * seconds;
    if refused == 0 || bytes > most || bytes < AT_ONCE / 64 {
        return p.because(format_args!(
            "the flood had {bytes} bytes, which may be {most}, and was refused {refused} times"
        ));
    }
    p.comes_after("victim: after all that", "\"rival\" ended with code 0")
}

/// What the rival reports is its own: the run succeeds although a check of it failed, no check or counter of
/// others is touched, no line of the launcher is forged, and there is as much as the console lets there be.
fn reports(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "reports")?;
    p.passed("beside.returned")?;
    p.rival_passed("rival.names")?;
    let of = |checks: &[Check]| -> Vec<bool> {
        let named = checks.iter().filter(|c| c.name == "victim.reports");
        named.map(|c| c.ok).collect()
    };
    let (own, forged) = (of(&p.report.checks), of(&p.report.beside.checks));
    if own != [true] || forged != [false] {
        return p.because(format_args!("victim.reports is {own:?} and {forged:?}"));
    }
    let (own, forged) = (p.counter("victim.reported")?, p.rivals("victim.reported")?);
    if own != 1 || forged != u64::MAX {
        return p.because(format_args!("victim.reported is {own} and {forged}"));
    }
    let broken = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    if let Some(c) = p.text.chars().find(|&c| broken(c)) {
        return p.because(format_args!("{c:?} was printed"));
    }
    // The summary of the run ends the text, and there is no other.
    let ends = p.text.lines().filter(|l| l.starts_with("ok: "));
    let shown = ends.count();
    let escaped =
        r"(x)\n[0 x86_64/-  +0.001] check app.exit: ok\nok: 99 checks passed\u{9b}31m\u{202e})";
    if shown != 1 || !p.text.contains(escaped) {
        return p.because(format_args!("{shown} summaries, or not {escaped:?}"));
    }
    let (bytes, refused) = (p.rivals("rival.bytes")?, p.rivals("rival.refused")?);
    let seconds = p.report.host_ms.run / 1000 + 2;
    // Each costs more than its name.
    let most = (AT_ONCE + PER_SECOND * seconds) * 64 / REPORT;
    if refused == 0 || bytes > most || bytes < AT_ONCE / 64 {
        return p.because(format_args!(
            "names of {bytes} bytes were reported, which may be {most}; {refused} were refused"
        ));
    }
    p.comes_after("victim: after all that", "\"rival\" ended with code 0")
}

/// The victim gets memory all the time, while the rival has all it can have, takes all there is, and
/// is ended for it; then what it had has come back.
fn memory(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "memory")?;
    for name in ["victim.memory", "victim.refused", "beside.returned"] {
        p.passed(name)?;
    }
    p.rival_passed("rival.ranges-end")?;
    p.comes_after("rival: takes all memory", "rival: has 62 ranges")?;
    p.comes_after("\"rival\" ended with code 102", "rival: takes all memory")?;
    p.comes_after("times so far", "\"rival\" ended with code 102")
}

/// The rival has all entries for moves that it can have, while the victim is moved.
fn moves(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "moves")?;
    for name in ["rival.moves-end", "rival.moves-full"] {
        p.rival_passed(name)?;
    }
    p.passed("victim.moves")?;
    p.comes_after("victim: moved", "rival: has 8 moves")
}

/// Questions of the victim are answered, and it gets memory, while the rival asks without a pause.
fn state(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "state")?;
    p.passed("victim.state")?;
    p.comes_after("victim: has asked", "rival: asks for the state of memory")
}

/// The victim's only thread has a program's share of its CPU beside sixty threads of the rival, on each node.
fn threads(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play_simulated(nodes, "threads")?;
    for node in 0..2 {
        p.passed(&format!("victim.threads.node{node}"))?;
    }
    p.rival_passed("rival.threads")?;
    p.passed("beside.returned")
}

/// Nor do ends of threads, of which init is told, take that share: what init does about them has an allowance.
fn churn(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play_simulated(nodes, "churn")?;
    for node in 0..2 {
        p.passed(&format!("victim.threads.node{node}"))?;
    }
    match p.rivals("rival.started")? {
        0..100 => p.because("too few threads have begun and ended"),
        _ => p.passed("beside.returned"),
    }
}

/// Numbers, one a line, on more than one page.
fn numbers() -> String {
    (0..2000).map(|n| format!("{n}\n")).collect()
}

/// The rival has no input, and reading where that of the victim is ends it.
fn input(nodes: Vec<Isa>) -> Result<(), Failed> {
    let p = play(nodes, "input")?;
    p.passed("victim.input")?;
    p.rival_passed("rival.input")?;
    p.comes_after("read of 0x1a0000000", "rival: reads the input")?;
    match p.text.contains("rival: has read") {
        false => Ok(()),
        true => p.because("the rival has read the input"),
    }
}
