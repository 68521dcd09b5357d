//! Words that arguments and results of operations on capabilities consist of.

use super::{CapIndex, CapType, Rights};

/// The liveness entry that guards a copy: `entry:9 | capability:15` in bits 0..24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// A liveness capability of the caller.
    pub liveness: CapIndex,
    /// An entry of it, below 512.
    pub entry: u32,
}

impl Guard {
    /// The number, to be shifted by 32 into the rights word; never 0.
    pub const fn bits(self) -> u32 {
        self.liveness.0 & 0x7fff | (self.entry & 0x1ff) << 15
    }

    /// Reads it; `None` for 0.
    pub const fn from_bits(b: u32) -> Option<Guard> {
        if b & 0x7fff == 0 || b >> 24 != 0 {
            return None;
        }
        Some(Guard {
            liveness: CapIndex(b & 0x7fff),
            entry: b >> 15,
        })
    }
}

/// The result of `Introspect`: `rights:32 | type:5 | detail:27`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introspection {
    /// The rights of the capability.
    pub rights: Rights,
    /// The type of the capability.
    pub kind: CapType,
    /// Captbl: level. PageTable: [`TableAt::bits`]. Hardware: node. Memory, Frame: frames.
    /// Others: 0. [`MOST`](Introspection::MOST) stands for itself and for everything larger.
    pub detail: u64,
}

impl Introspection {
    const DETAIL_BITS: u32 = 27;
    /// The largest detail that a value tells. The frames of the largest pool are one more: no range is
    /// larger than this, since the first frames of every pool are the system's.
    pub const MOST: u64 = (1 << Introspection::DETAIL_BITS) - 1;

    /// The value.
    pub const fn bits(self) -> u64 {
        let detail = if self.detail < Introspection::MOST {
            self.detail
        } else {
            Introspection::MOST
        };
        (self.rights.0 as u64) << 32 | (self.kind as u64) << Introspection::DETAIL_BITS | detail
    }

    /// Reads it.
    pub const fn from_bits(v: u64) -> Option<Introspection> {
        match CapType::from_number(v >> Introspection::DETAIL_BITS & 0x1f) {
            Some(kind) => Some(Introspection {
                rights: Rights((v >> 32) as u32),
                kind,
                detail: v & Introspection::MOST,
            }),
            None => None,
        }
    }
}

/// The result of `Count`: `looked:21 | untyped << 21 | user << 42`, in frames. The other frames are kernel
/// objects, the system's, or being changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The number of frames covered, at least one.
    pub looked: u64,
    /// The number of untyped frames among them.
    pub untyped: u64,
    /// The number of frames of user memory among them, mapped or not.
    pub user: u64,
}

impl Counted {
    const BITS: u32 = 21;
    /// Most frames that one value tells of.
    pub const MAX: u64 = (1 << Counted::BITS) - 1;

    /// The value.
    pub const fn bits(self) -> u64 {
        self.looked | self.untyped << Counted::BITS | self.user << (2 * Counted::BITS)
    }

    /// Reads it.
    pub const fn from_bits(v: u64) -> Counted {
        Counted {
            looked: v & Counted::MAX,
            untyped: v >> Counted::BITS & Counted::MAX,
            user: v >> (2 * Counted::BITS) & Counted::MAX,
        }
    }

    /// Frames that are neither untyped nor user memory.
    pub const fn other(self) -> u64 {
        self.looked.saturating_sub(self.untyped + self.user)
    }
}

/// A region in pieces: of each `1 << stride` bytes, at a multiple of that address, the last
/// `1 << piece` belong to it. What is between them is guard. So are stacks of threads, which are
/// found by number: one region for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    stride: u8,
    piece: u8,
}

impl Stripes {
    /// Pieces of `piece` bytes every `stride` bytes: powers of two, `piece` the smaller one and at
    /// least a page.
    pub const fn new(stride: u64, piece: u64) -> Option<Stripes> {
        if stride.is_power_of_two()
            && piece.is_power_of_two()
            && crate::user::PAGE_SIZE <= piece
            && piece < stride
            && stride < crate::user::USER_END
        {
            Some(Stripes {
                stride: stride.trailing_zeros() as u8,
                piece: piece.trailing_zeros() as u8,
            })
        } else {
            None
        }
    }

    /// `stride | piece << 8`, as logarithms; never 0.
    pub const fn bits(self) -> u64 {
        self.stride as u64 | (self.piece as u64) << 8
    }

    /// Reads it.
    pub const fn from_bits(b: u64) -> Option<Stripes> {
        let (stride, piece) = (b & 0xff, b >> 8);
        if stride > 63 || piece > 63 {
            return None;
        }
        Stripes::new(1 << stride, 1 << piece)
    }

    /// Distance between the starts of pieces.
    pub const fn stride(self) -> u64 {
        1 << self.stride
    }

    /// The piece, or the gap, that an address lies in: start, end, and whether it is a piece.
    pub const fn around(self, va: u64) -> (u64, u64, bool) {
        let start = va & !(self.stride() - 1);
        let end = start + self.stride();
        let bottom = end - (1 << self.piece);
        if va >= bottom {
            (bottom, end, true)
        } else {
            (start, bottom, false)
        }
    }
}

/// A table of an address space: ISA and level (1: entries map 4 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableAt {
    /// The ISA.
    pub isa: crate::Isa,
    /// 1 to 4.
    pub level: u8,
}

impl TableAt {
    /// `isa | level << 8`.
    pub const fn bits(self) -> u64 {
        self.isa as u64 | (self.level as u64) << 8
    }

    /// Reads it.
    pub const fn from_bits(b: u64) -> Option<TableAt> {
        let level = b >> 8;
        match crate::Isa::from_index(b & 0xff) {
            Some(isa) if level >= 1 && level <= 4 => Some(TableAt {
                isa,
                level: level as u8,
            }),
            _ => None,
        }
    }
}

numbered! {
    /// The reasons why a dispatched thread has stopped.
    Stopped {
        /// Its slice or budget is used up.
        Preempted = 1,
        /// It waits at an endpoint.
        Blocked = 2,
        /// It has ended (or stopped itself).
        Exited = 3,
        /// It faulted and its component has no handler.
        Faulted = 4,
        /// The thread has gone to another node.
        Left = 5,
        /// The thread gave the CPU back.
        Yielded = 6,
        /// An event has come in for the dispatching thread; the thread is ready.
        Interrupted = 7,
    }
}

/// An event about one thread at a scheduler's endpoint: `tag:32 | why:8`; 0 is no event. `why` is [`Woken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The tag the thread was configured with.
    pub tag: u32,
    /// The kind of the event.
    pub why: Woken,
}

numbered! {
    /// The reasons why a scheduler is told of a thread.
    Woken {
        /// The thread waited and is ready.
        Ready = 1,
        /// The thread has arrived from another node, and is ready.
        Arrived = 2,
        /// The node it was on, or was going to, died. It is ready: its call returns an error.
        NodeDied = 3,
        /// The thread had been switched to by a message, not by `Dispatch`, and waits with a deadline
        /// ([`ThreadOp::Deadline`](super::ThreadOp::Deadline)).
        Sleeps = 4,
        /// The thread had been switched to by a message, and has ended or faulted; or its registers died with
        /// its node, and it is stopped.
        Ended = 5,
    }
}

impl Event {
    /// The value.
    pub const fn bits(self) -> u64 {
        self.tag as u64 | (self.why as u64) << 32
    }

    /// Reads it.
    pub const fn from_bits(v: u64) -> Option<Event> {
        match Woken::from_number(v >> 32) {
            Some(why) => Some(Event { tag: v as u32, why }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type of capability, and details up to those of the largest pool, whose 512 GiB are 2^27 frames.
    #[test]
    fn introspection_is_exact_or_says_that_there_is_more() {
        for &kind in CapType::ALL {
            for (detail, told) in [
                (0, 0),
                (0xff_ffff, 0xff_ffff),
                (1 << 24, 1 << 24),
                ((1 << 27) - 2, (1 << 27) - 2),
                (Introspection::MOST, Introspection::MOST),
                (1 << 27, Introspection::MOST),
                (u64::MAX, Introspection::MOST),
            ] {
                for rights in [Rights::NONE, Rights::COPY, Rights::ALL] {
                    let with = |detail| Introspection {
                        rights,
                        kind,
                        detail,
                    };
                    let read = Introspection::from_bits(with(detail).bits());
                    assert_eq!(read, Some(with(told)));
                }
            }
        }
    }
}
