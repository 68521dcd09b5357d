//! The back end for machines whose caches nobody keeps coherent with each other's.
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
use core::sync::atomic::Ordering;

use dyad_shm::{FusedMap, PhysAddr};

use crate::{Coherent, GlobalMem, LINE_BYTES};

pub use cpu::Instruction;

/// Why this machine cannot run with incoherent caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It has no instruction that flushes a line.
    NoFlush,
    /// Its lines have this many bytes, not [`LINE_BYTES`].
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
        for line in self.lines(at, len) {
            // SAFETY: 1. just looked up; 2. as in `writeback`.
            unsafe { instruction.execute(line) };
        }
    }

    /// The virtual addresses of the lines of a range.
    ///
    /// # Panics
    ///
    /// If it is not in one pool, as all operations do.
    fn lines(&self, at: PhysAddr, len: u64) -> impl Iterator<Item = u64> + use<> {
        let start = self
            .map
            .address(at, len)
            .expect("range outside of every pool");
        // Pools are page-aligned both ways: rounding to lines does not leave the pool.
        let first = start & !(LINE_BYTES - 1);
        (first..start + len).step_by(LINE_BYTES as usize)
    }

    /// A read-modify-write at memory: no copy of the line before, none afterwards.
    fn at_memory<R>(&self, at: PhysAddr, f: impl FnOnce(Coherent<'m>) -> R) -> R {
        self.invalidate(at, 8);
        let result = f(Coherent(self.map));
        self.invalidate(at, 8);
        result
    }

    /// Replaces what is at memory by what `f` makes of it, and returns what was there. It goes round
    /// only if another CPU has changed the word meanwhile.
    #[cfg(target_arch = "x86_64")]
    fn change(&self, at: PhysAddr, f: impl Fn(u64) -> u64) -> u64 {
        let mut old = self.load_fresh(at, Ordering::Relaxed);
        loop {
            match self.cas(at, old, f(old)) {
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
        self.at_memory(at, |m| m.cas(at, old, new))
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.at_memory(at, |m| m.swap(at, value))
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.at_memory(at, |m| m.add(at, n))
    }

    #[cfg(target_arch = "aarch64")]
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.at_memory(at, |m| m.or(at, bits))
    }

    #[cfg(target_arch = "aarch64")]
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.at_memory(at, |m| m.and(at, bits))
    }

    #[cfg(target_arch = "x86_64")]
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.change(at, |word| word | bits)
    }

    #[cfg(target_arch = "x86_64")]
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.change(at, |word| word & bits)
    }

    fn fence(&self) {
        // The language's fence reaches no further than coherent caches (DMB ISH), and says nothing
        // about flushes.
        cpu::barrier();
    }

    #[cold]
    #[inline(never)]
    fn writeback(&self, at: PhysAddr, len: u64) {
        for line in self.lines(at, len) {
            // SAFETY: 1. `lines` gives addresses in a pool, which is mapped (contract of
            // `FusedMap::new`) for as long as the map lives.
            unsafe { self.cache.clean(line) };
        }
        cpu::cleaned();
    }

    #[cold]
    #[inline(never)]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        cpu::barrier();
        for line in self.lines(at, len) {
            // SAFETY: 1. as in `writeback`.
            unsafe { self.cache.flush(line) };
        }
        cpu::barrier();
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
            m.lines(BASE.add(at), len)
                .map(|l| (l - va) / LINE_BYTES)
                .collect::<Vec<_>>()
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
