//! Bundles into address spaces: starts the program.
//!
//! Shared segments get one frame per page, mapped on every ISA. Segments of one ISA are mapped in
//! that ISA's table only, at the same addresses, so that a function has one address and two
//! bodies. Frames with code pass through [`inbox::publish_code`] first, because a machine that
//! has executed other code in the same frame keeps stale translations of it.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::bundle::{Bundle, BundleError, Scope, Segment};
use dyad_abi::user::{PAGE_SIZE, Tcb, stack_slot, tcb_address};
use dyad_abi::{Error, Isa};
use dyad_shm::{FrameRef, PhysAddr};

use crate::frames::Frames;
use crate::node::Node;
use crate::space::{Placed, Region, RegionKind, Space};
use crate::thread::{Owner, OwnerState, Start, ThreadFrame};
use crate::{Platform, inbox, info, sched};

/// Why a program was not started.
#[derive(Debug)]
pub enum LoadError {
    /// The bundle is not where the launcher said.
    Missing,
    /// The bundle was refused.
    Bundle(BundleError),
    /// Loading failed.
    Kernel {
        /// What was being done.
        what: &'static str,
        /// The error.
        error: Error,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Missing => f.write_str("the bundle is not inside the CXL pool"),
            LoadError::Bundle(e) => write!(f, "{e}"),
            LoadError::Kernel { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

fn during(what: &'static str) -> impl Fn(Error) -> LoadError {
    move |error| LoadError::Kernel { what, error }
}

/// Loads the launcher's bundle and makes its main thread ready on this CPU.
///
/// # Errors
///
/// [`LoadError`]; what was allocated until then is given back.
pub fn start<P: Platform>(node: &'static Node) -> Result<(), LoadError> {
    let bytes = node
        .map
        .launcher_bytes(node.params.bundle_offset, node.params.bundle_len)
        .ok_or(LoadError::Missing)?;
    let bundle = Bundle::parse(bytes).map_err(LoadError::Bundle)?;
    let (space, reference) = Space::create(node).map_err(during("address space"))?;
    match populate::<P>(node, &space, reference, &bundle) {
        Ok(thread) => {
            node.sb
                .program
                .store(reference.bits() as u64 + 1, Ordering::Release);
            sched::make_ready(node, P::local(), thread);
            Ok(())
        }
        Err(e) => {
            space.destroy(reference);
            Err(e)
        }
    }
}

fn populate<P: Platform>(
    node: &'static Node,
    space: &Space<'_>,
    reference: FrameRef,
    bundle: &Bundle<'_>,
) -> Result<&'static ThreadFrame, LoadError> {
    let mut pages = [0u64; 3];
    for s in bundle.segments() {
        let n = load_segment::<P>(node, space, &s).map_err(during("segment"))?;
        pages[match s.scope {
            Scope::Shared => 2,
            Scope::Isa(isa) => isa.index(),
        }] += n;
    }
    for isa in node.isas() {
        let (start, end) = stack_slot(isa, 0);
        space
            .add_region(Region {
                start,
                end,
                kind: RegionKind::Fixed,
                write: true,
            })
            .map_err(during("stack"))?;
    }
    let tcb = tcb_address(0);
    make_tcb(node, space, tcb).map_err(during("thread control block"))?;
    let frame = node.frames().alloc().map_err(during("thread"))?;
    let owner = Owner {
        state: OwnerState::Ready,
        node: node.id(),
        incarnation: node.incarnation(),
        seq: 0,
    };
    let start = Start {
        id: 0,
        entry: bundle.entry(),
        arg: 0,
    };
    let thread =
        ThreadFrame::create(&node.map, frame, reference, start, owner).map_err(during("thread"))?;
    thread.start_here::<P>();
    let bits = FrameRef::of(frame).map_or(0, |f| f.bits() as u64 + 1);
    space.frame().main_thread.store(bits, Ordering::Release);
    info!(
        P,
        "loaded {:?}: {} shared pages, {} for x86_64, {} for aarch64, entry {:#x}",
        bundle.name(),
        pages[2],
        pages[Isa::X86_64.index()],
        pages[Isa::Aarch64.index()],
        bundle.entry()
    );
    Ok(thread)
}

/// Maps a segment; returns how many pages got frames.
fn load_segment<P: Platform>(
    node: &Node,
    space: &Space<'_>,
    s: &Segment<'_>,
) -> dyad_abi::Result<u64> {
    if let Scope::Isa(isa) = s.scope
        && !node.isas().any(|i| i == isa)
    {
        return Ok(0);
    }
    let filled = (s.bytes.len() as u64).next_multiple_of(PAGE_SIZE);
    let end = s.va + s.mem_len.next_multiple_of(PAGE_SIZE);
    // Text and constants of both ISAs have regions at the same addresses: one region serves both.
    let region = |start, end, kind| Region {
        start,
        end,
        kind,
        write: s.write,
    };
    let add = |r: Region| match space.add_region(r) {
        Err(Error::Exists) if matches!(s.scope, Scope::Isa(_)) => Ok(()),
        other => other,
    };
    if filled > 0 {
        add(region(s.va, s.va + filled, RegionKind::Image))?;
    }
    if s.va + filled < end {
        // What the file does not fill is zero: frames come when it is touched.
        add(region(s.va + filled, end, RegionKind::Fixed))?;
    }
    let frames = node.frames();
    for (i, chunk) in s.bytes.chunks(PAGE_SIZE as usize).enumerate() {
        let va = s.va + i as u64 * PAGE_SIZE;
        let pa = frames.alloc()?;
        settle(node, pa, place::<P>(node, space, s, va, pa, chunk))?;
    }
    Ok(filled / PAGE_SIZE)
}

/// Gives a frame back that no table has taken. Nothing may have been mapped there before.
fn settle(node: &Node, pa: PhysAddr, placed: Placed) -> dyad_abi::Result<()> {
    if placed.used {
        return placed.result;
    }
    Frames::free(&node.map, pa)?;
    placed.result.and(Err(Error::Exists))
}

fn place<P: Platform>(
    node: &Node,
    space: &Space<'_>,
    s: &Segment<'_>,
    va: u64,
    pa: PhysAddr,
    chunk: &[u8],
) -> Placed {
    let refused = |e| Placed {
        used: false,
        result: Err(e),
    };
    if !node.map.write_bytes(pa, chunk) {
        return refused(Error::Corrupt);
    }
    let on = match s.scope {
        Scope::Shared => u8::MAX,
        Scope::Isa(isa) => node.nodes_with(isa),
    };
    if s.exec
        && let Err(e) = inbox::publish_code::<P>(pa, on)
    {
        return refused(e);
    }
    let frames = node.frames();
    let leaf = Space::user_leaf(pa, s.write, s.exec);
    match s.scope {
        Scope::Shared => space.map_everywhere(va, leaf, &frames),
        Scope::Isa(isa) => match space.map_in(isa, va, leaf, &frames) {
            Ok(there) => Placed {
                used: there.pa == pa,
                result: Ok(()),
            },
            Err(e) => refused(e),
        },
    }
}

fn make_tcb(node: &Node, space: &Space<'_>, va: u64) -> dyad_abi::Result<()> {
    space.add_region(Region {
        start: va,
        end: va + PAGE_SIZE,
        kind: RegionKind::Image,
        write: true,
    })?;
    let frames = node.frames();
    let pa = frames.alloc()?;
    // All other words are zero, as the frame is.
    node.map
        .word(pa.add(core::mem::offset_of!(Tcb, this) as u64))
        .store(va, Ordering::Relaxed);
    let leaf = Space::user_leaf(pa, true, false);
    settle(node, pa, space.map_everywhere(va, leaf, &frames))
}
