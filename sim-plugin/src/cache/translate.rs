// SPDX-License-Identifier: GPL-2.0-or-later
//! Translations that take time: [`dyad_sim_model::translation`] says which accesses a walk makes.
//!
//! A walk's accesses are those of the CPU to the table's lines, as ordinary loads and stores: they go through the caches, wait for other
//! nodes, and are in traces, before the access that they are made for. What they take is charged to the walk.

use std::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_shm::{FUSED_BASE, PRIVATE_BASE};
use dyad_sim_model::coherent;
use dyad_sim_model::translation::{Found, Mmu, Purpose, Tables, Walk};

use super::{Cpu, Kind, LINE, Probe, Watched, name};
use crate::ffi::Registers;
use crate::invalidation::{self, Invalidation};

/// The words of a pool, and its physical start.
pub type PoolWords = (u64, &'static [AtomicU64]);

/// Page tables in memory: in a pool, or in the machine's own memory.
struct InMemory<'a> {
    pools: &'a [PoolWords],
    registers: &'a mut Registers,
}

impl Tables for InMemory<'_> {
    fn word(&mut self, at: u64) -> Option<u64> {
        use std::sync::atomic::Ordering::Relaxed;
        let in_pool = self.pools.iter().find_map(|(base, words)| {
            let offset = at.checked_sub(*base)?;
            words.get((offset / 8) as usize)
        });
        match in_pool {
            Some(word) => Some(word.load(Relaxed)),
            // The kernel's own tables, which are used by the kernel only, so that its map can be read.
            None => self.registers.word_at(PRIVATE_BASE.wrapping_add(at)),
        }
    }
}

impl Cpu {
    /// Translates the pages of an access.
    #[cold]
    #[inline(never)]
    pub(super) fn translate_access(&mut self, kind: u8, probe: &impl Probe) {
        let purpose = match kind {
            Kind::LOAD => Purpose::Load,
            _ => Purpose::Store,
        };
        let first = probe.address();
        let last = first.wrapping_add(probe.bytes() - 1);
        self.translate(purpose, first);
        if last / PAGE_SIZE != first / PAGE_SIZE {
            self.translate(purpose, last);
        }
    }

    /// Translates the pages that a block's instructions are in.
    #[cold]
    #[inline(never)]
    pub(super) fn translate_code(&mut self, pages: &[u64]) {
        for page in pages {
            self.translate(Purpose::Fetch, *page);
        }
    }

    /// Translates an address, if that takes anything.
    pub(super) fn translate(&mut self, purpose: Purpose, address: u64) {
        let Some(mut mmu) = self.mmu.take() else {
            return;
        };
        let mut tables = InMemory {
            pools: self.setup.pool_words(),
            registers: &mut self.registers,
        };
        match mmu.translate(purpose, address, &mut tables) {
            Found::First => {}
            Found::Second => {
                let cycles = mmu.second_latency();
                self.operated.tlb_l2_hits += 1;
                self.operated.walk_cycles += cycles;
                self.pass(cycles);
            }
            Found::Tables(walk) => self.walk(&walk),
            Found::Unknown => self.operated.walks_unknown += 1,
        }
        self.mmu = Some(mmu);
    }

    fn walk(&mut self, walk: &Walk) {
        self.operated.walks += 1;
        for at in walk.loads() {
            self.operated.walk_loads += 1;
            self.walk_access::<{ Kind::LOAD }>(*at);
        }
        if let Some(at) = walk.store() {
            self.operated.walk_stores += 1;
            self.walk_access::<{ Kind::STORE }>(at);
        }
    }

    /// An access of a walk to a table's entry.
    fn walk_access<const KIND: u8>(&mut self, physical: u64) {
        // The kernel's name for it.
        let base = match self.setup.is_fused(physical) {
            true => FUSED_BASE,
            false => PRIVATE_BASE,
        };
        let address = base.wrapping_add(physical);
        let frame = self.setup.frame(address, physical);
        let watched = Watched {
            kind: match KIND {
                Kind::LOAD => coherent::Kind::Load,
                _ => coherent::Kind::Store,
            },
            at: 0,
            address,
            physical: frame.line(address) * LINE + address % LINE,
            bytes: 8,
            value: 0,
        };
        for watcher in &mut self.watchers {
            watcher.walk(&watched);
        }
        let (misses, stalls) = (self.core.counts().l1d_misses, self.core.stalls());
        let (line, index) = (frame.line(address), frame.index(address) as usize);
        let cycles = match KIND {
            Kind::LOAD => self.core.load(name(address), line, index),
            _ => self.core.store(name(address), line, index),
        };
        let waited = self.core.stalls().since(&stalls);
        self.core.has_not_waited(&waited);
        self.operated.walk_hits += u64::from(self.core.counts().l1d_misses == misses);
        self.operated.walk_cycles += cycles;
        self.pass(cycles);
    }

    /// An instruction is about to change TLBs or the root.
    pub fn invalidate(&mut self, invalidation: &Invalidation) {
        let Some(mmu) = &mut self.mmu else {
            return;
        };
        let registers = &mut self.registers;
        let isa = self.setup.isa();
        let of_others = invalidation.apply(isa, mmu, |n| registers.read(n));
        if let Some(dropped) = of_others {
            invalidation::post(self.number, dropped);
        }
    }

    /// Drops what other CPUs have said.
    pub(super) fn drop_translations(&mut self) {
        if let Some(mmu) = &mut self.mmu {
            for dropped in invalidation::collect(self.number) {
                mmu.invalidate(dropped);
            }
        }
    }

    /// Accesses to data, without those of walks.
    pub(super) fn data_accesses(&self) -> u64 {
        let walks = self.operated.walk_loads + self.operated.walk_stores;
        self.core.counts().data() - walks
    }
}

/// The TLBs of a CPU, if they are simulated.
pub(super) type OwnMmu = Option<Box<Mmu>>;
