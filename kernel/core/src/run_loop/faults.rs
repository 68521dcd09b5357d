//! Reports of faults that have ended threads; the run loop writes them in pieces.
//!
//! | piece | content |
//! |---|---|
//! | 0 | the fault: thread, address, program counter, reason |
//! | 1, 2, ... | the registers, `LINES` lines each |
//! | the last one | a `backtrace` record |
//!
//! Of a fault that the thread's handler has told of there is the last piece only.
//!
//! Bounds: a piece is at most `LINES` short lines, or one record of [`MAX_PCS`](dyad_machine::note::MAX_PCS)
//! addresses. A node begins at most [`BURST`](dyad_machine::console::BURST) reports at once, and one more each
//! [`INTERVAL_NS`](dyad_machine::console::INTERVAL_NS).

use dyad_machine::console::{Value, record};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::note::{Facts, Untold};
use dyad_machine::platform::FaultKind;
use dyad_machine::{Platform, error};
use dyad_object::node::Node;

/// Number of register lines in a piece.
const LINES: usize = 2;

/// Writes the next piece of this CPU's report. Returns `false` if there is none.
pub fn write_piece<P: Platform>(node: &Node, local: &CpuLocal) -> bool {
    if !local.fault_note.is_pending() {
        return false;
    }
    local.fault_note.next_piece(|facts, piece| {
        let Some(untold) = &facts.untold else {
            backtrace::<P>(facts);
            return false;
        };
        match piece.checked_sub(1) {
            None => headline::<P>(node, facts, untold),
            Some(n) if !registers::<P>(untold, n * LINES) => {
                backtrace::<P>(facts);
                return false;
            }
            Some(_) => {}
        }
        true
    });
    true
}

/// Writes the rest of the report, because this CPU does not come back to its run loop.
pub fn write_all<P: Platform>(node: &Node, local: &CpuLocal) {
    while write_piece::<P>(node, local) {}
}

fn headline<P: Platform>(node: &Node, facts: &Facts, untold: &Untold) {
    let fault = untold.fault;
    let what = match fault.kind {
        FaultKind::Read => "read of",
        FaultKind::Write => "write to",
        FaultKind::Execute => "instruction fetch from",
        FaultKind::Illegal => "illegal or privileged instruction",
        FaultKind::Breakpoint => "breakpoint",
        FaultKind::Arithmetic => "arithmetic exception",
        FaultKind::Alignment => "misaligned access",
        FaultKind::Other => "exception",
    };
    let pc = facts.pcs[0];
    let within = match facts.invoked {
        true => ", in what it has invoked",
        false => "",
    };
    error!(
        P,
        "program {:?}, thread {}{within}: {what} {:#x} at pc {pc:#x} on {} (raw {:#x}){}{}",
        node.params.app,
        facts.thread,
        if fault.kind.is_access() {
            fault.address
        } else {
            pc
        },
        P::ISA,
        fault.raw,
        if untold.why.is_some() { ": " } else { "" },
        untold.why.unwrap_or("")
    );
}

/// Writes [`LINES`] registers, beginning with register number `from`. Returns `false` if there are none.
fn registers<P: Platform>(untold: &Untold, from: usize) -> bool {
    let mut n = 0;
    P::dump_regs(&untold.area(), &mut |name, value| {
        if (from..from + LINES).contains(&n) {
            error!(P, "  {name:>8} = {value:#018x}");
        }
        n += 1;
    });
    from < n
}

fn backtrace<P: Platform>(facts: &Facts) {
    record::<P>(
        "backtrace",
        &[
            ("cpu", Value::Number(P::cpu().index() as u64)),
            (
                "what",
                Value::Text(format_args!(
                    "{}",
                    if facts.invoked { "invoked" } else { "user" }
                )),
            ),
            ("pcs", Value::Addresses(&facts.pcs[..facts.depth])),
        ],
    );
}
