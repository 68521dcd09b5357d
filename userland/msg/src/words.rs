//! The memory that messages go through: words that several nodes see.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of a line of memory.
pub const LINE_WORDS: u64 = 8;
/// Bytes of a line of memory, on both ISAs.
pub const LINE_BYTES: usize = 64;

/// Memory made of 64-bit words, which are addressed by number. Memory is coherent; its order is
/// weak: what must be ordered is ordered by the orders asked for, and by [`fence`](Words::fence).
///
/// `SeqCst` stores and loads do not order a store before a later load on every machine this runs
/// on; only the fence does, so they are not used.
///
/// Callers check numbers that come from others; an implementation panics on a word that it has not.
pub trait Words {
    /// Number of words.
    fn count(&self) -> u64;
    /// Reads a word; `order` is `Relaxed` or `Acquire`.
    fn load(&self, at: u64, order: Ordering) -> u64;
    /// Writes a word; `order` is `Relaxed` or `Release`.
    fn store(&self, at: u64, value: u64, order: Ordering);
    /// Sets the bits of `bits` and returns the previous value; acquires and releases.
    fn or(&self, at: u64, bits: u64) -> u64;
    /// Clears the bits that `bits` lacks and returns the previous value; acquires and releases.
    fn and(&self, at: u64, bits: u64) -> u64;
    /// Writes `value` and returns the previous value; acquires and releases.
    fn swap(&self, at: u64, value: u64) -> u64;
    /// Full fence: everything before it, stores included, comes before everything after it.
    fn fence(&self);
}

/// A line of words, at a multiple of its size.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line([AtomicU64; LINE_WORDS as usize]);

/// New memory of `count` lines, all zero. On a Dyad system it lies in the program's heap, at the same address
/// on all nodes.
pub fn lines(count: usize) -> Arc<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}

impl Words for [Line] {
    fn count(&self) -> u64 {
        self.len() as u64 * LINE_WORDS
    }

    #[inline]
    fn load(&self, at: u64, order: Ordering) -> u64 {
        word(self, at).load(order)
    }

    #[inline]
    fn store(&self, at: u64, value: u64, order: Ordering) {
        word(self, at).store(value, order);
    }

    #[inline]
    fn or(&self, at: u64, bits: u64) -> u64 {
        word(self, at).fetch_or(bits, Ordering::AcqRel)
    }

    #[inline]
    fn and(&self, at: u64, bits: u64) -> u64 {
        word(self, at).fetch_and(bits, Ordering::AcqRel)
    }

    #[inline]
    fn swap(&self, at: u64, value: u64) -> u64 {
        word(self, at).swap(value, Ordering::AcqRel)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

#[inline]
fn word(lines: &[Line], at: u64) -> &AtomicU64 {
    &lines[(at / LINE_WORDS) as usize].0[(at % LINE_WORDS) as usize]
}

macro_rules! forward {
    ($t:ty) => {
        impl<W: Words + ?Sized> Words for $t {
            fn count(&self) -> u64 {
                (**self).count()
            }
            #[inline]
            #[track_caller]
            fn load(&self, at: u64, order: Ordering) -> u64 {
                (**self).load(at, order)
            }
            #[inline]
            #[track_caller]
            fn store(&self, at: u64, value: u64, order: Ordering) {
                (**self).store(at, value, order);
            }
            #[inline]
            fn or(&self, at: u64, bits: u64) -> u64 {
                (**self).or(at, bits)
            }
            #[inline]
            fn and(&self, at: u64, bits: u64) -> u64 {
                (**self).and(at, bits)
            }
            #[inline]
            fn swap(&self, at: u64, value: u64) -> u64 {
                (**self).swap(at, value)
            }
            #[inline]
            #[track_caller]
            fn fence(&self) {
                (**self).fence();
            }
        }
    };
}

forward!(&W);
forward!(Arc<W>);
