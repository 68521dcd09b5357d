//! Threads of the program.
//!
//! A program has up to [`MAX_PROGRAM_THREADS`] threads, numbered from 0, the one it was started with.
//! Number `n` stands for everything a thread has: its stacks, its control block, its capability
//! ([`slot::thread`]), line `n` of the program's endpoints where it waits, and the sending end that
//! wakes it there ([`slot::wake`]). A thread knows its number by the address of its stack, on every
//! ISA, without a call.
//!
//! ```text
//!            start                  first instruction              end
//!   nobody ───────▶ being started ───────────────────▶ running ───────▶ nobody
//!                                                         └──its node dies──▶ lost
//! ```
//!
//! A caller that starts thread `n` must have made sure that no other thread does. The number of a lost thread
//! is not used again; threads that waited for it learn of the loss by [`lost`]. The process service wakes all
//! threads of the program when one of them has been lost, so a wait for a lost thread ends.

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::service::{process, slot, thread_of_id};
#[cfg(target_os = "none")]
use dyad_abi::service::{program, thread_id};
#[cfg(target_os = "none")]
use dyad_abi::user::losses;
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{CpuId, Error, NodeId, Result};

use crate::cap::{Cap, Receive, Send, Sinv, Thread, Until};

const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);
const ENDPOINT: Cap<Receive> = Cap::at(slot::ENDPOINT);

/// Number of a thread within its program, below [`MAX_PROGRAM_THREADS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u8);

impl Number {
    /// The thread that the program was started with.
    pub const FIRST: Number = Number(0);

    /// The thread with this number.
    pub const fn new(n: u64) -> Option<Number> {
        if n < MAX_PROGRAM_THREADS {
            Some(Number(n as u8))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }

    /// The thread as a bit of a set of threads.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// The thread that begins with this argument of the entry symbol.
    pub const fn of_argument(argument: u64) -> Option<Number> {
        Number::new(argument % PAGE_SIZE)
    }
}

/// Id of the calling thread, unique in the system; `None` in an invocation, where the thread is another
/// program's.
#[inline]
pub fn id() -> Option<u32> {
    #[cfg(target_os = "none")]
    {
        let here = 0u8;
        dyad_abi::user::thread_at(&raw const here as u64)
    }
    #[cfg(not(target_os = "none"))]
    dyad_host::thread_id()
}

/// Number of the calling thread; `None` in an invocation.
#[inline]
pub fn number() -> Option<Number> {
    Number::new(thread_of_id(id()?.into()).1)
}

/// Id of thread `n` of the program that the calling thread is one of, wherever its stack is.
#[cfg(target_os = "none")]
pub fn id_of(n: u64) -> u32 {
    let (program, _) = thread_of_id(crate::tcb::block().thread);
    dyad_abi::service::thread_id(program, n)
}

/// The id of thread `n` on the host, where there is one program.
#[cfg(not(target_os = "none"))]
pub fn id_of(n: u64) -> u32 {
    n as u32
}

/// The calling thread's own capability; in an invocation, of nothing.
pub fn own() -> Cap<Thread> {
    Cap::at(number().map_or(CapIndex::NONE, |n| slot::thread(n.get())))
}

/// Starts thread `n` on a CPU, at the program's entry with `INFO_BASE | n`. Gives its id.
///
/// Everything the caller has written before, the thread sees.
///
/// # Errors
///
/// `Again` if it is running, or its last moments are not over yet; `NoSuchNode`, `BadArgument` (no
/// such CPU), `NodeDead`; `Denied` if the program is ending.
pub fn start(n: Number, node: NodeId, cpu: CpuId) -> Result<u32> {
    let place = node.index() as u64 | (cpu.index() as u64) << 8;
    let id = PROCESS.request([process::START, n.get(), place, 0])?;
    u32::try_from(id).map_err(|_| Error::Corrupt)
}

/// Ends the calling thread. Of the program's first one, which must not end before the program does,
/// and in an invocation, this is a wrong call; it ends the program.
pub fn end() -> ! {
    if number().is_some_and(|n| n != Number::FIRST) {
        #[cfg(target_os = "none")]
        if crate::is_multiple() {
            crate::group::end();
        }
        // Comes back only if it is refused.
        let _ = PROCESS.request([process::END_THREAD, 0, 0, 0]);
    }
    crate::abandon(101)
}

/// The threads of the program that were lost with nodes that died, one bit for each number. One load, without
/// a call.
///
/// Empty in an invocation, where the thread belongs to another program, and in services, whose lost threads
/// are not counted.
#[inline]
#[allow(unsafe_code)]
pub fn lost() -> u64 {
    #[cfg(target_os = "none")]
    {
        let own = id().map_or(0, |id| thread_of_id(id.into()).0);
        if own < program::FIRST {
            return 0;
        }
        let at = losses::address(thread_id(own, 0));
        let word = core::ptr::with_exposed_provenance::<AtomicU64>(at as usize);
        // SAFETY: 1. The page of the control block of a program's first thread is mapped for as long as the program
        // lives. 2. All who change the word do it in one step.
        unsafe { &*word }.load(Ordering::Acquire)
    }
    #[cfg(not(target_os = "none"))]
    dyad_host::lost()
}

/// Whether a thread of the program was lost with its node.
#[inline]
pub fn is_lost(n: Number) -> bool {
    lost() & n.bit() != 0
}

/// Waits until another thread wakes the calling thread, or fused time reaches `deadline_ns`. Returns `true`
/// if the thread was woken, also if that happened before this call and was meant for an earlier wait.
///
/// # Errors
///
/// None that a correct system returns.
pub fn wait(deadline_ns: u64) -> Result<bool> {
    let line = number().unwrap_or(Number::FIRST);
    let bits = ENDPOINT.receive(line.get(), Until::Deadline(deadline_ns))?;
    Ok(bits != 0)
}

/// Wakes a thread that waits, or lets its next wait be none.
///
/// # Errors
///
/// `NodeDead` if it waited on a node that has died.
pub fn wake(n: Number) -> Result<()> {
    if crate::is_multiple() {
        return PROCESS.request([process::WAKE, n.get(), 0, 0]).map(drop);
    }
    Cap::<Send>::at(slot::wake(n.get())).send()
}
