//! In-kernel tests: registry, runner, and what tests may use.
//!
//! Tests are ordinary functions in the modules below, registered by `#[ktest]`. The launcher names
//! those to run in the boot parameters; every node runs them in that order, meeting the others
//! before and after each. A result is a `ktest` record per node. Tests run on each node's first
//! CPU, with interrupts masked, before any program.

// A failure carries its text, and there is no heap to put it on.
#![allow(clippy::result_large_err)]

use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::record::{EXIT_FAILED, EXIT_OK};
use dyad_abi::{Error, NodeId};

use crate::run_loop::shutdown;
use crate::sched::quiet;
use dyad_machine::Platform;
use dyad_machine::console::{Value, record};
use dyad_object::node::Node;

pub use dyad_machine::platform::UserProbe;
pub use machine::Machine;
use machine::Of;

mod clock;
mod local;
mod machine;
mod marked;
mod ops_authority;
mod ops_bounds;
mod ops_captbl;
mod ops_component;
mod ops_endpoint;
mod ops_guards;
mod ops_hardware;
mod ops_known;
mod ops_memory;
mod ops_registers;
mod ops_stop;
mod ops_switches;
mod ops_thread;
mod ops_views;
mod pair_caps;
mod pair_code;
mod pair_components;
mod pair_endpoints;
mod pair_memory;
mod pair_messages;
mod pair_patterns;
mod pair_quiet;
mod pair_race;
mod pair_tables;
mod pair_threads;
pub(crate) mod rig;
pub(crate) mod spaces;
pub mod user_calls;
mod user_entry;
mod user_fp;
mod user_machine;
mod user_real;
mod walk;

pub(crate) use dyad_ktest::ktest;

/// Longest name of a test.
pub const MAX_NAME: usize = 64;

/// An entry of the registry. The host reads names from the image: the layout is part of the
/// contract with `tests/qemu`.
#[repr(C)]
pub struct Entry {
    /// Name, padded with zeros.
    pub name: [u8; MAX_NAME],
    /// 1: runs on all nodes together; 0: on every node by itself.
    pub together: u64,
    /// The test.
    pub run: fn(&TestCtx<'_>) -> Outcome,
}

impl Entry {
    /// Makes an entry; at compile time only.
    pub const fn new(name: &str, together: bool, run: fn(&TestCtx<'_>) -> Outcome) -> Entry {
        let mut padded = [0; MAX_NAME];
        let bytes = name.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            padded[i] = bytes[i];
            i += 1;
        }
        Entry {
            name: padded,
            together: together as u64,
            run,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(MAX_NAME);
        core::str::from_utf8(&self.name[..end]).unwrap_or("?")
    }
}

/// A text of bounded length.
pub struct Text {
    bytes: [u8; 200],
    len: usize,
}

impl Text {
    /// Formats; what does not fit is cut.
    pub fn new(args: fmt::Arguments<'_>) -> Text {
        let mut t = Text {
            bytes: [0; 200],
            len: 0,
        };
        let _ = t.write_fmt(args);
        t
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            let n = c.len_utf8();
            if self.len + n > self.bytes.len() {
                break;
            }
            c.encode_utf8(&mut self.bytes[self.len..]);
            self.len += n;
        }
        Ok(())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("?"))
    }
}

/// How a test ended, if not by success.
pub enum Stop {
    /// It failed.
    Failed(Text),
    /// It can show nothing here.
    Skipped(Text),
}

/// Result of a test; a success may carry a remark.
pub type Outcome = core::result::Result<Option<Text>, Stop>;

impl From<dyad_retype::Refused> for Stop {
    fn from(e: dyad_retype::Refused) -> Stop {
        dyad_abi::Error::from(e).into()
    }
}

impl From<dyad_abi::Error> for Stop {
    fn from(e: dyad_abi::Error) -> Stop {
        Stop::Failed(Text::new(format_args!("{e}")))
    }
}

/// Fails the test unless a condition holds.
macro_rules! ensure {
    ($cond:expr, $($arg:tt)+) => {
        if !$cond {
            return Err($crate::ktest::Stop::Failed($crate::ktest::Text::new(format_args!($($arg)+))));
        }
    };
}
pub(crate) use ensure;

/// Fails the test unless two values are equal.
macro_rules! gives {
    ($call:expr, $want:expr) => {{
        let (is, want) = ($call, $want);
        ensure!(is == want, "{is:x?}, not {want:x?}: {}", stringify!($call));
    }};
}
pub(crate) use gives;

/// Failure with a reason.
pub(crate) fn fail<T>(why: fmt::Arguments<'_>) -> core::result::Result<T, Stop> {
    Err(Stop::Failed(Text::new(why)))
}

/// Success with a remark.
macro_rules! remark {
    ($($arg:tt)+) => { Ok(Some($crate::ktest::Text::new(format_args!($($arg)+)))) };
}
pub(crate) use remark;

/// How long nodes wait for one another: bounds the longest test.
pub(crate) const BARRIER_NS: u64 = 60_000_000_000;

/// Sleep of a test that waits for a doorbell, in nanoseconds: longer than a busy host keeps a machine from running,
/// so that a sleep of this length has been ended by the timer.
pub(crate) const SLEEP_NS: u64 = 500_000_000;
/// A sleep that is longer, in nanoseconds, has been ended by the timer.
pub(crate) const LATE_NS: u64 = SLEEP_NS - 1_000_000;

/// What a test gets.
pub struct TestCtx<'a> {
    /// This machine's state.
    pub node: &'static Node,
    /// This machine.
    pub machine: &'a dyn Machine,
}

impl TestCtx<'_> {
    /// The kernel's view of this CPU.
    pub fn kernel(&self) -> dyad_machine::kernel_ctx::KernelCtx {
        dyad_machine::kernel_ctx::KernelCtx {
            node: self.node,
            local: self.machine.local(),
        }
    }

    /// Drives this node's round: the epoch published, or 0. Nor is it over if another CPU of the node
    /// is at it, which is about to fall asleep and may have been stopped there by the host.
    pub fn flush_step(
        &self,
        k: &dyad_machine::kernel_ctx::KernelCtx,
        steps: u64,
    ) -> dyad_abi::Result<u64> {
        match self.machine.flush_step(k, steps) {
            Err(Error::Again) => Ok(0),
            other => other,
        }
    }

    /// Drives this node's round to its end. Value: the epoch published.
    pub fn round(&self) -> core::result::Result<u64, Stop> {
        let k = self.kernel();
        let start = self.machine.clock_ns();
        loop {
            let epoch = self.flush_step(&k, quiet::MAX_STEPS)?;
            if epoch != 0 {
                return Ok(epoch);
            }
            if self.machine.clock_ns().wrapping_sub(start) > 10_000_000_000 {
                return Err(Stop::Failed(Text::new(format_args!(
                    "the round does not end"
                ))));
            }
            self.machine.drain();
            self.machine.relax();
        }
    }

    /// All nodes make rounds until whatever has been given up before can be used again.
    pub fn quiesce(&self) -> core::result::Result<(), Stop> {
        self.meet()?;
        self.round()?;
        self.meet()?;
        self.round()?;
        self.meet()
    }

    /// The next node in a circle of all.
    pub fn next(&self) -> NodeId {
        let n = self.node.params.node_count;
        self.node
            .all()
            .nth((self.node.id().index() + 1) % n)
            .unwrap_or(self.node.id())
    }

    /// The previous node in a circle of all.
    pub fn previous(&self) -> NodeId {
        let n = self.node.params.node_count;
        self.node
            .all()
            .nth((self.node.id().index() + n - 1) % n)
            .unwrap_or(self.node.id())
    }

    /// A shared word for tests: each its own line.
    pub fn word(&self, line: usize) -> &'static AtomicU64 {
        &self.node.sb.scratch[line].words[0]
    }

    /// Waits, bounded, until `done` returns true; handles messages meanwhile.
    pub fn wait_for(&self, limit_ns: u64, mut done: impl FnMut() -> bool) -> bool {
        let start = self.machine.clock_ns();
        loop {
            if done() {
                return true;
            }
            if self.machine.clock_ns().wrapping_sub(start) > limit_ns {
                return done();
            }
            self.machine.drain();
            self.machine.relax();
        }
    }

    /// Meets all other nodes, or fails.
    pub fn meet(&self) -> core::result::Result<(), Stop> {
        if self.machine.barrier() {
            Ok(())
        } else {
            Err(Stop::Failed(Text::new(format_args!(
                "the other nodes did not come to the barrier"
            ))))
        }
    }
}

/// Scratch line on which failures are counted; tests use the lines below it.
const FAILURES: usize = 63;

/// Runs those of the image's tests that the boot parameters name, then shuts the system down.
pub fn run_all<P: Platform>(node: &'static Node, entries: &[Entry]) {
    let machine = Of::<P>(PhantomData);
    let cx = TestCtx {
        node,
        machine: &machine,
    };
    let failures = &node.sb.scratch[FAILURES].words[0];
    let mut alone = false;
    for name in node.params.ktests.split(',').filter(|n| !n.is_empty()) {
        if !alone && !cx.machine.barrier() {
            // The others are gone or stuck: go on by ourselves, so that results come out.
            alone = true;
        }
        if node.id().index() == 0 {
            for line in &node.sb.scratch[..FAILURES] {
                for w in &line.words {
                    w.store(0, Ordering::Relaxed);
                }
            }
        }
        alone |= !cx.machine.barrier();
        note::<P>(name, "start", format_args!(""));
        let outcome = match entries.iter().find(|e| e.name() == name) {
            None => Err(Stop::Failed(Text::new(format_args!("no such test")))),
            Some(e) if alone && e.together == 1 => Err(Stop::Failed(Text::new(format_args!(
                "an earlier test left the nodes out of step"
            )))),
            Some(e) => (e.run)(&cx),
        };
        if !alone && cx.quiesce().is_err() {
            alone = true;
        }
        match outcome {
            Ok(Some(remark)) => note::<P>(name, "ok", format_args!("{remark}")),
            Ok(None) => note::<P>(name, "ok", format_args!("")),
            Err(Stop::Skipped(why)) => note::<P>(name, "skipped", format_args!("{why}")),
            Err(Stop::Failed(why)) => {
                failures.fetch_add(1, Ordering::AcqRel);
                note::<P>(name, "failed", format_args!("{why}"));
            }
        }
    }
    let _ = cx.machine.barrier();
    let failed = failures.load(Ordering::Acquire) != 0;
    shutdown::shut_down::<P>(node, if failed { EXIT_FAILED } else { EXIT_OK });
}

/// Runs one test on this node.
#[cfg(test)]
pub fn run_here<P: Platform>(
    node: &'static Node,
    test: impl FnOnce(&TestCtx<'_>) -> Outcome,
) -> Outcome {
    let machine = Of::<P>(PhantomData);
    test(&TestCtx {
        node,
        machine: &machine,
    })
}

fn note<P: Platform>(name: &str, state: &str, detail: fmt::Arguments<'_>) {
    record::<P>(
        "ktest",
        &[
            ("name", Value::Text(format_args!("{name}"))),
            ("state", Value::Text(format_args!("{state}"))),
            ("detail", Value::Text(detail)),
        ],
    );
}
