//! winnow: a calculator with binding powers and a binary format, moving within parsers and what is mapped.
#![no_std]
#![no_main]

use gallery::*;
use winnow::ascii::{digit1, multispace0};
use winnow::binary::{be_u16, le_u32, length_take, u8};
use winnow::combinator::{
    Infix, Postfix, Prefix, alt, delimited, dispatch, empty, expression, fail, preceded, repeat,
    seq,
};
use winnow::error::{ContextError, StrContext};
use winnow::prelude::*;
use winnow::token::{any, literal, take_until};

fn number(s: &mut &str) -> ModalResult<i64> {
    let parsed = digit1.parse_to().context(StrContext::Label("number"));
    let parsed = parsed.map(|n: i64| {
        hop_each(2);
        n
    });
    delimited(
        multispace0,
        alt((parsed, delimited('(', calculate, ')'))),
        multispace0,
    )
    .parse_next(s)
}

fn calculate(s: &mut &str) -> ModalResult<i64> {
    expression(number)
        .prefix(dispatch! {any;
            '-' => Prefix(12, |_: &mut _, a: i64| Ok(a.wrapping_neg())),
            '~' => Prefix(12, |_: &mut _, a: i64| { hop(); Ok(!a) }),
            _ => fail,
        })
        .postfix(dispatch! {any;
            '!' => Postfix(14, |_: &mut _, a: i64| Ok((1..=a % 20).product())),
            _ => fail,
        })
        .infix(dispatch! {any;
            '+' => Infix::Left(5, |_: &mut _, a: i64, b| { hop_each(2); Ok(a.wrapping_add(b)) }),
            '-' => Infix::Left(5, |_: &mut _, a: i64, b| Ok(a.wrapping_sub(b))),
            '*' => Infix::Left(7, |_: &mut _, a: i64, b| { hop_each(2); Ok(a.wrapping_mul(b)) }),
            '^' => Infix::Right(9, |_: &mut _, a: i64, b: i64| Ok(a.wrapping_pow((b & 7) as u32))),
            _ => fail,
        })
        .parse_next(s)
}

fn random(seed: &mut Seeded, depth: u32) -> String {
    match (depth, seed.below(6)) {
        (0, _) | (_, 0) => format!("{}", seed.below(30)),
        (_, 1) => format!("-({})", random(seed, depth - 1)),
        (_, 2) => format!("({})!", random(seed, depth - 1)),
        _ => {
            let op = ["+", " - ", "*", " ^ ", "* ~"][seed.below(5) as usize];
            format!("{}{op}{}", random(seed, depth - 1), random(seed, depth - 1))
        }
    }
}

/// A record of the binary format.
#[derive(Debug)]
#[allow(dead_code)]
struct Record<'a> {
    kind: u8,
    stamp: u32,
    name: &'a [u8],
    fields: Vec<u16>,
}

fn field(s: &mut &[u8]) -> ModalResult<u16> {
    hop_each(2);
    be_u16.parse_next(s)
}

fn record<'a>(s: &mut &'a [u8]) -> ModalResult<Record<'a>> {
    seq! {Record {
        _: literal(&b"REC"[..]),
        kind: u8.verify(|k| *k < 4),
        stamp: le_u32,
        name: length_take(u8),
        fields: preceded(empty, repeat(3, field)),
    }}
    .parse_next(s)
}

fn program() -> Result<()> {
    let mut seed = Seeded(15);
    for n in 0..16 {
        let text = random(&mut seed, n % 6);
        match calculate.parse(&text) {
            Ok(n) => say!("{text} = {n}"),
            Err(e) => say!("{text}: {e}"),
        }
    }
    for wrong in ["", "1 +", "2 * (3", "4 ? 5"] {
        let e = calculate.parse(wrong).err();
        say!("{}", e.map_or_else(String::new, |e| e.to_string()));
    }

    let mut bytes = Vec::new();
    for n in 0..60 {
        let name = seed.prose(1);
        bytes.extend(b"REC");
        bytes.push(n % 4);
        bytes.extend(seed.word().to_le_bytes().into_iter().take(4));
        bytes.push(name.len() as u8);
        bytes.extend(name.bytes());
        bytes.extend(seed.bytes(6));
    }
    let all: Vec<Record<'_>> = repeat(1.., record).parse(&bytes[..]).map_err(failed)?;
    say!(
        "{} records, {:?}, {:016x}",
        all.len(),
        all[7],
        digest(format!("{all:?}").as_bytes())
    );
    bytes[3] = 9;
    say!(
        "{:?}",
        record
            .parse_peek(&bytes[..])
            .map(|(_, r)| r.kind)
            .map_err(|e| e.to_string())
    );
    let mut rest = "key: value; more";
    let key: &str = take_until::<_, _, ContextError>(1.., ": ")
        .parse_next(&mut rest)
        .map_err(failed)?;
    say!("{key} {rest:?}");
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
