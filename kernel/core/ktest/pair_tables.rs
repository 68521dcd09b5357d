//! Page-table races: all nodes fault, unmap and take tables out at the same places at once, so that they
//! change neighbouring entries of one table, and make and give back the same missing tables of every level.

use dyad_abi::cap::RegionKind;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::rig::{Rig, behind, quarter};
use super::{Outcome, Stop, TestCtx, ensure, fail, ktest, remark, spaces};
use crate::syscall::ops::reclaim::reclaim;

/// Where the first pages are: all tables below the root are missing there. Rounds of a batch are at places
/// of their own, since none can be used again before all nodes have been quiet.
const BASE: u64 = 1 << 39;
const APART: u64 = 1 << 40;
/// The first page; its neighbour in the leaf table; in the next leaf table; below the next table of level
/// 2; and of level 3.
const PLACES: [u64; 5] = [0, PAGE_SIZE, 1 << 21, 1 << 30, 1 << 39];
/// Rounds, and after how many frames are counted and become quiet.
const ROUNDS: u64 = 320;
const BATCH: u64 = 8;
/// How long others may be in the way.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Tries again while another node is in the way.
fn patiently(cx: &TestCtx<'_>, mut f: impl FnMut() -> dyad_abi::Result<()>) -> Result<(), Stop> {
    let mut done = Err(Error::Again);
    cx.wait_for(PATIENCE_NS, || {
        done = f();
        done != Err(Error::Again)
    });
    Ok(done?)
}

struct Race<'a> {
    cx: &'a TestCtx<'a>,
    rig: &'a Rig<'a>,
    space: WeakRef,
    me: u64,
}

impl Race<'_> {
    /// Writes this node's word of a page.
    fn put(&self, place: u64, value: u64) -> dyad_abi::Result<()> {
        let bytes = value.to_le_bytes();
        self.cx
            .machine
            .copy_out(self.space, place + self.me * 8, &bytes)
    }

    fn take(&self, place: u64) -> Result<(), Stop> {
        let this = spaces::within(&self.rig.k, self.space)?;
        patiently(self.cx, || reclaim(&this, place, 1).map(drop))
    }

    /// All tables have the page at one place, with all nodes' words.
    fn is_whole(&self, place: u64, value: u64) -> Result<(), Stop> {
        let at = |isa| spaces::look(&self.rig.k, self.space, isa, place).map(|(_, l)| l.pa);
        let own = at(self.cx.machine.isa());
        for isa in self.cx.node.isas() {
            let there = at(isa);
            ensure!(
                there.is_some() && there == own,
                "{place:#x} is at {own:?}, and {there:?} for {isa}"
            );
        }
        for n in self.cx.node.all() {
            let mut word = [0; 8];
            let va = place + n.index() as u64 * 8;
            self.cx.machine.copy_in(self.space, va, &mut word)?;
            let word = u64::from_le_bytes(word);
            ensure!(word == value, "{place:#x}: {word} of node {n}, not {value}");
        }
        Ok(())
    }

    /// Frames of the supplies that are in use.
    fn used(&self) -> Result<u64, Stop> {
        let mut used = 0;
        for n in self.cx.node.all() {
            let (first, frames) = quarter(self.cx, n, 1);
            for at in 0..frames.min(1024) {
                let (word, _) = self.rig.k.frames().read(behind(first, at)?)?;
                used += u64::from(word.ty.in_use().is_some());
            }
        }
        Ok(used)
    }

    /// A round, in which nodes are at different places or at the same one.
    fn round(&self, round: u64) -> Result<(), Stop> {
        let count = PLACES.len() as u64;
        let from = if round.is_multiple_of(3) { 0 } else { self.me };
        let base = BASE + round % BATCH * APART;
        let places = || (0..count).map(|n| base + PLACES[((n + from) % count) as usize]);
        for place in places() {
            patiently(self.cx, || self.put(place, round))?;
        }
        self.cx.meet()?;
        for place in places() {
            self.is_whole(place, round)?;
        }
        self.cx.meet()?;
        // Some take pages away while others put them there again, or all take them.
        let puts = round % 2 == 1 && self.me != round / 2 % 2;
        for place in places() {
            match puts {
                // It need not succeed: where a page has just gone there is none before all are quiet.
                true => {
                    let _ = self.put(place, round);
                }
                false => self.take(place)?,
            }
        }
        self.cx.meet()?;
        for place in places() {
            self.take(place)?;
        }
        self.cx.meet()?;
        for isa in Isa::ALL {
            for place in places() {
                let left = spaces::look(&self.rig.k, self.space, isa, place);
                ensure!(left.is_none(), "{place:#x} stays mapped for {isa}");
            }
        }
        Ok(())
    }
}

#[ktest(pair)]
fn page_table_race_of_all_nodes_at_all_levels(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let me = cx.node.id().index();
    if me == 0 {
        let space = spaces::create(rig)?;
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(&rig.k, space, BASE, BATCH * APART, kind)?;
        spaces::shared_word(cx, 8, Some(space));
    }
    cx.meet()?;
    let Some(space) = spaces::shared_word(cx, 8, None) else {
        return fail(format_args!("there is no space"));
    };
    let race = Race {
        cx,
        rig,
        space,
        me: me as u64,
    };
    // What an earlier test has given up may come back until all have been quiet, and after that.
    cx.quiesce()?;
    let mut least = race.used()?;
    for round in 0..ROUNDS {
        race.round(round)?;
        if (round + 1) % BATCH != 0 {
            continue;
        }
        cx.meet()?;
        if me == 0 {
            // The node that took the last pages away may have left a table to the other node, and the reverse.
            for base in (0..BATCH).map(|n| BASE + n * APART) {
                for place in PLACES {
                    race.take(base + place)?;
                }
            }
            let now = race.used()?;
            ensure!(
                now <= least,
                "{now} frames in use after round {round}, {least} before"
            );
            least = now;
        }
        // So that they can be used again.
        cx.quiesce()?;
    }
    remark!("{ROUNDS} rounds, all frames back after each {BATCH}")
}
