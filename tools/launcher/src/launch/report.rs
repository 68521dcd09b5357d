//! What came out of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use dyad_abi::Isa;
use dyad_abi::record::{EXIT_FAILED, EXIT_OK};
use serde::Serialize;

use crate::config::RunConfig;
use crate::console::Record;
use crate::error::Error;
use crate::sim::Outcome;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.run/1";

/// What became of a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Node number.
    pub id: usize,
    /// ISA of the node.
    pub isa: &'static str,
    /// Number of CPUs of the node.
    pub cpus: usize,
    /// The exit code that the kernel reported; `None` if the node did not end by itself.
    pub exit: Option<u32>,
    /// The end of the machine, as text.
    pub ended: String,
    /// Whether the policy (`--on-death`) allowed for its death.
    pub excused: bool,
    /// Number of restarts of the node.
    pub restarts: u32,
    /// What the simulator's plugin reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim: Option<serde_json::Value>,
    /// What plugins that are not ours have printed.
    #[serde(skip)]
    pub plugins: Option<String>,
    /// Raw console.
    pub log: PathBuf,
    /// The same bytes, for callers.
    #[serde(skip)]
    pub console: Vec<u8>,
}

/// A check of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Whether the check passed.
    pub ok: bool,
    /// Details of the result.
    pub detail: String,
    /// The node that reported it.
    pub node: usize,
}

/// What the program beside the program has reported. It does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// Its checks, in the order in which they came.
    pub checks: Vec<Check>,
    /// Its counters, summed over nodes.
    pub counters: BTreeMap<String, u64>,
}

/// Result of an in-kernel test on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KtestResult {
    /// The node.
    pub node: usize,
    /// The test.
    pub name: String,
    /// `ok`, `failed`, `skipped`, or `start` if it did not come to an end.
    pub state: String,
    /// More about it.
    pub detail: String,
}

/// Host time the parts took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HostMs {
    /// Building.
    pub build: u64,
    /// From the first machine's start until all nodes were live.
    pub boot: u64,
    /// From then to the end of the last machine.
    pub run: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What was run.
    pub config: RunConfig,
    /// The nodes; empty if none was started.
    pub nodes: Vec<NodeReport>,
    /// The checks, in the order in which they came.
    pub checks: Vec<Check>,
    /// Counters, summed over nodes.
    pub counters: BTreeMap<String, u64>,
    /// What the program beside the program has reported.
    pub beside: Beside,
    /// In-kernel tests.
    pub ktests: Vec<KtestResult>,
    /// Why the run failed, if one event made it fail.
    pub error: Option<Error>,
    /// What was simulated, and what came out of that.
    pub simulation: Option<Outcome>,
    /// Host time.
    pub host_ms: HostMs,
    /// Directory with the logs.
    pub dir: PathBuf,
}

impl RunReport {
    pub(crate) fn new(config: &RunConfig, dir: PathBuf) -> RunReport {
        RunReport {
            config: config.clone(),
            nodes: Vec::new(),
            checks: Vec::new(),
            counters: BTreeMap::new(),
            beside: Beside::default(),
            ktests: Vec::new(),
            error: None,
            simulation: None,
            host_ms: HostMs::default(),
            dir,
        }
    }

    /// Takes a check or a counter of a node.
    pub(crate) fn take(&mut self, node: usize, record: Record) {
        let (checks, counters) = match record.beside() {
            None => (&mut self.checks, &mut self.counters),
            Some(_) => (&mut self.beside.checks, &mut self.beside.counters),
        };
        match record {
            Record::Check {
                name, ok, detail, ..
            } => checks.push(Check {
                name,
                ok,
                detail,
                node,
            }),
            Record::Counter { name, value, .. } => {
                let sum = counters.entry(name).or_default();
                *sum = sum.saturating_add(value);
            }
            _ => {}
        }
    }

    /// Whether everything passed: every node that had to ended well, every check passed, and
    /// there was at least one.
    pub fn ok(&self) -> bool {
        self.failure().is_none()
    }

    /// Why it failed, in one text.
    pub fn failure(&self) -> Option<String> {
        if let Some(e) = &self.error {
            return Some(e.to_string());
        }
        let mut why = String::new();
        let mut add = |args: std::fmt::Arguments<'_>| {
            let sep = if why.is_empty() { "" } else { "; " };
            let _ = write!(why, "{sep}{args}");
        };
        let said_why =
            self.checks.iter().any(|c| !c.ok) || self.ktests.iter().any(|t| t.state == "failed");
        for c in self.checks.iter().filter(|c| !c.ok) {
            add(format_args!(
                "check {} failed on node {}: {}",
                c.name, c.node, c.detail
            ));
        }
        for t in &self.ktests {
            match t.state.as_str() {
                "ok" | "skipped" => {}
                "start" => add(format_args!(
                    "test {} did not end on node {}",
                    t.name, t.node
                )),
                _ => add(format_args!(
                    "test {} failed on node {}: {}",
                    t.name, t.node, t.detail
                )),
            }
        }
        for n in self.nodes.iter().filter(|n| !n.excused) {
            // A failed check or test is why nodes say that something has failed.
            let explained = n.exit == Some(EXIT_FAILED) && said_why;
            if n.exit != Some(EXIT_OK) && !explained {
                add(format_args!("node {} ({}) {}", n.id, n.isa, n.ended));
            }
        }
        if self.nodes.iter().all(|n| n.excused) {
            add(format_args!("no node was left"));
        }
        if self.checks.is_empty() && self.ktests.is_empty() {
            add(format_args!("no check was recorded"));
        }
        (!why.is_empty()).then_some(why)
    }

    /// Exit status of the process that ran it.
    pub fn exit_status(&self) -> u8 {
        match &self.error {
            Some(e) => e.exit_status(),
            None => u8::from(!self.ok()),
        }
    }

    /// The JSON form.
    pub fn json(&self) -> serde_json::Value {
        let c = &self.config;
        serde_json::json!({
            "schema": SCHEMA,
            "ok": self.ok(),
            "app": c.work_name(),
            "nodes": self.nodes,
            "checks": self.checks,
            "counters": self.counters,
            "beside": self.beside,
            "ktests": self.ktests,
            "failure": self.failure(),
            "config": {
                "nodes": c.nodes.iter().map(|i: &Isa| i.name()).collect::<Vec<_>>(),
                "cpus": c.cpus,
                "mem_local": c.mem_local,
                "mem_cxl": c.mem_cxl,
                "block_size": c.block_size,
                "kernels": c.kernels.name(),
                "args": match &c.work {
                    crate::config::Work::App { args, .. } => args.as_str(),
                    crate::config::Work::Ktest(_) => "",
                },
                "timeout": c.timeout.map(|t| t.as_secs()),
                "on_death": c.on_death.name(),
                "coherence": if c.coherent { "coherent" } else { "incoherent" },
                "rounds": c.rounds,
                "audit": c.audit,
                "fastpaths": c.fastpaths,
                "sim": c.sim.name(),
                "windows": c.windows,
            },
            "sim": self.simulation,
            "host_ms": self.host_ms,
            "logs": self.dir,
        })
    }
}

/// The JSON form of a run that was never configured.
pub fn unusable(error: &Error) -> serde_json::Value {
    serde_json::json!({
        "schema": SCHEMA, "ok": false, "app": null, "nodes": [], "checks": [], "counters": {},
        "failure": error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RunReport {
        let mut r = RunReport::new(&RunConfig::default(), PathBuf::new());
        for (id, isa) in Isa::ALL.into_iter().enumerate() {
            r.nodes.push(NodeReport {
                id,
                isa: isa.name(),
                cpus: 1,
                exit: Some(EXIT_OK),
                ended: "exited with code 0".into(),
                excused: false,
                restarts: 0,
                sim: None,
                plugins: None,
                log: PathBuf::new(),
                console: Vec::new(),
            });
        }
        r.checks.push(Check {
            name: "selftest".into(),
            ok: true,
            detail: String::new(),
            node: 0,
        });
        r
    }

    #[test]
    fn ok_means_that_everything_was_checked_and_passed() {
        type Change = fn(&mut RunReport);
        assert!(report().ok());
        let bad: [(Change, &str); 6] = [
            (|r| r.checks.clear(), "no check was recorded"),
            (|r| r.checks[0].ok = false, "check selftest failed"),
            (|r| r.nodes[1].exit = None, "node 1 (aarch64)"),
            (|r| r.nodes[0].exit = Some(EXIT_FAILED), "node 0 (x86_64)"),
            (
                |r| r.nodes.iter_mut().for_each(|n| n.excused = true),
                "no node was left",
            ),
            (|r| r.error = Some(Error::Run("x".into())), "x"),
        ];
        for (change, why) in bad {
            let mut r = report();
            change(&mut r);
            assert!(!r.ok() && r.exit_status() == 1);
            assert!(r.failure().unwrap().contains(why), "{:?}", r.failure());
            assert_eq!(r.json()["ok"], false);
        }
        let mut r = report();
        (r.nodes[1].exit, r.nodes[1].excused) = (None, true);
        assert!(r.ok());
    }

    #[test]
    fn what_the_program_beside_reports_does_not_count() {
        let check = |ok, program| Record::Check {
            name: "c".into(),
            ok,
            detail: String::new(),
            program,
        };
        let counter = |value, program| Record::Counter {
            name: "n".into(),
            value,
            program,
        };
        let mut r = report();
        r.checks.clear();
        r.take(0, check(true, Some(9)));
        assert_eq!(r.failure().unwrap(), "no check was recorded");
        r.take(0, check(true, Some(8)));
        r.take(1, check(false, Some(9)));
        r.take(0, counter(1, None));
        r.take(0, counter(2, Some(8)));
        r.take(1, counter(u64::MAX, Some(9)));
        assert_eq!(r.failure(), None);
        let j = r.json();
        assert_eq!(
            (j["checks"].as_array().map(Vec::len), &j["ok"]),
            (Some(1), &true.into())
        );
        assert_eq!(
            (&j["counters"]["n"], &j["beside"]["checks"][1]["ok"]),
            (&3.into(), &false.into())
        );
        assert_eq!(j["beside"]["counters"]["n"], u64::MAX);
        // Those of the program and of the system do.
        for program in [Some(8), None] {
            let mut r = r.clone();
            r.take(1, check(false, program));
            assert_eq!(r.failure().unwrap(), "check c failed on node 1: ");
        }
    }

    #[test]
    fn the_json_form_has_what_its_readers_need() {
        let j = report().json();
        assert_eq!(j["schema"], "dyad.run/1");
        assert_eq!(j["app"], "hop");
        assert_eq!(j["nodes"][1]["isa"], "aarch64");
        assert_eq!(j["nodes"][1]["exit"], 0);
        assert_eq!(j["checks"][0]["name"], "selftest");
        assert_eq!(j["failure"], serde_json::Value::Null);
    }
}
