//! Threads that are stopped within an invocation, and what the service is told of them.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, HardwareOp, ObjectKind, Rights, STOP_GRACE_NS, StopOutcome, ThreadOp,
};
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{Error, Isa};
use dyad_shm::frame::WeakRef;

use super::rig::Rig;
use super::{Outcome, Stop, ensure, gives, ktest};
use dyad_object::ids;
use dyad_object::thread::{State, begun};

const STOP: u32 = ThreadOp::Stop as u32;
const RESUME: u32 = ThreadOp::Resume as u32;
const INSIDE: u32 = HardwareOp::Inside as u32;

/// A thread that is within an invocation of the rig's component, with its capability.
fn invoking(rig: &Rig<'_>, state: State) -> Result<(CapIndex, WeakRef), Stop> {
    let object = rig.thread_of(rig.component, state)?;
    let t = rig.as_thread(object)?;
    t.depth.store(1, Ordering::Relaxed);
    for isa in Isa::ALL {
        t.set_begun(isa, begun::NOT);
    }
    Ok((rig.cap(ObjectKind::Thread, object, Rights::ALL)?, object))
}

#[ktest(ops)]
fn stop_of_a_thread_in_a_service_waits_until_it_leaves(rig: &Rig<'_>) -> Outcome {
    let (cap, object) = invoking(rig, State::Ready)?;
    let t = rig.as_thread(object)?;
    let pending = Ok(StopOutcome::WhenItLeaves as u64);
    gives!(rig.sys(cap, STOP, &[]), pending);
    gives!(rig.state(object), Some(State::Ready));
    gives!(rig.sys(cap, RESUME, &[]), Ok(0));
    gives!(t.stop_asked(), None);
    gives!(rig.sys(cap, RESUME, &[]), Err(Error::NotReady));
    gives!(rig.sys(cap, STOP, &[]), pending);
    gives!(rig.sys(cap, STOP, &[]), pending);
    gives!(
        crate::syscall::ops::memory::to_untyped(&rig.k, object.frame),
        Err(Error::NotReady)
    );
    // The grace period is over; the fused time of a machine that has just started may be less than it.
    while rig.cx.machine.fused_ns() < STOP_GRACE_NS {}
    t.ask_stop(rig.cx.machine.fused_ns() - STOP_GRACE_NS);
    gives!(rig.sys(cap, STOP, &[]), Ok(StopOutcome::Ended as u64));
    gives!(rig.state(object), Some(State::Stopped));
    gives!(rig.sys(cap, STOP, &[]), Ok(StopOutcome::Already as u64));
    gives!(rig.sys(cap, RESUME, &[]), Err(Error::NodeDead));
    crate::syscall::ops::memory::to_untyped(&rig.k, object.frame)?;
    Ok(None)
}

#[ktest(ops)]
fn services_are_told_which_invocations_are_over(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let id = rig.id(0);
    let payload = [cx.node.id().index() as u64, 0, 0];
    let h = rig.put(CapType::Hardware, Rights::ALL, None, payload)?;
    let inside = |token: u64| rig.sys(h, INSIDE, &[token]);
    for bad in [0, id << 8, MAX_THREAD_IDS << 8 | 1, u64::MAX] {
        gives!(inside(bad), Err(Error::BadArgument));
    }
    gives!(inside(id << 8 | 1), Ok(0));
    for state in [
        State::Ready,
        State::Blocked,
        State::Running,
        State::Transit,
        State::Changing,
    ] {
        let (_, object) = invoking(rig, state)?;
        ids::claim(cx.node, id, object)?;
        gives!(inside(id << 8 | 1), Ok(1));
        let known = matches!(state, State::Ready | State::Blocked);
        gives!(inside(id << 8 | 2), Ok(u64::from(!known)));
        rig.as_thread(object)?.depth.store(0, Ordering::Relaxed);
        gives!(inside(id << 8 | 1), Ok(u64::from(!known)));
        ids::release(cx.node, id, object);
    }
    // One that is stopped within the caller's component never goes on there; one that is stopped elsewhere is
    // none of the caller's business.
    let (theirs, ..) = rig.other_component()?;
    for (component, resumed) in [(rig.component, Err(Error::NodeDead)), (theirs, Ok(0))] {
        let (cap, object) = invoking(rig, State::Stopped)?;
        let t = rig.as_thread(object)?;
        t.component.store(component.bits(), Ordering::Relaxed);
        ids::claim(cx.node, id, object)?;
        gives!(inside(id << 8 | 2), Ok(0));
        gives!(t.begun(cx.machine.isa()), begun::NOT);
        gives!(inside(id << 8 | 1), Ok(0));
        gives!(rig.state(object), Some(State::Stopped));
        gives!(rig.sys(cap, RESUME, &[]), resumed);
        ids::release(cx.node, id, object);
    }
    Ok(None)
}
