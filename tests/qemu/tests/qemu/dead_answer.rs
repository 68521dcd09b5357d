//! Every program, with a node killed at random moments under each policy: it ends by itself soon after the
//! death, or goes on by design. Which of the two, the table of the book says, and nothing else
//! (`book/src/reference/deaths.md`).
//!
//! In the tier `full` few programs, few moments; in the tier `long` all lines of the table, [`LONG`] moments under
//! each policy. `DYAD_SEED` gives other moments; `DYAD_KILL=N` or `DYAD_KILL=N-M` plays these kills only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_abi::service::Grant;
use dyad_launcher::apps;
use dyad_launcher::config::{RunConfig, Sim, TestOptions};
use dyad_launcher::size as bytes;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::kill::{self, Ended, Kill, mix, says};
use crate::times;

/// The table.
const BOOK: &str = include_str!("../../../../book/src/reference/deaths.md");
/// First cells of its head.
const HEAD: [&str; 6] = ["program", "options", "arguments", "until", "answer", "why"];

/// Kills of each line under each policy in the long form.
const LONG: u64 = 20;
/// Lines of the tier `full`: a program, which of its lines, and how often a node is killed under each policy.
const FULL: [(&str, u64, [u64; 3]); 5] = [
    ("messages", 1, [1, 2, 1]),
    ("messages", 2, [0, 3, 1]),
    ("crossing", 1, [0, 2, 1]),
    ("threads", 1, [0, 2, 1]),
    ("migrate-tasks", 1, [0, 1, 1]),
];
/// How soon a program must have ended that a death ends.
const SOON: Duration = Duration::from_secs(2);
/// The limit in simulated time, where a second takes as many instructions as a CPU executes in it.
const SOON_SIMULATED: Duration = Duration::from_secs(30);
/// How long a run may take. One that takes longer hangs.
const HANGS: Duration = Duration::from_secs(60);
/// How soon the run must be over once its program has ended: the program is taken down.
const TAKEN_DOWN: Duration = Duration::from_secs(15);
/// How soon the run must have ended if init's records were lost.
const RECORDS_LOST: Duration = Duration::from_secs(4);
/// Frames that a machine can have been changing when it died.
const LEAKED: u64 = 8;
/// Each so many kills hit node 0, where the first thread starts.
const FIRST_NODE: u64 = 4;
/// Each so many runs have three nodes.
const THREE_NODES: u64 = 5;

/// What a program makes of the death of a node that its first thread is not on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It ends soon.
    Ends,
    /// It ends when it next names the dead node.
    EndsLater,
    /// It goes on to its usual end.
    GoesOn,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub app: String,
    args: String,
    grant: Grant,
    bare: bool,
    beside: Option<String>,
    mem_cxl: u64,
    sim: Sim,
    /// The latest moment, in milliseconds from the start of the first program.
    until: u64,
    answer: Answer,
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let listed = times::test(
        Tiers::QUICK,
        "dead_answer::the_book_lists_every_program",
        every_program,
    );
    let mut trials = vec![listed];
    let rows = match rows() {
        Ok(rows) => rows,
        Err(why) => {
            let f = move || Err(why.into());
            trials.push(times::test(
                Tiers::QUICK,
                "dead_answer::the_table_can_be_read",
                f,
            ));
            return trials;
        }
    };
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let line = lines.entry(row.app.clone()).or_default();
        *line += 1;
        let number = match *line {
            1 => String::new(),
            n => format!("_{n}"),
        };
        let full = FULL.iter().find(|q| (q.0, q.1) == (&row.app, *line));
        let counts = full.map_or([0; 3], |&(.., counts)| counts);
        for (policy, count) in OnDeath::ALL.into_iter().zip(counts) {
            let (tiers, count) = match count {
                0 => (Tiers::LONG, LONG),
                _ => (Tiers::FULL.and(Tiers::LONG), size(count, count, LONG)),
            };
            let (row, name) = (row.clone(), format!("{}{number}", row.app));
            let name = format!("dead_answer::{}::{}", policy.name(), name.replace('-', "_"));
            let own = name.clone();
            let f = move || play(&own, &row, policy, count);
            trials.push(times::test(tiers, name, f));
        }
    }
    trials
}

/// The lines of the table.
pub fn rows() -> Result<Vec<Row>, String> {
    let cells = |line: &'static str| -> Vec<&'static str> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(str::trim).collect()
    };
    let mut lines = BOOK.lines().skip_while(|l| cells(l) != HEAD).skip(2);
    let mut rows = Vec::new();
    while let Some(line) = lines.next().filter(|l| l.starts_with('|')) {
        let row = row(&cells(line)).ok_or_else(|| format!("deaths.md: {line}"))?;
        rows.push(row);
    }
    match rows.is_empty() {
        true => Err("deaths.md has no table".into()),
        false => Ok(rows),
    }
}

fn row(cells: &[&str]) -> Option<Row> {
    let &[app, options, args, until, answer, why] = cells else {
        return None;
    };
    let plain = |cell: &str| cell.trim_matches('`').to_owned();
    let options = plain(options);
    let mut words = options.split_whitespace();
    let mut row = Row {
        app: plain(app),
        args: plain(args),
        grant: Grant::Nothing,
        bare: false,
        beside: None,
        mem_cxl: 256 << 20,
        sim: Sim::Off,
        until: until.parse().ok()?,
        answer: match answer {
            "ends" => Answer::Ends,
            "ends later" => Answer::EndsLater,
            "goes on" => Answer::GoesOn,
            _ => return None,
        },
    };
    while let Some(word) = words.next() {
        match word {
            "--bare" => row.bare = true,
            "--grant" if words.next() == Some("all") => row.grant = Grant::All,
            "--beside" => row.beside = Some(words.next()?.to_owned()),
            "--sim" if words.next() == Some("count") => row.sim = Sim::Count,
            "--mem-cxl" => row.mem_cxl = bytes::parse(words.next()?).ok()?,
            _ => return None,
        }
    }
    (!row.app.is_empty() && !why.is_empty() && row.until > 0).then_some(row)
}

/// A program without a line would never be played.
fn every_program() -> Result<(), Failed> {
    let rows = rows()?;
    let listed = |app: &String| {
        let beside = |r: &Row| r.beside.as_ref() == Some(app);
        rows.iter().any(|r| r.app == *app || beside(r))
    };
    let all = apps::available();
    if let Some(missing) = all.iter().find(|app| !listed(app)) {
        return Err(format!("deaths.md has no line for {missing}").into());
    }
    match rows.iter().find(|r| !all.contains(&r.app)) {
        Some(r) => Err(format!("deaths.md has a line for {}, which does not exist", r.app).into()),
        None => Ok(()),
    }
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// The program had ended before the machine was killed.
    TooEarly,
    /// The program went on to its usual end.
    WentOn,
    /// The program ended soon, without success.
    Ended,
    /// The program's first thread was lost with the machine.
    Lost,
    /// The run ended, as the policy asks.
    RunEnded,
    /// Init was still building the system, which it cannot do without the node.
    NotStarted,
    /// A thread of init was lost while it was changing init's records of the system, without which the run cannot go on.
    RecordsLost,
}

/// The kills that are played.
fn kills(count: u64) -> RangeInclusive<u64> {
    let chosen = std::env::var("DYAD_KILL").unwrap_or_default();
    let (first, last) = chosen.split_once('-').unwrap_or((&chosen, &chosen));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => first..=last,
        _ => 0..=count - 1,
    }
}

fn play(name: &str, row: &Row, policy: OnDeath, count: u64) -> Result<(), Failed> {
    let seed = kill::seed();
    let own = name.bytes().fold(seed, |n, b| mix(n ^ u64::from(b)));
    let mut endings: BTreeMap<Ending, usize> = BTreeMap::new();
    let mut failures = String::new();
    for i in kills(count) {
        let random = |what: u64| mix(own ^ mix(i << 8 | what));
        let nodes = match (random(0) % THREE_NODES, random(1) % 2) {
            (0, _) => vec![X86_64, Aarch64, X86_64],
            (_, 0) => vec![X86_64, Aarch64],
            _ => vec![Aarch64, X86_64],
        };
        let node = match random(2) % FIRST_NODE {
            0 => 0,
            _ => 1 + random(3) as usize % (nodes.len() - 1),
        };
        let kill = Kill::after(node, Duration::from_micros(random(4) % (row.until * 1000)));
        let of = nodes.len();
        let started = started(row);
        let ended = kill::run(&config(row, policy, nodes), kill, says(&started));
        let took = ended.program_went_on.or(ended.went_on);
        let said = format!("{name}, kill {i}: {kill} of {of}");
        match judge(row, policy, kill, &ended) {
            Ok(ending) => {
                *endings.entry(ending).or_default() += 1;
                eprintln!("{said}: {ending:?}, {took:.1?} after the death");
            }
            Err(why) => {
                eprintln!("{said}: FAILED: {why}");
                let _ = writeln!(
                    failures,
                    "program {} {:?}, policy {}, seed {seed}, kill {i}, {kill} of {of}: {why}\n\
                     repeat: DYAD_TIER=long DYAD_SEED={seed} DYAD_KILL={i} cargo test -p dyad-qemu-tests --test qemu -- \
                     --exact {name}\n\nconsole:\n{}",
                    row.app,
                    row.args,
                    policy.name(),
                    ended.text
                );
            }
        }
    }
    eprintln!("{name}: {endings:?}");
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.into()),
    }
}

/// What the kernel says when it starts the first program.
fn started(row: &Row) -> String {
    let first = if row.bare { &row.app } else { "init" };
    format!("started \"{first}\"")
}

pub fn config(row: &Row, policy: OnDeath, nodes: Vec<dyad_abi::Isa>) -> RunConfig {
    RunConfig {
        nodes,
        mem_local: 128 << 20,
        mem_cxl: row.mem_cxl,
        sim: row.sim,
        work: console::app(row.app.clone(), row.args.clone()),
        grant: row.grant,
        on_death: policy,
        timeout: Some(HANGS),
        test: TestOptions {
            bare: row.bare,
            beside: row.beside.clone(),
            ..TestOptions::default()
        },
        ..RunConfig::default()
    }
}

/// Whether the table allows that end.
fn judge(row: &Row, policy: OnDeath, kill: Kill, ended: &Ended) -> Result<Ending, String> {
    let soon = match row.sim {
        Sim::Off => SOON,
        _ => SOON_SIMULATED,
    };
    let Some(went_on) = ended.went_on else {
        // Without a death the program must have done what it is for.
        return match ended.report.failure() {
            None => Ok(Ending::TooEarly),
            Some(why) => Err(format!("without a death: {why}")),
        };
    };
    if policy == OnDeath::End {
        return match went_on <= soon {
            true => Ok(Ending::RunEnded),
            false => Err(format!("the run went on for {went_on:.1?}")),
        };
    }
    let check = |name: &str| ended.report.checks.iter().find(|c| c.name == name);
    if check("init.start").is_some_and(|c| !c.ok) && went_on <= soon {
        return Ok(Ending::NotStarted);
    }
    if check("init.records").is_some_and(|c| !c.ok) && kill.node == 0 && went_on <= RECORDS_LOST {
        return Ok(Ending::RecordsLost);
    }
    if row.bare {
        // In the place of init nobody says how a program ends: the run ends with it.
        let limit = match row.answer {
            Answer::Ends => soon,
            _ if kill.node == 0 => TAKEN_DOWN,
            _ => Duration::ZERO,
        };
        return match ended.report.failure() {
            None => Ok(Ending::WentOn),
            // Node 0 is where it ends the run with success.
            Some(_) if went_on <= limit => Ok(Ending::Ended),
            Some(why) => Err(format!("{why}, {went_on:.1?} after the death")),
        };
    }
    if let Some(exit) = check("app.exit")
        && ended.program_went_on.is_some_and(|took| took.is_zero())
    {
        // Whatever the death did to the system that was shutting down.
        return match exit.ok {
            true => Ok(Ending::TooEarly),
            false => Err(format!("before the death: {}", exit.detail)),
        };
    }
    if let Some(e) = &ended.report.error {
        return Err(format!("{e}, {went_on:.1?} after the death"));
    }
    let Some(exit) = check("app.exit") else {
        let why = ended.report.failure();
        return Err(format!("{why:?}, {went_on:.1?} after the death"));
    };
    let took = (ended.program_went_on).ok_or("nobody saw the end of the program")?;
    if went_on.saturating_sub(took) > TAKEN_DOWN {
        return Err(format!("it took {went_on:.1?} to take the program down"));
    }
    let leaked = check("frames.returned").and_then(|c| kill::missing(&c.detail));
    match leaked {
        Some(frames) if frames <= LEAKED => {}
        other => return Err(format!("frames missing: {other:?}")),
    }
    if exit.ok {
        return Ok(Ending::WentOn);
    }
    let lost = exit.detail.contains("lost with a node");
    if took > soon && (lost || row.answer != Answer::EndsLater) {
        return Err(format!("{}, {took:.1?} after the death", exit.detail));
    }
    match row.answer {
        _ if lost => Ok(Ending::Lost),
        // The console is there, and much else.
        Answer::GoesOn if kill.node != 0 => Err(format!("{}: it was to go on", exit.detail)),
        _ => Ok(Ending::Ended),
    }
}
