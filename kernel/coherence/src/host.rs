//! The back end for host tests: frames appear, zeroed, when they are first touched.

use core::iter;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::vec::Vec;

use dyad_abi::NodeId;
use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::{PhysAddr, PoolId};

use crate::GlobalMem;

const WORDS: usize = (PAGE_SIZE / 8) as usize;
/// As much of the CXL pool's range as frame references can name.
const CXL_SPAN: u64 = PAGE_SIZE << 28;

type Frame = [AtomicU64; WORDS];

/// All pools a system can have, each as large as can be.
pub(crate) fn largest_pools() -> Vec<Range<u64>> {
    NodeId::first(MAX_NODES)
        .map(|n| PoolId::Local(n).base().0)
        .map(|base| base..base + LOCAL_STRIDE)
        .chain(iter::once(CXL_BASE..CXL_BASE + CXL_SPAN))
        .collect()
}

/// Shared memory on the host, for tests: sparse, usable from several threads, sequentially
/// consistent whatever ordering is asked for. Like hardware back ends it panics on addresses
/// outside of its memory and on misaligned words.
#[derive(Debug)]
pub struct HostMem {
    ranges: Vec<Range<u64>>,
    frames: RwLock<BTreeMap<u64, Box<Frame>>>,
}

impl Default for HostMem {
    fn default() -> HostMem {
        HostMem::new()
    }
}

impl HostMem {
    /// All pools a system can have, each as large as can be.
    pub fn new() -> HostMem {
        HostMem::with_ranges(largest_pools())
    }

    /// Only these physical ranges, which are rounded inwards to frames.
    pub fn with_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> HostMem {
        HostMem {
            ranges: ranges
                .into_iter()
                .map(|r| {
                    let end = r.end - r.end % PAGE_SIZE;
                    r.start.next_multiple_of(PAGE_SIZE).min(end)..end
                })
                .collect(),
            frames: RwLock::new(BTreeMap::new()),
        }
    }

    fn word<R>(&self, at: PhysAddr, f: impl FnOnce(&AtomicU64) -> R) -> R {
        assert!(
            at.0.is_multiple_of(8) && self.contains(at, 8),
            "no word of shared memory at {at}"
        );
        let (frame, index) = (at.frame_start().0, (at.offset() / 8) as usize);
        {
            let frames = self.frames.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(words) = frames.get(&frame) {
                return f(&words[index]);
            }
        }
        let mut frames = self.frames.write().unwrap_or_else(PoisonError::into_inner);
        let words = frames
            .entry(frame)
            .or_insert_with(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
        f(&words[index])
    }
}

impl GlobalMem for HostMem {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.ranges
            .iter()
            .any(|r| r.contains(&at.0) && len <= r.end - at.0)
    }

    fn load(&self, at: PhysAddr, _order: Ordering) -> u64 {
        self.word(at, |w| w.load(Ordering::SeqCst))
    }

    fn store(&self, at: PhysAddr, value: u64, _order: Ordering) {
        self.word(at, |w| w.store(value, Ordering::SeqCst));
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.word(at, |w| {
            w.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
        })
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.word(at, |w| w.swap(value, Ordering::SeqCst))
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.word(at, |w| w.fetch_add(n, Ordering::SeqCst))
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.word(at, |w| w.fetch_or(bits, Ordering::SeqCst))
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.word(at, |w| w.fetch_and(bits, Ordering::SeqCst))
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn writeback(&self, _at: PhysAddr, _len: u64) {}

    fn invalidate(&self, _at: PhysAddr, _len: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    const AT: PhysAddr = PhysAddr(CXL_BASE + 0x5008);

    #[test]
    fn read_modify_writes_return_the_old_value() {
        let m = HostMem::new();
        assert_eq!(m.load(AT, Ordering::Relaxed), 0);
        assert_eq!(m.add(AT, 5), 0);
        assert_eq!(m.or(AT, 2), 5);
        assert_eq!(m.and(AT, 6), 7);
        assert_eq!(m.swap(AT, 9), 6);
        assert_eq!(m.cas(AT, 8, 1), Err(9));
        assert_eq!(m.cas(AT, 9, 1), Ok(9));
        assert_eq!(m.load_fresh(AT, Ordering::Acquire), 1);
        assert_eq!(m.load(AT.add(8), Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_share_words_and_lose_no_update() {
        const EACH: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let m = HostMem::new();
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for i in 0..EACH {
                        m.add(AT, 1);
                        m.or(AT.add(8 + PAGE_SIZE * (i % 7)), 1 << (i % 64));
                    }
                });
            }
        });
        assert_eq!(m.load(AT, Ordering::Relaxed), 2 * EACH);
    }

    #[test]
    fn addresses_outside_of_memory_are_refused() {
        let m = HostMem::with_ranges(once(CXL_BASE..CXL_BASE + 2 * PAGE_SIZE + 100));
        assert!(m.contains(PhysAddr(CXL_BASE), 2 * PAGE_SIZE));
        assert!(!m.contains(PhysAddr(CXL_BASE), 2 * PAGE_SIZE + 1));
        assert!(!m.contains(PhysAddr(CXL_BASE - 8), 8));
        assert!(!m.contains(PhysAddr(CXL_BASE), u64::MAX));
        for bad in [CXL_BASE - 8, CXL_BASE + 2 * PAGE_SIZE, CXL_BASE + 4, 0] {
            let touch = || m.load(PhysAddr(bad), Ordering::Relaxed);
            assert!(catch_unwind(AssertUnwindSafe(touch)).is_err(), "{bad:#x}");
        }
    }
}
