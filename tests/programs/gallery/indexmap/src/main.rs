//! indexmap: maps and sets that keep their order, sorted and drained, moving within `Hash` and closures.
#![no_std]
#![no_main]

use core::hash::{Hash, Hasher};

use gallery::*;
use indexmap::map::Entry;
use indexmap::{Equivalent, IndexMap, IndexSet};

type Map<V> = IndexMap<Word, V, Build>;

/// A key that moves the thread when it is hashed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Word(String);

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hop_each(7);
        self.0.hash(state);
    }
}

/// A borrowed form of a key.
struct Text<'a>(&'a str);

impl Hash for Text<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hop_each(4);
        self.0.hash(state);
    }
}

impl Equivalent<Word> for Text<'_> {
    fn equivalent(&self, key: &Word) -> bool {
        hop_each(6);
        self.0 == key.0
    }
}

fn show(name: &str, map: &Map<u64>) {
    let text = format!("{map:?}");
    say!(
        "{name}: {} words, {:016x}, first {:?}, last {:?}",
        map.len(),
        digest(text.as_bytes()),
        map.first(),
        map.last()
    );
}

fn program() -> Result<()> {
    let mut seed = Seeded(12);
    let mut map: Map<u64> = Map::default();
    for n in 0..800 {
        let word = format!("{}{}", seed.prose(1), seed.below(30));
        match map.entry(Word(word)) {
            Entry::Occupied(mut e) => *e.get_mut() += n,
            Entry::Vacant(e) => {
                e.insert(1);
            }
        }
    }
    show("counted", &map);
    say!(
        "{:?} {:?}",
        map.get(&Text("node7")),
        map.get_index_of(&Text("über3"))
    );
    map.sort_by(|a, m, b, n| {
        hop_each(21);
        n.cmp(m).then(a.cmp(b))
    });
    show("by count", &map);
    say!(
        "{:?}",
        map.iter()
            .take(5)
            .map(|(w, n)| (w.0.as_str(), n))
            .collect::<Vec<_>>()
    );
    map.retain(|word, _| {
        hop_each(9);
        !word.0.ends_with('3')
    });
    say!(
        "{:?} {:?}",
        map.swap_remove(&Text("a1")),
        map.shift_remove(&Text("the2"))
    );
    map.move_index(0, 40);
    map.swap_indices(3, 30);
    show("retained", &map);
    let drained: Map<u64> = map.drain(10..60).map(|(w, n)| (w, n * 2)).collect();
    show("drained", &drained);
    map.sort_unstable_keys();
    show("left", &map);
    say!(
        "{:?} {:?}",
        map.binary_search_keys(&Word("frame20".into())),
        map.partition_point(|w, _| w.0.as_str() < "of")
    );
    map.extend(drained);
    map.reverse();
    let other = map.split_off(100);
    show("front", &map);
    show("back", &other);

    let mut words = |n| {
        (0..n)
            .map(|_| seed.below(200))
            .collect::<IndexSet<u64, Build>>()
    };
    let (a, b) = (words(150), words(150));
    say!("{:?}", a.intersection(&b).take(10).collect::<Vec<_>>());
    say!(
        "{} {} {}",
        (&a | &b).len(),
        (&a - &b).len(),
        a.is_disjoint(&b)
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
