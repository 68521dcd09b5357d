//! The victim: a program that checks itself, and a service.
//!
//! Its first thread goes round: memory, table, messages, and what its service answers. The service does
//! the same with the stack that it runs on. What is wrong goes to the report page, which the warden reads.

use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, INTROSPECT, ReceiveOp, SendOp, ThreadOp};
use dyad_services::rt::Call;

use crate::me::{call, here, invoke};
use crate::shared::{
    CLIENT, MAILBOX, OWNER, SECRET, SECRET_WORD, SERVICE, SHOWN, SHOWN_WORD, answer, at,
    call as ask, duty, found, report, state, word, word_of, wrong,
};

/// Words of memory that nobody else may change.
static PATTERN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// What the slots of its table were at the start.
static SLOTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// In `SLOTS`: nothing is there.
const EMPTY: u64 = u64::MAX;
/// Its own way to its service.
const OWN_SERVICE: u32 = at::SERVICE;
/// A service of its own at home on another node, for `duty::CROSS`.
pub const FAR_SERVICE: u32 = at::SERVICE + 1;
/// A sending end, for `duty::SEND`.
pub const SEND: u32 = at::SERVICE + 2;

const fn pattern(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95)
}

fn slot(i: usize) -> u64 {
    call(i as u32, INTROSPECT, [0; 5]).unwrap_or(EMPTY)
}

/// The life of the victim's first thread.
pub fn live() -> ! {
    for (i, w) in PATTERN.iter().enumerate() {
        w.store(pattern(i), Relaxed);
    }
    for (i, s) in SLOTS.iter().enumerate().skip(1) {
        s.store(slot(i), Relaxed);
    }
    for i in 0..512 {
        word_of(SHOWN, i).store(SHOWN_WORD, Relaxed);
    }
    report(word::STATE).store(state::AT_WORK, Release);
    let mut round = 0;
    loop {
        round += 1;
        check(round);
        match report(word::DUTY).load(Acquire) {
            duty::SEND => send(),
            duty::CROSS => cross(round),
            _ => {}
        }
        report(word::ROUNDS).store(round, Release);
        if call(at::THREAD, ThreadOp::Yield as u32, [0; 5]).is_err() {
            found(wrong::REFUSED, 1);
        }
    }
}

fn check(round: u64) {
    if let Some(i) = (0..PATTERN.len()).find(|&i| PATTERN[i].load(Relaxed) != pattern(i)) {
        found(wrong::MEMORY, i as u64);
    }
    if let Some(i) = (0..512).find(|&i| word_of(SHOWN, i).load(Relaxed) != SHOWN_WORD) {
        found(wrong::MEMORY, 0x1000 + i as u64);
    }
    if word_of(SECRET, 0).load(Relaxed) != SECRET_WORD || word_of(SECRET, 1).load(Relaxed) != 0 {
        found(wrong::MEMORY, 0x2000);
    }
    if let Some(i) = (1..SLOTS.len()).find(|&i| slot(i) != SLOTS[i].load(Relaxed)) {
        found(wrong::TABLE, i as u64);
    }
    // Messages: only what the warden expects for this case.
    match call(at::ENDPOINTS, ReceiveOp::Receive as u32, [0, 1, 0, 0, 0]) {
        Ok(bits) if bits & !report(word::EXPECTED).load(Relaxed) == 0 => {}
        Ok(bits) if bits >> 32 != 0 => found(wrong::EVENT, bits),
        Ok(bits) => found(wrong::MESSAGE, bits),
        Err(e) => found(wrong::REFUSED, e.code()),
    }
    let (a, b) = (round, round ^ 0x55);
    match invoke(OWN_SERVICE, [ask::ECHO, a, b, 0]) {
        Ok([0, value, ..]) if value == answer(a, b) => {}
        Ok([status, ..]) => found(wrong::ANSWER, status),
        Err(e) => found(wrong::REFUSED, e.code()),
    }
}

/// Sends, and looks whether somebody has run in the middle of that.
fn send() {
    let count = word_of(MAILBOX, word::COUNT);
    let before = count.load(Acquire);
    let sent = call(SEND, SendOp::Send as u32, [0; 5]);
    let after = count.load(Acquire);
    if sent.is_ok() {
        report(word::NOTES).fetch_add(1, Relaxed);
        report(word::NOTES + 1).fetch_add((after != before).into(), Relaxed);
    }
}

/// Invokes its service on another node: that must always come back with the right answer.
fn cross(round: u64) {
    match invoke(FAR_SERVICE, [ask::ECHO, round, 3, 0]) {
        Ok([0, value, ..]) if value == answer(round, 3) => {
            report(word::NOTES).fetch_add(1, Relaxed);
        }
        Ok([status, ..]) => found(wrong::ANSWER, 0x100 | status),
        // Nobody is told more than that it may be tried again.
        Err(Error::Again | Error::Full) => {
            report(word::NOTES + 1).fetch_add(1, Relaxed);
        }
        Err(e) => found(wrong::REFUSED, 0x100 | e.code()),
    }
}

/// What the victim's service does.
pub fn serve(call: Call) -> [u64; 4] {
    if ![OWNER, CLIENT].contains(&call.badge) || call.badge & SERVICE == 0 {
        found(wrong::BADGE, call.badge);
    }
    if call.badge != OWNER {
        report(word::CALLS).fetch_add(1, Relaxed);
    }
    let home = report(word::HOME).load(Relaxed);
    if home != 0 && home & 1 << here().0 == 0 {
        found(wrong::HOME, here().0);
    }
    let [what, a, b, _] = call.words;
    match what {
        ask::ECHO => [0, answer(a, b), 0, 0],
        ask::WORK => {
            labour(call.token, a.min(1 << 20));
            if home != 0 && home & 1 << here().0 == 0 {
                found(wrong::HOME, here().0);
            }
            [0, call.token, 0, 0]
        }
        ask::SECRET if call.badge == OWNER => [0, SECRET_WORD, 0, 0],
        ask::SECRET => [Error::Denied.code(), 0, 0, 0],
        ask::COPY => {
            copies();
            [0; 4]
        }
        _ => [Error::BadArgument.code(), 0, 0, 0],
    }
}

/// Works on its stack for a while, and finds there what it has put there.
fn labour(token: u64, rounds: u64) {
    let stack: [AtomicU64; 64] = core::array::from_fn(|i| AtomicU64::new(mark(token, i)));
    for n in 0..rounds as usize {
        let w = &black_box(&stack)[n % 64];
        if w.load(Relaxed) != mark(token, n % 64) {
            found(wrong::STACK, token);
            return;
        }
        w.store(mark(token, n % 64), Relaxed);
    }
    if let Some(i) = (0..64).find(|&i| stack[i].load(Relaxed) != mark(token, i)) {
        found(wrong::STACK, token << 8 | i as u64);
    }
}

const fn mark(token: u64, i: usize) -> u64 {
    token << 32 | 0x5a00 | i as u64
}

/// Copies memory forwards: with the direction flag of a client on, that goes the wrong way.
fn copies() {
    let mut from = [0u64; 128];
    for (i, w) in from.iter_mut().enumerate() {
        *w = i as u64 + 1;
    }
    let mut to = [0u64; 128];
    black_box(&mut to).copy_from_slice(black_box(&from));
    if black_box(&to) != black_box(&from) {
        found(wrong::FLAGS, 0);
    }
}

/// Slot 0 of every table stays empty.
const _: () = assert!(CapIndex::NONE.get() == 0);
