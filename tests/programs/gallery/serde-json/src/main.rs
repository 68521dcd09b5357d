//! serde_json: text is parsed into structures and written again, moving within `Serialize` and `Deserialize`.
#![no_std]
#![no_main]

extern crate alloc;

use core::fmt;

use alloc::collections::BTreeMap;
use gallery::*;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A number that moves the thread when it is read or written.
#[derive(Debug, PartialEq)]
struct Reading(f64);

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        hop_each(5);
        s.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Reading, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Reading;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number below 1000")
            }

            fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Reading, E> {
                hop_each(5);
                match n < 1000.0 {
                    true => Ok(Reading(n)),
                    false => Err(E::custom("too large")),
                }
            }
        }
        d.deserialize_f64(Number)
    }
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Sensor {
    Heat { unit: char, at: Vec<Reading> },
    Wind { gusts: BTreeMap<String, Reading> },
    Silent,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Station {
    name: String,
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    sensors: Vec<Sensor>,
}

fn station(data: &mut Seeded, number: u64) -> Station {
    let mut reading = || Reading(data.unit() * 300.0 - 100.0);
    let at = (0..12).map(|_| reading()).collect();
    let gusts = (0..6).map(|n| (format!("h{n}"), reading())).collect();
    Station {
        name: format!("{} \"{number}\"\n\u{1f600}", data.prose(2)),
        number: data.word(),
        note: number.is_multiple_of(3).then(|| data.prose(3)),
        sensors: vec![
            Sensor::Heat { unit: 'C', at },
            Sensor::Wind { gusts },
            Sensor::Silent,
        ],
    }
}

/// How many stations are equal. Floating-point numbers are read to within a bit, unless a feature asks for more.
fn equal(a: &[Station], b: &[Station]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b).count()
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}

fn program() -> Result<()> {
    let mut data = Seeded(1);
    let all: Vec<Station> = (0..20).map(|n| station(&mut data, n)).collect();
    let text = serde_json::to_string(&all)?;
    say!(
        "{} bytes, digest {:016x}",
        text.len(),
        digest(text.as_bytes())
    );
    say!("{}", serde_json::to_string_pretty(&all[0])?);
    let again: Vec<Station> = serde_json::from_str(&text)?;
    let second = serde_json::to_string(&again)?;
    say!(
        "{} equal after a round trip, digest {:016x}",
        equal(&again, &all),
        digest(second.as_bytes())
    );

    let value: Value = serde_json::from_str(&text)?;
    say!(
        "{}",
        value
            .pointer("/3/sensors/1/gusts/h4")
            .unwrap_or(&Value::Null)
    );
    let typed: Vec<Station> = serde_json::from_value(value)?;
    say!("{} equal by way of a value", equal(&typed, &again));
    for wrong in [
        "[1,2",
        "{\"a\":tru}",
        "[{\"kind\":\"heat\"}]",
        "[{\"kind\":\"heat\",\"unit\":\"C\",\"at\":[1e4]}]",
        "\"\\ud800\"",
        "1e999",
    ] {
        let e = serde_json::from_str::<Vec<Sensor>>(wrong).err();
        say!("{wrong}: {}", e.map_or_else(String::new, |e| e.to_string()));
    }
    say!("{}", serde_json::Error::custom("of the program"));
    Ok(())
}
