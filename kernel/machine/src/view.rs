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

    /// The rest of the component whose frame and generation have been read.
    fn set(&self, frame: Seen, generation: Seen, kept: Kept) {
        self.frame.set(frame);
        self.generation.set(generation);
        self.captbl.set(kept.captbl);
        self.space.set(kept.space);
        self.table.set(kept.table);
        self.object.set(kept.object);
    }

    /// Makes the CPU hold the component.
    #[inline(always)]
    fn enter<P: Platform>(&self, local: &CpuLocal) {
        let space = self.space.get();
        if local.space.get() != space {
            P::switch_root(self.table.get());
            local.space.set(space);
        }
        local.captbl.set(self.captbl.get());
        local.component.set(self.object.get());
    }
}

/// The short way of an invocation: badge and token, or `None` if it is to go the long way. Program
/// counter and stack pointer are set, and the component is entered.
#[inline(always)]
pub fn invoke<P: Platform>(local: &CpuLocal, index: u64) -> Option<(u64, u64)> {
    let sinv = local.views.sinv(index);
    if sinv.captbl.get() != local.captbl.get()
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
    if object == 0 || !to.holds(object) {
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
    if !from.holds(running) {
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
    object != 0 && view.holds(object) && view.home.get() >> node.index() & 1 != 0
}

/// Remembers a component that has just been entered the long way.
pub fn learn_component<P: Platform>(cx: &Cx, object: u64) {
    let _ = try_component::<P>(cx, object);
}

fn try_component<P: Platform>(cx: &Cx, object: u64) -> Option<()> {
    let weak = WeakRef::from_bits(object)?;
    let view = cx.local.views.component(object);
    view.target.object.set(0);
    let component = learn_target::<P>(cx, weak, &view.target)?;
    view.home.set(component.home());
    // A handler that changes all the time is not remembered but looked up.
    let handler = component.fault_entry(cx.words());
    view.handler.set(handler.ok().flatten());
    Some(())
}

struct Kept {
    object: u64,
    captbl: PhysAddr,
    space: u64,
    table: PhysAddr,
}

fn learn_target<P: Platform>(cx: &Cx, object: WeakRef, target: &Target) -> Option<Parts<'static>> {
    // What is kept is read before what is looked at: later changes show.
    let frame = frame_word(cx, object.frame)?;
    let component: &'static Component = find(cx.node, object, Component::KIND).ok()?;
    let component = component.parts(cx.words());
    let generation = Seen::of(component.generation());
    let space = component.space().ok()?;
    let place: &'static Space = cx.node.map.get(space.frame.address())?;
    let kept = Kept {
        object: object.bits(),
        captbl: component.captbl_root().ok()?,
        space: space.bits(),
        table: place.root(cx.words(), P::ISA)?,
    };
    target.set(frame, generation, kept);
    Some(component)
}

fn frame_word(cx: &Cx, frame: FrameRef) -> Option<Seen> {
    let at = cx.frames().record_at(frame)?;
    let word = cx.node.map.get(at)?;
    let value = look_at_frame(word) >> REFS << REFS;
    Some(Seen { word, value })
}

/// Remembers an invocation endpoint without a guard, of the running component, that has been looked
/// up the long way, before `component`, to which it leads, is entered.
///
/// One whose component may not be entered on this node is not looked at any further. An old copy of its home
/// that says so keeps a view from being filled, and nothing else.
#[inline(always)]
pub fn learn_sinv<P: Platform>(
    cx: &Cx,
    index: CapIndex,
    found: &Found,
    to: &Entry,
    component: &Component,
) {
    if Component::nodes(look(&component.home)) >> cx.node.id().index() & 1 != 0 {
        let _ = try_sinv::<P>(cx, index, found, to);
    }
}

#[inline(never)]
fn try_sinv<P: Platform>(cx: &Cx, index: CapIndex, found: &Found, to: &Entry) -> Option<()> {
    let captbl = cx.local.captbl.get();
    let index = index.get() as u64;
    let view = cx.local.views.sinv(index);
    view.captbl.set(PhysAddr(0));
    let at = captbl.add(index / dyad_abi::cap::LEAF_SLOTS as u64 * 8);
    let entry = Seen::of(cx.node.map.get(at)?);
    let header = Seen::of(cx.node.map.get(found.slot)?);
    // The way that has just been gone must be the way that is kept.
    let again = cx.lookup(CapIndex::new(index)?).ok()?;
    if again != *found || header.value != found.header().bits() {
        return None;
    }
    view.index.set(index);
    view.entry.set(entry);
    view.header.set(header);
    let component = learn_target::<P>(cx, to.component, &view.target)?;
    // Where it may be entered is in its generation.
    if to.address >= USER_END || !component.runs_on(cx.node.id()) {
        return None;
    }
    view.address.set(to.address);
    view.badge.set(to.badge);
    view.captbl.set(captbl);
    Some(())
}
