//! postcard: structures to bytes and back, moving within `Serialize`, `Visitor` and a `Flavor`.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use core::fmt;

use gallery::*;
use postcard::ser_flavors::Flavor;
use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// A number that moves the thread when it is read or written.
#[derive(Clone, Debug, PartialEq)]
struct Reading(i64);

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        hop_each(250);
        s.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Reading, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Reading;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Reading, E> {
                hop_each(250);
                Ok(Reading(n))
            }
        }
        d.deserialize_i64(Number)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
enum Message {
    Ping,
    Text(String),
    Log {
        level: u8,
        at: (u32, f64),
        tags: BTreeMap<u16, String>,
    },
    Data(Vec<Reading>, Option<Box<Message>>),
}

/// A structure of fields of all kinds: the thread moves within what is derived for it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Order {
    name: String,
    unit: char,
    balance: i128,
    first: Reading,
    rule: Rule,
    wide: BTreeMap<String, Option<u128>>,
    parts: Vec<Order>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
enum Rule {
    Always,
    Above(i128, Box<Rule>),
    Both { left: Box<Rule>, right: Box<Rule> },
    Named(char, String, u128),
}

/// Bytes to which a checksum is appended; the thread moves as they come.
struct Summed {
    bytes: Vec<u8>,
    sum: u8,
}

impl Flavor for Summed {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        hop_each(19);
        self.sum = self.sum.wrapping_mul(3) ^ byte;
        self.bytes.push(byte);
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<Vec<u8>> {
        self.bytes.push(self.sum);
        Ok(self.bytes)
    }
}

fn message(seed: &mut Seeded, depth: u32) -> Message {
    match seed.below(if depth == 0 { 3 } else { 6 }) {
        0 => Message::Ping,
        1 => Message::Text(seed.prose(3)),
        2 => Message::Log {
            level: seed.below(256) as u8,
            at: (seed.word() as u32, seed.unit()),
            tags: (0..4)
                .map(|_| (seed.word() as u16, seed.prose(1)))
                .collect(),
        },
        _ => {
            let numbers = (0..10)
                .map(|n| Reading((seed.word() as i64) >> (n * 6)))
                .collect();
            Message::Data(numbers, Some(Box::new(message(seed, depth - 1))))
        }
    }
}

fn wide(seed: &mut Seeded) -> u128 {
    (u128::from(seed.word()) << 64 | u128::from(seed.word())) >> seed.below(128)
}

fn rule(seed: &mut Seeded, depth: u32) -> Rule {
    match seed.below(if depth == 0 { 2 } else { 4 }) {
        0 => Rule::Always,
        1 => Rule::Named('ß', seed.prose(1), wide(seed)),
        2 => Rule::Above(-(wide(seed) as i128 / 2), Box::new(rule(seed, depth - 1))),
        _ => Rule::Both {
            left: Box::new(rule(seed, depth - 1)),
            right: Box::new(rule(seed, depth - 1)),
        },
    }
}

fn order(seed: &mut Seeded, depth: u32) -> Order {
    Order {
        name: seed.prose(2),
        unit: ['k', 'µ', '字'][seed.below(3) as usize],
        balance: wide(seed) as i128,
        first: Reading(seed.word() as i64),
        rule: rule(seed, 3),
        wide: (0..seed.below(4))
            .map(|n| (seed.prose(1), (n != 1).then(|| wide(seed))))
            .collect(),
        parts: match depth {
            0 => Vec::new(),
            _ => (0..seed.below(4)).map(|_| order(seed, depth - 1)).collect(),
        },
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(21);
    let all: Vec<Message> = (0..60).map(|_| message(&mut seed, 3)).collect();
    let bytes = postcard::to_allocvec(&all)?;
    let again: Vec<Message> = postcard::from_bytes(&bytes)?;
    say!(
        "{} bytes, {:016x}, equal: {}",
        bytes.len(),
        digest(&bytes),
        again == all
    );
    for m in &all[..20] {
        let mut cobs = postcard::to_allocvec_cobs(m)?;
        let len = cobs.len();
        let sum = digest(&cobs);
        let back: Message = postcard::from_bytes_cobs(&mut cobs)?;
        let summed = postcard::serialize_with_flavor(
            m,
            Summed {
                bytes: Vec::new(),
                sum: 0,
            },
        )?;
        say!(
            "{len} bytes with COBS {sum:016x}, {} with a sum {:?}, equal: {}",
            summed.len(),
            summed.last(),
            back == *m
        );
    }
    say!("{:?}", again[3]);
    let mut wrong = 0;
    for n in (0..bytes.len()).step_by(5) {
        let mut bad = bytes.clone();
        bad[n] ^= 0x81;
        let found = postcard::from_bytes::<Vec<Message>>(&bad);
        wrong += usize::from(found.as_ref() != Ok(&all));
        if let Err(e) = found {
            say!("byte {n}: {e}");
        }
    }
    say!("{wrong} are noticed");
    let orders: Vec<Order> = (0..8).map(|_| order(&mut seed, 2)).collect();
    let bytes = postcard::to_allocvec(&orders)?;
    let again: Vec<Order> = postcard::from_bytes(&bytes)?;
    say!(
        "{} bytes of orders, {:016x}, equal: {}",
        bytes.len(),
        digest(&bytes),
        again == orders
    );
    say!("{:?}", again[1]);
    let (first, rest) = postcard::take_from_bytes::<u32>(&[0x85, 0x02, 9, 9])?;
    say!(
        "{first} {rest:?} {:?}",
        postcard::from_bytes::<u8>(&[]).map_err(|e| e.to_string())
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
