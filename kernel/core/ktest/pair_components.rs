//! Pair tests of components: one node configures a component while another remembers it, runs in it, and has
//! copies of its words. What was before counts until that node's next round at most; without coherent caches
//! the simulator sees whether it has relied on an old copy.

use dyad_abi::cap::{CapType, ComponentOp, ObjectKind, Rights};
use dyad_abi::{Error, NodeId};
use dyad_shm::frame::WeakRef;

use super::ops_views::{ENTRY, invoke, known, leave, refused};
use super::pair_caps::{show, shown};
use super::rig::{self, Rig};
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest};
use crate::syscall::ops::component::set_parts;
use crate::syscall::slowpath::ENTER;
use dyad_object::component::Component;
use dyad_object::find;

/// Two rounds: whatever the first one found under way, the second one began after it.
fn rounds(rig: &Rig<'_>) -> Result<(), Stop> {
    rig.round()?;
    rig.round()?;
    Ok(())
}

fn component(cx: &TestCtx<'_>, object: WeakRef) -> Result<&'static Component, Error> {
    find(cx.node, object, Component::KIND)
}

/// Gives a component of another node a new, empty table.
fn new_table(cx: &TestCtx<'_>, rig: &Rig<'_>, by: NodeId) -> Result<(), Stop> {
    let theirs = component(cx, shown(cx, 0, by)?)?;
    let root = rig.object(ObjectKind::CaptblRoot)?;
    let space = WeakRef::from_bits(cx.node.words.read(&theirs.space)).ok_or(Error::NotFound)?;
    Ok(set_parts(&rig.k, theirs, root, space)?)
}

/// The rig's component is the running one, with the table it has got from another node; then it has
/// its own again.
fn has_new_table(cx: &TestCtx<'_>, rig: &Rig<'_>) -> Outcome {
    gives!(rig.k.local.component.get(), rig.component.bits());
    let now = rig.k.local.captbl.get();
    let mine = component(cx, rig.component)?;
    let root = WeakRef::from_bits(cx.node.words.read(&mine.captbl)).ok_or(Error::NotFound)?;
    gives!(now, root.frame.address());
    ensure!(root != rig.root, "no node has changed it");
    set_parts(&rig.k, mine, rig.root, rig.space)?;
    rounds(rig)?;
    gives!(rig.k.local.captbl.get(), rig.root.frame.address());
    cx.meet()?;
    Ok(None)
}

#[ktest(pair)]
fn components_run_with_the_table_that_another_node_sets(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    known(rig)?;
    show(cx, 0, rig.component);
    cx.meet()?;
    new_table(cx, rig, cx.next())?;
    cx.meet()?;
    // A round looks at what the running thread runs in.
    rounds(rig)?;
    has_new_table(cx, rig)
}

#[ktest(pair)]
fn components_are_left_for_the_table_that_another_node_sets(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let (callee, sinv) = known(rig)?;
    show(cx, 0, rig.component);
    gives!(invoke(rig, sinv), ENTER);
    cx.meet()?;
    new_table(cx, rig, cx.next())?;
    cx.meet()?;
    rounds(rig)?;
    gives!(rig.k.local.component.get(), callee.bits());
    gives!(leave(rig), ENTER);
    has_new_table(cx, rig)
}

/// A component is entered through an endpoint, which may have a guard, until another node moves it away,
/// and again when it is let in.
fn moves(cx: &TestCtx<'_>, guarded: bool) -> Outcome {
    rig::with(cx, |rig| {
        let (callee, mut sinv) = known(rig)?;
        if guarded {
            let live = rig.object(ObjectKind::Liveness)?;
            let guard = rig.k.captbls().expected(live, 0).map_err(Error::from)?;
            let to = [ENTRY, 5, 0];
            sinv = rig.put_guarded(CapType::Sinv, Rights::ALL, Some(callee), to, Some(guard))?;
            gives!(invoke(rig, sinv), ENTER);
            gives!(leave(rig), ENTER);
        }
        show(cx, 0, callee);
        cx.meet()?;
        let theirs = rig.cap(ObjectKind::Component, shown(cx, 0, cx.next())?, Rights::ALL)?;
        let home = ComponentOp::SetHome as u32;
        let all = (1u64 << cx.node.params.node_count) - 1;
        let elsewhere = all & !(1 << cx.next().index());
        gives!(rig.sys(theirs, home, &[elsewhere]), Ok(0));
        cx.meet()?;
        rounds(rig)?;
        // The thread of this test has no scheduler, so that it cannot cross.
        refused(rig, sinv, Error::NotReady)?;
        cx.meet()?;
        // Who has been sent away looks again.
        gives!(rig.sys(theirs, home, &[0]), Ok(0));
        cx.meet()?;
        gives!(invoke(rig, sinv), ENTER);
        gives!(leave(rig), ENTER);
        cx.meet()?;
        Ok(None)
    })
}

#[ktest(pair)]
fn components_that_another_node_moves_are_not_entered_here(cx: &TestCtx<'_>) -> Outcome {
    moves(cx, false)
}

#[ktest(pair)]
fn guarded_ways_to_components_that_move_lead_nowhere(cx: &TestCtx<'_>) -> Outcome {
    moves(cx, true)
}
