//! Threads that ask other nodes for as much as they may, and threads beside them that must not notice:
//! `cargo xtask run --app flood --grant all --cpus 2 -- --seconds 2`.
//!
//! On every node a *traveller* makes crossing calls and invocations of a service that lives on one node, in turn. Each
//! takes it to another node and back; the way back has no caller that could be told of an error. Beside it four
//! threads of every node do one thing without end:
//!
//! | `--flood` | what they do |
//! |---|---|
//! | `shootdowns` | ask all CPUs to drop their translations, and do not wait |
//! | `calls` | make crossing calls |
//! | `invocations` | invoke the service |
//! | `all` | each of these at the same time |
//!
//! `shootdowns` needs `--grant all`: only then may the program do that to its own address space.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::sys::cap::{Cap, Space};
use dyad::sys::raw;
use dyad::{Isa, report, sys, system, thread};
use dyad_abi::cap::{SinvOp, call_word};
use dyad_abi::service::slot;
use dyad_abi::user::{PAGE_SIZE, TEXT_BASE};

/// The program's own address space, if it has been granted everything.
const SPACE: Cap<Space> = Cap::at(slot::SPACE);
/// An operation that the console does not have: it comes back with an error and writes nothing.
const NO_OPERATION: u64 = 999;
/// Calls and invocations, in turn, that every traveller must get done while the floods go on. It shares its CPU with
/// floods, and with those of the other node when it is there, so each takes a turn of all of them.
const LEAST: u64 = 1;
/// How long the floods go on for that at most, beyond `--seconds`.
const PATIENCE: Duration = Duration::from_secs(60);

/// What floods do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    Shootdowns,
    Calls,
    Invocations,
}

impl Flood {
    /// Their names, and that of all of them.
    const NAMES: [&str; 4] = ["shootdowns", "calls", "invocations", "all"];

    const fn numbered(n: usize) -> Flood {
        match n % 3 {
            0 => Flood::Shootdowns,
            1 => Flood::Calls,
            _ => Flood::Invocations,
        }
    }
}

#[dyad::isa(x86_64, always)]
extern "C" fn x86_64(n: u64) -> u64 {
    black_box(n) + 1
}

#[dyad::isa(aarch64, always)]
extern "C" fn aarch64(n: u64) -> u64 {
    black_box(n) + 1
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// What floods have done, by node.
    done: [AtomicU64; 8],
    /// What travellers have done, by node.
    travelled: [AtomicU64; 8],
    /// What floods have been refused.
    refused: AtomicU64,
}

/// Calls a function of the other ISA.
fn call(n: u64) -> u64 {
    match dyad::isa() {
        Isa::X86_64 => aarch64(n),
        Isa::Aarch64 => x86_64(n),
    }
}

/// Invokes the console, which answers with an error.
fn invoke(n: u64) -> Option<sys::Error> {
    let word = call_word(slot::CONSOLE, SinvOp::Invoke as u32);
    sys::Error::from_code(raw::request(word, [NO_OPERATION, n, 0, 0]).status)
}

/// Makes calls and invocations until it is over; how many.
fn travel(shared: &Shared, node: NodeId) -> core::result::Result<u64, String> {
    let mut n = 0;
    while !shared.over.load(Ordering::Acquire) {
        let there = call(n);
        if there != n + 1 {
            return Err(format!("call {n} returns {there}"));
        }
        let status = invoke(n);
        if status != Some(sys::Error::BadArgument) {
            return Err(format!("invocation {n} returns {status:?}"));
        }
        n += 1;
        shared.travelled[node.index()].store(n, Ordering::Relaxed);
    }
    Ok(n)
}

/// Floods until it is over.
fn flood(shared: &Shared, node: NodeId, how: Flood) -> Result<()> {
    while !shared.over.load(Ordering::Acquire) {
        let done = match how {
            Flood::Shootdowns => SPACE.shootdown_begin(TEXT_BASE, PAGE_SIZE).map(|_| ()),
            Flood::Calls => {
                call(0);
                Ok(())
            }
            Flood::Invocations => match invoke(0) {
                Some(sys::Error::BadArgument) => Ok(()),
                other => Err(other.unwrap_or(sys::Error::Corrupt)),
            },
        };
        match done {
            Ok(()) => shared.done[node.index()].fetch_add(1, Ordering::Relaxed),
            Err(sys::Error::Again | sys::Error::Full) => {
                shared.refused.fetch_add(1, Ordering::Relaxed)
            }
            Err(e) => return Err(e.into()),
        };
    }
    Ok(())
}

/// One flood, or all at once.
fn scene(how: usize, length: Duration) -> Result<()> {
    let system = system()?;
    let nodes: Vec<NodeId> = system.nodes().filter(|n| n.live).map(|n| n.id).collect();
    let shared = Shared::default();
    let name = Flood::NAMES[how];
    let travelled = thread::scope(|s| -> Result<_> {
        let (mut travellers, mut floods) = (Vec::new(), Vec::new());
        for &node in &nodes {
            let shared = &shared;
            travellers.push(s.spawn_on(node, move || travel(shared, node))?);
            for n in 0..4 {
                let how = match how {
                    3 => Flood::numbered(n),
                    one => Flood::numbered(one),
                };
                floods.push(s.spawn_on(node, move || flood(shared, node, how))?);
            }
        }
        thread::sleep(length);
        let end = Instant::now() + PATIENCE;
        let slow = |node: &NodeId| shared.travelled[node.index()].load(Ordering::Relaxed) < LEAST;
        while nodes.iter().any(slow) && Instant::now() < end {
            thread::sleep(Duration::from_millis(50));
        }
        shared.over.store(true, Ordering::Release);
        let travelled: Vec<_> = travellers
            .into_iter()
            .map(|t| t.join())
            .collect::<Result<_>>()?;
        for f in floods {
            f.join()??;
        }
        Ok(travelled)
    })?;
    for (node, calls) in nodes.iter().zip(travelled) {
        let done = shared.done[node.index()].load(Ordering::Relaxed);
        let detail = format!("{calls:?} calls beside {done} {name}");
        let ok = calls.is_ok_and(|calls| calls >= LEAST);
        report::check(&format!("flood.{name}.node{node}"), ok, &detail);
        println!("flood: node {node}: {detail}");
    }
    let refused = shared.refused.load(Ordering::Relaxed);
    report::counter(&format!("flood.{name}.refused"), refused);
    Ok(())
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--flood", "--seconds"])?;
    let length = Duration::from_secs(args.number("--seconds", 2, 1..=3600)?);
    let name = args.one_of("--flood", &Flood::NAMES, "all")?;
    let how = Flood::NAMES.iter().position(|n| *n == name).unwrap_or(3);
    scene(how, length)
}
