//! smallvec: vectors spill to the heap, shrink and drain, moving within closures, iterators and `Drop`.
#![no_std]
#![no_main]

use gallery::*;
use smallvec::{SmallVec, ToSmallVec, smallvec};

/// A value that moves the thread when it is dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item(u64, String);

impl Drop for Item {
    fn drop(&mut self) {
        hop_each(10);
    }
}

type Items = SmallVec<[Item; 4]>;

fn item(seed: &mut Seeded) -> Item {
    hop_each(12);
    Item(seed.below(1000), seed.prose(1))
}

fn show(name: &str, all: &Items) {
    let text = format!("{all:?}");
    say!(
        "{name}: {} of {}, spilled {}, {:016x}",
        all.len(),
        all.capacity(),
        all.spilled(),
        digest(text.as_bytes())
    );
}

fn program() -> Result<()> {
    let mut seed = Seeded(5);
    let mut all: Items = (0..3).map(|_| item(&mut seed)).collect();
    show("inline", &all);
    all.extend((0..400).map(|_| item(&mut seed)));
    show("spilled", &all);
    for n in 0..50 {
        all.insert(n * 7, item(&mut seed));
        let _ = all.swap_remove(n * 5);
    }
    show("inserted", &all);
    all.retain(|i| {
        hop_each(16);
        i.0 % 4 != 0
    });
    show("retained", &all);
    all.sort();
    all.dedup_by_key(|i| {
        hop_each(9);
        i.0 / 8
    });
    show("deduplicated", &all);
    let drained: Items = all.drain(5..40).collect();
    show("drained", &drained);
    show("left", &all);
    all.insert_many(2, drained.into_iter().rev().take(10));
    all.truncate(12);
    all.shrink_to_fit();
    show("short", &all);
    all.truncate(3);
    all.shrink_to_fit();
    show("inline again", &all);
    say!(
        "{:?} {:?}",
        all.first().map(|i| i.0),
        all.binary_search_by_key(&all[1].0, |i| i.0).is_ok()
    );

    let mut numbers: SmallVec<[u16; 8]> = smallvec![7; 5];
    numbers.extend_from_slice(&[1, 2, 3, 4]);
    numbers.resize_with(14, || {
        hop();
        9
    });
    let copy: SmallVec<[u16; 16]> = numbers.to_smallvec();
    let array: SmallVec<[u16; 8]> = numbers[..8].to_smallvec();
    let array = array.into_inner();
    say!("{numbers:?} {} {array:?}", copy == numbers);
    let nested: SmallVec<[SmallVec<[u8; 2]>; 2]> =
        (0..6).map(|n| smallvec![n; n as usize]).collect();
    say!("{nested:?}");
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
