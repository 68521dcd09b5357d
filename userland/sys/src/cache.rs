//! The caches of the calling thread's node: writing lines back to memory, and dropping them, with the instructions of user mode
//! (CLWB, CLFLUSH; DC CVAC, DC CIVAC).
//!
//! Programs need this for memory whose caches they keep coherent, and for nothing else. It changes no value that a program can
//! read: what a thread has stored is written back, never lost. A thread that wants to read what another node has written drops the lines
//! before; one that wants others to read what it has written writes the lines back after. Bytes are addressed by lines of
//! [`LINE_BYTES`] that contain them.
//!
//! An address without memory is a fault, as in a load.

use crate::raw;

/// Bytes of a line, on both ISAs.
pub const LINE_BYTES: u64 = 64;

/// The lines with these bytes.
fn lines(at: u64, len: u64) -> impl Iterator<Item = u64> {
    let first = at & !(LINE_BYTES - 1);
    let end = if len == 0 {
        first
    } else {
        at.saturating_add(len)
    };
    (first..end).step_by(LINE_BYTES as usize)
}

/// Writes lines back to memory; they may stay in the caches. Stores before it are in memory before any access after it.
pub fn write_back(at: u64, len: u64) {
    raw::barrier();
    lines(at, len).for_each(raw::write_back);
    raw::barrier();
}

/// Writes lines back to memory and drops them: accesses after it see memory as it is then, or later.
pub fn flush(at: u64, len: u64) {
    raw::barrier();
    lines(at, len).for_each(raw::flush);
    raw::barrier();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_with_a_byte() {
        let of = |at, len| lines(at, len).collect::<std::vec::Vec<u64>>();
        assert_eq!(of(64, 64), [64]);
        assert_eq!(of(127, 2), [64, 128]);
        assert_eq!(of(65, 1), [64]);
        assert_eq!(of(0, 129), [0, 64, 128]);
        assert_eq!(of(70, 0), [] as [u64; 0]);
        assert_eq!(of(u64::MAX - 1, 9), [u64::MAX - 63]);
    }
}
