//! The table of thread ids: which live thread has which id.
//!
//! A thread's id selects its stacks: its own, and those of its invocations in every service. Two live threads
//! with one id would run on one stack in a trusted service. The kernel therefore keeps, for the whole system,
//! one word for each id: a weak reference to the thread that has the id.
//!
//! ```text
//!   FREE ──claim──▶ OWNED(thread) ──release, or the thread's frame is given up──▶ FREE
//! ```
//!
//! An id is free if its word refers to no live thread object. Untyping a thread's frame therefore frees the
//! id in the same step, without a write to this table.
//!
//! | step | order |
//! |---|---|
//! | configure: the thread is taken (CHANGING); claim of the new id; the thread's words; release of the old id; STOPPED | the claim comes before any CPU can run the thread with the new id |
//! | claim: CAS of a free word | of two claims at the same time one is refused |
//!
//! A node that dies while it configures a thread may leave that thread with two ids. Both are free again when
//! the thread's frame is untyped.
//!
//! Authority over ids is a [`ThreadIds`](dyad_abi::cap::CapType::ThreadIds) capability: a component can use
//! up the ids of the ranges it was given, and no others.

use core::sync::atomic::AtomicU64;

use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{Error, Result};
use dyad_retype::Use;
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::{THREAD_IDS_OFFSET, THREAD_IDS_SPACE};
use dyad_shm::{FusedMap, LayoutHash, PoolId, shared_layout, shared_struct};

use crate::find;
use crate::node::Node;
use crate::thread::Thread;

shared_struct! {
    /// The table. It lies at [`THREAD_IDS_OFFSET`] of the CXL pool, in RESERVED frames.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct ThreadTable {
        /// A weak reference to the thread that has the id, by id; 0 if no thread has had it yet.
        pub threads: [AtomicU64; MAX_THREAD_IDS as usize],
    }
}

const _: () = assert!(size_of::<ThreadTable>() as u64 <= THREAD_IDS_SPACE);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h; ThreadTable { threads })
        .word(THREAD_IDS_OFFSET)
        .word(MAX_THREAD_IDS)
}

/// The word of an id.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such id.
#[inline]
fn word_of(node: &Node, id: u64) -> Result<&'static AtomicU64> {
    let index = usize::try_from(id).map_err(|_| Error::BadArgument)?;
    node.ids.threads.get(index).ok_or(Error::BadArgument)
}

impl ThreadTable {
    /// The table in the CXL pool; `None` if the pool is too small for it.
    pub fn of(map: &'static FusedMap) -> Option<&'static ThreadTable> {
        map.get(PoolId::Cxl.base().add(THREAD_IDS_OFFSET))
    }
}

/// The live thread object that a word of the table refers to, if any.
fn live(node: &Node, word: u64) -> Option<WeakRef> {
    let thread = WeakRef::from_bits(word).filter(|_| word != 0)?;
    let wanted = Use::Kernel(Thread::KIND);
    let found = node.tables.frames.check(thread, wanted);
    found.is_ok().then_some(thread)
}

/// Gives `id` to `thread`, which the caller has taken. A thread that has the id already keeps it.
///
/// # Errors
///
/// [`Error::Exists`] if another live thread has it; [`Error::Again`] if another CPU has just changed the word;
/// [`Error::BadArgument`] if there is no such id.
pub fn claim(node: &Node, id: u64, thread: WeakRef) -> Result<()> {
    let word = word_of(node, id)?;
    let was = node.words.read(word);
    match live(node, was) {
        Some(owner) if owner == thread => Ok(()),
        Some(_) if !dyad_coherence::lacks!("ids::claim::unique") => Err(Error::Exists),
        _ if node.words.exchange(word, was, thread.bits()) => Ok(()),
        _ => Err(Error::Again),
    }
}

/// Frees `id` if `thread` has it.
pub fn release(node: &Node, id: u64, thread: WeakRef) {
    if let Ok(word) = word_of(node, id) {
        node.words.exchange(word, thread.bits(), 0);
    }
}

/// The thread that has `id`, for callers that read its owner word next: where caches are not coherent, a
/// thread that another node has just untyped may still be found.
#[inline]
pub fn find_thread(node: &Node, id: u64) -> Option<&'static Thread> {
    let word = node.words.read(word_of(node, id).ok()?);
    let thread = WeakRef::from_bits(word).filter(|_| word != 0)?;
    find(node, thread, Thread::KIND).ok()
}

/// The live thread that has `id`.
pub fn thread_with(node: &Node, id: u64) -> Option<WeakRef> {
    let word = word_of(node, id).ok()?;
    live(node, node.words.read(word))
}
