//! The format of a message in a ring: one line, or one line followed by its contents.
//!
//! ```text
//! word 0   bytes:32 | kind:8 | flags:8 | unused:16
//! word 1   number of the call that it begins or answers
//! word 2   fused time in ns before which it is not to be seen; 0: at once
//! word 3   tag: the sender's word for the receiver
//! word 4-7 contents, if they are at most 32 bytes; otherwise they follow in lines of their own
//! ```

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::words::{LINE_BYTES, LINE_WORDS, Words};

/// Bytes that need no lines of their own.
pub const INLINE_BYTES: usize = 32;
/// Most bytes of one record; a larger message is several ([`Header::MORE`]).
pub const MAX_RECORD_BYTES: usize = 4096;
/// Most lines of one record.
pub const MAX_RECORD_LINES: u64 = 1 + (MAX_RECORD_BYTES / LINE_BYTES) as u64;

/// Lines that a record of `bytes` bytes takes.
pub const fn record_lines(bytes: usize) -> u64 {
    if bytes <= INLINE_BYTES {
        1
    } else {
        1 + bytes.div_ceil(LINE_BYTES) as u64
    }
}

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The sender waits for no answer.
    Message = 0,
    /// The sender waits for a reply with its number.
    Call = 1,
    /// A reply.
    Reply = 2,
}

/// The first line of a record, without contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the record's contents.
    pub bytes: usize,
    /// The purpose of the message.
    pub kind: Kind,
    /// [`FIRST`](Header::FIRST) and [`MORE`](Header::MORE).
    pub flags: u8,
    /// Number of the call.
    pub id: u64,
    /// Time before which the message is not to be seen.
    pub visible_at: u64,
    /// The sender's word.
    pub tag: u64,
}

impl Header {
    /// The message begins with this record.
    pub const FIRST: u8 = 1;
    /// The message does not end with this record.
    pub const MORE: u8 = 2;

    /// The header of a message that is a single record.
    pub const fn new(kind: Kind, id: u64, tag: u64, bytes: usize) -> Header {
        Header {
            bytes,
            kind,
            flags: Header::FIRST,
            id,
            visible_at: 0,
            tag,
        }
    }

    fn word(&self) -> u64 {
        self.bytes as u64 | (self.kind as u64) << 32 | u64::from(self.flags) << 40
    }

    /// Reads a header that another station has written; `None` if the word is no header.
    fn of(word: u64, id: u64, visible_at: u64, tag: u64) -> Option<Header> {
        let bytes = (word & 0xffff_ffff) as usize;
        let kind = match word >> 32 & 0xff {
            0 => Kind::Message,
            1 => Kind::Call,
            2 => Kind::Reply,
            _ => return None,
        };
        let flags = (word >> 40 & 0xff) as u8;
        let known = flags & !(Header::FIRST | Header::MORE) == 0 && word >> 48 == 0;
        (known && bytes <= MAX_RECORD_BYTES).then_some(Header {
            bytes,
            kind,
            flags,
            id,
            visible_at,
            tag,
        })
    }

    /// Lines of the record.
    pub const fn lines(&self) -> u64 {
        record_lines(self.bytes)
    }
}

/// Lines of a ring: position `p` is line `p` modulo a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// First word.
    pub first: u64,
    /// Number of lines, a power of two.
    pub lines: u64,
}

impl Slots {
    fn at(self, position: u64) -> u64 {
        self.first + (position & (self.lines - 1)) * LINE_WORDS
    }

    /// Writes a record at a position; `bytes` are as many as the header says.
    pub fn write<W: Words + ?Sized>(self, w: &W, position: u64, header: &Header, bytes: &[u8]) {
        let line = self.at(position);
        let start = [header.word(), header.id, header.visible_at, header.tag];
        for (i, word) in (0..).zip(start) {
            w.store(line + i, word, Relaxed);
        }
        if bytes.len() <= INLINE_BYTES {
            for (i, chunk) in (4..).zip(bytes.chunks(8)) {
                w.store(line + i, pack(chunk), Relaxed);
            }
            return;
        }
        for (n, chunk) in (1..).zip(bytes.chunks(LINE_BYTES)) {
            let line = self.at(position.wrapping_add(n));
            for (i, chunk) in (0..).zip(chunk.chunks(8)) {
                w.store(line + i, pack(chunk), Relaxed);
            }
        }
    }

    /// Reads the first line of a record; `None` if it is none.
    pub fn header<W: Words + ?Sized>(self, w: &W, position: u64) -> Option<Header> {
        let line = self.at(position);
        let word = |i| w.load(line + i, Relaxed);
        Header::of(word(0), word(1), word(2), word(3))
    }

    /// Appends the contents of a record whose header has been read to `to`.
    pub fn read<W: Words + ?Sized>(self, w: &W, position: u64, header: &Header, to: &mut Vec<u8>) {
        let mut left = header.bytes;
        let mut take = |word: u64, to: &mut Vec<u8>| {
            let n = left.min(8);
            to.extend_from_slice(&word.to_le_bytes()[..n]);
            left -= n;
            left > 0
        };
        if header.bytes == 0 {
            return;
        }
        if header.bytes <= INLINE_BYTES {
            let line = self.at(position);
            let mut i = 4;
            while take(w.load(line + i, Relaxed), to) {
                i += 1;
            }
            return;
        }
        for n in 1..header.lines() {
            let line = self.at(position.wrapping_add(n));
            for i in 0..LINE_WORDS {
                if !take(w.load(line + i, Relaxed), to) {
                    return;
                }
            }
        }
    }
}

/// Up to eight bytes as a word.
fn pack(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
