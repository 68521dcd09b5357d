//! A client of `tally`.
#![no_std]
#![no_main]

use dyad::prelude::task::*;
use dyad::sys::cap::{Cap, CapIndex, Sinv};

/// Where init has put the capability.
const TALLY: Cap<Sinv> = Cap::at(CapIndex(64));
const ADD: u64 = 1;

#[dyad::task]
async fn main() -> Result<()> {
    let mut sum = 0;
    for n in 1..=10 {
        sum = TALLY.request([ADD, n, 0, 0])?;
    }
    println!("the sum is {sum}, by {} on node {}", isa(), node());
    Ok(())
}
