//! What is computed, with canaries wherever a thread keeps things.

use core::hint::black_box;

use dyad::emulation::Registers;
use dyad::prelude::thread::*;
use dyad_random::hash as mix;

/// What a frame of [`descend`] holds, as long as it is there.
fn pattern(depth: u64) -> [u64; 10] {
    core::array::from_fn(|i| mix(depth, i as u64))
}

/// Keeps values in registers, as many as compilers have: integers, a 128-bit one, floating point.
#[inline(never)]
pub fn registers(seed: u64, turns: u64) -> u64 {
    let (mut a, mut b, mut c, mut d) = (seed, seed ^ 1, seed << 1, !seed);
    let (mut e, mut f, mut g) = (seed.rotate_left(7), seed.rotate_left(23), seed | 1);
    let mut wide = u128::from(seed) << 40 | 0x11;
    let (mut w, mut x, mut y, mut z) = (1.0f64, 0.5f64, seed as f64, 3.0f32);
    for turn in 0..turns {
        a = a.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(turn);
        b = mix(b, a >> 11);
        c ^= b.rotate_left((turn & 31) as u32);
        d = d.wrapping_add(c).swap_bytes();
        e = e.wrapping_sub(d ^ a);
        f = f.wrapping_add(u64::from(e.count_ones())) ^ (e >> 3);
        g = g.wrapping_mul(f | 1);
        wide = wide
            .wrapping_mul(u128::from(g | 1))
            .wrapping_add(u128::from(a));
        w = w * 1.000_1 + x;
        x = (x + (a >> 40) as f64) / 3.0;
        y = (y - w).abs() % 1e9;
        z = z * 0.75 + (f & 0xff) as f32;
    }
    let whole = [a, b, c, d, e, f, g, wide as u64, (wide >> 64) as u64];
    let real = [w.to_bits(), x.to_bits(), y.to_bits(), z.to_bits().into()];
    whole.into_iter().chain(real).fold(turns, mix)
}

/// What [`hold`] keeps in registers all the time.
#[derive(Clone, Copy)]
struct Canaries {
    words: [u64; 3],
    reals: [f64; 2],
    lanes: [u32; 4],
}

impl Canaries {
    fn of(seed: u64) -> Canaries {
        // From 0.5 to 1.
        let real = |n| f64::from_bits(0x3fe0_0000_0000_0000 | mix(seed, n) >> 12);
        Canaries {
            words: core::array::from_fn(|i| mix(seed, 20 + i as u64)),
            reals: [real(30), real(31)],
            lanes: core::array::from_fn(|i| mix(seed, 40 + i as u64) as u32),
        }
    }

    /// Whether all of them are among these registers: words, floating-point numbers, a vector.
    fn are_in(&self, registers: &Registers) -> bool {
        let [a, b, c, d] = self.lanes.map(u64::from);
        let lanes = [a | b << 32, c | d << 32];
        let vectors = &registers.vector;
        self.words.iter().all(|w| registers.general.contains(w))
            && (self.reals.iter()).all(|r| vectors.iter().any(|v| v[0] == r.to_bits()))
            && vectors.contains(&lanes)
    }
}

/// Uses canaries in every turn of a loop, and changes none of them, so that they stay in registers: three
/// words, two floating-point numbers, a vector of four lanes. Ten more are on the native stack, as no thread
/// can move natively in here.
#[inline(never)]
fn hold(seed: u64, turns: u64) -> u64 {
    let on_stack = black_box(pattern(seed));
    let canaries = black_box(Canaries::of(seed));
    let Canaries {
        words: [a, b, c],
        reals: [x, y],
        lanes,
    } = canaries;
    let (mut sum, mut real, mut vector) = (seed, 1.0f64, [1u32; 4]);
    for _ in 0..turns {
        sum = (sum ^ a).wrapping_mul(b).rotate_left(13).wrapping_add(c);
        real = real * x + y;
        for (v, lane) in vector.iter_mut().zip(lanes) {
            *v = (*v ^ lane).wrapping_add(*v >> 3);
        }
    }
    let vector = black_box(vector);
    let end = vector.into_iter().map(u64::from);
    let end = end.chain(on_stack).chain([sum, real.to_bits()]);
    end.fold(seed, mix)
}

/// The seed of a frame.
fn seed_of(depth: u64, seed: u64) -> u64 {
    seed ^ depth
}

/// Whether a thread that does [`round`]s had, when it was stopped with these registers, canaries in all kinds
/// of them.
pub fn is_held(registers: &Registers, depth: u64, seed: u64) -> bool {
    (0..=depth).any(|d| Canaries::of(seed_of(d, seed)).are_in(registers))
}

/// Frames full of canaries, each with a reference to the one above and a box of its own, and points in
/// between. `Err`: what has changed.
#[inline(never)]
pub fn descend(depth: u64, seed: u64, turns: u64, above: &[u64; 10]) -> Result<u64, &'static str> {
    let mine = black_box(pattern(depth ^ seed));
    let boxed = Box::new(pattern(depth.wrapping_add(seed)));
    let (kept, real) = (above[depth as usize % 10], mine[3] as f64);
    let own = seed_of(depth, seed);
    let before = registers(own, turns);
    let held = hold(own, 2 * turns);
    dyad::thread::migrate_point();
    let below = match depth {
        0 => 0,
        _ => descend(depth - 1, seed, turns, &mine)?,
    };
    let held_behind = hold(own, 2 * turns);
    let behind = registers(own, turns);
    dyad::thread::migrate_point();
    if behind != before {
        return Err("a computation gives something else");
    }
    if held_behind != held {
        return Err("a canary in a register has changed");
    }
    if mine != pattern(depth ^ seed) || real != mine[3] as f64 {
        return Err("a canary on the stack has changed");
    }
    if *boxed != pattern(depth.wrapping_add(seed)) {
        return Err("a canary on the heap has changed");
    }
    if above[depth as usize % 10] != kept {
        return Err("a caller's frame has changed");
    }
    Ok(mix(below, mine[7] ^ boxed[2] ^ before ^ held))
}

/// A round: what it gives is the same each time.
pub fn round(depth: u64, seed: u64, turns: u64) -> Result<u64, &'static str> {
    let top = pattern(1000);
    descend(depth, seed, turns, &top)
}
