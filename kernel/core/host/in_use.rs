//! What is in use at a moment: frames, entries of page tables and of capability tables, slots. Whatever of it has been
//! given up at a later moment must have a stamp that is not older than the first moment.

use std::vec::Vec;

use dyad_abi::cap::{LEAF_SLOTS, ROOT_ENTRIES};
use dyad_abi::{Error, Isa, Result};
use dyad_captbl::{RootEntry, SLOT_BYTES, plain as header};
use dyad_coherence::GlobalMem;
use dyad_object::kinds::{CAPTBL_LEAF, CAPTBL_ROOT};
use dyad_pgtbl::{Level, plain as entry};
use dyad_retype::{FrameType, FrameWord, KernelKind};
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, Version};

use core::sync::atomic::Ordering;

use dyad_machine::kernel_ctx::KernelCtx;
use dyad_space::mapping::table_kind;

/// Entries of a page table.
const ENTRIES: u64 = 512;

/// Words that say whether a thing is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Page(Isa),
    Leaf,
    Slot,
}

/// A thing that was in use: its word, and the frame in which that is.
#[derive(Debug)]
struct Thing {
    kind: Kind,
    frame: (FrameRef, FrameWord),
    at: PhysAddr,
}

/// What was in use at a moment.
#[derive(Debug)]
pub struct InUse {
    /// The epoch, which has begun at that moment.
    epoch: Epoch,
    frames: Vec<(FrameRef, Version)>,
    things: Vec<Thing>,
}

fn load(k: &KernelCtx, at: PhysAddr) -> u64 {
    k.words().load(at, Ordering::SeqCst)
}

fn isa_of(kind: KernelKind) -> Option<Isa> {
    const LEVELS: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::L4];
    let of = |isa: &Isa| LEVELS.iter().any(|&l| table_kind(*isa, l) == kind);
    Isa::ALL.into_iter().find(of)
}

impl Kind {
    /// What a frame of this kind consists of, and how many words or lines of it.
    fn in_frame(kind: KernelKind) -> Option<(Kind, u64, u64)> {
        match kind {
            CAPTBL_LEAF => Some((Kind::Slot, LEAF_SLOTS as u64, SLOT_BYTES)),
            CAPTBL_ROOT => Some((Kind::Leaf, ROOT_ENTRIES as u64, 8)),
            kind => isa_of(kind).map(|isa| (Kind::Page(isa), ENTRIES, 8)),
        }
    }

    fn is_used(self, raw: u64) -> bool {
        match self {
            Kind::Page(isa) => {
                entry::page_in(isa, raw).is_some() || entry::table_in(isa, raw).is_some()
            }
            Kind::Leaf => matches!(RootEntry::from_bits(raw), Some(RootEntry::Present(_))),
            Kind::Slot => header::is_active(raw),
        }
    }

    /// The stamp of what has been given up.
    fn stamp(self, k: &KernelCtx, at: PhysAddr) -> Option<Epoch> {
        let raw = load(k, at);
        match self {
            Kind::Page(isa) => entry::empty_in(isa, raw),
            Kind::Leaf => match RootEntry::from_bits(raw) {
                Some(RootEntry::Empty(epoch)) => Some(epoch),
                _ => None,
            },
            Kind::Slot => (raw == header::FREE).then(|| Epoch::saturating(load(k, at.add(8)))),
        }
    }
}

impl InUse {
    /// A new epoch begins: what is in use at that moment among these frames.
    pub fn now(k: &KernelCtx, (first, count): (FrameRef, u64)) -> Result<InUse> {
        let epoch = k.node.sb.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        let mut all = InUse {
            epoch: Epoch::saturating(epoch),
            frames: Vec::new(),
            things: Vec::new(),
        };
        for n in 0..count {
            let bits = first.bits() + n as u32;
            let frame = FrameRef::from_bits(bits).ok_or(Error::BadArgument)?;
            let (word, _) = k.frames().read(frame)?;
            if word.ty.in_use().is_none() {
                continue;
            }
            all.frames.push((frame, word.version));
            let FrameType::Kernel(kind) = word.ty else {
                continue;
            };
            let Some((kind, count, size)) = Kind::in_frame(kind) else {
                continue;
            };
            let at = (0..count).map(|i| frame.address().add(i * size));
            let used = at.filter(|&at| kind.is_used(load(k, at)));
            all.things.extend(used.map(|at| Thing {
                kind,
                frame: (frame, word),
                at,
            }));
        }
        Ok(all)
    }

    /// What has been given up since then with an older stamp.
    pub fn stamped_too_early(&self, k: &KernelCtx) -> Vec<std::string::String> {
        let read = |frame| k.frames().read(frame).expect("a frame");
        let mut early = Vec::new();
        for &(frame, version) in &self.frames {
            let (word, stamp) = read(frame);
            let next = version.0.wrapping_add(1) == word.version.0;
            if next && matches!(word.ty, FrameType::Untyped(_)) && stamp.epoch < self.epoch {
                early.push(std::format!("{frame:?}: {stamp:?}"));
            }
        }
        for thing in &self.things {
            let (frame, was) = thing.frame;
            let (word, _) = read(frame);
            if (word.version, word.ty) != (was.version, was.ty) {
                continue;
            }
            if let Some(stamp) = thing.kind.stamp(k, thing.at)
                && stamp < self.epoch
            {
                early.push(std::format!("{thing:?}: {stamp:?}"));
            }
        }
        early
    }
}
