//! Floating-point and vector registers: loaded when a thread first uses them, and nobody's
//! beyond an invocation.
//!
//! User mode has them *off*, so that the first instruction that needs them traps ([`wanted`]). What
//! they will hold is in the thread's frame, for each ISA: its area if the ISA's bit in `used_fp` is
//! set, else the initial state. From then on this CPU has them (`fp_of`), until another thread is
//! loaded, or the thread crosses into a component.
//!
//! ```text
//!            first use: from the area, or as at the start; bit set
//!   off ───────────────────────────────────────────────────────────────▶ on
//!    ▲ ◀── another thread, another node: saved ([`put_away`]) ─────────────┘ │
//!    └──── invocation, return: bit cleared, nothing saved ([`forget`]) ──────┘
//! ```
//!
//! An invocation carries nothing in them, so whoever is entered, and whoever is returned to, finds
//! zeros and the initial control words: round to nearest, no traps. What is left in the registers
//! is never seen: they are filled before they are on again. A fault handler is entered like
//! that too, but what it interrupts goes on with its own registers: they are kept meanwhile
//! ([`keep`], [`bring_back`]).
//!
//! # A side that waits in `Migrate`
//!
//! What a thread has in these registers when it migrates is that ISA's side's until it comes back. The
//! side's area is wanted for something else if the thread runs a service, or a crossing call, on that ISA
//! meanwhile. Whatever runs on one ISA leaves nothing in the area of the other one. So the contents lie in
//! the area of either ISA, and move from one to the other before something else comes to where they are:
//!
//! ```text
//!   Migrate from X: used on X ──arrives on Y──▶ kept of X, in X's area
//!                                                 │ ▲
//!               something is saved to X's area    ▼ │  something is saved to Y's       [`make_room`]
//!                                               kept of X, in Y's area
//!   Migrate back to X: kept of X, in either ──▶ used on X, in X's area
//! ```
//!
//! At most one side waits, so there is at most one of these. `used_fp` says which side's they are and where:
//! one word, which changes after the copy. A node that dies in between leaves the one or the other.
//!
//! Threads that do not use them pay nothing. The fast paths of invocations, returns and faults ask
//! which thread runs anyway; they ask `fastpath_thread` of the CPU, which is none while the running thread
//! has something to be forgotten or kept.

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

/// The bit of an ISA in `used_fp`: the thread has something there, in its area or in the registers.
const fn used(isa: Isa) -> u64 {
    1 << isa.index()
}

/// All of these bits.
pub const USED: u64 = (1 << ISA_COUNT) - 1;

/// The bit in `used_fp` that says that the registers of an ISA's side are kept while it waits in `Migrate`.
pub const fn kept(isa: Isa) -> u64 {
    1 << (8 + isa.index())
}

/// In `used_fp`: what is kept lies in the area of the other ISA than the side's.
const AWAY: u64 = 1 << 16;

/// Whether what is kept of a side lies in the area of an ISA.
const fn lies_in(all: u64, isa: Isa) -> bool {
    let whose = if all & AWAY == 0 { isa } else { isa.other() };
    all & kept(whose) != 0
}

/// Whether a thread has anything but the initial state on this ISA: in its area, or in the registers.
fn uses<P: Platform>(t: &Thread) -> bool {
    t.used_fp.load(Ordering::Relaxed) & bit::<P>() != 0
}

/// Has a thread begin with the initial state on this ISA. It does not run.
pub fn renew<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all & !bit::<P>(), Ordering::Relaxed);
}

/// Has a thread go on with what has been put into its area on this ISA, or into the registers.
pub(crate) fn use_area<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all | bit::<P>(), Ordering::Relaxed);
}

/// The area of a thread that is this CPU's, to be written to: what is kept of a side that waits is not there.
pub(crate) fn area<P: Platform>(t: &Thread) -> &FpArea {
    if t.used_fp.load(Ordering::Relaxed) > USED {
        make_room::<P>(t);
    }
    t.fp(P::ISA)
}

/// Moves what is kept of a side that waits out of the area of this ISA. The area of the other ISA is free:
/// the thread has nothing there while it runs on this one.
///
/// Where caches are not coherent, the copy is in memory before the word, and the word before anything else
/// can come into this ISA's area: whatever of this has reached memory when this node dies, recovery finds
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

/// A thread that has come to this ISA by `Migrate` takes its side here up again: its registers are what they
/// were when it left.
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

/// A thread begins anew on this ISA, with the initial state.
pub(crate) fn begin<P: Platform>(t: &Thread) {
    let mut all = t.used_fp.load(Ordering::Relaxed) & !bit::<P>();
    // Of a side that has been lost.
    if all & kept(P::ISA) != 0 {
        all &= !(kept(P::ISA) | AWAY);
    }
    t.used_fp.store(keep_other::<P>(t, all), Ordering::Relaxed);
}

/// `used_fp` of a thread that begins or goes on on this ISA: what it has on the other one is kept from here
/// on, if it waits there in `Migrate`.
fn keep_other<P: Platform>(t: &Thread, all: u64) -> u64 {
    let other = P::ISA.other();
    if all & used(other) != 0 && t.begun(other) == begun::PARKED {
        all & !used(other) | kept(other)
    } else {
        all
    }
}

/// Has a thread begin with the initial state on every ISA; no side of it waits any more.
pub fn renew_all(t: &Thread) {
    t.used_fp.store(0, Ordering::Relaxed);
}

/// Has a thread go on with the initial state on every ISA. What is kept of a side that waits stays.
pub(crate) fn renew_used(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all & !USED, Ordering::Relaxed);
}

/// The running thread has something in the registers, or in its area.
fn set_used<P: Platform>(local: &CpuLocal, t: &Thread) {
    use_area::<P>(t);
    if !lacks!("fp::set_used::fastpath_thread") {
        local.fastpath_thread.set(None);
    }
}

/// What this CPU has of somebody's registers goes to that thread's frame.
#[inline]
pub fn put_away<P: Platform>(local: &CpuLocal) {
    if let Some(t) = local.fp_of.get()
        && !lacks!("fp::put_away::save")
    {
        save_own::<P>(local, t);
    }
}

/// The registers, which are on, go to the area of the thread whose they are.
#[cold]
fn save_own<P: Platform>(local: &CpuLocal, t: &Thread) {
    save::<P>(local, area::<P>(t));
}

/// The registers, which are on, go to an area.
#[inline]
fn save<P: Platform>(local: &CpuLocal, area: &FpArea) {
    // Before they are off.
    P::save_fp(area);
    P::fp_off();
    local.fp_of.set(None);
}

/// A thread is about to run, and the registers of the one before are put away.
#[inline]
pub fn load<P: Platform>(local: &CpuLocal, t: &'static Thread) {
    let short = !uses::<P>(t) || lacks!("fp::load::fastpath_thread");
    local.fastpath_thread.set(short.then_some(t));
}

/// The running thread has used them, which are off. `false` if they are on: it is something else
/// that has failed.
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

/// The running thread goes into another component, or comes back from one: what it has in the
/// registers is lost. The fast path is open then.
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

/// The running thread, which has something in its registers, is about to enter a fault handler:
/// they are kept until that has ended. What is to be said of the invocation: see [`info`].
///
/// A thread that has a fault handled already, and so will not enter another handler, just keeps them.
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

/// The handler has ended, or was not entered after all: what it has in the registers is forgotten,
/// and those of before are the thread's again, if `what` says that they were kept.
#[inline]
pub fn bring_back<P: Platform>(local: &CpuLocal, t: &Thread, what: u64) {
    if what & info::FP != 0 && !lacks!("fp::bring_back::copy") {
        take_back::<P>(local, t);
    }
}

/// The area is the thread's alone: nobody holds the registers after what the handler had is forgotten,
/// so the copy cannot be overwritten by older ones.
#[cold]
fn take_back<P: Platform>(local: &CpuLocal, t: &Thread) {
    forget::<P>(local);
    copy(&t.saved_fp, area::<P>(t));
    set_used::<P>(local, t);
}

/// What a thread that does not run has in the registers of this ISA, in words as
/// [`Platform::unload_fp`] gives them.
pub fn words<P: Platform>(t: &Thread) -> [u64; FLOAT_WORDS] {
    if uses::<P>(t) {
        return P::unload_fp(t.fp(P::ISA));
    }
    let mut words = [0; FLOAT_WORDS];
    words[0] = initial_float_control(P::ISA);
    words
}

/// Gives a thread these registers. It does not run; or it does, and has been settled and made to
/// [`forget`] those that it had.
pub fn give<P: Platform>(local: &CpuLocal, t: &Thread, words: &[u64; FLOAT_WORDS]) {
    P::load_fp(area::<P>(t), words);
    set_used::<P>(local, t);
}

/// Area to area, in the thread's own frame: the registers are not touched.
fn copy(from: &FpArea, to: &FpArea) {
    for (f, t) in from.0.iter().zip(&to.0) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
