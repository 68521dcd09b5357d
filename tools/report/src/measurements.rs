//! The commands that measure: arguments of `cargo xtask` for each size of the report.

use serde::{Deserialize, Serialize};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// In ten minutes on two cores.
    Quick,
    /// Class W of NPB.
    W,
    /// Class A of NPB, as in the papers.
    A,
}

impl Size {
    /// All of them.
    pub const ALL: [Size; 3] = [Size::Quick, Size::W, Size::A];

    /// Its name: of a directory, and in `bounds.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Size::Quick => "quick",
            Size::W => "w",
            Size::A => "a",
        }
    }
}

/// A command that measures.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// The name of its record.
    pub name: &'static str,
    /// Arguments by size: quick, W, A. Without arguments it is not made in that size.
    arguments: [&'static str; 3],
    /// Seconds that it takes on two cores, roughly, by size.
    seconds: [u32; 3],
    /// Whether it keeps a table of runs, with which it can go on.
    pub has_table: bool,
}

impl Measurement {
    /// The arguments of the command.
    pub fn arguments(&self, size: Size) -> Option<Vec<&'static str>> {
        let line = self.arguments[size as usize];
        (!line.is_empty()).then(|| line.split(' ').collect())
    }

    /// Seconds that it takes, roughly.
    pub fn seconds(&self, size: Size) -> u32 {
        self.seconds[size as usize]
    }

    /// The command as a person types it.
    pub fn command(&self, size: Size) -> Option<String> {
        let line = self.arguments[size as usize];
        (!line.is_empty()).then(|| format!("cargo xtask {line}"))
    }
}

/// A measurement that is the same in every size but the quick one.
const fn plain(
    name: &'static str,
    [quick, full]: [&'static str; 2],
    [in_quick, in_full]: [u32; 2],
) -> Measurement {
    Measurement {
        name,
        arguments: [quick, full, full],
        seconds: [in_quick, in_full, in_full],
        has_table: false,
    }
}

/// Fused kernels against kernels that exchange messages, on NPB.
pub const COMPARE: &str = "compare";
/// Pages of another node.
pub const PAGES: &str = "pages";
/// Moves of processes and threads, and threads that wake each other.
pub const PROCESS: &str = "process";
/// Latencies of profiles.
pub const CALIBRATION: &str = "calibration";
/// Counts of the simulator beside other models.
pub const MODELS: &str = "models";
/// Counts of the simulator beside cachegrind and QEMU's counter.
pub const HOST: &str = "host";
/// Faults over messages by their parts.
pub const FAULTS: &str = "faults";
/// Calls and small operations between ISAs.
pub const CALLS: &str = "calls";
/// Threads that move below frames.
pub const THREADS: &str = "threads";
/// Threads that are interpreted up to their next migration point.
pub const EMULATION: &str = "emulation";
/// Following a list.
pub const CHASE: &str = "chase";
/// Searching a graph.
pub const BFS: &str = "bfs";
/// Blocks of memory.
pub const BLOCKS: &str = "blocks";
/// Kernel operations.
pub const KERNEL: &str = "kernel";
/// Stores of keys and values.
pub const KV: &str = "kv";
/// Steps of quiescence.
pub const QUIESCENCE: &str = "quiescence";
/// Speed of the simulator.
pub const SPEED: &str = "speed";

/// All measurements, in the order in which they are made: those that many rows need come first.
pub const ALL: [Measurement; 17] = [
    Measurement {
        name: COMPARE,
        arguments: [
            "bench compare --quick --profile paper-big",
            "bench compare --class W --profile paper-big",
            "bench compare --class A --profile paper-big",
        ],
        seconds: [170, 2_400, 14_400],
        has_table: true,
    },
    plain(
        CALIBRATION,
        [
            "validate-sim --quick --groups calibration",
            "validate-sim --groups calibration",
        ],
        [40, 150],
    ),
    plain(
        PROCESS,
        ["bench process --quick", "bench process"],
        [120, 400],
    ),
    plain(
        CALLS,
        [
            "bench migration --quick --only micro",
            "bench migration --only micro",
        ],
        [40, 90],
    ),
    plain(
        THREADS,
        [
            "bench migration --quick --only threads",
            "bench migration --only threads",
        ],
        [45, 120],
    ),
    plain(
        CHASE,
        [
            "bench migration --quick --only chase",
            "bench migration --only chase",
        ],
        [30, 90],
    ),
    plain(
        KERNEL,
        [
            "bench kernel --cycles",
            "bench kernel --cycles --repetitions 1024",
        ],
        [60, 240],
    ),
    plain(KV, ["bench kv --quick", "bench kv"], [250, 7200]),
    plain(
        PAGES,
        ["bench pages --quick --models shared", "bench pages"],
        [60, 300],
    ),
    plain(
        EMULATION,
        [
            "bench migration --quick --only emulation",
            "bench migration --only emulation",
        ],
        [40, 90],
    ),
    plain(
        BFS,
        [
            "bench migration --quick --only bfs",
            "bench migration --only bfs",
        ],
        [40, 200],
    ),
    plain(
        QUIESCENCE,
        ["bench quiescence --pools 64MiB,256MiB", "bench quiescence"],
        [15, 40],
    ),
    plain(
        BLOCKS,
        [
            "bench migration --quick --only blocks",
            "bench migration --only blocks",
        ],
        [60, 240],
    ),
    plain(
        FAULTS,
        [
            "bench faults --models shared --transports ring,tcp --pages 64",
            "bench faults",
        ],
        [60, 240],
    ),
    plain(
        MODELS,
        [
            "validate-sim --quick --groups naive,closed-form,coherence,contrib",
            "validate-sim --groups naive,closed-form,coherence,contrib",
        ],
        [150, 600],
    ),
    plain(
        HOST,
        [
            "validate-sim --quick --groups instructions,cachegrind",
            "validate-sim --groups instructions,cachegrind",
        ],
        [90, 400],
    ),
    plain(SPEED, ["bench sim --quick", "bench sim"], [90, 600]),
];

/// The measurement with a name.
pub fn named(name: &str) -> Option<&'static Measurement> {
    ALL.iter().find(|m| m.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_that_a_row_needs_is_there_and_every_one_is_needed() {
        let needed: Vec<&str> = crate::rows::all()
            .flat_map(|row| row.measurements().iter().copied())
            .collect();
        for name in &needed {
            assert!(named(name).is_some(), "{name}");
        }
        for one in &ALL {
            assert!(needed.contains(&one.name), "{}", one.name);
            for size in Size::ALL {
                assert!(one.command(size).is_some(), "{}", one.name);
            }
        }
    }
}
