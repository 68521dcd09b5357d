//! ciborium: structures and values of fields of all kinds, moving within `Read`, `Write` and `Visitor`.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;
use core::marker::PhantomData;

use ciborium::Value;
use ciborium_io::{Read, Write};
use gallery::*;
use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Numbers of 128 bits that move the thread when they are read or written.
#[derive(Clone, Debug, PartialEq)]
struct Sums(Vec<i128>);

impl Serialize for Sums {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut all = s.serialize_seq(Some(self.0.len()))?;
        for n in &self.0 {
            hop_each(6);
            all.serialize_element(n)?;
        }
        all.end()
    }
}

impl<'de> Deserialize<'de> for Sums {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sums, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Sums;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("sums that grow")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Sums, A::Error> {
                let mut all: Vec<i128> = Vec::new();
                while let Some(n) = seq.next_element()? {
                    hop_each(6);
                    if all.last().is_some_and(|last| *last > n) {
                        return Err(serde::de::Error::custom(format_args!("{n} is too small")));
                    }
                    all.push(n);
                }
                Ok(Sums(all))
            }
        }
        d.deserialize_seq(All)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shape {
    Point,
    Circle {
        radius: f64,
        at: (f32, f32),
    },
    Path {
        corners: Vec<(i16, i16)>,
        closed: bool,
    },
    Group(Group),
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Group {
    shapes: Vec<Shape>,
    scale: f32,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
enum Rule {
    Always,
    Limit(i128),
    Range(u64, Option<char>),
    Not(Box<Rule>),
    Any { of: Vec<Rule>, weight: u128 },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Named<T, M> {
    value: T,
    text: Cow<'static, str>,
    mark: PhantomData<M>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Drawing {
    title: String,
    sums: Sums,
    unit: char,
    #[serde(with = "serde_bytes")]
    raw: Vec<u8>,
    key: ByteBuf,
    shapes: Vec<Shape>,
    rule: Option<Box<Rule>>,
    table: BTreeMap<String, Option<u128>>,
    set: BTreeSet<(u8, char)>,
    named: Named<[u16; 4], Rule>,
    tuple: (i8, i64, f64, ()),
    parts: Vec<Drawing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

/// A source of bytes that moves the thread.
struct Source<'a>(&'a [u8]);

impl Read for Source<'_> {
    type Error = String;

    fn read_exact(&mut self, data: &mut [u8]) -> Result<(), String> {
        hop_each(61);
        let (wanted, had) = (data.len(), self.0.len());
        let (first, rest) = self
            .0
            .split_at_checked(wanted)
            .ok_or_else(|| format!("{wanted} bytes are wanted of {had}"))?;
        data.copy_from_slice(first);
        self.0 = rest;
        Ok(())
    }
}

/// A place for bytes that moves the thread, and is full at its limit.
struct Sink {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Sink {
    type Error = usize;

    fn write_all(&mut self, data: &[u8]) -> Result<(), usize> {
        hop_each(61);
        let free = self.limit - self.bytes.len();
        match data.len() <= free {
            true => self.bytes.extend_from_slice(data),
            false => return Err(data.len() - free),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), usize> {
        Ok(())
    }
}

fn write<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, String> {
    let mut sink = Sink {
        bytes: Vec::new(),
        limit,
    };
    match ciborium::into_writer(value, &mut sink) {
        Ok(()) => Ok(sink.bytes),
        Err(e) => Err(format!("{e} after {}", sink.bytes.len())),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    ciborium::from_reader(Source(bytes)).map_err(|e| format!("{e}"))
}

fn wide(seed: &mut Seeded) -> u128 {
    (u128::from(seed.word()) << 64 | u128::from(seed.word())) >> seed.below(128)
}

fn shape(seed: &mut Seeded, depth: u32) -> Shape {
    match seed.below(if depth == 0 { 3 } else { 5 }) {
        0 => Shape::Point,
        1 => Shape::Circle {
            radius: seed.unit() * 9.0,
            at: (seed.unit() as f32, 0.5),
        },
        2 => Shape::Path {
            corners: (0..seed.below(5))
                .map(|n| (seed.word() as i16, n as i16))
                .collect(),
            closed: seed.below(2) == 0,
        },
        _ => Shape::Group(Group {
            shapes: (0..seed.below(4)).map(|_| shape(seed, depth - 1)).collect(),
            scale: seed.unit() as f32,
        }),
    }
}

fn rule(seed: &mut Seeded, depth: u32) -> Rule {
    match seed.below(if depth == 0 { 3 } else { 5 }) {
        0 => Rule::Always,
        1 => Rule::Limit(-(wide(seed) as i128 / 2)),
        2 => Rule::Range(seed.word(), (seed.below(2) == 0).then_some('字')),
        3 => Rule::Not(Box::new(rule(seed, depth - 1))),
        _ => Rule::Any {
            of: (0..seed.below(3)).map(|_| rule(seed, depth - 1)).collect(),
            weight: wide(seed),
        },
    }
}

fn drawing(seed: &mut Seeded, depth: u32) -> Drawing {
    let mut sums: Vec<i128> = (0..4).map(|_| wide(seed) as i128 / 2).collect();
    sums.push(-(wide(seed) as i128 / 5));
    sums.sort_unstable();
    Drawing {
        title: seed.prose(2),
        sums: Sums(sums),
        unit: ['m', 'µ', '\u{1f600}'][seed.below(3) as usize],
        raw: seed.bytes(9),
        key: ByteBuf::from(seed.bytes(3)),
        shapes: (0..3).map(|_| shape(seed, 2)).collect(),
        rule: (seed.below(4) != 0).then(|| Box::new(rule(seed, 3))),
        table: (0..4)
            .map(|n| (seed.prose(1), (n != 1).then(|| wide(seed))))
            .collect(),
        set: (0..3)
            .map(|n| (seed.word() as u8, ['a', 'ß', 'c'][n]))
            .collect(),
        named: Named {
            value: [seed.word() as u16; 4],
            text: Cow::Owned(seed.prose(1)),
            mark: PhantomData,
        },
        tuple: (seed.word() as i8, seed.word() as i64, seed.unit(), ()),
        parts: match depth {
            0 => Vec::new(),
            _ => (0..seed.below(3))
                .map(|_| drawing(seed, depth - 1))
                .collect(),
        },
        note: (seed.below(2) == 0).then(|| seed.prose(3)),
        more: (0..seed.below(3))
            .map(|n| (format!("more-{n}"), Value::from(seed.word() >> (n * 20))))
            .collect(),
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(212);
    let all: Vec<Drawing> = (0..10).map(|_| drawing(&mut seed, 2)).collect();
    let bytes = write(&all, usize::MAX).map_err(Error::msg)?;
    let again: Vec<Drawing> = read(&bytes).map_err(Error::msg)?;
    say!(
        "{} bytes, {:016x}, equal: {}",
        bytes.len(),
        digest(&bytes),
        again == all
    );
    say!("{:?}", again[1]);
    let value = Value::serialized(&all[1]).map_err(failed)?;
    say!("{value:?}");
    let typed: Drawing = value.deserialized().map_err(failed)?;
    say!("equal by way of a value: {}", typed == all[1]);

    let one = write(&all[4], usize::MAX).map_err(Error::msg)?;
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    for n in (0..one.len()).step_by(7) {
        let cut = read::<Drawing>(&one[..n]).err().unwrap_or_default();
        *said.entry(format!("cut: {cut}")).or_default() += 1;
        let full = write(&all[4], n).err().unwrap_or_default();
        say!("room for {n}: {full}");
        let mut bad = one.clone();
        bad[n] ^= 0x21;
        let wrong = match read::<Drawing>(&bad) {
            Ok(found) => format!("{}", found == all[4]),
            Err(e) => e,
        };
        *said.entry(format!("wrong: {wrong}")).or_default() += 1;
    }
    for (e, n) in &said {
        say!("{n} times: {e}");
    }
    let sums = [Value::from(7), Value::from(5)].to_vec();
    say!("{:?}", Value::Array(sums).deserialized::<Sums>());
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
