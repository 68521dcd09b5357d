//! The end of the machine: QEMU's debug-exit device.

use core::arch::asm;

use dyad_abi::record::x86_exit_value;

use crate::port;

const DEBUG_EXIT: u16 = 0xf4;

/// Ends the machine; QEMU's exit status tells the code.
pub fn exit(code: u32) -> ! {
    port::out32(DEBUG_EXIT, x86_exit_value(code));
    loop {
        // SAFETY: 1. the machine has no debug-exit device, or has not ended yet: nothing runs
        // here any more.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
