//! Works for long and does not care where: a program to be moved from outside, by
//! `cargo xtask migrate` while it runs.
//!
//! Its main task fills pages and sums them up, step by step; another one counts beside it and sleeps in
//! between. After each step there is an `.await`, where the program's thread can be moved. What is printed
//! depends on the options only, not on where the steps were made.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--steps` | how many | 2000 |
//! | `--pause` | microseconds of sleep after each step; 0: others have a turn, and it goes on | 1000 |
//! | `--away` | a node that a third task asks for, in each of its ten steps, by turns with node 0 | nobody asks |
//! | `--deaf` | seconds of work without any `.await` before the first step | 0 |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::task::*;
use dyad::{report, sys};

/// Words that are filled in each step.
const WORDS: usize = 4096;
/// Steps between two lines of output.
const LINE: u64 = 500;
/// How often the third task asks.
const ASKS: u64 = 10;

struct Options {
    steps: u64,
    pause: Duration,
    away: Option<NodeId>,
    deaf: Duration,
}

impl Options {
    fn read(args: &Args) -> Result<Options> {
        args.expect_options(&["--steps", "--pause", "--away", "--deaf"])?;
        let number = |name: &str, default: u64| match args.value(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Error::usage(format_args!("{name} takes a number, not {text:?}"))),
        };
        let away = match args.value("--away") {
            None => None,
            Some(_) => {
                let n = number("--away", 0)?;
                let node =
                    NodeId::new(n).filter(|&n| dyad::system().is_ok_and(|s| s.node(n).is_some()));
                let none = || Error::usage(format_args!("--away: there is no node {n}"));
                Some(node.ok_or_else(none)?)
            }
        };
        Ok(Options {
            steps: number("--steps", 2000)?,
            pause: Duration::from_micros(number("--pause", 1000)?),
            away,
            deaf: Duration::from_secs(number("--deaf", 0)?),
        })
    }
}

/// A step of the work: every word depends on all that came before.
fn step(words: &mut [u64], n: u64) -> u64 {
    let mut sum = n;
    for word in words {
        sum = (sum ^ *word)
            .wrapping_mul(dyad_random::GOLDEN)
            .rotate_left(23);
        *word = word.wrapping_add(sum);
    }
    sum
}

/// Works without looking up.
fn be_deaf(time: Duration) {
    let end = Instant::now() + time;
    let mut words = [1; 64];
    while Instant::now() < end {
        step(&mut words, 1);
    }
}

/// Sleeps and counts, on whatever node.
async fn count(beats: u64, pause: Duration) -> u64 {
    let mut sum = 0;
    for n in 0..beats {
        sleep(pause).await;
        sum += n;
    }
    sum
}

/// Asks the program's own thread to go to and fro, until a node is dead: how often, and how often it has gone there.
async fn ask(away: NodeId) -> Result<(u64, u64)> {
    let home = node();
    let (mut asked, mut arrived) = (0, 0);
    for n in 0..ASKS {
        let to = if n % 2 == 0 { away } else { home };
        match request_migration(to) {
            Err(sys::Error::NodeDead) => break,
            other => other?,
        };
        sleep(Duration::from_millis(2)).await;
        let is_there = node() == to;
        // A node that has died since it was asked for was not to be reached.
        if !is_there && request_migration(to) == Err(sys::Error::NodeDead) {
            break;
        }
        asked += 1;
        arrived += u64::from(is_there);
    }
    Ok((asked, arrived))
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    println!("roaming: {} steps", options.steps);
    if !options.deaf.is_zero() {
        be_deaf(options.deaf);
        println!("not deaf any more");
    }
    let beside = spawn(count(options.steps / 10, 5 * options.pause));
    let asking = options.away.map(|away| spawn(ask(away)));
    let mut words = vec![0u64; WORDS];
    let mut sum = 0;
    for n in 1..=options.steps {
        sum ^= step(&mut words, n);
        if n % LINE == 0 {
            println!("step {n}: {sum:016x}");
        }
        match options.pause.is_zero() {
            true => yield_now().await,
            false => sleep(options.pause).await,
        }
    }
    let beats = beside.await;
    println!("done: {sum:016x}, {beats}");
    if let Some(asking) = asking {
        let (asked, arrived) = asking.await?;
        report::check(
            "migrate-tasks.asked",
            arrived == asked,
            format_args!("{arrived} of {asked}"),
        );
    }
    let moves: u64 = dyad::task::migrations().iter().map(|c| c.count).sum();
    report::counter("migrate-tasks.moves", moves);
    report::check(
        "migrate-tasks.done",
        true,
        format_args!("{} steps", options.steps),
    );
    Ok(())
}
