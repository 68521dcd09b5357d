//! Packed integers: arithmetic, comparison, packing, shifts, shuffles.

use super::super::context::{Context, extend};
use super::Prefix;
use super::lanes::{get, logical, put, unpack, zip};
use crate::{Memory, Stop};

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>) -> Result<(), Stop> {
    let opcode = c.i.opcode;
    if let 0x71..=0x73 = opcode {
        return shift_by_constant(c);
    }
    let b = c.vector()?;
    let a = c.xmm();
    let value = match opcode {
        0x60..=0x62 => unpack(a, b, u32::from(opcode - 0x60), false),
        0x68..=0x6a => unpack(a, b, u32::from(opcode - 0x68), true),
        0x6c | 0x6d => unpack(a, b, 3, opcode == 0x6d),
        // PACKSSWB, PACKUSWB, PACKSSDW
        0x63 => pack(a, b, 1, -0x80, 0x7f),
        0x67 => pack(a, b, 1, 0, 0xff),
        0x6b => pack(a, b, 2, -0x8000, 0x7fff),
        0x64..=0x66 => zip(a, b, u32::from(opcode - 0x64), &mut |a, b| {
            let size = 1 << (opcode - 0x64);
            u64::from(extend(a, size) > extend(b, size)).wrapping_neg()
        }),
        0x74..=0x76 => zip(a, b, u32::from(opcode - 0x74), &mut |a, b| {
            u64::from(a == b).wrapping_neg()
        }),
        0xd1..=0xd3 | 0xe1 | 0xe2 | 0xf1..=0xf3 => {
            // The low three bits are the lanes' size, the others the direction.
            let count = b as u64;
            shift(a, u32::from(opcode & 3), Direction::of(opcode), count)
        }
        0xdb => logical(0, a, b),
        0xdf => logical(1, a, b),
        0xeb => logical(2, a, b),
        0xef => logical(3, a, b),
        // PMULUDQ
        0xf4 => zip(a, b, 3, &mut |a, b| (a & 0xffff_ffff) * (b & 0xffff_ffff)),
        // PMADDWD
        0xf5 => zip(a, b, 2, &mut |a, b| {
            let product = |at: u32| extend(a >> at & 0xffff, 2) * extend(b >> at & 0xffff, 2);
            (product(0) + product(16)) as u64
        }),
        // PSADBW
        0xf6 => zip(a, b, 3, &mut |a, b| {
            (0..64)
                .step_by(8)
                .map(|at| (a >> at & 0xff).abs_diff(b >> at & 0xff))
                .sum()
        }),
        _ => {
            let log2 = lanes_of(opcode).ok_or(Stop::Unknown)?;
            zip(a, b, log2, &mut |a, b| lane(opcode, a, b))
        }
    };
    c.set_xmm(value);
    Ok(())
}

/// Size of the lanes of an operation that is done by [`lane`].
fn lanes_of(opcode: u8) -> Option<u32> {
    Some(match opcode {
        0xd8 | 0xda | 0xdc | 0xde | 0xe0 | 0xe8 | 0xec | 0xf8 | 0xfc => 0,
        0xd5 | 0xd9 | 0xdd | 0xe3..=0xe5 | 0xe9 | 0xea | 0xed | 0xee | 0xf9 | 0xfd => 1,
        0xfa | 0xfe => 2,
        0xd4 | 0xfb => 3,
        _ => return None,
    })
}

/// One lane, of the low bits of the operands and of the result.
fn lane(opcode: u8, a: u64, b: u64) -> u64 {
    let (byte_a, byte_b) = (extend(a, 1), extend(b, 1));
    let (word_a, word_b) = (extend(a & 0xffff, 2), extend(b & 0xffff, 2));
    match opcode {
        // PADD, PSUB
        0xd4 | 0xfc..=0xfe => a.wrapping_add(b),
        0xf8..=0xfb => a.wrapping_sub(b),
        // PSUBUS, PADDUS
        0xd8 | 0xd9 => a.saturating_sub(b),
        0xdc => (a + b).min(0xff),
        0xdd => (a + b).min(0xffff),
        // PSUBS, PADDS
        0xe8 => (byte_a - byte_b).clamp(-0x80, 0x7f) as u64,
        0xe9 => (word_a - word_b).clamp(-0x8000, 0x7fff) as u64,
        0xec => (byte_a + byte_b).clamp(-0x80, 0x7f) as u64,
        0xed => (word_a + word_b).clamp(-0x8000, 0x7fff) as u64,
        // PMINUB, PMAXUB, PMINSW, PMAXSW
        0xda => a.min(b),
        0xde => a.max(b),
        0xea => word_a.min(word_b) as u64,
        0xee => word_a.max(word_b) as u64,
        // PAVG
        0xe0 | 0xe3 => (a + b + 1) >> 1,
        // PMULLW, PMULHUW, PMULHW
        0xd5 => a * b,
        0xe4 => (a * b) >> 16,
        _ => ((word_a * word_b) >> 16) as u64,
    }
}

/// The lanes of both, narrowed with saturation.
fn pack(a: u128, b: u128, log2: u32, least: i64, most: i64) -> u128 {
    let lanes = 16 >> log2;
    let mut result = 0;
    for (half, value) in [a, b].into_iter().enumerate() {
        for at in 0..lanes {
            let lane = extend(get(value, at, log2), 1 << log2).clamp(least, most);
            put(&mut result, half as u32 * lanes + at, log2 - 1, lane as u64);
        }
    }
    result
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Left,
    Right,
    /// Filled with the sign.
    RightSigned,
}

impl Direction {
    /// By the upper half of the opcode, or twice the opcode extension.
    fn of(opcode: u8) -> Direction {
        match opcode >> 4 {
            0xd => Direction::Right,
            0xe => Direction::RightSigned,
            _ => Direction::Left,
        }
    }
}

/// All lanes, by the same count.
fn shift(a: u128, log2: u32, direction: Direction, count: u64) -> u128 {
    let bits = 8 << log2;
    let by = count.min(bits) as u32;
    zip(a, 0, log2, &mut |a, _| match direction {
        Direction::Left => a.unbounded_shl(by),
        Direction::Right => a.unbounded_shr(by),
        Direction::RightSigned => (extend(a, 1 << log2) >> by.min(63)) as u64,
    })
}

/// PSRLW, PSRAW, PSLLW, PSRLD, PSRAD, PSLLD, PSRLQ, PSRLDQ, PSLLQ, PSLLDQ.
fn shift_by_constant<M: Memory>(c: &mut Context<'_, M>) -> Result<(), Stop> {
    let n = usize::from(c.i.rm().ok_or(Stop::Unknown)?);
    let a = c.state.xmm[n];
    let count = c.i.immediate as u64 & 0xff;
    let log2 = u32::from(c.i.opcode - 0x70);
    let bytes = 8 * count.min(16) as u32;
    c.state.xmm[n] = match (c.i.group(), log2) {
        (2, _) => shift(a, log2, Direction::Right, count),
        (4, 1 | 2) => shift(a, log2, Direction::RightSigned, count),
        (6, _) => shift(a, log2, Direction::Left, count),
        (3, 3) => a.unbounded_shr(bytes),
        (7, 3) => a.unbounded_shl(bytes),
        _ => return Err(Stop::Unknown),
    };
    Ok(())
}

/// PSHUFD, PSHUFHW, PSHUFLW, SHUFPS, SHUFPD.
pub(super) fn shuffle<M: Memory>(c: &mut Context<'_, M>, prefix: Prefix) -> Result<(), Stop> {
    let choice = c.i.immediate as u32 & 0xff;
    if c.i.opcode == 0xc6 && matches!(prefix, Prefix::F2 | Prefix::F3) {
        return Err(Stop::Unknown);
    }
    if c.i.opcode == 0x70 && prefix == Prefix::None {
        return Err(Stop::Unknown);
    }
    let b = c.vector()?;
    let a = c.xmm();
    let mut value = 0;
    match (c.i.opcode, prefix) {
        (0xc6, Prefix::None) => {
            for at in 0..4 {
                let from = if at < 2 { a } else { b };
                put(&mut value, at, 2, get(from, choice >> (2 * at) & 3, 2));
            }
        }
        (0xc6, _) => {
            put(&mut value, 0, 3, get(a, choice & 1, 3));
            put(&mut value, 1, 3, get(b, choice >> 1 & 1, 3));
        }
        (_, Prefix::P66) => {
            for at in 0..4 {
                put(&mut value, at, 2, get(b, choice >> (2 * at) & 3, 2));
            }
        }
        (_, prefix) => {
            let first = if prefix == Prefix::F3 { 4 } else { 0 };
            value = b;
            for at in 0..4 {
                let lane = get(b, first + (choice >> (2 * at) & 3), 1);
                put(&mut value, first + at, 1, lane);
            }
        }
    }
    c.set_xmm(value);
    Ok(())
}
