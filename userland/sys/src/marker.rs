//! Windows of measurement: which instructions of a program the simulator counts.
//!
//! ```ignore
//! const ID: u16 = WindowId::FREE;
//! marker::begin::<ID>();
//! counter.fetch_add(1, Ordering::Relaxed);
//! marker::end::<ID>();
//! ```
//!
//! counts the instructions between the two, in this program and in the kernel, in runs with
//! `--sim count --windows`. Everywhere else a marker is an instruction without effect, and on the
//! host it is nothing at all. See [`dyad_abi::marker`].
//!
//! The compiler keeps accesses to memory and system calls on their side of a marker, but it may
//! move computation with registers across, in both directions: constants that later code needs
//! are loaded inside of a window, results that later code uses are computed behind it. For exact
//! counts a window is all that is in a function of its own, which is not inlined:
//!
//! ```ignore
//! #[inline(never)]
//! fn add(counter: &AtomicU64) {
//!     marker::window::<ID, _>(|| counter.fetch_add(1, Ordering::Relaxed));
//! }
//! ```

#[cfg(target_os = "none")]
use core::arch::asm;

use dyad_abi::marker::{Marker, MarkerOp, PREFIX, WindowId};

/// The words of a marker.
///
/// This is the only assembly in programs: the same bytes are harmless on every ISA, so the build
/// pipeline lets it pass.
macro_rules! emit {
    ($op:ident, $id:expr) => {{
        #[cfg(target_os = "none")]
        // SAFETY: 1. The words are a no-operation on every ISA that programs are built for
        // (`dyad_abi::marker`): no register, flag or memory changes. 2. They are said to touch
        // memory so that accesses stay on their side.
        unsafe {
            asm!(
                ".4byte {prefix}",
                ".4byte {marker}",
                prefix = const PREFIX,
                marker = const Marker { op: MarkerOp::$op, id: WindowId($id) }.word(),
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_os = "none"))]
        {
            let _ = (Marker { op: MarkerOp::$op, id: WindowId($id) }.word(), PREFIX);
        }
    }};
}

/// Window `ID` of this CPU begins here.
#[inline(always)]
pub fn begin<const ID: u16>() {
    emit!(Begin, ID);
}

/// Window `ID` ends here.
#[inline(always)]
pub fn end<const ID: u16>() {
    emit!(End, ID);
}

/// Discards what was counted in the open window, for example in an attempt that failed.
#[inline(always)]
pub fn abandon() {
    emit!(Abandon, 0);
}

/// From here on this CPU only waits for messages of other kernels: [`Marker::AWAITS`].
#[inline(always)]
pub fn awaits() {
    emit!(Idle, Marker::AWAITS.id.0);
}

/// It has something to do again: [`Marker::COMES`].
#[inline(always)]
pub fn comes() {
    emit!(Idle, Marker::COMES.id.0);
}

/// The samples of window `ID` on this node so far were for warming up.
#[inline(always)]
pub fn forget<const ID: u16>() {
    emit!(Forget, ID);
}

/// Call `CALL` of the simulator's clock, [`ClockCall`](dyad_abi::clock::ClockCall), which is without effect in a program: for tests of
/// that.
#[inline(always)]
pub fn clock<const CALL: u16>() {
    emit!(Clock, CALL);
}

/// Calls `f` in window `ID`.
#[inline(always)]
pub fn window<const ID: u16, R>(f: impl FnOnce() -> R) -> R {
    begin::<ID>();
    let result = f();
    end::<ID>();
    result
}
