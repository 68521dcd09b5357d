//! What benchmarks that are plain threads have in common: on which node each phase runs, and at which
//! migration points inside of phases the thread moves.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--hop` | `on`: each phase runs on the other node than the one before, `off` | `on` |
//! | `--home` | `x86_64`, `aarch64`: where it starts, and runs without hops | where it starts |
//! | `--every` | the thread moves to the other node at every Nth point that it passes; 0: at none | 0 |
//! | `--at` | it moves once, at the Nth point; 0: never | 0 |
//!
//! Points are counted from the beginning to the end, wherever they are passed. What a program prints
//! is the same for all options, so that runs can be compared.
#![no_std]
#![forbid(unsafe_code)]

pub mod figures;
pub mod way;

use core::cell::Cell;

use dyad::prelude::*;
use dyad::{report, thread};

/// The options, for [`Args::expect_options`].
pub const OPTIONS: [&str; 4] = ["--hop", "--home", "--every", "--at"];

/// Where a thread runs, and how it has come there.
#[derive(Debug)]
pub struct Journey {
    home: NodeId,
    away: NodeId,
    hops: bool,
    every: u64,
    at: u64,
    points: Cell<u64>,
    moves: Cell<u64>,
    lost: Cell<u64>,
}

fn number(args: &Args, name: &str) -> Result<u64> {
    args.number(name, 0, 0..=u64::MAX)
}

impl Journey {
    /// What the words of the command line say; goes home.
    ///
    /// # Errors
    ///
    /// Says which word is wrong, and what is possible; if there is no such place.
    pub fn begin(args: &Args) -> Result<Journey> {
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        let hops = args.one_of("--hop", &["on", "off"], "on")? == "on";
        let (every, at) = (number(args, "--every")?, number(args, "--at")?);
        if let Some(isa) = args.value("--home").and(Isa::parse(home)) {
            thread::migrate(isa)
                .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
        }
        let home = node();
        Ok(Journey {
            home,
            // If there is no other node it stays.
            away: system()?.partner(home).unwrap_or(home),
            hops,
            every,
            at,
            points: Cell::new(0),
            moves: Cell::new(0),
            lost: Cell::new(0),
        })
    }

    /// Goes to where the phase runs before which there were so many.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub fn phase(&self, before: u32) -> Result<()> {
        match self.hops && before % 2 == 1 {
            true => self.go(self.away),
            false => self.go(self.home),
        }
    }

    /// Goes home.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub fn end(&self) -> Result<()> {
        self.go(self.home)
    }

    fn go(&self, there: NodeId) -> Result<()> {
        if node() != there {
            thread::migrate_to(there)?;
            self.moves.set(self.moves.get() + 1);
        }
        Ok(())
    }

    /// A migration point, at which the options may say that it is time to move, and others may ask
    /// for it.
    #[inline(always)]
    pub fn point(&self) {
        dyad::migrate_point();
        if self.every | self.at != 0 {
            self.count();
        }
    }

    #[inline(never)]
    fn count(&self) {
        let n = self.points.get() + 1;
        self.points.set(n);
        if n == self.at || (self.every != 0 && n.is_multiple_of(self.every)) {
            let there = if node() == self.home {
                self.away
            } else {
                self.home
            };
            if self.go(there).is_err() {
                self.lost.set(self.lost.get() + 1);
            }
        }
    }

    /// Reports counters of this name: points, if they were counted, and migrations. Whether all of
    /// them were made that should have been; a check says so too.
    pub fn conclude(&self, name: &str) -> bool {
        let (moves, lost) = (self.moves.get(), self.lost.get());
        report::counter(&format!("{name}.points"), self.points.get());
        report::counter(&format!("{name}.moves"), moves);
        let detail = format!("{moves} moves, {lost} that came to nothing");
        report::check(&format!("{name}.moves"), lost == 0, detail)
    }
}
