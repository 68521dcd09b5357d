//! A station: sending, receiving, calls, groups.
//!
//! ```text
//!  try_recv ── take pending bits ── replies to calls ── pick the next message ──▶
//!     │ nothing                                                        ▲
//!     └─ recv: poll for a while ── prepare ── sleep ── attentive ──────┘
//!  try_send ── push ── set the receiver's bit ── ring, if it sleeps ──▶
//!     │ full
//!     └─ send: say what is wanted ── push again ── wait like recv ──▶ the receiver says: there is room
//! ```
//!
//! Bits are taken before rings are looked at, and a sender stays *ready* until all its rings have
//! been found empty after that. What waits asks the host at least every [`CHECK_NS`] whether peers
//! are alive.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::group::{Member, MemberError, Writer};
use crate::record::{Header, Kind, MAX_RECORD_BYTES, record_lines};
use crate::ring::{Consumer, Producer, RingError};
use crate::wake;
use crate::words::Words;
use crate::{Config, Error, Level, MAX_MESSAGE_BYTES, RINGS, STARVATION};

mod receive;
mod send;

/// The longest time that a station waits until it asks the host whether peers are alive.
pub const CHECK_NS: u64 = 20_000_000;
/// A message that is to be seen later than this is invalid.
pub const MAX_DELAY_NS: u64 = 10_000_000_000;
/// A station does not sleep for a message that is to be seen within this time: waking up takes as long.
const NEAR_NS: u64 = 200_000;
/// The largest number of times that the clock is read until the message is to be seen.
const NEAR_LOOKS: u32 = 100_000;
/// Ring of replies.
const REPLY: usize = 0;

const NEVER_OPEN: u64 = 0;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

/// Functions that a station needs from its environment.
pub trait Host {
    /// Fused time in nanoseconds.
    fn now(&self) -> u64;
    /// Wakes a station that sleeps. If it is about to sleep its sleep ends at once.
    fn ring(&self, station: usize);
    /// Sleeps until the station is rung for or fused time reaches `until`. May return earlier.
    fn sleep(&self, until: u64);
    /// Between two looks.
    fn relax(&self);
    /// Whether the node of a station is alive, or of the thread that is to open the station, if the host knows that
    /// thread. Asked with each message, so it must be cheap. When a node has died, a
    /// host that can wakes the stations that [`sleep`](Host::sleep).
    fn alive(&self, station: usize) -> bool;
}

impl<H: Host + ?Sized> Host for &H {
    fn now(&self) -> u64 {
        (**self).now()
    }
    fn ring(&self, station: usize) {
        (**self).ring(station);
    }
    fn sleep(&self, until: u64) {
        (**self).sleep(until);
    }
    fn relax(&self) {
        (**self).relax();
    }
    fn alive(&self, station: usize) -> bool {
        (**self).alive(station)
    }
}

/// The way in which a station waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It polls without a limit, so no sender rings for it.
    Polling,
    /// It sleeps at once.
    Doorbell,
    /// It polls this many times, then it sleeps.
    Adaptive(u32),
}

/// Counts of what a station has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent to one station: calls and replies are some.
    pub sent: u64,
    /// Bytes of the messages sent.
    pub sent_bytes: u64,
    /// Messages received, those of groups included, and replies that were waited for.
    pub received: u64,
    /// Bytes of the messages received.
    pub received_bytes: u64,
    /// Messages written to groups.
    pub multicasts: u64,
    /// Members that they were for, added up.
    pub multicast_members: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Looks while it waited.
    pub polls: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// How often it was about to sleep and found at the last moment that something had come in. The sender
    /// may have rung.
    pub called_off: u64,
    /// Times it had to wait for room.
    pub full_waits: u64,
    /// Replies to calls that no longer wait.
    pub late_replies: u64,
    /// Members that it has put out of its groups.
    pub put_out: u64,
    /// Messages of which only a part came.
    pub cut_short: u64,
}

/// The properties of a message, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The station that sent it.
    pub from: usize,
    /// Its urgency.
    pub level: Level,
    /// Its purpose.
    pub kind: Kind,
    /// Number of the call.
    pub id: u64,
    /// The sender's word.
    pub tag: u64,
    /// The group that it came by.
    pub group: Option<usize>,
}

/// A message that comes in parts.
#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    begun: bool,
}

struct Inbound {
    ring: Consumer,
    partial: Partial,
}

struct Joined {
    group: usize,
    writer: usize,
    member: Member,
    partial: Partial,
}

struct Written {
    group: usize,
    writer: Writer,
}

struct Reply {
    envelope: Envelope,
    bytes: Vec<u8>,
}

/// The place of the next message.
#[derive(Clone, Copy)]
enum Source {
    Ring(usize),
    /// Index into `joined`.
    Group(usize),
}

/// One end of a message layer; see the [module](self).
pub struct Station<W, H> {
    w: W,
    host: H,
    own: usize,
    config: Config,
    mode: Mode,
    /// The producer for station `s` at a level: number `s * RINGS + level`.
    to: Vec<Producer>,
    from: Vec<Inbound>,
    written: Vec<Written>,
    joined: Vec<Joined>,
    /// Senders whose bits have been taken and whose rings have not been found empty since.
    ready: u64,
    /// Senders with messages that are not to be seen yet, and when the first one is.
    delayed: u64,
    next_visible: u64,
    /// The sender that is checked first.
    turn: usize,
    /// Messages of more urgent levels since the last one of each.
    passed: [u32; RINGS],
    /// Senders that are not listened to.
    broken: u64,
    /// Senders whose death has been reported.
    dead: u64,
    calls: Vec<(u64, usize)>,
    replies: Vec<Reply>,
    next_id: u64,
    counters: Counters,
}

impl<W: Words, H: Host> Station<W, H> {
    /// Opens station `own`. If the station has never been open, it receives what has been sent to it;
    /// otherwise what was sent to its last user is dropped.
    ///
    /// The caller must be the only user of the station until it is [closed](Station::close) or its node has
    /// died.
    ///
    /// # Errors
    ///
    /// [`Error::BadLayout`], [`Error::NotFound`].
    pub fn open(w: W, host: H, own: usize, mode: Mode) -> Result<Station<W, H>, Error> {
        let config = Config::of(&w)?;
        if own >= config.stations {
            return Err(Error::NotFound);
        }
        let fresh = w.load(config.state(own), Acquire) == NEVER_OPEN;
        wake::attentive(&w, &config.wake_line(own));
        let pairs = || (0..config.stations).flat_map(|s| (0..RINGS).map(move |l| (s, l)));
        let to = pairs().map(|(s, l)| Producer::attach(&w, config.ring(own, s, l)));
        let from = pairs().map(|(s, l)| {
            let place = config.ring(s, own, l);
            Inbound {
                ring: if fresh {
                    Consumer::resume(&w, place)
                } else {
                    Consumer::attach(&w, place)
                },
                partial: Partial::default(),
            }
        });
        let (to, from) = (to.collect(), from.collect());
        w.store(config.state(own), OPEN, Release);
        Ok(Station {
            host,
            own,
            config,
            mode,
            to,
            from,
            written: Vec::new(),
            joined: Vec::new(),
            // Whatever came before bits were looked at.
            ready: (1 << config.stations) - 1,
            delayed: 0,
            next_visible: u64::MAX,
            turn: 0,
            passed: [0; RINGS],
            broken: 0,
            dead: 0,
            calls: Vec::new(),
            replies: Vec::new(),
            next_id: 1,
            counters: Counters::default(),
            w,
        })
    }

    /// Number of this station.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Dimensions of the layer.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The host of this station.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// What this station has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sets how the station waits from now on.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Ends the use of the station: it leaves its groups, and senders are told ([`Error::Closed`]). What the station has
    /// sent stays where it is. A thread that goes on with it must [open](Station::open) the station again.
    pub fn close(&mut self) {
        for j in core::mem::take(&mut self.joined) {
            j.member.leave(&self.w);
        }
        self.w.store(self.config.state(self.own), CLOSED, Release);
        // Those that wait for room or for a reply look again.
        for s in 0..self.config.stations {
            if s != self.own {
                self.tell(s);
            }
        }
    }

    /// Listens to a station again after [`Error::Corrupt`]: what that station has sent is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub fn repair(&mut self, station: usize) -> Result<(), Error> {
        if station >= self.config.stations {
            return Err(Error::NotFound);
        }
        for level in 0..RINGS {
            let place = self.config.ring(station, self.own, level);
            self.from[station * RINGS + level] = Inbound {
                ring: Consumer::attach(&self.w, place),
                partial: Partial::default(),
            };
        }
        self.broken &= !(1 << station);
        self.ready |= 1 << station;
        Ok(())
    }

    /// Sets this station's bit at another, and rings if that one sleeps.
    fn tell(&mut self, station: usize) {
        if wake::notify(&self.w, &self.config.wake_line(station), self.own) {
            self.counters.doorbells += 1;
            self.host.ring(station);
        }
    }

    /// Takes the bits of the stations that have notified this one, and tells those that wait for room if
    /// there is some. A caller that waits by itself must call this before it checks anything else; receiving
    /// includes it.
    pub fn look(&mut self) {
        let bits = wake::take_pending(&self.w, &self.config.wake_line(self.own));
        if bits == 0 {
            return;
        }
        // There are no others, whatever anybody has written there.
        let bits = bits & ((1 << self.config.stations) - 1);
        self.ready |= bits;
        for s in stations(bits) {
            for level in 0..RINGS {
                self.from[s * RINGS + level].ring.note_want(&self.w);
            }
            for j in self.joined.iter_mut().filter(|j| j.writer == s) {
                j.member.note_want(&self.w);
            }
            self.give_room(s);
        }
    }

    /// Tells a sender that waits for room, if there is some.
    fn give_room(&mut self, station: usize) {
        let mut tell = false;
        for level in 0..RINGS {
            let ring = &mut self.from[station * RINGS + level].ring;
            tell |= ring.has_room_for_waiter(&self.w);
        }
        for j in self.joined.iter_mut().filter(|j| j.writer == station) {
            tell |= j.member.has_room_for_waiter(&self.w);
        }
        if tell {
            self.tell(station);
        }
    }

    /// Whether a notification has come in that [`try_recv`](Station::try_recv) has not processed.
    pub fn is_pending(&self) -> bool {
        self.w
            .load(self.config.wake_line(self.own).pending, Relaxed)
            != 0
    }

    /// Declares that this station sleeps, for callers that sleep by themselves (executors). `false`:
    /// something has come in and must be received first. Call [`attentive`](Station::attentive) afterwards.
    #[must_use = "a station that sleeps although something is pending may never be woken"]
    pub fn prepare(&mut self) -> bool {
        let asleep = wake::prepare(&self.w, &self.config.wake_line(self.own));
        self.counters.sleeps += u64::from(asleep);
        self.counters.called_off += u64::from(!asleep);
        asleep
    }

    /// Declares that this station checks for messages before it sleeps again, so no sender needs to ring.
    pub fn attentive(&self) {
        wake::attentive(&self.w, &self.config.wake_line(self.own));
    }

    /// The time at which the first message that has arrived already is to be seen, if
    /// [`try_recv`](Station::try_recv) has passed over one.
    pub fn next_visible(&self) -> Option<u64> {
        (self.next_visible != u64::MAX).then_some(self.next_visible)
    }

    /// Waits for something to come in, but not past a point of time, nor past [`CHECK_NS`].
    fn wait(&mut self, until: u64) {
        let looks = match self.mode {
            Mode::Polling => 1000,
            Mode::Doorbell => 0,
            Mode::Adaptive(looks) => looks,
        };
        for _ in 0..looks {
            self.counters.polls += 1;
            if self.is_pending() {
                return;
            }
            self.host.relax();
        }
        match self.until_visible(until) {
            Some(0) => return,
            Some(ns) if ns <= NEAR_NS && self.mode != Mode::Doorbell => {
                for _ in 0..NEAR_LOOKS {
                    if self.is_pending() || self.host.now() >= self.next_visible {
                        break;
                    }
                    self.host.relax();
                }
                return;
            }
            _ => {}
        }
        if self.mode != Mode::Polling && self.prepare() {
            let until = until.min(self.host.now().saturating_add(CHECK_NS));
            self.host.sleep(until);
            self.attentive();
        }
    }

    /// The time until a message that has arrived already is to be seen, if the station waits for that.
    fn until_visible(&self, until: u64) -> Option<u64> {
        let due = self.next_visible()?;
        (due <= until).then(|| due.saturating_sub(self.host.now()))
    }

    /// Whether a station sleeps and has not been notified: the next sender rings.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::NodeDead`], [`Error::NotFound`].
    pub fn is_asleep(&self, station: usize) -> Result<bool, Error> {
        self.check_peer(station)?;
        let line = self.config.wake_line(station);
        // In this order: it is attentive when it takes what is pending.
        Ok(self.w.load(line.pending, Acquire) == 0
            && self.w.load(line.activity, Relaxed) == wake::ASLEEP)
    }

    /// Whether a station can answer: for those that wait by themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::NodeDead`], [`Error::NotFound`].
    pub fn check_peer(&self, station: usize) -> Result<(), Error> {
        if station >= self.config.stations {
            return Err(Error::NotFound);
        }
        self.check(station)
    }

    /// Reports the death of each station, once, unless the station was closed; when none is left that could send anything, again
    /// and again. For those that wait by themselves.
    ///
    /// # Errors
    ///
    /// [`Error::NodeDead`].
    pub fn check_peers(&mut self) -> Result<(), Error> {
        self.check_all()
    }

    /// Whether a station can answer.
    fn check(&self, station: usize) -> Result<(), Error> {
        if self.w.load(self.config.state(station), Acquire) == CLOSED {
            return Err(Error::Closed);
        }
        match self.is_dead(station) {
            true => Err(Error::NodeDead { station }),
            false => Ok(()),
        }
    }

    fn is_dead(&self, station: usize) -> bool {
        station != self.own && !self.host.alive(station)
    }

    /// Reports each death once, and again if all others are dead: nothing can come from anybody then.
    fn check_all(&mut self) -> Result<(), Error> {
        let mut dead = None;
        let mut others = 0;
        for s in (0..self.config.stations).filter(|&s| s != self.own) {
            if self.w.load(self.config.state(s), Acquire) == CLOSED || !self.is_dead(s) {
                // The station may be alive, or be opened by a thread that is.
                others += 1;
                self.dead &= !(1 << s);
            } else if self.dead >> s & 1 == 0 {
                self.dead |= 1 << s;
                return Err(Error::NodeDead { station: s });
            } else {
                dead = Some(s);
            }
        }
        match dead {
            Some(station) if others == 0 => Err(Error::NodeDead { station }),
            _ => Ok(()),
        }
    }

    /// The deadline, or the largest time if there is none; `TimedOut` if it has passed.
    fn in_time(&self, deadline: Option<u64>) -> Result<u64, Error> {
        let now = self.host.now();
        match deadline {
            Some(deadline) if now >= deadline => Err(Error::TimedOut),
            Some(deadline) => Ok(deadline),
            None => Ok(u64::MAX),
        }
    }
}

/// The stations of a set of bits.
fn stations(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let s = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (s < 64).then_some(s)
    })
}
