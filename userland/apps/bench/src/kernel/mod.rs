//! Measures the operations of the kernel: opens a window of the simulator around each repetition
//! of each operation, on every node. `cargo xtask bench kernel` runs it and reads the counts from
//! the simulator's plugin; the program itself knows none of them.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--repetitions` | of each operation on each node and in each memory, 32 to 1024 | 64 |
//!
//! It builds a small system of its own, so it must be started with `--grant all`:
//!
//! ```text
//!  main task ──dispatches──▶ worker ──dispatches, sends──▶ partners: yields, receives, answers
//!                              │  (one component, in the address space of the program)
//!                              └──invokes, faults──▶ server (component, table and space of its own)
//! ```
//!
//! once for each node and each memory: worker, partners, server, their tables, page tables and
//! everything that is operated on then lie in the pool of that node, or in the CXL pool. What does
//! not is the program's address space itself, which init has made.
//!
//! What one repetition of an operation is stands in the module [`worker`]. Its window has the number
//! [`BenchOp::window`](dyad_abi::marker::BenchOp::window).

mod memory;
mod partners;
mod rig;
mod server;
mod window;
mod worker;

use dyad::prelude::task::*;
use dyad::report;
use dyad_abi::NodeId;
use dyad_abi::cap::{SinvOp, call_word};
use dyad_abi::marker::{BENCH_OPS, BenchMemory, BenchOp};
use dyad_abi::service::Grant;

use rig::Bench;

fn repetitions(args: &Args) -> Result<u64> {
    match args.value("--repetitions") {
        None => Ok(64),
        Some(text) => match text.parse() {
            Ok(n @ 32..=1024) => Ok(n),
            _ => Err(Error::usage(format_args!(
                "--repetitions cannot be {text:?}; give a whole number from 32 to 1024"
            ))),
        },
    }
}

/// Invocations of a component on a node of the other ISA, from each ISA. The thread that crosses is
/// one that schedulers know: the program's own. Nothing may be printed from a node that is not the
/// console's meanwhile: that crosses too.
async fn cross(bench: &mut Bench, nodes: usize) -> Result<()> {
    const PARTS: [u16; 3] = {
        let op = BenchOp::IpcCrossIsaRoundTrip;
        let memory = BenchMemory::Fused;
        [
            op.part(memory, 0).0,
            op.part(memory, 1).0,
            op.part(memory, 2).0,
        ]
    };
    let mut done = [false; 2];
    for node in NodeId::first(nodes) {
        migrate_to(node).await?;
        let isa = dyad::isa();
        let there = bench
            .elsewhere(isa)
            .map_err(|e| Error::msg(format_args!("node {node}, crossing: {e}")))?;
        let Some((home, server)) = there.filter(|_| !done[isa.index()]) else {
            continue;
        };
        done[isa.index()] = true;
        let word = call_word(server.index(), SinvOp::Invoke as u32);
        for i in 0..bench.times() {
            if i == worker::WARM_UP {
                window::forget::<{ PARTS[0] }>();
                window::forget::<{ PARTS[2] }>();
                migrate_to(home).await?;
                window::forget::<{ PARTS[1] }>();
                migrate_to(node).await?;
            }
            let words = [i, i + 1, i + 2, i + 3];
            let mut reply = [0; 4];
            let status =
                window::invoke_elsewhere::<{ PARTS[0] }, { PARTS[2] }>(word, words, &mut reply);
            bench.wrong += u64::from(status != 0 || reply != words);
        }
    }
    migrate_to(NodeId::first(1).next().ok_or(Error::msg("no node"))?).await?;
    Ok(())
}

/// Calls of functions that are on the other ISA only, from each ISA.
async fn call(bench: &mut Bench, nodes: usize) -> Result<()> {
    const PARTS: [u16; 3] = {
        let op = BenchOp::CrossingCallRoundTrip;
        let memory = BenchMemory::Fused;
        [
            op.part(memory, 0).0,
            op.part(memory, 1).0,
            op.part(memory, 2).0,
        ]
    };
    let mut done = [false; 2];
    for node in NodeId::first(nodes) {
        migrate_to(node).await?;
        let isa = dyad::isa();
        let other = window::elsewhere(isa.other());
        let home = dyad::system()?.nearest(isa.other(), node);
        let Some(home) = home.filter(|_| !core::mem::replace(&mut done[isa.index()], true)) else {
            continue;
        };
        for i in 0..bench.times() {
            if i == worker::WARM_UP {
                window::forget::<{ PARTS[0] }>();
                window::forget::<{ PARTS[2] }>();
                migrate_to(home).await?;
                window::forget::<{ PARTS[1] }>();
                migrate_to(node).await?;
            }
            let n = window::call_elsewhere::<{ PARTS[0] }, { PARTS[2] }>(other, i);
            bench.wrong += u64::from(n != i);
        }
    }
    migrate_to(NodeId::first(1).next().ok_or(Error::msg("no node"))?).await?;
    Ok(())
}

/// The main task.
pub(crate) async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--what", "--repetitions"])?;
    let repetitions = repetitions(&args)?;
    if Grant::from_number(dyad::sys::info()?.grant) != Some(Grant::All) {
        return Err(Error::usage(format_args!(
            "this program operates on everything: start it with --grant all"
        )));
    }
    let nodes = dyad::sys::sys_info()?.node_count as usize;
    let mut bench = Bench::new(repetitions);
    for node in NodeId::first(nodes) {
        for memory in BenchMemory::ALL {
            migrate_to(node).await?;
            let done = bench.run(node, memory);
            migrate_to(NodeId::first(1).next().unwrap_or(node)).await?;
            let plan =
                done.map_err(|e| Error::msg(format_args!("node {node}, {}: {e}", memory.name())))?;
            for (op, &(wrong, what)) in BENCH_OPS.iter().zip(&plan.wrong) {
                if wrong > 0 {
                    println!(
                        "{op} on node {node}, {}: {wrong} wrong, last {what:#x}",
                        memory.name()
                    );
                }
                bench.wrong += wrong;
            }
        }
    }
    cross(&mut bench, nodes).await?;
    call(&mut bench, nodes).await?;
    let wrong = bench.wrong;
    let detail = format!("{wrong} operations had another outcome than expected");
    if report::check("bench.outcomes", wrong == 0, detail) {
        Ok(())
    } else {
        Err(Error::msg("what was measured is not what it should be"))
    }
}
