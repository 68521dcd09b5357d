//! Ending the machine, with an exit status: semihosting.

use core::arch::asm;

use dyad_abi::record::aarch64_exit_value;

use crate::smp;

const SYS_EXIT_EXTENDED: u64 = 0x20;
const APPLICATION_EXIT: u64 = 0x2_0026;

/// Ends the machine; QEMU's exit status tells `code`.
pub fn exit(code: u32) -> ! {
    let block = [APPLICATION_EXIT, u64::from(aarch64_exit_value(code))];
    // SAFETY: 1. a semihosting call with a block of two words, as the operation wants; 2. it does
    // not write memory.
    unsafe {
        asm!(
            "hlt #0xf000",
            inout("x0") SYS_EXIT_EXTENDED => _,
            in("x1") block.as_ptr(),
            options(nostack),
        );
    }
    // Without semihosting (which faults into the kernel's own handler, and comes here again with
    // the fault already reported) there is no status, but there still is an end.
    smp::system_off();
    loop {
        aarch64_cpu::asm::wfi();
    }
}
