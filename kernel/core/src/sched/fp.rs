//! Floating-point and vector registers: loaded on a thread's first use, and dropped at an invocation.
//!
//! User mode starts with them *off*, so that the first instruction that needs them traps ([`wanted`]). Their
//! contents come from the thread's frame, which has an area for each ISA. The area is used if the ISA's bit
//! in `used_fp` is set, else the initial state. From then on this CPU holds them (`fp_of`), until another
//! thread is loaded or the thread enters a component.
//!
//! ```text
//!            first use: from the area, or as at the start; bit set
//!   off ───────────────────────────────────────────────────────────────▶ on
//!    ▲ ◀── another thread, another node: saved ([`put_away`]) ─────────────┘ │
//!    └──── invocation, return: bit cleared, nothing saved ([`forget`]) ──────┘
//! ```
//!
//! An invocation passes nothing in these registers: a callee, and a caller after the return, finds zeros and
//! the initial control words (round to nearest, no traps). Values left in the registers are never visible,
//! because the registers are filled before they are on again. A fault handler is entered in the same way, but
//! the interrupted code gets its own registers back: they are saved meanwhile ([`keep`], [`bring_back`]).
//!
//! # A side that waits in `Migrate`
//!
//! A side is the state that a thread has on one ISA. When the thread migrates, its registers stay with that
//! side until it comes back. The side's area is needed for something else if the thread meanwhile runs a
//! service or a crossing call on that ISA. Code that runs on one ISA leaves nothing in the area of the other.
//! So the contents lie in the area of either ISA, and are copied to the other before something else
//! overwrites them:
//!
//! ```text
//!   Migrate from X: used on X ──arrives on Y──▶ kept of X, in X's area
//!                                                 │ ▲
//!               something is saved to X's area    ▼ │  something is saved to Y's       [`make_room`]
//!                                               kept of X, in Y's area
//!   Migrate back to X: kept of X, in either ──▶ used on X, in X's area
//! ```
//!
//! At most one side waits, so at most one such copy exists. `used_fp` says whose it is and where it lies. It
//! is one word, which changes after the copy, so a node that dies in between leaves one valid state or the
//! other.
//!
//! A thread that arrives by `Jump` has the initial state. If it used the registers where it came from, it will use
//! them here, too: they are on at once, which saves it the trap (`start`).
//!
//! Threads that do not use these registers pay nothing. The fast paths of invocations, returns and faults
//! check which thread runs anyway. They check the CPU's `fastpath_thread`, which is none while the running
//! thread has registers to forget or to keep.

use core::sync::atomic::Ordering;

use dyad_abi::Isa;
use dyad_abi::emulation::{FLOAT_WORDS, initial_float_control};
use dyad_abi::ident::ISA_COUNT;

use dyad_machine::Platform;
use dyad_machine::cpu::CpuLocal;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FpArea;
use dyad_object::thread::{Thread, begun, info};

/// The bit of this machine's ISA in `used_fp`.
const fn bit<P: Platform>() -> u64 {
    used(P::ISA)
}

/// The bit of an ISA in `used_fp`: the thread has values there, in its area or in the registers.
const fn used(isa: Isa) -> u64 {
    1 << isa.index()
}

/// The bits of all ISAs in `used_fp`.
pub const USED: u64 = (1 << ISA_COUNT) - 1;

/// The bit in `used_fp` for registers that are kept for an ISA's side while it waits in `Migrate`.
pub const fn kept(isa: Isa) -> u64 {
    1 << (8 + isa.index())
}

/// The bit in `used_fp` for registers that are kept in the area of the other ISA.
const AWAY: u64 = 1 << 16;

/// Whether the registers kept for a side lie in the area of `isa`.
const fn lies_in(all: u64, isa: Isa) -> bool {
    let whose = if all & AWAY == 0 { isa } else { isa.other() };
    all & kept(whose) != 0
}

/// Whether a thread has values other than the initial state on this ISA, in its area or in the registers.
fn uses<P: Platform>(t: &Thread) -> bool {
    t.used_fp.load(Ordering::Relaxed) & bit::<P>() != 0
}

/// Resets a thread, which does not run, to the initial state on this ISA.
pub fn renew<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all & !bit::<P>(), Ordering::Relaxed);
}

/// Marks a thread's area, or the registers, on this ISA as valid.
pub(crate) fn use_area<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all | bit::<P>(), Ordering::Relaxed);
}

/// The area of a thread that belongs to this CPU, for writing. Registers kept for a waiting side are moved
/// out of it first.
pub(crate) fn area<P: Platform>(t: &Thread) -> &FpArea {
    if t.used_fp.load(Ordering::Relaxed) > USED {
        make_room::<P>(t);
    }
    t.fp(P::ISA)
}

/// Moves the registers kept for a waiting side out of the area of this ISA. The area of the other ISA is
/// free, because the thread has nothing there while it runs on this one.
///
/// Where caches are not coherent, the copy reaches memory before the word, and the word before anything else
/// can enter this ISA's area. Whatever part of this has reached memory when this node dies, recovery finds
/// the contents where the word says.
#[cold]
fn make_room<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    if !lies_in(all, P::ISA) || lacks!("fp::make_room::copy") {
        return;
    }
    let words = KernelCtx::here::<P>().words();
    let to = t.fp(P::ISA.other());
    copy(t.fp(P::ISA), to);
    words.refresh(&to.0[0], size_of::<FpArea>() as u64);
    words.write(&t.used_fp, all ^ AWAY);
}

/// Restores the registers of the side of this ISA, to which the thread has come back by `Migrate`.
pub(crate) fn take_up<P: Platform>(t: &Thread) {
    let mut all = t.used_fp.load(Ordering::Relaxed);
    if all & kept(P::ISA) != 0 && !lacks!("fp::take_up::kept") {
        if all & AWAY != 0 {
            copy(t.fp(P::ISA.other()), t.fp(P::ISA));
        }
        all = all & !(kept(P::ISA) | AWAY) | bit::<P>();
    }
    t.used_fp.store(keep_other::<P>(t, all), Ordering::Relaxed);
}

/// Starts a thread anew on this ISA, with the initial state.
pub(crate) fn begin<P: Platform>(t: &Thread) {
    let mut all = t.used_fp.load(Ordering::Relaxed) & !bit::<P>();
    // Of a side that has been lost.
    if all & kept(P::ISA) != 0 {
        all &= !(kept(P::ISA) | AWAY);
    }
    t.used_fp.store(keep_other::<P>(t, all), Ordering::Relaxed);
}

/// The next `used_fp` of a thread that begins or continues on this ISA. Registers on the other ISA are kept
/// from now on if the thread waits there in `Migrate`.
fn keep_other<P: Platform>(t: &Thread, all: u64) -> u64 {
    let other = P::ISA.other();
    if all & used(other) != 0 && t.begun(other) == begun::PARKED {
        all & !used(other) | kept(other)
    } else {
        all
    }
}

/// Resets a thread to the initial state on every ISA, and drops what is kept for a waiting side.
pub fn renew_all(t: &Thread) {
    t.used_fp.store(0, Ordering::Relaxed);
}

/// Resets a thread to the initial state on every ISA. What is kept for a waiting side stays.
pub(crate) fn renew_used(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all & !USED, Ordering::Relaxed);
}

/// Notes that the running thread has values in the registers or in its area.
fn set_used<P: Platform>(local: &CpuLocal, t: &Thread) {
    use_area::<P>(t);
    if !lacks!("fp::set_used::fastpath_thread") {
        local.fastpath_thread.set(None);
    }
}

/// Saves the registers that this CPU holds to the frame of their thread.
#[inline]
pub fn put_away<P: Platform>(local: &CpuLocal) {
    if let Some(t) = local.fp_of.get()
        && !lacks!("fp::put_away::save")
    {
        save_own::<P>(local, t);
    }
}

/// Saves the registers, which are on, to the area of the thread that they belong to.
#[cold]
fn save_own<P: Platform>(local: &CpuLocal, t: &Thread) {
    save::<P>(local, area::<P>(t));
}

/// Saves the registers, which are on, to an area, and turns them off.
#[inline]
fn save<P: Platform>(local: &CpuLocal, area: &FpArea) {
    // Before they are off.
    P::save_fp(area);
    P::fp_off();
    local.fp_of.set(None);
}

/// Prepares for a thread that is about to run; the registers of the one before have been saved.
#[inline]
pub fn load<P: Platform>(local: &CpuLocal, t: &'static Thread) {
    let short = !uses::<P>(t) || lacks!("fp::load::fastpath_thread");
    local.fastpath_thread.set(short.then_some(t));
}

/// Of so many threads that arrive having used the registers, one starts with them off: it is found out in this way if it
/// no longer uses them.
const PROBE: u8 = 16;

/// Whether a thread has values other than the initial state on any ISA.
pub(crate) fn is_used(t: &Thread) -> bool {
    t.used_fp.load(Ordering::Relaxed) & USED != 0
}

/// Starts a thread that is about to run here, with the initial state, and that [used](is_used) the registers where it
/// came from or did not. No thread has the registers of this CPU.
#[inline(always)]
pub(crate) fn start<P: Platform>(local: &CpuLocal, t: &'static Thread, used: bool) {
    if used {
        local
            .fp_arrivals
            .set(local.fp_arrivals.get().wrapping_add(1));
    }
    if !used || local.fp_arrivals.get().is_multiple_of(PROBE) {
        local.fastpath_thread.set(Some(t));
        return;
    }
    P::fp_on();
    if !lacks!("fp::start::initial") {
        P::reset_fp();
    }
    set_used::<P>(local, t);
    local.fp_of.set(Some(t));
}

/// Turns the registers on for the running thread, which has just used them. Returns `false` if they are on
/// already: the trap has another cause.
#[cold]
pub fn wanted<P: Platform>(local: &CpuLocal) -> bool {
    let Some(t) = local.thread.get() else {
        return false;
    };
    if local.fp_of.get().is_some() {
        return false;
    }
    P::fp_on();
    if uses::<P>(t) {
        P::restore_fp(t.fp(P::ISA));
    } else {
        P::reset_fp();
        set_used::<P>(local, t);
    }
    local.fp_of.set(Some(t));
    true
}

/// Drops the registers of the running thread, which enters another component or comes back from one. The fast
/// path is open afterwards.
#[cold]
pub fn forget<P: Platform>(local: &CpuLocal) {
    if local.fp_of.take().is_some() {
        P::fp_off();
    }
    if let Some(t) = local.thread.get() {
        renew::<P>(t);
        local.fastpath_thread.set(Some(t));
    }
}

/// Keeps the registers of the running thread, which is about to enter a fault handler, until the handler
/// ends. Returns the bits that the invocation records: see [`info`].
///
/// A thread whose fault is being handled already will not enter another handler, so it just keeps its
/// registers.
#[cold]
pub fn keep<P: Platform>(local: &CpuLocal, t: &Thread) -> u64 {
    if t.fault.load(Ordering::Relaxed) != 0 && !lacks!("fp::keep::one") {
        return info::FAULT;
    }
    if local.fp_of.get().is_some() {
        save::<P>(local, &t.saved_fp);
    } else {
        copy(t.fp(P::ISA), &t.saved_fp);
    }
    forget::<P>(local);
    info::FAULT | info::FP
}

/// Drops the registers of a fault handler that has ended or was not entered, and restores the thread's own if
/// `what` says that they were kept.
#[inline]
pub fn bring_back<P: Platform>(local: &CpuLocal, t: &Thread, what: u64) {
    if what & info::FP != 0 && !lacks!("fp::bring_back::copy") {
        take_back::<P>(local, t);
    }
}

/// Restores the kept registers to the thread's area. No CPU holds the thread's registers after the handler's
/// have been dropped, so older values cannot overwrite the copy.
#[cold]
fn take_back<P: Platform>(local: &CpuLocal, t: &Thread) {
    forget::<P>(local);
    copy(&t.saved_fp, area::<P>(t));
    set_used::<P>(local, t);
}

/// The registers of this ISA of a thread that does not run, as words in the format of
/// [`Platform::unload_fp`].
pub fn words<P: Platform>(t: &Thread) -> [u64; FLOAT_WORDS] {
    if uses::<P>(t) {
        return P::unload_fp(t.fp(P::ISA));
    }
    let mut words = [0; FLOAT_WORDS];
    words[0] = initial_float_control(P::ISA);
    words
}

/// Gives a thread these registers. The thread does not run; or it runs and has already been made to
/// [`forget`] its own.
pub fn give<P: Platform>(local: &CpuLocal, t: &Thread, words: &[u64; FLOAT_WORDS]) {
    P::load_fp(area::<P>(t), words);
    set_used::<P>(local, t);
}

/// Copies an area to another one in the thread's own frame; the registers are not touched.
fn copy(from: &FpArea, to: &FpArea) {
    for (f, t) in from.0.iter().zip(&to.0) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
