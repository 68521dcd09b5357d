//! An emulated system for tests on the host: the same calls, no machines.
//!
//! It has what every program is started with, and nothing else: the capabilities in the well-known
//! [slots](dyad_abi::service::slot) of programs, the services behind them, the info page and the
//! text buffer. Everything else is an empty slot.
//!
//! [`run`] starts a program the way a kernel does. Each ISA of the program is a host thread with
//! its own stack, and a migration to the other ISA hands the turn to the other thread (starting
//! it at the program's entry the first time) and waits: the continuation semantics of the real
//! `Migrate`, so that an executor that keeps something on its native stack fails here too.
//!
//! ```text
//!   side X:  entry ── migrate ┐(waits)            ┌ returns ── exit
//!   side A:                   └ entry ── migrate ─┘(waits for ever)
//! ```
//!
//! Other threads of the program are host threads as well (`threads`).
//!
//! A host thread that calls something without [`run`] gets a program of its own with one node
//! per ISA, in which migration only changes where the thread says it is.
#![cfg(not(target_os = "none"))]

mod memory;
mod outcome;
mod threads;

use std::boxed::Box;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use std::vec;
use std::vec::Vec;

use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE, local_pool_base};
use dyad_abi::cap::{
    CapIndex, CapType, HardwareOp, ReceiveOp, SendOp, SinvOp, SpaceOp, TableAt, ThreadOp,
};
use dyad_abi::clock::KernelCounter;
use dyad_abi::service::memory::Question;
use dyad_abi::service::{
    CONSOLE_THREADS, INFO_MAGIC, Info, MAX_ARGS, ReportText, console, pager, process, slot,
};
use dyad_abi::user::{
    MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE, ReportKind, SysInfo, Where, request,
};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};

use memory::{map, translate, unmap};
use threads::Threads;

pub use outcome::{Check, Config, Outcome};
pub use threads::{in_invocation, invoked, thread_id};

/// Size of the text buffer.
const BUFFER: u64 = CONSOLE_THREADS * PAGE_SIZE;

/// The info page, aligned to a page like the real one, so that offsets into it can be told from its address.
#[repr(align(4096))]
struct Page(Info);

struct State {
    outcome: Outcome,
    live: Vec<bool>,
    here: usize,
    /// The side that may run; `None` once the program has exited.
    turn: Option<Isa>,
    started: [bool; 2],
    skipped: u64,
    /// What its thread is asked.
    request: u64,
    maps: HashMap<u64, u64>,
    locals: HashMap<usize, usize>,
    threads: Threads,
}

struct Program {
    config: Config,
    entry: Option<fn(u64) -> !>,
    begin: Instant,
    /// What the program finds at the address of the info page, and its text buffer. Both stay: a
    /// program is never quite over here.
    info: &'static Info,
    text: u64,
    input: OnceLock<&'static [u8]>,
    state: Mutex<State>,
    changed: Condvar,
}

std::thread_local! {
    static CURRENT: RefCell<Option<Arc<Program>>> = const { RefCell::new(None) };
}

fn current() -> Arc<Program> {
    CURRENT.with_borrow_mut(|c| {
        c.get_or_insert_with(|| Program::new(Config::default(), None))
            .clone()
    })
}

impl Program {
    fn new(config: Config, entry: Option<fn(u64) -> !>) -> Arc<Program> {
        let state = State {
            outcome: Outcome::default(),
            live: vec![true; config.nodes.len()],
            here: 0,
            turn: None,
            started: [false; 2],
            skipped: 0,
            request: request::NONE,
            maps: HashMap::new(),
            locals: HashMap::new(),
            threads: Threads::default(),
        };
        Arc::new(Program {
            info: &Box::leak(Box::new(Page(info_of(&config)))).0,
            text: Box::leak(vec![0u64; BUFFER as usize / 8].into_boxed_slice())
                .as_mut_ptr()
                .expose_provenance() as u64,
            input: OnceLock::new(),
            config,
            entry,
            begin: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, state: &State) -> u64 {
        self.begin.elapsed().as_nanos() as u64 + state.skipped
    }

    fn finish(&self, code: u32) {
        let mut state = self.state();
        state.outcome.code = code;
        state.turn = None;
        self.changed.notify_all();
    }

    /// Gives `isa` the turn, starting its side if it has none.
    fn hand_over(self: &Arc<Program>, state: &mut State, isa: Isa, entry: fn(u64) -> !) {
        state.turn = Some(isa);
        self.changed.notify_all();
        if !core::mem::replace(&mut state.started[isa.index()], true) {
            let program = self.clone();
            std::thread::spawn(move || {
                CURRENT.set(Some(program.clone()));
                // Only a panic ends this: a side that has exited sleeps for ever.
                let _ = catch_unwind(AssertUnwindSafe(|| -> () { entry(info_page()) }));
                program.finish(101);
            });
        }
    }

    fn migrate(self: &Arc<Program>, node: u64) -> Result<u64> {
        let mut state = self.state();
        let to = NodeId::new(node).ok_or(Error::NoSuchNode)?;
        let from = NodeId::new(state.here as u64).ok_or(Error::Corrupt)?;
        let isa = *self.config.nodes.get(to.index()).ok_or(Error::NoSuchNode)?;
        if !state.live[to.index()] {
            return Err(Error::NodeDead);
        }
        if to == from {
            return Ok(node);
        }
        state.outcome.migrations.push((from, to));
        state.here = to.index();
        let mine = self.config.nodes[from.index()];
        if let Some(entry) = self.entry
            && isa != mine
        {
            self.hand_over(&mut state, isa, entry);
            while state.turn != Some(mine) {
                state = wait(&self.changed, state);
            }
        }
        Ok(state.here as u64)
    }
}

/// Moves the calling thread to another node at this point of its execution.
pub fn relocate(node: NodeId) -> Result<()> {
    let program = current();
    let mut state = program.state();
    program
        .config
        .nodes
        .get(node.index())
        .ok_or(Error::NoSuchNode)?;
    if !state.live[node.index()] {
        return Err(Error::NodeDead);
    }
    let from = NodeId::new(threads::node(&state) as u64).ok_or(Error::Corrupt)?;
    if from != node {
        state.outcome.migrations.push((from, node));
        threads::relocate(&mut state, node);
    }
    Ok(())
}

fn wait<'a>(changed: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end.
///
/// Host threads of its sides stay behind, asleep: they have no way back from where they are.
pub fn run(config: Config, entry: fn(u64) -> !) -> Outcome {
    let first = config.nodes[0];
    let program = Program::new(config, Some(entry));
    let mut state = program.state();
    program.hand_over(&mut state, first, entry);
    while state.turn.is_some() {
        state = wait(&program.changed, state);
    }
    core::mem::take(&mut state.outcome)
}

/// Runs a program as this host process: nodes from the variable `DYAD_HOST_NODES` (such as
/// `x86_64,aarch64`), arguments from the command line. Does not return.
pub fn main(entry: fn(u64) -> !) -> ! {
    let mut config = Config {
        args: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        input: None,
        echo: true,
        ..Config::default()
    };
    if let Ok(names) = std::env::var("DYAD_HOST_NODES") {
        let nodes: Option<Vec<Isa>> = names.split(',').map(Isa::parse).collect();
        match nodes.filter(|n| n.len() <= dyad_abi::ident::MAX_NODES) {
            Some(nodes) => config.nodes = nodes,
            None => {
                std::eprintln!("DYAD_HOST_NODES: not a list of x86_64 and aarch64: {names:?}");
                std::process::exit(2);
            }
        }
    }
    let outcome = run(config, entry);
    let mut failed = false;
    for check in &outcome.checks {
        let word = if check.ok { "ok" } else { "FAILED" };
        std::println!("check {}: {word} ({})", check.name, check.detail);
        failed |= !check.ok;
    }
    std::process::exit(match outcome.code {
        0 if failed => 1,
        code => code as i32,
    })
}

/// Declares a node of the calling program's system dead. Its threads but the first are lost.
pub fn kill_node(node: NodeId) {
    let program = current();
    let mut state = program.state();
    state.live[node.index()] = false;
    state.threads.lose(node.index());
    program.changed.notify_all();
}

/// Declares threads of the calling program lost, by bit.
pub fn lose_threads(bits: u64) {
    let program = current();
    program.state().threads.lose_all(bits);
    program.changed.notify_all();
}

/// The threads of the calling program that were lost.
pub fn lost() -> u64 {
    threads::lost(&current())
}

/// What the calling program has done so far.
pub fn outcome() -> Outcome {
    current().state().outcome.clone()
}

/// The request word of the calling thread.
pub fn request_word() -> u64 {
    current().state().request
}

/// Takes the request word, and puts another word in its place.
pub fn swap_request(word: u64) -> u64 {
    core::mem::replace(&mut current().state().request, word)
}

/// The value of a program-local static: the same for all threads of the program; the first thread that asks
/// for it initializes it.
pub fn local<T: 'static>(key: usize, init: fn() -> T) -> &'static T {
    let program = current();
    let found = program.state().locals.get(&key).copied();
    let address = found.unwrap_or_else(|| {
        // Made without the program's mutex, which it may need itself: in vain if another thread is faster.
        let value = Box::leak(Box::new(init())) as *mut T as usize;
        *program.state().locals.entry(key).or_insert(value)
    });
    // SAFETY: 1. The key is the address of a static of this type, so the value stored under it is
    // a leaked box of `T`. 2. Sides of a program take turns, ordered by the program's mutex.
    unsafe { &*(address as *const T) }
}

/// The standard input of the calling program.
pub fn input() -> &'static [u8] {
    let program = current();
    program.input.get_or_init(|| {
        let bytes = program.config.input.clone().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            if let Err(e) = std::io::stdin().read_to_end(&mut bytes) {
                std::eprintln!("cannot read standard input: {e}");
                std::process::exit(1);
            }
            bytes
        });
        Vec::leak(bytes)
    })
}

/// Number of the ISA that the calling thread is on.
pub fn isa_index() -> u64 {
    let program = current();
    let here = threads::node(&program.state());
    program.config.nodes[here] as u64
}

/// Address of the info page of the calling program.
pub fn info_page() -> u64 {
    core::ptr::from_ref(current().info).expose_provenance() as u64
}

/// Address of the buffer of the calling thread, through which text reaches the console.
pub fn text_buffer() -> u64 {
    current().text
}

/// The slot, the type of the capability, and the operation that a call names.
fn decode(program: &Program, word: u64) -> Result<(CapIndex, CapType, u64)> {
    let (index, operation) = (word & 0xffff_ffff, word >> 32);
    if word == dyad_abi::cap::RETURN {
        return Err(Error::TooDeep);
    }
    let index = CapIndex::new(index).ok_or(Error::NoCap)?;
    if operation > 31 {
        return Err(Error::BadSyscall);
    }
    let mut hardware = NodeId::first(program.config.nodes.len()).map(slot::hardware);
    let kind = match index {
        _ if threads::is_own(index) => CapType::Thread,
        _ if threads::woken_by(index).is_some() => CapType::Send,
        slot::SPACE => CapType::Space,
        slot::ENDPOINT => CapType::Receive,
        slot::CONSOLE | slot::PAGER | slot::PROCESS => CapType::Sinv,
        _ if hardware.any(|h| h == index) => CapType::Hardware,
        _ => return Err(Error::NoCap),
    };
    Ok((index, kind, operation))
}

/// # Safety
///
/// As for a system call of a program: what the operation demands of its arguments.
pub unsafe fn syscall(word: u64, args: [u64; 5]) -> [u64; 2] {
    match perform(word, args) {
        Ok(value) => [0, value],
        Err(e) => [e.code(), 0],
    }
}

/// The kernel's status and the words of the reply.
pub fn invoke(word: u64, words: [u64; 4]) -> (u64, [u64; 4]) {
    let program = current();
    threads::go_on(&program);
    let refused = |e: Error| (e.code(), [0; 4]);
    match decode(&program, word) {
        Ok((service, CapType::Sinv, operation)) if operation == SinvOp::Invoke as u64 => {
            match serve(&program, service, words) {
                Ok(value) => (0, [0, value, 0, 0]),
                Err(e) => (0, [e.code(), 0, 0, 0]),
            }
        }
        Ok(_) => refused(Error::Denied),
        Err(e) => refused(e),
    }
}

fn perform(word: u64, [a0, a1, ..]: [u64; 5]) -> Result<u64> {
    let program = current();
    threads::go_on(&program);
    let (index, kind, operation) = decode(&program, word)?;
    match kind {
        CapType::Send if operation == SendOp::Send as u64 => {
            let n = threads::woken_by(index).ok_or(Error::Corrupt)?;
            threads::send(&program, n).map(|()| 0)
        }
        CapType::Thread => match ThreadOp::from_number(operation).ok_or(Error::Denied)? {
            ThreadOp::Migrate => program.migrate(a0),
            ThreadOp::Yield => {
                std::thread::yield_now();
                Ok(0)
            }
            ThreadOp::Exit => exit(&program, a0),
            _ => Err(Error::Denied),
        },
        CapType::Receive => match ReceiveOp::from_number(operation).ok_or(Error::Denied)? {
            ReceiveOp::Receive => threads::receive(&program, a0, a1),
            _ => Err(Error::Denied),
        },
        CapType::Space => match SpaceOp::from_number(operation).ok_or(Error::Denied)? {
            SpaceOp::Translate => {
                let at = TableAt::from_bits(a0).ok_or(Error::BadArgument)?;
                translate(&program, a1, at.isa)
            }
            _ => Err(Error::Denied),
        },
        CapType::Hardware => match HardwareOp::from_number(operation).ok_or(Error::Denied)? {
            HardwareOp::Now => Ok(program.now(&program.state())),
            // Threads of the host need neither messages nor doorbells; and nobody simulates it.
            HardwareOp::Count => match KernelCounter::from_number(a0) {
                Some(KernelCounter::Doorbells | KernelCounter::Messages) => Ok(0),
                None => Err(Error::NotReady),
            },
            HardwareOp::Where => {
                let here = threads::node(&program.state());
                Ok(Where {
                    node: NodeId::new(here as u64).ok_or(Error::Corrupt)?,
                    cpu: CpuId::new(0).ok_or(Error::Corrupt)?,
                    isa: program.config.nodes[here],
                }
                .pack())
            }
            HardwareOp::NodeState => {
                let state = program.state();
                let live = usize::try_from(a0).ok().and_then(|n| state.live.get(n));
                let live = *live.ok_or(Error::NoSuchNode)?;
                const LIVE: u32 = 2;
                const DEAD: u32 = 4;
                let number = if live { LIVE } else { DEAD };
                Ok(u64::from(number) | 1 << 32)
            }
            _ => Err(Error::Denied),
        },
        _ => Err(Error::Denied),
    }
}

fn exit(program: &Program, code: u64) -> ! {
    if program.entry.is_none() {
        panic!("a test without a program has called exit({code})");
    }
    program.finish(code as u32);
    loop {
        std::thread::park();
    }
}

/// What the services do.
fn serve(program: &Arc<Program>, service: CapIndex, [what, a, b, c]: [u64; 4]) -> Result<u64> {
    match (service, what) {
        (slot::CONSOLE, console::WRITE) if b > PAGE_SIZE => Err(Error::TooLarge),
        (slot::CONSOLE, console::WRITE) => {
            let bytes = shared(program, a, b)?;
            let text = core::str::from_utf8(bytes).map_err(|_| Error::BadArgument)?;
            if program.config.echo {
                std::print!("{text}");
            }
            program.state().outcome.output.push_str(text);
            Ok(b)
        }
        (slot::CONSOLE, console::REPORT) => {
            let bytes = shared(program, a, size_of::<ReportText>() as u64)?;
            // SAFETY: 1. The buffer has that many bytes from there on, and every pattern of bits is
            // a valid report. 2. The caller waits, so nobody writes them.
            let report = unsafe { bytes.as_ptr().cast::<ReportText>().read_unaligned() };
            record(&mut program.state().outcome, &report).map(|()| 0)
        }
        (slot::PAGER, pager::MAP_ANON)
            if (b & !pager::INCOHERENT) as usize > program.config.nodes.len() =>
        {
            Err(Error::NoSuchNode)
        }
        (slot::PAGER, pager::MAP_ANON) => map(program, a),
        (slot::PAGER, pager::UNMAP) => unmap(program, a, b),
        (slot::PROCESS, process::EXIT) => exit(program, a),
        (slot::PROCESS, process::START) => threads::start(program, a, b),
        (slot::PROCESS, process::END_THREAD) => threads::end(program),
        (slot::PROCESS, process::REQUEST) => change_request(program, a, b, c),
        // What services do for each other.
        (slot::CONSOLE, console::END)
        | (slot::PAGER, pager::END)
        | (slot::PROCESS, process::FAULTED | process::MEMORY | process::LOST) => Err(Error::Denied),
        // There are no blocks, and no node owns anything.
        (slot::PROCESS, process::MEMORY_STATE) => Question::from_number(a)
            .map(|_| 0)
            .ok_or(Error::BadArgument),
        _ => Err(Error::BadArgument),
    }
}

fn change_request(program: &Program, thread: u64, old: u64, new: u64) -> Result<u64> {
    let mut state = program.state();
    if thread != 0 {
        return Err(Error::NotFound);
    }
    if new != request::NONE {
        let node = request::node(new).ok_or(Error::NoSuchNode)?;
        let live = state.live.get(node.index());
        if !*live.ok_or(Error::NoSuchNode)? {
            return Err(Error::NodeDead);
        }
    }
    let was = state.request;
    if was == old {
        state.request = new;
    }
    Ok(was)
}

/// Part of the text buffer.
fn shared(program: &Program, offset: u64, len: u64) -> Result<&'static [u8]> {
    if offset.checked_add(len).is_none_or(|end| end > BUFFER) {
        return Err(Error::BadArgument);
    }
    let start = core::ptr::with_exposed_provenance::<u8>((program.text + offset) as usize);
    // SAFETY: 1. The buffer is that large and stays. 2. Its owner waits for the service.
    Ok(unsafe { core::slice::from_raw_parts(start, len as usize) })
}

fn record(outcome: &mut Outcome, report: &ReportText) -> Result<()> {
    if report.name_len > MAX_REPORT_NAME as u64 || report.detail_len > MAX_REPORT_DETAIL as u64 {
        return Err(Error::TooLarge);
    }
    let text = |bytes: &[u8], len: u64| -> Result<String> {
        let text = core::str::from_utf8(&bytes[..len as usize]);
        text.map(str::to_string).map_err(|_| Error::BadArgument)
    };
    let name = text(&report.name, report.name_len)?;
    let detail = text(&report.detail, report.detail_len)?;
    dyad_abi::record::name::of_program(&name)?;
    match ReportKind::from_number(report.kind).ok_or(Error::BadArgument)? {
        ReportKind::Check => outcome.checks.push(Check {
            name,
            ok: report.value == 1,
            detail,
        }),
        ReportKind::Counter => *outcome.counters.entry(name).or_default() += report.value,
    }
    Ok(())
}

/// The info page of a program; arguments that are too long are cut.
fn info_of(config: &Config) -> Info {
    let mut system = SysInfo {
        abi_version: dyad_abi::ABI_VERSION,
        node_count: config.nodes.len() as u32,
        cxl_base: CXL_BASE,
        cxl_size: LOCAL_STRIDE,
        ..SysInfo::default()
    };
    for (node, slot) in NodeId::first(config.nodes.len()).zip(&mut system.nodes) {
        slot.isa = config.nodes[node.index()] as u32;
        slot.cpus = 1;
        slot.live = 1;
        slot.incarnation = 1;
        slot.pool_base = local_pool_base(node);
        slot.pool_size = LOCAL_STRIDE;
    }
    let text = &config.args[..config.args.floor_char_boundary(MAX_ARGS)];
    let mut args = [0; MAX_ARGS];
    args[..text.len()].copy_from_slice(text.as_bytes());
    let env = config.env.join("\t");
    let env = &env[..env.floor_char_boundary(MAX_ARGS - text.len())];
    args[text.len()..text.len() + env.len()].copy_from_slice(env.as_bytes());
    Info {
        magic: INFO_MAGIC,
        archive_len: 0,
        args_len: text.len() as u64,
        cpus: 1,
        console_node: 0,
        rounds_per_second: 0,
        block_size: 0,
        grant: 0,
        env_len: env.len() as u64,
        wall_ns: config.wall_ns,
        random: config.random,
        // It is not in a page here.
        input_len: 0,
        kernels: 0,
        transport: 0,
        ring_place: 0,
        delay: 0,
        fault_parts: 0,
        system,
        args,
    }
}
