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

/// What an operation does. A number at the end: bytes of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// As [`step`](crate::Cpu::step) does it. With `by` set the instruction could not be read, and ends its run.
    Slow,
    /// The run ends; code goes on at the operation's address.
    End,
    Nop,
    /// MOVZ, MOVN, ADR, ADRP.
    Constant,
    MovK4,
    MovK8,
    Mov4,
    Mov8,
    Add4,
    Add8,
    AddS4,
    AddS8,
    Sub4,
    Sub8,
    SubS4,
    SubS8,
    And4,
    And8,
    Or4,
    Or8,
    Xor4,
    Xor8,
    AndS4,
    AndS8,
    Adc8,
    AdcS8,
    Sbc8,
    SbcS8,
    /// UBFM with a field that goes to the bottom: shifted right, masked.
    ShiftMask,
    /// UBFM with a field that comes from the bottom: masked, shifted left.
    MaskShift,
    /// SBFM: shifted left by `by`, right by `d`.
    Signed4,
    Signed8,
    /// BFM: turned by `by`, put in where the mask is.
    Insert4,
    Insert8,
    Extract4,
    Extract8,
    MulAdd4,
    MulAdd8,
    MulSub4,
    MulSub8,
    /// SMADDL, UMADDL.
    MulAddS,
    MulAddU,
    MulHighS,
    MulHighU,
    DivU4,
    DivU8,
    DivS4,
    DivS8,
    /// By a register; `by` says how.
    Shift4,
    Shift8,
    Clz4,
    Clz8,
    Rbit4,
    Rbit8,
    Rev4,
    Rev8,
    /// CSEL and its like: what is selected if the condition does not hold is changed as `d` says.
    Select4,
    Select8,
    /// CCMP, CCMN: `a` is what flags are otherwise.
    Ccmp4,
    Ccmp8,
    Ccmn4,
    Ccmn8,
    Branch,
    Call,
    BranchTo,
    CallTo,
    Return,
    If,
    /// CBZ, CBNZ.
    IfZero4,
    IfZero8,
    IfNot4,
    IfNot8,
    /// TBZ, TBNZ.
    IfClear,
    IfSet,
    Load1,
    Load2,
    Load4,
    Load8,
    /// Sign-extended: from, to.
    Load14,
    Load18,
    Load24,
    Load28,
    Load48,
    Store1,
    Store2,
    Store4,
    Store8,
    LoadV4,
    LoadV8,
    LoadV16,
    StoreV4,
    StoreV8,
    StoreV16,
    LoadPair4,
    LoadPair8,
    StorePair4,
    StorePair8,
    LoadPairV8,
    LoadPairV16,
    StorePairV8,
    StorePairV16,
    MoveV4,
    MoveV8,
    MoveV16,
    ConstantV,
    Neg4,
    Neg8,
    Abs4,
    Abs8,
    /// FMOV between a general register and a vector register.
    FromV4,
    FromV8,
    ToV4,
    ToV8,
    SelectV4,
    SelectV8,
    AddF4,
    AddF8,
    SubF4,
    SubF8,
    MulF4,
    MulF8,
    DivF4,
    DivF8,
    /// With a register, or zero.
    Compare4,
    Compare8,
    CompareZero4,
    CompareZero8,
    /// SCVTF, UCVTF: integers of 4 or 8 bytes.
    Int4ToF4,
    Int4ToF8,
    Int8ToF4,
    Int8ToF8,
    UInt4ToF4,
    UInt4ToF8,
    /// FCVTZS, FCVTZU.
    F4ToInt4,
    F4ToInt8,
    F8ToInt4,
    F8ToInt8,
    F4ToUInt4,
    F4ToUInt8,
    F8ToUInt4,
    F8ToUInt8,
}

/// How the second operand, or an address, is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// An immediate; an offset.
    Immediate,
    /// The register `c`.
    Register,
    /// The register `c`, shifted as `d` says by `by`.
    Shifted,
    /// The register `c`, extended as `d` says, shifted by `by`.
    Extended,
    /// The offset comes before the access, and stays.
    Before,
    /// The offset comes after the access, and stays.
    After,
}

/// An instruction, taken apart.
#[derive(Clone, Copy, Debug)]
struct Op {
    /// Its address.
    pc: u64,
    /// Immediate, offset, target or mask; with a register, what its bits are changed with.
    immediate: u64,
    code: Code,
    form: Form,
    /// The destination, or what is stored or looked at.
    a: u8,
    /// The first operand, or the base.
    b: u8,
    c: u8,
    d: u8,
    by: u8,
}

/// Numbers in the array of registers: the stack pointer, zero, and what takes what is written to zero.
const SP: u8 = 31;
const ZERO: u8 = 32;
const NOWHERE: u8 = 33;
const LINK: usize = 30;
/// Bit of FPSR: inexact results have been noted.
const INEXACT: u64 = 1 << 4;
const NOP: u32 = 0xd503_201f;

/// All of it is zero, so that a new cache is nothing but zeros.
const EMPTY: Op = Op {
    pc: 0,
    immediate: 0,
    code: Code::Slow,
    form: Form::Immediate,
    a: 0,
    b: 0,
    c: 0,
    d: 0,
    by: 0,
};

/// Code of a program that has been taken apart.
#[derive(Debug)]
pub struct Cache(Blocks<Op>);

impl Default for Cache {
    fn default() -> Cache {
        Cache(Blocks::new(EMPTY))
    }
}
