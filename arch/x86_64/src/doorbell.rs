//! The doorbell: an ivshmem function whose interrupts go to the local APICs.
//!
//! Which vector is for what is in [`dyad_abi::boot`]. Timers are routed if the simulator's clock is
//! on; without it they are masked like the last vector, which always is.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::CpuId;
use dyad_abi::boot::{doorbell_vector, doorbell_vectors, timer_vector};
use dyad_boot::device::Mmio;
use dyad_boot::device::ivshmem::{self, BarWindow, Doorbell, Ecam, IvshmemError, MsiMessage};
use dyad_machine::fused;

use crate::irq::{DOORBELL_VECTOR, TIMER_VECTOR};
use crate::mmu::{BARS, PCI_CONFIG};
use crate::port;

/// Registers of PCI configuration space and of the device itself.
struct Registers;

impl Mmio for Registers {
    fn read32(&self, pa: u64) -> u32 {
        match (PCI_CONFIG.offset(pa), BARS.offset(pa)) {
            (Some(at), _) => PCI_CONFIG.read32(at),
            (_, Some(at)) => BARS.read32(at),
            _ => !0,
        }
    }

    fn write32(&self, pa: u64, value: u32) {
        if let Some(at) = PCI_CONFIG.offset(pa) {
            PCI_CONFIG.write32(at, value);
        } else if let Some(at) = BARS.offset(pa) {
            BARS.write32(at, value);
        }
    }
}

/// Physical address of the device's registers; 0: not set up.
static DEVICE: AtomicU64 = AtomicU64::new(0);

fn device() -> Option<Doorbell> {
    match DEVICE.load(Ordering::Relaxed) {
        0 => None,
        registers => Some(Doorbell { registers }),
    }
}

/// Finds the device and routes its vectors.
pub fn init(cpus: usize) -> Result<(), IvshmemError> {
    // The window of configuration space is where the host bridge's PCIEXBAR says; no firmware
    // has set it.
    port::pci_write(0, 0, 0x64, 0);
    port::pci_write(0, 0, 0x60, PCI_CONFIG.physical() as u32 | 1);
    let window = BarWindow {
        base: BARS.physical(),
        len: BARS.len(),
    };
    let ecam = Ecam {
        base: PCI_CONFIG.physical(),
    };
    let message = |v: usize| {
        CpuId::first(cpus).find_map(|cpu| {
            let data = match v {
                _ if v == doorbell_vector(cpu) => DOORBELL_VECTOR,
                _ if v == timer_vector(cpus, cpu) && fused::is_on() => TIMER_VECTOR,
                _ => return None,
            };
            Some(MsiMessage {
                // Physical destination: APIC identifiers are CPU numbers.
                address: 0xfee0_0000 | (cpu.index() as u64) << 12,
                data: data as u32,
            })
        })
    };
    let d = ivshmem::set_up(&Registers, ecam, window, doorbell_vectors(cpus), message)?;
    DEVICE.store(d.registers, Ordering::Relaxed);
    Ok(())
}

/// Rings a vector of a peer. Everything stored before is visible to whom it interrupts.
pub fn ring(peer: u64, vector: u32) {
    fence(Ordering::SeqCst);
    if let Some(d) = device() {
        d.ring(&Registers, peer, vector);
    }
}

/// Identifier of this machine.
pub fn id() -> u64 {
    device().map_or(0, |d| d.id(&Registers))
}
