//! What this CPU remembers of invocations, so that the next one of the same kind is short.
//!
//! An invocation follows a chain of words: root entry, leaf, slot, component, address space, root of
//! the page table. A *view* keeps what the chain led to, and every word on the way as it was read.
//! It is used only if each of them still is what it was, so a view is never wrong, only useless; it
//! is private to its CPU and nobody has to be told of it.
//!
//! | word | what would change it |
//! |---|---|
//! | root entry | cons, decons |
//! | leaf's frame word | retype of the leaf |
//! | slot header and stamp | deactivation (a slot that is filled again has a newer stamp) |
//! | component's frame word | retype, freeze |
//! | component's table, space, home | `Configure`, `SetHome` |
//! | page-table root of the space | `Link`, `Unlink` of a root |
//!
//! The space itself needs no look: the component pins it. Capabilities with a guard have no view.
//!
//! Loads are of this CPU's view of the lines, as in all lookups: where caches are not coherent, what
//! another node has changed shows after this node's next round at the latest.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_captbl::Found;
use dyad_shm::frame::WeakRef;
use dyad_shm::{FrameRef, PhysAddr};

use crate::Platform;
use crate::cpu::CpuLocal;
use crate::cx::Cx;
use crate::object::component::{Component, Entry};
use crate::object::find;
use crate::object::space::Space;

/// Views of each kind that a CPU keeps. By hash: a view takes the place of another one.
const VIEWS: usize = 16;
/// Bits below the frame's version, type and kind.
const REFS: u32 = 24;

static NOTHING: AtomicU64 = AtomicU64::new(0);

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
            value: word.load(Ordering::Acquire),
        }
    }

    #[inline(always)]
    fn same(&self) -> bool {
        self.word.load(Ordering::Acquire) == self.value
    }

    /// The same, of a frame word: references may come and go.
    #[inline(always)]
    fn same_frame(&self) -> bool {
        (self.word.load(Ordering::Acquire) ^ self.value) >> REFS == 0
    }
}

/// A component.
struct ComponentView {
    /// Weak reference; 0: no view.
    object: Cell<u64>,
    frame: Cell<Seen>,
    captbl: Cell<Seen>,
    captbl_root: Cell<PhysAddr>,
    space: Cell<Seen>,
    home: Cell<Seen>,
    /// Root of the page table of this machine's ISA: the word, and where it is.
    root: Cell<Seen>,
    table: Cell<PhysAddr>,
}

/// An invocation endpoint in a capability table.
struct SinvView {
    /// Root of the table; 0: no view.
    captbl: Cell<PhysAddr>,
    index: Cell<u64>,
    entry: Cell<Seen>,
    leaf: Cell<Seen>,
    header: Cell<Seen>,
    stamp: Cell<Seen>,
    component: Cell<u64>,
    address: Cell<u64>,
    badge: Cell<u64>,
}

/// The views of one CPU.
pub struct Views {
    components: [ComponentView; VIEWS],
    sinvs: [SinvView; VIEWS],
}

impl Views {
    /// None.
    pub const fn new() -> Views {
        Views {
            components: [const {
                ComponentView {
                    object: Cell::new(0),
                    frame: Cell::new(Seen::NOTHING),
                    captbl: Cell::new(Seen::NOTHING),
                    captbl_root: Cell::new(PhysAddr(0)),
                    space: Cell::new(Seen::NOTHING),
                    home: Cell::new(Seen::NOTHING),
                    root: Cell::new(Seen::NOTHING),
                    table: Cell::new(PhysAddr(0)),
                }
            }; VIEWS],
            sinvs: [const {
                SinvView {
                    captbl: Cell::new(PhysAddr(0)),
                    index: Cell::new(0),
                    entry: Cell::new(Seen::NOTHING),
                    leaf: Cell::new(Seen::NOTHING),
                    header: Cell::new(Seen::NOTHING),
                    stamp: Cell::new(Seen::NOTHING),
                    component: Cell::new(0),
                    address: Cell::new(0),
                    badge: Cell::new(0),
                }
            }; VIEWS],
        }
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
    /// Whether the view is of this component, still holds, and its code may run here.
    #[inline(always)]
    fn holds(&self, object: u64, home: u64) -> bool {
        let may = self.home.get();
        self.object.get() == object
            && self.frame.get().same_frame()
            && self.captbl.get().same()
            && self.space.get().same()
            && may.same()
            && (may.value == 0 || may.value & home != 0)
    }

    /// Makes the CPU hold the component. `false`: its page table is another one now.
    #[inline(always)]
    fn enter<P: Platform>(&self, local: &CpuLocal) -> bool {
        let space = self.space.get().value;
        if local.space.get() != space {
            if !self.root.get().same() {
                return false;
            }
            P::switch_root(self.table.get());
            local.space.set(space);
        }
        local.captbl.set(self.captbl_root.get());
        local.component.set(self.object.get());
        true
    }
}

/// The short way of an invocation: badge and token, or `None` if it is to go the long way. Program
/// counter and stack pointer are set, and the component is entered.
#[inline(always)]
pub fn invoke<P: Platform>(local: &CpuLocal, index: u64) -> Option<(u64, u64)> {
    let sinv = local.views.sinv(index);
    if sinv.captbl.get() != local.captbl.get()
        || sinv.index.get() != index
        || !sinv.entry.get().same()
        || !sinv.leaf.get().same_frame()
        || !sinv.header.get().same()
        || !sinv.stamp.get().same()
    {
        return None;
    }
    let object = sinv.component.get();
    let to = local.views.component(object);
    if !to.holds(object, local.home.get()) {
        return None;
    }
    let t = local.thread.get()?;
    let depth = t.depth.load(Ordering::Relaxed);
    let frame = t.frames.get(depth as usize)?;
    let area = t.regs(P::ISA);
    let (pc, sp) = P::user_pc_sp(area);
    let from = local.component.get();
    if !to.enter::<P>(local) {
        return None;
    }
    frame.component.store(from, Ordering::Relaxed);
    frame.pc.store(pc, Ordering::Relaxed);
    frame.sp.store(sp, Ordering::Relaxed);
    frame.info.store(0, Ordering::Relaxed);
    t.depth.store(depth.wrapping_add(1), Ordering::Relaxed);
    t.component.store(object, Ordering::Relaxed);
    P::set_user_pc_sp(area, sinv.address.get(), 0);
    let token = t.id.load(Ordering::Relaxed) << 8 | depth.wrapping_add(1);
    Some((sinv.badge.get(), token))
}

/// The short way of a return; `None` if it is to go the long way.
#[inline(always)]
pub fn leave<P: Platform>(local: &CpuLocal) -> Option<()> {
    let t = local.thread.get()?;
    let at = t.depth.load(Ordering::Relaxed).wrapping_sub(1);
    let frame = t.frames.get(at as usize)?;
    let object = frame.component.load(Ordering::Relaxed);
    if frame.info.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let to = local.views.component(object);
    // It came from there, so it may run there.
    if !to.holds(object, u64::MAX) || !to.enter::<P>(local) {
        return None;
    }
    t.depth.store(at, Ordering::Relaxed);
    t.component.store(object, Ordering::Relaxed);
    P::set_user_pc_sp(
        t.regs(P::ISA),
        frame.pc.load(Ordering::Relaxed),
        frame.sp.load(Ordering::Relaxed),
    );
    Some(())
}

/// Remembers a component that has just been entered the long way.
pub fn learn_component<P: Platform>(cx: &Cx, object: u64) {
    let _ = try_component::<P>(cx, object);
}

fn try_component<P: Platform>(cx: &Cx, object: u64) -> Option<()> {
    let weak = WeakRef::from_bits(object)?;
    let view = cx.local.views.component(object);
    view.object.set(0);
    // In this order: what is kept is at least as old as what is looked at later.
    let frame = frame_word(cx, weak.frame)?;
    let component: &'static Component = find(cx.node, weak, Component::KIND).ok()?;
    let (captbl, space) = (Seen::of(&component.captbl), Seen::of(&component.space));
    let home = Seen::of(&component.home);
    let place: &'static Space = cx
        .node
        .map
        .get(WeakRef::from_bits(space.value)?.frame.address())?;
    let root = Seen::of(&place.roots[P::ISA.index()]);
    if captbl.value == 0 || space.value == 0 || root.value == 0 {
        return None;
    }
    view.frame.set(frame);
    view.captbl.set(captbl);
    view.captbl_root
        .set(WeakRef::from_bits(captbl.value)?.frame.address());
    view.space.set(space);
    view.home.set(home);
    view.root.set(root);
    view.table
        .set(WeakRef::from_bits(root.value)?.frame.address());
    view.object.set(object);
    Some(())
}

fn frame_word(cx: &Cx, frame: FrameRef) -> Option<Seen> {
    let at = cx.frames().record_at(frame)?;
    Some(Seen::of(cx.node.map.get(at)?))
}

/// Remembers an invocation endpoint without a guard, of the running component, that has been looked
/// up the long way, before it is entered.
pub fn learn_sinv(cx: &Cx, index: CapIndex, found: &Found, to: &Entry) {
    let _ = try_sinv(cx, index, found, to);
}

fn try_sinv(cx: &Cx, index: CapIndex, found: &Found, to: &Entry) -> Option<()> {
    let captbl = cx.local.captbl.get();
    let index = index.get() as u64;
    let view = cx.local.views.sinv(index);
    view.captbl.set(PhysAddr(0));
    let at = captbl.add(index / dyad_abi::cap::LEAF_SLOTS as u64 * 8);
    let entry = Seen::of(cx.node.map.get(at)?);
    let leaf = frame_word(cx, FrameRef::of(found.slot)?)?;
    let header = Seen::of(cx.node.map.get(found.slot)?);
    let stamp = Seen::of(cx.node.map.get(found.slot.add(8))?);
    // The way that has just been gone must be the way that is kept.
    let again = cx.lookup(CapIndex::new(index)?).ok()?;
    if again != *found || header.value != found.header().bits() {
        return None;
    }
    view.index.set(index);
    view.entry.set(entry);
    view.leaf.set(leaf);
    view.header.set(header);
    view.stamp.set(stamp);
    view.component.set(to.component.bits());
    view.address.set(to.address);
    view.badge.set(to.badge);
    view.captbl.set(captbl);
    Some(())
}
