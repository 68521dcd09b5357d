//! Where a thread that no CPU runs may continue: the one check behind `Resume` and `StartCpu`.
//!
//! | the thread | condition for continuing at a node |
//! |---|---|
//! | has registers on an ISA | the node has that ISA, and the registers were not lost with a node |
//! | changes its node | its component may run there, and the thread is in no invocation |
//! | any | the node is live |
//!
//! | step | order |
//! |---|---|
//! | [`take`]; [`can_go_on`]; READY elsewhere, or [`untake`] | the check runs while the thread is taken: a ready thread that ran in between could have entered a service |

use core::sync::atomic::Ordering;

use dyad_abi::cap::Woken;
use dyad_abi::{Error, Isa, NodeId, Result};

use super::wait::tell_scheduler;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::component::Component;
use dyad_object::follow;
use dyad_object::thread::{Owner, State, Thread, begun};

/// Takes a thread that no CPU runs, if its owner word is still `owner`. Every other operation on the thread
/// is refused until the owner word changes again. If this node dies before that, recovery stops the thread
/// for good: it can only be configured anew.
pub fn take(cx: &KernelCtx, t: &Thread, owner: Owner) -> Option<Owner> {
    let taken = owner.passed(cx.node.id(), cx.node.incarnation(), State::Changing);
    t.change(cx.words(), owner, taken).then_some(taken)
}

/// Restores the owner word of a thread that [`take`] has taken. The scheduler of a ready thread is told,
/// because a dispatch may have been refused meanwhile.
///
/// # Errors
///
/// [`Error::Corrupt`] if the owner word has changed: only a recovery that takes this node for dead changes
/// it.
pub fn untake<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    taken: Owner,
    owner: Owner,
) -> Result<()> {
    let back = Owner {
        seq: taken.seq,
        ..owner
    };
    if !t.change(cx.words(), taken, back) {
        return Err(Error::Corrupt);
    }
    if owner.state == State::Ready {
        let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
    }
    Ok(())
}

/// Whether a thread can continue at `node`. The caller has taken the thread, and `owner` is its earlier owner
/// word. Returns the incarnation of the node for the next owner word: recovery of the node finds the thread
/// by it if the node dies from here on.
///
/// # Errors
///
/// [`Error::NodeDead`] if the thread's registers for that ISA were lost, or the node is not live;
/// [`Error::NoIsa`] if the thread has live state on another ISA; [`Error::TooDeep`] if it would change its
/// node within an invocation; [`Error::Denied`] if its component may not run there.
pub fn can_go_on(cx: &KernelCtx, t: &Thread, owner: &Owner, node: NodeId) -> Result<u32> {
    let (isa, was) = (cx.node.isa(node), cx.node.isa(owner.node));
    if t.begun(isa) == begun::LOST {
        return Err(Error::NodeDead);
    }
    // It may have been on another ISA than its owner's, if that node has taken it over from a node that died.
    let elsewhere = Isa::ALL.iter().any(|&i| t.begun(i) == begun::HERE);
    if (isa != was && t.begun(was) == begun::HERE) || (t.begun(isa) != begun::HERE && elsewhere) {
        return Err(Error::NoIsa);
    }
    if node != owner.node {
        if t.is_invoking() && !lacks!("dispatch::place::can_go_on::depth") {
            return Err(Error::TooDeep);
        }
        if !lacks!("dispatch::place::can_go_on::home") {
            may_run_on(cx, t, node)?;
        }
    }
    let word = cx.node.word_of(node);
    if !word.state.is_live() {
        return Err(Error::NodeDead);
    }
    Ok(word.incarnation)
}

/// Whether a thread's component may run on a node. A thread whose component is gone may go anywhere: it ends
/// there.
///
/// # Errors
///
/// [`Error::Denied`].
pub fn may_run_on(cx: &KernelCtx, t: &Thread, node: NodeId) -> Result<()> {
    let word = t.component.load(Ordering::Relaxed);
    match follow::<Component>(cx.node, word, Component::KIND) {
        Ok((c, _)) if !c.parts(cx.words()).runs_on(node) => Err(Error::Denied),
        _ => Ok(()),
    }
}
