// SPDX-License-Identifier: GPL-2.0-or-later
//! Where translated code is in physical memory. QEMU tells a plugin the host address of code only,
//! so host addresses are taken back to what is mapped there: a pool, which is a file that the
//! launcher names, or the machine's own memory, which is the one anonymous mapping of its size.
//!
//! Physical addresses do not depend on where the host has put anything, so that runs are repeatable.

use std::os::unix::fs::MetadataExt;

use dyad_abi::Isa;
use dyad_abi::boot::LOCAL_STRIDE;

const GIB: u64 = 1 << 30;

/// What a stretch of host memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    /// Offset of its start in the file or in the machine's memory.
    offset: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pool { base: u64 },
    Own,
}

/// A pool: the file that holds it, and its physical start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFile {
    device: (u64, u64),
    inode: u64,
    base: u64,
}

impl PoolFile {
    /// The pool at `base` in the file at `path`.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn open(path: &str, base: u64) -> Result<PoolFile, String> {
        let m = std::fs::metadata(path).map_err(|e| format!("no pool at {path}: {e}"))?;
        let device = m.dev();
        Ok(PoolFile {
            // As glibc's gnu_dev_major and gnu_dev_minor.
            device: (
                (device >> 8 & 0xfff) | (device >> 32 & !0xfff),
                (device & 0xff) | (device >> 12 & !0xff),
            ),
            inode: m.ino(),
            base,
        })
    }
}

/// Takes host addresses of code to physical addresses.
#[derive(Debug)]
pub struct CodeMap {
    isa: Isa,
    pools: Vec<PoolFile>,
    stretches: Vec<Stretch>,
    /// How often the map may still be read anew: code in ROM is in none of the stretches.
    attempts: u32,
}

impl CodeMap {
    /// A map that knows nothing yet: QEMU makes memory after it has loaded plugins.
    pub fn new(isa: Isa, pools: Vec<PoolFile>) -> CodeMap {
        CodeMap {
            isa,
            pools,
            stretches: Vec::new(),
            attempts: 8,
        }
    }

    /// The physical address of code at a host address; `None` if it is not in memory that can
    /// also be data: firmware in a ROM.
    pub fn physical(&mut self, host: u64) -> Option<u64> {
        if let Some(found) = self.find(host) {
            return Some(found);
        }
        if self.attempts == 0 {
            return None;
        }
        self.attempts -= 1;
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        self.stretches = parse(&maps, &self.pools, own_bytes(self.isa));
        self.find(host)
    }

    fn find(&self, host: u64) -> Option<u64> {
        let s = self
            .stretches
            .iter()
            .find(|s| (s.start..s.end).contains(&host))?;
        let offset = host - s.start + s.offset;
        Some(match (s.what, self.isa) {
            (What::Pool { base }, _) => base + offset,
            (What::Own, Isa::Aarch64) => offset + GIB,
            // The hole below 4 GiB begins at 2 GiB.
            (What::Own, Isa::X86_64) if offset < 2 * GIB => offset,
            (What::Own, Isa::X86_64) => offset + 2 * GIB,
        })
    }
}

/// Bytes of a machine's own memory; what the launcher gives it.
const fn own_bytes(isa: Isa) -> u64 {
    match isa {
        Isa::X86_64 => LOCAL_STRIDE - 2 * GIB,
        Isa::Aarch64 => LOCAL_STRIDE - GIB,
    }
}

/// Finds the stretches in the text of `/proc/self/maps`.
fn parse(maps: &str, pools: &[PoolFile], own: u64) -> Vec<Stretch> {
    maps.lines()
        .filter_map(|line| stretch(line, pools, own))
        .collect()
}

fn stretch(line: &str, pools: &[PoolFile], own: u64) -> Option<Stretch> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let mode = words.next()?;
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (hex(major)?, hex(minor)?);
    let inode: u64 = words.next()?.parse().ok()?;
    if inode == 0 {
        let whole = end - start == own && mode.starts_with("rw") && words.next().is_none();
        return whole.then_some(Stretch {
            start,
            end,
            offset: 0,
            what: What::Own,
        });
    }
    let pool = pools
        .iter()
        .find(|p| p.inode == inode && p.device == device)?;
    Some(Stretch {
        start,
        end,
        offset,
        what: What::Pool { base: pool.base },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c1000000 r-xp 00000000 fe:00 1234 /usr/bin/qemu
7e1000000000-7e1380000000 rw-p 00000000 00:00 0
7e1380000000-7e1380001000 ---p 00000000 00:00 0
7e5000000000-7e5010000000 rw-s 00000000 00:19 77 /memory/#77 (deleted)
7e6000000000-7e6000200000 rw-s 00400000 00:19 78 /memory/#78 (deleted)
7e7000000000-7e7010000000 rw-s 00000000 00:1a 77 /elsewhere
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
";

    fn map(isa: Isa) -> CodeMap {
        let pools = [(77, 16 * GIB), (78, 256 * GIB)].map(|(inode, base)| PoolFile {
            device: (0, 0x19),
            inode,
            base,
        });
        CodeMap {
            isa,
            stretches: parse(MAPS, &pools, own_bytes(isa)),
            pools: pools.into(),
            attempts: 0,
        }
    }

    #[test]
    fn host_addresses_become_physical_ones() {
        let mut x86 = map(Isa::X86_64);
        assert_eq!(x86.physical(0x7e10_0000_1234), Some(0x1234));
        assert_eq!(
            x86.physical(0x7e10_0000_0000 + 2 * GIB),
            Some(4 * GIB),
            "above the hole"
        );
        assert_eq!(x86.physical(0x7e50_0000_0040), Some(16 * GIB + 0x40));
        assert_eq!(x86.physical(0x7e60_0000_0040), Some(256 * GIB + 0x40_0040));
        for elsewhere in [0x55d0_c000_0000, 0x7e70_0000_0000, 0x7ffc_0000_0000, 0] {
            assert_eq!(x86.physical(elsewhere), None);
        }
        // The mapping has the size of an x86-64 machine's memory, not of an AArch64 one's.
        assert_eq!(map(Isa::Aarch64).physical(0x7e10_0000_1234), None);
    }

    #[test]
    fn pools_are_known_by_file_whatever_they_are_called() {
        let path = std::env::temp_dir().join(format!("dyad-sim-code-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let pool = PoolFile::open(path.to_str().unwrap(), 5 * GIB);
        std::fs::remove_file(&path).unwrap();
        let pool = pool.unwrap();
        let (major, minor) = pool.device;
        let line = format!(
            "7f0000000000-7f0000001000 rw-s 00001000 {major:02x}:{minor:02x} {} /x\n",
            pool.inode
        );
        let stretches = parse(&line, &[pool], 0);
        assert_eq!(stretches.len(), 1);
        assert_eq!(stretches[0].what, What::Pool { base: 5 * GIB });
        assert!(PoolFile::open("/no/such/pool", 0).is_err());
    }
}
