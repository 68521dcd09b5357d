//! Calls of functions that are on the other ISA only, from here; and from there, of functions that are
//! on this ISA only.
//!
//! | figure of `crossing_call_round_trip` and `crossing_call_round_trip_reverse` | what |
//! |---|---|
//! | `kernel_op` | the operation whose windows it is: kernels mark the ends that programs cannot see |
//! | `n`, `ns` | calls by the clock |

use dyad::prelude::task::*;
use dyad::sys::marker;
use dyad_abi::marker::{BenchMemory, BenchOp};

use crate::figures::{Direction, nanos};

/// Repetitions that do not count.
const WARM_UP: u64 = 8;
const OP: BenchOp = BenchOp::CrossingCallRoundTrip;
const BEGIN: u16 = OP.part(BenchMemory::Fused, 0).0;
const END: u16 = OP.part(BenchMemory::Fused, 2).0;

type Function = extern "C" fn(u64) -> u64;

/// A call. Nothing else is in the windows.
#[inline(never)]
fn call(function: Function, n: u64) -> u64 {
    marker::begin::<BEGIN>();
    let n = function(n);
    marker::end::<END>();
    n
}

/// So many calls in windows, and as many by the clock; how long those took, or nothing if one has
/// given what it should not.
#[inline(never)]
fn calls(function: Function, times: u64) -> u64 {
    let mut wrong = 0;
    for n in 0..WARM_UP + times {
        if n == WARM_UP {
            marker::forget::<BEGIN>();
            marker::forget::<END>();
        }
        wrong += u64::from(call(function, n) != n);
    }
    let start = Instant::now();
    for n in 0..times {
        wrong += u64::from(function(n) != n);
    }
    let took = nanos(start.elapsed());
    if wrong == 0 { took } else { 0 }
}

macro_rules! side {
    ($isa:ident, $other:ident) => {
        mod $isa {
            /// Gives back what it is given.
            #[dyad::isa($isa)]
            pub extern "C" fn null(n: u64) -> u64 {
                n
            }

            /// Calls of the other side's.
            #[dyad::isa($isa)]
            pub extern "C" fn calls(times: u64) -> u64 {
                super::calls(super::$other::null, times)
            }
        }
    };
}

side!(x86_64, aarch64);
side!(aarch64, x86_64);

/// From here, and from the other side.
pub fn measure(direction: &Direction, times: u32) -> Result<()> {
    let (null, back): (Function, Function) = match direction.isa {
        Isa::X86_64 => (aarch64::null, aarch64::calls),
        Isa::Aarch64 => (x86_64::null, x86_64::calls),
    };
    let times = times.into();
    let there = Direction {
        isa: direction.isa.other(),
        ..*direction
    };
    for (direction, op, took) in [
        (*direction, "crossing_call_round_trip", calls(null, times)),
        (there, "crossing_call_round_trip_reverse", back(times)),
    ] {
        if took == 0 {
            return Err(Error::msg("a call has given what it should not"));
        }
        direction.figure(op, "kernel_op", OP as u64);
        direction.took(op, times, Duration::from_nanos(took));
    }
    Ok(())
}
