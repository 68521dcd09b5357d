//! Fatal faults, one of each kind.

#![allow(unsafe_code)]

use core::hint::black_box;

use dyad::prelude::task::*;
use dyad::sys;

/// What ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads address 0.
    NullRead,
    /// Writes address 0.
    NullWrite,
    /// Jumps into its heap.
    ExecData,
    /// Writes to its own code.
    WriteText,
    /// Recurses for ever.
    StackOverflow,
    /// Jumps into the kernel's half of the address space.
    JumpKernel,
    /// Exits with a code that is not 0.
    BadExit,
    /// Allocates more than there can be.
    HugeAlloc,
    /// Touches memory until there is none.
    ExhaustMemory,
}

impl Fault {
    pub const ALL: [Fault; 9] = [
        Fault::NullRead,
        Fault::NullWrite,
        Fault::ExecData,
        Fault::WriteText,
        Fault::StackOverflow,
        Fault::JumpKernel,
        Fault::BadExit,
        Fault::HugeAlloc,
        Fault::ExhaustMemory,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Fault::NullRead => "null-read",
            Fault::NullWrite => "null-write",
            Fault::ExecData => "exec-data",
            Fault::WriteText => "write-text",
            Fault::StackOverflow => "stack-overflow",
            Fault::JumpKernel => "jump-kernel",
            Fault::BadExit => "bad-exit",
            Fault::HugeAlloc => "huge-alloc",
            Fault::ExhaustMemory => "exhaust-memory",
        }
    }

    pub fn parse(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Commits it. Returning means that nobody objected.
    pub fn commit(self) {
        match self {
            Fault::NullRead => {
                let at = black_box(0usize) as *const u64;
                // SAFETY: 1. Not safe: the kernel must end the program here, as at every access
                // below; nothing of the program is used afterwards.
                black_box(unsafe { at.read_volatile() });
            }
            Fault::NullWrite => {
                let at = black_box(0usize) as *mut u64;
                // SAFETY: 1. As above.
                unsafe { at.write_volatile(1) };
            }
            Fault::ExecData => {
                let data = black_box(vec![0u8; 64]);
                jump(data.as_ptr() as usize);
            }
            Fault::WriteText => {
                let at = black_box(jump as fn(usize) as usize) as *mut u8;
                // SAFETY: 1. As above.
                unsafe { at.write_volatile(0) };
            }
            Fault::StackOverflow => {
                black_box(deeper(1));
            }
            Fault::JumpKernel => jump(0xffff_ffff_8000_0000),
            Fault::BadExit => sys::exit(77),
            Fault::HugeAlloc => {
                black_box(Vec::<u8>::with_capacity(black_box(1 << 50)));
            }
            Fault::ExhaustMemory => {
                // Not from the heap, which gives no more than there is.
                const HOARD: u64 = 16 << 30;
                let Ok(start) = sys::map_anon(HOARD) else {
                    return;
                };
                for page in 0..HOARD as usize / 4096 {
                    // SAFETY: 1. The page is of this mapping, which nothing else uses.
                    unsafe { start.add(page * 4096).write_volatile(1) };
                }
            }
        }
    }
}

#[inline(never)]
fn jump(to: usize) {
    // SAFETY: 1. As in `commit`: there is no function there.
    let function: extern "C" fn() = unsafe { core::mem::transmute(black_box(to)) };
    function();
}

#[inline(never)]
fn deeper(n: u64) -> u64 {
    let here = black_box([n; 64]);
    if black_box(n) == 0 {
        return 0;
    }
    deeper(n + 1).wrapping_add(here[(n % 64) as usize])
}
