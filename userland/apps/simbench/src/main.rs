//! Repeats one of the [`workloads`] in a marked region.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--load` | `none`, `matmul`, `sort`, `chase`, `conflict`, `random`, `stream`, `is`, `cg` | `matmul` |
//! | `--size` | order (`matmul`), words (`sort`), bytes (`chase`, `random`, `stream`), lines (`conflict`); `K` and `M` may follow | by load |
//! | `--stride` | bytes between the lines of `conflict` | `4K` |
//! | `--class` | `S`, `W`: of `is` and `cg` | `S` |
//! | `--warm` | passes before the region | 1 |
//! | `--repeat` | passes in the region | 1 |
//! | `--home` | `x86_64`, `aarch64`: where it runs | where it starts |
//!
//! The region is window [`REGION`] of the simulator. For simulators that know no windows, lines
//! [`BEGIN`] and [`END`] are printed before and after, with a pause in which nothing is done between
//! each and the region.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb::{cg, is};
use workloads::Load;
use workloads::bench::{Cg, Is};
use workloads::matmul::{self, Matmul};
use workloads::random::{self, Random};
use workloads::ring::{self, Ring};
use workloads::sort::{self, Sort};
use workloads::stream::{self, Stream};

/// The window around the measured passes.
const REGION: u16 = WindowId::FREE;
/// Says that the measured passes are about to begin.
const BEGIN: &str = "region begins";
/// Says that they are over.
const END: &str = "region has ended";
/// How long nothing is done then, so that who reads the lines has time to look at the machine.
const PAUSE: Duration = Duration::from_millis(60);

const LOADS: [&str; 9] = [
    "none", "matmul", "sort", "chase", "conflict", "random", "stream", "is", "cg",
];
const OPTIONS: [&str; 7] = [
    "--load", "--size", "--stride", "--class", "--warm", "--repeat", "--home",
];

/// Nothing: what remains is what running a program costs.
struct Nothing;

impl Load for Nothing {
    fn pass(&mut self) {}

    fn steps(&self) -> u64 {
        0
    }

    fn check(&self) -> bool {
        true
    }
}

/// The number in an option, with `K` or `M` for binary thousands and millions.
fn number(args: &Args, name: &str, default: usize) -> Result<usize> {
    let Some(text) = args.value(name) else {
        return Ok(default);
    };
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let n: Option<usize> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| *n <= 1 << 32)
        .ok_or_else(|| Error::usage(format_args!("{name} cannot be {text:?}; write 4096 or 4K")))
}

/// A size in a range.
fn size(args: &Args, default: usize, range: core::ops::RangeInclusive<usize>) -> Result<usize> {
    let n = number(args, "--size", default)?;
    match range.contains(&n) {
        true => Ok(n),
        false => Err(Error::usage(format_args!(
            "--size cannot be {n} for this load; possible: {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

/// The load that the options name, and its size.
fn load(args: &Args) -> Result<(&str, usize, Box<dyn Load>)> {
    const MAX: usize = 1 << 28;
    let name = args.one_of("--load", &LOADS, "matmul")?;
    let class = args.one_of("--class", &["S", "W"], "S")?;
    let (size, load): (usize, Box<dyn Load>) = match name {
        "none" => (0, Box::new(Nothing)),
        "matmul" => {
            let n = size(args, matmul::DEFAULT, 1..=2048)?;
            (n, Box::new(Matmul::new(n)))
        }
        "sort" => {
            let n = size(args, sort::DEFAULT, 2..=MAX / 4)?;
            (n, Box::new(Sort::new(n)))
        }
        "chase" => {
            let n = size(args, ring::DEFAULT, 128..=MAX)?;
            (n, Box::new(Ring::random(n)))
        }
        "conflict" => {
            let n = size(args, 9, 2..=4096)?;
            let stride = number(args, "--stride", 4096)?;
            if !stride.is_multiple_of(workloads::LINE) || !(1..=MAX / n).contains(&stride) {
                let line = workloads::LINE;
                return Err(Error::usage(format_args!(
                    "--stride cannot be {stride} for {n} lines; possible: multiples of {line} up \
                     to {}",
                    MAX / n
                )));
            }
            (n, Box::new(Ring::strided(n, stride)))
        }
        "random" => {
            let n = size(args, random::DEFAULT, 64..=MAX)?;
            if !n.is_power_of_two() {
                return Err(Error::usage("--size must be a power of two for random"));
            }
            (n, Box::new(Random::new(n)))
        }
        "stream" => {
            let n = size(args, stream::DEFAULT, 64..=MAX)?;
            (n, Box::new(Stream::new(n)))
        }
        "is" => {
            let class = is::Class::parse(class).unwrap_or(is::Class::S);
            (class.keys(), Box::new(Is::new(class)))
        }
        _ => {
            let class = cg::Class::parse(class).unwrap_or(cg::Class::S);
            (class.rows(), Box::new(Cg::new(class)))
        }
    };
    Ok((name, size, load))
}

/// All passes, in a function of its own: nothing else is in the window.
#[inline(never)]
fn region(load: &mut dyn Load, passes: usize) {
    marker::window::<REGION, _>(|| {
        for _ in 0..passes {
            load.pass();
        }
    });
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&OPTIONS)?;
    let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
    let home = Isa::parse(home).unwrap_or(isa());
    let (warm, passes) = (number(&args, "--warm", 1)?, number(&args, "--repeat", 1)?);
    migrate(home)
        .await
        .map_err(|e| Error::msg(format_args!("cannot make {home} the home: {e}")))?;
    let (name, size, mut load) = load(&args)?;
    println!(
        "{name} of {size} on node {} ({}): {passes} passes of {} steps",
        node(),
        isa(),
        load.steps()
    );
    for _ in 0..warm {
        load.pass();
    }
    println!("{BEGIN}");
    sleep(PAUSE).await;
    let start = Instant::now();
    region(load.as_mut(), passes);
    let took = start.elapsed();
    println!("{END}");
    sleep(PAUSE).await;

    report::counter("simbench.steps", load.steps() * passes as u64);
    report::counter("simbench.ns", took.as_nanos() as u64);
    let ok = name == "none" || warm + passes == 0 || load.check();
    match report::check("simbench.result", ok, name) {
        true => Ok(()),
        false => Err(Error::msg("the result is wrong")),
    }
}
