//! @NAME@: a program that runs on both ISAs.
//!
//! Run it with `cargo xtask run --app @APP@`.
#![no_std]
#![no_main]

use dyad::prelude::thread::*;

/// The sum of 1 to `n`. The thread moves at the bottom of the recursion, with all calls on its stack.
fn sum(n: u64, to: Isa) -> Result<u64> {
    if n == 0 {
        migrate(to)?;
        println!("at the bottom of the recursion on {}", isa());
        return Ok(0);
    }
    Ok(n + sum(n - 1, to)?)
}

#[dyad::main]
fn main() -> Result<()> {
    let home = isa();
    println!("hello from {home}, node {}", node());

    let there = sum(100, home.other())?;
    println!("the sum of 1 to 100 is {there}, says {}", isa());
    let away = isa();

    migrate(home)?;
    println!("back on {}", isa());

    // A run is good if every check passes.
    let hopped = away != home && isa() == home;
    dyad::report::check("@NAME@.hop", hopped, "there and back");
    dyad::report::check("@NAME@.sum", there == 5050, format_args!("{there} of 5050"));
    Ok(())
}
