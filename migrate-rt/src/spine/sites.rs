//! Sites in the linked programs: where calls return to, how large frames are, and the table of both
//! for the frame transform.

use super::error::SpineError;
use super::{LEAF, PLAIN, ROOT, Spine};
use crate::verify::{self, SiteAt, SpineInfo};
use dyad_abi::Isa;
use dyad_migrate::{BASE, HEADER_WORDS, MAGIC, Places, SLOT_WORDS, Slot};
use goblin::elf::Elf;
use std::collections::{BTreeMap, BTreeSet};

/// The section in which linked programs keep the back ends' stack maps. It takes no memory.
pub const SECTION: &str = ".dyad_stackmaps";
/// The symbol of the table of sites.
pub const TABLE: &str = "dyad_sites";
/// The routine that calls the root; where that call returns to is the end of every chain of frames.
pub const ENTER: &str = "dyad_spine_enter";

/// A stack map: number, first address of the function, address of the map, frame size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Map {
    id: u64,
    function: u64,
    at: u64,
    frame: u64,
}

fn bad(why: impl Into<String>) -> SpineError {
    SpineError::Sites(why.into())
}

/// Reads version 3 of LLVM's stack maps.
fn maps(bytes: &[u8]) -> Option<Vec<Map>> {
    let word = |at: usize, len: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(bytes.get(at..at + len)?);
        Some(u64::from_le_bytes(word))
    };
    let mut out = Vec::new();
    let mut at = 0;
    // The linker puts the maps of several objects one behind the other.
    while at < bytes.len() {
        if word(at, 1)? != 3 {
            return None;
        }
        let counts = [4, 8, 12].map(|o| word(at + o, 4));
        let [functions, constants, records] = counts;
        let (functions, constants) = (functions? as usize, constants? as usize);
        let mut record = at + 16 + 24 * functions + 8 * constants;
        let mut seen = 0;
        for f in 0..functions {
            let entry = at + 16 + 24 * f;
            for _ in 0..word(entry + 16, 8)? {
                let locations = word(record + 14, 2)? as usize;
                out.push(Map {
                    id: word(record, 8)?,
                    function: word(entry, 8)?,
                    at: word(entry, 8)? + word(record + 8, 4)?,
                    frame: word(entry + 8, 8)?,
                });
                let live_outs = (record + 16 + 12 * locations).next_multiple_of(8);
                let count = word(live_outs + 2, 2)? as usize;
                record = (live_outs + 4 + 4 * count).next_multiple_of(8);
                seen += 1;
            }
        }
        if seen != records? || record > bytes.len() {
            return None;
        }
        at = record;
    }
    Some(out)
}

/// What the verifier is told about the program `file` for `isa`.
///
/// # Errors
///
/// If the stack maps and the code do not fit.
pub fn of_program(isa: Isa, file: &[u8], spine: &Spine) -> Result<SpineInfo, SpineError> {
    let elf = Elf::parse(file).map_err(|e| bad(e.to_string()))?;
    let section = elf
        .section_headers
        .iter()
        .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(SECTION));
    let bytes = section
        .and_then(|s| file.get(s.file_range()?))
        .unwrap_or_default();
    let maps = maps(bytes).ok_or_else(|| bad("the stack maps cannot be read"))?;
    let places: Vec<(u64, u64)> = maps.iter().map(|m| (m.function, m.at)).collect();
    let returns = verify::calls_before(isa, file, &places).map_err(bad)?;
    let known: BTreeMap<u64, &super::Site> = spine.sites.iter().map(|s| (s.id, s)).collect();
    let mut sites = Vec::new();
    let mut plain: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (map, ret) in maps.iter().zip(returns) {
        if map.id >= PLAIN {
            // A back end that has taken the call away has left the one before it, of which more is asked then.
            if let Some(ret) = ret {
                plain.entry(ret).or_default().insert(map.id);
            }
            continue;
        }
        let site = known
            .get(&map.id)
            .ok_or_else(|| bad(format!("the back end knows a site {}", map.id)))?;
        let ret = ret.ok_or_else(|| {
            let function = crate::demangle(&site.function);
            bad(format!(
                "there is no call before site {} of {function}",
                map.id
            ))
        })?;
        sites.push(SiteAt {
            id: map.id,
            function: site.function.clone(),
            ret,
            frame: map.frame,
            targets: site.targets.clone(),
        });
    }
    // What nothing calls any more has no code.
    let present = |name: &String| {
        elf.syms
            .iter()
            .any(|s| elf.strtab.get_at(s.st_name) == Some(name))
    };
    Ok(SpineInfo {
        functions: spine
            .functions
            .iter()
            .filter(|n| present(n))
            .cloned()
            .collect(),
        leaves: vec![LEAF.to_owned()],
        sites,
        plain,
        conventions: Some(spine.conventions.clone()),
    })
}

/// Number of stack maps of sites in an object file.
pub(crate) fn count_in_object(object: &[u8]) -> Result<u64, SpineError> {
    let elf = Elf::parse(object).map_err(|e| bad(e.to_string()))?;
    let section = elf
        .section_headers
        .iter()
        .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".llvm_stackmaps"));
    let bytes = section
        .and_then(|s| object.get(s.file_range()?))
        .unwrap_or_default();
    let maps = maps(bytes).ok_or_else(|| bad("the stack maps cannot be read"))?;
    Ok(maps.iter().filter(|m| m.id < PLAIN).count() as u64)
}

/// How many hash functions are tried. One in some hundreds of tables, of few sites, needs a second one.
const TRIES: u32 = 1000;

/// How many tables are compared. The first one with all recursive sites at their first places ends the search.
const TABLES: usize = 8;

/// Slots per ISA of a table of `sites` sites.
pub(crate) fn capacity(sites: u64) -> u64 {
    // At most a quarter full, with the end of chains as one more: what collides costs every frame.
    (4 * (sites + 1)).next_power_of_two().max(4)
}

/// Bytes of a table of `sites` sites.
pub(crate) fn table_size(sites: u64) -> u64 {
    8 * (HEADER_WORDS as u64 + 2 * capacity(sites) * SLOT_WORDS as u64)
}

/// Where the first call of [`ENTER`] returns to.
fn base(isa: Isa, file: &[u8]) -> Result<u64, SpineError> {
    let name = || bad(format!("{ENTER} does not call {ROOT}"));
    verify::first_return(isa, file, ENTER)
        .map_err(bad)?
        .ok_or_else(name)
}

/// The table of sites for the frame transform: for each ISA as the source a hash table of its return
/// addresses. A return address at its second place costs each frame a second look: those of recursive calls, to which most
/// frames of deep stacks return, come to their first places.
///
/// # Errors
///
/// If the two programs do not have the same sites.
pub fn table(
    files: [&[u8]; 2],
    spines: [&SpineInfo; 2],
    sites: &[super::Site],
) -> Result<Vec<u8>, SpineError> {
    let differing = verify::same_sites(spines);
    if !differing.is_empty() {
        return Err(SpineError::Verify(verify::VerifyError(differing)));
    }
    let count = spines[0].sites.len() as u64;
    let capacity = capacity(count);
    let by_id = spines.map(|s| {
        s.sites
            .iter()
            .map(|s| (s.id, s))
            .collect::<BTreeMap<_, _>>()
    });
    let bases = [base(Isa::X86_64, files[0])?, base(Isa::Aarch64, files[1])?];
    let recursive: BTreeSet<u64> = sites.iter().filter(|s| s.recursive).map(|s| s.id).collect();
    let mut parts: [Part; 2] = Default::default();
    for source in Isa::ALL {
        let (from, to) = (source.index(), source.other().index());
        let short =
            |v: u64| u32::try_from(v).map_err(|_| bad(format!("{v:#x} does not fit the table")));
        let slot = |id: &u64| {
            let (site, other) = (by_id[from][id], by_id[to][id]);
            // What the call has pushed belongs to the frame.
            let pushed = if source.other() == Isa::X86_64 { 8 } else { 0 };
            Ok::<_, SpineError>(Slot {
                ret: short(site.ret)?,
                other: short(other.ret)?,
                step: short(other.frame + pushed)?,
            })
        };
        let part = &mut parts[from];
        part.others.push(Slot {
            ret: short(bases[from])?,
            other: short(bases[to])?,
            step: BASE,
        });
        for id in by_id[from].keys() {
            match recursive.contains(id) {
                true => part.recursive.push(slot(id)?),
                false => part.others.push(slot(id)?),
            }
        }
    }
    let words = words(&parts, capacity, count)
        .ok_or_else(|| bad(format!("{count} sites find no places in a table")))?;
    Ok(words.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// The slots of one ISA.
#[derive(Default)]
struct Part {
    /// Of sites to which many frames of one stack may return.
    recursive: Vec<Slot>,
    /// The end of chains, and the slots of all other sites.
    others: Vec<Slot>,
}

/// The words of a table in which the fewest recursive sites are at their second places. `None` if the slots find no places.
fn words(parts: &[Part; 2], capacity: u64, count: u64) -> Option<Vec<u64>> {
    let tables = (0..TRIES).filter_map(|nth| {
        let places = Places::new(capacity, nth);
        let mut words = vec![MAGIC, capacity, places.word(), count];
        let mut second = 0;
        for part in parts {
            let mut slots = vec![Slot::default(); capacity as usize];
            // Of two slots with one first place, the earlier one gets it.
            let mut all = part.recursive.iter().chain(&part.others);
            if !all.all(|slot| places.put(&mut slots, *slot)) {
                return None;
            }
            let is_second = |slot: &&Slot| !places.is_at_first(&slots, **slot);
            second += part.recursive.iter().filter(is_second).count();
            words.extend(slots.into_iter().flat_map(Slot::words));
        }
        Some((second, words))
    });
    let mut best: Option<(usize, Vec<u64>)> = None;
    for table in tables.take(TABLES) {
        if best.as_ref().is_none_or(|best| table.0 < best.0) {
            best = Some(table);
        }
        if best.as_ref().is_some_and(|best| best.0 == 0) {
            break;
        }
    }
    best.map(|(_, words)| words)
}

/// Puts the table into a linked program.
///
/// # Errors
///
/// If the program has no room for it.
pub fn patch(file: &mut [u8], table: &[u8]) -> Result<(), SpineError> {
    let elf = Elf::parse(file).map_err(|e| bad(e.to_string()))?;
    let symbol = elf
        .syms
        .iter()
        .find(|s| elf.strtab.get_at(s.st_name) == Some(TABLE))
        .ok_or_else(|| bad("the program has no table of sites"))?;
    let section = elf
        .section_headers
        .get(symbol.st_shndx)
        .ok_or_else(|| bad("the table of sites is nowhere"))?;
    let at = symbol
        .st_value
        .checked_sub(section.sh_addr)
        .map(|o| o + section.sh_offset);
    let at = at.and_then(|at| usize::try_from(at).ok());
    let inside = symbol.st_size == table.len() as u64;
    let room = at
        .and_then(|at| file.get_mut(at..at + table.len()))
        .filter(|_| inside);
    room.ok_or_else(|| bad("the table of sites has another size"))?
        .copy_from_slice(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_maps_of_version_3_are_read() {
        let mut bytes = vec![3, 0, 0, 0];
        for n in [1u32, 1, 2] {
            bytes.extend(n.to_le_bytes());
        }
        for n in [0x4100_0000u64, 40, 2, 99] {
            bytes.extend(n.to_le_bytes());
        }
        for (id, at) in [(7u64, 0x10u32), (8, 0x20)] {
            bytes.extend(id.to_le_bytes());
            bytes.extend(at.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend([0; 8]);
        }
        let read = maps(&bytes).unwrap();
        let map = |id, at: u64| Map {
            id,
            function: 0x4100_0000,
            at: 0x4100_0000 + at,
            frame: 40,
        };
        assert_eq!(read, [map(7, 0x10), map(8, 0x20)]);
        for cut in 1..bytes.len() {
            assert_eq!(maps(&bytes[..cut]), None, "{cut}");
        }
    }

    /// However the addresses fall: a recursive site is looked up once, unless two of them have one first place.
    #[test]
    fn recursive_sites_are_at_their_first_places() {
        let mut random = dyad_random::SplitMix64(7);
        let mut second = 0;
        for _ in 0..200 {
            let mut slots = || {
                (0..40)
                    .map(|_| Slot {
                        ret: 0x4100_0000 | random.below(1 << 20) as u32,
                        other: 1,
                        step: 16,
                    })
                    .collect::<Vec<_>>()
            };
            let parts: [Part; 2] = std::array::from_fn(|_| Part {
                recursive: slots()[..1].to_vec(),
                others: slots(),
            });
            let count = 41;
            let capacity = capacity(count);
            let words = words(&parts, capacity, count).unwrap();
            let found = |part: usize, slot: &Slot| {
                let at = 4 + part * 2 * capacity as usize;
                let places = Places::new(capacity, 0);
                let all = &words[at..at + 2 * capacity as usize];
                let first = all.chunks(2).position(|w| w == slot.words()).unwrap();
                let mut empty = vec![Slot::default(); capacity as usize];
                assert!(places.put(&mut empty, *slot));
                empty[first] == *slot
            };
            for (n, part) in parts.iter().enumerate() {
                assert!(found(n, &part.recursive[0]));
                second += part.others.iter().filter(|s| !found(n, s)).count();
            }
        }
        // Others have collided with them.
        assert!(second > 100, "{second}");
    }
}
