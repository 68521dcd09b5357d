//! Interrupts between machines: the ivshmem doorbell behind the PCI host bridge.
//!
//! Which vector is for what is in [`dyad_abi::boot`]. Timers are routed if the simulator's clock is
//! on; without it they are masked like the last vector, which always is.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::asm::barrier::{self, SY};
use dyad_abi::boot::{doorbell_vectors, fence_vector};
use dyad_boot::device::Mmio;
use dyad_boot::device::ivshmem::{self, BarWindow, Doorbell, Ecam, IvshmemError, MsiMessage};
use dyad_machine::fused;

use crate::irq;
use crate::mmu::{BARS, PCI_CONFIG};

/// Physical address of the doorbell's registers; 0 before [`init`].
static REGISTERS: AtomicU64 = AtomicU64::new(0);

/// Configuration space and base address registers.
struct Pci;

impl Mmio for Pci {
    fn read32(&self, pa: u64) -> u32 {
        match BARS.offset(pa) {
            Some(at) => BARS.read32(at),
            None => PCI_CONFIG.read32(pa.wrapping_sub(PCI_CONFIG.physical())),
        }
    }

    fn write32(&self, pa: u64, value: u32) {
        match BARS.offset(pa) {
            Some(at) => BARS.write32(at, value),
            None => PCI_CONFIG.write32(pa.wrapping_sub(PCI_CONFIG.physical()), value),
        }
    }
}

/// The reason why there is no doorbell.
pub enum DoorbellError {
    /// The device.
    Device(IvshmemError),
    /// The interrupt controller has fewer message interrupts than there are CPUs.
    TooFewMessages,
}

impl fmt::Display for DoorbellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoorbellError::Device(e) => e.fmt(f),
            DoorbellError::TooFewMessages => {
                f.write_str("the interrupt controller has too few message interrupts")
            }
        }
    }
}

/// Sets the doorbell up for this many CPUs.
pub fn init(cpus: usize) -> Result<(), DoorbellError> {
    let first = irq::route_messages(cpus).ok_or(DoorbellError::TooFewMessages)?;
    let open = match fused::is_on() {
        true => fence_vector(cpus),
        false => cpus,
    };
    let message = |v: usize| {
        (v < open).then_some(MsiMessage {
            data: first.data + v as u32,
            ..first
        })
    };
    let ecam = Ecam {
        base: PCI_CONFIG.physical(),
    };
    let window = BarWindow {
        base: BARS.physical(),
        len: BARS.len(),
    };
    let d = ivshmem::set_up(&Pci, ecam, window, doorbell_vectors(cpus), message)
        .map_err(DoorbellError::Device)?;
    REGISTERS.store(d.registers, Ordering::Relaxed);
    Ok(())
}

fn doorbell() -> Doorbell {
    Doorbell {
        registers: REGISTERS.load(Ordering::Relaxed),
    }
}

/// Rings `vector` of the machine with doorbell identifier `peer`.
pub fn ring(peer: u64, vector: u32) {
    // What the peer is to see is in memory before it is told to look.
    barrier::dsb(SY);
    doorbell().ring(&Pci, peer, vector);
}

/// Doorbell identifier of this machine.
pub fn id() -> u64 {
    doorbell().id(&Pci)
}
