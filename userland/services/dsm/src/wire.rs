//! Messages and their encoding.
//!
//! A message is a header of [`HEADER`] bytes, all numbers little-endian, and for some kinds the bytes of a page.
//!
//! | bytes | field | in |
//! |---|---|---|
//! | 0 | kind | all |
//! | 1 | detail: access, right and source, or cause | request, pull, grant, refusal |
//! | 2, 3 | incarnation of the holder, which is sender or receiver | all |
//! | 4 | node for which the origin asks | pull, invalidate |
//! | 5 to 7 | zero | |
//! | 8 to 15 | sequence number of the request, or number of the transaction | all but drop, dropped |
//! | 16 to 23 | page, or first page | all |
//! | 24 to 31 | time since which the instruction waits | request, pull, invalidate |
//! | 24 to 31 | number of pages | drop, dropped |
//!
//! A field that a kind does not have is zero. [`decode`] refuses everything else, so each message has one encoding.

use dyad_abi::NodeId;
use dyad_abi::user::PAGE_SIZE;

use crate::ids::{Access, Incarnation, Page, Range, Right, Seq, Time, Txn};

/// Bytes of a header.
pub const HEADER: usize = 32;
/// Bytes of a page.
pub const CONTENTS: usize = PAGE_SIZE as usize;

/// A protocol message without contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Incarnation of the holder: of the receiver if the origin sends, else of the sender.
    pub incarnation: Incarnation,
    /// The rest.
    pub body: Body,
}

/// What a message says. The types of the fields say what they are.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To the origin: a thread needs the page.
    Request {
        page: Page,
        want: Access,
        seq: Seq,
        since: Time,
    },
    /// To a holder: give the page to `node`, by way of the origin. `Read` leaves the holder its right to read.
    Pull {
        page: Page,
        want: Access,
        txn: Txn,
        node: NodeId,
        since: Time,
    },
    /// To a holder: give up the page, as `node` writes it.
    Invalidate {
        page: Page,
        txn: Txn,
        node: NodeId,
        since: Time,
    },
    /// To the origin: done, without contents.
    Ack { page: Page, txn: Txn },
    /// To the origin: done, and the contents follow.
    Contents { page: Page, txn: Txn },
    /// To a holder: the request is granted.
    Grant {
        page: Page,
        seq: Seq,
        grant: Grant,
        right: Right,
    },
    /// To a holder: the request is refused.
    Nak { page: Page, seq: Seq, cause: Cause },
    /// To a holder: forget these pages.
    Drop { range: Range },
    /// To the origin: they are forgotten.
    Dropped { range: Range },
}

/// Where the contents of a granted page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// The holder has them.
    Same,
    /// They are zeros.
    Zero,
    /// They follow.
    Contents,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The page is in no region.
    Gone,
    /// The only copy was on a node that died.
    Lost,
    /// The origin has no frame, or no record, for it.
    NoMemory,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireError {
    /// Fewer bytes than the kind has.
    Short,
    /// More bytes than the kind has.
    Long,
    /// No such kind.
    Kind,
    /// No such detail of this kind.
    Detail,
    /// A field that this kind does not have is not zero.
    Reserved,
    /// No such node.
    Node,
    /// The page is outside the user's half of an address space, or the range is empty or runs over its end.
    Page,
}

const REQUEST: u8 = 1;
const PULL: u8 = 2;
const INVALIDATE: u8 = 3;
const ACK: u8 = 4;
const PAGE: u8 = 5;
const GRANT: u8 = 6;
const NAK: u8 = 7;
const DROP: u8 = 8;
const DROPPED: u8 = 9;

impl Body {
    /// Whether the bytes of a page follow the header.
    pub const fn has_contents(self) -> bool {
        let granted = matches!(
            self,
            Body::Grant {
                grant: Grant::Contents,
                ..
            }
        );
        granted || matches!(self, Body::Contents { .. })
    }

    /// Whether it is about a region, not about a page.
    pub const fn is_of_regions(self) -> bool {
        matches!(self, Body::Drop { .. } | Body::Dropped { .. })
    }

    /// Whether the origin is the receiver. Otherwise a holder is.
    pub const fn is_for_origin(self) -> bool {
        matches!(
            self,
            Body::Request { .. } | Body::Ack { .. } | Body::Contents { .. } | Body::Dropped { .. }
        )
    }

    /// The pages that the message is about.
    pub const fn range(self) -> Range {
        match self {
            Body::Request { page, .. }
            | Body::Pull { page, .. }
            | Body::Invalidate { page, .. }
            | Body::Ack { page, .. }
            | Body::Contents { page, .. }
            | Body::Grant { page, .. }
            | Body::Nak { page, .. } => Range::one(page),
            Body::Drop { range } | Body::Dropped { range } => range,
        }
    }
}

/// The fields of a header.
#[derive(Default)]
struct Fields {
    kind: u8,
    detail: u8,
    node: u8,
    number: u64,
    last: u64,
}

const fn access(want: Access) -> u8 {
    match want {
        Access::Read => 0,
        Access::Write => 1,
    }
}

/// The header of a message.
pub fn encode(message: &Message) -> [u8; HEADER] {
    let none = Fields::default();
    let f = match message.body {
        Body::Request {
            want, seq, since, ..
        } => Fields {
            kind: REQUEST,
            last: since.0,
            detail: access(want),
            number: seq.0,
            ..none
        },
        Body::Pull {
            want,
            txn,
            node,
            since,
            ..
        } => Fields {
            kind: PULL,
            last: since.0,
            detail: access(want),
            node: node.index() as u8,
            number: txn.0,
        },
        Body::Invalidate {
            txn, node, since, ..
        } => Fields {
            kind: INVALIDATE,
            last: since.0,
            node: node.index() as u8,
            number: txn.0,
            ..none
        },
        Body::Ack { txn, .. } => Fields {
            kind: ACK,
            number: txn.0,
            ..none
        },
        Body::Contents { txn, .. } => Fields {
            kind: PAGE,
            number: txn.0,
            ..none
        },
        Body::Grant {
            seq, grant, right, ..
        } => {
            let from = match grant {
                Grant::Same => 0,
                Grant::Zero => 1,
                Grant::Contents => 2,
            };
            let writes = matches!(right, Right::Write);
            Fields {
                kind: GRANT,
                detail: from << 1 | u8::from(writes),
                number: seq.0,
                ..none
            }
        }
        Body::Nak { seq, cause, .. } => Fields {
            kind: NAK,
            detail: match cause {
                Cause::Gone => 0,
                Cause::Lost => 1,
                Cause::NoMemory => 2,
            },
            number: seq.0,
            ..none
        },
        Body::Drop { range } => Fields {
            kind: DROP,
            last: range.pages(),
            ..none
        },
        Body::Dropped { range } => Fields {
            kind: DROPPED,
            last: range.pages(),
            ..none
        },
    };
    let mut bytes = [0; HEADER];
    bytes[0] = f.kind;
    bytes[1] = f.detail;
    bytes[2..4].copy_from_slice(&message.incarnation.0.to_le_bytes());
    bytes[4] = f.node;
    bytes[8..16].copy_from_slice(&f.number.to_le_bytes());
    bytes[16..24].copy_from_slice(&message.body.range().first().number().to_le_bytes());
    bytes[24..32].copy_from_slice(&f.last.to_le_bytes());
    bytes
}

fn word(bytes: &[u8; HEADER], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The message that the bytes are, and the contents behind its header.
///
/// # Errors
///
/// What is wrong with the bytes. Whether the sender may say so at this time is another question, which
/// [`Dsm::step`](crate::Dsm::step) answers.
pub fn decode(bytes: &[u8]) -> Result<(Message, &[u8]), WireError> {
    let (header, contents) = bytes
        .split_first_chunk::<HEADER>()
        .ok_or(WireError::Short)?;
    Ok((decode_header(header, contents.len())?, contents))
}

/// The message with this header, if so many bytes of contents are behind it.
///
/// # Errors
///
/// As for [`decode`].
pub fn decode_header(header: &[u8; HEADER], contents: usize) -> Result<Message, WireError> {
    let (kind, detail) = (header[0], header[1]);
    let (number, last) = (word(header, 8), word(header, 24));
    if !(REQUEST..=DROPPED).contains(&kind) {
        return Err(WireError::Kind);
    }
    let about_range = matches!(kind, DROP | DROPPED);
    let names_node = matches!(kind, PULL | INVALIDATE);
    let has_time = names_node || kind == REQUEST;
    let wrong = header[5..8] != [0; 3]
        || !names_node && header[4] != 0
        || !about_range && !has_time && last != 0
        || about_range && number != 0;
    if wrong {
        return Err(WireError::Reserved);
    }
    let details = match kind {
        REQUEST | PULL => 2,
        GRANT => 6,
        NAK => 3,
        _ => 1,
    };
    if detail >= details {
        return Err(WireError::Detail);
    }
    let node = NodeId::new(header[4].into()).ok_or(WireError::Node)?;
    let page = Page::new(word(header, 16)).ok_or(WireError::Page)?;
    let range = match about_range {
        true => Range::new(page, last).ok_or(WireError::Page)?,
        false => Range::one(page),
    };
    let (seq, txn, since) = (Seq(number), Txn(number), Time(last));
    let want = match detail {
        0 => Access::Read,
        _ => Access::Write,
    };
    let body = match kind {
        REQUEST => Body::Request {
            page,
            want,
            seq,
            since,
        },
        PULL => Body::Pull {
            page,
            want,
            txn,
            node,
            since,
        },
        INVALIDATE => Body::Invalidate {
            page,
            txn,
            node,
            since,
        },
        ACK => Body::Ack { page, txn },
        PAGE => Body::Contents { page, txn },
        GRANT => {
            let grant = match detail >> 1 {
                0 => Grant::Same,
                1 => Grant::Zero,
                _ => Grant::Contents,
            };
            let right = match detail & 1 {
                0 => Right::Read,
                _ => Right::Write,
            };
            Body::Grant {
                page,
                seq,
                grant,
                right,
            }
        }
        NAK => {
            let cause = match detail {
                0 => Cause::Gone,
                1 => Cause::Lost,
                _ => Cause::NoMemory,
            };
            Body::Nak { page, seq, cause }
        }
        DROP => Body::Drop { range },
        _ => Body::Dropped { range },
    };
    let most = if body.has_contents() { CONTENTS } else { 0 };
    match contents {
        n if n < most => return Err(WireError::Short),
        n if n > most => return Err(WireError::Long),
        _ => {}
    }
    let incarnation = Incarnation(u16::from_le_bytes([header[2], header[3]]));
    Ok(Message { incarnation, body })
}
