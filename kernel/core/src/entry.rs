//! Where the arch crates hand traps over. Every function here starts on an empty kernel stack.
//! System calls come to `fast_*` with a partial area and may return; all others find every general
//! register saved, and end in the run loop. See [`platform`](crate::platform).

use dyad_abi::Error;

use crate::console::{Value, record};
use crate::cpu::CpuLocal;
use crate::node::{Node, node};
use crate::platform::{FaultKind, RegArea, UserFault};
use crate::space::Space;
use crate::thread::ThreadFrame;
use crate::{Platform, end, error, fault, inbox, panic, sched, syscall};

use core::sync::atomic::Ordering;

/// How often one instruction may fault at one address in a row. A page that others unmap and map
/// at the same time costs a few; a page that the tables allow and the machine does not, or one
/// that a dead node has left half unmapped, would fault for ever.
const MAX_SAME_FAULT: u32 = 1_000;

fn current(local: &CpuLocal) -> &'static ThreadFrame {
    local
        .current
        .get()
        .expect("trap from user mode while no thread runs here")
}

/// What a `fast_*` function returns: two registers on both ISAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FastReturn {
    /// Status of the system call, or [`ENTER`].
    pub status: u64,
    /// Value of the system call; with `ENTER` from [`fast_invoke`], the badge.
    pub value: u64,
}

/// As the status of a [`FastReturn`]: user mode is left for another place. Program counter and
/// stack pointer have been set in the area ([`Platform::set_user_pc_sp`]), and the address space
/// switched to.
pub const ENTER: u64 = u64::MAX;

/// A system call whose word has bits above the capability index: an operation other than 0.
#[inline]
pub fn fast_syscall<P: Platform>(
    word: u64,
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
) -> FastReturn {
    slow::<P>(word, [a0, a1, a2, a3, a4])
}

/// A system call with operation 0 on a capability (`word` is its index, not 0). [`ENTER`]: the area
/// says where; the argument registers there are `a0` to `a3`, the badge, which is the value, and
/// the token, which is in [`CpuLocal::fast_token`].
#[inline]
pub fn fast_invoke<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    slow::<P>(word, [a0, a1, a2, a3, 0])
}

/// The end of an invocation. [`ENTER`]: the area says where; status 0 and `a0` to `a3` are the
/// results there.
#[inline]
pub fn fast_return<P: Platform>(a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    slow::<P>(dyad_abi::cap::RETURN, [a0, a1, a2, a3, 0])
}

/// A system call that cannot return from here.
#[cold]
fn slow<P: Platform>(word: u64, args: [u64; 5]) -> ! {
    let area = P::current_area();
    P::complete_area(area, word, args);
    syscall::<P>(area)
}

/// A system call. `area` is the current thread's register area, full.
pub fn syscall<P: Platform>(area: &'static RegArea) -> ! {
    inbox::attentive::<P>();
    let local = P::local();
    let [number, args @ ..] = P::syscall_args(area);
    local.last_syscall.set(number.wrapping_add(1));
    local.forget_faults();
    local.syscalls.set(local.syscalls.get() + 1);
    syscall::dispatch::<P>(node(), local, current(local), area, number, args);
    sched::run::<P>()
}

/// One or more interrupts, already acknowledged and noted.
pub fn interrupted<P: Platform>(_area: &'static RegArea) -> ! {
    inbox::attentive::<P>();
    sched::run::<P>()
}

/// A fault in user mode.
pub fn user_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    inbox::attentive::<P>();
    let node = node();
    let local = P::local();
    let thread = current(local);
    if matches!(
        f.kind,
        FaultKind::Read | FaultKind::Write | FaultKind::Execute
    ) {
        let (pc, _) = P::user_pc_fp(area);
        let resolved = if local.note_fault(f.address, pc) > MAX_SAME_FAULT {
            Err(Error::Corrupt)
        } else {
            Space::find(node, thread.space.load(Ordering::Relaxed))
                .and_then(|space| fault::resolve::<P>(node, &space, f.address, f.kind))
        };
        match resolved {
            // `Again`: the page changed under us; the thread faults anew if it still needs to.
            Ok(()) | Err(Error::Again) => sched::run::<P>(),
            Err(e) => report_fault::<P>(node, thread, area, f, Some(e)),
        }
    } else {
        report_fault::<P>(node, thread, area, f, None);
    }
    end::program_failed::<P>(node, Some(thread));
    sched::run::<P>()
}

/// Says what a user thread did wrong, with all its registers.
fn report_fault<P: Platform>(
    node: &Node,
    thread: &ThreadFrame,
    area: &RegArea,
    f: UserFault,
    why: Option<Error>,
) {
    let (pc, fp) = P::user_pc_fp(area);
    let what = match f.kind {
        FaultKind::Read => "read of",
        FaultKind::Write => "write to",
        FaultKind::Execute => "instruction fetch from",
        FaultKind::Illegal => "illegal or privileged instruction",
        FaultKind::Breakpoint => "breakpoint",
        FaultKind::Arithmetic => "arithmetic exception",
        FaultKind::Alignment => "misaligned access",
        FaultKind::Other => "exception",
    };
    let access = matches!(
        f.kind,
        FaultKind::Read | FaultKind::Write | FaultKind::Execute
    );
    error!(
        P,
        "program {:?}, thread {}: {what} {:#x} at pc {pc:#x} on {} (raw {:#x}){}{}",
        node.params.app,
        thread.id.load(Ordering::Relaxed),
        if access { f.address } else { pc },
        P::ISA,
        f.raw,
        if why.is_some() { ": " } else { "" },
        why.map_or("", Error::text)
    );
    P::dump_regs(area, &mut |name, value| {
        error!(P, "  {name:>8} = {value:#018x}");
    });
    let pcs = user_backtrace::<P>(node, thread, pc, fp);
    record::<P>(
        "backtrace",
        &[
            ("cpu", Value::Number(P::cpu().index() as u64)),
            ("what", Value::Text(format_args!("user"))),
            ("pcs", Value::Addresses(&pcs.0[..pcs.1])),
        ],
    );
}

/// Return addresses of a user stack by its frame records `{previous, return address}`, which both
/// ISAs have in the same form. Bounded; stops at the first record that is not readable.
fn user_backtrace<P: Platform>(
    node: &Node,
    thread: &ThreadFrame,
    pc: u64,
    fp: u64,
) -> ([u64; 16], usize) {
    let mut pcs = [0; 16];
    pcs[0] = pc;
    let mut n = 1;
    let mut at = fp;
    let Ok(space) = Space::find(node, thread.space.load(Ordering::Relaxed)) else {
        return (pcs, n);
    };
    let (bottom, top) =
        dyad_abi::user::stack_slot(P::ISA, thread.id.load(Ordering::Relaxed) as u32);
    while n < pcs.len() && (bottom..top).contains(&at) && at.is_multiple_of(8) {
        let mut record = [0; 16];
        if crate::user_copy::copy_in::<P>(node, &space, at, &mut record).is_err() {
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

/// An exception in kernel mode: a bug. Dumps registers, reports, ends the machine.
pub fn kernel_fault<P: Platform>(what: &str, regs: &[(&str, u64)]) -> ! {
    panic::fault::<P>(what, regs)
}
