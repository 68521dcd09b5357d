//! Is moved while it computes, by request to init: stopped at whatever instruction it has come to,
//! interpreted on the other ISA up to the end of its poll, and native from there on. With
//! `cargo xtask run --app emulate-tasks -- --trips 4`.
//!
//! | check | what |
//! |---|---|
//! | `emulate-tasks.moved` | each trip ends on the node that was asked for, natively, after some instructions were interpreted there |
//! | `emulate-tasks.result` | what was computed, partly natively, partly interpreted on the other ISA, is what another computation of the same length gives natively |
//! | `emulate-tasks.refused` | a call that only its own node can make brings it back, native, to that call; the result is the same |
//!
//! The computation does what programs do: integers, 128-bit products, floating point, atomic additions, a
//! table on the heap, recursion, text. How far it comes natively is a matter of chance, as is the
//! instruction at which it is stopped.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use dyad::emulation::{self, refused, status};
use dyad::prelude::task::*;
use dyad::{report, sys};

/// Turns of the loop in a block.
const TURNS: u64 = 200;
/// Blocks that are interpreted at least.
const BLOCKS: u64 = 6;
/// How long it may take until it has been stopped.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is computed.
struct Work {
    blocks: u64,
    integer: u64,
    wide: u128,
    float: f64,
    table: Vec<u64>,
    count: AtomicU64,
}

impl Work {
    fn new(seed: u64) -> Work {
        Work {
            blocks: 0,
            integer: seed,
            wide: u128::from(seed) << 17 | 1,
            float: 1.0,
            table: (0..64).collect(),
            count: AtomicU64::new(0),
        }
    }

    #[inline(never)]
    fn block(&mut self) {
        for turn in 0..TURNS {
            self.integer = (self.integer)
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(turn);
            self.wide = self.wide.wrapping_mul(u128::from(self.integer) | 1);
            self.float = (self.float * 1.000_1 + self.integer as f64 / 1e19) % 1000.0;
            let at = (self.integer >> 58) as usize;
            self.table[at] ^= self.integer.rotate_left(turn as u32) ^ (self.wide >> 64) as u64;
            self.count.fetch_add(self.table[at] & 7, Ordering::Relaxed);
        }
        self.table.sort_unstable_by_key(|v| v.reverse_bits());
        self.integer ^= depth(self.integer % 20, &self.table);
        self.blocks += 1;
    }

    fn result(&self) -> (u64, u128, u64, u64) {
        let table = (self.table.iter()).fold(0u64, |h, v| h.rotate_left(5) ^ v);
        let count = self.count.load(Ordering::Relaxed);
        (self.integer ^ table, self.wide, self.float.to_bits(), count)
    }
}

#[inline(never)]
fn depth(n: u64, table: &[u64]) -> u64 {
    match n {
        0 => table[0],
        n => depth(n - 1, table).wrapping_mul(31) ^ table[n as usize % table.len()],
    }
}

fn is_emulated() -> bool {
    emulation::progress().is_some_and(|p| p.status == status::EMULATED)
}

/// Asks to be moved and computes until that has begun, and some blocks more.
fn compute(to: NodeId, work: &mut Work) -> Result<()> {
    emulation::request(to, Instant::now() + Duration::from_micros(300))?;
    let asked = Instant::now();
    while !is_emulated() {
        work.block();
        let p = emulation::progress();
        // It has been left alone if the node has died, for example.
        let is_over = p.is_none_or(|p| matches!(p.status, status::BACK | status::IDLE));
        if is_over || asked.elapsed() > PATIENCE {
            return Err(dyad::Error::msg(format!("{p:?} within {PATIENCE:?}")));
        }
    }
    for _ in 0..BLOCKS {
        work.block();
    }
    Ok(())
}

/// The work of the task, done natively, to compare results with.
fn again(seed: u64, blocks: u64) -> Work {
    let mut work = Work::new(seed);
    while work.blocks < blocks {
        work.block();
    }
    work
}

fn other_node() -> Result<NodeId> {
    let node = dyad::system()?.nearest(dyad::isa().other(), dyad::node());
    Ok(node.ok_or(sys::Error::NoIsa)?)
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--trips"])?;
    let trips: u64 = match args.value("--trips").map(str::parse) {
        None => 4,
        Some(Ok(trips)) => trips,
        Some(Err(_)) => return Err(dyad::Error::usage("--trips takes a number")),
    };
    emulation::enable()?;
    let (mut moved, mut right, mut steps, mut calls) = (0, 0, 0, 0);
    for trip in 0..trips {
        let (from, to) = (dyad::isa(), other_node()?);
        let mut work = Work::new(trip + 1);
        compute(to, &mut work)?;
        println!("trip {trip}: {} blocks, from {from}", work.blocks);
        // The poll ends, and with it what is interpreted.
        dyad::task::yield_now().await;
        let p = emulation::progress().ok_or(sys::Error::NotReady)?;
        let landed = p.status == status::LANDED && p.landings == trip + 1 && p.calls > 0;
        let there = dyad::node() == to && dyad::isa() == from.other();
        let really = sys::where_am_i()?.node == to;
        println!("trip {trip}: {from} to {}: {p:?}", dyad::isa());
        moved += u64::from(landed && there && really && p.steps > BLOCKS * TURNS);
        right += u64::from(again(trip + 1, work.blocks).result() == work.result());
        steps += p.steps;
        calls += p.calls;
    }
    report::check(
        "emulate-tasks.moved",
        moved == trips,
        format!("{moved} of {trips}"),
    );
    report::check(
        "emulate-tasks.result",
        right == trips,
        format!("{right} of {trips}"),
    );
    report::counter("emulate-tasks.steps", steps);
    report::counter("emulate-tasks.calls", calls);

    // Both directions: where the trips end, and from the other ISA.
    let mut came_back = 0;
    for round in 0..2 {
        let (here, isa, to) = (dyad::node(), dyad::isa(), other_node()?);
        let mut work = Work::new(100 + round);
        compute(to, &mut work)?;
        // A thread that is not where its call is to be made makes it where it is.
        let node = sys::migrate(here)?;
        let p = emulation::progress().ok_or(sys::Error::NotReady)?;
        let native = sys::where_am_i()?.node == here && node == here && dyad::isa() == isa;
        work.block();
        let same = again(100 + round, work.blocks).result() == work.result();
        println!("refused on {isa}: {p:?}");
        let refused = p.status == status::BACK && p.outcome == refused::CALL && p.steps > 0;
        came_back += u64::from(native && same && refused);
        if round == 0 {
            dyad::task::migrate_to(to).await?;
        }
    }
    report::check(
        "emulate-tasks.refused",
        came_back == 2,
        format!("{came_back} of 2"),
    );
    Ok(())
}
