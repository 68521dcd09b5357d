//! What it costs a process to go to the other side, by the size of its heap.
//!
//! | way | pages of the heap |
//! |---|---|
//! | `ahead` | go before the thread ([`migrate_with_pages`](dyad::thread::migrate_with_pages)) |
//! | `demand` | stay, and go one by one when the thread touches them |
//!
//! All pages of the heap are written at home. Then the thread goes to the other side, and writes a word of each page. Counters
//! `process.STEP-ns` are the steps of the move, which add up to `process.move-ns` in simulated time; `process.touch-ns` is the time of the touches, and
//! `process.faults` counts those that needed the other side. Then it goes back in the same way.
//!
//! A ping-pong is the same without a heap, many times: `pingpong.STEP-ns` are sums over all moves.

use dyad::prelude::thread::*;
use dyad::system::{Footprint, Steps, Traffic};
use dyad::{report, thread};
use workloads::micro::pages::{PAGE, Side};

use super::{Moved, Nodes};

const PAGE_WORDS: usize = PAGE / 8;

/// What becomes of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    Ahead,
    Demand,
}

impl Paging {
    /// The one of that name.
    pub fn parse(name: &str) -> Option<Paging> {
        match name {
            "ahead" => Some(Paging::Ahead),
            "demand" => Some(Paging::Demand),
            _ => None,
        }
    }
}

/// How long the steps of moves took together, in nanoseconds. Over a fused kernel there is one step.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    /// Until frames are laid out and the peer has been asked.
    prepare: u64,
    /// Until the pages have been named.
    list: u64,
    /// Until they are there.
    pages: u64,
    /// Until registers and control block are sent.
    send: u64,
    /// Until they have come.
    travel: u64,
    /// Until the thread runs.
    resume: u64,
    /// By the program's clock.
    whole: u64,
}

impl Parts {
    /// Adds a move that began and ended at these times. The clocks of two nodes agree exactly only if they are simulated: else a
    /// step can seem to end before it begins, and counts as 0.
    #[inline(never)]
    fn add(&mut self, start: Instant, end: Instant, steps: Steps) {
        let (start, end) = (start.as_nanos(), end.as_nanos());
        self.whole += end - start;
        if steps == Steps::default() {
            return;
        }
        let times = [
            start,
            steps.asked,
            steps.listed,
            steps.pages,
            steps.sent,
            steps.came,
            end,
        ];
        let parts = [
            &mut self.prepare,
            &mut self.list,
            &mut self.pages,
            &mut self.send,
            &mut self.travel,
            &mut self.resume,
        ];
        for (part, pair) in parts.into_iter().zip(times.windows(2)) {
            *part += pair[1].saturating_sub(pair[0]);
        }
    }

    #[inline(never)]
    fn tell(&self, what: &str) {
        for (name, ns) in [
            ("prepare", self.prepare),
            ("list", self.list),
            ("pages", self.pages),
            ("send", self.send),
            ("travel", self.travel),
            ("resume", self.resume),
            ("move", self.whole),
        ] {
            println!("{name:<10} {ns:>12}");
            report::counter(&format!("{what}.{name}-ns"), ns);
        }
    }
}

/// Writes all words of so many pages.
#[inline(never)]
fn dirty(pages: usize) -> Vec<u64> {
    let mut heap = Vec::with_capacity(pages * PAGE_WORDS);
    for n in 0..pages as u64 {
        heap.extend([n; PAGE_WORDS]);
    }
    heap
}

/// Writes a word of each page without reading it: a page that is not there costs one fault, not two.
#[inline(never)]
fn touch(heap: &mut [u64]) {
    for (n, page) in (1..).zip(heap.chunks_mut(PAGE_WORDS)) {
        page[PAGE_WORDS / 2] = n;
    }
}

/// Whether the pages are as [`dirty`] and [`touch`] leave them.
#[inline(never)]
fn is_intact(heap: &[u64]) -> bool {
    let pages = (0..).zip(heap.chunks(PAGE_WORDS));
    let mut words = pages.flat_map(|(n, page)| {
        let words = (0..).zip(page);
        words.map(move |(i, &word)| word == n + u64::from(i == PAGE_WORDS / 2))
    });
    words.all(|good| good)
}

/// What a process has cost that went to the other side.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    parts: Parts,
    touch: Duration,
    faults: u64,
    /// Of reading all of it, back at home.
    faults_back: u64,
    /// On the other side, once the thread has come.
    there: Footprint,
    /// At home, once it is back: what the process without a thread has kept.
    left: Footprint,
    intact: bool,
}

fn measure(way: Paging, pages: usize, nodes: Nodes) -> Moved<Cost> {
    let mut cost = Cost::default();
    nodes.go(Side::Origin)?;
    let mut heap = dirty(pages);
    let start = Instant::now();
    match way {
        Paging::Ahead => thread::migrate_with_pages(nodes.remote)?,
        Paging::Demand => thread::migrate_to(nodes.remote)?,
    }
    let end = Instant::now();
    cost.parts.add(start, end, Steps::last()?);
    cost.there = Footprint::here()?;
    let before = Traffic::here()?.faults;
    let start = Instant::now();
    touch(&mut heap);
    cost.touch = start.elapsed();
    cost.faults = Traffic::here()?.faults - before;
    cost.intact = is_intact(&heap);
    match way {
        Paging::Ahead => thread::migrate_with_pages(nodes.origin)?,
        Paging::Demand => nodes.go(Side::Origin)?,
    }
    cost.left = Footprint::here()?;
    let before = Traffic::here()?.faults;
    cost.intact &= is_intact(&heap);
    cost.faults_back = Traffic::here()?.faults - before;
    Ok(cost)
}

/// Measures a move with so many MiB, and tells.
#[inline(never)]
pub fn tell(way: Paging, mib: usize, nodes: Nodes) -> Result<bool> {
    let pages = mib * (1 << 20) / PAGE;
    let cost = measure(way, pages, nodes)?;
    cost.parts.tell("process");
    let touch = cost.touch.as_nanos() as u64;
    for (name, count) in [
        ("touch-ns", touch),
        ("heap-pages", pages as u64),
        ("faults", cost.faults),
        ("faults-back", cost.faults_back),
        ("frames-there", cost.there.frames),
        ("tables-there", cost.there.tables),
        ("frames-left", cost.left.frames),
        ("tables-left", cost.left.tables),
    ] {
        println!("{name:<12} {count:>10}");
        report::counter(&format!("process.{name}"), count);
    }
    Ok(report::check("process.intact", cost.intact, ""))
}

fn there_and_back(times: usize, nodes: Nodes) -> Moved<Parts> {
    let mut parts = Parts::default();
    nodes.go(Side::Origin)?;
    for n in 0..=times {
        for to in [nodes.remote, nodes.origin] {
            let start = Instant::now();
            thread::migrate_to(to)?;
            let end = Instant::now();
            parts.add(start, end, Steps::last()?);
        }
        if n == 0 {
            // The first time, pages and caches are cold.
            parts = Parts::default();
        }
    }
    Ok(parts)
}

/// Measures moves there and back, and tells.
#[inline(never)]
pub fn tell_ping_pong(times: usize, nodes: Nodes) -> Result<()> {
    let parts = there_and_back(times, nodes)?;
    parts.tell("pingpong");
    report::counter("pingpong.moves", 2 * times as u64);
    Ok(())
}
