//! What this CPU remembers of capabilities and components, so that their next use is short.
//!
//! An invocation follows a chain of words: root entry, slot, component, address space, root of the
//! page table. A *view* keeps what the chain led to, and those words on the way that change when
//! something is taken out of it:
//!
//! | word | what changes it |
//! |---|---|
//! | root entry | cons, decons |
//! | slot header | deactivation |
//! | component's frame word | retype, freeze |
//! | component's generation | `Configure`, `SetHome`, `SetFaultHandler` |
//!
//! A view is used only if they still are what they were. Before anything that was taken out can be
//! filled again, or used for something else, every CPU goes through a round or sleeps, and both
//! forget all views ([`Views::forget`]): so a word that is the same again always means the same.
//! Tables and roots need no look of their own: they are pinned by the component and its space, and a
//! root that has been taken out is left in the next round at the latest, like that of a CPU which
//! was there already. Capabilities with a guard have no view. Capabilities of other types have views
//! as well, with the frame word of their object; and empty slots.
//!
//! The short way is for threads with nothing in floating-point registers, which must be forgotten or
//! kept: `dyad_core::fp`.
//!
//! A kernel built with the feature `slowpath` has no views, and so no fast paths: each operation
//! follows the chain of words ([`Views::fast`]). Programs notice nothing but time.
//!
//! Views are private to their CPU; nobody has to be told of them. Loads are of this CPU's view of the
//! lines, as in all lookups: where caches are not coherent, what another node has changed shows
//! after this node's next round at the latest.

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

use self::cap::CAP_VIEWS;
pub use self::cap::{
    CapView, Family, Place, called, capability, frame, last_called, learn_capability, learn_empty,
};
use self::frames::OwnWords;
use self::leaf::LeafViews;
use self::page::PageViews;
use crate::Platform;
use crate::cpu::CpuLocal;
use crate::cx::Cx;
use crate::memory::load_permitted;
use crate::object::component::{Component, Entry, Parts};
use crate::object::find;
use crate::object::space::Space;
use crate::object::thread::{Thread, info};
use crate::platform::copy_used;

/// Views of each kind that a CPU keeps. By hash: a view takes the place of another one.
const VIEWS: usize = 16;
/// Bits below the frame's version, type and kind.
const REFS: u32 = 24;

static NOTHING: AtomicU64 = AtomicU64::new(0);
static NO_LINE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// A word as this node sees it, like all that lookups read.
#[inline(always)]
fn look(word: &AtomicU64) -> u64 {
    load_permitted::<{ Permitted::Lookup as u32 }>(word)
}

/// The word of an object's frame, likewise.
#[inline(always)]
fn look_at_frame(word: &AtomicU64) -> u64 {
    load_permitted::<{ Permitted::Object as u32 }>(word)
}

/// A word, as it was.
#[derive(Clone, Copy)]
struct Seen {
    word: &'static AtomicU64,
    value: u64,
}

impl Seen {
    const NOTHING: Seen = Seen {
        word: &NOTHING,
        value: 0,
    };

    fn of(word: &'static AtomicU64) -> Seen {
        Seen {
            word,
            value: look(word),
        }
    }

    #[inline(always)]
    fn same(&self) -> bool {
        look(self.word) == self.value
    }

    /// The same, of a frame word without references: they may come and go.
    #[inline(always)]
    fn same_frame(&self) -> bool {
        (look_at_frame(self.word) ^ self.value) >> REFS == 0
    }
}

/// What entering a component is.
struct Target {
    /// Weak reference; 0: no view.
    object: Cell<u64>,
    frame: Cell<Seen>,
    generation: Cell<Seen>,
    captbl: Cell<PhysAddr>,
    space: Cell<u64>,
    /// Root of the page table of this machine's ISA.
    table: Cell<PhysAddr>,
}

/// A component.
#[repr(align(128))]
struct ComponentView {
    target: Target,
    /// Nodes on which it may be entered anew.
    home: Cell<u64>,
    /// Where its faults go.
    handler: Cell<Option<Entry>>,
}

/// An invocation endpoint in a capability table, to a component that may be entered on this node.
#[repr(align(256))]
struct SinvView {
    /// Root of the table; 0: no view.
    captbl: Cell<PhysAddr>,
    index: Cell<u64>,
    entry: Cell<Seen>,
    header: Cell<Seen>,
    target: Target,
    /// Of the user half.
    address: Cell<u64>,
    badge: Cell<u64>,
}

/// The views of one CPU.
pub struct Views {
    /// Whether every operation takes the slow path: for tests that compare the two.
    #[cfg(feature = "host")]
    slow: Cell<bool>,
    components: [ComponentView; VIEWS],
    sinvs: [SinvView; VIEWS],
    caps: [CapView; CAP_VIEWS],
    /// What rows of frames need. Never changes once it is known.
    own: OwnWords,
    /// Leaves of capability tables.
    pub leaves: LeafViews,
    /// Page tables and what is in them.
    pub pages: PageViews,
}

impl Views {
    /// None.
    pub const fn new() -> Views {
        Views {
            #[cfg(feature = "host")]
            slow: Cell::new(false),
            components: [const {
                ComponentView {
                    target: Target::NOTHING,
                    home: Cell::new(0),
                    handler: Cell::new(None),
                }
            }; VIEWS],
            sinvs: [const {
                SinvView {
                    captbl: Cell::new(PhysAddr(0)),
                    index: Cell::new(0),
                    entry: Cell::new(Seen::NOTHING),
                    header: Cell::new(Seen::NOTHING),
                    target: Target::NOTHING,
                    address: Cell::new(0),
                    badge: Cell::new(0),
                }
            }; VIEWS],
            caps: [const { CapView::NOTHING }; CAP_VIEWS],
            own: OwnWords::new(),
            leaves: LeafViews::new(),
            pages: PageViews::new(),
        }
    }

    /// Whether there are views, and so fast paths: a constant of the build, but for tests.
    #[inline(always)]
    pub fn fast(&self) -> bool {
        #[cfg(feature = "host")]
        if self.slow.get() {
            return false;
        }
        cfg!(not(feature = "slowpath"))
    }

    /// Has every operation of this CPU take the slow path, or not.
    #[cfg(feature = "host")]
    pub fn set_slow(&self, slow: bool) {
        self.forget();
        self.slow.set(slow);
    }

    /// Forgets all of them: in each round, and before sleep.
    pub fn forget(&self) {
        for c in &self.components {
            c.target.object.set(0);
        }
        for s in &self.sinvs {
            s.captbl.set(PhysAddr(0));
        }
        self.caps.iter().for_each(CapView::forget);
        self.leaves.forget();
        self.pages.forget();
    }

    /// How many of each kind are cached: components, invocation endpoints, capabilities, leaves of capability tables,
    /// page tables, blocks, regions.
    #[cfg(any(test, feature = "host"))]
    pub fn cached(&self) -> [usize; 7] {
        fn count<T>(all: &[T], is_cached: impl Fn(&T) -> bool) -> usize {
            all.iter().filter(|v| is_cached(v)).count()
        }
        let [tables, blocks, regions] = self.pages.cached();
        [
            count(&self.components, |c| c.target.object.get() != 0),
            count(&self.sinvs, |s| s.captbl.get() != PhysAddr(0)),
            count(&self.caps, CapView::is_cached),
            self.leaves.cached(),
            tables,
            blocks,
            regions,
        ]
    }

    #[inline(always)]
    fn component(&self, object: u64) -> &ComponentView {
        &self.components[object as usize % VIEWS]
    }

    #[inline(always)]
    fn sinv(&self, index: u64) -> &SinvView {
        &self.sinvs[index as usize % VIEWS]
    }
}

impl Default for Views {
    fn default() -> Views {
        Views::new()
    }
}

impl ComponentView {
    /// Whether the view is of this component and still holds.
    #[inline(always)]
    fn holds(&self, object: u64) -> bool {
        self.target.object.get() == object && self.target.holds()
    }
}

impl Target {
    #[allow(clippy::declare_interior_mutable_const, reason = "made anew each time")]
    const NOTHING: Target = Target {
        object: Cell::new(0),
        frame: Cell::new(Seen::NOTHING),
        generation: Cell::new(Seen::NOTHING),
        captbl: Cell::new(PhysAddr(0)),
        space: Cell::new(0),
        table: Cell::new(PhysAddr(0)),
    };

    #[inline(always)]
    fn holds(&self) -> bool {
        self.frame.get().same_frame()
            && (self.generation.get().same() || lacks!("view::holds::generation"))
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

/// The short way of an invocation: badge and token, or `None` if it is to go the long way. Program
/// counter and stack pointer are set, and the component is entered.
#[inline(always)]
pub fn invoke<P: Platform>(local: &CpuLocal, index: u64) -> Option<(u64, u64)> {
    let sinv = local.views.sinv(index);
    if !local.views.fast()
        || sinv.captbl.get() != local.captbl.get()
        || sinv.index.get() != index
        || !(sinv.entry.get().same() || lacks!("view::invoke::entry"))
        || !(sinv.header.get().same() || lacks!("view::invoke::header"))
    {
        return None;
    }
    let to = &sinv.target;
    if !to.holds() {
        return None;
    }
    let t = local.short_way.get()?;
    let area = t.regs(P::ISA);
    let depth = t.push(local.component.get(), P::user_pc_sp(area), 0)?;
    P::set_entry(area, sinv.address.get());
    t.component.store(to.object.get(), Ordering::Relaxed);
    let token = t.token_at(depth);
    to.enter::<P>(local);
    Some((sinv.badge.get(), token))
}

/// The short way of a return with `word` as its first; `None` if it is to go the long way.
#[inline(always)]
pub fn leave<P: Platform>(local: &'static CpuLocal, word: u64) -> Option<()> {
    if !local.views.fast() {
        return None;
    }
    let t = local.short_way.get()?;
    let (at, frame) = t.top()?;
    let object = frame.component.load(Ordering::Relaxed);
    match frame.info.load(Ordering::Relaxed) {
        0 => {}
        info::FAULT if word == 0 => return retry::<P>(local, t, at, object),
        _ => return None,
    }
    let to = local.views.component(object);
    // It came from there, so it may run there.
    if !to.holds(object) {
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

/// The short way back to an instruction that has faulted; comes back if it is to go the long way.
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

/// Enters a component that this CPU remembers; `false` if it does not, or the component is not what
/// it was.
#[inline(always)]
pub fn enter_component<P: Platform>(local: &CpuLocal, object: u64) -> bool {
    let to = local.views.component(object);
    if !local.views.fast() || object == 0 || !to.holds(object) {
        return false;
    }
    to.target.enter::<P>(local);
    true
}

/// Enters the fault handler of the running component; `None` if this CPU does not remember both.
#[inline]
pub fn enter_handler<P: Platform>(local: &CpuLocal) -> Option<Entry> {
    let running = local.component.get();
    let from = local.views.component(running);
    if !local.views.fast() || !from.holds(running) {
        return None;
    }
    let to = from.handler.get()?;
    let object = to.component.bits();
    let handler = local.views.component(object);
    if !handler.holds(object) || handler.home.get() & local.home.get() == 0 {
        return None;
    }
    handler.target.enter::<P>(local);
    Some(to)
}

/// Whether this CPU remembers a component as one that may run on a node.
#[inline(always)]
pub fn may_run_at(local: &CpuLocal, object: u64, node: dyad_abi::NodeId) -> bool {
    let view = local.views.component(object);
    local.views.fast()
        && object != 0
        && view.holds(object)
        && view.home.get() >> node.index() & 1 != 0
}

/// A component that a reference leads to: looked up once, for all that is done with it.
#[derive(Clone, Copy)]
pub struct Callee {
    object: WeakRef,
    /// What it consists of.
    pub parts: Parts<'static>,
    /// Its frame's word, without references. Read before anything in the component: what changes later shows.
    frame: Seen,
}

impl Callee {
    /// The component of a reference.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`] if there is no such component any more.
    #[inline]
    pub fn find(cx: &Cx, object: WeakRef) -> Result<Callee> {
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
            frame: Seen {
                word,
                value: raw >> REFS << REFS,
            },
        })
    }

    /// What entering it is. Its parts are weak references that the component pins: they are what they were as
    /// long as the component has them.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if it has not been configured, [`Error::NoIsa`] if its space has no table for this
    /// machine, [`Error::Revoked`] if there is no such space any more.
    #[inline]
    pub fn open<P: Platform>(&self, cx: &Cx) -> Result<Opened> {
        // Where it runs has been read since as well: a change shows in the generation.
        let (word, value) = self.parts.generation();
        let generation = match lacks!("view::open::generation") {
            false => Seen { word, value },
            true => Seen::of(word),
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

    /// Remembers the component, if there are views.
    fn remember(&self, cx: &Cx, opened: &Opened) {
        if !cx.local.views.fast() {
            return;
        }
        let view = cx.local.views.component(opened.object);
        view.target.object.set(0);
        view.home.set(self.parts.home());
        // A handler that changes all the time is not remembered but looked up.
        let handler = self.parts.fault_entry(cx.words());
        view.handler.set(handler.ok().flatten());
        view.target.set(opened);
    }
}

/// What entering a component is, and the words that tell whether it still is that.
#[derive(Clone, Copy)]
pub struct Opened {
    object: u64,
    frame: Seen,
    generation: Seen,
    captbl: PhysAddr,
    space: u64,
    table: PhysAddr,
}

impl Opened {
    /// Makes the CPU hold the component: table and space change together.
    #[inline]
    pub fn enter<P: Platform>(&self, cx: &Cx, callee: &Callee) {
        hold_space::<P>(cx.local, self.space, self.table);
        cx.local.captbl.set(self.captbl);
        cx.local.component.set(self.object);
        callee.remember(cx, self);
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

/// Makes this CPU hold a component, capability table and address space, and remember it.
///
/// # Errors
///
/// [`Error::NotFound`] of a word that refers to nothing; as [`Callee::find`] and [`Callee::open`]. The CPU holds
/// then what it held before.
#[inline]
pub fn enter<P: Platform>(cx: &Cx, object: u64) -> Result<()> {
    if enter_component::<P>(cx.local, object) {
        return Ok(());
    }
    enter_slowly::<P>(cx, object)
}

#[cold]
fn enter_slowly<P: Platform>(cx: &Cx, object: u64) -> Result<()> {
    let callee = Callee::find(cx, WeakRef::from_bits(object).ok_or(Error::NotFound)?)?;
    let opened = callee.open::<P>(cx)?;
    opened.enter::<P>(cx, &callee);
    Ok(())
}

/// Remembers a component that this CPU does not enter.
pub fn remember<P: Platform>(cx: &Cx, callee: &Callee) {
    if let Ok(opened) = callee.open::<P>(cx) {
        callee.remember(cx, &opened);
    }
}

fn frame_word(cx: &Cx, frame: FrameRef) -> Option<Seen> {
    let at = cx.frames().record_at(frame)?;
    let word = cx.node.map.get(at)?;
    let value = look_at_frame(word) >> REFS << REFS;
    Some(Seen { word, value })
}

/// The first word on the way from a capability's index to its slot, read before the slot is looked up: if it is
/// the same afterwards, that is the way that was gone.
#[derive(Clone, Copy)]
pub struct Route(Option<Seen>);

/// The way to a capability of the running component.
#[inline]
pub fn route(cx: &Cx, index: CapIndex) -> Route {
    let at = || {
        let root = cx.local.captbl.get();
        cx.node
            .map
            .get(root.add(index.get() as u64 / dyad_abi::cap::LEAF_SLOTS as u64 * 8))
    };
    Route(if cx.local.views.fast() {
        at().map(Seen::of)
    } else {
        None
    })
}

/// Remembers an invocation endpoint without a guard, of the component that this CPU holds, that has been looked up by
/// a route and leads into a component that may run here.
#[inline(never)]
pub fn remember_sinv(
    cx: &Cx,
    (index, Route(entry)): (CapIndex, Route),
    found: &Found,
    to: &Entry,
    opened: &Opened,
) {
    let Some((entry, word)) = entry.zip(cx.node.map.get(found.slot)) else {
        return;
    };
    let header = Seen {
        word,
        value: found.header().bits(),
    };
    let index = index.get() as u64;
    let view = cx.local.views.sinv(index);
    view.captbl.set(PhysAddr(0));
    // What the slot holds was read in between.
    if !(entry.same() && header.same()) || to.address >= USER_END {
        return;
    }
    view.index.set(index);
    view.entry.set(entry);
    view.header.set(header);
    view.target.set(opened);
    view.address.set(to.address);
    view.badge.set(to.badge);
    view.captbl.set(cx.local.captbl.get());
}
