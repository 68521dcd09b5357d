//! Traces of accesses: what plugins record, and what models replay.
//!
//! ```text
//! trace   = "dyadtrac" version:u32 length:u32 text[length] record* end
//! record  = head [who] delta [size]
//! head    = kind (bits 0 to 2), who follows (bit 3), size (bits 4 to 7)
//! who     = cpu (bits 0 to 3), node (bits 4 to 7); without it as in the record before
//! delta   = varint, zigzag: from the address before of the same CPU, data and instructions apart;
//!           of times, from the time before of the same CPU
//! size    = 1 to 7: 1 to 64 bytes, powers of two; 0: varint follows; of accesses only, but that a flush with 1 is one
//!           of everything
//! end     = 7 count:varint
//! ```
//!
//! Integers are little-endian; a varint has seven bits in each byte, the lowest first, and bit 7 if
//! more follow. The text is the configuration of the run, as JSON; nothing here reads it. Without
//! its end a trace is cut off: what is there can be read, then comes an error.

use std::io::{self, Read, Write};

use crate::account::Counters;
use crate::coherent::{FlushKind, Kind, System};
use crate::config::LINE_BYTES;

const MAGIC: [u8; 8] = *b"dyadtrac";
/// Version of the format.
pub const VERSION: u32 = 2;
/// Most nodes, and most CPUs of a node, that records can name.
pub const MAX_WHO: usize = 16;
/// Longest text.
const MAX_TEXT: u32 = 1 << 20;

const FLUSH: u8 = 4;
const CLEAN: u8 = 5;
const TIME: u8 = 6;
const END: u8 = 7;
const WHO: u8 = 1 << 3;
const SIZE_SHIFT: u32 = 4;

/// What a CPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It accessed `size` bytes of physical memory.
    Access {
        /// How.
        kind: Kind,
        /// Where.
        address: u64,
        /// How much, in bytes; at least one.
        size: u64,
    },
    /// The CPU flushed a line.
    Flush {
        /// How.
        kind: FlushKind,
        /// An address in it.
        address: u64,
    },
    /// Its simulated time, in picoseconds; by it traces of several machines can be merged.
    Time(u64),
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The node, below [`MAX_WHO`].
    pub node: usize,
    /// Its CPU, below [`MAX_WHO`].
    pub cpu: usize,
    /// What it did.
    pub event: Event,
}

/// What deltas are from.
#[derive(Debug)]
struct Last {
    who: u8,
    /// By CPU: of instructions, of data, time.
    values: Box<[[u64; 3]; MAX_WHO * MAX_WHO]>,
}

impl Last {
    fn new() -> Self {
        Self {
            who: 0,
            values: Box::new([[0; 3]; MAX_WHO * MAX_WHO]),
        }
    }

    fn of(&mut self, kind: u8) -> &mut u64 {
        let which = match kind {
            0 => 0,
            TIME => 2,
            _ => 1,
        };
        &mut self.values[usize::from(self.who)][which]
    }
}

const KINDS: [Kind; 4] = [Kind::Fetch, Kind::Load, Kind::Store, Kind::Rmw];

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    last: Last,
    count: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace with the configuration of its run. `to` should buffer.
    ///
    /// # Errors
    ///
    /// Those of `to`; `InvalidInput` if the text has more than a megabyte.
    pub fn new(mut to: W, text: &str) -> io::Result<Self> {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if length > MAX_TEXT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&length.to_le_bytes())?;
        to.write_all(text.as_bytes())?;
        Ok(Self {
            to,
            last: Last::new(),
            count: 0,
        })
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// Those of the file; `InvalidInput` if the record names a node or CPU that it cannot.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        if record.node >= MAX_WHO || record.cpu >= MAX_WHO {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let who = (record.node << 4 | record.cpu) as u8;
        let (kind, value, size) = match record.event {
            Event::Access {
                kind,
                address,
                size,
            } => (kind as u8, address, Some(size)),
            Event::Flush { kind, address } => match kind {
                FlushKind::Flush => (FLUSH, address, None),
                FlushKind::Everything => (FLUSH, address, Some(1)),
                FlushKind::Clean => (CLEAN, address, None),
            },
            Event::Time(ps) => (TIME, ps, None),
        };
        let code = match size {
            Some(size) if size.is_power_of_two() && size <= 64 => size.trailing_zeros() as u8 + 1,
            _ => 0,
        };
        // At most: head, who, and two varints of ten bytes.
        let mut bytes = [0; 22];
        let mut n = 1;
        bytes[0] = kind | code << SIZE_SHIFT;
        if who != self.last.who {
            bytes[0] |= WHO;
            bytes[1] = who;
            n = 2;
            self.last.who = who;
        }
        let last = self.last.of(kind);
        let delta = value.wrapping_sub(*last) as i64;
        *last = value;
        n += varint(&mut bytes[n..], (delta << 1 ^ delta >> 63) as u64);
        if let (Some(size), 0) = (size, code) {
            n += varint(&mut bytes[n..], size);
        }
        self.count += 1;
        self.to.write_all(&bytes[..n])
    }

    /// Ends the trace.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        let mut bytes = [END; 11];
        let n = 1 + varint(&mut bytes[1..], self.count);
        self.to.write_all(&bytes[..n])?;
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Puts a varint at the front of `to`, which has room. Returns its length.
fn varint(to: &mut [u8], mut value: u64) -> usize {
    let mut n = 0;
    while value >= 0x80 {
        to[n] = value as u8 | 0x80;
        value >>= 7;
        n += 1;
    }
    to[n] = value as u8;
    n + 1
}

/// Why a trace cannot be read or replayed.
#[derive(Debug)]
pub enum TraceError {
    /// The file.
    Io(io::Error),
    /// It does not begin like a trace.
    NotATrace,
    /// It is of another version of the format.
    Version(u32),
    /// It ends within a record, or without an end.
    CutOff {
        /// Records before.
        records: u64,
    },
    /// There is no such record.
    Damaged {
        /// Records before.
        records: u64,
    },
    /// A record names a CPU that the system has not.
    NoSuchCpu {
        /// The node.
        node: usize,
        /// The CPU.
        cpu: usize,
    },
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotATrace => f.write_str("not a trace"),
            Self::Version(version) => {
                write!(
                    f,
                    "a trace of version {version}; version {VERSION} can be read"
                )
            }
            Self::CutOff { records } => write!(f, "the trace is cut off after {records} records"),
            Self::Damaged { records } => write!(f, "the trace is damaged after {records} records"),
            Self::NoSuchCpu { node, cpu } => {
                write!(
                    f,
                    "the trace is of a system with a CPU {cpu} of a node {node}"
                )
            }
        }
    }
}

impl std::error::Error for TraceError {}

/// Reads a trace.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    text: String,
    last: Last,
    count: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Begins to read. `from` should buffer.
    ///
    /// # Errors
    ///
    /// If it is not the beginning of a trace of this version.
    pub fn new(mut from: R) -> Result<Self, TraceError> {
        let mut exactly = |bytes: &mut [u8]| match from.read_exact(bytes) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::NotATrace),
            result => result.map_err(TraceError::Io),
        };
        let (mut magic, mut version, mut length) = ([0; 8], [0; 4], [0; 4]);
        exactly(&mut magic)?;
        if magic != MAGIC {
            return Err(TraceError::NotATrace);
        }
        exactly(&mut version)?;
        let version = u32::from_le_bytes(version);
        if version != VERSION {
            return Err(TraceError::Version(version));
        }
        exactly(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_TEXT {
            return Err(TraceError::NotATrace);
        }
        let mut text = vec![0; length as usize];
        exactly(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| TraceError::NotATrace)?;
        Ok(Self {
            from,
            text,
            last: Last::new(),
            count: 0,
            ended: false,
        })
    }

    /// The configuration of the trace's run.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn damaged(&self) -> TraceError {
        TraceError::Damaged {
            records: self.count,
        }
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        let mut byte = [0];
        match self.from.read_exact(&mut byte) {
            Ok(()) => Ok(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::CutOff {
                records: self.count,
            }),
            Err(e) => Err(TraceError::Io(e)),
        }
    }

    fn varint(&mut self) -> Result<u64, TraceError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged())
    }

    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        let head = self.byte()?;
        let kind = head & 7;
        if kind == END {
            return if head == END && self.varint()? == self.count {
                Ok(None)
            } else {
                Err(self.damaged())
            };
        }
        if head & WHO != 0 {
            self.last.who = self.byte()?;
        }
        let zigzag = self.varint()?;
        let delta = zigzag >> 1 ^ (zigzag & 1).wrapping_neg();
        let last = self.last.of(kind);
        *last = last.wrapping_add(delta);
        let address = *last;
        let code = u32::from(head >> SIZE_SHIFT);
        let event = match (kind, code) {
            (0..4, 0..=7) => Event::Access {
                kind: KINDS[usize::from(kind)],
                address,
                size: match code {
                    0 => self.varint()?,
                    _ => 1 << (code - 1),
                },
            },
            (FLUSH, 0) => Event::Flush {
                kind: FlushKind::Flush,
                address,
            },
            (FLUSH, 1) => Event::Flush {
                kind: FlushKind::Everything,
                address,
            },
            (CLEAN, 0) => Event::Flush {
                kind: FlushKind::Clean,
                address,
            },
            (TIME, 0) => Event::Time(address),
            _ => return Err(self.damaged()),
        };
        self.count += 1;
        Ok(Some(Record {
            node: usize::from(self.last.who >> 4),
            cpu: usize::from(self.last.who & 15),
            event,
        }))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.record().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

/// What traces can be replayed on.
pub trait Machine {
    /// Whether there is such a CPU.
    fn has(&self, node: usize, cpu: usize) -> bool;
    /// An access to a line. `more`: it is not the first line of the access. Returns the latency.
    fn access(&mut self, node: usize, cpu: usize, kind: Kind, line: u64, more: bool) -> u64;
    /// Cache maintenance. Returns the latency.
    fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64;
    /// Counters of a CPU.
    fn counts(&self, node: usize, cpu: usize) -> Counters;
}

impl Machine for System<'_> {
    fn has(&self, node: usize, cpu: usize) -> bool {
        self.has(node, cpu)
    }

    fn access(&mut self, node: usize, cpu: usize, kind: Kind, line: u64, more: bool) -> u64 {
        if more {
            self.second_line(node, cpu, kind, line)
        } else {
            self.access(node, cpu, kind, line)
        }
    }

    fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        self.flush(node, cpu, kind, line)
    }

    fn counts(&self, node: usize, cpu: usize) -> Counters {
        self.counts(node, cpu)
    }
}

/// Replays one record. Returns its latency in cycles.
///
/// # Errors
///
/// [`TraceError::NoSuchCpu`].
pub fn replay(record: &Record, machine: &mut impl Machine) -> Result<u64, TraceError> {
    let Record { node, cpu, event } = *record;
    if !machine.has(node, cpu) {
        return Err(TraceError::NoSuchCpu { node, cpu });
    }
    Ok(match event {
        Event::Access {
            kind,
            address,
            size,
        } => {
            let first = address / LINE_BYTES;
            let last = address.saturating_add(size.max(1) - 1) / LINE_BYTES;
            (first..=last)
                .map(|line| machine.access(node, cpu, kind, line, line != first))
                .sum()
        }
        Event::Flush { kind, address } => machine.flush(node, cpu, kind, address / LINE_BYTES),
        Event::Time(_) => 0,
    })
}
