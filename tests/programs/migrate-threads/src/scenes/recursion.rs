//! Recursion of every kind: two-fold, mutual, through closures and trait objects, with frames that refer to
//! each other, thousands deep.

use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Ackermann's function.
fn ack(m: u32, n: u32) -> u32 {
    point();
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ack(m - 1, 1),
        (m, n) => ack(m - 1, ack(m, n - 1)),
    }
}

fn even(n: u32) -> bool {
    point();
    n == 0 || odd(n - 1)
}

fn odd(n: u32) -> bool {
    n != 0 && {
        point();
        even(n - 1)
    }
}

fn hanoi(n: u8, a: u8, b: u8, c: u8, f: &mut impl FnMut(u8, u8, u8)) {
    if n > 0 {
        hanoi(n - 1, a, c, b, f);
        point();
        f(n, a, b);
        hanoi(n - 1, c, b, a, f)
    }
}

/// Queens that do not threaten each other.
fn queens(n: usize, row: usize, cols: &mut Vec<usize>, found: &mut u32) {
    if row == n {
        *found += 1;
        return;
    }
    for c in 0..n {
        if cols
            .iter()
            .enumerate()
            .all(|(r, &k)| k != c && row - r != c.abs_diff(k))
        {
            cols.push(c);
            point();
            queens(n, row + 1, cols, found);
            cols.pop();
        }
    }
}

/// All permutations.
fn perms<T: Clone>(v: &mut [T], k: usize, f: &mut dyn FnMut(&[T])) {
    if k == v.len() {
        point();
        return f(v);
    }
    for i in k..v.len() {
        v.swap(k, i);
        perms(v, k + 1, f);
        v.swap(k, i)
    }
}

/// Frames that refer to those of their callers, to the first one.
fn deep(n: u64, up: Option<&Up<'_>>) -> u64 {
    let me = Up { n, up };
    if n.is_multiple_of(50) {
        point();
    }
    if n == 0 {
        let mut s = 0u64;
        let mut p = Some(&me);
        while let Some(u) = p {
            s = s.wrapping_mul(3).wrapping_add(u.n);
            p = u.up;
            if u.n % 97 == 0 {
                point();
            }
        }
        s
    } else {
        deep(n - 1, Some(&me)) ^ me.n
    }
}

struct Up<'a> {
    n: u64,
    up: Option<&'a Up<'a>>,
}

/// Tries what is possible.
fn sudoku(b: &mut [[u8; 9]; 9], steps: &mut u32) -> bool {
    for r in 0..9 {
        for c in 0..9 {
            if b[r][c] == 0 {
                for v in 1..=9 {
                    let ok = (0..9).all(|i| {
                        b[r][i] != v && b[i][c] != v && b[r / 3 * 3 + i / 3][c / 3 * 3 + i % 3] != v
                    });
                    if ok {
                        b[r][c] = v;
                        *steps += 1;
                        point();
                        if sudoku(b, steps) {
                            return true;
                        }
                        b[r][c] = 0
                    }
                }
                return false;
            }
        }
    }
    true
}

/// Quicksort; how deep it went.
fn quick<T: PartialOrd + Copy>(v: &mut [T], depth: u32) -> u32 {
    if v.len() < 2 {
        return depth;
    }
    point();
    let p = v[v.len() / 2];
    let (mut i, mut j) = (0isize, v.len() as isize - 1);
    while i <= j {
        while v[i as usize] < p {
            i += 1
        }
        while v[j as usize] > p {
            j -= 1
        }
        if i <= j {
            v.swap(i as usize, j as usize);
            i += 1;
            j -= 1
        }
    }
    let (a, b) = v.split_at_mut(i as usize);
    let x = quick(&mut a[..(j + 1) as usize], depth + 1);
    let y = quick(b, depth + 1);
    x.max(y)
}

#[derive(Debug)]
enum Json {
    Null,
    Bool(bool),
    Num(f64),
    Str(String),
    Arr(Vec<Json>),
    Obj(Vec<(String, Json)>),
}

/// A value that looks random.
fn gen_json(d: u32, seed: &mut u32) -> Json {
    *seed = seed.wrapping_mul(1103515245).wrapping_add(12345);
    point();
    match (*seed >> 16) % if d == 0 { 4 } else { 6 } {
        0 => Json::Null,
        1 => Json::Bool(*seed >> 20 & 1 == 1),
        2 => Json::Num((*seed >> 12) as f64 / 64.0),
        3 => Json::Str(format!("s{}\"", *seed % 100)),
        4 => Json::Arr((0..4).map(|_| gen_json(d - 1, seed)).collect()),
        _ => Json::Obj(
            (0..4)
                .map(|i| (format!("k{i}"), gen_json(d - 1, seed)))
                .collect(),
        ),
    }
}

fn show(j: &Json, w: &mut dyn Write) -> core::fmt::Result {
    point();
    match j {
        Json::Null => w.write_str("null"),
        Json::Bool(b) => write!(w, "{b}"),
        Json::Num(n) => write!(w, "{n}"),
        Json::Str(s) => {
            w.write_char('"')?;
            for c in s.chars() {
                if c == '"' {
                    w.write_char('\\')?;
                }
                point();
                w.write_char(c)?;
            }
            w.write_char('"')
        }
        Json::Arr(v) => {
            w.write_char('[')?;
            for (i, x) in v.iter().enumerate() {
                if i > 0 {
                    w.write_char(',')?
                }
                show(x, w)?;
            }
            w.write_char(']')
        }
        Json::Obj(v) => {
            w.write_char('{')?;
            for (i, (k, x)) in v.iter().enumerate() {
                if i > 0 {
                    w.write_char(',')?
                }
                write!(w, "{k:?}:")?;
                show(x, w)?;
            }
            w.write_char('}')
        }
    }
}

/// Strongly connected components.
fn tarjan(g: &[Vec<usize>]) -> Vec<Vec<usize>> {
    struct T<'g> {
        g: &'g [Vec<usize>],
        idx: Vec<Option<usize>>,
        low: Vec<usize>,
        on: Vec<bool>,
        st: Vec<usize>,
        n: usize,
        out: Vec<Vec<usize>>,
    }
    impl T<'_> {
        fn go(&mut self, v: usize) {
            self.idx[v] = Some(self.n);
            self.low[v] = self.n;
            self.n += 1;
            self.st.push(v);
            self.on[v] = true;
            point();
            for &w in &self.g[v] {
                match self.idx[w] {
                    None => {
                        self.go(w);
                        self.low[v] = self.low[v].min(self.low[w])
                    }
                    Some(i) if self.on[w] => self.low[v] = self.low[v].min(i),
                    _ => {
                        point();
                    }
                }
            }
            if self.idx[v] == Some(self.low[v]) {
                let mut c = vec![];
                while let Some(w) = self.st.pop() {
                    self.on[w] = false;
                    c.push(w);
                    point();
                    if w == v {
                        break;
                    }
                }
                c.sort();
                self.out.push(c)
            }
        }
    }
    let n = g.len();
    let mut t = T {
        g,
        idx: vec![None; n],
        low: vec![0; n],
        on: vec![false; n],
        st: vec![],
        n: 0,
        out: vec![],
    };
    for v in 0..n {
        if t.idx[v].is_none() {
            t.go(v)
        }
    }
    t.out
}

/// All of it.
pub fn run(out: &mut String) {
    writeln!(out, "{} {} {}", ack(2, 9), even(101), odd(77)).unwrap();
    let mut h = 0u64;
    hanoi(7, 0, 1, 2, &mut |n, a, b| {
        h = h.wrapping_mul(31) + (n as u64 * 9 + a as u64 * 3 + b as u64);
        point();
    });
    writeln!(out, "{h}").unwrap();
    let mut f = 0;
    queens(6, 0, &mut vec![], &mut f);
    writeln!(out, "{f}").unwrap();
    let mut all = vec![];
    perms(&mut ['a', 'b', 'c', 'd'], 0, &mut |p| {
        all.push(p.iter().collect::<String>())
    });
    writeln!(out, "{all:?}").unwrap();
    writeln!(out, "{}", deep(3000, None)).unwrap();
    let mut b = [
        [5, 3, 0, 0, 7, 0, 0, 0, 0],
        [6, 0, 0, 1, 9, 5, 0, 0, 0],
        [0, 9, 8, 0, 0, 0, 0, 6, 0],
        [8, 0, 0, 0, 6, 0, 0, 0, 3],
        [4, 0, 0, 8, 0, 3, 0, 0, 1],
        [7, 0, 0, 0, 2, 0, 0, 0, 6],
        [0, 6, 0, 0, 0, 0, 2, 8, 0],
        [0, 0, 0, 4, 1, 9, 0, 0, 5],
        [0, 0, 0, 0, 8, 0, 0, 7, 9],
    ];
    let mut s = 0;
    let ok = sudoku(&mut b, &mut s);
    writeln!(out, "{ok} {s} {b:?}").unwrap();
    let mut v: Vec<i16> = (0..500).map(|i| (i * 7919 % 1009 - 500) as i16).collect();
    quick(&mut v, 0);
    let mut x: Vec<f32> = v.iter().rev().map(|i| *i as f32 / 3.0).collect();
    x.swap(3, 400);
    quick(&mut x, 0);
    writeln!(
        out,
        "{:?} {:?} {}",
        &v[..5],
        &x[495..],
        v.is_sorted() && x.is_sorted()
    )
    .unwrap();
    let mut seed = 42;
    let j = Json::Arr((0..6).map(|_| gen_json(3, &mut seed)).collect());
    show(&j, out).unwrap();
    writeln!(out, "\n{}", format!("{j:?}").len()).unwrap();
    let g: Vec<Vec<usize>> = (0..30usize)
        .map(|i| vec![(i * 7 + 3) % 30, (i * i) % 30, (i + 10) % 30 / 2])
        .collect();
    writeln!(out, "{:?}", tarjan(&g)).unwrap();
}
