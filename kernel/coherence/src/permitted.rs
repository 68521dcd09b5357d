//! Loads that may be stale, and are listed for it: see [`dyad_shm::permitted`].
//!
//! Kernels that are built for the sanitizer (feature `listed`) have a list of them: address of the load
//! and reason go to a section of the image that is not loaded. A function that is compiled into several
//! places has an entry for each. For that the load must be an instruction of its own, with its address in
//! a register, where compilers would often make it an operand of another one. In other kernels it is
//! an ordinary load and costs nothing.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

/// Loads a word from this node's copy. `order` is `Relaxed` or `Acquire`; `WHY` is the number of a
/// [`Permitted`](dyad_shm::permitted::Permitted).
#[inline(always)]
pub fn load_permitted<const WHY: u32>(word: &AtomicU64, order: Ordering) -> u64 {
    cpu::load::<WHY>(word, order)
}

#[cfg(all(target_os = "none", feature = "listed"))]
mod cpu {
    use core::arch::asm;
    use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

    /// The load, and an entry of [`SECTION`](dyad_shm::permitted::SECTION).
    macro_rules! listed {
        ($load:literal, $word:ident, $value:ident, $why:ident) => {
            asm!(
                concat!("7742: ", $load),
                ".pushsection .dyad.permitted,\"\",@progbits",
                ".quad 7742b",
                ".quad {why}",
                ".popsection",
                word = in(reg) $word.as_ptr(),
                value = lateout(reg) $value,
                why = const $why,
                options(nostack, preserves_flags, readonly)
            )
        };
    }

    #[inline(always)]
    pub(super) fn load<const WHY: u32>(word: &AtomicU64, order: Ordering) -> u64 {
        let value;
        // SAFETY: 1. It reads one aligned word, which the reference says can be read and others write
        // atomically: such a load is atomic, and acquires. 2. The directives put nothing into the code.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            listed!("mov {value}, qword ptr [{word}]", word, value, WHY);
        }
        #[cfg(target_arch = "aarch64")]
        if matches!(order, Ordering::Relaxed) {
            // SAFETY: 1. and 2. as on x86-64, but it does not acquire.
            unsafe { listed!("ldr {value}, [{word}]", word, value, WHY) };
        } else {
            // SAFETY: 1. and 2. as on x86-64.
            unsafe { listed!("ldar {value}, [{word}]", word, value, WHY) };
        }
        if !matches!(order, Ordering::Relaxed) {
            compiler_fence(Ordering::Acquire);
        }
        value
    }
}

#[cfg(not(all(target_os = "none", feature = "listed")))]
mod cpu {
    use core::sync::atomic::{AtomicU64, Ordering};

    #[inline(always)]
    pub(super) fn load<const WHY: u32>(word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }
}
