//! The reasons why a row is refused.

use core::fmt;

use dyad_abi::Error;

use crate::word::FrameType;

/// The reasons why a row was refused. A refused row has changed nothing, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// No pool has a frame of this number.
    NoFrame,
    /// The frame holds structures of the system.
    Reserved,
    /// The frame's version has run out.
    Retired,
    /// The frame has another type.
    WrongType,
    /// The frame has been retyped since.
    Stale,
    /// The block is too small, or not aligned as the request needs it.
    WrongOrder,
    /// The frame still has references.
    InUse,
    /// The word has no room for another reference.
    TooManyRefs,
    /// A node is changing the frame: try again.
    Busy,
    /// The frame is being recovered: try again.
    Frozen,
    /// A node may still hold translations or references: try again after a round.
    NotQuiesced,
    /// Others were faster each time: try again.
    Contended,
    /// Not every frame of the block has been initialised yet. The claim stays valid.
    Unfinished,
    /// Another node, which takes this node for dead, has recovered the frame in the middle of the row.
    Lost,
    /// The record has a malformed word.
    Corrupt,
}

impl Refused {
    /// The reason why a frame that is not in use cannot be used.
    pub const fn unusable(ty: FrameType) -> Refused {
        match ty {
            FrameType::Reserved => Refused::Reserved,
            FrameType::Retired => Refused::Retired,
            FrameType::Retyping(_) => Refused::Busy,
            FrameType::Frozen(_) => Refused::Frozen,
            FrameType::Untyped(_)
            | FrameType::User(_)
            | FrameType::Kernel(_)
            | FrameType::Tail(_) => Refused::WrongType,
        }
    }

    /// One sentence for people.
    pub const fn text(self) -> &'static str {
        match self {
            Refused::NoFrame => "no pool has such a frame",
            Refused::Reserved => "the frame holds structures of the system",
            Refused::Retired => "the frame's version has run out",
            Refused::WrongType => "the frame has another type",
            Refused::Stale => "the frame has changed hands since",
            Refused::WrongOrder => "the block does not have the size or alignment needed",
            Refused::InUse => "there are references left",
            Refused::TooManyRefs => "there is no room for another reference",
            Refused::Busy => "a node is changing the frame: try again",
            Refused::Frozen => "the frame is being recovered: try again",
            Refused::NotQuiesced => "some node may still use the frame: try again after a round",
            Refused::Contended => "other nodes were faster each time: try again",
            Refused::Unfinished => "not every frame of the block has been initialised",
            Refused::Lost => "another node has taken the frame away",
            Refused::Corrupt => "the record holds a word that no row writes",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refused {}

impl From<Refused> for Error {
    fn from(r: Refused) -> Error {
        match r {
            Refused::NoFrame | Refused::WrongType | Refused::WrongOrder => Error::BadArgument,
            Refused::Reserved => Error::Denied,
            Refused::Retired | Refused::Stale => Error::NotFound,
            Refused::InUse => Error::Exists,
            Refused::TooManyRefs => Error::Full,
            Refused::Busy
            | Refused::Frozen
            | Refused::NotQuiesced
            | Refused::Contended
            | Refused::Unfinished => Error::Again,
            Refused::Lost => Error::NodeDead,
            Refused::Corrupt => Error::Corrupt,
        }
    }
}
