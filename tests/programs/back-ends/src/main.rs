//! A plain program that does what back ends could take for something else on each ISA.
//!
//! `cargo xtask run --app back-ends`. Each scene is played on the ISA where the thread starts, on the other one,
//! and moving in the middle.
//!
//! | check | what happens |
//! |---|---|
//! | `back-ends.tables` | functions that move are called through pointers of another type that Rust promises to be passed alike |
//! | `back-ends.floats` | minima, maxima and choices of zeros, infinities and NaNs are what a computation on bits says |
//! | `back-ends.depth` | a thread moves from any depth of calls, or is refused with `TooDeep`; then it calls on |
#![no_std]
#![no_main]

mod depth;
mod floats;
mod tables;

use dyad::prelude::thread::*;
use dyad::report;
pub use dyad_random::hash as mix;

/// Moves to the other ISA.
///
/// # Errors
///
/// Why it did not.
pub fn go() -> Result<(), dyad::sys::Error> {
    dyad::thread::migrate(isa().other())
}

#[dyad::main]
fn main() -> Result<()> {
    let (tables, floats) = (tables::play(), floats::play());
    let mut good = report::check(
        "back-ends.tables",
        tables.is_ok(),
        format_args!("{tables:?}"),
    );
    good &= report::check(
        "back-ends.floats",
        floats.is_ok(),
        format_args!("{floats:?}"),
    );
    good &= depth::play()?;
    match good {
        true => Ok(()),
        false => Err(Error::msg("a scene went wrong")),
    }
}
