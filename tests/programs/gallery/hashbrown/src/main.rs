//! hashbrown: maps and sets grow, shrink and are joined, moving within `Hash`, `Eq` and closures.
#![no_std]
#![no_main]

use core::hash::{Hash, Hasher};

use gallery::*;
use hashbrown::{HashMap, HashSet, HashTable};

/// A key that moves the thread when it is hashed and when it is compared.
#[derive(Clone, Copy, Debug)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hop_each(21);
        state.write_u64(self.0 % 1000);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        hop_each(27);
        self.0 == other.0
    }
}

impl Eq for Key {}

fn program() -> Result<()> {
    let mut data = Seeded(2);
    let mut map: HashMap<Key, u64, Build> = HashMap::default();
    for n in 0..2000 {
        let key = Key(data.below(1500));
        *map.entry(key).or_insert_with(|| {
            hop_each(49);
            n
        }) += n;
    }
    let sum = map
        .iter()
        .fold(0u64, |h, (k, v)| h.wrapping_add((k.0 + 1) * v));
    say!(
        "{} keys, sum {sum}, {:016x}",
        map.len(),
        sorted(map.keys().map(|k| k.0))
    );
    map.retain(|k, v| {
        hop_each(51);
        !(k.0 + *v).is_multiple_of(3)
    });
    map.shrink_to_fit();
    say!(
        "{} kept, {:016x}",
        map.len(),
        sorted(map.keys().map(|k| k.0))
    );
    let removed: u64 = (0..1500).filter_map(|k| map.remove(&Key(k * 2))).sum();
    say!("removed {removed}, {} left", map.len());
    for wanted in [0, 7, 300, 1499] {
        say!("{wanted}: {:?}", map.get_key_value(&Key(wanted)));
    }

    let a: HashSet<Key, Build> = (0..300).map(|_| Key(data.below(400))).collect();
    let b: HashSet<Key, Build> = (0..300).map(|_| Key(data.below(400))).collect();
    let (both, one) = (&a & &b, &a ^ &b);
    say!(
        "{} + {} keys: {} in both, {} in one",
        a.len(),
        b.len(),
        both.len(),
        one.len()
    );
    say!("subset: {} {}", both.is_subset(&a), a.is_subset(&b));

    let mut table: HashTable<u64> = HashTable::new();
    let hash = |v: &u64| {
        hop_each(34);
        v.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    for _ in 0..500 {
        let v = data.below(700);
        table.entry(hash(&v), |w| *w == v, hash).or_insert(v);
    }
    say!(
        "{} in a table, {:016x}",
        table.len(),
        sorted(table.iter().copied())
    );
    Ok(())
}

/// A digest of numbers in ascending order: a map's own order depends on the width of its groups, which is that of the
/// host's vectors.
fn sorted(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = numbers.collect();
    all.sort_unstable_by(|a, b| {
        hop_each(106);
        a.cmp(b)
    });
    digest(
        &all.into_iter()
            .flat_map(u64::to_le_bytes)
            .collect::<Vec<_>>(),
    )
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
