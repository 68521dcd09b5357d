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
//! Threads that do not use them pay nothing. The short ways of invocations, returns and faults ask
//! which thread runs anyway; they ask `short_way` of the CPU, which is none while the running thread
//! has something to be forgotten or kept.

use core::sync::atomic::Ordering;

use dyad_abi::emulation::{FLOAT_WORDS, initial_float_control};

use crate::Platform;
use crate::cpu::CpuLocal;
use crate::object::thread::{Thread, info};
use crate::platform::FpArea;

/// The bit of this machine's ISA in `used_fp`.
const fn bit<P: Platform>() -> u64 {
    1 << P::ISA.index()
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

/// Has a thread that does not run go on with what has been put into its area on this ISA.
pub(crate) fn use_area<P: Platform>(t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all | bit::<P>(), Ordering::Relaxed);
}

/// The same on every ISA.
pub fn renew_all(t: &Thread) {
    t.used_fp.store(0, Ordering::Relaxed);
}

/// The running thread has something in the registers, or in its area.
fn set_used<P: Platform>(local: &CpuLocal, t: &Thread) {
    let all = t.used_fp.load(Ordering::Relaxed);
    t.used_fp.store(all | bit::<P>(), Ordering::Relaxed);
    if !lacks!("fp::set_used::short_way") {
        local.short_way.set(None);
    }
}

/// What this CPU has of somebody's registers goes to that thread's frame.
#[inline]
pub fn put_away<P: Platform>(local: &CpuLocal) {
    if let Some(t) = local.fp_of.get()
        && !lacks!("fp::put_away::save")
    {
        save::<P>(local, t.fp(P::ISA));
    }
}

/// The registers, which are on, go to an area.
#[cold]
fn save<P: Platform>(local: &CpuLocal, area: &FpArea) {
    // Before they are off.
    P::save_fp(area);
    P::fp_off();
    local.fp_of.set(None);
}

/// A thread is about to run, and the registers of the one before are put away.
#[inline]
pub fn load<P: Platform>(local: &CpuLocal, t: &'static Thread) {
    let short = !uses::<P>(t) || lacks!("fp::load::short_way");
    local.short_way.set(short.then_some(t));
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
/// registers is lost. The short way is open then.
#[cold]
pub fn forget<P: Platform>(local: &CpuLocal) {
    if local.fp_of.take().is_some() {
        P::fp_off();
    }
    if let Some(t) = local.thread.get() {
        renew::<P>(t);
        local.short_way.set(Some(t));
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
    copy(&t.saved_fp, t.fp(P::ISA));
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
    P::load_fp(t.fp(P::ISA), words);
    set_used::<P>(local, t);
}

/// Area to area, in the thread's own frame: the registers are not touched.
fn copy(from: &FpArea, to: &FpArea) {
    for (f, t) in from.0.iter().zip(&to.0) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
