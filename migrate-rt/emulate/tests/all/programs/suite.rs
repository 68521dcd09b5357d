//! Computations that are run natively and interpreted, on both ISAs, with equal results. They use
//! what compilers make of ordinary Rust: nothing here is special for an interpreter.

use core::fmt::Write;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

/// What all computations are: a number in, a number out.
pub type Computation = extern "C" fn(u64) -> u64;

/// Random numbers and a hash.
struct Mix(u64);

impl Mix {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 33
    }

    fn take(&mut self, value: u64) {
        self.0 = (self.0 ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(29);
    }

    /// NaNs differ between ISAs in sign and payload.
    fn float(&mut self, value: f64) {
        self.take(if value.is_nan() { 1 } else { value.to_bits() });
    }
}

macro_rules! computations {
    ($($name:ident = $body:path;)*) => {
        $(#[unsafe(no_mangle)]
        pub extern "C" fn $name(seed: u64) -> u64 {
            let mut mix = Mix(seed);
            $body(&mut mix);
            mix.0
        })*

        /// All of them, by name.
        #[used]
        pub static COMPUTATIONS: [(&str, Computation); [$(stringify!($name)),*].len()] =
            [$((stringify!($name), $name)),*];
    };
}

computations! {
    compute_sort = sort;
    compute_bytes = bytes;
    compute_floats = floats;
    compute_conversions = conversions;
    compute_wide = wide;
    compute_text = text;
    compute_atomics = atomics;
    compute_bits = bits;
    compute_vectors = vectors;
    compute_calls = calls;
}

fn sort(mix: &mut Mix) {
    let mut numbers = [0u64; 300];
    for n in &mut numbers {
        *n = mix.next() >> 40;
    }
    let mut copy = numbers;
    numbers.sort_unstable();
    copy.sort_unstable_by(|a, b| (b & 0xff).cmp(&(a & 0xff)).then(a.cmp(b)));
    for (a, b) in numbers.iter().zip(&copy) {
        mix.take(a ^ b << 32);
    }
    for wanted in 0..50 {
        mix.take(
            numbers
                .binary_search(&(wanted << 18))
                .unwrap_or_else(|at| at) as u64,
        );
    }
}

/// Copies, fills and comparisons of all lengths and alignments.
fn bytes(mix: &mut Mix) {
    let mut a = [0u8; 700];
    let mut b = [0u8; 700];
    for byte in &mut a {
        *byte = mix.next() as u8;
    }
    for _ in 0..60 {
        let len = (mix.next() % 300) as usize;
        let (from, to) = ((mix.next() % 300) as usize, (mix.next() % 300) as usize);
        b[to..to + len].copy_from_slice(&a[from..from + len]);
        b.copy_within(from..from + len, to / 2);
        a[to..to + len / 4].fill(len as u8);
        mix.take(u64::from(a[from..from + len] == b[from..from + len]));
        mix.take(a[from..from + len].cmp(&b[to..to + len]) as u64);
        mix.take(a.iter().rposition(|&x| x == len as u8).unwrap_or(0) as u64);
    }
    for byte in b {
        mix.take(byte.into());
    }
}

fn floats(mix: &mut Mix) {
    const N: usize = 12;
    let mut a = [[0.0f64; N]; N];
    let mut singles = [0.0f32; 64];
    for row in &mut a {
        for x in row {
            *x = (mix.next() as i32) as f64 / 65536.0;
        }
    }
    for x in &mut singles {
        *x = f32::from_bits(mix.next() as u32);
    }
    let mut product = [[0.0f64; N]; N];
    for i in 0..N {
        for j in 0..N {
            product[i][j] = (0..N).map(|k| a[i][k] * a[k][j]).sum();
        }
    }
    // Newton's method, a series, an orbit.
    for row in &product {
        for &x in row {
            let wanted = x.abs() + 0.5;
            let mut root = wanted;
            for _ in 0..20 {
                root = 0.5 * (root + wanted / root);
            }
            let mut term = 1.0;
            let mut e = 0.0;
            for n in 1..30 {
                e += term;
                term *= x / 1e4 / f64::from(n);
            }
            mix.float(root);
            mix.float(e);
            mix.float(x.max(root).min(e).clamp(-3.0, 1e10));
            mix.take(u64::from(x < e) | u64::from(x >= root) << 1);
        }
    }
    for pair in singles.windows(2) {
        let (x, y) = (pair[0], pair[1]);
        mix.float(f64::from(x + y) - f64::from(x * y) + f64::from(x / y));
        mix.float(f64::from(x.max(y)) - f64::from(x.min(y)));
        mix.take(x.partial_cmp(&y).map_or(7, |o| o as u64));
        mix.take(x.total_cmp(&y) as u64);
    }
    // Denormal numbers, overflow.
    let mut small = 1e-300;
    let mut large = 1e300f64;
    for _ in 0..30 {
        small /= 7.0;
        large *= 3.0;
        mix.float(small + large.recip());
    }
    mix.float(large);
    mix.float(f64::NAN + small);
}

fn conversions(mix: &mut Mix) {
    for _ in 0..200 {
        let n = mix.next() >> (mix.next() & 63);
        mix.float(n as f64);
        mix.float((n as i64).wrapping_neg() as f64);
        mix.take((n as f32).to_bits().into());
        mix.take(((n as i32) as f32).to_bits().into());
        mix.float((u128::from(n) * u128::from(n)) as f64);
        mix.float((i128::from(n as i64) << 50) as f64);
        let x = f64::from_bits(mix.next());
        let y = (mix.next() as i64 as f64) / 1e9;
        for x in [x, y, -y, y * 1e20] {
            mix.take(x as u64);
            mix.take(x as i64 as u64);
            mix.take((x as u32).into());
            mix.take(x as i32 as u64);
            mix.take(u64::from(x as u8) | u64::from(x as i16 as u16) << 8);
            mix.take(x as u128 as u64 ^ (x as i128 >> 64) as u64);
            mix.take((x as f32).to_bits() as u64 & 0x7fff_ffff);
            mix.take(x as f32 as i64 as u64);
            mix.take((x as f32 as u64) ^ 5);
        }
    }
}

/// Numbers of 128 bits, and what overflows.
fn wide(mix: &mut Mix) {
    let mut x = u128::from(mix.next()) << 64 | u128::from(mix.next());
    for i in 0..120u32 {
        let y = u128::from(mix.next()) << (mix.next() % 64) | 1;
        let s = (x ^ y.rotate_left(i)) as i128;
        mix.take((x / y) as u64);
        mix.take((x % y) as u64 ^ (s / (y as i128 | 3)) as u64);
        mix.take((s % (y as i64 as i128 | 1)) as u64);
        mix.take((x.checked_mul(y).unwrap_or(x.wrapping_sub(y)) >> 64) as u64);
        mix.take((s >> (i % 128)) as u64 ^ (x << (y as u32 % 128) >> 64) as u64);
        mix.take((x.leading_zeros() + y.trailing_zeros() + x.count_ones()).into());
        mix.take(s.saturating_mul(y as i128).unsigned_abs() as u64);
        let (a, b) = (x as u64, y as u64);
        mix.take(a.checked_add(b).unwrap_or(a / (b | 1)));
        mix.take((a as i64).saturating_sub(b as i64) as u64);
        mix.take((a as i32).checked_mul(b as i32).map_or(3, |p| p as u64));
        mix.take((a as i64).checked_rem(b as i32 as i64).unwrap_or(1) as u64);
        mix.take(u64::from(
            (a as u16).wrapping_mul(b as u16) / ((b >> 16) as u16 | 1),
        ));
        mix.take(u64::from((a as i8).wrapping_shr(i) as u8 % (b as u8 | 1)));
        x = x
            .wrapping_mul(y)
            .wrapping_add(u128::MAX / 3)
            .rotate_right(i);
    }
}

/// A buffer to write text into.
struct Buffer {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + s.len());
        room.ok_or(core::fmt::Error)?.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

/// Formatting and parsing.
fn text(mix: &mut Mix) {
    for i in 0..20 {
        let (n, x) = (mix.next(), f64::from_bits(mix.next()));
        let x = if x.is_nan() { 0.1 } else { x };
        let mut buffer = Buffer {
            bytes: [0; 256],
            len: 0,
        };
        let small = (n as i32) as f64 / 1000.0;
        let written = write!(
            buffer,
            "{n} {:#x} {:>12} {:?} {:e} {small:.3} {:?}",
            n >> 7,
            n as i16,
            n as f32,
            x,
            Some(&["a", "\u{e9}\n"][i % 2])
        );
        mix.take(u64::from(written.is_ok()));
        let Ok(text) = core::str::from_utf8(&buffer.bytes[..buffer.len]) else {
            continue;
        };
        for word in text.split(' ') {
            mix.take(word.len() as u64);
            mix.take(word.parse::<u64>().unwrap_or(9));
            mix.float(word.parse::<f64>().unwrap_or(0.5));
            mix.take(word.parse::<f32>().map_or(4, |f| f.to_bits().into()));
            mix.take(word.chars().map(|c| u64::from(u32::from(c))).sum());
        }
    }
}

fn atomics(mix: &mut Mix) {
    let (a, b, c, d) = (
        AtomicU64::new(mix.next()),
        AtomicI32::new(mix.next() as i32),
        AtomicU8::new(mix.next() as u8),
        AtomicU16::new(mix.next() as u16),
    );
    for _ in 0..40 {
        let n = mix.next();
        mix.take(a.fetch_add(n, Ordering::Relaxed) ^ a.fetch_sub(n >> 3, Ordering::AcqRel));
        mix.take(a.fetch_and(n | 0xffff, Ordering::SeqCst) ^ a.fetch_or(n, Ordering::Release));
        mix.take(a.fetch_xor(n, Ordering::Acquire) ^ a.fetch_max(n, Ordering::SeqCst));
        mix.take(a.fetch_min(n >> 1, Ordering::SeqCst) ^ a.swap(n ^ 7, Ordering::SeqCst));
        let old = a.load(Ordering::SeqCst);
        let wrong = a.compare_exchange(n, 5, Ordering::SeqCst, Ordering::Relaxed);
        mix.take(wrong.unwrap_or_else(|e| e));
        let right = a.compare_exchange_weak(old, n, Ordering::AcqRel, Ordering::Acquire);
        mix.take(right.unwrap_or_else(|e| e));
        mix.take(b.fetch_max(n as i32, Ordering::SeqCst) as u64);
        mix.take(b.fetch_nand(n as i32, Ordering::SeqCst) as u64);
        mix.take(b.fetch_add(3, Ordering::SeqCst) as u64);
        fence(Ordering::SeqCst);
        mix.take(c.fetch_sub(n as u8, Ordering::SeqCst).into());
        mix.take(
            c.compare_exchange(7, n as u8, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
                .into(),
        );
        mix.take(d.swap(n as u16, Ordering::AcqRel).into());
        d.store(old as u16, Ordering::Release);
        mix.take(d.fetch_xor(0x55, Ordering::SeqCst).into());
        fence(Ordering::Acquire);
    }
}

fn bits(mix: &mut Mix) {
    for i in 0..100u32 {
        let n = mix.next() >> (i % 50);
        let (w, h, b) = (n as u32, n as u16, n as u8);
        mix.take(n.swap_bytes() ^ n.reverse_bits() ^ n.rotate_left(i));
        mix.take((n.leading_zeros() + 3 * n.trailing_zeros() + 5 * n.count_ones()).into());
        mix.take((w.swap_bytes() ^ w.reverse_bits() ^ w.rotate_right(i)).into());
        mix.take((w.leading_zeros() + 3 * w.trailing_zeros() + 5 * w.count_ones()).into());
        mix.take((h.swap_bytes() ^ h.reverse_bits() ^ h.rotate_left(i)).into());
        mix.take((b.reverse_bits() ^ b.rotate_right(i)).into());
        mix.take((h.leading_zeros() + 3 * h.trailing_ones() + b.count_zeros()).into());
        mix.take((n as i64 >> (i % 64)) as u64 ^ n.wrapping_shl(i * 7));
        mix.take(n.isqrt() ^ u64::from(w.is_power_of_two()) ^ (n % 1000).pow(3));
        mix.take(n.abs_diff(!n).checked_ilog2().unwrap_or(0).into());
    }
}

/// Loops that become vector code.
fn vectors(mix: &mut Mix) {
    let (mut a, mut b) = ([0u8; 128], [0u8; 128]);
    let (mut s, mut t) = ([0i16; 96], [0i16; 96]);
    let (mut i, mut j) = ([0i32; 80], [0i32; 80]);
    let (mut x, mut y) = ([0f64; 40], [0f32; 40]);
    a.fill_with(|| mix.next() as u8);
    b.fill_with(|| mix.next() as u8);
    s.fill_with(|| mix.next() as i16);
    t.fill_with(|| mix.next() as i16);
    i.fill_with(|| mix.next() as i32);
    j.fill_with(|| mix.next() as i32);
    x.fill_with(|| (mix.next() as i16).into());
    y.fill_with(|| (mix.next() as i16).into());
    let each = |f: &dyn Fn(u8, u8) -> u8| -> u64 {
        let mut c = [0u8; 128];
        for ((c, a), b) in c.iter_mut().zip(&a).zip(&b) {
            *c = f(*a, *b);
        }
        c.iter()
            .fold(0, |h: u64, &c| h.rotate_left(5) ^ u64::from(c))
    };
    mix.take(each(&|a, b| a.saturating_add(b)));
    let mut c = [0u8; 128];
    for k in 0..128 {
        c[k] = a[k].saturating_sub(b[k]).max(a[k].abs_diff(b[k])) ^ (a[k] >> 3);
    }
    for k in 0..128 {
        c[k] = if c[k] > a[k] {
            c[k].wrapping_add(b[k])
        } else {
            (c[k] & a[k]).midpoint(b[k])
        };
    }
    mix.take(c.iter().map(|&c| u64::from(c)).sum());
    mix.take(c.iter().copied().max().unwrap_or(0).into());
    mix.take(c.iter().map(|c| u64::from(c.count_ones())).sum());
    let mut u = [0i16; 96];
    for k in 0..96 {
        u[k] = s[k].saturating_add(t[k]).min(s[k].wrapping_mul(t[k])) ^ (t[k] >> 2);
    }
    mix.take(u.iter().map(|&u| i64::from(u)).sum::<i64>() as u64);
    mix.take(
        s.iter()
            .zip(&t)
            .map(|(&s, &t)| i32::from(s) * i32::from(t))
            .fold(0, i32::wrapping_add) as u64,
    );
    mix.take(u.iter().copied().min().unwrap_or(0) as u64);
    let mut v = [0i32; 80];
    for k in 0..80 {
        v[k] = i[k].wrapping_mul(j[k]).wrapping_abs() << 1 | (i[k] >> 5);
        v[k] = if v[k] < j[k] { v[k] } else { !j[k] };
    }
    mix.take(v.iter().fold(0, |a, &v| a ^ v) as u64);
    mix.take(
        i.iter()
            .zip(&j)
            .map(|(&i, &j)| i64::from(i) * i64::from(j))
            .fold(0, i64::wrapping_add) as u64,
    );
    mix.take(i.iter().map(|&i| u64::from(i as u32)).sum());
    let mut z = [0f64; 40];
    for k in 0..40 {
        z[k] = x[k] * 0.25 + f64::from(y[k]) / 3.0;
        y[k] = y[k] * y[k] - 2.0;
    }
    for k in 0..40 {
        z[k] = if z[k] < x[k] { z[k] + 1.0 } else { -z[k] };
        j[k] = z[k] as i32;
        i[k] = j[k] / 7;
    }
    for k in 0..40 {
        mix.float(z[k]);
        mix.float(y[k].into());
        mix.take(i[k] as u64);
    }
}

/// Something that is called through a table.
trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);
struct Rectangle(u64, u64);

impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}

impl Shape for Rectangle {
    fn area(&self) -> u64 {
        self.0 * self.1
    }
}

#[inline(never)]
fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

/// A function whose arguments do not all fit into registers, and a table of branches.
#[allow(clippy::too_many_arguments)] // That is its point.
#[inline(never)]
fn many(a: u64, b: u8, c: f64, d: i32, e: u64, f: u64, g: f32, h: u64, i: u64, j: u64) -> u64 {
    match a % 9 {
        0 => b.into(),
        1 => c as u64,
        2 => d as u64,
        3 => e ^ f,
        4 => (g as u64).wrapping_add(h),
        5 => i.wrapping_mul(j),
        6 => a.wrapping_sub(j),
        7 => f | i,
        _ => 77,
    }
}

fn calls(mix: &mut Mix) {
    let square = Square(mix.next() >> 40);
    let rectangle = Rectangle(mix.next() >> 50, 12);
    let shapes: [&dyn Shape; 3] = [&square, &rectangle, &square];
    for i in 0..30 {
        let n = mix.next();
        mix.take(shapes[n as usize % 3].area());
        mix.take(many(
            n,
            i,
            n as f64,
            i.into(),
            n >> 1,
            n >> 2,
            n as f32,
            n >> 3,
            n >> 4,
            n >> 5,
        ));
    }
    mix.take(ackermann(2, mix.0 % 7));
}
