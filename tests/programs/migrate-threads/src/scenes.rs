//! Pieces of programs: a parser, big numbers, futures, ... (the files in `scenes`). Each writes what
//! it has computed, and passes migration points everywhere in between.
//!
//! Each is played once without moving, and what it has written then must be what a program of the host writes;
//! then once for each play that the options ask for, where it must write the same, pass as many points, and have
//! moved at all that were its turn. The checks are `scenes.NAME`, the counter `scenes.migrations`.

mod algorithms;
mod bignum;
mod cells;
mod closures;
mod collections;
mod formatting;
mod futures;
mod idioms;
mod iterators;
mod lanes;
mod large;
mod machine;
mod matrix;
mod recursion;
mod references;
mod text;
mod traits;

use dyad::prelude::thread::*;
use dyad::report;

use crate::play::{Outcome, Play};
use crate::schedule;

/// One of them.
struct Scene {
    /// Its name, which is that of its file.
    name: &'static str,
    /// Writes what it has computed.
    run: fn(&mut String),
    /// Of what it writes, as a program of the host that moves nowhere: [`digest`].
    digest: u64,
}

/// All scenes.
const ALL: [Scene; 17] = [
    scene("text", text::run, 0xde5a_3a0a_6fb0_b4b0),
    scene("bignum", bignum::run, 0xa951_c395_159f_d895),
    scene("matrix", matrix::run, 0xdd0e_6d2a_3c55_9669),
    scene("iterators", iterators::run, 0xfb0d_9200_8e11_2445),
    scene("closures", closures::run, 0xe793_91c9_84a3_a1cf),
    scene("traits", traits::run, 0xd2db_dd51_5631_beda),
    scene("collections", collections::run, 0x4744_9bde_b153_bf50),
    scene("recursion", recursion::run, 0x8549_bde3_1d01_5260),
    scene("large", large::run, 0xdb25_48ae_3d5c_07a8),
    scene("machine", machine::run, 0x7e0e_2cf5_50bd_14c3),
    scene("references", references::run, 0x0307_7015_b71c_426e),
    scene("formatting", formatting::run, 0x46c3_bf4c_fa8b_f88d),
    scene("cells", cells::run, 0x7b46_f2dc_093b_1eb1),
    scene("algorithms", algorithms::run, 0xd087_c989_a355_e429),
    scene("futures", futures::run, 0x4285_d8ee_27f0_ae04),
    scene("lanes", lanes::run, 0x0b39_2a8b_44a7_a9f9),
    scene("idioms", idioms::run, 0x5031_471c_2564_e30e),
];

const fn scene(name: &'static str, run: fn(&mut String), digest: u64) -> Scene {
    Scene { name, run, digest }
}

/// FNV-1a of a text.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Plays the scenes that the options name.
pub(crate) fn main(args: &Args) -> Result<()> {
    args.expect_options(&["--what", "--scene", "--every", "--start"])?;
    let mut names = vec!["all"];
    names.extend(ALL.iter().map(|s| s.name));
    let wanted = args.one_of("--scene", &names, "all")?;
    let plays = plays(args)?;
    schedule::use_two_nodes()?;
    let mut good = true;
    for scene in ALL {
        if wanted == "all" || wanted == scene.name {
            good &= play_all(&scene, &plays, wanted != "all")?;
        }
    }
    match good {
        true => Ok(()),
        false => Err(Error::msg("something was lost on the way")),
    }
}

/// The plays that the options ask for.
fn plays(args: &Args) -> Result<Vec<Play>> {
    let start = args.one_of("--start", &["home", "away", "both", "turns"], "both")?;
    let mut plays = Vec::new();
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
        plays.extend(starts.iter().map(|away| Play { every, away: *away }));
    }
    Ok(plays)
}

/// Plays a scene in all plays. Whether it was the same in all.
#[inline(never)]
fn play_all(scene: &Scene, plays: &[Play], print: bool) -> Result<bool> {
    let still = Play {
        every: 0,
        away: false,
    };
    let first = still.of(scene.run)?;
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
    for play in plays {
        let run = play.of(scene.run)?;
        moves += run.moves;
        let start = if play.away { "away" } else { "home" };
        if let Some(what) = differs(&first, &run, play.every) {
            println!("{}, every {} from {start}: {what}", scene.name, play.every);
            wrong.get_or_insert_with(|| format!("every {} from {start}", play.every));
        }
    }
    report::counter("scenes.migrations", moves);
    let detail = match &wrong {
        None => format!("{} plays, {moves} moves", plays.len()),
        Some(what) => format!("differs: {what}"),
    };
    let name = format!("scenes.{}", scene.name);
    Ok(report::check(&name, wrong.is_none(), detail))
}

/// What a run has that the first one has not.
#[inline(never)]
fn differs(first: &Outcome, run: &Outcome, every: u64) -> Option<String> {
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
    ((run.moves, run.failures) != (due, 0)).then(|| {
        format!(
            "{} moves instead of {due}, {} failed",
            run.moves, run.failures
        )
    })
}
