//! The benchmarks as plain threads: on which node each phase runs, and at which migration points inside of
//! phases the thread moves.
//!
//! Points are counted from the beginning to the end of a benchmark, wherever they are passed. What is printed is
//! the same for all options, so that runs can be compared.

use core::cell::Cell;

use dyad::prelude::thread::*;
use dyad::{report, thread};
use npb_kernels::class::Class;
use npb_kernels::kernel::Kernel;
use npb_kernels::{cg, ep, ft, mg};

use crate::placement::{Itinerary, Placement, Side, Taken};
use crate::{Bench, Options, advance, parallel};

pub(crate) fn main(options: &Options) -> Result<()> {
    if options.threads > 1 {
        return parallel::main(options);
    }
    for &bench in &options.benches {
        let route = Route::begin(options)?;
        let class = options.class;
        match bench {
            Bench::Is => run(bench, class, &mut options.keys(), &route)?,
            Bench::Cg => run(bench, class, &mut cg::Run::new(class), &route)?,
            Bench::Mg => run(bench, class, &mut mg::Mg::new(class), &route)?,
            Bench::Ft => run(bench, class, &mut ft::Ft::new(class), &route)?,
            Bench::Ep => run(bench, class, &mut ep::Run::new(class), &route)?,
        }
    }
    Ok(())
}

fn run(bench: Bench, class: Class, kernel: &mut impl Kernel, route: &Route) -> Result<()> {
    let name = bench.name();
    let (mut phases, mut way, mut taken) = (0, Itinerary::new(route.place), Taken::default());
    while let Some(phase) = kernel.next() {
        taken.before(phase)?;
        let (first, side) = way.before(phase);
        for side in first.into_iter().chain([side]) {
            route.go_to(side)?;
        }
        advance(kernel, phase, &mut || route.point());
        taken.after(phase);
        phases += 1;
    }
    taken.end()?;
    if taken.lacks_replicas() {
        route.go(route.away)?;
        taken.count_replicas()?;
    }
    route.end()?;
    let verdict = kernel.verify();
    println!("NPB {name} class {class}: {phases} phases");
    println!("{}", verdict.detail);
    let moved = route.conclude(name);
    taken.report(name);
    let ok = report::check(&format!("{name}.verification"), verdict.ok, &verdict.detail);
    println!("Checksum of all results = {:016x}", kernel.checksum());
    match ok && moved {
        true => Ok(()),
        false => Err(Error::msg("verification failed")),
    }
}

/// Where a thread runs, and how it has come there.
#[derive(Debug)]
struct Route {
    home: NodeId,
    away: NodeId,
    place: Placement,
    every: u64,
    at: u64,
    points: Cell<u64>,
    moves: Cell<u64>,
    failed: Cell<u64>,
}

impl Route {
    /// Goes home.
    fn begin(options: &Options) -> Result<Route> {
        if let Some(isa) = options.home {
            thread::migrate(isa)
                .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
        }
        let home = node();
        Ok(Route {
            home,
            // If there is no other node it stays.
            away: system()?.partner(home).unwrap_or(home),
            place: options.place,
            every: options.every,
            at: options.at,
            points: Cell::new(0),
            moves: Cell::new(0),
            failed: Cell::new(0),
        })
    }

    /// Goes to the node of a phase.
    fn go_to(&self, side: Side) -> Result<()> {
        match side {
            Side::Home => self.go(self.home),
            Side::Away => self.go(self.away),
        }
    }

    /// Goes home.
    fn end(&self) -> Result<()> {
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
    fn point(&self) {
        dyad::thread::migrate_point();
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
                self.failed.set(self.failed.get() + 1);
            }
        }
    }

    /// Reports counters of this name: points, if they were counted, and migrations. Whether all of
    /// them were made that should have been; a check says so too.
    fn conclude(&self, name: &str) -> bool {
        let (moves, failed) = (self.moves.get(), self.failed.get());
        report::counter(&format!("{name}.points"), self.points.get());
        report::counter(&format!("{name}.moves"), moves);
        let detail = format!("{moves} moves, {failed} that failed");
        report::check(&format!("{name}.moves"), failed == 0, detail)
    }
}
