//! Fast paths of map, unmap, map from peer and protect, for the usual case: coherent caches, a 4 KiB page, an
//! existing table, and no other CPU at the same words. The rows are those of [`dyad_mapping`], on
//! [cached](crate::capcache::page) words. When anything is unexpected nothing has been done, and the caller
//! takes the slow path, which also finds the reason.

use dyad_abi::cap::RegionKind;
use dyad_abi::{Error, Isa, Result};
use dyad_mapping::{NotMapped, NotUnmapped, row};
use dyad_pgtbl::{Level, Perms, Pte, decode, plain};
use dyad_retype::Use;
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::Row;
use dyad_shm::protocol::EpochSource;

use super::SpaceCtx;
use crate::capcache::page::{Block, CachedPte, FastSpace, region};
use crate::cpu::CpuLocal;
use crate::memory::load_coherent;
use crate::object::find;
use crate::object::space::Space;
use crate::platform::FaultKind;
use crate::resolve::{Outcome, allows};

#[cfg(feature = "host")]
impl SpaceCtx<'_> {
    /// This space for the fast paths.
    pub fn fast(&self) -> FastSpace {
        FastSpace {
            local: self.cx.local,
            object: self.object.bits(),
        }
    }
}

/// The rows, in a space as fast paths see it.
pub trait FastRows {
    /// Row map. `None`: nothing has been done. The address is one of the user half, and a page's.
    fn map(self, isa: Isa, va: u64, block: &Block, pa: PhysAddr, perms: Perms) -> Option<()>;
    /// Row unmap, of a page that the space does not own. `None`: nothing has been done.
    fn unmap(self, isa: Isa, va: u64) -> Option<Result<Epoch>>;
    /// Makes a page writable or read-only, and not executable; the time after it. `None`: nothing
    /// has been done.
    fn protect(self, isa: Isa, va: u64, write: bool) -> Option<Epoch>;
}

impl FastRows for FastSpace {
    #[inline(always)]
    fn map(self, isa: Isa, va: u64, block: &Block, pa: PhysAddr, perms: Perms) -> Option<()> {
        let to = plain::page(isa, pa, perms)?;
        let pte = self.pte(isa, va)?;
        let from = load_coherent(pte.entry);
        if !self.may_fill(isa, from) && !lacks!("mapping::fastpath::map::stamp") {
            return None;
        }
        let intent = pte.intent(Row::Map, block);
        match row::map(&pte.entry(block, from, to), &intent, &pte.services()) {
            Ok(()) => Some(()),
            Err(_) => {
                table_may_be_gone(self, pte);
                None
            }
        }
    }

    #[inline(always)]
    fn unmap(self, isa: Isa, va: u64) -> Option<Result<Epoch>> {
        let pte = self.pte(isa, va)?;
        let raw = load_coherent(pte.entry);
        let block = self.block(plain::given_page_in(isa, raw)?)?;
        let intent = pte.intent(Row::Unmap, &block);
        match row::unmap(&pte.entry(&block, 0, raw), &intent, &pte.services()) {
            Ok(stamp) => Some(Ok(stamp)),
            Err(NotUnmapped::Lost) => Some(Err(Error::NodeDead)),
            Err(_) => None,
        }
    }

    #[inline(always)]
    fn protect(self, isa: Isa, va: u64, write: bool) -> Option<Epoch> {
        let pte = self.pte(isa, va)?;
        let raw = load_coherent(pte.entry);
        let word = plain::protected(isa, raw, write)?;
        pte.words
            .exchange(pte.entry, raw, word)
            .then(|| pte.services().now())
    }
}

/// Row map from peer.
#[inline(always)]
fn copy(
    fast: FastSpace,
    (source, raw, perms): (&CachedPte, u64, Perms),
    (pte, from): (&CachedPte, u64),
    (block, to): (&Block, u64),
    space: &'static Space,
) -> Option<Result<Outcome>> {
    let entry = pte.entry(block, from, to);
    let still = || {
        let now = load_coherent(source.entry);
        now == raw || plain::page_in(source.isa, now) == plain::page_in(source.isa, raw)
    };
    let intent = pte.intent(Row::Map, block);
    match row::copy(&entry, &intent, still, &pte.services()) {
        Ok(()) => {
            pte.words.increase(&space.faults_copied, 1);
            Some(Ok(Outcome::Copied))
        }
        Err(why) => not_copied(fast, space, (pte, block), why, perms),
    }
}

/// The last reference of a page that its owner has unmapped meanwhile may have been this one.
#[cold]
#[inline(never)]
fn not_copied(
    fast: FastSpace,
    space: &'static Space,
    (pte, block): (&CachedPte, &Block),
    why: NotMapped,
    perms: Perms,
) -> Option<Result<Outcome>> {
    owner_may_be_gone(fast, space, block, perms);
    table_may_be_gone(fast, *pte);
    (why == NotMapped::Gone).then_some(Err(Error::Again))
}

/// Calls `SpaceCtx::table_may_be_gone` for a cached entry.
#[cold]
#[inline(never)]
fn table_may_be_gone(fast: FastSpace, pte: CachedPte) {
    let cx = fast.cx();
    if let Some(object) = WeakRef::from_bits(fast.object)
        && let Ok(space) = find(cx.node, object, Space::KIND)
    {
        let this = SpaceCtx {
            cx: &cx,
            space,
            object,
        };
        this.table_may_be_gone(pte.isa, Level::L1, pte.table().frame);
    }
}

#[cold]
#[inline(never)]
fn owner_may_be_gone(fast: FastSpace, space: &'static Space, block: &Block, perms: Perms) {
    if perms.contains(Perms::OWNED)
        && let Some(page) = WeakRef::from_bits(block.frame)
        && let Ok((head, _)) = fast.cx().frames().head_now(page.frame)
        && head.version == page.version
        && let Some(object) = WeakRef::from_bits(fast.object)
    {
        let cx = fast.cx();
        let this = SpaceCtx {
            cx: &cx,
            space,
            object,
        };
        this.give_back(head, Use::User);
    }
}

/// Resolves a fault at an address of the user half by what this CPU has cached: from the other ISA's
/// table, or by knowing that the kernel has nothing to show. `None`: nothing has been done.
#[inline(always)]
pub fn resolve_fastpath(
    local: &'static CpuLocal,
    isa: Isa,
    object: u64,
    va: u64,
    kind: FaultKind,
) -> Option<Result<Outcome>> {
    if object == 0 {
        return None;
    }
    let (_, space, region) = region(local, object, va)?;
    let this = FastSpace { local, object };
    let own = this.pte(isa, va)?;
    let here = load_coherent(own.entry);
    // A page that lacks the right is the handler's, whatever the region is: most faults of page-level shared
    // memory are of this kind.
    if plain::is_present(here)
        && let Pte::Leaf(leaf) = decode(isa, here, Level::L1)
        && !allows(&leaf, kind)
    {
        return Some(Err(Error::BadAddress));
    }
    let anonymous = match region {
        Some(RegionKind::Anonymous) => true,
        Some(RegionKind::Shared) => false,
        _ => return plain::empty_in(isa, here).map(|_| Err(Error::BadAddress)),
    };
    let other = this.pte(isa.other(), va);
    let raw = other.map_or(0, |o| load_coherent(o.entry));
    let (Some(other), Some((pa, perms))) = (&other, plain::page_in(isa.other(), raw)) else {
        // No table has the page, and only the handler makes pages of shared regions.
        let nowhere = match other {
            Some(_) => plain::empty_in(isa.other(), raw).is_some(),
            None => this.no_table(isa.other(), va),
        };
        let empty = plain::empty_in(isa, here).is_some();
        return (!anonymous && nowhere && empty).then_some(Err(Error::BadAddress));
    };
    if !this.may_fill(isa, here) && !lacks!("mapping::fastpath::resolve_fastpath::stamp") {
        return None;
    }
    let wanted = match kind {
        FaultKind::Read => Perms::READ,
        FaultKind::Write => Perms::WRITE,
        _ => return None,
    };
    let permitted = perms.contains(wanted) || lacks!("mapping::fastpath::resolve_fastpath::write");
    if perms.contains(Perms::EXECUTE) || !permitted {
        return None;
    }
    let to = plain::used_page(isa, pa, perms)?;
    let block = this.block(pa)?;
    copy(this, (other, raw, perms), (&own, here), (&block, to), space)
}
