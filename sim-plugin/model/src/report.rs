//! What the plugin of one machine reports: `node{n}.sim.json`, schema [`SCHEMA`]. The launcher
//! puts the reports of all machines together.
//!
//! All times are simulated picoseconds. There are no floating-point numbers in it, so equal runs
//! have equal reports, byte by byte.

mod sums;

use std::collections::BTreeMap;

use dyad_abi::ident::MAX_NODES;
use serde::{Deserialize, Serialize};

use crate::config::Level;
use crate::incoherent::findings::Row;

pub use sums::{Breakdown, Counters};

#[cfg(test)]
mod tests;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.sim/6";

/// A CPU of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuReport {
    /// Its number.
    pub cpu: u32,
    /// Instructions executed in the lower half of the address space: programs, and firmware.
    pub lower_half: u64,
    /// Instructions executed in the upper half: the kernel.
    pub upper_half: u64,
    /// How much time has passed on it, by its own clock: what the breakdown has to add up to.
    pub time_ps: u64,
    /// What was counted.
    pub counters: Counters,
    /// Where its time went.
    pub breakdown_ps: Breakdown,
    /// Accesses to devices. They are not in the counters, and take no time.
    #[serde(default)]
    pub devices: u64,
    /// Accesses, and flushes of lines, of which the line could not be found out. They are not in the
    /// counters either.
    #[serde(default)]
    pub unknown: u64,
    /// How often it was looked up where a page of a program's heap or stacks is, by pool: those of the nodes, then the
    /// CXL pool.
    #[serde(default)]
    pub program_pages: [u64; MAX_NODES + 1],
    /// Remembered translations that were compared with QEMU's, if that was asked for.
    #[serde(default)]
    pub translations_checked: u64,
    /// Those of them that were wrong.
    #[serde(default)]
    pub translations_wrong: u64,
    /// Instructions executed after the kernel had said that the machine ends, until QEMU had ended it:
    /// how many depends on the host, and they are in no other number.
    #[serde(default)]
    pub after_end: u64,
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockReport {
    /// Simulated time at the end: that of the CPU that is furthest.
    pub total_ps: u64,
    /// Time that passed while CPUs were halted, summed over them.
    pub idle_ps: u64,
    /// The most that it was ever ahead of another busy node.
    pub max_skew_ps: u64,
    /// How often it looked at the other nodes.
    pub quanta: u64,
    /// How often it had to wait for one of them.
    pub waits: u64,
    /// Timer interrupts.
    pub timers: u64,
    /// The longest time from the moment at which an interrupt was due to the end of the block after which it
    /// was taken.
    pub max_late_ps: u64,
    /// Longest from a timer's deadline to the beginning of the block after which its interrupt was
    /// taken. 0: all deadlines were in those blocks, so that none was late by more than its block.
    #[serde(default)]
    pub max_overdue_ps: u64,
    /// Doorbell interrupts.
    #[serde(default)]
    pub doorbells: u64,
    /// Wake-ups from outside of simulated time: by the launcher, by a device, by a debugger.
    #[serde(default)]
    pub outside: u64,
    /// Waits for other CPUs that were given up, because those had been stopped or were gone.
    #[serde(default)]
    pub given_up: u64,
    /// Doorbells that came later because too many were on their way.
    #[serde(default)]
    pub merged: u64,
    /// Jumps to the time of the others, after it had been stopped itself.
    #[serde(default)]
    pub followed_ps: u64,
    /// Strict order: how often a turn was taken from a CPU that did not go on. If it is not 0, the
    /// run cannot be repeated.
    #[serde(default)]
    pub turns_taken: u64,
    /// Interrupts whose delivery could not be confirmed in time: they were not exact.
    pub handshake_timeouts: u64,
    /// Digest of all timed events and when they came, in hexadecimal: equal histories have equal
    /// ones.
    #[serde(with = "hex")]
    pub trace_hash: u64,
}

/// What happened in a region of interest, on this machine, in all its passes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoiReport {
    /// Passes.
    pub n: u64,
    /// How long a pass took.
    pub pass_ps: Durations,
    /// Simulated time inside: what the breakdown has to add up to.
    pub time_ps: u64,
    /// What was counted.
    pub counters: Counters,
    /// Where the time went.
    pub breakdown_ps: Breakdown,
    /// Passes that began on another CPU. They are in no other number, but for how long a pass took.
    #[serde(default)]
    pub moved: u64,
    /// What all CPUs of the system did in all passes, by node. Nothing without a clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<ShareReport>,
}

/// What the CPUs of a node did while regions of interest were passed through, wherever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareReport {
    /// The node.
    pub node: usize,
    /// Simulated time, summed over CPUs: what the breakdown has to add up to.
    pub time_ps: u64,
    /// What was counted.
    pub counters: Counters,
    /// Where the time went.
    pub breakdown_ps: Breakdown,
}

/// How long something took each time, interrupts included. Zeros if it was not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durations {
    /// Least.
    pub min: u64,
    /// Half of them took at most so long.
    pub median: u64,
    /// 99 of 100 took at most so long.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

impl Durations {
    /// Of these.
    pub fn of(mut times: Vec<u64>) -> Durations {
        times.sort_unstable();
        // The least one that so many of 100 do not exceed.
        let rank = |of_100: usize| {
            let place = (times.len() * of_100).div_ceil(100).saturating_sub(1);
            times.get(place).copied().unwrap_or(0)
        };
        Durations {
            min: rank(0),
            median: rank(50),
            p99: rank(99),
            max: rank(100),
        }
    }
}

/// Least, median and largest of the samples of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Least.
    pub min: u64,
    /// Median.
    pub median: u64,
    /// Largest.
    pub max: u64,
}

/// A window of measurement. The metrics are left out if there is no sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowReport {
    /// Its number.
    pub id: u16,
    /// Samples.
    pub n: u64,
    /// Windows that give no sample, because an interrupt was taken in them.
    pub interrupted: u64,
    /// Instructions started in all windows, interrupted ones included.
    #[serde(default)]
    pub total: u64,
    /// Instructions started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Spread>,
    /// Distinct lines of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Spread>,
    /// Those of them in the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fused_lines: Option<Spread>,
    /// Accesses to memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<Spread>,
    /// Accesses to devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Spread>,
    /// Atomic read-modify-writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomics: Option<Spread>,
    /// Write-backs and invalidations of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<Spread>,
    /// Memory barriers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fences: Option<Spread>,
    /// Instructions started before the CPU first waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Spread>,
    /// How often the CPU waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Spread>,
    /// Address of an instruction, and how often it was started in all samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<(u64, u64)>,
}

/// The longest stretch with interrupts masked, of those that began in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskedReport {
    /// The window that was open when they began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// Address of the first instruction.
    pub entry: u64,
    /// How many stretches there were.
    pub n: u64,
    /// Instructions of the longest one.
    pub longest: u64,
    /// Address of an instruction, and how often it was started in the longest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<(u64, u64)>,
}

/// What one machine reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// ISA as QEMU calls it.
    pub target: String,
    /// Number of the node, if it was given.
    pub node: Option<u8>,
    /// Version of QEMU's plugin interface.
    pub plugin_api: i32,
    /// What was simulated.
    pub level: Level,
    /// What instructions were counted by: `block`, `instruction`.
    pub unit: String,
    /// Instructions executed by all CPUs.
    pub instructions: u64,
    /// The CPUs.
    pub cpus: Vec<CpuReport>,
    /// The clock, if it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReport>,
    /// Regions of interest, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roi: BTreeMap<u16, RoiReport>,
    /// Windows of measurement, if they were observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<WindowReport>>,
    /// Stretches with interrupts masked, if windows were observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masked: Option<Vec<MaskedReport>>,
    /// Beginnings of windows that gave no sample because of another beginning or a marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<u64>,
    /// Ends whose window was not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmatched: Option<u64>,
    /// What the kernel forgot to flush, if caches are not coherent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sanitizer: Option<SanitizerReport>,
}

/// What the stale-read sanitizer has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SanitizerReport {
    /// The findings, those included that the protocol permits: the launcher knows which.
    pub findings: Vec<Row>,
    /// How many more there were for which there was no room.
    pub dropped: u64,
    /// How many reads were let go that waited for a write-back, because there was no room.
    pub let_go: u64,
}

impl MachineReport {
    /// All CPUs together: what was counted, where time went, and how much there was.
    pub fn sum(&self) -> (Counters, Breakdown, u64) {
        let mut sum = (Counters::default(), Breakdown::default(), 0u64);
        for cpu in &self.cpus {
            sum.0 += cpu.counters;
            sum.1 += cpu.breakdown_ps;
            sum.2 = sum.2.wrapping_add(cpu.time_ps);
        }
        sum
    }
}

/// A 64-bit word as a string of hexadecimal digits: readers that know only floating-point numbers
/// would damage it.
mod hex {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{word:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(from)?;
        u64::from_str_radix(&digits, 16)
            .map_err(|_| D::Error::custom(format!("{digits:?} is not a hexadecimal word")))
    }
}
