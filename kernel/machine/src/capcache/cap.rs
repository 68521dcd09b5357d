//! Cache entries for capabilities of any type, with all that an operation needs of them.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, CapType, Rights};
use dyad_captbl::{Contents, Filling, Found, Span};
use dyad_pgtbl::Perms;
use dyad_retype::word::user_order;
use dyad_shm::frame::WeakRef;
use dyad_shm::{FrameRef, PhysAddr};

use super::frames::Range;
use super::page::Block;
use super::{Snapshot, frame_word};
use crate::cpu::CpuLocal;
use crate::kernel_ctx::{KernelCtx, Operand};
use crate::memory::CoherentWords;
use crate::object::endpoint::{Endpoints, LINES, Line};
use crate::object::space::Space;
use crate::object::thread::Thread;

/// Capabilities that a CPU caches.
pub(super) const CAP_ENTRIES: usize = 64;
/// The operand of an empty slot, which permits and refers to nothing.
const NO_OPERAND: Operand = Operand {
    ty: CapType::Memory,
    rights: Rights::NONE,
    object: None,
    guard: None,
    payload: [0; 3],
};

/// A cache entry for a capability of a capability table.
#[repr(align(128))]
pub struct CachedCap {
    /// Root of the table; 0 means empty.
    captbl: Cell<PhysAddr>,
    index: Cell<u64>,
    entry: Cell<Snapshot>,
    header: Cell<Snapshot>,
    /// Frame word of the object.
    object: Cell<Snapshot>,
    ty: Cell<CapType>,
    family: Cell<Family>,
    rights: Cell<Rights>,
    /// The object in the format of a slot: a weak reference, or [`Contents::NONE`].
    weak: Cell<u64>,
    payload: [Cell<u64>; 3],
    place: Cell<ObjectAt>,
}

const _: () = assert!(size_of::<CachedCap>() == 128);

impl CachedCap {
    #[allow(clippy::declare_interior_mutable_const, reason = "made anew each time")]
    pub(super) const NOTHING: CachedCap = CachedCap {
        captbl: Cell::new(PhysAddr(0)),
        index: Cell::new(0),
        entry: Cell::new(Snapshot::NOTHING),
        header: Cell::new(Snapshot::NOTHING),
        object: Cell::new(Snapshot::NOTHING),
        ty: Cell::new(CapType::Memory),
        family: Cell::new(Family::Long),
        rights: Cell::new(Rights::NONE),
        weak: Cell::new(Contents::NONE),
        payload: [const { Cell::new(0) }; 3],
        place: Cell::new(ObjectAt::Empty),
    };

    /// The rights of the capability; none if the slot is empty.
    #[inline(always)]
    pub fn rights(&self) -> Rights {
        self.rights.get()
    }

    /// The error of an operation that the capability does not permit.
    #[inline(always)]
    pub fn refusal(&self) -> Error {
        match self.place.get() {
            ObjectAt::Empty => Error::NoCap,
            _ => Error::Denied,
        }
    }

    /// The object: a weak reference.
    #[inline(always)]
    pub fn object(&self) -> u64 {
        self.weak.get()
    }

    /// Word `n` of the payload; see `dyad_core::syscall::ops`.
    #[inline(always)]
    pub fn payload(&self, n: usize) -> u64 {
        self.payload[n].get()
    }

    /// The slot content of a copy without a guard that has no more than `rights`.
    #[inline(always)]
    pub fn copied(&self, rights: Rights) -> Filling {
        let header = match self.header.get().value {
            of if lacks!("capcache::copied::narrow") => of | rights.0 as u64,
            of => dyad_captbl::plain::narrowed(of, rights),
        };
        let [a, b, c] = &self.payload;
        let words = [
            self.weak.get(),
            Contents::NONE,
            0,
            a.get(),
            b.get(),
            c.get(),
        ];
        Filling { header, words }
    }

    /// The block of a Frame capability, and its page `n` as a frame to be mapped. The caller checks that the
    /// capability has that page.
    #[inline(always)]
    pub fn page(&self, first: PhysAddr, n: u64) -> (Block, PhysAddr) {
        let Snapshot { word, value } = self.object.get();
        let into = self.payload(0).wrapping_add(n);
        let block = Block {
            word,
            value,
            frame: self.object().wrapping_add(into),
        };
        (
            block,
            PhysAddr(
                first
                    .0
                    .wrapping_add(n << dyad_abi::user::PAGE_SIZE.trailing_zeros()),
            ),
        )
    }

    /// The family of its fast paths.
    #[inline(always)]
    pub fn family(&self) -> Family {
        self.family.get()
    }

    /// The type of the capability.
    #[inline(always)]
    pub fn ty(&self) -> CapType {
        self.ty.get()
    }

    /// The word of a call of operation `number`.
    #[inline(always)]
    pub fn call(&self, number: u32) -> u64 {
        self.index.get() | (number as u64) << 32
    }

    /// The place of the object.
    #[inline(always)]
    pub fn place(&self) -> ObjectAt {
        self.place.get()
    }

    /// The whole capability. It must be copied before anything else is looked up, because the lookup may
    /// replace this entry. (It is copied word by word, because copies of structures are function calls.)
    #[inline(always)]
    pub fn operand(&self) -> Operand {
        let [a, b, c] = &self.payload;
        Operand {
            ty: self.ty.get(),
            rights: self.rights.get(),
            object: WeakRef::from_bits(self.weak.get()),
            guard: None,
            payload: [a.get(), b.get(), c.get()],
        }
    }

    /// The entry of a Frame capability for a whole block that is alive.
    #[cfg(any(test, feature = "host"))]
    pub fn of_block(cx: &KernelCtx, o: &Operand) -> Option<CachedCap> {
        use dyad_retype::{FrameType, FrameWord, Order};
        let cached = CachedCap::NOTHING;
        let head = o.object?;
        let ty = FrameType::User(Order::new(o.payload[1].trailing_zeros() as u64)?);
        let value = FrameWord::new(head.version, ty).bits();
        let Snapshot { word, .. } = frame_word(cx, head.frame)?;
        cached.object.set(Snapshot { word, value });
        cached.set(o, ObjectAt::Other);
        Some(cached)
    }

    /// Whether the entry is filled.
    #[cfg(any(test, feature = "host"))]
    pub(super) fn is_cached(&self) -> bool {
        self.captbl.get() != PhysAddr(0)
    }

    /// Empties the entry.
    pub(super) fn forget(&self) {
        self.captbl.set(PhysAddr(0));
    }

    fn set(&self, o: &Operand, place: ObjectAt) {
        self.ty.set(o.ty);
        self.rights.set(o.rights);
        self.weak
            .set(o.object.map_or(Contents::NONE, WeakRef::bits));
        for (cell, word) in self.payload.iter().zip(o.payload) {
            cell.set(word);
        }
        self.family.set(Family::of(o, &place));
        self.place.set(place);
    }
}

/// Groups of capabilities whose operations have a fast path (`dyad_core::syscall::fastpath`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// [`ObjectAt::Liveness`].
    Liveness = 0,
    /// [`ObjectAt::Space`].
    Space = 1,
    /// [`ObjectAt::Captbl`].
    Captbl = 2,
    /// [`ObjectAt::Memory`].
    Memory = 3,
    /// [`ObjectAt::Line`], where caches are coherent.
    Send = 4,
    /// [`ObjectAt::Thread`].
    Thread = 5,
    /// [`ObjectAt::Endpoints`].
    Receive = 6,
    /// Any other capability: all operations take the slow path.
    Long = 7,
}

impl Family {
    fn of(o: &Operand, place: &ObjectAt) -> Family {
        match (o.ty, place) {
            (CapType::Liveness, ObjectAt::Liveness(..)) => Family::Liveness,
            (CapType::Space, ObjectAt::Space(_)) => Family::Space,
            (CapType::Captbl, ObjectAt::Captbl) => Family::Captbl,
            (CapType::Memory, ObjectAt::Memory(_)) => Family::Memory,
            (CapType::Send, ObjectAt::Line(Some(_), _)) => Family::Send,
            (CapType::Thread, ObjectAt::Thread(_)) => Family::Thread,
            (CapType::Receive, ObjectAt::Endpoints(_)) => {
                // Endpoints that it is not for are not asked for then.
                Span::new(o.payload[0], o.payload[1], LINES as u64)
                    .map_or(Family::Long, |_| Family::Receive)
            }
            _ => Family::Long,
        }
    }
}

/// Objects of the most frequent types, as this CPU accesses them.
#[derive(Clone, Copy)]
pub enum ObjectAt {
    /// A thread.
    Thread(&'static Thread),
    /// Endpoints.
    Endpoints(&'static Endpoints),
    /// The endpoint that a Send capability is for.
    Line(Option<CoherentWords>, &'static Line),
    /// An address space.
    Space(&'static Space),
    /// A liveness frame, and the shared epoch, where caches are coherent.
    Liveness(CoherentWords, &'static [AtomicU64; 512], &'static AtomicU64),
    /// The first page of a Frame capability whose pages are all in one block, and the permissions that a page
    /// mapped by it always has and records, where caches are coherent.
    Frame(PhysAddr, Perms),
    /// The frames of a Memory capability, where caches are coherent.
    Memory(Range),
    /// A capability table, where caches are coherent.
    Captbl,
    /// Any other object, or none.
    Other,
    /// The slot is empty.
    Empty,
}

impl ObjectAt {
    /// The object of a live capability.
    pub fn of(cx: &KernelCtx, o: &Operand) -> ObjectAt {
        let at = match o.object {
            Some(object) => object.frame.address(),
            None if o.ty == CapType::Memory => {
                return Range::of(cx, o).map_or(ObjectAt::Other, ObjectAt::Memory);
            }
            None => return ObjectAt::Other,
        };
        let place = match o.ty {
            CapType::Thread => cx.node.map.get(at).map(ObjectAt::Thread),
            CapType::Receive => cx.node.map.get(at).map(ObjectAt::Endpoints),
            CapType::Send => ObjectAt::line(cx, at, o.payload[0]),
            CapType::Space => cx.node.map.get(at).map(ObjectAt::Space),
            CapType::Liveness => ObjectAt::liveness(cx, o),
            CapType::Captbl => cx.words().if_coherent().map(|_| ObjectAt::Captbl),
            _ => None,
        };
        place.unwrap_or(ObjectAt::Other)
    }

    fn line(cx: &KernelCtx, endpoints: PhysAddr, number: u64) -> Option<ObjectAt> {
        let endpoints: &'static Endpoints = cx.node.map.get(endpoints)?;
        let line = endpoints.line(number).ok()?;
        Some(ObjectAt::Line(cx.words().if_coherent(), line))
    }

    fn liveness(cx: &KernelCtx, o: &Operand) -> Option<ObjectAt> {
        let words = cx.words().if_coherent()?;
        // All that it counts from is in the frame.
        dyad_captbl::Span::entries(o.payload)?;
        let counts = cx.node.map.get(o.object?.frame.address())?;
        Some(ObjectAt::Liveness(words, counts, &cx.node.sb.epoch))
    }

    /// The pages of a Frame capability; `head` is the word of the block's head.
    fn frame(cx: &KernelCtx, o: &Operand, head: u64) -> Option<ObjectAt> {
        cx.words().if_coherent()?;
        let [into, pages, _] = o.payload;
        let last = into.checked_add(pages)?;
        let first = u32::try_from(into).ok()?;
        let first = o.object?.frame.bits().checked_add(first)?;
        let first = FrameRef::from_bits(first)?.address();
        let perms = crate::lookup::noted(o.rights)
            .union(Perms::READ)
            .union(Perms::USER);
        (last <= user_order(head)?.frames()).then_some(ObjectAt::Frame(first, perms))
    }
}

/// The cache entry of a capability of the running component, if it is valid and the object is alive.
#[inline(always)]
pub fn capability(local: &CpuLocal, index: CapIndex) -> Option<&CachedCap> {
    called(local, index.get() as u64)
}

/// The cache entry of the capability that a call names by `word`: the index, the number of the operation in
/// bits 32 to 36, and nothing above them. It must be valid, and the object alive.
#[inline(always)]
pub fn called(local: &CpuLocal, word: u64) -> Option<&CachedCap> {
    let cached = slot(local, word & !(31 << 32))?;
    let alive = cached.object.get().same_frame() || lacks!("capcache::called::version");
    alive.then_some(cached)
}

/// The entry that [`called`] has found for a call, as long as nothing else has been looked up.
#[inline(always)]
pub fn last_called(local: &CpuLocal, word: u64) -> &CachedCap {
    &local.cache.caps[word as usize % CAP_ENTRIES]
}

/// The valid cache entry of a capability. Whether its object is alive has not been checked.
#[inline(always)]
fn slot(local: &CpuLocal, index: u64) -> Option<&CachedCap> {
    let cached = &local.cache.caps[index as usize % CAP_ENTRIES];
    if !local.cache.fast()
        || cached.captbl.get() != local.captbl.get()
        || cached.index.get() != index
        || !(cached.entry.get().same() || lacks!("capcache::slot::entry"))
        || !(cached.header.get().same() || lacks!("capcache::slot::header"))
    {
        return None;
    }
    Some(cached)
}

/// The cache entry of a Frame capability with the fields of [`ObjectAt::Frame`]. The block is checked when it
/// is pinned.
#[inline(always)]
pub fn frame(local: &CpuLocal, index: u64) -> Option<(&CachedCap, PhysAddr, Perms)> {
    let cached = slot(local, index)?;
    match cached.place() {
        ObjectAt::Frame(first, perms) => Some((cached, first, perms)),
        _ => None,
    }
}

/// Caches a capability that has been looked up on the slow path and found alive.
#[cold]
pub fn fill_capability(cx: &KernelCtx, index: CapIndex, found: &Found, c: &Contents) {
    let plain = c.guard.is_none() || lacks!("capcache::fill_capability::guard");
    if plain && cx.local.cache.fast() {
        let _ = try_capability(cx, index, found, c);
    }
}

fn try_capability(cx: &KernelCtx, index: CapIndex, found: &Found, c: &Contents) -> Option<()> {
    let captbl = cx.local.captbl.get();
    let cached = &cx.local.cache.caps[index.get() as usize % CAP_ENTRIES];
    cached.captbl.set(PhysAddr(0));
    let at = captbl.add(index.get() as u64 / dyad_abi::cap::LEAF_SLOTS as u64 * 8);
    let entry = Snapshot::of(cx.node.map.get(at)?);
    let header = Snapshot::of(cx.node.map.get(found.slot)?);
    let object = match c.object {
        None => Snapshot::NOTHING,
        Some(o) => frame_word(cx, o.frame)?,
    };
    // Cache the slot that this lookup has resolved, not a later one.
    let slot = cx.lookup(index).ok() == Some(*found) || lacks!("capcache::try_capability::slot");
    let alive = cx.check(c).is_ok() || lacks!("capcache::try_capability::alive");
    if !(slot && alive) {
        return None;
    }
    cached.index.set(index.get() as u64);
    cached.entry.set(entry);
    cached.header.set(header);
    cached.object.set(object);
    let operand = crate::lookup::operand(c);
    let place = match operand.ty {
        CapType::Frame => ObjectAt::frame(cx, &operand, object.value).unwrap_or(ObjectAt::Other),
        _ => ObjectAt::of(cx, &operand),
    };
    cached.set(&operand, place);
    cached.captbl.set(captbl);
    Some(())
}

/// Caches that a slot of the running component's table is empty.
#[cold]
pub fn fill_empty(cx: &KernelCtx, index: CapIndex) {
    if cx.local.cache.fast() {
        let _ = try_empty(cx, index);
    }
}

fn try_empty(cx: &KernelCtx, index: CapIndex) -> Option<()> {
    let captbl = cx.local.captbl.get();
    let slot = cx.captbls().slot_at(captbl, index).ok()?;
    let cached = &cx.local.cache.caps[index.get() as usize % CAP_ENTRIES];
    cached.captbl.set(PhysAddr(0));
    let at = captbl.add(index.get() as u64 / dyad_abi::cap::LEAF_SLOTS as u64 * 8);
    let entry = Snapshot::of(cx.node.map.get(at)?);
    let header = Snapshot::of(cx.node.map.get(slot)?);
    let empty = header.value == 0 || lacks!("capcache::try_empty::header");
    if cx.captbls().slot_at(captbl, index).ok()? != slot || !empty {
        return None;
    }
    cached.index.set(index.get() as u64);
    cached.entry.set(entry);
    cached.header.set(header);
    cached.object.set(Snapshot::NOTHING);
    cached.set(&NO_OPERAND, ObjectAt::Empty);
    cached.captbl.set(captbl);
    Some(())
}
