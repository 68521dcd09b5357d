//! Algorithms: a hash, compression, trees of codes, cells on a torus, a fractal, searches.

use core::cmp::Reverse;
use core::fmt::Write;

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};

use dyad::prelude::thread::*;

use crate::schedule::point;

const K: [u32; 64] = {
    let mut k = [0u32; 64];
    let mut i = 0;
    while i < 64 {
        k[i] = (i as u32 + 1)
            .wrapping_mul(0x9E3779B1)
            .rotate_left(i as u32 % 31)
            ^ 0x428a2f98;
        i += 1
    }
    k
};

/// Rounds like those of SHA-256, with other constants.
fn hash256(data: &[u8]) -> [u8; 32] {
    let mut h: [u32; 8] = [
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
        0x5be0cd19,
    ];
    let mut m = data.to_vec();
    m.push(0x80);
    while m.len() % 64 != 56 {
        m.push(0)
    }
    m.extend(((data.len() as u64) * 8).to_be_bytes());
    for block in m.chunks_exact(64) {
        let mut w = [0u32; 64];
        for (i, b) in block.chunks_exact(4).enumerate() {
            w[i] = u32::from_be_bytes(b.try_into().unwrap())
        }
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16]
                .wrapping_add(s0)
                .wrapping_add(w[i - 7])
                .wrapping_add(s1)
        }
        point();
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut hh] = h;
        for i in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let ch = (e & f) ^ (!e & g);
            let t1 = hh
                .wrapping_add(s1)
                .wrapping_add(ch)
                .wrapping_add(K[i])
                .wrapping_add(w[i]);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            hh = g;
            g = f;
            f = e;
            e = d.wrapping_add(t1);
            d = c;
            c = b;
            b = a;
            a = t1.wrapping_add(t2);
            if i % 16 == 5 {
                point();
            }
        }
        for (x, y) in h.iter_mut().zip([a, b, c, d, e, f, g, hh]) {
            *x = x.wrapping_add(y)
        }
    }
    let mut o = [0; 32];
    for (c, x) in o.chunks_exact_mut(4).zip(h) {
        c.copy_from_slice(&x.to_be_bytes());
        point();
    }
    o
}

/// Compression: what has been there already is named by where and how long.
fn lz(data: &[u8]) -> Vec<(u16, u8, Option<u8>)> {
    let mut o = vec![];
    let mut i = 0;
    while i < data.len() {
        point();
        let (mut best, mut off) = (0, 0);
        for j in i.saturating_sub(255)..i {
            let n = data[j..]
                .iter()
                .zip(&data[i..])
                .take(200)
                .take_while(|(a, b)| a == b)
                .count();
            if n > best {
                best = n;
                off = i - j
            }
        }
        o.push((off as u16, best as u8, data.get(i + best).copied()));
        i += best + 1
    }
    o
}

/// Undoes [`lz`].
fn unlz(t: &[(u16, u8, Option<u8>)]) -> Vec<u8> {
    t.iter().fold(vec![], |mut o, (off, n, c)| {
        point();
        for _ in 0..*n {
            let b = o[o.len() - *off as usize];
            o.push(b)
        }
        o.extend(c);
        o
    })
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum H {
    Leaf(u8),
    Node(Box<H>, Box<H>),
}

/// Codes by frequency.
fn huff(data: &[u8]) -> BTreeMap<u8, String> {
    let mut n = BTreeMap::new();
    for b in data {
        *n.entry(*b).or_insert(0u32) += 1;
    }
    let mut h: BinaryHeap<Reverse<(u32, H)>> = n
        .into_iter()
        .map(|(b, n)| {
            point();
            Reverse((n, H::Leaf(b)))
        })
        .collect();
    while h.len() > 1 {
        let Reverse((a, x)) = h.pop().unwrap();
        let Reverse((b, y)) = h.pop().unwrap();
        point();
        h.push(Reverse((a + b, H::Node(Box::new(x), Box::new(y)))))
    }

    fn walk(t: &H, p: &mut String, o: &mut BTreeMap<u8, String>) {
        point();
        match t {
            H::Leaf(b) => {
                o.insert(*b, p.clone());
            }
            H::Node(a, b) => {
                p.push('0');
                walk(a, p, o);
                p.pop();
                p.push('1');
                walk(b, p, o);
                p.pop();
            }
        }
    }
    let mut o = BTreeMap::new();
    walk(&h.pop().unwrap().0.1, &mut String::new(), &mut o);
    o
}

/// Conway's game on a torus.
fn life(w: usize, h: usize, g: &mut [bool], n: u32) {
    for _ in 0..n {
        let old = g.to_vec();
        for y in 0..h {
            point();
            for x in 0..w {
                let c = (0..9)
                    .filter(|k| *k != 4)
                    .filter(|k| {
                        let (dx, dy) = (k % 3, k / 3);
                        old[(y + dy + h - 1) % h * w + (x + dx + w - 1) % w]
                    })
                    .count();
                g[y * w + x] = matches!((old[y * w + x], c), (true, 2) | (_, 3))
            }
        }
    }
}

/// The set of Mandelbrot.
fn mandel(w: u32, h: u32) -> String {
    let mut s = String::new();
    for y in 0..h {
        for x in 0..w {
            let (cr, ci) = (
                x as f64 / w as f64 * 3.0 - 2.0,
                y as f64 / h as f64 * 2.0 - 1.0,
            );
            let (mut a, mut b, mut n) = (0.0, 0.0, 0u8);
            while a * a + b * b < 4.0 && n < 40 {
                (a, b) = (a * a - b * b + cr, 2.0 * a * b + ci);
                n += 1;
                if n % 8 == 0 {
                    point();
                }
            }
            s.push(b" .:-=+*#%@"[n as usize / 5 % 10] as char)
        }
        s.push('\n')
    }
    s
}

/// Search by Knuth, Morris and Pratt.
fn kmp(t: &[u8], p: &[u8]) -> Vec<usize> {
    let mut f = vec![0; p.len()];
    let mut k = 0;
    for i in 1..p.len() {
        while k > 0 && p[k] != p[i] {
            k = f[k - 1]
        }
        if p[k] == p[i] {
            k += 1
        }
        f[i] = k;
        point();
    }
    let (mut o, mut q) = (vec![], 0);
    for (i, c) in t.iter().enumerate() {
        while q > 0 && p[q] != *c {
            q = f[q - 1];
            point();
        }
        if p[q] == *c {
            q += 1
        }
        if q == p.len() {
            o.push(i + 1 - q);
            q = f[q - 1]
        }
    }
    o
}

/// Words by their letters.
#[derive(Default)]
struct Trie {
    kids: BTreeMap<char, Trie>,
    end: bool,
}

impl Trie {
    fn add(&mut self, w: &str) {
        let mut t = self;
        for c in w.chars() {
            point();
            t = t.kids.entry(c).or_default()
        }
        t.end = true
    }

    fn all(&self, p: &mut String, o: &mut Vec<String>) {
        if self.end {
            o.push(p.clone())
        }
        for (c, t) in &self.kids {
            p.push(*c);
            point();
            t.all(p, o);
            p.pop();
        }
    }
}

/// How many letters must be changed.
fn edit(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let mut diag = row[0];
        row[0] = i + 1;
        point();
        for j in 0..b.len() {
            let x = (diag + (c != b[j]) as usize)
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            diag = row[j + 1];
            row[j + 1] = x
        }
    }
    row[b.len()]
}

/// A shortest way from `S` to `E`.
fn bfs(m: &[&str]) -> Option<(u32, String)> {
    let g: Vec<Vec<u8>> = m.iter().map(|r| r.bytes().collect()).collect();
    let find = |c| {
        g.iter().enumerate().find_map(|(y, r)| {
            point();
            r.iter().position(|b| *b == c).map(|x| (y, x))
        })
    };
    let (s, e) = (find(b'S')?, find(b'E')?);
    let mut seen = vec![vec![None; g[0].len()]; g.len()];
    let mut q = VecDeque::from([(s, 0)]);
    seen[s.0][s.1] = Some(' ');
    while let Some(((y, x), d)) = q.pop_front() {
        point();
        if (y, x) == e {
            let mut p = String::new();
            let (mut y, mut x) = e;
            while let Some(c) = seen[y][x].filter(|c| *c != ' ') {
                p.insert(0, c);
                match c {
                    'U' => y += 1,
                    'D' => y -= 1,
                    'L' => x += 1,
                    _ => x -= 1,
                }
            }
            return Some((d, p));
        }
        for (c, dy, dx) in [('U', -1i32, 0i32), ('D', 1, 0), ('L', 0, -1), ('R', 0, 1)] {
            let (ny, nx) = (
                y.wrapping_add_signed(dy as isize),
                x.wrapping_add_signed(dx as isize),
            );
            if g.get(ny)
                .and_then(|r| r.get(nx))
                .is_some_and(|b| *b != b'#')
                && seen[ny][nx].is_none()
            {
                seen[ny][nx] = Some(c);
                q.push_back(((ny, nx), d + 1))
            }
        }
    }
    None
}

/// All of it.
pub fn run(out: &mut String) {
    for t in [
        "",
        "abc",
        "The quick brown fox jumps over the lazy dog, twice; and once more for good measure.",
    ] {
        for b in hash256(t.as_bytes()) {
            write!(out, "{b:02x}").unwrap();
        }
        writeln!(out).unwrap();
    }
    let text = b"abracadabra abracadabra sim sala bim abracadabra";
    let z = lz(text);
    writeln!(out, "{} {:?} {}", z.len(), &z[..6], unlz(&z) == text).unwrap();
    writeln!(out, "{:?}", huff(text)).unwrap();
    let mut g: Vec<bool> = (0..16 * 12)
        .map(|i| i * 7 % 5 == 0 || i % 11 == 3)
        .collect();
    life(16, 12, &mut g, 5);
    writeln!(
        out,
        "{}",
        g.chunks(16)
            .map(|r| r
                .iter()
                .map(|b| if *b { '#' } else { '.' })
                .collect::<String>())
            .collect::<Vec<_>>()
            .join("\n")
    )
    .unwrap();
    writeln!(out, "{}", mandel(40, 12)).unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        kmp(b"aabaacaadaabaaba", b"aaba"),
        kmp(b"xyz", b"q")
    )
    .unwrap();
    let mut t = Trie::default();
    for w in ["tea", "ten", "to", "inn", "in", "i"] {
        t.add(w)
    }
    let mut o = vec![];
    t.all(&mut String::new(), &mut o);
    writeln!(out, "{o:?} {}", edit("kitten sitting", "sitting kitten")).unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        bfs(&["S.#.....", "..#.###.", "..#...#.", "....#.#E", "##.##.#."]),
        bfs(&["S#E"])
    )
    .unwrap();
}
