//! TLBs and walks: what translating an address costs. Off by default: then translations are free.
//!
//! ```text
//! access ──▶ first level ──hit──▶ nothing to pay
//!                │ miss
//!                ▼
//!           second level ──hit──▶ its latency
//!                │ miss
//!                ▼
//!               walk: a load for each level of the table, and a store if the entry's accessed or dirty bit changes
//! ```
//!
//! | key | what it is |
//! |---|---|
//! | `tlb.entries`, `tlb.ways` | the first level: one for data and one for instructions, of this shape each; 0: translations are free |
//! | `tlb.l2-entries`, `tlb.l2-ways`, `tlb.l2-latency` | the second level, for both, and the cycles of a hit there; 0: there is none |
//! | `tlb.walk-entries` | entries of upper levels that a CPU remembers, so that a walk begins below them; 0: none |
//!
//! - An entry is of the size of its leaf: 4 KiB, 2 MiB or 1 GiB. All sizes share the sets. A set evicts the least recently used entry.
//! - A walk fills both levels. A hit in the second level fills the first one. Neither takes anything away from the other level.
//! - Entries have no address space: kernels use neither PCIDs nor ASIDs. A switch of the root drops what is not global where the
//!   ISA says so (x86-64), and otherwise nothing (AArch64, where kernels invalidate by hand).
//! - A store that hits an entry that is not known to be dirty walks again, as hardware does.
//! - Contents of tables come from the caller, who reads the guest's memory after the access. Hardware has set accessed and dirty by
//!   then, so `Updates` finds out whether the walk has set them.
//! - A table that cannot be read, or an entry that is neither a table nor a leaf, makes the walk unknown. It is charged
//!   nothing, and counted.

mod level;
mod updates;
mod upper;

use dyad_abi::Isa;
use dyad_pgtbl::{Level, Pte, decode};
use serde::{Deserialize, Serialize};

use level::{Page, TlbLevel};
use updates::Updates;
use upper::UpperLevels;

/// TLBs of a node's CPUs. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbConfig {
    /// Entries of the first level, of data and of instructions each.
    pub entries: u64,
    /// Entries per set.
    pub ways: u64,
    /// Entries of the second level.
    pub l2_entries: u64,
    /// Entries per set.
    pub l2_ways: u64,
    /// Cycles that a hit in the second level adds.
    pub l2_latency: u64,
    /// Entries of upper levels of tables.
    pub walk_entries: u64,
}

impl TlbConfig {
    /// Whether translations cost anything.
    pub const fn is_on(&self) -> bool {
        self.entries != 0
    }
}

/// What an address is translated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Instructions are fetched.
    Fetch,
    /// Data is loaded.
    Load,
    /// Data is stored.
    Store,
}

/// The loads and the store of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    entries: [u64; Level::ALL.len()],
    count: usize,
    updates: bool,
}

impl Walk {
    /// Physical addresses of the entries that are loaded, root first.
    pub fn loads(&self) -> &[u64] {
        &self.entries[..self.count]
    }

    /// Physical address of the entry that is stored to, if the walk changes accessed or dirty.
    pub fn store(&self) -> Option<u64> {
        self.loads().last().copied().filter(|_| self.updates)
    }
}

/// Where a translation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the first level, or addresses are not translated yet.
    First,
    /// In the second level.
    Second,
    /// In the tables.
    Tables(Walk),
    /// In tables that could not be read.
    Unknown,
}

/// Translations that an instruction drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// All of them.
    All,
    /// Those that are not global.
    NotGlobal,
    /// That of the page, of whatever size, in which an address is.
    Page(u64),
}

/// The memory that tables are in.
pub trait Tables {
    /// The word at a physical address; `None` if it cannot be read.
    fn word(&mut self, at: u64) -> Option<u64>;
}

/// The TLBs of a CPU and its walker.
#[derive(Debug)]
pub struct Mmu {
    isa: Isa,
    data: TlbLevel,
    code: TlbLevel,
    second: Option<TlbLevel>,
    second_latency: u64,
    upper: UpperLevels,
    updates: Option<Updates>,
    /// Of the lower and of the upper half of the address space; the same on x86-64.
    roots: [Option<u64>; 2],
}

impl Mmu {
    /// Empty TLBs; `None` if they are off. `updates`: whether leaves are made without accessed and dirty, so that walks set them.
    pub fn new(isa: Isa, config: TlbConfig, updates: bool) -> Option<Mmu> {
        config.is_on().then(|| Mmu {
            isa,
            data: TlbLevel::new(config.entries, config.ways),
            code: TlbLevel::new(config.entries, config.ways),
            second: (config.l2_entries != 0)
                .then(|| TlbLevel::new(config.l2_entries, config.l2_ways)),
            second_latency: config.l2_latency,
            upper: UpperLevels::new(config.walk_entries),
            updates: updates.then(Updates::default),
            roots: [None; 2],
        })
    }

    /// Cycles of a hit in the second level.
    pub const fn second_latency(&self) -> u64 {
        self.second_latency
    }

    /// The root register is written: CR3 (of both halves), TTBR0_EL1 (of the lower half), TTBR1_EL1 (of the `upper` half).
    pub fn switch_root(&mut self, upper: bool, register: u64) {
        match self.isa {
            Isa::X86_64 => {
                self.roots = [Some(register & 0x000f_ffff_ffff_f000); 2];
                self.invalidate(Dropped::NotGlobal);
            }
            // Bit 0 says that translations are common to CPUs, the upper 16 bits are the ASID.
            Isa::Aarch64 => {
                self.roots[usize::from(upper)] = Some(register & 0x0000_ffff_ffff_fffe);
            }
        }
    }

    /// Drops translations. Entries of upper levels are dropped whatever the address.
    pub fn invalidate(&mut self, what: Dropped) {
        let levels = [&mut self.data, &mut self.code];
        for level in levels.into_iter().chain(&mut self.second) {
            match what {
                Dropped::All => level.retain(|_| false),
                Dropped::NotGlobal => level.retain(|page| page.global),
                Dropped::Page(address) => level.remove(address),
            }
        }
        self.upper.clear();
    }

    /// Translates an address.
    pub fn translate(&mut self, purpose: Purpose, address: u64, tables: &mut impl Tables) -> Found {
        let first = match purpose {
            Purpose::Fetch => &mut self.code,
            Purpose::Load | Purpose::Store => &mut self.data,
        };
        let serves = |page: &Page| page.dirty || purpose != Purpose::Store;
        if first.find(address).is_some_and(|page| serves(&page)) {
            return Found::First;
        }
        let Some(root) = self.roots[usize::from(address >> 63 != 0)] else {
            return Found::First;
        };
        let in_second = self.second.as_mut().and_then(|level| level.find(address));
        if let Some(page) = in_second.filter(serves) {
            first.insert(page);
            return Found::Second;
        }
        let walked = self.walk(root, address, tables);
        let (mut page, found) = match walked {
            Some((page, walk)) => (page, Found::Tables(walk)),
            // Found again until it is evicted or dropped, so that one miss is counted once.
            None => (Page::small(address), Found::Unknown),
        };
        // Whatever the entry says now: the store has been made.
        page.dirty |= purpose == Purpose::Store;
        let first = match purpose {
            Purpose::Fetch => &mut self.code,
            Purpose::Load | Purpose::Store => &mut self.data,
        };
        for level in [first].into_iter().chain(&mut self.second) {
            level.insert(page);
        }
        found
    }

    /// Looks an address up in the tables; `None` if that is not possible.
    fn walk(&mut self, root: u64, address: u64, tables: &mut impl Tables) -> Option<(Page, Walk)> {
        let mut walk = Walk::default();
        let (mut level, mut table) = match self.upper.find(address) {
            Some((level, table)) => (level, table),
            None => (Level::L4, root),
        };
        loop {
            let index = match (level, self.isa) {
                // Each half has a root of its own.
                (Level::L4, Isa::Aarch64) => level.index(address) % 256,
                _ => level.index(address),
            };
            let at = table + index as u64 * 8;
            let raw = tables.word(at)?;
            walk.entries[walk.count] = at;
            walk.count += 1;
            match decode(self.isa, raw, level) {
                Pte::Table(below) => {
                    self.upper.insert(level, address, below.0);
                    (level, table) = (level.below()?, below.0);
                }
                Pte::Leaf(leaf) => {
                    let updates = self.updates.as_mut();
                    walk.updates = updates.is_some_and(|u| u.changes(at, leaf));
                    return Some((Page::new(address, level, &leaf), walk));
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
