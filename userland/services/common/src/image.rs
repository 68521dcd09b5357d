//! What a bundle becomes: the regions of its address space, and the pages to be filled.
//!
//! Text and constants of both ISAs lie at the same addresses and so share a region. What a shared
//! segment has beyond its bytes in the file is zero and gets frames when it is touched.

use dyad_abi::bundle::{Bundle, MAX_SEGMENTS, Scope, Segment};
use dyad_abi::cap::{ObjectKind, RegionKind, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};

/// A region to be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Length in bytes, whole pages.
    pub len: u64,
    /// The kind of the region, which determines its faults.
    pub kind: RegionKind,
    /// Whether the program may write there.
    pub write: bool,
}

/// The regions of an image.
pub struct Regions {
    list: [Option<Region>; 2 * MAX_SEGMENTS],
    used: usize,
}

/// Pages of the file part of a segment.
pub fn filled_pages(s: &Segment<'_>) -> u64 {
    (s.bytes.len() as u64).div_ceil(PAGE_SIZE)
}

/// Pages that are not in the file: they are zero, and get frames when they are touched.
pub fn zero_pages(bundle: &Bundle<'_>) -> u64 {
    let beyond = |s: Segment<'_>| s.mem_len.div_ceil(PAGE_SIZE) - filled_pages(&s);
    bundle.segments().map(beyond).sum()
}

/// The ISAs of a set of bits.
pub fn isas_of(bits: u8) -> impl Iterator<Item = Isa> {
    Isa::ALL
        .into_iter()
        .filter(move |i| bits & 1 << i.index() != 0)
}

/// The ISAs that see a segment, of those in `isas`.
pub fn seen_by(s: &Segment<'_>, isas: u8) -> u8 {
    match s.scope {
        Scope::Shared => isas,
        Scope::Isa(isa) => isas & 1 << isa.index(),
    }
}

/// Kind of the page table of an ISA and a level.
///
/// # Errors
///
/// `BadArgument` if there is none.
pub fn table_kind(at: TableAt) -> Result<ObjectKind> {
    let first = match at.isa {
        Isa::X86_64 => ObjectKind::PageTableX86L1,
        Isa::Aarch64 => ObjectKind::PageTableA64L1,
    };
    ObjectKind::from_number(first as u64 + u64::from(at.level) - 1).ok_or(Error::BadArgument)
}

/// Whether any of the ISAs in `isas` (bit by index) sees the segment.
pub fn is_seen(s: &Segment<'_>, isas: u8) -> bool {
    Isa::ALL
        .into_iter()
        .any(|i| isas & 1 << i.index() != 0 && s.scope.sees(i))
}

impl Regions {
    /// The regions of a bundle on a system with these ISAs (bit by index).
    pub fn of(bundle: &Bundle<'_>, isas: u8) -> Regions {
        let mut regions = Regions {
            list: [None; 2 * MAX_SEGMENTS],
            used: 0,
        };
        for s in bundle.segments().filter(|s| is_seen(s, isas)) {
            let len = s.mem_len.next_multiple_of(PAGE_SIZE);
            let filled = filled_pages(&s) * PAGE_SIZE;
            match s.scope {
                Scope::Isa(_) => regions.per_isa(s.va, len),
                Scope::Shared => {
                    let shared = (s.va, filled, RegionKind::Shared);
                    let zero = (s.va + filled, len - filled, RegionKind::Anonymous);
                    for (start, len, kind) in [shared, zero] {
                        if len > 0 {
                            regions.push(Region {
                                start,
                                len,
                                kind,
                                write: s.write,
                            });
                        }
                    }
                }
            }
        }
        regions
    }

    /// Adds a per-ISA range, as a part of what the other ISA has there if it has something.
    fn per_isa(&mut self, start: u64, len: u64) {
        let end = start + len;
        let meets =
            |r: &Region| r.kind == RegionKind::PerIsa && r.start <= end && start <= r.start + r.len;
        match self.list.iter_mut().flatten().find(|r| meets(r)) {
            Some(r) => {
                let end = end.max(r.start + r.len);
                r.start = r.start.min(start);
                r.len = end - r.start;
            }
            None => self.push(Region {
                start,
                len,
                kind: RegionKind::PerIsa,
                write: false,
            }),
        }
    }

    fn push(&mut self, region: Region) {
        // Two regions for each segment is the most there can be.
        if let Some(slot) = self.list.get_mut(self.used) {
            *slot = Some(region);
            self.used += 1;
        }
    }

    /// The regions.
    pub fn iter(&self) -> impl Iterator<Item = Region> + '_ {
        self.list.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use dyad_abi::bundle::{
        HEADER_SIZE, INFO_ABI, INFO_CHECKSUM, INFO_LEN, INFO_MAGIC, INFO_NAME, INFO_SIZE, MACHINE,
        PF_AARCH64, PF_R, PF_W, PF_X, PF_X86_64, PHDR_SIZE, PT_INFO, PT_LOAD, checksum,
    };
    use std::vec;
    use std::vec::Vec;

    const TEXT: u64 = dyad_abi::user::TEXT_BASE;
    const DATA: u64 = dyad_abi::user::SHARED_BASE;

    /// A bundle of `(va, flags, bytes in the file, bytes in memory)`.
    fn bundle(segments: &[(u64, u32, u64, u64)]) -> Vec<u8> {
        let info = HEADER_SIZE + PHDR_SIZE * (segments.len() + 1);
        let mut f = vec![0u8; info + INFO_SIZE];
        let put = |f: &mut Vec<u8>, at: usize, b: &[u8]| f[at..at + b.len()].copy_from_slice(b);
        put(&mut f, 0, b"\x7fELF\x02\x01\x01");
        put(&mut f, 16, &2u16.to_le_bytes());
        put(&mut f, 18, &MACHINE.to_le_bytes());
        put(&mut f, 20, &1u32.to_le_bytes());
        put(&mut f, 24, &TEXT.to_le_bytes());
        put(&mut f, 32, &(HEADER_SIZE as u64).to_le_bytes());
        put(&mut f, 52, &(HEADER_SIZE as u16).to_le_bytes());
        put(&mut f, 54, &(PHDR_SIZE as u16).to_le_bytes());
        put(&mut f, 56, &(segments.len() as u16 + 1).to_le_bytes());
        let header = |f: &mut Vec<u8>, i: usize, ty: u32, flags: u32, words: [u64; 6]| {
            let at = HEADER_SIZE + PHDR_SIZE * i;
            put(f, at, &ty.to_le_bytes());
            put(f, at + 4, &flags.to_le_bytes());
            for (k, w) in words.into_iter().enumerate() {
                put(f, at + 8 + 8 * k, &w.to_le_bytes());
            }
        };
        let size = INFO_SIZE as u64;
        header(&mut f, 0, PT_INFO, PF_R, [info as u64, 0, 0, size, size, 8]);
        for (i, &(va, flags, file, mem)) in segments.iter().enumerate() {
            f.resize(f.len().next_multiple_of(4096), 0);
            let offset = f.len() as u64;
            f.resize(f.len() + file as usize, 0x90);
            header(
                &mut f,
                i + 1,
                PT_LOAD,
                flags | PF_R,
                [offset, va, va, file, mem, PAGE_SIZE],
            );
        }
        let len = f.len() as u64;
        put(&mut f, info, &INFO_MAGIC);
        put(
            &mut f,
            info + INFO_ABI,
            &dyad_abi::ABI_VERSION.to_le_bytes(),
        );
        put(&mut f, info + INFO_LEN, &len.to_le_bytes());
        put(&mut f, info + INFO_NAME, b"test");
        let sum = checksum(&f, info + INFO_CHECKSUM);
        put(&mut f, info + INFO_CHECKSUM, &sum.to_le_bytes());
        f
    }

    #[test]
    fn both_texts_are_one_region_and_bss_is_anonymous() {
        let file = bundle(&[
            (TEXT, PF_X | PF_X86_64, 5000, 5000),
            (TEXT, PF_X | PF_AARCH64, 9000, 9000),
            (DATA, 0, 100, 100),
            (DATA + 0x1000, PF_W, 4097, 0x5001),
            (DATA + 0x10000, PF_W, 0, 0x2000),
        ]);
        let b = Bundle::parse(&file).unwrap();
        assert_eq!(zero_pages(&b), 4 + 2);
        let of = |isas| -> Vec<_> {
            Regions::of(&b, isas)
                .iter()
                .map(|r| (r.start, r.len, r.kind, r.write))
                .collect()
        };
        use RegionKind::{Anonymous, PerIsa, Shared};
        let data = [
            (DATA, 0x1000, Shared, false),
            (DATA + 0x1000, 0x2000, Shared, true),
            (DATA + 0x3000, 0x4000, Anonymous, true),
            (DATA + 0x10000, 0x2000, Anonymous, true),
        ];
        for (isas, text) in [(1, 0x2000), (2, 0x3000), (3, 0x3000)] {
            let mut expected = vec![(TEXT, text, PerIsa, false)];
            expected.extend(data);
            assert_eq!(of(isas), expected, "{isas}");
        }
    }
}
