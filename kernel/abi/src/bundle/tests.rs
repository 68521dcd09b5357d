extern crate std;

use super::*;
use crate::user::{IMAGE_END, ISA_RO_BASE, PAGE_SIZE, SHARED_BASE, TEXT_BASE};
use proptest::prelude::*;
use std::string::ToString;
use std::{vec, vec::Vec};

const PAGE: usize = PAGE_SIZE as usize;

#[derive(Clone)]
struct Load {
    flags: u32,
    va: u64,
    mem_len: u64,
    bytes: Vec<u8>,
}

fn load(flags: u32, va: u64, mem_len: u64, bytes: &[u8]) -> Load {
    Load {
        flags,
        va,
        mem_len,
        bytes: bytes.to_vec(),
    }
}

fn sample() -> Vec<Load> {
    vec![
        load(PF_R, SHARED_BASE, 5, b"hello"),
        load(PF_R | PF_W, SHARED_BASE + PAGE_SIZE, 10_000, b"data"),
        load(PF_R | PF_X | PF_X86_64, TEXT_BASE, 9, b"x86 x86 x"),
        load(PF_R | PF_X | PF_AARCH64, TEXT_BASE, 8, b"arm arm "),
        load(PF_R | PF_AARCH64, ISA_RO_BASE, 4, b"pool"),
    ]
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn seal(file: &mut [u8], info: usize) {
    let sum = checksum(file, info + INFO_CHECKSUM);
    put(file, info + INFO_CHECKSUM, &sum.to_le_bytes());
}

/// A writer of its own, so that the format is stated twice. Gives the offset of the info record.
fn build(loads: &[Load], entry: u64) -> (Vec<u8>, usize) {
    let count = loads.len() + 1;
    let info = HEADER_SIZE + PHDR_SIZE * count;
    let mut file = vec![0; info + INFO_SIZE];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &[2, 0, 0xAD, 0xD1, 1]);
    put(&mut file, 24, &entry.to_le_bytes());
    put(&mut file, 32, &[64]);
    put(&mut file, 52, &[64, 0, 56, 0, count as u8]);
    let header = |file: &mut Vec<u8>, i: usize, kind: u32, flags: u32, words: [u64; 6]| {
        let at = HEADER_SIZE + PHDR_SIZE * i;
        put(file, at, &kind.to_le_bytes());
        put(file, at + 4, &flags.to_le_bytes());
        for (k, w) in words.iter().enumerate() {
            put(file, at + 8 + 8 * k, &w.to_le_bytes());
        }
    };
    header(&mut file, 0, PT_INFO, PF_R, [info as u64, 0, 0, 64, 64, 8]);
    for (i, l) in loads.iter().enumerate() {
        file.resize(file.len().next_multiple_of(PAGE), 0);
        let (offset, len) = (file.len() as u64, l.bytes.len() as u64);
        header(
            &mut file,
            i + 1,
            PT_LOAD,
            l.flags,
            [offset, l.va, l.va, len, l.mem_len, PAGE_SIZE],
        );
        file.extend_from_slice(&l.bytes);
    }
    put(&mut file, info, b"DYADBNDL\x01");
    let len = file.len() as u64;
    put(&mut file, info + INFO_LEN, &len.to_le_bytes());
    put(&mut file, info + INFO_NAME, b"hop");
    seal(&mut file, info);
    (file, info)
}

fn fault_of(change: impl FnOnce(&mut Vec<Load>)) -> Option<SegmentFault> {
    let mut loads = sample();
    change(&mut loads);
    match Bundle::parse(&build(&loads, TEXT_BASE).0) {
        Err(BundleError::BadSegment { fault, .. }) => Some(fault),
        _ => None,
    }
}

#[test]
fn a_good_bundle_reads_back() {
    let (file, _) = build(&sample(), TEXT_BASE + 4);
    let b = Bundle::parse(&file).unwrap();
    assert_eq!((b.name(), b.entry()), ("hop", TEXT_BASE + 4));
    let got: Vec<_> = b.segments().collect();
    assert_eq!(got.len(), 5);
    for (s, l) in got.iter().zip(sample()) {
        assert_eq!((s.va, s.mem_len, s.bytes), (l.va, l.mem_len, &l.bytes[..]));
        assert_eq!(&file[s.offset as usize..][..s.bytes.len()], s.bytes);
    }
    assert!(got[1].write && got[1].scope == Scope::Shared);
    assert!(got[2].exec && got[2].scope == Scope::Isa(Isa::X86_64));
    let vas = |isa| b.segments_of(isa).map(|s| s.va).collect::<Vec<_>>();
    assert_eq!(
        vas(Isa::X86_64),
        [SHARED_BASE, SHARED_BASE + PAGE_SIZE, TEXT_BASE]
    );
    assert_eq!(vas(Isa::Aarch64).len(), 4);
}

#[test]
fn other_files_are_told_apart() {
    let (file, info) = build(&sample(), TEXT_BASE);
    let refuse = |f: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = file.clone();
        f(&mut bad);
        seal(&mut bad, info);
        Bundle::parse(&bad).unwrap_err()
    };
    assert!(matches!(
        Bundle::parse(b"#!/bin/sh"),
        Err(BundleError::NotABundle(_))
    ));
    assert!(matches!(
        refuse(&|f| put(f, 18, &[62, 0])),
        BundleError::NotABundle(_)
    ));
    assert_eq!(
        refuse(&|f| put(f, info + INFO_ABI, &[7])),
        BundleError::AbiVersion { found: 7 }
    );
    assert_eq!(
        refuse(&|f| put(f, info + INFO_NAME, b"a b")),
        BundleError::BadName
    );
    assert_eq!(
        refuse(&|f| put(f, info + INFO_NAME + 9, b"x")),
        BundleError::BadName
    );
    assert_eq!(
        refuse(&|f| put(f, 56, &[34])),
        BundleError::TooManySegments { found: 34 }
    );
    assert!(matches!(
        refuse(&|f| f.push(0)),
        BundleError::TrailingBytes { .. }
    ));
    assert_eq!(
        crate::Error::from(BundleError::AbiVersion { found: 7 }),
        crate::Error::BadVersion
    );
}

#[test]
fn a_bundle_cut_anywhere_is_truncated() {
    const STEP: usize = if cfg!(miri) { 331 } else { 7 };
    let (file, _) = build(&sample(), TEXT_BASE);
    for len in (0..file.len()).step_by(STEP) {
        assert!(
            matches!(
                Bundle::parse(&file[..len]),
                Err(BundleError::Truncated { .. })
            ),
            "{len} bytes"
        );
    }
}

#[test]
fn malformed_segments_are_named() {
    use SegmentFault::*;
    assert_eq!(fault_of(|_| ()), None);
    assert_eq!(fault_of(|l| l[0].flags |= 1 << 22), Some(BadFlags));
    assert_eq!(fault_of(|l| l[4].flags |= PF_X86_64), Some(BadFlags));
    assert_eq!(fault_of(|l| l[0].flags = 0), Some(BadFlags));
    assert_eq!(fault_of(|l| l[0].va += 8), Some(Misaligned));
    assert_eq!(fault_of(|l| l[0].mem_len = 4), Some(BadLength));
    assert_eq!(
        fault_of(|l| l[1] = load(PF_R, SHARED_BASE, 0, b"")),
        Some(BadLength)
    );
    assert_eq!(
        fault_of(|l| l[0].va = TEXT_BASE - PAGE_SIZE),
        Some(OutOfRange)
    );
    assert_eq!(fault_of(|l| l[1].mem_len = IMAGE_END), Some(OutOfRange));
    assert_eq!(
        fault_of(|l| l[1].mem_len = u64::MAX - 4095),
        Some(OutOfRange)
    );
    assert_eq!(fault_of(|l| l[2].flags |= PF_W), Some(WriteAndExecute));
    assert_eq!(fault_of(|l| l[4].flags |= PF_W), Some(WritablePerIsa));
    assert_eq!(fault_of(|l| l[0].flags |= PF_X), Some(ExecutableShared));
    let (mut file, info) = build(&sample(), TEXT_BASE);
    put(&mut file, HEADER_SIZE + PHDR_SIZE, &PT_SITES.to_le_bytes());
    seal(&mut file, info);
    assert_eq!(
        Bundle::parse(&file),
        Err(BundleError::BadSegment {
            index: 1,
            fault: UnknownType
        })
    );
}

#[test]
fn pages_are_claimed_once() {
    let overlap = |change: &dyn Fn(&mut Vec<Load>)| {
        let mut loads = sample();
        change(&mut loads);
        matches!(
            Bundle::parse(&build(&loads, TEXT_BASE).0),
            Err(BundleError::Overlap { .. })
        )
    };
    // The same page, though not the same byte.
    assert!(overlap(&|l| l[0].mem_len = PAGE_SIZE + 1));
    assert!(overlap(&|l| l[4].va = SHARED_BASE));
    assert!(!overlap(&|l| l[4].flags = PF_R | PF_X86_64));
    // The same page of the file.
    let (mut file, info) = build(&sample(), TEXT_BASE);
    let offset = HEADER_SIZE + PHDR_SIZE + 8;
    let first = file[offset..offset + 8].to_vec();
    put(&mut file, offset + PHDR_SIZE, &first);
    seal(&mut file, info);
    assert_eq!(
        Bundle::parse(&file),
        Err(BundleError::Overlap {
            first: 1,
            second: 2
        })
    );
}

#[test]
fn the_entry_is_code_on_every_isa() {
    let entry = |e| Bundle::parse(&build(&sample(), e).0).map(|b| b.entry());
    assert_eq!(entry(TEXT_BASE + 4), Ok(TEXT_BASE + 4));
    for bad in [
        0,
        TEXT_BASE + 2,
        TEXT_BASE + 8,
        ISA_RO_BASE,
        SHARED_BASE,
        u64::MAX - 3,
    ] {
        assert_eq!(entry(bad), Err(BundleError::BadEntry { entry: bad }));
    }
    let mut loads = sample();
    loads.remove(3);
    assert!(matches!(
        Bundle::parse(&build(&loads, TEXT_BASE).0),
        Err(BundleError::BadEntry { .. })
    ));
}

#[test]
fn so_is_the_place_where_invocations_enter() {
    let invoked = |at: u64| {
        let (mut file, info) = build(&sample(), TEXT_BASE);
        put(&mut file, info + INFO_INVOKED, &at.to_le_bytes()[..4]);
        seal(&mut file, info);
        Bundle::parse(&file).map(|b| b.invoked())
    };
    assert_eq!(invoked(0), Ok(None));
    assert_eq!(invoked(TEXT_BASE + 4), Ok(Some(TEXT_BASE + 4)));
    for bad in [1, TEXT_BASE + 2, TEXT_BASE + 8, SHARED_BASE, 0xffff_fffc] {
        assert_eq!(invoked(bad), Err(BundleError::BadInvoked { invoked: bad }));
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    const STEP: usize = if cfg!(miri) { 4999 } else { 3 };
    let (file, _) = build(&sample(), TEXT_BASE);
    let mut bad = file.clone();
    for at in (0..file.len()).step_by(STEP) {
        for bit in [0, 3, 7] {
            bad[at] ^= 1 << bit;
            assert!(Bundle::parse(&bad).is_err(), "byte {at} bit {bit}");
            bad[at] = file[at];
        }
    }
    assert!(Bundle::parse(&bad).is_ok());
}

/// Few cases under Miri, and no file left by one that fails.
fn cases() -> ProptestConfig {
    const CASES: u32 = if cfg!(miri) { 4 } else { 256 };
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        if let Err(e) = Bundle::parse(&bytes) {
            prop_assert!(!e.to_string().is_empty());
        }
    }

    /// Headers changed at will, with a correct checksum: accepted only if a loader can rely on it.
    #[test]
    fn whatever_is_accepted_is_safe_to_load(
        edits in proptest::collection::vec((0usize..400, any::<u64>(), 1usize..=8), 1..4)
    ) {
        let (mut file, info) = build(&sample(), TEXT_BASE);
        for (at, value, len) in edits {
            if at + len <= info || at >= info + INFO_SIZE {
                put(&mut file, at, &value.to_le_bytes()[..len]);
            }
        }
        seal(&mut file, info);
        if let Ok(b) = Bundle::parse(&file) {
            for s in b.segments() {
                prop_assert!(s.va >= TEXT_BASE && s.va + s.mem_len <= IMAGE_END);
                prop_assert!(s.bytes.len() as u64 <= s.mem_len && s.offset >= PAGE_SIZE || s.bytes.is_empty());
                prop_assert!(!(s.write && s.exec));
                prop_assert!(s.scope == Scope::Shared || !s.write);
            }
        }
    }
}
