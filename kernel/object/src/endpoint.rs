//! Asynchronous endpoints: bits that senders set and a receiver takes.
//!
//! A frame holds [`LINES`] endpoints, one in each line. One thread at a time waits at an endpoint. The
//! endpoints of a scheduler also hold lists of threads that have become ready: line `node * 8 + cpu` is that
//! of a CPU. A thread is on one list at a time. If it has moved before its scheduler has taken it off, it is
//! forwarded to the scheduler of its present CPU.
//!
//! | step | order |
//! |---|---|
//! | send: or bits; fence; read waiter; CAS waiter -> 0; wake it | either the receiver sees the bits or the sender sees the receiver: [`dyad_ring::sleep`] |
//! | wait: CAS waiter 0 -> me; fence; read bits; if there are some, CAS waiter me -> 0; else owner word BLOCKED; fence; read waiter: if it is not me, owner word RUNNING again | as for send; a CPU that takes the waiter off fences and reads the owner word: either it sees BLOCKED there, or the waiter sees that it is off |
//! | take event: taken := busy (CAS); head := events or what was taken; thread.event := 0; taken := rest | one taker at a time, so that no rest is lost; a list that is not being taken from has all threads whose event says so |
//! | untype: events 0 -> closed (CAS), all lines; fence; read taken | a taker is busy before it takes: the busy word is seen, or the rest that it puts back |
//! | push event: thread.event := why (was 0); CAS head; fence; read waiter | as send |
//!
//! # Threads in the hand of a dead node
//!
//! Between these steps one CPU holds a thread, or a whole list, off all lists. The thread's event says that
//! it is on a list, so no other CPU puts it on one. If that CPU's node dies, recovery finds such threads by
//! *doubt*, a bit in the event word:
//!
//! ```text
//!  doubt all threads whose event is not 0
//!    ──▶ a round: what live CPUs had in hand is on a list, or has been taken
//!    ──▶ vouch: no more doubt about those on lists, line by line, as a taker who takes nothing
//!    ──▶ what is still in doubt is lost: its event is 0 again, and its scheduler is told anew
//! ```
//!
//! A CPU that takes a thread sets its event to 0, which ends the doubt. A CPU that finds the event set, so
//! that the thread counts as listed, leaves the doubt as it is. No thread that passes from list to list
//! therefore stays in doubt.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::Woken;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_coherence::GlobalMem;
use dyad_retype::KernelKind;
use dyad_ring::handoff;
use dyad_ring::sleep::{self, Begun};
use dyad_shm::{FrameRef, LayoutHash, shared_layout, shared_struct};

use crate::memory::{Words, load_coherent};
use crate::node::Node;
use crate::thread::{DOUBTED, NO_MORE_EVENTS, Owner, Thread};
use crate::{frame_of, link_to, linked};

/// Endpoints in a frame.
pub const LINES: usize = 64;
/// Most attempts to change the head of an event list; each failed attempt is another CPU's success.
const TRIES: usize = 4096;
/// List words from this value on are no links.
const SPECIAL: u64 = u64::MAX - 63;

/// A value of `taken`: a CPU of this node is just taking a thread off.
const fn busy(node: NodeId) -> u64 {
    SPECIAL + node.index() as u64
}

/// A value of `events`: this node is untyping the endpoints, and no thread can be put on the list.
const fn closed(node: NodeId) -> u64 {
    SPECIAL + 32 + node.index() as u64
}

shared_struct! {
    /// One endpoint.
    #[derive(Debug)]
    #[repr(align(64))]
    pub struct Line {
        /// Bits that have been sent and not taken.
        pub bits: AtomicU64,
        /// The waiting thread, and the number of its wait: see [`Waiter`].
        pub waiter: AtomicU64,
        /// Threads that have become ready, newest first: link word.
        pub events: AtomicU64,
        /// The threads that the receiver has moved off that list and not taken yet: link word.
        pub taken: AtomicU64,
        /// `node | cpu << 8 | priority << 16 | 1 << 63` once bound.
        pub bound: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 3],
    }
}

shared_struct! {
    /// A frame of endpoints.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Endpoints {
        /// The endpoints.
        pub lines: [Line; LINES],
    }
}

const _: () = assert!(size_of::<Endpoints>() == 4096);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h;
        Line { bits, waiter, events, taken, bound, reserved },
        Endpoints { lines },
    )
}

impl Endpoints {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::ENDPOINTS;

    /// The endpoint with a number.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there is no such endpoint.
    pub fn line(&self, index: u64) -> Result<&Line> {
        usize::try_from(index)
            .ok()
            .and_then(|i| self.lines.get(i))
            .ok_or(Error::BadArgument)
    }

    /// Closes all lists before the frame is untyped: threads on them could not be untyped any more.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] if a list is not empty; nothing has changed.
    pub fn close(&self, node: &Node) -> Result<()> {
        let words = node.words;
        let empty = |l: &Line| words.read(&l.events) == 0 && words.read(&l.taken) == 0;
        let me = node.id();
        // Looked at first: what comes to a closed list is lost.
        let closed = self.lines.iter().all(empty)
            && self
                .lines
                .iter()
                .all(|l| words.exchange(&l.events, 0, closed(me)));
        words.fence();
        // A CPU that was taking a thread off when its list was closed is busy still, or has put the rest
        // back.
        if closed && self.lines.iter().all(|l| words.read(&l.taken) == 0) {
            return Ok(());
        }
        self.reopen(node, me);
        Err(Error::NotReady)
    }

    /// Opens the lists that a node has closed.
    pub fn reopen(&self, node: &Node, closer: NodeId) {
        for line in &self.lines {
            line.reopen(node, closer);
        }
    }
}

/// The progress of [`Line::vouch`]: no other CPU takes threads off the line's lists until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouching {
    /// The value of `taken`, which is restored at the end.
    list: u64,
    /// The next thread. At the end of the first list it is the first one of the list of events.
    at: u64,
    /// Whether `at` is on the list of events.
    in_events: bool,
    /// How many more threads are read before the lists count as endless.
    left: usize,
}

/// The outcome of [`Line::vouch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouched {
    /// More threads are left: the caller must call it again with this state.
    Working(Vouching),
    /// No thread on the lists is in doubt.
    All,
    /// Another CPU is taking a thread off.
    Busy,
    /// The lists have no end.
    Endless,
}

/// Changes the event word of a thread whose word says that the thread is on a list. Returns the old word, or 0
/// if the thread is on no list.
fn change_event(node: &Node, t: &Thread, change: impl Fn(u64) -> u64) -> u64 {
    for _ in 0..TRIES {
        let now = node.words.read(&t.event);
        if matches!(now, 0 | NO_MORE_EVENTS) {
            return 0;
        }
        if change(now) == now || node.words.exchange(&t.event, now, change(now)) {
            return now;
        }
    }
    0
}

/// Puts a thread into doubt if its event says that it is on a list.
pub fn doubt(node: &Node, t: &Thread) {
    change_event(node, t, |why| why | DOUBTED);
}

/// Ends the doubt about a thread, whose event stays.
pub fn trust(node: &Node, t: &Thread) {
    change_event(node, t, |why| why & !DOUBTED);
}

/// Clears the event of a thread that is still in doubt, and so on no list. Returns the reason that its
/// scheduler was to be told.
pub fn lost(node: &Node, t: &Thread) -> Option<Woken> {
    let lost = |why: u64| why & DOUBTED != 0;
    let was = change_event(node, t, |why| if lost(why) { 0 } else { why });
    Some(was)
        .filter(|&w| lost(w))
        .and_then(|w| Woken::from_number(w & !DOUBTED))
}

impl Line {
    /// Whether there is anything to take.
    #[inline]
    pub fn has_pending(&self, node: &Node) -> bool {
        // The first read has refreshed the line, which holds all three words.
        node.words.read(&self.bits) != 0
            || load_coherent(&self.events) != 0
            || load_coherent(&self.taken) != 0
    }

    /// The CPU that receives here, if it has been bound.
    pub fn home(&self) -> Option<(NodeId, CpuId)> {
        let w = self.bound.load(Ordering::Acquire);
        if w >> 63 == 0 {
            return None;
        }
        Some((NodeId::new(w & 0xff)?, CpuId::new(w >> 8 & 0xff)?))
    }

    /// Takes all bits that have been sent; 0 if there are none.
    #[inline]
    pub fn take_bits(&self, node: &Node) -> u64 {
        if node.words.read(&self.bits) == 0 {
            return 0;
        }
        node.words.replace(&self.bits, 0)
    }

    /// Takes what is pending, wherever its threads are now: for tests of endpoints alone.
    #[cfg(feature = "ktest")]
    pub fn take(&self, node: &Node) -> u64 {
        match self.take_thread(node) {
            Some((t, why)) => t.tag.load(Ordering::Relaxed) | why << 32,
            None => self.take_bits(node),
        }
    }

    /// Whether there may be threads on the lists.
    #[inline]
    pub fn has_threads(&self, node: &Node) -> bool {
        node.words.read(&self.events) != 0 || node.words.read(&self.taken) != 0
    }

    /// Takes the first thread off the lists, with the reason why it was there: a [`Woken`] unless the word is
    /// damaged.
    pub fn take_thread(&self, node: &Node) -> Option<(&'static Thread, u64)> {
        let words = node.words;
        let mut list = words.read(&self.taken);
        if list == 0 && linked(words.read(&self.events)).is_none() {
            return None;
        }
        // One at a time: two would put different rests back. A CPU that finds another one at it gets
        // nothing; what is left is there the next time.
        if list >= SPECIAL || !words.exchange(&self.taken, list, busy(node.id())) {
            return None;
        }
        if list == 0 {
            list = self.take_events(node);
        }
        // The frame on a list was a thread when it was put there, and is not given up before it is taken
        // off.
        let thread = linked(list).and_then(|f| node.map.get::<Thread>(f.address()));
        let (rest, why) = thread.map_or((0, 0), |t| {
            let rest = words.replace(&t.event_link, 0);
            (rest, words.replace(&t.event, 0))
        });
        words.replace(&self.taken, rest);
        Some((thread?, why & !DOUBTED))
    }

    /// Opens the list that a node has closed.
    fn reopen(&self, node: &Node, closer: NodeId) {
        if node.words.read(&self.events) == closed(closer) {
            node.words.exchange(&self.events, closed(closer), 0);
        }
    }

    /// Undoes the list changes that a dead node had under way. The threads that it was taking off are on no
    /// list; see [`doubt`].
    pub fn repair(&self, node: &Node, dead: NodeId) {
        self.reopen(node, dead);
        if node.words.read(&self.taken) == busy(dead) {
            node.words.exchange(&self.taken, busy(dead), 0);
        }
    }

    /// Ends the doubt about threads on the lists, at most `threads` of them. `begun` is the state of the
    /// previous call, if that has not reached the end. Also returns how many threads it has read.
    ///
    /// Between two such calls this CPU counts as taking threads off: no other CPU does, and the endpoints are
    /// not untyped. If its node dies, the threads stay in doubt, and recovery of the node tells their
    /// schedulers anew.
    pub fn vouch(&self, node: &Node, begun: Option<Vouching>, threads: usize) -> (Vouched, usize) {
        let mut v = match begun {
            Some(begun) => begun,
            None => match self.begin_to_vouch(node) {
                Ok(begun) => begun,
                Err(why) => return (why, 0),
            },
        };
        let mut looked = 0;
        let ended = loop {
            let Some(t) = linked(v.at).and_then(|f| node.map.get::<Thread>(f.address())) else {
                if v.in_events {
                    break Vouched::All;
                }
                // Those that are put on from here on come before these, and are not in doubt.
                (v.at, v.in_events) = (node.words.read(&self.events), true);
                continue;
            };
            if v.left == 0 {
                break Vouched::Endless;
            }
            if looked == threads {
                return (Vouched::Working(v), looked);
            }
            v.left -= 1;
            looked += 1;
            trust(node, t);
            v.at = node.words.read(&t.event_link);
        };
        node.words.replace(&self.taken, v.list);
        (ended, looked)
    }

    /// Keeps other CPUs from taking threads off.
    ///
    /// # Errors
    ///
    /// [`Vouched::All`] if there is nothing to vouch for, [`Vouched::Busy`] if another CPU takes threads off.
    fn begin_to_vouch(&self, node: &Node) -> core::result::Result<Vouching, Vouched> {
        let words = node.words;
        let list = words.read(&self.taken);
        if list == 0 && linked(words.read(&self.events)).is_none() {
            return Err(Vouched::All);
        }
        if list >= SPECIAL {
            // What one that is dead has in hand stays in doubt.
            let taker = NodeId::new(list - SPECIAL);
            let lives = taker.is_some_and(|n| node.is_live(n));
            return Err(if lives { Vouched::Busy } else { Vouched::All });
        }
        if !words.exchange(&self.taken, list, busy(node.id())) {
            return Err(Vouched::Busy);
        }
        Ok(Vouching {
            list,
            at: list,
            in_events: false,
            left: TRIES,
        })
    }

    /// Takes all threads that are on the list of events.
    fn take_events(&self, node: &Node) -> u64 {
        for _ in 0..TRIES {
            let head = node.words.read(&self.events);
            if linked(head).is_none() {
                break;
            }
            if node.words.exchange(&self.events, head, 0) {
                return head;
            }
        }
        0
    }

    /// Reports a thread to the scheduler that this endpoint belongs to. The caller must then check for a
    /// waiter.
    ///
    /// # Errors
    ///
    /// [`Error::Again`] if other CPUs were faster at each attempt; [`Error::Revoked`] if the endpoints are
    /// just being untyped.
    pub fn push_event(&self, node: &Node, thread: &'static Thread, why: Woken) -> Result<()> {
        self.enqueue(node, thread, why)?;
        sleep::post(&SleepWords(node.words));
        Ok(())
    }

    /// Puts a thread on the list, or stores a newer reason in a thread that is on a list.
    fn enqueue(&self, node: &Node, thread: &'static Thread, why: Woken) -> Result<()> {
        let words = node.words;
        let mut tries = TRIES;
        while !words.exchange(&thread.event, 0, why as u64) {
            let now = words.read(&thread.event);
            let on_a_list = match now {
                0 => false,
                // Its frame is being given up.
                NO_MORE_EVENTS => true,
                // On a list already: the scheduler will find the newer reason.
                _ => words.exchange(&thread.event, now, why as u64 | now & DOUBTED),
            };
            if on_a_list {
                return Ok(());
            }
            tries -= 1;
            if tries == 0 {
                return Err(Error::Again);
            }
        }
        let me = link_to(frame_of(node, thread).ok_or(Error::Corrupt)?);
        let mut why = Error::Again;
        for _ in 0..TRIES {
            let head = words.read(&self.events);
            if head >= SPECIAL {
                why = Error::Revoked;
                break;
            }
            words.replace(&thread.event_link, head);
            if words.exchange(&self.events, head, me) {
                return Ok(());
            }
        }
        words.replace(&thread.event, 0);
        Err(why)
    }

    /// Sets bits; returns the waiting thread, which the caller must wake.
    pub fn post(&self, node: &Node, bits: u64) -> Option<Waiter> {
        self.set(node, bits);
        self.take_waiter(node)
    }

    /// Sets bits, before all later accesses. The caller must then check for a waiter.
    pub fn set(&self, node: &Node, bits: u64) {
        node.words.set_bits(&self.bits, bits);
        sleep::post(&SleepWords(node.words));
    }

    /// Takes the waiting thread off; the caller must wake it.
    pub fn take_waiter(&self, node: &Node) -> Option<Waiter> {
        let is_thread = |word| waiting(word).is_some();
        let word = sleep::take_off(
            &SleepWords(node.words),
            Word::Waiter(&self.waiter),
            is_thread,
        )?;
        let thread = node.map.get(waiting(word)?.address())?;
        Some(Waiter {
            thread,
            number: (word >> NUMBER) as u32,
        })
    }

    /// Makes a running thread the waiter of this endpoint, for the wait with this number. The caller must
    /// then make it BLOCKED.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if another thread waits here.
    #[inline]
    pub fn wait(&self, node: &Node, thread: &'static Thread, number: u32) -> Result<Waits> {
        let link = link_to(frame_of(node, thread).ok_or(Error::Corrupt)?);
        let me = link | (number as u64) << NUMBER;
        let waiter = Word::Waiter(&self.waiter);
        match sleep::begin(&SleepWords(node.words), waiter, me, || {
            self.has_pending(node)
        }) {
            Begun::Busy => Err(Error::Exists),
            Begun::Waits => Ok(Waits::Yes { word: me }),
            Begun::Pending => Ok(Waits::No),
            Begun::TakenOff => Ok(Waits::TakenOff),
        }
    }

    /// Whether a thread is the waiter of this endpoint.
    pub fn is_waiter(&self, node: &Node, thread: &'static Thread) -> bool {
        let waiter = waiting(node.words.read(&self.waiter));
        waiter.is_some() && waiter == frame_of(node, thread)
    }

    /// Takes a thread off that must no longer wait here; `None` if it is not the waiter.
    pub fn take_off(&self, node: &Node, thread: &'static Thread) -> Option<Waiter> {
        let is_it = |word| waiting(word).is_some_and(|f| frame_of(node, thread) == Some(f));
        let word = sleep::take_off(&SleepWords(node.words), Word::Waiter(&self.waiter), is_it)?;
        Some(Waiter {
            thread,
            number: (word >> NUMBER) as u32,
        })
    }
}

/// A word of the sleep and wake protocol: see [`dyad_ring::sleep`].
#[derive(Clone, Copy, Debug)]
pub enum Word<'w> {
    /// The waiter of an endpoint.
    Waiter(&'w AtomicU64),
    /// The owner word of a thread.
    Owner(&'w Thread),
}

/// Shared words as [`dyad_ring::sleep`] accesses them.
#[derive(Clone, Copy, Debug)]
pub struct SleepWords<'w>(pub &'w Words);

impl<'w> handoff::Words for SleepWords<'w> {
    type Word = Word<'w>;

    #[inline(always)]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn load(&self, at: Word<'w>) -> u64 {
        match at {
            Word::Waiter(word) => self.0.read(word),
            Word::Owner(thread) => thread.owner_word(self.0),
        }
    }

    #[inline(always)]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn store(&self, at: Word<'w>, value: u64) {
        match at {
            Word::Waiter(word) => self.0.write(word, value),
            Word::Owner(thread) => self.0.write(&thread.owner, value),
        }
    }

    #[inline(always)]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn exchange(&self, at: Word<'w>, old: u64, new: u64) -> bool {
        match at {
            Word::Waiter(word) => self.0.exchange(word, old, new),
            Word::Owner(thread) => thread.change_word(self.0, old, new),
        }
    }

    #[inline(always)]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn fence(&self) {
        GlobalMem::fence(self.0);
    }
}

/// Position of the number of the wait in the word `waiter`; the bits below are the link word of the thread.
const NUMBER: u32 = 40;

/// The frame of the waiting thread, from the word `waiter`.
pub fn waiting(word: u64) -> Option<FrameRef> {
    linked(word & ((1 << NUMBER) - 1))
}

/// A thread that has been taken off an endpoint, with the number of that wait: the sequence number of its
/// owner word while it is BLOCKED for it. A later wait of the thread has another number.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The thread.
    pub thread: &'static Thread,
    /// The number of the wait, 24 bits.
    pub number: u32,
}

impl Waiter {
    /// The wait for which a thread is BLOCKED.
    pub fn of(thread: &'static Thread, owner: Owner) -> Waiter {
        let number = owner.seq;
        Waiter { thread, number }
    }

    /// Whether an owner word, if it is BLOCKED, is that of this wait.
    #[inline]
    pub const fn is_in(&self, owner: u64) -> bool {
        owner >> NUMBER == self.number as u64
    }
}

/// The outcome of [`Line::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The thread is the waiter.
    Yes {
        /// The value of the word `waiter`.
        word: u64,
    },
    /// Something has come meanwhile, and the thread does not wait.
    No,
    /// Something has come and the thread does not wait, but another CPU has taken it off and handles this
    /// wait.
    TakenOff,
}
