//! LD1 to LD4, ST1 to ST4, LD1R to LD4R.

use super::super::State;
use super::super::bits::{bit, field};
use crate::{Memory, Stop};

/// Bytes that one instruction accesses at most.
const MOST: usize = 64;

pub(super) fn execute<M: Memory>(state: &mut State, memory: &mut M, word: u32) -> Result<(), Stop> {
    let back = bit(word, 23);
    if bit(word, 31) || (!back && field(word, 16, 5) != 0) {
        return Err(Stop::Unknown);
    }
    let rn = field(word, 5, 5);
    let va = state.x_sp(rn);
    let bytes = if bit(word, 24) {
        single(state, memory, word, va)?
    } else {
        if bit(word, 21) {
            return Err(Stop::Unknown);
        }
        multiple(state, memory, word, va)?
    };
    if back {
        let rm = field(word, 16, 5);
        let by = if rm == 31 { bytes as u64 } else { state.x(rm) };
        state.set_x_sp(rn, va.wrapping_add(by));
    }
    Ok(())
}

fn put(register: &mut u128, at: usize, log2: u32, value: u128) {
    let (bits, at) = (8 << log2, at * (8 << log2));
    let mask = u128::MAX >> (128 - bits);
    *register = *register & !(mask << at) | (value & mask) << at;
}

fn get(register: u128, at: usize, log2: u32) -> u128 {
    register >> (at * (8 << log2)) & (u128::MAX >> (128 - (8 << log2)))
}

/// All lanes of up to four registers. Gives the number of bytes.
fn multiple<M: Memory>(
    state: &mut State,
    memory: &mut M,
    word: u32,
    va: u64,
) -> Result<usize, Stop> {
    // How many registers, and of how many consecutive ones an element of memory consists.
    let (registers, structure) = match field(word, 12, 4) {
        0b0000 => (4, 4),
        0b0010 => (4, 1),
        0b0100 => (3, 3),
        0b0110 => (3, 1),
        0b0111 => (1, 1),
        0b1000 => (2, 2),
        0b1010 => (2, 1),
        _ => return Err(Stop::Unknown),
    };
    let log2 = field(word, 10, 2);
    let size = if bit(word, 30) { 16 } else { 8 };
    if structure > 1 && log2 == 3 && size == 8 {
        return Err(Stop::Unknown);
    }
    let lanes = size >> log2;
    let total = registers * size;
    let rt = field(word, 0, 5) as usize;
    // Where lane `lane` of register `register` is in memory, in bytes.
    let place = |register: usize, lane: usize| {
        if structure == 1 {
            register * size + (lane << log2)
        } else {
            (lane * structure + register) << log2
        }
    };
    let mut block = [0; MOST];
    if bit(word, 22) {
        load_block(memory, va, &mut block[..total])?;
        for register in 0..registers {
            let mut value = 0;
            for lane in 0..lanes {
                let at = place(register, lane);
                let bytes = &block[at..at + (1 << log2)];
                let element = bytes.iter().rev().fold(0, |v, &b| v << 8 | u128::from(b));
                put(&mut value, lane, log2, element);
            }
            state.v[(rt + register) % 32] = value;
        }
    } else {
        for register in 0..registers {
            let value = state.v[(rt + register) % 32];
            for lane in 0..lanes {
                let at = place(register, lane);
                let bytes = get(value, lane, log2).to_le_bytes();
                block[at..at + (1 << log2)].copy_from_slice(&bytes[..1 << log2]);
            }
        }
        store_block(memory, va, &block[..total])?;
    }
    Ok(total)
}

/// One lane of up to four registers, or one element for all lanes. Gives the number of bytes.
fn single<M: Memory>(state: &mut State, memory: &mut M, word: u32, va: u64) -> Result<usize, Stop> {
    let (opcode, s, size) = (field(word, 13, 3), field(word, 12, 1), field(word, 10, 2));
    let (loads, q) = (bit(word, 22), field(word, 30, 1));
    let registers = ((opcode & 1) << 1 | field(word, 21, 1)) as usize + 1;
    let rt = field(word, 0, 5) as usize;
    let (log2, lane) = match opcode >> 1 {
        0 => (0, q << 3 | s << 2 | size),
        1 if size & 1 == 0 => (1, q << 2 | s << 1 | size >> 1),
        2 if size == 0 => (2, q << 1 | s),
        2 if size == 1 && s == 0 => (3, q),
        3 if loads && s == 0 => (size, 0),
        _ => return Err(Stop::Unknown),
    };
    let replicate = opcode >> 1 == 3;
    let bytes = registers << log2;
    let mut block = [0; MOST];
    if loads {
        load_block(memory, va, &mut block[..bytes])?;
        for register in 0..registers {
            let at = register << log2;
            let element = &block[at..at + (1 << log2)];
            let element = element.iter().rev().fold(0, |v, &b| v << 8 | u128::from(b));
            let value = &mut state.v[(rt + register) % 32];
            if replicate {
                *value = 0;
                for lane in 0..(8 << q) >> log2 {
                    put(value, lane, log2, element);
                }
            } else {
                put(value, lane as usize, log2, element);
            }
        }
    } else {
        for register in 0..registers {
            let element = get(state.v[(rt + register) % 32], lane as usize, log2).to_le_bytes();
            let at = register << log2;
            block[at..at + (1 << log2)].copy_from_slice(&element[..1 << log2]);
        }
        store_block(memory, va, &block[..bytes])?;
    }
    Ok(bytes)
}

/// Runs `f` with the number of bytes as a constant.
macro_rules! with_size {
    ($len:expr, $name:ident, $body:expr) => {
        with_size!(@ $len, $name, $body, 1 2 3 4 6 8 12 16 24 32 48 64)
    };
    (@ $len:expr, $name:ident, $body:expr, $($size:literal)*) => {
        match $len {
            $($size => { const $name: usize = $size; $body })*
            _ => return Err(Stop::Unknown),
        }
    };
}

fn load_block<M: Memory>(memory: &mut M, va: u64, block: &mut [u8]) -> Result<(), Stop> {
    with_size!(block.len(), SIZE, {
        let bytes: [u8; SIZE] = memory.load(va)?;
        block.copy_from_slice(&bytes);
    });
    Ok(())
}

/// All in one store, so that there is never a part of it.
fn store_block<M: Memory>(memory: &mut M, va: u64, block: &[u8]) -> Result<(), Stop> {
    with_size!(block.len(), SIZE, {
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(block);
        memory.store(va, bytes)?;
    });
    Ok(())
}
