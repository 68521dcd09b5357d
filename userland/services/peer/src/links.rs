//! Rings to and from the other peers, and the words by which their actors sleep.

#![allow(unsafe_code)]

use core::cell::RefCell;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::service::Info;
use dyad_abi::service::peer::{Delay, POLL_NS, RING_PAGES, Transport, ring, slot};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_msg::bulk::{Head, Receiver, Sender, lines_behind};
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

/// How messages travel.
#[derive(Clone, Copy, Debug)]
pub struct Transit {
    /// By what.
    pub transport: Transport,
    delay: Delay,
}

/// The word of a head that has the time at which its record has come, on the fused clock; 0: at once. All peers of a group
/// travel alike.
pub const COMES_AT: usize = 7;
/// Most bytes behind a head.
const MOST_BYTES: u64 = PAGE_SIZE;
/// By how much the clocks of two nodes may differ, in nanoseconds: more than they ever do.
const CLOCKS: u64 = 1_000_000_000;

impl Transit {
    /// As the run says.
    ///
    /// # Errors
    ///
    /// `BadArgument` if it says what there is not.
    pub fn of(info: &Info) -> Result<Transit> {
        Ok(Transit {
            transport: Transport::from_number(info.transport).ok_or(Error::BadArgument)?,
            delay: Delay::from_bits(info.delay),
        })
    }

    /// How long a message and its answer are in transit, at least.
    pub fn round_trip(&self) -> u64 {
        match self.takes_time() {
            true => 2 * self.delay.of(0),
            false => 0,
        }
    }

    /// Whether time passes between sending and receipt.
    pub fn takes_time(&self) -> bool {
        self.transport == Transport::Tcp
    }

    /// When a record with this head comes, if it is sent now.
    pub const fn comes(&self, head: &Head, now: u64) -> u64 {
        now + self.delay.of(64 * lines_behind(head))
    }

    /// When a record comes; `None`: it has.
    ///
    /// # Errors
    ///
    /// `BadArgument` for a time that no delay explains.
    pub fn comes_at(&self, head: &Head, now: u64) -> Result<Option<u64>> {
        match head[COMES_AT] {
            at if at <= now => Ok(None),
            at if self.takes_time() && at - now <= self.delay.of(MOST_BYTES) + CLOCKS => {
                Ok(Some(at))
            }
            _ => Err(Error::BadArgument),
        }
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
    /// When it is told: if it polls, only should it not have taken what was sent; over a network, when the first record comes.
    pub told_at: Option<u64>,
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
            told_at: None,
        }
    }

    /// Tells the actor there of what has been sent, at once or when it comes. Whether its doorbell was rung.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn tell(
        &mut self,
        here: NodeId,
        way: Transit,
        now: impl Fn() -> Result<u64>,
    ) -> Result<bool> {
        let mut rings = false;
        if core::mem::take(&mut self.untold) {
            match way.transport {
                Transport::Ring => rings = self.notify(here),
                Transport::Poll => {
                    self.notify(here);
                    self.told_at = Some(now()? + POLL_NS);
                }
                // When it comes.
                Transport::Tcp => {}
            }
        }
        if let Some(at) = self.told_at {
            // A thread that polls may have had to give the CPU away.
            let polled = way.transport == Transport::Poll;
            let taken = polled && self.sender.get_mut().is_taken(&self.out);
            if taken || now()? >= at {
                self.told_at = None;
                rings |= match polled {
                    true => !taken,
                    false => self.notify(here),
                };
            }
        }
        if rings {
            match Cap::<Send>::at(slot::doorbell(self.node)).send() {
                // Init tells of that.
                Ok(()) | Err(Error::NodeDead) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(rings)
    }

    /// Notes at the actor there that something has come. Whether it sleeps.
    fn notify(&self, here: NodeId) -> bool {
        wake::notify(&self.sleep, &SLEEP, here.index())
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
