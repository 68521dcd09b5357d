//! Encoding and decoding: every word that means something means one thing, and no other word is
//! taken for one.

use crate::common;

use std::collections::BTreeSet;

use common::node;
use dyad_abi::Isa;
use dyad_retype::{Epoch, FrameType, FrameWord, KernelKind, Order, Refs, StampWord, Use, Version};

const VERSIONS: [u32; 6] = [0, 1, 2, 0x8000_0000, u32::MAX - 1, u32::MAX];
const REFS: [u32; 6] = [0, 1, 2, 0x80_0000, 0xff_fffe, 0xff_ffff];

fn types() -> Vec<FrameType> {
    let mut all = vec![FrameType::Reserved, FrameType::Retired];
    for order in (0..=Order::MAX.get() as u64).map(|n| Order::new(n).unwrap()) {
        all.extend([
            FrameType::Untyped(order),
            FrameType::User(order),
            FrameType::Tail(order),
        ]);
    }
    all.extend((0..8).map(|n| FrameType::Retyping(node(n))));
    for kind in (0..64).filter_map(KernelKind::new) {
        all.extend([
            FrameType::Kernel(kind),
            FrameType::Frozen(Use::Kernel(kind)),
        ]);
    }
    all.push(FrameType::Frozen(Use::User));
    all
}

#[test]
fn every_word_round_trips_and_no_two_are_alike() {
    const STEP: usize = if cfg!(miri) { 5 } else { 1 };
    let mut seen = BTreeSet::new();
    for ty in types().into_iter().step_by(STEP) {
        for version in VERSIONS.map(Version) {
            for refs in REFS.map(|n| Refs::new(n).unwrap()) {
                if refs != Refs::ZERO && ty.in_use().is_none() {
                    continue;
                }
                let word = FrameWord { version, ty, refs };
                assert_eq!(FrameWord::from_bits(word.bits()), Some(word));
                assert!(seen.insert(word.bits()), "{word} is not the only one");
            }
        }
    }
}

#[test]
fn every_pattern_of_type_and_kind_is_known_or_refused() {
    let known: BTreeSet<u64> = types()
        .into_iter()
        .map(|ty| FrameWord::new(Version(0), ty).bits())
        .collect();
    for pattern in 0..256u64 {
        for version in VERSIONS {
            for refs in REFS {
                let w = (version as u64) << 32 | pattern << 24 | refs as u64;
                match FrameWord::from_bits(w) {
                    Some(word) => {
                        assert_eq!(word.bits(), w);
                        assert!(known.contains(&(pattern << 24)));
                        assert_eq!((word.version.0, word.refs.get()), (version, refs));
                    }
                    None if refs == 0 => assert!(!known.contains(&(pattern << 24))),
                    None => {}
                }
            }
        }
    }
    assert_eq!(
        FrameWord::from_bits(0),
        Some(FrameWord::new(Version(0), FrameType::Reserved)),
        "zeroed memory"
    );
}

#[test]
fn fields_are_where_the_protocol_has_them() {
    let word = FrameWord {
        version: Version(0x1234_5678),
        ty: FrameType::User(Order::new(9).unwrap()),
        refs: Refs::new(0xabcdef).unwrap(),
    };
    assert_eq!(
        word.bits(),
        0x1234_5678 << 32 | 4 << 29 | 9 << 24 | 0xabcdef
    );
    let stamp = StampWord {
        epoch: Epoch::new(0x1234).unwrap(),
        executed_on: 0x81,
        asked: 0x42,
    };
    assert_eq!(stamp.bits(), 0x42 << 56 | 0x12_3481);
    for w in [
        0,
        1,
        0xff,
        0x100,
        (1 << 56) - 1,
        0x123_4567_89ab_cdef,
        u64::MAX,
    ] {
        assert_eq!(StampWord::from_bits(w).bits(), w);
    }
    let most = StampWord::from_bits(u64::MAX);
    assert_eq!(most.epoch, Epoch::MAX, "blocks reuse");
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_eq!(Refs::new(1 << 24), None);
    assert_eq!(Order::new(21), None);
    assert_eq!(Order::MAX.double(), None);
    assert_eq!(Order::FRAME.half(), None);
    assert_eq!(KernelKind::new(31), None, "means User in FROZEN");
    assert_eq!(KernelKind::page_table(Isa::X86_64, 4), None);
    assert_eq!(KernelKind::captbl(8), None);
}

#[test]
fn kernel_kinds_differ() {
    let mut kinds = vec![
        KernelKind::ADDRESS_SPACE,
        KernelKind::COMPONENT,
        KernelKind::THREAD,
        KernelKind::ENDPOINTS,
        KernelKind::TIME,
        KernelKind::LIVENESS,
    ];
    kinds.extend((0..8).filter_map(KernelKind::captbl));
    for isa in Isa::ALL {
        kinds.extend((0..4).filter_map(|l| KernelKind::page_table(isa, l)));
    }
    let all = kinds.len();
    kinds.sort();
    kinds.dedup();
    assert_eq!((kinds.len(), all), (22, 22));
    assert!(
        kinds
            .iter()
            .all(|k| KernelKind::new(k.get() as u64) == Some(*k))
    );
}
