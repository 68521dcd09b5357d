//! The serial line: a 16550 at port 0x3F8. Output only.

use crate::port;

const BASE: u16 = 0x3f8;
const LINE_STATUS: u16 = BASE + 5;
/// The transmitter's queue is empty.
const TRANSMIT_EMPTY: u8 = 1 << 5;
/// Bytes that the queue takes.
const QUEUE: usize = 16;

/// Sets the line up: 8 data bits, no interrupts, FIFO on. The speed means nothing to QEMU.
pub fn init() {
    port::out8(BASE + 1, 0);
    port::out8(BASE + 3, 3);
    port::out8(BASE + 2, 7);
}

/// Writes bytes. The wait for the transmitter is bounded: a line without a reader must not stop the machine.
pub fn write(bytes: &[u8]) {
    // Once the transmitter is empty, so is its queue.
    for part in bytes.chunks(QUEUE) {
        for _ in 0..100_000 {
            if port::in8(LINE_STATUS) & TRANSMIT_EMPTY != 0 {
                break;
            }
        }
        port::out8_all(BASE, part);
    }
}
