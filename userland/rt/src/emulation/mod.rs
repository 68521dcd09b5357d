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
//! A thread that goes back goes to where it was stopped, or, if that node has died, to another one of its ISA.
//! If there is none it is lost, as any thread is that a node dies under.
//!
//! A point that threads come to only if they are asked to go is asked for in the word for that. Another thread may
//! take that back: so the word is looked at again now and then.
//!
//! The native stack of the new node's ISA is not used meanwhile: a thread that lands may lay frames out there.
//! What the thread does it does to the program's memory, with atomic accesses, so other threads of the
//! program can run natively on any node.
//!
//! | what the code does | what happens |
//! |---|---|
//! | an operation on a capability, an invocation | the same, natively; `Where` says where the thread really is |
//! | the `Jump` by which it goes to another ISA natively | its frames are laid out once more, and it goes there |
//! | `Migrate`, another `Jump`, or `Load` of itself | it goes back, and makes the call natively |
//! | a call of a function of another ISA that crosses there | it goes back, and crosses natively |
//! | an instruction that is not known, or is an exception | it goes back, to that instruction |
//! | an access of memory that is not there | the program ends, as it would natively |
//!
//! | step | order |
//! |---|---|
//! | init: page, then `PENDING`; the thread begins elsewhere | release; acquire, and the hand-over of the thread |
//! | the runtime: outcome and registers, then `LANDED` or `BACK` | release: a reader that sees that reads the rest |

mod guest;
mod memory;

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{ThreadOp, call_word};
use dyad_abi::emulation::{self, Page, Registers, WINDOWS, WORDS, refused, status};
use dyad_abi::marker::WindowId;
use dyad_abi::service::{process, slot};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, away_window};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_emulate::{Access, End, Fault, Memory, Refusal, a64, x86};

use dyad_sys::cap::{Cap, Sinv, Thread};
use dyad_sys::{marker, raw};

use crate::spine;
use guest::Guest;
use memory::Own;

/// An interpreted thread that has reached its point.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The thread's number in the program.
    pub thread: u64,
    /// The node where it was stopped.
    pub from: NodeId,
    /// The ISA that it was stopped on, whose native stack its frames are on.
    pub isa: Isa,
    /// The node that it is on now.
    pub here: NodeId,
    /// The frame pointer of the function that calls the point.
    pub frame: u64,
    /// Return address of the call of the point.
    pub back: u64,
    /// The node to which its own code has decided to go, if it has.
    pub to: Option<NodeId>,
}

/// Where a thread continues natively, by a `Jump`.
#[derive(Clone, Copy, Debug)]
pub struct Going {
    /// The node.
    pub node: NodeId,
    /// Program counter.
    pub pc: u64,
    /// Stack pointer and frame pointer.
    pub stack: [u64; 2],
    /// The word in argument register 0.
    pub argument: u64,
}

/// Never used. A parameter of this type makes a signature that no function has which a program calls through
/// a pointer. In programs whose threads migrate, the calling convention of functions whose address is taken
/// depends on the signature, and the interpreter must not take part in that.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Apart(f32);

/// Determines how a thread continues; an error if it cannot continue from that point.
type Land = fn(&Arrived, Apart) -> Result<Going>;

/// The points of the program. No lock: threads are stopped wherever they are.
static POINTS: Points = Points::new();
/// Address of [`interpret`], once [`enable`] has been called: programs that do not call it are without
/// interpreters. 0 before.
static INTERPRET: AtomicU64 = AtomicU64::new(0);

/// How far the data stack of each thread was used before it was interpreted. The interpreter must leave that
/// part alone: the frames in it are those of the interpreted code. If the build has put the interpreter on
/// the data stack in spite of [`Apart`], the program ends.
static DATA_STACKS: [AtomicU64; MAX_PROGRAM_THREADS as usize] =
    [const { AtomicU64::new(0) }; MAX_PROGRAM_THREADS as usize];

/// The point of thread `n`, if interpretation can end there.
fn point(n: u64) -> Option<&'static Point> {
    POINTS
        .of(n)
        .filter(|_| INTERPRET.load(Ordering::Acquire) != 0)
}

/// Instructions between two checks of the count in the page.
const BATCH: u64 = 1 << 14;
/// Offset of words in [`Page`].
macro_rules! word_of {
    ($page:expr, $field:ident) => {
        $page.word(core::mem::offset_of!(Page, $field))
    };
}

mod points;
mod progress;

pub use points::Point;
use points::Points;
pub use progress::{Progress, progress, stopped_with};

/// The page of a thread, mapped.
#[derive(Clone, Copy)]
struct Mapped(&'static [AtomicU64; size_of::<Page>() / 8]);

impl Mapped {
    /// The page of thread `n`, if [`enable`] has had init map it.
    fn of(n: u64) -> Option<Mapped> {
        point(n).filter(|_| n < MAX_PROGRAM_THREADS)?;
        Some(Mapped::at(n))
    }

    /// The page of thread `n`, once init has mapped the pages.
    fn at(n: u64) -> Mapped {
        let page = with_exposed_provenance(emulation::page(n) as usize);
        // SAFETY: 1. Init has mapped the page writable, for as long as the program lives. 2. All access
        // is atomic.
        Mapped(unsafe { &*page })
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

/// Lets threads of this program be interpreted on other ISAs until they reach a point.
///
/// # Errors
///
/// `NotReady` if the program's entry does not call [`at_entry`]; `Again` if init has no time; `Full`,
/// `NoMemory` if the program cannot be mapped for the other ISA.
pub fn enable() -> Result<()> {
    POINTS.of(0).ok_or(Error::NotReady)?;
    ask(0, u64::MAX, 0)?;
    INTERPRET.store(interpret as Start as usize as u64, Ordering::Release);
    POINTS.say(word_of!(Mapped::at(0), ready));
    Ok(())
}

/// Asks that thread `n` of the program be stopped, wherever it is at fused time `at`, and be continued on
/// `node`. Returns at once.
///
/// # Errors
///
/// `NotReady` before [`enable`]; `NotFound` if there is no such thread, `Denied` if it has no point;
/// `NoSuchNode`, `NodeDead`; `BadArgument` if `at` is more than 10 s away; `Exists` if it has been asked already;
/// `Again` if init is busy; `Full` if the program has 8 requests.
pub fn request(n: u64, node: NodeId, at: u64) -> Result<()> {
    point(n).ok_or(Error::NotReady)?;
    ask(n, node.index() as u64, at)
}

fn ask(n: u64, node: u64, at: u64) -> Result<()> {
    let process = const { Cap::<Sinv>::at(slot::PROCESS) };
    let end = dyad_sys::now()? + PATIENCE_NS;
    loop {
        match process.request([process::EMULATE, n, node, at]) {
            // Init is looking after something else, for which it may need this CPU.
            Err(Error::Again) => {
                let now = dyad_sys::now()?;
                if now >= end {
                    return Err(Error::Again);
                }
                dyad_sys::sleep_until(now + PAUSE_NS)?;
            }
            done => return done.map(drop),
        }
    }
}

/// How long a request is repeated that init has no time for, and the pause between two attempts.
const PATIENCE_NS: u64 = 2_000_000_000;
const PAUSE_NS: u64 = 100_000;

#[cfg(target_os = "none")]
unsafe extern "C" {
    safe fn dyad_strange();
}

/// An instruction that does nothing and is not interpreted: a thread that reaches it goes back. For tests.
pub fn strange() {
    #[cfg(target_os = "none")]
    dyad_strange();
}

/// Address of [`strange`]; 0 on the host.
pub fn strange_at() -> u64 {
    #[cfg(target_os = "none")]
    let at = dyad_strange as *const () as u64;
    #[cfg(not(target_os = "none"))]
    let at = 0;
    at
}

/// Must be called at the program's entry, with its argument, before anything else. The call does not return
/// for a thread that has been stopped and begins there. `at` is the address of the program's point. Costs a
/// few stores and loads if the program has not called [`enable`].
pub fn at_entry(argument: u64, point: &'static Point, at: u64) {
    POINTS.begin(point, at);
    let interpret = INTERPRET.load(Ordering::Acquire);
    if interpret != 0 {
        enter(argument % PAGE_SIZE, interpret);
    }
}

/// Declares that the first thread runs tasks from here on and can continue natively at this point. Requests
/// for other threads are refused.
pub fn set_first_point(point: &'static Point, at: u64) {
    POINTS.set_first(point, at);
    if INTERPRET.load(Ordering::Acquire) != 0 {
        POINTS.say(word_of!(Mapped::at(0), ready));
    }
}

/// The capability of thread `n`, which is the calling thread. Its number cannot be found by the stack here.
fn own(n: u64) -> Cap<Thread> {
    Cap::at(slot::thread(n))
}

/// Ends the program because of what cannot be.
fn give_up(why: &str, e: Error) -> ! {
    let _ = dyad_sys::write("dyad: an interpreted thread cannot go on: ");
    let _ = dyad_sys::write(why);
    let _ = dyad_sys::write(e.text());
    let _ = dyad_sys::write("\n");
    dyad_sys::exit(101)
}

/// A thread has begun at the program's entry.
fn enter(n: u64, interpret: u64) {
    let Some(page) = Mapped::of(n) else {
        return;
    };
    match word_of!(page, status).load(Ordering::Acquire) {
        // The node where it was to begin has died before it had, and another one of any ISA has it: of the
        // one that it was stopped on, where what is under way here is on the stack that its frames are on.
        status::PENDING if page.registers().isa == dyad_sys::isa() as u64 => {
            is_lost(n, Error::NodeDead)
        }
        status::PENDING => {
            let here = match dyad_sys::where_am_i() {
                Ok(w) => w.node,
                Err(e) => give_up("it is nowhere: ", e),
            };
            let stack = [empty(emulation::stack(n).1), 0];
            if let Some(used) = DATA_STACKS.get(n as usize) {
                used.store(spine::data_stack_pointer(), Ordering::Relaxed);
            }
            // SAFETY: 1. The function takes one argument and never returns. 2. No other code uses the
            // stack; what was on this one is not needed.
            let e = unsafe { own(n).jump(here, interpret, stack, n) };
            give_up("it cannot change its stack: ", e)
        }
        status::RETURN => go_back(n, page, &page.registers()),
        _ => {}
    }
}

/// The stack pointer at the start of a function on an empty stack of this ISA.
pub fn empty(top: u64) -> u64 {
    dyad_sys::group::empty_on(dyad_sys::isa(), top)
}

/// Entry function of a separate stack.
type Start = extern "C" fn(u64, Apart) -> !;

/// Measures the interpretation of a thread up to its point: from here to its landing.
pub const WINDOW: u16 = WindowId::FREE + 257;

/// Writes what time it is.
fn note_time(word: &AtomicU64) {
    word.store(dyad_sys::now().unwrap_or(0), Ordering::Relaxed);
}

/// Interprets thread `n`.
extern "C" fn interpret(n: u64, _: Apart) -> ! {
    let Some(page) = Mapped::of(n) else {
        dyad_sys::exit(101)
    };
    let used = DATA_STACKS.get(n as usize);
    if used.is_some_and(|u| u.load(Ordering::Relaxed) != spine::data_stack_pointer()) {
        give_up(
            "the interpreter has frames on its data stack: ",
            Error::Denied,
        );
    }
    marker::begin::<WINDOW>();
    note_time(word_of!(page, began_at));
    word_of!(page, status).store(status::EMULATED, Ordering::Release);
    let registers = page.registers();
    match Isa::from_index(registers.isa) {
        Some(Isa::X86_64) => on::<x86::State>(n, page, Isa::X86_64, &registers),
        Some(Isa::Aarch64) => on::<a64::State>(n, page, Isa::Aarch64, &registers),
        None => give_up("its registers are none: ", Error::Corrupt),
    }
}

/// The word by which thread `n` is asked to go somewhere.
fn asked(n: u64) -> &'static AtomicU64 {
    let block = dyad_abi::user::request::address(dyad_sys::thread::id_of(n));
    // SAFETY: 1. The control blocks of all threads of a program are mapped as long as it lives. 2. The
    // word is atomic for all who use it.
    unsafe { &*with_exposed_provenance(block as usize) }
}

/// The request word of a thread that is to go to a node.
fn request_for(node: NodeId) -> u64 {
    node.index() as u64 + 1
}

/// The node that the calling thread is on; `last` if the kernel does not say. If its last node died while the thread
/// did not run, this is another node of that ISA.
fn node_now(last: NodeId) -> NodeId {
    dyad_sys::where_am_i().map_or(last, |w| w.node)
}

/// Interprets the thread on an ISA. Not inlined: the stack has room for the code of one ISA that has been taken apart.
#[inline(never)]
fn on<G: Guest>(n: u64, page: Mapped, isa: Isa, registers: &Registers) -> ! {
    let (Some(mut point), Ok(here)) = (point(n), dyad_sys::where_am_i()) else {
        dyad_sys::exit(101)
    };
    // SAFETY: 1. Init has put into the page what it has mapped.
    let mut memory = unsafe { Own::new(isa, page.windows()) };
    let mut guest = G::of(registers);
    let mut code = G::Cache::default();
    let count = |word: &AtomicU64, more: u64| {
        word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    };
    let exchange = |old, new| {
        let word = asked(n);
        word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    let mut arrived = Arrived {
        thread: n,
        from: page.origin(),
        isa,
        here: here.node,
        frame: 0,
        back: 0,
        to: None,
    };
    // Where it is to go: where it has been asked to go already, if it has.
    let mut request = request_for(arrived.here);
    let mut asks = point.is_asked && exchange(0, request);
    let why = loop {
        let at = point.at.load(Ordering::Relaxed);
        let run = guest.run(&mut memory, &mut code, |pc| pc == at, BATCH);
        count(word_of!(page, steps), run.steps);
        let now = POINTS.of(n).unwrap_or(point);
        if !core::ptr::eq(now, point) {
            // The thread has begun to run tasks just now, and is not asked at its old point any more.
            if core::mem::take(&mut asks) {
                exchange(request, 0);
            }
            point = now;
            if let End::Stop | End::Limit = run.end {
                continue;
            }
        }
        let refusal = match run.end {
            End::Limit => {
                // The thread that had asked for something has taken it back.
                asks |= point.is_asked && exchange(0, request);
                continue;
            }
            End::Stop => {
                let now = node_now(arrived.here);
                if now != arrived.here {
                    arrived.here = now;
                    let before = core::mem::replace(&mut request, request_for(now));
                    asks = asks && exchange(before, request);
                }
                match guest.frame_and_back(&mut memory) {
                    Ok([frame, back]) => {
                        (arrived.frame, arrived.back) = (frame, back);
                        match (point.land)(&arrived, Apart::default()) {
                            Ok(going) => land(n, page, going),
                            Err(_) => break refused::POINT,
                        }
                    }
                    Err(_) => break refused::FAULT,
                }
            }
            End::SystemCall => {
                // Frames of a thread that runs tasks are not laid out: it goes back, and is refused natively.
                if point.is_asked
                    && let Some(left) = leaves(n, &guest, &mut memory, &arrived)
                    && let Ok(going) = (point.land)(&left, Apart::default())
                {
                    land(n, page, going)
                }
                if call(n, &mut guest) {
                    count(word_of!(page, calls), 1);
                    continue;
                }
                guest.before_call();
                break refused::CALL;
            }
            End::Trap(_) => break refused::TRAP,
            End::Refused(refusal) => refusal,
        };
        break match refusal {
            Refusal::Fault { fault, .. } if crosses(isa, &fault) => refused::CROSSING,
            Refusal::Fault { .. } => refused::FAULT,
            Refusal::Unsupported { .. } => refused::UNSUPPORTED,
            Refusal::Unknown { bytes, len, .. } => {
                let mut words = [0; 16];
                words[..15].copy_from_slice(&bytes);
                words[15] = len;
                let word = u128::from_le_bytes(words);
                let first = core::mem::offset_of!(Page, refused_bytes) / 8;
                page.0[first].store(word as u64, Ordering::Relaxed);
                page.0[first + 1].store((word >> 64) as u64, Ordering::Relaxed);
                refused::UNKNOWN
            }
        };
    };
    marker::abandon();
    if asks {
        // It stays. What another thread has asked meanwhile counts.
        exchange(request, 0);
    }
    word_of!(page, outcome).store(why, Ordering::Relaxed);
    word_of!(page, refused_at).store(guest.pc(), Ordering::Relaxed);
    go_back(n, page, &guest.registers())
}

/// Whether a native thread on an ISA would cross to another ISA at this fault.
fn crosses(isa: Isa, fault: &Fault) -> bool {
    let (start, end) = away_window(isa.other());
    fault.access == Access::Fetch && (start..end).contains(&fault.va)
}

/// The frames of an interpreted thread that leaves by itself: its next system call is that of a thread that
/// has laid its frames out for another ISA (`spine::leave`). The frames must be laid out again, because the
/// program's entry has run on that stack meanwhile. The call says where they are.
fn leaves<G: Guest>(n: u64, guest: &G, memory: &mut Own, at: &Arrived) -> Option<Arrived> {
    let [word, node, _, _, _, left] = guest.call();
    if word != call_word(own(n).index(), ThreadOp::Jump as u32) || left == 0 {
        return None;
    }
    let mut read = |at| memory.load(at).map(u64::from_le_bytes).ok();
    Some(Arrived {
        frame: read(left)?,
        back: read(left + 8)?,
        to: Some(NodeId::new(node)?),
        ..*at
    })
}

/// Makes a system call for an interpreted thread. `false`: it has to make it natively.
fn call(n: u64, guest: &mut impl Guest) -> bool {
    let [word, args @ ..] = guest.call();
    let [a0, a1, a2, a3, _] = args;
    let not_here = [ThreadOp::Migrate, ThreadOp::Jump, ThreadOp::Load]
        .into_iter()
        .any(|op| word == call_word(own(n).index(), op as u32));
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

/// Continues the thread natively: it has reached the point.
fn land(n: u64, page: Mapped, going: Going) -> ! {
    let landings = word_of!(page, landings);
    landings.store(landings.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    note_time(word_of!(page, landed_at));
    word_of!(page, status).store(status::LANDED, Ordering::Release);
    marker::end::<WINDOW>();
    let jump = |node| {
        // SAFETY: 1. The program's point has found out that this is how the thread goes on, on any node of
        // this ISA. 2. What is on this stack is not needed any more.
        unsafe { own(n).jump(node, going.pc, going.stack, going.argument) }
    };
    let mut e = jump(going.node);
    let here = node_now(going.node);
    if going.node != here {
        // It was to go further, and cannot: it stays, and may hear why.
        spine::set_outcome(e);
        e = jump(here);
    }
    give_up("it cannot land: ", e)
}

/// Continues the thread natively with these registers where it was stopped, or on another node of that ISA.
fn go_back(n: u64, page: Mapped, registers: &Registers) -> ! {
    page.set_registers(registers);
    let origin = page.origin();
    word_of!(page, status).store(status::BACK, Ordering::Release);
    let load = |node| {
        // SAFETY: 1. They are the registers of this thread between two of its instructions, and everything
        // else that it has is in memory. 2. What is here is not needed any more.
        unsafe { own(n).load(registers, node) }
    };
    let e = load(origin);
    if e != Error::NodeDead {
        give_up("it cannot go back: ", e);
    }
    let nodes =
        dyad_sys::info().map_or(&[][..], |i| &i.system.nodes[..i.system.node_count as usize]);
    for (node, identity) in NodeId::first(nodes.len()).zip(nodes) {
        if u64::from(identity.isa) == registers.isa {
            load(node);
        }
    }
    is_lost(n, e)
}

/// Ends the thread as if a node had died under it: init finds that it has ended without having said so.
fn is_lost(n: u64, why: Error) -> ! {
    let _ = dyad_sys::write("dyad: an interpreted thread cannot go back: ");
    let _ = dyad_sys::write(why.text());
    let _ = dyad_sys::write("\n");
    let e = own(n).exit(0);
    give_up("it does not end: ", e)
}
