//! Words of memory whose caches the program keeps coherent by itself.

use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};

/// Words, zero at first, at the start of a page, in memory of [`map_anon_incoherent`](dyad_sys::map_anon_incoherent). Dropping them gives
/// the memory back.
pub struct IncoherentWords {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: 1. The words belong to this alone, and are shared as atomics only.
unsafe impl Send for IncoherentWords {}
// SAFETY: 1. The words are shared as atomics only.
unsafe impl Sync for IncoherentWords {}

impl IncoherentWords {
    /// So many words.
    ///
    /// # Errors
    ///
    /// Those of [`map_anon_incoherent`](dyad_sys::map_anon_incoherent).
    pub fn new(len: usize) -> Result<IncoherentWords> {
        let bytes = (len.max(1) as u64).checked_mul(8).ok_or(Error::TooLarge)?;
        let start = dyad_sys::map_anon_incoherent(bytes)?;
        Ok(IncoherentWords {
            start: start.cast(),
            len,
        })
    }
}

impl Deref for IncoherentWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: 1. The range is mapped, zero at first, and this one's until it is dropped. 2. It begins a page. 3. All access to it is
        // atomic.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for IncoherentWords {
    fn drop(&mut self) {
        let bytes = (self.len.max(1) as u64 * 8).next_multiple_of(PAGE_SIZE);
        // SAFETY: 1. Nothing borrows the words any more.
        let _ = unsafe { dyad_sys::unmap(self.start.cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::IncoherentWords;
    use core::sync::atomic::Ordering;

    #[test]
    fn words_are_zero_and_are_given_back() {
        for _ in 0..2 {
            let words = IncoherentWords::new(1000).unwrap();
            assert_eq!(words.len(), 1000);
            assert!(words.iter().all(|w| w.load(Ordering::Relaxed) == 0));
            words[999].store(7, Ordering::Relaxed);
            assert!(words.as_ptr().addr().is_multiple_of(4096));
        }
        assert!(IncoherentWords::new(usize::MAX).is_err());
        assert_eq!(IncoherentWords::new(0).unwrap().len(), 0);
    }
}
