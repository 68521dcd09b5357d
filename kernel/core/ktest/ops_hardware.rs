//! Operations on a node's hardware; what a CPU looks up anew in a round.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, CapType, HardwareOp, ObjectKind, ReceiveOp, Rights, SendOp};
use dyad_abi::clock::{KernelCounter, SimCounter};
use dyad_abi::user::{USER_END, Where};
use dyad_abi::{Error, NodeId};
use dyad_shm::superblock::NodeState;

use super::rig::{self, Rig, all_but, needs_its_right};
use super::{Outcome, Stop, ensure, gives, ktest, spaces};
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::thread::State;

const FLUSH: u32 = HardwareOp::FlushStep as u32;
const TLB: u32 = HardwareOp::FlushTlb as u32;
const ATTACH: u32 = HardwareOp::AttachIrq as u32;
const NOW: u32 = HardwareOp::Now as u32;
const WRITE: u32 = HardwareOp::Write as u32;
const REPORT: u32 = HardwareOp::Report as u32;
const START: u32 = HardwareOp::StartCpu as u32;
const QUIESCED: u32 = HardwareOp::Quiesced as u32;
const WHERE: u32 = HardwareOp::Where as u32;
const STATE: u32 = HardwareOp::NodeState as u32;
const COUNT: u32 = HardwareOp::Count as u32;
const INSIDE: u32 = HardwareOp::Inside as u32;

fn hardware(rig: &Rig<'_>, node: NodeId) -> Result<CapIndex, Stop> {
    let payload = [node.index() as u64, 0, 0];
    Ok(rig.put(CapType::Hardware, Rights::ALL, None, payload)?)
}

fn n(cap: CapIndex) -> u64 {
    cap.get() as u64
}

#[ktest(ops)]
fn time_and_place_are_told_everywhere(rig: &Rig<'_>) -> Outcome {
    for node in rig.cx.node.all() {
        let h = hardware(rig, node)?;
        let a = rig.sys(h, NOW, &[])?;
        let b = rig.sys(h, NOW, &[])?;
        ensure!(a <= b, "time goes back from {a} to {b}");
        let w = Where::unpack(rig.sys(h, WHERE, &[])?);
        let here = Where {
            node: rig.cx.node.id(),
            cpu: rig.k.cpu(),
            isa: rig.cx.machine.isa(),
        };
        gives!(w, Some(here));
    }
    Ok(None)
}

#[ktest(ops)]
fn states_of_nodes_are_told_of_those_there_are(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let h = hardware(rig, cx.node.id())?;
    for node in cx.node.all() {
        let is = rig.sys(h, STATE, &[node.index() as u64])?;
        gives!(is & 0xff, NodeState::Live as u64);
        gives!(is >> 32, cx.node.word_of(node).incarnation as u64);
    }
    let count = cx.node.params.node_count as u64;
    for bad in [count, 8, u64::MAX] {
        gives!(rig.sys(h, STATE, &[bad]), Err(Error::NoSuchNode));
    }
    Ok(None)
}

/// With the simulator off there is nothing to be read; with it, what is read grows as instructions are
/// executed.
#[ktest(ops)]
fn counters_of_the_simulator_grow_or_are_not_there(rig: &Rig<'_>) -> Outcome {
    let h = hardware(rig, rig.cx.node.id())?;
    for counter in KernelCounter::ALL {
        let before = rig.sys(h, COUNT, &[counter as u64])?;
        ensure!(
            rig.sys(h, COUNT, &[counter as u64])? >= before,
            "{counter:?} falls"
        );
    }
    for bad in [SimCounter::ALL.len() as u64, 66, 1 << 16, u64::MAX] {
        gives!(rig.sys(h, COUNT, &[bad]), Err(Error::BadArgument));
    }
    let read = || rig.sys(h, COUNT, &[SimCounter::Instructions as u64]);
    match read() {
        Err(Error::NotReady) => {
            ensure!(
                !dyad_machine::fused::is_on(),
                "there is a plugin, and it counts nothing"
            );
        }
        Ok(_) => {
            // What the kernel remembers makes later reads shorter than the first. All are made by
            // the same instructions: the loop is not unrolled.
            let mut reads = [0; 5];
            for i in 0..core::hint::black_box(reads.len()) {
                reads[i] = read()?;
            }
            let [_, _, first, second, third] = reads;
            ensure!(
                first < second && second - first < 100_000,
                "{first} instructions, then {second}"
            );
            // The way through the kernel is the same but for a few instructions, which depend on
            // values.
            let (one, other) = (second - first, third - second);
            ensure!(
                one.abs_diff(other) <= 16,
                "{one} instructions, then {other}"
            );
        }
        other => gives!(other, Ok(0)),
    }
    Ok(None)
}

#[ktest(ops)]
fn hardware_of_other_nodes_is_not_touched_from_here(rig: &Rig<'_>) -> Outcome {
    let h = hardware(rig, rig.cx.next())?;
    for op in [FLUSH, TLB, ATTACH, WRITE, REPORT] {
        gives!(rig.sys(h, op, &[1, 0]), Err(Error::NotReady));
    }
    Ok(None)
}

#[ktest(ops)]
fn operations_on_hardware_need_their_rights(rig: &Rig<'_>) -> Outcome {
    let of = (
        CapType::Hardware,
        None,
        [rig.cx.node.id().index() as u64, 0, 0],
    );
    for &op in HardwareOp::ALL {
        needs_its_right(rig, of, op as u32, &[0, 0])?;
    }
    let h = hardware(rig, rig.cx.node.id())?;
    let end = HardwareOp::Shutdown as u32;
    let its = [
        FLUSH, TLB, ATTACH, NOW, WRITE, REPORT, START, QUIESCED, WHERE, STATE, COUNT, INSIDE, end,
    ];
    ensure!(its.len() == HardwareOp::ALL.len(), "one is missing");
    rig::has_no_other_operations(rig, h, &its)?;
    gives!(rig.cx.node.sb.shutdown.load(Ordering::Relaxed), 0);
    Ok(None)
}

#[ktest(ops)]
fn interrupts_go_to_sending_ends(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let h = hardware(rig, cx.node.id())?;
    let (ends, object) = rig.new_cap(ObjectKind::Endpoints)?;
    let payload = [4, 0x10, 0];
    let to = rig.put(CapType::Send, Rights::ALL, Some(object), payload)?;
    gives!(rig.sys(h, ATTACH, &[64, n(to)]), Err(Error::BadArgument));
    gives!(
        rig.sys(h, ATTACH, &[u64::MAX, n(to)]),
        Err(Error::BadArgument)
    );
    gives!(rig.sys(h, ATTACH, &[5, n(ends)]), Err(Error::WrongCap));
    let none = n(rig.free_slot());
    gives!(rig.sys(h, ATTACH, &[5, none]), Err(Error::NoCap));
    let mute = all_but(SendOp::Send as u32);
    let mute = rig.put(CapType::Send, mute, Some(object), payload)?;
    gives!(rig.sys(h, ATTACH, &[5, n(mute)]), Err(Error::Denied));
    gives!(rig.sys(h, ATTACH, &[5, n(to)]), Ok(0));
    let target = *cx.node.interrupts[5].lock();
    gives!(target, Some((object, 4, 0x10)));
    let posted = cx.machine.post(&rig.k, object, 4, 0x10);
    gives!(posted, Ok(()));
    let now = crate::syscall::ops::endpoint::NOW;
    let got = rig.sys(ends, ReceiveOp::Receive as u32, &[4, now]);
    gives!(got, Ok(0x10));
    gives!(rig.sys(h, ATTACH, &[5, 0]), Ok(0));
    gives!(*cx.node.interrupts[5].lock(), None);
    Ok(None)
}

#[ktest(ops)]
fn cpus_are_started_with_threads_that_do_not_run(rig: &Rig<'_>) -> Outcome {
    let h = hardware(rig, rig.cx.node.id())?;
    let cpus = rig.cx.node.params.cpus as u64;
    let object = rig.thread_of(rig.component, State::Stopped)?;
    let t = rig.cap(ObjectKind::Thread, object, Rights::ALL)?;
    for bad in [cpus, 8, u64::MAX] {
        gives!(rig.sys(h, START, &[bad, n(t)]), Err(Error::BadArgument));
    }
    gives!(rig.sys(h, START, &[0, n(h)]), Err(Error::WrongCap));
    gives!(
        rig.sys(h, START, &[0, n(rig.free_slot())]),
        Err(Error::NoCap)
    );
    for state in [State::None, State::Running, State::Blocked, State::Transit] {
        let busy = rig.thread_of(rig.component, state)?;
        let t = rig.cap(ObjectKind::Thread, busy, Rights::ALL)?;
        gives!(rig.sys(h, START, &[0, n(t)]), Err(Error::NotReady));
    }
    gives!(rig.sys(h, START, &[0, n(t)]), Ok(0));
    gives!(rig.state(object), Some(State::Ready));
    gives!(rig.cx.node.roots[0].load(Ordering::Relaxed), object.bits());
    Ok(None)
}

#[ktest(ops)]
fn text_from_bad_addresses_is_not_written(rig: &Rig<'_>) -> Outcome {
    spaces::furnish(rig, rig.space)?;
    let h = hardware(rig, rig.cx.node.id())?;
    for at in [0, 0x5000_0000, USER_END - 1, USER_END, 1 << 63, u64::MAX] {
        gives!(rig.sys(h, WRITE, &[at, 64]), Err(Error::BadAddress));
        gives!(rig.sys(h, REPORT, &[at]), Err(Error::BadAddress));
    }
    gives!(rig.sys(h, WRITE, &[0, 0]), Ok(0));
    Ok(None)
}

#[ktest(ops)]
fn flush_steps_end_in_a_published_epoch(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let h = hardware(rig, rig.cx.node.id())?;
    let published = || rig.k.epochs().publication(rig.cx.node.id()).epoch().get();
    for _ in 0..3 {
        let before = published();
        let mut calls = 0;
        let epoch = loop {
            calls += 1;
            match rig.sys(h, FLUSH, &[16]) {
                // Another CPU of this node is at it.
                Ok(0) | Err(Error::Again) => {}
                other => break other?,
            }
            ensure!(calls < 100_000, "the round does not end");
        };
        ensure!(epoch > before, "epoch {epoch} after {before}");
        gives!(published(), epoch);
    }
    Ok(None)
}

#[ktest(ops)]
fn quiesced_is_asked_about_stamps(rig: &Rig<'_>) -> Outcome {
    let h = hardware(rig, rig.cx.node.id())?;
    let now = rig.k.epochs().now().get();
    // No node has published an epoch that is to come.
    gives!(rig.sys(h, QUIESCED, &[now]), Ok(0));
    gives!(rig.sys(h, QUIESCED, &[u64::MAX]), Err(Error::BadArgument));
    gives!(rig.sys(h, TLB, &[]), Ok(0));
    Ok(None)
}

/// The table that a component had before may be reused after a round: no CPU goes on with it.
#[ktest(ops)]
fn rounds_make_cpus_use_the_present_table_of_their_component(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let c: &Component = find(rig.cx.node, rig.component, Component::KIND)?;
    crate::syscall::ops::component::set_parts(&rig.k, c, root, rig.space)?;
    gives!(rig.k.local.captbl.get(), rig.root.frame.address());
    rig.round()?;
    gives!(rig.k.local.captbl.get(), root.frame.address());
    ensure!(rig.runs(rig.thread), "the thread is gone");
    Ok(None)
}

/// The same for address spaces that have lost their root.
#[ktest(ops)]
fn rounds_make_cpus_leave_spaces_without_a_root(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    rig.round()?;
    gives!(rig.k.local.space.get(), rig.space.bits());
    spaces::within(&rig.k, rig.space)?.unlink_root(rig.cx.machine.isa())?;
    rig.round()?;
    gives!(rig.k.local.space.get(), 0);
    gives!(rig.k.local.component.get(), 0);
    Ok(None)
}

#[ktest(ops)]
fn rounds_make_cpus_leave_components_that_are_gone(rig: &Rig<'_>) -> Outcome {
    rig.rooted()?;
    crate::syscall::ops::memory::to_untyped(&rig.k, rig.component.frame)?;
    rig.round()?;
    gives!(rig.k.local.space.get(), 0);
    gives!(rig.k.local.component.get(), 0);
    Ok(None)
}
