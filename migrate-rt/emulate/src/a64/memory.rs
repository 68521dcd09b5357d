//! Loads and stores (C4.1, "Loads and Stores").
//!
//! Order: a load of [`Memory`] is an acquire load and a store a release store, which covers all
//! forms but one. LDAR after STLR must not overtake it: a fence follows STLR.

mod exclusive;
mod structure;

use super::bits::{bit, extend, field, sign_extend, signed};
use super::{R31, State};
use crate::{Memory, Stop};

pub(super) fn execute<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let vector = bit(word, 26);
    match field(word, 28, 2) {
        0 if vector => structure::execute(state, memory, word),
        0 if !bit(word, 24) => exclusive::execute(state, memory, word),
        1 if !bit(word, 24) => literal(state, memory, word),
        2 => pair(state, memory, word),
        3 if bit(word, 24) => {
            let access = Single::of(word)?;
            let offset = u64::from(field(word, 10, 12)) << access.log2;
            let va = state.x_sp(field(word, 5, 5)).wrapping_add(offset);
            access.execute(state, memory, word, va)
        }
        3 if !bit(word, 21) => unscaled(state, memory, word),
        3 => match field(word, 10, 2) {
            0 if !vector => exclusive::update(state, memory, word),
            2 => register_offset(state, memory, word),
            _ => Err(Stop::Unknown),
        },
        _ => Err(Stop::Unknown),
    }
}

/// Reads `1 << log2` bytes, up to 16.
pub(super) fn load<M: Memory>(memory: &mut M, va: u64, log2: u32) -> Result<u128, Stop> {
    Ok(match log2 {
        0 => u8::from_le_bytes(memory.load(va)?).into(),
        1 => u16::from_le_bytes(memory.load(va)?).into(),
        2 => u32::from_le_bytes(memory.load(va)?).into(),
        3 => u64::from_le_bytes(memory.load(va)?).into(),
        _ => u128::from_le_bytes(memory.load(va)?),
    })
}

/// Writes the low `1 << log2` bytes of `value`, up to 16.
pub(super) fn store<M: Memory>(
    memory: &mut M,
    va: u64,
    log2: u32,
    value: u128,
) -> Result<(), Stop> {
    match log2 {
        0 => memory.store(va, (value as u8).to_le_bytes())?,
        1 => memory.store(va, (value as u16).to_le_bytes())?,
        2 => memory.store(va, (value as u32).to_le_bytes())?,
        3 => memory.store(va, (value as u64).to_le_bytes())?,
        _ => memory.store(va, value.to_le_bytes())?,
    }
    Ok(())
}

/// A load or store of one register.
struct Single {
    kind: Kind,
    log2: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Store,
    Load,
    /// To 64 bits.
    LoadSigned,
    /// To 32 bits.
    LoadSignedHalf,
    Prefetch,
    StoreVector,
    LoadVector,
}

impl Single {
    /// By the fields size, V and opc.
    fn of(word: u32) -> Result<Single, Stop> {
        let (size, opc) = (field(word, 30, 2), field(word, 22, 2));
        if bit(word, 26) {
            let log2 = (opc & 2) << 1 | size;
            let kind = if opc & 1 != 0 {
                Kind::LoadVector
            } else {
                Kind::StoreVector
            };
            return if log2 > 4 {
                Err(Stop::Unknown)
            } else {
                Ok(Single { kind, log2 })
            };
        }
        let kind = match (opc, size) {
            (0, _) => Kind::Store,
            (1, _) => Kind::Load,
            (2, 0..=2) => Kind::LoadSigned,
            (2, _) => Kind::Prefetch,
            (3, 0 | 1) => Kind::LoadSignedHalf,
            _ => return Err(Stop::Unknown),
        };
        Ok(Single { kind, log2: size })
    }

    fn execute<M: Memory>(
        &self,
        state: &mut State,
        memory: &mut M,
        word: u32,
        va: u64,
    ) -> Result<(), Stop> {
        let rt = field(word, 0, 5);
        match self.kind {
            Kind::Store => return store(memory, va, self.log2, state.x(rt).into()),
            Kind::StoreVector => return store(memory, va, self.log2, state.v[rt as usize]),
            Kind::Prefetch => return Ok(()),
            _ => {}
        }
        let value = load(memory, va, self.log2)?;
        match self.kind {
            Kind::LoadVector => state.v[rt as usize] = value,
            Kind::Load => state.set_x(rt, value as u64),
            kind => {
                let value = sign_extend(value as u64, 8 << self.log2);
                state.set_xw(rt, kind == Kind::LoadSigned, value);
            }
        }
        Ok(())
    }
}

/// Unscaled offset, or an offset that stays in the base.
fn unscaled<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let access = Single::of(word)?;
    let (rt, rn) = (field(word, 0, 5), field(word, 5, 5));
    let base = state.x_sp(rn);
    let moved = base.wrapping_add_signed(signed(word, 12, 9));
    let (va, back) = match field(word, 10, 2) {
        0 => (moved, false),
        1 => (base, true),
        3 => (moved, true),
        // Unprivileged accesses are what all others are here, and no compiler's.
        _ => return Err(Stop::Unknown),
    };
    if back && (access.kind == Kind::Prefetch || (!bit(word, 26) && rt == rn && rn != R31)) {
        return Err(Stop::Unknown);
    }
    access.execute(state, memory, word, va)?;
    if back {
        state.set_x_sp(rn, moved);
    }
    Ok(())
}

fn register_offset<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let access = Single::of(word)?;
    let option = field(word, 13, 3);
    if option & 2 == 0 {
        return Err(Stop::Unknown);
    }
    let by = if bit(word, 12) { access.log2 } else { 0 };
    let offset = extend(state.x(field(word, 16, 5)), option, by);
    let va = state.x_sp(field(word, 5, 5)).wrapping_add(offset);
    access.execute(state, memory, word, va)
}

/// LDR (literal), LDRSW (literal), PRFM (literal).
fn literal<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let va = state.pc.wrapping_add_signed(signed(word, 5, 19) << 2);
    let (rt, opc) = (field(word, 0, 5), field(word, 30, 2));
    if bit(word, 26) {
        if opc == 3 {
            return Err(Stop::Unknown);
        }
        state.v[rt as usize] = load(memory, va, 2 + opc)?;
        return Ok(());
    }
    match opc {
        0 | 1 => {
            let value = load(memory, va, 2 + opc)?;
            state.set_x(rt, value as u64);
        }
        2 => {
            let value = load(memory, va, 2)?;
            state.set_x(rt, sign_extend(value as u64, 32));
        }
        _ => {}
    }
    Ok(())
}

/// LDP, STP, LDPSW, LDNP, STNP.
fn pair<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let (opc, vector, loads) = (field(word, 30, 2), bit(word, 26), bit(word, 22));
    let (rt, rt2, rn) = (field(word, 0, 5), field(word, 10, 5), field(word, 5, 5));
    let mode = field(word, 23, 2);
    let log2 = match (vector, opc) {
        (true, 0..=2) => 2 + opc,
        (false, 0 | 2) => 2 + opc / 2,
        // LDPSW
        (false, 1) if loads && mode != 0 => 2,
        _ => return Err(Stop::Unknown),
    };
    let back = mode & 1 != 0;
    let overlap = !vector && rn != R31 && (rt == rn || rt2 == rn);
    if (back && overlap) || (loads && rt == rt2) {
        return Err(Stop::Unknown);
    }
    let base = state.x_sp(rn);
    let moved = base.wrapping_add_signed(signed(word, 15, 7) << log2);
    let va = if mode == 1 { base } else { moved };
    if loads {
        let (first, second) = load_pair(memory, va, log2)?;
        if vector {
            state.v[rt as usize] = first;
            state.v[rt2 as usize] = second;
        } else {
            let extended = |value: u128| {
                if opc == 1 {
                    sign_extend(value as u64, 32)
                } else {
                    value as u64
                }
            };
            state.set_x(rt, extended(first));
            state.set_x(rt2, extended(second));
        }
    } else {
        let value = |r: u32| {
            if vector {
                state.v[r as usize]
            } else {
                state.x(r).into()
            }
        };
        store_pair(memory, va, log2, value(rt), value(rt2))?;
    }
    if back {
        state.set_x_sp(rn, moved);
    }
    Ok(())
}

fn load_pair<M: Memory>(memory: &mut M, va: u64, log2: u32) -> Result<(u128, u128), Stop> {
    Ok(match log2 {
        2 => {
            let both = load(memory, va, 3)?;
            (both & 0xffff_ffff, both >> 32)
        }
        3 => {
            let both = load(memory, va, 4)?;
            (both & u128::from(u64::MAX), both >> 64)
        }
        _ => {
            let both: [u8; 32] = memory.load(va)?;
            let (first, second) = both.split_at(16);
            let value = |half: &[u8]| {
                half.iter()
                    .rev()
                    .fold(0, |value, &byte| value << 8 | u128::from(byte))
            };
            (value(first), value(second))
        }
    })
}

/// Both in one store, so that there is never one without the other.
fn store_pair<M: Memory>(
    memory: &mut M,
    va: u64,
    log2: u32,
    first: u128,
    second: u128,
) -> Result<(), Stop> {
    match log2 {
        2 => store(memory, va, 3, first & 0xffff_ffff | second << 32),
        3 => store(memory, va, 4, first & u128::from(u64::MAX) | second << 64),
        _ => {
            let mut both = [0; 32];
            both[..16].copy_from_slice(&first.to_le_bytes());
            both[16..].copy_from_slice(&second.to_le_bytes());
            Ok(memory.store(va, both)?)
        }
    }
}
