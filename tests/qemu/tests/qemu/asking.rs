//! Threads that are moved from outside, by the way that `cargo xtask migrate` takes: there and back while
//! a program works, whose output must not show it; threads that do not come, nodes that are not there or
//! die, several who ask at once, and askers that go away.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_abi::record::Level;
use dyad_launcher::ask::{
    Failed as AskFailed, Moved, Question, Refusal, Reply, Run, Target, Wanted,
};
use dyad_launcher::config::RunConfig;
use dyad_launcher::console::Line;
use dyad_launcher::launch::{self, Event, RunReport};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, Kept};
use crate::kill;
use crate::times;

const PAIR: &[Isa] = &[X86_64, Aarch64];
const THREE: &[Isa] = &[X86_64, Aarch64, X86_64];
/// How long a system may take to say what is waited for.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a thread may take that comes to its next migration point within some milliseconds. It takes a
/// few of them; machines may be kept from running by others on the same host.
const BOUND_MS: u64 = 20_000;
/// Moves of a run.
const MOVES: u64 = 8;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("ask");
    vec![
        test(Tiers::FULL, "a_program_that_is_moved_says_the_same", moved),
        test(
            Tiers::LONG,
            "plain_threads_that_are_moved_say_the_same",
            plain,
        ),
        test(Tiers::FULL, "a_program_moves_itself_by_request", by_itself),
        test(Tiers::FULL, "what_makes_no_sense_is_refused", refused),
        test(
            Tiers::FULL,
            "a_thread_that_does_not_come_is_left_alone",
            deaf,
        ),
        test(
            Tiers::LONG,
            "the_newest_of_two_requests_counts",
            two_at_once,
        ),
        test(Tiers::FULL, "who_goes_away_takes_the_request_along", gone),
        test(Tiers::LONG, "nodes_that_die_are_noticed", dead),
        test(
            Tiers::FULL,
            "another_node_answers_when_the_first_has_died",
            leader_dead,
        ),
    ]
}

/// A system that runs in another thread.
struct Running {
    run: Run,
    said: Receiver<String>,
    pids: Arc<Mutex<BTreeMap<usize, u32>>>,
    thread: JoinHandle<(RunReport, String)>,
}

impl Running {
    /// Starts the program `migrate-tasks`, and waits for its first words.
    fn start(nodes: &[Isa], on_death: OnDeath, args: &str) -> Result<Running, Failed> {
        Running::start_app("migrate-tasks", nodes, on_death, args)
    }

    /// Starts a program, and waits for its first words.
    fn start_app(
        app: &str,
        nodes: &[Isa],
        on_death: OnDeath,
        args: &str,
    ) -> Result<Running, Failed> {
        let config = RunConfig {
            nodes: nodes.to_vec(),
            work: console::app(app, args),
            on_death,
            timeout: Some(Duration::from_secs(240)),
            ..RunConfig::default()
        };
        let dir: PathBuf = launch::new_run_dir("ask-").map_err(|e| e.to_string())?;
        let (say, said) = channel();
        let pids = Arc::new(Mutex::new(BTreeMap::new()));
        let thread = std::thread::spawn({
            let (dir, pids) = (dir.clone(), Arc::clone(&pids));
            move || {
                let mut kept = Kept::new(|e: &Event<'_>| match e {
                    Event::Started { node, pid, .. } => {
                        let mut pids = pids.lock().unwrap_or_else(PoisonError::into_inner);
                        pids.insert(*node, *pid);
                    }
                    Event::Line {
                        line: Line::Log { level, text, .. },
                        ..
                    } if *level == Level::User => {
                        let _ = say.send(text.clone());
                    }
                    _ => {}
                });
                let report = launch::run_in(&config, Some(dir), &mut kept);
                let text = kept.text(&report);
                (report, text)
            }
        });
        // It is said before anything can be asked that the program is there.
        let begin = Instant::now();
        let first = said.recv_timeout(5 * LIMIT).map_err(|_| "no first words")?;
        let run =
            Run::at(&dir).map_err(|e| format!("{first:?} after {:?}: {e}", begin.elapsed()))?;
        Ok(Running {
            run,
            said,
            pids,
            thread,
        })
    }

    /// The node that the program's thread is on.
    fn node(&self) -> Result<usize, Failed> {
        match self.run.ask(&Question::Threads) {
            Ok(Reply::Threads(rows)) => rows
                .iter()
                .find(|r| r.program == "migrate-tasks")
                .map(|r| r.crossed_from.unwrap_or(r.node))
                .ok_or_else(|| "no such thread".into()),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn kill(&self, node: usize) -> Result<(), Failed> {
        let pid = self.pids.lock().unwrap_or_else(PoisonError::into_inner)[&node];
        Ok(kill::signal(pid, "KILL")?)
    }

    /// Waits until the program says something.
    fn until(&self, words: &str) -> Result<(), Failed> {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.said.recv_timeout(left);
            if line
                .map_err(|_| format!("it does not say {words:?}"))?
                .contains(words)
            {
                return Ok(());
            }
        }
    }

    /// What came out of it.
    fn end(self) -> Result<(RunReport, String, Vec<String>), Failed> {
        let (report, text) = self.thread.join().map_err(|_| "the launcher panicked")?;
        let said = self.said.try_iter().collect();
        // It takes no questions any more.
        match Run::at(&self.run.dir) {
            Err(_) => Ok((report, text, said)),
            Ok(_) => Err(format!("it can still be asked\n{text}").into()),
        }
    }
}

fn ask(run: &Run, to: Target, wait_ms: u64) -> Result<Moved, AskFailed> {
    ask_until(run, to, wait_ms, &|| false)
}

fn ask_until(
    run: &Run,
    to: Target,
    wait_ms: u64,
    given_up: &dyn Fn() -> bool,
) -> Result<Moved, AskFailed> {
    let wanted = Wanted {
        program: None,
        thread: 0,
        to,
        wait_ms,
    };
    match run.ask_until(&Question::Migrate(wanted), given_up)? {
        Reply::Moved(moved) => Ok(moved),
        other => panic!("{other:?}"),
    }
}

fn because(text: &str, ok: bool, why: impl std::fmt::Display) -> Result<(), Failed> {
    match ok {
        true => Ok(()),
        false => Err(format!("{why}\n{text}").into()),
    }
}

fn refusal(result: Result<Moved, AskFailed>) -> Result<Refusal, Failed> {
    match result {
        Err(AskFailed::Refused(why)) => Ok(why),
        other => Err(format!("{other:?}").into()),
    }
}

fn went(result: Result<Moved, AskFailed>) -> Result<Moved, Failed> {
    result.map_err(|e| format!("{e:?}").into())
}

/// Arguments of a program that runs longer than all its moves take.
const LONG: &str = "--steps 4000 --pause 1000";

fn moved() -> Result<(), Failed> {
    let alone = Running::start(PAIR, OnDeath::End, LONG)?;
    let (report, text, expected) = alone.end()?;
    because(&text, report.ok(), "alone")?;
    because(
        &text,
        report.counters.get("migrate-tasks.moves") == Some(&0),
        "it was moved",
    )?;

    let running = Running::start(PAIR, OnDeath::End, LONG)?;
    for n in 1..=MOVES {
        let (to, target) = match n % 4 {
            1 => (1, Target::Isa(Aarch64.index() as u64)),
            2 => (0, Target::Isa(X86_64.index() as u64)),
            3 => (1, Target::Node(1)),
            _ => (0, Target::Node(0)),
        };
        let moved = went(ask(&running.run, target, BOUND_MS))?;
        let as_asked = !moved.already
            && (moved.from, moved.to, moved.now) == (1 - to, to, to)
            // What it says where the console is not counts, too.
            && moved.migrations >= n;
        because("", as_asked, format!("{n}: {moved:?}"))?;
        because("", running.node()? == to, format!("{n}: it is elsewhere"))?;
        sleep(Duration::from_millis(20));
    }
    let (report, text, said) = running.end()?;
    because(&text, report.ok(), "moved")?;
    let moves = report.counters.get("migrate-tasks.moves");
    because(&text, moves == Some(&MOVES), format!("{moves:?} moves"))?;
    because(
        &text,
        said == expected,
        format!("{said:?} is not {expected:?}"),
    )
}

/// Three threads of a plain program, each of which goes to and fro.
fn plain() -> Result<(), Failed> {
    const STEPS: u64 = 500;
    // It waits until all have been moved as often as they are asked, however slow that is.
    let args = format!("--scene asked --threads 3 --steps {STEPS} --moves 12");
    let running = Running::start_app("migrate-threads", PAIR, OnDeath::End, &args)?;
    let mut moves = 0;
    for n in 0..4u64 {
        // Thread 1 was started on node 1, the others on node 0.
        for thread in 0..3u16 {
            let to = (n + 1 + u64::from(thread)) % 2;
            let wanted = Wanted {
                program: None,
                thread,
                to: match n % 2 {
                    0 => Target::Node(to),
                    _ => Target::Isa(PAIR[to as usize].index() as u64),
                },
                wait_ms: BOUND_MS,
            };
            let moved = match running.run.ask(&Question::Migrate(wanted)) {
                Ok(Reply::Moved(moved)) => moved,
                other => return Err(format!("{n}, thread {thread}: {other:?}").into()),
            };
            let as_asked =
                (moved.from, moved.to, moved.now) == (1 - to as usize, to as usize, to as usize);
            because(
                "",
                as_asked && !moved.already,
                format!("{n}, thread {thread}: {moved:?}"),
            )?;
            moves += 1;
        }
    }
    let (report, text, said) = running.end()?;
    because(&text, report.ok(), "the run")?;
    let found = report.counters.get("constructs.migrations");
    because(
        &text,
        found == Some(&moves),
        format!("{found:?} moves of {moves}"),
    )?;
    let mix = dyad_random::hash;
    let of = |thread: u64| (0..STEPS).fold(thread, mix);
    let hash = mix(mix(of(0), of(1)), of(2));
    let result = format!("asked          {hash:016x}");
    because(
        &text,
        said.contains(&result),
        format!("{said:?}, not {result:?}"),
    )
}

fn by_itself() -> Result<(), Failed> {
    let running = Running::start(PAIR, OnDeath::End, "--steps 500 --away 1")?;
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")?;
    let asked = report
        .checks
        .iter()
        .any(|c| c.name == "migrate-tasks.asked" && c.ok);
    because(&text, asked, "it was not where it asked to be")
}

fn refused() -> Result<(), Failed> {
    let running = Running::start(&[X86_64, X86_64], OnDeath::End, LONG)?;
    let no_node = |to| match refusal(ask(&running.run, to, 1000))? {
        Refusal::NoNode { .. } => Ok(()),
        other => Err(Failed::from(format!("{to}: {other:?}"))),
    };
    no_node(Target::Node(2))?;
    no_node(Target::Node(u64::MAX))?;
    no_node(Target::Isa(Aarch64.index() as u64))?;
    no_node(Target::Isa(99))?;
    let of = |program: Option<&str>, thread| {
        let wanted = Wanted {
            program: program.map(Into::into),
            thread,
            to: Target::Node(1),
            wait_ms: 1000,
        };
        running.run.ask(&Question::Migrate(wanted))
    };
    let answers = [
        of(Some("hop"), 0),
        of(Some("init"), 0),
        of(None, 1),
        of(Some("migrate-tasks"), u16::MAX),
    ];
    let as_expected = matches!(
        &answers,
        [
            Err(AskFailed::Refused(Refusal::NoProgram { .. })),
            Err(AskFailed::Refused(Refusal::NoProgram { .. })),
            Err(AskFailed::Refused(Refusal::NoThread { .. })),
            Err(AskFailed::Refused(Refusal::NoThread { .. })),
        ]
    );
    because("", as_expected, format!("{answers:?}"))?;
    for to in [Target::Node(0), Target::Isa(X86_64.index() as u64)] {
        let there = went(ask(&running.run, to, 1000))?;
        because("", there.already && there.now == 0, format!("{there:?}"))?;
    }
    // Between nodes of one ISA it goes, too.
    let moved = went(ask(&running.run, Target::Node(1), BOUND_MS))?;
    because("", moved.now == 1 && !moved.already, format!("{moved:?}"))?;
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")?;
    let moves = report.counters.get("migrate-tasks.moves");
    because(&text, moves == Some(&1), format!("{moves:?} moves"))
}

fn deaf() -> Result<(), Failed> {
    let running = Running::start(PAIR, OnDeath::End, "--deaf 4 --steps 2000")?;
    let begin = Instant::now();
    let why = refusal(ask(&running.run, Target::Node(1), 300))?;
    let late = matches!(
        why,
        Refusal::TimedOut {
            taken: false,
            ms: 300,
            ..
        }
    );
    because("", late, format!("{why:?}"))?;
    because(
        "",
        begin.elapsed() < Duration::from_secs(3),
        "that took too long",
    )?;
    running.until("not deaf")?;
    // What was withdrawn does not move it later.
    sleep(Duration::from_millis(100));
    because("", running.node()? == 0, "it went all the same")?;
    let moved = went(ask(&running.run, Target::Node(1), BOUND_MS))?;
    because("", moved.now == 1, format!("{moved:?}"))?;
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")
}

fn two_at_once() -> Result<(), Failed> {
    let running = Running::start(THREE, OnDeath::End, "--deaf 3 --steps 2000")?;
    let run = &running.run;
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(run, Target::Node(1), BOUND_MS));
        sleep(Duration::from_millis(300));
        let second = scope.spawn(|| ask(run, Target::Node(2), BOUND_MS));
        (first.join(), second.join())
    });
    let first = refusal(first.map_err(|_| "panicked")?)?;
    because("", first == Refusal::Replaced, format!("{first:?}"))?;
    let second = went(second.map_err(|_| "panicked")?)?;
    let as_asked = (second.from, second.now) == (0, 2);
    because("", as_asked, format!("{second:?}"))?;
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")?;
    let moves = report.counters.get("migrate-tasks.moves");
    because(&text, moves == Some(&1), format!("{moves:?} moves"))
}

fn gone() -> Result<(), Failed> {
    let running = Running::start(PAIR, OnDeath::End, "--deaf 3 --steps 500")?;
    let begin = Instant::now();
    let given_up = || begin.elapsed() > Duration::from_millis(300);
    match ask_until(&running.run, Target::Node(1), BOUND_MS, &given_up) {
        Err(AskFailed::Interrupted(Some(Refusal::Withdrawn { taken: false }))) => {}
        other => return Err(format!("{other:?}").into()),
    }
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")?;
    let moves = report.counters.get("migrate-tasks.moves");
    because(&text, moves == Some(&0), format!("{moves:?} moves"))
}

fn dead() -> Result<(), Failed> {
    let running = Running::start(THREE, OnDeath::Survive, "--deaf 4 --steps 2000")?;
    let run = &running.run;
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(run, Target::Node(2), BOUND_MS));
        sleep(Duration::from_millis(300));
        running.kill(2)?;
        waiting.join().map_err(|_| Failed::from("panicked"))
    })?;
    let is_dead = Refusal::NodeDead { node: 2 };
    let why = refusal(waiting)?;
    because("", why == is_dead, format!("{why:?}"))?;
    let why = refusal(ask(&running.run, Target::Node(2), 1000))?;
    because("", why == is_dead, format!("{why:?}"))?;
    running.until("not deaf")?;
    let moved = went(ask(
        &running.run,
        Target::Isa(Aarch64.index() as u64),
        BOUND_MS,
    ))?;
    because("", moved.now == 1, format!("{moved:?}"))?;
    let (report, text, _) = running.end()?;
    because(&text, report.ok(), "the run")
}

fn leader_dead() -> Result<(), Failed> {
    let args = "--steps 1000000";
    let running = Running::start(THREE, OnDeath::Survive, args)?;
    let moved = went(ask(&running.run, Target::Node(1), BOUND_MS))?;
    because("", moved.now == 1, format!("{moved:?}"))?;
    // Init leads there, and the console is there.
    running.kill(0)?;
    let end = Instant::now() + LIMIT;
    let moved = loop {
        match ask(&running.run, Target::Node(2), BOUND_MS) {
            Ok(moved) => break moved,
            // Somebody has to notice and take over first.
            Err(AskFailed::Refused(Refusal::NoAnswer | Refusal::Refused { .. }))
                if Instant::now() < end => {}
            Err(why) => return Err(format!("{why:?}").into()),
        }
    };
    because("", moved.now == 2, format!("{moved:?}"))?;
    let back = went(ask(&running.run, Target::Node(1), BOUND_MS))?;
    because("", back.now == 1, format!("{back:?}"))?;
    // It has lost its console, and runs for long: the run ends with its last machines.
    running.kill(1)?;
    running.kill(2)?;
    running.end().map(drop)
}
