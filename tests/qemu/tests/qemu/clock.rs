//! The simulator's clock on real machines: what happens, and when, is the same in every run, and
//! nobody waits for a machine that has been stopped.
//!
//! With `DYAD_LONG=1` runs are repeated twenty times.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dyad_abi::boot::OnDeath;
use dyad_abi::record::Level;
use dyad_sim_model::config::Order;
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Sim, Work};
use xtask::console::{Line, Record};
use xtask::launch::{self, Event, RunReport};
use xtask::sim::Setup;

use crate::console::Kept;

/// From ringing to the interrupt, in nanoseconds, by the default configuration.
const IPI_NS: u64 = 2000;
/// What comes on top: sending the message, and from when the interrupt is due to the reading of the
/// clock. A CPU at work looks for interrupts about every 500 ns.
const AROUND_NS: u64 = 1500;
/// Longest block, and from the interrupt to the reading of the clock.
const LATE_NS: u64 = 1000;

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, f: fn() -> Result<(), Failed>| {
        Trial::test(format!("clock::{name}"), f).with_kind("system")
    };
    vec![
        test("ticks_and_doorbells_have_one_history", histories),
        test("strict_order_repeats_a_run", strict),
        test("a_stopped_machine_delays_nobody_for_long", stopped),
        test("a_killed_machine_delays_nobody", killed),
    ]
}

fn repetitions(quick: usize) -> usize {
    match std::env::var_os("DYAD_LONG") {
        Some(_) => 20,
        None => quick,
    }
}

fn base() -> RunConfig {
    RunConfig {
        sim: Sim::Count,
        timeout: Some(Duration::from_secs(200)),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        ..RunConfig::default()
    }
}

fn hop() -> RunConfig {
    RunConfig {
        work: Work::App {
            app: "hop".into(),
            args: String::new(),
        },
        ..base()
    }
}

/// Runs a system; its console is in the error.
fn run(config: &RunConfig, each: impl FnMut(&Event<'_>)) -> Result<RunReport, String> {
    let mut kept = Kept::new(each);
    let report = launch::run(config, &mut kept);
    match report.failure() {
        Some(why) => Err(format!("{why}\n\nconsole:\n{}", kept.text(&report))),
        None => Ok(report),
    }
}

/// Threads that keep all processors busy as long as this lives.
struct Burners(std::sync::Arc<AtomicBool>);

impl Burners {
    fn new(n: usize) -> Burners {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        for _ in 0..n {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Burners(stop)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What in-kernel tests remark, by node and test, and how long the host took for each.
type Remarks = BTreeMap<(usize, String), (String, Duration)>;

fn remarks(names: &[&str]) -> Result<Remarks, String> {
    let config = RunConfig {
        work: Work::Ktest(names.iter().map(ToString::to_string).collect()),
        ..base()
    };
    let mut began = BTreeMap::new();
    let mut all = BTreeMap::new();
    run(&config, |event| {
        if let Event::Line {
            node,
            host,
            line:
                Line::Record(Record::Ktest {
                    name,
                    state,
                    detail,
                }),
            ..
        } = event
        {
            let key = (*node, name.clone());
            match state.as_str() {
                "start" => {
                    began.insert(key, *host);
                }
                _ => {
                    let took = host.saturating_sub(began.get(&key).copied().unwrap_or_default());
                    all.insert(key, (detail.clone(), took));
                }
            }
        }
    })?;
    Ok(all)
}

/// The number before these words.
fn number_before(text: &str, words: &str) -> Result<u64, String> {
    let before = text.split(words).next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number
        .parse()
        .map_err(|_| format!("no number before {words:?} in {text:?}"))
}

fn histories() -> Result<(), Failed> {
    let names = [
        "simulated_ticks_asleep",
        "simulated_ticks_at_work",
        "simulated_doorbells",
    ];
    let mut first: Option<BTreeMap<_, String>> = None;
    let mut quickest = Duration::MAX;
    for i in 0..repetitions(4) {
        // Every other time the host has something else to do.
        let _burners = Burners::new(2 * (i % 2));
        let all = remarks(&names)?;
        for node in 0..2 {
            let of = |name: &str| all.get(&(node, name.to_string()));
            for name in &names[..2] {
                let (remark, took) = of(name).ok_or("a test did not end")?;
                let late = number_before(remark, " ns late")?;
                if late > LATE_NS {
                    return Err(format!("{name} on node {node}: {remark}").into());
                }
                if *name == names[0] {
                    quickest = quickest.min(*took);
                }
            }
        }
        let (remark, _) = &all[&(1, names[2].to_string())];
        let (least, most) = (
            number_before(remark, " to ")?,
            number_before(remark, " ns")?,
        );
        if least < IPI_NS || most > IPI_NS + AROUND_NS {
            return Err(format!("doorbells do not take their time: {remark}").into());
        }
        let texts = all
            .into_iter()
            .map(|(k, (remark, _))| (k, remark))
            .collect();
        match &first {
            None => first = Some(texts),
            Some(first) if *first == texts => {}
            Some(first) => {
                return Err(format!("run {i} differs: {texts:#?}\nfirst: {first:#?}").into());
            }
        }
    }
    // A second of simulated time.
    match quickest < Duration::from_secs(1) {
        true => Ok(()),
        false => Err(format!("1000 ticks asleep took {quickest:?} at least").into()),
    }
}

fn strict() -> Result<(), Failed> {
    let of_seed = |seed| -> Result<(String, Vec<Vec<u8>>), String> {
        let config = RunConfig {
            setup: Setup {
                order: Order::Strict { seed },
                ..Setup::default()
            },
            ..hop()
        };
        let report = run(&config, |_| {})?;
        let outcome = report.simulation.as_ref().ok_or("nothing was simulated")?;
        for node in &outcome.nodes {
            let clock = node.clock.ok_or("no clock")?;
            if (clock.turns_taken, clock.outside, clock.handshake_timeouts) != (0, 0, 0) {
                return Err(format!("something came from outside: {clock:?}"));
            }
        }
        let trace = outcome.trace_hash.clone().ok_or("no trace")?;
        let consoles = report.nodes.iter().map(|n| n.console.clone()).collect();
        Ok((trace, consoles))
    };
    let first = of_seed(1)?;
    for i in 1..repetitions(3) {
        let again = of_seed(1)?;
        if again.0 != first.0 {
            return Err(format!("run {i} has trace {}, the first {}", again.0, first.0).into());
        }
        if again.1 != first.1 {
            return Err(format!("run {i} has other consoles").into());
        }
    }
    match of_seed(2)?.0 == first.0 {
        false => Ok(()),
        true => Err("two seeds have the same trace".into()),
    }
}

/// Sends a signal to a process.
fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
}

/// Runs a system and does something to the machine of a node when the program speaks first.
fn disturbed(
    config: &RunConfig,
    victim: usize,
    mut act: impl FnMut(u32),
) -> Result<RunReport, String> {
    let mut pid = None;
    let mut done = false;
    run(config, |event| match event {
        Event::Started { node, pid: p, .. } if *node == victim => pid = Some(*p),
        Event::Line {
            line: Line::Log { level, .. },
            ..
        } if *level == Level::User && !done => {
            done = true;
            if let Some(pid) = pid {
                act(pid);
            }
        }
        _ => {}
    })
}

/// The first node's machine is stopped, then the second's: each time the other one goes on, and all
/// ends well when it is back.
fn stopped() -> Result<(), Failed> {
    for victim in [0, 1] {
        let mut config = hop();
        config.timeout = Some(Duration::from_secs(60));
        let report = disturbed(&config, victim, |pid| {
            signal(pid, "STOP");
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(3));
                signal(pid, "CONT");
            });
        })?;
        let outcome = report.simulation.ok_or("nothing was simulated")?;
        let clocks: Vec<_> = outcome.nodes.iter().filter_map(|n| n.clock).collect();
        let [zero, one] = clocks[..] else {
            return Err("there are not two clocks".into());
        };
        let (stopped, other) = if victim == 0 {
            (zero, one)
        } else {
            (one, zero)
        };
        // The other one, or the one that oversees it.
        if other.given_up == 0 && stopped.outside == 0 && stopped.followed_ps == 0 {
            return Err(format!("nobody noticed: {stopped:#?} {other:#?}").into());
        }
    }
    Ok(())
}

/// The second machine dies, while the first works and while it sleeps.
fn killed() -> Result<(), Failed> {
    for (app, args) in [("commute", "--seconds 1"), ("hop", "")] {
        let config = RunConfig {
            work: Work::App {
                app: app.into(),
                args: args.into(),
            },
            on_death: OnDeath::Survive,
            timeout: Some(Duration::from_secs(60)),
            ..base()
        };
        let mut pid = None;
        let mut killed = false;
        let mut sink = Kept::new(|event: &Event<'_>| match event {
            Event::Started {
                node: 1, pid: p, ..
            } => pid = Some(*p),
            Event::Line {
                line: Line::Log { level, .. },
                ..
            } if *level == Level::User && !killed => {
                killed = true;
                if let Some(pid) = pid {
                    signal(pid, "KILL");
                }
            }
            _ => {}
        });
        let report = launch::run(&config, &mut sink);
        let failure = report.failure().unwrap_or_default();
        // The program may have been lost with the machine. It must not have been waited for.
        let waited = failure.contains("time limit") || failure.contains("still running");
        let ended = report.nodes.first().and_then(|n| n.exit).is_some();
        if waited || !ended {
            return Err(format!("{app}: {failure}\n\n{}", sink.text(&report)).into());
        }
    }
    Ok(())
}
