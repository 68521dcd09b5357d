//! Page faults of user threads.
//!
//! Order of attempts: (1) the own table has a fitting translation by now: only the TLB
//! did not know; (2) the region is shared or anonymous and another ISA's table has the page: it is
//! shown in the own table, without any message; (3) the region is anonymous: a zero-filled frame of
//! this node's supply, or of that of the region's home if that lives, goes into every table; (4)
//! otherwise the caller asks the component's fault handler.
//!
//! When two nodes touch the same new page at once, one table decides: that of the lowest-numbered
//! ISA the space has. Its entry is set by CAS; the loser gives its frame back and shows the
//! winner's.
//!
//! Bounds: two walks per ISA, the slots of regions in use, at most seven frames taken from the
//! supply and splits within the [`budget`] for them (see [`crate::supply`]).

use dyad_abi::cap::RegionKind;
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, NodeId, Result};
use dyad_pgtbl::{Leaf, Level, Perms, Pte, PteSlot};
use dyad_retype::Use;
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::NodeWord;

use crate::Platform;
use crate::cpu::CpuLocal;
use crate::kernel_ctx::KernelCtx;
use crate::mapping::{Driver, NotMapped, SpaceCtx, page, resolve_fastpath};
use crate::node::node;
use crate::object::find;
use crate::object::space::{Region, Space};
use crate::platform::FaultKind;
use crate::supply::budget;

/// How a fault was resolved. The thread continues in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The own table had the page already.
    Present,
    /// Another ISA's table had the page.
    Copied,
    /// A new frame has been mapped.
    Filled,
}

/// Whether a leaf allows an access.
pub(crate) fn allows(leaf: &Leaf, kind: FaultKind) -> bool {
    leaf.perms.contains(Perms::USER)
        && match kind {
            FaultKind::Write => {
                leaf.perms.contains(Perms::WRITE) || lacks!("resolve::allows::write")
            }
            FaultKind::Execute => leaf.perms.contains(Perms::EXECUTE),
            _ => true,
        }
}

/// Makes `va` accessible for `kind` in the space that the CPU is in, if its regions permit it.
///
/// # Errors
///
/// [`Error::BadAddress`] if the regions do not permit it: the component's fault handler is called.
/// [`Error::NoMemory`] if the supply has no frame: the handler is called as well. [`Error::Again`] if another
/// CPU changes the page, or the earlier mapping is not quiesced: the thread tries again. [`Error::Revoked`]
/// if there is no such space, [`Error::NoIsa`] if it has no table for this ISA.
#[inline(always)]
pub fn resolve_here<P: Platform>(
    local: &'static CpuLocal,
    va: u64,
    kind: FaultKind,
) -> Result<Outcome> {
    if !(USER_MIN..USER_END).contains(&va) {
        return Err(Error::BadAddress);
    }
    if let Some(done) = resolve_fastpath(local, P::ISA, local.space.get(), va, kind) {
        return done;
    }
    let cx = KernelCtx {
        node: node(),
        local,
    };
    local.fault_budget.set(budget(cx.words()));
    resolve_slowpath::<P>(&cx, cx.space()?, va, kind)
}

/// Makes `va` accessible in any space, at any cost.
///
/// # Errors
///
/// The errors of [`resolve_here`].
pub fn resolve<P: Platform>(
    cx: &KernelCtx,
    space: WeakRef,
    va: u64,
    kind: FaultKind,
) -> Result<Outcome> {
    cx.local.fault_budget.set(u32::MAX);
    resolve_further::<P>(cx, space, va, kind)
}

/// Resolves like [`resolve`], within the CPU's [budget](crate::cpu::CpuLocal::fault_budget).
///
/// # Errors
///
/// The errors of [`resolve_here`].
pub(crate) fn resolve_further<P: Platform>(
    cx: &KernelCtx,
    space: WeakRef,
    va: u64,
    kind: FaultKind,
) -> Result<Outcome> {
    if !(USER_MIN..USER_END).contains(&va) {
        return Err(Error::BadAddress);
    }
    if let Some(done) = resolve_fastpath(cx.local, P::ISA, space.bits(), va, kind) {
        return done;
    }
    resolve_slowpath::<P>(cx, space, va, kind)
}

#[cold]
#[inline(never)]
fn resolve_slowpath<P: Platform>(
    cx: &KernelCtx,
    space: WeakRef,
    va: u64,
    kind: FaultKind,
) -> Result<Outcome> {
    let this = SpaceCtx {
        cx,
        space: find(cx.node, space, Space::KIND)?,
        object: space,
    };
    let va = va & !(PAGE_SIZE - 1);
    let own = this.driver(P::ISA)?;
    let here = own.find(va, Level::L1).map_err(crate::mapping::refusal)?;
    match own.meaning(&here) {
        Pte::Leaf(leaf) if allows(&leaf, kind) => {
            P::flush_tlb();
            return Ok(Outcome::Present);
        }
        Pte::Empty { .. } => {}
        // Parked: it comes back, with this frame or another one.
        Pte::Closing { .. } | Pte::Parked { .. } => return Err(Error::Again),
        Pte::Leaf(_) | Pte::Table(_) | Pte::Other(_) => return Err(Error::BadAddress),
    }
    let region = this
        .space
        .region_at(cx.words(), va)
        .filter(|r| matches!(r.kind, RegionKind::Anonymous | RegionKind::Shared))
        .ok_or(Error::BadAddress)?;
    for isa in cx.node.isas().filter(|&i| i != P::ISA) {
        let Ok(other) = this.driver(isa) else {
            continue;
        };
        let there = other.find(va, Level::L1).map_err(crate::mapping::refusal)?;
        match other.meaning(&there) {
            // What one ISA executes is not for the other, and what one may not write, no other may.
            Pte::Leaf(leaf)
                if (!leaf.perms.contains(Perms::EXECUTE)
                    || lacks!("resolve::resolve_slowpath::execute"))
                    && allows(&leaf, kind) =>
            {
                let from = (&other, &there, &leaf);
                return show::<P>(&this, from, (&own, Some(&here)), va);
            }
            Pte::Leaf(_) => return Err(Error::BadAddress),
            Pte::Closing { .. } | Pte::Parked { .. } => return Err(Error::Again),
            _ => {}
        }
    }
    fill::<P>(&this, &region, va, kind)
}

/// (2): shows a page of one ISA's table in another's.
fn show<P: Platform>(
    this: &SpaceCtx<'_>,
    (other, there, leaf): (&Driver, &PteSlot, &Leaf),
    (own, here): (&Driver, Option<&PteSlot>),
    va: u64,
) -> Result<Outcome> {
    let place = match here {
        // The walk has come to a place of the same size.
        Some(here) if here.level == there.level => *here,
        _ => this.place::<P>(own, va, Level::L1)?,
    };
    match this.copy((other, there, leaf), (own, &place), va) {
        Ok(()) => {
            this.cx.words().increase(&this.space.faults_copied, 1);
            Ok(Outcome::Copied)
        }
        // Another CPU of this ISA was faster. If it is something else, the next fault finds it.
        Err(NotMapped::Exists(_)) => Ok(Outcome::Present),
        Err(NotMapped::Refused(e)) => Err(e),
    }
}

/// Whether a node's memory can be used. Nothing is lost if the node dies meanwhile: its pool keeps its
/// contents.
fn lives(cx: &KernelCtx, node: NodeId) -> bool {
    let word = cx.words().read(&cx.node.sb.node(node).state);
    NodeWord::from_bits(word).is_some_and(|w| w.state.is_live())
}

/// (3): a new frame.
fn fill<P: Platform>(
    this: &SpaceCtx<'_>,
    region: &Region,
    va: u64,
    kind: FaultKind,
) -> Result<Outcome> {
    let accessible = match kind {
        FaultKind::Execute => false,
        FaultKind::Write => region.write || lacks!("resolve::fill::write"),
        _ => true,
    };
    if region.kind != RegionKind::Anonymous || !accessible {
        return Err(Error::BadAddress);
    }
    let mut isas = this
        .cx
        .node
        .isas()
        .filter_map(|isa| Some((isa, this.driver(isa).ok()?)));
    let (_, deciding) = isas.next().ok_or(Error::NoIsa)?;
    let place = this.place::<P>(&deciding, va, Level::L1)?;
    let is_empty = place.raw == 0 || matches!(deciding.meaning(&place), Pte::Empty { .. });
    if !is_empty || this.is_frozen(&place) {
        return Err(Error::Again);
    }
    // A fault that has paid for tables, and cannot pay for the page and the tables of the other ISAs, too, does what it
    // can of these and comes again: once a table has the page, no fault of that ISA comes again. Before the page is
    // taken: the intent to take it is what recovery finds it by.
    if this.cx.local.fault_budget.get() < budget(this.cx.words()) {
        let mut short = false;
        for (_, d) in isas.clone() {
            let found = d.find(va, Level::L1).map_err(crate::mapping::refusal)?;
            if found.level != Level::L1 && !this.affords(found.level as u32) {
                short = true;
                let _ = this.place::<P>(&d, va, Level::L1);
            }
        }
        if short {
            return Err(Error::Again);
        }
    }
    let here = this.cx.node.id();
    let home = region.home.filter(|&n| lives(this.cx, n)).unwrap_or(here);
    let frame = this.take_for::<P>(home, Use::User)?;
    let mut perms = Perms::OWNED | Perms::MAY_EXECUTE;
    if region.write {
        perms |= Perms::WRITE | Perms::MAY_WRITE;
    }
    let leaf = Leaf {
        accessed: true,
        dirty: region.write,
        ..page(frame.frame.address(), perms)
    };
    match this.map(&deciding, &place, frame, leaf) {
        Ok(()) => {}
        Err(why) => {
            this.give_back(frame, Use::User);
            return match why {
                // Another node has decided; the next attempt finds it in that table.
                NotMapped::Exists(_) => Err(Error::Again),
                NotMapped::Refused(e) => Err(e),
            };
        }
    }
    this.cx.words().increase(&this.space.faults_filled, 1);
    let there = deciding.again(&place);
    let mut result = Ok(Outcome::Filled);
    for (isa, d) in isas {
        let shown = show::<P>(this, (&deciding, &there, &leaf), (&d, None), va);
        // The others find the page in the deciding table when they need it.
        if isa == P::ISA {
            result = shown.map(|_| Outcome::Filled);
        }
    }
    result
}
