//! Other CPUs of the machine: INIT, start-up message, trampoline.

use core::sync::atomic::{AtomicUsize, Ordering};

use dyad_abi::CpuId;
use dyad_machine::Platform;

use crate::irq;
use crate::mmu;
use crate::platform::X86;

const INIT: u32 = 0x4500;
const START_UP: u32 = 0x4600;

/// CPUs of this machine.
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Sets the number of CPUs.
pub fn set_count(cpus: usize) {
    COUNT.store(cpus, Ordering::Relaxed);
}

/// The number of CPUs.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

fn pause(ns: u64) {
    let start = X86::clock_ns();
    while X86::clock_ns().wrapping_sub(start) < ns {
        core::hint::spin_loop();
    }
}

/// See [`dyad_machine::Platform::start_cpu`].
pub fn start(cpu: CpuId) -> Result<(), &'static str> {
    if cpu.index() >= count() {
        return Err("the machine has no such CPU");
    }
    mmu::write_trampoline(cpu);
    let id = cpu.index() as u32;
    irq::command(id, INIT);
    pause(1_000_000);
    irq::command(id, START_UP | mmu::TRAMPOLINE as u32 >> 12);
    Ok(())
}
