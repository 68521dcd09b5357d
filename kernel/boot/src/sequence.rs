//! From the first Rust code of the image to a live node.
//!
//! ```text
//! parameters → superblock → roots → claim → rings → CPUs → clock → LIVE → all there → self-test
//!   → program or in-kernel tests → run loop
//! ```
//! Every wait is bounded; a node that cannot go on says why and exits with
//! [`EXIT_BOOT`].

use core::fmt;
use dyad_abi::boot::{BootMode, BootParams};
use dyad_abi::record::{EXIT_BOOT, name};
use dyad_abi::{ABI_VERSION, CpuId};
use dyad_shm::FusedMap;
use dyad_shm::superblock::activity;

use dyad_core::run_loop::{self, shutdown};
use dyad_core::sched::quiet;
use dyad_machine::console::{check, phase};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, console, error, inbox, info};
use dyad_object::node::{self, Node, node};

use crate::join::JoinError;
use crate::{join, selftest, start};

/// The facts that the machine has found before the kernel proper starts.
pub struct BootMachine {
    /// Boot parameters as read from the firmware configuration.
    pub params: BootParams<'static>,
    /// The pools, mapped.
    pub map: FusedMap,
    /// The in-kernel tests in the image.
    #[cfg(feature = "ktest")]
    pub ktests: &'static [dyad_core::ktest::Entry],
}

/// Ends this machine because it cannot boot. A failed check tells the launcher the reason; the other nodes
/// notice by their own bounds, or because the launcher stops them.
pub fn refuse<P: Platform>(why: fmt::Arguments<'_>) -> ! {
    error!(P, "{why}");
    check::<P>(name::BOOT, false, why);
    shutdown::exit::<P>(EXIT_BOOT, why)
}

/// The first CPU: boots the node and runs it.
pub fn primary<P: Platform>(machine: BootMachine) -> ! {
    clock::set(P::clock_ns(), clock::FusedTime(0));
    let node = match node::init(machine.params, machine.map) {
        Ok(node) => node,
        Err(e) => refuse::<P>(format_args!(
            "the pools have no room for the system's tables: {e}"
        )),
    };
    info!(
        P,
        "node {} of {}, {}, {} CPUs, ABI version {ABI_VERSION}",
        node.id(),
        node.params.node_count,
        P::ISA,
        node.params.cpus
    );
    if !node.words.is_coherent() {
        info!(
            P,
            "caches are not coherent: shared words are written back and invalidated"
        );
    }
    phase::<P>("joining");
    match join_system::<P>(node) {
        Ok(()) => {}
        // It was started again too late to be of use.
        Err(e @ JoinError::Ended { code }) => shutdown::exit::<P>(code, format_args!("{e}")),
        Err(e) => refuse::<P>(format_args!("{e}")),
    }
    phase::<P>("self-test");
    self_test::<P>(node);
    phase::<P>("running");
    P::local()
        .look_after_others
        .set(Some(dyad_recovery::look_after_others::<P>));
    match node.params.mode {
        BootMode::App => start_program::<P>(node),
        #[cfg(feature = "ktest")]
        BootMode::Ktest => dyad_core::ktest::run_all::<P>(node, machine.ktests),
        #[cfg(not(feature = "ktest"))]
        BootMode::Ktest => refuse::<P>(format_args!(
            "this kernel was built without in-kernel tests"
        )),
    }
    run_loop::run::<P>()
}

/// Takes this node's place in the system. The order is that of the states in [`crate::join`]; what has
/// to come before what:
///
/// - sending ends before CPUs, which share them; receiving ends are each CPU's own;
/// - log and publication (row join of the protocol) before LIVE: from then on others wait for this
///   node's rounds.
fn join_system<P: Platform>(node: &'static Node) -> Result<(), JoinError> {
    let first = join::superblock::<P>(node)?;
    join::roots::<P>(node)?;
    let incarnation = join::claim::<P>(node, P::doorbell_id())?;
    inbox::attach_outboxes(node);
    inbox::attach_inboxes(node, P::local());
    inbox::attentive::<P>();
    start_cpus::<P>(node);
    let trip = if first {
        0
    } else {
        join::sync_clock::<P>(node)?
    };
    quiet::attach(&KernelCtx::here::<P>());
    // The one thing that can fail there.
    quiet::join::<P>(&KernelCtx::here::<P>()).map_err(|_| JoinError::EpochsExhausted)?;
    join::live(node);
    info!(
        P,
        "joined as incarnation {incarnation}, doorbell {}, clock round trip {trip} ns",
        P::doorbell_id()
    );
    phase::<P>("waiting for all nodes");
    join::wait_for_all::<P>(node)
}

/// Starts the other CPUs, one after the other: on x86-64 they come up through the same trampoline. Each
/// says that it is up by its activity.
fn start_cpus<P: Platform>(node: &'static Node) {
    for cpu in CpuId::first(node.params.cpus).skip(1) {
        if let Err(why) = P::start_cpu(cpu) {
            refuse::<P>(format_args!("CPU {cpu} cannot be started: {why}"));
        }
        let up = clock::wait_until::<P>(node.boot_limit(), || {
            let word = &node.sb.cpu(node.id(), cpu).activity;
            node.words.read(word) != activity::OFFLINE
        });
        if !up {
            refuse::<P>(format_args!("CPU {cpu} did not come up"));
        }
    }
}

/// The entry of another CPU of the machine.
pub fn secondary<P: Platform>() -> ! {
    inbox::attach_inboxes(node(), P::local());
    let cx = KernelCtx::here::<P>();
    quiet::attach(&cx);
    quiet::wake(&cx);
    inbox::attentive::<P>();
    console::log::<P>(
        dyad_abi::record::Level::Debug,
        format_args!("CPU {} is up", P::cpu()),
    );
    run_loop::run::<P>()
}

/// Runs the self-test, unless this node comes back: the other nodes are past it and would not take part.
fn self_test<P: Platform>(node: &'static Node) {
    if node.words.read(&node.sb.self_test) == 1 {
        info!(P, "self-test: passed before this node joined again");
        check::<P>(
            name::SELF_TEST,
            true,
            format_args!("passed by an earlier incarnation"),
        );
        return;
    }
    let r = selftest::run::<P>(node);
    let detail = format_args!(
        "{} operations of each kind by {} nodes; fetch-and-add counted {}, compare-and-swap {}; \
         {} chunks overlapped",
        r.expected, node.params.node_count, r.added, r.swapped, r.overlaps
    );
    if !r.ok() {
        let why = if !r.complete {
            "self-test: not every node took part"
        } else if r.overlaps == 0 {
            "self-test: no other node made progress meanwhile, so nothing was shown"
        } else {
            "self-test: atomic operations are not atomic between the machines; QEMU must run with \
             multi-threaded TCG and maxcpus of at least 2"
        };
        error!(P, "{why} ({detail})");
        check::<P>(name::SELF_TEST, false, format_args!("{why} ({detail})"));
        shutdown::exit::<P>(EXIT_BOOT, format_args!("boot self-test failed"));
    }
    check::<P>(name::SELF_TEST, true, detail);
    node.words.replace(&node.sb.self_test, 1);
}

fn start_program<P: Platform>(node: &'static Node) {
    // Node 0 starts the program, once per system, however often it joins.
    if node.id().index() != 0 || node.words.read(&node.sb.program) != 0 {
        return;
    }
    if node.params.bundle_len == 0 {
        refuse::<P>(format_args!("there is no archive of programs"));
    }
    match start::init::<P>(&KernelCtx::here::<P>()) {
        Ok(()) => {}
        Err(e) => refuse::<P>(format_args!("program {:?}: {e}", node.params.app)),
    }
}
