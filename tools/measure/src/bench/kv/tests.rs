use serde_json::Value;

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
    let work = |instructions| Work {
        instructions,
        misses: 3.5,
        flushes: 0.0,
    };
    Row {
        kinds: [latency(get), latency(put)],
        per_second,
        counts: Counts {
            messages: 2.0,
            client: work(1000.0),
            server: work(3000.0),
        },
        rounds: 4,
        reclaim: None,
        working_set: 80_000,
        l2: 1 << 20,
    }
}

/// Without and with 30 rounds in a second.
fn rates(caches: Caches, with: u64) -> [(RatePoint, Row); 2] {
    let reclaim = Some(Latency {
        count: 7,
        mean: 50_000,
        parts: [40_000, 60_000, 70_000],
    });
    let slow = Row {
        rounds: 16,
        reclaim,
        ..row(100, 900, with)
    };
    [
        ((caches, 1000, 0), row(100, 900, 1000)),
        ((caches, 1000, 30), slow),
    ]
}

type Loads = Vec<(Load, [Row; 3])>;

fn good() -> Loads {
    vec![
        (
            Load::Mix("a"),
            [
                row(100, 900, 2000),
                row(800, 850, 1000),
                row(820, 2000, 700),
            ],
        ),
        (
            Load::Updates(0),
            [row(100, 0, 9000), row(800, 0, 1000), row(800, 0, 1000)],
        ),
        (
            Load::Updates(100),
            [row(0, 900, 900), row(0, 850, 1010), row(0, 2000, 500)],
        ),
    ]
}

fn figures(caches: Caches, loads: &Loads, with_rounds: u64) -> Kv {
    let mut all = Kv {
        rates: rates(caches, with_rounds).into(),
        plan: Plan::new(&Group::ALL, &[caches], 10_000, 2_000),
        ..Kv::default()
    };
    for (load, of) in loads {
        for (store, row) in STORES.into_iter().zip(of) {
            all.rows.insert((caches, *load, store), *row);
        }
    }
    all
}

#[test]
fn bounds_are_those_of_the_paper_and_can_fail() {
    for caches in Caches::ALL {
        let all = figures(caches, &good(), 990);
        assert_eq!(all.problem(), None);
        assert!(
            all.verdicts().iter().all(|v| v.holds),
            "{:?}",
            all.verdicts()
        );
        assert_eq!(all.crossover(caches), Some(100));
        let other = figures(caches, &good(), 900).problem().unwrap_or_default();
        assert!(
            other.contains("CH-F2") && other.contains("10.00 %"),
            "{other}"
        );
        type Change = fn(&mut Loads);
        let bad: [(Change, &str); 5] = [
            (|r| r[0].1[0] = row(810, 900, 2000), "810 and 800 ns"),
            (|r| r[0].1[2] = row(90, 2000, 700), "100 and 90 ns"),
            (|r| r[0].1[2] = row(820, 800, 700), "850 and 800 ns"),
            (
                |r| r[2].1[1] = row(0, 850, 1100),
                "flat within 5 % does not hold: 10.0 %",
            ),
            (|r| r[1].1[0] = row(100, 0, 1900), "1.90"),
        ];
        for (change, why) in bad {
            let mut loads = good();
            change(&mut loads);
            let found = figures(caches, &loads, 990).problem().unwrap_or_default();
            assert!(found.contains(why), "{why:?} not in {found:?}");
            assert!(found.contains(caches.name()), "{found}");
        }
    }
    assert!(Kv::default().problem().is_some());
}

#[test]
fn orderings_that_do_not_come_out_are_explained_by_counts() {
    let mut loads = good();
    loads[0].1[0] = row(100, 840, 2000);
    let all = figures(Caches::Incoherent, &loads, 990);
    assert_eq!(all.problem(), None);
    let bad: Vec<Verdict> = all.verdicts().into_iter().filter(|v| !v.holds).collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(bad[0].claim, "puts: partitioned < in place");
    let because = bad[0].because.clone().unwrap_or_default();
    assert!(
        because.contains("lib: 2.00 messages, clients 1000 instructions, 3.5 misses"),
        "{because}"
    );
    let table = all.table();
    assert!(
        table.contains(&because) && table.contains("| 850 and 840 ns | no |"),
        "{table}"
    );
    assert_eq!(all.json()["ok"], true);
}

#[test]
fn rounds_are_judged_only_where_there_were_some_and_the_second_level_is_larger() {
    let judged = |change: fn(&mut Row)| {
        let mut all = figures(Caches::Coherent, &good(), 900);
        all.rates.values_mut().for_each(change);
        all.verdicts().iter().any(|v| v.figure == "CH-F2")
    };
    assert!(judged(|_| ()));
    assert!(!judged(|row| row.rounds = 4));
    assert!(!judged(|row| row.working_set = row.l2));
}

#[test]
fn short_runs_say_nothing_about_flatness() {
    let mut loads = good();
    loads[2].1[1] = row(0, 850, 1100);
    let mut all = figures(Caches::Coherent, &loads, 990);
    all.plan.requests = 50;
    assert_eq!(all.problem(), None);
}

#[test]
fn tables_have_a_row_for_each_run_and_gaps_for_what_was_not_asked() {
    let mut all = figures(Caches::Coherent, &good(), 990);
    all.rows
        .extend(figures(Caches::Incoherent, &good(), 990).rows);
    let table = all.table();
    let lines = |words: &str| table.lines().filter(|l| l.contains(words)).count();
    assert_eq!(
        lines("| lib |") + lines("| partitioned |") + lines("| 2pc |"),
        36,
        "{table}"
    );
    for words in [
        "| coherent | 0 % | lib | 100 | 100 | 200 | 300 | | | | | 9000 |",
        "| incoherent | a | 2pc | 2.00 | 1000 | 3.50 | 0.00 | 3000 | 3.50 | 0.00 |",
        "| coherent | 1000 | 79 | 30 | 16 | 990 | 1.00 % | 7 | 50000 | 40000 | 60000 |",
        "| coherent | 1000 | 79 | 0 | 4 | 1000 | 0.00 % | 0 | | | |",
        "In incoherent memory partitions answer more requests from 100 % of puts on",
    ] {
        assert!(table.contains(words), "{words:?} not in:\n{table}");
    }
    let page = all.page(Some("kv.svg"));
    assert!(page.contains("](kv.svg)") && page.ends_with(&table));
    let document = all.json();
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(18));
    assert_eq!(document["rows"][3]["put_ns"], Value::Null);
    assert_eq!(document["rates"][1]["reclaim_ns"]["p50"], 40_000);
    assert_eq!(document["crossover"]["incoherent"], 100);
}

#[test]
fn pictures_have_a_line_for_each_store_and_each_working_set() {
    let mut all = figures(Caches::Coherent, &good(), 990);
    all.rows
        .extend(figures(Caches::Incoherent, &good(), 990).rows);
    let picture = all.picture();
    assert_eq!(picture.matches("<polyline").count(), 3 + 3 + 1, "{picture}");
    assert!(picture.contains("lib, 1000 items") && picture.ends_with("</svg>\n"));
}

#[test]
fn plans_have_what_was_asked_for() {
    let all = Plan::new(&Group::ALL, &Caches::ALL, 10_000, 2_000);
    assert_eq!((all.points.len(), all.rates.len()), (2 * 12 * 3, 2 * 2 * 4));
    let one = Plan::new(&[Group::Mixes], &[Caches::Incoherent], 10_000, 2_000);
    assert_eq!((one.points.len(), one.rates.len()), (5 * 3, 0));
    assert!(one.points.iter().all(|p| p.0 == Caches::Incoherent));
    let quick = Plan::quick();
    assert_eq!(quick.points.len() + quick.rates.len(), 9);
}
