//! References into the frames of callers, lists with a cursor, slices of slices, results through arguments.

use core::cell::Cell;
use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Is in a frame, and refers to the one in the caller's.
struct Frame<'a> {
    v: Cell<u64>,
    next: Option<&'a Frame<'a>>,
    name: &'a str,
}

fn push(depth: u32, next: Option<&Frame<'_>>, out: &mut String) {
    let name = format!("f{depth}");
    let f = Frame {
        v: Cell::new(depth as u64),
        next,
        name: &name,
    };
    point();
    let mut p = Some(&f);
    while let Some(x) = p {
        x.v.set(x.v.get() * 2 + 1);
        p = x.next;
    }
    if depth > 0 {
        push(depth - 1, Some(&f), out);
    }
    point();
    write!(out, "{}={} ", f.name, f.v.get()).unwrap();
}

/// Halves a slice, and swaps what the caller has lent.
fn split(v: &mut [u32], acc: &mut [&mut u64; 3], d: u32) {
    point();
    if v.len() <= 2 || d == 0 {
        for x in v.iter_mut() {
            *x = x.wrapping_mul(3);
            *acc[(*x % 3) as usize] += *x as u64;
            point();
        }
        return;
    }
    let m = v.len() / 2;
    let (a, b) = v.split_at_mut(m);
    split(a, acc, d - 1);
    acc.swap(0, 2);
    split(b, acc, d - 1);
    core::mem::swap(&mut a[0], &mut b[0]);
}

/// A list in order.
struct L {
    v: i32,
    next: Option<Box<L>>,
}

fn insert_sorted(head: &mut Option<Box<L>>, v: i32) {
    let mut cur = head;
    while let Some(n) = cur {
        point();
        if n.v >= v {
            let rest = Some(core::mem::replace(n, Box::new(L { v, next: None })));
            n.next = rest;
            return;
        }
        cur = &mut cur.as_mut().unwrap().next
    }
    *cur = Some(Box::new(L { v, next: None }))
}

fn reverse(mut head: Option<Box<L>>) -> Option<Box<L>> {
    let mut r = None;
    while let Some(mut n) = head {
        head = n.next.take();
        point();
        n.next = r;
        r = Some(n)
    }
    r
}

// A list in both directions whose nodes are in a vector.
struct Dl {
    v: u32,
    prev: Option<usize>,
    next: Option<usize>,
}

#[derive(Default)]
struct DList {
    nodes: Vec<Option<Box<Dl>>>,
    head: Option<usize>,
    tail: Option<usize>,
    len: usize,
}

impl DList {
    fn node(&mut self, i: usize) -> &mut Dl {
        self.nodes[i].as_mut().unwrap()
    }

    fn push(&mut self, v: u32) {
        point();
        let n = self.nodes.len();
        self.nodes.push(Some(Box::new(Dl {
            v,
            prev: self.tail,
            next: None,
        })));
        match self.tail {
            Some(t) => self.node(t).next = Some(n),
            None => self.head = Some(n),
        }
        self.tail = Some(n);
        self.len += 1
    }

    fn pop_front(&mut self) -> Option<u32> {
        self.head.map(|h| {
            point();
            let b = self.nodes[h].take().unwrap();
            self.head = b.next;
            match self.head {
                Some(n) => self.node(n).prev = None,
                None => self.tail = None,
            }
            self.len -= 1;
            b.v
        })
    }

    fn back(&self) -> Vec<u32> {
        let mut p = self.tail;
        let mut o = vec![];
        while let Some(n) = p.and_then(|n| self.nodes[n].as_ref()) {
            point();
            o.push(n.v);
            p = n.prev
        }
        o
    }
}

impl Drop for DList {
    fn drop(&mut self) {
        while self.pop_front().is_some() {
            point();
        }
    }
}

/// Of two slices, by reference.
fn max_ref<'a>(a: &'a [i32], b: &'a [i32]) -> &'a i32 {
    point();
    match (a.iter().max(), b.iter().max()) {
        (Some(x), Some(y)) => {
            if x > y {
                x
            } else {
                y
            }
        }
        (Some(x), None) | (None, Some(x)) => x,
        _ => &0,
    }
}

fn bytes(p: &[u8]) -> u64 {
    let mut h = 0xcbf29ce484222325u64;
    for (i, b) in p.iter().enumerate() {
        h = (h ^ *b as u64).wrapping_mul(0x100000001b3);
        if i % 3 == 0 {
            point();
        }
    }
    h
}

/// Results through arguments of several kinds.
fn out_params(
    a: &mut i32,
    b: &mut Option<String>,
    c: &mut [f64],
    d: &mut &mut [u8],
    e: &mut [u8; 8],
) -> bool {
    point();
    *a += 1;
    b.get_or_insert_with(|| {
        point();
        "made".into()
    })
    .push('!');
    for x in c.iter_mut() {
        *x = *x * 1.5 + 0.25;
        point();
    }
    let t = core::mem::take(d);
    let (h, r) = t.split_at_mut(1);
    h[0] = 42;
    *d = r;
    *e = (u64::from_le_bytes(*e) ^ 0xff00).to_le_bytes();
    point();
    !d.is_empty()
}

/// Chunks that are never moved; values are named by chunk and index.
struct Arena<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Arena<T> {
    fn alloc(&mut self, t: T) -> (usize, usize) {
        point();
        if self.chunks.last().is_none_or(|c| c.len() == c.capacity()) {
            self.chunks.push(Vec::with_capacity(4))
        }
        let chunk = self.chunks.len() - 1;
        let c = &mut self.chunks[chunk];
        c.push(t);
        (chunk, c.len() - 1)
    }
}

/// Who has nobody greater below.
fn grid<'a>(rows: &'a [&'a [u8]]) -> Vec<(usize, usize, &'a u8)> {
    let mut o = vec![];
    for (r, row) in rows.iter().enumerate() {
        for (c, x) in row.iter().enumerate() {
            point();
            if rows
                .get(r + 1)
                .and_then(|n| n.get(c))
                .is_none_or(|n| n <= x)
            {
                o.push((r, c, x))
            }
        }
    }
    o
}

/// All of it.
pub fn run(out: &mut String) {
    push(9, None, out);
    writeln!(out).unwrap();
    let mut v: Vec<u32> = (1..=33).collect();
    let (mut a, mut b, mut c) = (0u64, 1u64, 2u64);
    split(&mut v, &mut [&mut a, &mut b, &mut c], 4);
    writeln!(out, "{a} {b} {c} {v:?}").unwrap();
    let mut l = None;
    for i in 0..20 {
        insert_sorted(&mut l, i * 37 % 23);
    }
    l = reverse(l);
    let mut p = &l;
    while let Some(n) = p {
        write!(out, "{} ", n.v).unwrap();
        point();
        p = &n.next
    }
    writeln!(out).unwrap();
    let mut d = DList::default();
    for i in 0..12 {
        d.push(i * i);
        if i % 4 == 3 {
            d.pop_front();
        }
    }
    writeln!(out, "{:?} {}", d.back(), d.len).unwrap();
    let x = [1, 9, 3];
    let y = vec![4, 8];
    writeln!(out, "{} {}", max_ref(&x, &y), max_ref(&[], &[])).unwrap();
    let local = [0x1234_5678u32, 0xdead_beef, 7];
    writeln!(
        out,
        "{:x}",
        bytes(local.map(u32::to_le_bytes).as_flattened())
    )
    .unwrap();
    let (mut a, mut b, mut c, mut buf, mut e) =
        (1, None, [1.0, -2.0, 0.5], [1u8, 2, 3, 4], [0u8; 9]);
    {
        let mut s = &mut buf[..];
        let e = e.last_chunk_mut().unwrap();
        while out_params(&mut a, &mut b, &mut c, &mut s, e) {
            point();
        }
    }
    writeln!(out, "{a} {b:?} {c:?} {buf:?} {e:?}").unwrap();
    let mut ar = Arena { chunks: vec![] };
    let ps: Vec<(usize, usize)> = (0..13u16).map(|i| ar.alloc([i, i * i, !i])).collect();
    for w in ps.windows(2) {
        let ((i, j), (k, l)) = (w[0], w[1]);
        let (mut a, b) = (ar.chunks[i][j], ar.chunks[k][l]);
        a[1] += b[0];
        point();
        ar.chunks[i][j] = b;
        ar.chunks[k][l] = a;
    }
    writeln!(out, "{:?}", ar.chunks.concat()).unwrap();
    let rows: [&[u8]; 4] = [b"hello", b"wo", b"", b"rust!"];
    writeln!(out, "{:?}", grid(&rows)).unwrap();
    let mut m = [[0u8; 6]; 5];
    {
        let mut rows: Vec<&mut [u8]> = m
            .iter_mut()
            .map(|r| {
                point();
                &mut r[1..5]
            })
            .collect();
        for (i, r) in rows.iter_mut().enumerate() {
            for (j, x) in r.iter_mut().enumerate() {
                *x = (i * 4 + j) as u8;
            }
            point();
        }
        let (a, b) = rows.split_at_mut(2);
        a[0].swap_with_slice(b[1]);
        b[0].copy_from_slice(a[1]);
    }
    writeln!(out, "{m:?}").unwrap();
    let mut s = String::from("stack");
    let r = &mut s;
    let rr = &mut *r;
    let rrr = &mut &mut *rr;
    point();
    rrr.push_str("ed");
    point();
    writeln!(out, "{s}").unwrap();
}
