//! Caches of the node that a thread runs on: for memory whose caches the program keeps coherent.
//!
//! ```no_run
//! use core::sync::atomic::{AtomicU64, Ordering};
//! use dyad::cache;
//!
//! # fn main() {
//! static WORD: AtomicU64 = AtomicU64::new(0);
//!
//! // A thread on one node publishes,
//! WORD.store(1, Ordering::Relaxed);
//! cache::write_back(&WORD);
//! // and a thread on another node reads what is in memory, not what it has read before.
//! cache::flush(&WORD);
//! let seen = WORD.load(Ordering::Relaxed);
//! # let _ = seen;
//! # }
//! ```
//!
//! | operation | x86-64 | AArch64 | lines stay in the caches |
//! |---|---|---|---|
//! | [`write_back`] | CLWB | DC CVAC | yes |
//! | [`flush`] | CLFLUSH | DC CIVAC | no |
//!
//! Both are instructions of user mode on all nodes, begin and end with a barrier, and change no value that a program can read: no store
//! is lost. A write-back writes whole lines, so two nodes must not store to one line without a hand-over.
//!
//! The machines that Dyad runs on have coherent caches. What a program forgets to write back or to drop shows nowhere but in the
//! simulator: in a run with `--coherence incoherent --sanitize user`, and in memory that is said to be incoherent ([`IncoherentWords`]).

use dyad_sys::cache;

pub use cache::LINE_BYTES;
pub use dyad_rt::IncoherentWords;

/// The bytes of a value.
fn bytes<T: ?Sized>(value: &T) -> (u64, u64) {
    let at = core::ptr::from_ref(value).cast::<u8>();
    (at.addr() as u64, size_of_val(value) as u64)
}

/// Writes the lines of a value back to memory.
pub fn write_back<T: ?Sized>(value: &T) {
    let (at, len) = bytes(value);
    cache::write_back(at, len);
}

/// Writes the lines of a value back to memory, and drops them from the caches.
pub fn flush<T: ?Sized>(value: &T) {
    let (at, len) = bytes(value);
    cache::flush(at, len);
}
