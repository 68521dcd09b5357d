//! Repeats some of the [`workloads`], each in a marked region.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--load` | a list of `none`, `matmul`, `sort`, `chase`, `conflict`, `random`, `stream`, `is`, `cg`; `:N` may follow: passes in the region | `matmul` |
//! | `--size` | order (`matmul`), words (`sort`), bytes (`chase`, `random`, `stream`), lines (`conflict`); `K` and `M` may follow | by load |
//! | `--stride` | bytes between the lines of `conflict` | `4K` |
//! | `--class` | `S`, `W`: of `is` and `cg` | `S` |
//! | `--warm` | passes before the region | 1 |
//! | `--repeat` | passes in the region, of loads without `:N` | 1 |
//! | `--home` | a list of `x86_64`, `aarch64`: where all that is done | where it starts |
//!
//! The region of the load with number `i` in [`LOADS`] is window [`REGIONS`]` + i` of the simulator.
//! For simulators that know no windows, lines that begin with [`BEGIN`] and [`END`] are printed
//! before and after, with a pause in which nothing is done between each and the region.
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

/// The first of the windows around the measured passes.
const REGIONS: u16 = WindowId::FREE;
/// Says that measured passes are about to begin.
const BEGIN: &str = "region begins:";
/// Says that they are over.
const END: &str = "region has ended:";
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

/// The load of this name, and its size.
fn load(name: &str, args: &Args) -> Result<(usize, Box<dyn Load>)> {
    const MAX: usize = 1 << 28;
    let class = args.one_of("--class", &["S", "W"], "S")?;
    Ok(match name {
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
    })
}

/// What is to be done: loads by number, and passes in the region.
fn plan(args: &Args) -> Result<Vec<(usize, usize)>> {
    let repeat = number(args, "--repeat", 1)?;
    let list = args.value("--load").unwrap_or("matmul");
    let plan: Result<Vec<_>> = list.split(',').map(|word| item(word, repeat)).collect();
    let plan = plan?;
    if plan.len() > 1 && args.value("--size").is_some() {
        return Err(Error::usage("--size is for one load; name one with --load"));
    }
    Ok(plan)
}

/// An element of the list of loads.
fn item(word: &str, repeat: usize) -> Result<(usize, usize)> {
    let (name, passes) = match word.split_once(':') {
        Some((name, passes)) => (name, passes.parse().ok()),
        None => (word, Some(repeat)),
    };
    let passes = passes.ok_or_else(|| {
        Error::usage(format_args!("--load cannot have {word:?}; write {name}:10"))
    })?;
    let index = LOADS.iter().position(|l| *l == name).ok_or_else(|| {
        Error::usage(format_args!(
            "--load cannot have {name:?}; possible: {}",
            LOADS.join(", ")
        ))
    })?;
    Ok((index, passes))
}

/// Where to do it.
fn homes(args: &Args) -> Result<Vec<Isa>> {
    let here = isa().name();
    let list = args.value("--home").unwrap_or(here).split(',');
    list.map(|word| {
        Isa::parse(word).ok_or_else(|| {
            Error::usage(format_args!(
                "--home cannot have {word:?}; possible: {}",
                Isa::ALL.map(Isa::name).join(", ")
            ))
        })
    })
    .collect()
}

/// All passes, in a function of its own: nothing else is in the window.
#[inline(never)]
fn window<const ID: u16>(load: &mut dyn Load, passes: usize) {
    marker::window::<ID, _>(|| {
        for _ in 0..passes {
            load.pass();
        }
    });
}

/// All passes of the load with this number, in its region.
fn region(index: usize, load: &mut dyn Load, passes: usize) {
    // Numbers of windows are part of instructions.
    match index {
        0 => window::<REGIONS>(load, passes),
        1 => window::<{ REGIONS + 1 }>(load, passes),
        2 => window::<{ REGIONS + 2 }>(load, passes),
        3 => window::<{ REGIONS + 3 }>(load, passes),
        4 => window::<{ REGIONS + 4 }>(load, passes),
        5 => window::<{ REGIONS + 5 }>(load, passes),
        6 => window::<{ REGIONS + 6 }>(load, passes),
        7 => window::<{ REGIONS + 7 }>(load, passes),
        _ => window::<{ REGIONS + 8 }>(load, passes),
    }
}

/// Does one load here; whether its result is right.
async fn measure(index: usize, passes: usize, args: &Args) -> Result<bool> {
    let name = LOADS[index];
    let warm = number(args, "--warm", 1)?;
    let (size, mut load) = load(name, args)?;
    let place = format!("{name} on node {} ({})", node(), isa());
    println!(
        "{place}: size {size}, {passes} passes of {} steps",
        load.steps()
    );
    for _ in 0..warm {
        load.pass();
    }
    println!("{BEGIN} {place}");
    sleep(PAUSE).await;
    let start = Instant::now();
    region(index, load.as_mut(), passes);
    let took = start.elapsed();
    println!("{END} {place}");
    sleep(PAUSE).await;

    let count =
        |what: &str, n: u64| report::counter(&format!("simbench.{name}.{}.{what}", isa()), n);
    count("steps", load.steps() * passes as u64);
    count("ns", took.as_nanos() as u64);
    let ok = name == "none" || warm + passes == 0 || load.check();
    Ok(report::check(&format!("simbench.{name}"), ok, place))
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&OPTIONS)?;
    let (plan, homes) = (plan(&args)?, homes(&args)?);
    let mut right = true;
    for home in homes {
        migrate(home)
            .await
            .map_err(|e| Error::msg(format_args!("cannot make {home} the home: {e}")))?;
        for &(index, passes) in &plan {
            right &= measure(index, passes, &args).await?;
        }
    }
    match right {
        true => Ok(()),
        false => Err(Error::msg("a result is wrong")),
    }
}
