//! System calls of Dyad programs: one function per operation, with types instead of registers.
//!
//! No allocation, no policy. Everything here works the same on every ISA; nothing asks which one
//! it was compiled for. Programs normally use the `dyad` crate, which is built on this one.
//!
//! This is the crate of user space where unsafe code is allowed: beside the calls themselves it
//! holds the few parts of the runtime that need it (heap, lock, program-local statics), so that
//! the rest can forbid it.
//!
//! On the host the same functions run against an emulated system ([`host`]), for tests.
#![no_std]

#[cfg(not(target_os = "none"))]
extern crate std;

pub mod heap;
#[cfg(not(target_os = "none"))]
pub mod host;
mod local;
mod lock;
pub mod marker;
pub mod raw;

use core::ptr::NonNull;

use dyad_abi::syscall::Syscall;
use dyad_abi::user::{
    MAX_REPORT_DETAIL, MAX_REPORT_NAME, MAX_WRITE, ReportArgs, ReportKind, SysInfo, TRANSLATE_EXEC,
    TRANSLATE_PA, TRANSLATE_WRITE, Where,
};

pub use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
pub use local::ProgramLocal;
pub use lock::{Lock, LockGuard};

fn call(op: Syscall, args: [u64; 5]) -> Result<u64> {
    // SAFETY: 1. Callers in this file pass addresses only of live borrows, with their lengths, or
    // addresses the kernel only looks up. 2. The one operation that takes memory away (`unmap`)
    // has this contract itself.
    unsafe { raw::call(op, args) }
}

/// Enters the kernel and returns, for measuring what that costs.
///
/// # Errors
///
/// None that a correct kernel returns.
pub fn null() -> Result<()> {
    call(Syscall::Null, [0; 5]).map(drop)
}

/// Ends the program with an exit code; 0 is success.
pub fn exit(code: u32) -> ! {
    loop {
        // The kernel does not return from this; if it does, there is nothing better to do.
        let _ = call(Syscall::Exit, [code.into(), 0, 0, 0, 0]);
    }
}

/// Writes text to the console of the node this runs on. At most
/// [`MAX_WRITE`] bytes are taken; returns how many.
///
/// # Errors
///
/// `BadArgument` if the kernel finds the text too long or not valid.
pub fn write(text: &str) -> Result<usize> {
    let text = &text[..text.floor_char_boundary(MAX_WRITE)];
    let args = [text.as_ptr() as u64, text.len() as u64, 0, 0, 0];
    Ok((call(Syscall::Write, args)? as usize).min(text.len()))
}

/// Nanoseconds of fused time since the first node started.
///
/// # Errors
///
/// None that a correct kernel returns.
pub fn now() -> Result<u64> {
    call(Syscall::Now, [0; 5])
}

/// Lets other threads of this CPU run.
pub fn yield_now() {
    // The call has no way to fail, and a caller that wants to wait has nothing else to do.
    let _ = call(Syscall::Yield, [0; 5]);
}

/// Sleeps until fused time reaches `deadline_ns`.
///
/// # Errors
///
/// None that a correct kernel returns.
pub fn sleep_until(deadline_ns: u64) -> Result<()> {
    call(Syscall::SleepUntil, [deadline_ns, 0, 0, 0, 0]).map(drop)
}

/// Continues this thread on another node.
///
/// If that node has the same ISA, the call returns there. If not, the thread goes on where it
/// last left that ISA (in its own `migrate` call, or at the program's entry the first time), and
/// this call returns when the thread comes back to this ISA. **So values on the native stack may
/// be stale when it returns**: the caller keeps what matters in statics or on the heap, and looks
/// at it afresh. Returns the node it is on now.
///
/// # Errors
///
/// `NoSuchNode`, `NodeDead`; `Full` or `TimedOut` if the node does not take the thread.
pub fn migrate(node: NodeId) -> Result<NodeId> {
    let value = call(Syscall::Migrate, [node.index() as u64, 0, 0, 0, 0])?;
    NodeId::new(value).ok_or(Error::Corrupt)
}

/// Maps `len` bytes (rounded up to pages) of new zero-filled memory, at the same address on
/// every ISA. It stays mapped until [`unmap`].
///
/// # Errors
///
/// `BadArgument` for a length of 0, `NoMemory` or `TooLarge` if there is no room for it.
pub fn map_anon(len: u64) -> Result<NonNull<u8>> {
    let len = len
        .checked_next_multiple_of(dyad_abi::user::PAGE_SIZE)
        .ok_or(Error::TooLarge)?;
    let address = call(Syscall::MapAnon, [len, 0, 0, 0, 0])?;
    NonNull::new(address as *mut u8).ok_or(Error::Corrupt)
}

/// Gives memory from [`map_anon`] back.
///
/// # Errors
///
/// `BadArgument` or `NotFound` if this is not a range that was mapped.
///
/// # Safety
///
/// Nothing may use the range any more.
pub unsafe fn unmap(start: NonNull<u8>, len: u64) -> Result<()> {
    let len = len
        .checked_next_multiple_of(dyad_abi::user::PAGE_SIZE)
        .ok_or(Error::TooLarge)?;
    let args = [start.as_ptr() as u64, len, 0, 0, 0];
    // SAFETY: 1. The caller promises that the range is not in use.
    unsafe { raw::call(Syscall::Unmap, args) }.map(drop)
}

/// The nodes and pools of the system, as they are now.
///
/// # Errors
///
/// `BadVersion` if the kernel's structure is not the one of this ABI version.
pub fn sys_info() -> Result<SysInfo> {
    let mut info = SysInfo::default();
    let len = size_of::<SysInfo>() as u64;
    let full = call(Syscall::SysInfo, [&raw mut info as u64, len, 0, 0, 0])?;
    if full != len || info.abi_version != dyad_abi::ABI_VERSION {
        return Err(Error::BadVersion);
    }
    // Bounds everything that indexes `nodes` by this count.
    if info.node_count as usize > info.nodes.len() {
        return Err(Error::Corrupt);
    }
    Ok(info)
}

/// Copies the program's argument text into `buffer`, as much as fits. Returns its full length.
///
/// # Errors
///
/// None that a correct kernel returns.
pub fn args(buffer: &mut [u8]) -> Result<usize> {
    let args = [buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0];
    Ok(call(Syscall::Args, args)? as usize)
}

/// Records a check of this run. A name or detail that is too long is cut.
///
/// # Errors
///
/// `Full` if the kernel keeps no more reports.
pub fn report_check(name: &str, ok: bool, detail: &str) -> Result<()> {
    report(ReportKind::Check, ok.into(), name, detail)
}

/// Adds `n` to a counter of this run. A name that is too long is cut.
///
/// # Errors
///
/// `Full` if the kernel keeps no more reports.
pub fn report_counter(name: &str, n: u64) -> Result<()> {
    report(ReportKind::Counter, n, name, "")
}

fn report(kind: ReportKind, value: u64, name: &str, detail: &str) -> Result<()> {
    let name = &name[..name.floor_char_boundary(MAX_REPORT_NAME)];
    let detail = &detail[..detail.floor_char_boundary(MAX_REPORT_DETAIL)];
    let args = ReportArgs {
        kind: kind as u64,
        value,
        name: name.as_ptr() as u64,
        name_len: name.len() as u64,
        detail: detail.as_ptr() as u64,
        detail_len: detail.len() as u64,
    };
    call(Syscall::Report, [&raw const args as u64, 0, 0, 0, 0]).map(drop)
}

/// How one ISA's page table maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the byte.
    pub physical: u64,
    /// The page is writable.
    pub write: bool,
    /// The page is executable.
    pub exec: bool,
}

/// How `isa`'s page table of this program maps `address`.
///
/// # Errors
///
/// `BadAddress` or `NotFound` if it does not.
pub fn translate(address: u64, isa: Isa) -> Result<Translation> {
    let value = call(Syscall::Translate, [address, isa as u64, 0, 0, 0])?;
    Ok(Translation {
        physical: value & TRANSLATE_PA,
        write: value & TRANSLATE_WRITE != 0,
        exec: value & TRANSLATE_EXEC != 0,
    })
}

/// Node, CPU and ISA this runs on.
///
/// # Errors
///
/// None that a correct kernel returns.
pub fn where_am_i() -> Result<Where> {
    Where::unpack(call(Syscall::Where, [0; 5])?).ok_or(Error::Corrupt)
}

/// The ISA this code runs on, without entering the kernel.
pub fn isa() -> Isa {
    // The stubs know two values; with anything else this is not one of our images.
    Isa::from_index(raw::isa_index()).unwrap_or(Isa::X86_64)
}

/// The first bytes of a function's machine code, as this ISA sees them.
pub fn code_bytes(function: fn()) -> [u8; 4] {
    let start = function as *const u8;
    // SAFETY: 1. The address of a function is mapped readable on the ISA that runs. 2. The last
    // of four bytes is on the same page as the first: instructions of AArch64 are four bytes,
    // aligned, and functions of x86-64 start at multiples of 16. 3. Text is never written while
    // a program runs.
    let code = core::array::from_fn(|i| unsafe { start.add(i).read_volatile() });
    // The host has one code for all; the emulation makes it differ as it must.
    #[cfg(not(target_os = "none"))]
    let code = code.map(|byte| byte ^ isa() as u8);
    code
}

#[cfg(test)]
mod tests;
