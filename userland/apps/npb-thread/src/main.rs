//! NPB IS, CG, MG and FT as plain threads, which change their ISA between phases, at migration points
//! inside of them, or not at all.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--bench` | `is`, `cg`, `mg`, `ft`, `all`: one after the other | `is` |
//! | `--class` | `S`, `W`, `A` | `S` |
//!
//! and those of [`journey`]. The kernels are those of the programs `npb-is` to `npb-ft`, so is the
//! window around each timed phase. Nothing is printed that is not the same for all other options; the
//! last line of each kernel has a checksum of all results.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use journey::Journey;
use npb::class::Class;
use npb::kernel::{Kernel, Phase};
use npb::{cg, ft, is, mg};

/// The window around what is timed.
const REGION: u16 = WindowId::FREE;

/// A phase, in a window if it is timed. Nothing else is in the window.
#[inline(never)]
fn advance(kernel: &mut impl Kernel, phase: Phase, journey: &Journey) {
    let mut point = || journey.point();
    match phase.timed {
        true => marker::window::<REGION, _>(|| kernel.advance(&mut point)),
        false => kernel.advance(&mut point),
    }
}

fn run(name: &str, class: Class, kernel: &mut impl Kernel, journey: &Journey) -> Result<()> {
    let mut phases = 0;
    while let Some(phase) = kernel.next() {
        journey.phase(phases)?;
        advance(kernel, phase, journey);
        phases += 1;
    }
    journey.end()?;
    let verdict = kernel.verify();
    println!("NPB {name} class {class}: {phases} phases");
    println!("{}", verdict.detail);
    let moved = journey.conclude(name);
    let ok = report::check(&format!("{name}.verification"), verdict.ok, &verdict.detail);
    println!("Checksum of all results = {:016x}", kernel.checksum());
    match ok && moved {
        true => Ok(()),
        false => Err(Error::msg("verification failed")),
    }
}

/// The kernels.
const KERNELS: [&str; 4] = ["is", "cg", "mg", "ft"];

#[dyad::main]
fn main(args: Args) -> Result<()> {
    let [hop, home, every, at] = journey::OPTIONS;
    args.expect_options(&["--bench", "--class", hop, home, every, at])?;
    let bench = args.one_of("--bench", &["is", "cg", "mg", "ft", "all"], "is")?;
    let class = args.one_of("--class", &Class::ALL.map(Class::name), "S")?;
    let class = Class::parse(class).unwrap_or(Class::S);
    for name in KERNELS {
        if bench != name && bench != "all" {
            continue;
        }
        let journey = Journey::begin(&args)?;
        match name {
            "cg" => run(name, class, &mut cg::Run::new(class), &journey)?,
            "mg" => run(name, class, &mut mg::Mg::new(class), &journey)?,
            "ft" => run(name, class, &mut ft::Ft::new(class), &journey)?,
            _ => run(name, class, &mut is::Run::new(class), &journey)?,
        }
    }
    Ok(())
}
