// SPDX-License-Identifier: GPL-2.0-or-later
//! Levels `cache` and `timing`: what is set up once, what is done when code is translated, and the
//! report. What happens while code runs is in [`crate::cache`].
//!
//! | instruction | reported |
//! |---|---|
//! | any | its loads and its stores, apart |
//! | atomic | its loads only: QEMU shows both halves |
//! | acts on a line ([`crate::maintenance`]) | before it starts, with the registers |
//! | changes translations | before it starts |
//! | has a price of its own ([`crate::system`]) | before it starts |
//! | marker | before it starts, with the number of instructions left in its block |
//!
//! What callbacks are given is interned and never freed: QEMU may drop a block and translate it again,
//! and keeps no account of what blocks refer to.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock, PoisonError};

use dyad_abi::Isa;
use dyad_abi::marker::{Decoded, Marker, MarkerOp, decode};
use dyad_abi::service::{self, program};
use dyad_abi::user::{HEAP_BASE, HEAP_END, PAGE_SIZE, thread_at};
use dyad_sim_model::account;
use dyad_sim_model::coherent::{Core, Queues, Releases};
use dyad_sim_model::config::{Coherence, Level, NodeConfig, SimConfig};
use dyad_sim_model::memory::{Memory, line_of, view_of};
use dyad_sim_model::overlap::Window;
use dyad_sim_model::report::{
    Breakdown, Counters, CpuReport, Durations, RoiReport, SanitizerReport, ShareReport,
};
use dyad_sim_model::shared::Areas;
use dyad_sim_model::system::SystemCosts;
use dyad_sim_model::translation::Mmu;

use crate::cache::{Fetch, Line, LineAction, Part, Passed, PoolWords, Watcher};
use crate::classify::{self, kind};
use crate::clock;
use crate::code::{CodeMap, PoolFile};
use crate::ffi::{self, Block, Instruction};
use crate::invalidation::Invalidation;
use crate::maintenance::{Maintenance, Scope, maintenance};
use crate::options::{self, Options};
use crate::regions::{Region, Regions};
use crate::sanitizer::Sanitizer;
use crate::system::{self, Vectors};
use crate::tlb::Frame;
use crate::tracer::Tracer;

const LINES_PER_PAGE: u32 = 64;
/// Lines of code in no memory (a ROM) are numbered by their virtual address, beyond all memory that
/// a machine of its own has and below the pools.
const ROM_LINES: u64 = 1 << 27;

/// The time of a CPU, in picoseconds.
fn now(cpu: u32) -> u64 {
    clock::get().map_or(0, |clock| clock.reading(cpu, 0).0)
}

/// What does not change while the machine runs.
pub struct Setup {
    config: SimConfig,
    node: usize,
    isa: Isa,
    memory: Memory,
    areas: Areas,
    sanitizer: Option<Sanitizer>,
    words: &'static [AtomicU64],
    code: Mutex<CodeMap>,
    vectors: Option<Vectors>,
    /// Page tables are read here, if TLBs are simulated.
    pool_words: Vec<PoolWords>,
    fetches: Intern<Fetch>,
    actions: Intern<LineAction>,
    markers: Intern<MarkerSite>,
    invalidations: Intern<Invalidation>,
    traced: bool,
    checks: bool,
    /// Until the CPU takes it.
    tracer: Mutex<Option<Tracer>>,
}

static SETUP: OnceLock<Setup> = OnceLock::new();

/// Makes a setup that of this machine.
///
/// # Errors
///
/// If it has one.
pub fn install(setup: Setup) -> Result<&'static Setup, String> {
    if SETUP.set(setup).is_err() {
        return Err("the plugin is loaded twice; give -plugin once".into());
    }
    this().ok_or_else(|| "there is no setup".into())
}

/// This machine's setup, if caches are simulated.
pub fn this() -> Option<&'static Setup> {
    SETUP.get()
}

/// A marker in a block.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct MarkerSite {
    /// The marker's word.
    pub word: u32,
    /// Instructions of its block from itself to the end.
    pub left: u64,
}

impl MarkerSite {
    /// The marker.
    pub fn marker(&self) -> Option<Marker> {
        Marker::from_word(self.word)
    }
}

/// Values that live for ever, each once.
struct Intern<T: 'static>(Mutex<HashMap<u64, Vec<&'static T>>>);

impl<T: Hash + PartialEq> Intern<T> {
    fn new() -> Intern<T> {
        Intern(Mutex::default())
    }

    fn get(&self, value: T) -> &'static T {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = all.entry(hasher.finish()).or_default();
        if let Some(found) = alike.iter().find(|v| ***v == value) {
            return found;
        }
        let new: &'static T = Box::leak(Box::new(value));
        alike.push(new);
        new
    }
}

impl Setup {
    /// Reads what the options name.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn new(isa: Isa, options: &Options) -> Result<Setup, String> {
        let level = options.level.name();
        let needed = |what: Option<&str>, name: &str| {
            what.map(str::to_string)
                .ok_or_else(|| format!("level={level} needs {name}=...; the launcher gives it"))
        };
        let path = needed(options.config.as_deref(), "config")?;
        let node = usize::from(
            options
                .node
                .ok_or_else(|| format!("level={level} needs node=N"))?,
        );
        let config = options::configuration(&path)?;
        let Some(own) = config.nodes.get(node) else {
            return Err(format!("{path} has no node {node}"));
        };
        if own.isa() != Some(isa) {
            return Err(format!("{path} says that node {node} is {}", own.isa));
        }
        let caches = needed(options.caches.as_deref(), "caches")?;
        let areas = Areas::new(&config);
        let words = ffi::map_words(Path::new(&caches), areas.words())?;
        let names = needed(options.pools.as_deref(), "pools")?;
        let names: Vec<&str> = names.split(':').collect();
        if names.len() != config.pools.len() {
            return Err(format!(
                "pools has {} files, {path} has {} pools",
                names.len(),
                config.pools.len()
            ));
        }
        let sanitizer = match config.coherence {
            Coherence::Coherent => None,
            Coherence::Incoherent => {
                let state = needed(options.sanitizer.as_deref(), "sanitizer")?;
                Some(Sanitizer::new(
                    &config,
                    node,
                    &state,
                    &names,
                    options.users,
                )?)
            }
        };
        let pools = names
            .iter()
            .zip(&config.pools)
            .map(|(file, pool)| PoolFile::open(file, pool.base))
            .collect::<Result<Vec<_>, String>>()?;
        let pool_words = match own.tlb.is_on() {
            true => names
                .iter()
                .zip(&config.pools)
                .map(|(file, pool)| {
                    let words = ffi::map_words(Path::new(file), (pool.size / 8) as usize)?;
                    Ok((pool.base, words))
                })
                .collect::<Result<_, String>>()?,
            false => Vec::new(),
        };
        if options.trace.is_some() && own.cpus != 1 {
            return Err("trace works on machines with one CPU".into());
        }
        let tracer = match &options.trace {
            Some(path) => {
                let text = serde_json::to_string(&config).map_err(|e| e.to_string())?;
                Some(Tracer::new(path, &text, node, 0)?)
            }
            None => None,
        };
        Ok(Setup {
            memory: Memory::new(&config, node),
            config,
            node,
            isa,
            areas,
            sanitizer,
            words,
            code: Mutex::new(CodeMap::new(isa, pools)),
            pool_words,
            vectors: options.vectors.map(|first| Vectors::new(isa, first)),
            fetches: Intern::new(),
            actions: Intern::new(),
            markers: Intern::new(),
            invalidations: Intern::new(),
            traced: tracer.is_some(),
            checks: options.check,
            tracer: Mutex::new(tracer),
        })
    }

    /// The machine ends.
    pub fn finish(&self) {
        for cpu in 0..self.config.nodes[self.node].cpus as u32 {
            ffi::with_cpu(cpu, |c| c.finish());
        }
    }

    /// What a CPU has counted, and where its time went; `None` if there is no such CPU.
    pub fn cpu(&self, cpu: u32) -> Option<CpuReport> {
        ffi::with_cpu(cpu, |c| {
            let (counters, breakdown_ps) =
                self.explain(self.node, &c.counts(0), account::Waits::default());
            let (devices, unknown) = c.beside_memory();
            let (checked, wrong) = c.translations();
            CpuReport {
                counters,
                breakdown_ps,
                devices,
                unknown,
                program_pages: c.program_pages(),
                translations_checked: checked,
                translations_wrong: wrong,
                ..CpuReport::default()
            }
        })
    }

    /// The regions of all CPUs.
    pub fn regions(&self) -> BTreeMap<u16, RoiReport> {
        let mut all: BTreeMap<u16, Region<Passed>> = BTreeMap::new();
        for cpu in 0..self.config.nodes[self.node].cpus as u32 {
            let regions = ffi::with_cpu(cpu, |c| c.regions().collect::<Vec<_>>());
            for (id, region) in regions.into_iter().flatten() {
                let sum = all.entry(id.0).or_default();
                sum.n += region.n;
                sum.sum = sum.sum + region.sum;
                sum.moved += region.moved;
                sum.times_ps.extend(region.times_ps);
                sum.all.resize(region.all.len(), Passed::default());
                for (sum, all) in sum.all.iter_mut().zip(region.all) {
                    *sum = *sum + all;
                }
            }
        }
        let explained = all.into_iter().map(|(id, region)| {
            let (counters, breakdown_ps) = self.explain_part(self.node, &region.sum.all);
            let awaited = self.explain_part(self.node, &region.sum.awaited).1;
            let breakdown_ps = breakdown_ps.of_which_waiting(awaited);
            let roi = RoiReport {
                n: region.n,
                pass_ps: Durations::of(region.times_ps),
                time_ps: match clock::get() {
                    Some(_) => region.sum.all.time_ps,
                    None => breakdown_ps.total(),
                },
                counters,
                breakdown_ps,
                moved: region.moved,
                all: match clock::get() {
                    Some(_) => self.shares(&region.all),
                    None => Vec::new(),
                },
            };
            (id, roi)
        });
        explained.collect()
    }

    /// What the CPUs of each node did, of what all CPUs did.
    fn shares(&self, all: &[Passed]) -> Vec<ShareReport> {
        let mut shares: Vec<ShareReport> = (0..self.config.nodes.len())
            .map(|node| ShareReport {
                node,
                ..ShareReport::default()
            })
            .collect();
        for (node, passed) in self.nodes_of_cpus().zip(all) {
            let all = passed.all.without_debts();
            let (counters, breakdown_ps) = self.explain_part(node, &all);
            let awaited = self.explain_part(node, &passed.awaited).1;
            let share = &mut shares[node];
            share.time_ps += all.time_ps;
            share.counters += counters;
            share.breakdown_ps += breakdown_ps.of_which_waiting(awaited);
        }
        shares
    }

    /// Where the time of a CPU went in which it waited for messages.
    pub fn awaited(&self, cpu: u32) -> Option<Breakdown> {
        let part = ffi::with_cpu(cpu, |c| c.awaited())?;
        Some(self.explain_part(self.node, &part).1)
    }

    fn explain_part(&self, node: usize, part: &Part) -> (Counters, Breakdown) {
        let waits = account::Waits {
            idle: part.idle_ps,
            ipi: part.ipi_ps,
        };
        self.explain(node, &part.counts, waits)
    }

    fn explain(
        &self,
        node: usize,
        counts: &account::Counters,
        waits: account::Waits,
    ) -> (Counters, Breakdown) {
        let node = &self.config.nodes[node];
        let went = account::breakdown(self.config.level, node, counts, waits);
        (counts.report(), went)
    }

    /// This machine's ISA.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// A CPU's caches.
    pub fn core(&'static self, cpu: usize) -> Core<'static> {
        let mut core = self.areas.core(&self.config, self.node, cpu, self.words);
        if self.cycle_ps() != 0 {
            let lines = self.areas.lines(self.words);
            core.heed_releases(Releases::new(lines, now, cpu as u32, self.cycle_ps()));
            let calendars = self.areas.calendars(self.words);
            let queues = Queues::new(&self.config, self.node, calendars, now, cpu as u32);
            core.heed_queues(queues);
        }
        core
    }

    /// The regions of interest of a CPU.
    pub fn open_regions(&'static self, cpu: usize) -> Regions<'static, Passed> {
        let nodes = &self.config.nodes;
        let cpus = |nodes: &[NodeConfig]| nodes.iter().map(|node| node.cpus).sum::<usize>();
        let me = cpus(&nodes[..self.node]) + cpu;
        let life = u64::from(std::process::id());
        Regions::new(self.areas.regions(self.words), cpus(nodes), me, life)
    }

    /// The node of each CPU of the whole system, in the order of their regions.
    fn nodes_of_cpus(&self) -> impl Iterator<Item = usize> {
        let nodes = self.config.nodes.iter().enumerate();
        nodes.flat_map(|(node, config)| std::iter::repeat_n(node, config.cpus))
    }

    /// Who watches a CPU.
    pub fn watchers(&'static self, cpu: usize) -> Vec<Box<dyn Watcher>> {
        let mut watchers: Vec<Box<dyn Watcher>> = Vec::new();
        if cpu == 0 {
            let mut tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
            watchers.extend(tracer.take().map(|t| Box::new(t) as Box<dyn Watcher>));
        }
        watchers.extend(self.sanitizer.iter().map(|s| s.watcher(cpu)));
        watchers
    }

    /// Whether anybody watches what code at an address does.
    fn watched(&self, address: u64) -> bool {
        let sanitized = self.sanitizer.as_ref().is_some_and(|s| s.watches(address));
        self.traced || self.checks || sanitized
    }

    /// What the sanitizer has found, if there is one.
    pub fn sanitizer(&self) -> Option<SanitizerReport> {
        self.sanitizer.as_ref().map(Sanitizer::report)
    }

    /// Whether translations are compared with QEMU's.
    pub fn checks(&self) -> bool {
        self.checks
    }

    /// Picoseconds by which a cycle of latency moves time.
    pub fn cycle_ps(&self) -> u64 {
        match self.config.level {
            Level::Timing => self.config.nodes[self.node].cycle_ps,
            Level::Count | Level::Cache => 0,
        }
    }

    /// Whether the machine has one CPU.
    fn is_alone(&self) -> bool {
        self.config.nodes[self.node].cpus == 1
    }

    /// What operations of the node's CPUs cost.
    pub fn costs(&self) -> SystemCosts {
        self.config.nodes[self.node].cost
    }

    /// Latency of a hit in the first level.
    pub fn l1_cycles(&self) -> u64 {
        self.config.nodes[self.node].l1_cycles()
    }

    /// What a CPU does beside an access, if anything.
    pub fn window(&self) -> Option<Window> {
        let node = &self.config.nodes[self.node];
        Window::new(node.overlap, self.cycle_ps(), node.instruction_ps())
    }

    /// A CPU's TLBs, if translations cost anything. Without coherence kernels make leaves with accessed and dirty set.
    pub fn mmu(&self) -> Option<Box<Mmu>> {
        let keys = self.config.nodes[self.node].tlb;
        let updates = self.config.coherence == Coherence::Coherent;
        Mmu::new(self.isa, keys, updates).map(Box::new)
    }

    /// The pools' words, if TLBs are simulated.
    pub fn pool_words(&self) -> &[PoolWords] {
        &self.pool_words
    }

    /// Whether a physical address is in a pool.
    pub fn is_fused(&self, physical: u64) -> bool {
        self.memory.locate(line_of(physical)).is_some()
    }

    /// The frame of an address. Without coherence this node's view of a frame of kernels, and of what programs keep coherent, as long as the
    /// translation is remembered by which the frame has been found: a frame that changes hands meanwhile is charged as
    /// before until then.
    pub fn frame(&self, address: u64, physical: u64) -> Frame {
        let mut first = line_of(physical) & !u64::from(LINES_PER_PAGE - 1);
        let fused = self.memory.locate(first).is_some();
        let is_incoherent = |s: &Sanitizer| s.is_incoherent(address, physical);
        if fused && self.sanitizer.as_ref().is_some_and(is_incoherent) {
            first = view_of(self.node, first);
        }
        // Pools are whole pages, and so are their places in the directory.
        let place = self.memory.locate(first);
        let page = (first / u64::from(LINES_PER_PAGE)) as u32;
        Frame::new(page, place.map(|p| p.index as u32 / LINES_PER_PAGE))
    }

    /// The pool in which a page of a program's heap or stacks is. Services have neither heaps nor threads of programs.
    pub fn program_pool(&self, address: u64, physical: u64) -> Option<usize> {
        let of_program = |id: u32| {
            let (number, _) = service::thread_of_id(id.into());
            (program::FIRST..program::PEER).contains(&number)
        };
        let is_heap = (HEAP_BASE..HEAP_END).contains(&address);
        if !is_heap && !thread_at(address).is_some_and(of_program) {
            return None;
        }
        let mut pools = self.config.pools.iter();
        pools.position(|p| physical.wrapping_sub(p.base) < p.size)
    }

    /// A block is being translated.
    pub fn translated(&self, block: &Block) {
        let total = block.instructions();
        let (mut lines, mut pages): (Vec<Line>, Vec<u64>) = Default::default();
        for i in 0..total {
            let instruction = block.instruction(i);
            let (code, len) = instruction.code();
            let code = &code[..len];
            self.add_lines(&mut lines, &instruction, len as u64);
            self.add_pages(&mut pages, &instruction, len as u64);
            self.report(&instruction, code, (total - i) as u64);
        }
        if !lines.is_empty() {
            let fetch = self.fetches.get(Fetch::new(lines, pages));
            // A block that does not fit the first level misses again when it is executed again.
            let l1i = self.config.nodes[self.node].l1i;
            block.fetch_on_entry(fetch, fetch.len() as u64 <= l1i.sets());
        }
    }

    /// Has QEMU report what an instruction does.
    fn report(&self, instruction: &Instruction<'_>, code: &[u8], left: u64) {
        match decode(self.isa, code) {
            // The clock's business.
            Decoded::Marker(marker) if marker.op == MarkerOp::Clock => return,
            Decoded::Marker(marker) => {
                let word = marker.word();
                instruction.report_marker(self.markers.get(MarkerSite { word, left }));
                return;
            }
            Decoded::Prefix => return,
            Decoded::Other => {}
        }
        let begins = system::begins(self.isa, self.vectors, instruction.address(), code);
        if let Some(operation) = begins {
            instruction.report_operation(operation);
        }
        if self.simulates_tlbs()
            && let Some(it) = Invalidation::of(self.isa, code, instruction.address())
        {
            // Before others are told that there is something to drop.
            instruction.report_invalidation(self.invalidations.get(it));
        }
        match maintenance(self.isa, code) {
            Some(Maintenance::Line(op, operand)) => {
                let at = instruction.address();
                instruction.report_action(self.actions.get(LineAction { op, operand, at }));
                return;
            }
            Some(Maintenance::Everything) => {
                instruction.report_everything();
                return;
            }
            Some(Maintenance::Translations(scope)) => {
                instruction.report_translation_change(scope == Scope::Machine);
            }
            None => {}
        }
        match (kind(self.isa, code), self.watched(instruction.address())) {
            (classify::Kind::Atomic, false) => instruction.report_modifications(),
            (classify::Kind::Atomic, true) => instruction.watch_modifications(),
            (_, false) => {
                let narrow = classify::is_narrow(self.isa, code);
                let timed = self.cycle_ps() != 0;
                instruction.report_accesses(narrow, timed, self.is_alone());
            }
            (_, true) => instruction.watch_accesses(),
        }
    }

    /// Whether translations cost anything.
    fn simulates_tlbs(&self) -> bool {
        self.config.nodes[self.node].tlb.is_on()
    }

    /// Adds the virtual pages of an instruction, unless the last one is where it is.
    fn add_pages(&self, pages: &mut Vec<u64>, instruction: &Instruction<'_>, len: u64) {
        if !self.simulates_tlbs() {
            return;
        }
        let first = instruction.address();
        for address in [first, first + len.max(1) - 1] {
            let page = address & !(PAGE_SIZE - 1);
            if pages.last() != Some(&page) {
                pages.push(page);
            }
        }
    }

    /// Adds the lines of an instruction, unless the last one is where it is.
    fn add_lines(&self, lines: &mut Vec<Line>, instruction: &Instruction<'_>, len: u64) {
        let first = instruction.address();
        let last = first + len.max(1) - 1;
        let physical = |address: u64| {
            let host = instruction.host_address()?;
            let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
            // An instruction that spans two pages is where its first byte is; the next one tells
            // where the second page is.
            code.physical(host).map(|p| p + (address - first))
        };
        for address in [first, last] {
            let line = match physical(address) {
                Some(physical) => {
                    let number = line_of(physical);
                    let index = self.memory.index_base(number).wrapping_add(number);
                    Line { number, index }
                }
                None => Line {
                    number: ROM_LINES | line_of(address) & (ROM_LINES - 1),
                    index: u64::MAX,
                },
            };
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
    }
}
