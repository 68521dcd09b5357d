//! `tally`: adds numbers up, for each client apart. The service of the book's page on services.
#![no_std]
#![no_main]

use dyad::service::{Call, Lock, Reply};
use dyad::sys::Error;

/// `(n)`: adds n. Value: the sum so far.
const ADD: u64 = 1;
/// Value: the sum so far.
const SUM: u64 = 2;
/// Clients that there can be.
const CLIENTS: usize = 32;

static SUMS: Lock<[u64; CLIENTS]> = Lock::new([0; CLIENTS]);

fn tally(call: Call) -> Reply {
    // Who asks is in the badge of the capability, which the client cannot change.
    let client = usize::try_from(call.badge).map_err(|_| Error::Denied)?;
    // A thread that was stopped in here must not stop the others.
    let mut sums = SUMS.try_lock().ok_or(Error::Again)?;
    let sum = sums.get_mut(client).ok_or(Error::Denied)?;
    match call.words {
        [ADD, n, ..] => *sum = sum.checked_add(n).ok_or(Error::TooLarge)?,
        [SUM, ..] => {}
        _ => return Err(Error::BadArgument),
    }
    Ok(*sum)
}

dyad::service!(tally);

#[dyad::task]
async fn main() {
    // It works on the threads of those who invoke it, and has none of its own.
}
