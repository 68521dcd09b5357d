//! Writing the file format of [`dyad_abi::bundle`].

use dyad_abi::ABI_VERSION;
use dyad_abi::bundle::{
    HEADER_SIZE, INFO_ABI, INFO_CHECKSUM, INFO_INVOKED, INFO_LEN, INFO_MAGIC, INFO_NAME, INFO_SIZE,
    MACHINE, MAX_NAME, PF_R, PF_W, PF_X, PHDR_SIZE, PT_INFO, PT_LOAD, Scope, checksum,
};
use dyad_abi::user::PAGE_SIZE;

/// A segment to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents<'a> {
    /// Which ISAs have it.
    pub scope: Scope,
    /// First address.
    pub va: u64,
    /// Length in memory.
    pub mem_len: u64,
    /// Initial contents.
    pub bytes: &'a [u8],
    /// Whether the program may write it.
    pub write: bool,
    /// Whether it is code.
    pub exec: bool,
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The file of the program `name` (cut off after [`MAX_NAME`] bytes) with these segments. `invoked`
/// is where invocations enter, 0 if there is no such place. It checks nothing: that is what the
/// parser is for.
pub fn write(name: &str, entry: u64, invoked: u32, segments: &[Contents<'_>]) -> Vec<u8> {
    let count = segments.len() + 1;
    let info = HEADER_SIZE + PHDR_SIZE * count;
    let mut file = vec![0; info + INFO_SIZE];
    // Magic, ELF64, little-endian, version 1; executable file; version 1.
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &2u16.to_le_bytes());
    put(&mut file, 18, &MACHINE.to_le_bytes());
    put(&mut file, 20, &1u32.to_le_bytes());
    put(&mut file, 24, &entry.to_le_bytes());
    put(&mut file, 32, &(HEADER_SIZE as u64).to_le_bytes());
    put(&mut file, 52, &(HEADER_SIZE as u16).to_le_bytes());
    put(&mut file, 54, &(PHDR_SIZE as u16).to_le_bytes());
    put(&mut file, 56, &(count as u16).to_le_bytes());
    let header = |file: &mut [u8], index: usize, kind: u32, flags: u32, words: [u64; 6]| {
        let at = HEADER_SIZE + PHDR_SIZE * index;
        put(file, at, &kind.to_le_bytes());
        put(file, at + 4, &flags.to_le_bytes());
        for (i, word) in words.into_iter().enumerate() {
            put(file, at + 8 + 8 * i, &word.to_le_bytes());
        }
    };
    let size = INFO_SIZE as u64;
    header(
        &mut file,
        0,
        PT_INFO,
        PF_R,
        [info as u64, 0, 0, size, size, 8],
    );
    for (i, s) in segments.iter().enumerate() {
        // Pages of the file can be mapped as they are: no two segments share one.
        file.resize(file.len().next_multiple_of(PAGE_SIZE as usize), 0);
        let offset = file.len() as u64;
        file.extend_from_slice(s.bytes);
        let mut flags = s.scope.flags() | PF_R;
        flags |= if s.write { PF_W } else { 0 };
        flags |= if s.exec { PF_X } else { 0 };
        let len = s.bytes.len() as u64;
        header(
            &mut file,
            i + 1,
            PT_LOAD,
            flags,
            [offset, s.va, s.va, len, s.mem_len, PAGE_SIZE],
        );
    }
    file.resize(file.len().next_multiple_of(PAGE_SIZE as usize), 0);
    put(&mut file, info, &INFO_MAGIC);
    put(&mut file, info + INFO_ABI, &ABI_VERSION.to_le_bytes());
    put(&mut file, info + INFO_INVOKED, &invoked.to_le_bytes());
    let len = file.len() as u64;
    put(&mut file, info + INFO_LEN, &len.to_le_bytes());
    let name = &name.as_bytes()[..name.len().min(MAX_NAME)];
    put(&mut file, info + INFO_NAME, name);
    let sum = checksum(&file, info + INFO_CHECKSUM);
    put(&mut file, info + INFO_CHECKSUM, &sum.to_le_bytes());
    file
}
