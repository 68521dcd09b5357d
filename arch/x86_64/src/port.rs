//! I/O ports.

use core::arch::asm;

/// Writes a byte.
pub fn out8(port: u16, value: u8) {
    // SAFETY: 1. port output touches no memory; 2. callers name ports of devices they own.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    };
}

/// Writes bytes, one after the other, to the same port.
pub fn out8_all(port: u16, bytes: &[u8]) {
    // SAFETY: 1. reads the bytes of the slice, which is borrowed, and nothing else; 2. the direction flag
    // is clear in kernel code; 3. see `out8`.
    unsafe {
        asm!(
            "rep outsb",
            in("dx") port,
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            options(readonly, nostack, preserves_flags)
        )
    };
}

/// Writes 16 bits.
pub fn out16(port: u16, value: u16) {
    // SAFETY: 1. see `out8`.
    unsafe {
        asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags))
    };
}

/// Writes 32 bits.
pub fn out32(port: u16, value: u32) {
    // SAFETY: 1. see `out8`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags))
    };
}

/// Reads a byte.
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: 1. port input touches no memory; 2. see `out8`.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Reads 32 bits.
pub fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: 1. see `in8`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Writes a register of PCI configuration space of bus 0 through the legacy ports.
pub fn pci_write(device: u32, function: u32, register: u32, value: u32) {
    out32(
        0xcf8,
        1 << 31 | device << 11 | function << 8 | register & 0xfc,
    );
    out32(0xcfc, value);
}
