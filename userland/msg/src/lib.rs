//! Messages between threads on several nodes: the pure part, over any memory that they share.
//!
//! ```text
//!            station 0                                             station 1
//!  send ──▶ ring 0→1 reply  ─┐                                ┌─▶ replies, by call
//!           ring 0→1 urgent ─┼── pending bit, doorbell ──────▶│   recv: most urgent first
//!           ring 0→1 normal ─┤   (if it sleeps)               │
//!           ring 0→1 bulk   ─┘                                │
//!           group g ─────────── one write ────────────────────┴─▶ station 1, 2, 3
//! ```
//!
//! A *station* is one end of the layer, used by one thread at a time; normally there is one on each
//! node. What it does is in [`Station`].
//!
//! | module | what |
//! |---|---|
//! | [`words`] | the memory |
//! | [`record`] | what a message looks like |
//! | [`ring`] | one producer, one consumer |
//! | [`bulk`] | the same, for records that are copied without a buffer |
//! | [`group`] | one writer, several members |
//! | [`wake`] | sleeping without missing anything |
//! | [`layout`] | how memory is divided; delays |
//! | [`station`] | all of it together |
//!
//! # Example
//!
//! ```
//! use dyad_msg::words::lines;
//! use dyad_msg::{Config, Host, Level, Mode, Station};
//!
//! # struct Here;
//! # impl Host for Here {
//! #     fn now(&self) -> u64 { 1 }
//! #     fn ring(&self, _: usize) {}
//! #     fn sleep(&self, _: u64) {}
//! #     fn relax(&self) {}
//! #     fn alive(&self, _: usize) -> bool { true }
//! # }
//! let config = Config::new(2);
//! let memory = lines(config.memory_lines());
//! config.format(&memory)?;
//! let mut client = Station::open(memory.clone(), Here, 0, Mode::Doorbell)?;
//! let mut server = Station::open(memory, Here, 1, Mode::Polling)?;
//!
//! let call = client.begin_call(1, Level::Normal, 7, b"how much is it?")?;
//! let mut bytes = Vec::new();
//! let question = server.try_recv(&mut bytes)?.expect("it has come");
//! assert_eq!((question.tag, &bytes[..]), (7, &b"how much is it?"[..]));
//! server.try_reply(&question, 42, &[])?;
//! assert_eq!(client.take_reply(call, &mut bytes)?.map(|answer| answer.tag), Some(42));
//! # Ok::<(), dyad_msg::Error>(())
//! ```
//!
//! # What holds
//!
//! | | |
//! |---|---|
//! | loss | none: who sends waits for room, or is told that there is none |
//! | order | that of sending, for each pair of stations and level; a group is a sender of its own |
//! | priority | strict, but for the bound on starvation ([`STARVATION`]) |
//! | size | up to [`MAX_MESSAGE_BYTES`]; larger things by reference: fused memory has one address for all |
//! | untrusted peers | what cannot be is [`Error::Corrupt`]; they can send wrong messages, nothing else |
//! | death | every call that names a dead station fails at once with [`Error::NodeDead`], but for answers that had come |
//! | waits | every wait ends: with what was waited for, [`Error::TimedOut`], or [`Error::NodeDead`] |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bulk;
pub mod group;
pub mod layout;
pub mod record;
pub mod ring;
pub mod station;
pub mod wake;
pub mod words;

use core::fmt;

pub use layout::{Config, Delay};
pub use record::Kind;
pub use station::{Counters, Envelope, Host, Mode, Station};

/// Most stations.
pub const MAX_STATIONS: usize = 16;
/// Most groups.
pub const MAX_GROUPS: usize = 64;
/// Most bytes of a message. Larger ones are sent in several records of
/// [`MAX_RECORD_BYTES`](record::MAX_RECORD_BYTES).
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// The next message of a level is received after at most this many messages of more urgent levels, plus one
/// message for each less urgent level that has waited as long.
pub const STARVATION: u32 = 32;
/// Rings of a pair: one for replies, and one for each level.
pub(crate) const RINGS: usize = 4;

/// Urgency of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Overtakes all others.
    Urgent = 1,
    /// The usual; that of groups, too.
    Normal = 2,
    /// Lets all others pass.
    Bulk = 3,
}

impl Level {
    /// All levels, most urgent first.
    pub const ALL: [Level; 3] = [Level::Urgent, Level::Normal, Level::Bulk];
}

/// The reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no room at this moment.
    Full,
    /// Larger than [`MAX_MESSAGE_BYTES`], or than the ring if it has to go in at once.
    TooLarge,
    /// The station or group does not exist.
    NotFound,
    /// The station has been closed.
    Closed,
    /// The station's node is dead.
    NodeDead {
        /// The station.
        station: usize,
    },
    /// The deadline has passed.
    TimedOut,
    /// A station, or the writer of a group, has damaged what it shares with this station, which no longer
    /// listens to it.
    Corrupt {
        /// The station.
        station: usize,
    },
    /// This station has been removed from a group because it was too slow.
    PutOut {
        /// The group.
        group: usize,
    },
    /// The group belongs to another station; or this one is in it already, or is not.
    Denied,
    /// The memory is no message layer.
    BadLayout,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full => f.write_str("there is no room for the message"),
            Error::TooLarge => f.write_str("the message is too large"),
            Error::NotFound => f.write_str("there is no such station or group"),
            Error::Closed => f.write_str("the station is closed"),
            Error::NodeDead { station } => write!(f, "the node of station {station} is dead"),
            Error::TimedOut => f.write_str("the time has come"),
            Error::Corrupt { station } => write!(f, "station {station} has damaged its rings"),
            Error::PutOut { group } => write!(f, "this station has been put out of group {group}"),
            Error::Denied => f.write_str("the group is not this station's to use like that"),
            Error::BadLayout => f.write_str("the memory holds no message layer"),
        }
    }
}

impl core::error::Error for Error {}
