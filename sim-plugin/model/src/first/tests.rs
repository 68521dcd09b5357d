//! The first level against vectors, and its memo.

use proptest::prelude::*;

use super::memo::{GENERATION_BITS, PLACES};
use super::{FirstLevel, Name, Promise};
use crate::fixture::shape;
use crate::memory::{LINE_BITS, LINE_MASK};

#[derive(Clone, Debug)]
enum Op {
    /// Looks for a key, which may be good, and fills it in if it is not there.
    Access(u64, bool, Promise),
    Recall(u64, bool),
    Rekey(u64),
    Remove(u64),
    RemoveLine(u64),
    ForgetLine(u64),
    ForgetNames,
}

fn op() -> impl Strategy<Value = Op> {
    // Few lines with few versions, so that they meet; the last line there is among them.
    let line = prop_oneof![9 => 0u64..300, 1 => Just(LINE_MASK)];
    let key = (line, 0u64..3).prop_map(|(line, version)| line | version << LINE_BITS);
    (key, 0..64u8, any::<bool>()).prop_map(|(key, kind, flag)| match kind {
        0..20 => Op::Access(key, flag, Promise::Read),
        20..30 => Op::Access(key, true, Promise::Write),
        30..54 => Op::Recall(key, flag),
        54..57 => Op::Rekey(key),
        57..59 => Op::Remove(key),
        59..61 => Op::RemoveLine(key),
        61..63 => Op::ForgetLine(key),
        _ => Op::ForgetNames,
    })
}

proptest! {
    /// Against vectors of keys and promises, most recently used first. (Names are lines here, and
    /// so few that no two of them have the same place; the last line has one by itself.)
    #[test]
    fn agrees_with_vectors(
        sets in 0u32..5,
        ways in 1u32..=64,
        ops in proptest::collection::vec(op(), 0..600),
    ) {
        let sets = 1u64 << sets;
        let mut cache = FirstLevel::new(shape(sets, ways));
        let mut model = vec![Vec::<(u64, Option<Promise>)>::new(); sets as usize];
        let mut uses = 0;
        for op in ops {
            if let Op::ForgetNames = op {
                cache.forget_names();
                model.iter_mut().flatten().for_each(|copy| copy.1 = None);
                continue;
            }
            let (Op::Access(key, ..) | Op::Recall(key, _) | Op::Rekey(key) | Op::Remove(key)
                | Op::RemoveLine(key) | Op::ForgetLine(key)) = op else { unreachable!() };
            let line = key & LINE_MASK;
            let set = &mut model[(line % sets) as usize];
            let same = set.iter().position(|&(k, _)| k == key);
            let of_line = set.iter().position(|&(k, _)| k & LINE_MASK == line);
            match op {
                Op::Access(_, good, promise) => {
                    uses += 1;
                    let found = cache.touch(key, LINE_MASK, good);
                    prop_assert_eq!(found, good && same.is_some());
                    if !found {
                        cache.fill(key);
                    }
                    cache.remember(Name(line), promise);
                    match of_line {
                        Some(i) => { set.remove(i); }
                        None if set.len() == ways as usize => { set.pop(); }
                        None => {}
                    }
                    set.insert(0, (key, Some(promise)));
                }
                Op::Recall(_, write) => {
                    let good = of_line.filter(|&i| match set[i].1 {
                        None => false,
                        Some(Promise::Read) => !write,
                        Some(Promise::Write) => true,
                    });
                    prop_assert!(!cache.recall::<true>(Name(line), 1));
                    let found = match write {
                        true => cache.recall::<true>(Name(line), 0),
                        false => cache.recall::<false>(Name(line), 0),
                    };
                    prop_assert_eq!(found, good.is_some());
                    if let Some(i) = good {
                        uses += 1;
                        let copy = set.remove(i);
                        set.insert(0, copy);
                    }
                }
                Op::Rekey(_) => {
                    let new = key + (1 << LINE_BITS);
                    prop_assert_eq!(cache.rekey(key, new), same.is_some());
                    if let Some(i) = same {
                        set[i] = (new, None);
                    }
                }
                Op::Remove(_) => {
                    prop_assert_eq!(cache.remove(key, u64::MAX), same.is_some());
                    same.map(|i| set.remove(i));
                }
                Op::RemoveLine(_) => {
                    prop_assert_eq!(cache.remove(key, LINE_MASK), of_line.is_some());
                    of_line.map(|i| set.remove(i));
                }
                Op::ForgetLine(_) => {
                    cache.forget_line(line);
                    if let Some(i) = of_line {
                        set[i].1 = None;
                    }
                }
                Op::ForgetNames => unreachable!(),
            }
            let keys = set.iter().map(|&(key, _)| key).collect::<Vec<_>>();
            prop_assert_eq!(cache.keys(line), keys);
            prop_assert_eq!(cache.holds(key), set.iter().any(|&(k, _)| k == key));
            prop_assert_eq!(cache.uses(), uses);
            let mut promised = cache.promises().collect::<Vec<_>>();
            let all = model.iter().flatten();
            let mut expected = all.filter_map(|&(k, p)| Some((k, p?))).collect::<Vec<_>>();
            promised.sort_unstable_by_key(|&(key, _)| key);
            expected.sort_unstable_by_key(|&(key, _)| key);
            prop_assert_eq!(promised, expected);
        }
    }
}

#[test]
fn no_promise_survives_however_often_names_are_forgotten() {
    let mut cache = FirstLevel::new(shape(4, 4));
    for i in 0..3 * (1 << GENERATION_BITS) {
        assert!(!cache.recall::<false>(Name(7), 0));
        if !cache.touch(7, LINE_MASK, true) {
            cache.fill(7);
        }
        // Some stay while others are made and forgotten.
        if i % (1 << (GENERATION_BITS - 1)) == 0 {
            cache.remember(Name(7), Promise::Write);
            assert!(cache.recall::<true>(Name(7), 0));
        }
        cache.forget_names();
    }
}

#[test]
fn what_is_hidden_is_remembered_and_forgotten_all_the_same() {
    let mut cache = FirstLevel::new(shape(4, 4));
    cache.hide_names(true);
    assert!(!cache.touch(0, LINE_MASK, true));
    cache.fill(0);
    cache.remember(Name(0), Promise::Write);
    for name in [0, 1, 2047, 1 << 41] {
        assert!(!cache.recall::<false>(Name(name), 0));
        assert!(!cache.recall::<true>(Name(name), 0));
    }
    cache.hide_names(false);
    assert!(cache.recall::<true>(Name(0), 0));
    cache.hide_names(true);
    cache.forget_names();
    cache.hide_names(false);
    assert!(!cache.recall::<false>(Name(0), 0));
}

#[test]
fn names_that_share_a_place_and_names_of_one_copy_are_told_apart() {
    let mut cache = FirstLevel::new(shape(64, 8));
    let far = |i: u64| Name(5 + i * PLACES as u64);
    for line in [5, 6] {
        assert!(!cache.touch(line, LINE_MASK, true));
        cache.fill(line);
        cache.remember(far(line), Promise::Read);
    }
    // The second took the place of the first.
    assert!(!cache.recall::<false>(far(5), 0));
    assert!(cache.recall::<false>(far(6), 0));
    assert!(!cache.recall::<true>(far(6), 0));
    // Only the last name of a copy is remembered.
    assert!(cache.touch(6, LINE_MASK, true));
    cache.remember(Name(100), Promise::Write);
    assert!(!cache.recall::<false>(far(6), 0));
    assert!(cache.recall::<true>(Name(100), 0));
    assert!(!cache.recall::<true>(Name(100 | 1 << 41), 0));
}

/// More copies than entries can name.
#[test]
fn a_large_first_level_works_with_what_it_remembers() {
    let mut cache = FirstLevel::new(shape(1 << 14, 8));
    let line = |i: u64| i * 5 % (1 << 17);
    for i in 0..1 << 17 {
        assert!(!cache.touch(line(i), LINE_MASK, true));
        cache.fill(line(i));
        cache.remember(Name(line(i)), Promise::Read);
    }
    let found = (0..1 << 17).filter(|&i| cache.touch(line(i), LINE_MASK, true));
    assert_eq!(found.count(), 1 << 17);
    assert!(cache.promises().count() > 0);
    for (key, _) in cache.clone().promises() {
        assert_eq!(cache.remembered(Name(key)), Some(key));
        assert!(cache.recall::<false>(Name(key), 0));
    }
}

#[test]
#[should_panic(expected = "3 sets")]
fn sets_are_a_power_of_two() {
    FirstLevel::new(shape(3, 4));
}
