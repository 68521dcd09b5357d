//! The victim's services: the same code in two components. They check themselves in every call.
//!
//! There are no locks: a caller whose thread is stopped in the middle holds up nobody.

use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use dyad_abi::cap::{CapIndex, HardwareOp, INTROSPECT, SinvOp, call_word};
use dyad_abi::user::Where;
use dyad_services::rt::Call;
use dyad_sys::raw;

use crate::plan::{
    PRIVATE, PRIVATE_PAGES, PROOF, SIDES, answer, ask, at, badge, found, pattern, report, word,
    word_of, wrong,
};

/// What the slots of the component's table were at the first look, and 1; 0: nobody has looked.
static SLOTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Numbers of calls, so that no two have the same.
static NUMBERS: AtomicU64 = AtomicU64::new(0);
/// Words of a stack that a call fills.
const FILLED: usize = 32;

/// A call of a kernel operation that takes no address.
fn call(cap: CapIndex, operation: u32, args: [u64; 5]) -> Result<u64, u64> {
    // SAFETY: 1. No operation that is called here takes an address, or memory away.
    #[allow(unsafe_code)]
    let r = unsafe { raw::call_raw(call_word(cap, operation), args) };
    match r.status {
        0 => Ok(r.value),
        e => Err(e),
    }
}

/// Node on which this runs.
fn here() -> Option<u64> {
    let bits = call(at::hardware(0), HardwareOp::Where as u32, [0; 5]).ok()?;
    Some(Where::unpack(bits)?.node.index() as u64)
}

fn check_home() {
    let home = report(word::HOME).load(Relaxed);
    if home != 0 && here().is_none_or(|node| home & 1 << node == 0) {
        found(wrong::HOME, here().unwrap_or(u64::MAX));
    }
}

/// Whether private memory and table are as they were: a part at each turn.
pub fn check_self(turn: u64) {
    let page = turn % PRIVATE_PAGES * 512;
    if let Some(i) = (page..page + 512)
        .find(|&i| word_of(PRIVATE + i / 512 * 4096, i as usize).load(Relaxed) != pattern(i))
    {
        found(wrong::MEMORY, i);
    }
    if word_of(PROOF, 1).load(Relaxed) != 0 {
        found(wrong::BROKEN, word_of(PROOF, 1).load(Relaxed));
    }
    let first = turn % 4 * 16;
    for i in first.max(1)..first + 16 {
        let is = call(CapIndex(i as u32), INTROSPECT, [0; 5]).map_or(1, |v| v.wrapping_add(2));
        let was = &SLOTS[i as usize];
        let known = was.compare_exchange(0, is, AcqRel, Acquire);
        if known.is_err_and(|known| known != is) {
            found(wrong::TABLE, i);
        }
    }
}

/// Serves a call.
pub fn serve(call: Call) -> [u64; 4] {
    check_home();
    let [what, a, b, _] = call.words;
    let (kind, n) = (call.badge & !0xffff, call.badge & 0xffff);
    let is_victim = kind == badge::victim(0) && n < SIDES;
    if !is_victim && (kind != badge::attacker(0) || n >= SIDES) {
        found(wrong::BADGE, call.badge);
    }
    report(word::CALLS + usize::from(!is_victim)).fetch_add(1, Relaxed);
    match what {
        ask::NEXT if is_victim => {
            check_self(a);
            let last = report(word::last(n)).swap(a, AcqRel);
            if last + 1 != a {
                found(wrong::SEQUENCE, last << 32 | a & 0xffff_ffff);
            }
            labour(64);
            [0, answer(a, b), call.badge, 0]
        }
        ask::WORK => {
            labour(a.min(1 << 15));
            check_home();
            [0, call.token, 0, 0]
        }
        ask::DEEPER => {
            let mut depth = 0;
            if a > 0 {
                let word = call_word(at::SERVICE, SinvOp::Invoke as u32);
                let r = raw::invoke1(word, [ask::DEEPER, (a - 1).min(64), 0, 0]);
                depth = r.status;
            }
            labour(16);
            [0, depth, 0, 0]
        }
        _ => [2, 0, 0, 0],
    }
}

const fn mark(number: u64, i: usize) -> u64 {
    number << 16 | 0x5a << 8 | i as u64
}

/// Works on its stack, with the secret in registers, and finds on the stack what it has put there. Two threads on one
/// stack find marks of each other: no two calls have the same number.
pub fn labour(rounds: u64) {
    let number = NUMBERS.fetch_add(1, Relaxed) + 1;
    let stack: [AtomicU64; FILLED] = core::array::from_fn(|i| AtomicU64::new(mark(number, i)));
    let secret = word_of(PROOF, 0).load(Relaxed);
    let mut held = secret;
    for n in 0..rounds {
        let i = n as usize % FILLED;
        let w = &black_box(&stack)[i];
        let is = w.load(Relaxed);
        if is != mark(number, i) {
            found(wrong::STACK, is);
            return;
        }
        w.store(is, Relaxed);
        held = black_box(held);
    }
    if held != secret {
        found(wrong::REGISTER, rounds);
    }
}
