//! serde: a format of the program's own, moving within its `Serializer`, its `Deserializer` and what they call.
#![no_std]
#![no_main]

extern crate alloc;

mod format;

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use core::marker::PhantomData;

use format::{Sink, Source, Token, Wrong};
use gallery::*;
use serde::de::value::{MapDeserializer, SeqDeserializer, U32Deserializer};
use serde::de::{self, IgnoredAny, IntoDeserializer};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
enum Rule {
    Never,
    Above(i128),
    Between(u128, Option<f32>, char),
    All {
        rules: Vec<Rule>,
        but: Option<Box<Rule>>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(untagged)]
enum Loose {
    Small(i16),
    Text(String),
    Pair(f64, char),
    Rule(Rule),
    Table(BTreeMap<String, Loose>),
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "is")]
enum Inside {
    Plain,
    Of(Part<u8>),
    With { loose: Loose, n: Option<i64> },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Part<T> {
    a: T,
    b: (T, [u16; 2]),
    of: PhantomData<T>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Whole<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    short: &'a str,
    wide: u128,
    table: BTreeMap<String, Option<u128>>,
    twice: Option<Option<i8>>,
    rule: Box<Rule>,
    loose: Vec<Loose>,
    inside: Vec<Inside>,
    floats: (f32, f64),
    unit: (),
    wholes: Vec<Whole<'a>>,
    #[serde(flatten)]
    part: Part<i32>,
    #[serde(default)]
    absent: u8,
}

fn wide(seed: &mut Seeded) -> u128 {
    (u128::from(seed.word()) << 64 | u128::from(seed.word())) >> seed.below(128)
}

fn rule(seed: &mut Seeded, depth: u32) -> Rule {
    match seed.below(if depth == 0 { 3 } else { 5 }) {
        0 => Rule::Never,
        1 => Rule::Above(-(wide(seed) as i128 / 2)),
        2 => Rule::Between(
            wide(seed),
            (seed.below(2) == 0).then(|| seed.unit() as f32),
            'ß',
        ),
        _ => Rule::All {
            rules: (0..seed.below(4)).map(|_| rule(seed, depth - 1)).collect(),
            but: (seed.below(2) == 0).then(|| Box::new(rule(seed, depth - 1))),
        },
    }
}

fn loose(seed: &mut Seeded, depth: u32) -> Loose {
    match seed.below(if depth == 0 { 4 } else { 5 }) {
        0 => Loose::Small(seed.word() as i16),
        1 => Loose::Text(seed.prose(2)),
        2 => Loose::Pair(seed.unit(), 'q'),
        3 => Loose::Rule(Rule::Never),
        _ => Loose::Table(
            (0..seed.below(4))
                .map(|n| (format!("k{n}"), loose(seed, depth - 1)))
                .collect(),
        ),
    }
}

fn whole<'a>(seed: &mut Seeded, texts: &'a [String], depth: u32) -> Whole<'a> {
    let mut text = || &texts[seed.below(texts.len() as u64) as usize][..];
    let (name, short) = (Cow::Borrowed(text()), text());
    Whole {
        name,
        short,
        wide: wide(seed),
        table: (0..3)
            .map(|n| (seed.prose(1), (n != 1).then(|| wide(seed))))
            .collect(),
        twice: [None, Some(None), Some(Some(-3))][seed.below(3) as usize],
        rule: Box::new(rule(seed, 3)),
        loose: (0..3).map(|_| loose(seed, 2)).collect(),
        inside: (0..3)
            .map(|_| match seed.below(3) {
                0 => Inside::Plain,
                1 => Inside::Of(Part {
                    a: 1,
                    b: (seed.word() as u8, [seed.word() as u16; 2]),
                    of: PhantomData,
                }),
                _ => Inside::With {
                    loose: loose(seed, 1),
                    n: (seed.below(2) == 0).then(|| seed.word() as i64),
                },
            })
            .collect(),
        floats: (seed.unit() as f32, seed.unit()),
        unit: (),
        wholes: match depth {
            0 => Vec::new(),
            _ => (0..seed.below(3))
                .map(|_| whole(seed, texts, depth - 1))
                .collect(),
        },
        part: Part {
            a: seed.word() as i32,
            b: (-1, [seed.word() as u16, 7]),
            of: PhantomData,
        },
        absent: seed.word() as u8,
    }
}

fn write<T: Serialize>(what: &T) -> Result<Vec<Token>, Wrong> {
    let mut out = Sink(Vec::new());
    what.serialize(&mut out)?;
    Ok(out.0)
}

fn read<'a, T: Deserialize<'a>>(tokens: &'a [Token]) -> Result<T, Wrong> {
    let mut all = Source(tokens);
    let found = T::deserialize(&mut all)?;
    match all.0.len() {
        0 => Ok(found),
        n => Err(de::Error::invalid_length(n, &"nothing more")),
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(218);
    let texts: Vec<String> = (0..9).map(|n| seed.prose(n % 4)).collect();
    let all: Vec<Whole> = (0..8).map(|_| whole(&mut seed, &texts, 2)).collect();
    let tokens = write(&all)?;
    let shown = digest(format!("{tokens:?}").as_bytes());
    say!("{} tokens, {shown:016x}", tokens.len());
    match read::<Vec<Whole>>(&tokens) {
        Ok(again) => say!("equal: {}\n{:?}", again == all, again[1]),
        Err(e) => say!("{e}"),
    }
    let (_, n): (IgnoredAny, usize) = (read(&tokens)?, tokens.len());
    say!("{n} ignored");

    let one = write(&all[2])?;
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    for n in (0..one.len()).step_by(3) {
        let cut = read::<Whole>(&one[..n]).err();
        *said.entry(format!("cut: {cut:?}")).or_default() += 1;
        let mut bad = one.clone();
        bad[n] = match n % 4 {
            0 => Token::Signed(i128::MIN),
            1 => Token::Letter('\u{1f600}'),
            2 => Token::Text("none".into()),
            _ => Token::Bytes(vec![65, 66]),
        };
        let wrong = match read::<Whole>(&bad) {
            Ok(found) => format!("{}", found == all[2]),
            Err(e) => format!("{e}"),
        };
        *said.entry(wrong).or_default() += 1;
    }
    for (e, n) in &said {
        say!("{n} times: {e}");
    }

    // What serde itself deserializes from.
    for n in 0..40_u64 {
        let words = (0..n % 5).map(|k| (n << (8 * k)) as u32);
        let seq = SeqDeserializer::<_, Wrong>::new(words.inspect(|_| hop_each(5)));
        say!("{:?}", <(u8, u32, i64)>::deserialize(seq));
        let pairs = [("a", n as u32), ("b", 2), ("of", 3)];
        let pairs = pairs.into_iter().inspect(|_| hop_each(5));
        let map = MapDeserializer::<_, Wrong>::new(pairs);
        say!("{:?}", BTreeMap::<String, u8>::deserialize(map));
        let one: U32Deserializer<Wrong> = (n as u32).into_deserializer();
        say!("{:?}", Rule::deserialize(one));
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
