//! The walker that compares all tables, in the kernel.

use super::rig::Rig;
use super::{Outcome, ensure, ktest, remark};
use dyad_audit::{Fault, walk};

/// What the walker finds: how many faults, and the first.
fn faults(k: &dyad_machine::kernel_ctx::KernelCtx) -> (u64, u64, Option<Fault>) {
    let mut first = None;
    let sum = walk(k, &mut |fault| first = first.or(Some(fault)));
    (sum.references, sum.faults, first)
}

/// Every node has a component of its own; the first one compares everything, twice: as it is, and with
/// a reference too many.
#[ktest(pair)]
fn all_tables_agree_while_nothing_goes_on(rig: &Rig<'_>) -> Outcome {
    let frame = rig.user()?;
    rig.cx.meet()?;
    let mut found = None;
    if rig.cx.node.id().index() == 0 {
        let sound = faults(&rig.k);
        let one = dyad_retype::Order::FRAME;
        let head = rig.k.frames().pin_user(frame, one)?;
        let damaged = faults(&rig.k);
        rig.k.frames().unpin(head)?;
        found = Some((sound, damaged));
    }
    // The others wait until this node has looked.
    rig.cx.meet()?;
    let Some(((references, faults, first), (_, more, second))) = found else {
        return Ok(None);
    };
    if let Some(fault) = first {
        ensure!(false, "{faults} faults, the first: {fault}");
    }
    ensure!(references > 0, "nothing refers to anything");
    let expected = Fault::References {
        head: frame.frame,
        recorded: 1,
        found: 0,
    };
    ensure!(
        more == 1 && second == Some(expected),
        "{more} faults instead of one: {second:?}"
    );
    remark!("{references} references")
}
