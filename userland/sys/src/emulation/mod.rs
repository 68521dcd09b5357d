//! Threads of this program that were stopped at some instruction on one ISA, and go on on another: their
//! code is interpreted here until they come to a place from where they can go on natively.
//!
//! Init does the first half (`process::EMULATE`): it stops the thread, puts its registers into its
//! [`Page`], and has it begin at the program's entry on its new node. From there it comes to [`at_entry`]:
//!
//! ```text
//!   entry ──PENDING──▶ stack of its own ──▶ instruction by instruction ──at the point──▶ LANDED, natively
//!                                             │  ▲
//!                                    a call ──┴──┘ made natively, with the same words
//!                                             │
//!                                             └── refused ──Load──▶ BACK, natively where it was stopped
//! ```
//!
//! The native stack of the new node's ISA is not used meanwhile: whoever lands may lay frames out there.
//! What the thread does it does to the program's memory, with atomic accesses, so other threads of the
//! program can run natively on any node.
//!
//! | what the code does | what happens |
//! |---|---|
//! | an operation on a capability, an invocation | the same, natively; `Where` says where the thread really is |
//! | `Migrate`, `Jump` or `Load` of itself | it goes back, and makes the call natively |
//! | an instruction that is not known, or is an exception | it goes back, to that instruction |
//! | an access of memory that is not there | the program ends, as it would natively |
//!
//! | step | order |
//! |---|---|
//! | init: page, then `PENDING`; the thread begins elsewhere | release; acquire, and the hand-over of the thread |
//! | the runtime: outcome and registers, then `LANDED` or `BACK` | release: whoever sees that reads the rest |

mod guest;
mod memory;

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use dyad_abi::cap::{ThreadOp, call_word};
use dyad_abi::emulation::{self, Page, Registers, WINDOWS, WORDS, refused, status};
use dyad_abi::service::{process, slot};
use dyad_abi::user::{STACK_STRIDE, stack_slot};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_emulate::{End, Refusal, a64, run_to, x86};

use crate::cap::{Cap, Sinv, Thread};
use crate::raw;
use guest::Guest;
use memory::Own;

/// A place from where threads can go on natively.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    at: fn(),
    land: fn(NodeId) -> !,
    /// What the entry of the program calls; here, so that programs without points are without
    /// interpreters.
    enter: fn(u64),
}

impl Point {
    /// `at` is the function that is about to be called there. It must not be inlined. `land` goes on
    /// instead of it, on another node, on an empty native stack; it is told where the thread came from.
    pub const fn new(at: fn(), land: fn(NodeId) -> !) -> Point {
        Point { at, land, enter }
    }
}

/// No lock: threads are stopped wherever they are.
static POINT: AtomicPtr<Point> = AtomicPtr::new(core::ptr::null_mut());

/// The point, once [`enable`] has set it.
fn point() -> Option<&'static Point> {
    // SAFETY: 1. It is null, or a reference that lives for ever.
    unsafe { POINT.load(Ordering::Acquire).as_ref() }
}

/// Instructions between two looks at the count in the page.
const BATCH: u64 = 1 << 16;
/// Offset of words in [`Page`].
macro_rules! word_of {
    ($page:expr, $field:ident) => {
        $page.word(core::mem::offset_of!(Page, $field))
    };
}

/// The page of a thread, mapped.
#[derive(Clone, Copy)]
struct Mapped(&'static [AtomicU64; size_of::<Page>() / 8]);

impl Mapped {
    /// Of thread `n`, if [`enable`] has had init map it.
    fn of(n: u64) -> Option<Mapped> {
        point().filter(|_| n == 0)?;
        let page = with_exposed_provenance(emulation::page(n) as usize);
        // SAFETY: 1. Init has mapped the page writable, before the point was set, for as long as the
        // program lives. 2. All access is atomic.
        Some(Mapped(unsafe { &*page }))
    }

    fn word(self, offset: usize) -> &'static AtomicU64 {
        &self.0[offset / 8]
    }

    fn registers(self) -> Registers {
        let first = core::mem::offset_of!(Page, registers) / 8;
        let words: [u64; WORDS] =
            core::array::from_fn(|i| self.0[first + i].load(Ordering::Relaxed));
        Registers::from_words(&words)
    }

    fn set_registers(self, registers: &Registers) {
        let first = core::mem::offset_of!(Page, registers) / 8;
        for (to, word) in self.0[first..].iter().zip(registers.to_words()) {
            to.store(word, Ordering::Relaxed);
        }
    }

    fn windows(self) -> [[u64; 2]; WINDOWS] {
        let first = core::mem::offset_of!(Page, windows) / 8;
        core::array::from_fn(|i| [0, 1].map(|j| self.0[first + 2 * i + j].load(Ordering::Relaxed)))
    }

    fn origin(self) -> NodeId {
        let n = word_of!(self, origin).load(Ordering::Relaxed);
        NodeId::new(n).unwrap_or(const { NodeId::new(0).unwrap() })
    }
}

/// What is known of the program's first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// A [`status`].
    pub status: u64,
    /// Instructions interpreted since it was last stopped.
    pub steps: u64,
    /// System calls among them.
    pub calls: u64,
    /// How often it has landed on another node.
    pub landings: u64,
    /// What became of it: see [`Page::outcome`].
    pub outcome: u64,
}

/// Has threads of this program interpreted on other ISAs until they come to a point.
///
/// # Errors
///
/// `Again` if init has no time; `Full`, `NoMemory` if the program cannot be mapped for the other ISA.
pub fn enable(point: &'static Point) -> Result<()> {
    ask(0, u64::MAX, 0)?;
    POINT.store(core::ptr::from_ref(point).cast_mut(), Ordering::Release);
    Ok(())
}

/// Asks that the program's first thread be stopped, wherever it is at fused time `at`, and go on on
/// `node`. Comes back at once.
///
/// # Errors
///
/// `NotReady` before [`enable`]; `NoSuchNode`, `NodeDead`; `Exists` if it has been asked already;
/// `Again`, `Full` if init is busy.
pub fn request(node: NodeId, at: u64) -> Result<()> {
    Mapped::of(0).ok_or(Error::NotReady)?;
    ask(0, node.index() as u64, at)
}

fn ask(n: u64, node: u64, at: u64) -> Result<()> {
    let process = const { Cap::<Sinv>::at(slot::PROCESS) };
    // Init may be looking after something else.
    for _ in 0..1000 {
        match process.request([process::EMULATE, n, node, at]) {
            Err(Error::Again) => crate::yield_now(),
            done => return done.map(drop),
        }
    }
    Err(Error::Again)
}

/// What has become of the last [`request`]; `None` before [`enable`].
pub fn progress() -> Option<Progress> {
    let page = Mapped::of(0)?;
    Some(Progress {
        status: word_of!(page, status).load(Ordering::Acquire),
        steps: word_of!(page, steps).load(Ordering::Relaxed),
        calls: word_of!(page, calls).load(Ordering::Relaxed),
        landings: word_of!(page, landings).load(Ordering::Relaxed),
        outcome: word_of!(page, outcome).load(Ordering::Relaxed),
    })
}

/// To be called at the program's entry, with its argument, before anything else: a thread that has been
/// stopped and begins there does not come back. Costs a load if the program has not called [`enable`].
pub fn at_entry(argument: u64) {
    if let Some(point) = point() {
        (point.enter)(argument);
    }
}

/// The thread's own capability.
fn own() -> Cap<Thread> {
    Cap::at(slot::THREAD)
}

/// Ends the program because of what cannot be.
fn give_up(why: &str, e: Error) -> ! {
    let _ = crate::write("dyad: an interpreted thread cannot go on: ");
    let _ = crate::write(why);
    let _ = crate::write(e.text());
    let _ = crate::write("\n");
    crate::exit(101)
}

/// A thread has begun at the program's entry.
fn enter(argument: u64) {
    let n = argument % dyad_abi::user::PAGE_SIZE;
    let Some(page) = Mapped::of(n) else {
        return;
    };
    match word_of!(page, status).load(Ordering::Acquire) {
        status::PENDING => go_on_at(interpret, emulation::stack(n).1, n),
        status::RETURN => go_back(page, &page.registers()),
        _ => {}
    }
}

/// Goes on in a function, on another stack of this node.
fn go_on_at(function: extern "C" fn(u64) -> !, top: u64, argument: u64) -> ! {
    let here = match crate::where_am_i() {
        Ok(w) => w.node,
        Err(e) => give_up("it is nowhere: ", e),
    };
    // As after a call.
    let sp = match crate::isa() {
        Isa::X86_64 => top - 8,
        Isa::Aarch64 => top,
    };
    // SAFETY: 1. The function takes one argument and never returns. 2. Nobody else uses the stack;
    // what was on this one is not needed.
    let e = unsafe { own().jump(here, function as usize as u64, [sp, 0], argument) };
    give_up("it cannot change its stack: ", e)
}

/// Interprets thread `n`.
extern "C" fn interpret(n: u64) -> ! {
    let Some(page) = Mapped::of(n) else {
        crate::exit(101)
    };
    word_of!(page, status).store(status::EMULATED, Ordering::Release);
    let registers = page.registers();
    match Isa::from_index(registers.isa) {
        Some(Isa::X86_64) => on::<x86::State>(page, Isa::X86_64, &registers),
        Some(Isa::Aarch64) => on::<a64::State>(page, Isa::Aarch64, &registers),
        None => give_up("its registers are none: ", Error::Corrupt),
    }
}

/// The same, on an ISA.
fn on<G: Guest>(page: Mapped, isa: Isa, registers: &Registers) -> ! {
    let Some(point) = point() else {
        crate::exit(101)
    };
    let point = point.at as usize as u64;
    // SAFETY: 1. Init has put into the page what it has mapped.
    let mut memory = unsafe { Own::new(isa, page.windows()) };
    let mut guest = G::of(registers);
    let count = |word: &AtomicU64, more: u64| {
        word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    };
    let why = loop {
        let run = run_to(&mut guest, &mut memory, |pc| pc == point, BATCH);
        count(word_of!(page, steps), run.steps);
        match run.end {
            End::Stop => land(page),
            End::Limit => {}
            End::SystemCall if call(&mut guest) => count(word_of!(page, calls), 1),
            End::SystemCall => {
                guest.before_call();
                break refused::CALL;
            }
            End::Trap(_) => break refused::TRAP,
            End::Refused(Refusal::Unknown { .. }) => break refused::UNKNOWN,
            End::Refused(Refusal::Fault { .. }) => break refused::FAULT,
            End::Refused(Refusal::Unsupported { .. }) => break refused::UNSUPPORTED,
        }
    };
    word_of!(page, outcome).store(why, Ordering::Relaxed);
    word_of!(page, refused_at).store(guest.pc(), Ordering::Relaxed);
    go_back(page, &guest.registers())
}

/// Makes a system call for an interpreted thread. `false`: it has to make it natively.
fn call(guest: &mut impl Guest) -> bool {
    let [word, args @ ..] = guest.call();
    let [a0, a1, a2, a3, _] = args;
    let not_here = [ThreadOp::Migrate, ThreadOp::Jump, ThreadOp::Load]
        .into_iter()
        .any(|op| word == call_word(own().index(), op as u32));
    if not_here || word == dyad_abi::cap::RETURN {
        return false;
    }
    if word >> 32 == 0 {
        let mut reply = [0; 4];
        let status = raw::invoke(word, [a0, a1, a2, a3], &mut reply);
        guest.set_results(status, reply);
    } else {
        // SAFETY: 1. It is a call that the program makes: whatever it means for the program's memory
        // is the contract of the code that is interpreted.
        let r = unsafe { raw::call_raw(word, args) };
        guest.set_result(r.status, r.value);
    }
    true
}

/// The thread has come to the point: it goes on natively, with an empty stack.
fn land(page: Mapped) -> ! {
    let landings = word_of!(page, landings);
    landings.store(landings.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    word_of!(page, status).store(status::LANDED, Ordering::Release);
    // That of the thread: its number is in its control block.
    let registers = page.registers();
    let block = with_exposed_provenance::<AtomicU64>(registers.thread_pointer as usize);
    // SAFETY: 1. The thread pointer is the address of the thread's control block, whose second word is
    // the thread's id.
    let id = unsafe { &*block.add(1) }.load(Ordering::Relaxed);
    let (_, top) = stack_slot(crate::isa(), id as u32);
    debug_assert!(top.is_multiple_of(STACK_STRIDE));
    go_on_at(landed, top, page.origin().index() as u64)
}

extern "C" fn landed(origin: u64) -> ! {
    match (point(), NodeId::new(origin)) {
        (Some(point), Some(origin)) => (point.land)(origin),
        _ => crate::exit(101),
    }
}

/// The thread goes on natively where it was stopped, with these registers.
fn go_back(page: Mapped, registers: &Registers) -> ! {
    page.set_registers(registers);
    let origin = page.origin();
    word_of!(page, status).store(status::BACK, Ordering::Release);
    // SAFETY: 1. They are the registers of this thread between two of its instructions, and everything
    // else that it has is in memory. 2. What is here is not needed any more.
    let e = unsafe { own().load(registers, origin) };
    give_up("it cannot go back: ", e)
}
