//! Access to shared memory: every shared protocol word is read, written and modified through
//! [`GlobalMem`], so that one source runs on coherent machines, on incoherent ones and in models.
//!
//! | back end | where | write-back, invalidate |
//! |---|---|---|
//! | [`Coherent`] | kernels on machines with coherent caches | nothing; compiled away |
//! | [`Incoherent`] | kernels on machines without coherent caches | the CPU's instructions |
//! | `HostMem` (feature `host`) | host tests | nothing; sequentially consistent |
//! | `stale::StaleMem` (feature `host`) | host tests of what is flushed | caches per node, as stale as can be |
//! | `model::LoomMem` (feature `model`) | model checks | nothing; all interleavings, weak ordering |
//!
//! # What a caller may rely on
//!
//! The contract is that of the weakest back end, where a node's caches are not kept coherent with
//! the others'. There a cached line is private to its node until it is written back or
//! invalidated:
//!
//! | operation | acts on | another node sees it |
//! |---|---|---|
//! | [`load`](GlobalMem::load) | this node's view of the line, possibly stale | - |
//! | [`load_fresh`](GlobalMem::load_fresh) | memory | - |
//! | [`store`](GlobalMem::store) | this node's view | after [`writeback`](GlobalMem::writeback) |
//! | [`store_through`](GlobalMem::store_through) | memory | at once |
//! | [`cas`](GlobalMem::cas) [`swap`](GlobalMem::swap) [`add`](GlobalMem::add) [`or`](GlobalMem::or) [`and`](GlobalMem::and) | memory, atomically; leave no stale copy in this node's cache | at once |
//!
//! Lines are [`LINE_BYTES`] long. A write-back writes a whole line, so a line is either stored to
//! by one node only (until it changes hands) or changed by read-modify-writes only; otherwise a
//! write-back could undo another node's change to a neighbouring word. Before memory changes hands
//! (a frame is freed, a receiver moves to another node) its old user writes it back, and the new
//! one invalidates it, unless it stores to every word before it shows any.
//!
//! Caches may evict and fetch lines unasked: that a line has not been used yet does not mean that
//! there is no stale copy of it.
//!
//! # Ordering
//!
//! | pattern | how |
//! |---|---|
//! | publish: fill, then tell | plain stores, write-back, then a release store or a read-modify-write |
//! | observe | acquire load, invalidate, then read what it announced |
//! | store one word, then look at another (sleep flags, epochs) | store, [`fence`](GlobalMem::fence), load |
//!
//! `SeqCst` stores and loads do **not** order a store before a later load on every machine this
//! runs on: an AArch64 guest emulated on an x86 host may reorder them. Only the fence, or a
//! read-modify-write in place of the store followed by a fence, does.
//!
//! # Reads that may be stale
//!
//! Where old bytes do no harm a word is read with [`load_permitted`](GlobalMem::load_permitted), and the reason is listed in
//! [`dyad_shm::permitted`]: the simulator reports every other read of a stale copy.
//!
//! Unsafe code is confined to [`incoherent`] and `permitted`, which issue instructions.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "host", feature = "model"))]
extern crate std;

pub mod atomic;
mod coherent;
#[cfg(any(test, feature = "host"))]
mod host;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod incoherent;
pub mod lacks;
#[cfg(feature = "model")]
pub mod model;
#[cfg(any(test, feature = "host", feature = "model"))]
pub mod mutants;
mod permitted;
#[cfg(any(test, feature = "host"))]
pub mod stale;
pub mod word;

use core::sync::atomic::Ordering;

use dyad_shm::PhysAddr;

pub use coherent::Coherent;
#[cfg(any(test, feature = "host"))]
pub use host::HostMem;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use incoherent::Incoherent;
pub use permitted::load_permitted;
pub use word::{Word, WordAt};

/// Bytes of a frame, on both ISAs.
const FRAME_BYTES: u64 = dyad_abi::user::PAGE_SIZE;

/// Bytes of a cache line, on both ISAs.
pub const LINE_BYTES: u64 = 64;

/// Words of shared memory, by physical address. Addresses are naturally aligned and lie in memory for which
/// [`contains`](GlobalMem::contains) returns true. Callers check addresses from outside, and a back end
/// panics on any other address.
pub trait GlobalMem {
    /// Whether `len` bytes at `at` lie in one piece of shared memory.
    fn contains(&self, at: PhysAddr, len: u64) -> bool;

    /// Reads a word from this node's view. `order` is `Relaxed`, `Acquire` or `SeqCst`.
    fn load(&self, at: PhysAddr, order: Ordering) -> u64;

    /// Writes a word to this node's view. `order` is `Relaxed`, `Release` or `SeqCst`.
    fn store(&self, at: PhysAddr, value: u64, order: Ordering);

    /// Replaces `old` by `new` in memory. Returns `Ok(old)`, or `Err` with the present value. Acquires and
    /// releases on success, acquires on failure. Never fails spuriously.
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64>;

    /// Writes `value`, and returns the old value; acquires and releases.
    fn swap(&self, at: PhysAddr, value: u64) -> u64;

    /// Adds `n` (wrapping), and returns the old value; acquires and releases.
    fn add(&self, at: PhysAddr, n: u64) -> u64;

    /// Sets the bits of `bits`, and returns the old value; acquires and releases.
    fn or(&self, at: PhysAddr, bits: u64) -> u64;

    /// Clears the bits that `bits` lacks, and returns the old value; acquires and releases.
    fn and(&self, at: PhysAddr, bits: u64) -> u64;

    /// Full fence: everything before it, stores included, comes before everything after it.
    fn fence(&self);

    /// Makes this node's stores to the lines of a range visible in memory.
    fn writeback(&self, at: PhysAddr, len: u64);

    /// Drops this node's copies of the lines of a range, after writing back its stores, so that the next
    /// loads see memory.
    fn invalidate(&self, at: PhysAddr, len: u64);

    /// Reads a word that other nodes write.
    #[inline]
    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.invalidate(at, 8);
        self.load(at, order)
    }

    /// Reads a word from this node's view, as [`load`](GlobalMem::load). Old bytes do no harm, for
    /// the reason with this number: see [`dyad_shm::permitted`].
    #[inline(always)]
    #[track_caller]
    fn load_permitted<const WHY: u32>(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.load(at, order)
    }

    /// Reads the last six words of a line, each as [`load_permitted`](GlobalMem::load_permitted) with `Relaxed`.
    #[inline(always)]
    #[track_caller]
    fn load_rest_permitted<const WHY: u32>(&self, line: PhysAddr) -> [u64; 6] {
        let mut words = [0; 6];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.load_permitted::<WHY>(line.add(16 + 8 * i as u64), Ordering::Relaxed);
        }
        words
    }

    /// Reads word `index` (modulo 512) of a frame, as [`load_fresh`](GlobalMem::load_fresh) with
    /// `Acquire`; `None` if the frame is not in shared memory.
    #[inline]
    #[track_caller]
    fn load_of_frame(&self, frame: PhysAddr, index: usize) -> Option<u64> {
        if !self.contains(frame, FRAME_BYTES) {
            return None;
        }
        let at = frame.add(index as u64 * 8 % FRAME_BYTES);
        Some(self.load_fresh(at, Ordering::Acquire))
    }

    /// Writes the first words of a line that only this CPU stores to: the first word last, and
    /// released. The caller writes the line back.
    #[inline]
    #[track_caller]
    fn store_line(&self, line: PhysAddr, words: [u64; 4]) {
        for (i, &word) in words.iter().enumerate().skip(1) {
            self.store(line.add(8 * i as u64), word, Ordering::Relaxed);
        }
        self.store(line, words[0], Ordering::Release);
    }

    /// Writes the last six words of a line that no other CPU reads or stores to now. The caller writes the
    /// line back.
    #[inline]
    #[track_caller]
    fn fill_line(&self, line: PhysAddr, words: &[u64; 6]) {
        for (i, &word) in words.iter().enumerate() {
            self.store(line.add(16 + 8 * i as u64), word, Ordering::Relaxed);
        }
    }

    /// Writes a word that other nodes read. No other node may store to its line.
    #[inline]
    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.store(at, value, order);
        self.writeback(at, 8);
    }
}
