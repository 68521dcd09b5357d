//! Random operations against a naive model: every answer, every reference count and every
//! reference ever handed out is as the model has it.

use crate::common;

use std::collections::BTreeMap;

use common::{Clock, Unrecorded, frame, initialise, node, table};
use dyad_coherence::HostMem;
use dyad_retype::{FrameTable, FrameType, KernelKind, Order, Refs, Refused, Use, Version, WeakRef};
use dyad_shm::pool::PoolId;
use proptest::prelude::*;

const N: u64 = 16;
const USES: [Use; 3] = [
    Use::User,
    Use::Kernel(KernelKind::THREAD),
    Use::Kernel(KernelKind::COMPONENT),
];

#[derive(Clone, Copy, Debug)]
enum Op {
    Claim {
        at: u64,
        used: Use,
        die: bool,
    },
    GiveUp {
        weak: usize,
        used: Use,
    },
    Pin {
        weak: usize,
        at: u64,
        used: Use,
        span: u64,
    },
    Unpin {
        pin: usize,
    },
    Split {
        at: u64,
    },
    Merge {
        at: u64,
    },
    Freeze {
        at: u64,
    },
    Unfreeze {
        at: u64,
    },
    Round {
        node: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..N;
    // Low frames more often: they head the larger blocks.
    let head = || prop_oneof![0..N, prop::sample::select(&[0u64, 1, 2, 4, 8][..])];
    let used = || prop::sample::select(&USES[..]);
    prop_oneof![
        6 => (head(), used(), 0..8u8).prop_map(|(at, used, d)| Op::Claim { at, used, die: d == 0 }),
        4 => (any::<usize>(), used()).prop_map(|(weak, used)| Op::GiveUp { weak, used }),
        6 => (any::<usize>(), at(), used(), 0..3u64)
            .prop_map(|(weak, at, used, span)| Op::Pin { weak, at, used, span }),
        6 => any::<usize>().prop_map(|pin| Op::Unpin { pin }),
        6 => head().prop_map(|at| Op::Split { at }),
        4 => head().prop_map(|at| Op::Merge { at }),
        1 => at().prop_map(|at| Op::Freeze { at }),
        2 => at().prop_map(|at| Op::Unfreeze { at }),
        5 => (0..2usize).prop_map(|node| Op::Round { node }),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Block {
    order: u64,
    used: Option<Use>,
    frozen: bool,
    stamp: u64,
}

impl Block {
    fn refusal(&self) -> Refused {
        match self.frozen {
            true => Refused::Frozen,
            false => Refused::WrongType,
        }
    }
}

/// Blocks by their heads; what is between them are tails.
struct Model {
    blocks: BTreeMap<u64, Block>,
    versions: Vec<u32>,
    /// Every reference ever handed out, by frame and version.
    handed_out: Vec<WeakRef>,
    /// Frames through which references have been taken.
    pins: Vec<u64>,
}

impl Model {
    fn around(&self, at: u64) -> (u64, Block) {
        let (&head, &block) = self.blocks.range(..=at).next_back().unwrap();
        (head, block)
    }

    fn refs(&self, head: u64) -> usize {
        let end = head + (1 << self.blocks[&head].order);
        self.pins.iter().filter(|&&p| p >= head && p < end).count()
    }

    fn weak(&self, n: usize) -> Option<WeakRef> {
        let len = self.handed_out.len();
        (len > 0).then(|| self.handed_out[n % len])
    }

    fn untyped(&self, at: u64) -> Result<Block, Refused> {
        let block = self.blocks.get(&at).ok_or(Refused::WrongType)?;
        match block.used {
            None => Ok(*block),
            Some(_) => Err(block.refusal()),
        }
    }
}

struct Run<'m> {
    mem: &'m HostMem,
    frames: FrameTable<'m, HostMem>,
    clock: Clock,
    model: Model,
}

impl Run<'_> {
    fn claim(&mut self, at: u64, used: Use, die: bool) {
        let claim = self
            .frames
            .from_untyped_begin(frame(at), None, &self.clock, &Unrecorded);
        let block = self.model.untyped(at);
        let quiet = |b: &Block| self.clock.published.iter().all(|p| p.get() > b.stamp);
        let block = match block {
            Err(why) => return assert_eq!(claim.unwrap_err(), why),
            Ok(b) if !quiet(&b) => return assert_eq!(claim.unwrap_err(), Refused::NotQuiesced),
            Ok(b) => b,
        };
        let mut claim = claim.unwrap();
        let entry = self.model.blocks.get_mut(&at).unwrap();
        if die {
            // The claim is forgotten; another node recovers it.
            let survivor = table(self.mem, 1);
            let intent = WeakRef {
                frame: frame(at),
                version: Version(self.model.versions[at as usize]),
            };
            let recovered =
                |dead| survivor.recover_frame(intent, node(dead), &self.clock, &Unrecorded);
            assert_eq!(recovered(1), Ok(false));
            assert_eq!(recovered(0), Ok(true));
            assert_eq!(recovered(0), Ok(false));
            entry.stamp = entry.stamp.max(self.clock.now.get());
            self.model.versions[at as usize] += 1;
            return;
        }
        initialise(self.mem, &mut claim);
        let done = self.frames.from_untyped_finish(claim, used, &Unrecorded);
        if used != Use::User && block.order > 0 {
            self.model.versions[at as usize] += 1;
            return assert_eq!(done, Err(Refused::WrongOrder));
        }
        entry.used = Some(used);
        let weak = WeakRef {
            frame: frame(at),
            version: Version(self.model.versions[at as usize]),
        };
        assert_eq!(done, Ok(weak));
        assert!(!self.model.handed_out.contains(&weak), "{weak:?} again");
        self.model.handed_out.push(weak);
    }

    fn give_up(&mut self, weak: WeakRef, used: Use) {
        let at = weak.frame.index();
        let done = self
            .frames
            .to_untyped(weak, used, &self.clock, &Unrecorded, &Unrecorded)
            .map(|e| e.get());
        let m = &mut self.model;
        let now = self.clock.now.get();
        let expected = match m.blocks.get(&at).copied() {
            _ if m.versions[at as usize] != weak.version.0 => Err(Refused::Stale),
            None => Err(Refused::WrongType),
            Some(b) if b.frozen || b.used != Some(used) => Err(b.refusal()),
            Some(_) if m.refs(at) > 0 => Err(Refused::InUse),
            Some(_) => Ok(now),
        };
        assert_eq!(done, expected);
        if let (Ok(_), Some(b)) = (done, m.blocks.get_mut(&at)) {
            (b.used, b.stamp) = (None, b.stamp.max(now));
            m.versions[at as usize] += 1;
        }
    }

    fn pin(&mut self, version: Version, at: u64, used: Use, span: u64) {
        let weak = WeakRef {
            frame: frame(at),
            version,
        };
        let (head, b) = self.model.around(at);
        let (done, span) = match used {
            Use::User => {
                let span = Order::new(span).unwrap();
                (self.frames.pin_user(weak, span).map(|h| h.index()), span)
            }
            Use::Kernel(kind) => (
                self.frames.pin_kernel(weak, kind).map(|()| at),
                Order::FRAME,
            ),
        };
        let expected = if self.model.versions[head as usize] != version.0 {
            Err(Refused::Stale)
        } else if b.frozen || b.used != Some(used) {
            Err(b.refusal())
        } else if !at.is_multiple_of(span.frames()) || span.get() as u64 > b.order {
            Err(Refused::WrongOrder)
        } else {
            Ok(head)
        };
        assert_eq!(done, expected);
        if done.is_ok() {
            self.model.pins.push(at);
        }
    }

    fn split(&mut self, at: u64) {
        let done = self.frames.split(frame(at), &Unrecorded).map(|h| h.index());
        let m = &mut self.model;
        let expected = m.untyped(at).and_then(|b| match b.order {
            0 => Err(Refused::WrongOrder),
            n => Ok(at + (1 << (n - 1))),
        });
        assert_eq!(done, expected);
        if let Ok(other) = done {
            let b = m.blocks.get_mut(&at).unwrap();
            b.order -= 1;
            let half = *b;
            m.blocks.insert(other, half);
            m.versions[at as usize] += 1;
            m.versions[other as usize] += 1;
        }
    }

    fn merge(&mut self, at: u64) {
        let done = self.frames.merge(frame(at), &Unrecorded);
        let m = &mut self.model;
        let expected = m.untyped(at).and_then(|b| {
            if !at.is_multiple_of(2 << b.order) {
                return Err(Refused::WrongOrder);
            }
            let other = at + (1 << b.order);
            if other >= N {
                return Err(Refused::Reserved);
            }
            match m.untyped(other) {
                Ok(o) if o.order == b.order => Ok((other, b.order + 1, b.stamp.max(o.stamp))),
                Ok(_) => Err(Refused::WrongOrder),
                Err(why) => Err(why),
            }
        });
        assert_eq!(
            done.map(|o| o.get() as u64),
            expected.map(|(_, order, _)| order)
        );
        if let Ok((other, order, stamp)) = expected {
            m.blocks.remove(&other);
            let b = m.blocks.get_mut(&at).unwrap();
            (b.order, b.stamp) = (order, stamp);
            m.versions[at as usize] += 1;
            m.versions[other as usize] += 1;
        }
    }

    fn freeze(&mut self, at: u64) {
        let done = self.frames.freeze(frame(at));
        let (head, b) = self.model.around(at);
        assert_eq!(done, b.used.ok_or(Refused::WrongType));
        if done.is_ok() {
            self.model.blocks.get_mut(&head).unwrap().frozen = true;
        }
    }

    /// Recounts a frozen block, which changes nothing, and makes it what it was.
    fn unfreeze(&mut self, at: u64) {
        let (head, b) = self.model.around(at);
        let counted = Refs::new(self.model.refs(head) as u32).unwrap();
        let recounted = self.frames.recount(frame(at), counted);
        let frozen = b.frozen.then_some(()).ok_or(Refused::WrongType);
        assert_eq!(recounted, frozen);
        let done = self.frames.unfreeze(frame(at));
        assert_eq!(done, b.used.map(|_| ()).ok_or(Refused::WrongType));
        self.model.blocks.get_mut(&head).unwrap().frozen = false;
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Claim { at, used, die } => self.claim(at, used, die),
            Op::GiveUp { weak, used } => {
                if let Some(weak) = self.model.weak(weak) {
                    self.give_up(weak, used);
                }
            }
            Op::Pin {
                weak,
                at,
                used,
                span,
            } => {
                // Through the reference's own frame, or through any with its version.
                let weak = self.model.weak(weak);
                if let Some(weak) = weak {
                    self.pin(weak.version, weak.frame.index(), used, span);
                    self.pin(weak.version, at, used, span);
                }
            }
            Op::Unpin { pin } => {
                if !self.model.pins.is_empty() {
                    let pin = pin % self.model.pins.len();
                    let at = self.model.pins.swap_remove(pin);
                    assert_eq!(self.frames.unpin(frame(at)), Ok(()));
                }
            }
            Op::Split { at } => self.split(at),
            Op::Merge { at } => self.merge(at),
            Op::Freeze { at } => self.freeze(at),
            Op::Unfreeze { at } => self.unfreeze(at),
            Op::Round { node } => self.clock.round(node),
        }
        self.compare();
    }

    fn compare(&self) {
        for at in 0..N {
            let (word, stamp) = self.frames.read(frame(at)).unwrap();
            assert_eq!(word.version.0, self.model.versions[at as usize], "{at}");
            let (head, b) = self.model.around(at);
            assert_eq!(self.frames.head(frame(at)).unwrap().0, frame(head));
            let order = Order::new(b.order).unwrap();
            if head != at {
                let own = Order::new(at.trailing_zeros() as u64).unwrap();
                assert_eq!(word.ty, FrameType::Tail(own));
                continue;
            }
            assert_eq!(self.frames.order_by_tails(frame(at)), order);
            let expected = match (b.used, b.frozen) {
                (None, _) => FrameType::Untyped(order),
                (Some(used), true) => FrameType::Frozen(used),
                (Some(Use::User), false) => FrameType::User(order),
                (Some(Use::Kernel(kind)), false) => FrameType::Kernel(kind),
            };
            assert_eq!((word.ty, stamp.epoch.get()), (expected, b.stamp), "{at}");
            assert_eq!(word.refs.get() as usize, self.model.refs(at), "{at}");
        }
        for &weak in &self.model.handed_out {
            let at = weak.frame.index();
            let same = self.model.versions[at as usize] == weak.version.0;
            let used = self.model.blocks.get(&at).and_then(|b| b.used);
            for wanted in USES {
                let alive = same && used == Some(wanted);
                assert_eq!(self.frames.check(weak, wanted).is_ok(), alive, "{weak:?}");
            }
        }
    }
}

/// Formats a pool, splits some of it, and does what `ops` say.
fn run(pieces: Vec<u64>, ops: Vec<Op>) {
    let mem = HostMem::new();
    let frames = table(&mem, 0);
    frames.format(PoolId::Cxl, &(0..N), 0..N).unwrap();
    let whole = Block {
        order: 4,
        used: None,
        frozen: false,
        stamp: 0,
    };
    let mut run = Run {
        mem: &mem,
        frames,
        clock: Clock::default(),
        model: Model {
            blocks: [(0, whole)].into(),
            versions: vec![0; N as usize],
            handed_out: Vec::new(),
            pins: Vec::new(),
        },
    };
    for at in [0, 8, 4].into_iter().chain(pieces) {
        run.apply(Op::Split { at });
    }
    for op in ops {
        run.apply(op);
    }
}

fn sequence() -> impl Strategy<Value = (Vec<u64>, Vec<Op>)> {
    (
        prop::collection::vec(0..N, 0..12),
        prop::collection::vec(op(), 1..120),
    )
}

proptest! {
    #![proptest_config(common::cases(200, 2))]

    #[test]
    fn any_sequence_does_what_the_model_does((pieces, ops) in sequence()) {
        run(pieces, ops);
    }
}
