//! The fast model and the naive one side by side.

use super::Naive;
use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, Queues, Storage, System};
use crate::config::SimConfig;
use crate::trace::{Machine, Record, TraceError, replay};

impl Machine for Naive {
    fn has(&self, node: usize, cpu: usize) -> bool {
        self.has(node, cpu)
    }

    fn access(&mut self, node: usize, cpu: usize, kind: Kind, line: u64, more: bool) -> u64 {
        if more {
            self.second_line(node, cpu, kind, line)
        } else {
            self.access(node, cpu, kind, line)
        }
    }

    fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        self.flush(node, cpu, kind, line)
    }

    fn counts(&self, node: usize, cpu: usize) -> Counters {
        self.counts(node, cpu)
    }
}

/// A record that the models disagree about.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// How many records they agreed about before.
    pub agreed: u64,
    /// The record.
    pub record: Record,
    /// Its latency: fast, naive.
    pub latency: (u64, u64),
    /// Counters of its CPU afterwards: fast, naive.
    pub counts: (Counters, Counters),
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (fast, naive) = self.latency;
        write!(
            f,
            "after {} records, {:?}: latency {fast}, naive {naive}",
            self.agreed, self.record
        )?;
        let pairs = self.counts.0.values().zip(self.counts.1.values());
        for ((name, fast), (_, naive)) in pairs.filter(|(fast, naive)| fast.1 != naive.1) {
            write!(f, "; {name} {fast}, naive {naive}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Difference {}

/// Both models.
#[derive(Debug)]
pub struct Both<'a> {
    /// The fast one.
    pub fast: System<'a>,
    /// The naive one.
    pub naive: Naive,
    agreed: u64,
    /// Sum of all latencies, by node and CPU.
    cycles: Vec<Vec<u64>>,
}

impl<'a> Both<'a> {
    /// Both, with empty caches.
    pub fn new(config: &SimConfig, storage: &'a Storage) -> Self {
        Self {
            fast: System::new(config, storage),
            naive: Naive::new(config),
            agreed: 0,
            cycles: config.nodes.iter().map(|n| vec![0; n.cpus]).collect(),
        }
    }

    /// Lines wait for each other in both. All CPUs have the time `now(0)`, in picoseconds.
    pub fn heed_queues(&mut self, config: &SimConfig, storage: &'a Storage, now: fn(u32) -> u64) {
        self.naive.heed_queues(now);
        for (node, shape) in config.nodes.iter().enumerate() {
            for cpu in 0..shape.cpus {
                let queues = Queues::new(config, node, storage.calendars(), now, 0);
                self.fast.core(node, cpu).heed_queues(queues);
            }
        }
    }

    /// Replays a record on both. Returns its latency in cycles.
    ///
    /// # Errors
    ///
    /// Inside, how they differ; outside, what is wrong with the record.
    pub fn step(&mut self, record: &Record) -> Result<Result<u64, Box<Difference>>, TraceError> {
        let latency = (
            replay(record, &mut self.fast)?,
            replay(record, &mut self.naive)?,
        );
        let Record { node, cpu, .. } = *record;
        let counts = (self.fast.counts(node, cpu), self.naive.counts(node, cpu));
        if latency.0 != latency.1 || counts.0 != counts.1 {
            return Ok(Err(Box::new(Difference {
                agreed: self.agreed,
                record: *record,
                latency,
                counts,
            })));
        }
        self.agreed += 1;
        self.cycles[node][cpu] += latency.0;
        Ok(Ok(latency.0))
    }

    /// Records they agreed about.
    pub const fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Sum of all latencies of a CPU, in cycles.
    pub fn cycles(&self, node: usize, cpu: usize) -> u64 {
        self.cycles[node][cpu]
    }
}
