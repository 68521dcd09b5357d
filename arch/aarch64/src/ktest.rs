//! What in-kernel tests need of the machine.

use dyad_core::ktest::Entry;
use dyad_shm::PhysAddr;

use crate::mmu;

unsafe extern "C" {
    static __start_ktests: u8;
    static __stop_ktests: u8;
}

/// The tests in the image.
pub fn entries() -> &'static [Entry] {
    let start = &raw const __start_ktests;
    let bytes = &raw const __stop_ktests as usize - start as usize;
    // SAFETY: 1. the linker script puts the symbols around the section that `#[ktest]` fills with
    // entries and nothing else, aligned; 2. it is constant.
    unsafe { core::slice::from_raw_parts(start.cast(), bytes / size_of::<Entry>()) }
}

/// Maps the frame at `pa` executable in the test window and calls it.
pub fn call_code(pa: PhysAddr) -> Option<u64> {
    let va = mmu::map_code_window(pa)?;
    // SAFETY: 1. the frame is mapped executable; 2. tests put `code_returning` there, which is a
    // function of this type.
    let f: extern "C" fn() -> u64 = unsafe { core::mem::transmute(va as usize) };
    Some(f())
}

/// `mov w0, #n; ret`.
pub fn code_returning(n: u8) -> [u64; 2] {
    [0xd65f_03c0 << 32 | 0x5280_0000 | (n as u64) << 5, 0]
}
