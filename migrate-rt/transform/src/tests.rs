use super::{
    BASE, Fault, HEADER_WORDS, HEADROOM, KEPT, Landing, MAGIC, Memory, Places, SLOT_WORDS, Sites,
    Slot, stay, transform,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// Memory that knows which words were written, and what has been kept.
#[derive(Clone, Default)]
struct Words(BTreeMap<u64, u64>, Vec<u64>);

impl Memory for Words {
    fn read(&self, at: u64) -> u64 {
        *self.0.get(&at).unwrap_or(&0xdddd_dddd)
    }
    fn write(&mut self, at: u64, value: u64) {
        let before = self.0.insert(at, value);
        assert_ne!(before, Some(value), "written though it was there");
    }
    fn keep(&mut self, n: usize, word: u64) {
        assert!(n == self.1.len() && n < KEPT);
        self.1.push(word);
    }
    fn kept(&self, n: usize) -> u64 {
        self.1[n]
    }
}

impl Words {
    fn put(&mut self, at: u64, value: u64) {
        self.0.insert(at, value);
    }
    /// What was kept is over.
    fn forget(&mut self) {
        self.1.clear();
    }
}

const TOPS: [u64; 2] = [0x7000_0100_0000, 0x7100_0100_0000];
const SIZE: u64 = 1 << 20;
const BASES: [u32; 2] = [0x4100_0010, 0x4100_0014];

/// A site: return address and step, by ISA.
type Site = [(u32, u32); 2];

fn table(sites: &[Site]) -> Vec<u64> {
    (0..100)
        .find_map(|nth| try_table(sites, nth))
        .expect("a table")
}

fn try_table(sites: &[Site], nth: u32) -> Option<Vec<u64>> {
    let capacity = (4 * (sites.len() as u64 + 1)).next_power_of_two();
    let places = Places::new(capacity, nth);
    let mut words = vec![MAGIC, capacity, places.word(), sites.len() as u64];
    for from in 0..2 {
        let to = 1 - from;
        let mut slots = vec![Slot::default(); capacity as usize];
        let base = Slot {
            ret: BASES[from],
            other: BASES[to],
            step: BASE,
        };
        let sites = sites.iter().map(|s| Slot {
            ret: s[from].0,
            other: s[to].0,
            step: s[to].1,
        });
        for slot in sites.chain([base]) {
            if !places.put(&mut slots, slot) {
                return None;
            }
        }
        words.extend(slots.into_iter().flat_map(Slot::words));
    }
    assert_eq!(
        words.len(),
        HEADER_WORDS + 2 * capacity as usize * SLOT_WORDS
    );
    Some(words)
}

/// A stack of ISA `isa` with these sites from the root on: memory, frame pointer, return address.
fn stack(isa: usize, sites: &[Site]) -> (Words, u64, u64) {
    let mut words = Words::default();
    let (mut cfa, mut fp, mut ret) = (TOPS[isa], 0, u64::from(BASES[isa]));
    for site in sites {
        words.put(cfa - 16, fp);
        words.put(cfa - 8, ret);
        (fp, ret) = (cfa - 16, site[isa].0.into());
        cfa -= u64::from(site[isa].1);
    }
    (words, fp, ret)
}

fn some_sites() -> impl Strategy<Value = Vec<Site>> {
    prop::collection::btree_map(1u32..60_000, (2u32..40, 2u32..40, 0u32..16), 1..80).prop_map(|m| {
        let site = |(n, (x, a, off)): (u32, (u32, u32, u32))| {
            [
                (0x4101_0000 + 16 * n + off, 16 * x),
                (0x4101_0000 + 16 * n, 16 * a),
            ]
        };
        m.into_iter().map(site).collect()
    })
}

proptest! {
    /// The frames of the other ISA are those that its own calls would have made, and going back gives
    /// what was there.
    #[test]
    fn frames_are_those_that_calls_would_have_made(
        sites in some_sites(),
        path in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
        from in 0usize..2,
    ) {
        let words = table(&sites);
        let path: Vec<Site> = path.iter().map(|i| *i.get(&sites)).collect();
        let to = 1 - from;
        let (here, fp, ret) = stack(from, &path);
        let (there, there_fp, there_ret) = stack(to, &path);
        let mut memory = here.clone();
        let forth = Sites::of(&words, from).unwrap();
        let landing = transform(&forth, &mut memory, (fp, ret), (TOPS[to], SIZE)).unwrap();
        let room: u64 = path.iter().map(|s| u64::from(s[to].1)).sum();
        prop_assert_eq!(landing, Landing {
            pc: there_ret,
            sp: TOPS[to] - room,
            fp: there_fp,
            frames: path.len() as u64,
        });
        // On a node of the same ISA it goes on as it would here.
        let back = Sites::of(&words, to).unwrap();
        let room: u64 = path.iter().map(|s| u64::from(s[from].1)).sum();
        prop_assert_eq!(stay(&forth, &back, &here, (fp, ret)), Ok(Landing {
            pc: ret,
            sp: TOPS[from] - room,
            fp,
            frames: path.len() as u64,
        }));
        let mut expected = here.0.clone();
        expected.extend(&there.0);
        prop_assert_eq!(&memory.0, &expected, "records and nothing else");
        memory.forget();

        let back = Sites::of(&words, to).unwrap();
        let home = transform(&back, &mut memory, (landing.fp, landing.pc), (TOPS[from], SIZE)).unwrap();
        prop_assert_eq!((home.fp, home.pc), (fp, ret));
        prop_assert_eq!(&memory.0, &expected);
    }

    /// Whatever is on the stack: no panic, no endless walk, and nothing is written on failure.
    #[test]
    fn broken_stacks_are_refused(
        sites in some_sites(),
        path in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        which in any::<prop::sample::Index>(),
        value in any::<u64>(),
    ) {
        let words = table(&sites);
        let path: Vec<Site> = path.iter().map(|i| *i.get(&sites)).collect();
        let (mut memory, fp, ret) = stack(0, &path);
        let at = *which.get(&memory.0.keys().copied().collect::<Vec<_>>());
        memory.put(at, value);
        let before = memory.0.clone();
        let forth = Sites::of(&words, 0).unwrap();
        let _ = stay(&forth, &Sites::of(&words, 1).unwrap(), &memory, (fp, ret));
        if transform(&forth, &mut memory, (fp, ret), (TOPS[1], SIZE)).is_err() {
            prop_assert_eq!(memory.0, before);
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let site: Site = [(0x4101_0005, 48), (0x4101_0008, 32)];
    let words = table(&[site]);
    let forth = Sites::of(&words, 0).unwrap();
    let (memory, fp, ret) = stack(0, &[site, site]);
    let go = |memory: &Words, fp, ret, size| {
        transform(&forth, &mut memory.clone(), (fp, ret), (TOPS[1], size))
    };
    assert!(go(&memory, fp, ret, SIZE).is_ok());
    assert_eq!(
        go(&memory, fp, 0x4101_0006, SIZE),
        Err(Fault::UnknownReturn(0x4101_0006))
    );
    // Two frames of 32 bytes need 64 bytes, and what is left free.
    assert_eq!(go(&memory, fp, ret, HEADROOM + 63), Err(Fault::TooDeep));
    assert!(go(&memory, fp, ret, HEADROOM + 64).is_ok());
    assert_eq!(go(&memory, fp, ret, 64), Err(Fault::TooDeep));
    let back = Sites::of(&words, 1).unwrap();
    let keep = |memory: &Words, fp, ret| stay(&forth, &back, memory, (fp, ret));
    assert_eq!(
        keep(&memory, fp, 0x4101_0006),
        Err(Fault::UnknownReturn(0x4101_0006))
    );
    // A chain that never ends is as deep as any.
    let mut circle = memory.clone();
    circle.put(fp, fp);
    circle.put(fp + 8, ret);
    assert_eq!(go(&circle, fp, ret, SIZE), Err(Fault::TooDeep));
    assert_eq!(keep(&circle, fp, ret), Err(Fault::Broken(ret)));
    // It ends in the middle.
    let mut short = memory.clone();
    short.put(fp, 0);
    assert_eq!(go(&short, fp, ret, SIZE), Err(Fault::Broken(ret)));
    assert_eq!(keep(&short, fp, ret), Err(Fault::Broken(ret)));
    assert_eq!(
        go(&memory, 0, BASES[0].into(), SIZE),
        Err(Fault::Broken(BASES[0].into()))
    );
}

#[test]
fn what_is_no_table_is_refused() {
    let words = table(&[[(0x4101_0005, 48), (0x4101_0008, 32)]]);
    assert!(Sites::of(&words, 0).is_some() && Sites::of(&words, 1).is_some());
    assert!(Sites::of(&words, 2).is_none());
    for i in 0..words.len() {
        assert!(Sites::of(&words[..i], 1).is_none());
    }
    for (i, bad) in [(0, 0), (1, 0), (1, 3), (1, 1 << 40), (2, 3), (2, 64)] {
        let mut words = words.clone();
        words[i] = bad;
        assert!(Sites::of(&words, 0).is_none(), "{i} {bad}");
    }
}

/// Whatever the number of sites, there is a table after a few tries, and each address is at one of two places.
#[test]
fn tables_of_any_size_can_be_made() {
    let mut again = 0;
    for n in (1..200).chain([1_000, 4_095, 11_612, 50_000]) {
        // As calls lie in code: some bytes apart, by no rule.
        let mut at = 0x4100_0100_u32;
        let sites: Vec<Site> = (1..=n)
            .map(|i: u32| {
                at += 5 + i.wrapping_mul(0x9e37_79b9) % 60;
                [(at, 16 * (i % 100)), (at + 0x0080_0000 + i, 32)]
            })
            .collect();
        let nth = (0..10).find(|&nth| try_table(&sites, nth).is_some());
        let nth = nth.unwrap_or_else(|| panic!("{n} sites"));
        again += u32::from(nth > 0);
        let words = try_table(&sites, nth).unwrap();
        for (source, there) in [(0, 1), (1, 0)] {
            let table = Sites::of(&words, source).unwrap();
            for site in &sites {
                let ((ret, _), (other, step)) = (site[source], site[there]);
                let expected = u64::from(other) | u64::from(step) << 32;
                assert_eq!(table.find(ret.into()), Some(expected));
                assert_eq!(table.find(u64::from(ret) + 1), None);
            }
        }
    }
    assert!(again < 20, "{again} of 203 tables needed another hash");
}
