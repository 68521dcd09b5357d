//! Where the instructions of operations go: by function, on both ISAs.
//!
//! ```text
//! program bench, windows around operations ─▶ plugin of each machine: addresses ─▶ functions ─▶ table
//! ```
//!
//! Functions that were inlined belong to the one that they are in: a stage is what a debugger would call a frame. The JSON
//! form has the schema `dyad.bench/1`, with the suite `stages`:
//!
//! | member | content |
//! |---|---|
//! | `operations[]` | `op`; `x86_64`, `aarch64`: instructions a repetition, by function |
//! | `failure` | what went wrong, or null |

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::boot::DEFAULT_BLOCK;
use dyad_abi::marker::{BENCH_OPS, BenchMemory, BenchOp, BenchWindow, WindowId};
use dyad_sim_model::report::{MachineReport, WindowReport};
use serde::Deserialize;
use serde_json::{Value, json};

use super::migration::{self, Figures, Group, Key, Measure, Sides};
use super::{BENCH_APP, OfKernel, SCHEMA, made, of_kernel};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{RunReport, Sink};
use dyad_launcher::symbol::Symboliser;
use dyad_launcher::{build, paths};

/// An operation that can be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// One of `bench kernel`, on objects in the CXL pool.
    Kernel(BenchOp),
    /// One of `bench migration`, by its name.
    Migration(Group, &'static str),
}

/// The operation of `bench migration` that is one node's alone. Its figures are those of the node that the program went to.
const OF_ONE_NODE: &str = "remote_fault";

/// What functions of the kernel are compiled for, as debug information says it.
const PLATFORMS: [&str; 4] = [
    "<kernel_x86_64::platform::X86>",
    "<kernel_aarch64::platform::Aarch64>",
    "kernel_x86_64::platform::X86, ",
    "kernel_aarch64::platform::Aarch64, ",
];

/// Operations of migrations.
const MIGRATIONS: [Op; 4] = [
    Op::Migration(Group::Micro, "async_ping_pong"),
    Op::Migration(Group::Threads, "thread_ping_pong_depth_4"),
    Op::Migration(Group::Futex, "futex_contended_wake"),
    Op::Migration(Group::Micro, "remote_fault"),
];

/// Operations of the page, if none are named.
const USUAL: [BenchOp; 8] = [
    BenchOp::IpcRoundTrip,
    BenchOp::IpcCrossIsaRoundTrip,
    BenchOp::CrossingCallRoundTrip,
    BenchOp::Dispatch,
    BenchOp::AsyncSendSwitch,
    BenchOp::CapActivate,
    BenchOp::PageFaultUser,
    BenchOp::PageFaultForeignTable,
];

/// How often kernels' operations are performed.
const REPETITIONS: u64 = 64;
/// A function with less of an operation's instructions than one in so many is not shown by itself.
const SHARE: f64 = 50.0;

impl Op {
    /// What `bench stages` takes apart.
    pub fn usual() -> Vec<Op> {
        USUAL
            .map(Op::Kernel)
            .into_iter()
            .chain(MIGRATIONS)
            .collect()
    }

    /// All that can be taken apart.
    pub fn all() -> Vec<Op> {
        // Of the two ping-pongs that are called so, the page is about the one that migrates.
        let kernel = BENCH_OPS.iter().copied();
        let kernel = kernel.filter(|op| !MIGRATIONS.iter().any(|m| m.name() == op.name()));
        MIGRATIONS
            .into_iter()
            .chain(kernel.map(Op::Kernel))
            .collect()
    }

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Op::Kernel(op) => op.name(),
            Op::Migration(_, name) => name,
        }
    }
}

/// Instructions a repetition, by function.
type Functions = BTreeMap<String, f64>;

/// Where instructions go.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    operations: BTreeMap<Op, [Functions; 2]>,
    failures: Vec<String>,
}

/// Takes operations apart.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn stages(ops: &[Op], say: &mut dyn FnMut(&str), sink: &mut dyn Sink) -> Result<Stages, Error> {
    let mut found = Stages::default();
    let kernel: Vec<BenchOp> = (ops.iter())
        .filter_map(|op| match op {
            Op::Kernel(op) => Some(*op),
            Op::Migration(..) => None,
        })
        .collect();
    if !kernel.is_empty() {
        say("taking operations of the kernel apart");
        let what = OfKernel {
            repetitions: REPETITIONS,
            fastpaths: true,
        };
        let config = RunConfig {
            sim: Sim::Count,
            windows: true,
            sites: true,
            ..of_kernel(&Isa::ALL, what)
        };
        let report = made(&config, sink)?;
        let done = found.of_kernel(&kernel, &report);
        found.note("operations of the kernel", done);
    }
    for group in [Group::Micro, Group::Threads, Group::Futex] {
        for home in Isa::ALL {
            let names: Vec<&'static str> = (ops.iter())
                .filter_map(|op| match op {
                    Op::Migration(of, name) if *of == group => Some(*name),
                    _ => None,
                })
                .filter(|name| home == Isa::X86_64 || *name == OF_ONE_NODE)
                .collect();
            if names.is_empty() {
                continue;
            }
            say(&format!("taking {} from {home} apart", names.join(", ")));
            let measure = Measure::Instructions;
            let config = migration::config(group, home, measure, true, DEFAULT_BLOCK);
            let Some(config) = config else { continue };
            let config = RunConfig {
                sites: true,
                ..config
            };
            let report = made(&config, sink)?;
            let done = found.of_migrations(group, home, &names, &report);
            found.note(group.name(), done);
        }
    }
    for op in ops.iter().filter(|op| !found.operations.contains_key(op)) {
        found
            .failures
            .push(format!("{} was not performed", op.name()));
    }
    Ok(found)
}

impl Stages {
    fn note(&mut self, what: &str, done: Result<(), String>) {
        if let Err(why) = done {
            self.failures.push(format!("{what}: {why}"));
        }
    }

    fn of_kernel(&mut self, ops: &[BenchOp], report: &RunReport) -> Result<(), String> {
        if let Some(why) = report.failure() {
            return Err(why);
        }
        let mut symbols = Isa::ALL.map(symboliser);
        for (node, &isa) in report.nodes.iter().zip(&report.config.nodes) {
            let none = || format!("node {} has left no report of its plugin", node.id);
            let machine = node.sim.as_ref().ok_or_else(none)?;
            let machine = MachineReport::deserialize(machine)
                .map_err(|e| format!("node {}: {e}", node.id))?;
            for window in machine.windows.into_iter().flatten() {
                let Some(whose) = BenchWindow::from_id(WindowId(window.id)) else {
                    continue;
                };
                if is_shown(whose, isa) && ops.contains(&whose.op) {
                    let of = self.operations.entry(Op::Kernel(whose.op)).or_default();
                    add(&mut of[isa.index()], &window, &mut symbols[isa.index()]);
                }
            }
        }
        Ok(())
    }

    fn of_migrations(
        &mut self,
        group: Group,
        begins: Isa,
        names: &[&'static str],
        report: &RunReport,
    ) -> Result<(), String> {
        let mut figures = Figures::default();
        figures.take(Measure::Instructions, report)?;
        let mut symbols = Isa::ALL.map(symboliser);
        for (&name, isa) in names.iter().flat_map(|n| Isa::ALL.map(|isa| (n, isa))) {
            let op = name.into();
            let Some(reported) = figures.ops.get(&Key { op, isa }) else {
                continue;
            };
            let op = Op::Migration(group, name);
            let of = self.operations.entry(op).or_default();
            let Sides { home, away } = &reported.windows;
            for (isa, window) in [(begins, home), (begins.other(), away)] {
                if let Some(window) = window {
                    add(&mut of[isa.index()], window, &mut symbols[isa.index()]);
                }
            }
        }
        Ok(())
    }

    /// What went wrong.
    pub fn problem(&self) -> Option<String> {
        (!self.failures.is_empty()).then(|| self.failures.join("; "))
    }

    /// A table for each operation.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        for (op, functions) in &self.operations {
            let _ = write!(out, "\n## `{}`\n\n{}", op.name(), table(functions));
        }
        out
    }

    /// The tables as a page of the book.
    pub fn page(&self) -> String {
        format!("{HEAD}{}", self.tables())
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let operations: Vec<Value> = (self.operations.iter())
            .map(|(op, functions)| {
                json!({
                    "op": op.name(),
                    "x86_64": functions[Isa::X86_64.index()],
                    "aarch64": functions[Isa::Aarch64.index()],
                })
            })
            .collect();
        json!({
            "schema": SCHEMA,
            "suite": "stages",
            "ok": self.failures.is_empty(),
            "operations": operations,
            "failure": self.problem(),
        })
    }
}

const HEAD: &str = "\
# Where the instructions go

Instructions of an operation by function, with those that were inlined into it, as

```console
$ cargo xtask bench stages --page book/src/reference/stages.md
```

has counted them: averages of all repetitions without an interrupt, with objects in the CXL pool. Of an operation of one
node each column is what it takes on that ISA. Of an operation of two nodes, and of a migration, which begin on x86-64, the
columns together are the operation; the node that is woken by `futex_contended_wake` begins with an interrupt and is not here.
What operations are is in [counting](measure.md); their figures are
[here](figures.md) and [here](figures-migration.md). Functions with less than a fiftieth of an operation are added up.
";

/// Whether a window is one of an operation on objects in the CXL pool that begins on the ISA itself, or on x86-64 if the
/// operation has parts on two nodes.
fn is_shown(window: BenchWindow, isa: Isa) -> bool {
    let has_parts = matches!(
        window.op,
        BenchOp::IpcCrossIsaRoundTrip | BenchOp::CrossingCallRoundTrip
    );
    let is_here = match has_parts {
        true => window.part.is_multiple_of(2) == (isa == Isa::X86_64),
        false => window.part == 0,
    };
    window.memory == BenchMemory::Fused && is_here
}

/// Adds what was executed in a window.
fn add(functions: &mut Functions, window: &WindowReport, symbols: &mut Symboliser) {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for &(at, n) in &window.sites {
        let frames = symbols.frames(at);
        let name = frames.last().map_or("?".to_owned(), |f| function(f));
        *all.entry(name).or_default() += n;
    }
    for (name, n) in all {
        *functions.entry(name).or_default() += n as f64 / window.n.max(1) as f64;
    }
}

/// The functions of an operation, those with the most instructions first.
fn table(functions: &[Functions; 2]) -> String {
    let sums = functions.each_ref().map(|f| f.values().sum::<f64>());
    let all: f64 = sums.iter().sum();
    let mut rows: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (column, of) in functions.iter().enumerate() {
        for (name, n) in of {
            rows.entry(name).or_default()[column] += n;
        }
    }
    let (shown, others): (Vec<_>, Vec<_>) =
        (rows.into_iter()).partition(|(_, n)| n.iter().sum::<f64>() * SHARE >= all);
    let mut shown = shown;
    shown.sort_by(|(_, a), (_, b)| b.iter().sum::<f64>().total_cmp(&a.iter().sum()));
    let mut out = String::from("| function | x86-64 | AArch64 |\n|---|---:|---:|\n");
    let mut row = |name: &str, n: [f64; 2]| {
        let [x, a] = n.map(|n| {
            if n == 0.0 {
                "-".to_owned()
            } else {
                format!("{n:.0}")
            }
        });
        let _ = writeln!(out, "| {name} | {x} | {a} |");
    };
    for (name, n) in shown {
        row(&format!("`{}`", name.replace('|', "\\|")), n);
    }
    if !others.is_empty() {
        let sum = |column: usize| others.iter().map(|(_, n)| n[column]).sum();
        row(&format!("{} others", others.len()), [sum(0), sum(1)]);
    }
    row("all", sums);
    out
}

/// A frame without its source line, and without the platform, which is the column's.
fn function(frame: &str) -> String {
    let name = frame.rfind(" (").map_or(frame, |at| &frame[..at]);
    let without = |name: String, platform: &str| name.replace(platform, "");
    PLATFORMS.iter().copied().fold(name.to_owned(), without)
}

/// Names of the kernel and the benchmark program as they were built last.
fn symboliser(isa: Isa) -> Symboliser {
    let (package, triple) = build::kernel_package(isa);
    let kernel = paths::target_dir().join("kernel").join(triple);
    let user = paths::target_dir().join("user").join(BENCH_APP);
    Symboliser::new([
        kernel.join("kernel").join(package),
        user.join(format!("{BENCH_APP}.{}.elf", isa.name())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_functions_are_added_up_and_nothing_is_lost() {
        let of = |all: &[(&str, f64)]| all.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        let functions = [
            of(&[("big", 90.0), ("a|b", 10.0), ("small", 1.0)]),
            of(&[("big", 80.0), ("tiny", 1.0)]),
        ];
        let wanted = "| function | x86-64 | AArch64 |\n|---|---:|---:|\n\
                      | `big` | 90 | 80 |\n| `a\\|b` | 10 | - |\n| 2 others | 1 | 1 |\n| all | 101 | 81 |\n";
        assert_eq!(table(&functions), wanted);
    }

    #[test]
    fn windows_of_both_directions_are_kept_apart() {
        let window = |op, part, memory| BenchWindow { op, memory, part };
        let [x, a] = Isa::ALL;
        let fused = BenchMemory::Fused;
        let call = BenchOp::CrossingCallRoundTrip;
        assert!(is_shown(window(call, 0, fused), x) && is_shown(window(call, 1, fused), a));
        assert!(!is_shown(window(call, 1, fused), x) && !is_shown(window(call, 2, fused), a));
        for isa in [x, a] {
            assert!(is_shown(window(BenchOp::Dispatch, 0, fused), isa));
            assert!(!is_shown(
                window(BenchOp::Dispatch, 0, BenchMemory::Local),
                isa
            ));
        }
    }

    #[test]
    fn names_are_of_one_operation() {
        let all = Op::all();
        let mut names: Vec<&str> = all.iter().map(|op| op.name()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(Op::usual().iter().all(|op| all.contains(op)));
    }
}
