//! The interrupt controller: GICv2, and the frame through which devices send messages to it.
//!
//! Interrupts are masked while the kernel runs; they are taken on entry from user mode and in
//! [`wait`]. Everything pending is acknowledged before anybody looks at what it meant.

use core::sync::atomic::{AtomicU32, Ordering};

use aarch64_cpu::asm::barrier::{self, SY};
use dyad_abi::CpuId;
use dyad_abi::boot::{doorbell_vector, timer_vector};
use dyad_boot::device::ivshmem::MsiMessage;
use dyad_machine::fused;
use dyad_machine::platform::Interrupt;

use crate::mmu::{GIC_CPU, GIC_DISTRIBUTOR, GIC_MESSAGES};
use crate::{clock, cpu};

const GICD_CTLR: u64 = 0x000;
const GICD_ISENABLER: u64 = 0x100;
const GICD_ICENABLER: u64 = 0x180;
const GICD_IPRIORITYR: u64 = 0x400;
const GICD_ITARGETSR: u64 = 0x800;
const GICD_ICFGR: u64 = 0xc00;
const GICC_CTLR: u64 = 0x00;
const GICC_PMR: u64 = 0x04;
const GICC_IAR: u64 = 0x0c;
const GICC_EOIR: u64 = 0x10;
const V2M_TYPER: u64 = 0x08;
const V2M_SETSPI: u64 = 0x40;

/// Interrupt of the virtual timer.
const TIMER: u32 = 27;
/// Identifiers from here on mean that nothing is pending.
const NONE_PENDING: u32 = 1020;
/// The priority of everything.
const PRIORITY: u8 = 0x80;

/// First message interrupt, and for how many CPUs there are some: doorbells, then timers.
static MESSAGE_FIRST: AtomicU32 = AtomicU32::new(0);
static MESSAGE_CPUS: AtomicU32 = AtomicU32::new(0);

/// Switches the distributor on, with every shared interrupt off.
pub fn init_distributor() {
    GIC_DISTRIBUTOR.write32(GICD_CTLR, 0);
    for block in 1..32 {
        GIC_DISTRIBUTOR.write32(GICD_ICENABLER + 4 * block, !0);
    }
    GIC_DISTRIBUTOR.write32(GICD_CTLR, 1);
}

/// Switches this CPU's interface and its timer's interrupt on.
pub fn init_cpu() {
    clock::set_timer(None);
    GIC_DISTRIBUTOR.write32(GICD_ICENABLER, !0);
    if !fused::is_on() {
        enable(TIMER);
    }
    GIC_CPU.write32(GICC_PMR, 0xff);
    GIC_CPU.write32(GICC_CTLR, 1);
}

fn enable(id: u32) {
    GIC_DISTRIBUTOR.write8(GICD_IPRIORITYR + u64::from(id), PRIORITY);
    GIC_DISTRIBUTOR.write32(GICD_ISENABLER + u64::from(id / 32 * 4), 1 << (id % 32));
}

/// Routes two message interrupts to each of `cpus` CPUs, for its doorbell and for the simulator's
/// timer, and returns the message for the first; the message for vector `v` of the doorbell device
/// has `v` added to its data. `None` if the controller has too few.
pub fn route_messages(cpus: usize) -> Option<MsiMessage> {
    let kind = GIC_MESSAGES.read32(V2M_TYPER);
    let (first, count) = (kind >> 16 & 0x3ff, kind & 0x3ff);
    if (count as usize) < 2 * cpus {
        return None;
    }
    for c in CpuId::first(cpus) {
        for vector in [doorbell_vector(c), timer_vector(cpus, c)] {
            let id = first + vector as u32;
            GIC_DISTRIBUTOR.write8(GICD_ITARGETSR + u64::from(id), 1 << c.index());
            // Messages are pulses: a level-triggered interrupt would forget them.
            let at = GICD_ICFGR + u64::from(id / 16 * 4);
            let old = GIC_DISTRIBUTOR.read32(at);
            GIC_DISTRIBUTOR.write32(at, old | 0b10 << (id % 16 * 2));
            enable(id);
        }
    }
    MESSAGE_FIRST.store(first, Ordering::Relaxed);
    MESSAGE_CPUS.store(cpus as u32, Ordering::Relaxed);
    Some(MsiMessage {
        address: GIC_MESSAGES.physical() + V2M_SETSPI,
        data: first,
    })
}

/// Acknowledges every pending interrupt of this CPU and records its kind.
pub fn take_pending() {
    let cpus = MESSAGE_CPUS.load(Ordering::Relaxed);
    let doorbells = MESSAGE_FIRST.load(Ordering::Relaxed);
    let timers = doorbells + cpus;
    loop {
        let acknowledged = GIC_CPU.read32(GICC_IAR);
        let id = acknowledged & 0x3ff;
        if id >= NONE_PENDING {
            break;
        }
        let what = if id == TIMER || (timers..timers + cpus).contains(&id) {
            clock::expired().then_some(Interrupt::Timer)
        } else if (doorbells..timers).contains(&id) {
            Some(Interrupt::Doorbell)
        } else {
            Some(Interrupt::Other(id))
        };
        GIC_CPU.write32(GICC_EOIR, acknowledged);
        if let Some(what) = what {
            cpu::local().note_interrupt(what);
        }
    }
    // What the interrupts announce is read after they have been acknowledged.
    barrier::dsb(SY);
}

/// Sleeps until an interrupt is pending and takes it. Interrupts stay masked: a pending interrupt ends the
/// sleep nevertheless, even if it became pending before.
pub fn wait() {
    barrier::dsb(SY);
    aarch64_cpu::asm::wfi();
    take_pending();
}
