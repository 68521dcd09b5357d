// SPDX-License-Identifier: GPL-2.0-or-later
//! Levels `cache` and `timing`: every access goes through the model. At level `timing` its latency
//! becomes time.
//!
//! ```text
//! access ──▶ model: memo of names ──hit──▶ done
//!                │ miss
//!                ▼
//!            micro-TLB ──hit──▶ model: levels, directory ──▶ memo
//!                │ miss             ▲
//!                ▼                  │
//!           QEMU: where is it? ─────┘
//! ```
//!
//! | what | charged |
//! |---|---|
//! | load, store | once per line; one that spans two lines is one access and two lines, one that spans two pages two of both |
//! | atomic read-modify-write | once, as a request for ownership, whether it succeeds or not |
//! | instructions | the lines of a block when it is entered; a line that the last instruction was in is not fetched again |
//! | access to a device | not at all; counted |
//! | translation, if TLBs are simulated | before the access, the fetch or the flush that it is for: `translate` |
//! | flush, write-back of a line; DC ZVA | by the address, computed from the registers |
//! | flush of everything | what is written back; the misses that follow |
//! | trap, return, fence and the like ([`crate::system`]) | its price; counted |

mod overlap;
mod passed;
mod translate;
mod watch;

use passed::Awaited;
pub use passed::{Part, Passed};
use translate::OwnMmu;
pub use translate::PoolWords;
pub use watch::{Watched, Watcher};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::marker::{Marker, WindowId};
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::FUSED_BASE;
use dyad_sim_model::account::Counters;
use dyad_sim_model::coherent::{Core, FlushKind};
use dyad_sim_model::config::LINE_BYTES;
use dyad_sim_model::first::Name;
use dyad_sim_model::overlap::Window;
use dyad_sim_model::shared::LOOKS_PER_PUBLICATION;
use dyad_sim_model::system::{Operation, SystemCosts};
use dyad_sim_model::translation::Purpose;

use crate::cached::Setup;
use crate::clock;
use crate::ffi::{Registers, Words};
use crate::maintenance::{LineOp, Operand};
use crate::regions::{Doing, Region, Regions};
use crate::sanitizer::is_of_program;
use crate::tlb::{Frame, Tlb};
use crate::windows::Place;

/// Kinds of accesses, as constants that callbacks are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind;

impl Kind {
    /// A load.
    pub const LOAD: u8 = 0;
    /// A store.
    pub const STORE: u8 = 1;
    /// An atomic read-modify-write.
    pub const MODIFY: u8 = 2;
}

const LINE: u64 = LINE_BYTES;
const PAGE: u64 = PAGE_SIZE;
/// An access that begins at this offset in its line or before it ends in it: QEMU reports none that is
/// longer than 16 bytes.
pub const EDGE_WIDE: u64 = LINE - 16;
/// The same for accesses of at most 8 bytes.
pub const EDGE_NARROW: u64 = LINE - 8;

/// What the model calls the line of an address.
const fn name(address: u64) -> Name {
    Name(address / LINE)
}

/// What QEMU can tell about an access.
pub trait Probe {
    /// Its virtual address.
    fn address(&self) -> u64;
    /// Its length.
    fn bytes(&self) -> u64;
    /// What was loaded or stored, little-endian.
    fn value(&self) -> u128;
    /// Where an address on one of its pages is; `None` if QEMU has dropped the translation.
    fn place(&self, address: u64) -> Option<Place>;
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Physical address / 64.
    pub number: u64,
    /// Its place in the directory; larger than any, if it is in no pool.
    pub index: u64,
}

/// The lines that a block's instructions are in.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    lines: Box<[Line]>,
    /// An address on each of the virtual pages that the block is in, if TLBs are simulated.
    pages: Box<[u64]>,
}

impl Fetch {
    /// Lines in the order of execution; there is at least one.
    pub fn new(lines: Vec<Line>, pages: Vec<u64>) -> Fetch {
        assert!(!lines.is_empty(), "a block has instructions");
        let (lines, pages) = (lines.into(), pages.into());
        Fetch { lines, pages }
    }

    /// Its name, for the CPU's word that says what was fetched last; never 0, which is what the word
    /// starts with. Blocks in the same single line have the same name, so that going from one to the
    /// other fetches nothing. Executing a block of several lines again at once fetches nothing either:
    /// they have just been used, in this order.
    pub fn name(&self) -> u64 {
        match *self.lines {
            [line] => line.number << 1 | 1,
            // Where it lives: nothing else does.
            _ => std::ptr::from_ref(self).addr() as u64 & !1,
        }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }
}

/// An instruction that acts on a line.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LineAction {
    /// What it does.
    pub op: LineOp,
    /// On which address.
    pub operand: Operand,
    /// Its own address.
    pub at: u64,
}

/// How far the short way of an access has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    /// To its end.
    Done,
    /// It is in one line of this frame.
    Elsewhere(Frame),
    /// Nowhere.
    Unknown,
}

/// The model's state of a CPU, and what it takes to find out where accesses go.
pub struct Cpu {
    number: u32,
    words: Words,
    tlb: Tlb,
    core: Core<'static>,
    /// Accesses that are under way, if the CPU does anything beside them.
    window: Option<Window>,
    /// TLBs, if they are simulated.
    mmu: OwnMmu,
    costs: SystemCosts,
    /// What [`operate`](Cpu::operate) and translations have counted.
    operated: Counters,
    watchers: Vec<Box<dyn Watcher>>,
    turn: u64,
    /// Picoseconds by which a cycle of latency moves the CPU's time; 0 if it does not.
    cycle_ps: u64,
    /// The same of a hit in the first level.
    hit_ps: u64,
    /// What was counted when the machine said that it ends.
    last: Option<Counters>,
    devices: u64,
    unknown: u64,
    /// How often a page of a program was looked up, by the pool where it was.
    program_pages: [u64; MAX_NODES + 1],
    /// Translations that were compared with QEMU's, and those that were wrong.
    checked: u64,
    wrong: u64,
    /// The frames of pages that programs keep coherent by themselves, as they were last: for lines that are written back or dropped when
    /// translations have changed since the last access. Such pages stay where they are.
    kept: BTreeMap<u64, Frame>,
    registers: Registers,
    regions: Regions<'static, Passed>,
    awaited: Awaited,
    /// Looks around since it has published.
    unpublished: u32,
    /// The number of accesses to data before all caches were emptied last.
    emptied_at: Option<u64>,
    setup: &'static Setup,
    /// Another CPU has changed this one's translations.
    translations_changed: AtomicBool,
}

impl Cpu {
    /// The state of a CPU that is being initialised.
    pub fn new(number: u32, setup: &'static Setup) -> Cpu {
        let mut cpu = Cpu {
            number,
            words: Words::of(number),
            tlb: Tlb::new(),
            core: setup.core(number as usize),
            window: setup.window(),
            mmu: setup.mmu(),
            costs: setup.costs(),
            operated: Counters::default(),
            watchers: setup.watchers(number as usize),
            turn: 0,
            cycle_ps: setup.cycle_ps(),
            hit_ps: setup.cycle_ps() * setup.l1_cycles(),
            last: None,
            devices: 0,
            unknown: 0,
            program_pages: [0; MAX_NODES + 1],
            checked: 0,
            wrong: 0,
            kept: BTreeMap::new(),
            registers: Registers::find(setup.isa()),
            regions: setup.open_regions(number as usize),
            awaited: Awaited::default(),
            unpublished: LOOKS_PER_PUBLICATION,
            emptied_at: None,
            setup,
            translations_changed: AtomicBool::new(false),
        };
        cpu.be_careful(false);
        cpu
    }

    /// Takes note of a load or a store of at most 64 - `EDGE` bytes, if that is as simple as it can
    /// be: in one line that the model remembers by this address. Otherwise nothing happens, and what
    /// is known of it is returned.
    #[inline(always)]
    pub fn quick<const KIND: u8, const EDGE: u64, const TIMED: bool>(
        &mut self,
        address: u64,
    ) -> Quick {
        if address % LINE > EDGE {
            return Quick::Unknown;
        }
        if self.remembers::<KIND, TIMED>(address) {
            return Quick::Done;
        }
        match self.tlb.find(address) {
            Some(frame) => Quick::Elsewhere(frame),
            None => Quick::Unknown,
        }
    }

    /// Takes note of an access to one line, if the model remembers the line by this address.
    /// `TIMED`: hits may take time.
    #[inline(always)]
    fn remembers<const KIND: u8, const TIMED: bool>(&mut self, address: u64) -> bool {
        let hit = match KIND {
            Kind::LOAD => self.core.quick_load(name(address)),
            Kind::STORE => self.core.quick_store(name(address)),
            _ => self.core.quick_rmw(name(address)),
        };
        if hit && TIMED {
            self.words.add_time(self.hit_ps);
        }
        hit
    }

    /// An access to a line of a frame that the fast path has not recognised as a hit.
    #[inline(always)]
    pub fn elsewhere<const KIND: u8>(&mut self, address: u64, frame: Frame) {
        let cycles = self.touch::<KIND>(frame, address);
        self.pass(cycles);
    }

    /// Takes note of any access that has been made.
    #[inline(never)]
    pub fn access<const KIND: u8>(&mut self, probe: &impl Probe) {
        if self.mmu.is_some() {
            self.translate_access(KIND, probe);
        }
        self.access_translated::<KIND>(probe);
    }

    /// Takes note of an access whose translation has been paid for.
    #[inline(always)]
    fn access_translated<const KIND: u8>(&mut self, probe: &impl Probe) {
        let address = probe.address();
        if address % LINE > EDGE_WIDE && address % LINE + probe.bytes() > LINE {
            return self.crossing(KIND, probe);
        }
        if self.remembers::<KIND, true>(address) {
            return;
        }
        match self.tlb.recall(address) {
            Some(frame) if self.window.is_some() => self.touch_any(KIND, frame, address, probe),
            Some(frame) => self.elsewhere::<KIND>(address, frame),
            None => self.unseen(KIND, probe, address),
        }
    }

    /// Lets a latency pass, and looks at the time.
    #[inline(always)]
    fn pass(&mut self, cycles: u64) {
        self.words.add_time(cycles * self.cycle_ps);
        if self.words.time() >= clock::LIMIT
            && let Some(clock) = clock::get()
        {
            clock.overtake(self.number);
        }
    }

    /// Whether every access is to be followed by a look at the time: then none is as simple as it
    /// can be.
    pub fn be_careful(&mut self, careful: bool) {
        // An access beside others is never simple, nor is one whose translation may take time.
        let careful = careful || self.window.is_some() || self.mmu.is_some();
        self.tlb.hide(careful);
        self.core.hide_names(careful);
    }

    #[inline(always)]
    fn touch<const KIND: u8>(&mut self, frame: Frame, address: u64) -> u64 {
        let (line, index) = (frame.line(address), frame.index(address) as usize);
        let name = name(address);
        match KIND {
            Kind::LOAD => self.core.load(name, line, index),
            Kind::STORE => self.core.store(name, line, index),
            _ => self.core.rmw(name, line, index),
        }
    }

    /// An access to a page that has not been accessed since translations changed.
    #[inline(never)]
    fn unseen(&mut self, kind: u8, probe: &impl Probe, address: u64) {
        match probe.place(address) {
            Some(Place::Memory(physical)) => {
                let frame = self.setup.frame(address, physical);
                self.tlb.insert(address, frame);
                if is_of_program(address) {
                    self.kept.insert(address & !(PAGE_SIZE - 1), frame);
                }
                if let Some(pool) = self.setup.program_pool(address, physical) {
                    self.program_pages[pool] += 1;
                }
                self.touch_any(kind, frame, address, probe);
            }
            Some(Place::Device(_)) => self.devices += 1,
            None => self.unknown += 1,
        }
    }

    /// An access that spans two lines, perhaps of two pages.
    #[cold]
    #[inline(never)]
    fn crossing(&mut self, kind: u8, probe: &impl Probe) {
        let first = probe.address();
        for address in [first, (first + probe.bytes() - 1) & !(LINE - 1)] {
            let lines = self.core.counts().data();
            match self.tlb.recall(address) {
                Some(frame) => self.touch_any(kind, frame, address, probe),
                None => self.unseen(kind, probe, address),
            }
            // The second line is no access of its own, unless it is on another page, which may be anywhere:
            // so traces have it. Parts in devices are not counted here.
            if address != first && address / PAGE == first / PAGE {
                let lines = self.core.counts().data() - lines;
                self.core.split(lines);
            }
        }
    }

    #[inline]
    fn touch_any(&mut self, kind: u8, frame: Frame, address: u64, probe: &impl Probe) {
        if let Some(window) = self.window.take() {
            return self.overlap(window, kind, frame, address, probe);
        }
        let cycles = self.touch_kind(kind, frame, address);
        self.pass(cycles);
    }

    fn touch_kind(&mut self, kind: u8, frame: Frame, address: u64) -> u64 {
        match kind {
            Kind::LOAD => self.touch::<{ Kind::LOAD }>(frame, address),
            Kind::STORE => self.touch::<{ Kind::STORE }>(frame, address),
            _ => self.touch::<{ Kind::MODIFY }>(frame, address),
        }
    }

    /// A block is entered whose instructions are not all in the line of the last one.
    pub fn fetch(&mut self, fetch: &Fetch) {
        if self.translations_changed.load(Ordering::Relaxed) {
            self.translations_changed.store(false, Ordering::Relaxed);
            self.forget_translations();
            self.drop_translations();
        }
        if self.mmu.is_some() {
            self.translate_code(&fetch.pages);
        }
        let mut cycles = 0;
        for watcher in &mut self.watchers {
            watcher.fetch(&fetch.lines);
        }
        for line in &fetch.lines {
            cycles += self.core.fetch(line.number, line.index as usize);
        }
        self.words.set_fetched(fetch.name());
        self.pass(cycles);
    }

    /// An instruction at an address is about to write back and drop all that caches hold. Of a row of such instructions,
    /// by which AArch64 does that set by set, the first one does it all: the sets are those that QEMU tells the guest of,
    /// not the simulated ones.
    pub fn everything(&mut self, at: u64) {
        let data = Some(self.data_accesses());
        let first = self.emptied_at != data;
        for watcher in &mut self.watchers {
            watcher.everything(at, first);
        }
        if first {
            self.emptied_at = data;
            let cycles = self.core.flush(FlushKind::Everything, 0, 0);
            self.pass(cycles);
        }
    }

    /// An instruction is about to act on a line.
    pub fn act(&mut self, action: &LineAction) {
        let registers = &mut self.registers;
        let address = action.operand.address(action.at, |n| registers.read(n));
        let Some((address, frame)) = address.and_then(|a| Some((a, self.frame(a)?))) else {
            self.unknown += 1;
            return;
        };
        if self.mmu.is_some() {
            let purpose = match action.op {
                LineOp::Zero => Purpose::Store,
                LineOp::WriteBack | LineOp::Flush | LineOp::Drop => Purpose::Load,
            };
            self.translate(purpose, address);
        }
        let (line, index) = (frame.line(address), frame.index(address) as usize);
        for watcher in &mut self.watchers {
            watcher.line(action, address, line * LINE + address % LINE);
        }
        let cycles = match action.op {
            LineOp::WriteBack => self.core.flush(FlushKind::Clean, line, index),
            LineOp::Flush | LineOp::Drop => self.core.flush(FlushKind::Flush, line, index),
            LineOp::Zero => self.core.store(name(address), line, index),
        };
        self.pass(cycles);
    }

    /// The CPU does something that has a price of its own.
    pub fn operate(&mut self, operation: Operation) {
        self.drain();
        let cycles = operation.charge(&self.costs, &mut self.operated);
        // What is free is no reason to look at the time.
        if cycles > 0 {
            self.pass(cycles);
        }
    }

    /// In strict order: from here on it is the turn with this number.
    pub fn turn(&mut self, number: u64) {
        if self.turn != number {
            self.turn = number;
            for watcher in &mut self.watchers {
                watcher.turn(number);
            }
        }
    }

    /// The machine ends.
    pub fn finish(&mut self) {
        for watcher in &mut self.watchers {
            watcher.finish();
        }
    }

    /// A marker is executed, with `left` instructions of its block after it, itself included.
    pub fn marker(&mut self, marker: Marker, left: u64) {
        let all = self.passed(left, left);
        let awaited = self.awaited.marker(marker, all);
        self.regions.marker(marker, Passed { all, awaited });
    }

    /// What has passed, when so many of the instructions that have been counted, and of those whose time has been counted, are
    /// still to come.
    fn passed(&self, counted: u64, timed: u64) -> Part {
        let reading = clock::get().map(|clock| clock.reading(self.number, timed));
        let (time_ps, idle_ps, ipi_ps) = reading.unwrap_or_default();
        Part {
            counts: self.counts(counted),
            time_ps,
            idle_ps,
            ipi_ps,
        }
    }

    /// Publishes at every [`LOOKS_PER_PUBLICATION`]th look around, and at the first one after a sleep.
    pub fn publish_in_turn(&mut self, timed: u64) {
        self.unpublished += 1;
        if self.unpublished >= LOOKS_PER_PUBLICATION {
            self.publish(false, timed);
        }
    }

    /// Lets the CPUs of the whole system know what this one has counted. It executes nothing just now, but the time of `timed`
    /// instructions that follow has been counted; `asleep`: nor will it before it is woken up.
    pub fn publish(&mut self, asleep: bool, timed: u64) {
        // A CPU that wakes up is not to be taken to sleep for longer than until then.
        self.unpublished = if asleep { LOOKS_PER_PUBLICATION } else { 0 };
        let doing = match (asleep, self.awaited.lasts()) {
            (false, _) => Doing::Works,
            (true, false) => Doing::Sleeps,
            (true, true) => Doing::Awaits,
        };
        let version = self.awaited.version();
        let all = self.passed(0, timed);
        self.regions.publish(version, doing, |seldom| {
            let awaited = seldom.then(|| self.awaited.at(all));
            let awaited = awaited.unwrap_or_default();
            Passed { all, awaited }
        });
    }

    /// How often a page of a program's heap or stacks was looked up, by pool.
    pub fn program_pages(&self) -> [u64; MAX_NODES + 1] {
        self.program_pages
    }

    /// What has passed in waits for messages that are over.
    pub fn awaited(&self) -> Part {
        self.awaited.sum
    }

    /// What has been counted, when `left` instructions of the block that is being executed are still
    /// to come.
    pub fn counts(&self, left: u64) -> Counters {
        if let Some(last) = self.last {
            return last;
        }
        let (lower, upper) = self.words.instructions();
        Counters {
            instructions: (lower + upper).wrapping_sub(left),
            ..self.core.counts() + self.operated
        }
    }

    /// What happens from here on is not counted; `left`: see [`counts`](Self::counts).
    pub fn freeze(&mut self, left: u64) {
        self.last = Some(self.counts(left));
        // Traces end where counters do.
        self.finish();
    }

    /// Regions that were passed through.
    pub fn regions(&self) -> impl Iterator<Item = (WindowId, Region<Passed>)> {
        let closed = self.regions.closed().iter();
        closed.map(|(id, region)| (*id, region.clone()))
    }

    /// Accesses to devices, and accesses and flushes whose line could not be found out.
    pub fn beside_memory(&self) -> (u64, u64) {
        (self.devices, self.unknown)
    }

    /// Translations that were compared with QEMU's, and those that were wrong.
    pub fn translations(&self) -> (u64, u64) {
        (self.checked, self.wrong)
    }

    /// Where the page of an address is that is not being accessed: the kernel's map of the pools
    /// tells by itself, other pages if they have been accessed.
    fn frame(&self, address: u64) -> Option<Frame> {
        match address.checked_sub(FUSED_BASE) {
            Some(physical) if self.setup.is_fused(physical) => {
                Some(self.setup.frame(address, physical))
            }
            _ => {
                let kept = || self.kept.get(&(address & !(PAGE_SIZE - 1))).copied();
                self.tlb.recall(address).or_else(kept)
            }
        }
    }

    /// Translations of this CPU are about to change.
    pub fn forget_translations(&mut self) {
        self.tlb.flush();
        self.core.forget_names();
    }

    /// Another CPU has changed translations of all: they are forgotten when the next line of
    /// instructions is fetched. QEMU too lets CPUs go on for a while.
    pub fn translations_changed(&self) {
        self.translations_changed.store(true, Ordering::Relaxed);
    }
}
