//! Exclusive and ordered accesses, and atomic updates.

use super::super::bits::{bit, field};
use super::super::{Monitor, R31, State};
use super::{load, store};
use crate::{Access, Fault, FaultKind, Memory, Stop, Update, Width};
use core::sync::atomic::{Ordering, fence};

/// Everything in the group of exclusive accesses: LDXR, STXR, LDXP, STXP, LDAR, STLR, CAS, CASP with
/// their variants. Which of those order memory makes no difference here.
pub(super) fn execute<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let size = field(word, 30, 2);
    let (ordered, loads, second) = (bit(word, 23), bit(word, 22), bit(word, 21));
    let (rt, rt2, rs) = (field(word, 0, 5), field(word, 10, 5), field(word, 16, 5));
    let va = state.x_sp(field(word, 5, 5));
    match (ordered, second) {
        // LDAR, STLR. Without the bit they are LDLAR and STLLR, of limited ordering regions.
        (true, false) => {
            if rs != R31 || rt2 != R31 || !bit(word, 15) {
                return Err(Stop::Unknown);
            }
            aligned(
                va,
                1 << size,
                if loads { Access::Load } else { Access::Store },
            )?;
            if loads {
                let value = load(memory, va, size)?;
                state.set_x(rt, value as u64);
            } else {
                store(memory, va, size, state.x(rt).into())?;
                fence(Ordering::SeqCst);
            }
            Ok(())
        }
        // CAS
        (true, true) if rt2 == R31 => {
            let width = Width::log2(size);
            aligned(va, width.bytes(), Access::Update)?;
            let value = |r| u128::from(state.x(r)) & width.mask();
            let found = memory.compare_exchange(va, width, value(rs), value(rt))?;
            state.set_x(rs, found as u64);
            Ok(())
        }
        // CASP
        (false, true) if size < 2 && rt2 == R31 => {
            if rs & 1 != 0 || rt & 1 != 0 {
                return Err(Stop::Unknown);
            }
            let width = Width::log2(size + 3);
            aligned(va, width.bytes(), Access::Update)?;
            let half = 32 << size;
            let value = |r: u32| {
                let part = |r| u128::from(state.xw(r, size == 1));
                part(r) | part(r + 1) << half
            };
            let found = memory.compare_exchange(va, width, value(rs), value(rt))?;
            state.set_xw(rs, size == 1, found as u64);
            state.set_x(rs + 1, (found >> half) as u64);
            Ok(())
        }
        (true, true) => Err(Stop::Unknown),
        // LDXR, LDXP, STXR, STXP
        (false, pair) => {
            if (pair && size < 2) || (!pair && rt2 != R31) || (loads && rs != R31) {
                return Err(Stop::Unknown);
            }
            let width = Width::log2(size + u32::from(pair));
            if loads {
                load_exclusive(state, memory, va, width, rt, pair.then_some(rt2))
            } else {
                let overlap = rs == rt || (pair && rs == rt2) || rs == field(word, 5, 5);
                if overlap && rs != R31 {
                    return Err(Stop::Unknown);
                }
                store_exclusive(state, memory, va, width, rs, rt, pair.then_some(rt2))
            }
        }
    }
}

fn aligned(va: u64, bytes: u32, access: Access) -> Result<(), Stop> {
    if va.is_multiple_of(u64::from(bytes)) {
        return Ok(());
    }
    Err(Stop::Fault(Fault {
        va,
        access,
        kind: FaultKind::Unaligned,
    }))
}

fn load_exclusive<M: Memory>(
    state: &mut State,
    memory: &mut M,
    va: u64,
    width: Width,
    rt: u32,
    rt2: Option<u32>,
) -> Result<(), Stop> {
    if rt2 == Some(rt) {
        return Err(Stop::Unknown);
    }
    aligned(va, width.bytes(), Access::Load)?;
    let value = if width == Width::B16 {
        // In one step, which loads of 16 bytes are not: an update that changes nothing.
        memory.compare_exchange(va, width, 0, 0)?
    } else {
        load(memory, va, width as u32)?
    };
    let half = 4 * width.bytes();
    match rt2 {
        None => state.set_x(rt, value as u64),
        Some(rt2) => {
            state.set_xw(rt, half == 64, value as u64);
            state.set_x(rt2, (value >> half) as u64);
        }
    }
    state.monitor = Monitor {
        bytes: width.bytes().into(),
        va,
        value: [value as u64, (value >> 64) as u64],
    };
    Ok(())
}

fn store_exclusive<M: Memory>(
    state: &mut State,
    memory: &mut M,
    va: u64,
    width: Width,
    rs: u32,
    rt: u32,
    rt2: Option<u32>,
) -> Result<(), Stop> {
    aligned(va, width.bytes(), Access::Store)?;
    let half = 4 * width.bytes();
    let new = match rt2 {
        None => u128::from(state.x(rt)) & width.mask(),
        Some(rt2) => {
            u128::from(state.xw(rt, half == 64)) | u128::from(state.xw(rt2, half == 64)) << half
        }
    };
    let monitor = state.monitor;
    let mut stored = false;
    if monitor.bytes == u64::from(width.bytes()) && monitor.va == va {
        let expected = u128::from(monitor.value[0]) | u128::from(monitor.value[1]) << 64;
        stored = memory.compare_exchange(va, width, expected, new)? == expected;
    }
    state.monitor = Monitor::default();
    state.set_x(rs, u64::from(!stored));
    Ok(())
}

/// LDADD, LDCLR, LDEOR, LDSET, LDSMAX, LDSMIN, LDUMAX, LDUMIN, SWP.
pub(super) fn update<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let update = match (bit(word, 15), field(word, 12, 3)) {
        (false, 0) => Update::Add,
        (false, 1) => Update::And,
        (false, 2) => Update::Xor,
        (false, 3) => Update::Or,
        (false, 4) => Update::Max,
        (false, 5) => Update::Min,
        (false, 6) => Update::UMax,
        (false, _) => Update::UMin,
        (true, 0) => Update::Swap,
        _ => return Err(Stop::Unknown),
    };
    let width = Width::log2(field(word, 30, 2));
    let va = state.x_sp(field(word, 5, 5));
    aligned(va, width.bytes(), Access::Update)?;
    let operand = state.x(field(word, 16, 5));
    // LDCLR clears the operand's bits.
    let operand = if update == Update::And {
        !operand
    } else {
        operand
    };
    let old = memory.update(va, width, update, u128::from(operand) & width.mask())?;
    state.set_x(field(word, 0, 5), old as u64);
    Ok(())
}
