//! Arrays with lengths in their types, statics that refer to each other, macros, labelled loops, `let else`,
//! ranges, states as types.
#![allow(clippy::type_complexity, reason = "written as it comes")]

use core::cell::Cell;
use core::fmt::Write;
use core::hint::black_box;
use core::ops::{
    BitXorAssign, Bound, ControlFlow, Deref, DerefMut, Not, RangeBounds, RangeInclusive, Shl,
};

use dyad::prelude::thread::*;

use crate::schedule::point;

/// The last N values.
struct Ring<T, const N: usize> {
    b: [Option<T>; N],
    h: usize,
    n: usize,
}

impl<T, const N: usize> Ring<T, N> {
    const CAP: usize = N;
    fn new() -> Self {
        Ring {
            b: [const { None }; N],
            h: 0,
            n: 0,
        }
    }

    fn push(&mut self, t: T) -> Option<T> {
        point();
        let i = (self.h + self.n) % N;
        if self.n == N {
            self.h = (self.h + 1) % N
        } else {
            self.n += 1
        }
        self.b[i].replace(t)
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.n).filter_map(move |i| {
            point();
            self.b[(self.h + i) % N].as_ref()
        })
    }
}

static WORDS: &[&[&str]] = &[&["a", "bb"], &[], &["ccc"]];
static NODE: Node = Node {
    v: 1,
    next: Some(&Node {
        v: 2,
        next: Some(&Node { v: 3, next: None }),
    }),
};

struct Node {
    v: u8,
    next: Option<&'static Node>,
}

static FNS: [Option<fn(u8) -> char>; 3] = [Some(up), None, Some(dn)];

fn up(b: u8) -> char {
    point();
    (b'A' + b % 26) as char
}

fn dn(b: u8) -> char {
    (b'a' + b % 26) as char
}

/// Passes a point whenever it is used.
struct Wrap<T>(T);

impl<T> Deref for Wrap<T> {
    type Target = T;
    fn deref(&self) -> &T {
        point();
        &self.0
    }
}

impl<T> DerefMut for Wrap<T> {
    fn deref_mut(&mut self) -> &mut T {
        point();
        &mut self.0
    }
}

macro_rules! greatest {
    ($x:expr) => { $x };
    ($x:expr, $($rest:expr),+) => {{
        let a = $x;
        point();
        let b = greatest!($($rest),+);
        if a > b { a } else { b }
    }};
}

macro_rules! shapes {
    ($($name:ident { $($field:ident: $t:ty),* }),*) => { $(
        #[derive(Debug, Clone, PartialEq, Default)]
        struct $name {
            $($field: $t),*
        }

        impl $name {
            fn touch(&mut self) -> &mut Self {
                point();
                $(self.$field += 1 as $t;)*
                self
            }
        }
    )* };
}

shapes!(
    One { a: u8, b: f64 },
    Two {
        x: i128,
        y: f32,
        z: u16
    }
);

/// An integer of W bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bits<const W: u32>(u64);

impl<const W: u32> Not for Bits<W> {
    type Output = Self;
    fn not(self) -> Self {
        point();
        Bits(!self.0 & ((1 << W) - 1))
    }
}

impl<const W: u32> Shl<u32> for Bits<W> {
    type Output = Self;
    fn shl(self, n: u32) -> Self {
        Bits(self.0 << n & ((1 << W) - 1))
    }
}

impl<const W: u32> BitXorAssign for Bits<W> {
    fn bitxor_assign(&mut self, o: Self) {
        point();
        self.0 ^= o.0
    }
}

fn within<R: RangeBounds<i32>>(r: R, x: i32) -> (bool, Bound<i32>) {
    point();
    (r.contains(&x), r.start_bound().cloned())
}

/// Leaves loops by their labels.
fn search(v: &[Vec<i32>], t: i32) -> Option<(usize, usize, u32)> {
    let mut n = 0;
    'o: for (i, r) in v.iter().enumerate() {
        for (j, x) in r.iter().enumerate() {
            point();
            n += 1;
            if *x < 0 {
                continue 'o;
            }
            if *x > 1000 {
                break 'o;
            }
            if *x == t {
                return Some((i, j, n));
            }
        }
    }
    None
}

/// `let else`, and a block with a value.
fn parse(s: &str) -> Option<(&str, u16)> {
    let (k, v) = s.split_once('=')?;
    point();
    let Ok(v) = v.parse::<u16>() else {
        point();
        return None;
    };
    let v = 'b: {
        if v > 100 {
            break 'b v / 2;
        }
        point();
        if v % 2 == 0 {
            break 'b 1;
        }
        v * 3
    };
    Some((k.trim(), v))
}

fn flow(v: &[u32]) -> ControlFlow<(usize, u32), u64> {
    v.iter().enumerate().try_fold(0u64, |a, (i, x)| {
        point();
        if *x == 13 {
            ControlFlow::Break((i, *x))
        } else {
            ControlFlow::Continue(a + *x as u64)
        }
    })
}

/// States whose successors are types.
trait State {
    type Next: State;
    const ID: u8;
    fn next(self) -> Self::Next;
    fn id(&self) -> u8 {
        point();
        Self::ID
    }
}

struct Open(Vec<u8>);

struct Shut(Vec<u8>);

impl State for Open {
    type Next = Shut;
    const ID: u8 = 1;
    fn next(mut self) -> Shut {
        self.0.push(1);
        point();
        Shut(self.0)
    }
}

impl State for Shut {
    type Next = Open;
    const ID: u8 = 2;
    fn next(mut self) -> Open {
        point();
        self.0.push(2);
        Open(self.0)
    }
}

fn sum_n<const N: usize>(a: [u32; N]) -> u32 {
    if N == 0 {
        0
    } else {
        point();
        a.iter().rev().enumerate().map(|(i, x)| x << (i % 8)).sum()
    }
}

/// Lengths, numbers and cases of characters.
fn utf(s: &str) -> Vec<u32> {
    s.chars()
        .flat_map(|c| {
            point();
            let mut b = [0; 4];
            let n = c.encode_utf8(&mut b).len();
            let mut w = [0u16; 2];
            c.encode_utf16(&mut w);
            [
                n as u32,
                c as u32,
                w[1] as u32,
                c.to_lowercase().count() as u32,
            ]
        })
        .collect()
}

/// Values that the compiler knows nothing of.
fn opaque(x: &mut [u32; 4]) -> u32 {
    let cells = Cell::from_mut(&mut x[..]).as_slice_of_cells();
    let mut s = 0u32;
    for i in 0..12 {
        let q = &cells[i % 4];
        point();
        q.set(black_box(q.get()).wrapping_mul(5).wrapping_add(i as u32));
        s ^= black_box(q).get();
    }
    s
}

/// All of it.
pub fn run(out: &mut String) {
    let mut r: Ring<String, 5> = Ring::new();
    let d: Vec<Option<String>> = (0..9).map(|i| r.push(format!("r{i}"))).collect();
    writeln!(
        out,
        "{d:?} {:?} {}",
        r.iter().rev().collect::<Vec<_>>(),
        Ring::<u8, 7>::CAP
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        WORDS
            .iter()
            .map(|w| {
                point();
                w.iter().map(|s| s.len()).sum::<usize>()
            })
            .collect::<Vec<_>>()
    )
    .unwrap();
    let mut n = Some(&NODE);
    while let Some(x) = n {
        point();
        write!(out, "{} ", x.v).unwrap();
        n = x.next
    }
    writeln!(
        out,
        "{:?}",
        FNS.iter()
            .cycle()
            .take(8)
            .enumerate()
            .map(|(i, f)| f.map_or('-', |f| {
                point();
                f(i as u8)
            }))
            .collect::<String>()
    )
    .unwrap();
    let mut w = Wrap(Wrap(vec![3, 1, 2]));
    w.push(0);
    w.sort_by(|a, b| {
        point();
        b.cmp(a)
    });
    writeln!(
        out,
        "{:?} {}",
        w.iter().collect::<Vec<_>>(),
        greatest!(
            3,
            w.len() as i32 * 2,
            {
                point();
                5
            },
            -1
        )
    )
    .unwrap();
    let (mut a, mut b) = (
        One::default(),
        Two {
            x: i128::MIN,
            y: 0.1,
            z: 65534,
        },
    );
    a.touch().touch().b *= 1.5;
    b.touch();
    writeln!(out, "{a:?} {b:?}").unwrap();
    let mut x = Bits::<12>(0xabc);
    for i in 0..9 {
        x ^= !x << i;
    }
    writeln!(
        out,
        "{x:?} {:?} {:?} {:?}",
        within(3.., 2),
        within(..=5, 5),
        within((Bound::Excluded(1), Bound::Unbounded), 1)
    )
    .unwrap();
    let g = vec![vec![5, 6, -1, 7], vec![8, 7], vec![2000, 9], vec![9]];
    writeln!(
        out,
        "{:?} {:?} {:?}",
        search(&g, 7),
        search(&g, 9),
        search(&g, 6)
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        ["a=1", "b = 2", "c=200", " d =x", "e", "f=7"].map(parse)
    )
    .unwrap();
    writeln!(out, "{:?} {:?}", flow(&[1, 2, 3]), flow(&[1, 13, 3])).unwrap();
    let s = Open(vec![]);
    let i = s.id();
    let s = s.next();
    let j = s.id();
    let s = s.next().next().next();
    writeln!(out, "{i}{j}{} {:?}", s.id(), s.0).unwrap();
    writeln!(
        out,
        "{} {} {} {:?}",
        sum_n([1, 2, 3]),
        sum_n([]),
        sum_n([7; 20]),
        utf("aßİ😀")
    )
    .unwrap();
    writeln!(out, "{}", opaque(&mut [1, 2, 3, 4])).unwrap();
    let rr: RangeInclusive<char> = 'a'..='k';
    writeln!(
        out,
        "{}",
        rr.rev()
            .step_by(3)
            .map(|c| {
                point();
                c.to_ascii_uppercase()
            })
            .collect::<String>()
    )
    .unwrap();
    let t: [[(u8, Option<f32>); 2]; 3] = core::array::from_fn(|i| {
        core::array::from_fn(|j| {
            point();
            (i as u8, (i != j).then_some(j as f32 / 3.0))
        })
    });
    let [[_, (a, Some(b))], .., [(c, _), _]] = t else {
        unreachable!()
    };
    writeln!(out, "{a} {b} {c} {t:?}").unwrap();
}
