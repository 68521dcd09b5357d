//! Kernel panics and faults: report once, then end the machine. The launcher ends the other machines and
//! symbolises the backtraces.
//!
//! Nothing here may rely on what has just failed: no shared word is read or written, no lock is waited for
//! without a bound (the console's wait is bounded), and the node is not even marked as having left. If the
//! other nodes continue, they recover it like a machine that was killed.

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::record::EXIT_PANIC;

use crate::console::{Value, record};
use crate::{Platform, error};

/// Set by the first CPU that panics; a panic while panicking only exits.
static PANICKING: AtomicBool = AtomicBool::new(false);

/// Return addresses in a record, innermost first. Lines of the console are bounded.
const DEPTH: usize = 24;

/// Writes message, registers and backtrace, then ends the machine. Only the first call of a machine reports:
/// the output of a second CPU would mix with it, and a panic in here would not end.
fn last_words<P: Platform>(
    message: fmt::Arguments<'_>,
    location: fmt::Arguments<'_>,
    regs: &[(&str, u64)],
) -> ! {
    if PANICKING.swap(true, Ordering::AcqRel) {
        P::exit(EXIT_PANIC);
    }
    let cpu = P::cpu().index() as u64;
    record::<P>(
        "panic",
        &[
            ("cpu", Value::Number(cpu)),
            ("message", Value::Text(message)),
            ("location", Value::Text(location)),
        ],
    );
    for pair in regs.chunks(2) {
        match pair {
            [(n, v), (m, w)] => error!(P, "  {n:>8} = {v:#018x}  {m:>8} = {w:#018x}"),
            [(n, v)] => error!(P, "  {n:>8} = {v:#018x}"),
            _ => {}
        }
    }
    let mut pcs = [0; DEPTH];
    let mut n = 0;
    P::backtrace(&mut |pc| {
        if n < DEPTH {
            pcs[n] = pc;
            n += 1;
        }
    });
    record::<P>(
        "backtrace",
        &[
            ("cpu", Value::Number(cpu)),
            ("what", Value::Text(format_args!("kernel"))),
            ("pcs", Value::Addresses(&pcs[..n])),
        ],
    );
    record::<P>(
        "exit",
        &[
            ("code", Value::Number(EXIT_PANIC as u64)),
            ("reason", Value::Text(format_args!("kernel panic"))),
        ],
    );
    P::exit(EXIT_PANIC)
}

/// The panic handler of the arch crates.
pub fn on_panic<P: Platform>(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(l) => last_words::<P>(
            format_args!("{}", info.message()),
            format_args!("{}:{}:{}", l.file(), l.line(), l.column()),
            &[],
        ),
        None => last_words::<P>(format_args!("{}", info.message()), format_args!("?"), &[]),
    }
}

/// Reports an exception in kernel mode and ends the machine.
pub fn fault<P: Platform>(what: &str, regs: &[(&str, u64)]) -> ! {
    last_words::<P>(
        format_args!("exception in kernel mode: {what}"),
        format_args!("trap"),
        regs,
    )
}
