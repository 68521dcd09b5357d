//! Words and ranges: what is written is read back, what no row writes is refused, and parts are
//! never more than the whole.

use crate::common;

use common::*;
use dyad_abi::Error;
use dyad_abi::cap::{CapType, Rights};
use dyad_captbl::{
    Contents, FrameRange, GuardRef, LIVENESS_ENTRIES, Narrowed, Owner, Refused, RootEntry,
    SlotHeader, SlotPlace, Span, narrow,
};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_shm::frame::{Epoch, FrameRef};
use dyad_shm::intent::{IntentRecord, Row};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

fn owners() -> impl Iterator<Item = Owner> {
    (0..8).flat_map(|n| [0, 1, u32::MAX].map(|i| owner(n, i)))
}

#[test]
fn every_header_round_trips() {
    let rights = [0, 1, 0x8000_0000, u32::MAX].map(Rights);
    let active = CapType::ALL.iter().flat_map(|&ty| {
        let with = move |rights| SlotHeader::Active { ty, rights };
        rights.map(with)
    });
    let owned = owners().flat_map(|o| [SlotHeader::Reserved(o), SlotHeader::Closing(o)]);
    let mut words = Vec::new();
    for header in active.chain(owned).chain([SlotHeader::Free]) {
        assert_eq!(SlotHeader::from_bits(header.bits()), Some(header));
        words.push(header.bits());
    }
    let all = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), all, "two headers are one word");
    assert_eq!(SlotHeader::Free.bits(), 0, "a zeroed leaf is empty");
}

#[test]
fn every_entry_round_trips() {
    let empty = [Epoch::ZERO, Epoch::MAX].map(RootEntry::Empty);
    let present = [0, 1, 8 << 28 | 0xfff_ffff].map(|f| FrameRef::from_bits(f).unwrap());
    let closing = owners().map(RootEntry::Closing);
    let mut words = Vec::new();
    for entry in closing.chain(empty).chain(present.map(RootEntry::Present)) {
        assert_eq!(RootEntry::from_bits(entry.bits()), Some(entry));
        words.push(entry.bits());
    }
    let all = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), all, "two entries are one word");
    assert_eq!(RootEntry::from_bits(0), Some(RootEntry::Empty(Epoch::ZERO)));
}

/// Words that are not far from those that are written: random fields, most of them small.
fn words() -> impl Strategy<Value = u64> {
    let byte = || prop_oneof![4 => 0..4u64, 2 => 0..16u64, 1 => 0..256u64];
    let low = prop_oneof![Just(0), Just(1), any::<u32>().prop_map(u64::from)];
    let fields = (byte(), byte(), byte(), byte(), low);
    let near = fields.prop_map(|(a, b, c, d, low)| a << 56 | b << 48 | c << 40 | d << 32 | low);
    prop_oneof![4 => near, 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(common::cases(4000, 20))]

    #[test]
    fn no_two_words_are_the_same_header_or_entry(w in words()) {
        if let Some(header) = SlotHeader::from_bits(w) {
            prop_assert_eq!(header.bits(), w);
        }
        if let Some(entry) = RootEntry::from_bits(w) {
            prop_assert_eq!(entry.bits(), w);
        }
    }

    /// What a lookup finds is what the strict decoding says, and it never follows damage.
    #[test]
    fn lookups_agree_with_the_strict_decoding(entry in words(), header in words()) {
        let mem = HostMem::new();
        let t = table(&mem, 0);
        let root = frame(ROOT).address();
        mem.store(entry_place(1), entry, Relaxed);
        let slot = t.slot_at(root, cap(1, 2));
        let expected = match RootEntry::from_bits(entry) {
            Some(RootEntry::Present(leaf)) => Ok(leaf.address().add(128)),
            _ => Err(Refused::NoCap),
        };
        prop_assert_eq!(slot, expected);
        mem.store(place(LEAF, 2).address(), header, Relaxed);
        let found = t.found(place(LEAF, 2).address()).map(|f| f.header());
        let expected = match SlotHeader::from_bits(header) {
            Some(active @ SlotHeader::Active { .. }) => Ok(active),
            _ => Err(Refused::NoCap),
        };
        prop_assert_eq!(found, expected);
    }

    /// Any words behind an ACTIVE header are refused, or are those of the capability they decode
    /// to.
    #[test]
    fn contents_are_read_as_they_are_written(
        object in words(), guard in words(), count in words(), more in any::<[u64; 3]>(),
        none in any::<[bool; 3]>(),
    ) {
        let (mem, at) = (HostMem::new(), place(LEAF, 2).address());
        let t = table(&mem, 0);
        let header = SlotHeader::Active { ty: CapType::Memory, rights: Rights(5) };
        mem.store(at, header.bits(), Relaxed);
        let [a, b, c] = more;
        let words = [
            if none[0] { u64::MAX } else { object },
            if none[1] { u64::MAX } else { guard },
            if none[2] { 0 } else { count },
            a, b, c,
        ];
        for (i, w) in (2..).zip(words) {
            mem.store(at.add(8 * i), w, Relaxed);
        }
        match t.contents(&t.found(at).unwrap()) {
            Err(why) => prop_assert_eq!(why, Refused::Corrupt),
            Ok(contents) => {
                let world = World::default();
                t.slot_activate(place(LEAF, 3), &contents, &world).unwrap();
                let other = place(LEAF, 3).address();
                for (i, w) in (2..).zip(words) {
                    prop_assert_eq!(mem.load(other.add(8 * i), Relaxed), w);
                }
                prop_assert_eq!(mem.load(other, Relaxed), header.bits());
            }
        }
    }
}

#[test]
fn guards_have_room_for_what_they_name() {
    let new = |entry, expected| GuardRef::new(weak(LIVENESS), entry, expected);
    assert_eq!(new(LIVENESS_ENTRIES, 0), None);
    assert_eq!(new(0, GuardRef::COUNTS), None);
    let last = new(LIVENESS_ENTRIES - 1, GuardRef::COUNTS - 1).unwrap();
    let contents = Contents {
        guard: Some(last),
        object: None,
        ..sample(7)
    };
    let (mem, world) = (HostMem::new(), World::default());
    let t = table(&mem, 0);
    t.slot_activate(place(LEAF, 1), &contents, &world).unwrap();
    let read = t.read(place(LEAF, 1).address()).unwrap();
    assert_eq!(read.contents, Some(contents));
}

#[test]
fn every_part_of_every_small_range_is_within_it() {
    const LIMIT: u64 = 6;
    let mut parts = 0;
    for first in 0..=LIMIT {
        for count in 0..=LIMIT + 1 {
            let whole = Span::new(first, count, LIMIT);
            assert_eq!(whole.is_some(), count > 0 && first + count <= LIMIT);
            let Some(whole) = whole else { continue };
            let frames = FrameRange::new(frame(first), count).unwrap();
            for at in 0..=LIMIT + 1 {
                assert_eq!(whole.get(at), (at < count).then_some(first + at));
                assert_eq!(frames.get(at), (at < count).then(|| frame(first + at)));
                for n in 0..=LIMIT + 1 {
                    let part = whole.narrow(at, n);
                    let expected = match (at, n) {
                        (0, 0) => Some((first, count)),
                        _ if n > 0 && at + n <= count => Some((first + at, n)),
                        _ => None,
                    };
                    assert_eq!(part.map(|p| (p.first(), p.count())), expected);
                    let of_frames = frames.narrow(at, n);
                    let expected = expected.map(|(first, n)| (frame(first), n));
                    assert_eq!(of_frames.map(|p| (p.first(), p.count())), expected);
                    parts += part.is_some() as u32;
                }
            }
        }
    }
    // c (c + 1) / 2 parts of each of the 7 - c ranges of c, and each range once more as (0, 0).
    assert_eq!(parts, 126 + 21);
}

#[test]
fn ranges_at_the_ends_of_numbers_do_not_run_over() {
    const LAST: u64 = (1 << 28) - 1;
    let last = FrameRef::from_bits(LAST as u32).unwrap();
    assert!(FrameRange::new(last, 1).is_some());
    let pool = FrameRange::new(FrameRef::from_bits(0).unwrap(), LAST + 1).unwrap();
    assert_eq!(pool.get(LAST), Some(last));
    for too_many in [2, LAST + 2, 1 << 32, u64::MAX] {
        assert_eq!(FrameRange::new(last, too_many), None);
        assert_eq!(pool.narrow(LAST, too_many), None);
        assert_eq!(pool.narrow(too_many, LAST + 1), None);
        assert_eq!(pool.get(LAST + too_many.min(1 << 33)), None);
    }
    assert_eq!(pool.narrow(u64::MAX, 1), None);
    assert_eq!(pool.narrow(1, 0), None, "nothing is not all");
    let ends = [
        [u64::MAX, 1, 0],
        [0, u64::MAX, 0],
        [0, 0, 0],
        [0, 1, 1],
        [9 << 28, 1, 0],
    ];
    for payload in ends {
        assert_eq!(FrameRange::from_payload(payload), None, "{payload:?}");
        for ty in [
            CapType::Memory,
            CapType::Frame,
            CapType::Liveness,
            CapType::ThreadIds,
        ] {
            assert_eq!(narrow(ty, payload, 0, 0), Err(Refused::Corrupt), "{ty:?}");
        }
    }
    assert!(Span::entries([511, 1, 0]).is_some());
    assert_eq!(Span::entries([511, 2, 0]), None);
    assert!(Span::pages([0, 1 << 20, 0]).is_some());
    assert_eq!(Span::pages([1, 1 << 20, 0]), None);
}

#[test]
fn types_without_parts_are_copied_whole() {
    for &ty in CapType::ALL {
        let whole = [2, 3, 0];
        assert_eq!(narrow(ty, whole, 0, 0), Ok(whole), "{ty:?}");
        let ranges = [
            CapType::Memory,
            CapType::Frame,
            CapType::Liveness,
            CapType::ThreadIds,
        ];
        let part = match ranges.contains(&ty) {
            true => Ok([3, 2, 0]),
            false => Err(Refused::BadRange),
        };
        assert_eq!(narrow(ty, whole, 1, 2), part, "{ty:?}");
        assert_eq!(narrow(ty, whole, 2, 2), Err(Refused::BadRange), "{ty:?}");
    }
}

/// All pairs of four rights, among them the right to copy.
#[test]
fn copies_permit_what_both_permit() {
    let mem = HostMem::new();
    let t = table(&mem, 0);
    let bits = [0, 1, 17, 31];
    let set = |n: u32| {
        Rights(
            (0..4)
                .filter(|i| n >> i & 1 != 0)
                .fold(0, |s, i| s | 1 << bits[i]),
        )
    };
    for have in 0..16 {
        for want in 0..16 {
            let source = Contents {
                rights: set(have),
                ..sample(7)
            };
            let how = Narrowed {
                rights: set(want),
                guard: None,
            };
            let copy = t.copied(&source, how, |_, payload| Ok(payload));
            let expected = match have >> 3 {
                0 => Err(Refused::Denied),
                _ => Ok(Contents {
                    rights: set(have & want),
                    ..source
                }),
            };
            assert_eq!(copy, expected);
        }
    }
}

#[test]
fn what_is_found_is_checked_for_type_and_every_right() {
    let (mem, world) = (HostMem::new(), World::default());
    let t = table(&mem, 0);
    t.slot_activate(place(LEAF, 1), &sample(0b110), &world)
        .unwrap();
    let found = t.found(place(LEAF, 1).address()).unwrap();
    for wanted in 0..8 {
        let permitted = match wanted & 0b001 {
            0 => Ok(()),
            _ => Err(Refused::Denied),
        };
        assert_eq!(found.require(CapType::Sinv, Rights(wanted)), permitted);
    }
    let other = found.require(CapType::Send, Rights(1));
    assert_eq!(other, Err(Refused::WrongCap), "the type comes first");
}

#[test]
fn intents_lead_back_to_their_slot_or_nowhere() {
    let record = |place| IntentRecord {
        row: Row::SlotActivate,
        frame: weak(LEAF),
        table: None,
        place,
    };
    let start = weak(LEAF).frame.address();
    let of = |offset| SlotPlace::of_intent(&record(start.add(offset)));
    assert_eq!(of(64), Some(place(LEAF, 1)));
    assert_eq!(of(63 * 64), Some(place(LEAF, 63)));
    assert_eq!(of(4096), None);
    assert_eq!(of(72), None);
    assert_eq!(SlotPlace::of_intent(&record(frame(1).address())), None);
}

#[test]
fn whoever_may_try_again_is_told_so() {
    for again in [Refused::Busy, Refused::NotQuiesced] {
        assert_eq!(Error::from(again), Error::Again);
    }
    assert_eq!(Error::from(Refused::Pin(Error::Full)), Error::Full);
    let text = Refused::Pin(Error::Full).to_string();
    assert!(text.contains(Error::Full.text()), "{text}");
}
