//! This CPU's timer: the end of a slice, or the next housekeeping.

use dyad_machine::Platform;
use dyad_machine::clock::{self, FusedTime};
use dyad_machine::kernel_ctx::KernelCtx;

/// Housekeeping interval: the CPU sends its heartbeat and checks those of other nodes. An idle CPU sleeps no
/// longer.
pub const TICK_NS: u64 = 100_000_000;

/// Sets the timer for the end of the slice, or for `next` if that comes first.
pub(crate) fn set<P: Platform>(cx: &KernelCtx, next: u64) {
    let at = next.min(cx.local.slice_end());
    cx.local.timer_at.set(at);
    P::set_timer(Some(clock::to_local(FusedTime(at))));
}

/// Makes the timer interrupt user mode as soon as this CPU enters it, so that the run loop gets its turn
/// before the thread continues.
#[cold]
pub(crate) fn interrupt_soon<P: Platform>(cx: &KernelCtx) {
    set::<P>(cx, clock::now::<P>().0);
}

/// Sets the timer for the next housekeeping, or the end of the slice if that comes first.
#[cold]
pub(crate) fn set_tick<P: Platform>(cx: &KernelCtx) {
    set::<P>(cx, cx.local.last_tick.get() + TICK_NS);
}
