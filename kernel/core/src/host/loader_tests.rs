//! Loading programs: what is mapped where, and what is left after a failure.

use std::vec;
use std::vec::Vec;

use dyad_abi::bundle::{
    HEADER_SIZE, INFO_ABI, INFO_CHECKSUM, INFO_LEN, INFO_MAGIC, INFO_NAME, INFO_SIZE, MACHINE,
    PF_R, PF_W, PF_X, PHDR_SIZE, PT_INFO, PT_LOAD, Scope, checksum,
};
use dyad_abi::user::{PAGE_SIZE, SHARED_BASE, TEXT_BASE};
use dyad_abi::{ABI_VERSION, Error, Isa};

use super::{Left, MockA64, MockX86, World};
use crate::loader::{self, LoadError};
use crate::sched;
use crate::space::Space;

const PAIR: [Isa; 2] = [Isa::X86_64, Isa::Aarch64];
const PAGE: usize = PAGE_SIZE as usize;

/// A bundle with two pages of code per ISA and three pages of shared data, one of them filled.
fn bundle() -> Vec<u8> {
    let loads: [(Scope, u64, u64, usize, u32, u8); 3] = [
        (
            Scope::Isa(Isa::X86_64),
            TEXT_BASE,
            2 * PAGE_SIZE,
            2 * PAGE,
            PF_X,
            0x86,
        ),
        (
            Scope::Isa(Isa::Aarch64),
            TEXT_BASE,
            2 * PAGE_SIZE,
            2 * PAGE,
            PF_X,
            0x64,
        ),
        (Scope::Shared, SHARED_BASE, 3 * PAGE_SIZE, 10, PF_W, 0x11),
    ];
    let info = HEADER_SIZE + PHDR_SIZE * 4;
    let mut file = vec![0; PAGE];
    let put = |file: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &2u16.to_le_bytes());
    put(&mut file, 18, &MACHINE.to_le_bytes());
    put(&mut file, 20, &1u32.to_le_bytes());
    put(&mut file, 24, &TEXT_BASE.to_le_bytes());
    put(&mut file, 32, &(HEADER_SIZE as u64).to_le_bytes());
    put(&mut file, 52, &(HEADER_SIZE as u16).to_le_bytes());
    put(&mut file, 54, &(PHDR_SIZE as u16).to_le_bytes());
    put(&mut file, 56, &4u16.to_le_bytes());
    let header = |file: &mut Vec<u8>, i: usize, kind: u32, flags: u32, words: [u64; 6]| {
        let at = HEADER_SIZE + PHDR_SIZE * i;
        put(file, at, &kind.to_le_bytes());
        put(file, at + 4, &flags.to_le_bytes());
        for (k, w) in words.into_iter().enumerate() {
            put(file, at + 8 + 8 * k, &w.to_le_bytes());
        }
    };
    let size = INFO_SIZE as u64;
    header(
        &mut file,
        0,
        PT_INFO,
        PF_R,
        [info as u64, 0, 0, size, size, 8],
    );
    for (i, (scope, va, mem, len, flags, byte)) in loads.into_iter().enumerate() {
        let at = file.len();
        file.resize(at + len.next_multiple_of(PAGE), 0);
        file[at..at + len].fill(byte);
        let flags = PF_R | flags | scope.flags();
        header(
            &mut file,
            i + 1,
            PT_LOAD,
            flags,
            [at as u64, va, va, len as u64, mem, PAGE_SIZE],
        );
    }
    let len = file.len() as u64;
    put(&mut file, info, &INFO_MAGIC);
    put(&mut file, info + INFO_ABI, &ABI_VERSION.to_le_bytes());
    put(&mut file, info + INFO_LEN, &len.to_le_bytes());
    put(&mut file, info + INFO_NAME, b"tiny");
    let sum = checksum(&file, info + INFO_CHECKSUM);
    put(&mut file, info + INFO_CHECKSUM, &sum.to_le_bytes());
    file
}

#[test]
fn code_is_per_isa_and_data_is_one_copy() {
    let w = World::new(&PAIR, 60);
    w.put_bundle(&bundle());
    let x = w.machine(0);
    loader::start::<MockX86>(x.node()).unwrap();
    let program = x
        .node()
        .sb
        .program
        .load(core::sync::atomic::Ordering::Relaxed)
        - 1;
    let s = Space::find(x.node(), program).unwrap();
    let first_byte = |isa, va| {
        let (pa, leaf, _) = s.with_table(isa, |t| t.translate(va)).flatten()?;
        let mut b = [0];
        assert!(x.node().map.read_bytes(pa, &mut b));
        Some((pa, b[0], leaf.perms))
    };
    let code: Vec<_> = PAIR
        .map(|i| first_byte(i, TEXT_BASE + PAGE_SIZE).unwrap())
        .into();
    assert_eq!((code[0].1, code[1].1), (0x86, 0x64));
    let data: Vec<_> = PAIR.map(|i| first_byte(i, SHARED_BASE).unwrap()).into();
    assert_eq!((data[0].0, data[0].1), (data[1].0, 0x11));
    use dyad_pgtbl::Perms;
    for (_, _, p) in code.iter().chain(&data) {
        assert!(!p.contains(Perms::WRITE | Perms::EXECUTE));
    }
    assert!(first_byte(Isa::X86_64, SHARED_BASE + PAGE_SIZE).is_none());
    let left = x.kernel(|| sched::run::<MockX86>());
    assert_eq!(left, Left::User(TEXT_BASE));
}

/// Every way of running out of memory while loading gives back what there is, once.
#[test]
fn a_program_that_does_not_fit_leaves_nothing_behind() {
    let mut fits = 0;
    for frames in 1..60 {
        let w = World::new(&PAIR, frames);
        w.put_bundle(&bundle());
        let x = w.machine(0);
        match loader::start::<MockX86>(x.node()) {
            Ok(()) => fits += 1,
            Err(LoadError::Kernel { error, .. }) => {
                assert_eq!(error, Error::NoMemory);
                assert_eq!(x.used(), 0, "with {frames} frames");
                let all: std::collections::BTreeSet<_> =
                    core::iter::from_fn(|| x.node().frames().alloc().ok()).collect();
                assert_eq!(all.len() as u64, frames);
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(fits > 10 && fits < 50, "{fits} of 59");
}

#[test]
fn damaged_bundles_are_refused() {
    let good = bundle();
    for at in [0, 18, 70, 200, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        let w = World::new(&PAIR, 60);
        w.put_bundle(&bad);
        let a = w.machine(1);
        let e = loader::start::<MockA64>(a.node()).unwrap_err();
        assert!(matches!(e, LoadError::Bundle(_)), "byte {at}: {e}");
        assert_eq!(a.used(), 0);
    }
    let w = World::new(&PAIR, 60);
    w.bundle_len.set(super::CXL_SIZE);
    let e = loader::start::<MockX86>(w.machine(0).node()).unwrap_err();
    assert!(matches!(e, LoadError::Missing), "{e}");
}
