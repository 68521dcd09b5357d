//! NPB CG, on one ISA.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--class` | `S`, `W`, `A` | `S` |
//! | `--home` | `x86_64`, `aarch64`: where it runs | where it starts |
//!
//! The timed iterations are window [`REGION`] of the simulator.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb::cg::{Cg, Class, ITERATIONS};

/// The window around what is timed.
const REGION: u16 = WindowId::FREE;

struct Options {
    class: Class,
    home: Option<Isa>,
}

impl Options {
    fn read(args: &Args) -> Result<Options> {
        args.expect_options(&["--class", "--home"])?;
        let class = args.one_of("--class", &Class::ALL.map(Class::name), "S")?;
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        Ok(Options {
            class: Class::parse(class).unwrap_or(Class::S),
            home: args.value("--home").and(Isa::parse(home)),
        })
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let Options { class, home } = Options::read(&args)?;
    if let Some(isa) = home {
        migrate(isa)
            .await
            .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
    }
    println!();
    println!(" NAS Parallel Benchmarks, Dyad version - CG Benchmark");
    println!();
    println!(" Size:  {}  (class {class})", class.rows());
    println!(" Iterations:   {ITERATIONS}");
    println!(" On node {} ({})", node(), isa());

    let mut cg = Cg::generate(class);
    println!(" Numbers in the matrix:  {}", cg.entries());
    println!();
    // Warms caches and translations up; leaves nothing behind.
    cg.iterate();
    cg.reset();
    let mut steps = Vec::with_capacity(ITERATIONS as usize);
    let start = Instant::now();
    marker::window::<REGION, _>(|| {
        for _ in 0..ITERATIONS {
            steps.push(cg.iterate());
        }
    });
    let took = start.elapsed();

    println!("   iteration           ||r||                 zeta");
    for (i, step) in steps.iter().enumerate() {
        println!(
            "    {:>5}       {:>20e}{:>20.13}",
            i + 1,
            step.residual,
            step.zeta
        );
    }
    conclude(class, took, cg.verify().is_ok());
    let ok = match cg.verify() {
        Ok(zeta) => report::check("cg.verification", true, format_args!("zeta {zeta}")),
        Err(e) => report::check("cg.verification", false, e),
    };
    match ok {
        true => Ok(()),
        false => Err(Error::msg("verification failed")),
    }
}

fn conclude(class: Class, took: Duration, ok: bool) {
    let us = took.as_micros().max(1);
    let line = |name: &str, value: &dyn core::fmt::Display| {
        println!(" {name:<16}= {:>24}", format!("{value}"));
    };
    println!();
    println!(" CG Benchmark Completed");
    line("Class", &class);
    line("Size", &class.rows());
    line("Iterations", &ITERATIONS);
    let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    line("Time in seconds", &seconds);
    line("Operation type", &"floating point");
    let verdict = if ok { "SUCCESSFUL" } else { "UNSUCCESSFUL" };
    line("Verification", &verdict);
    println!();
}
