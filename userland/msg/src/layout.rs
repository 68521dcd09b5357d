//! The layout of the memory of a message layer.
//!
//! ```text
//! line 0       magic, version and what `Config` says
//! stations     three lines each: pending, activity, state
//! rings        from station 0 to 0, 1, ...; from station 1 to 0, ...; for each pair one per level
//! groups       one behind the other
//! ```

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::group::{GroupPlace, group_words};
use crate::record::MAX_RECORD_LINES;
use crate::ring::{RingSpan, ring_words};
use crate::wake::WakeLine;
use crate::words::{LINE_WORDS, Words};
use crate::{Error, MAX_GROUPS, MAX_STATIONS, RINGS};

/// "DYADMSGS", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"DYADMSGS");
const VERSION: u64 = 1;
const STATION_WORDS: u64 = 3 * LINE_WORDS;
/// Largest ring.
const MAX_LINES: u64 = 1 << 20;

/// The dimensions of a message layer, and the delay that it simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Stations, up to [`MAX_STATIONS`].
    pub stations: usize,
    /// Lines of 64 bytes of each ring: a power of two, at least [`Config::MIN_LINES`].
    pub lines: u64,
    /// Multicast groups, up to [`MAX_GROUPS`].
    pub groups: usize,
    /// Lines of each group, as those of a ring.
    pub group_lines: u64,
    /// Delay of each message before the receiver sees it.
    pub delay: Delay,
}

/// Time that a message is in transit, for baselines that stand for slower transports. The message is in its
/// ring at once, but is not seen before that time has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Nanoseconds for each message.
    pub message_ns: u32,
    /// Nanoseconds for each KiB (or part of one) of contents.
    pub kib_ns: u32,
}

impl Delay {
    /// No delay.
    pub const NONE: Delay = Delay {
        message_ns: 0,
        kib_ns: 0,
    };
    /// A message and its answer take 75 us, as over TCP between machines.
    pub const TCP: Delay = Delay::per_round_trip(75_000);

    /// A delay of `ns` nanoseconds for a message and its answer together.
    pub const fn per_round_trip(ns: u32) -> Delay {
        Delay {
            message_ns: ns / 2,
            kib_ns: 0,
        }
    }

    /// The delay of a message of `bytes` bytes.
    pub const fn of(self, bytes: usize) -> u64 {
        self.message_ns as u64 + self.kib_ns as u64 * bytes.div_ceil(1024) as u64
    }
}

impl Config {
    /// Fewest lines: a ring takes any record.
    pub const MIN_LINES: u64 = MAX_RECORD_LINES.next_power_of_two();

    /// A layer of `stations` stations, with rings of 16 KiB and as many groups of that size.
    pub const fn new(stations: usize) -> Config {
        Config {
            stations,
            lines: 256,
            groups: stations,
            group_lines: 256,
            delay: Delay::NONE,
        }
    }

    const fn is_valid(&self) -> bool {
        const fn lines(n: u64) -> bool {
            n.is_power_of_two() && n >= Config::MIN_LINES && n <= MAX_LINES
        }
        self.stations > 0
            && self.stations <= MAX_STATIONS
            && self.groups <= MAX_GROUPS
            && lines(self.lines)
            && lines(self.group_lines)
    }

    const fn rings(&self) -> u64 {
        LINE_WORDS + self.stations as u64 * STATION_WORDS
    }

    const fn groups_at(&self) -> u64 {
        let rings = (self.stations * self.stations * RINGS) as u64;
        self.rings() + rings * ring_words(self.lines)
    }

    /// Words that it takes.
    pub const fn words(&self) -> u64 {
        self.groups_at() + self.groups as u64 * group_words(self.group_lines)
    }

    /// Lines that it takes.
    pub const fn memory_lines(&self) -> usize {
        self.words().div_ceil(LINE_WORDS) as usize
    }

    /// Makes a message layer of memory that is zero.
    ///
    /// # Errors
    ///
    /// [`Error::BadLayout`] if it is too large or too small, or the memory too short.
    pub fn format<W: Words + ?Sized>(&self, w: &W) -> Result<(), Error> {
        if !self.is_valid() || self.words() > w.count() {
            return Err(Error::BadLayout);
        }
        let delay = u64::from(self.delay.message_ns) | u64::from(self.delay.kib_ns) << 32;
        let sizes = [
            VERSION,
            self.stations as u64,
            self.lines,
            self.groups as u64,
            self.group_lines,
            delay,
        ];
        for (at, word) in (1..).zip(sizes) {
            w.store(at, word, Relaxed);
        }
        w.store(0, MAGIC, Release);
        Ok(())
    }

    /// The configuration that a message layer has recorded in its memory.
    ///
    /// # Errors
    ///
    /// [`Error::BadLayout`] if the memory holds no message layer, or an impossible configuration.
    pub fn of<W: Words + ?Sized>(w: &W) -> Result<Config, Error> {
        if w.count() < LINE_WORDS || w.load(0, Acquire) != MAGIC || w.load(1, Relaxed) != VERSION {
            return Err(Error::BadLayout);
        }
        let size = |at| usize::try_from(w.load(at, Relaxed)).map_err(|_| Error::BadLayout);
        let delay = w.load(6, Relaxed);
        let config = Config {
            stations: size(2)?,
            lines: w.load(3, Relaxed),
            groups: size(4)?,
            group_lines: w.load(5, Relaxed),
            delay: Delay {
                message_ns: delay as u32,
                kib_ns: (delay >> 32) as u32,
            },
        };
        if !config.is_valid() || config.words() > w.count() {
            return Err(Error::BadLayout);
        }
        Ok(config)
    }

    const fn station(&self, n: usize) -> u64 {
        assert!(n < self.stations);
        LINE_WORDS + n as u64 * STATION_WORDS
    }

    /// The words by which station `n` is told that something has been sent.
    pub(crate) const fn wake_line(&self, n: usize) -> WakeLine {
        WakeLine {
            pending: self.station(n),
            activity: self.station(n) + LINE_WORDS,
        }
    }

    /// The word in which station `n` says whether it is open.
    pub(crate) const fn state(&self, n: usize) -> u64 {
        self.station(n) + 2 * LINE_WORDS
    }

    /// The ring between two stations at a level.
    pub(crate) const fn ring(&self, from: usize, to: usize, level: usize) -> RingSpan {
        assert!(from < self.stations && to < self.stations && level < RINGS);
        let n = (from * self.stations + to) * RINGS + level;
        RingSpan::new(self.rings() + n as u64 * ring_words(self.lines), self.lines)
    }

    /// A group.
    pub(crate) const fn group(&self, n: usize) -> GroupPlace {
        assert!(n < self.groups);
        let at = self.groups_at() + n as u64 * group_words(self.group_lines);
        GroupPlace::new(at, self.group_lines)
    }
}
