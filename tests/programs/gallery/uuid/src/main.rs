//! uuid: identifiers of versions 1 to 8, moving within a `ClockSequence` and while text is written.
#![no_std]
#![no_main]

use core::cell::Cell;
use core::fmt::{self, Write};

use gallery::*;
use uuid::{Builder, ClockSequence, Timestamp, Uuid};

/// A clock sequence that moves the thread when it is asked.
struct Clock(Cell<u16>);

impl ClockSequence for Clock {
    type Output = u16;

    fn generate_sequence(&self, _seconds: u64, nanos: u32) -> u16 {
        hop_each(2);
        self.0.set(self.0.get().wrapping_add(1 + nanos as u16 % 3));
        self.0.get()
    }

    fn usable_bits(&self) -> usize {
        14
    }
}

/// Text that moves the thread as it is written.
struct Slow(String);

impl Write for Slow {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        hop_each(3);
        self.0.push_str(s);
        Ok(())
    }
}

fn show(name: &str, id: Uuid) -> Result<()> {
    let mut text = Slow(String::new());
    write!(
        text,
        "{} {:X} {} {}",
        id,
        id.simple(),
        id.urn(),
        id.braced()
    )?;
    let back = [
        text.0.split(' ').all(|t| Uuid::parse_str(t) == Ok(id)),
        Uuid::from_u128(id.as_u128()) == id,
    ];
    say!(
        "{name}: {} {:?} {:?} {back:?}",
        text.0,
        id.get_version(),
        id.get_variant()
    );
    Ok(())
}

fn program() -> Result<()> {
    let mut seed = Seeded(20);
    let clock = Clock(Cell::new(7));
    for n in 0..25 {
        let (seconds, nanos) = (seed.below(4_000_000_000), seed.below(1_000_000_000) as u32);
        let node: [u8; 6] = core::array::from_fn(|_| seed.word() as u8);
        let at = Timestamp::from_unix(&clock, seconds, nanos);
        let (one, six) = (Uuid::new_v1(at, &node), Uuid::new_v6(at, &node));
        show("v1", one)?;
        show("v6", six)?;
        say!(
            "  {:?} {:?} {}",
            one.get_timestamp().map(|t| t.to_unix()),
            one.get_node_id() == Some(node),
            one < six
        );
        let name = format!("{} {n}", seed.prose(2));
        show("v3", Uuid::new_v3(&Uuid::NAMESPACE_DNS, name.as_bytes()))?;
        show("v5", Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()))?;
        let random = seed.bytes(16).try_into().map_err(failed)?;
        show("v4", Builder::from_random_bytes(random).into_uuid())?;
        let tail: &[u8; 10] = random[..10].try_into()?;
        show(
            "v7",
            Builder::from_unix_timestamp_millis(seconds * 1000, tail).into_uuid(),
        )?;
        show("v8", Uuid::new_v8(random))?;
    }
    let mut all: Vec<Uuid> = (0..200)
        .map(|_| Uuid::from_u64_pair(seed.word(), seed.word()))
        .collect();
    all.sort_by(|a, b| {
        hop_each(20);
        a.cmp(b)
    });
    let text: Vec<u8> = all.iter().flat_map(|u| u.into_bytes()).collect();
    say!(
        "{:016x} {:?} {:?}",
        digest(&text),
        Uuid::nil(),
        Uuid::max().get_version()
    );
    for wrong in [
        "",
        "67e55044-10b1-426f-9247-bb680e5fe0c",
        "67e55044-10b1-426f-9247-bb680e5fe0cg",
        "{67e55044-10b1-426f-9247-bb680e5fe0c8",
        "67e5504410b1426f9247bb680e5fe0c8-",
    ] {
        say!(
            "{wrong:?}: {:?}",
            Uuid::parse_str(wrong).map_err(|e| e.to_string())
        );
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
