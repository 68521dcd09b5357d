//! What interpreted threads may do, too: call functions of the other ISA, come to points that they cannot
//! leave from, and lose the request by which they would leave.

use core::hint::black_box;

use dyad::crossing::{Policy, policy};
use dyad::emulation::{self, Progress, refused, status};
use dyad::prelude::thread::*;
use dyad::{report, sys, thread};

use crate::strange::until_emulated;
use crate::trip::other_node;
use crate::work;

/// Points that a thread may come to before it has landed.
const POINTS: u64 = 100_000;

/// What functions of one ISA give: that of something that both ISAs compute, and where they ran.
fn given(words: &[u64; 4], real: f64, isa: Isa) -> u64 {
    let sum = words
        .iter()
        .fold(real.to_bits(), |h, w| h.rotate_left(7) ^ w);
    sum ^ isa as u64
}

#[dyad::isa(x86_64)]
extern "C" fn on_x86_64(words: &[u64; 4], real: f64) -> u64 {
    given(words, real, dyad::isa())
}

#[dyad::isa(aarch64)]
extern "C" fn on_aarch64(words: &[u64; 4], real: f64) -> u64 {
    given(words, real, dyad::isa())
}

/// The one that does not run on `isa`.
fn elsewhere(isa: Isa) -> extern "C" fn(&[u64; 4], f64) -> u64 {
    match isa {
        Isa::X86_64 => on_aarch64,
        Isa::Aarch64 => on_x86_64,
    }
}

/// A function that is entered from outside, as far as the build knows: no thread can move below it.
#[allow(unsafe_code, reason = "the name is this program's only")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn drift_entered_from_outside(seed: u64) -> u64 {
    let before = work::registers(seed, 50);
    dyad::thread::migrate_point();
    before ^ work::registers(seed ^ 1, 50)
}

fn now() -> Result<Progress> {
    Ok(emulation::progress().ok_or(sys::Error::NotReady)?)
}

/// Whether it is native where it was, for that reason.
fn is_back(at: (NodeId, Isa), why: u64) -> Result<bool> {
    let p = now()?;
    println!("on {}: it {p}", at.1);
    // Nothing is left of the request.
    dyad::thread::migrate_point();
    let native = (dyad::node(), dyad::isa()) == at && sys::where_am_i()?.node == at.0;
    Ok(native && p.status == status::BACK && p.outcome == why && p.steps > 0)
}

/// A function of the other ISA is called while the thread is interpreted there.
fn crosses(at: (NodeId, Isa), to: NodeId) -> Result<bool> {
    let (words, real) = (black_box([3, 5, 8, 13]), black_box(2.5));
    until_emulated(to)?;
    let got = elsewhere(at.1)(&words, real);
    let good = got == given(&words, real, at.1.other()) && words == [3, 5, 8, 13];
    Ok(is_back(at, refused::CROSSING)? && good)
}

/// The same, if the thread wants it to run where it is: that is the code that is interpreted. Goes to the
/// other node and comes back.
fn does_not_cross(at: (NodeId, Isa), to: NodeId) -> Result<bool> {
    let (words, real) = (black_box([3, 5, 8, 13]), black_box(2.5));
    let before = policy(Policy::Local);
    until_emulated(to)?;
    let got = elsewhere(at.1)(&words, real);
    let mut good = got == given(&words, real, at.1) && now()?.status == status::EMULATED;
    dyad::thread::migrate_point();
    good &= now()?.status == status::LANDED && dyad::node() == to;
    policy(before);
    thread::migrate_to(at.0)?;
    Ok(good)
}

/// A point below a function that is entered from outside.
fn outside(at: (NodeId, Isa), to: NodeId) -> Result<bool> {
    let expected = work::registers(9, 50) ^ work::registers(8, 50);
    until_emulated(to)?;
    let good = drift_entered_from_outside(9) == expected;
    Ok(is_back(at, refused::POINT)? && good)
}

/// The request is taken back while the thread is interpreted. Goes to the other node and comes back.
fn withdrawn(at: (NodeId, Isa), to: NodeId) -> Result<bool> {
    until_emulated(to)?;
    let mut good = thread::withdraw_migration(thread::current())? == Some(to);
    let mut points = 0;
    while now()?.status == status::EMULATED && points < POINTS {
        good &= work::registers(3, 50) == work::registers(3, 50);
        points += 1;
        dyad::thread::migrate_point();
    }
    println!("on {}: it has landed at point {points}", at.1);
    good &= now()?.status == status::LANDED && dyad::node() == to && points > 1;
    thread::migrate_to(at.0)?;
    Ok(good)
}

/// What is done from both ISAs; whether it went well.
type Case = fn((NodeId, Isa), NodeId) -> Result<bool>;

/// All of it, from both ISAs.
pub fn all() -> Result<()> {
    let cases: [(&str, &[Case]); 3] = [
        ("emulate-threads.crosses", &[crosses, does_not_cross]),
        ("emulate-threads.outside", &[outside]),
        ("emulate-threads.withdrawn", &[withdrawn]),
    ];
    let mut good = [0; 3];
    for round in 0..2 {
        let (at, to) = ((dyad::node(), dyad::isa()), other_node()?);
        for (good, (_, cases)) in good.iter_mut().zip(cases) {
            for case in cases {
                *good += usize::from(case(at, to)?);
            }
        }
        if round == 0 {
            thread::migrate_to(to)?;
        }
    }
    for (good, (name, cases)) in good.into_iter().zip(cases) {
        let all = 2 * cases.len();
        report::check(name, good == all, format_args!("{good} of {all}"));
    }
    Ok(())
}
