//! What an attacker does: calls, and what it makes of their results.

#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::cap::{COPY, CapIndex, CaptblOp, HardwareOp, Rights, ThreadOp, call_word};
use dyad_abi::user::Where;
use dyad_abi::{Error, Isa};
use dyad_sys::raw;

use crate::shared::{at, report, state, word};

/// Makes a call.
pub fn call(cap: u32, operation: u32, args: [u64; 5]) -> Result<u64, Error> {
    let word = call_word(CapIndex(cap), operation);
    // SAFETY: 1. Attackers call with what they like: what the kernel does to their own component is the
    // attacker's, and what it does to others is the test. 2. Cases hand no address of live data to
    // operations that write, but that of a buffer.
    let r = unsafe { raw::call_raw(word, args) };
    match r.status {
        0 => Ok(r.value),
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}

/// Invokes with four words: the four words of the answer.
pub fn invoke(cap: u32, words: [u64; 4]) -> Result<[u64; 4], Error> {
    let mut reply = [0; 4];
    match raw::invoke(call_word(CapIndex(cap), 0), words, &mut reply) {
        0 => Ok(reply),
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}

/// Says that something has succeeded that must not.
pub fn achieved(line: u32, value: u64) {
    if report(word::ACHIEVED).fetch_add(1, Relaxed) == 0 {
        report(word::ACHIEVED_AT).store(line.into(), Relaxed);
        report(word::ACHIEVED_AT + 1).store(value, Relaxed);
    }
}

/// Says that something was refused with another error than it must be, or was refused and must not be.
pub fn odd(line: u32, status: u64) {
    if report(word::ODD).fetch_add(1, Relaxed) == 0 {
        report(word::ODD_AT).store(line.into(), Relaxed);
        report(word::ODD_AT + 1).store(status, Relaxed);
    }
}

/// Counts an attempt.
pub fn tried() {
    report(word::TRIES).fetch_add(1, Relaxed);
}

/// An attempt that must be refused with one of these errors.
pub fn refused<T: Into<u64>>(line: u32, result: Result<T, Error>, with: &[Error]) {
    tried();
    match result {
        Ok(value) => achieved(line, value.into()),
        Err(e) if with.contains(&e) => {}
        Err(e) => odd(line, e.code()),
    }
}

/// A step of the attacker's own that must succeed, for the attack to be one.
pub fn works<T: Default>(line: u32, result: Result<T, Error>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => {
            odd(line, e.code());
            T::default()
        }
    }
}

/// An attempt that must be refused: with one of these errors.
#[macro_export]
macro_rules! refuse {
    ($result:expr, $($e:ident)|+) => {
        $crate::me::refused(line!(), $result, &[$(dyad_abi::Error::$e),+])
    };
}

/// A step of the attacker's own that must succeed.
#[macro_export]
macro_rules! work {
    ($result:expr) => {
        $crate::me::works(line!(), $result)
    };
}

/// A step that is tried again as long as it is refused with `Again` or `NotReady`, while others run.
pub fn patient<T>(mut step: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..200_000 {
        match step() {
            Err(Error::Again | Error::NotReady) => yield_now(),
            done => return done,
        }
    }
    Err(Error::TimedOut)
}

/// Calls a function at an address.
pub fn run_code(va: u64) -> u64 {
    // SAFETY: 1. Not safe: where nothing may be executed the thread faults and ends, which is the attack; otherwise the
    // attacker has put a function of this kind there, for this ISA, that changes no register but that of its result.
    let function: extern "C" fn() -> u64 = unsafe { core::mem::transmute(va as usize) };
    function()
}

/// A word for the case.
pub fn note(n: usize) -> &'static core::sync::atomic::AtomicU64 {
    report(word::NOTES + n)
}

/// Has the warden do the case's next step, and waits for that.
pub fn step() {
    let n = report(word::ASK).load(Relaxed) + 1;
    report(word::ASK).store(n, Release);
    while report(word::ANSWER).load(Acquire) != n {
        yield_now();
    }
}

/// Gives the CPU back.
pub fn yield_now() {
    let _ = call(at::THREAD, ThreadOp::Yield as u32, [0; 5]);
}

/// Ends the attacker's first thread.
pub fn done() -> ! {
    report(word::STATE).store(state::DONE, Release);
    loop {
        let _ = call(at::THREAD, ThreadOp::Exit as u32, [0; 5]);
    }
}

/// Fused time.
pub fn now() -> u64 {
    call(at::hardware(0), HardwareOp::Now as u32, [0; 5]).unwrap_or(0)
}

/// Where this code runs.
pub fn here() -> (u64, Isa) {
    let bits = call(at::hardware(0), HardwareOp::Where as u32, [0; 5]).unwrap_or(0);
    Where::unpack(bits).map_or((0, Isa::X86_64), |w| (w.node.index() as u64, w.isa))
}

/// Nodes of the system.
pub fn nodes() -> u64 {
    report(word::NODES).load(Relaxed)
}

/// CPUs of a node.
pub fn cpus() -> u64 {
    report(word::CPUS).load(Relaxed)
}

/// Copies a capability of the attacker to a slot of its own table, which it must have.
pub fn copy(to: u32, from: u32, rights: Rights) -> Result<u64, Error> {
    let args = [to.into(), from.into(), rights.0.into(), 0, 0];
    call(at::TABLE, CaptblOp::CopyIn as u32, args)
}

/// All rights but one.
pub const fn without(right: Rights) -> Rights {
    Rights(!right.0)
}

/// Every right of a type but that to copy.
pub const NO_COPY: Rights = Rights(!(1 << COPY));

/// A place in the attacker's own table.
pub const fn place(index: u32) -> u64 {
    (at::TABLE as u64) << 32 | index as u64
}

pub use dyad_random::mix;
