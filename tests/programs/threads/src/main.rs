//! Threads on all nodes: they meet, share memory, wait for each other, and end in every way there is.
//! `cargo xtask run --app threads -- --scene all`.
//!
//! | `--scene` | what happens |
//! |---|---|
//! | `all` | `spawn`, `heap`, `sync`, `scope`, `many`, `futex`, one after the other |
//! | `spawn` | threads on every node say where they are; their ids, and what they give back, are seen here |
//! | `heap` | all allocate and free, and free what others have allocated |
//! | `sync` | mutex, reader-writer lock, condition, barrier, semaphore, once, channel, parking: nothing is lost, nobody is in the way |
//! | `scope` | threads that borrow, and threads of those |
//! | `many` | as many threads as there can be, and one more, twice |
//! | `futex` | two threads in turn, on two nodes: `--turns` wake-ups |
//! | `writers` | two nodes write one word in turn, then two words of a page at once, `--turns` times each |
//! | `oracle` | threads on all nodes access the same pages at random, `--operations` each; what they must find is known |
//! | `counts` | as many threads as there can be wait for one word on all nodes: just as many are woken as is said, `--rounds` times |
//! | `race` | all nodes touch the same new pages at once and give them back, `--rounds` times |
//! | `exit` | one thread ends the program with 7 while others compute, wait, print and allocate |
//! | `codes` | exit codes of more than 32 bits are refused; the program ends with 103, as one that was lost |
//! | `leave` | the first thread ends by the kernel's operation, without telling init |
//! | `panic` | one thread panics while others wait |
//! | `fault` | one thread faults while others wait |
//! | `overflow` | one runs out of stack while others wait: it faults on the guard |
//! | `async` | an async call on another thread than the first: a panic that says so |
//! | `work` | for `--seconds`, threads on all nodes lock, allocate and pass numbers on, while nodes may die |
//! | `served` | for `--seconds`, threads on other nodes use services all the time while these may die; the first one goes on being served |
//! | `lost` | threads on node 1 wait, hold and compute until that dies; the others learn it |
//! | `begin-and-exit` | threads begin on all nodes, with numbers that have never begun, while one ends the program after `--rounds` milliseconds |
//! | `outlive` | for `--seconds`, threads on all nodes write pages of their own and read those of others, while a node may die |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod counts;
mod ends;
mod meet;
mod oracle;
mod outlive;
mod race;
mod served;
mod share;
mod turns;
mod writers;

use dyad::prelude::task::*;
use dyad::thread;

/// The live nodes.
fn nodes() -> Result<Vec<NodeId>> {
    let system = dyad::system()?;
    Ok(system.nodes().filter(|n| n.live).map(|n| n.id).collect())
}

/// One thread on each node, `each` times, does `f` with its number; what they give, in order.
fn on_all<T, F>(each: usize, f: F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(usize) -> T + Copy + Send + 'static,
{
    let nodes = nodes()?;
    let threads: Vec<_> = (0..each * nodes.len())
        .map(|n| thread::spawn_on(nodes[n % nodes.len()], move || f(n)))
        .collect::<Result<_>>()?;
    threads.into_iter().map(|t| t.join()).collect()
}

/// `--rounds`.
fn rounds(args: &Args, default: u64) -> Result<u64> {
    args.number("--rounds", default, 1..=1_000_000_000)
}

fn scene(name: &str, args: &Args) -> Result<()> {
    match name {
        "spawn" => share::spawn(),
        "heap" => share::heap(),
        "sync" => meet::sync(),
        "scope" => share::scope(),
        "many" => share::many(),
        "futex" => turns::futex(args),
        "writers" => writers::writers(args),
        "oracle" => oracle::oracle(args),
        "outlive" => outlive::outlive(args),
        "counts" => counts::counts(rounds(args, 1)?),
        "race" => race::race(rounds(args, 1000)?),
        "exit" => ends::exit(),
        "codes" => ends::codes(),
        "leave" => ends::leave(),
        "begin-and-exit" => ends::begin_and_exit(rounds(args, 1)?),
        "panic" => ends::panic(),
        "fault" => ends::fault(),
        "overflow" => ends::overflow(),
        "async" => ends::asynchronous(),
        "lost" => ends::lost(),
        "work" => ends::work(args),
        "served" => served::served(args),
        _ => {
            for name in ["spawn", "heap", "sync", "scope", "many", "futex"] {
                scene(name, args)?;
                println!("threads: scene {name} is over");
            }
            Ok(())
        }
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    const SCENES: [&str; 23] = [
        "all",
        "spawn",
        "heap",
        "sync",
        "scope",
        "many",
        "futex",
        "counts",
        "race",
        "exit",
        "panic",
        "fault",
        "overflow",
        "async",
        "lost",
        "work",
        "served",
        "codes",
        "leave",
        "writers",
        "oracle",
        "outlive",
        "begin-and-exit",
    ];
    args.expect_options(&[
        "--scene",
        "--turns",
        "--seconds",
        "--rounds",
        "--operations",
        "--players",
        "--pages",
        "--seed",
    ])?;
    scene(args.one_of("--scene", &SCENES, "all")?, &args)
}
