//! Time: the time-stamp counter, held to the machine's virtual clock by the ACPI timer.
//!
//! Under TCG the time-stamp counter runs at the host's rate, which the guest is not told. The
//! ACPI timer runs at exactly 3.579545 MHz of QEMU's virtual clock, the same clock that AArch64
//! machines count in `CNTVCT`, but costs a port access. So time is read from the counter, and its
//! rate is measured against the ACPI timer about every 100 ms, over all the time since the start,
//! and what time was off by is made good over the next 100 ms: time never steps and never runs
//! backwards.
//!
//! ```text
//! ns(tsc) = base_ns + elapsed + slew * min(elapsed, 100 ms) / 100 ms
//!           elapsed = (tsc - base_tsc) * rate / 2^32       |slew| <= 0.1 ms
//! ```
//! Base, rate and slew are one set per machine, under a sequence lock.
//!
//! With the simulator's clock on ([`fused`]) nothing here is used but the deadline that a CPU
//! remembers: how long a measurement against the host's time takes would be the host's choice.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use dyad_machine::{Platform, fused};

use crate::irq::TIMER_VECTOR;
use crate::mmu::LOCAL_APIC;
use crate::platform::X86;
use crate::{cpu, port};

const ACPI_HZ: u64 = 3_579_545;
const ACPI_BASE: u16 = 0x600;
const ACPI_TIMER: u16 = ACPI_BASE + 8;
const ACPI_MASK: u32 = 0xff_ffff;

const TIMER_ENTRY: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_DIVIDE: u64 = 0x3e0;
/// Divide by one: the APIC timer then counts nanoseconds of the virtual clock.
const DIVIDE_BY_ONE: u32 = 0xb;

/// Length of the first measurement of the rate.
const FIRST_NS: u64 = 10_000_000;
/// Interval of corrections.
const INTERVAL_NS: u64 = 100_000_000;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);
static BASE_TSC: AtomicU64 = AtomicU64::new(0);
static BASE_NS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per count, times 2^32.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The correction to be added over the first interval; an `i64`.
static SLEW: AtomicU64 = AtomicU64::new(0);

static START_TSC: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds by the ACPI timer when `START_TSC` was read.
static REFERENCE_TICKS: AtomicU64 = AtomicU64::new(0);
static LAST_ACPI: AtomicU32 = AtomicU32::new(0);
static CORRECTING: AtomicBool = AtomicBool::new(false);

fn tsc() -> u64 {
    // SAFETY: 1. reads a counter.
    unsafe { _rdtsc() }
}

/// The ACPI timer and the counter's value when it was read: the tightest of a few attempts,
/// because the host may stop this CPU between the two.
fn sample() -> (u32, u64) {
    let mut best = (0, 0);
    let mut width = u64::MAX;
    for _ in 0..4 {
        let before = tsc();
        let acpi = port::in32(ACPI_TIMER) & ACPI_MASK;
        let after = tsc();
        if after.wrapping_sub(before) < width {
            width = after.wrapping_sub(before);
            best = (acpi, before + width / 2);
        }
    }
    best
}

fn scaled(counts: u64, rate: u64) -> u64 {
    ((counts as u128 * rate as u128) >> 32) as u64
}

/// Turns the ACPI timer on and measures the counter's rate; once per machine.
pub fn init() {
    // ISA bridge 00:1f.0: PMBASE, then ACPI enable.
    port::pci_write(0x1f, 0, 0x40, ACPI_BASE as u32 | 1);
    port::pci_write(0x1f, 0, 0x44, 0x80);
    let (acpi, start) = sample();
    let wanted = (FIRST_NS * ACPI_HZ / 1_000_000_000) as u32;
    let mut end = (acpi, start);
    // Bounded: without a running ACPI timer the rate is a guess, and the system goes on.
    for _ in 0..1_000_000 {
        end = sample();
        if end.0.wrapping_sub(acpi) & ACPI_MASK >= wanted {
            break;
        }
    }
    let ticks = (end.0.wrapping_sub(acpi) & ACPI_MASK) as u64;
    let counts = end.1.wrapping_sub(start).max(1);
    let ns = ticks as u128 * 1_000_000_000 / ACPI_HZ as u128;
    let rate = ((ns << 32) / counts as u128) as u64;
    let guess = (1 << 32) / 3;
    START_TSC.store(start, Ordering::Relaxed);
    LAST_ACPI.store(acpi, Ordering::Relaxed);
    BASE_TSC.store(start, Ordering::Relaxed);
    RATE.store(if ticks == 0 { guess } else { rate }, Ordering::Relaxed);
}

/// Prepares this CPU's timer.
pub fn init_cpu() {
    if fused::is_on() {
        return;
    }
    LOCAL_APIC.write32(TIMER_DIVIDE, DIVIDE_BY_ONE);
    LOCAL_APIC.write32(TIMER_ENTRY, TIMER_VECTOR as u32);
}

/// Time by the counter, `elapsed` after the last correction.
fn shown(base_ns: u64, elapsed: u64, slew: i64) -> u64 {
    let part = slew as i128 * elapsed.min(INTERVAL_NS) as i128 / INTERVAL_NS as i128;
    (base_ns + elapsed).saturating_add_signed(part as i64)
}

/// Time, and how much of it has passed since the last correction.
fn read() -> (u64, u64) {
    loop {
        let s = SEQUENCE.load(Ordering::Acquire);
        let (base_tsc, base_ns, rate, slew) = (
            BASE_TSC.load(Ordering::Relaxed),
            BASE_NS.load(Ordering::Relaxed),
            RATE.load(Ordering::Relaxed),
            SLEW.load(Ordering::Relaxed) as i64,
        );
        fence(Ordering::Acquire);
        let elapsed = scaled(tsc().saturating_sub(base_tsc), rate);
        if s & 1 == 0 && SEQUENCE.load(Ordering::Relaxed) == s {
            return (shown(base_ns, elapsed, slew), elapsed);
        }
    }
}

/// See [`dyad_machine::Platform::clock_ns`].
pub fn now_ns() -> u64 {
    let (now, elapsed) = read();
    if elapsed >= INTERVAL_NS {
        correct();
    }
    now
}

/// Measures the rate of the counter and its error. One CPU does it; the others use the last values meanwhile.
fn correct() {
    if CORRECTING.swap(true, Ordering::Acquire) {
        return;
    }
    let (acpi, at) = sample();
    let (base_tsc, rate) = (
        BASE_TSC.load(Ordering::Relaxed),
        RATE.load(Ordering::Relaxed),
    );
    let elapsed = scaled(at.saturating_sub(base_tsc), rate);
    // The ACPI timer wraps every 4.7 s; how often it has, the counter knows well enough.
    let low = (acpi.wrapping_sub(LAST_ACPI.swap(acpi, Ordering::Relaxed)) & ACPI_MASK) as u64;
    let about = (elapsed as u128 * ACPI_HZ as u128 / 1_000_000_000) as u64;
    let turn = ACPI_MASK as u64 + 1;
    let passed = low + (about.saturating_sub(low) + turn / 2) / turn * turn;
    let ticks = REFERENCE_TICKS.fetch_add(passed, Ordering::Relaxed) + passed;
    let truth = (ticks as u128 * 1_000_000_000 / ACPI_HZ as u128) as u64;
    let counts = at.saturating_sub(START_TSC.load(Ordering::Relaxed)).max(1);
    let slew = SLEW.load(Ordering::Relaxed) as i64;
    let base_ns = BASE_NS.load(Ordering::Relaxed);
    let most = INTERVAL_NS as i64 / 1000;
    let error = (truth as i64).wrapping_sub(shown(base_ns, elapsed, slew) as i64);
    SEQUENCE.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::Release);
    // What there was holds up to here: another CPU may just have read it.
    let from = tsc();
    let elapsed = scaled(from.saturating_sub(base_tsc), rate);
    BASE_TSC.store(from, Ordering::Relaxed);
    BASE_NS.store(shown(base_ns, elapsed, slew), Ordering::Relaxed);
    RATE.store(
        (((truth as u128) << 32) / counts as u128) as u64,
        Ordering::Relaxed,
    );
    SLEW.store(error.clamp(-most, most) as u64, Ordering::Relaxed);
    SEQUENCE.fetch_add(1, Ordering::Release);
    CORRECTING.store(false, Ordering::Release);
}

/// See [`dyad_machine::Platform::set_timer`]. The kernel sets the deadline whenever it resumes a thread,
/// usually to its current value. An unchanged deadline is not set again, because the emulated timer is slow
/// to set.
pub fn set_timer(deadline: Option<u64>) {
    if cpu::this().deadline.replace(deadline) != deadline {
        program(deadline);
    }
}

fn program(deadline: Option<u64>) {
    if fused::is_on() {
        return fused::set_timer::<X86>(deadline);
    }
    let count = match deadline {
        // 32 bits: the timer stops short of a deadline further off, as of any that the counter's
        // rate makes it reach early; `expired` then sets it again.
        Some(at) => at.saturating_sub(now_ns()).clamp(1, u32::MAX as u64) as u32,
        None => 0,
    };
    LOCAL_APIC.write32(TIMER_COUNT, count);
}

/// Whether the deadline has passed; called when the timer has fired. If it has not, the timer is set again.
pub fn expired() -> bool {
    let deadline = &cpu::this().deadline;
    match deadline.get() {
        Some(at) if X86::clock_ns() < at => {
            program(Some(at));
            false
        }
        Some(_) => {
            deadline.set(None);
            true
        }
        None => false,
    }
}
