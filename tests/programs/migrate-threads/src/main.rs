//! Ordinary Rust on plain threads that change their ISA while it runs, and must not notice.
//!
//! | `--what` | |
//! |---|---|
//! | `constructs` | what programs are made of, one construct after the other: [`constructs`] |
//! | `implicit` | points that no source line names: [`implicit`] |
//!
//! Each has options of its own.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod constructs;
mod implicit;
mod schedule;

use dyad::prelude::thread::*;

#[dyad::main(points = "syscalls")]
fn main(args: Args) -> Result<()> {
    const WHAT: [&str; 2] = ["constructs", "implicit"];
    match args.one_of("--what", &WHAT, "constructs")? {
        "implicit" => implicit::main(&args),
        _ => constructs::main(&args),
    }
}
