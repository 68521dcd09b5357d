//! Clock and timer: the virtual counter and its compare register.
//!
//! QEMU's virtual counter runs from machine start and is the same for all CPUs of a machine. With
//! the simulator's clock on ([`fused`]) neither is used.

use aarch64_cpu::asm::barrier::{self, SY};
use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, Readable, Writeable,
};

use dyad_machine::{Platform, fused};

use crate::cpu;
use crate::platform::Aarch64;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds after `ticks` of a counter with `frequency` ticks per second, rounded down.
const fn ticks_to_ns(ticks: u64, frequency: u64) -> u64 {
    // In two parts, so that no product overflows: a frequency is below 2^34.
    (ticks / frequency) * NS_PER_S + (ticks % frequency) * NS_PER_S / frequency
}

/// First tick at which [`ticks_to_ns`] is at least `ns`.
const fn ns_to_ticks(ns: u64, frequency: u64) -> u64 {
    let part = (ns % NS_PER_S * frequency).div_ceil(NS_PER_S);
    (ns / NS_PER_S)
        .saturating_mul(frequency)
        .saturating_add(part)
}

// A timer must never fire before the clock says that its deadline has come, nor a tick late.
const _: () = {
    let frequencies = [62_500_000, 24_000_000, 1_000_000_000, 19_200_123];
    let times = [
        0,
        1,
        15,
        16,
        17,
        999_999_999,
        NS_PER_S,
        86_400 * 365 * NS_PER_S + 12_345,
    ];
    let mut f = 0;
    while f < frequencies.len() {
        let mut t = 0;
        while t < times.len() {
            let ticks = ns_to_ticks(times[t], frequencies[f]);
            assert!(ticks_to_ns(ticks, frequencies[f]) >= times[t]);
            assert!(ticks == 0 || ticks_to_ns(ticks - 1, frequencies[f]) < times[t]);
            t += 1;
        }
        f += 1;
    }
};

/// Nanoseconds since the machine was started.
pub fn now_ns() -> u64 {
    // The counter may otherwise be read earlier than the program says.
    barrier::isb(SY);
    ticks_to_ns(CNTVCT_EL0.get(), CNTFRQ_EL0.get())
}

/// Sets or clears this CPU's deadline. The interrupt is level-triggered and pending while the
/// deadline has passed and the timer is on.
///
/// The kernel sets the deadline again whenever it resumes a thread, mostly to what it is already;
/// the emulated timer is slow to set.
pub fn set_timer(deadline_ns: Option<u64>) {
    if cpu::timer().replace(deadline_ns) == deadline_ns && deadline_ns.is_some() {
        return;
    }
    if fused::is_on() {
        return fused::set_timer::<Aarch64>(deadline_ns);
    }
    match deadline_ns {
        Some(ns) => {
            CNTV_CVAL_EL0.set(ns_to_ticks(ns, CNTFRQ_EL0.get()));
            CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET + CNTV_CTL_EL0::IMASK::CLEAR);
        }
        None => CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR),
    }
    barrier::isb(SY);
}

/// Whether the deadline has passed; called when the timer has fired. With the simulator's clock the deadline
/// may have been postponed after the interrupt was raised and before it is taken; it then fires again.
pub fn expired() -> bool {
    let early = fused::is_on() && cpu::timer().get().is_none_or(|at| Aarch64::clock_ns() < at);
    if !early {
        // One-shot; off before the end of the interrupt, or it would be pending again.
        set_timer(None);
    }
    !early
}
