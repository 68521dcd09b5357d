//! Calls as they leave the program, and what may come back.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Error::{self, *};
use dyad_abi::cap::{CapIndex, CapType, ReceiveOp, SinvOp, call_word};
use dyad_sys::raw;

use crate::actor::Actor;
use crate::deaths;
use crate::world::FIRST;

/// Results by status; what is beyond the last error counts as the last.
pub static STATUSES: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];
/// Results that must not be.
pub static WRONG: AtomicU64 = AtomicU64::new(0);
/// Wrong results that are kept for people.
const KEPT: usize = 8;
/// Words of one: type, call word, arguments, status, value.
pub const WORDS: usize = 9;
/// The wrong results that are kept.
pub static LINES: [[AtomicU64; WORDS]; KEPT] =
    [const { [const { AtomicU64::new(0) }; WORDS] }; KEPT];

const fn bits(errors: &[Error]) -> u64 {
    let (mut bits, mut i) = (0, 0);
    while i < errors.len() {
        bits |= 1 << errors[i] as u64;
        i += 1;
    }
    bits
}

/// What any call may return: success, and what is about the capabilities that it names.
const ANY: u64 = 1 | bits(&[BadSyscall, BadArgument, NoCap, WrongCap, Denied, Revoked]);
/// What may be in a slot that is to be written.
const SLOT: u64 = bits(&[Exists, Again, NotFound]);

/// What operations on a type of capability may return.
const fn may(ty: CapType) -> u64 {
    ANY | match ty {
        CapType::Captbl => SLOT,
        CapType::PageTable | CapType::Frame | CapType::ThreadIds => 0,
        CapType::Space => {
            SLOT | bits(&[
                BadAddress, NoMemory, NoIsa, Full, NoSuchNode, TooLarge, TimedOut, NotReady,
            ])
        }
        CapType::Component => SLOT | bits(&[BadAddress, NoSuchNode, NotReady]),
        // NodeDead: a thread that has ended within an invocation is resumed no more.
        CapType::Thread => bits(&[
            NotReady, Again, BadAddress, NoSuchNode, NoIsa, NoTime, TooDeep, Full, Exists, NodeDead,
        ]),
        CapType::Sinv => bits(&[TooDeep, NotReady, NoIsa, Full, Again, NotFound]),
        CapType::Send => bits(&[NotReady, Again, TooDeep]),
        CapType::Receive => SLOT | bits(&[NoSuchNode, NotReady]),
        CapType::Memory => SLOT | bits(&[TooLarge, NotReady]),
        CapType::Time => bits(&[NoTime, Again]),
        CapType::Hardware => bits(&[NotReady, NoSuchNode, Again, BadAddress, TooLarge]),
        CapType::Liveness => bits(&[Again]),
    }
}

/// Operations on other types that have the number of `Receive` may hit endpoints, as slots change
/// under the generator, and must not wait there for a deadline that is none or hours away: the actor
/// would not be seen again. No endpoint has the number that such a call names instead; what is in the
/// past as a deadline may stay.
fn without_waiting(ty: CapType, operation: u64, args: [u64; 5]) -> [u64; 5] {
    const ENDPOINTS: u64 = 64;
    const PAST: u64 = 1 << 20;
    let [first, second, rest @ ..] = args;
    let receives = operation & 0xffff_ffff == ReceiveOp::Receive as u64 && ty != CapType::Receive;
    match receives && first < ENDPOINTS && !(1..PAST).contains(&second) {
        true => [first | ENDPOINTS, second, rest[0], rest[1], rest[2]],
        false => args,
    }
}

/// Makes a call on a capability of a type, and judges the result.
pub fn make(
    a: &Actor,
    ty: CapType,
    cap: CapIndex,
    operation: u64,
    args: [u64; 5],
) -> Result<u64, u64> {
    let args = without_waiting(ty, operation, args);
    let word = call_word(cap, 0) | operation << 32;
    for (to, w) in a.call.iter().zip([word].into_iter().chain(args)) {
        to.store(w, Ordering::Relaxed);
    }
    // SAFETY: 1. Slots are divided by type, and what generators choose stays within storm memory and
    // the window, in which this program has nothing. 2. No invocation goes this way.
    let r = unsafe { raw::call_raw(word, args) };
    judge(a, ty, word, args, r.status, r.value)
}

/// Invokes.
pub fn invoke(a: &Actor, cap: CapIndex, words: [u64; 4]) -> Result<u64, u64> {
    let word = call_word(cap, SinvOp::Invoke as u32);
    let r = raw::invoke1(word, words);
    let [w0, w1, w2, w3] = words;
    // A status that is not 0 comes with whatever the registers held.
    let value = if r.status == 0 { r.value } else { 0 };
    judge(a, CapType::Sinv, word, [w0, w1, w2, w3, 0], r.status, value)
}

fn judge(
    a: &Actor,
    ty: CapType,
    word: u64,
    args: [u64; 5],
    status: u64,
    value: u64,
) -> Result<u64, u64> {
    a.ops.fetch_add(1, Ordering::Relaxed);
    let at = (status as usize).min(STATUSES.len() - 1);
    STATUSES[at].fetch_add(1, Ordering::Relaxed);
    // The storm's slots may hold another type than was put there last; others are what they are.
    let expected = match word & 0xffff_ffff < FIRST.into() {
        true => may(ty),
        false => CapType::ALL.iter().fold(0, |all, &ty| all | may(ty)),
    };
    let expected = match deaths::are_expected() {
        true => expected | bits(&[NodeDead]),
        false => expected,
    };
    let known = status < 64 && expected & 1 << status != 0;
    if !known || (status != 0 && value != 0) {
        let n = WRONG.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(line) = LINES.get(n) {
            let [a0, a1, a2, a3, a4] = args;
            let words = [ty as u64, word, a0, a1, a2, a3, a4, status, value];
            for (to, w) in line.iter().zip(words) {
                to.store(w, Ordering::Relaxed);
            }
        }
    }
    match status {
        0 => Ok(value),
        e => Err(e),
    }
}
