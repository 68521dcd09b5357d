//! What the first touch of a page costs that the other side has: a program over several kernels faults and gets the page by
//! message, and one over a fused kernel reads memory of the other node.
//!
//! | kind | before | measured, on the remote side |
//! |---|---|---|
//! | `read` | the origin has written the pages | a word of each is read |
//! | `upgrade` | as `read`, and then that | the word is written |
//! | `write` | the origin has written the pages | a word of each is written |
//! | `return` | as `write`, and then the origin has written them again | a word of each is read |
//! | `zero` | the pages are untouched | a word of each is written |
//!
//! Counters are `faults.KIND.n`, `faults.KIND.ns`, and `faults.KIND.again-ns`: the same accesses once more, when all pages are
//! there.

use dyad::prelude::thread::*;
use dyad::report;

use super::{Moved, Nodes};
use workloads::micro::pages::{PAGE, Side};

/// A kind of touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    Read,
    Upgrade,
    Write,
    Return,
    Zero,
}

impl Touch {
    const ALL: [Touch; 5] = [
        Touch::Read,
        Touch::Upgrade,
        Touch::Write,
        Touch::Return,
        Touch::Zero,
    ];
    /// The names of all.
    pub const NAMES: &'static str = "read,upgrade,write,return,zero";

    const fn name(self) -> &'static str {
        match self {
            Touch::Read => "read",
            Touch::Upgrade => "upgrade",
            Touch::Write => "write",
            Touch::Return => "return",
            Touch::Zero => "zero",
        }
    }

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Touch> {
        Touch::ALL.into_iter().find(|t| t.name() == name)
    }
}

const PAGE_WORDS: usize = PAGE / 8;

/// Writes the first word of each page behind the first one.
#[inline(never)]
fn write(pages: &mut Vec<u64>, count: usize, value: u64) {
    let spare = pages.spare_capacity_mut();
    for (n, page) in (1..=count as u64).zip(spare.chunks_mut(PAGE_WORDS)) {
        page[0].write(value * n);
    }
}

/// Writes all words of all pages, so that they can be read.
#[inline(never)]
fn fill(pages: &mut Vec<u64>, count: usize) {
    for n in 1..=count as u64 {
        pages.extend([n; PAGE_WORDS]);
    }
}

#[inline(never)]
fn read(pages: &[u64]) -> u64 {
    let heads = pages.chunks(PAGE_WORDS).filter_map(|page| page.first());
    heads.sum()
}

/// Writes the first word of each page.
#[inline(never)]
fn add(pages: &mut [u64]) {
    for page in pages.chunks_mut(PAGE_WORDS) {
        page[0] += 1;
    }
}

/// Writes the first word of each page without reading it.
#[inline(never)]
fn overwrite(pages: &mut [u64]) {
    for (n, page) in (2..).zip(pages.chunks_mut(PAGE_WORDS)) {
        page[0] = n;
    }
}

/// How long it took to touch so many pages, and once more; and whether they were what they are to be. The pages stay: the
/// next ones are others.
fn measure(
    touch: Touch,
    count: usize,
    nodes: Nodes,
    kept: &mut Vec<Vec<u64>>,
) -> Moved<([Duration; 2], bool)> {
    nodes.go(Side::Origin)?;
    let mut pages: Vec<u64> = Vec::with_capacity(count * PAGE_WORDS);
    let sum = (1..=count as u64).sum::<u64>();
    let mut found = sum;
    if touch != Touch::Zero {
        fill(&mut pages, count);
    }
    nodes.go(Side::Remote)?;
    if touch == Touch::Return {
        overwrite(&mut pages);
        nodes.go(Side::Origin)?;
        overwrite(&mut pages);
        nodes.go(Side::Remote)?;
    }
    if touch == Touch::Upgrade {
        found = read(&pages);
    }
    let mut took = [Duration::ZERO; 2];
    for took in &mut took {
        let start = Instant::now();
        match touch {
            Touch::Read | Touch::Return => found = read(&pages),
            Touch::Upgrade => add(&mut pages),
            Touch::Write => overwrite(&mut pages),
            Touch::Zero => write(&mut pages, count, 1),
        }
        *took = start.elapsed();
    }
    let added = match touch {
        Touch::Upgrade => 2,
        _ => 1,
    };
    let expected = match touch {
        Touch::Return => sum + count as u64,
        _ => sum,
    };
    let good = found == expected
        && match touch {
            Touch::Read | Touch::Return | Touch::Zero => true,
            Touch::Upgrade | Touch::Write => read(&pages) == sum + added * count as u64,
        };
    nodes.go(Side::Origin)?;
    kept.push(pages);
    Ok((took, good))
}

/// Measures and tells.
#[inline(never)]
pub fn tell(touch: Touch, count: usize, nodes: Nodes, kept: &mut Vec<Vec<u64>>) -> Result<bool> {
    let (took, good) = measure(touch, count, nodes, kept)?;
    let [ns, again] = took.map(|t| t.as_nanos() as u64);
    println!("{:<10} {:>12}", touch.name(), ns / count as u64);
    report::counter(&format!("faults.{}.n", touch.name()), count as u64);
    report::counter(&format!("faults.{}.ns", touch.name()), ns);
    report::counter(&format!("faults.{}.again-ns", touch.name()), again);
    Ok(report::check(&format!("faults.{}", touch.name()), good, ""))
}
