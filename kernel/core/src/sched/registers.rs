//! All registers of a thread, as the words that `Unload` and `Load` exchange with programs.

use dyad_abi::Isa;
use dyad_abi::emulation::{FLOAT_WORDS, GENERAL, WORDS, general, stack_pointer};
use dyad_abi::user::USER_MIN;

use crate::sched::fp;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{FP_WORDS, REG_WORDS, Thread, begun};

/// The number of words of a page before the floating-point words.
pub const GENERAL_WORDS: usize = 4 + GENERAL;

// What `Load` brings along fits into a thread's frame.
const _: () = assert!(GENERAL_WORDS <= REG_WORDS && FLOAT_WORDS <= FP_WORDS);

/// Sets all registers of a thread of this CPU. The thread has nothing in the floating-point registers.
pub(crate) fn set_all<P: Platform>(cx: &KernelCtx, t: &Thread, words: &[u64; WORDS]) {
    let area = t.regs(P::ISA);
    let count = general(P::ISA);
    let [_, pc, flags, tp, ..] = *words;
    let sp = words[4 + stack_pointer(P::ISA)];
    // Whatever is no register is as at the start.
    P::init_regs(area, pc, USER_MIN, 0, tp);
    for (n, &word) in words[4..4 + count].iter().enumerate() {
        P::write_register(area, n as u64, word);
    }
    P::write_register(area, count as u64 + 1, flags);
    P::write_register(area, count as u64 + 2, tp);
    P::set_user_pc_sp(area, pc, sp);
    let mut float = [0; FLOAT_WORDS];
    float.copy_from_slice(&words[GENERAL_WORDS..]);
    fp::renew_all(t);
    fp::give::<P>(cx.local, t, &float);
    // What it was doing on the other ISAs is over.
    for isa in Isa::ALL {
        t.set_begun(
            isa,
            if isa == P::ISA {
                begun::HERE
            } else {
                begun::NOT
            },
        );
    }
}
