//! Formatting, with implementations of its traits that contain points.

use core::fmt::{self, Binary, Debug, Display, LowerHex, Write};

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Knows three formats.
struct P(f64, i32);

impl Display for P {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        point();
        if f.alternate() {
            write!(f, "<{:>8.2}|{:+05}>", self.0, self.1)
        } else {
            point();
            f.pad(&format!("{}:{}", self.0, self.1))
        }
    }
}

impl LowerHex for P {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        point();
        LowerHex::fmt(&self.1, f)
    }
}

/// Is debugged by hand.
struct T {
    a: Vec<P>,
    b: Option<Box<T>>,
}

impl Debug for T {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        point();
        f.debug_struct("T")
            .field(
                "a",
                &self
                    .a
                    .iter()
                    .map(|p| {
                        point();
                        p.0
                    })
                    .collect::<Vec<_>>(),
            )
            .field("b", &self.b)
            .finish_non_exhaustive()
    }
}

struct M<'a>(&'a [(&'a str, u8)]);

impl Debug for M<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(k, v)| {
                point();
                (k, v)
            }))
            .finish()
    }
}

/// Is debugged as derived.
#[allow(dead_code, reason = "all of it is printed")]
#[derive(Debug, Clone, Default)]
struct Deep {
    id: u8,
    name: String,
    kids: Vec<Deep>,
    unit: (),
    tup: (f32, char),
    opt: Option<Result<i8, String>>,
}

/// Writes in capitals, and fails at `#`.
struct Upper<W>(W);

impl<W: Write> Write for Upper<W> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            point();
            if c == '#' {
                return Err(fmt::Error);
            }
            self.0.write_char(c.to_ascii_uppercase())?
        }
        Ok(())
    }
}

/// Is padded as numbers are.
struct Bits(u16);

impl Binary for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad_integral(
            true,
            "0b",
            &format!("{:b}", self.0)
                .chars()
                .inspect(|_| point())
                .collect::<String>(),
        )
    }
}

/// Formats values of all kinds.
pub fn run(out: &mut String) {
    writeln!(
        out,
        "{} {:#} {:>12}| {:<9}| {:^11}| {:x} {:#06x}",
        P(1.5, 2),
        P(-2.25, 7),
        P(0.1, 3),
        P(1.0, 0),
        P(9.0, -1),
        P(0.0, 255),
        P(0.0, 77)
    )
    .unwrap();
    let t = T {
        a: vec![P(1.0, 1), P(2.5, 2)],
        b: Some(Box::new(T { a: vec![], b: None })),
    };
    writeln!(
        out,
        "{t:?}\n{t:#?}\n{:?} {:#?}",
        M(&[("x", 1), ("y", 2)]),
        M(&[("z", 3)])
    )
    .unwrap();
    let d = Deep {
        id: 1,
        name: "a\"b\n".into(),
        kids: vec![
            Deep::default(),
            Deep {
                opt: Some(Err("bad".into())),
                tup: (0.1, 'é'),
                ..Deep::default()
            },
        ],
        unit: (),
        tup: (1e10, '\''),
        opt: Some(Ok(-3)),
    };
    writeln!(out, "{d:?}\n{d:#?}").unwrap();
    let r = write!(
        Upper(&mut *out),
        "hello {} {:?} {:5.1}",
        P(3.5, 4),
        "q",
        2.25
    );
    writeln!(out, " {r:?} {:?}", write!(Upper(&mut String::new()), "a#b")).unwrap();
    writeln!(out, "{:b} {:#020b} {:10b}|", Bits(5), Bits(1000), Bits(3)).unwrap();
    for f in [
        0.0,
        -0.0,
        1.0,
        0.1,
        1e21,
        1e-7,
        123456.789,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        f64::NAN,
        f64::INFINITY,
        1.0 / 3.0,
        2.5,
        0.05,
    ] {
        point();
        writeln!(
            out,
            "{f} {f:?} {f:e} {f:.3} {f:+10.2} {f:010.1} {:?} {:.0}",
            f as f32, f
        )
        .unwrap();
    }
    for i in [0i64, -1, i64::MIN, i64::MAX, 255] {
        writeln!(
            out,
            "{i} {i:x} {i:#o} {i:b} {i:>25} {i:+} {i:e} {:?}",
            i as u8 as char
        )
        .unwrap();
        point();
    }
    writeln!(out, "{:?} {:?} {:?}", "tab\t\u{1F600}\u{7f}", 'x', b"bytes").unwrap();
    let (w, p) = (12, 4);
    writeln!(
        out,
        "{:w$.p$}|{:>1$}|{2:*^3$}|{name:?}",
        core::f64::consts::PI,
        7,
        "mid",
        9,
        name = "n"
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {:?} {:?}",
        (1, "two", 3.0),
        [Some(1), None],
        Result::<(), &str>::Err("e")
    )
    .unwrap();
    writeln!(
        out,
        "{:5}|{:<5}|{:^5}|{:>5}|{:05}|{:<05}|{:#?}",
        42,
        42,
        42,
        42,
        42,
        42,
        (1, [2])
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {:?} {}",
        core::time::Duration::from_micros(1500),
        1u8..=3,
        format_args!("{}{}", 1, P(0.5, 2))
    )
    .unwrap();
}
