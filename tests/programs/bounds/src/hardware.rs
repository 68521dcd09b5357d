//! Operations on a node's hardware.

use dyad_abi::cap::CapIndex;
use dyad_abi::service::NODE_DIED;
use dyad_abi::user::{MAX_REPORT_DETAIL, MAX_REPORT_NAME, MAX_WRITE, ReportArgs, ReportKind};
use dyad_abi::{Error, Result};
use dyad_services::rt;

use crate::call::expect_one_of;
use crate::operation;
use crate::stock::{HOME, Stock};
use crate::succeed;

/// Text that costs most: lines as long as they can be, with bytes that become others.
static LONG: [u8; MAX_WRITE] = [0x01; MAX_WRITE];
/// Lines without anything in them.
static LINES: [u8; MAX_WRITE] = [b'\n'; MAX_WRITE];
/// Of a report: every byte is escaped.
static QUOTES: [u8; MAX_REPORT_DETAIL] = [b'"'; MAX_REPORT_DETAIL];

/// Performs every operation on the hardware.
pub fn run(stock: &Stock) -> Result<()> {
    let hardware = rt::hardware(HOME);
    succeed!(Hardware, HardwareOp::Now, hardware);
    succeed!(Hardware, HardwareOp::Where, hardware);
    succeed!(Hardware, HardwareOp::NodeState, hardware, 1);
    succeed!(Hardware, HardwareOp::Quiesced, hardware, 1);
    succeed!(Hardware, HardwareOp::FlushTlb, hardware);
    succeed!(
        Hardware,
        HardwareOp::AttachIrq,
        hardware,
        NODE_DIED,
        u64::from(CapIndex::NONE.get())
    );
    // Of an id that no thread has, and of this thread.
    succeed!(Hardware, HardwareOp::Inside, hardware, 4095 << 8 | 1);
    succeed!(Hardware, HardwareOp::Inside, hardware, 1);
    let r = operation!(Hardware, HardwareOp::Count, hardware, 0);
    expect_one_of("Hardware.Count", r.status, &[0, Error::NotReady.code()]);
    rounds(stock)?;
    texts();
    Ok(())
}

/// Rounds with as many steps as there may be, after much has changed.
fn rounds(stock: &Stock) -> Result<()> {
    let hardware = rt::hardware(HOME);
    stock.settle()?;
    let memory = stock.memory();
    let (at, _) = stock.largest()?;
    for n in 0..400 {
        let kind = dyad_abi::cap::ObjectKind::CaptblLeaf;
        memory.retype_kernel(at + n, kind)?;
        memory.retype_untyped(at + n)?;
    }
    for _ in 0..4096 {
        if succeed!(Hardware, HardwareOp::FlushStep, hardware, u64::MAX) != 0 {
            break;
        }
    }
    stock.settle()
}

fn texts() {
    let hardware = rt::hardware(HOME);
    for text in [&LINES, &LONG] {
        // Lines that are not ended go on in the next call.
        for _ in 0..4 {
            let at = text.as_ptr().expose_provenance() as u64;
            succeed!(Hardware, HardwareOp::Write, hardware, at, text.len() as u64);
        }
    }
    let text = QUOTES.as_ptr().expose_provenance() as u64;
    for kind in [ReportKind::Counter, ReportKind::Check] {
        let args = ReportArgs {
            kind: kind as u64,
            value: 1,
            name: text,
            name_len: MAX_REPORT_NAME as u64,
            detail: text,
            detail_len: MAX_REPORT_DETAIL as u64,
        };
        let at = (&raw const args).expose_provenance() as u64;
        succeed!(Hardware, HardwareOp::Report, hardware, at);
    }
}
