//! Where threads start, and what is said in the end.

use core::sync::atomic::Ordering;

use dyad_abi::Result;
use dyad_abi::record::{EXIT_BOOT, EXIT_FAILED, EXIT_OK};
use dyad_abi::user::{PAGE_SIZE, ReportKind};
use dyad_hostile::Options;
pub use dyad_hostile::say;
use dyad_services::rt::{self, Call};
use dyad_services::text::Text;

use crate::call::WRONG;
use crate::stock::{HOME, Stock};
use crate::{deaths, hardware, memory, operation, spaces, tables, threads};

dyad_services::entry!(start, invoked);

fn start(arg: u64) -> ! {
    match arg % PAGE_SIZE {
        0 => {}
        what => threads::live(what),
    }
    let done = run();
    let wrong = WRONG.load(Ordering::Relaxed);
    let detail = match done {
        Ok(()) => Text::<256>::of(format_args!(
            "{wrong} operations had another outcome than expected"
        )),
        Err(e) => Text::<256>::of(format_args!("ended early: {e}")),
    };
    let ok = done.is_ok() && wrong == 0;
    end(ok, &detail)
}

/// Says what it has come to, and ends the run.
pub fn end(ok: bool, detail: &Text<256>) -> ! {
    let told = rt::hardware(HOME).report(
        ReportKind::Check,
        ok.into(),
        "bounds.outcomes",
        detail.as_str(),
    );
    shut_down(match (ok, told) {
        (true, Ok(())) => EXIT_OK,
        (_, Ok(())) => EXIT_FAILED,
        _ => EXIT_BOOT,
    })
}

/// An invocation answers at once.
fn invoked(call: Call) -> [u64; 4] {
    call.words
}

fn run() -> Result<()> {
    let info = rt::info()?;
    let nodes = info.system.node_count as usize;
    let stock = &mut Stock::new(HOME)?;
    if Options::read()?.has("--deaths") {
        return deaths::run(stock, info.cpus as usize);
    }
    say(format_args!("memory"));
    memory::run(stock)?;
    say(format_args!("tables"));
    tables::run(stock)?;
    say(format_args!("spaces"));
    spaces::run(stock)?;
    say(format_args!("threads"));
    threads::run(stock, nodes)?;
    say(format_args!("hardware"));
    hardware::run(stock)?;
    Ok(())
}

/// Ends the run.
pub fn shut_down(code: u32) -> ! {
    loop {
        let _ = operation!(
            Hardware,
            HardwareOp::Shutdown,
            rt::hardware(HOME),
            code.into()
        );
        dyad_sys::raw::relax();
    }
}
