//! Uses memory on all nodes, and looks at which node owns how much of it.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--fill` | MiB that are filled on the node where it starts | 48 |
//!
//! What is written is read again at the end, on every ISA.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::blocks::{self, PRESSURE, Question};
use dyad::prelude::*;
use dyad::report;

/// Words of a page.
const WORDS: usize = 512;

fn ask(question: Question, node: NodeId) -> Result<u64> {
    Ok(blocks::ask(question, node)?)
}

/// What the page with that number begins with, and is checked for.
fn mark(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page
}

/// Pages that this has written to.
struct Pages(Vec<u64>);

impl Pages {
    /// Room for so many. None of them has memory yet.
    fn room(pages: u64) -> Pages {
        Pages(Vec::with_capacity(pages as usize * WORDS))
    }

    /// Writes one more, all of it.
    fn touch(&mut self) {
        let page = (self.0.len() / WORDS) as u64;
        let first = mark(page);
        self.0.extend((0..WORDS as u64).map(|w| first ^ w));
    }

    fn len(&self) -> u64 {
        (self.0.len() / WORDS) as u64
    }

    /// How many are not what was written.
    fn damaged(&self) -> usize {
        let pages = self.0.chunks_exact(WORDS).enumerate();
        pages
            .filter(|(page, words)| {
                let first = mark(*page as u64);
                !words
                    .iter()
                    .enumerate()
                    .all(|(w, &v)| v == first ^ w as u64)
            })
            .count()
    }
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

/// Fills memory on this node until it owns what there is to be had or the pages are all written.
fn fill(pages: &mut Pages, wanted: u64) -> Result<()> {
    let here = dyad::node();
    let before = ask(Question::Assigned, here)?;
    let mut highest = 0;
    let mut wrong = None;
    while pages.len() < wanted {
        pages.touch();
        if pages.len().is_multiple_of(64) {
            let owned = ask(Question::Frames, here)?;
            let free = ask(Question::Free, here)?;
            let pressure = pages.len() * 100 / owned;
            highest = highest.max(pressure);
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
    report::counter("blocks_assigned", assigned);
    Ok(())
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--fill"])?;
    let size: u64 = match args.value("--fill") {
        None => 48,
        Some(text) => text
            .parse()
            .map_err(|_| Error::usage(format_args!("--fill takes a number, not {text:?}")))?,
    };
    let nodes: Vec<NodeId> = dyad::system()?.nodes().map(|n| n.id).collect();
    at_start(&nodes)?;
    let mut pages = Pages::room(size << 8);
    fill(&mut pages, size << 8)?;
    for isa in Isa::ALL {
        migrate(isa).await?;
        let damaged = pages.damaged();
        report::check(
            &format!("blocks.contents.{isa}"),
            damaged == 0,
            format_args!(
                "{damaged} of {} pages are not what was written",
                pages.len()
            ),
        );
    }
    Ok(())
}
