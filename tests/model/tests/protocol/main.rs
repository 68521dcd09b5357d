//! The rows of the protocol have no violation within the bounds; each weakened row has one.
//!
//! The tier `quick` visits the first states of scenarios that hold, and finds every violation of weakened rows. The tier
//! `full` visits all states. In the tier `long` the bounds of scenarios that hold are larger.

mod caches;
mod entries;
mod idle;
mod life;
mod recovery;
mod reuse;
mod slots;

use dyad_model_tests::Weakening as W;
use dyad_model_tests::{Kind, Report, Scenario, check};
use dyad_tier::{Tier, size};

// What may be found where a row is weakened: the first of these that comes.
const STALE: &[&str] = &[
    "a TLB reaches a frame that was reused",
    "a cached line has contents from before the reuse",
];
const HELD: &[&str] = &[
    "an object was reused between check and use",
    "the current thread's frame was reused",
];
const MISCOUNTED: &[&str] = &[
    "references and entries differ when nothing is in progress",
    "pins of the table and entries differ when nothing is in progress",
    "fewer than no references",
];
const REFILLED: &[&str] = &[
    "a slot was filled again under a reader",
    "a cached slot has contents from before the reuse",
];
const STUCK: &[&str] = &["a frame or entry is stuck", "a slot is stuck"];
const LOST: &[&str] = &["a node initialises a frame that it has lost"];
const WRONG_TYPE: &[&str] = &[
    "an entry maps a frame of another type",
    "references and entries differ when nothing is in progress",
    "fewer than no references",
];
const TWICE: &[&str] = &["an address has two translations"];
const UNPINNED: &[&str] = &["a live entry is in what was its table"];
const READ_ONLY: &[&str] = &["a TLB lets write what counts as read-only"];
const MAPPED_AGAIN: &[&str] = &["a page is mapped that was unmapped everywhere"];

fn long() -> bool {
    Tier::now() == Tier::Long
}

/// A bound of the tiers quick and full, and of the long form.
fn bound(full: u8, long: u8) -> u8 {
    size(full, full, long)
}

/// Steps between states after which the tier `quick` stops where a scenario holds: a second's worth.
const FIRST: usize = 400_000;
/// More steps than any scenario of the tier `full`, or `long`, has.
const ALL: usize = 60_000_000;
const ALL_LONG: usize = 4_000_000_000;

fn run(s: &Scenario, limit: usize) -> Report {
    let report = check(s, limit);
    println!("{:?}: {report}", s.weakening);
    report
}

/// No violation, and if all states were visited, what was meant to happen did happen.
fn holds(s: &Scenario) -> Report {
    let report = run(s, size(FIRST, ALL, ALL_LONG));
    assert!(report.violation.is_none(), "{s:?}\n{report}");
    assert!(
        report.complete || Tier::now() == Tier::Quick,
        "the scenario has more states: {s:?}"
    );
    assert!(
        s.victims.is_empty() || report.recovered || !report.complete,
        "no node was recovered: {s:?}"
    );
    report
}

/// The protocol holds in the scenario, and something was reused.
fn holds_with_reuse(s: &Scenario) {
    let report = holds(s);
    assert!(
        report.reused || !report.complete,
        "nothing was ever reused: {s:?}"
    );
}

/// Violated, as said, when weakened.
fn fails(w: W, s: &Scenario, expected: &[&str]) {
    let weak = Scenario {
        weakening: Some(w),
        ..s.clone()
    };
    let report = run(&weak, if long() { ALL_LONG } else { ALL });
    match &report.violation {
        Some((what, _)) => assert!(expected.contains(what), "{report}"),
        None => panic!("{w:?} goes unnoticed: {report}"),
    }
}

/// Holds as it is, and is violated, as said, when weakened.
fn needs(w: W, s: &Scenario, expected: &[&str]) {
    holds(s);
    fails(w, s, expected);
}

/// A user frame that node 1 maps.
fn mapped(kinds: &'static [Kind], ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        mapped: true,
        ..Scenario::new(kinds, ops, last_epoch)
    }
}

/// A kernel object that is not mapped.
fn object(kinds: &'static [Kind], ops: u8, last_epoch: u8) -> Scenario {
    Scenario {
        kernel: true,
        ..Scenario::new(kinds, ops, last_epoch)
    }
}

const RETYPE: &[Kind] = &[Kind::ToUntyped, Kind::ToKernel];
const REUSE: &[Kind] = &[Kind::Unmap, Kind::ToUntyped, Kind::ToKernel];
const FRAMES: &[Kind] = &[
    Kind::Map,
    Kind::Unmap,
    Kind::ToUntyped,
    Kind::ToKernel,
    Kind::ToUser,
];
const READ: &[Kind] = &[Kind::Read, Kind::ToUntyped, Kind::ToKernel];
const OBJECTS: &[Kind] = &[Kind::Read, Kind::Dispatch, Kind::ToUntyped, Kind::ToKernel];
const SLOTS: &[Kind] = &[Kind::Activate, Kind::Deactivate, Kind::Lookup];

/// Every row there is, on incoherent nodes of which one sleeps and the other dies and comes back.
#[test]
fn everything_at_once() {
    const ALL: &[Kind] = &[
        Kind::Map,
        Kind::MapPeer,
        Kind::Unmap,
        Kind::Protect,
        Kind::ToUntyped,
        Kind::ToKernel,
        Kind::ToUser,
        Kind::TableToUntyped,
        Kind::TableToUser,
        Kind::Read,
        Kind::Dispatch,
        Kind::Activate,
        Kind::Deactivate,
        Kind::Lookup,
    ];
    let base = Scenario {
        incoherent: true,
        slot: true,
        ..mapped(ALL, 2, bound(2, 3))
    };
    holds(&base);
    holds(&Scenario {
        victims: &[0],
        joins: 1,
        ..base.clone()
    });
    holds(&Scenario {
        idle: 0b11,
        ..base.clone()
    });
    if long() {
        holds_with_reuse(&Scenario {
            ops: 3,
            incoherent: false,
            ..base
        });
    }
}
