//! The reasons why an operation is refused.

use core::fmt;

use dyad_abi::Error;

/// The reasons why an operation on a capability table was refused. It has changed nothing, unless the variant
/// says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The slot of that index has no capability.
    NoCap,
    /// The capability is of another type.
    WrongCap,
    /// The capability does not permit that.
    Denied,
    /// The capability's guard has been revoked.
    Revoked,
    /// The node has no such slot or entry.
    BadIndex,
    /// A copy may not refer to more than its source does.
    BadRange,
    /// The slot or entry is in use.
    Occupied,
    /// The capability has a guard already.
    Guarded,
    /// Another node is changing the slot or entry: try again.
    Busy,
    /// A node may still read the old contents of the slot or entry: try again after a round.
    NotQuiesced,
    /// The slot holds another capability than expected.
    Changed,
    /// The table has no leaf at that index.
    NoLeaf,
    /// The liveness entry has been revoked as often as can be counted.
    Exhausted,
    /// A node of the table could not be pinned or unpinned.
    Pin(Error),
    /// Another node, which takes this node for dead, has recovered the slot or entry in the middle of the
    /// row.
    Lost,
    /// A word has a value that nothing writes.
    Corrupt,
}

impl Refused {
    /// One sentence for people.
    pub const fn text(self) -> &'static str {
        match self {
            Refused::NoCap => "there is no capability at that index",
            Refused::WrongCap => "the capability is of another type",
            Refused::Denied => "the capability does not permit that",
            Refused::Revoked => "the capability's guard has been revoked",
            Refused::BadIndex => "the node has no such slot or entry",
            Refused::BadRange => "a copy may not refer to more than its source",
            Refused::Occupied => "the slot or entry is in use",
            Refused::Guarded => "the capability has a guard already",
            Refused::Busy => "another node is changing the slot or entry: try again",
            Refused::NotQuiesced => {
                "some node may still read what the slot or entry held: try again after a round"
            }
            Refused::Changed => "the slot holds another capability than expected",
            Refused::NoLeaf => "there is no leaf at that index",
            Refused::Exhausted => "the liveness entry has been revoked too often to be counted",
            Refused::Pin(_) => "a node of the table could not be pinned",
            Refused::Lost => "another node has taken the slot or entry away",
            Refused::Corrupt => "a word of the table is not one that anybody writes",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Pin(why) => write!(f, "{}: {why}", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

impl core::error::Error for Refused {}

impl From<Refused> for Error {
    #[inline]
    fn from(r: Refused) -> Error {
        match r {
            Refused::NoCap | Refused::Changed => Error::NoCap,
            Refused::WrongCap => Error::WrongCap,
            Refused::Denied => Error::Denied,
            Refused::Revoked => Error::Revoked,
            Refused::BadIndex | Refused::BadRange => Error::BadArgument,
            Refused::Occupied | Refused::Guarded => Error::Exists,
            Refused::Busy | Refused::NotQuiesced => Error::Again,
            Refused::NoLeaf => Error::NotFound,
            Refused::Exhausted => Error::Full,
            Refused::Pin(why) => why,
            Refused::Lost => Error::NodeDead,
            Refused::Corrupt => Error::Corrupt,
        }
    }
}
