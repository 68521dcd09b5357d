//! Start and end of a program. `#[dyad::task]` generates calls of this module; programs do not call it.
//!
//! The kernel calls the entry symbol where the program starts. Other [threads](crate::thread) of the program also
//! begin there; the argument tells which thread it is. In the emulated system of the host the entry is called once
//! more for each ISA that the thread comes to, and then only joins the executor.
//!
//! | exit code | reason |
//! |---|---|
//! | 0 | the main task returned, no report was lost |
//! | 1 | the main task returned an error, or every task waits for ever |
//! | 2 | the main task returned a usage error |
//! | 101 | a panic, which includes running out of memory; in an invocation it ends only the invocation |

use alloc::boxed::Box;
use core::cell::Cell;
use core::future::Future;
#[cfg(target_os = "none")]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::{AtomicBool, Ordering};

use dyad_rt::program_local;
use dyad_sys::thread::Number;

use crate::{Args, Error, Result, executor};

program_local! {
    static STARTED: Cell<bool> = Cell::new(false);
}
program_local! {
    static FAILED: AtomicBool = AtomicBool::new(false);
}

/// Start and end of a program with `#[dyad::main]`.
pub mod plain {
    #[cfg(target_os = "none")]
    pub use crate::plain::{arrive, comes, leave, start};
    pub use crate::plain::{done, main_with_args, main_without_args};
}

/// The return types of a main task.
#[diagnostic::on_unimplemented(
    message = "the main task returns nothing or `dyad::Result<()>`, not `{Self}`",
    label = "this main task"
)]
pub trait Outcome {
    /// The outcome as a result.
    fn result(self) -> Result<()>;
}

impl Outcome for () {
    fn result(self) -> Result<()> {
        Ok(())
    }
}

impl Outcome for Result<()> {
    fn result(self) -> Result<()> {
        self
    }
}

/// Entry of a program whose main task takes arguments.
pub fn main_with_args<F>(argument: u64, main: fn(Args) -> F) -> !
where
    F: Future<Output: Outcome> + 'static,
{
    start(
        argument,
        || async move { main(Args::load()?).await.result() },
    )
}

/// Entry of a program whose main task takes no arguments.
pub fn main_without_args<F>(argument: u64, main: fn() -> F) -> !
where
    F: Future<Output: Outcome> + 'static,
{
    start(argument, || async move {
        Args::load()?.expect_options(&[])?;
        main().await.result()
    })
}

fn start<F>(argument: u64, main: impl FnOnce() -> F) -> !
where
    F: Future<Output = Result<()>> + 'static,
{
    if let Some(number) = Number::of_argument(argument)
        && number != Number::FIRST
    {
        #[cfg(target_os = "none")]
        dyad_sys::group::arrive(argument, begins);
        begin(argument);
    }
    #[cfg(target_os = "none")]
    dyad_sys::group::arrive_with_tasks();
    crate::emulation::at_entry(argument);
    if !STARTED.with(|s| s.replace(true)) {
        spawn_main(main());
    }
    executor::run()
}

/// Where such a thread begins that has come by message.
#[cfg(target_os = "none")]
fn begins(argument: u64) -> ! {
    begin(argument)
}

/// A thread that runs no tasks is here, and begins.
fn begin(argument: u64) -> ! {
    crate::emulation::at_entry(argument);
    match Number::of_argument(argument) {
        Some(number) => crate::thread::enter(number),
        None => dyad_sys::abandon(101),
    }
}

fn spawn_main(main: impl Future<Output = Result<()>> + 'static) {
    dyad_rt::spine::runs_tasks();
    executor::spawn(Box::pin(async move {
        let code = exit_code(main.await);
        executor::finish(code);
    }));
}

program_local! {
    /// Whether the first thread of a program with `#[dyad::main]` has begun to run tasks.
    static RUNS_TASKS: AtomicBool = AtomicBool::new(false);
}
pub(crate) fn runs_tasks() -> bool {
    RUNS_TASKS.with_any(|r| r.load(Ordering::Relaxed))
}

/// Turns the first thread of a program with `#[dyad::main]` into the one that runs tasks.
pub(crate) fn run_tasks(main: impl Future<Output: Outcome> + 'static) -> ! {
    assert!(
        !STARTED.with(|s| s.replace(true)),
        "the program runs tasks already"
    );
    RUNS_TASKS.with_any(|r| r.store(true, Ordering::Relaxed));
    crate::emulation::set_first_point();
    executor::begin_on_data_stack();
    spawn_main(async move { main.await.result() });
    executor::run()
}

pub(crate) fn exit_code(result: Result<(), Error>) -> u32 {
    match result {
        Ok(()) => FAILED.with_any(|f| f.load(Ordering::Relaxed)).into(),
        Err(e) => {
            crate::eprintln!("error: {e}");
            e.exit_code()
        }
    }
}

/// Makes the program end with an exit code that is not 0, whatever the main task returns.
pub(crate) fn note_failure() {
    FAILED.with_any(|f| f.store(true, Ordering::Relaxed));
}

/// Runs a program in the emulated system of the host.
#[cfg(not(target_os = "none"))]
pub fn host_main(entry: fn(u64) -> !) -> ! {
    dyad_host::main(entry)
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // In an invocation, others go on.
    if dyad_sys::in_invocation() {
        static PANICKING: AtomicBool = AtomicBool::new(false);
        if !PANICKING.swap(true, Ordering::Relaxed) {
            say(info);
            PANICKING.store(false, Ordering::Relaxed);
        }
        dyad_sys::abandon(101)
    }
    // The threads that panic.
    static PANICKING: AtomicU64 = AtomicU64::new(0);
    let me = dyad_sys::thread::number().map_or(1, Number::bit);
    let others = PANICKING.fetch_or(me, Ordering::Relaxed);
    // A message that panics while it is formatted must not come round again.
    if others & me == 0 {
        say(info);
        // The program ends with the first that comes to its end. The messages of others come first.
        let mut patience = 1000;
        while PANICKING.load(Ordering::Relaxed) & !SAID.fetch_or(me, Ordering::Relaxed) & !me != 0
            && patience > 0
        {
            patience -= 1;
            dyad_sys::yield_now();
        }
    }
    dyad_sys::abandon(101)
}

/// Threads whose panics have been reported.
#[cfg(target_os = "none")]
static SAID: AtomicU64 = AtomicU64::new(0);

#[cfg(target_os = "none")]
fn say(info: &core::panic::PanicInfo<'_>) {
    let message = info.message();
    let place = match dyad_sys::thread::number() {
        Some(n) if n != Number::FIRST => Some(n.get()),
        _ => None,
    };
    match (info.location(), place) {
        (Some(at), None) => crate::eprintln!("panic at {at}: {message}"),
        (Some(at), Some(n)) => match Number::new(n).and_then(crate::thread::name_of) {
            None => crate::eprintln!("panic in thread {n} at {at}: {message}"),
            Some(name) => crate::eprintln!("panic in thread {n} ({name}) at {at}: {message}"),
        },
        (None, _) => crate::eprintln!("panic: {message}"),
    }
    let mut callers = Callers([0; CALLERS], 0);
    callers.1 = dyad_sys::raw::return_addresses(&mut callers.0);
    if callers.1 != 0 {
        crate::eprintln!("{callers}");
    }
}

/// Most addresses behind a panic.
#[cfg(target_os = "none")]
const CALLERS: usize = 24;

/// Where a panic has been called from: a line in which the launcher puts names for the addresses.
#[cfg(target_os = "none")]
struct Callers([u64; CALLERS], usize);

#[cfg(target_os = "none")]
impl core::fmt::Display for Callers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("  called from")?;
        for pc in &self.0[..self.1] {
            write!(f, " {pc:#x}")?;
        }
        write!(f, " on {}", dyad_sys::isa())
    }
}

/// Uses of `#[dyad::task]` that must fail to compile.
///
/// ```compile_fail
/// #[dyad::task]
/// fn main() {}
/// ```
/// ```compile_fail
/// #[dyad::task]
/// async fn main(a: dyad::Args, b: dyad::Args) {}
/// ```
/// ```compile_fail,E0308
/// #![no_main]
/// #[dyad::task]
/// async fn main(a: u32) {}
/// ```
/// ```compile_fail,E0277
/// #![no_main]
/// #[dyad::task]
/// async fn main() -> u32 { 0 }
/// ```
/// ```compile_fail
/// #[dyad::task(now)]
/// async fn main() {}
/// ```
/// ```compile_fail
/// #[dyad::task]
/// async fn main<T>() {}
/// ```
/// ```compile_fail
/// #[dyad::task]
/// struct Main;
/// ```
#[cfg(doctest)]
pub struct RefusedByTask;
