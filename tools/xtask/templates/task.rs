//! @NAME@: a program that runs on both ISAs.
//!
//! Run it with `cargo xtask run --app @APP@`.
#![no_std]
#![no_main]

use dyad::prelude::task::*;

#[dyad::task]
async fn main(_args: Args) -> Result<()> {
    let home = isa();
    println!("hello from {home}, node {}", node());

    // Whatever the task holds goes with it: it lies in the heap, at the same address everywhere.
    let numbers: Vec<u64> = (1..=100).collect();

    migrate(home.other()).await?;
    let sum: u64 = numbers.iter().sum();
    println!("the sum of 1 to 100 is {sum}, says {}", isa());
    let away = isa();

    migrate(home).await?;
    println!("back on {}", isa());

    // A run is good if every check passes.
    let hopped = away != home && isa() == home;
    dyad::report::check("@NAME@.hop", hopped, "there and back");
    dyad::report::check("@NAME@.sum", sum == 5050, format_args!("{sum} of 5050"));
    Ok(())
}
