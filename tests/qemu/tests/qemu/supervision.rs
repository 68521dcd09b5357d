//! Machines of a simulated system that stop, are paused by a debugger, are killed, or come again:
//! the other one goes on, at work and asleep.
//!
//! Both nodes run an in-kernel test of ticks, which says when the ticks begin and when they are
//! over. What is disturbed is the machine of one node, once it has begun; what must happen is that the
//! other's ticks are over while the first still stands still, or is dead.
//!
//! In the tier `long` everything is done twenty times, every other time on a busy host.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::console::Line;
use dyad_launcher::launch::{self, Event, RunReport};
use dyad_launcher::sim::Setup;
use dyad_sim_model::config::Order;
use dyad_sim_model::report::ClockReport;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::clock::{Burners, base, repetitions};
use crate::console::{self, Kept};
use crate::kill::{self, Ended, Kill};
use crate::times;

mod hold;

use hold::{By, Hold, Holder};

/// For how long a machine stands still, at least: longer than it is waited for.
const STILL: Duration = Duration::from_secs(3);
/// How long it is left alone before that.
const MOMENT: Duration = Duration::from_millis(50);
/// How long the other one may take.
const LIMIT: Duration = Duration::from_secs(120);
/// For how long a machine stands still that is stopped again and again: longer than it is waited for; and
/// how often.
const SHORTLY: Duration = Duration::from_millis(1200);
const PAUSES: usize = 8;
/// How often a machine may have come to the end before it was stopped.
const ATTEMPTS: usize = 5;

const MILLISECOND_PS: u64 = 1_000_000_000;
const AT_WORK: &str = "simulated_ticks_at_work_for_long";
const ASLEEP: &str = "simulated_ticks_asleep_for_long";
/// What the tests say, with their names before it.
const BEGIN: &str = "ticks begin";
const END: &str = "ticks end";

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("supervision");
    vec![
        test(Tiers::LONG, "a_stopped_machine_holds_nobody_up", || {
            scenes(&base(), By::Stop, Held::came_back)
        }),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_machine_paused_in_a_debugger_holds_nobody_up",
            || scenes(&base(), By::Debugger, Held::came_back),
        ),
        test(
            Tiers::LONG,
            "a_machine_paused_again_and_again_goes_on",
            teased,
        ),
        test(Tiers::LONG, "a_killed_machine_holds_nobody_up", killed),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_machine_that_comes_again_has_the_others_time",
            restarted,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_machine_that_comes_again_when_all_is_over_ends",
            restarted_in_vain,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_machine_that_comes_again_has_no_copies_of_its_own",
            restarted_incoherent,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "strict_order_waits_for_a_debugger_and_stays_the_same",
            strict,
        ),
    ]
}

// --- one machine stands still --------------------------------------------------------------------

/// A run in which a machine was held up.
struct Held {
    report: RunReport,
    /// When a node has said something, by node and words.
    said: BTreeMap<(usize, &'static str), Instant>,
    /// From when to when the machine stood still.
    still: Result<Option<(Instant, Instant)>, String>,
    text: String,
}

/// Stops a machine and lets it go on, again and again, while the other one's ticks are not over.
fn tease(mut machine: Box<dyn Hold>, over: &Receiver<()>) -> Result<(), String> {
    for _ in 0..PAUSES {
        machine.stop()?;
        std::thread::sleep(SHORTLY);
        machine.go_on()?;
        if over.recv_timeout(MOMENT) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    Ok(())
}

/// Holds a machine up, until the other one's ticks are over, and for a while at least; or [teases](tease)
/// it.
fn hold(
    holder: Holder,
    over: &Receiver<()>,
    most: Option<Duration>,
) -> Result<(Instant, Instant), String> {
    let mut machine = holder.join().map_err(|_| "a thread panicked")??;
    let Some(most) = most else {
        let begin = Instant::now();
        tease(machine, over)?;
        return Ok((begin, Instant::now()));
    };
    // What has been said has to have been done.
    std::thread::sleep(MOMENT);
    machine.stop()?;
    let stopped = Instant::now();
    let _ = over.recv_timeout(most);
    std::thread::sleep(STILL.saturating_sub(stopped.elapsed()));
    let gone_on = Instant::now();
    machine.go_on()?;
    Ok((stopped, gone_on))
}

/// Runs a test of ticks on both nodes, and holds the machine of one up when it has begun; or stops it
/// often for a moment.
fn held(
    config: RunConfig,
    test: &str,
    victim: usize,
    by: Option<By>,
    often: bool,
) -> Result<Held, String> {
    let config = RunConfig {
        work: Work::Ktest(vec![test.into()]),
        gdb: by == Some(By::Debugger),
        ..config
    };
    // In strict order the other one's ticks do not go on.
    let most = match config.setup.order {
        _ if often => None,
        Order::Parallel => Some(LIMIT),
        Order::Strict { .. } => Some(STILL),
    };
    let mut holders = BTreeMap::new();
    let mut holding = None;
    let mut said = BTreeMap::new();
    let (over, is_over) = channel();
    let mut is_over = Some(is_over);
    let mut kept = Kept::new(|event: &Event<'_>| {
        holders.extend(by.and_then(|by| by.find(event)));
        let Event::Line {
            node,
            line: Line::Log { text, .. },
            ..
        } = event
        else {
            return;
        };
        let Some(what) = [BEGIN, END].into_iter().find(|w| text == w) else {
            return;
        };
        said.insert((*node, what), Instant::now());
        if (*node == victim) == (what == END) {
            return;
        }
        if what == END {
            let _ = over.send(());
        } else if let (Some(holder), Some(is_over)) = (holders.remove(node), is_over.take()) {
            holding = Some(std::thread::spawn(move || hold(holder, &is_over, most)));
        }
    });
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    let still = match holding {
        Some(thread) => thread.join().map_err(|_| "a thread panicked")?.map(Some),
        None if by.is_none() => Ok(None),
        None => Err("the ticks never began".into()),
    };
    Ok(Held {
        report,
        said,
        still,
        text,
    })
}

impl Held {
    /// Whether the other node's ticks were over while the machine stood still. `None`: one of
    /// them was too quick to be held up.
    fn other_went_on(&self, victim: usize) -> Result<Option<()>, String> {
        let (from, to) = self.still.clone()?.ok_or("nobody was held up")?;
        let end = |node| self.said.get(&(node, END));
        let other = end(1 - victim).ok_or("the other one's ticks never end")?;
        if end(victim).is_some_and(|at| *at < from) || *other < from {
            return Ok(None);
        }
        match *other < to {
            true => Ok(Some(())),
            false => Err("the other one's ticks end only when the machine goes on".into()),
        }
    }

    fn clock(&self, node: usize) -> Result<ClockReport, String> {
        let outcome = self.report.simulation.as_ref();
        let outcome = outcome.ok_or("nothing was simulated")?;
        let of = outcome.nodes.iter().find(|n| n.total.node == node);
        Ok(of.and_then(|n| n.clock).ok_or("no clock")?)
    }

    /// After a machine that stood still has gone on: whether all has ended well, and the reports say
    /// what has happened.
    fn came_back(&self, victim: usize) -> Result<(), String> {
        if let Some(why) = self.report.failure() {
            return Err(why);
        }
        let (_, to) = self.still.clone()?.ok_or("nobody was held up")?;
        if self.said.get(&(victim, END)).is_none_or(|at| *at < to) {
            return Err("its ticks end while it stands still".into());
        }
        let (clock, other) = (self.clock(victim)?, self.clock(1 - victim)?);
        // Either node's overseer can be the one who notices.
        let noticed = clock.given_up + other.given_up > 0;
        let returned = clock.outside + clock.followed_ps > 0;
        match noticed && returned {
            true => Ok(()),
            false => Err(format!("nobody noticed: {clock:#?}, other: {other:#?}")),
        }
    }
}

/// Holds machines up until it has worked once, or as often as it is to be repeated.
fn scenes(
    config: &RunConfig,
    by: By,
    judge: fn(&Held, usize) -> Result<(), String>,
) -> Result<(), Failed> {
    let scenes = [(AT_WORK, 1), (ASLEEP, 0), (AT_WORK, 0), (ASLEEP, 1)];
    for i in 0..repetitions(scenes.len()) {
        let _burners = Burners::new(2 * (i / scenes.len() % 2));
        let (test, victim) = scenes[i % scenes.len()];
        let mut done = false;
        for _ in 0..ATTEMPTS {
            let held = held(config.clone(), test, victim, Some(by), false)?;
            let went_on = held.other_went_on(victim).and_then(|on| match on {
                Some(()) => judge(&held, victim).map(|()| true),
                None => Ok(false),
            });
            done = went_on.map_err(|why| {
                let text = &held.text;
                format!("{test}, {by:?} of node {victim}: {why}\n\nconsole:\n{text}")
            })?;
            if done {
                break;
            }
        }
        if !done {
            return Err(format!("{test}, {by:?} of node {victim}: always too late").into());
        }
    }
    Ok(())
}

/// A machine that is stopped while it sleeps, and others do something, still sleeps when it goes on, and
/// is woken for its next event.
fn teased() -> Result<(), Failed> {
    for i in 0..repetitions(2) {
        let _burners = Burners::new(2 * (i / 2 % 2));
        // The second one's sleep begins a little before the first one's, whose time it takes when it is
        // stopped.
        let held = held(base(), ASLEEP, 1 - i % 2, Some(By::Debugger), true)?;
        held.still?;
        if let Some(why) = held.report.failure() {
            return Err(format!("{why}\n\nconsole:\n{}", held.text).into());
        }
    }
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let config = RunConfig {
        on_death: OnDeath::Survive,
        ..base()
    };
    scenes(&config, By::Kill, |held, victim| {
        let other = &held.report.nodes[1 - victim];
        if other.exit.is_none() {
            return Err(format!("the other one {}", other.ended));
        }
        let bad = |c: &&launch::Check| !c.ok && c.name.starts_with("sim.");
        match held.report.checks.iter().find(bad) {
            Some(check) => Err(format!("{check:?}")),
            None => Ok(()),
        }
    })
}

/// A program that goes to and fro between the machines; one that dies is started again.
fn commuting(args: &str) -> RunConfig {
    RunConfig {
        work: console::app("node-deaths", args),
        on_death: OnDeath::Restart,
        ..base()
    }
}

/// A program goes to and fro to a machine that is killed and comes again. Its first life takes a time
/// that the second must not begin before.
fn restarted() -> Result<(), Failed> {
    let config = commuting("--seconds 0 --lives 2");
    for i in 0..repetitions(1) {
        let _burners = Burners::new(2 * (i % 2));
        let again = (0..2 * ATTEMPTS).find_map(|_| comes_again(&config).transpose());
        again.ok_or("the program was always on the machine that was killed")??;
    }
    Ok(())
}

/// Without coherent caches: recovery, and a machine that comes again, flush what they must, and what
/// the machine that died had in its caches is nobody's.
fn restarted_incoherent() -> Result<(), Failed> {
    let config = RunConfig {
        sim: Sim::Cache,
        coherent: false,
        ..commuting("--seconds 0 --lives 2")
    };
    for i in 0..repetitions(1) {
        let _burners = Burners::new(2 * (i % 2));
        let again = (0..2 * ATTEMPTS).find_map(|_| {
            let ended = killing_second(&config);
            let judged = sanitized(&ended.report).and_then(|()| match is_lost(&ended.report) {
                true => Ok(None),
                false => came_again(&ended).map(Some),
            });
            let judged = judged.map_err(|why| format!("{why}\n\nconsole:\n{}", ended.text));
            judged.transpose()
        });
        again.ok_or("the program was always on the machine that was killed")??;
    }
    Ok(())
}

/// Whether the sanitizer has looked at a run and found nothing.
fn sanitized(report: &RunReport) -> Result<(), String> {
    let mut checks = report.checks.iter();
    match checks.find(|c| c.name == "sim.sanitizer") {
        Some(check) if check.ok => Ok(()),
        Some(check) => Err(format!("{check:?}")),
        None => Err("no sanitizer has looked at it".into()),
    }
}

/// The program is lost with the machine, so the others end while it comes again: then it has nobody
/// to come to, and ends too.
fn restarted_in_vain() -> Result<(), Failed> {
    let config = commuting("--seconds 1 --home 1 --away 0");
    for i in 0..repetitions(1) {
        let _burners = Burners::new(2 * (i % 2));
        // Its first words are said at home, and nearly all of its time is spent there.
        let lost = (0..2 * ATTEMPTS).find_map(|_| match killing_second(&config) {
            ended if is_lost(&ended.report) => Some(ended),
            _ => None,
        });
        let Ended { report, text, .. } =
            lost.ok_or("the program was never on the machine that was killed")?;
        if !text.contains("starting node 1 (aarch64) again") {
            return Err(format!("it was not started again\n\nconsole:\n{text}").into());
        }
        // That the program has failed is a check's finding; an error is what the launcher had to end.
        if let Some(why) = report.error {
            return Err(format!("{why}\n\nconsole:\n{text}").into());
        }
    }
    Ok(())
}

/// Whether the program was on the machine that was killed.
fn is_lost(report: &RunReport) -> bool {
    let lost = |c: &launch::Check| c.name == "app.exit" && c.detail.contains("lost with a node");
    report.checks.iter().any(lost)
}

/// Kills the second node's machine when the program has begun. `None`: the program was there, and lost,
/// which is another test.
fn comes_again(config: &RunConfig) -> Result<Option<()>, String> {
    let ended = killing_second(config);
    if is_lost(&ended.report) {
        return Ok(None);
    }
    let judged = came_again(&ended).map(Some);
    judged.map_err(|why| format!("{why}\n\nconsole:\n{}", ended.text))
}

/// A run whose second node's machine is killed as soon as the program has said something.
fn killing_second(config: &RunConfig) -> Ended {
    kill::run(config, Kill::of(1), kill::speaks)
}

fn came_again(ended: &Ended) -> Result<(), String> {
    let report = &ended.report;
    if ended.went_on.is_none() {
        return Err("nobody was killed".into());
    }
    if let Some(why) = report.failure() {
        return Err(why);
    }
    if !ended.passed("node-deaths.lives") || !ended.text.contains("joined as incarnation 2") {
        return Err("it did not come again".into());
    }
    // Both nodes' clocks end when the system does.
    let outcome = report.simulation.as_ref().ok_or("nothing was simulated")?;
    let ends: Vec<u64> = (outcome.nodes.iter().filter_map(|n| n.clock))
        .map(|c| c.total_ps)
        .collect();
    match ends[..] {
        [a, b] if a.abs_diff(b) < MILLISECOND_PS => Ok(()),
        _ => Err(format!("the clocks end at {ends:?} ps")),
    }
}

/// In strict order, with debuggers, a machine is waited for as long as it stands still. So what
/// happens is the same as if it never had.
fn strict() -> Result<(), Failed> {
    let config = RunConfig {
        setup: Setup {
            order: Order::Strict { seed: 3 },
            ..Setup::default()
        },
        ..base()
    };
    for i in 0..repetitions(1) {
        let _burners = Burners::new(2 * (i % 2));
        let mut hashes = Vec::new();
        for by in [None, Some(By::Debugger)] {
            let held = held(config.clone(), AT_WORK, 1, by, false)?;
            let outcome = held.report.simulation.as_ref();
            let hash = outcome.and_then(|o| o.trace_hash.clone());
            let bad = held.report.failure().or_else(|| {
                let (_, to) = held.still.clone().ok()??;
                let waited = |node| held.said.get(&(node, END)).is_some_and(|at| *at > to);
                (!waited(0) || !waited(1)).then(|| "somebody has gone on".into())
            });
            let disturbed = outcome.map(|o| o.disturbances.join("; "));
            if bad.is_some() || hash.is_none() || disturbed != Some(String::new()) {
                let text = &held.text;
                return Err(format!("{by:?}: {bad:?}, {disturbed:?}\n\n{text}").into());
            }
            hashes.push(hash);
        }
        if hashes[0] != hashes[1] {
            return Err(format!("another history: {hashes:?}").into());
        }
    }
    Ok(())
}
