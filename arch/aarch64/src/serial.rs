//! The serial line: PL011.

use crate::mmu::UART;

const DATA: u64 = 0x00;
const FLAGS: u64 = 0x18;
const CONTROL: u64 = 0x30;
const FLAG_FULL: u32 = 1 << 5;
/// Enabled, transmitting.
const CONTROL_ON: u32 = 1 << 0 | 1 << 8;
/// Polls for room before a byte is written regardless.
const PATIENCE: u32 = 100_000;

/// Switches the line on.
pub fn init() {
    UART.write32(CONTROL, CONTROL_ON);
}

/// Writes bytes. A line that never drains loses some rather than stopping the kernel.
pub fn write(bytes: &[u8]) {
    for &b in bytes {
        let mut polls = 0;
        while UART.read32(FLAGS) & FLAG_FULL != 0 && polls < PATIENCE {
            polls += 1;
        }
        UART.write32(DATA, u32::from(b));
    }
}
