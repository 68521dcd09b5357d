//! The local APIC: interrupt vectors, end of interrupt, waiting, messages to other CPUs.

use core::arch::asm;

use dyad_machine::platform::Interrupt;

use crate::mmu::LOCAL_APIC;
use crate::{clock, cpu, port};

/// Vector of the timer.
pub const TIMER_VECTOR: u8 = 0x30;
/// Vector of this CPU's doorbell.
pub const DOORBELL_VECTOR: u8 = 0x40;
/// Vector of spurious interrupts, which need no end of interrupt.
pub const SPURIOUS_VECTOR: u8 = 0xff;

const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;

/// Masks the legacy interrupt controllers; once per machine.
pub fn init_machine() {
    port::out8(0x21, 0xff);
    port::out8(0xa1, 0xff);
}

/// Turns this CPU's APIC on.
pub fn init_cpu() {
    LOCAL_APIC.write32(SPURIOUS, 1 << 8 | SPURIOUS_VECTOR as u32);
    clock::init_cpu();
}

/// Acknowledges an interrupt and passes it on.
pub fn acknowledge(vector: u8) {
    if vector == SPURIOUS_VECTOR {
        return;
    }
    LOCAL_APIC.write32(END_OF_INTERRUPT, 0);
    if vector == TIMER_VECTOR && !clock::expired() {
        return;
    }
    cpu::local().note_interrupt(match vector {
        TIMER_VECTOR => Interrupt::Timer,
        DOORBELL_VECTOR => Interrupt::Doorbell,
        other => Interrupt::Other(other as u32),
    });
}

/// Sends a command (INIT, start-up) to another CPU.
pub fn command(cpu: u32, command: u32) {
    LOCAL_APIC.write32(COMMAND_HIGH, cpu << 24);
    LOCAL_APIC.write32(COMMAND_LOW, command);
}

/// See [`dyad_machine::Platform::wait`]. `sti` takes effect after the next instruction, so an
/// interrupt that is pending already ends the `hlt`.
pub fn wait() {
    // SAFETY: 1. handlers of interrupts taken here preserve all registers and use the stack below
    // this frame only (there is no red zone); 2. memory they change is in cells: no `nomem`.
    unsafe { asm!("sti", "hlt", "cli") };
}

/// See [`dyad_machine::Platform::poll_interrupts`].
pub fn take_pending() {
    // SAFETY: 1. see `wait`.
    unsafe { asm!("sti", "nop", "cli") };
}
