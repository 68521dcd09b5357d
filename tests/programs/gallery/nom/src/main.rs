//! nom: a calculator and a configuration language, moving within parsers and what is mapped.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;

use gallery::*;
use nom::branch::alt;
use nom::bytes::complete::{escaped_transform, tag, take_while1};
use nom::character::complete::{alpha1, char, i64 as number, multispace0, none_of, one_of};
use nom::combinator::{all_consuming, cut, map, map_res, opt, recognize, value};
use nom::error::context;
use nom::multi::{fold_many0, many0, separated_list0};
use nom::number::complete::double;
use nom::sequence::{delimited, pair, preceded, separated_pair, terminated};
use nom::{Finish, IResult, Parser};

fn factor(s: &str) -> IResult<&str, i64> {
    let inner = delimited(char('('), sum, char(')'));
    let plain = map(number, |n| {
        hop();
        n
    });
    delimited(multispace0, alt((plain, inner)), multispace0).parse(s)
}

fn product(s: &str) -> IResult<&str, i64> {
    let (s, first) = factor(s)?;
    fold_many0(
        pair(one_of("*/%"), factor),
        move || first,
        |n, (op, by)| {
            hop();
            match op {
                '*' => n.wrapping_mul(by),
                '/' => n.checked_div(by).unwrap_or(0),
                _ => n.checked_rem(by).unwrap_or(0),
            }
        },
    )
    .parse(s)
}

fn sum(s: &str) -> IResult<&str, i64> {
    let (s, first) = product(s)?;
    fold_many0(
        pair(one_of("+-"), product),
        move || first,
        |n, (op, by)| match op {
            '+' => n.wrapping_add(by),
            _ => n.wrapping_sub(by),
        },
    )
    .parse(s)
}

fn expression(seed: &mut Seeded, depth: u32) -> String {
    match (depth, seed.below(4)) {
        (0, _) | (_, 0) => format!(" {}", seed.below(100)),
        (_, 1) => format!("({})", expression(seed, depth - 1)),
        _ => {
            let op = ["+", "-", "*", "/", "%"][seed.below(5) as usize];
            format!(
                "{}{op}{}",
                expression(seed, depth - 1),
                expression(seed, depth - 1)
            )
        }
    }
}

/// A value of the configuration language.
#[derive(Clone, Debug)]
#[allow(dead_code)]
enum Value {
    Nothing,
    Truth(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Table(BTreeMap<String, Value>),
}

fn text(s: &str) -> IResult<&str, String> {
    let escape = alt((
        value("\\", tag("\\")),
        value("\"", tag("\"")),
        value("\n", tag("n")),
    ));
    let inside = escaped_transform(none_of("\\\""), '\\', escape);
    map(
        delimited(char('"'), opt(inside), char('"')),
        Option::unwrap_or_default,
    )
    .parse(s)
}

fn name(s: &str) -> IResult<&str, &str> {
    recognize(pair(
        alpha1,
        opt(take_while1(|c: char| c.is_alphanumeric() || c == '_')),
    ))
    .parse(s)
}

fn one(s: &str) -> IResult<&str, Value> {
    hop();
    let spaced = |c| delimited(multispace0, char(c), multispace0);
    let entry = separated_pair(
        map_res(name, |n: &str| match n.len() {
            0..=12 => Ok(n.to_owned()),
            _ => Err("too long"),
        }),
        spaced('='),
        one,
    );
    let list = delimited(
        char('['),
        separated_list0(spaced(','), one),
        cut(preceded(multispace0, char(']'))),
    );
    let table = delimited(
        char('{'),
        many0(delimited(multispace0, entry, opt(char(';')))),
        preceded(multispace0, char('}')),
    );
    context(
        "a value",
        preceded(
            multispace0,
            alt((
                value(Value::Nothing, tag("nothing")),
                map(
                    alt((value(true, tag("yes")), value(false, tag("no")))),
                    Value::Truth,
                ),
                map(double, Value::Number),
                map(text, Value::Text),
                map(list, Value::List),
                map(table, |all| Value::Table(all.into_iter().collect())),
            )),
        ),
    )
    .parse(s)
}

fn program() -> Result<()> {
    let mut seed = Seeded(14);
    for depth in 0..24 {
        let text = expression(&mut seed, depth % 8);
        match all_consuming(sum).parse(&text).finish() {
            Ok((_, n)) => say!("{text} = {n}"),
            Err(e) => say!("{text}: {e}"),
        }
    }
    for wrong in ["", "1 +", "2 * (3", "4 ? 5"] {
        say!("{wrong:?}: {:?}", all_consuming(sum).parse(wrong).finish());
    }
    let file = r#" { title = "a \"config\"\n"; sizes = [1, 2.5e3, -0.125 , [ ], nothing]
        deep = { on = yes; off = no; more = { n = 1e-7 } } } "#;
    let (rest, all) = terminated(one, multispace0)
        .parse(file)
        .finish()
        .map_err(failed)?;
    say!("{all:#?} {rest:?}");
    say!("{:?}", one("[1, 2").finish().map_err(|e| e.to_string()));
    say!(
        "{:?}",
        one("{ a_name_that_is_long = 1 }")
            .finish()
            .map_err(|e| e.code)
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
