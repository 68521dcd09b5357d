// SPDX-License-Identifier: GPL-2.0-or-later
//! Stretches with interrupts masked: how many instructions a CPU executes from its entry into the kernel
//! until it takes interrupts again.
//!
//! Kernels of Dyad mask interrupts wherever they run. A stretch therefore ends in one of three ways:
//!
//! ```text
//!             kernel block                     user block, halt, begin of a wait
//!   OUTSIDE ───────────────▶ INSIDE (counts) ────────────────────────────────────▶ OUTSIDE
//!                               ▲                                                     │
//!                               └────────────── end of a wait ────────────────────────┘
//! ```
//!
//! A CPU that waits ([`MarkerOp::Idle`](dyad_abi::marker::MarkerOp::Idle)) polls for all that an interrupt could
//! announce, and a CPU that halts is woken by interrupts. Neither is a part of a stretch.
//!
//! Nothing is recorded of a CPU before it executes its first system call: the start of a machine is no
//! stretch.
//!
//! Nothing of QEMU is in here.

use std::collections::BTreeMap;

use dyad_abi::marker::WindowId;

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It has not executed a system call.
    #[default]
    Off,
    /// It runs user code, or halts.
    Outside,
    /// It is inside of a stretch.
    Inside,
    /// It polls, in the kernel.
    Waits,
}

/// What a stretch is filed under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The window that was open on the CPU when the stretch began.
    pub window: Option<WindowId>,
    /// Address of the first instruction of the stretch.
    pub entry: u64,
}

/// A stretch that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The key of the stretch in the report.
    pub key: Key,
    /// Instructions.
    pub length: u64,
    /// Addresses of the instructions, if they are kept.
    pub sites: Vec<u64>,
}

/// One CPU.
#[derive(Debug, Default)]
pub struct CpuStretch {
    phase: Phase,
    key: Key,
    from: u64,
    sites: Vec<u64>,
}

impl CpuStretch {
    /// The CPU is about to execute a system call.
    pub fn calls(&mut self) {
        if self.phase == Phase::Off {
            self.phase = Phase::Outside;
        }
    }

    /// The CPU is about to execute kernel code at `entry`, and was not in the kernel before. `now` is what
    /// it has executed so far.
    pub fn enters(&mut self, entry: u64, now: u64, window: Option<WindowId>) {
        match self.phase {
            Phase::Outside => self.begin(Key { window, entry }, now),
            Phase::Off | Phase::Inside | Phase::Waits => {}
        }
    }

    fn begin(&mut self, key: Key, now: u64) {
        self.phase = Phase::Inside;
        self.key = key;
        self.from = now;
        self.sites.clear();
    }

    /// The CPU is about to execute user code.
    pub fn leaves(&mut self, now: u64) -> Option<Stretch> {
        let ended = self.end(now);
        if self.phase != Phase::Off {
            self.phase = Phase::Outside;
        }
        ended
    }

    /// Notes that the CPU halts.
    pub fn halts(&mut self, now: u64) -> Option<Stretch> {
        let ended = self.end(now);
        if ended.is_some() || self.phase == Phase::Waits {
            self.phase = Phase::Outside;
        }
        ended
    }

    /// Notes that a wait begins.
    pub fn waits(&mut self, now: u64) -> Option<Stretch> {
        let ended = self.end(now);
        if ended.is_some() {
            self.phase = Phase::Waits;
        }
        ended
    }

    /// Notes that a wait ends, if one lasts.
    pub fn works(&mut self, now: u64, window: Option<WindowId>) {
        if self.phase == Phase::Waits {
            // The code behind the wait belongs to the entry from which the CPU came to it.
            let entry = self.key.entry;
            self.begin(Key { window, entry }, now);
        }
    }

    fn end(&mut self, now: u64) -> Option<Stretch> {
        (self.phase == Phase::Inside).then(|| Stretch {
            key: self.key,
            length: now.wrapping_sub(self.from),
            sites: std::mem::take(&mut self.sites),
        })
    }

    /// The CPU is about to execute the instruction at an address.
    pub fn executes(&mut self, at: u64) {
        if self.phase == Phase::Inside {
            self.sites.push(at);
        }
    }
}

/// Stretches of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// Number of stretches.
    pub n: u64,
    /// Instructions of the longest stretch.
    pub length: u64,
    /// Instructions of the longest stretch and how often each was started, if they are kept.
    pub sites: BTreeMap<u64, u64>,
}

/// The stretches of a machine.
#[derive(Clone, Debug, Default)]
pub struct Stretches(pub BTreeMap<Key, Longest>);

impl Stretches {
    /// Adds a stretch.
    pub fn add(&mut self, stretch: &Stretch) {
        let longest = self.0.entry(stretch.key).or_default();
        longest.n += 1;
        if stretch.length >= longest.length {
            longest.length = stretch.length;
            longest.sites.clear();
            for &at in &stretch.sites {
                *longest.sites.entry(at).or_default() += 1;
            }
        }
    }

    /// Removes the stretches of a window, which were for warming up.
    pub fn forget(&mut self, id: WindowId) {
        self.0.retain(|key, _| key.window != Some(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSCALL: u64 = 0xffff_8000;
    const IRQ: u64 = 0xffff_9000;
    const A: Option<WindowId> = Some(WindowId(3));

    /// A CPU that has been started and runs user code.
    fn started() -> CpuStretch {
        let mut cpu = CpuStretch::default();
        cpu.calls();
        cpu
    }

    fn length(stretch: Option<Stretch>) -> Option<u64> {
        stretch.map(|s| s.length)
    }

    #[test]
    fn the_start_of_a_machine_is_no_stretch() {
        let mut cpu = CpuStretch::default();
        // Kernels are started by code at low addresses, and come back to it.
        for start in [0, 1000] {
            cpu.enters(1, start, None);
            assert_eq!(cpu.waits(start + 100), None);
            cpu.works(start + 200, None);
            assert_eq!(cpu.halts(start + 300), None);
            assert_eq!(cpu.leaves(start + 400), None);
        }
        cpu.calls();
        cpu.enters(SYSCALL, 2500, A);
        cpu.calls();
        assert_eq!(length(cpu.leaves(2520)), Some(20));
    }

    #[test]
    fn a_stretch_is_from_the_entry_to_user_code() {
        let mut cpu = started();
        cpu.executes(8);
        cpu.enters(SYSCALL, 100, A);
        cpu.executes(16);
        let stretch = cpu.leaves(130).unwrap();
        assert_eq!(stretch.sites, [16]);
        let key = Key {
            window: A,
            entry: SYSCALL,
        };
        assert_eq!((stretch.key, stretch.length), (key, 30));
        // User code that goes on is no second end.
        assert_eq!(cpu.leaves(140), None);
    }

    #[test]
    fn a_halt_and_a_wait_end_stretches() {
        let mut cpu = started();
        cpu.enters(SYSCALL, 100, None);
        assert_eq!(length(cpu.waits(110)), Some(10));
        // A thousand looks.
        cpu.works(1110, None);
        assert_eq!(length(cpu.halts(1115)), Some(5));
        cpu.enters(IRQ, 2000, None);
        assert_eq!(length(cpu.leaves(2007)), Some(7));
        // A wait that ends in user mode.
        cpu.enters(SYSCALL, 3000, None);
        assert_eq!(length(cpu.waits(3001)), Some(1));
        assert_eq!(cpu.leaves(4000), None);
        // The end of a wait that was none.
        cpu.enters(SYSCALL, 5000, None);
        cpu.works(5010, None);
        assert_eq!(length(cpu.leaves(5020)), Some(20));
    }

    #[test]
    fn the_longest_of_each_key_is_kept_with_its_instructions() {
        let mut all = Stretches::default();
        let key = Key {
            window: A,
            entry: SYSCALL,
        };
        for (length, at) in [(10, 1), (30, 2), (20, 3)] {
            all.add(&Stretch {
                key,
                length,
                sites: vec![at, at],
            });
        }
        let longest = &all.0[&key];
        assert_eq!((longest.n, longest.length), (3, 30));
        assert_eq!(longest.sites, BTreeMap::from([(2, 2)]));
        all.forget(WindowId(4));
        assert_eq!(all.0.len(), 1);
        all.forget(WindowId(3));
        assert!(all.0.is_empty());
    }
}
