//! Messages between threads on several nodes: `cargo xtask run --app messages`.
//!
//! | `--scene` | what happens |
//! |---|---|
//! | `all` | all but `lost`, one after the other |
//! | `stream` | messages of random sizes and levels in both directions; order and contents are checked |
//! | `large` | messages of up to 64 KiB, in parts |
//! | `idle` | a receiver that sleeps is rung for once for each message |
//! | `priority` | an urgent message overtakes a full ring of bulk ones, which do not starve |
//! | `calls` | questions and answers: polling, by doorbell, and over a slow network |
//! | `group` | one write for the members on all nodes; one of them leaves, one is too slow |
//! | `tasks` | tasks of the first thread wait for answers while others run |
//! | `lost` | node 1 dies with the thread that answers: the others are told |
//!
//! | option | values | default |
//! |---|---|---|
//! | `--messages` | messages of the stream in each direction, and ten times those of other scenes; 10 to 10,000,000 | 5000 |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod calls;
mod groups;
mod streams;

use dyad::prelude::task::*;

/// The live nodes.
fn nodes() -> Result<Vec<NodeId>> {
    let system = dyad::system()?;
    Ok(system.nodes().filter(|n| n.live).map(|n| n.id).collect())
}

/// The node farthest from the first one: another one, if there is one.
fn far() -> Result<NodeId> {
    nodes()?
        .last()
        .copied()
        .ok_or(Error::msg("no node is live"))
}

/// Fused time in so many milliseconds.
fn in_ms(ms: u64) -> u64 {
    Instant::now().as_nanos() + ms * 1_000_000
}

/// A generator of numbers, the same on all nodes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Contents that say which message they are of.
fn contents(seed: u64, len: usize, to: &mut Vec<u8>) {
    let mut random = Random(seed);
    to.clear();
    while to.len() < len {
        to.extend_from_slice(&random.next().to_le_bytes());
    }
    to.truncate(len);
}

/// Whether that is what they are.
fn is_contents(seed: u64, bytes: &[u8]) -> bool {
    let mut random = Random(seed);
    bytes
        .chunks(8)
        .all(|chunk| *chunk == random.next().to_le_bytes()[..chunk.len()])
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    const SCENES: [&str; 9] = [
        "all", "stream", "large", "idle", "priority", "calls", "group", "tasks", "lost",
    ];
    args.expect_options(&["--scene", "--messages"])?;
    let messages: u64 = match args.value("--messages").map(str::parse) {
        None => 5000,
        Some(Ok(n @ 10..=10_000_000)) => n,
        Some(_) => {
            return Err(Error::usage(
                "--messages: give a whole number from 10 to 10000000",
            ));
        }
    };
    let few = messages / 10;
    let chosen = args.one_of("--scene", &SCENES, "all")?;
    for &scene in &SCENES[1..] {
        let due = chosen == scene || chosen == "all" && scene != "lost";
        if !due {
            continue;
        }
        match scene {
            "stream" => streams::stream(messages)?,
            "large" => streams::large()?,
            "idle" => streams::idle(few)?,
            "priority" => streams::priority()?,
            "calls" => calls::calls(few)?,
            "group" => groups::group(few)?,
            "tasks" => calls::tasks(few).await?,
            _ => calls::lost()?,
        }
        println!("messages: scene {scene} is over");
    }
    Ok(())
}
