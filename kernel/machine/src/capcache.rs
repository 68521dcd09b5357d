//! The capability cache of a CPU: capabilities and components that the CPU has looked up, so that their next
//! use is fast.
//!
//! An invocation follows a chain of words: root entry, slot, component, address space, root of the page
//! table. A *cache entry* keeps the end of the chain, and those of its words that change when a link is
//! removed:
//!
//! | word | changed by |
//! |---|---|
//! | root entry | cons, decons |
//! | slot header | deactivation |
//! | component's frame word | retype, freeze |
//! | component's generation | `Configure`, `SetHome`, `SetFaultHandler` |
//!
//! ```text
//!   empty ──fill (slow path)──▶ filled ──is_valid: the words are what they were──▶ used by the fast path
//!     ▲                            │ a word differs: filled anew by the next slow path
//!     └── forget: round, sleep ────┘
//! ```
//!
//! An entry is used only if its words are unchanged. Before anything that was removed can be filled again or
//! reused, every CPU goes through a round or sleeps, and both empty the cache ([`CapCache::forget`]). An
//! unchanged word therefore always has an unchanged meaning. Tables and roots need no check of their own: the
//! component and its space pin them, and a CPU leaves a removed root in the next round at the latest.
//! Capabilities with a guard are not cached. Capabilities of other types are cached with the frame word of
//! their object, and empty slots are cached, too.
//!
//! The fast path is for threads with nothing in floating-point registers: values in them must be dropped or
//! kept, see `dyad_core::sched::fp`.
//!
//! A kernel built with the feature `slowpath` caches nothing, and so has no fast path: each operation follows
//! the chain of words ([`CapCache::fast`]). Programs notice only the time.
//!
//! A cache is private to its CPU, and no other CPU has to be notified of changes. Loads read this node's copy
//! of a line, as in all lookups: where caches are not coherent, a change by another node shows after this
//! node's next round at the latest.

mod cap;
pub mod frames;
pub mod leaf;
pub mod page;
mod services;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::user::USER_END;
use dyad_abi::{Error, Result};
use dyad_captbl::Found;
use dyad_shm::frame::WeakRef;
use dyad_shm::permitted::Permitted;
use dyad_shm::{FrameRef, PhysAddr};

use self::cap::CAP_ENTRIES;
pub use self::cap::{
    CachedCap, Family, ObjectAt, called, capability, fill_capability, fill_empty, frame,
    last_called,
};
use self::frames::OwnWords;
use self::leaf::LeafCache;
use self::page::PageCache;
use crate::Platform;
use crate::cpu::CpuLocal;
use crate::kernel_ctx::KernelCtx;
use crate::memory::load_permitted;
use crate::object::component::{Component, Entry, Parts};
use crate::object::find;
use crate::object::space::Space;
use crate::object::thread::{Thread, info};
use crate::platform::copy_used;

/// Entries of each kind. The hash of a key chooses the entry, and a fill replaces the old content.
const ENTRIES: usize = 16;
/// Bits of a frame word below version, type and kind.
const REFS: u32 = 24;

static NOTHING: AtomicU64 = AtomicU64::new(0);
static NO_LINE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Loads a word from this node's copy, as lookups do.
#[inline(always)]
fn look(word: &AtomicU64) -> u64 {
    load_permitted::<{ Permitted::Lookup as u32 }>(word)
}

/// Loads the word of an object's frame from this node's copy.
#[inline(always)]
fn look_at_frame(word: &AtomicU64) -> u64 {
    load_permitted::<{ Permitted::Object as u32 }>(word)
}

/// A word and the value that was read from it.
#[derive(Clone, Copy)]
struct Snapshot {
    word: &'static AtomicU64,
    value: u64,
}

impl Snapshot {
    const NOTHING: Snapshot = Snapshot {
        word: &NOTHING,
        value: 0,
    };

    fn of(word: &'static AtomicU64) -> Snapshot {
        Snapshot {
            word,
            value: look(word),
        }
    }

    #[inline(always)]
    fn same(&self) -> bool {
        look(self.word) == self.value
    }

    /// Whether a frame word has the same value without its references, which may come and go.
    #[inline(always)]
    fn same_frame(&self) -> bool {
        (look_at_frame(self.word) ^ self.value) >> REFS == 0
    }
}

/// The state that entering a component loads.
struct Target {
    /// Weak reference to the component; 0 means empty.
    object: Cell<u64>,
    frame: Cell<Snapshot>,
    generation: Cell<Snapshot>,
    captbl: Cell<PhysAddr>,
    space: Cell<u64>,
    /// Root of the page table of this machine's ISA.
    table: Cell<PhysAddr>,
}

/// A cache entry for a component.
#[repr(align(128))]
struct CachedComponent {
    target: Target,
    /// Nodes on which the component may be entered.
    home: Cell<u64>,
    /// The fault handler.
    handler: Cell<Option<Entry>>,
}

/// A cache entry for an invocation endpoint of a capability table, to a component that may be entered on this
/// node.
#[repr(align(256))]
struct CachedSinv {
    /// Root of the table; 0 means empty.
    captbl: Cell<PhysAddr>,
    index: Cell<u64>,
    entry: Cell<Snapshot>,
    header: Cell<Snapshot>,
    target: Target,
    /// Entry point, in the user half.
    address: Cell<u64>,
    badge: Cell<u64>,
}

/// The cache of one CPU.
pub struct CapCache {
    /// Whether every operation takes the slow path: for tests that compare the two.
    #[cfg(feature = "host")]
    slow: Cell<bool>,
    components: [CachedComponent; ENTRIES],
    sinvs: [CachedSinv; ENTRIES],
    caps: [CachedCap; CAP_ENTRIES],
    /// Words of this CPU that rows of frames need. They never change once set.
    own: OwnWords,
    /// Leaves of capability tables.
    pub leaves: LeafCache,
    /// Page tables, blocks and regions.
    pub pages: PageCache,
}

impl CapCache {
    /// An empty cache.
    pub const fn new() -> CapCache {
        CapCache {
            #[cfg(feature = "host")]
            slow: Cell::new(false),
            components: [const {
                CachedComponent {
                    target: Target::NOTHING,
                    home: Cell::new(0),
                    handler: Cell::new(None),
                }
            }; ENTRIES],
            sinvs: [const {
                CachedSinv {
                    captbl: Cell::new(PhysAddr(0)),
                    index: Cell::new(0),
                    entry: Cell::new(Snapshot::NOTHING),
                    header: Cell::new(Snapshot::NOTHING),
                    target: Target::NOTHING,
                    address: Cell::new(0),
                    badge: Cell::new(0),
                }
            }; ENTRIES],
            caps: [const { CachedCap::NOTHING }; CAP_ENTRIES],
            own: OwnWords::new(),
            leaves: LeafCache::new(),
            pages: PageCache::new(),
        }
    }

    /// Whether anything is cached, and so whether there are fast paths: a constant of the build, except in
    /// tests.
    #[inline(always)]
    pub fn fast(&self) -> bool {
        #[cfg(feature = "host")]
        if self.slow.get() {
            return false;
        }
        cfg!(not(feature = "slowpath"))
    }

    /// Makes every operation of this CPU take the slow path, or not.
    #[cfg(feature = "host")]
    pub fn set_slow(&self, slow: bool) {
        self.forget();
        self.slow.set(slow);
    }

    /// Empties the cache: in each round, and before sleep.
    pub fn forget(&self) {
        for c in &self.components {
            c.target.object.set(0);
        }
        for s in &self.sinvs {
            s.captbl.set(PhysAddr(0));
        }
        self.caps.iter().for_each(CachedCap::forget);
        self.leaves.forget();
        self.pages.forget();
    }

    /// How many entries of each kind are filled: components, invocation endpoints, capabilities, leaves of
    /// capability tables, page tables, blocks, regions.
    #[cfg(any(test, feature = "host"))]
    pub fn cached(&self) -> [usize; 7] {
        fn count<T>(all: &[T], is_cached: impl Fn(&T) -> bool) -> usize {
            all.iter().filter(|v| is_cached(v)).count()
        }
        let [tables, blocks, regions] = self.pages.cached();
        [
            count(&self.components, |c| c.target.object.get() != 0),
            count(&self.sinvs, |s| s.captbl.get() != PhysAddr(0)),
            count(&self.caps, CachedCap::is_cached),
            self.leaves.cached(),
            tables,
            blocks,
            regions,
        ]
    }

    #[inline(always)]
    fn component(&self, object: u64) -> &CachedComponent {
        &self.components[object as usize % ENTRIES]
    }

    #[inline(always)]
    fn sinv(&self, index: u64) -> &CachedSinv {
        &self.sinvs[index as usize % ENTRIES]
    }
}

impl Default for CapCache {
    fn default() -> CapCache {
        CapCache::new()
    }
}

impl CachedComponent {
    /// Whether the entry is for this component and still valid.
    #[inline(always)]
    fn is_valid(&self, object: u64) -> bool {
        self.target.object.get() == object && self.target.is_valid()
    }
}

impl Target {
    #[allow(clippy::declare_interior_mutable_const, reason = "made anew each time")]
    const NOTHING: Target = Target {
        object: Cell::new(0),
        frame: Cell::new(Snapshot::NOTHING),
        generation: Cell::new(Snapshot::NOTHING),
        captbl: Cell::new(PhysAddr(0)),
        space: Cell::new(0),
        table: Cell::new(PhysAddr(0)),
    };

    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.frame.get().same_frame()
            && (self.generation.get().same() || lacks!("capcache::is_valid::generation"))
    }

    fn set(&self, to: &Opened) {
        self.frame.set(to.frame);
        self.generation.set(to.generation);
        self.captbl.set(to.captbl);
        self.space.set(to.space);
        self.table.set(to.table);
        self.object.set(to.object);
    }

    /// Makes the CPU hold the component.
    #[inline(always)]
    fn enter<P: Platform>(&self, local: &CpuLocal) {
        hold_space::<P>(local, self.space.get(), self.table.get());
        local.captbl.set(self.captbl.get());
        local.component.set(self.object.get());
    }
}

/// The fast path of an invocation: returns badge and token, or `None` if the slow path must be taken. Program
/// counter and stack pointer are set, and the component is entered.
#[inline(always)]
pub fn invoke<P: Platform>(local: &CpuLocal, index: u64) -> Option<(u64, u64)> {
    let sinv = local.cache.sinv(index);
    if !local.cache.fast()
        || sinv.captbl.get() != local.captbl.get()
        || sinv.index.get() != index
        || !(sinv.entry.get().same() || lacks!("capcache::invoke::entry"))
        || !(sinv.header.get().same() || lacks!("capcache::invoke::header"))
    {
        return None;
    }
    let to = &sinv.target;
    if !to.is_valid() {
        return None;
    }
    let t = local.fastpath_thread.get()?;
    let area = t.regs(P::ISA);
    let depth = t.push(local.component.get(), P::user_pc_sp(area), 0)?;
    P::set_entry(area, sinv.address.get());
    t.component.store(to.object.get(), Ordering::Relaxed);
    let token = t.token_at(depth);
    to.enter::<P>(local);
    Some((sinv.badge.get(), token))
}

/// The fast path of a return with `word` as its first word; `None` if the slow path must be taken.
#[inline(always)]
pub fn leave<P: Platform>(local: &'static CpuLocal, word: u64) -> Option<()> {
    if !local.cache.fast() {
        return None;
    }
    let t = local.fastpath_thread.get()?;
    let (at, frame) = t.top()?;
    let object = frame.component.load(Ordering::Relaxed);
    match frame.info.load(Ordering::Relaxed) {
        0 => {}
        info::FAULT if word == 0 => return retry::<P>(local, t, at, object),
        _ => return None,
    }
    let to = local.cache.component(object);
    // It came from there, so it may run there.
    if !to.is_valid(object) {
        return None;
    }
    t.depth.store(at, Ordering::Relaxed);
    t.component.store(object, Ordering::Relaxed);
    P::set_return(
        t.regs(P::ISA),
        frame.pc.load(Ordering::Relaxed),
        frame.sp.load(Ordering::Relaxed),
    );
    to.target.enter::<P>(local);
    Some(())
}

/// The fast path back to an instruction that has faulted; returns only if the slow path must be taken.
#[inline(never)]
fn retry<P: Platform>(
    local: &'static CpuLocal,
    t: &'static Thread,
    at: u64,
    object: u64,
) -> Option<()> {
    if !enter_component::<P>(local, object) {
        return None;
    }
    t.depth.store(at, Ordering::Relaxed);
    t.component.store(object, Ordering::Relaxed);
    t.fault.store(0, Ordering::Relaxed);
    let area = t.regs(P::ISA);
    copy_used::<P>(&t.saved, area);
    P::resume_user(area)
}

/// Enters a component that this CPU has cached; returns `false` if there is no valid entry.
#[inline(always)]
pub fn enter_component<P: Platform>(local: &CpuLocal, object: u64) -> bool {
    let to = local.cache.component(object);
    if !local.cache.fast() || object == 0 || !to.is_valid(object) {
        return false;
    }
    to.target.enter::<P>(local);
    true
}

/// Enters the fault handler of the running component; `None` if this CPU has not cached both.
#[inline]
pub fn enter_handler<P: Platform>(local: &CpuLocal) -> Option<Entry> {
    let running = local.component.get();
    let from = local.cache.component(running);
    if !local.cache.fast() || !from.is_valid(running) {
        return None;
    }
    let to = from.handler.get()?;
    let object = to.component.bits();
    let handler = local.cache.component(object);
    if !handler.is_valid(object) || handler.home.get() & local.home.get() == 0 {
        return None;
    }
    handler.target.enter::<P>(local);
    Some(to)
}

/// Whether this CPU has cached a component as one that may run on a node.
#[inline(always)]
pub fn may_run_at(local: &CpuLocal, object: u64, node: dyad_abi::NodeId) -> bool {
    let cached = local.cache.component(object);
    local.cache.fast()
        && object != 0
        && cached.is_valid(object)
        && cached.home.get() >> node.index() & 1 != 0
}

/// A component that a reference leads to: looked up once, for all later steps.
#[derive(Clone, Copy)]
pub struct Callee {
    object: WeakRef,
    /// The parts of the component.
    pub parts: Parts<'static>,
    /// The word of its frame, without references. It is read before anything in the component, so later
    /// changes show.
    frame: Snapshot,
}

impl Callee {
    /// Looks up the component of a reference.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`] if the component is gone.
    #[inline]
    pub fn find(cx: &KernelCtx, object: WeakRef) -> Result<Callee> {
        let at = cx.frames().record_at(object.frame).ok_or(Error::Revoked)?;
        let word = cx.node.map.get(at).ok_or(Error::Corrupt)?;
        let raw = look_at_frame(word);
        if !cx.frames().is_object_by(raw, object, Component::KIND) {
            return Err(Error::Revoked);
        }
        let component: Option<&'static Component> = cx.node.map.get(object.frame.address());
        Ok(Callee {
            object,
            parts: component.ok_or(Error::Corrupt)?.parts(cx.words()),
            frame: Snapshot {
                word,
                value: raw >> REFS << REFS,
            },
        })
    }

    /// Looks up the state that entering the component loads. Its parts are weak references that the component
    /// pins: they stay valid as long as the component has them.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if the component has not been configured, [`Error::NoIsa`] if its space has no
    /// table for this machine, [`Error::Revoked`] if its space is gone.
    #[inline]
    pub fn open<P: Platform>(&self, cx: &KernelCtx) -> Result<Opened> {
        // Where it runs has been read since as well: a change shows in the generation.
        let (word, value) = self.parts.generation();
        let generation = match lacks!("capcache::open::generation") {
            false => Snapshot { word, value },
            true => Snapshot::of(word),
        };
        let (captbl, space) = (self.parts.captbl_root()?, self.parts.space()?);
        let place: &'static Space = find(cx.node, space, Space::KIND)?;
        Ok(Opened {
            object: self.object.bits(),
            frame: self.frame,
            generation,
            captbl,
            space: space.bits(),
            table: place.root(cx.words(), P::ISA).ok_or(Error::NoIsa)?,
        })
    }

    /// Caches the component, if this build caches anything.
    fn fill(&self, cx: &KernelCtx, opened: &Opened) {
        if !cx.local.cache.fast() {
            return;
        }
        let cached = cx.local.cache.component(opened.object);
        cached.target.object.set(0);
        cached.home.set(self.parts.home());
        // A handler that changes all the time is not cached but looked up.
        let handler = self.parts.fault_entry(cx.words());
        cached.handler.set(handler.ok().flatten());
        cached.target.set(opened);
    }
}

/// The state that entering a component loads, and the words that tell whether it is still valid.
#[derive(Clone, Copy)]
pub struct Opened {
    object: u64,
    frame: Snapshot,
    generation: Snapshot,
    captbl: PhysAddr,
    space: u64,
    table: PhysAddr,
}

impl Opened {
    /// Makes the CPU hold the component: table and space change together.
    #[inline]
    pub fn enter<P: Platform>(&self, cx: &KernelCtx, callee: &Callee) {
        hold_space::<P>(cx.local, self.space, self.table);
        cx.local.captbl.set(self.captbl);
        cx.local.component.set(self.object);
        callee.fill(cx, self);
    }
}

/// Makes the CPU hold an address space.
#[inline(always)]
fn hold_space<P: Platform>(local: &CpuLocal, space: u64, table: PhysAddr) {
    if local.space.get() != space {
        P::switch_root(table);
        local.space.set(space);
    }
}

/// Makes this CPU hold a component with its capability table and address space, and caches it.
///
/// # Errors
///
/// [`Error::NotFound`] if the word refers to nothing; the errors of [`Callee::find`] and [`Callee::open`].
/// The CPU then holds what it held before.
#[inline]
pub fn enter<P: Platform>(cx: &KernelCtx, object: u64) -> Result<()> {
    if enter_component::<P>(cx.local, object) {
        return Ok(());
    }
    enter_slowpath::<P>(cx, object)
}

#[cold]
fn enter_slowpath<P: Platform>(cx: &KernelCtx, object: u64) -> Result<()> {
    let callee = Callee::find(cx, WeakRef::from_bits(object).ok_or(Error::NotFound)?)?;
    let opened = callee.open::<P>(cx)?;
    opened.enter::<P>(cx, &callee);
    Ok(())
}

/// Caches a component that this CPU does not enter.
pub fn fill_component<P: Platform>(cx: &KernelCtx, callee: &Callee) {
    if let Ok(opened) = callee.open::<P>(cx) {
        callee.fill(cx, &opened);
    }
}

fn frame_word(cx: &KernelCtx, frame: FrameRef) -> Option<Snapshot> {
    let at = cx.frames().record_at(frame)?;
    let word = cx.node.map.get(at)?;
    let value = look_at_frame(word) >> REFS << REFS;
    Some(Snapshot { word, value })
}

/// The first word on the path from a capability's index to its slot, read before the slot is looked up. If it
/// is unchanged after the lookup, the lookup took this path.
#[derive(Clone, Copy)]
pub struct Route(Option<Snapshot>);

/// The path to a capability of the running component.
#[inline]
pub fn route(cx: &KernelCtx, index: CapIndex) -> Route {
    let at = || {
        let root = cx.local.captbl.get();
        cx.node
            .map
            .get(root.add(index.get() as u64 / dyad_abi::cap::LEAF_SLOTS as u64 * 8))
    };
    Route(if cx.local.cache.fast() {
        at().map(Snapshot::of)
    } else {
        None
    })
}

/// Caches an invocation endpoint without a guard, which was looked up by a route in the table of the running
/// component and leads into a component that may run here.
#[inline(never)]
pub fn fill_sinv(
    cx: &KernelCtx,
    (index, Route(entry)): (CapIndex, Route),
    found: &Found,
    to: &Entry,
    opened: &Opened,
) {
    let Some((entry, word)) = entry.zip(cx.node.map.get(found.slot)) else {
        return;
    };
    let header = Snapshot {
        word,
        value: found.header().bits(),
    };
    let index = index.get() as u64;
    let cached = cx.local.cache.sinv(index);
    cached.captbl.set(PhysAddr(0));
    // What the slot holds was read in between.
    if !(entry.same() && header.same())
        || to.address >= USER_END && !lacks!("capcache::fill_sinv::address")
    {
        return;
    }
    cached.index.set(index);
    cached.entry.set(entry);
    cached.header.set(header);
    cached.target.set(opened);
    cached.address.set(to.address);
    cached.badge.set(to.badge);
    cached.captbl.set(cx.local.captbl.get());
}
