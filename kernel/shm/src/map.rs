//! Checked access to pools.
//!
//! A [`FusedMap`] has the physical ranges and the virtual addresses of the pools, and returns references only
//! to whole, aligned [`Shared`] structures inside one of them. On hardware every pool is mapped at
//! `FUSED_BASE + PA`; on the host (tests, tools) each pool may be anywhere.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE};
use dyad_abi::user::PAGE_SIZE;

use crate::FUSED_BASE;
use crate::pool::{MAX_POOLS, PhysAddr, PoolId};
use crate::superblock::Superblock;

/// Types that may live in fused memory.
///
/// # Safety
///
/// 1. The type consists of naturally aligned atomic words of at most 64 bits, and nothing else.
/// 2. Every bit pattern, zero included, is a valid value.
/// 3. It holds no pointer into an image and no virtual address that is not fused.
pub unsafe trait Shared: Sync + 'static {}

// SAFETY: 1. it is one atomic word; 2. all patterns are valid; 3. it is a number.
unsafe impl Shared for AtomicU64 {}
// SAFETY: 1. to 3. follow from the element's.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Declares a structure of fused memory: `repr(C)`, and [`Shared`] because every field is. A field
/// of any other type does not compile, so that other crates need no unsafe code for theirs.
///
/// ```
/// use core::sync::atomic::AtomicU64;
/// dyad_shm::shared_struct! {
///     struct Fine { count: AtomicU64, lines: [AtomicU64; 8] }
/// }
/// ```
///
/// A pointer into an image must not be in shared memory:
///
/// ```compile_fail,E0277
/// use core::sync::atomic::AtomicU64;
/// dyad_shm::shared_struct! {
///     struct Wrong { count: AtomicU64, name: &'static str }
/// }
/// ```
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident : $ty:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$fmeta])* $fvis $field: $ty),*
        }

        // SAFETY: 1. to 3. hold for every field, as the bounds demand, and padding has no value.
        #[allow(unsafe_code)]
        unsafe impl $crate::Shared for $name where $($ty: $crate::Shared),* {}
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident($(#[$fmeta:meta])* $fvis:vis $ty:ty);) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name($(#[$fmeta])* $fvis $ty);

        // SAFETY: 1. to 3. hold for the field, as the bound demands.
        #[allow(unsafe_code)]
        unsafe impl $crate::Shared for $name where $ty: $crate::Shared {}
    };
}

/// Places where pools may start: multiples of the distance between local pools, up to the CXL pool.
const PLACES: usize = (CXL_BASE / LOCAL_STRIDE) as usize + 1;
const _: () = assert!(LOCAL_STRIDE.is_power_of_two() && CXL_BASE.is_multiple_of(LOCAL_STRIDE));

/// The pools of a system and where they are mapped.
#[derive(Clone, Debug)]
pub struct FusedMap {
    /// Sizes in bytes, whole pages, by place; 0: there is no pool.
    sizes: [u64; PLACES],
    /// Virtual minus physical address, wrapping, by place.
    offsets: [u64; PLACES],
}

/// The place an address belongs to, and how far into it it is.
#[inline]
const fn place_of(pa: PhysAddr) -> (usize, u64) {
    let place = pa.0 / LOCAL_STRIDE;
    let last = PLACES as u64 - 1;
    let place = if place > last { last } else { place };
    (
        place as usize,
        pa.0.wrapping_sub(place.wrapping_mul(LOCAL_STRIDE)),
    )
}

/// Whether structures of this size, aligned to it, do not cross borders of pages.
const fn divides_pages(size: u64) -> bool {
    size.is_power_of_two() && size <= PAGE_SIZE
}

const fn place_of_pool(pool: PoolId) -> usize {
    place_of(pool.base()).0
}

impl FusedMap {
    /// A map of pools.
    ///
    /// `pools` gives, by pool index, the size in bytes (of which whole pages are used) and the virtual
    /// address; size 0 means that there is no such pool.
    ///
    /// # Safety
    ///
    /// 1. Each range is mapped, readable and writable, for as long as the map and anything
    ///    obtained from it are used.
    /// 2. No code accesses these ranges in this program but through `FusedMap`s (other machines
    ///    do, with atomic words).
    /// 3. Each virtual address is page-aligned.
    /// 4. No code writes to ranges that [`FusedMap::launcher_bytes`] has handed out.
    pub const unsafe fn new(pools: [(u64, u64); MAX_POOLS]) -> FusedMap {
        let mut sizes = [0; PLACES];
        let mut offsets = [0; PLACES];
        let mut i = 0;
        while i < MAX_POOLS {
            let id = match dyad_abi::NodeId::new(i as u64) {
                Some(n) => PoolId::Local(n),
                None => PoolId::Cxl,
            };
            let at = place_of_pool(id);
            sizes[at] = pools[i].0 & !(PAGE_SIZE - 1);
            offsets[at] = pools[i].1.wrapping_sub(id.base().0);
            i += 1;
        }
        FusedMap { sizes, offsets }
    }

    /// Size of a pool in bytes; 0 if there is none.
    pub const fn size(&self, pool: PoolId) -> u64 {
        self.sizes[place_of_pool(pool)]
    }

    /// The physical range of a pool.
    pub const fn range(&self, pool: PoolId) -> Range<u64> {
        pool.base().0..pool.base().0 + self.size(pool)
    }

    /// Virtual address of `len` bytes at `pa`, if they lie in one pool.
    #[inline]
    pub fn address(&self, pa: PhysAddr, len: u64) -> Option<u64> {
        let (place, into) = place_of(pa);
        let size = self.sizes[place];
        if len > size || into > size - len {
            return None;
        }
        Some(pa.0.wrapping_add(self.offsets[place]))
    }

    /// The physical address of a mapped virtual address: the inverse of [`FusedMap::address`].
    #[inline]
    pub fn physical(&self, va: u64) -> Option<PhysAddr> {
        // Where kernels map all pools.
        let pa = PhysAddr(va.wrapping_sub(FUSED_BASE));
        let (place, into) = place_of(pa);
        if into < self.sizes[place] && self.offsets[place] == FUSED_BASE {
            return Some(pa);
        }
        self.physical_elsewhere(va)
    }

    #[cold]
    fn physical_elsewhere(&self, va: u64) -> Option<PhysAddr> {
        (0..PLACES).find_map(|i| {
            let pa = PhysAddr(va.wrapping_sub(self.offsets[i]));
            let (place, into) = place_of(pa);
            (place == i && into < self.sizes[i]).then_some(pa)
        })
    }

    /// The structure at `pa`; `None` if it is not wholly inside a pool or not aligned.
    #[inline]
    pub fn get<T: Shared>(&self, pa: PhysAddr) -> Option<&'static T> {
        let va = match size_of::<T>() as u64 {
            // Pools are whole pages: what is aligned to its size lies in one if it begins there.
            size if divides_pages(size) && pa.0.is_multiple_of(size) => {
                let (place, into) = place_of(pa);
                if into >= self.sizes[place] {
                    return None;
                }
                pa.0.wrapping_add(self.offsets[place])
            }
            size if pa.0.is_multiple_of(align_of::<T>() as u64) => self.address(pa, size)?,
            _ => return None,
        };
        // SAFETY: 1. the range lies in a pool, which is mapped (contract of `new`); 2. pools are
        // page-aligned both ways, so the alignment of `pa` carries over; 3. `T` is `Shared`: any
        // bit pattern is valid and all accesses are atomic.
        Some(unsafe { &*(va as usize as *const T) })
    }

    /// `count` structures from `pa` on; `None` if they are not wholly inside a pool or not aligned.
    pub fn all<T: Shared>(&self, pa: PhysAddr, count: u64) -> Option<&'static [T]> {
        let len = count.checked_mul(size_of::<T>() as u64)?;
        let va = self.address(pa, len)?;
        if !pa.0.is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: 1. to 3. as in `get`, of each; 4. the range lies in one pool, so that its length is
        // no more than an address can say.
        Some(unsafe { core::slice::from_raw_parts(va as usize as *const T, count as usize) })
    }

    /// The word at `pa`.
    ///
    /// # Panics
    ///
    /// If `pa` is not an aligned address in a pool: callers check what comes from outside.
    #[inline]
    pub fn word(&self, pa: PhysAddr) -> &'static AtomicU64 {
        self.get(pa).expect("word outside of every pool")
    }

    /// The superblock.
    ///
    /// # Panics
    ///
    /// If there is no CXL pool.
    pub fn superblock(&self) -> &'static Superblock {
        self.get(PoolId::Cxl.base()).expect("no CXL pool")
    }

    /// Bytes that the launcher wrote into the CXL pool before any machine started: the program bundle.
    /// Nothing writes there afterwards, because frames there are never allocated.
    pub fn launcher_bytes(&self, offset: u64, len: u64) -> Option<&'static [u8]> {
        let va = self.address(PhysAddr(PoolId::Cxl.base().0.checked_add(offset)?), len)?;
        // SAFETY: 1. the range lies in a pool, which is mapped; 2. no code writes to it (contract
        // of `new`, 4); 3. bytes have no alignment and no invalid values.
        Some(unsafe { core::slice::from_raw_parts(va as usize as *const u8, len as usize) })
    }

    /// Fills the frame at `pa` with zeros by 64-bit stores. `false` if it is not in a pool.
    #[must_use]
    pub fn zero_frame(&self, pa: PhysAddr) -> bool {
        let Some(words) = self.get::<[AtomicU64; (PAGE_SIZE / 8) as usize]>(pa) else {
            return false;
        };
        for w in words {
            w.store(0, Ordering::Relaxed);
        }
        true
    }

    /// Copies bytes into pools; whole words are stored as words. `false` (and nothing written) if
    /// the range is not in one pool.
    #[must_use]
    pub fn write_bytes(&self, pa: PhysAddr, bytes: &[u8]) -> bool {
        let Some(va) = self.address(pa, bytes.len() as u64) else {
            return false;
        };
        let mut at = va as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            if at.is_multiple_of(8) && rest.len() >= 8 {
                let (word, tail) = rest.split_at(8);
                let mut w = [0; 8];
                w.copy_from_slice(word);
                // SAFETY: 1. eight bytes of the checked range, aligned; 2. volatile: another
                // machine may look at the same memory.
                unsafe { (at as *mut u64).write_volatile(u64::from_le_bytes(w)) };
                (at, rest) = (at + 8, tail);
            } else {
                // SAFETY: 1. one byte of the checked range.
                unsafe { (at as *mut u8).write_volatile(rest[0]) };
                (at, rest) = (at + 1, &rest[1..]);
            }
        }
        true
    }

    /// Copies bytes out of pools. `false` if the range is not in one pool.
    #[must_use]
    pub fn read_bytes(&self, pa: PhysAddr, out: &mut [u8]) -> bool {
        let Some(va) = self.address(pa, out.len() as u64) else {
            return false;
        };
        let mut at = va as usize;
        let mut rest = out;
        while !rest.is_empty() {
            if at.is_multiple_of(8) && rest.len() >= 8 {
                let (word, tail) = rest.split_at_mut(8);
                // SAFETY: 1. eight bytes of the checked range, aligned; 2. volatile: another
                // machine may write the same memory.
                let w = unsafe { (at as *const u64).read_volatile() };
                word.copy_from_slice(&w.to_le_bytes());
                (at, rest) = (at + 8, tail);
            } else {
                // SAFETY: 1. one byte of the checked range.
                rest[0] = unsafe { (at as *const u8).read_volatile() };
                (at, rest) = (at + 1, &mut rest[1..]);
            }
        }
        true
    }
}

#[cfg(any(test, feature = "host"))]
impl FusedMap {
    /// A CXL pool of that many zeroed pages of the host, and no other pool. The memory is never
    /// given back: what maps hand out may be used for ever.
    pub fn leaked(pages: usize) -> FusedMap {
        // One more, in order to begin with a page.
        let pool = std::vec![[0u64; (PAGE_SIZE / 8) as usize]; pages + 1].leak();
        let va = (pool.as_mut_ptr().expose_provenance() as u64).next_multiple_of(PAGE_SIZE);
        let mut pools = [(0, 0); MAX_POOLS];
        pools[MAX_POOLS - 1] = (pages as u64 * PAGE_SIZE, va);
        // SAFETY: 1. leaked memory; 2. of this map only; 3. rounded to pages; 4. the bytes of a map
        // are handed out by its user.
        unsafe { FusedMap::new(pools) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::NodeId;
    use std::{boxed::Box, vec, vec::Vec};

    fn host_map() -> FusedMap {
        let mem: &'static mut Vec<[u64; 512]> = Box::leak(Box::new(vec![[0; 512]; 9]));
        let va = mem.as_ptr() as u64;
        let va = va.next_multiple_of(4096);
        let mut pools = [(0, 0); MAX_POOLS];
        pools[0] = (4 * 4096, va);
        pools[MAX_POOLS - 1] = (4 * 4096, va + 4 * 4096);
        // SAFETY: 1. leaked memory; 2. used by this map only; 3. rounded to pages above.
        unsafe { FusedMap::new(pools) }
    }

    #[test]
    fn only_whole_aligned_structures_in_pools_are_handed_out() {
        let m = host_map();
        let base = PoolId::Local(NodeId::new(0).unwrap()).base();
        assert!(m.get::<AtomicU64>(base).is_some());
        assert!(m.get::<AtomicU64>(base.add(4)).is_none());
        assert!(m.get::<AtomicU64>(base.add(4 * 4096 - 8)).is_some());
        assert!(m.get::<AtomicU64>(base.add(4 * 4096)).is_none());
        assert!(m.get::<[AtomicU64; 2]>(base.add(4 * 4096 - 8)).is_none());
        assert!(m.get::<[AtomicU64; 2]>(base.add(4 * 4096 - 16)).is_some());
        assert!(m.get::<[AtomicU64; 2]>(base.add(4 * 4096 - 24)).is_some());
        assert!(m.get::<[AtomicU64; 3]>(base.add(4 * 4096 - 16)).is_none());
        assert!(m.get::<[AtomicU64; 512]>(base.add(3 * 4096)).is_some());
        assert!(m.get::<[AtomicU64; 512]>(base.add(3 * 4096 + 8)).is_none());
        assert!(m.get::<[AtomicU64; 1024]>(base.add(3 * 4096)).is_none());
        assert!(m.get::<AtomicU64>(PhysAddr(0)).is_none());
        assert!(m.get::<AtomicU64>(PhysAddr(!7)).is_none());
        assert!(m.address(base, u64::MAX).is_none());
        let va = m.address(base.add(4096), 8).unwrap();
        assert_eq!(m.physical(va), Some(base.add(4096)));
        assert_eq!(m.physical(0x1000), None);
    }

    #[test]
    fn launcher_bytes_are_bounded_by_the_pool() {
        let m = host_map();
        assert_eq!(m.launcher_bytes(4096, 10).map(<[u8]>::len), Some(10));
        assert!(m.launcher_bytes(4 * 4096 - 9, 10).is_none());
        assert!(m.launcher_bytes(u64::MAX, 10).is_none());
    }

    #[test]
    fn bytes_go_in_and_out_unaligned() {
        let m = host_map();
        let at = PoolId::Cxl.base().add(4096 - 5);
        let text = b"across a frame border, and no word borders kept";
        assert!(m.write_bytes(at, text));
        let mut back = [0; 47];
        assert!(m.read_bytes(at, &mut back));
        assert_eq!(&back, text);
        assert!(!m.write_bytes(PoolId::Cxl.base().add(4 * 4096 - 3), text));
        assert!(m.zero_frame(PoolId::Cxl.base()));
        assert!(m.read_bytes(at, &mut back[..5]));
        assert_eq!(&back[..5], &[0; 5]);
    }
}
