//! Two nodes at work on a few frames, for model checks.

use std::sync::Arc;

use crate::common::{Unrecorded, frame, initialise, node, pools, w0, w1};
pub use dyad_coherence::model::race;
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_retype::{
    Epoch, EpochSource, FrameTable, FrameType, FrameWord, KernelKind, Order, Refs, Refused, Use,
    Version, WeakRef, plain, row,
};
use dyad_shm::protocol::Parts;

pub const THREAD: Use = Use::Kernel(KernelKind::THREAD);

pub fn table(mem: &LoomMem, n: u64) -> FrameTable<'_, LoomMem> {
    FrameTable::new(mem, pools(), node(n))
}

pub fn word(version: u32, ty: FrameType, refs: u32) -> u64 {
    FrameWord {
        version: Version(version),
        ty,
        refs: Refs::new(refs).unwrap(),
    }
    .bits()
}

pub const USER: FrameType = FrameType::User(Order::FRAME);
pub const UNTYPED: FrameType = FrameType::Untyped(Order::FRAME);

pub fn weak(at: u64, version: u32) -> WeakRef {
    WeakRef {
        frame: frame(at),
        version: Version(version),
    }
}

/// Frames 0, 1, ... with these words and no stamps. The others are RESERVED.
pub fn memory(words: &[u64]) -> Arc<LoomMem> {
    let mut tracked: Vec<_> = (0..).map(|i| w0(i).0).zip(words.iter().copied()).collect();
    tracked.extend((0..words.len() as u64).map(|i| (w1(i).0, 0)));
    let reserved: Vec<_> = (words.len() as u64..3).map(|i| w0(i).0).collect();
    Arc::new(LoomMem::new(Lacks::Nothing, &tracked, &reserved))
}

/// Every node has always just been quiet.
pub struct Quiet;

impl EpochSource for Quiet {
    fn now(&self) -> Epoch {
        Epoch::ZERO
    }

    fn quiesced(&self, _: Epoch) -> bool {
        true
    }
}

/// Services in which the epoch is 5 and no node has been quiet after epoch 4.
pub struct Loud;

impl EpochSource for Loud {
    fn now(&self) -> Epoch {
        Epoch::new(5).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        stamp.get() < 5
    }
}

pub fn left(mem: &LoomMem, at: u64) -> FrameWord {
    table(mem, 0).read(frame(at)).unwrap().0
}

/// Which instantiation of a row acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// That of blocks of any size, found by number.
    Table,
    /// That of the fast path, on the record of one frame.
    FastPath,
}

pub const BOTH: [By; 2] = [By::Table, By::FastPath];

/// Explores a race with each instantiation.
pub fn explore_both(race: impl Fn(By) + Copy + Send + Sync + 'static) {
    for by in BOTH {
        explore(None, move || race(by));
    }
}

impl By {
    /// Row `untyped -> Y`, of frame 0.
    pub fn uses(
        self,
        mem: &LoomMem,
        n: u64,
        used: Use,
        epochs: &impl EpochSource,
    ) -> Result<WeakRef, Refused> {
        let t = table(mem, n);
        if self == By::Table {
            let mut claim = t.from_untyped_begin(frame(0), None, epochs, &Unrecorded)?;
            initialise(mem, &mut claim);
            return t.from_untyped_finish(claim, used, &Unrecorded);
        }
        let words = (plain::retyping(node(n)), plain::used(used));
        let record = t.record_of(frame(0))?;
        row::retype(&record, frame(0), words, || true, &services(epochs))
    }

    /// Row `X -> untyped`.
    pub fn gives_up(
        self,
        mem: &LoomMem,
        n: u64,
        weak: WeakRef,
        used: Use,
        epochs: &impl EpochSource,
    ) -> Result<Epoch, Refused> {
        let t = table(mem, n);
        if self == By::Table {
            return t.to_untyped(weak, used, epochs, &Unrecorded, &Unrecorded);
        }
        let record = t.record_of(weak.frame)?;
        let kinds = match used {
            Use::User => 0,
            Use::Kernel(kind) => 1 << kind.get(),
        };
        let retyping = plain::retyping(node(n));
        row::give_up_frame(&record, weak.frame, retyping, kinds, &services(epochs))
    }
}

fn services<E: EpochSource>(epochs: &E) -> Parts<'_, E, Unrecorded, Unrecorded> {
    Parts {
        epochs,
        intents: &Unrecorded,
        log: &Unrecorded,
    }
}
