use super::*;

/// Moves with pages cost 300 us and 10 ms for each MiB; those without cost 1 ms, and as much for each MiB as `grows` says.
fn figures(grows: u64) -> Process {
    let mut all = Process::default();
    for mib in [1, 2, 4] {
        let pages = 256 * mib;
        let ahead = 300_000 + 10_000_000 * mib;
        let demand = 1_000_000 + grows * mib;
        for (way, whole, touch, faults) in [
            (Paging::Ahead, ahead, 10_000 * mib, 0),
            (Paging::Demand, demand, 20_000_000 * mib, pages),
        ] {
            let mut steps = [0; STEPS.len()];
            (steps[0], steps[2]) = (1000, whole - 1000);
            let one = Move {
                steps,
                whole,
                touch,
                faults,
                pages,
                there: 3,
                left: pages + 10,
            };
            all.moves.insert(("shared", mib, way), one);
        }
    }
    for (by_message, whole) in [(true, 100_000.0), (false, 20_000.0)] {
        let turns = if by_message { 100_000 } else { 5000 };
        let game = |n| Game {
            ns: turns * n,
            wakes: 2 * n,
            messages: 6 * n * u64::from(by_message),
        };
        let games = Games {
            games: [10, 20].map(|n| (n, game(n))).into(),
            doorbells: 60,
        };
        all.games.insert(("shared", by_message), games);
        let mut steps = [0.0; STEPS.len()];
        steps[5] = whole;
        let hop = Hop { steps, whole };
        all.hops.insert(("shared", by_message), hop);
    }
    all
}

#[test]
fn lines_are_found_again() {
    let all = figures(1000);
    let found = all.line("shared", Paging::Ahead).unwrap();
    assert!((found.start - 300_000.0).abs() < 1.0 && (found.slope - 1e7).abs() < 1.0);
    assert!((found.r2 - 1.0).abs() < 1e-9);
    assert_eq!(all.problem(), None);
    // 300 us and 10 ms less 1 ms, over 20 ms.
    let part = all.crossover("shared", 1).unwrap();
    assert!((part - 9.299 / 19.99).abs() < 1e-3, "{part}");
    assert!(line(&[(1.0, 2.0)]).is_none());
    let bent = line(&[(1.0, 1.0), (2.0, 4.0), (3.0, 1.0)]).unwrap();
    assert!(bent.r2 < FITS && bent.slope.abs() < 1e-9);
}

#[test]
fn what_is_not_shown_is_said() {
    let problem = |all: Process| all.problem().unwrap();
    assert!(problem(Process::default()).contains("nothing"));
    assert!(problem(figures(1_000_000)).contains("without pages grow"));
    let mut all = figures(0);
    if let Some(one) = all.moves.get_mut(&("shared", 2, Paging::Ahead)) {
        (one.whole, one.steps[2]) = (1000, 0);
    }
    assert!(problem(all).contains("no line"));
    let mut all = figures(0);
    if let Some(one) = all.moves.get_mut(&("shared", 2, Paging::Demand)) {
        one.steps[4] = 1;
    }
    assert!(problem(all).contains("do not add up"));
    let mut all = figures(0);
    if let Some(one) = all.moves.get_mut(&("shared", 2, Paging::Ahead)) {
        one.faults = one.pages;
    }
    assert!(problem(all).contains("that were there"));
    let mut all = figures(0);
    if let Some(hop) = all.hops.get_mut(&("shared", true)) {
        hop.steps[4] = 2.0;
    }
    assert!(problem(all).contains("of the ping-pong"));
    let mut all = figures(0);
    all.hops.remove(&("shared", false));
    assert!(problem(all).contains("ping-pong"));
}

#[test]
fn counters_of_a_run_are_read() {
    let mut counters = Counters::new();
    for (n, step) in (1..).zip(STEPS) {
        counters.insert(format!("process.{step}-ns"), n);
        counters.insert(format!("pingpong.{step}-ns"), 4 * n);
    }
    let names = [
        "move-ns",
        "touch-ns",
        "faults",
        "heap-pages",
        "frames-there",
        "frames-left",
    ];
    for (n, name) in (21..).zip(names) {
        counters.insert(format!("process.{name}"), n);
    }
    counters.insert("pingpong.moves".into(), 4);
    counters.insert("pingpong.move-ns".into(), 84);
    let one = a_move(&counters).unwrap();
    assert_eq!(one.steps, [1, 2, 3, 4, 5, 6]);
    assert_eq!((one.whole, one.pages, one.left), (21, 24, 26));
    let mean = hop(&counters).unwrap();
    assert_eq!((mean.steps[5], mean.whole), (6.0, 21.0));
    counters.remove("process.faults");
    assert!(a_move(&counters).unwrap_err().contains("process.faults"));
}

#[test]
fn forms_have_all_figures() {
    let all = figures(1000);
    let page = all.page();
    assert!(page.contains("bench process --page"));
    assert!(
        page.contains("| shared | 4 | demand | 1.0 | 0.0 |"),
        "{page}"
    );
    assert!(page.contains("| shared | fused | - | - |"), "{page}");
    let json = all.json();
    assert_eq!(json["moves"].as_array().unwrap().len(), 6);
    assert_eq!(json["lines"][0]["pages"], "ahead");
    assert_eq!(json["pingpong"][0]["kernels"], "fused");
    let picture = all.picture();
    assert_eq!(picture.matches("<polyline").count(), 4);
    assert!(picture.ends_with("</svg>\n"));
}
