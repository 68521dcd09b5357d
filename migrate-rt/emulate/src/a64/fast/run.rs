//! What operations do.

use super::super::State;
use super::super::bits::{extend, ones, shift};
use super::decode::translate;
use super::{Cache, Code, Form, INEXACT, LINK, SP};
use crate::flags::{Lazy, carries};
use crate::host::{self, Arithmetic};
use crate::{Cpu, End, Event, Fault, Memory, Refusal, Run};
use core::cmp::Ordering;

/// Whether a condition holds, by flags that have not been worked out. Not inlined, and neither is [`settle`]: the compiler
/// would work flags out where they are set.
#[inline(never)]
fn holds_lazily(condition: u8, f: &Lazy, state: &State) -> bool {
    if !f.is_set {
        return state.holds(condition.into());
    }
    let (c, z) = (f.carry_bit() != 0, f.is_zero());
    let base = match condition >> 1 & 7 {
        0 => z,
        1 => c,
        2 => f.sign() != 0,
        3 => f.overflow() != 0,
        4 => c && !z,
        5 => f.sign() == f.overflow(),
        6 => f.sign() == f.overflow() && !z,
        _ => return true,
    };
    base != (condition & 1 != 0)
}

/// Works the flags out.
#[inline(never)]
fn settle(f: &mut Lazy, nzcv: &mut u64) {
    if f.is_set {
        *nzcv = f.sign() << 31
            | u64::from(f.is_zero()) << 30
            | f.carry_bit() << 29
            | f.overflow() << 28;
        f.is_set = false;
    }
}

#[inline(always)]
fn r(n: u8) -> usize {
    usize::from(n & 63)
}

#[inline(always)]
fn q(n: u8) -> usize {
    usize::from(n & 31)
}

#[inline(never)]
fn enter(state: &State, g: &mut [u64; 64]) {
    g[..31].copy_from_slice(&state.x);
    g[r(SP)] = state.sp;
}

#[inline(never)]
fn leave(state: &mut State, g: &[u64; 64]) {
    state.x.copy_from_slice(&g[..31]);
    state.sp = g[r(SP)];
}

/// See [`Cpu::run`].
pub(in crate::a64) fn run<M: Memory>(
    state: &mut State,
    memory: &mut M,
    Cache(cache): &mut Cache,
    stop: impl Fn(u64) -> bool,
    limit: u64,
) -> Run {
    let mut g = [0; 64];
    enter(state, &mut g);
    let mut f = Lazy::NONE;
    let mut steps = 0;
    let mut at = match cache.find(state.pc) {
        Some(at) => at,
        None => translate(cache, memory, state.pc),
    };
    let (pc, end) = 'run: loop {
        let op = cache.get(at);
        if stop(op.pc) {
            break (op.pc, End::Stop);
        }
        if steps == limit {
            break (op.pc, End::Limit);
        }
        macro_rules! check {
            ($access:expr) => {
                match $access {
                    Ok(value) => value,
                    Err(fault) => break 'run (op.pc, refused(op.pc, fault)),
                }
            };
        }
        // The second operand.
        macro_rules! operand {
            ($wide:literal) => {
                match op.form {
                    Form::Immediate => op.immediate,
                    Form::Register => g[r(op.c)] ^ op.immediate,
                    Form::Extended => extend(g[r(op.c)], op.d.into(), op.by.into()),
                    _ => shift(g[r(op.c)], op.d.into(), op.by.into(), $wide) ^ op.immediate,
                }
            };
        }
        // Address of an access, and the base afterwards.
        macro_rules! place {
            () => {{
                let base = g[r(op.b)];
                match op.form {
                    Form::Immediate => (base.wrapping_add(op.immediate), None),
                    Form::Extended => {
                        let index = g[r(op.c)];
                        let index = match op.d {
                            3 | 7 => index << (op.by & 7),
                            _ => extend(index, op.d.into(), op.by.into()),
                        };
                        (base.wrapping_add(index), None)
                    }
                    Form::After => (base, Some(base.wrapping_add(op.immediate))),
                    _ => {
                        let moved = base.wrapping_add(op.immediate);
                        (moved, Some(moved))
                    }
                }
            }};
        }
        macro_rules! load {
            ($ty:ty, $value:ident, $done:expr) => {{
                let (va, moved) = place!();
                let $value = <$ty>::from_le_bytes(check!(memory.load(va)));
                $done;
                if let Some(moved) = moved {
                    g[r(op.b)] = moved;
                }
            }};
        }
        macro_rules! store {
            ($value:expr) => {{
                let (va, moved) = place!();
                let value = $value;
                check!(memory.store(va, value.to_le_bytes()));
                if let Some(moved) = moved {
                    g[r(op.b)] = moved;
                }
            }};
        }
        macro_rules! go {
            ($target:expr) => {{
                let target = $target;
                steps += 1;
                at = match cache.find(target) {
                    Some(at) => at,
                    None => translate(cache, memory, target),
                };
                continue 'run;
            }};
        }
        macro_rules! go_if {
            ($taken:expr) => {{
                if $taken {
                    go!(op.immediate)
                }
                go!(op.pc.wrapping_add(4))
            }};
        }
        macro_rules! sum {
            ($ty:ty, $a:expr, $b:expr, $carry:expr) => {{
                const BY: u32 = u64::BITS - <$ty>::BITS;
                let (a, b): (u64, u64) = ($a << BY, $b << BY);
                let sum = a.wrapping_add(b).wrapping_add($carry << BY);
                f.set(sum, carries(a, b, sum), BY);
                sum >> BY
            }};
        }
        macro_rules! carry {
            () => {
                if f.is_set {
                    f.carry_bit()
                } else {
                    state.nzcv >> 29 & 1
                }
            };
        }
        'slow: {
            use Code::*;
            macro_rules! float {
                ($ty:ty, $compute:ident, $op:expr) => {{
                    if state.fpcr != 0 || state.fpsr & INEXACT == 0 {
                        break 'slow;
                    }
                    let (a, b) = (state.v[q(op.b)] as $ty, state.v[q(op.c)] as $ty);
                    match host::$compute($op, a, b) {
                        Some(result) => state.v[q(op.a)] = result.into(),
                        None => break 'slow,
                    }
                }};
            }
            macro_rules! compare {
                ($ty:ty, $compare:ident, $b:expr) => {{
                    if state.fpcr != 0 {
                        break 'slow;
                    }
                    let flags = match host::$compare(state.v[q(op.b)] as $ty, $b) {
                        Some(Ordering::Equal) => 0b0110,
                        Some(Ordering::Less) => 0b1000,
                        Some(Ordering::Greater) => 0b0010,
                        None => break 'slow,
                    };
                    f.is_set = false;
                    state.nzcv = flags << 28;
                }};
            }
            macro_rules! of_integer {
                ($ty:ty, $convert:ident) => {{
                    if state.fpcr != 0 {
                        break 'slow;
                    }
                    let value = i64::from(g[r(op.b)] as $ty);
                    match host::$convert(value, state.fpsr & INEXACT == 0) {
                        Some(bits) => state.v[q(op.a)] = bits.into(),
                        None => break 'slow,
                    }
                }};
            }
            macro_rules! to_integer {
                ($from:ty, $to:ty, $unsigned:ty, $convert:ident) => {{
                    if state.fpcr != 0 {
                        break 'slow;
                    }
                    let bits = state.v[q(op.b)] as $from;
                    let value = host::$convert(bits, state.fpsr & INEXACT == 0);
                    match value.map(<$to>::try_from) {
                        Some(Ok(value)) => g[r(op.a)] = u64::from(value as $unsigned),
                        _ => break 'slow,
                    }
                }};
            }
            match op.code {
                Slow => break 'slow,
                End => {
                    at = match cache.find(op.pc) {
                        Some(at) => at,
                        None => translate(cache, memory, op.pc),
                    };
                    continue 'run;
                }
                Nop => {}
                Constant => g[r(op.a)] = op.immediate,
                MovK4 => {
                    let kept = g[r(op.b)] & !(0xffff << (op.by & 63));
                    g[r(op.a)] = (kept | op.immediate) & ones(32);
                }
                MovK8 => {
                    let kept = g[r(op.b)] & !(0xffff << (op.by & 63));
                    g[r(op.a)] = kept | op.immediate;
                }
                Mov4 => g[r(op.a)] = g[r(op.b)] & ones(32),
                Mov8 => g[r(op.a)] = g[r(op.b)],
                Add4 => g[r(op.a)] = g[r(op.b)].wrapping_add(operand!(false)) & ones(32),
                Add8 => g[r(op.a)] = g[r(op.b)].wrapping_add(operand!(true)),
                AddS4 => g[r(op.a)] = sum!(u32, g[r(op.b)], operand!(false), 0),
                AddS8 => g[r(op.a)] = sum!(u64, g[r(op.b)], operand!(true), 0),
                Sub4 => g[r(op.a)] = g[r(op.b)].wrapping_sub(operand!(false)) & ones(32),
                Sub8 => g[r(op.a)] = g[r(op.b)].wrapping_sub(operand!(true)),
                SubS4 => g[r(op.a)] = sum!(u32, g[r(op.b)], !operand!(false), 1),
                SubS8 => g[r(op.a)] = sum!(u64, g[r(op.b)], !operand!(true), 1),
                And4 => g[r(op.a)] = g[r(op.b)] & operand!(false) & ones(32),
                And8 => g[r(op.a)] = g[r(op.b)] & operand!(true),
                Or4 => g[r(op.a)] = (g[r(op.b)] | operand!(false)) & ones(32),
                Or8 => g[r(op.a)] = g[r(op.b)] | operand!(true),
                Xor4 => g[r(op.a)] = (g[r(op.b)] ^ operand!(false)) & ones(32),
                Xor8 => g[r(op.a)] = g[r(op.b)] ^ operand!(true),
                AndS4 => {
                    let result = g[r(op.b)] & operand!(false) & ones(32);
                    f.set(result << 32, 0, 32);
                    g[r(op.a)] = result;
                }
                AndS8 => {
                    let result = g[r(op.b)] & operand!(true);
                    f.set(result, 0, 0);
                    g[r(op.a)] = result;
                }
                Adc8 => {
                    let carry = carry!();
                    g[r(op.a)] = g[r(op.b)].wrapping_add(g[r(op.c)]).wrapping_add(carry);
                }
                AdcS8 => {
                    let carry = carry!();
                    g[r(op.a)] = sum!(u64, g[r(op.b)], g[r(op.c)], carry);
                }
                Sbc8 => {
                    let carry = carry!();
                    g[r(op.a)] = g[r(op.b)].wrapping_add(!g[r(op.c)]).wrapping_add(carry);
                }
                SbcS8 => {
                    let carry = carry!();
                    g[r(op.a)] = sum!(u64, g[r(op.b)], !g[r(op.c)], carry);
                }
                ShiftMask => g[r(op.a)] = g[r(op.b)] >> (op.by & 63) & op.immediate,
                MaskShift => g[r(op.a)] = (g[r(op.b)] & op.immediate) << (op.by & 63),
                Signed4 => {
                    let value = (g[r(op.b)] << (op.by & 63)) as i64 >> (op.d & 63);
                    g[r(op.a)] = value as u64 & ones(32);
                }
                Signed8 => {
                    let value = (g[r(op.b)] << (op.by & 63)) as i64 >> (op.d & 63);
                    g[r(op.a)] = value as u64;
                }
                Insert4 => {
                    let turned = (g[r(op.b)] as u32).rotate_right(op.by.into());
                    let new = u64::from(turned) & op.immediate;
                    g[r(op.a)] = (g[r(op.c)] & !op.immediate | new) & ones(32);
                }
                Insert8 => {
                    let new = g[r(op.b)].rotate_right(op.by.into()) & op.immediate;
                    g[r(op.a)] = g[r(op.c)] & !op.immediate | new;
                }
                Extract4 => {
                    let both = g[r(op.b)] << 32 | g[r(op.c)] & ones(32);
                    g[r(op.a)] = both >> (op.by & 31) & ones(32);
                }
                Extract8 => {
                    let both = u128::from(g[r(op.b)]) << 64 | u128::from(g[r(op.c)]);
                    g[r(op.a)] = (both >> (op.by & 63)) as u64;
                }
                MulAdd4 | MulSub4 => {
                    let product = g[r(op.b)].wrapping_mul(g[r(op.c)]);
                    let a = g[r(op.d)];
                    let result = match op.code {
                        MulAdd4 => a.wrapping_add(product),
                        _ => a.wrapping_sub(product),
                    };
                    g[r(op.a)] = result & ones(32);
                }
                MulAdd8 => {
                    let product = g[r(op.b)].wrapping_mul(g[r(op.c)]);
                    g[r(op.a)] = g[r(op.d)].wrapping_add(product);
                }
                MulSub8 => {
                    let product = g[r(op.b)].wrapping_mul(g[r(op.c)]);
                    g[r(op.a)] = g[r(op.d)].wrapping_sub(product);
                }
                MulAddS => {
                    let product = i64::from(g[r(op.b)] as i32) * i64::from(g[r(op.c)] as i32);
                    g[r(op.a)] = g[r(op.d)].wrapping_add(product as u64);
                }
                MulAddU => {
                    let product = u64::from(g[r(op.b)] as u32) * u64::from(g[r(op.c)] as u32);
                    g[r(op.a)] = g[r(op.d)].wrapping_add(product);
                }
                MulHighS => {
                    let (n, m) = (g[r(op.b)] as i64, g[r(op.c)] as i64);
                    g[r(op.a)] = ((i128::from(n) * i128::from(m)) >> 64) as u64;
                }
                MulHighU => {
                    let (n, m) = (g[r(op.b)], g[r(op.c)]);
                    g[r(op.a)] = ((u128::from(n) * u128::from(m)) >> 64) as u64;
                }
                DivU4 => {
                    let (n, m) = (g[r(op.b)] as u32, g[r(op.c)] as u32);
                    g[r(op.a)] = n.checked_div(m).unwrap_or(0).into();
                }
                DivU8 => g[r(op.a)] = g[r(op.b)].checked_div(g[r(op.c)]).unwrap_or(0),
                DivS4 => {
                    let (n, m) = (g[r(op.b)] as i32, g[r(op.c)] as i32);
                    let result = if m == 0 { 0 } else { n.wrapping_div(m) };
                    g[r(op.a)] = u64::from(result as u32);
                }
                DivS8 => {
                    let (n, m) = (g[r(op.b)] as i64, g[r(op.c)] as i64);
                    g[r(op.a)] = if m == 0 { 0 } else { n.wrapping_div(m) as u64 };
                }
                Shift4 => {
                    let by = g[r(op.c)] as u32 & 31;
                    g[r(op.a)] = shift(g[r(op.b)], op.by.into(), by, false);
                }
                Shift8 => {
                    let by = g[r(op.c)] as u32 & 63;
                    g[r(op.a)] = shift(g[r(op.b)], op.by.into(), by, true);
                }
                Clz4 => g[r(op.a)] = (g[r(op.b)] as u32).leading_zeros().into(),
                Clz8 => g[r(op.a)] = g[r(op.b)].leading_zeros().into(),
                Rbit4 => g[r(op.a)] = (g[r(op.b)] as u32).reverse_bits().into(),
                Rbit8 => g[r(op.a)] = g[r(op.b)].reverse_bits(),
                Rev4 => g[r(op.a)] = (g[r(op.b)] as u32).swap_bytes().into(),
                Rev8 => g[r(op.a)] = g[r(op.b)].swap_bytes(),
                Select4 | Select8 => {
                    let value = if holds_lazily(op.d, &f, state) {
                        g[r(op.b)]
                    } else {
                        let other = g[r(op.c)];
                        match op.by {
                            0 => other,
                            1 => other.wrapping_add(1),
                            2 => !other,
                            _ => other.wrapping_neg(),
                        }
                    };
                    g[r(op.a)] = match op.code {
                        Select4 => value & ones(32),
                        _ => value,
                    };
                }
                Ccmp4 | Ccmp8 | Ccmn4 | Ccmn8 => {
                    if holds_lazily(op.d, &f, state) {
                        let (a, b) = match op.form {
                            Form::Immediate => (g[r(op.b)], op.immediate),
                            _ => (g[r(op.b)], g[r(op.c)]),
                        };
                        match op.code {
                            Ccmp4 => sum!(u32, a, !b, 1),
                            Ccmp8 => sum!(u64, a, !b, 1),
                            Ccmn4 => sum!(u32, a, b, 0),
                            _ => sum!(u64, a, b, 0),
                        };
                    } else {
                        f.is_set = false;
                        state.nzcv = u64::from(op.a) << 28;
                    }
                }
                Branch => go!(op.immediate),
                Call => {
                    g[LINK] = op.pc.wrapping_add(4);
                    go!(op.immediate)
                }
                BranchTo | Return => go!(g[r(op.a)]),
                CallTo => {
                    let target = g[r(op.a)];
                    g[LINK] = op.pc.wrapping_add(4);
                    go!(target)
                }
                If => go_if!(holds_lazily(op.d, &f, state)),
                IfZero4 => go_if!(g[r(op.a)] as u32 == 0),
                IfZero8 => go_if!(g[r(op.a)] == 0),
                IfNot4 => go_if!(g[r(op.a)] as u32 != 0),
                IfNot8 => go_if!(g[r(op.a)] != 0),
                IfClear => go_if!(g[r(op.a)] >> (op.by & 63) & 1 == 0),
                IfSet => go_if!(g[r(op.a)] >> (op.by & 63) & 1 != 0),
                Load1 => load!(u8, value, g[r(op.a)] = value.into()),
                Load2 => load!(u16, value, g[r(op.a)] = value.into()),
                Load4 => load!(u32, value, g[r(op.a)] = value.into()),
                Load8 => load!(u64, value, g[r(op.a)] = value),
                Load14 => load!(u8, value, g[r(op.a)] = u64::from(value as i8 as u32)),
                Load18 => load!(u8, value, g[r(op.a)] = value as i8 as u64),
                Load24 => load!(u16, value, g[r(op.a)] = u64::from(value as i16 as u32)),
                Load28 => load!(u16, value, g[r(op.a)] = value as i16 as u64),
                Load48 => load!(u32, value, g[r(op.a)] = value as i32 as u64),
                Store1 => store!(g[r(op.a)] as u8),
                Store2 => store!(g[r(op.a)] as u16),
                Store4 => store!(g[r(op.a)] as u32),
                Store8 => store!(g[r(op.a)]),
                LoadV4 => load!(u32, value, state.v[q(op.a)] = value.into()),
                LoadV8 => load!(u64, value, state.v[q(op.a)] = value.into()),
                LoadV16 => load!(u128, value, state.v[q(op.a)] = value),
                StoreV4 => store!(state.v[q(op.a)] as u32),
                StoreV8 => store!(state.v[q(op.a)] as u64),
                StoreV16 => store!(state.v[q(op.a)]),
                LoadPair4 => load!(u64, both, {
                    g[r(op.a)] = both & ones(32);
                    g[r(op.c)] = both >> 32;
                }),
                LoadPair8 => load!(u128, both, {
                    g[r(op.a)] = both as u64;
                    g[r(op.c)] = (both >> 64) as u64;
                }),
                StorePair4 => store!(g[r(op.a)] & ones(32) | g[r(op.c)] << 32),
                StorePair8 => store!(u128::from(g[r(op.a)]) | u128::from(g[r(op.c)]) << 64),
                LoadPairV8 => load!(u128, both, {
                    state.v[q(op.a)] = u128::from(both as u64);
                    state.v[q(op.c)] = both >> 64;
                }),
                StorePairV8 => {
                    store!(state.v[q(op.a)] & u128::from(u64::MAX) | state.v[q(op.c)] << 64)
                }
                LoadPairV16 => {
                    let (va, moved) = place!();
                    let both: [u8; 32] = check!(memory.load(va));
                    let half = |at: usize| core::array::from_fn(|i| both[(at + i) % 32]);
                    state.v[q(op.a)] = u128::from_le_bytes(half(0));
                    state.v[q(op.c)] = u128::from_le_bytes(half(16));
                    if let Some(moved) = moved {
                        g[r(op.b)] = moved;
                    }
                }
                StorePairV16 => {
                    let (va, moved) = place!();
                    let mut both = [0; 32];
                    both[..16].copy_from_slice(&state.v[q(op.a)].to_le_bytes());
                    both[16..].copy_from_slice(&state.v[q(op.c)].to_le_bytes());
                    check!(memory.store(va, both));
                    if let Some(moved) = moved {
                        g[r(op.b)] = moved;
                    }
                }
                MoveV4 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u32),
                MoveV8 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u64),
                MoveV16 => state.v[q(op.a)] = state.v[q(op.b)],
                ConstantV => state.v[q(op.a)] = op.immediate.into(),
                Neg4 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u32 ^ 1 << 31),
                Neg8 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u64 ^ 1 << 63),
                Abs4 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u32 & !(1 << 31)),
                Abs8 => state.v[q(op.a)] = u128::from(state.v[q(op.b)] as u64 & !(1 << 63)),
                FromV4 => g[r(op.a)] = u64::from(state.v[q(op.b)] as u32),
                FromV8 => g[r(op.a)] = state.v[q(op.b)] as u64,
                ToV4 => state.v[q(op.a)] = u128::from(g[r(op.b)] as u32),
                ToV8 => state.v[q(op.a)] = u128::from(g[r(op.b)]),
                SelectV4 | SelectV8 => {
                    let from = if holds_lazily(op.d, &f, state) {
                        op.b
                    } else {
                        op.c
                    };
                    let value = state.v[q(from)] as u64;
                    state.v[q(op.a)] = match op.code {
                        SelectV4 => u128::from(value as u32),
                        _ => u128::from(value),
                    };
                }
                AddF4 => float!(u32, f32_arithmetic, Arithmetic::Add),
                AddF8 => float!(u64, f64_arithmetic, Arithmetic::Add),
                SubF4 => float!(u32, f32_arithmetic, Arithmetic::Sub),
                SubF8 => float!(u64, f64_arithmetic, Arithmetic::Sub),
                MulF4 => float!(u32, f32_arithmetic, Arithmetic::Mul),
                MulF8 => float!(u64, f64_arithmetic, Arithmetic::Mul),
                DivF4 => float!(u32, f32_arithmetic, Arithmetic::Div),
                DivF8 => float!(u64, f64_arithmetic, Arithmetic::Div),
                Compare4 => compare!(u32, compare32, state.v[q(op.c)] as u32),
                Compare8 => compare!(u64, compare64, state.v[q(op.c)] as u64),
                CompareZero4 => compare!(u32, compare32, 0),
                CompareZero8 => compare!(u64, compare64, 0),
                Int4ToF4 => of_integer!(i32, f32_of),
                Int4ToF8 => of_integer!(i32, f64_of),
                Int8ToF4 => of_integer!(i64, f32_of),
                Int8ToF8 => of_integer!(i64, f64_of),
                UInt4ToF4 => of_integer!(u32, f32_of),
                UInt4ToF8 => of_integer!(u32, f64_of),
                F4ToInt4 => to_integer!(u32, i32, u32, f32_to),
                F4ToInt8 => to_integer!(u32, i64, u64, f32_to),
                F8ToInt4 => to_integer!(u64, i32, u32, f64_to),
                F8ToInt8 => to_integer!(u64, i64, u64, f64_to),
                F4ToUInt4 => to_integer!(u32, u32, u32, f32_to),
                F4ToUInt8 => to_integer!(u32, u64, u64, f32_to),
                F8ToUInt4 => to_integer!(u64, u32, u32, f64_to),
                F8ToUInt8 => to_integer!(u64, u64, u64, f64_to),
            }
            steps += 1;
            at += 1;
            continue 'run;
        }
        settle(&mut f, &mut state.nzcv);
        leave(state, &g);
        state.pc = op.pc;
        let event = state.step(memory);
        enter(state, &mut g);
        match event {
            Ok(Event::Continue | Event::Call { .. } | Event::Return) => {}
            Ok(Event::SystemCall) => {
                steps += 1;
                break (state.pc, End::SystemCall);
            }
            Ok(Event::Trap(trap)) => break (op.pc, End::Trap(trap)),
            Err(refusal) => break (op.pc, End::Refused(refusal)),
        }
        if state.pc == op.pc.wrapping_add(4) && op.by == 0 {
            steps += 1;
            at += 1;
        } else {
            go!(state.pc)
        }
    };
    settle(&mut f, &mut state.nzcv);
    leave(state, &g);
    state.pc = pc;
    Run { steps, end }
}

#[cold]
fn refused(pc: u64, fault: Fault) -> End {
    End::Refused(Refusal::Fault { pc, fault })
}
