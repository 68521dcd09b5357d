//! Text: a tokenizer that borrows what it can, a parser and an evaluator with errors of several types, words
//! and characters.

use core::fmt::{self, Write};
use core::str::FromStr;

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// What the tokenizer finds; texts without escapes are parts of the source.
#[derive(Debug, Clone, PartialEq)]
enum Tok<'a> {
    Num(f64),
    Id(&'a str),
    Op(char),
    LPar,
    RPar,
    Comma,
    Str(Cow<'a, str>),
}

#[derive(Debug)]
enum ParseError {
    Unexpected(char, usize),
    BadNumber(core::num::ParseFloatError, String),
    Eof,
    Trailing(String),
    NoSuch(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Unexpected(c, at) => write!(f, "unexpected {c:?} at {at}"),
            ParseError::BadNumber(e, s) => write!(f, "bad number {s}: {e}"),
            ParseError::Eof => f.write_str("unexpected end"),
            ParseError::Trailing(s) => write!(f, "trailing {s}"),
            ParseError::NoSuch(s) => write!(f, "no such thing: {s:>8}"),
        }
    }
}

impl core::error::Error for ParseError {}

impl From<core::num::ParseFloatError> for ParseError {
    fn from(e: core::num::ParseFloatError) -> Self {
        ParseError::BadNumber(e, String::from("?"))
    }
}

/// Words, numbers, texts and signs of a source.
fn lex(s: &str) -> Result<Vec<Tok<'_>>, ParseError> {
    let mut out = Vec::new();
    let mut it = s.char_indices().peekable();
    while let Some(&(i, c)) = it.peek() {
        point();
        match c {
            ' ' | '\t' => {
                it.next();
            }
            '0'..='9' | '.' => {
                let mut end = i;
                while let Some(&(j, d)) = it.peek() {
                    if d.is_ascii_digit() || d == '.' || d == 'e' {
                        end = j + 1;
                        it.next();
                        point();
                    } else {
                        break;
                    }
                }
                out.push(Tok::Num(f64::from_str(&s[i..end])?));
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let rest = &s[i..];
                let len = rest
                    .find(|c: char| {
                        point();
                        !(c.is_alphanumeric() || c == '_')
                    })
                    .unwrap_or(rest.len());
                for _ in 0..rest[..len].chars().count() {
                    it.next();
                }
                out.push(Tok::Id(&rest[..len]));
            }
            '"' => {
                it.next();
                let mut text = Cow::Borrowed("");
                let start = i + 1;
                loop {
                    match it.next() {
                        None => return Err(ParseError::Eof),
                        Some((j, '"')) => {
                            if let Cow::Borrowed(_) = text {
                                text = Cow::Borrowed(&s[start..j])
                            }
                            break;
                        }
                        Some((j, '\\')) => {
                            if let Cow::Borrowed(_) = text {
                                text = Cow::Owned(s[start..j].to_owned())
                            }
                            point();
                            match it.next() {
                                Some((_, 'n')) => text.to_mut().push('\n'),
                                Some((_, c)) => text.to_mut().push(c),
                                None => return Err(ParseError::Eof),
                            }
                        }
                        Some((_, c)) => {
                            if let Cow::Owned(t) = &mut text {
                                t.push(c)
                            }
                        }
                    }
                }
                out.push(Tok::Str(text));
            }
            '+' | '-' | '*' | '/' | '^' | '%' => {
                it.next();
                out.push(Tok::Op(c))
            }
            '(' => {
                it.next();
                out.push(Tok::LPar)
            }
            ')' => {
                it.next();
                out.push(Tok::RPar)
            }
            ',' => {
                it.next();
                out.push(Tok::Comma)
            }
            other => return Err(ParseError::Unexpected(other, i)),
        }
    }
    Ok(out)
}

#[derive(Debug)]
enum Expr {
    Num(f64),
    Var(String),
    Bin(char, Box<Expr>, Box<Expr>),
    Neg(Box<Expr>),
    Call(String, Vec<Expr>),
    Text(String),
}

/// Precedence climbing, with the number of expressions counted at the caller's.
struct Parser<'t, 'a> {
    toks: &'t [Tok<'a>],
    at: usize,
    depth: &'t mut usize,
}

impl<'t, 'a> Parser<'t, 'a> {
    fn peek(&self) -> Option<&'t Tok<'a>> {
        self.toks.get(self.at)
    }

    fn next(&mut self) -> Option<&'t Tok<'a>> {
        let t = self.toks.get(self.at);
        self.at += 1;
        t
    }

    fn expr(&mut self, min: u8) -> Result<Expr, ParseError> {
        *self.depth += 1;
        point();
        let mut left = self.atom()?;
        while let Some(Tok::Op(c)) = self.peek() {
            let (l, r) = match c {
                '+' | '-' => (1, 2),
                '*' | '/' | '%' => (3, 4),
                '^' => (6, 5),
                _ => unreachable!(),
            };
            if l < min {
                break;
            }
            self.next();
            point();
            let right = self.expr(r)?;
            left = Expr::Bin(*c, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Expr, ParseError> {
        Ok(match self.next().ok_or(ParseError::Eof)? {
            Tok::Num(n) => Expr::Num(*n),
            Tok::Str(s) => Expr::Text(s.clone().into_owned()),
            Tok::Op('-') => Expr::Neg(Box::new(self.expr(5)?)),
            Tok::LPar => {
                let e = self.expr(0)?;
                match self.next() {
                    Some(Tok::RPar) => e,
                    Some(t) => return Err(ParseError::Trailing(format!("{t:?}"))),
                    None => return Err(ParseError::Eof),
                }
            }
            Tok::Id(name) => match self.peek() {
                Some(Tok::LPar) => {
                    self.next();
                    let mut args = Vec::new();
                    if self.peek() != Some(&Tok::RPar) {
                        loop {
                            args.push(self.expr(0)?);
                            match self.next() {
                                Some(Tok::Comma) => continue,
                                Some(Tok::RPar) => break,
                                _ => return Err(ParseError::Eof),
                            }
                        }
                    } else {
                        self.next();
                    }
                    Expr::Call((*name).to_owned(), args)
                }
                _ => Expr::Var(name.to_string()),
            },
            t => return Err(ParseError::Trailing(format!("{t:?}"))),
        })
    }
}

/// The value, with errors of any type.
fn eval(e: &Expr, vars: &BTreeMap<String, f64>) -> Result<f64, Box<dyn core::error::Error>> {
    point();
    Ok(match e {
        Expr::Num(n) => *n,
        Expr::Text(s) => s.len() as f64,
        Expr::Var(v) => *vars.get(v).ok_or_else(|| {
            point();
            ParseError::NoSuch(v.clone())
        })?,
        Expr::Neg(e) => -eval(e, vars)?,
        Expr::Bin(op, a, b) => {
            let (a, b) = (eval(a, vars)?, eval(b, vars)?);
            match op {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                '/' => a / b,
                '%' => a % b,
                '^' => {
                    let mut r = 1.0;
                    for _ in 0..b as u32 {
                        r *= a;
                        point();
                    }
                    r
                }
                _ => return Err("bad operator".into()),
            }
        }
        Expr::Call(name, args) => {
            let args: Vec<f64> = args
                .iter()
                .map(|a| eval(a, vars))
                .collect::<Result<_, _>>()?;
            match (name.as_str(), args.as_slice()) {
                ("max", [first, rest @ ..]) => rest.iter().copied().fold(*first, |a, b| {
                    point();
                    if a > b { a } else { b }
                }),
                ("sum", all) => all.iter().sum(),
                ("abs", [x]) => {
                    if *x < 0.0 {
                        -x
                    } else {
                        *x
                    }
                }
                ("len", []) => return Err(format!("{name} needs something").into()),
                (other, args) => {
                    return Err(Box::new(ParseError::NoSuch(format!(
                        "{other}/{}",
                        args.len()
                    ))));
                }
            }
        }
    })
}

/// All of it.
pub fn run(out: &mut String) {
    let mut vars = BTreeMap::new();
    vars.insert("x".to_string(), 2.5);
    vars.insert("pi".to_string(), core::f64::consts::PI);
    for src in [
        "1+2*3",
        "-(x^3)+4/ 8",
        "max(1, 2*x, sum(1,2,3), abs(-9.25))",
        "pi * 1e3",
        "y+1",
        "len()",
        "foo(1,2)",
        "(1+2",
        "3 $ 4",
        "1.2.3",
        "\"hällo\" + \"a\\nb\"",
        "2^3^2",
        "10 % 4 - 7 - 1",
    ] {
        let mut depth = 0;
        let r = lex(src).and_then(|toks| {
            point();
            let mut p = Parser {
                toks: &toks,
                at: 0,
                depth: &mut depth,
            };
            let e = p.expr(0)?;
            match p.peek() {
                None => Ok(e),
                Some(t) => Err(ParseError::Trailing(format!("{t:?}"))),
            }
        });
        match r {
            Ok(e) => match eval(&e, &vars) {
                Ok(v) => writeln!(out, "{src} = {v} ({depth}) {e:?}").unwrap(),
                Err(err) => writeln!(out, "{src}: eval {err}").unwrap(),
            },
            Err(err) => writeln!(out, "{src}: {err} / {err:?}").unwrap(),
        }
        point();
    }
    let text = "the quick brown fox jumps over the lazy dog the end";
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for w in text.split_whitespace() {
        point();
        *count.entry(w).or_insert_with(|| {
            point();
            0
        }) += 1;
    }
    writeln!(out, "{count:?}").unwrap();
    let caps: String = text
        .split(' ')
        .map(|w| {
            point();
            let mut c = w.chars();
            c.next()
                .map(|f| f.to_uppercase().collect::<String>() + c.as_str())
                .unwrap_or_default()
        })
        .collect::<Vec<_>>()
        .join("-");
    writeln!(
        out,
        "{caps} {}",
        text.rsplitn(3, ' ')
            .map(|s| {
                point();
                s.len().to_string()
            })
            .collect::<Vec<_>>()
            .concat()
    )
    .unwrap();
    let parsed: Result<Vec<i32>, _> = "1,2,x,4"
        .split(',')
        .map(|s| {
            point();
            s.parse::<i32>()
        })
        .collect();
    writeln!(
        out,
        "{parsed:?} {:?}",
        "0xff".strip_prefix("0x").map(|h| {
            point();
            u64::from_str_radix(h, 16)
        })
    )
    .unwrap();
    let rev: String = text
        .chars()
        .rev()
        .filter(|c| {
            point();
            !c.is_whitespace()
        })
        .take(20)
        .collect();
    writeln!(out, "{rev} {}", text.replace("the", "THE")).unwrap();
    writeln!(
        out,
        "{:?}",
        text.char_indices()
            .filter(|(_, c)| {
                point();
                *c == 'o'
            })
            .map(|(i, _)| i)
            .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        "α,β;γ"
            .split(|c| {
                point();
                c == ',' || c == ';'
            })
            .map(str::to_uppercase)
            .collect::<Vec<_>>()
    )
    .unwrap();
}
