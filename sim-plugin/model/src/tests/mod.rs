//! Tests of the whole model.

mod agree;
mod bench;
mod flaws;
mod patterns;
mod queues;
mod releases;
mod scenes;
mod siblings;
mod snoops;
mod threads;
mod traces;

use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, Storage};
use crate::config::*;
use crate::naive::Both;
use crate::trace::{Event, Record};

/// Both models, which have to agree about whatever a test does.
struct Pair<'a> {
    both: Both<'a>,
    config: SimConfig,
}

impl<'a> Pair<'a> {
    fn new(config: &SimConfig, storage: &'a Storage) -> Self {
        Self {
            both: Both::new(config, storage),
            config: config.clone(),
        }
    }

    fn step(&mut self, node: usize, cpu: usize, event: Event) -> u64 {
        let record = Record { node, cpu, event };
        match self.both.step(&record).unwrap() {
            Ok(cycles) => cycles,
            Err(difference) => panic!("{difference}"),
        }
    }

    /// An access of CPU `cpu` of `node` to a line.
    fn access_by(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        let address = line * LINE_BYTES;
        self.step(
            node,
            cpu,
            Event::Access {
                kind,
                address,
                size: 8,
            },
        )
    }

    fn flush_by(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        let address = line * LINE_BYTES;
        self.step(node, cpu, Event::Flush { kind, address })
    }

    fn load(&mut self, node: usize, line: u64) -> u64 {
        self.access_by(node, 0, Kind::Load, line)
    }

    fn store(&mut self, node: usize, line: u64) -> u64 {
        self.access_by(node, 0, Kind::Store, line)
    }

    fn flush(&mut self, node: usize, line: u64) -> u64 {
        self.flush_by(node, 0, FlushKind::Flush, line)
    }

    fn counts(&self, node: usize) -> Counters {
        self.both.fast.counts(node, 0)
    }

    /// What CPU 0 of `node` counts meanwhile.
    fn during(&mut self, node: usize, action: impl FnOnce(&mut Self)) -> Counters {
        let before = self.counts(node);
        action(self);
        self.counts(node) - before
    }

    fn latency(&self, node: usize) -> Latencies {
        self.config.nodes[node].latency
    }

    fn snoop(&self, node: usize) -> SnoopCosts {
        self.config.nodes[node].snoop
    }

    /// First line of a pool; the last pool is the CXL pool.
    fn pool(&self, pool: usize) -> u64 {
        self.config.pools[pool].base / LINE_BYTES
    }

    /// First line of the CXL pool.
    fn cxl(&self) -> u64 {
        self.pool(self.config.nodes.len())
    }
}
