//! Frequent instructions, taken apart once. What is not here, and what of these is not the usual case, is executed
//! by [`step`](crate::Cpu::step), with the same result.
//!
//! | module | concern |
//! |---|---|
//! | here | operations |
//! | `decode` | from instructions to operations |
//! | `run` | what operations do |

mod decode;
mod run;

use crate::blocks::Blocks;

pub(super) use run::run;

/// What an operation does. A number at the end: bytes of its operands. `M`: the first operand is memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// As [`step`](crate::Cpu::step) does it. Without a length the instruction could not be read, and ends its run.
    Slow,
    /// The run ends; code goes on at the operation's address.
    End,
    Nop,
    Mov1,
    Mov2,
    Mov4,
    Mov8,
    MovM1,
    MovM2,
    MovM4,
    MovM8,
    /// MOVZX.
    Zero1,
    Zero2,
    /// MOVSX, MOVSXD, CDQE: from, to.
    Sign14,
    Sign18,
    Sign24,
    Sign28,
    Sign48,
    Lea4,
    Lea8,
    Add1,
    Add2,
    Add4,
    Add8,
    Or1,
    Or2,
    Or4,
    Or8,
    Adc4,
    Adc8,
    Sbb4,
    Sbb8,
    And1,
    And2,
    And4,
    And8,
    Sub1,
    Sub2,
    Sub4,
    Sub8,
    Xor1,
    Xor2,
    Xor4,
    Xor8,
    Cmp1,
    Cmp2,
    Cmp4,
    Cmp8,
    CmpM1,
    CmpM2,
    CmpM4,
    CmpM8,
    Test1,
    Test4,
    Test8,
    TestM1,
    TestM4,
    TestM8,
    /// ADD, OR, AND, SUB, XOR: field `a` says which, by the opcode's bits.
    AluM1,
    AluM4,
    AluM8,
    Inc4,
    Inc8,
    Dec4,
    Dec8,
    Neg4,
    Neg8,
    Not4,
    Not8,
    Shl4,
    Shl8,
    Shr4,
    Shr8,
    Sar4,
    Sar8,
    Rol4,
    Rol8,
    Ror4,
    Ror8,
    Imul4,
    Imul8,
    /// With an immediate: the first operand is register or memory.
    Imul4I,
    Imul8I,
    Mul8,
    Div4,
    Div8,
    /// CDQ, CQO.
    Cdq,
    Cqo,
    Push,
    Pop,
    Leave,
    Call,
    CallTo,
    Jump,
    JumpTo,
    Return,
    If,
    Set,
    Cmov4,
    Cmov8,
    /// XMM registers and memory; a number: bytes that are moved.
    LoadX4,
    LoadX8,
    LoadX16,
    /// At a multiple of 16.
    LoadXA,
    StoreX4,
    StoreX8,
    StoreX16,
    StoreXA,
    /// Between XMM registers: low part, the rest stays; all; the low half, the rest zero.
    MoveX4,
    MoveX8,
    MoveX16,
    MoveXQ,
    /// From a general register, and to it.
    ToX4,
    ToX8,
    FromX4,
    FromX8,
    AndX,
    AndNotX,
    OrX,
    XorX,
    AddF4,
    AddF8,
    SubF4,
    SubF8,
    MulF4,
    MulF8,
    DivF4,
    DivF8,
    /// UCOMISS, COMISS, UCOMISD, COMISD.
    Compare4,
    Compare8,
    /// CVTSI2SS, CVTSI2SD: from 4 or 8 bytes.
    Int4ToF4,
    Int8ToF4,
    Int4ToF8,
    Int8ToF8,
    /// CVTTSS2SI, CVTTSD2SI.
    F4ToInt4,
    F4ToInt8,
    F8ToInt4,
    F8ToInt8,
}

/// Where the second operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Register,
    Immediate,
    Memory,
}

/// An instruction, taken apart.
#[derive(Clone, Copy, Debug)]
struct Op {
    /// Its address.
    pc: u64,
    /// The memory operand's displacement, or the target of a branch.
    at: u64,
    immediate: u64,
    code: Code,
    from: From,
    /// The first operand, which is the destination.
    a: u8,
    /// The second operand.
    b: u8,
    base: u8,
    index: u8,
    scale: u8,
    len: u8,
}

/// A register that is zero: where an address has no base or index.
const ZERO: u8 = 16;
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
/// Bits of MXCSR: masks of all exceptions, rounding, denormals replaced; and that inexact results have been noted.
const CONTROL: u64 = 0xffc0;
const DEFAULT_CONTROL: u64 = 0x1f80;
const INEXACT: u64 = 1 << 5;

/// All of it is zero, so that a new cache is nothing but zeros.
const EMPTY: Op = Op {
    pc: 0,
    at: 0,
    immediate: 0,
    code: Code::Slow,
    from: From::Register,
    a: 0,
    b: 0,
    base: 0,
    index: 0,
    scale: 0,
    len: 0,
};

/// Code of a program that has been taken apart.
#[derive(Debug)]
pub struct Cache(Blocks<Op>);

impl Default for Cache {
    fn default() -> Cache {
        Cache(Blocks::new(EMPTY))
    }
}
