//! Memory of an interpreted thread: this program's own, but for the text and constants of its ISA.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use dyad_abi::Isa;
use dyad_abi::emulation::{PER_ISA, WINDOWS, other_text};
use dyad_abi::user::{USER_END, USER_MIN};
use dyad_emulate::{Access, Fault, FaultKind, Memory, Width};

/// Memory as a thread of this program sees it that was stopped on an ISA.
///
/// What is not text or constants is accessed at its address. An address at which the program has nothing
/// faults, and the pager ends the program for it, as if the thread had accessed it natively.
#[derive(Debug)]
pub struct Own {
    isa: Isa,
    windows: [[u64; 2]; WINDOWS],
    /// Where constants have been read last: the first address, and by how much more an access of [`MOST`] bytes
    /// still is in that window.
    recent: [u64; 2],
}

impl Own {
    /// # Safety
    ///
    /// The windows say what of the ISA's text and constants is mapped at [`other_text`].
    pub unsafe fn new(isa: Isa, windows: [[u64; 2]; WINDOWS]) -> Own {
        Own {
            isa,
            windows,
            recent: [u64::MAX, 0],
        }
    }

    /// The address at which the text or constants at `va` can be read, and how many bytes there are.
    fn window(&self, va: u64) -> Option<(u64, u64)> {
        let [_, end] = (self.windows.iter()).find(|[start, end]| (*start..*end).contains(&va))?;
        Some((other_text(self.isa, va), end - va))
    }

    /// The address at which `len` bytes can be accessed, at most [`MOST`].
    #[inline(always)]
    fn place(&mut self, va: u64, len: u64, access: Access) -> Result<u64, Fault> {
        // What is above text and constants, which is nearly everything, by one comparison.
        if va.wrapping_sub(PER_ISA.end) <= USER_END - MOST - PER_ISA.end {
            return Ok(va);
        }
        let [start, room] = self.recent;
        if va.wrapping_sub(start) < room && access == Access::Load {
            return Ok(other_text(self.isa, va));
        }
        self.find(va, len, access)
    }

    /// Like `place`, for any address.
    #[cold]
    fn find(&mut self, va: u64, len: u64, access: Access) -> Result<u64, Fault> {
        let fault = |kind| Err(Fault { va, access, kind });
        let end = va.checked_add(len).filter(|&end| end <= USER_END);
        let Some(end) = end.filter(|_| va >= USER_MIN) else {
            return fault(FaultKind::Unmapped);
        };
        if end <= PER_ISA.start || va >= PER_ISA.end {
            return Ok(va);
        }
        if access != Access::Load {
            return fault(FaultKind::Protection);
        }
        match self.window(va) {
            Some((at, left)) if len <= left => {
                self.recent = [va, left.saturating_sub(MOST)];
                Ok(at)
            }
            _ => fault(FaultKind::Unmapped),
        }
    }
}

/// Bytes of the longest access.
const MOST: u64 = 64;

/// An atomic word of the program's memory.
macro_rules! word {
    ($ty:ty, $at:expr) => {{
        // SAFETY: 1. The address is in the program's own half, a multiple of the word's size, and not
        // in its text: mapped, or the access ends the program. 2. It is an access of the program's
        // own code, which is interpreted instead of executed: what memory model its other threads
        // are promised is kept by its being atomic.
        unsafe { &*with_exposed_provenance_mut::<$ty>($at as usize) }
    }};
}

/// Reads memory, in the longest accesses that are aligned.
///
/// # Safety
///
/// [`Own::place`] has given the address for as many bytes.
#[inline(never)]
unsafe fn load_pieces(at: u64, bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let (at, rest) = (at + done as u64, &mut bytes[done..]);
        done += match (at % 8, rest.len()) {
            (0, 8..) => {
                let value = word!(AtomicU64, at).load(Ordering::Acquire);
                rest[..8].copy_from_slice(&value.to_le_bytes());
                8
            }
            (0 | 4, 4..) => {
                let value = word!(AtomicU32, at).load(Ordering::Acquire);
                rest[..4].copy_from_slice(&value.to_le_bytes());
                4
            }
            (0 | 2 | 4 | 6, 2..) => {
                let value = word!(AtomicU16, at).load(Ordering::Acquire);
                rest[..2].copy_from_slice(&value.to_le_bytes());
                2
            }
            _ => {
                rest[0] = word!(AtomicU8, at).load(Ordering::Acquire);
                1
            }
        };
    }
}

/// Writes memory, in the longest accesses that are aligned.
///
/// # Safety
///
/// [`Own::place`] has given the address for as many bytes.
#[inline(never)]
unsafe fn store_pieces(at: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let (at, rest) = (at + done as u64, &bytes[done..]);
        done += match (at % 8, rest) {
            (0, &[a, b, c, d, e, f, g, h, ..]) => {
                let value = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                word!(AtomicU64, at).store(value, Ordering::Release);
                8
            }
            (0 | 4, &[a, b, c, d, ..]) => {
                let value = u32::from_le_bytes([a, b, c, d]);
                word!(AtomicU32, at).store(value, Ordering::Release);
                4
            }
            (0 | 2 | 4 | 6, &[a, b, ..]) => {
                let value = u16::from_le_bytes([a, b]);
                word!(AtomicU16, at).store(value, Ordering::Release);
                2
            }
            (_, rest) => {
                word!(AtomicU8, at).store(rest[0], Ordering::Release);
                1
            }
        };
    }
}

impl Memory for Own {
    fn maintain(&mut self, va: u64, stays: bool) -> Result<(), Fault> {
        let at = self.place(va, 1, Access::Load)?;
        // Like any load it faults here if there is no page.
        let _ = word!(AtomicU8, at).load(Ordering::Relaxed);
        match stays {
            true => dyad_sys::cache::write_back(at, 1),
            false => dyad_sys::cache::flush(at, 1),
        }
        Ok(())
    }

    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let Some((at, left)) = self.window(va) else {
            return Err(Fault {
                va,
                access: Access::Fetch,
                kind: FaultKind::Unmapped,
            });
        };
        let len = (left as usize).min(bytes.len());
        for (byte, at) in bytes[..len].iter_mut().zip(at..) {
            // SAFETY: 1. By `new`, the range is mapped readable. 2. Text is never written.
            *byte = unsafe { with_exposed_provenance::<u8>(at as usize).read() };
        }
        Ok(len)
    }

    #[inline(always)]
    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        let at = self.place(va, N as u64, Access::Load)?;
        let mut bytes = [0; N];
        // One access, or two.
        if at.is_multiple_of(N.min(8) as u64) {
            match N {
                1 => {
                    bytes[0] = word!(AtomicU8, at).load(Ordering::Acquire);
                    return Ok(bytes);
                }
                2 => {
                    let value = word!(AtomicU16, at).load(Ordering::Acquire);
                    bytes.copy_from_slice(&value.to_le_bytes());
                    return Ok(bytes);
                }
                4 => {
                    let value = word!(AtomicU32, at).load(Ordering::Acquire);
                    bytes.copy_from_slice(&value.to_le_bytes());
                    return Ok(bytes);
                }
                8 | 16 => {
                    for (bytes, at) in bytes.chunks_exact_mut(8).zip((at..).step_by(8)) {
                        let value = word!(AtomicU64, at).load(Ordering::Acquire);
                        bytes.copy_from_slice(&value.to_le_bytes());
                    }
                    return Ok(bytes);
                }
                _ => {}
            }
        }
        // SAFETY: 1. `place` has given the address.
        unsafe { load_pieces(at, &mut bytes) };
        Ok(bytes)
    }

    #[inline(always)]
    fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault> {
        let at = self.place(va, N as u64, Access::Store)?;
        // One access.
        if at.is_multiple_of(N as u64) {
            match *bytes.as_slice() {
                [a] => {
                    word!(AtomicU8, at).store(a, Ordering::Release);
                    return Ok(());
                }
                [a, b] => {
                    let value = u16::from_le_bytes([a, b]);
                    word!(AtomicU16, at).store(value, Ordering::Release);
                    return Ok(());
                }
                [a, b, c, d] => {
                    let value = u32::from_le_bytes([a, b, c, d]);
                    word!(AtomicU32, at).store(value, Ordering::Release);
                    return Ok(());
                }
                [a, b, c, d, e, f, g, h] => {
                    let value = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                    word!(AtomicU64, at).store(value, Ordering::Release);
                    return Ok(());
                }
                _ => {}
            }
        }
        // SAFETY: 1. `place` has given the address.
        unsafe { store_pieces(at, &bytes) };
        Ok(())
    }

    /// Compare-and-exchange of up to 8 bytes. 16 bytes are not supported: not every CPU does that in one
    /// step.
    fn compare_exchange(
        &mut self,
        va: u64,
        width: Width,
        expected: u128,
        new: u128,
    ) -> Result<u128, Fault> {
        let at = self.place(va, width.bytes().into(), Access::Update)?;
        if !at.is_multiple_of(width.bytes().into()) || width == Width::B16 {
            return Err(Fault {
                va,
                access: Access::Update,
                kind: FaultKind::Unaligned,
            });
        }
        macro_rules! exchange {
            ($word:ty, $value:ty) => {
                word!($word, at)
                    .compare_exchange(
                        expected as $value,
                        new as $value,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    )
                    .unwrap_or_else(|found| found)
                    .into()
            };
        }
        Ok(match width {
            Width::B1 => exchange!(AtomicU8, u8),
            Width::B2 => exchange!(AtomicU16, u16),
            Width::B4 => exchange!(AtomicU32, u32),
            _ => exchange!(AtomicU64, u64),
        })
    }
}
