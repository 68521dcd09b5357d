//! Checking and reading. Every access is through `get`, so no input can panic.

use super::*;
use crate::user::{IMAGE_END, PAGE_SIZE, TEXT_BASE};

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_le_bytes)
}

/// `len` bytes from `offset`, if the file has them.
fn range(file: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    file.get(start..end)
}

/// A program header in the layout of the file.
#[derive(Clone, Copy)]
struct Phdr {
    kind: u32,
    flags: u32,
    offset: u64,
    va: u64,
    pa: u64,
    file_len: u64,
    mem_len: u64,
    align: u64,
}

impl Phdr {
    fn read(file: &[u8], index: u16) -> Phdr {
        let at = HEADER_SIZE + PHDR_SIZE * usize::from(index);
        Phdr {
            kind: u32_at(file, at),
            flags: u32_at(file, at + 4),
            offset: u64_at(file, at + 8),
            va: u64_at(file, at + 16),
            pa: u64_at(file, at + 24),
            file_len: u64_at(file, at + 32),
            mem_len: u64_at(file, at + 40),
            align: u64_at(file, at + 48),
        }
    }

    fn scope(&self) -> Option<Scope> {
        match self.flags & !(PF_R | PF_W | PF_X) {
            0 => Some(Scope::Shared),
            PF_X86_64 => Some(Scope::Isa(Isa::X86_64)),
            PF_AARCH64 => Some(Scope::Isa(Isa::Aarch64)),
            _ => None,
        }
    }

    /// The segment this header describes, checked on its own.
    fn segment<'a>(&self, file: &'a [u8]) -> Result<Segment<'a>, SegmentFault> {
        if self.kind != PT_LOAD {
            return Err(SegmentFault::UnknownType);
        }
        let scope = self.scope().ok_or(SegmentFault::BadFlags)?;
        if self.flags & PF_R == 0 {
            return Err(SegmentFault::BadFlags);
        }
        let aligned = |n: u64| n.is_multiple_of(PAGE_SIZE);
        if !aligned(self.va)
            || !aligned(self.offset)
            || self.pa != self.va
            || self.align != PAGE_SIZE
        {
            return Err(SegmentFault::Misaligned);
        }
        if self.mem_len == 0 || self.file_len > self.mem_len {
            return Err(SegmentFault::BadLength);
        }
        let end = self.va.checked_add(self.mem_len);
        if self.va < TEXT_BASE || end.is_none_or(|end| end > IMAGE_END) {
            return Err(SegmentFault::OutOfRange);
        }
        let bytes = range(file, self.offset, self.file_len).ok_or(SegmentFault::OutOfFile)?;
        if self.offset == 0 && self.file_len != 0 {
            return Err(SegmentFault::OutOfFile);
        }
        let (write, exec) = (self.flags & PF_W != 0, self.flags & PF_X != 0);
        match scope {
            _ if write && exec => Err(SegmentFault::WriteAndExecute),
            Scope::Isa(_) if write => Err(SegmentFault::WritablePerIsa),
            Scope::Shared if exec => Err(SegmentFault::ExecutableShared),
            _ => Ok(Segment {
                scope,
                va: self.va,
                mem_len: self.mem_len,
                offset: self.offset,
                bytes,
                write,
                exec,
            }),
        }
    }
}

/// Whether the whole pages of `[a, a + a_len)` and `[b, b + b_len)` have one in common.
fn pages_meet(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    let end =
        |start: u64, len: u64| start.saturating_add(len).saturating_add(PAGE_SIZE - 1) / PAGE_SIZE;
    a_len != 0 && b_len != 0 && a / PAGE_SIZE < end(b, b_len) && b / PAGE_SIZE < end(a, a_len)
}

fn header(file: &[u8]) -> Result<u16, BundleError> {
    const IDENT: [u8; 8] = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    if !file.iter().zip(&IDENT).all(|(a, b)| a == b) {
        return Err(BundleError::NotABundle(
            "it is not a little-endian ELF64 file",
        ));
    }
    let need = |n: usize| {
        if file.len() < n {
            return Err(BundleError::Truncated {
                expected: n as u64,
                found: file.len() as u64,
            });
        }
        Ok(())
    };
    need(HEADER_SIZE)?;
    if u16_at(file, 18) != MACHINE {
        return Err(BundleError::NotABundle(
            "it is an ELF file for another machine",
        ));
    }
    let shape = u16_at(file, 16) == 2
        && u32_at(file, 20) == 1
        && u64_at(file, 32) == HEADER_SIZE as u64
        && usize::from(u16_at(file, 52)) == HEADER_SIZE
        && usize::from(u16_at(file, 54)) == PHDR_SIZE;
    if !shape {
        return Err(BundleError::NotABundle("its ELF header has another form"));
    }
    let count = u16_at(file, 56);
    if usize::from(count) > MAX_SEGMENTS + 1 {
        return Err(BundleError::TooManySegments { found: count });
    }
    need(HEADER_SIZE + PHDR_SIZE * usize::from(count))?;
    Ok(count)
}

/// Checks the info record, and with it the length and the checksum of the file; gives the name and
/// where invocations enter.
fn info(file: &[u8], count: u16) -> Result<(&str, u64), BundleError> {
    let mut infos = (0..count)
        .map(|i| Phdr::read(file, i))
        .filter(|p| p.kind == PT_INFO);
    let (Some(phdr), None) = (infos.next(), infos.next()) else {
        return Err(BundleError::NotABundle(
            "it does not have exactly one info record",
        ));
    };
    if phdr.file_len != INFO_SIZE as u64 {
        return Err(BundleError::NotABundle("its info record has another size"));
    }
    let Some(info) = range(file, phdr.offset, phdr.file_len) else {
        return Err(BundleError::Truncated {
            expected: phdr.offset.saturating_add(phdr.file_len),
            found: file.len() as u64,
        });
    };
    if !info.starts_with(&INFO_MAGIC) {
        return Err(BundleError::NotABundle("its info record has another magic"));
    }
    // Before anything else: another version may mean anything by the rest.
    let found = u32_at(info, INFO_ABI);
    if found != crate::ABI_VERSION {
        return Err(BundleError::AbiVersion { found });
    }
    let (expected, found) = (u64_at(info, INFO_LEN), file.len() as u64);
    if found < expected {
        return Err(BundleError::Truncated { expected, found });
    }
    if found > expected {
        return Err(BundleError::TrailingBytes { expected, found });
    }
    let expected = u64_at(info, INFO_CHECKSUM);
    let found = checksum(file, phdr.offset as usize + INFO_CHECKSUM);
    if found != expected {
        return Err(BundleError::Corrupt { expected, found });
    }
    let padded = info.get(INFO_NAME..).unwrap_or_default();
    let len = padded.iter().position(|&b| b == 0).unwrap_or(padded.len());
    let (name, padding) = padded.split_at(len);
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || !name.iter().all(plain) || padding.iter().any(|&b| b != 0) {
        return Err(BundleError::BadName);
    }
    let name = core::str::from_utf8(name).map_err(|_| BundleError::BadName)?;
    Ok((name, u32_at(info, INFO_INVOKED).into()))
}

pub(super) fn bundle(file: &[u8]) -> Result<Bundle<'_>, BundleError> {
    let headers = header(file)?;
    let (name, invoked) = info(file, headers)?;
    let entry = u64_at(file, 24);
    let load = |index: u16| -> Result<Option<Segment<'_>>, BundleError> {
        let phdr = Phdr::read(file, index);
        if phdr.kind == PT_INFO {
            return Ok(None);
        }
        phdr.segment(file)
            .map(Some)
            .map_err(|fault| BundleError::BadSegment { index, fault })
    };
    for second in 0..headers {
        let Some(b) = load(second)? else { continue };
        for first in 0..second {
            let Some(a) = load(first)? else { continue };
            let memory = a.scope.meets(b.scope) && pages_meet(a.va, a.mem_len, b.va, b.mem_len);
            let (a_len, b_len) = (a.bytes.len() as u64, b.bytes.len() as u64);
            if memory || pages_meet(a.offset, a_len, b.offset, b_len) {
                return Err(BundleError::Overlap { first, second });
            }
        }
    }
    let bundle = Bundle {
        file,
        headers,
        entry,
        invoked,
        name,
    };
    let can_start = |at: u64| {
        let starts_on = |isa| {
            bundle.segments_of(isa).any(|s| {
                // Room for one AArch64 instruction.
                s.exec && at >= s.va && at.saturating_add(4) <= s.va + s.bytes.len() as u64
            })
        };
        at.is_multiple_of(4) && Isa::ALL.into_iter().all(starts_on)
    };
    if !can_start(entry) {
        return Err(BundleError::BadEntry { entry });
    }
    if invoked != 0 && !can_start(invoked) {
        return Err(BundleError::BadInvoked { invoked });
    }
    Ok(bundle)
}

/// The loadable segments of a file that `bundle` has accepted.
pub(super) fn segments(file: &[u8], count: u16) -> impl Iterator<Item = Segment<'_>> + Clone {
    (0..count).filter_map(move |i| Phdr::read(file, i).segment(file).ok())
}
