//! Loads that may be stale, and are listed for it: see [`dyad_shm::permitted`].
//!
//! A load is one instruction, as it would be without the list; its address and the reason go to a
//! section of the image that is not loaded. A function that is compiled into several places has an
//! entry for each.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

/// Loads a word from whatever copy this node has. `order` is `Relaxed` or `Acquire`; `WHY` is the
/// number of a [`Permitted`](dyad_shm::permitted::Permitted).
#[inline(always)]
pub fn load_permitted<const WHY: u32>(word: &AtomicU64, order: Ordering) -> u64 {
    cpu::load::<WHY>(word, order)
}

#[cfg(target_os = "none")]
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

#[cfg(not(target_os = "none"))]
mod cpu {
    use core::sync::atomic::{AtomicU64, Ordering};

    #[inline(always)]
    pub(super) fn load<const WHY: u32>(word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }
}
