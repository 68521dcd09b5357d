//! The reasons why a bundle is refused.

use core::fmt;

/// The reasons why a bundle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleError {
    /// The file is no bundle at all, or one that a different tool has written over.
    NotABundle(&'static str),
    /// The file ends early.
    Truncated {
        /// Bytes there should be, at least.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The file continues after its end.
    TrailingBytes {
        /// Bytes there should be.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// Built for another ABI version.
    AbiVersion {
        /// The version it was built for.
        found: u32,
    },
    /// The bytes are not those that were written.
    Corrupt {
        /// The checksum stored in the file.
        expected: u64,
        /// The checksum of the contents of the file.
        found: u64,
    },
    /// More loadable segments than a loader has room for.
    TooManySegments {
        /// The number of program headers.
        found: u16,
    },
    /// A name that is empty, not padded with NUL, or has a character other than letters, digits,
    /// `_` and `-`.
    BadName,
    /// A segment no loader may map.
    BadSegment {
        /// Number of its program header.
        index: u16,
        /// The fault of the segment.
        fault: SegmentFault,
    },
    /// Two segments claim the same page on one ISA, or the same page of the file.
    Overlap {
        /// Program header number of the first one.
        first: u16,
        /// Program header number of the second one.
        second: u16,
    },
    /// The entry point is misaligned or outside the executable bytes of some ISA.
    BadEntry {
        /// The entry point.
        entry: u64,
    },
    /// The place where invocations enter is misaligned or outside the executable bytes of some ISA.
    BadInvoked {
        /// The place.
        invoked: u64,
    },
}

/// The faults of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFault {
    /// A program header type that this ABI version does not define.
    UnknownType,
    /// Flags that this ABI version does not define, both ISAs at once, or not readable.
    BadFlags,
    /// Address or file offset is not a multiple of the page size.
    Misaligned,
    /// The segment is empty, or has more bytes in the file than in memory.
    BadLength,
    /// Addresses outside of what a program's image may occupy.
    OutOfRange,
    /// The segment's bytes are not all in the file, or are in the page of the headers.
    OutOfFile,
    /// Writable and executable.
    WriteAndExecute,
    /// Writable, but for one ISA only: the copies would diverge.
    WritablePerIsa,
    /// Executable, but the same bytes for every ISA.
    ExecutableShared,
}

impl SegmentFault {
    /// One sentence for people.
    pub const fn text(self) -> &'static str {
        match self {
            SegmentFault::UnknownType => "its type is not known to this ABI version",
            SegmentFault::BadFlags => "its flags are not ones this ABI version defines",
            SegmentFault::Misaligned => "its address or file offset is not page-aligned",
            SegmentFault::BadLength => "it is empty or longer in the file than in memory",
            SegmentFault::OutOfRange => "its addresses are outside the range of program images",
            SegmentFault::OutOfFile => "its bytes are not in the file",
            SegmentFault::WriteAndExecute => "it is writable and executable",
            SegmentFault::WritablePerIsa => "it is writable but belongs to one ISA only",
            SegmentFault::ExecutableShared => "it is executable but the same on every ISA",
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BundleError::NotABundle(why) => write!(f, "not a program bundle: {why}"),
            BundleError::Truncated { expected, found } => write!(
                f,
                "the bundle is truncated: {found} bytes, but at least {expected} belong to it"
            ),
            BundleError::TrailingBytes { expected, found } => write!(
                f,
                "the bundle should end after {expected} bytes, but there are {found}"
            ),
            BundleError::AbiVersion { found } => write!(
                f,
                "the bundle was built for ABI version {found}, this side has {}: build it again",
                crate::ABI_VERSION
            ),
            BundleError::Corrupt { expected, found } => write!(
                f,
                "the bundle is corrupted: its checksum should be {expected:#018x} but is {found:#018x}"
            ),
            BundleError::TooManySegments { found } => write!(
                f,
                "the bundle has {found} program headers, at most {} are possible",
                super::MAX_SEGMENTS + 1
            ),
            BundleError::BadName => f.write_str(
                "the bundle's name is not 1 to 32 letters, digits, '_' or '-' padded with NUL",
            ),
            BundleError::BadSegment { index, fault } => {
                write!(
                    f,
                    "segment {index} of the bundle is malformed: {}",
                    fault.text()
                )
            }
            BundleError::Overlap { first, second } => write!(
                f,
                "segments {first} and {second} of the bundle claim the same page"
            ),
            BundleError::BadEntry { entry } => write!(
                f,
                "the bundle's entry point {entry:#x} is not aligned code on every ISA"
            ),
            BundleError::BadInvoked { invoked } => write!(
                f,
                "the bundle's entry of invocations {invoked:#x} is not aligned code on every ISA"
            ),
        }
    }
}

impl core::error::Error for BundleError {}

impl From<BundleError> for crate::Error {
    fn from(e: BundleError) -> crate::Error {
        match e {
            BundleError::AbiVersion { .. } => crate::Error::BadVersion,
            _ => crate::Error::BadBundle,
        }
    }
}
