//! What it costs to empty a block and to put one to use, for `cargo xtask bench migration`.
//!
//! The first node fills all blocks that there are, to the same extent, and gives every second segment of an
//! eighth of a block back. Then the other node uses what it has, until it is given a block of the first one; meanwhile
//! the program sleeps.
//!
//! A figure is a counter `migration.ISA.OP.WHAT` of the first node's ISA, for blocks of `N` pages:
//!
//! | operation | what |
//! |---|---|
//! | `block_offline_N` | the block is emptied: all pages of the program are looked at, and somewhat less than half of the block's are moved |
//! | `block_online_N` | it is the other node's: all its frames, which have been used, are looked at |
//! | `block_online_fresh_N` | a block that nobody has ever used is the first node's |
//!
//! `n` is 1; `ns` and `instructions` are what init has counted, without pauses; `moved` are pages.

use dyad::blocks::Question;
use dyad::prelude::task::*;
use dyad::report;

use crate::ask;
use crate::pages::Pages;

/// Pages that are touched between two looks at what there is.
const OFTEN: u64 = 64;
/// How long the program sleeps between two looks at a block that is on its way.
const NAP: Duration = Duration::from_millis(1);

/// All of it.
pub async fn measure(home: &str) -> Result<()> {
    let here = dyad::node();
    if isa().name() != home || here.index() != 0 {
        return Err(Error::usage(format_args!(
            "blocks are emptied by the first node; it is of {}, not {home}",
            isa()
        )));
    }
    let home = isa();
    let block = ask(Question::BlockSize, here)? >> 12;
    let mut first = Pages::in_segments(block / 8);
    fill(&mut first, here)?;
    first.halve();
    migrate(home.other()).await?;
    let mut second = Pages::in_segments(block / 8);
    while ask(Question::Evicted, here)? == 0 {
        if ask(Question::Busy, here)? != 0 {
            dyad::task::sleep(NAP).await;
        } else if second.len() < 2 * block {
            second.touch()?;
        } else {
            return Err(Error::msg("no block is taken from the first node"));
        }
    }
    let moved = ask(Question::Moved, here)?;
    let cost = |count, time| -> Result<(u64, u64)> { Ok((ask(count, here)?, ask(time, here)?)) };
    let costs = [
        ("offline", cost(Question::Offline, Question::OfflineTime)?),
        ("online", cost(Question::Again, Question::AgainTime)?),
        (
            "online_fresh",
            cost(Question::Online, Question::OnlineTime)?,
        ),
    ];
    dyad::task::migrate_to(here).await?;
    let damaged = first.damaged(0, 0) + second.damaged(0, 0);
    report::check(
        "blocks.contents",
        damaged == 0,
        format_args!("{damaged} pages are not what was written"),
    );
    for (name, (instructions, ns)) in costs {
        let figure = |what: &str, value| {
            report::counter(
                &format!("migration.{home}.block_{name}_{block}.{what}"),
                value,
            );
        };
        if ns == 0 {
            return Err(Error::msg(format_args!(
                "{name} has taken no time on node {here}"
            )));
        }
        figure("n", 1);
        figure("ns", ns);
        if instructions != 0 {
            figure("instructions", instructions);
        }
        if name == "offline" {
            figure("moved", moved);
        }
    }
    Ok(())
}

/// Uses nearly all that the node can get.
fn fill(pages: &mut Pages, here: NodeId) -> Result<()> {
    // Pages do not get that: it is for tables.
    let kept = ask(Question::AtStart, here)? / 4;
    loop {
        pages.touch()?;
        if !pages.len().is_multiple_of(OFTEN) {
            continue;
        }
        let owned = ask(Question::Frames, here)?;
        let spare = owned / 64;
        if ask(Question::Free, here)? == 0 && pages.len() + kept + spare >= owned {
            return Ok(());
        }
    }
}
