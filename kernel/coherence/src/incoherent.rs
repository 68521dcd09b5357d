//! The back end for machines whose caches are not coherent with each other's.
//!
//! | operation | x86-64 | AArch64 |
//! |---|---|---|
//! | write-back | CLWB each line (else CLFLUSHOPT, else CLFLUSH); SFENCE | DC CVAC each line; DSB SY |
//! | invalidate | MFENCE; CLFLUSHOPT (else CLFLUSH) each line; MFENCE | DSB SY; DC CIVAC each line; DSB SY |
//! | `load_fresh` | invalidate, load | invalidate, load |
//! | `store_through` | store, write-back | store, write-back |
//! | fence | MFENCE | DSB SY |
//! | `or`, `and` | look at the word, then compare-and-swap, until it has not changed | as other read-modify-writes |
//! | other read-modify-writes | invalidate, LOCK instruction, invalidate | invalidate, LSE instruction, invalidate |
//!
//! | order | from |
//! |---|---|
//! | stores to a line before its write-back | program order for one line, on both ISAs |
//! | write-back before later stores (publish) | SFENCE; DSB |
//! | earlier loads before an invalidation (observe) | MFENCE, DSB: a flush may overtake loads of other lines |
//! | invalidation before later loads | MFENCE; DSB |
//! | write-back before a later look at another word (sleep flags) | the fence: MFENCE; DSB |
//!
//! Invalidating never discards stores: both ISAs write a dirty line back first, so a line that
//! others change must not be dirty here (the crate's header says who may store to a line).
//!
//! What the machine must provide: a read-modify-write on a line that no cache holds is one
//! transaction at memory. (x86-64 has none that sets bits and returns what was there: compilers make
//! a load and a loop of it, and the load would fetch the line.) No instruction says so on either ISA; it is a property of the fabric, or
//! of the emulator, as is the reach of the barriers. Two CPUs of one node are coherent.
#![allow(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_shm::{FusedMap, PhysAddr};

use crate::{Coherent, GlobalMem, LINE_BYTES, atomic};

pub use cpu::Instruction;

/// The reasons why this machine cannot run with incoherent caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The machine has no instruction that flushes a line.
    NoFlush,
    /// The machine's lines have this many bytes, not [`LINE_BYTES`].
    LineBytes(u64),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::NoFlush => f.write_str("the CPU cannot flush cache lines (no CLFLUSH)"),
            Unsupported::LineBytes(n) => {
                write!(f, "cache lines of {n} bytes; only {LINE_BYTES} will do")
            }
        }
    }
}

impl core::error::Error for Unsupported {}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Pools on machines with incoherent caches.
///
/// The functions that flush are not inlined: kernels decide at boot whether caches are coherent, and fast paths on
/// machines with coherent caches must not carry this code.
#[derive(Clone, Copy, Debug)]
pub struct Incoherent<'m> {
    map: &'m FusedMap,
    cache: cpu::Cache,
}

impl<'m> Incoherent<'m> {
    /// Looks at what this CPU can do. All CPUs of a node must be of one kind.
    pub fn new(map: &'m FusedMap) -> Result<Incoherent<'m>, Unsupported> {
        Ok(Incoherent {
            map,
            cache: cpu::Cache::detect()?,
        })
    }

    /// The instructions of this CPU that write lines back, or write them back and drop them.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction> + use<> {
        let cache = self.cache;
        Instruction::ALL.into_iter().filter(move |i| cache.has(*i))
    }

    /// Executes one of [those](Incoherent::instructions) on the lines of a range, without barriers.
    ///
    /// # Panics
    ///
    /// If the range is not in one pool, as all operations do, or this CPU does not have the
    /// instruction.
    pub fn execute(&self, instruction: Instruction, at: PhysAddr, len: u64) {
        assert!(self.cache.has(instruction), "no {instruction} here");
        self.lines(at, len, |line| {
            // SAFETY: 1. just looked up; 2. as in `writeback`.
            unsafe { instruction.execute(line) };
        });
    }

    /// Calls `each` with the virtual addresses of the lines of a range.
    ///
    /// # Panics
    ///
    /// If it is not in one pool, as all operations do.
    fn lines(&self, at: PhysAddr, len: u64, mut each: impl FnMut(u64)) {
        let start = self
            .map
            .address(at, len)
            .expect("range outside of every pool");
        // Pools are page-aligned both ways: rounding to lines does not leave the pool.
        let mut line = start & !(LINE_BYTES - 1);
        let mut left = (start + len - line).div_ceil(LINE_BYTES);
        while left != 0 {
            each(line);
            line = line.wrapping_add(LINE_BYTES);
            left -= 1;
        }
    }

    /// Writes the line of a word back and drops it.
    #[inline]
    fn flush_word(&self, word: &AtomicU64) {
        // SAFETY: 1. a reference is to mapped memory, and a word that is aligned lies in one line.
        unsafe { self.cache.flush(core::ptr::from_ref(word) as u64) };
    }

    /// Invalidates the line of a word, like [`invalidate`](GlobalMem::invalidate). The methods that take a
    /// word by reference have the effects of those of [`GlobalMem`], without looking up the address.
    #[inline]
    pub fn invalidate_word(&self, word: &AtomicU64) {
        cpu::barrier();
        self.flush_word(word);
        cpu::barrier();
    }

    /// Writes the line of a word back, like [`writeback`](GlobalMem::writeback).
    #[inline]
    pub fn writeback_word(&self, word: &AtomicU64) {
        // SAFETY: 1. as in `flush_word`.
        unsafe { self.cache.clean(core::ptr::from_ref(word) as u64) };
        cpu::cleaned();
    }

    /// A read-modify-write at memory: no copy of the line before, none afterwards.
    #[inline]
    fn at_memory<R>(&self, word: &AtomicU64, f: impl FnOnce(&AtomicU64) -> R) -> R {
        self.invalidate_word(word);
        let result = f(word);
        self.invalidate_word(word);
        result
    }

    /// Compares and swaps a word, like [`cas`](GlobalMem::cas).
    ///
    /// # Errors
    ///
    /// The value of the word if it is not `old`.
    pub fn cas_word(&self, word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
        self.at_memory(word, |w| atomic::exchange(w, old, new))
    }

    /// Swaps a word, like [`swap`](GlobalMem::swap).
    pub fn swap_word(&self, word: &AtomicU64, value: u64) -> u64 {
        self.at_memory(word, |w| atomic::swap(w, value))
    }

    /// Adds to a word, like [`add`](GlobalMem::add).
    pub fn add_word(&self, word: &AtomicU64, n: u64) -> u64 {
        self.at_memory(word, |w| atomic::add(w, n))
    }

    /// Sets bits of a word, like [`or`](GlobalMem::or).
    #[cfg(target_arch = "aarch64")]
    pub fn or_word(&self, word: &AtomicU64, bits: u64) -> u64 {
        self.at_memory(word, |w| atomic::or(w, bits))
    }

    /// Clears bits of a word, like [`and`](GlobalMem::and).
    #[cfg(target_arch = "aarch64")]
    pub fn and_word(&self, word: &AtomicU64, bits: u64) -> u64 {
        self.at_memory(word, |w| atomic::and(w, bits))
    }

    /// Sets bits of a word, like [`or`](GlobalMem::or).
    #[cfg(target_arch = "x86_64")]
    pub fn or_word(&self, word: &AtomicU64, bits: u64) -> u64 {
        self.change(word, |old| old | bits)
    }

    /// Clears bits of a word, like [`and`](GlobalMem::and).
    #[cfg(target_arch = "x86_64")]
    pub fn and_word(&self, word: &AtomicU64, bits: u64) -> u64 {
        self.change(word, |old| old & bits)
    }

    /// Replaces the word at memory by `f` of its value, and returns the old value. Retries only if another
    /// CPU has changed the word meanwhile.
    #[cfg(target_arch = "x86_64")]
    fn change(&self, word: &AtomicU64, f: impl Fn(u64) -> u64) -> u64 {
        self.invalidate_word(word);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            match self.cas_word(word, old, f(old)) {
                Ok(old) => return old,
                Err(now) => old = now,
            }
        }
    }
}

impl GlobalMem for Incoherent<'_> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.map.address(at, len).is_some()
    }

    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        Coherent(self.map).load(at, order)
    }

    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        Coherent(self.map).store(at, value, order);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.cas_word(self.map.word(at), old, new)
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.swap_word(self.map.word(at), value)
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.add_word(self.map.word(at), n)
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.or_word(self.map.word(at), bits)
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.and_word(self.map.word(at), bits)
    }

    fn fence(&self) {
        // The language's fence reaches no further than coherent caches (DMB ISH), and says nothing
        // about flushes.
        cpu::barrier();
    }

    #[cold]
    #[inline(never)]
    fn writeback(&self, at: PhysAddr, len: u64) {
        self.lines(at, len, |line| {
            // SAFETY: 1. `lines` gives addresses in a pool, which is mapped (contract of
            // `FusedMap::new`) for as long as the map lives.
            unsafe { self.cache.clean(line) };
        });
        cpu::cleaned();
    }

    #[cold]
    #[inline(never)]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        cpu::barrier();
        self.lines(at, len, |line| {
            // SAFETY: 1. as in `writeback`.
            unsafe { self.cache.flush(line) };
        });
        cpu::barrier();
    }

    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        let word = self.map.word(at);
        self.invalidate_word(word);
        word.load(order)
    }

    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        let word = self.map.word(at);
        word.store(value, order);
        self.writeback_word(word);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "incoherent/x86_64.rs"]
mod cpu;

#[cfg(miri)]
#[path = "incoherent/miri.rs"]
mod cpu;

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[path = "incoherent/aarch64.rs"]
mod cpu;

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::boot::CXL_BASE;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::string::ToString;
    use std::{thread, vec, vec::Vec};

    const PAGES: u64 = 2;
    const TIMES: u64 = if cfg!(miri) { 50 } else { 2000 };
    const BASE: PhysAddr = PhysAddr(CXL_BASE);

    /// The CPU's own choice, and on x86-64 every one it could have made.
    fn each_kind(map: &FusedMap) -> Vec<Incoherent<'_>> {
        let own = Incoherent::new(map).expect("a CPU with flush instructions and 64-byte lines");
        #[cfg_attr(miri, expect(unused_mut))]
        let mut kinds = vec![own];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for (clwb, clflushopt) in [(false, true), (false, false)] {
            let cache = cpu::Cache {
                clwb: clwb && own.cache.clwb,
                clflushopt: clflushopt && own.cache.clflushopt,
            };
            kinds.push(Incoherent { map, cache });
        }
        kinds
    }

    #[test]
    fn flushing_keeps_every_store() {
        let map = FusedMap::leaked(PAGES as usize);
        for m in each_kind(&map) {
            for i in 0..PAGES * 512 {
                m.store(BASE.add(8 * i), i, Ordering::Relaxed);
            }
            m.writeback(BASE, PAGES * 4096);
            m.invalidate(BASE.add(100), 4096);
            m.store_through(BASE.add(64), 77, Ordering::Release);
            for instruction in m.instructions() {
                m.execute(instruction, BASE, PAGES * 4096);
            }
            for i in (0..PAGES * 512).filter(|&i| i != 8) {
                assert_eq!(m.load(BASE.add(8 * i), Ordering::Relaxed), i);
            }
            assert_eq!(m.load_fresh(BASE.add(64), Ordering::Acquire), 77);
        }
    }

    #[test]
    fn read_modify_writes_return_the_old_value_and_lose_no_update() {
        let map = FusedMap::leaked(PAGES as usize);
        for m in each_kind(&map) {
            m.store_through(BASE, 0, Ordering::Relaxed);
            assert_eq!(m.add(BASE, 5), 0);
            assert_eq!(m.or(BASE, 2), 5);
            assert_eq!(m.and(BASE, 6), 7);
            assert_eq!(m.swap(BASE, 9), 6);
            assert_eq!(m.cas(BASE, 8, 1), Err(9));
            assert_eq!(m.cas(BASE, 9, 0), Ok(9));
            thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| (0..TIMES).fold(0, |_, _| m.add(BASE, 1)));
                }
            });
            assert_eq!(m.load_fresh(BASE, Ordering::Acquire), 2 * TIMES);
        }
    }

    #[test]
    fn every_line_of_a_range_and_no_other_is_flushed() {
        let map = FusedMap::leaked(PAGES as usize);
        let m = Incoherent::new(&map).unwrap();
        let lines = |at, len| {
            let va = map.address(BASE, 1).unwrap();
            let mut numbers = Vec::new();
            m.lines(BASE.add(at), len, |l| numbers.push((l - va) / LINE_BYTES));
            numbers
        };
        assert_eq!(lines(0, 64), [0]);
        assert_eq!(lines(60, 8), [0, 1]);
        assert_eq!(lines(64, 129), [1, 2, 3]);
        assert_eq!(lines(PAGES * 4096 - 1, 1), [PAGES * 64 - 1]);
        for (at, len) in [(0, PAGES * 4096 + 1), (PAGES * 4096 - 8, 16)] {
            let flush = || m.invalidate(BASE.add(at), len);
            assert!(catch_unwind(AssertUnwindSafe(flush)).is_err());
        }
        assert!(!m.contains(BASE, PAGES * 4096 + 1));
    }

    #[test]
    fn what_is_missing_is_said() {
        let why = Unsupported::LineBytes(128).to_string();
        assert!(why.contains("128") && why.contains("64"));
        assert!(Unsupported::NoFlush.to_string().contains("CLFLUSH"));
    }
}
