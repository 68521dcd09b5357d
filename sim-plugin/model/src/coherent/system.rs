//! All CPUs of all nodes in one process: for traces and tests.

use std::sync::atomic::AtomicU64;

use super::{Core, FlushKind, Kind};
use crate::account::Counters;
use crate::config::SimConfig;
use crate::first::Name;
use crate::lines::Lines;
use crate::shared::Areas;

/// State that the CPUs of a [`System`] share.
#[derive(Debug)]
pub struct Storage {
    areas: Areas,
    words: Box<[AtomicU64]>,
}

impl Storage {
    /// The storage for a system with this configuration.
    pub fn new(config: &SimConfig) -> Self {
        let areas = Areas::new(config);
        let words = (0..areas.words()).map(|_| AtomicU64::new(0)).collect();
        Self { areas, words }
    }

    /// The words of the directory, and at level timing the times of lines.
    pub fn lines(&self) -> Lines<'_> {
        self.areas.lines(&self.words)
    }

    /// The calendars of memories and links of limited bandwidth.
    pub fn calendars(&self) -> &[AtomicU64] {
        self.areas.calendars(&self.words)
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
    names: Option<Names>,
}

/// Names that lines have: several each, and others from time to time.
#[derive(Clone, Copy, Debug)]
struct Names {
    state: u64,
    salt: u64,
}

impl Names {
    /// A name of a line, and whether names have changed.
    fn next(&mut self, line: u64) -> (Name, bool) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let changed = self.state.is_multiple_of(64);
        if changed {
            self.salt = self.state >> 20 & 0xFFFF;
        }
        // Bits above those of lines make names different; they are in other places of a memo too.
        let alias = self.state >> 40 & 3;
        (Name(line ^ self.salt ^ (alias * ((1 << 39) | 5))), changed)
    }
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
            names: None,
        }
    }

    /// Gives lines several names each, which change as address spaces do. The counts must not change.
    pub fn vary_names(&mut self, seed: u64) {
        self.names = Some(Names {
            state: seed | 1,
            salt: 0,
        });
    }

    fn name(&mut self, line: u64) -> Name {
        let Some(names) = &mut self.names else {
            return Name(line);
        };
        let (name, changed) = names.next(line);
        if changed {
            let cores = self.cores.iter_mut().flatten();
            cores.for_each(Core::forget_names);
        }
        name
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
        let name = self.name(line);
        let (core, index) = self.at(node, cpu, line);
        // As plugins do.
        match kind {
            Kind::Load if core.quick_load(name) => core.latency.l1,
            Kind::Store if core.quick_store(name) => core.latency.l1,
            Kind::Rmw if core.quick_rmw(name) => core.latency.l1,
            _ => core.access(kind, name, line, index),
        }
    }

    /// The second line of an access that spans two. Returns the latency in cycles.
    pub fn second_line(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        let name = self.name(line);
        let (core, index) = self.at(node, cpu, line);
        core.second_line(kind, name, line, index)
    }

    /// Cache maintenance of a line. Returns the latency in cycles.
    pub fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        let (core, index) = self.at(node, cpu, line);
        core.flush(kind, line, index)
    }

    /// Counters of a CPU.
    pub fn counts(&self, node: usize, cpu: usize) -> Counters {
        self.cores[node][cpu].counts()
    }
}
