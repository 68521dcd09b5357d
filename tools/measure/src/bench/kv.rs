//! Stores of keys and values: one that all nodes read in place, one that is partitioned, one of replicas that agree by two-phase
//! commit, under the requests of YCSB and under a sweep of the part of puts.
//!
//! ```text
//!  kv --store S --mix M ─▶ latencies of gets and puts (CH-F3)
//!  kv --store S --updates N ─▶ requests in a second, by the part of puts (CH-F4)
//! ```
//!
//! Four nodes of one CPU, two of each ISA: two serve, two ask. Each point is a run in strict order with simulated time, and its
//! history is checked. The JSON form has the schema `dyad.bench/1`, with the suite `kv`:
//!
//! | member | |
//! |---|---|
//! | `ok`, `failure` | whether all runs were good and the bounds hold; why not, or null |
//! | `rows[]` | `store`, `load` (`a` to `f`, or the percentage of puts), `gets`, `puts`, `get_ns`, `put_ns` (`mean`, `p50`, `p99`, `p999`; null without any), `per_second` |
//! | `crossover` | the least percentage of puts of those measured at which partitions answer more requests than the store that is read in place, or null |

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;
use serde_json::{Value, json};

use super::faults;
use super::report::SCHEMA;

/// The stores, as the program names them.
pub const STORES: [&str; 3] = ["lib", "partitioned", "2pc"];
/// Mixes of YCSB.
pub const MIXES: [&str; 5] = ["a", "b", "c", "d", "f"];
/// Parts of puts, in percent.
pub const UPDATES: [u64; 7] = [0, 1, 5, 10, 25, 50, 100];
/// By how much the requests in a second of partitions may differ over the parts of puts (CH-F4).
const FLAT: f64 = 0.05;
/// Requests of a client from which on that counts.
const LONG: u64 = 1_000;
/// How many times as many gets are answered in place as by partitions, at least (CH-F4).
const FASTER: f64 = 2.0;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mixes.
    pub mixes: Vec<&'static str>,
    /// Parts of puts.
    pub updates: Vec<u64>,
    /// Items that there are at the start.
    pub items: u64,
    /// Requests of each client.
    pub requests: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            mixes: MIXES.to_vec(),
            updates: UPDATES.to_vec(),
            items: 10_000,
            requests: 2_000,
        }
    }
}

/// Nanoseconds of one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The mean.
    pub mean: u64,
    /// The median, and the time that all but a hundredth, or a thousandth, took no more than.
    pub parts: [u64; 3],
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Of gets, and of puts.
    pub kinds: [Option<Latency>; 2],
    /// Requests of all clients in a second of simulated time.
    pub per_second: u64,
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub struct Kv {
    /// By load, then by store.
    pub rows: BTreeMap<(String, &'static str), Row>,
    /// Why there are no more, if there should be.
    pub failure: Option<String>,
    plan: Plan,
}

/// The name of a part of puts.
fn percent(updates: u64) -> String {
    format!("{updates:3} %")
}

/// Measures.
///
/// # Errors
///
/// If a run could not be made, or was interrupted. Runs that fail otherwise are in the result.
pub fn kv(plan: &Plan, sink: &mut dyn Sink) -> Result<Kv, Error> {
    let mut all = Kv {
        plan: plan.clone(),
        ..Kv::default()
    };
    let mixes = plan
        .mixes
        .iter()
        .map(|m| ((*m).to_owned(), format!("--mix {m}")));
    let updates = plan
        .updates
        .iter()
        .map(|n| (percent(*n), format!("--updates {n}")));
    for (load, args) in mixes.chain(updates) {
        for store in STORES {
            match one(plan, store, &args, sink)? {
                Ok(row) => _ = all.rows.insert((load.clone(), store), row),
                Err(why) => {
                    all.failure = Some(format!("{store}, {}: {why}", load.trim()));
                    return Ok(all);
                }
            }
        }
    }
    Ok(all)
}

/// One run. `Err` in the result: why it says nothing.
fn one(
    plan: &Plan,
    store: &str,
    load: &str,
    sink: &mut dyn Sink,
) -> Result<Result<Row, String>, Error> {
    let Plan {
        items, requests, ..
    } = plan;
    let nodes = [Isa::X86_64, Isa::Aarch64, Isa::X86_64, Isa::Aarch64];
    let args = format!("--store {store} {load} --items {items} --requests {requests} --order time");
    let config = faults::strict(&nodes, "kv", args, 3600);
    let report = match faults::run(&config, sink)? {
        Ok(report) => report,
        Err(why) => return Ok(Err(why)),
    };
    let counter = |name: &str| report.counters.get(&format!("kv.{name}")).copied();
    let latency = |kind: &str| {
        Some(Latency {
            count: counter(&format!("{kind}s"))?,
            mean: counter(&format!("{kind}-mean-ns"))?,
            parts: [
                counter(&format!("{kind}-p50-ns"))?,
                counter(&format!("{kind}-p99-ns"))?,
                counter(&format!("{kind}-p999-ns"))?,
            ],
        })
    };
    let Some(per_second) = counter("per-second") else {
        return Ok(Err("the program has not said how fast it was".into()));
    };
    Ok(Ok(Row {
        kinds: [latency("get"), latency("put")],
        per_second,
    }))
}

impl Kv {
    fn at(&self, load: &str, store: &'static str) -> Option<&Row> {
        self.rows.get(&(load.to_owned(), store))
    }

    fn loads(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.rows.keys().map(|k| k.0.as_str()).collect();
        all.dedup();
        all
    }

    /// Requests in a second by the part of puts.
    fn sweep(&self, store: &'static str) -> Vec<(u64, f64)> {
        let row = |&n: &u64| Some((n, self.at(&percent(n), store)?.per_second as f64));
        self.plan.updates.iter().filter_map(row).collect()
    }

    /// The least part of puts at which partitions answer more requests than the store that is read in place.
    pub fn crossover(&self) -> Option<u64> {
        let both = self.sweep("lib").into_iter().zip(self.sweep("partitioned"));
        both.filter(|(lib, partitioned)| partitioned.1 > lib.1)
            .map(|(lib, _)| lib.0)
            .min()
    }

    /// What the figures do not show that they must: CH-F3 and CH-F4.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        if self.rows.is_empty() {
            return Some("nothing was measured".into());
        }
        for load in self.loads() {
            let mean = |store, kind: usize| Some(self.at(load, store)?.kinds[kind]?.mean);
            let [lib, partitioned, two] = STORES.map(|store| mean(store, 0));
            if let (Some(lib), Some(partitioned)) = (lib, partitioned)
                && lib >= partitioned
            {
                return Some(format!(
                    "{load}: gets take {lib} ns in place and {partitioned} ns from partitions"
                ));
            }
            if let (Some(lib), Some(two)) = (lib, two)
                && lib >= two
            {
                return Some(format!(
                    "{load}: gets take {lib} ns in place and {two} ns from replicas"
                ));
            }
            let [_, partitioned, two] = STORES.map(|store| mean(store, 1));
            if let (Some(partitioned), Some(two)) = (partitioned, two)
                && partitioned >= two
            {
                return Some(format!(
                    "{load}: puts take {partitioned} ns with partitions and {two} ns with replicas"
                ));
            }
        }
        let sweep = self.sweep("partitioned");
        let speeds = || sweep.iter().map(|p| p.1);
        let (least, most) = (
            speeds().fold(f64::INFINITY, f64::min),
            speeds().fold(0.0, f64::max),
        );
        // In a short run caches are cold, and what a put touches is not what a get does.
        let is_long = self.plan.requests >= LONG;
        if is_long && sweep.len() > 1 && most / least - 1.0 > FLAT {
            let spread = (most / least - 1.0) * 100.0;
            return Some(format!(
                "partitions are {spread:.1} % faster with one part of puts than with another"
            ));
        }
        let gets = |store| Some(self.at(&percent(0), store)?.per_second as f64);
        match (gets("lib"), gets("partitioned")) {
            (Some(lib), Some(partitioned)) if lib < FASTER * partitioned => Some(format!(
                "in place {:.2} times as many gets are answered as by partitions",
                lib / partitioned
            )),
            _ => None,
        }
    }

    /// The figures, for people.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "| load | store | get, mean | p50 | p99 | p99.9 | put, mean | p50 | p99 | p99.9 | requests/s |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for load in self.loads() {
            for store in STORES {
                let Some(row) = self.at(load, store) else {
                    continue;
                };
                let cells = |latency: Option<Latency>| match latency {
                    Some(Latency {
                        mean,
                        parts: [p50, p99, p999],
                        ..
                    }) => format!("{mean} | {p50} | {p99} | {p999}"),
                    None => "| | |".into(),
                };
                let [get, put] = row.kinds.map(cells);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "| {} | {store} | {get} | {put} | {} |",
                    load.trim(),
                    row.per_second
                );
            }
        }
        let _ = match self.crossover() {
            Some(n) => writeln!(
                out,
                "\nPartitions answer more requests from {n} % of puts on."
            ),
            None => writeln!(
                out,
                "\nThe store that is read in place answers more requests with each part of puts."
            ),
        };
        out
    }

    /// The page of the book.
    pub fn page(&self) -> String {
        let Plan {
            items, requests, ..
        } = &self.plan;
        HEAD.replace("{items}", &items.to_string())
            .replace("{requests}", &requests.to_string())
            + &self.table()
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let latency = |latency: Option<Latency>| {
            latency.map(|l| {
                let [p50, p99, p999] = l.parts;
                json!({"mean": l.mean, "p50": p50, "p99": p99, "p999": p999})
            })
        };
        let rows = self.rows.iter().map(|((load, store), row)| {
            let count = |kind: usize| row.kinds[kind].map_or(0, |l| l.count);
            json!({
                "store": store, "load": load.trim(), "gets": count(0), "puts": count(1),
                "get_ns": latency(row.kinds[0]), "put_ns": latency(row.kinds[1]), "per_second": row.per_second,
            })
        });
        json!({
            "schema": SCHEMA,
            "suite": "kv",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "rows": rows.collect::<Vec<_>>(),
            "crossover": self.crossover(),
        })
    }
}

const HEAD: &str = "\
# Stores

What requests to a [store of keys and values](programs.md#stores) take, in nanoseconds of simulated time, as

```console
$ cargo xtask bench kv --page book/src/reference/kv.md
```

has measured it in strict order, profile `paper-big`, with coherent caches. Four nodes of one CPU, two of each ISA: two serve, two ask. There are {items}
items of 16 bytes of key and 32 bytes of value; each client makes {requests} requests, zipfian. Loads are mixes of YCSB, then parts of puts. Each history
was checked: it could have happened one after the other.

A get in place reads a line of references, which is not kept, and the item's lines, which caches keep. Every other request is a message and its
answer. A put to replicas is two more messages to each other server.

";

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which gets and puts take so long, with so many requests in a second.
    fn row(get: u64, put: u64, per_second: u64) -> Row {
        let latency = |mean| {
            (mean > 0).then_some(Latency {
                count: 10,
                mean,
                parts: [mean, 2 * mean, 3 * mean],
            })
        };
        Row {
            kinds: [latency(get), latency(put)],
            per_second,
        }
    }

    fn figures(rows: &[(&str, [Row; 3])]) -> Kv {
        let mut all = Kv::default();
        for (load, of) in rows {
            for (store, row) in STORES.into_iter().zip(of) {
                all.rows.insert(((*load).to_owned(), store), *row);
            }
        }
        all
    }

    fn good() -> Vec<(&'static str, [Row; 3])> {
        vec![
            (
                "a",
                [
                    row(100, 900, 2000),
                    row(800, 850, 1000),
                    row(820, 2000, 700),
                ],
            ),
            (
                "  0 %",
                [row(100, 0, 9000), row(800, 0, 1000), row(800, 0, 1000)],
            ),
            (
                "100 %",
                [row(0, 900, 900), row(0, 850, 1010), row(0, 2000, 500)],
            ),
        ]
    }

    #[test]
    fn bounds_are_those_of_the_paper_and_can_fail() {
        assert_eq!(figures(&good()).problem(), None);
        assert_eq!(figures(&good()).crossover(), Some(100));
        type Change = fn(&mut Vec<(&'static str, [Row; 3])>);
        let bad: [(Change, &str); 5] = [
            (|r| r[0].1[0] = row(810, 900, 2000), "in place and 800 ns"),
            (|r| r[0].1[2] = row(90, 2000, 700), "90 ns from replicas"),
            (|r| r[0].1[2] = row(820, 800, 700), "800 ns with replicas"),
            (|r| r[2].1[1] = row(0, 850, 1100), "10.0 % faster"),
            (|r| r[1].1[0] = row(100, 0, 1900), "1.90 times"),
        ];
        for (change, why) in bad {
            let mut rows = good();
            change(&mut rows);
            let found = figures(&rows).problem().unwrap_or_default();
            assert!(found.contains(why), "{why:?} not in {found:?}");
        }
        assert!(Kv::default().problem().is_some());
    }

    #[test]
    fn tables_have_a_row_for_each_run_and_gaps_for_what_was_not_asked() {
        let table = figures(&good()).table();
        assert_eq!(
            table.lines().filter(|l| l.starts_with("| ")).count(),
            1 + 9,
            "{table}"
        );
        assert!(
            table.contains("| 0 % | lib | 100 | 100 | 200 | 300 | | | | | 9000 |"),
            "{table}"
        );
        assert!(table.contains("from 100 % of puts on"));
        let document = figures(&good()).json();
        assert_eq!(document["rows"].as_array().map(Vec::len), Some(9));
        assert_eq!(document["rows"][0]["put_ns"], Value::Null);
    }
}
