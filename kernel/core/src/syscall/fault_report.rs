//! What is kept of a fault that ends a user thread. The run loop writes it ([`crate::run_loop::faults`]).
//!
//! | the thread ends because | kept |
//! |---|---|
//! | no handler takes the fault ([`report_fault`]) | the fault, all registers, a backtrace |
//! | its handler says so ([`report_callers`]) | a backtrace: the handler has told of the fault, but has not seen the stack |
//!
//! Nothing but the count is kept beyond the node's budget of reports, or while another report is being written.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::note::{Facts, MAX_PCS, Untold, words_of};
use dyad_machine::platform::{RegArea, UserFault};
use dyad_machine::{Platform, console};
use dyad_object::thread::Thread;
use dyad_space::copy;

/// Keeps the fault of a user thread with all its registers. `why` is the reason why the kernel has not resolved a
/// page fault.
pub(super) fn report_fault<P: Platform>(
    cx: &KernelCtx,
    thread: &Thread,
    area: &RegArea,
    fault: UserFault,
    why: Option<Error>,
) {
    let untold = Untold {
        fault,
        why: why.map(Error::text),
        registers: words_of(area),
    };
    keep::<P>(cx, thread, area, Some(untold));
}

/// Keeps where a user thread was that its fault handler ends. The thread's space must be that of this CPU.
pub(super) fn report_callers<P: Platform>(cx: &KernelCtx, thread: &Thread, area: &RegArea) {
    keep::<P>(cx, thread, area, None);
}

fn keep<P: Platform>(cx: &KernelCtx, thread: &Thread, area: &RegArea, untold: Option<Untold>) {
    if !console::may_report::<P>() {
        return;
    }
    let (pc, fp) = P::user_pc_fp(area);
    let (pcs, depth) = user_backtrace::<P>(cx, pc, fp);
    // Where this CPU writes one, it is in the run loop, and no thread of it faults.
    cx.local.fault_note.begin(&Facts {
        thread: thread.id.load(Ordering::Relaxed),
        invoked: thread.depth.load(Ordering::Relaxed) != 0,
        untold,
        pcs,
        depth,
    });
}

/// The return addresses on a user stack, found by its frame records `{previous, return address}`, which both
/// ISAs have in the same form. Bounded; stops at the first record that is not readable.
///
/// The stack is that of a faulty program. Records are copied like any user memory, and each must lie above
/// the one before, so that cycles end.
fn user_backtrace<P: Platform>(cx: &KernelCtx, pc: u64, fp: u64) -> ([u64; MAX_PCS], usize) {
    let mut pcs = [0; MAX_PCS];
    pcs[0] = pc;
    let mut n = 1;
    let mut at = fp;
    while n < pcs.len() && at.is_multiple_of(8) {
        let mut record = [0; 16];
        if cx
            .space()
            .and_then(|s| copy::copy_in::<P>(cx, s, at, &mut record))
            .is_err()
        {
            break;
        }
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&record[i..i + 8]);
            u64::from_le_bytes(w)
        };
        let (previous, ret) = (word(0), word(8));
        if ret == 0 {
            break;
        }
        pcs[n] = ret;
        n += 1;
        if previous <= at {
            break;
        }
        at = previous;
    }
    (pcs, n)
}
