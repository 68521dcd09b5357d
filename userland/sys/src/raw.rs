//! The one place where a system call leaves the program.
//!
//! The trap instruction differs per ISA, and user programs are compiled once for both, so the
//! build pipeline supplies three tiny assembly routines per ISA under the names declared here.
//! On the host the same call goes to the emulation in [`host`](crate::host).

use dyad_abi::syscall::Syscall;
use dyad_abi::{Error, Result};

/// What a system call returns: two registers on both ISAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SyscallReturn {
    /// 0 for success, else the code of an [`Error`].
    pub status: u64,
    /// The value; 0 unless the status is 0.
    pub value: u64,
}

#[cfg(target_os = "none")]
mod stub {
    use super::SyscallReturn;

    unsafe extern "C" {
        pub fn dyad_syscall(op: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> SyscallReturn;
        /// Index of the ISA whose text this is.
        pub safe fn dyad_isa() -> u64;
        /// The hint of this ISA for spinning.
        pub safe fn dyad_relax();
    }
}

/// Makes a system call and gives the registers back as they are.
///
/// # Safety
///
/// Arguments that the operation takes as addresses must be valid for what it does with them, and
/// memory it takes away must not be in use.
pub unsafe fn call_raw(op: u64, args: [u64; 5]) -> SyscallReturn {
    let [a0, a1, a2, a3, a4] = args;
    #[cfg(target_os = "none")]
    // SAFETY: 1. The stub follows the C convention and changes nothing but its result registers.
    // 2. What the kernel does to memory is covered by this function's own contract.
    let ret = unsafe { stub::dyad_syscall(op, a0, a1, a2, a3, a4) };
    #[cfg(not(target_os = "none"))]
    // SAFETY: 1. The emulation has the same contract as this function.
    let ret = unsafe { crate::host::syscall(op, [a0, a1, a2, a3, a4]) };
    ret
}

/// Makes a system call.
///
/// # Safety
///
/// As for [`call_raw`].
pub(crate) unsafe fn call(op: Syscall, args: [u64; 5]) -> Result<u64> {
    // SAFETY: 1. Same contract.
    let ret = unsafe { call_raw(op as u64, args) };
    match ret.status {
        0 => Ok(ret.value),
        // A code this ABI version does not have means the kernel is not the one we know.
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}

/// Index of the ISA this code runs on.
pub(crate) fn isa_index() -> u64 {
    #[cfg(target_os = "none")]
    let index = stub::dyad_isa();
    #[cfg(not(target_os = "none"))]
    let index = crate::host::isa_index();
    index
}

/// Tells the processor that this is a spin loop.
pub fn relax() {
    #[cfg(target_os = "none")]
    stub::dyad_relax();
    #[cfg(not(target_os = "none"))]
    core::hint::spin_loop();
}
