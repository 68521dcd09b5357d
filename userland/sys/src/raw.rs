//! System calls: the only code through which a program enters the kernel.
//!
//! The trap instruction differs per ISA, and user programs are compiled once for both, so the
//! build pipeline supplies the few assembly routines declared here, per ISA. On the host the same
//! calls go to the emulation in the crate `dyad-host`.
//!
//! | routine | for | kernels keep | instructions on x86-64 / AArch64 |
//! |---|---|---|---|
//! | `dyad_syscall` | every operation but `Invoke` | callee-saved registers; others are zeros | 3 / 2 |
//! | `dyad_invoke1` | `Invoke`, one word of reply | the stack pointer | 5 / 4 |
//! | `dyad_request` | `Invoke` of a service that replies with status and value | the stack pointer | 7 / 6 |
//! | `dyad_invoke` | `Invoke`, four words of reply | the stack pointer | 11 / 8 |
//! | `_dyad_invoked` | entering a service | | 3 / 4 |
//! | `dyad_try_call` | calling what may run on the other ISA only, and hearing of its loss | callee-saved registers | 26 / 21 |
//! | `dyad_return` | leaving it, word 0 of the call included in its arguments | | 2 / 1 |
//!
//! The three that invoke do not follow the C convention, in spite of their declarations here: the
//! pipeline gives them one in which no register but the stack and frame pointers survives a call,
//! floating-point and vector registers included, so callers save what they need and nothing else.
//! A service may use all registers, can change nothing of its caller by that, and must not rely on
//! what it finds in those that carry no argument.

/// The result of a call: two registers on both ISAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SyscallReturn {
    /// 0 for success, else the code of an [`Error`](crate::Error).
    pub status: u64,
    /// The value; 0 unless the status is 0.
    pub value: u64,
}

#[cfg(target_os = "none")]
mod stub {
    use super::SyscallReturn;

    unsafe extern "C" {
        pub fn dyad_syscall(
            word: u64,
            a0: u64,
            a1: u64,
            a2: u64,
            a3: u64,
            a4: u64,
        ) -> SyscallReturn;
        pub fn dyad_invoke1(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> SyscallReturn;
        pub fn dyad_request(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> SyscallReturn;
        pub fn dyad_invoke(
            word: u64,
            a0: u64,
            a1: u64,
            a2: u64,
            a3: u64,
            results: *mut [u64; 4],
        ) -> u64;
        // Does not return, but says so to nobody: compilers take what leads to such a function for
        // an error path, and here it is every path of a service.
        pub fn dyad_return(word: u64, r0: u64, r1: u64, r2: u64, r3: u64);
        /// Present only in programs with functions that run on one ISA only.
        pub fn dyad_try_call(function: *const (), args: *const [u64; 6], out: *mut [u64; 2]);
        /// Index of the ISA whose text this is.
        pub safe fn dyad_isa() -> u64;
        /// The hint of this ISA for spinning.
        pub safe fn dyad_relax();
        /// Writes the line at an address back.
        pub safe fn dyad_write_back(address: u64);
        /// Writes the line at an address back, and drops it.
        pub safe fn dyad_flush(address: u64);
        /// Completes write-backs and drops, loads and stores.
        pub safe fn dyad_barrier();
        /// The frame pointer of the calling function.
        pub safe fn dyad_frame() -> u64;
    }
}

/// Makes a call that is not an invocation and returns the result registers unchanged.
///
/// # Safety
///
/// Arguments that the operation takes as addresses must be valid for the operation, and memory that it
/// removes must not be in use.
#[inline]
pub unsafe fn call_raw(word: u64, args: [u64; 5]) -> SyscallReturn {
    let [a0, a1, a2, a3, a4] = args;
    #[cfg(target_os = "none")]
    // SAFETY: 1. The stub follows the C convention and changes nothing but its result registers.
    // 2. What the kernel does to memory is covered by this function's own contract.
    let ret = unsafe { stub::dyad_syscall(word, a0, a1, a2, a3, a4) };
    #[cfg(not(target_os = "none"))]
    // SAFETY: 1. The emulation has the same contract as this function.
    let [status, value] = unsafe { dyad_host::syscall(word, [a0, a1, a2, a3, a4]) };
    #[cfg(not(target_os = "none"))]
    let ret = SyscallReturn { status, value };
    ret
}

/// Invokes a service: returns the status and the first word of its reply.
///
/// This is safe because a service is another protection domain, which can change only memory that it shares
/// with the caller; see [`cap`](mod@crate::cap#safety).
#[inline]
pub fn invoke1(word: u64, [a0, a1, a2, a3]: [u64; 4]) -> SyscallReturn {
    #[cfg(target_os = "none")]
    // SAFETY: 1. The stub keeps what the C convention wants kept. 2. If the word is not an
    // invocation, the kernel does to memory what the operation says; those that are unsafe are made
    // through `call_raw` only.
    let ret = unsafe { stub::dyad_invoke1(word, a0, a1, a2, a3) };
    #[cfg(not(target_os = "none"))]
    let ret = {
        let (status, [value, ..]) = dyad_host::invoke(word, [a0, a1, a2, a3]);
        SyscallReturn { status, value }
    };
    ret
}

/// Invokes a service that replies with a status and a value
/// ([`service::reply`](dyad_abi::service::reply)): these, or the status of an invocation that the
/// kernel has refused.
#[inline]
pub fn request(word: u64, [a0, a1, a2, a3]: [u64; 4]) -> SyscallReturn {
    #[cfg(target_os = "none")]
    // SAFETY: 1. The stub keeps what the C convention wants kept, and an invocation changes no memory of the caller.
    let ret = unsafe { stub::dyad_request(word, a0, a1, a2, a3) };
    #[cfg(not(target_os = "none"))]
    let ret = match dyad_host::invoke(word, [a0, a1, a2, a3]) {
        (0, [status, value, ..]) => SyscallReturn { status, value },
        (status, _) => SyscallReturn { status, value: 0 },
    };
    ret
}

/// Invokes a service: the status; its reply is in `reply`.
#[inline]
pub fn invoke(word: u64, [a0, a1, a2, a3]: [u64; 4], reply: &mut [u64; 4]) -> u64 {
    #[cfg(target_os = "none")]
    // SAFETY: 1. The stub keeps what the C convention wants kept. 2. The stub writes the four words at `reply`, which is borrowed for that.
    let status = unsafe { stub::dyad_invoke(word, a0, a1, a2, a3, reply) };
    #[cfg(not(target_os = "none"))]
    let status = {
        let (status, words) = dyad_host::invoke(word, [a0, a1, a2, a3]);
        *reply = words;
        status
    };
    status
}

/// Ends the invocation that this code runs in; does not return. Nothing that is on its stack is
/// dropped.
///
/// # Safety
///
/// Must be called in an invocation, and nothing may refer to its stack any more.
#[inline]
pub unsafe fn end_invocation([r0, r1, r2, r3]: [u64; 4]) {
    #[cfg(target_os = "none")]
    // SAFETY: 1. The caller promises that the stack is not needed any more.
    unsafe {
        stub::dyad_return(dyad_abi::cap::RETURN, r0, r1, r2, r3)
    }
    #[cfg(not(target_os = "none"))]
    panic!("the host has no invocations to end with {r0} {r1} {r2} {r3}")
}

/// Calls a function that runs on one ISA only. Returns the function's result and the code of the error by
/// which the crossing call was lost, 0 for none.
///
/// # Safety
///
/// The function must be of the C convention, take no more than these integers or pointers, be safe to call
/// with them, and return one, or nothing. Nothing that it was in the middle of when it was lost may be
/// relied on.
pub unsafe fn try_call(function: *const (), args: &[u64; 6]) -> (u64, u64) {
    #[cfg(target_os = "none")]
    let (value, error) = {
        let mut out = [0; 2];
        // SAFETY: 1. As this function's own contract says. 2. The stub writes the two words.
        unsafe { stub::dyad_try_call(function, args, &mut out) };
        (out[0], out[1])
    };
    #[cfg(not(target_os = "none"))]
    let (value, error) = {
        // SAFETY: 1. By this function's own contract; arguments beyond those that it takes change nothing on any host.
        let f = unsafe {
            core::mem::transmute::<*const (), extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64>(
                function,
            )
        };
        let [a, b, c, d, e, g] = *args;
        (f(a, b, c, d, e, g), 0)
    };
    (value, error)
}

/// Ends the program when a crossing call that was not made by [`try_call`] is lost: there is nothing to
/// return to.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn dyad_crossing_lost(error: u64) -> ! {
    match crate::Error::from_code(error) {
        Some(e) => panic!("a crossing call is lost: {e}"),
        None => panic!("a crossing call is lost"),
    }
}

/// Index of the ISA this code runs on.
pub(crate) fn isa_index() -> u64 {
    #[cfg(target_os = "none")]
    let index = stub::dyad_isa();
    #[cfg(not(target_os = "none"))]
    let index = dyad_host::isa_index();
    index
}

/// Tells the processor that this is a spin loop.
pub fn relax() {
    #[cfg(target_os = "none")]
    stub::dyad_relax();
    #[cfg(not(target_os = "none"))]
    core::hint::spin_loop();
}

/// Writes the line at an address back to memory; it may stay in the caches.
pub(crate) fn write_back(at: u64) {
    #[cfg(target_os = "none")]
    stub::dyad_write_back(at);
    #[cfg(not(target_os = "none"))]
    let _ = at;
}

/// Writes the line at an address back to memory, and drops it.
pub(crate) fn flush(at: u64) {
    #[cfg(target_os = "none")]
    stub::dyad_flush(at);
    #[cfg(not(target_os = "none"))]
    let _ = at;
}

/// Completes write-backs and drops, loads and stores.
pub(crate) fn barrier() {
    #[cfg(target_os = "none")]
    stub::dyad_barrier();
    #[cfg(not(target_os = "none"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Address of the info page.
pub(crate) fn info_page() -> u64 {
    #[cfg(target_os = "none")]
    let address = dyad_abi::service::INFO_BASE;
    #[cfg(not(target_os = "none"))]
    let address = dyad_host::info_page();
    address
}

/// Address of the text buffer that the program shares with the console service.
pub fn text_buffer() -> u64 {
    #[cfg(target_os = "none")]
    let address = dyad_abi::service::CONSOLE_BUFFER;
    #[cfg(not(target_os = "none"))]
    let address = dyad_host::text_buffer();
    address
}

/// The return addresses of the calls that the calling thread is in, the innermost first: as many as fit, or are found.
/// Returns their number. There are none in an invocation, and on the host.
///
/// They are found by the frame records `{previous, return address}` on the native stack, which both ISAs have in the
/// same form.
#[inline(never)]
pub fn return_addresses(into: &mut [u64]) -> usize {
    #[cfg(not(target_os = "none"))]
    {
        let _ = into;
        0
    }
    #[cfg(target_os = "none")]
    {
        let (id, isa) = (crate::tcb::block().thread, crate::isa());
        let (mut lowest, top) = dyad_abi::user::stack_slot(isa, id as u32);
        let mut at = stub::dyad_frame();
        for (n, pc) in into.iter_mut().enumerate() {
            // Each record is above the one before, inside of the thread's own stack.
            if at < lowest || at > top - 16 || !at.is_multiple_of(8) {
                return n;
            }
            let record = core::ptr::with_exposed_provenance::<[u64; 2]>(at as usize);
            // SAFETY: 1. The record is in the stack of this thread, between the frame of this function and the top, by
            // the comparisons. That is mapped, and nobody else writes it. 2. It is aligned, and any bits are words.
            let [previous, back] = unsafe { record.read() };
            if back == 0 {
                return n;
            }
            *pc = back;
            (lowest, at) = (at + 16, previous);
        }
        into.len()
    }
}
