//! How a CPU that spins for a thread stops spinning without missing the thread, and how a CPU that hands the
//! thread over decides whether to notify it.
//!
//! ```text
//!                      the thread's owner word names its node: taken by exchange
//!   SPINS for t ─────────────────────────────────────────────────────────────▶ runs t
//!      │ something else has come, or the time is up                              ▲
//!      ▼                                                                         │ it has come just now
//!   ATTENTIVE, one more look ──────────────────────────────────────────────────────┘
//!      └──────────── not there: a CPU that hands it over from now on tells this CPU
//! ```
//!
//! Both store one word and then look at the other's; with a full fence in between on both sides at least
//! one of them sees the other (store buffering, "Dekker"):
//!
//! | the CPU that stops, [`stop`] | who hands the thread over, [`hand_over`], then [`is_awaited`] |
//! |---|---|
//! | store `activity`: attentive | owner word: exchanged (acquire, release) |
//! | full fence | full fence |
//! | read the owner word; the thread is there: take it | read `activity`; not spinning for it: tell it ([`arrivals`](crate::arrivals)) |
//!
//! If both see each other, the CPU is told for nothing: the thread is taken by exchange of
//! its owner word, so by one of them, and what its giver has stored is there for the CPU that takes it. To
//! begin needs no order: a giver that does not see it yet tells the CPU.
//!
//! | step | order | without it |
//! |---|---|---|
//! | the exchange of the giver | release | the taker finds old words |
//! | the exchange of the taker | acquire | the same; and two could take it if it were none |
//! | fence of [`is_awaited`] | full | it sees a CPU spin that has stopped, and does not tell it: lost |
//! | fence of [`stop`], and the look behind it | full | the same |
//!
//! Only for machines with coherent caches: elsewhere no CPU spins.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity;

/// Words by which it is done.
pub trait Words {
    /// A word.
    type Word: Copy;
    /// Loads a word; relaxed.
    fn load(&self, at: Self::Word) -> u64;
    /// Changes it. Relaxed.
    fn store(&self, at: Self::Word, value: u64);
    /// Changes it if it is `old`: acquires and releases.
    fn exchange(&self, at: Self::Word, old: u64, new: u64) -> bool;
    /// A full fence.
    fn fence(&self);
}

impl<M: GlobalMem + ?Sized> Words for M {
    type Word = PhysAddr;

    #[track_caller]
    fn load(&self, at: PhysAddr) -> u64 {
        GlobalMem::load(self, at, Ordering::Relaxed)
    }

    #[track_caller]
    fn store(&self, at: PhysAddr, value: u64) {
        GlobalMem::store(self, at, value, Ordering::Relaxed);
    }

    #[track_caller]
    fn exchange(&self, at: PhysAddr, old: u64, new: u64) -> bool {
        self.cas(at, old, new).is_ok()
    }

    #[track_caller]
    fn fence(&self) {
        GlobalMem::fence(self);
    }
}

/// A CPU says in its `activity` that it spins.
#[inline(always)]
pub fn begin<W: Words + ?Sized>(words: &W, activity: W::Word, doing: u64) {
    words.store(activity, doing);
}

/// The owner word of a thread, if the thread has been handed to this node and not been taken.
#[inline(always)]
pub fn poll<W: Words + ?Sized>(
    words: &W,
    owner: W::Word,
    is_here: impl Fn(u64) -> bool,
) -> Option<u64> {
    Some(words.load(owner)).filter(|&word| is_here(word))
}

/// Takes the thread; `false` if another CPU has taken it.
#[inline(always)]
#[must_use = "who has not taken it must not run it"]
pub fn claim<W: Words + ?Sized>(words: &W, owner: W::Word, word: u64, taken: u64) -> bool {
    words.exchange(owner, word, taken)
}

/// Stops spinning. Returns the owner word if the thread has come at the last moment: the caller must then
/// take it, because this CPU may not have been notified.
#[inline(always)]
#[must_use = "no other CPU may look for the thread"]
pub fn stop<W: Words + ?Sized>(
    words: &W,
    activity: W::Word,
    owner: W::Word,
    is_here: impl Fn(u64) -> bool,
) -> Option<u64> {
    words.store(activity, activity::ATTENTIVE);
    words.fence();
    poll(words, owner, is_here)
}

/// Hands over a thread whose words have been stored: from now on the CPU that takes it owns it. `false` if the
/// thread was not the caller's.
#[inline(always)]
#[must_use = "it may not have been handed over"]
pub fn hand_over<W: Words + ?Sized>(words: &W, owner: W::Word, mine: u64, handed: u64) -> bool {
    words.exchange(owner, mine, handed)
}

/// Whether a CPU spins for a thread that has been handed to its node: it need not be told then.
#[inline(always)]
#[must_use = "who is not awaited is lost unless the CPU is told"]
pub fn is_awaited<W: Words + ?Sized>(words: &W, activity: W::Word, doing: u64) -> bool {
    words.fence();
    words.load(activity) == doing
}
