//! How a run ends: the program exits, the launcher asks for a stop, or a node cannot go on.
//!
//! ```text
//! program exits on some CPU ─▶ space destroyed ─▶ shutdown word := code + 1 ─▶ all nodes notified
//!   ─▶ each node's first CPU: counters, checks, LEFT, exit
//! ```
//! The state of a run is one word, `shutdown`: 0 while the run continues, the exit code plus one once it has
//! been ended. A stop request is in another word, `control`, which only the launcher writes.
//!
//! A stop request of the launcher (another node died, time is up, Ctrl-C) is answered with a
//! `status` record of every CPU.
//!
//! | ended by | exit code of the machine |
//! |---|---|
//! | `Shutdown` of a program, the last in-kernel test | the code that was given |
//! | the launcher's stop request | [`EXIT_STOPPED`] |
//! | a node that cannot join (`dyad-boot`) | `EXIT_BOOT` |
//! | a kernel panic ([`mod@dyad_machine::panic`]), which skips all that is described here | `EXIT_PANIC` |
//!
//! | step | order |
//! |---|---|
//! | the shutdown word, by compare-and-swap from 0; then every node is notified | the first code wins; a notified node sees it |
//! | last output, counters and checks; LEFT; the `exit` record; the machine ends | LEFT with release: a node that reads it knows that this node writes nothing shared any more |
//!
//! Every wait here is bounded, and the shutdown continues when the bound is reached. A run that cannot end in
//! good order is ended by the launcher, and its records show how far it has come.
//!
//! | waiter | waits for | at most |
//! |---|---|---|
//! | the first CPU, when it was told to stop | reports of the node's other CPUs | 0.3 s |
//! | the first CPU, before an audit | its node's other CPUs; then the other nodes | 5 s each ([`dyad_audit::at_end`]) |
//!
//! A node that has left stays LEFT, and nothing of it is recovered: it was in no row when it left.
//!
//! With the boot parameter `audit`, all CPUs of a node but the first stop before the node leaves, and the
//! last node to leave compares all tables with each other: no row is under way then.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::CpuId;
use dyad_abi::record::{EXIT_STOPPED, name};
use dyad_shm::superblock::{NodeState, NodeWord, control};

use crate::run_loop::faults;
use dyad_machine::clock;
use dyad_machine::console::{self, Value, counter, record};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::{Platform, inbox};
use dyad_object::node::Node;

/// Whether the launcher wants all nodes to report and stop. Checked in each turn of the run loop, and
/// wherever a node waits for others.
pub fn stop_requested(node: &Node) -> bool {
    is_stop(node.words.read(&node.sb.control))
}

/// Whether a [`control`] word asks all nodes to report and stop.
pub(crate) const fn is_stop(word: u64) -> bool {
    control::command(word) == control::REPORT_AND_STOP
}

/// Reports the state of this CPU; the first CPU then ends the machine. The other CPUs stay here, so that
/// nothing changes that a report has described.
pub fn stop<P: Platform>(node: &'static Node, local: &CpuLocal) -> ! {
    faults::write_all::<P>(node, local);
    console::flush_reports::<P>();
    if !local.stop_reported.replace(true) {
        status::<P>(node, local);
        node.reported.fetch_add(1, Ordering::AcqRel);
    }
    // No thread goes on: the launcher wants the states as they were, and programs that go on would end
    // the run in another way.
    if local.id().index() != 0 {
        loop {
            P::relax();
        }
    }
    // Until all have reported, so that no report is cut off. Bounded, as one CPU may hang: that is what
    // stop requests are often made for.
    clock::wait_until::<P>(300_000_000, || {
        node.reported.load(Ordering::Acquire) >= node.params.cpus as u64
    });
    console::flush_user::<P>();
    exit::<P>(EXIT_STOPPED, format_args!("stopped by the launcher"))
}

/// Writes the `status` record of this CPU: the thread that it runs and where, or what its scheduler waits
/// for. It is all that is visible of a system that hangs, so it includes counts that tell whether the program
/// loops, the kernel loops, or both wait.
fn status<P: Platform>(node: &Node, local: &CpuLocal) {
    let (doorbells, timers, _) = local.interrupt_counts();
    let counts = format_args!(
        "interrupts: {doorbells} doorbell, {timers} timer; {} page faults, {} turns",
        local.faults.get(),
        local.turns.get()
    );
    let cpu = ("cpu", Value::Number(local.id().index() as u64));
    match local.thread.get() {
        Some(t) => {
            let (pc, _) = P::user_pc_fp(t.regs(P::ISA));
            record::<P>(
                "status",
                &[
                    cpu,
                    (
                        "doing",
                        Value::Text(format_args!(
                            "running thread {} of {:?} at pc {pc:#x}; {counts}",
                            t.id.load(Ordering::Relaxed),
                            node.params.app
                        )),
                    ),
                ],
            );
            record::<P>(
                "backtrace",
                &[
                    cpu,
                    ("what", Value::Text(format_args!("user"))),
                    ("pcs", Value::Addresses(&[pc])),
                ],
            );
        }
        None => {
            record::<P>(
                "status",
                &[
                    cpu,
                    (
                        "doing",
                        Value::Text(format_args!(
                            "idle, {}; {counts}",
                            crate::sched::dispatch::describe_root(node, local)
                        )),
                    ),
                ],
            );
        }
    }
}

/// Ends the machine. The node word comes first, then the record, which is the last thing that the launcher
/// reads of this machine: after it, the launcher may read the shared memory.
pub fn exit<P: Platform>(code: u32, reason: fmt::Arguments<'_>) -> ! {
    // Before it has joined, it has nothing to leave; and there may be no superblock to write to.
    if let Some(node) = dyad_object::node::try_node()
        && node.incarnation() != 0
    {
        let word = NodeWord {
            state: NodeState::Left,
            incarnation: node.incarnation(),
        };
        node.words.replace(&node.entry().state, word.bits());
    }
    record::<P>(
        "exit",
        &[
            ("code", Value::Number(code as u64)),
            ("reason", Value::Text(reason)),
        ],
    );
    P::exit(code)
}

/// Tells all nodes to end in good order. Only the first call has an effect, whatever the code of later ones.
pub fn shut_down<P: Platform>(node: &'static Node, code: u32) {
    let _ = node.words.exchange(&node.sb.shutdown, 0, code as u64 + 1);
    // Each is rung out of sleep, or out of user code. A node that is not told, because it joins
    // just now, finds the word by itself. The first CPU of a node ends it. The others are told only
    // if they have to stop before that.
    for n in node.all() {
        let cpus = if node.params.audit {
            node.params.cpus
        } else {
            1
        };
        for cpu in CpuId::first(cpus) {
            inbox::notify::<P>(n, cpu);
        }
    }
}

/// Keeps a CPU that is not the first of its node idle until the machine ends. The CPU is between two rows,
/// and its earlier rows are complete, as the audit requires.
pub(crate) fn park<P: Platform>(node: &'static Node, local: &CpuLocal) -> ! {
    faults::write_all::<P>(node, local);
    node.reported.fetch_add(1, Ordering::AcqRel);
    while !stop_requested(node) {
        P::relax();
    }
    stop::<P>(node, local)
}

/// Ends this node in good order after the shutdown word has been set. Called on the first CPU from the run
/// loop: no row of this CPU is open, and no thread of it runs.
pub fn finish<P: Platform>(node: &'static Node) -> ! {
    faults::write_all::<P>(node, P::local());
    console::flush_reports::<P>();
    console::flush_user::<P>();
    if node.params.audit {
        dyad_audit::at_end::<P>(node);
    }
    let words = node.words;
    let rung = CpuId::first(node.params.cpus)
        .map(|c| words.read(&node.sb.cpu(node.id(), c).rung))
        .sum();
    counter::<P>(name::MIGRATIONS, words.read(&node.entry().migrations));
    counter::<P>(name::CROSSINGS, node.crossings.load(Ordering::Relaxed));
    counter::<P>(name::DOORBELLS, rung);
    counter::<P>(name::MESSAGES, inbox::sent(node));
    let code = words.read(&node.sb.shutdown).saturating_sub(1) as u32;
    exit::<P>(code, format_args!("orderly shutdown"))
}
