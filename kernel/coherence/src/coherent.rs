//! The back end for machines whose caches are coherent.

use core::sync::atomic::{Ordering, fence};

use dyad_shm::{FusedMap, PhysAddr};

use crate::{GlobalMem, atomic};

/// Pools on machines with coherent caches: every operation is one atomic instruction (after the
/// map's bounds check), write-back and invalidate are nothing.
#[derive(Clone, Copy, Debug)]
pub struct Coherent<'m>(pub &'m FusedMap);

impl GlobalMem for Coherent<'_> {
    #[inline]
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.0.address(at, len).is_some()
    }

    #[inline]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.0.word(at).load(order)
    }

    #[inline]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.0.word(at).store(value, order);
    }

    #[inline]
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        atomic::exchange(self.0.word(at), old, new)
    }

    #[inline]
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        atomic::swap(self.0.word(at), value)
    }

    #[inline]
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        atomic::add(self.0.word(at), n)
    }

    #[inline]
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        atomic::or(self.0.word(at), bits)
    }

    #[inline]
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        atomic::and(self.0.word(at), bits)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn writeback(&self, _at: PhysAddr, _len: u64) {}

    #[inline]
    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}
