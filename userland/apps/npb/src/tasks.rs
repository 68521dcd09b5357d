//! The benchmarks as async tasks: phases run on one node, or hop between two.

use core::fmt::Display;

use dyad::prelude::task::*;
use dyad::report;
use dyad::sides::Sides;
use npb_kernels::class::Class;
use npb_kernels::kernel::Kernel;
use npb_kernels::{cg, ep, ft, is, mg};

use crate::placement::{Itinerary, Placement, Side, Taken};
use crate::{Bench, Options, advance};

pub(crate) async fn main(options: Options) -> Result<()> {
    for &bench in &options.benches {
        let hops = options.place != Placement::Home;
        let sides = Sides::settle(options.home, hops).await?;
        match bench {
            Bench::Is => sort(&sides, &options).await?,
            Bench::Cg => conjugate_gradients(&sides, &options).await?,
            Bench::Mg => multigrid(&sides, &options).await?,
            Bench::Ft => fourier_transform(&sides, &options).await?,
            Bench::Ep => pairs(&sides, &options).await?,
        }
    }
    Ok(())
}

/// What is known of a benchmark before it runs.
struct Title<'a> {
    /// Its two letters.
    name: &'a str,
    /// Size of the problem.
    size: &'a str,
    /// How many iterations it makes.
    iterations: u32,
    /// What it does most.
    operation: &'a str,
}

const FLOATING_POINT: &str = "floating point";

async fn sort(sides: &Sides, options: &Options) -> Result<()> {
    let class = options.class;
    let size = format!("{}", class.keys());
    let title = Title {
        name: "IS",
        size: &size,
        iterations: is::ITERATIONS,
        operation: "keys ranked",
    };
    title.announce(sides, class);
    let mut kernel = options.keys();
    let ran = Ran::of(&mut kernel, sides, options.place).await?;
    let full = match kernel.order() {
        Some(Ok(())) => Ok("keys in order, none lost".to_string()),
        Some(Err(e)) => Err(e.to_string()),
        None => Err("the order was not looked at".to_string()),
    };
    let detail = full.as_ref().unwrap_or_else(|e| e);
    let sorted = report::check("is.full", full.is_ok(), detail);
    ran.conclude(&title, class, &kernel)?;
    match sorted {
        true => Ok(()),
        false => Err(Error::msg("verification failed")),
    }
}

async fn conjugate_gradients(sides: &Sides, options: &Options) -> Result<()> {
    let class = options.class;
    let size = format!("{}", class.rows());
    let title = Title {
        name: "CG",
        size: &size,
        iterations: cg::ITERATIONS,
        operation: FLOATING_POINT,
    };
    title.announce(sides, class);
    let mut kernel = cg::Run::new(class);
    println!(" Numbers in the matrix:  {}", kernel.cg().entries());
    println!();
    let ran = Ran::of(&mut kernel, sides, options.place).await?;
    println!("   iteration           ||r||                 zeta");
    for (i, step) in kernel.steps().iter().enumerate() {
        println!(
            "    {:>5}       {:>20e}{:>20.13}",
            i + 1,
            step.residual,
            step.zeta
        );
    }
    ran.conclude(&title, class, &kernel)
}

async fn multigrid(sides: &Sides, options: &Options) -> Result<()> {
    let class = options.class;
    let n = class.points();
    let size = format!("{n} x {n} x {n}");
    let title = Title {
        name: "MG",
        size: &size,
        iterations: mg::ITERATIONS,
        operation: FLOATING_POINT,
    };
    title.announce(sides, class);
    let mut kernel = mg::Mg::new(class);
    let ran = Ran::of(&mut kernel, sides, options.place).await?;
    if let Some(norm) = kernel.norm() {
        let official = class.residual_norm();
        println!(" L2 norm = {norm:e}, official {official:e}");
    }
    ran.conclude(&title, class, &kernel)
}

async fn fourier_transform(sides: &Sides, options: &Options) -> Result<()> {
    let class = options.class;
    let [nx, ny, nz] = class.cuboid();
    let size = format!("{nx} x {ny} x {nz}");
    let title = Title {
        name: "FT",
        size: &size,
        iterations: ft::ITERATIONS,
        operation: FLOATING_POINT,
    };
    title.announce(sides, class);
    let mut kernel = ft::Ft::new(class);
    let ran = Ran::of(&mut kernel, sides, options.place).await?;
    for (i, sum) in kernel.sums().iter().enumerate() {
        println!(
            " T = {:>3}  Checksum = {:.12} {:+.12}i",
            i + 1,
            sum.re,
            sum.im
        );
    }
    ran.conclude(&title, class, &kernel)
}

async fn pairs(sides: &Sides, options: &Options) -> Result<()> {
    let class = options.class;
    let size = format!("{} batches", class.batches());
    let title = Title {
        name: "EP",
        size: &size,
        iterations: ep::ITERATIONS,
        operation: "random pairs",
    };
    title.announce(sides, class);
    let mut kernel = ep::Run::new(class);
    let ran = Ran::of(&mut kernel, sides, options.place).await?;
    ran.conclude(&title, class, &kernel)
}

impl Title<'_> {
    /// Prints the head of the output. At home.
    fn announce(&self, sides: &Sides, class: Class) {
        println!();
        println!(
            " NAS Parallel Benchmarks, Dyad version - {} Benchmark",
            self.name
        );
        println!();
        println!(" Size:  {}  (class {class})", self.size);
        println!(" Iterations:   {}", self.iterations);
        println!(" {}", sides.describe());
        println!();
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    taken: Taken,
    /// Phases, timed or not.
    phases: u32,
    /// Migrations.
    hops: u32,
}

impl Ran {
    /// Runs a kernel to its end, and comes home.
    async fn of(kernel: &mut impl Kernel, sides: &Sides, place: Placement) -> Result<Ran> {
        let (mut ran, mut way) = (Ran::default(), Itinerary::new(place));
        while let Some(phase) = kernel.next() {
            ran.taken.before(phase)?;
            let (first, side) = way.before(phase);
            for side in first.into_iter().chain([side]) {
                let moved = sides.go_to_side(side == Side::Away).await?;
                ran.hops += u32::from(moved);
            }
            advance(kernel, phase, &mut || ());
            ran.taken.after(phase);
            ran.phases += 1;
        }
        ran.taken.end()?;
        if ran.taken.lacks_replicas() {
            sides.go_to_side(true).await?;
            ran.taken.count_replicas()?;
        }
        ran.hops += u32::from(sides.go_home().await?);
        Ok(ran)
    }

    /// Prints the tail of the output, and reports the verification as a check.
    fn conclude(&self, title: &Title<'_>, class: Class, kernel: &impl Kernel) -> Result<()> {
        let us = self.taken.time.as_micros().max(1);
        let verdict = kernel.verify();
        let line = |name: &str, value: &dyn Display| {
            println!(" {name:<16}= {:>24}", format!("{value}"));
        };
        println!();
        println!(" {} Benchmark Completed", title.name);
        line("Class", &class);
        line("Size", &title.size);
        line("Iterations", &title.iterations);
        let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        line("Time in seconds", &seconds);
        line("Operation type", &title.operation);
        line("Phases", &self.phases);
        line("Migrations", &self.hops);
        let said = match verdict.ok {
            true => "SUCCESSFUL",
            false => "UNSUCCESSFUL",
        };
        line("Verification", &said);
        println!();
        let name = title.name.to_lowercase();
        report::counter(&format!("{name}.hops"), self.hops.into());
        self.taken.report(&name);
        let ok = report::check(&format!("{name}.verification"), verdict.ok, verdict.detail);
        println!(" Checksum of all results = {:016x}", kernel.checksum());
        match ok {
            true => Ok(()),
            false => Err(Error::msg("verification failed")),
        }
    }
}
