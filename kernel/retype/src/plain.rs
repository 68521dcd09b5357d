//! Undecoded words of records, for rows that compare words without decoding them: for blocks of one frame,
//! where caches are coherent.
//!
//! | row | the head's word: from, on the way, to |
//! |---|---|
//! | `untyped -> Y` | [`UNTYPED`], [`retyping`], [`used`], of one version |
//! | `X -> untyped` | [`used`] without references, [`retyping`], and [`UNTYPED`] of the [next](given_up) |
//!
//! Each is the low half of a word: [`version`] is the rest.

use dyad_abi::NodeId;
use dyad_shm::frame::{Epoch, Version};

use crate::word::{FrameType, FrameWord, KernelKind, Order, StampWord, Use};

/// The part of a word that is not its version.
const LOW: u64 = u32::MAX as u64;

const fn of(ty: FrameType) -> u64 {
    FrameWord::new(Version(0), ty).bits()
}

/// The word of an untyped block of one frame.
pub const UNTYPED: u64 = of(FrameType::Untyped(Order::FRAME));

/// The word of a frame that a node is retyping.
pub const fn retyping(node: NodeId) -> u64 {
    of(FrameType::Retyping(node))
}

/// The word of a block of one frame that is in use and has no references.
pub const fn used(how: Use) -> u64 {
    of(match how {
        Use::User => FrameType::User(Order::FRAME),
        Use::Kernel(kind) => FrameType::Kernel(kind),
    })
}

/// Whether a word has this low half, whatever its version.
#[inline]
pub const fn is(raw: u64, low: u64) -> bool {
    (raw ^ low) & LOW == 0
}

/// The version of a word, in its place.
#[inline]
pub const fn version(raw: u64) -> u64 {
    raw & !LOW
}

/// The version of a word.
#[inline]
pub(crate) const fn version_number(raw: u64) -> Version {
    Version((raw >> 32) as u32)
}

/// A word without its version.
#[inline]
pub(crate) const fn low(raw: u64) -> u64 {
    raw & LOW
}

/// The next word of a block of one frame that was claimed and then abandoned.
#[cold]
pub(crate) const fn abandoned(raw: u64) -> u64 {
    FrameWord::given_up(version_number(raw), Order::FRAME).bits()
}

/// Whether a word is that of an object of one of these kinds (bits by number) that nothing refers to.
#[inline]
pub const fn is_unused_object(raw: u64, kinds: u32) -> bool {
    const FIRST: u64 = used(Use::Kernel(match KernelKind::new(0) {
        Some(kind) => kind,
        None => unreachable!(),
    }));
    const STEP: u32 = crate::word::KIND_SHIFT;
    let kind = (raw & LOW).wrapping_sub(FIRST);
    kind & ((1 << STEP) - 1) == 0 && kind >> STEP < 32 && kinds >> (kind >> STEP) & 1 != 0
}

/// The next word of one frame that is untyped: user memory, or an object of one of these kinds (bits by
/// number), without references. `None` if it is none of these, or if there is no next version: then the frame
/// is retired, which is left to the slow path.
#[inline]
pub fn given_up(raw: u64, kinds: u32) -> Option<u64> {
    const USER: u64 = used(Use::User);
    let refs = u64::from(crate::Refs::MAX.get());
    let looked_at = match lacks!("plain::given_up::references") {
        true => raw & !refs,
        false => raw,
    };
    if !is(looked_at, USER) && !is_unused_object(looked_at, kinds) {
        return None;
    }
    let next = version(raw).checked_add(LOW + 1)?;
    Some(next | UNTYPED)
}

/// The epoch at which a frame was last untyped, from the second word of its record.
#[inline]
pub const fn stamp(w1: u64) -> Epoch {
    StampWord::from_bits(w1).epoch
}

/// The second word of a frame that is untyped now; `None` if the word has that stamp already, or a later one.
/// Stamps only grow, and the bits of the nodes that have executed the frame stay set.
#[inline]
pub const fn stamped(w1: u64, now: Epoch) -> Option<u64> {
    let was = StampWord::from_bits(w1);
    if was.epoch.get() >= now.get() {
        return None;
    }
    Some(StampWord { epoch: now, ..was }.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    extern crate std;

    fn types() -> Vec<FrameType> {
        let kinds = || (0..31).filter_map(KernelKind::new);
        let orders = || (0..=20).filter_map(Order::new);
        let nodes = (0..8).filter_map(NodeId::new);
        let mut all = Vec::from([FrameType::Reserved, FrameType::Retired]);
        all.extend(orders().map(FrameType::Untyped));
        all.extend(orders().map(FrameType::User));
        all.extend(orders().map(FrameType::Tail));
        all.extend(nodes.map(FrameType::Retyping));
        all.extend(kinds().map(FrameType::Kernel));
        all.extend(kinds().map(|k| FrameType::Frozen(Use::Kernel(k))));
        all.push(FrameType::Frozen(Use::User));
        all
    }

    /// Words of all types, versions and numbers of references that matter here.
    fn words() -> Vec<FrameWord> {
        let versions = [0, 1, 7, u32::MAX - 1, u32::MAX];
        let refs = [0, 1, crate::Refs::MAX.get()];
        types()
            .into_iter()
            .flat_map(|ty| versions.map(|v| FrameWord::new(Version(v), ty)))
            .flat_map(|w| {
                refs.map(|n| FrameWord {
                    refs: crate::Refs::new(n).unwrap(),
                    ..w
                })
            })
            .collect()
    }

    #[test]
    fn words_are_what_decoding_says() {
        let user = used(Use::User);
        for w in words() {
            let (raw, none) = (w.bits(), w.refs == crate::Refs::ZERO);
            assert_eq!(version(raw), (w.version.0 as u64) << 32);
            let untyped = w.ty == FrameType::Untyped(Order::FRAME) && none;
            assert_eq!(is(raw, UNTYPED), untyped, "{w}");
            assert_eq!(
                is(raw, user),
                w.ty == FrameType::User(Order::FRAME) && none,
                "{w}"
            );
            for kinds in [0, 1, 1 << 30, u32::MAX >> 1, 0x0001_0300] {
                let object = matches!(w.ty, FrameType::Kernel(k) if kinds >> k.get() & 1 != 0);
                assert_eq!(
                    is_unused_object(raw, kinds),
                    object && none,
                    "{w} {kinds:#x}"
                );
            }
        }
    }

    #[test]
    fn words_that_are_made_are_those_of_the_rows() {
        for v in [0, 5, u32::MAX] {
            let made = |ty| FrameWord::new(Version(v), ty).bits();
            let old = made(FrameType::User(Order::FRAME));
            let object = made(FrameType::Kernel(KernelKind::THREAD));
            let to = |low| version(old) | low;
            let node = NodeId::new(5).unwrap();
            assert_eq!(to(retyping(node)), made(FrameType::Retyping(node)));
            let kind = KernelKind::THREAD;
            assert_eq!(to(used(Use::Kernel(kind))), made(FrameType::Kernel(kind)));
            let up = FrameWord::given_up(Version(v), Order::FRAME);
            let expected = (up.ty != FrameType::Retired).then(|| up.bits());
            assert_eq!(given_up(old, 0), expected);
            assert_eq!(given_up(object, 1 << KernelKind::THREAD.get()), expected);
            assert_eq!((given_up(object, 0), given_up(old + 1, 0)), (None, None));
        }
    }

    #[test]
    fn stamps_only_grow_and_keep_who_has_executed_the_frame() {
        let at = |n| Epoch::new(n).unwrap();
        let w1 = StampWord {
            epoch: at(7),
            executed_on: 0x81,
            asked: 0x24,
        };
        assert_eq!(stamp(w1.bits()), at(7));
        assert_eq!(stamped(w1.bits(), at(6)), None);
        assert_eq!(stamped(w1.bits(), at(7)), None);
        let new = StampWord { epoch: at(8), ..w1 };
        assert_eq!(stamped(w1.bits(), at(8)), Some(new.bits()));
        assert_eq!(stamped(u64::MAX, at(8)), None);
    }
}
