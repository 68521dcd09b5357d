//! Scenes of ordinary Rust, whose output must be the same however often the thread changes its ISA.
//!
//! Where `wander` goes through single things that programs do, these are pieces of programs: a parser, big
//! numbers, destructors, futures, ... (the files in `scenes`). Each is played once without moving, and what it
//! has written then must be what a program of the host writes; then on every way that the options ask for,
//! where it must write the same, pass as many points, and have moved at all that were its turn. Several scenes have
//! found what was wrong in the pass that makes plain functions migrate.
//!
//! | option | meaning |
//! |---|---|
//! | `--scene NAME` | only this one, and its text is printed; `all`, the default: all of them |
//! | `--every LIST` | numbers: it moves to the other ISA at every Nth point, 0: never; `0,7,31` by default |
//! | `--start home` | it begins where the program does; `away`: on the other ISA; `both`, the default: one, then the other, for each number; `turns`: by turns |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod scenes;
mod way;

use dyad::prelude::*;
use dyad::report;

use scenes::{Scene, digest};
use way::{Run, Way};

#[dyad::main]
fn main(args: Args) -> Result<()> {
    args.expect_options(&["--scene", "--every", "--start"])?;
    let mut names = vec!["all"];
    names.extend(scenes::ALL.iter().map(|s| s.name));
    let wanted = args.one_of("--scene", &names, "all")?;
    let ways = ways(&args)?;
    way::between_two()?;
    let mut good = true;
    for scene in scenes::ALL {
        if wanted == "all" || wanted == scene.name {
            good &= play(&scene, &ways, wanted != "all")?;
        }
    }
    match good {
        true => Ok(()),
        false => Err(Error::msg("something was lost on the way")),
    }
}

/// The ways that the options ask for.
fn ways(args: &Args) -> Result<Vec<Way>> {
    let start = args.one_of("--start", &["home", "away", "both", "turns"], "both")?;
    let mut ways = Vec::new();
    for (n, word) in args
        .value("--every")
        .unwrap_or("0,7,31")
        .split(',')
        .enumerate()
    {
        let every = word.parse().map_err(|_| {
            Error::usage(format_args!(
                "--every cannot have {word:?}; possible: whole numbers from 0 on"
            ))
        })?;
        let starts: &[bool] = match start {
            "home" => &[false],
            "away" => &[true],
            "turns" => &[n % 2 == 1],
            _ => &[false, true],
        };
        ways.extend(starts.iter().map(|away| Way { every, away: *away }));
    }
    Ok(ways)
}

/// A scene on all ways. Whether it was the same on all.
#[inline(never)]
fn play(scene: &Scene, ways: &[Way], print: bool) -> Result<bool> {
    let still = Way {
        every: 0,
        away: false,
    };
    let first = way::through(scene.run, still)?;
    let found = digest(&first.text);
    if print {
        print!("{}", first.text);
    }
    println!(
        "{:<12} {found:016x} of {} lines, {} points",
        scene.name,
        first.text.lines().count(),
        first.points
    );
    let mut wrong = match found == scene.digest {
        true => None,
        false => Some(format!("{:016x} on the host", scene.digest)),
    };
    let mut moves = 0;
    for way in ways {
        let run = way::through(scene.run, *way)?;
        moves += run.moves;
        let start = if way.away { "away" } else { "home" };
        if let Some(what) = differs(&first, &run, way.every) {
            println!("{}, every {} from {start}: {what}", scene.name, way.every);
            wrong.get_or_insert_with(|| format!("every {} from {start}", way.every));
        }
    }
    report::counter("medley.migrations", moves);
    let detail = match &wrong {
        None => format!("{} ways, {moves} moves", ways.len()),
        Some(what) => format!("differs: {what}"),
    };
    let name = format!("medley.{}", scene.name);
    Ok(report::check(&name, wrong.is_none(), detail))
}

/// What a run has that the first one has not.
#[inline(never)]
fn differs(first: &Run, run: &Run, every: u64) -> Option<String> {
    if run.text != first.text {
        let (mut lines, mut expected) = (run.text.lines(), first.text.lines());
        for n in 1.. {
            let (line, other) = (lines.next(), expected.next());
            if line != other || line.is_none() {
                let [line, other] = [line, other].map(|l| l.unwrap_or("(the end)"));
                return Some(format!("line {n} is {line:?} instead of {other:?}"));
            }
        }
    }
    if run.points != first.points {
        return Some(format!("{} points instead of {}", run.points, first.points));
    }
    let due = first.points.checked_div(every).unwrap_or(0);
    ((run.moves, run.mishaps) != (due, 0)).then(|| {
        format!(
            "{} moves instead of {due}, {} failed",
            run.moves, run.mishaps
        )
    })
}
