//! Other CPUs: PSCI.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use dyad_abi::CpuId;

use crate::mmu;

const CPU_ON: u64 = 0xc400_0003;
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Most CPUs whose affinity is simply their number.
pub const MAX_PSCI_CPUS: usize = 8;

/// CPUs that have areas and stacks.
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Sets how many CPUs have areas and stacks.
pub fn set_count(cpus: usize) {
    COUNT.store(cpus, Ordering::Release);
}

/// Number of CPUs that have areas and stacks.
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

fn psci(function: u64, args: [u64; 3]) -> i64 {
    let result: i64;
    // SAFETY: 1. a call to the firmware by its convention; 2. the functions used here do not
    // touch memory of this CPU.
    unsafe {
        asm!(
            "hvc #0",
            inlateout("x0") function => result,
            in("x1") args[0],
            in("x2") args[1],
            in("x3") args[2],
            clobber_abi("C"),
        );
    }
    result
}

unsafe extern "C" {
    /// Entry of the other CPUs; a symbol, not called from here.
    fn _secondary_start();
}

/// See [`dyad_machine::Platform::start_cpu`].
pub fn start(cpu: CpuId) -> Result<(), &'static str> {
    if cpu.index() >= count() {
        return Err("no such CPU");
    }
    mmu::publish_roots();
    let entry = mmu::image_to_physical(_secondary_start as *const () as u64);
    match psci(CPU_ON, [cpu.index() as u64, entry, cpu.index() as u64]) {
        0 => Ok(()),
        -2 => Err("the machine has no such CPU: too few with -smp"),
        -4 | -5 => Err("it is on already"),
        _ => Err("the firmware refused"),
    }
}

/// Switches the machine off; returns only if that is impossible.
pub fn system_off() {
    psci(SYSTEM_OFF, [0; 3]);
}
