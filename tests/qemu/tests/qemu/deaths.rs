//! Machines that are killed at random moments: a few times in each scene, in the tier `long` a hundred kills in
//! storms and ten in each other scene.
//! `DYAD_SEED` gives other moments; every failure names its seed.
//!
//! Whatever the moment, the others must go on, and the run must end in one of these ways: the program
//! is done; it has ended because it was refused a node or the console; its thread was on the machine,
//! and it has ended without success; or the system had not been built yet, and that is said. All
//! frames must come back, but for those that the dead machine was just changing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, TestOptions};
use dyad_launcher::launch::Event;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::kill::{self, Ended, Kill, mix};
use crate::times;

/// Kills of a scene in the long form: of storms and of services, which there are two of, and of other programs.
const LONG_STORM: usize = 50;
const LONG: usize = 10;
/// Frames that a machine can have been changing when it died, per CPU: two of its row, and the leaf
/// and table of a fault.
const LEAKED: u64 = 8;
/// How long a run may take to end once its program is lost.
const PROMPT: Duration = Duration::from_secs(15);

/// From when on the moment is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// The start of the machines.
    Start,
    /// The start of init, which builds the system and starts threads on all nodes.
    Init,
    /// The first words of the program.
    Words,
}

#[derive(Clone, Copy, Debug)]
struct Scene {
    name: &'static str,
    nodes: &'static [Isa],
    cpus: usize,
    app: &'static str,
    args: &'static str,
    victim: usize,
    policy: OnDeath,
    from: From,
    /// The latest moment, in milliseconds.
    until: u64,
    /// Kills in the quick form.
    quick: usize,
}

const PAIR: &[Isa] = &[X86_64, Aarch64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];

/// A program that goes to and fro between the nodes of a pair.
const COMMUTE: Scene = Scene {
    name: "commuting_to_a_node_that_comes_back",
    nodes: PAIR,
    cpus: 1,
    app: "node-deaths",
    args: "--seconds 1 --lives 2",
    victim: 1,
    policy: OnDeath::Restart,
    from: From::Words,
    until: 800,
    quick: 3,
};

/// Random system calls of all nodes.
const STORM: Scene = Scene {
    name: "storm_with_a_node_that_comes_back",
    app: "storm",
    args: "--seconds 3 --deaths",
    until: 2500,
    quick: 2,
    ..COMMUTE
};

/// Threads that are in the pager, the console and init's process service when their node dies.
const SERVED: Scene = Scene {
    name: "services_whose_clients_die_in_them",
    app: "threads",
    args: "--scene served --seconds 2",
    policy: OnDeath::Survive,
    until: 1200,
    quick: 3,
    ..COMMUTE
};

const SCENES: [Scene; 14] = [
    COMMUTE,
    Scene {
        name: "commuting_to_a_node_that_does_not_come_back",
        args: "--seconds 1",
        policy: OnDeath::Survive,
        quick: 2,
        ..COMMUTE
    },
    Scene {
        name: "commuting_from_the_other_side",
        nodes: THREE,
        args: "--seconds 1 --home 1 --away 2 --lives 2",
        victim: 2,
        quick: 2,
        ..COMMUTE
    },
    Scene {
        name: "commuting_when_the_first_node_dies",
        nodes: THREE,
        args: "--seconds 1 --home 2 --away 1",
        victim: 0,
        quick: 2,
        ..COMMUTE
    },
    Scene {
        name: "hopping",
        app: "hop",
        args: "",
        policy: OnDeath::Survive,
        until: 100,
        quick: 1,
        ..COMMUTE
    },
    Scene {
        name: "sorting_at_home",
        app: "npb",
        args: "--class W --hop off",
        policy: OnDeath::Survive,
        until: 1000,
        quick: 1,
        ..COMMUTE
    },
    Scene {
        name: "sorting_on_both_sides",
        app: "npb",
        args: "--class W",
        until: 1000,
        quick: 1,
        ..COMMUTE
    },
    SERVED,
    Scene {
        name: "services_whose_clients_die_in_them_reversed",
        nodes: &[Aarch64, X86_64],
        ..SERVED
    },
    STORM,
    Scene {
        name: "storm_on_three_nodes",
        nodes: THREE,
        victim: 2,
        policy: OnDeath::Survive,
        quick: 1,
        ..STORM
    },
    // The node can die before the first trip to it.
    Scene {
        name: "starting_without_the_second_node",
        args: "--seconds 1 --lives 0",
        policy: OnDeath::Survive,
        from: From::Start,
        until: 500,
        quick: 2,
        ..COMMUTE
    },
    // Threads of init and of services have been sent to the node, and have not begun there.
    Scene {
        name: "starting_services_without_the_second_node",
        args: "--seconds 1 --lives 0",
        policy: OnDeath::Survive,
        from: From::Init,
        until: 1200,
        quick: 4,
        ..COMMUTE
    },
    Scene {
        name: "starting_without_the_first_node",
        args: "--seconds 1 --lives 0",
        victim: 0,
        policy: OnDeath::Survive,
        from: From::Start,
        until: 500,
        quick: 2,
        ..COMMUTE
    },
];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    SCENES
        .iter()
        .map(|scene| {
            let f = move || play(scene);
            times::test(
                Tiers::FULL.and(Tiers::LONG),
                format!("deaths::{}", scene.name),
                f,
            )
        })
        .collect()
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// The program was done.
    Done,
    /// It was done before the machine was killed.
    TooEarly,
    /// The program was lost with the machine.
    Lost,
    /// The program was refused a migration, and takes that for its end.
    Refused,
    /// The program could not say that it was done: the console's node was dead.
    Mute,
    /// The system had not been built yet.
    NotStarted,
}

fn play(scene: &Scene) -> Result<(), Failed> {
    let seed = kill::seed();
    let long = match scene.app {
        "storm" | "threads" => LONG_STORM,
        _ => LONG,
    };
    let kills = size(scene.quick, scene.quick, long);
    let mut endings: BTreeMap<Ending, usize> = BTreeMap::new();
    let mut failures = String::new();
    let mut failed = 0;
    // Each scene has moments of its own.
    let own = scene.name.bytes().fold(seed, |n, b| mix(n ^ u64::from(b)));
    for i in 0..kills as u64 {
        let moment = Duration::from_micros(mix(own ^ mix(i)) % (scene.until * 1000));
        match die(scene, moment) {
            Ok((ending, leaked, text)) => {
                *endings.entry(ending).or_default() += 1;
                eprintln!(
                    "{} at {moment:?}: {ending:?}, {leaked} frames leaked",
                    scene.name
                );
                if leaked > 0 {
                    let told = |l: &&str| l.contains("stuck: ") || l.contains("given up");
                    text.lines().filter(told).for_each(|l| eprintln!("  {l}"));
                }
            }
            Err(why) => {
                failed += 1;
                let first = why.lines().next().unwrap_or_default();
                eprintln!("{} at {moment:?}: FAILED: {first}", scene.name);
                let _ = writeln!(failures, "seed {seed}, kill {i}, at {moment:?}: {why}\n");
            }
        }
    }
    eprintln!(
        "{}: {kills} kills, {failed} failed, {endings:?}",
        scene.name
    );
    match failed {
        0 => Ok(()),
        _ => Err(failures.into()),
    }
}

fn die(scene: &Scene, moment: Duration) -> Result<(Ending, u64, String), String> {
    let config = RunConfig {
        nodes: scene.nodes.to_vec(),
        cpus: scene.cpus,
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        work: console::app(scene.app, scene.args),
        on_death: scene.policy,
        timeout: Some(Duration::from_secs(90)),
        test: TestOptions {
            bare: scene.app == "storm",
            ..TestOptions::default()
        },
        ..RunConfig::default()
    };
    let is_time = |e: &Event<'_>| match scene.from {
        From::Start => matches!(e, Event::Started { node, .. } if *node == scene.victim),
        From::Init => kill::says("started \"init\"")(e),
        From::Words => kill::speaks(e),
    };
    let ended = kill::run(&config, Kill::after(scene.victim, moment), is_time);
    match judge(scene, &ended) {
        Ok((ending, leaked)) => Ok((ending, leaked, ended.text)),
        Err(why) => Err(format!("{why}\n\nconsole:\n{}", ended.text)),
    }
}

/// Whether that may be.
fn judge(scene: &Scene, ended: &Ended) -> Result<(Ending, u64), String> {
    let Ended {
        report,
        text,
        went_on,
        ..
    } = ended;
    let detail = |name: &str, ok: bool| {
        let found = report.checks.iter().find(|c| c.name == name && c.ok == ok);
        found.map(|c| c.detail.as_str())
    };
    if text.contains("panic") {
        return Err("a kernel panicked".into());
    }
    // Threads of the system go on, or end by themselves, wherever a death has sent them.
    let of_system = [
        "program \"quiesced\", thread ",
        "program \"sched\", thread ",
        "service \"",
    ];
    let faulted = |l: &&str| of_system.iter().any(|w| l.contains(w)) && l.contains(" at pc ");
    if let Some(l) = text.lines().find(faulted) {
        return Err(format!("a thread of the system has faulted: {l}"));
    }
    let storm = scene.app == "storm";
    let count = if storm {
        "storm.returned"
    } else {
        "frames.returned"
    };
    let leaked = detail(count, false).map_or(Some(0), kill::missing);
    let leaked = leaked.ok_or("the program was not taken down")?;
    if leaked > LEAKED * scene.cpus as u64 {
        return Err(format!("{leaked} frames leaked"));
    }
    let expected = ["app.exit", count, "init.start"];
    let wrong = |c: &&dyad_launcher::launch::Check| !c.ok && !expected.contains(&c.name.as_str());
    let lost = detail("app.exit", false).is_some_and(|d| d.contains("lost with a node"));
    let early = detail("init.start", false).is_some();
    if let Some(e) = &report.error {
        let why = e.to_string();
        // Before the superblock is there, and in the self-test, machines need each other.
        let said = ["died: it was killed", "could not boot or join"];
        let fits = scene.from == From::Start && said.iter().any(|s| why.contains(s));
        return match fits || early {
            true => Ok((Ending::NotStarted, leaked)),
            false => Err(why),
        };
    }
    if early {
        return Ok((Ending::NotStarted, leaked));
    }
    if let Some(c) = report.checks.iter().find(wrong) {
        return Err(format!("{}: {}", c.name, c.detail));
    }
    if lost {
        return match went_on {
            Some(took) if *took > PROMPT => Err(format!("took {took:?} to end")),
            Some(_) => Ok((Ending::Lost, leaked)),
            None => Err("lost with a machine that was not killed".into()),
        };
    }
    if storm {
        return match (detail("storm.variety", true), went_on) {
            (None, _) => Err("the storm did not end".into()),
            (_, None) => Ok((Ending::TooEarly, leaked)),
            (_, Some(_)) => Ok((Ending::Done, leaked)),
        };
    }
    let code = detail("app.exit", false).is_some_and(|d| d.ends_with("with code 1"));
    if code && text.contains("error: the node is dead") && scene.app != "node-deaths" {
        return Ok((Ending::Refused, leaked));
    }
    // The console's node can be dead for all of its words, or for the first of them.
    let unheard = !text.contains("check node-deaths") || text.contains("cannot report node-deaths");
    if code && scene.victim == 0 && unheard {
        return Ok((Ending::Mute, leaked));
    }
    if detail("app.exit", true).is_none() {
        return Err(report.failure().unwrap_or("the program did not end".into()));
    }
    if went_on.is_none() {
        return Ok((Ending::TooEarly, leaked));
    }
    let waits = scene.args.contains("--lives 2");
    if waits && !text.contains("joined as incarnation 2") {
        return Err("it did not join again".into());
    }
    Ok((Ending::Done, leaked))
}
