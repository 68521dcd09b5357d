//! Being asked to go on elsewhere: the word [`request`] of a
//! thread's control block.
//!
//! ```text
//!   0 ──request──▶ node + 1 ──take (a migration point of the thread)──▶ 0, and the thread goes
//!   ▲                │
//!   └────withdraw────┘
//! ```
//!
//! A newer request takes the place of an older one. A thread that never comes to a migration point never
//! takes it.

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::{process, slot};
use dyad_abi::user::request;
use dyad_abi::{Error, NodeId, Result};

use crate::cap::{Cap, Sinv};

const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);
/// Attempts at a word that others change.
const TRIES: u32 = 16;

/// The word of the calling thread; `None` in an invocation, where the thread is another program's.
#[cfg(target_os = "none")]
#[inline]
fn own() -> Option<&'static AtomicU64> {
    let here = 0u8;
    let thread = dyad_abi::user::thread_at(&raw const here as u64)?;
    let word = core::ptr::with_exposed_provenance(request::address(thread) as usize);
    // SAFETY: 1. Each thread that has a stack has a control block, mapped for as long as the thread is
    // there. 2. All who change the word do it in one step.
    Some(unsafe { &*word })
}

/// Whether the calling thread is asked to go elsewhere. One load.
#[inline]
pub fn is_requested() -> bool {
    #[cfg(target_os = "none")]
    let word = own().map_or(request::NONE, |w| w.load(Ordering::Relaxed));
    #[cfg(not(target_os = "none"))]
    let word = dyad_host::request_word();
    word != request::NONE
}

/// Takes the request to move that the calling thread has received, and returns the node. The request is
/// cleared: the caller carries it out, or knows why it does not. In an invocation of a service there is no
/// request.
pub fn take_request() -> Option<NodeId> {
    if !is_requested() {
        return None;
    }
    #[cfg(target_os = "none")]
    let word = own()?.swap(request::NONE, Ordering::Relaxed);
    #[cfg(not(target_os = "none"))]
    let word = dyad_host::swap_request(request::NONE);
    request::node(word)
}

/// Asks a thread of this program to move to a node at its next migration point. Replaces a request that the
/// thread has not carried out yet, and returns it.
///
/// # Errors
///
/// `NotFound` if the program has no such thread; `NoSuchNode`, `NodeDead`; `Again` if others keep asking.
pub fn request_move(thread: u64, to: NodeId) -> Result<Option<NodeId>> {
    change(thread, request::word(to)).map(request::node)
}

/// Takes back what a thread of this program is asked. Gives what that was: `None` if there is nothing,
/// because it was asked nothing, or has begun to do it.
///
/// # Errors
///
/// As [`request_move`].
pub fn withdraw_request(thread: u64) -> Result<Option<NodeId>> {
    change(thread, request::NONE).map(request::node)
}

/// Replaces the current request word, whatever it is.
fn change(thread: u64, new: u64) -> Result<u64> {
    let mut old = request::NONE;
    for _ in 0..TRIES {
        match PROCESS.request([process::REQUEST, thread, old, new])? {
            was if was == old => return Ok(was),
            was => old = was,
        }
    }
    Err(Error::Again)
}
