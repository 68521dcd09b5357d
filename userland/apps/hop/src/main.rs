//! The tour: NPB IS, class S, in a task that goes to the other ISA and back in every iteration.
//!
//! The keys are counted at home and the counts summed up on the other node; both nodes verify
//! the ranks of every iteration, on the one copy of the data that there is. Twenty migrations,
//! then an account of what ran where, what it cost and what was shared. On systems of more than
//! two nodes a last lap visits all of them; on systems of one ISA the task hops between nodes.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod account;
mod pointers;

use dyad::prelude::task::*;
use dyad::{report, system};
use npb_kernels::is::{Class, ITERATIONS, Is, TEST_KEYS, WrongRank};

use account::Account;
use pointers::View;

/// Migrations of the ten iterations.
const LOOP_MIGRATIONS: u64 = 2 * ITERATIONS as u64;

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&[])?;
    let system = dyad::system()?;
    let home = node();
    let away = (system.partner(home))
        .ok_or_else(|| Error::msg("there is no other live node to hop to"))?;
    introduce(&system, home, away);

    let mut account = Account::default();
    let mut is = account.phase("generate keys", || Is::generate(Class::S));
    let mut tally = [Tally::default(), Tally::default()];
    let mut checksums_agree = true;
    let mut views = None;

    for t in 1..=ITERATIONS {
        account.phase("count keys", || {
            is.stamp(t);
            is.count();
        });
        let counts = is.ranks_checksum();
        let view = if t == 1 { Some(View::take(&is)?) } else { None };

        let left = Instant::now();
        migrate_to(away).await?;
        let arrived = Instant::now();
        checksums_agree &= is.ranks_checksum() == counts;
        account.phase("sum counts up", || is.accumulate());
        tally[1].add(account.phase("verify ranks", || is.verify_partial(t)));
        let ranks = is.ranks_checksum();
        if let Some(first) = view {
            views = Some((first, View::take(&is)?));
        }

        let there = arrived.elapsed();
        migrate_to(home).await?;
        account.round_trip(left.elapsed(), there);
        checksums_agree &= is.ranks_checksum() == ranks;
        tally[0].add(account.phase("verify ranks", || is.verify_partial(t)));
    }
    account.phase("sort keys", || is.sort());
    let full = account.phase("verify order", || is.verify_full());
    let lap = last_lap(&system, home, &is, &mut account).await?;

    account.print();
    let migrations: u64 = dyad::task::migrations().iter().map(|c| c.count).sum();
    let pointers = match &views {
        Some((at_home, abroad)) => at_home.compare(abroad, &system),
        None => Err("nothing was looked at".to_string()),
    };

    println!();
    let mut good = true;
    for (tally, node) in tally.iter().zip([home, away]) {
        let name = format!("is.partial.{}", label(&system, node, home, away));
        good &= report::check(&name, tally.ok(), tally);
    }
    good &= report::check(
        "is.full",
        full.is_ok(),
        match &full {
            Ok(()) => format!("{} keys in order", is.keys().len()),
            Err(e) => e.to_string(),
        },
    );
    good &= report::check(
        "hop.checksum",
        checksums_agree,
        "counts and ranks of every iteration, on both nodes",
    );
    good &= report::check(
        "hop.pointers",
        pointers.is_ok(),
        match &pointers {
            Ok(()) => "equal addresses, one copy of the data, for each ISA its own code",
            Err(wrong) => wrong,
        },
    );
    let expected = LOOP_MIGRATIONS + lap;
    good &= report::check(
        "hop.migrations",
        migrations == expected,
        format_args!("{migrations} of {expected}"),
    );
    println!(
        "IS class S {} with {migrations} migrations; result checksum {:016x}",
        if good { "VERIFIED" } else { "FAILED" },
        is.sorted_checksum()
    );
    if good {
        Ok(())
    } else {
        Err(Error::msg("a check failed"))
    }
}

fn introduce(system: &system::System, home: NodeId, away: NodeId) {
    println!("The Dyad tour: one program, compiled once, on every instruction set at hand.");
    println!();
    for n in system.nodes() {
        println!(
            "  {:<14} {} CPU{}  local pool at {:#013x}, {} MiB{}",
            n.to_string(),
            n.cpus,
            if n.cpus == 1 { " " } else { "s" },
            n.pool.start,
            n.pool.len >> 20,
            if n.live { "" } else { "  (dead)" }
        );
    }
    let cxl = system.cxl();
    println!(
        "  {:<14}         CXL pool at {:#013x}, {} MiB",
        "shared",
        cxl.start,
        cxl.len >> 20
    );
    println!();
    let isa_of = |node| system.node(node).map(|n| n.isa);
    if isa_of(home) == isa_of(away) {
        println!(
            "All live nodes are {}: the task hops between nodes {home} and {away} of one ISA.",
            isa()
        );
    }
    println!(
        "NPB IS class S: {} keys, {ITERATIONS} iterations, each of which",
        Class::S.keys()
    );
    println!("  counts the keys on {}", place(system, home));
    println!("  sums up and verifies on {}", place(system, away));
    println!("  verifies again on {}", place(system, home));
}

fn place(system: &system::System, node: NodeId) -> String {
    match system.node(node) {
        Some(n) => n.to_string(),
        None => format!("node {node}"),
    }
}

/// What tells the two sides apart in check names: the ISA, or the node if they share it.
fn label(system: &system::System, node: NodeId, home: NodeId, away: NodeId) -> String {
    let isa_of = |node| system.node(node).map(|n| n.isa);
    match isa_of(node) {
        Some(isa) if isa_of(home) != isa_of(away) => isa.to_string(),
        _ => format!("node{node}"),
    }
}

/// With more than two nodes: every other live node, then home. Returns the migrations it took.
async fn last_lap(
    system: &system::System,
    home: NodeId,
    is: &Is,
    account: &mut Account,
) -> Result<u64> {
    let others: Vec<NodeId> = system
        .nodes()
        .filter(|n| n.live && n.id != home)
        .map(|n| n.id)
        .collect();
    if others.len() < 2 {
        return Ok(0);
    }
    let sum = is.sorted_checksum();
    let mut agree = 0;
    for &stop in &others {
        migrate_to(stop).await?;
        let same = account.phase("last lap: checksum", || is.sorted_checksum() == sum);
        agree += usize::from(same && node() == stop);
    }
    migrate_to(home).await?;
    report::check(
        "hop.lap",
        agree == others.len(),
        format_args!("{agree} of {} nodes see the same result", others.len()),
    );
    Ok(others.len() as u64 + 1)
}

/// Partial verifications of one side.
#[derive(Default)]
struct Tally {
    passed: u32,
    wrong: Option<WrongRank>,
}

impl Tally {
    fn add(&mut self, result: Result<u32, WrongRank>) {
        match result {
            Ok(n) => self.passed += n,
            Err(e) => self.wrong = self.wrong.or(Some(e)),
        }
    }

    fn ok(&self) -> bool {
        self.passed == ITERATIONS * TEST_KEYS as u32 && self.wrong.is_none()
    }
}

impl core::fmt::Display for Tally {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.wrong {
            Some(e) => e.fmt(f),
            None => write!(f, "{} ranks in {ITERATIONS} iterations", self.passed),
        }
    }
}
