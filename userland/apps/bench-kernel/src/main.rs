//! Measures the operations of the kernel: opens a window of the simulator around each repetition
//! of each operation, on every node. `cargo xtask bench kernel` runs it and reads the counts from
//! the simulator's plugin; the program itself knows none of them.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--repetitions` | of each operation on each node, 32 to 4096 | 64 |
//!
//! What one repetition of an operation is stands in the module [`ops`]. Its window has the number
//! [`BenchOp::window`](dyad_abi::marker::BenchOp::window).
#![no_std]
#![no_main]
// System calls that the runtime does not offer are made in the module `ops`.
#![deny(unsafe_code)]

mod ops;

use dyad::prelude::*;
use dyad::report;
use dyad_abi::NodeId;

/// Repetitions before those that count: code is translated and memory touched for the first time.
const WARM_UP: u64 = 4;

fn repetitions(args: &Args) -> Result<u64> {
    match args.value("--repetitions") {
        None => Ok(64),
        Some(text) => match text.parse() {
            Ok(n @ 32..=4096) => Ok(n),
            _ => Err(Error::usage(format_args!(
                "--repetitions cannot be {text:?}; give a whole number from 32 to 4096"
            ))),
        },
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--repetitions"])?;
    let repetitions = repetitions(&args)?;
    let nodes = dyad::sys::sys_info()?.node_count as usize;
    let mut wrong = 0;
    for node in NodeId::first(nodes) {
        migrate_to(node).await?;
        for _ in 0..WARM_UP {
            wrong += ops::all();
        }
        ops::forget_all();
        for _ in 0..repetitions {
            wrong += ops::all();
        }
    }
    let detail = format!("{wrong} operations had another outcome than expected");
    if report::check("bench.outcomes", wrong == 0, detail) {
        Ok(())
    } else {
        Err(Error::msg("what was measured is not what it should be"))
    }
}
