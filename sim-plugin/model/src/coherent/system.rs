//! All CPUs of all nodes in one process: for traces and tests.

use std::sync::atomic::AtomicU64;

use super::{Core, FlushKind, Kind};
use crate::account::Counters;
use crate::config::SimConfig;
use crate::shared::Areas;

/// What the CPUs of a [`System`] share.
#[derive(Debug)]
pub struct Storage {
    areas: Areas,
    words: Box<[AtomicU64]>,
}

impl Storage {
    /// For a system.
    pub fn new(config: &SimConfig) -> Self {
        let areas = Areas::new(config);
        let words = (0..areas.words()).map(|_| AtomicU64::new(0)).collect();
        Self { areas, words }
    }

    /// The directory.
    pub fn directory(&self) -> &[AtomicU64] {
        &self.words[self.areas.directory()]
    }

    /// A CPU of a node.
    pub fn core(&self, config: &SimConfig, node: usize, cpu: usize) -> Core<'_> {
        self.areas.core(config, node, cpu, &self.words)
    }
}

/// All CPUs of all nodes.
#[derive(Debug)]
pub struct System<'a> {
    cores: Vec<Vec<Core<'a>>>,
}

impl<'a> System<'a> {
    /// A system with empty caches.
    pub fn new(config: &SimConfig, storage: &'a Storage) -> Self {
        let cores = config.nodes.iter().enumerate().map(|(node, shape)| {
            (0..shape.cpus)
                .map(|cpu| storage.core(config, node, cpu))
                .collect()
        });
        Self {
            cores: cores.collect(),
        }
    }

    /// Whether there is such a CPU.
    pub fn has(&self, node: usize, cpu: usize) -> bool {
        self.cores.get(node).is_some_and(|cpus| cpu < cpus.len())
    }

    /// A CPU.
    pub fn core(&mut self, node: usize, cpu: usize) -> &mut Core<'a> {
        &mut self.cores[node][cpu]
    }

    fn at(&mut self, node: usize, cpu: usize, line: u64) -> (&mut Core<'a>, usize) {
        let core = self.core(node, cpu);
        let index = core.memory().index_base(line).wrapping_add(line);
        (core, index as usize)
    }

    /// An access to a line, wherever it is. Returns the latency in cycles.
    pub fn access(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        let (core, index) = self.at(node, cpu, line);
        // As plugins do.
        match kind {
            Kind::Load if core.quick_load(line, index) => core.latency.l1,
            Kind::Store if core.quick_store(line, index) => core.latency.l1,
            _ => core.access(kind, line, index),
        }
    }

    /// The second line of an access that spans two. Returns the latency in cycles.
    pub fn second_line(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        let (core, index) = self.at(node, cpu, line);
        core.second_line(kind, line, index)
    }

    /// Cache maintenance of a line. Returns the latency in cycles.
    pub fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        let (core, index) = self.at(node, cpu, line);
        core.flush(kind, line, index)
    }

    /// Counters of a CPU.
    pub fn counts(&self, node: usize, cpu: usize) -> Counters {
        self.cores[node][cpu].counts
    }
}
