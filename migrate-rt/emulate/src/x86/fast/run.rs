//! What operations do.

use super::super::State;
use super::super::alu::{AF, CF, OF, PF, SF, STATUS, ZF, holds};
use super::decode::translate;
use super::{CONTROL, Cache, Code, DEFAULT_CONTROL, From, INEXACT, RAX, RBP, RDX, RSP};
use crate::flags::{Lazy, borrows, carries};
use crate::host::{self, Arithmetic};
use crate::{Cpu, End, Event, Fault, Memory, Refusal, Run};
use core::cmp::Ordering;

/// Whether a condition holds, by flags that have not been worked out. Not inlined, and neither is [`settle`]: the compiler
/// would work flags out where they are set.
#[inline(never)]
fn holds_lazily(condition: u8, f: &Lazy, rflags: u64) -> bool {
    if !f.is_set {
        return holds(condition, rflags);
    }
    let base = match condition >> 1 & 7 {
        0 => f.overflow() != 0,
        1 => f.carry_bit() != 0,
        2 => f.is_zero(),
        3 => f.is_zero() || f.carry_bit() != 0,
        4 => f.sign() != 0,
        5 => is_even(f),
        6 => f.sign() != f.overflow(),
        _ => f.is_zero() || f.sign() != f.overflow(),
    };
    base != (condition & 1 != 0)
}

fn is_even(f: &Lazy) -> bool {
    ((f.result >> f.shift) as u8).count_ones().is_multiple_of(2)
}

/// Works the flags out.
#[inline(never)]
fn settle(f: &mut Lazy, rflags: &mut u64) {
    if !f.is_set {
        return;
    }
    let bit = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    let flags = bit(f.carry_bit() != 0, CF)
        | bit(is_even(f), PF)
        | bit(f.carries >> (f.shift + 3) & 1 != 0, AF)
        | bit(f.is_zero(), ZF)
        | bit(f.sign() != 0, SF)
        | bit(f.overflow() != 0, OF);
    *rflags = *rflags & !STATUS | flags;
    f.is_set = false;
}

#[inline(always)]
fn r(n: u8) -> usize {
    usize::from(n & 31)
}

#[inline(always)]
fn v(n: u8) -> usize {
    usize::from(n & 15)
}

/// See [`Cpu::run`].
pub(in crate::x86) fn run<M: Memory>(
    state: &mut State,
    memory: &mut M,
    Cache(cache): &mut Cache,
    stop: impl Fn(u64) -> bool,
    limit: u64,
) -> Run {
    let mut g = [0; 32];
    g[..16].copy_from_slice(&state.gpr);
    let mut f = Lazy::NONE;
    let mut steps = 0;
    let mut at = match cache.find(state.rip) {
        Some(at) => at,
        None => translate(cache, memory, state.rip),
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
        macro_rules! va {
            () => {
                g[r(op.base)]
                    .wrapping_add(g[r(op.index)] << (op.scale & 3))
                    .wrapping_add(op.at)
            };
        }
        macro_rules! load {
            ($ty:ty, $va:expr) => {{
                let va = $va;
                <$ty>::from_le_bytes(check!(memory.load(va)))
            }};
        }
        macro_rules! store {
            ($va:expr, $value:expr) => {{
                let (va, value) = ($va, $value);
                check!(memory.store(va, value.to_le_bytes()))
            }};
        }
        // The second operand.
        macro_rules! operand {
            ($ty:ty) => {
                match op.from {
                    From::Register => g[r(op.b)] as $ty,
                    From::Immediate => op.immediate as $ty,
                    From::Memory => load!($ty, va!()),
                }
            };
        }
        macro_rules! vector {
            ($ty:ty) => {
                match op.from {
                    From::Memory => load!($ty, va!()),
                    _ => state.xmm[v(op.b)] as $ty,
                }
            };
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
        macro_rules! shifted {
            ($ty:ty) => {
                u64::BITS - <$ty>::BITS
            };
        }
        macro_rules! plus {
            ($ty:ty, $carry:expr, $a:expr, $b:expr) => {{
                const BY: u32 = shifted!($ty);
                let (a, b) = (($a as u64) << BY, ($b as u64) << BY);
                let sum = a.wrapping_add(b).wrapping_add($carry << BY);
                f.set(sum, carries(a, b, sum), BY);
                sum >> BY
            }};
        }
        macro_rules! minus {
            ($ty:ty, $borrow:expr, $a:expr, $b:expr) => {{
                const BY: u32 = shifted!($ty);
                let (a, b) = (($a as u64) << BY, ($b as u64) << BY);
                let difference = a.wrapping_sub(b).wrapping_sub($borrow << BY);
                f.set(difference, borrows(a, b, difference), BY);
                difference >> BY
            }};
        }
        macro_rules! logic {
            ($ty:ty, $result:expr) => {{
                const BY: u32 = shifted!($ty);
                let result = $result as $ty as u64;
                f.set(result << BY, 0, BY);
                result
            }};
        }
        // Puts the low bits of a register in place, and keeps the others.
        macro_rules! merge {
            ($ty:ty, $value:expr) => {{
                let value = u64::from($value);
                let mask = u64::from(<$ty>::MAX);
                g[r(op.a)] = g[r(op.a)] & !mask | value;
            }};
        }
        macro_rules! alu {
            ($ty:ty) => {{
                let va = va!();
                let (a, b) = (load!($ty, va), operand!($ty));
                let before = f;
                let result = match op.a {
                    0 => plus!($ty, 0u64, a, b),
                    5 => minus!($ty, 0u64, a, b),
                    1 => logic!($ty, a | b),
                    4 => logic!($ty, a & b),
                    _ => logic!($ty, a ^ b),
                };
                if let Err(fault) = memory.store(va, (result as $ty).to_le_bytes()) {
                    f = before;
                    break 'run (op.pc, refused(op.pc, fault));
                }
            }};
        }
        macro_rules! carry {
            () => {
                if f.is_set {
                    f.carry_bit()
                } else {
                    state.rflags & CF
                }
            };
        }
        // All flags but the carry.
        macro_rules! but_carry {
            ($carry:expr) => {{
                let (carry, overflow) = ($carry, f.overflow());
                f.carries = f.carries & u64::MAX >> 2 | carry << 63 | (carry ^ overflow) << 62;
            }};
        }
        macro_rules! shift {
            ($ty:ty, $count:ident, $value:ident, $result:expr, $carry:expr, $overflow:expr) => {{
                const BY: u32 = shifted!($ty);
                let $count = operand!(u8) as u32 & (<$ty>::BITS - 1);
                let $value = g[r(op.a)] as $ty;
                if $count == 0 {
                    g[r(op.a)] = $value as u64;
                } else {
                    let result: $ty = $result;
                    let carry = ($carry) as u64 & 1;
                    let overflow = $overflow;
                    let overflow: u64 = overflow(carry, result);
                    f.set_flags((result as u64) << BY, carry, overflow, BY);
                    g[r(op.a)] = result as u64;
                }
            }};
        }
        // Only carry and overflow change.
        macro_rules! rotate {
            ($ty:ty, $count:ident, $value:ident, $result:expr, $flags:expr) => {{
                let $count = operand!(u8) as u32 & (<$ty>::BITS - 1);
                let $value = g[r(op.a)] as $ty;
                let result: $ty = $result;
                if $count != 0 {
                    settle(&mut f, &mut state.rflags);
                    let flags = $flags;
                    let (carry, overflow): ($ty, $ty) = flags(result);
                    let flags = (carry & 1) as u64 | ((overflow & 1) as u64) << 11;
                    state.rflags = state.rflags & !(CF | OF) | flags;
                }
                g[r(op.a)] = result as u64;
            }};
        }
        macro_rules! multiply {
            ($wide:ty, $narrow:ty, $unsigned:ty, $a:expr, $b:expr) => {{
                const BY: u32 = shifted!($unsigned);
                let product = <$wide>::from($a as $narrow) * <$wide>::from($b as $narrow);
                let result = product as $unsigned as u64;
                let lost = u64::from(<$wide>::from(product as $narrow) != product);
                f.set_flags(result << BY, lost, lost, BY);
                g[r(op.a)] = result;
            }};
        }
        'slow: {
            use Code::*;
            // Whether results that are not exact need not be noted.
            macro_rules! float {
                ($ty:ty, $compute:ident, $op:expr) => {{
                    if state.mxcsr & (CONTROL | INEXACT) != DEFAULT_CONTROL | INEXACT {
                        break 'slow;
                    }
                    let b = vector!($ty);
                    let a = &mut state.xmm[v(op.a)];
                    match host::$compute($op, *a as $ty, b) {
                        Some(result) => *a = *a & !u128::from(<$ty>::MAX) | u128::from(result),
                        None => break 'slow,
                    }
                }};
            }
            macro_rules! compare {
                ($ty:ty, $compare:ident) => {{
                    if state.mxcsr & CONTROL != DEFAULT_CONTROL {
                        break 'slow;
                    }
                    let b = vector!($ty);
                    let flags = match host::$compare(state.xmm[v(op.a)] as $ty, b) {
                        Some(Ordering::Greater) => 0,
                        Some(Ordering::Less) => CF,
                        Some(Ordering::Equal) => ZF,
                        None => break 'slow,
                    };
                    f.is_set = false;
                    state.rflags = state.rflags & !STATUS | flags;
                }};
            }
            macro_rules! of_integer {
                ($from:ty, $signed:ty, $to:ty, $convert:ident) => {{
                    if state.mxcsr & CONTROL != DEFAULT_CONTROL {
                        break 'slow;
                    }
                    let value = operand!($from) as $signed;
                    let exact = state.mxcsr & INEXACT == 0;
                    let a = &mut state.xmm[v(op.a)];
                    match host::$convert(i64::from(value), exact) {
                        Some(bits) => *a = *a & !u128::from(<$to>::MAX) | u128::from(bits),
                        None => break 'slow,
                    }
                }};
            }
            macro_rules! to_integer {
                ($from:ty, $unsigned:ty, $signed:ty, $convert:ident) => {{
                    if state.mxcsr & CONTROL != DEFAULT_CONTROL {
                        break 'slow;
                    }
                    let bits = vector!($from);
                    let exact = state.mxcsr & INEXACT == 0;
                    match host::$convert(bits, exact).map(<$signed>::try_from) {
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
                Mov1 => merge!(u8, operand!(u8)),
                Mov2 => merge!(u16, operand!(u16)),
                Mov4 => g[r(op.a)] = operand!(u32).into(),
                Mov8 => g[r(op.a)] = operand!(u64),
                MovM1 => store!(va!(), operand!(u8)),
                MovM2 => store!(va!(), operand!(u16)),
                MovM4 => store!(va!(), operand!(u32)),
                MovM8 => store!(va!(), operand!(u64)),
                Zero1 => g[r(op.a)] = operand!(u8).into(),
                Zero2 => g[r(op.a)] = operand!(u16).into(),
                Sign14 => g[r(op.a)] = (operand!(u8) as i8 as u32).into(),
                Sign18 => g[r(op.a)] = operand!(u8) as i8 as u64,
                Sign24 => g[r(op.a)] = (operand!(u16) as i16 as u32).into(),
                Sign28 => g[r(op.a)] = operand!(u16) as i16 as u64,
                Sign48 => g[r(op.a)] = operand!(u32) as i32 as u64,
                Lea4 => g[r(op.a)] = va!() & 0xffff_ffff,
                Lea8 => g[r(op.a)] = va!(),
                Add1 => merge!(u8, plus!(u8, 0u64, g[r(op.a)], operand!(u8))),
                Add2 => merge!(u16, plus!(u16, 0u64, g[r(op.a)], operand!(u16))),
                Or1 => merge!(u8, logic!(u8, g[r(op.a)] | u64::from(operand!(u8)))),
                Or2 => merge!(u16, logic!(u16, g[r(op.a)] | u64::from(operand!(u16)))),
                And1 => merge!(u8, logic!(u8, g[r(op.a)] & u64::from(operand!(u8)))),
                And2 => merge!(u16, logic!(u16, g[r(op.a)] & u64::from(operand!(u16)))),
                Sub1 => merge!(u8, minus!(u8, 0u64, g[r(op.a)], operand!(u8))),
                Sub2 => merge!(u16, minus!(u16, 0u64, g[r(op.a)], operand!(u16))),
                Xor1 => merge!(u8, logic!(u8, g[r(op.a)] ^ u64::from(operand!(u8)))),
                Xor2 => merge!(u16, logic!(u16, g[r(op.a)] ^ u64::from(operand!(u16)))),
                Add4 => g[r(op.a)] = plus!(u32, 0u64, g[r(op.a)], operand!(u32)),
                Add8 => g[r(op.a)] = plus!(u64, 0u64, g[r(op.a)], operand!(u64)),
                Or4 => g[r(op.a)] = logic!(u32, g[r(op.a)] | u64::from(operand!(u32))),
                Or8 => g[r(op.a)] = logic!(u64, g[r(op.a)] | operand!(u64)),
                Adc4 => {
                    let carry = carry!();
                    g[r(op.a)] = plus!(u32, carry, g[r(op.a)], operand!(u32));
                }
                Adc8 => {
                    let carry = carry!();
                    g[r(op.a)] = plus!(u64, carry, g[r(op.a)], operand!(u64));
                }
                Sbb4 => {
                    let borrow = carry!();
                    g[r(op.a)] = minus!(u32, borrow, g[r(op.a)], operand!(u32));
                }
                Sbb8 => {
                    let borrow = carry!();
                    g[r(op.a)] = minus!(u64, borrow, g[r(op.a)], operand!(u64));
                }
                And4 => g[r(op.a)] = logic!(u32, g[r(op.a)] & u64::from(operand!(u32))),
                And8 => g[r(op.a)] = logic!(u64, g[r(op.a)] & operand!(u64)),
                Sub4 => g[r(op.a)] = minus!(u32, 0u64, g[r(op.a)], operand!(u32)),
                Sub8 => g[r(op.a)] = minus!(u64, 0u64, g[r(op.a)], operand!(u64)),
                Xor4 => g[r(op.a)] = logic!(u32, g[r(op.a)] ^ u64::from(operand!(u32))),
                Xor8 => g[r(op.a)] = logic!(u64, g[r(op.a)] ^ operand!(u64)),
                Cmp1 => {
                    let _ = minus!(u8, 0u64, g[r(op.a)], operand!(u8));
                }
                Cmp2 => {
                    let _ = minus!(u16, 0u64, g[r(op.a)], operand!(u16));
                }
                Cmp4 => {
                    let _ = minus!(u32, 0u64, g[r(op.a)], operand!(u32));
                }
                Cmp8 => {
                    let _ = minus!(u64, 0u64, g[r(op.a)], operand!(u64));
                }
                CmpM1 => {
                    let _ = minus!(u8, 0u64, load!(u8, va!()), operand!(u8));
                }
                CmpM2 => {
                    let _ = minus!(u16, 0u64, load!(u16, va!()), operand!(u16));
                }
                CmpM4 => {
                    let _ = minus!(u32, 0u64, load!(u32, va!()), operand!(u32));
                }
                CmpM8 => {
                    let _ = minus!(u64, 0u64, load!(u64, va!()), operand!(u64));
                }
                Test1 => {
                    let _ = logic!(u8, g[r(op.a)] & u64::from(operand!(u8)));
                }
                Test4 => {
                    let _ = logic!(u32, g[r(op.a)] & u64::from(operand!(u32)));
                }
                Test8 => {
                    let _ = logic!(u64, g[r(op.a)] & operand!(u64));
                }
                TestM1 => {
                    let _ = logic!(u8, load!(u8, va!()) & operand!(u8));
                }
                TestM4 => {
                    let _ = logic!(u32, load!(u32, va!()) & operand!(u32));
                }
                TestM8 => {
                    let _ = logic!(u64, load!(u64, va!()) & operand!(u64));
                }
                AluM1 => alu!(u8),
                AluM4 => alu!(u32),
                AluM8 => alu!(u64),
                Inc4 => {
                    let carry = carry!();
                    g[r(op.a)] = plus!(u32, 0u64, g[r(op.a)], 1u32);
                    but_carry!(carry);
                }
                Inc8 => {
                    let carry = carry!();
                    g[r(op.a)] = plus!(u64, 0u64, g[r(op.a)], 1u64);
                    but_carry!(carry);
                }
                Dec4 => {
                    let carry = carry!();
                    g[r(op.a)] = minus!(u32, 0u64, g[r(op.a)], 1u32);
                    but_carry!(carry);
                }
                Dec8 => {
                    let carry = carry!();
                    g[r(op.a)] = minus!(u64, 0u64, g[r(op.a)], 1u64);
                    but_carry!(carry);
                }
                Neg4 => g[r(op.a)] = minus!(u32, 0u64, 0u64, g[r(op.a)]),
                Neg8 => g[r(op.a)] = minus!(u64, 0u64, 0u64, g[r(op.a)]),
                Not4 => g[r(op.a)] = u64::from(!(g[r(op.a)] as u32)),
                Not8 => g[r(op.a)] = !g[r(op.a)],
                Shl4 => shift!(u32, n, x, x << n, x >> (32 - n), |c, r: u32| c ^ u64::from(
                    r >> 31
                )),
                Shl8 => shift!(u64, n, x, x << n, x >> (64 - n), |c, r: u64| c ^ r >> 63),
                Shr4 => shift!(u32, n, x, x >> n, x >> (n - 1), |_, _| u64::from(x >> 31)),
                Shr8 => shift!(u64, n, x, x >> n, x >> (n - 1), |_, _| x >> 63),
                Sar4 => {
                    shift!(
                        u32,
                        n,
                        x,
                        (x as i32 >> n) as u32,
                        x as i32 >> (n - 1),
                        |_, _| 0
                    )
                }
                Sar8 => {
                    shift!(
                        u64,
                        n,
                        x,
                        (x as i64 >> n) as u64,
                        x as i64 >> (n - 1),
                        |_, _| 0
                    )
                }
                Rol4 => rotate!(u32, n, x, x.rotate_left(n), |r: u32| (r, r ^ r >> 31)),
                Rol8 => rotate!(u64, n, x, x.rotate_left(n), |r: u64| (r, r ^ r >> 63)),
                Ror4 => {
                    rotate!(u32, n, x, x.rotate_right(n), |r: u32| (
                        r >> 31,
                        r >> 31 ^ r >> 30
                    ))
                }
                Ror8 => {
                    rotate!(u64, n, x, x.rotate_right(n), |r: u64| (
                        r >> 63,
                        r >> 63 ^ r >> 62
                    ))
                }
                Imul4 => multiply!(i64, i32, u32, g[r(op.a)], operand!(u32)),
                Imul8 => multiply!(i128, i64, u64, g[r(op.a)], operand!(u64)),
                Imul4I => {
                    let b = match op.from {
                        From::Memory => load!(u32, va!()),
                        _ => g[r(op.b)] as u32,
                    };
                    multiply!(i64, i32, u32, b, op.immediate);
                }
                Imul8I => {
                    let b = match op.from {
                        From::Memory => load!(u64, va!()),
                        _ => g[r(op.b)],
                    };
                    multiply!(i128, i64, u64, b, op.immediate);
                }
                Mul8 => {
                    let product = u128::from(g[RAX]) * u128::from(operand!(u64));
                    let (low, high) = (product as u64, (product >> 64) as u64);
                    let lost = u64::from(high != 0);
                    f.set_flags(low, lost, lost, 0);
                    (g[RAX], g[RDX]) = (low, high);
                }
                Div4 => {
                    let (high, b) = (g[RDX] as u32, u64::from(operand!(u32)));
                    let a = u64::from(high) << 32 | u64::from(g[RAX] as u32);
                    // The quotient does not fit, or there is none.
                    if u64::from(high) >= b {
                        break 'slow;
                    }
                    (g[RAX], g[RDX]) = (a / b, a % b);
                }
                Div8 => {
                    let (a, b) = (g[RAX], operand!(u64));
                    if g[RDX] != 0 || b == 0 {
                        break 'slow;
                    }
                    (g[RAX], g[RDX]) = (a / b, a % b);
                }
                Cdq => g[RDX] = u64::from((g[RAX] as i32 >> 31) as u32),
                Cqo => g[RDX] = (g[RAX] as i64 >> 63) as u64,
                Push => {
                    let value = operand!(u64);
                    let sp = g[RSP].wrapping_sub(8);
                    store!(sp, value);
                    g[RSP] = sp;
                }
                Pop => {
                    let sp = g[RSP];
                    let value = load!(u64, sp);
                    g[RSP] = sp.wrapping_add(8);
                    g[r(op.a)] = value;
                }
                Leave => {
                    let frame = g[RBP];
                    let outer = load!(u64, frame);
                    (g[RSP], g[RBP]) = (frame.wrapping_add(8), outer);
                }
                Call | CallTo => {
                    let target = match op.code {
                        Call => op.at,
                        _ => operand!(u64),
                    };
                    let sp = g[RSP].wrapping_sub(8);
                    store!(sp, op.pc.wrapping_add(op.len.into()));
                    g[RSP] = sp;
                    go!(target)
                }
                Jump => go!(op.at),
                JumpTo => go!(operand!(u64)),
                Return => {
                    let sp = g[RSP];
                    let target = load!(u64, sp);
                    g[RSP] = sp.wrapping_add(8);
                    go!(target)
                }
                If => {
                    if holds_lazily(op.b, &f, state.rflags) {
                        go!(op.at)
                    }
                    go!(op.pc.wrapping_add(op.len.into()))
                }
                Set => {
                    let value = u64::from(holds_lazily(op.b, &f, state.rflags));
                    g[r(op.a)] = g[r(op.a)] & !0xff | value;
                }
                Cmov4 => {
                    let value = operand!(u32);
                    if holds_lazily(op.immediate as u8, &f, state.rflags) {
                        g[r(op.a)] = value.into();
                    } else {
                        g[r(op.a)] &= 0xffff_ffff;
                    }
                }
                Cmov8 => {
                    let value = operand!(u64);
                    if holds_lazily(op.immediate as u8, &f, state.rflags) {
                        g[r(op.a)] = value;
                    }
                }
                LoadX4 => state.xmm[v(op.a)] = load!(u32, va!()).into(),
                LoadX8 => state.xmm[v(op.a)] = load!(u64, va!()).into(),
                LoadX16 => state.xmm[v(op.a)] = load!(u128, va!()),
                LoadXA => {
                    let va = va!();
                    if !va.is_multiple_of(16) {
                        break 'slow;
                    }
                    state.xmm[v(op.a)] = load!(u128, va);
                }
                StoreX4 => store!(va!(), state.xmm[v(op.b)] as u32),
                StoreX8 => store!(va!(), state.xmm[v(op.b)] as u64),
                StoreX16 => store!(va!(), state.xmm[v(op.b)]),
                StoreXA => {
                    let va = va!();
                    if !va.is_multiple_of(16) {
                        break 'slow;
                    }
                    store!(va, state.xmm[v(op.b)]);
                }
                MoveX4 => {
                    let low = state.xmm[v(op.b)] & 0xffff_ffff;
                    let a = &mut state.xmm[v(op.a)];
                    *a = *a & !0xffff_ffff | low;
                }
                MoveX8 => {
                    let low = state.xmm[v(op.b)] as u64;
                    let a = &mut state.xmm[v(op.a)];
                    *a = *a >> 64 << 64 | u128::from(low);
                }
                MoveX16 => state.xmm[v(op.a)] = state.xmm[v(op.b)],
                MoveXQ => state.xmm[v(op.a)] = u128::from(state.xmm[v(op.b)] as u64),
                ToX4 => state.xmm[v(op.a)] = operand!(u32).into(),
                ToX8 => state.xmm[v(op.a)] = operand!(u64).into(),
                FromX4 => g[r(op.a)] = u64::from(state.xmm[v(op.b)] as u32),
                FromX8 => g[r(op.a)] = state.xmm[v(op.b)] as u64,
                AndX => state.xmm[v(op.a)] &= state.xmm[v(op.b)],
                AndNotX => state.xmm[v(op.a)] = !state.xmm[v(op.a)] & state.xmm[v(op.b)],
                OrX => state.xmm[v(op.a)] |= state.xmm[v(op.b)],
                XorX => state.xmm[v(op.a)] ^= state.xmm[v(op.b)],
                AddF4 => float!(u32, f32_arithmetic, Arithmetic::Add),
                AddF8 => float!(u64, f64_arithmetic, Arithmetic::Add),
                SubF4 => float!(u32, f32_arithmetic, Arithmetic::Sub),
                SubF8 => float!(u64, f64_arithmetic, Arithmetic::Sub),
                MulF4 => float!(u32, f32_arithmetic, Arithmetic::Mul),
                MulF8 => float!(u64, f64_arithmetic, Arithmetic::Mul),
                DivF4 => float!(u32, f32_arithmetic, Arithmetic::Div),
                DivF8 => float!(u64, f64_arithmetic, Arithmetic::Div),
                Compare4 => compare!(u32, compare32),
                Compare8 => compare!(u64, compare64),
                Int4ToF4 => of_integer!(u32, i32, u32, f32_of),
                Int8ToF4 => of_integer!(u64, i64, u32, f32_of),
                Int4ToF8 => of_integer!(u32, i32, u64, f64_of),
                Int8ToF8 => of_integer!(u64, i64, u64, f64_of),
                F4ToInt4 => to_integer!(u32, u32, i32, f32_to),
                F4ToInt8 => to_integer!(u32, u64, i64, f32_to),
                F8ToInt4 => to_integer!(u64, u32, i32, f64_to),
                F8ToInt8 => to_integer!(u64, u64, i64, f64_to),
            }
            steps += 1;
            at += 1;
            continue 'run;
        }
        settle(&mut f, &mut state.rflags);
        state.gpr.copy_from_slice(&g[..16]);
        state.rip = op.pc;
        let event = state.step(memory);
        g[..16].copy_from_slice(&state.gpr);
        match event {
            Ok(Event::Continue | Event::Call { .. } | Event::Return) => {}
            Ok(Event::SystemCall) => {
                steps += 1;
                break (state.rip, End::SystemCall);
            }
            Ok(Event::Trap(trap)) => break (op.pc, End::Trap(trap)),
            Err(refusal) => break (op.pc, End::Refused(refusal)),
        }
        if state.rip == op.pc.wrapping_add(op.len.into()) && op.len != 0 {
            steps += 1;
            at += 1;
        } else {
            go!(state.rip)
        }
    };
    settle(&mut f, &mut state.rflags);
    state.gpr.copy_from_slice(&g[..16]);
    state.rip = pc;
    Run { steps, end }
}

#[cold]
fn refused(pc: u64, fault: Fault) -> End {
    End::Refused(Refusal::Fault { pc, fault })
}
