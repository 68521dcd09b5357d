//! Operations on capability tables, liveness entries, endpoints, budgets and components.

use dyad_abi::cap::{CapIndex, LEAF_SLOTS, ObjectKind, Rights};
use dyad_abi::service::slot;
use dyad_abi::{Isa, Result};
use dyad_sys::cap::{Cap, Captbl, Component, Liveness, Narrow, Time};

use crate::stock::{ENDPOINTS, HOME, Stock, TABLE};
use crate::{operation, succeed};

const OWN: u64 = (slot::TABLE.get() as u64) << 32;
/// Where the leaf for measurements hangs.
const ENTRY: u32 = 300;

/// Performs every operation on tables, entries, endpoints, budgets and components.
pub fn run(stock: &mut Stock) -> Result<()> {
    let liveness: Cap<Liveness> = stock.object(ObjectKind::Liveness)?;
    let leaf: Cap<Captbl> = stock.object(ObjectKind::CaptblLeaf)?;
    let root: Cap<Captbl> = stock.object(ObjectKind::CaptblRoot)?;
    succeed!(
        Captbl,
        CaptblOp::Cons,
        TABLE,
        ENTRY.into(),
        leaf.index().get().into()
    );
    let guard = u64::from(liveness.guard(511).bits()) << 32;
    let rights = u64::from(Rights::ALL.0) | guard;
    for n in 0..LEAF_SLOTS {
        // The first is of a capability without guard, the others are of guarded ones, which get none.
        let (to, from, how) = match n {
            0 => (0, slot::memory(8), rights),
            _ => (n, CapIndex(ENTRY * LEAF_SLOTS), Rights::ALL.0.into()),
        };
        let to = u64::from(ENTRY * LEAF_SLOTS + to);
        succeed!(
            Captbl,
            CaptblOp::CopyIn,
            TABLE,
            to,
            from.get().into(),
            how,
            0,
            1
        );
        if n == 0 {
            succeed!(Captbl, CaptblOp::Read, TABLE, to);
        }
    }
    for n in 0..LEAF_SLOTS {
        let at = u64::from(ENTRY * LEAF_SLOTS + n);
        if n % 2 == 0 {
            succeed!(Captbl, CaptblOp::Deactivate, TABLE, at);
        }
    }
    succeed!(Liveness, LivenessOp::Revoke, liveness, 511);
    succeed!(Captbl, CaptblOp::Decons, TABLE, ENTRY.into());
    endpoints(stock)?;
    budgets(stock)?;
    components(stock, root)
}

fn endpoints(stock: &mut Stock) -> Result<()> {
    let to = stock.slot()?.index();
    succeed!(
        Receive,
        ReceiveOp::MakeSend,
        ENDPOINTS,
        60,
        OWN | u64::from(to.get()),
        u64::MAX >> 1
    );
    succeed!(
        Receive,
        ReceiveOp::Bind,
        ENDPOINTS,
        60,
        u64::from(HOME.index() as u32)
    );
    let send: Cap<dyad_sys::cap::Send> = Cap::at(to);
    succeed!(Send, SendOp::Send, send);
    succeed!(Receive, ReceiveOp::Receive, ENDPOINTS, 60, 1);
    // Of another node, which is told.
    let one = 1;
    succeed!(Receive, ReceiveOp::Bind, ENDPOINTS, 61, one);
    let far = ENDPOINTS.make_send(61, stock.slot()?, 1)?;
    succeed!(Send, SendOp::Send, far);
    Ok(())
}

fn budgets(stock: &mut Stock) -> Result<()> {
    let from: Cap<Time> = stock.object(ObjectKind::Time)?;
    let to: Cap<Time> = stock.object(ObjectKind::Time)?;
    succeed!(Time, TimeOp::Read, from);
    succeed!(
        Time,
        TimeOp::Transfer,
        Cap::<Time>::at(slot::TIME),
        to.index().get().into(),
        1_000_000
    );
    succeed!(Time, TimeOp::Read, to);
    Ok(())
}

fn components(stock: &mut Stock, root: Cap<Captbl>) -> Result<()> {
    let component: Cap<Component> = stock.object(ObjectKind::Component)?;
    let space = stock.space()?;
    let configure = |root: Cap<Captbl>| {
        succeed!(
            Component,
            ComponentOp::Configure,
            component,
            root.index().get().into(),
            space.index().get().into()
        );
    };
    configure(root);
    // What it had is given back.
    configure(stock.object(ObjectKind::CaptblRoot)?);
    let to = u64::from(stock.slot()?.index().get());
    succeed!(
        Component,
        ComponentOp::MakeSinv,
        component,
        OWN | to,
        0x4100_0000,
        1,
        Rights::ALL.0.into()
    );
    succeed!(Component, ComponentOp::SetFaultHandler, component, to);
    succeed!(Component, ComponentOp::SetHome, component, 0b11);
    let _ = (Isa::ALL, Narrow::ALL);
    let _ = operation!(Component, ComponentOp::SetFaultHandler, component, 0);
    Ok(())
}
