//! Threads: one frame of fused memory each, with one register area per ISA.
//!
//! A thread is a *heterogeneous continuation*: what it was doing on each ISA is kept apart, and
//! exactly one of the areas is the one that runs. The owner word says which CPU may touch the
//! frame:
//!
//! ```text
//!            enqueue            resume                      migrate: registers and floating
//!   READY ◀─────────── READY ───────────▶ RUNNING(n) ──────point state saved, then────▶ TRANSIT(m)
//!     ▲                                                                                    │
//!     └──────────────────────── receiver's CAS, after reading the message ─────────────────┘
//! ```
//!
//! | step | order |
//! |---|---|
//! | give up: save registers and floating point, then store TRANSIT(to, incarnation, seq+1) | release |
//! | take over: CAS TRANSIT → READY(self) | acquire |
//!
//! `seq` counts hand-overs, so that a message about an older one cannot take the thread again.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_shm::{FrameRef, FusedMap, LayoutHash, PhysAddr, shared_layout, shared_struct};

use crate::Platform;
use crate::platform::{FP_WORDS, FpArea, REG_WORDS, RegArea};

/// First word of a thread frame: "DYADTHRD".
const MAGIC: u64 = u64::from_le_bytes(*b"DYADTHRD");

/// Who owns a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OwnerState {
    /// Being made, or gone.
    None = 0,
    /// Waits for a CPU of its node, or sleeps there.
    Ready = 1,
    /// Runs on a CPU of its node, or is in its kernel.
    Running = 2,
    /// On its way to `node`.
    Transit = 3,
}

/// The owner word: `seq:24 | incarnation:24 | node:8 | state:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// State.
    pub state: OwnerState,
    /// The node that owns it, or that it is on its way to.
    pub node: NodeId,
    /// Incarnation of that node (24 bits).
    pub incarnation: u32,
    /// Number of hand-overs so far (24 bits, wrapping).
    pub seq: u32,
}

const FIELD: u32 = 0xff_ffff;

impl Owner {
    /// The word.
    pub const fn bits(self) -> u64 {
        self.state as u64
            | (self.node.index() as u64) << 8
            | ((self.incarnation & FIELD) as u64) << 16
            | ((self.seq & FIELD) as u64) << 40
    }

    /// Reads a word; `None` if it is none.
    pub const fn from_bits(w: u64) -> Option<Owner> {
        let state = match w as u8 {
            0 => OwnerState::None,
            1 => OwnerState::Ready,
            2 => OwnerState::Running,
            3 => OwnerState::Transit,
            _ => return None,
        };
        match NodeId::new(w >> 8 & 0xff) {
            Some(node) => Some(Owner {
                state,
                node,
                incarnation: (w >> 16) as u32 & FIELD,
                seq: (w >> 40) as u32,
            }),
            None => None,
        }
    }

    /// The same thread in another state of the same owner.
    #[must_use]
    pub const fn with(self, state: OwnerState) -> Owner {
        Owner { state, ..self }
    }
}

shared_struct! {
    /// A thread.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct ThreadFrame {
        magic: AtomicU64,
        /// An [`Owner`].
        pub owner: AtomicU64,
        /// Number within its program.
        pub id: AtomicU64,
        /// Address space: `FrameRef` bits.
        pub space: AtomicU64,
        /// Run-queue link: `FrameRef` bits plus one, 0 at the end. Used by the owner only.
        pub link: AtomicU64,
        /// Fused time at which it wants to run again; 0 if it is not asleep.
        pub wake_at: AtomicU64,
        /// Entry point and its argument, for the first entry on each ISA.
        pub entry: AtomicU64,
        /// See `entry`.
        pub arg: AtomicU64,
        /// Per ISA: 1 once the thread has been started there.
        pub started: [AtomicU64; dyad_abi::ident::ISA_COUNT],
        /// The node it left in its last hand-over, plus one: where it goes back to if the receiver
        /// dies before taking it.
        pub came_from: AtomicU64,
        /// Migrations so far.
        pub migrations: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 4],
        /// General registers, by ISA.
        pub regs: [RegArea; dyad_abi::ident::ISA_COUNT],
        /// Floating-point state, by ISA.
        pub fp: [FpArea; dyad_abi::ident::ISA_COUNT],
    }
}

const _: () = assert!(size_of::<ThreadFrame>() as u64 == PAGE_SIZE);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h; ThreadFrame {
        magic, owner, id, space, link, wake_at, entry, arg, started, came_from, migrations,
        reserved, regs, fp,
    })
    .word(REG_WORDS as u64)
    .word(FP_WORDS as u64)
    .word(MAGIC)
}

/// The start of a thread: where it begins on whatever ISA it comes to first.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Number within its program.
    pub id: u32,
    /// Entry point, the same on every ISA.
    pub entry: u64,
    /// Argument of the entry point.
    pub arg: u64,
}

impl ThreadFrame {
    /// Makes a thread in the zero-filled frame at `pa`, owned by `owner` in state READY.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if `pa` is not a frame of a pool.
    pub fn create(
        map: &FusedMap,
        pa: PhysAddr,
        space: FrameRef,
        start: Start,
        owner: Owner,
    ) -> Result<&'static ThreadFrame> {
        let t: &'static ThreadFrame = map.get(pa).ok_or(Error::BadArgument)?;
        t.id.store(start.id as u64, Ordering::Relaxed);
        t.space.store(space.bits() as u64, Ordering::Relaxed);
        t.entry.store(start.entry, Ordering::Relaxed);
        t.arg.store(start.arg, Ordering::Relaxed);
        t.magic.store(MAGIC, Ordering::Relaxed);
        t.owner
            .store(owner.with(OwnerState::Ready).bits(), Ordering::Release);
        Ok(t)
    }

    /// The thread in a frame.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is none.
    pub fn find(map: &FusedMap, bits: u64) -> Result<&'static ThreadFrame> {
        let frame = u32::try_from(bits)
            .ok()
            .and_then(FrameRef::from_bits)
            .ok_or(Error::NotFound)?;
        let t: &'static ThreadFrame = map.get(frame.address()).ok_or(Error::NotFound)?;
        if t.magic.load(Ordering::Acquire) == MAGIC {
            Ok(t)
        } else {
            Err(Error::NotFound)
        }
    }

    /// The owner word, decoded.
    pub fn owner(&self) -> Option<Owner> {
        Owner::from_bits(self.owner.load(Ordering::Acquire))
    }

    /// Marks the frame as no thread any more.
    pub fn retire(&self) {
        self.magic.store(0, Ordering::Release);
        self.owner.store(0, Ordering::Release);
    }

    /// Register area of an ISA.
    pub fn regs(&self, isa: Isa) -> &RegArea {
        &self.regs[isa.index()]
    }

    /// Floating-point area of an ISA.
    pub fn fp(&self, isa: Isa) -> &FpArea {
        &self.fp[isa.index()]
    }

    /// Prepares the register area of this machine's ISA for the first entry there.
    pub fn start_here<P: Platform>(&self) {
        let thread = self.id.load(Ordering::Relaxed) as u32;
        let (_, top) = dyad_abi::user::stack_slot(P::ISA, thread);
        P::init_regs(
            self.regs(P::ISA),
            self.entry.load(Ordering::Relaxed),
            top,
            self.arg.load(Ordering::Relaxed),
            dyad_abi::user::tcb_address(thread),
        );
        P::init_fp(self.fp(P::ISA));
        self.started[P::ISA.index()].store(1, Ordering::Relaxed);
    }
}

/// The reference stored in shared words.
pub fn reference(map: &FusedMap, t: &ThreadFrame) -> u64 {
    // The frame was obtained from the map, so its address is in a pool; host maps place pools
    // anywhere, hence the search by pool.
    let va = core::ptr::from_ref(t) as u64;
    map.physical(va)
        .and_then(FrameRef::of)
        .map_or(0, |f| f.bits() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_words_round_trip() {
        for state in [
            OwnerState::None,
            OwnerState::Ready,
            OwnerState::Running,
            OwnerState::Transit,
        ] {
            let o = Owner {
                state,
                node: NodeId::new(5).unwrap(),
                incarnation: 0xff_fffe,
                seq: 0xab_cdef,
            };
            assert_eq!(Owner::from_bits(o.bits()), Some(o));
        }
        assert_eq!(Owner::from_bits(4), None);
        assert_eq!(Owner::from_bits(8 << 8), None);
    }
}
