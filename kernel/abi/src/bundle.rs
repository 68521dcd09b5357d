//! The bundle: one file holding one program for every ISA.
//!
//! A bundle is a little-endian ELF64 file with program headers only. Everything that is the same
//! on every ISA is stored once; program text and constant pools are stored once per ISA, at the
//! same addresses.
//!
//! | header | meaning |
//! |---|---|
//! | `e_machine` | [`MACHINE`] |
//! | `e_entry` | address of `_dyad_start`, the same on every ISA |
//! | `PT_LOAD` | a [`Segment`]; `p_flags` has `R`, `W`, `X` and at most one of [`PF_X86_64`], [`PF_AARCH64`] |
//! | [`PT_INFO`] | the [info record](INFO_SIZE), exactly one |
//!
//! The info record, 64 bytes:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | [`INFO_MAGIC`] |
//! | 8 | 4 | [`ABI_VERSION`](crate::ABI_VERSION) |
//! | 12 | 4 | address of `_dyad_invoked`, where [invocations](crate::service::invoke_stack) enter; 0 if there is no such place |
//! | 16 | 8 | length of the file |
//! | 24 | 8 | [`checksum`] of the file with this field as zeros |
//! | 32 | 32 | name, padded with NUL |
//!
//! [`Bundle::parse`] checks everything a loader relies on, so that a loader is a loop over
//! [`Bundle::segments`]: bounds, page alignment, the address range, that nothing overlaps on any
//! ISA (neither in memory nor in the file), that nothing is writable and executable, that per-ISA
//! segments are never writable and executable ones are always per-ISA, and that the entry points are
//! in executable bytes on every ISA.

mod error;
mod parse;
#[cfg(test)]
mod tests;

pub use error::{BundleError, SegmentFault};

use crate::Isa;

/// `e_machine` of a bundle.
pub const MACHINE: u16 = 0xD1AD;
/// Size of the ELF header; the program headers follow it directly.
pub const HEADER_SIZE: usize = 64;
/// Size of a program header.
pub const PHDR_SIZE: usize = 56;
/// Most loadable segments of a bundle.
pub const MAX_SEGMENTS: usize = 32;

/// Program header type of loadable segments.
pub const PT_LOAD: u32 = 1;
/// Program header type of the info record.
pub const PT_INFO: u32 = 0x6d69_6700;
/// Program header type kept free for migration-site tables; refused in this ABI version.
pub const PT_SITES: u32 = 0x6d69_6701;

/// `p_flags`: executable.
pub const PF_X: u32 = 1;
/// `p_flags`: writable.
pub const PF_W: u32 = 1 << 1;
/// `p_flags`: readable; every segment is.
pub const PF_R: u32 = 1 << 2;
/// `p_flags`: exists on x86-64 only.
pub const PF_X86_64: u32 = 1 << 20;
/// `p_flags`: exists on AArch64 only.
pub const PF_AARCH64: u32 = 1 << 21;

/// First bytes of the info record.
pub const INFO_MAGIC: [u8; 8] = *b"DYADBNDL";
/// Size of the info record.
pub const INFO_SIZE: usize = 64;
/// Offset of the ABI version within the info record.
pub const INFO_ABI: usize = 8;
/// Offset of the address where invocations enter within the info record. All addresses of an image
/// have 32 bits.
pub const INFO_INVOKED: usize = 12;
/// Offset of the file length within the info record.
pub const INFO_LEN: usize = 16;
/// Offset of the checksum within the info record.
pub const INFO_CHECKSUM: usize = 24;
/// Offset of the name within the info record.
pub const INFO_NAME: usize = 32;
/// Longest program name.
pub const MAX_NAME: usize = INFO_SIZE - INFO_NAME;

/// The ISAs that see a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All ISAs, with the same bytes: one physical copy.
    Shared,
    /// One of them; another may have other bytes at the same address.
    Isa(Isa),
}

impl Scope {
    /// Whether a segment of this scope exists on `isa`.
    pub const fn sees(self, isa: Isa) -> bool {
        match self {
            Scope::Shared => true,
            Scope::Isa(i) => i as u8 == isa as u8,
        }
    }

    /// Whether some ISA sees segments of both scopes.
    pub const fn meets(self, other: Scope) -> bool {
        match (self, other) {
            (Scope::Isa(a), Scope::Isa(b)) => a as u8 == b as u8,
            _ => true,
        }
    }

    /// The bits of `p_flags` for the scope.
    pub const fn flags(self) -> u32 {
        match self {
            Scope::Shared => 0,
            Scope::Isa(Isa::X86_64) => PF_X86_64,
            Scope::Isa(Isa::Aarch64) => PF_AARCH64,
        }
    }
}

/// A range of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The ISAs that have the segment.
    pub scope: Scope,
    /// First address, page-aligned.
    pub va: u64,
    /// Length in memory; not 0, not necessarily whole pages. What `bytes` does not cover is zero.
    pub mem_len: u64,
    /// The page-aligned offset of `bytes` in the file.
    pub offset: u64,
    /// The initial contents, at most `mem_len` bytes.
    pub bytes: &'a [u8],
    /// Whether the program may write it; then it is shared and not executable.
    pub write: bool,
    /// Whether the segment is code; then it belongs to one ISA.
    pub exec: bool,
}

/// A bundle that has been checked completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    file: &'a [u8],
    headers: u16,
    entry: u64,
    invoked: u64,
    name: &'a str,
}

impl<'a> Bundle<'a> {
    /// Checks `file` and gives access to it. `file` is the bundle and nothing else.
    ///
    /// # Errors
    ///
    /// Anything that is not a well-formed bundle of this [ABI version](crate::ABI_VERSION).
    pub fn parse(file: &'a [u8]) -> Result<Bundle<'a>, BundleError> {
        parse::bundle(file)
    }

    /// Address of the entry point, the same on every ISA.
    pub const fn entry(&self) -> u64 {
        self.entry
    }

    /// Address where invocations of the program enter, the same on every ISA; `None` if it provides
    /// no service.
    pub const fn invoked(&self) -> Option<u64> {
        match self.invoked {
            0 => None,
            at => Some(at),
        }
    }

    /// Name of the program: letters, digits, `_` and `-`.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The segments, in file order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + Clone + use<'a> {
        parse::segments(self.file, self.headers)
    }

    /// The segments that exist on `isa`, in file order.
    pub fn segments_of(&self, isa: Isa) -> impl Iterator<Item = Segment<'a>> + Clone + use<'a> {
        self.segments().filter(move |s| s.scope.sees(isa))
    }
}

/// FNV-1a, 64 bits, over `file` with the eight bytes at `field` taken as zeros.
///
/// It finds accidents, not attacks: every step is a bijection of the running value, so any change
/// of one byte changes the result.
pub fn checksum(file: &[u8], field: usize) -> u64 {
    let (before, rest) = file.split_at(field.min(file.len()));
    let (hidden, after) = rest.split_at(rest.len().min(8));
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    let h = before
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| step(h, b));
    let h = hidden.iter().fold(h, |h, _| step(h, 0));
    after.iter().fold(h, |h, &b| step(h, b))
}
