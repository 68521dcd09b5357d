//! Uses memory on all nodes, and looks at which node owns how much of it.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--fill` | MiB that are filled on the node where it starts | 48 |
//! | `--faults` | pages that are touched on the other node first, and then read on every ISA: no message is sent for any of them | 0 |
//! | `--home` | `x86_64`, `aarch64`: measures what blocks cost that the first node empties, which has that ISA ([`figures`]), and does nothing else | |
//! | `--away` | MiB that are then filled on the other node, after every second segment of 4 MiB has been given back | 0 |
//!
//! First of all it goes to every node and looks whether what it sees of the system and of itself is the
//! same there. With `--away` blocks have to be taken from the first node. While that happens the program reads and
//! changes the pages that are left of the first ones, one after the other. At the end all are read on every
//! ISA.
//!
//! Counters: `blocks_assigned`, `blocks_evicted`, `pages_moved`; with the simulator
//! `block_online_N.ISA` and `block_offline_N.ISA`: instructions for the last block of N pages that was put to
//! use, and emptied, by a node of that ISA.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod figures;
mod pages;
mod view;

use dyad::blocks::{self, PRESSURE, Question};
use dyad::prelude::task::*;
use dyad::report;
use dyad_abi::clock::KernelCounter;

use pages::Pages;

/// Pages of the first node that are changed for each page that is written on the other one.
const CHANGES: u64 = 4;
/// How long a block that is being taken away may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn ask(question: Question, node: NodeId) -> Result<u64> {
    Ok(blocks::ask(question, node)?)
}

/// Mebibytes, or pages: more than there can be, and still a number of pages.
fn number(args: &Args, name: &str, default: u64) -> Result<u64> {
    args.number(name, default, 0..=1 << 32)
}

/// What holds when the program begins: nodes own what they cannot do without.
fn at_start(nodes: &[NodeId]) -> Result<()> {
    let shared = ask(Question::SharedAtStart, nodes[0])?;
    report::check(
        "blocks.shared_at_start",
        shared == 0,
        format_args!("{shared} frames of the CXL pool"),
    );
    let block = ask(Question::BlockSize, nodes[0])? >> 12;
    for &node in nodes {
        let frames = ask(Question::AtStart, node)?;
        report::check(
            &format!("blocks.at_start.{node}"),
            frames > 0 && frames < 2 * block,
            format_args!("{frames} frames"),
        );
    }
    Ok(())
}

/// Fills memory on the node where it starts.
fn fill(pages: &mut Pages, wanted: u64) -> Result<()> {
    let here = dyad::node();
    let before = ask(Question::Assigned, here)?;
    let mut highest = 0;
    let mut wrong = None;
    while pages.len() < wanted {
        pages.touch()?;
        if pages.len().is_multiple_of(64) {
            let owned = ask(Question::Frames, here)?;
            let free = ask(Question::Free, here)?;
            highest = highest.max(pages.len() * 100 / owned);
            // As long as there is a free block, no more than that share is in use.
            if free > 0 && pages.len() * 100 > owned * PRESSURE {
                wrong.get_or_insert((pages.len(), owned));
            }
        }
    }
    let assigned = ask(Question::Assigned, here)? - before;
    report::check(
        "blocks.pressure",
        wrong.is_none(),
        format_args!("{highest} % at most, {assigned} blocks assigned; {wrong:?}"),
    );
    Ok(())
}

/// Pages that are changed in turn.
struct Turn {
    next: u64,
    rounds: u64,
    wrong: u64,
}

impl Turn {
    fn change(&mut self, pages: &Pages) {
        self.wrong += u64::from(!pages.change(self.next, self.rounds));
        self.next += 1;
        if self.next >= pages.len() {
            (self.next, self.rounds) = (0, self.rounds + 1);
        }
    }
}

/// Fills memory on another node, which has to be given blocks of the first one.
async fn away(first: &mut Pages, second: &mut Pages, wanted: u64) -> Result<Turn> {
    let home = dyad::node();
    first.halve();
    migrate(isa().other()).await?;
    let here = dyad::node();
    let mut turn = Turn {
        next: 0,
        rounds: 0,
        wrong: 0,
    };
    let mut while_busy = 0;
    while second.len() < wanted {
        second.touch()?;
        for _ in 0..CHANGES {
            turn.change(first);
        }
        if second.len().is_multiple_of(16) {
            while_busy += ask(Question::Busy, here)?;
        }
    }
    let end = Instant::now() + PATIENCE;
    while ask(Question::Busy, here)? != 0 && Instant::now() < end {
        turn.change(first);
        while_busy += 1;
    }
    let (evicted, moved) = (ask(Question::Evicted, home)?, ask(Question::Moved, home)?);
    let refused = ask(Question::Refused, home)?;
    let pressures = [home, here].map(|n| ask(Question::Frames, n));
    let [left, owned] = pressures;
    let (left, owned) = (left?, owned?);
    let (mine, theirs) = (second.len() * 100 / owned, first.len() * 100 / left);
    report::check(
        "blocks.evicted",
        evicted > 0 && moved > 0,
        format_args!(
            "{evicted} blocks, {moved} pages moved, {refused} refused; pressures {theirs} % and {mine} %; \
             {while_busy} looks while a block was on its way"
        ),
    );
    // Nobody gave what it needs.
    report::check(
        "blocks.need",
        first.len() <= left,
        format_args!("{} pages in {left} frames", first.len()),
    );
    report::check(
        "blocks.changed",
        turn.wrong == 0,
        format_args!("{} wrong in {} rounds", turn.wrong, turn.rounds),
    );
    report::counter("blocks_evicted", evicted);
    report::counter("pages_moved", moved);
    Ok(turn)
}

/// Touches new pages on another node: they are of that node's memory, and every ISA finds them there.
async fn fault_away(pages: u64) -> Result<()> {
    let home = dyad::node();
    migrate(isa().other()).await?;
    let here = dyad::node();
    let mut touched = Pages::new();
    // What it is made of is asked for first: that is no fault.
    touched.reserve(pages)?;
    let count = || dyad::sys::kernel_count(KernelCounter::Messages);
    let mut sent = 0;
    for _ in 0..pages {
        let before = count()?;
        touched.touch()?;
        sent += count()? - before;
    }
    report::check(
        "faults.messages",
        sent == 0,
        format_args!("{sent} messages of node {here} for {pages} pages that were touched first"),
    );
    let there = touched.places(isa())?;
    // By the other table, before anybody has looked through it.
    let elsewhere = (touched.places(isa().other())?.iter().zip(&there))
        .filter(|(other, own)| other != own)
        .count();
    let system = dyad::system()?;
    let foreign = there
        .iter()
        .filter(|&&pa| system.pool_of(pa).is_none_or(|p| p.owner != Some(here)))
        .count();
    dyad::task::migrate_to(home).await?;
    let damaged = touched.damaged(0, 0);
    report::check(
        "faults.away",
        foreign == 0 && damaged == 0 && elsewhere == 0,
        format_args!(
            "{pages} pages on node {here}: {foreign} not of its pool, {elsewhere} not in both tables, {damaged} damaged"
        ),
    );
    Ok(())
}

/// What blocks have cost, by the ISA of the node that did it.
fn costs(nodes: &[NodeId]) -> Result<()> {
    let system = dyad::system()?;
    let mut assigned = 0;
    for &node in nodes {
        assigned += ask(Question::Assigned, node)?;
        let pages = ask(Question::BlockSize, node)? >> 12;
        let isa = system.node(node).map_or(isa(), |n| n.isa);
        for (name, question) in [("online", Question::Online), ("offline", Question::Offline)] {
            match ask(question, node)? {
                0 => {}
                n => report::counter(&format!("block_{name}_{pages}.{isa}"), n),
            }
        }
    }
    report::counter("blocks_assigned", assigned);
    Ok(())
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--fill", "--away", "--faults", "--home"])?;
    if let Some(home) = args.value("--home") {
        return figures::measure(home).await;
    }
    let (fills, fills_away) = (number(&args, "--fill", 48)?, number(&args, "--away", 0)?);
    let nodes: Vec<NodeId> = dyad::system()?.nodes().map(|n| n.id).collect();
    at_start(&nodes)?;
    view::same_everywhere(&nodes).await?;
    match number(&args, "--faults", 0)? {
        0 => {}
        pages => fault_away(pages).await?,
    }
    let (mut first, mut second) = (Pages::new(), Pages::new());
    fill(&mut first, fills << 8)?;
    let turn = match fills_away {
        0 => Turn {
            next: 0,
            rounds: 0,
            wrong: 0,
        },
        n => away(&mut first, &mut second, n << 8).await?,
    };
    for isa in Isa::ALL {
        migrate(isa).await?;
        let damaged = first.damaged(turn.rounds, turn.next) + second.damaged(0, 0);
        report::check(
            &format!("blocks.contents.{isa}"),
            damaged == 0,
            format_args!(
                "{damaged} of {} pages are not what was written",
                first.len() + second.len()
            ),
        );
    }
    costs(&nodes)
}
