//! Rings to and from the other peers, and the words by which their actors sleep.

#![allow(unsafe_code)]

use core::cell::RefCell;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::service::peer::{RING_PAGES, ring, slot};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{NodeId, Result};
use dyad_msg::bulk::{Receiver, Sender};
use dyad_msg::ring::{RingSpan, ring_words};
use dyad_msg::wake::{self, WakeLine};
use dyad_msg::words::{LINE_WORDS, Words};
use dyad_sys::cap::{Cap, Send};

/// Words of the pages of a ring.
const WORDS: u64 = RING_PAGES * PAGE_SIZE / 8;
/// Lines of a ring: with the lines for its indices they lie in its pages.
const LINES: u64 = RING_PAGES * PAGE_SIZE / 64 / 2;
const SPAN: RingSpan = RingSpan::new(0, LINES);
/// The words of an actor, in the pages that would be those of the ring from its node to itself.
const SLEEP: WakeLine = WakeLine {
    pending: 0,
    activity: LINE_WORDS,
};

const _: () = assert!(ring_words(LINES) <= WORDS);

/// Memory that init has mapped, from its start to its end.
#[derive(Clone, Copy)]
pub struct Mapped {
    base: u64,
}

impl Mapped {
    fn word(&self, at: u64) -> &'static AtomicU64 {
        assert!(at < WORDS, "beyond the pages of a ring");
        // SAFETY: 1. Init maps the pages of a ring, readable and writable, for as long as the peer lives, and the word is
        // in them. 2. All who access them use whole words.
        unsafe { &*with_exposed_provenance::<AtomicU64>((self.base + 8 * at) as usize) }
    }
}

impl Words for Mapped {
    fn count(&self) -> u64 {
        WORDS
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.word(at).store(value, order);
    }

    fn or(&self, at: u64, bits: u64) -> u64 {
        self.word(at).fetch_or(bits, Ordering::AcqRel)
    }

    fn and(&self, at: u64, bits: u64) -> u64 {
        self.word(at).fetch_and(bits, Ordering::AcqRel)
    }

    fn swap(&self, at: u64, value: u64) -> u64 {
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The two rings between this peer and another one.
pub struct Link {
    /// The node of that peer.
    pub node: NodeId,
    /// The ring to it.
    pub out: Mapped,
    /// The sending end of that.
    pub sender: RefCell<Sender>,
    /// The ring from it.
    pub back: Mapped,
    /// The receiving end of that.
    pub receiver: Receiver,
    sleep: Mapped,
    /// Whether something has been sent that its actor has not been told of.
    pub untold: bool,
}

impl Link {
    /// The link between this node and another one.
    pub fn new(here: NodeId, node: NodeId) -> Link {
        let at = |from, to| Mapped {
            base: ring(from, to),
        };
        let (out, back) = (at(here, node), at(node, here));
        Link {
            node,
            out,
            sender: RefCell::new(Sender::attach(&out, SPAN)),
            back,
            receiver: Receiver::resume(&back, SPAN),
            sleep: at(node, node),
            untold: false,
        }
    }

    /// Tells the actor there of what has been sent. Whether its doorbell was rung.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn tell(&mut self, here: NodeId) -> Result<bool> {
        if !core::mem::take(&mut self.untold) {
            return Ok(false);
        }
        let asleep = wake::notify(&self.sleep, &SLEEP, here.index());
        if asleep {
            Cap::<Send>::at(slot::doorbell(self.node)).send()?;
        }
        Ok(asleep)
    }
}

/// How this actor sleeps.
pub struct Sleep(Mapped);

impl Sleep {
    /// On this node.
    pub const fn new(here: NodeId) -> Sleep {
        Sleep(Mapped {
            base: ring(here, here),
        })
    }

    /// Peers that have sent something since the last call, by bit.
    pub fn pending(&self) -> u64 {
        wake::take_pending(&self.0, &SLEEP)
    }

    /// Whether there is something that [`pending`](Sleep::pending) would tell.
    pub fn has_pending(&self) -> bool {
        self.0.load(SLEEP.pending, Ordering::Relaxed) != 0
    }

    /// The actor is about to sleep. `false`: something has come.
    pub fn prepare(&self) -> bool {
        wake::prepare(&self.0, &SLEEP)
    }

    /// The actor looks again.
    pub fn over(&self) {
        wake::attentive(&self.0, &SLEEP);
    }
}
