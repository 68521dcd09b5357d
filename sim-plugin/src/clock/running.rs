// SPDX-License-Identifier: GPL-2.0-or-later
//! The clock of a running machine: what QEMU's callbacks and the guest's calls do.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dyad_abi::boot::{doorbell_vectors, fence_vector};
use dyad_abi::clock::{
    ClockCall, NO_COUNTER, NODE_WORDS, SimCounter, TEXT_BYTES, guest, guest_word, plugin,
    plugin_word, text_word,
};
use dyad_abi::marker::{Decoded, decode};
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_sim_model::clock::supervise::Overseer;
use dyad_sim_model::clock::{Coupling, Interrupt, Order, PS, Shape, Slice, Times, Who, mix, words};
use dyad_sim_model::config::{self, Level as SimLevel, NodeConfig};
use dyad_sim_model::report::{ClockReport, Counters, CpuReport};
use dyad_sim_model::system::Operation;

use super::confirm::Confirmation;
use super::doorbells::Doorbells;
use super::hand::{Hand, LIMIT, Phase, pause_end};
use super::host::{self, Process};
use super::options::ClockOptions;
use crate::classify::may_halt;
use crate::ffi::{Block, Emulator, Score, Words, halves, map_words, with_cpu};
use crate::options::{self, Options};

/// How often the overseer looks.
const OVERSEE: Duration = Duration::from_millis(200);
/// More than the accesses of a block: QEMU's have at most 512 instructions.
const BLOCK_HITS: u64 = 1024;
/// For how long the start waits for the descriptors of all machines.
const START: Duration = Duration::from_secs(60);

type SharedWords = &'static [AtomicU64];

static CLOCK: OnceLock<Clock> = OnceLock::new();

/// The clock, if this machine has one.
#[inline]
pub fn get() -> Option<&'static Clock> {
    CLOCK.get()
}

struct Cpu {
    id: CpuId,
    hand: Hand,
    coupling: Coupling<SharedWords, Process>,
    /// Of interrupts that QEMU's main loop did not take in time.
    confirmation: Confirmation,
    /// Instructions in the lower and in the upper half when its life was over.
    halves: OnceLock<(u64, u64)>,
}

/// The clock of a machine.
pub struct Clock {
    isa: Isa,
    node: NodeId,
    nodes: usize,
    config: NodeConfig,
    strict: bool,
    /// How long doorbells are on their way.
    flight: u64,
    /// By how much more than its instructions a block is expected to take that finds all its data in
    /// the first way of the first level. 0: accesses take no time.
    margin: u64,
    doorbells: Arc<Doorbells>,
    process: Process,
    /// This node's pages.
    pages: SharedWords,
    cpus: Vec<Cpu>,
    /// Looks after CPUs that nobody waits for; used by a thread of its own.
    overseer: Arc<Coupling<SharedWords, Process>>,
}

/// Sets the clock up.
///
/// # Errors
///
/// A sentence for the user.
pub fn install(clock: &ClockOptions, options: &Options, emulator: &Emulator) -> Result<(), String> {
    let isa = Isa::parse(&emulator.target)
        .ok_or_else(|| format!("there is no clock for {:?}", emulator.target))?;
    let node = options.node.and_then(|n| NodeId::new(u64::from(n)));
    let node = node.ok_or("clock needs node; write node=N")?;
    let path = options.config.as_deref();
    let config = options::configuration(path.ok_or("clock needs config; write config=FILE")?)?;
    let own = config.nodes.get(node.index()).cloned();
    let own = own.ok_or_else(|| format!("the configuration has no node {node}"))?;
    let shape = Shape {
        nodes: config.nodes.len(),
        cpus: config.nodes.iter().map(|n| n.cpus).max().unwrap_or(1),
    };
    if own.cpus != emulator.running || shape.cpus != own.cpus {
        let has = emulator.running;
        return Err(format!(
            "this machine has {has} CPUs, the configuration says {}",
            own.cpus
        ));
    }
    let order = match config.clock.order {
        config::Order::Parallel => Order::Parallel,
        config::Order::Strict { seed } => Order::Strict { seed },
    };
    let strict = order != Order::Parallel;
    if strict && shape.cpus > 1 {
        return Err("strict order is for machines with one CPU; use --cpus 1".into());
    }
    let times = Times {
        quantum: config.clock.quantum_ns.max(1) * PS,
        lag: config.clock.lag_ns * PS,
        ipi: config.clock.ipi_ns * PS,
    };
    let words = map_words(&clock.words, words::CLOCK_WORDS)?;
    let pages = map_pages(&clock.pages, node)?;
    let doorbells = Arc::new(Doorbells::new(doorbell_vectors(shape.cpus)));
    let gates = halves(&words[words::GATES..words::CLOCK_WORDS]);
    let process = Process::new(Arc::clone(&doorbells), shape.cpus, gates);
    let patience = clock.patience.map(|p| p.as_nanos() as u64);
    let coupling = |cpu: CpuId| {
        let what = (shape, times, order);
        Coupling::new(words, process.clone(), what, patience, Who::new(node, cpu))
    };
    let stream = Doorbells::connect(&clock.doorbells, node.index() as u64)
        .map_err(|e| format!("cannot connect to the broker of doorbells: {e}"))?;
    let overseer = Arc::new(coupling(FIRST));
    let watcher = Arc::clone(&overseer);
    let watched = Arc::clone(&doorbells);
    std::thread::Builder::new()
        .name("dyad-clock".into())
        .spawn(move || watch(&stream, &watched, &watcher))
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    let cpus = CpuId::first(shape.cpus).map(|id| Cpu {
        id,
        hand: Hand::default(),
        coupling: coupling(id),
        confirmation: Confirmation::default(),
        halves: OnceLock::new(),
    });
    let clock = Clock {
        isa,
        node,
        nodes: shape.nodes,
        margin: match config.level {
            SimLevel::Timing => BLOCK_HITS * own.cycle_ps * own.latency.l1,
            SimLevel::Count | SimLevel::Cache => 0,
        },
        config: own,
        strict,
        flight: times.ipi,
        cpus: cpus.collect(),
        overseer,
        doorbells,
        process,
        pages,
    };
    let twice = "the plugin is loaded twice; give -plugin once";
    CLOCK.set(clock).map_err(|_| twice.to_string())
}

const FIRST: CpuId = match CpuId::new(0) {
    Some(cpu) => cpu,
    None => unreachable!(),
};

fn map_pages(path: &Path, node: NodeId) -> Result<SharedWords, String> {
    let first = (dyad_shm::clock::offset(node) / 8) as usize;
    Ok(&map_words(path, first + NODE_WORDS)?[first..])
}

/// Listens to the broker, and oversees CPUs that nobody waits for.
fn watch(stream: &UnixStream, doorbells: &Doorbells, coupling: &Coupling<SharedWords, Process>) {
    let mut memory = Overseer::default();
    let mut connected = true;
    let mut looked = Instant::now();
    loop {
        if connected {
            connected = doorbells.receive(stream, OVERSEE).is_some();
        } else {
            std::thread::sleep(OVERSEE);
        }
        if looked.elapsed() >= OVERSEE {
            looked = Instant::now();
            coupling.oversee(&mut memory);
        }
    }
}

impl Clock {
    fn cpu(&self, cpu: u32) -> Option<&Cpu> {
        self.cpus.get(cpu as usize)
    }

    // --- QEMU's callbacks --------------------------------------------------------------------

    /// A block is being translated. Before anything else is added to it: what is added after finds
    /// the time with the block's instructions in it.
    pub fn translated(&self, block: &Block) {
        let (n, is_of_kernel) = (block.instructions(), block.is_of_kernel());
        block.add_on_entry(Score::time(), n as u64 * self.config.instruction_ps());
        if self.strict {
            let number = mix(block.address() ^ (n as u64) << 48);
            block.add_on_entry(Score::trace(), number);
        }
        block.call_clock_from(Score::time(), LIMIT, n);
        for i in 0..n {
            let instruction = block.instruction(i);
            let (code, len) = instruction.code();
            // A program that executes such a marker asks for nothing.
            if is_of_kernel
                && let Decoded::Marker(marker) = decode(self.isa, &code[..len])
                && let Some(call) = ClockCall::of(marker)
            {
                instruction.call_clock(call, n - i - 1);
            }
            if may_halt(self.isa, &code[..len]) {
                instruction.tell_of_halt();
            }
        }
    }

    /// A CPU has been made, and this is its thread. It has executed nothing.
    pub fn cpu_made(&self, index: u32) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        cpu.coupling.enrol(u64::from(std::process::id()), tid);
        Words::of(index).set_time(cpu.hand.plan(0, 0));
    }

    /// A CPU's time has come to look around; it is at the beginning of a block of `n` instructions.
    pub fn quantum(&self, index: u32, n: u64) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        cpu.confirmation.goes_on(|_| false);
        let mut words = Words::of(index);
        let (time, path) = (cpu.hand.time(words.time()), words.trace());
        let slice = match cpu.hand.phase() {
            Phase::Ended => Slice {
                now: time,
                until: u64::MAX,
                event: u64::MAX,
            },
            Phase::New => {
                self.wait_for_doorbells(&cpu.coupling);
                cpu.hand.enter(Phase::Alive);
                cpu.coupling.begin(time, path)
            }
            Phase::Alive => {
                let mut deliver = |what| self.interrupt(cpu, what);
                let block = n * self.config.instruction_ps();
                cpu.coupling.quantum(time, block, path, &mut deliver)
            }
        };
        cpu.hand.slept(time, slice.now);
        let careful = self.careful_from(slice.event);
        words.set_time(cpu.hand.plan(slice.now, slice.until.min(careful)));
        self.be_careful(index, careful <= slice.now);
        with_cpu(index, |c| {
            if self.strict {
                // It has its turn now: others find the same in every run.
                c.publish(false, n);
                c.turn(cpu.coupling.turn_number());
            } else {
                c.publish_in_turn(n);
            }
        });
    }

    /// From when on an event may be passed by latencies before the next look around.
    fn careful_from(&self, event: u64) -> u64 {
        event.saturating_sub(self.margin)
    }

    /// Whether every access has to be followed by a look at the time.
    fn be_careful(&self, index: u32, careful: bool) {
        if self.margin > 0 {
            with_cpu(index, |c| c.be_careful(careful));
        }
    }

    /// A CPU's time has come to look around, in the middle of a block, because of a latency. It can
    /// only be made to take interrupts after the block: all else has time until the next one.
    #[cold]
    pub fn overtake(&self, index: u32) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        if cpu.hand.phase() == Phase::Alive {
            let now = cpu.hand.time(Words::of(index).time());
            let mut deliver = |what| self.interrupt(cpu, what);
            cpu.coupling.overtake(now, &mut deliver);
        }
    }

    /// In the middle of a block a CPU's next event has become another one.
    fn event_changed(&self, index: u32, cpu: &Cpu) {
        self.overtake(index);
        let mut words = Words::of(index);
        let q = words.time();
        let event = cpu.coupling.next_event().unwrap_or(u64::MAX);
        let careful = self.careful_from(event);
        words.set_time(cpu.hand.look_by(q, careful));
        if careful <= cpu.hand.time(q) {
            self.be_careful(index, true);
        }
    }

    /// Nobody can be woken whose doorbell is not known. Machines that have ended have none: whoever comes
    /// again may find that the others are gone.
    fn wait_for_doorbells(&self, coupling: &Coupling<SharedWords, Process>) {
        let all = (1u64 << self.nodes) - 1;
        let begin = Instant::now();
        for turn in 0.. {
            let known = self.doorbells.known() | coupling.ended();
            if known & all == all || begin.elapsed() > START {
                break;
            }
            host::pause(turn);
        }
    }

    /// Makes an interrupt pending at a CPU of this machine that runs: this thread's.
    fn interrupt(&self, cpu: &Cpu, what: Interrupt) {
        let node = self.node.index();
        let vector = self.process.vector(cpu.id.index(), what);
        let fence = fence_vector(self.cpus.len());
        let late = [vector, fence].into_iter().find(|vector| {
            let asleep = || self.process.main_loop_sleeps();
            !self.doorbells.ring_and_wait(node, *vector, asleep)
        });
        if let Some(vector) = late {
            cpu.confirmation.is_late(vector);
        }
    }

    /// A CPU is about to halt, unless an interrupt is pending.
    pub fn halts(&self, index: u32) {
        if let Some(cpu) = self.cpu(index) {
            cpu.hand.halts(Words::of(index).time());
        }
    }

    /// A CPU falls asleep, or is stopped by somebody: then it has not come to rest, and others wait
    /// for it as for one whose process has been stopped. QEMU's lock is held: nothing here may
    /// wait.
    pub fn idle(&self, index: u32) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        if !cpu.hand.has_halted(Words::of(index).time()) {
            cpu.confirmation.stops();
        } else if cpu.hand.phase() == Phase::Alive {
            let mut words = Words::of(index);
            let time = cpu.hand.time(words.time());
            // Before others can have their turns.
            with_cpu(index, |c| c.publish(true, 0));
            let now = cpu.coupling.sleep(time, words.trace());
            if now > time {
                cpu.hand.slept(time, now);
                words.set_time(cpu.hand.plan(now, now));
            }
        }
    }

    /// A CPU wakes up. QEMU's lock is held.
    pub fn resumed(&self, index: u32) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        let node = self.node.index();
        cpu.confirmation
            .goes_on(|vector| self.doorbells.is_taken(node, vector));
        let mut words = Words::of(index);
        let q = words.time();
        let time = cpu.hand.time(q);
        if cpu.hand.phase() == Phase::Alive
            && let Some(resumed) = cpu.coupling.resume(time)
        {
            match resumed.event {
                Some(Interrupt::Doorbell) => {
                    cpu.hand.slept_until_rung(time, resumed.now, self.flight);
                }
                Some(Interrupt::Timer) => cpu.hand.slept(time, resumed.now),
                None => {
                    cpu.hand.slept(time, resumed.now);
                    cpu.hand.nothing_came(q, resumed.now);
                }
            }
            // It looks around before it does anything else.
            words.set_time(cpu.hand.plan(resumed.now, 0));
        }
    }

    /// The guest calls; `left` instructions of the block follow the call.
    pub fn call(&self, index: u32, call: ClockCall, left: u64) {
        let Some(cpu) = self.cpu(index) else {
            return;
        };
        if cpu.hand.phase() != Phase::Alive {
            return;
        }
        let q = Words::of(index).time();
        let ahead = left * self.config.instruction_ps();
        let now = cpu.hand.time(q).saturating_sub(ahead);
        let word = |word: usize| self.pages[guest_word(cpu.id, word)].load(Ordering::Acquire);
        match call {
            ClockCall::Read => {
                let at = plugin_word(cpu.id, plugin::NOW);
                self.pages[at].store(now / PS, Ordering::Release);
            }
            ClockCall::Sync => {
                let ns = word(guest::DEADLINE);
                // One that has passed is due at once.
                let deadline = (ns != 0).then(|| ns.saturating_mul(PS).max(now));
                cpu.coupling.set_deadline(deadline);
                self.event_changed(index, cpu);
            }
            ClockCall::Ring => {
                let target = word(guest::TARGET);
                let to = NodeId::new(target >> 8).zip(CpuId::new(target & 0xff));
                if let Some((node, to)) = to {
                    cpu.coupling.ring(now, Who::new(node, to));
                    // The CPU itself, perhaps: nobody else would tell it.
                    self.event_changed(index, cpu);
                    with_cpu(index, |c| c.operate(Operation::Doorbell));
                }
            }
            ClockCall::Console => self.write(cpu.id, word(guest::TEXT_LEN)),
            ClockCall::Pause => {
                let event = cpu.coupling.next_event().unwrap_or(u64::MAX);
                let until = pause_end(now, word(guest::PAUSE), event);
                Words::of(index).add_time(until - now);
                cpu.hand.slept(now, until);
                self.event_changed(index, cpu);
            }
            ClockCall::Count => {
                let at = plugin_word(cpu.id, plugin::COUNTER);
                let wanted = SimCounter::from_number(word(guest::COUNTER));
                let value = wanted.and_then(|c| count(index, c, left));
                self.pages[at].store(value.unwrap_or(NO_COUNTER), Ordering::Release);
            }
            ClockCall::Exit => {
                for (other, cpu) in self.cpus.iter().enumerate() {
                    let end = match other as u32 {
                        own if own == index => now,
                        other => self.until_end(other, cpu, now),
                    };
                    let left = if other as u32 == index { left } else { 0 };
                    self.end(other as u32, cpu, end, left);
                }
            }
        }
    }

    /// When another CPU of this machine ends, which does at `now`. One that is halted has been so
    /// until then; one that executes may have come further.
    fn until_end(&self, index: u32, cpu: &Cpu, now: u64) -> u64 {
        let time = cpu.hand.time(Score::time().value(index));
        if cpu.hand.phase() != Phase::Ended {
            cpu.hand.slept(time, now);
        }
        now.max(time)
    }

    /// A CPU's time, when `left` instructions of its block are still to come, and how much of it has
    /// been idle, and how much waiting for a doorbell. On the CPU's thread.
    pub fn reading(&self, index: u32, left: u64) -> (u64, u64, u64) {
        self.cpu(index).map_or((0, 0, 0), |cpu| {
            let ahead = left * self.config.instruction_ps();
            let time = cpu.hand.time(Words::of(index).time());
            (time.saturating_sub(ahead), cpu.hand.idle(), cpu.hand.ipi())
        })
    }

    /// Writes console text to where the machine's serial line goes.
    fn write(&self, cpu: CpuId, len: u64) {
        let len = len.min(TEXT_BYTES as u64) as usize;
        let words = &self.pages[text_word(cpu)..][..TEXT_BYTES / 8];
        let mut text = [0; TEXT_BYTES];
        for (bytes, word) in text.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let mut rest = &text[..len];
        let begin = Instant::now();
        while !rest.is_empty() && begin.elapsed() < Duration::from_secs(10) {
            match rustix::io::write(rustix::stdio::stdout(), rest) {
                Ok(n) => rest = &rest[n..],
                // QEMU has its standard output not block.
                Err(rustix::io::Errno::AGAIN) => {
                    host::pause(u32::MAX);
                }
                Err(rustix::io::Errno::INTR) => {}
                // Nobody listens any more.
                Err(_) => break,
            }
        }
    }

    /// A CPU's life is over, with `left` instructions of its block still to come. What it executes until
    /// QEMU has ended depends on the host, and is not counted.
    fn end(&self, index: u32, cpu: &Cpu, time: u64, left: u64) {
        if cpu.hand.phase() != Phase::Ended {
            let lower = Score::lower().value(index);
            let upper = Score::upper().value(index).saturating_sub(left);
            let _ = cpu.halves.set((lower, upper));
            with_cpu(index, |c| c.freeze(left));
            cpu.hand.end(time);
            cpu.coupling.end(time, Score::trace().value(index));
        }
    }

    /// QEMU ends.
    pub fn ended(&self) {
        for (index, cpu) in self.cpus.iter().enumerate() {
            let time = cpu.hand.time(Score::time().value(index as u32));
            self.end(index as u32, cpu, time, 0);
        }
    }

    // --- report ------------------------------------------------------------------------------

    /// What the clock reports of this machine; once it has ended.
    pub fn report(&self) -> ClockReport {
        let mut report = ClockReport {
            given_up: self.overseer.stats().given_up,
            ..ClockReport::default()
        };
        for cpu in &self.cpus {
            let s = cpu.coupling.stats();
            let timeouts = cpu.confirmation.timeouts();
            report.total_ps = report.total_ps.max(cpu.hand.final_time(0));
            report.idle_ps += cpu.hand.idle() + cpu.hand.ipi();
            report.max_skew_ps = report.max_skew_ps.max(s.skew);
            report.max_late_ps = report.max_late_ps.max(s.late);
            report.max_overdue_ps = report.max_overdue_ps.max(s.overdue);
            for (sum, part) in [
                (&mut report.quanta, s.quanta),
                (&mut report.waits, s.waits),
                (&mut report.timers, s.timers),
                (&mut report.doorbells, s.doorbells),
                (&mut report.outside, s.outside),
                (&mut report.given_up, s.given_up),
                (&mut report.merged, s.merged),
                (&mut report.followed_ps, s.followed),
                (&mut report.handshake_timeouts, timeouts),
            ] {
                *sum += part;
            }
            report.turns_taken = cpu.coupling.turns_taken();
            report.trace_hash = mix(report.trace_hash) ^ s.digest;
        }
        report
    }

    /// Puts a CPU's time into its report, in which its instructions and latencies are.
    pub fn report_cpu(&self, report: &mut CpuReport) {
        let Some(cpu) = self.cpu(report.cpu) else {
            return;
        };
        let s = cpu.coupling.stats();
        report.time_ps = cpu.hand.final_time(0);
        if let Some((lower, upper)) = cpu.halves.get() {
            let all = report.lower_half + report.upper_half;
            report.after_end = all.saturating_sub(lower + upper);
            (report.lower_half, report.upper_half) = (*lower, *upper);
            report.counters.instructions = lower + upper;
        }
        report.counters.ipis_sent = s.rung;
        report.counters.ipis_received = s.doorbells;
        report.breakdown_ps.inst = report.counters.instructions * self.config.instruction_ps();
        report.breakdown_ps.idle = cpu.hand.idle();
        report.breakdown_ps.ipi = cpu.hand.ipi();
    }
}

/// A CPU's counter, up to an instruction with `left` instructions of its block after it.
fn count(index: u32, counter: SimCounter, left: u64) -> Option<u64> {
    if counter == SimCounter::Instructions {
        let (lower, upper) = Words::of(index).instructions();
        return Some((lower + upper).wrapping_sub(left));
    }
    let counters = with_cpu(index, |cpu| cpu.counts(left).report())?;
    let at = Counters::NAMES.iter().position(|n| *n == counter.name())?;
    counters.values().get(at).copied()
}
