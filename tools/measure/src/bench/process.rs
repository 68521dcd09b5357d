//! What it costs to move a process to another node, by the size of its heap: with kernels that exchange messages, with its pages before
//! it or one by one when it touches them; and what a thread's move costs by its steps, beside a fused kernel.
//!
//! ```text
//!  micro --what process ─▶ by model, MiB of heap and way: steps of the move, time of touching all pages, frames on both nodes
//!  micro --what pingpong ─▶ by model and system: steps of moves there and back without a heap
//!  micro --what futex ─▶ by model and system: threads that wake each other by turns
//! ```

mod futex;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::service::peer::Kernels;
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;
use dyad_sim_model::config::MemoryModel;
use serde_json::{Value, json};

use super::faults;
use super::report::SCHEMA;
pub use futex::{Game, Games};

/// Steps of a move, in their order.
pub const STEPS: [&str; 6] = ["prepare", "list", "pages", "send", "travel", "resume"];
/// How well a line must fit the moves with pages: the coefficient of determination.
const FITS: f64 = 0.99;
/// How much of their slope that of moves without pages may be.
const SLOPE: f64 = 0.05;
/// Most that a fused kernel's move may take of one by messages.
const FUSED: f64 = 0.5;

/// What becomes of the pages of a process that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paging {
    /// They go before the thread.
    Ahead,
    /// They go when they are touched.
    Demand,
}

impl Paging {
    const ALL: [Paging; 2] = [Paging::Ahead, Paging::Demand];

    /// The name, as on the program's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Paging::Ahead => "ahead",
            Paging::Demand => "demand",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Memory models.
    pub models: Vec<MemoryModel>,
    /// Sizes of the heap, in MiB.
    pub heaps: Vec<u64>,
    /// Times that a thread goes there and back.
    pub times: u64,
    /// Turns of games in which two threads wake each other.
    pub turns: Vec<u64>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            models: MemoryModel::PAPER.to_vec(),
            heaps: vec![1, 2, 4, 8, 16],
            times: 64,
            turns: vec![64, 128, 256, 512],
        }
    }
}

/// A move of a process. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// The steps.
    pub steps: [u64; STEPS.len()],
    /// By the program's clock.
    pub whole: u64,
    /// Until all pages of the heap had been written there.
    pub touch: u64,
    /// Faults of that.
    pub faults: u64,
    /// Pages of the heap.
    pub pages: u64,
    /// Frames of the process that the thread came to, when it had come.
    pub there: u64,
    /// Frames of the process that it had left: no thread uses them.
    pub left: u64,
}

/// Moves of a thread with nothing on the heap: nanoseconds of each. Without messages there are no steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hop {
    /// The steps.
    pub steps: [f64; STEPS.len()],
    /// By the program's clock.
    pub whole: f64,
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// By model, MiB of heap and way.
    pub moves: BTreeMap<(&'static str, u64, Paging), Move>,
    /// By model, and whether kernels exchange messages.
    pub hops: BTreeMap<(&'static str, bool), Hop>,
    /// By model, and whether kernels exchange messages.
    pub games: BTreeMap<(&'static str, bool), Games>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
}

/// Measures.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn process(plan: &Plan, sink: &mut dyn Sink) -> Result<Process, Error> {
    let mut all = Process::default();
    for &model in &plan.models {
        for &mib in &plan.heaps {
            for way in Paging::ALL {
                let (name, args) = (way.name(), "--what process");
                let args = format!("{args} --heap {mib} --way {name}");
                let what = format!("{}, {mib} MiB, {name}", model.name());
                let found = run(model, Kernels::Multiple, &args, sink)?;
                match found.and_then(|counters| a_move(&counters)) {
                    Ok(one) => drop(all.moves.insert((model.name(), mib, way), one)),
                    Err(why) => all.fail(&what, &why),
                }
            }
        }
        for kernels in Kernels::ALL {
            let by_message = kernels == Kernels::Multiple;
            let args = format!("--what pingpong --times {}", plan.times);
            let what = format!("{}, {}, ping-pong", model.name(), kernels.name());
            match run(model, kernels, &args, sink)?.and_then(|counters| hop(&counters)) {
                Ok(one) => drop(all.hops.insert((model.name(), by_message), one)),
                Err(why) => all.fail(&what, &why),
            }
            let turns: Vec<String> = plan.turns.iter().map(u64::to_string).collect();
            let args = format!("--what futex --turns {}", turns.join(","));
            let what = format!("{}, {}, games", model.name(), kernels.name());
            let found = run(model, kernels, &args, sink)?;
            match found.and_then(|counters| Games::read(&counters, &plan.turns)) {
                Ok(games) => drop(all.games.insert((model.name(), by_message), games)),
                Err(why) => all.fail(&what, &why),
            }
        }
    }
    Ok(all)
}

const fn kernels(by_message: bool) -> &'static str {
    match by_message {
        true => Kernels::Multiple.name(),
        false => Kernels::Fused.name(),
    }
}

type Counters = BTreeMap<String, u64>;

/// The counters of a run. `Err` in the result: why it says nothing.
fn run(
    model: MemoryModel,
    kernels: Kernels,
    args: &str,
    sink: &mut dyn Sink,
) -> Result<Result<Counters, String>, Error> {
    let mut config = faults::strict(&[Isa::X86_64, Isa::Aarch64], "micro", args.into(), 1800);
    config.kernels = kernels;
    config.setup.model = model;
    Ok(faults::run(&config, sink)?.map(|report| report.counters))
}

fn counter(counters: &Counters, name: &str) -> Result<u64, String> {
    let found = counters.get(name).copied();
    found.ok_or_else(|| format!("the program has not said {name}"))
}

fn steps(counters: &Counters, what: &str) -> Result<[u64; STEPS.len()], String> {
    let mut steps = [0; STEPS.len()];
    for (step, name) in steps.iter_mut().zip(STEPS) {
        *step = counter(counters, &format!("{what}.{name}-ns"))?;
    }
    Ok(steps)
}

fn a_move(counters: &Counters) -> Result<Move, String> {
    let of = |name: &str| counter(counters, &format!("process.{name}"));
    Ok(Move {
        steps: steps(counters, "process")?,
        whole: of("move-ns")?,
        touch: of("touch-ns")?,
        faults: of("faults")?,
        pages: of("heap-pages")?,
        there: of("frames-there")?,
        left: of("frames-left")?,
    })
}

fn hop(counters: &Counters) -> Result<Hop, String> {
    let moves = counter(counters, "pingpong.moves")?.max(1) as f64;
    Ok(Hop {
        steps: steps(counters, "pingpong")?.map(|ns| ns as f64 / moves),
        whole: counter(counters, "pingpong.move-ns")? as f64 / moves,
    })
}

/// A line through points with the least squares: where it begins, its slope, and the coefficient of determination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// At 0.
    pub start: f64,
    /// For each MiB.
    pub slope: f64,
    /// 1: all points are on it.
    pub r2: f64,
}

/// The line through points; `None` if they are less than two, or all at one place.
fn line(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xx > 0.0).then(|| {
        let slope = xy / xx;
        // Points that are all equally high are on a line.
        let r2 = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
        Line {
            start: y - slope * x,
            slope,
            r2,
        }
    })
}

impl Process {
    fn fail(&mut self, what: &str, why: &str) {
        self.failure.get_or_insert_with(|| format!("{what}: {why}"));
    }

    fn models(&self) -> Vec<&'static str> {
        let mut all: Vec<_> = self.moves.keys().map(|k| k.0).collect();
        all.dedup();
        all
    }

    fn heaps(&self, model: &str) -> Vec<u64> {
        let of = self.moves.keys().filter(|k| k.0 == model);
        let mut all: Vec<_> = of.map(|k| k.1).collect();
        all.dedup();
        all
    }

    fn of(&self, model: &'static str, mib: u64, way: Paging) -> Option<&Move> {
        self.moves.get(&(model, mib, way))
    }

    /// The time of a move by MiB of heap.
    pub fn line(&self, model: &str, way: Paging) -> Option<Line> {
        let of = (self.moves.iter()).filter(|(k, _)| (k.0, k.2) == (model, way));
        let points: Vec<_> = of.map(|(k, m)| (k.1 as f64, m.whole as f64)).collect();
        line(&points)
    }

    /// The part of the pages, by which a process has to touch at least, for which it is faster that all go before it; more than 1:
    /// never.
    fn crossover(&self, model: &'static str, mib: u64) -> Option<f64> {
        let time = |way| Some(self.of(model, mib, way)).flatten();
        let (ahead, demand) = (time(Paging::Ahead)?, time(Paging::Demand)?);
        let saved = demand.touch as f64 - ahead.touch as f64;
        Some((ahead.whole as f64 - demand.whole as f64) / saved)
    }

    /// What the figures do not show that they must.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        if self.moves.is_empty() {
            return Some("nothing was measured".into());
        }
        for (&(model, mib, way), one) in &self.moves {
            let what = format!("{model}, {mib} MiB, {}", way.name());
            if one.steps.iter().sum::<u64>() != one.whole {
                return Some(format!("{what}: the steps do not add up to the move"));
            }
            if way == Paging::Ahead && one.faults * 50 > one.pages {
                let (faults, pages) = (one.faults, one.pages);
                return Some(format!(
                    "{what}: {faults} faults for {pages} pages that were there"
                ));
            }
        }
        for (&(model, _), hop) in self.hops.iter().filter(|(k, _)| k.1) {
            let sum = hop.steps.iter().sum::<f64>();
            if (sum - hop.whole).abs() > 1.0 {
                return Some(format!(
                    "{model}: the steps do not add up to a move of the ping-pong"
                ));
            }
        }
        for model in self.models() {
            let (Some(ahead), Some(demand)) = (
                self.line(model, Paging::Ahead),
                self.line(model, Paging::Demand),
            ) else {
                return Some(format!("{model}: sizes are missing"));
            };
            if ahead.r2 < FITS {
                let r2 = ahead.r2;
                return Some(format!(
                    "{model}: moves with pages are no line (R2 {r2:.4})"
                ));
            }
            if demand.slope > SLOPE * ahead.slope {
                let part = demand.slope / ahead.slope;
                return Some(format!(
                    "{model}: moves without pages grow by {part:.3} of what those with pages do"
                ));
            }
            let whole = |by_message| self.hops.get(&(model, by_message)).map(|h| h.whole);
            match whole(false).zip(whole(true)) {
                Some((fused, by_message)) if fused <= FUSED * by_message => {}
                Some((fused, by_message)) => {
                    return Some(format!(
                        "{model}: a move takes {fused:.0} ns over a fused kernel, {by_message:.0} by message"
                    ));
                }
                None => return Some(format!("{model}: the ping-pong is missing")),
            }
            if let Some(why) = self.problem_of_games(model) {
                return Some(why);
            }
        }
        None
    }

    /// The figures as tables, in the form that the book has too.
    pub fn table(&self) -> String {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        let mut out = format!(
            "| model | MiB | pages | {} | move | touch | faults | frames there | frames left |\n\
             |---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            STEPS.join(" | ")
        );
        for (&(model, mib, way), one) in &self.moves {
            let steps = one.steps.map(us).join(" | ");
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| {model} | {mib} | {} | {steps} | {} | {} | {} | {} | {} |",
                way.name(),
                us(one.whole),
                us(one.touch),
                one.faults,
                one.there,
                one.left
            );
        }
        out.push_str(
            "\n| model | pages | at 0 MiB | for each MiB | R2 |\n|---|---|---:|---:|---:|\n",
        );
        for model in self.models() {
            for way in Paging::ALL {
                if let Some(Line { start, slope, r2 }) = self.line(model, way) {
                    let (start, slope) = (start / 1000.0, slope / 1000.0);
                    let way = way.name();
                    let _ = writeln!(
                        out,
                        "| {model} | {way} | {start:.1} | {slope:.1} | {r2:.4} |"
                    );
                }
            }
        }
        out.push_str(
            "\n| model | MiB | part of the pages from which `ahead` is faster |\n|---|---:|---:|\n",
        );
        for model in self.models() {
            for mib in self.heaps(model) {
                if let Some(part) = self.crossover(model, mib) {
                    let _ = writeln!(out, "| {model} | {mib} | {part:.2} |");
                }
            }
        }
        let _ = write!(
            out,
            "\n| model | kernels | {} | move | of the move by message |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            STEPS.join(" | ")
        );
        for (&(model, by_message), hop) in &self.hops {
            let us = |ns: f64| format!("{:.2}", ns / 1000.0);
            let steps = match by_message {
                true => hop.steps.map(us),
                false => STEPS.map(|_| "-".into()),
            };
            let of = self.hops.get(&(model, true)).map_or(0.0, |h| h.whole);
            let _ = writeln!(
                out,
                "| {model} | {} | {} | {} | {:.3} |",
                kernels(by_message),
                steps.join(" | "),
                us(hop.whole),
                hop.whole / of
            );
        }
        out + &self.table_of_games()
    }

    /// The figures as a page of the book.
    pub fn page(&self) -> String {
        HEAD.to_owned() + &self.table()
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let named = |steps: Vec<Value>| -> Value {
            let pairs = STEPS.iter().map(|&s| s.to_owned()).zip(steps);
            Value::Object(pairs.collect())
        };
        let moves = self.moves.iter().map(|(&(model, mib, way), one)| {
            json!({
                "model": model, "mib": mib, "pages": way.name(),
                "steps_ns": named(one.steps.iter().map(|&ns| json!(ns)).collect()),
                "move_ns": one.whole, "touch_ns": one.touch, "faults": one.faults,
                "heap_pages": one.pages, "frames_there": one.there, "frames_left": one.left,
            })
        });
        let lines = self.models().into_iter().flat_map(|model| {
            Paging::ALL.into_iter().filter_map(move |way| {
                let line = self.line(model, way)?;
                Some(json!({
                    "model": model, "pages": way.name(),
                    "start_ns": line.start, "mib_ns": line.slope, "r2": line.r2,
                }))
            })
        });
        let crossovers = self.models().into_iter().flat_map(|model| {
            let heaps = self.heaps(model).into_iter();
            heaps.filter_map(move |mib| {
                let part = self.crossover(model, mib)?;
                Some(json!({ "model": model, "mib": mib, "part": part }))
            })
        });
        let hops = self.hops.iter().map(|(&(model, by_message), hop)| {
            json!({
                "model": model, "kernels": kernels(by_message),
                "steps_ns": named(hop.steps.iter().map(|&ns| json!(ns)).collect()),
                "move_ns": hop.whole,
            })
        });
        json!({
            "schema": SCHEMA,
            "suite": "process",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "moves": moves.collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
            "crossovers": crossovers.collect::<Vec<_>>(),
            "pingpong": hops.collect::<Vec<_>>(),
            "games": self.json_of_games(),
        })
    }
}

const HEAD: &str = "\
# Moves of a process

What it costs to move a process between kernels that [exchange messages](../architecture/multiple.md), by the size of its heap, in
microseconds of simulated time, as

```console
$ cargo xtask bench process --page book/src/reference/process.md
```

has measured it in strict order, profile `paper-big`. The process begins on x86-64 and has written all pages of its heap. It moves to AArch64:
with `ahead` its pages go before its thread, with `demand` one by one when they are touched. `touch` is the time of writing a word of each page there.
`frames there` is what the process on AArch64 has when the thread has come, `frames left` what the process on x86-64 keeps though no thread is
there. Steps: frames are laid out and the peer is asked (`prepare`); pages are named (`list`) and fetched (`pages`); registers and control
block are sent (`send`) and come (`travel`); the thread runs (`resume`). They add up to the move.

Then a thread without a heap moves there and back: the mean of both directions, and over a fused kernel, which sends no message. Last, two threads,
one on each node, wait for a word and wake each other by turns: the time of a turn of both, and what a wake-up of a thread that slept takes.

";
