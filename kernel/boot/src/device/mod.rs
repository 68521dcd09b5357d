//! Devices that both kinds of machine have: QEMU's firmware configuration and the ivshmem
//! doorbell.
//!
//! The drivers are generic over how registers are reached, because that is all that differs
//! between the machines, and so that they run on the host against models of the devices. They
//! use no memory of their own and are called during boot only, by one CPU.

pub mod fw_cfg;
pub mod ivshmem;

/// Access to the 32-bit registers of memory-mapped devices, by physical address.
///
/// Implementations order accesses to devices among themselves as the program does.
pub trait Mmio {
    /// Reads a register.
    fn read32(&self, pa: u64) -> u32;
    /// Writes a register.
    fn write32(&self, pa: u64, value: u32);
}
