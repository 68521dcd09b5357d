// SPDX-License-Identifier: GPL-2.0-or-later
//! The stale-read sanitizer, with `--coherence incoherent`: what kernels read and write in fused
//! memory goes through [`dyad_sim_model::incoherent`].
//!
//! Seen are accesses that kernels make through their map of fused memory, and the flushes there.
//! Programs cannot use these addresses; what kernels do in frames of users is left out
//! ([`dyad_sim_model::incoherent::frames`]), and so are the clock and the words for tests. On demand (`users`) those of programs are seen
//! in memory that they keep coherent by themselves.

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use dyad_abi::user::{HEAP_END, INCOHERENT_BASE, PAGE_SIZE};
use dyad_retype::FrameWord;
use dyad_shm::quiesce::{NodePublication, QuiesceArea};
use dyad_shm::superblock::{
    CLOCK_OFFSET, CXL_FRAME_TABLE_OFFSET, INBOX_OFFSET, QUIESCE_OFFSET, SCRATCH_LINES, ScratchLine,
};
use dyad_shm::{FUSED_BASE, FUSED_END, FrameEntry, PoolId, Superblock};
use dyad_sim_model::coherent::Kind;
use dyad_sim_model::config::{Pool, SimConfig};
use dyad_sim_model::incoherent::access::Sink;
use dyad_sim_model::incoherent::{
    Finding, Findings, Frames, Incoherent, Peek, Pending, Shape, Waiting, Who,
};
use dyad_sim_model::memory::physical_of;
use dyad_sim_model::report::SanitizerReport;

use crate::cache::{Line, LineAction, Watched, Watcher};
use crate::ffi;
use crate::maintenance::LineOp;

/// After this many accesses a CPU looks at what has become of them.
const LOOK_EVERY: u64 = 256;

/// Words of the pools, as they are.
#[derive(Debug)]
struct Pools(Vec<(Pool, &'static [AtomicU64])>);

impl Peek for Pools {
    fn word(&self, at: u64) -> Option<u64> {
        self.0.iter().find_map(|(pool, words)| {
            let word = words.get((at.checked_sub(pool.base)? / 8) as usize)?;
            Some(word.load(Ordering::Relaxed))
        })
    }
}

/// Physical address of a node's publication word.
const fn publication(node: usize) -> u64 {
    let first = QUIESCE_OFFSET + offset_of!(QuiesceArea, publications) as u64;
    let published = offset_of!(NodePublication, published) as u64;
    PoolId::Cxl.base().0 + first + node as u64 * size_of::<NodePublication>() as u64 + published
}

/// Whether a word is none that caches are asked about: those for tests in the superblock, which
/// in-kernel tests hammer with bare instructions to see what the emulator makes of them; and the pages
/// of the clock, which are a device.
fn is_left_out(physical: u64) -> bool {
    const CXL: u64 = PoolId::Cxl.base().0;
    const TESTS: u64 = CXL + offset_of!(Superblock, scratch) as u64;
    const TESTS_END: u64 = TESTS + (SCRATCH_LINES * size_of::<ScratchLine>()) as u64;
    matches!(physical, TESTS..TESTS_END)
        || (CXL + CLOCK_OFFSET..CXL + INBOX_OFFSET).contains(&physical)
}

/// Whether one publication is of a newer epoch than another: the lowest 16 bits are something else.
const fn newer(old: u64, now: u64) -> bool {
    now >> 16 > old >> 16
}

/// Whether an address is in memory that programs keep coherent by themselves.
pub fn is_of_program(address: u64) -> bool {
    (INCOHERENT_BASE..HEAP_END).contains(&address)
}

/// The sanitizer of a machine.
#[derive(Debug)]
pub struct Sanitizer {
    shape: Shape,
    words: &'static [AtomicU64],
    frames: Frames<Pools>,
    node: u8,
    /// Whether programs are watched.
    users: bool,
    /// Where the node publishes the end of its rounds.
    publication: u64,
    found: Mutex<Findings>,
    /// What its CPUs wait for, by CPU.
    pending: Mutex<Waiting>,
}

impl Sanitizer {
    /// The sanitizer of a node: its state in the file `state`, which all machines share, and the
    /// pools in these files.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn new(
        config: &SimConfig,
        node: usize,
        state: &str,
        pools: &[&str],
        users: bool,
    ) -> Result<Sanitizer, String> {
        let shape = Shape::new(config.nodes.len(), &config.pools)?;
        let words = ffi::map_words(Path::new(state), shape.words() as usize)?;
        let pools = config.pools.iter().zip(pools).map(|(pool, file)| {
            let words = ffi::map_words(Path::new(file), (pool.size / 8) as usize)?;
            Ok((*pool, words))
        });
        Incoherent::new(&shape, words).switch_on(node as u8);
        Ok(Sanitizer {
            shape,
            words,
            frames: Frames(Pools(pools.collect::<Result<_, String>>()?)),
            node: node as u8,
            users,
            publication: publication(node),
            found: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    fn memory(&self) -> Incoherent<'_> {
        Incoherent::new(&self.shape, self.words)
    }

    /// Whether code at an address is watched: kernels', and that of programs on demand.
    pub const fn watches(&self, address: u64) -> bool {
        address >> 63 != 0 || self.users
    }

    /// Whether each node has the caches' copies of an address in a pool for itself.
    pub fn is_incoherent(&self, address: u64, physical: u64) -> bool {
        is_of_program(address) || !is_left_out(physical) && !self.frames.is_user(physical)
    }

    /// Who watches a CPU.
    pub fn watcher(&'static self, cpu: usize) -> Box<dyn Watcher> {
        Box::new(CpuWatcher {
            sanitizer: self,
            cpu: cpu as u8,
            accesses: 0,
        })
    }

    /// What has been found so far.
    pub fn report(&self) -> SanitizerReport {
        self.settle();
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        SanitizerReport {
            findings: found.rows(),
            dropped: found.dropped(),
            let_go: pending.let_go(),
        }
    }

    /// Whether an address is that of the first word of a frame's record.
    fn is_record(&self, at: u64) -> bool {
        let pool = (self.frames.0.0.iter()).find(|(p, _)| (p.base..p.base + p.size).contains(&at));
        pool.is_some_and(|(pool, _)| {
            let table = match pool.base == PoolId::Cxl.base().0 {
                true => pool.base + CXL_FRAME_TABLE_OFFSET,
                false => pool.base,
            };
            let bytes = pool.size / PAGE_SIZE * size_of::<FrameEntry>() as u64;
            (table..table + bytes).contains(&at)
                && at.is_multiple_of(size_of::<FrameEntry>() as u64)
        })
    }

    fn note(&self, finding: &Finding) {
        let mut finding = *finding;
        // A record that says that a frame is not in use is not believed: it is looked at again, at
        // memory.
        let old = FrameWord::from_bits(finding.old);
        if self.is_record(finding.at) && old.is_none_or(|word| word.ty.in_use().is_none()) {
            finding.late = false;
        }
        let frame = self.frames.word(finding.at).map_or(0, FrameWord::bits);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.note(&finding, frame);
    }

    /// Resolves the pending reads of data that had not been written back.
    fn settle(&self) {
        let memory = self.memory();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.settle(|p| memory.settle(p), |finding| self.note(finding));
    }
}

impl Sink for &Sanitizer {
    fn finding(&mut self, finding: Finding) {
        self.note(&finding);
    }

    fn pending(&mut self, new: Pending) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.add(new);
    }
}

/// Whether a read was stale.
struct Stale {
    sink: &'static Sanitizer,
    found: bool,
}

impl Sink for Stale {
    fn finding(&mut self, finding: Finding) {
        self.found |= finding.kind == dyad_sim_model::incoherent::Kind::StaleRead;
        self.sink.finding(finding);
    }

    fn pending(&mut self, new: Pending) {
        self.sink.pending(new);
    }
}

/// What a CPU's accesses are reported to.
struct CpuWatcher {
    sanitizer: &'static Sanitizer,
    cpu: u8,
    accesses: u64,
}

impl CpuWatcher {
    /// The instruction at `pc`, if what it accesses counts.
    fn who(&mut self, pc: u64, address: u64, physical: u64) -> Option<Who> {
        let is_seen = (FUSED_BASE..FUSED_END).contains(&address)
            || self.sanitizer.users && is_of_program(address);
        if !is_seen || !self.sanitizer.is_incoherent(address, physical) {
            return None;
        }
        self.accesses += 1;
        if self.accesses.is_multiple_of(LOOK_EVERY) {
            self.sanitizer.settle();
        }
        Some(Who {
            node: self.sanitizer.node,
            cpu: self.cpu,
            pc,
        })
    }
}

impl Watcher for CpuWatcher {
    fn access(&mut self, a: &Watched) {
        let a = &Watched {
            physical: physical_of(a.physical),
            ..*a
        };
        let Some(who) = self.who(a.at, a.address, a.physical) else {
            return;
        };
        let mut sink = self.sanitizer;
        let memory = sink.memory();
        let bytes = a.bytes as u32;
        match a.kind {
            Kind::Load if is_of_program(a.address) => {
                let mut stale = Stale { sink, found: false };
                memory.load(who, a.physical, bytes, a.value, &mut stale);
                // A program finds by a stamp that a copy is old, drops it and reads again. What has been read here is new, so
                // the program does not: it is done for it.
                if stale.found {
                    memory.flush(who, a.physical, &mut sink);
                }
            }
            Kind::Load => memory.load(who, a.physical, bytes, a.value, &mut sink),
            Kind::Fetch => {}
            Kind::Store => memory.store(who, a.physical, bytes, a.value, &mut sink),
            Kind::Rmw => {
                // What QEMU reports as stored is an operand, or what would have been stored.
                let now = sink.frames.0.word(a.physical & !7);
                let now = now.map(|word| word >> (8 * (a.physical % 8)));
                let old = a.value as u64;
                memory.modify(who, a.physical, bytes, old, now, &mut sink);
                if a.physical == sink.publication && now.is_some_and(|now| newer(old, now)) {
                    memory.round_done(who.node);
                }
            }
        }
    }

    fn fetch(&mut self, _: &[Line]) {}

    fn everything(&mut self, pc: u64, _: bool) {
        let who = Who {
            node: self.sanitizer.node,
            cpu: self.cpu,
            pc,
        };
        self.sanitizer.memory().flush_everything(who);
    }

    fn line(&mut self, action: &LineAction, address: u64, physical: u64) {
        let physical = physical_of(physical);
        let Some(who) = self.who(action.at, address, physical) else {
            return;
        };
        let mut sink = self.sanitizer;
        let memory = sink.memory();
        match action.op {
            LineOp::WriteBack => memory.write_back(who, physical, &mut sink),
            LineOp::Flush | LineOp::Drop => memory.flush(who, physical, &mut sink),
            LineOp::Zero => {
                let line = physical & !63;
                for at in (line..line + 64).step_by(8) {
                    memory.store(who, at, 8, 0, &mut sink);
                }
            }
        }
    }
}
