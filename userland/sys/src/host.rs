//! An emulated system for tests on the host: the same system calls, no machines.
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
//! A host thread that calls something without [`run`] gets a program of its own with one node
//! per ISA, in which migration only changes where the thread says it is.

use core::ptr::NonNull;
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::vec;
use std::vec::Vec;

use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE, local_pool_base};
use dyad_abi::syscall::Syscall;
use dyad_abi::user::{
    MAX_REPORT_DETAIL, MAX_REPORT_NAME, MAX_WRITE, PAGE_SIZE, ReportArgs, ReportKind, SysInfo,
    TRANSLATE_EXEC, TRANSLATE_WRITE, Where,
};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};

use crate::raw::SyscallReturn;

/// The system a program is run on.
#[derive(Clone, Debug)]
pub struct Config {
    /// ISA of each node.
    pub nodes: Vec<Isa>,
    /// Argument text.
    pub args: String,
    /// Copy the program's output to the host's standard output.
    pub echo: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            nodes: Isa::ALL.to_vec(),
            args: String::new(),
            echo: false,
        }
    }
}

/// A recorded check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// What it says about that.
    pub detail: String,
}

/// What a program has done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its exit code.
    pub code: u32,
    /// All it wrote.
    pub output: String,
    /// Its checks, in order.
    pub checks: Vec<Check>,
    /// Its counters, summed by name.
    pub counters: HashMap<String, u64>,
    /// Its migrations, in order.
    pub migrations: Vec<(NodeId, NodeId)>,
}

struct State {
    outcome: Outcome,
    live: Vec<bool>,
    here: usize,
    /// The side that may run; `None` once the program has exited.
    turn: Option<Isa>,
    started: [bool; 2],
    skipped: u64,
    maps: HashMap<u64, u64>,
    locals: HashMap<usize, usize>,
}

struct Program {
    config: Config,
    entry: Option<fn(u64) -> !>,
    begin: Instant,
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
            maps: HashMap::new(),
            locals: HashMap::new(),
        };
        Arc::new(Program {
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
                let _ = catch_unwind(AssertUnwindSafe(|| -> () { entry(0) }));
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

/// Declares a node of the calling program's system dead.
pub fn kill_node(node: NodeId) {
    current().state().live[node.index()] = false;
}

/// What the calling program has done so far.
pub fn outcome() -> Outcome {
    current().state().outcome.clone()
}

/// The value of a program-local static.
pub(crate) fn local<T: 'static>(key: usize, init: fn() -> T) -> &'static T {
    let program = current();
    let found = program.state().locals.get(&key).copied();
    let address = found.unwrap_or_else(|| {
        let value = Box::leak(Box::new(init())) as *mut T as usize;
        program.state().locals.insert(key, value);
        value
    });
    // SAFETY: 1. The key is the address of a static of this type, so the value stored under it is
    // a leaked box of `T`. 2. Sides of a program take turns, ordered by the program's mutex.
    unsafe { &*(address as *const T) }
}

pub(crate) fn isa_index() -> u64 {
    let program = current();
    let here = program.state().here;
    program.config.nodes[here] as u64
}

/// # Safety
///
/// As for [`crate::raw::call_raw`].
pub(crate) unsafe fn syscall(op: u64, args: [u64; 5]) -> SyscallReturn {
    let result = match Syscall::from_number(op) {
        // SAFETY: 1. Same contract.
        Some(op) => unsafe { perform(op, args) },
        None => Err(Error::BadSyscall),
    };
    match result {
        Ok(value) => SyscallReturn { status: 0, value },
        Err(e) => SyscallReturn {
            status: e.code(),
            value: 0,
        },
    }
}

/// # Safety
///
/// As for [`crate::raw::call_raw`].
unsafe fn perform(op: Syscall, args: [u64; 5]) -> Result<u64> {
    let program = current();
    let [a0, a1, ..] = args;
    match op {
        Syscall::Null => Ok(0),
        Syscall::Exit => {
            if program.entry.is_none() {
                panic!("a test without a program has called exit({a0})");
            }
            program.finish(a0 as u32);
            loop {
                std::thread::park();
            }
        }
        Syscall::Write => {
            // SAFETY: 1. The caller vouches for the text.
            let text = unsafe { text(a0, a1, MAX_WRITE)? };
            if program.config.echo {
                std::print!("{text}");
            }
            program.state().outcome.output.push_str(text);
            Ok(a1)
        }
        Syscall::Now => Ok(program.now(&program.state())),
        Syscall::Yield => {
            std::thread::yield_now();
            Ok(0)
        }
        Syscall::SleepUntil => {
            // Nothing else happens in an emulated system, so time can jump.
            let mut state = program.state();
            let ahead = a0.saturating_sub(program.now(&state));
            state.skipped += ahead;
            Ok(0)
        }
        Syscall::Migrate => program.migrate(a0),
        Syscall::MapAnon => map(&program, a0),
        Syscall::Unmap => {
            let mut state = program.state();
            if state.maps.get(&a0) != Some(&a1) {
                return Err(Error::NotFound);
            }
            state.maps.remove(&a0);
            // SAFETY: 1. The range was mapped by `map` and the caller has given it up.
            unsafe { std::alloc::dealloc(a0 as *mut u8, pages(a1)?) };
            Ok(0)
        }
        Syscall::SysInfo => {
            let info = sys_info(&program);
            let len = (a1 as usize).min(size_of::<SysInfo>());
            // SAFETY: 1. The caller vouches for the buffer. 2. The source is a local.
            unsafe { core::ptr::copy((&raw const info).cast::<u8>(), a0 as *mut u8, len) };
            Ok(size_of::<SysInfo>() as u64)
        }
        Syscall::Args => {
            let text = program.config.args.as_bytes();
            let len = (a1 as usize).min(text.len());
            // SAFETY: 1. The caller vouches for the buffer. 2. The source is owned by us.
            unsafe { core::ptr::copy(text.as_ptr(), a0 as *mut u8, len) };
            Ok(text.len() as u64)
        }
        Syscall::Report => {
            // SAFETY: 1. The caller vouches for the structure and the texts it names.
            let (args, name, detail) = unsafe {
                let args = &*(a0 as *const ReportArgs);
                let name = text(args.name, args.name_len, MAX_REPORT_NAME)?;
                (
                    args,
                    name,
                    text(args.detail, args.detail_len, MAX_REPORT_DETAIL)?,
                )
            };
            let outcome = &mut program.state().outcome;
            match ReportKind::from_number(args.kind).ok_or(Error::BadArgument)? {
                ReportKind::Check => outcome.checks.push(Check {
                    name: name.to_string(),
                    ok: args.value == 1,
                    detail: detail.to_string(),
                }),
                ReportKind::Counter => {
                    *outcome.counters.entry(name.to_string()).or_default() += args.value;
                }
            }
            Ok(0)
        }
        Syscall::Translate => {
            translate(&program, a0, Isa::from_index(a1).ok_or(Error::BadArgument)?)
        }
        Syscall::Where => {
            let here = program.state().here;
            Ok(Where {
                node: NodeId::new(here as u64).ok_or(Error::Corrupt)?,
                cpu: CpuId::new(0).ok_or(Error::Corrupt)?,
                isa: program.config.nodes[here],
            }
            .pack())
        }
    }
}

/// # Safety
///
/// If `len` is within `max`, the text must be there and stay unchanged while it is used.
unsafe fn text<'a>(address: u64, len: u64, max: usize) -> Result<&'a str> {
    if len > max as u64 {
        return Err(Error::TooLarge);
    }
    let start = NonNull::new(address as *mut u8).ok_or(Error::BadAddress)?;
    // SAFETY: 1. The caller vouches for the bytes.
    let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len as usize) };
    core::str::from_utf8(bytes).map_err(|_| Error::BadArgument)
}

fn pages(len: u64) -> Result<std::alloc::Layout> {
    if len == 0 || !len.is_multiple_of(PAGE_SIZE) {
        return Err(Error::BadArgument);
    }
    std::alloc::Layout::from_size_align(len as usize, PAGE_SIZE as usize)
        .map_err(|_| Error::TooLarge)
}

fn map(program: &Program, len: u64) -> Result<u64> {
    let layout = pages(len)?;
    // SAFETY: 1. The layout is not empty.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(Error::NoMemory);
    }
    program.state().maps.insert(start as u64, len);
    Ok(start as u64)
}

fn sys_info(program: &Program) -> SysInfo {
    let mut info = SysInfo {
        abi_version: dyad_abi::ABI_VERSION,
        node_count: program.config.nodes.len() as u32,
        cxl_base: CXL_BASE,
        cxl_size: LOCAL_STRIDE,
        ..SysInfo::default()
    };
    let state = program.state();
    for (node, slot) in NodeId::first(program.config.nodes.len()).zip(&mut info.nodes) {
        slot.isa = program.config.nodes[node.index()] as u32;
        slot.cpus = 1;
        slot.live = state.live[node.index()].into();
        slot.incarnation = 1;
        slot.pool_base = local_pool_base(node);
        slot.pool_size = LOCAL_STRIDE;
    }
    info
}

/// Invented, but of the right form: code lies in a pool of its ISA, everything else in the CXL
/// pool, the same for all.
fn translate(program: &Program, address: u64, isa: Isa) -> Result<u64> {
    let permissions = region(address).ok_or(Error::BadAddress)?;
    let offset = address & (LOCAL_STRIDE - 1);
    if !permissions.contains('x') {
        return Ok((CXL_BASE + offset) | TRANSLATE_WRITE);
    }
    let nodes = &program.config.nodes;
    let node = NodeId::first(nodes.len()).find(|n| nodes[n.index()] == isa);
    Ok((local_pool_base(node.ok_or(Error::NoIsa)?) + offset) | TRANSLATE_EXEC)
}

/// Permissions of the mapping of this process that an address lies in.
fn region(address: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        let to = u64::from_str_radix(to, 16).ok()?;
        let permissions = rest.get(..4)?;
        (from..to)
            .contains(&address)
            .then(|| permissions.to_string())
    })
}
