//! What the figures must show: CH-F2, CH-F3 and CH-F4 of the evaluation.

use super::{Caches, Counts, Kv, Load, Row, STORES};

/// By how much the requests in a second of partitions may differ over the parts of puts (CH-F4).
const FLAT: f64 = 0.05;
/// Requests of a client from which on that counts. In a short run caches are cold, and what a put touches is not what a get does.
const LONG: u64 = 1_000;
/// How many times as many gets are answered in place as by partitions, at least (CH-F4), and how many times as long a get takes from
/// partitions (CH-F3).
const FASTER: f64 = 2.0;
/// How many times as long one of two kinds of gets may take that take about the same time (CH-F3).
const ALIKE: f64 = 1.25;
/// How much of the throughput without rounds may be lost (CH-F2), at that many rounds in a second.
const LOSS: f64 = 0.05;
const LOSS_AT: u64 = 30;

/// One thing that the figures show, or do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The figure of the paper.
    pub figure: &'static str,
    /// In which memory.
    pub caches: Caches,
    /// Under which load.
    pub load: String,
    /// What should hold.
    pub claim: &'static str,
    /// The numbers.
    pub numbers: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether the measurement fails if it does not. The others are reported with the counts that explain them.
    pub is_bound: bool,
    /// What was counted of those that are compared, if it does not hold.
    pub because: Option<String>,
}

/// What was counted of a request, in words.
fn explain(store: &str, c: &Counts) -> String {
    format!(
        "{store}: {:.2} messages, clients {:.0} instructions, {:.1} misses, {:.1} flushes, servers {:.0} instructions, {:.1} misses, {:.1} flushes",
        c.messages,
        c.client.instructions,
        c.client.misses,
        c.client.flushes,
        c.server.instructions,
        c.server.misses,
        c.server.flushes
    )
}

impl Kv {
    pub(super) fn at(&self, caches: Caches, load: Load, store: &'static str) -> Option<&Row> {
        self.rows.get(&(caches, load, store))
    }

    /// The kinds of memory that were measured.
    pub(super) fn caches(&self) -> Vec<Caches> {
        let is_there = |c: &Caches| self.rows.keys().any(|k| k.0 == *c);
        Caches::ALL.into_iter().filter(is_there).collect()
    }

    pub(super) fn loads(&self, caches: Caches) -> Vec<Load> {
        let of = self.rows.keys().filter(|k| k.0 == caches);
        let mut all: Vec<Load> = of.map(|k| k.1).collect();
        all.dedup();
        all
    }

    /// Requests in a second by the part of puts.
    pub(super) fn sweep(&self, caches: Caches, store: &'static str) -> Vec<(u64, f64)> {
        let loads = self.loads(caches).into_iter();
        let row = |load| match load {
            Load::Updates(n) => Some((n, self.at(caches, load, store)?.per_second as f64)),
            Load::Mix(_) => None,
        };
        loads.filter_map(row).collect()
    }

    /// The least part of puts at which partitions answer more requests than the store that is read in place.
    pub fn crossover(&self, caches: Caches) -> Option<u64> {
        let partitioned = self.sweep(caches, "partitioned");
        let at = |n: u64| partitioned.iter().find(|p| p.0 == n).map(|p| p.1);
        let lib = self.sweep(caches, "lib").into_iter();
        lib.filter(|lib| at(lib.0).is_some_and(|p| p > lib.1))
            .map(|lib| lib.0)
            .min()
    }

    /// The part of the requests in a second that rounds cost; `None` without a run that makes none.
    pub fn loss(&self, caches: Caches, items: u64, rate: u64) -> Option<f64> {
        let speed = |rate| Some(self.rates.get(&(caches, items, rate))?.per_second as f64);
        Some(1.0 - speed(rate)? / speed(0)?)
    }

    /// All that can be judged by what was measured.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut all = Vec::new();
        for caches in self.caches() {
            for load in self.loads(caches) {
                self.latencies(caches, load, &mut all);
            }
            self.throughput(caches, &mut all);
        }
        self.rounds(&mut all);
        all
    }

    /// CH-F3: how long gets and puts take.
    fn latencies(&self, caches: Caches, load: Load, all: &mut Vec<Verdict>) {
        let stores = |names: [&'static str; 2], kind: usize| {
            let row = |store| self.at(caches, load, store);
            let [a, b] = names.map(row);
            let (a, b) = (a?, b?);
            Some([(a, a.kinds[kind]?.mean), (b, b.kinds[kind]?.mean)])
        };
        let mut judge =
            |claim, names: [&'static str; 2], kind, is_bound, holds: &dyn Fn(u64, u64) -> bool| {
                let Some([(a, x), (b, y)]) = stores(names, kind) else {
                    return;
                };
                let holds = holds(x, y);
                let because =
                    [(a, names[0]), (b, names[1])].map(|(row, name)| explain(name, &row.counts));
                all.push(Verdict {
                    figure: "CH-F3",
                    caches,
                    load: load.name(),
                    claim,
                    numbers: format!("{x} and {y} ns"),
                    holds,
                    is_bound,
                    because: (!holds).then(|| because.join("; ")),
                });
            };
        let [lib, partitioned, two] = STORES;
        judge(
            "gets: in place < partitioned",
            [lib, partitioned],
            0,
            true,
            &|x, y| x < y,
        );
        judge("gets: in place < 2PC", [lib, two], 0, true, &|x, y| x < y);
        judge(
            "gets: partitioned / in place >= 2",
            [lib, partitioned],
            0,
            false,
            &|x, y| y as f64 >= FASTER * x as f64,
        );
        judge(
            "gets: partitioned ~ 2PC (25 %)",
            [partitioned, two],
            0,
            false,
            &|x, y| x.max(y) as f64 <= ALIKE * x.min(y) as f64,
        );
        judge(
            "puts: partitioned < in place",
            [partitioned, lib],
            1,
            false,
            &|x, y| x < y,
        );
        judge("puts: in place < 2PC", [lib, two], 1, false, &|x, y| x < y);
        judge(
            "puts: partitioned < 2PC",
            [partitioned, two],
            1,
            true,
            &|x, y| x < y,
        );
    }

    /// CH-F4: requests in a second by the part of puts.
    fn throughput(&self, caches: Caches, all: &mut Vec<Verdict>) {
        let sweep = self.sweep(caches, "partitioned");
        let speeds = || sweep.iter().map(|p| p.1);
        let least = speeds().fold(f64::INFINITY, f64::min);
        let most = speeds().fold(0.0, f64::max);
        let mut judge =
            |load: String, claim, numbers, holds: bool, stores: [(&'static str, Load); 2]| {
                let because = stores.map(|(store, load)| {
                    let row = self.at(caches, load, store);
                    row.map_or_else(String::new, |row| {
                        explain(&format!("{store}, {}", load.name()), &row.counts)
                    })
                });
                all.push(Verdict {
                    figure: "CH-F4",
                    caches,
                    load,
                    claim,
                    numbers,
                    holds,
                    is_bound: true,
                    because: (!holds).then(|| because.join("; ")),
                });
            };
        if self.plan.requests >= LONG && sweep.len() > 1 {
            let spread = most / least - 1.0;
            let place = |speed: f64| {
                let found = sweep.iter().find(|p| p.1 == speed);
                ("partitioned", Load::Updates(found.map_or(0, |p| p.0)))
            };
            let ends = [place(least), place(most)];
            let (from, to) = (ends[0].1.name(), ends[1].1.name());
            judge(
                format!("{from} to {to}"),
                "partitioned is flat within 5 %",
                format!("{:.1} %", spread * 100.0),
                spread <= FLAT,
                ends,
            );
        }
        let gets = |store| Some(self.at(caches, Load::Updates(0), store)?.per_second as f64);
        if let (Some(lib), Some(partitioned)) = (gets("lib"), gets("partitioned")) {
            let times = lib / partitioned;
            judge(
                Load::Updates(0).name(),
                "requests/s: in place / partitioned >= 2",
                format!("{times:.2}"),
                times >= FASTER,
                ["lib", "partitioned"].map(|store| (store, Load::Updates(0))),
            );
        }
    }

    /// CH-F2: what rounds cost, if items and buckets fit into the second level of caches, and the run was so long that there were more
    /// rounds than the one that each node begins with.
    fn rounds(&self, all: &mut Vec<Verdict>) {
        for (&(caches, items, rate), row) in &self.rates {
            let Some(none) = self.rates.get(&(caches, items, 0)) else {
                continue;
            };
            let is_judged = rate == LOSS_AT && row.rounds > none.rounds && row.working_set < row.l2;
            let Some(loss) = self.loss(caches, items, rate).filter(|_| is_judged) else {
                continue;
            };
            let holds = loss <= LOSS;
            let because = [none, row]
                .map(|row| explain("lib", &row.counts))
                .join("; ");
            all.push(Verdict {
                figure: "CH-F2",
                caches,
                load: format!("{items} items"),
                claim: "30 rounds/s cost at most 5 % below the size of L2",
                numbers: format!("{:.2} %", loss * 100.0),
                holds,
                is_bound: true,
                because: (!holds).then_some(because),
            });
        }
    }

    /// What the figures do not show that they must.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.failure {
            return Some(why.clone());
        }
        if self.rows.is_empty() && self.rates.is_empty() {
            return Some("nothing was measured".into());
        }
        let verdicts = self.verdicts();
        let bad = verdicts.iter().find(|v| v.is_bound && !v.holds)?;
        Some(format!(
            "{}, {}, {}: {} does not hold: {}",
            bad.figure,
            bad.caches.name(),
            bad.load,
            bad.claim,
            bad.numbers
        ))
    }
}
