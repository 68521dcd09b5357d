//! The scenes of the book, `book/src/reference/scenes.md`: their messages and prices are written there, computed by hand, and
//! bind both models.

use super::Pair;
use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::*;
use crate::fixture;
use crate::memory::view_of;

const PAGE: &str = include_str!("../../../../book/src/reference/scenes.md");

/// The heading of the scenes in which nodes answer the home of a line.
const THROUGH_HOME: &str = "## Nodes answer the home";

/// The heading of the scenes in which the device has a filter. Nodes answer the home in them, too.
const FILTER: &str = "## A filter in the device";

/// The heading of the scenes of kernels' memory without coherence. The device has a filter in them, too.
const INCOHERENT: &str = "## Without coherence";

/// Three nodes of two CPUs. Each price is another number, and no sum of few is a sum of others.
fn config(through_home: bool, coherence: Coherence, filter_entries: u64) -> SimConfig {
    let mut config = fixture::config(3, 2);
    config.coherence = coherence;
    config.filter_entries = filter_entries;
    for node in &mut config.nodes {
        node.latency = Latencies {
            l1: 4,
            l2: 14,
            l3: 50,
            local: 10_000,
            remote: 30_000,
            pool: 70_000,
        };
        node.snoop = SnoopCosts {
            data: 71,
            inv: 83,
            per_sharer: 17,
            hop: 1_009,
            home: 293,
            through_home,
            sibling: 7,
            back: 131,
            forward: (!through_home).then_some(509),
            writeback: 2_503,
        };
    }
    config
}

/// A row of the page.
struct Scene<'a> {
    line: &'a str,
    through_home: bool,
    coherence: Coherence,
    filter_entries: u64,
    home: &'a str,
    accesses: &'a str,
    messages: &'a str,
    cycles: &'a str,
}

fn scenes() -> Vec<Scene<'static>> {
    let (mut through_home, mut coherence) = (false, Coherence::Coherent);
    let mut filter_entries = 0;
    let mut scenes = Vec::new();
    for line in PAGE.lines() {
        through_home |= line == THROUGH_HOME;
        if line == FILTER {
            filter_entries = 8;
        }
        if line == INCOHERENT {
            coherence = Coherence::Incoherent;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", _, home, accesses, messages, cycles, ""] = cells[..]
            && accesses.starts_with('`')
        {
            scenes.push(Scene {
                line,
                through_home,
                coherence,
                filter_entries,
                home,
                accesses: accesses.trim_matches('`'),
                messages,
                cycles: cycles.trim_matches('`'),
            });
        }
    }
    scenes
}

/// Lines this far apart are in the same set of every cache.
const SAME_SET: u64 = 16;

/// Carries out an access such as `0.1r` or `0r@2`, and gives its cycles, node and CPU.
fn access(pair: &mut Pair<'_>, text: &str, mut line: u64) -> (u64, usize, usize) {
    let (text, number) = text.split_once('@').unwrap_or((text, "0"));
    line += number.parse::<u64>().unwrap() * SAME_SET;
    let (place, what) = text.split_at(text.len() - 1);
    let (node, cpu) = place.split_once('.').unwrap_or((place, "0"));
    let (node, cpu) = (node.parse().unwrap(), cpu.parse().unwrap());
    if pair.config.coherence == Coherence::Incoherent {
        line = view_of(node, line);
    }
    let cycles = match what {
        "r" => pair.access_by(node, cpu, Kind::Load, line),
        "w" => pair.access_by(node, cpu, Kind::Store, line),
        "x" => pair.access_by(node, cpu, Kind::Rmw, line),
        "i" => pair.access_by(node, cpu, Kind::Fetch, line),
        "f" => pair.flush_by(node, cpu, FlushKind::Flush, line),
        "c" => pair.flush_by(node, cpu, FlushKind::Clean, line),
        "a" => pair.flush_by(node, cpu, FlushKind::Everything, line),
        _ => panic!("no access: {text}"),
    };
    (cycles, node, cpu)
}

/// The messages that were counted, as the page writes them.
fn counted(c: Counters) -> String {
    let all = [
        ("data", c.snp_data),
        ("inv", c.snp_inv),
        ("forwarded", c.forwarded),
        ("back", c.inclusion_snoops),
        ("recalled", c.back_invalidations),
        ("written", c.writebacks),
        ("siblings", c.sibling_writes),
        ("local", c.local),
        ("remote", c.remote),
        ("pool", c.pool),
    ];
    let some = all.iter().filter(|(_, n)| *n != 0);
    some.map(|(name, n)| format!("{name} {n}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The value of a sum such as `inv + 2 hop`.
fn value(sum: &str, node: &NodeConfig) -> u64 {
    let (latency, snoop) = (node.latency, node.snoop);
    let price = |name: &str| match name {
        "l1" => latency.l1,
        "l2" => latency.l2,
        "l3" => latency.l3,
        "local" => latency.local,
        "remote" => latency.remote,
        "pool" => latency.pool,
        "data" => snoop.data,
        "inv" => snoop.inv,
        "sharer" => snoop.per_sharer,
        "hop" => snoop.hop,
        "home" => snoop.home,
        "sibling" => snoop.sibling,
        "back" => snoop.back,
        "writeback" => snoop.writeback,
        "forward" => snoop.forward.unwrap(),
        _ => panic!("no price: {name}"),
    };
    let part = |part: &str| match part.split_once(' ') {
        Some((n, name)) => n.parse::<u64>().unwrap() * price(name),
        None if part == "0" => 0,
        None => price(part),
    };
    sum.split(" + ").map(part).sum()
}

#[test]
fn scenes_of_the_book_have_its_messages_and_times() {
    let scenes = scenes();
    assert!(scenes.len() >= 60, "{} scenes", scenes.len());
    let mut wrong = Vec::new();
    for scene in &scenes {
        let config = config(scene.through_home, scene.coherence, scene.filter_entries);
        let storage = Storage::new(&config);
        let mut pair = Pair::new(&config, &storage);
        let line = match scene.home {
            "D" => pair.cxl(),
            node => pair.pool(node.parse().unwrap()),
        };
        let mut last = (Counters::default(), (0, 0, 0));
        for text in scene.accesses.split(' ') {
            let all = |pair: &Pair<'_>| {
                let cpus = (0..3).flat_map(|n| [(n, 0), (n, 1)]);
                cpus.map(|(n, c)| pair.both.fast.counts(n, c))
                    .reduce(|a, b| a + b)
                    .unwrap()
            };
            let before = all(&pair);
            let done = access(&mut pair, text, line);
            last = (all(&pair) - before, done);
        }
        let (counts, (cycles, node, _)) = last;
        let expected = value(scene.cycles, &config.nodes[node]);
        let messages = counted(counts);
        if (messages.as_str(), cycles) != (scene.messages, expected) {
            wrong.push(format!(
                "{}\n    is: {messages}; {cycles} cycles instead of {expected}",
                scene.line
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
