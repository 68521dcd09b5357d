//! Repeats some of the [`workloads`], each in a marked region.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--load` | a list of `none`, `matmul`, `sort`, `chase`, `conflict`, `random`, `stream`, `is`, `cg`; `:N` may follow: passes in the region, and then `:SIZE` | `matmul` |
//! | `--size` | size of loads without `:SIZE`: order (`matmul`), words (`sort`), bytes (`chase`, `random`, `stream`), lines (`conflict`); `K` and `M` may follow | by load |
//! | `--stride` | bytes between the lines of `conflict` | `4K` |
//! | `--class` | `S`, `W`: of `is` and `cg` | `S` |
//! | `--warm` | passes before the region | 1 |
//! | `--repeat` | passes in the region, of loads without `:N` | 1 |
//! | `--home` | a list of `x86_64`, `aarch64`: where all that is done | where it starts |
//!
//! The region of the `i`-th element of the list is window [`REGIONS`]` + i` of the simulator.
//! For simulators that know no windows, lines that begin with [`BEGIN`] and [`END`] are printed
//! before and after, with a pause in which nothing is done between each and the region.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::task::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb_kernels::{cg, is};
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
/// The pause after a line of output, in which the driver can look at the machine.
const PAUSE: Duration = Duration::from_millis(60);

const LOADS: [&str; 9] = [
    "none", "matmul", "sort", "chase", "conflict", "random", "stream", "is", "cg",
];
/// Longest list.
const MAX_ITEMS: usize = 12;
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

/// A number with `K` or `M` for binary thousands and millions.
fn parse(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let n: usize = digits.parse().ok()?;
    n.checked_mul(1 << shift).filter(|n| *n <= 1 << 32)
}

/// The number in an option.
fn number(args: &Args, name: &str, default: usize) -> Result<usize> {
    let Some(text) = args.value(name) else {
        return Ok(default);
    };
    parse(text)
        .ok_or_else(|| Error::usage(format_args!("{name} cannot be {text:?}; write 4096 or 4K")))
}

/// A size in a range.
fn size(
    given: Option<usize>,
    default: usize,
    range: core::ops::RangeInclusive<usize>,
) -> Result<usize> {
    let n = given.unwrap_or(default);
    match range.contains(&n) {
        true => Ok(n),
        false => Err(Error::usage(format_args!(
            "the size cannot be {n} for this load; possible: {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

/// The load of this name and size, and its size.
fn load(name: &str, given: Option<usize>, args: &Args) -> Result<(usize, Box<dyn Load>)> {
    const MAX: usize = 1 << 28;
    let class = args.one_of("--class", &["S", "W"], "S")?;
    Ok(match name {
        "none" => (0, Box::new(Nothing)),
        "matmul" => {
            let n = size(given, matmul::DEFAULT, 1..=2048)?;
            (n, Box::new(Matmul::new(n)))
        }
        "sort" => {
            let n = size(given, sort::DEFAULT, 2..=MAX / 4)?;
            (n, Box::new(Sort::new(n)))
        }
        "chase" => {
            let n = size(given, ring::DEFAULT, 128..=MAX)?;
            (n, Box::new(Ring::random(n)))
        }
        "conflict" => {
            let n = size(given, 9, 2..=4096)?;
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
            let n = size(given, random::DEFAULT, 64..=MAX)?;
            if !n.is_power_of_two() {
                return Err(Error::usage("the size must be a power of two for random"));
            }
            (n, Box::new(Random::new(n)))
        }
        "stream" => {
            let n = size(given, stream::DEFAULT, 64..=MAX)?;
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

/// Something to be done.
struct Item {
    name: &'static str,
    passes: usize,
    size: Option<usize>,
}

/// What is to be done.
fn plan(args: &Args) -> Result<Vec<Item>> {
    let repeat = number(args, "--repeat", 1)?;
    let size = match args.value("--size") {
        Some(_) => Some(number(args, "--size", 0)?),
        None => None,
    };
    let list = args.value("--load").unwrap_or("matmul");
    let plan: Result<Vec<_>> = list
        .split(',')
        .map(|word| item(word, repeat, size))
        .collect();
    let plan = plan?;
    match plan.len() <= MAX_ITEMS {
        true => Ok(plan),
        false => Err(Error::usage(format_args!(
            "--load has more than {MAX_ITEMS} loads"
        ))),
    }
}

/// An element of the list of loads.
fn item(word: &str, repeat: usize, size: Option<usize>) -> Result<Item> {
    let mut parts = word.split(':');
    let name = parts.next().unwrap_or_default();
    let mut part = |default| match parts.next() {
        Some(text) => parse(text).map(Some),
        None => Some(default),
    };
    let (passes, size) = (part(Some(repeat)), part(size));
    let (Some(Some(passes)), Some(size), None) = (passes, size, parts.next()) else {
        return Err(Error::usage(format_args!(
            "--load cannot have {word:?}; write {name}:10 or {name}:10:64K"
        )));
    };
    let known = LOADS.into_iter().find(|l| *l == name);
    let name = known.ok_or_else(|| {
        Error::usage(format_args!(
            "--load cannot have {name:?}; possible: {}",
            LOADS.join(", ")
        ))
    })?;
    Ok(Item { name, passes, size })
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

/// All passes of a load, in the region of its place in the list.
fn region(place: usize, load: &mut dyn Load, passes: usize) {
    macro_rules! choose {
        ($($n:literal)*) => {
            // Numbers of windows are part of instructions.
            match place {
                $($n => window::<{ REGIONS + $n }>(load, passes),)*
                _ => {}
            }
        };
    }
    choose!(0 1 2 3 4 5 6 7 8 9 10 11);
}

/// Does one load here; whether its result is right.
async fn measure(index: usize, item: &Item, args: &Args) -> Result<bool> {
    let Item { name, passes, .. } = *item;
    let warm = number(args, "--warm", 1)?;
    let (size, mut load) = load(name, item.size, args)?;
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

    let count = |what: &str, n: u64| {
        report::counter(&format!("sim-loads.{index}.{name}.{}.{what}", isa()), n)
    };
    count("steps", load.steps() * passes as u64);
    count("ns", took.as_nanos() as u64);
    let ok = name == "none" || warm + passes == 0 || load.check();
    Ok(report::check(&format!("sim-loads.{name}"), ok, place))
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
        for (index, item) in plan.iter().enumerate() {
            right &= measure(index, item, &args).await?;
        }
    }
    match right {
        true => Ok(()),
        false => Err(Error::msg("a result is wrong")),
    }
}
