//! How a run ends: the program exits, the launcher asks for a stop, or a node cannot go on.
//!
//! ```text
//! program exits on some CPU ─▶ space destroyed ─▶ shutdown word := code + 1 ─▶ all nodes notified
//!   ─▶ each node's first CPU: counters, checks, LEFT, exit
//! ```
//! A stop request of the launcher (another node died, time is up, Ctrl-C) is answered with a
//! `status` record of every CPU.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::CpuId;
use dyad_abi::record::EXIT_STOPPED;
use dyad_shm::superblock::{NodeState, NodeWord, control};

use crate::clock;
use crate::console::{self, Value, counter, record};
use crate::cpu::CpuLocal;
use crate::node::Node;
use crate::{Platform, inbox};

/// Whether the launcher wants all nodes to report and stop.
pub fn stop_requested(node: &Node) -> bool {
    node.sb.control.load(Ordering::Acquire) == control::REPORT_AND_STOP
}

/// Reports what this CPU is doing; the first CPU then ends the machine.
pub fn stop<P: Platform>(node: &'static Node, local: &CpuLocal) -> ! {
    if !local.stop_reported.replace(true) {
        status::<P>(node, local);
        node.reported.fetch_add(1, Ordering::AcqRel);
    }
    if local.id().index() != 0 {
        loop {
            P::relax();
        }
    }
    clock::wait_until::<P>(300_000_000, || {
        node.reported.load(Ordering::Acquire) >= node.params.cpus as u64
    });
    console::flush_user::<P>();
    exit::<P>(EXIT_STOPPED, format_args!("stopped by the launcher"))
}

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
                            crate::dispatch::describe_root(node, local)
                        )),
                    ),
                ],
            );
        }
    }
}

/// Ends the machine.
pub fn exit<P: Platform>(code: u32, reason: fmt::Arguments<'_>) -> ! {
    if let Some(node) = crate::node::try_node()
        && node.incarnation() != 0
    {
        let word = NodeWord {
            state: NodeState::Left,
            incarnation: node.incarnation(),
        };
        node.entry().state.store(word.bits(), Ordering::Release);
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

/// Tells all nodes to end in good order, once.
pub fn shut_down<P: Platform>(node: &'static Node, code: u32) {
    let _ =
        node.sb
            .shutdown
            .compare_exchange(0, code as u64 + 1, Ordering::AcqRel, Ordering::Relaxed);
    for n in node.all() {
        for cpu in CpuId::first(1) {
            inbox::notify::<P>(n, cpu);
        }
    }
}

/// Ends this node in good order: the shutdown word is set.
pub fn finish<P: Platform>(node: &'static Node) -> ! {
    console::flush_user::<P>();
    let sum = |f: fn(&dyad_shm::superblock::CpuEntry) -> u64| -> u64 {
        CpuId::first(node.params.cpus)
            .map(|c| f(node.sb.cpu(node.id(), c)))
            .sum()
    };
    counter::<P>(
        "migrations",
        node.entry().migrations.load(Ordering::Relaxed),
    );
    counter::<P>("doorbells_rung", sum(|c| c.rung.load(Ordering::Relaxed)));
    let code = node.sb.shutdown.load(Ordering::Acquire).saturating_sub(1) as u32;
    exit::<P>(code, format_args!("orderly shutdown"))
}
