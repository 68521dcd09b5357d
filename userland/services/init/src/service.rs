//! The threads of init, and its process service.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::record::{EXIT_BOOT, EXIT_FAILED, EXIT_OK, name};
use dyad_abi::service::{peer, program, slot, thread_id, thread_of_id};
use dyad_abi::user::{
    self, DATA_STACK_SIZE, FAULT_CROSSING_SHIFT, FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT,
    MAX_CROSSINGS, PAGE_SIZE, ReportKind, STACK_SIZE, Stack,
};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::asked::{Asked, asked};
use dyad_services::ending::Ending;
use dyad_services::keeper::Keeper;
use dyad_services::rt::{self, Call};
use dyad_services::text::Text;
use dyad_sys::cap::{Cap, NodeState, Thread};

use crate::blocks::{self, Who};
use crate::build::{Builder, name_of};
use crate::program::HOME;
use crate::separate::Found;
use crate::system::{Guest, SERVE, System};
use crate::takedown::until;
use crate::threads;
use crate::wardens;

/// Badge of the handler of faults in a service, without the number of the service.
pub const IN_SERVICE: u64 = 1 << 32;

/// What the first thread builds, and the warden that leads looks after and takes down.
struct Records(UnsafeCell<Option<System>>);

// SAFETY: 1. The first thread alone accesses the records until it has stored BUILT; afterwards only the holder of
// KEEPER does.
unsafe impl Sync for Records {}

static SYSTEM: Records = Records(UnsafeCell::new(None));
/// Whether the first thread has built the system.
static BUILT: AtomicBool = AtomicBool::new(false);
/// The warden that has the records: a [`Who`].
static KEEPER: Keeper = Keeper::new();
/// Whether the holder of the records is making a change that no other thread could complete.
static CHANGING: AtomicBool = AtomicBool::new(false);

dyad_services::entry!(start, invoked, to 6);

fn start(arg: u64) -> ! {
    match (arg % PAGE_SIZE).checked_sub(SERVE).and_then(NodeId::new) {
        Some(node) => wardens::serve(node),
        None => begin(),
    }
}

/// Where this runs.
fn here() -> NodeId {
    rt::hardware(HOME).where_am_i().map_or(HOME, |w| w.node)
}

/// Says something on the console of the node that this runs on.
pub fn say(what: fmt::Arguments<'_>) {
    let text = Text::<320>::of(format_args!("init: {what}\n"));
    // If this fails, there is no console to report that on.
    let _ = rt::hardware(here()).write(text.as_str());
}

fn check(name: &str, ok: bool, detail: fmt::Arguments<'_>) {
    let detail = Text::<256>::of(detail);
    let hardware = rt::hardware(here());
    let _ = hardware.report(ReportKind::Check, ok.into(), name, detail.as_str());
}

/// Says whether the processes of a group have frames of their own pools only.
pub fn check_pools(found: &Found) {
    let detail = format_args!(
        "{} pages, {} of them in the pool of another node, {:#x} for one",
        found.pages, found.foreign, found.address
    );
    check(name::POOLS, found.foreign == 0 && found.pages > 0, detail);
}

/// Ends the run.
pub fn shut_down(code: u32) -> ! {
    loop {
        let _ = rt::hardware(HOME).shutdown(code);
        dyad_sys::raw::relax();
    }
}

/// The first thread: builds the system and gives it the CPUs.
fn begin() -> ! {
    let built = Builder::new().and_then(Builder::system);
    let going = built.and_then(|mut system| {
        // Schedulers run from here on, and the warden of this node as soon as this one has ended.
        system.set_going()?;
        // SAFETY: 1. No other thread accesses the records before BUILT is true.
        unsafe { *SYSTEM.0.get() = Some(system) };
        BUILT.store(true, Ordering::Release);
        Ok(())
    });
    if let Err(trouble) = going {
        say(format_args!("the system does not start: {trouble}"));
        check(name::INIT, false, format_args!("{trouble}"));
        shut_down(EXIT_BOOT);
    }
    let e = Cap::<Thread>::at(slot::THREAD).exit(0);
    say(format_args!("the first thread does not end: {e}"));
    shut_down(EXIT_BOOT)
}

/// Does something with the system that has been built, for the warden of a node. `None`: the system is not built yet,
/// or another warden has the records.
///
/// A warden that was lost with its node while it had the records is succeeded, unless it was [changing](changing) them:
/// then the run ends.
pub fn with_system<T>(node: NodeId, f: impl FnOnce(&mut System) -> T) -> Option<T> {
    if !BUILT.load(Ordering::Acquire) {
        return None;
    }
    let me = Who::warden(node)?;
    let (turn, _) = KEEPER
        .succeed(me.name(), |other| Who::of(other).goes_on())
        .ok()?;
    if CHANGING.load(Ordering::Acquire) {
        records_lost();
    }
    // SAFETY: 1. It is this thread's turn, and of a holder that has ended nothing is run any more.
    let done = unsafe { &mut *SYSTEM.0.get() }.as_mut().map(f);
    drop(turn);
    done
}

/// Makes a change of the records, or of the system beside them, that no other thread could complete or repeat.
pub fn changing<T>(change: impl FnOnce() -> T) -> T {
    CHANGING.store(true, Ordering::Release);
    let done = change();
    CHANGING.store(false, Ordering::Release);
    done
}

/// Ends the run if the first thread was lost before it had built the system.
pub fn start_failed() {
    let first = rt::info().map_or(0, |i| i.system.nodes[HOME.index()].incarnation);
    if !BUILT.load(Ordering::Acquire) && !wardens::lives(HOME, first) {
        let why = format_args!("node {HOME} has died while it was starting the system");
        say(why);
        check(name::INIT, false, why);
        shut_down(EXIT_FAILED);
    }
}

/// Ends the run, because a thread of init was lost with its node while it was changing the records of the system.
pub fn records_lost() -> ! {
    let why = format_args!(
        "a thread of init was lost with its node while it was changing the records of the system"
    );
    say(why);
    check(name::RECORDS, false, why);
    shut_down(EXIT_FAILED)
}

/// Whether the program has said that it ends, or has been told to.
pub fn is_over() -> bool {
    threads::of(program::FIRST).is_ok_and(threads::Guest::is_over)
}

/// Takes a program down, and says whether all of its memory has come back.
fn take_down(system: &System, guest: &Guest, name: &str) -> bool {
    match system.take_down(&guest.program) {
        Ok(count) => {
            let ok = count.returned == count.given;
            check(
                name,
                ok,
                format_args!("{} of {} frames", count.returned, count.given),
            );
            ok
        }
        Err(trouble) => {
            check(
                name,
                false,
                format_args!("the program could not be taken down: {trouble}"),
            );
            false
        }
    }
}

/// Threads have ended: of the program, or of the one beside it. That one is taken down here if it has
/// ended; how it has is its own affair. `true`: the program has ended.
pub fn threads_ended(system: &mut System) -> bool {
    if let Some(beside) = &system.beside
        && has_ended(beside, system.deaths)
    {
        changing(|| beside_ended(system));
    }
    if let Some(group) = &mut system.group
        && system.deaths > 0
    {
        let dead = system.lives.map(|(_, has_died)| has_died);
        let has_died = |node: NodeId| dead[node.index()];
        // A group ends with the node that has the directory of its pages.
        if has_died(peer::ORIGIN) {
            if let Ok(guest) = threads::of(system.guest.program.number) {
                guest.close();
            }
            return true;
        }
        group.tell_deaths(has_died);
    }
    has_ended(&system.guest, system.deaths)
}

/// Whether a program has ended. Threads of it that were lost are noted.
fn has_ended(guest: &Guest, deaths: u32) -> bool {
    threads::of(guest.program.number)
        .is_ok_and(|g| g.look_for_lost((guest.program.number, guest.name), deaths))
}

fn beside_ended(system: &mut System) {
    let Some(guest) = system.beside.take() else {
        return;
    };
    let ending = ending_of(&guest);
    say(format_args!("program {:?} {ending}", guest.name));
    take_down(system, &guest, name::BESIDE);
}

/// The program has ended: takes it down, and ends the run. A program beside it ends with the run.
pub fn ended(system: &System) -> ! {
    await_recovery(system);
    changing(|| {
        let ended = report_end(system);
        if let Some(group) = &system.group {
            group.report(|node| system.is_going(node));
        }
        let returned = take_down(system, &system.guest, name::FRAMES);
        shut_down(if ended && returned {
            EXIT_OK
        } else {
            EXIT_FAILED
        })
    })
}

/// Waits until no node is in recovery: a run that ends in the middle of one would leave a machine that is started again to
/// chance. A recovery that does not end is not waited for any longer; it holds back no frame of a program.
fn await_recovery(system: &System) {
    let in_recovery = |n| {
        let state = rt::hardware(HOME).node_state(n);
        state.is_ok_and(NodeState::is_in_recovery)
    };
    let _ = until(|| Ok(!system.builder.nodes().any(in_recovery)));
}

/// How a program has ended; says where, if that was a fault.
fn ending_of(guest: &Guest) -> Ending {
    let Ok(end) = threads::of(guest.program.number).map(threads::Guest::end) else {
        return Ending::Faulted;
    };
    let [kind, address, pc, isa, n] = end.fault;
    if kind != 0 {
        say(format_args!(
            "program {:?}, thread {n}: {} {address:#x} at pc {pc:#x} on {}{}",
            guest.name,
            fault_name(kind & 0xff),
            Isa::from_index(isa).unwrap_or(Isa::X86_64),
            Reason {
                kind,
                address,
                thread: thread_id(guest.program.number, n)
            }
        ));
    }
    end.ending
}

/// Says how the program has ended, and whether that is a success.
fn report_end(system: &System) -> bool {
    let ending = ending_of(&system.guest);
    let ok = ending.is_success();
    let name = system.guest.name;
    check(name::EXIT, ok, format_args!("program {name:?} {ending}"));
    ok
}

/// Why nothing was at the address of a fault, if that can be said.
struct Reason {
    /// As fault handlers are told it.
    kind: u64,
    address: u64,
    thread: u32,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind & FAULT_NO_MEMORY != 0 {
            f.write_str(": no memory is left")?;
            if let Some(node) = (self.kind >> FAULT_SUPPLY_SHIFT & 0xf).checked_sub(1) {
                write!(f, " on node {node}")?;
            }
            return f.write_str("; --mem-local and --mem-cxl give nodes more");
        }
        if let Some(why) = Error::from_code(self.kind >> FAULT_CROSSING_SHIFT & 0xff) {
            return match why {
                Error::TooDeep => write!(
                    f,
                    ": at most {MAX_CROSSINGS} crossing calls can be within each other"
                ),
                why => write!(
                    f,
                    ": a call of a function of the other ISA did not cross: {why}"
                ),
            };
        }
        let (name, size) = match user::run_over(self.thread, self.address) {
            None => return Ok(()),
            Some(Stack::Data) => ("data stack", DATA_STACK_SIZE),
            Some(Stack::Native(_)) => ("stack", STACK_SIZE),
        };
        write!(
            f,
            ": its {name} of {} KiB has run over; calls are too deep, or locals too large",
            size >> 10
        )
    }
}

fn fault_name(kind: u64) -> &'static str {
    match kind {
        1 => "read of",
        2 => "write to",
        3 => "instruction fetch from",
        4 => "illegal instruction, address",
        5 => "breakpoint, address",
        6 => "bad arithmetic, address",
        7 => "misaligned access to",
        _ => "fault, address",
    }
}

fn invoked(call: Call) -> [u64; 4] {
    match call.badge.checked_sub(IN_SERVICE) {
        Some(service) => fault_in_service(service, &call),
        None => rt::words(process(call)),
    }
}

/// A thread has faulted in a service, or in init itself. It ends. If it is a thread of init, the run ends: no other
/// thread does what that one had to do, and one that waits for it would wait for ever.
fn fault_in_service(number: u64, call: &Call) -> [u64; 4] {
    let [address, kind, pc, _] = call.words;
    let (of, n) = thread_of_id(call.token >> 8);
    let here = rt::hardware(HOME).where_am_i();
    let reason = Reason {
        kind,
        address,
        thread: thread_id(of, n),
    };
    let what = Text::<256>::of(format_args!(
        "service {:?}, thread {n} of {:?}: {} {address:#x} at pc {pc:#x} on {}{reason}",
        program::name(number),
        name_of(of),
        fault_name(kind & 0xff),
        here.map_or(Isa::X86_64, |w| w.isa),
    ));
    say(format_args!("{}", what.as_str()));
    if of == program::INIT {
        check(name::WARDEN, false, format_args!("{}", what.as_str()));
        shut_down(EXIT_FAILED);
    }
    [1, 0, 0, 0]
}

fn process(call: Call) -> Result<u64> {
    let [_, a, b, c] = call.words;
    match asked(call.badge, call.words)? {
        Asked::Emulate => crate::emulate::ask(call, [a, b, c]),
        Asked::Change => crate::ask::change(call.badge, a, b, c),
        Asked::Memory { program, node } => {
            let node = match node {
                None => rt::hardware(HOME).where_am_i()?.node,
                Some(node) => node,
            };
            let me = Who::invocation(&call)?;
            blocks::more(me, program, node).map(|()| 0)
        }
        Asked::MemoryState => blocks::state(&call, a, b),
        Asked::Lost { program, threads } => {
            threads::of(program)?.lose(threads);
            crate::wardens::call_leader();
            Ok(0)
        }
        Asked::Threads => threads::request(&call),
        Asked::Faulted { program, kind } => {
            let guest = threads::of(program)?;
            // This runs where the fault was, on the thread that committed it.
            let isa = rt::hardware(HOME).where_am_i()?.isa;
            let (_, n) = thread_of_id(call.token >> 8);
            guest.fault(call.token, [kind, a, b, isa as u64, n]);
            Ok(0)
        }
    }
}
