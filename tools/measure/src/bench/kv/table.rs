//! The figures as tables, as a page of the book, and in JSON: schema `dyad.bench/1`, suite `kv`, which the book describes.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::report::SCHEMA;
use super::{Counts, Kv, Latency, Plan, RATE_UPDATES, Row, STORES, Work};

impl Kv {
    /// The figures, for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if !self.rows.is_empty() {
            self.write_latencies(&mut out);
            self.write_counts(&mut out);
        }
        if !self.rates.is_empty() {
            self.write_rates(&mut out);
        }
        self.write_verdicts(&mut out);
        out
    }

    fn write_latencies(&self, out: &mut String) {
        out.push_str(
            "| memory | load | store | get, mean | p50 | p99 | p99.9 | put, mean | p50 | p99 | p99.9 | requests/s |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        self.each(out, |row| {
            let cells = |latency: Option<Latency>| match latency {
                Some(Latency {
                    mean,
                    parts: [p50, p99, p999],
                    ..
                }) => format!("{mean} | {p50} | {p99} | {p999}"),
                None => "| | |".into(),
            };
            let [get, put] = row.kinds.map(cells);
            format!("{get} | {put} | {}", row.per_second)
        });
    }

    fn write_counts(&self, out: &mut String) {
        out.push_str(
            "\n| memory | load | store | messages | clients: instructions | misses | flushes | servers: instructions | misses | flushes |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        self.each(out, |row| {
            let of =
                |w: Work| format!("{:.0} | {:.2} | {:.2}", w.instructions, w.misses, w.flushes);
            let c = row.counts;
            format!("{:.2} | {} | {}", c.messages, of(c.client), of(c.server))
        });
    }

    /// A line for each run, by memory, load and store.
    fn each(&self, out: &mut String, cells: impl Fn(&Row) -> String) {
        for caches in self.caches() {
            for load in self.loads(caches) {
                for store in STORES {
                    let Some(row) = self.at(caches, load, store) else {
                        continue;
                    };
                    let (caches, load) = (caches.name(), load.name());
                    // Writing to a string cannot fail.
                    let _ = writeln!(out, "| {caches} | {load} | {store} | {} |", cells(row));
                }
            }
        }
    }

    fn write_rates(&self, out: &mut String) {
        out.push_str(
            "\n| memory | items | KiB used | rounds/s | rounds made | requests/s | loss | blocks reused | after, mean | p50 | p99 |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for (&(caches, items, rate), row) in &self.rates {
            let loss = self.loss(caches, items, rate);
            let loss = loss.map_or_else(String::new, |loss| format!("{:.2} %", loss * 100.0));
            let reclaim = match row.reclaim {
                Some(Latency {
                    count,
                    mean,
                    parts: [p50, p99, _],
                }) => format!("{count} | {mean} | {p50} | {p99}"),
                None => "0 | | |".into(),
            };
            let _ = writeln!(
                out,
                "| {} | {items} | {} | {rate} | {} | {} | {loss} | {reclaim} |",
                caches.name(),
                row.working_set.div_ceil(1024),
                row.rounds,
                row.per_second
            );
        }
    }

    fn write_verdicts(&self, out: &mut String) {
        for caches in self.caches() {
            let name = caches.name();
            if self.sweep(caches, "partitioned").len() < 2 {
                continue;
            }
            let _ = match self.crossover(caches) {
                Some(n) => writeln!(
                    out,
                    "\nIn {name} memory partitions answer more requests from {n} % of puts on."
                ),
                None => writeln!(
                    out,
                    "\nIn {name} memory the store that is read in place answers more requests with each part of puts."
                ),
            };
        }
        let verdicts = self.verdicts();
        if verdicts.is_empty() {
            return;
        }
        out.push_str(
            "\n| figure | memory | load | what | numbers | holds |\n|---|---|---|---|---|---|\n",
        );
        for v in &verdicts {
            let holds = if v.holds { "yes" } else { "no" };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {holds} |",
                v.figure,
                v.caches.name(),
                v.load,
                v.claim,
                v.numbers
            );
        }
        let bad = verdicts.iter().filter(|v| !v.holds);
        let bad = bad.filter_map(|v| Some((v, v.because.as_ref()?)));
        for (n, (v, because)) in bad.enumerate() {
            if n == 0 {
                out.push_str("\nWhat was counted of a request where something does not hold:\n\n");
            }
            let (figure, caches) = (v.figure, v.caches.name());
            let (load, claim) = (&v.load, v.claim);
            let _ = writeln!(out, "- {figure}, {caches}, {load}, {claim}: {because}.");
        }
    }

    /// The page of the book. Its picture is the file `picture` beside it, if there is one.
    pub fn page(&self, picture: Option<&str>) -> String {
        let Plan {
            items,
            requests,
            rate_requests,
            ..
        } = &self.plan;
        let mut out = HEAD
            .replace("{items}", &items.to_string())
            .replace("{requests}", &requests.to_string())
            .replace("{rate_requests}", &rate_requests.to_string())
            .replace("{rate_updates}", &RATE_UPDATES.to_string());
        if let Some(picture) = picture {
            let _ = writeln!(
                out,
                "![Requests in a second, by part of puts and by rounds of quiescence; the numbers are in the tables]({picture})\n"
            );
        }
        out + &self.table()
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|((caches, load, store), row)| {
            let mut all = json(row);
            all["caches"] = caches.name().into();
            all["store"] = (*store).into();
            all["load"] = load.name().into();
            all
        });
        let rates = self.rates.iter().map(|(&(caches, items, rate), row)| {
            let mut all = json(row);
            all["caches"] = caches.name().into();
            all["store"] = STORES[0].into();
            all["items"] = items.into();
            all["rounds_per_second"] = rate.into();
            all["loss"] = self.loss(caches, items, rate).into();
            all
        });
        let verdicts = self.verdicts().into_iter().map(|v| {
            json!({
                "figure": v.figure, "caches": v.caches.name(), "load": v.load, "claim": v.claim, "numbers": v.numbers,
                "holds": v.holds, "bound": v.is_bound, "because": v.because,
            })
        });
        let crossovers = self.caches().into_iter();
        let crossovers = crossovers.map(|c| (c.name().to_owned(), json!(self.crossover(c))));
        json!({
            "schema": SCHEMA,
            "suite": "kv",
            "ok": self.problem().is_none(),
            "failure": self.problem(),
            "rows": rows.collect::<Vec<_>>(),
            "rates": rates.collect::<Vec<_>>(),
            "crossover": crossovers.collect::<serde_json::Map<_, _>>(),
            "verdicts": verdicts.collect::<Vec<_>>(),
        })
    }
}

fn json(row: &Row) -> Value {
    let latency = |latency: Option<Latency>| {
        latency.map(|l| {
            let [p50, p99, p999] = l.parts;
            json!({"mean": l.mean, "p50": p50, "p99": p99, "p999": p999})
        })
    };
    let count = |latency: Option<Latency>| latency.map_or(0, |l| l.count);
    let work =
        |w: Work| json!({"instructions": w.instructions, "misses": w.misses, "flushes": w.flushes});
    let [get, put] = row.kinds;
    let Counts {
        messages,
        client,
        server,
    } = row.counts;
    json!({
        "gets": count(get), "puts": count(put), "get_ns": latency(get), "put_ns": latency(put),
        "per_second": row.per_second, "messages": messages, "client": work(client), "server": work(server),
        "rounds": row.rounds, "reclaimed": count(row.reclaim), "reclaim_ns": latency(row.reclaim),
        "working_set": row.working_set, "l2": row.l2,
    })
}

const HEAD: &str = "\
# Stores

What requests to a [store of keys and values](programs.md#stores) take, in nanoseconds of simulated time, as

```console
$ cargo xtask bench kv --page book/src/reference/kv.md
```

has measured it in strict order, profile `paper-big`. Four nodes of one CPU, two of each ISA: two serve, two ask. There are {items}
items of 16 bytes of key and 32 bytes of value; each client makes {requests} requests, zipfian. Loads are mixes of YCSB, then parts of puts. Each history
was checked: it could have happened one after the other. In incoherent memory the store that is read in place writes back and drops its lines, and
the sanitizer has found nothing; messages between programs have coherent memory in both cases.

A get in place reads a line of references, which is not kept, and the item's lines, which caches keep. Every other request is a message and its
answer. A put to replicas is two more messages to each other server.

The second table has what was counted of each request: misses of the last level of caches, flushes and write-backs of a line by instructions. What
servers do has their polling in it. The third one has the store that is read in place with {rate_updates} % of puts, {rate_requests} requests of each client, and
so many rounds of quiescence in a second on each node: *loss* is what these take of the requests in a second, *after* is the time in nanoseconds from
the put that replaced a block until the block could be reused.

";
