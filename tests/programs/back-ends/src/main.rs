//! A plain program that does what back ends could take for something else on each ISA.
//!
//! `cargo xtask run --app back-ends`. Each scene is played on the ISA where the thread starts, on the other one,
//! and moving in the middle.
//!
//! | check | what happens |
//! |---|---|
//! | `back-ends.tables` | functions that move are called through pointers of another type that Rust promises to be passed alike |
//! | `back-ends.builders` | methods that return what they are called on, around calls that move |
//! | `back-ends.floats` | minima, maxima and choices of zeros, infinities and NaNs are what a computation on bits says |
//! | `back-ends.tasks` | in a task, whose executor is on the spine then, a plain move is refused, and nothing has moved |
//! | `back-ends.depth` | a thread moves from any depth of calls, or is refused with `TooDeep`; then it calls on |
#![no_std]
#![no_main]

mod builders;
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
    let builders = builders::play();
    good &= report::check(
        "back-ends.builders",
        builders.is_ok(),
        format_args!("{builders:?}"),
    );
    good &= depth::play()?;
    dyad::task::run(stays(good))
}

/// A task does not move as a plain thread.
async fn stays(mut good: bool) -> Result<()> {
    let before = (isa(), dyad::node());
    let refused = go();
    dyad::thread::migrate_point();
    let after = (isa(), dyad::node());
    let really = dyad::sys::where_am_i()?.node;
    good &= report::check(
        "back-ends.tasks",
        refused == Err(dyad::sys::Error::Denied) && before == after && really == after.1,
        format_args!("{refused:?}, from {before:?} to {after:?}, on {really}"),
    );
    match good {
        true => Ok(()),
        false => Err(Error::msg("a scene went wrong")),
    }
}
