//! What it costs to change the ISA, for `cargo xtask bench migration`: does everything so and so
//! often, in windows of the simulator and by the clock, and reports how often and how long. What
//! the windows have counted the command reads from the simulator.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--what` | a list of `micro`, `chase`, `bfs`, `futex` | |
//! | `--home` | `x86_64`, `aarch64`: from where | where it starts |
//! | `--times` | how often each small operation is done, 8 to 100000 | 64 |
//! | `--accesses` | a list: steps along the list between two migrations, of those in [`chase::SIZES`] | all |
//! | `--bytes` | size of the list in MiB, 16 to 256 | 16 |
//! | `--on` | number of the node in whose memory the list lies | the other side's |
//! | `--scale` | logarithm of the number of vertices, 4 to 20 | 10 |
//! | `--factors` | a list: edges for each vertex, of those in [`bfs::FACTORS`] | all |
//!
//! What is reported is in the module [`figures`](crate::figures).

mod bfs;
mod chase;
mod crossing;
mod futex;
mod micro;

use core::fmt::Display;
use core::str::FromStr;

use dyad::prelude::task::*;

use crate::figures::Direction;

/// What can be measured.
pub(crate) const MEASUREMENTS: [&str; 4] = ["micro", "chase", "bfs", "futex"];
const OPTIONS: [&str; 8] = [
    "--what",
    "--home",
    "--times",
    "--accesses",
    "--bytes",
    "--on",
    "--scale",
    "--factors",
];

/// The parts of a list, all of which must be possible.
fn list<T: FromStr + PartialEq + Copy + Display>(
    args: &Args,
    name: &str,
    possible: &[T],
    default: &[T],
) -> Result<Vec<T>> {
    let Some(text) = args.value(name) else {
        return Ok(default.to_vec());
    };
    let part = |word: &str| {
        let found = word.parse().ok().filter(|v| possible.contains(v));
        found.ok_or_else(|| {
            let possible: Vec<String> = possible.iter().map(T::to_string).collect();
            Error::usage(format_args!(
                "{name} cannot have {word:?}; possible: {}",
                possible.join(", ")
            ))
        })
    };
    text.split(',').map(part).collect()
}

/// The words of a list, all of which must be possible.
fn words(
    args: &Args,
    name: &str,
    possible: &[&'static str],
    default: usize,
) -> Result<Vec<&'static str>> {
    let Some(text) = args.value(name) else {
        return Ok(possible[..default].to_vec());
    };
    let part = |word: &str| {
        let found = possible.iter().copied().find(|v| *v == word);
        found.ok_or_else(|| {
            Error::usage(format_args!(
                "{name} cannot have {word:?}; possible: {}",
                possible.join(", ")
            ))
        })
    };
    text.split(',').map(part).collect()
}

fn number(args: &Args, name: &str, default: u32, range: (u32, u32)) -> Result<u32> {
    let Some(text) = args.value(name) else {
        return Ok(default);
    };
    let n = text
        .parse()
        .ok()
        .filter(|n| (range.0..=range.1).contains(n));
    n.ok_or_else(|| {
        Error::usage(format_args!(
            "{name} cannot be {text:?}; possible: {} to {}",
            range.0, range.1
        ))
    })
}

/// The main task.
pub(crate) async fn main(args: Args) -> Result<()> {
    args.expect_options(&OPTIONS)?;
    let measure = words(&args, "--what", &MEASUREMENTS, 1)?;
    let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
    let times = number(&args, "--times", 64, (8, 100_000))?;
    let accesses = list(&args, "--accesses", &chase::SIZES, &chase::SIZES)?;
    let bytes = (number(&args, "--bytes", 16, (16, 256))? as usize) << 20;
    let scale = number(&args, "--scale", 10, (4, 20))?;
    let factors = list(&args, "--factors", &bfs::FACTORS, &bfs::FACTORS)?;
    let on = match args.value("--on") {
        None => None,
        Some(_) => {
            NodeId::new(number(&args, "--on", 0, (0, system()?.nodes().count() as u32 - 1))?.into())
        }
    };
    // One home for a run: memory that has been used lies where it was touched first.
    let direction = Direction::settle(Isa::parse(home).unwrap_or(isa())).await?;
    println!(
        "From node {} ({home}) to node {}",
        direction.home, direction.away
    );
    for what in measure {
        match what {
            "chase" => chase::measure(&direction, &accesses, bytes, on).await?,
            "futex" => futex::measure(&direction, times).await?,
            "bfs" => bfs::measure(&direction, &factors, scale).await?,
            _ => micro::measure(&direction, times).await?,
        }
    }
    Ok(())
}
