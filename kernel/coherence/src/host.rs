//! The back end for host tests: frames appear, zeroed, when they are first touched.

use core::iter;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::boxed::Box;
use std::sync::OnceLock;
use std::vec::Vec;

use dyad_abi::NodeId;
use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::{PhysAddr, PoolId};

use crate::GlobalMem;

const WORDS: usize = (PAGE_SIZE / 8) as usize;
/// The part of the CXL pool's range that frame references can name.
const CXL_SPAN: u64 = PAGE_SIZE << 28;

/// Bits of a frame's number that each level of the tree of frames decides by.
const DIGIT: u32 = 4;

/// A place in the tree of frames, for the first frame that asks for it.
type Place = OnceLock<Box<Frame>>;

/// A frame, and above the level where it was put those that differ from it in the next digit of
/// their numbers, lowest digits first.
#[derive(Debug)]
struct Frame {
    number: u64,
    words: [AtomicU64; WORDS],
    above: [Place; 1 << DIGIT],
}

impl Frame {
    fn new(number: u64) -> Box<Frame> {
        Box::new(Frame {
            number,
            words: [const { AtomicU64::new(0) }; WORDS],
            above: [const { OnceLock::new() }; 1 << DIGIT],
        })
    }
}

/// All pools that a system can have, each as large as possible; the pool that tests use most comes first.
pub(crate) fn largest_pools() -> Vec<Range<u64>> {
    let local = NodeId::first(MAX_NODES).map(|n| PoolId::Local(n).base().0);
    iter::once(CXL_BASE..CXL_BASE + CXL_SPAN)
        .chain(local.map(|base| base..base + LOCAL_STRIDE))
        .collect()
}

/// Whether `len` bytes at `at` lie in one of the ranges.
pub(crate) fn lies_in(ranges: &[Range<u64>], at: PhysAddr, len: u64) -> bool {
    // Not `Range::contains`: each call costs under Miri.
    ranges
        .iter()
        .any(|r| at.0 >= r.start && at.0 < r.end && len <= r.end - at.0)
}

/// Shared memory on the host, for tests: sparse, usable from several threads, sequentially consistent for
/// every ordering. Like hardware back ends it panics on addresses outside of its memory and on misaligned
/// words.
#[derive(Debug)]
pub struct HostMem {
    ranges: Vec<Range<u64>>,
    /// A tree and no map behind a lock: threads do not wait for each other, and under Miri a look
    /// takes a tenth of the time.
    frames: Place,
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

    /// Memory with only these physical ranges, which are rounded inwards to frames.
    pub fn with_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> HostMem {
        HostMem {
            ranges: ranges
                .into_iter()
                .map(|r| {
                    let end = r.end - r.end % PAGE_SIZE;
                    r.start.next_multiple_of(PAGE_SIZE).min(end)..end
                })
                .collect(),
            frames: Place::new(),
        }
    }

    fn word(&self, at: PhysAddr) -> &AtomicU64 {
        assert!(at.0.is_multiple_of(8), "no word of shared memory at {at}");
        let number = at.0 / PAGE_SIZE;
        let (mut place, mut digits) = (&self.frames, number);
        loop {
            let frame = place.get().unwrap_or_else(|| {
                // Frames that are there have passed it.
                assert!(self.contains(at, 8), "no word of shared memory at {at}");
                place.get_or_init(|| Frame::new(number))
            });
            if frame.number == number {
                return &frame.words[(at.offset() / 8) as usize];
            }
            place = &frame.above[(digits % (1 << DIGIT)) as usize];
            digits >>= DIGIT;
        }
    }
}

impl GlobalMem for HostMem {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        lies_in(&self.ranges, at, len)
    }

    fn load(&self, at: PhysAddr, _order: Ordering) -> u64 {
        self.word(at).load(Ordering::SeqCst)
    }

    fn store(&self, at: PhysAddr, value: u64, _order: Ordering) {
        self.word(at).store(value, Ordering::SeqCst);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.word(at)
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.word(at).swap(value, Ordering::SeqCst)
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.word(at).fetch_add(n, Ordering::SeqCst)
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.word(at).fetch_or(bits, Ordering::SeqCst)
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.word(at).fetch_and(bits, Ordering::SeqCst)
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
