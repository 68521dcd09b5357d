//! The longest stretches with interrupts masked: what the program `bounds` drives, and what a run with a
//! node that dies adds.
//!
//! A stretch is what a CPU executes from its entry into the kernel until it takes interrupts again; the
//! plugin counts it (`sim-plugin`, module `masked`).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use dyad_abi::Isa;
use dyad_abi::cap::{CapType, authority};
use dyad_abi::marker::WindowId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::PLUGIN_SCHEMA;
use dyad_launcher::config::{RunConfig, Sim, TestOptions, Work};

/// The program that performs every operation with its worst arguments.
pub const LONGEST_APP: &str = "bounds";
/// The largest permitted length of a stretch, in instructions.
pub const BOUND: u64 = 20_000;

/// The operation that a stretch was part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// An operation: its type's number and its own.
    Operation(u32, u32),
    /// What was in no window of an operation: interrupts, turns of the run loop, preparation.
    Other,
}

impl What {
    fn of(window: Option<u16>) -> What {
        match window.and_then(|id| WindowId(id).operation()) {
            Some((ty, op)) => What::Operation(ty, op),
            None => What::Other,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::Other => f.pad("everything else"),
            What::Operation(0, 1) => f.pad("first touch of a page"),
            What::Operation(0, _) => f.pad("fault without handler"),
            What::Operation(ty, op) => {
                let known = operations();
                let found = known.iter().find(|o| o.ty as u32 == ty && o.number == op);
                match found {
                    Some(o) => f.pad(&format!("{}.{}", o.ty.name(), o.name)),
                    None => f.pad(&format!("type {ty}, operation {op}")),
                }
            }
        }
    }
}

/// An operation of the ABI.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The type of capability it is of.
    pub ty: CapType,
    /// Number of the operation.
    pub number: u32,
    /// Name of the operation.
    pub name: &'static str,
}

/// Every operation of the ABI, of each type. What is only a right is none.
pub fn operations() -> Vec<Operation> {
    let rows = authority::all().filter(|row| !row.only_a_right);
    rows.map(|row| Operation {
        ty: row.ty,
        number: row.number,
        name: row.name,
    })
    .collect()
}

#[derive(Deserialize)]
struct Masked {
    window: Option<u16>,
    n: u64,
    longest: u64,
}

#[derive(Deserialize)]
struct PluginReport {
    schema: String,
    target: String,
    masked: Option<Vec<Masked>>,
}

/// Stretches of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Number of stretches.
    pub n: u64,
    /// Instructions of the longest one.
    pub longest: u64,
}

/// The longest stretches, by ISA and what they were part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Longest(pub BTreeMap<(Isa, What), Row>);

impl Longest {
    /// Adds what a machine's plugin reports.
    ///
    /// # Errors
    ///
    /// A sentence, if the report has no stretches.
    pub fn add(&mut self, report: &Value) -> Result<(), String> {
        let report = PluginReport::deserialize(report)
            .map_err(|e| format!("the plugin's report cannot be read: {e}"))?;
        if report.schema != PLUGIN_SCHEMA {
            let found = report.schema;
            return Err(format!(
                "the plugin's report has the form {found:?}, not {PLUGIN_SCHEMA:?}"
            ));
        }
        let isa = Isa::parse(&report.target)
            .ok_or_else(|| format!("the plugin reports about {:?}", report.target))?;
        let masked = report
            .masked
            .ok_or("the plugin has counted no stretches: it was started without windows=on")?;
        for stretch in masked {
            let row = self.0.entry((isa, What::of(stretch.window))).or_default();
            row.n += stretch.n;
            row.longest = row.longest.max(stretch.longest);
        }
        Ok(())
    }

    /// Adds those of another run.
    pub fn take(&mut self, other: &Longest) {
        for (key, row) in &other.0 {
            let all = self.0.entry(*key).or_default();
            all.n += row.n;
            all.longest = all.longest.max(row.longest);
        }
    }

    /// Operations of the ABI of which an ISA has no stretch.
    pub fn missing(&self, isa: Isa) -> Vec<String> {
        let there = |o: &Operation| {
            let what = What::Operation(o.ty as u32, o.number);
            self.0.get(&(isa, what)).is_some_and(|row| row.n > 0)
        };
        operations()
            .iter()
            .filter(|o| !there(o))
            .map(|o| format!("{}.{} on {isa}", o.ty.name(), o.name))
            .collect()
    }

    /// Descriptions of the stretches longer than [`BOUND`].
    pub fn too_long(&self) -> Vec<String> {
        self.0
            .iter()
            .filter(|(_, row)| row.longest > BOUND)
            .map(|((isa, what), row)| {
                let longest = row.longest;
                format!("{what} on {isa}: {longest} instructions, bound {BOUND}")
            })
            .collect()
    }

    /// The longest stretch of an ISA, and the operation that it was part of.
    pub fn of(&self, isa: Isa) -> Option<(What, u64)> {
        let rows = self.0.iter().filter(|((of, _), _)| *of == isa);
        rows.map(|((_, what), row)| (*what, row.longest))
            .max_by_key(|&(_, longest)| longest)
    }

    /// All rows as a table: what, ISA, instructions, bound.
    pub fn table(&self) -> String {
        let mut out = format!(
            "\n{:<28} {:<8} {:>8} {:>8}   longest stretch with interrupts masked\n",
            "operation", "isa", "longest", "bound"
        );
        for ((isa, what), row) in &self.0 {
            let _ = writeln!(out, "{what:<28} {isa:<8} {:>8} {BOUND:>8}", row.longest);
        }
        out
    }

    /// The JSON form: one object per row.
    pub fn json(&self) -> Value {
        let rows = self.0.iter().map(|((isa, what), row)| {
            json!({
                "what": what.to_string(),
                "isa": isa.name(),
                "longest": row.longest,
                "n": row.n,
                "bound": BOUND,
            })
        });
        rows.collect::<Vec<_>>().into()
    }
}

/// The level at which stretches are counted: without coherence there are no caches to flush below it.
fn level(coherent: bool) -> Sim {
    match coherent {
        true => Sim::Count,
        false => Sim::Cache,
    }
}

/// A run in which node 1 is killed once the program reports that it may die.
pub fn of_deaths(nodes: &[Isa], coherent: bool) -> RunConfig {
    let mut config = of_operations(nodes, coherent);
    config.work = Work::App {
        app: LONGEST_APP.into(),
        args: "--deaths".into(),
    };
    config
}

/// A run in which the first node performs every operation.
pub fn of_operations(nodes: &[Isa], coherent: bool) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        coherent,
        sim: level(coherent),
        windows: true,
        work: Work::App {
            app: LONGEST_APP.into(),
            args: String::new(),
        },
        test: TestOptions {
            bare: true,
            ..TestOptions::default()
        },
        ..RunConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::cap::MemoryOp;

    fn report(window: u16, longest: u64) -> Value {
        json!({
            "schema": PLUGIN_SCHEMA,
            "target": "aarch64",
            "masked": [
                { "window": window, "entry": 1, "n": 2, "longest": longest },
                { "window": window, "entry": 2, "n": 1, "longest": 5 },
                { "entry": 3, "n": 4, "longest": 7 },
            ],
        })
    }

    #[test]
    fn stretches_are_rows_by_operation() {
        let mut all = Longest::default();
        let split = WindowId::of_operation(CapType::Memory as u32, MemoryOp::Split as u32).0;
        all.add(&report(split, BOUND)).unwrap();
        assert!(all.too_long().is_empty());
        all.add(&report(split, BOUND + 1)).unwrap();
        assert_eq!(
            all.too_long(),
            ["Memory.Split on aarch64: 20001 instructions, bound 20000"]
        );
        let (what, longest) = all.of(Isa::Aarch64).unwrap();
        assert_eq!(
            (what.to_string().as_str(), longest),
            ("Memory.Split", 20001)
        );
        assert_eq!(all.of(Isa::X86_64), None);
        let other = all.0[&(Isa::Aarch64, What::Other)];
        assert_eq!((other.n, other.longest), (8, 7));
    }

    #[test]
    fn what_is_not_driven_is_missing() {
        let mut all = Longest::default();
        let split = WindowId::of_operation(CapType::Memory as u32, MemoryOp::Split as u32).0;
        all.add(&report(split, 1)).unwrap();
        let missing = all.missing(Isa::Aarch64);
        assert_eq!(missing.len(), operations().len() - 1);
        assert!(!missing.iter().any(|m| m.starts_with("Memory.Split")));
        assert!(missing.contains(&"Thread.Load on aarch64".to_string()));
        assert_eq!(all.missing(Isa::X86_64).len(), operations().len());
    }
}
