//! Integer instructions.

use crate::support::x86::{AF, CF, Form, Immediate, Kind, OF, Operands, PF, SF, STATUS, Sizes, ZF};

pub const fn form(
    name: &'static str,
    opcodes: &'static [&'static [u8]],
    sizes: Sizes,
    operands: Operands,
    immediate: Immediate,
) -> Form {
    Form {
        name,
        opcodes,
        sizes,
        operands,
        immediate,
        kind: Kind::Any,
        undefined: 0,
    }
}

pub const fn kind(kind: Kind, form: Form) -> Form {
    Form { kind, ..form }
}

const fn undefined(undefined: u64, form: Form) -> Form {
    Form { undefined, ..form }
}

use Immediate as I;
use Operands::{Both, Group, GroupMemory, GroupRegister, InOpcode, Memory, None, Registers};
use Sizes::{All, One, Wide};

#[rustfmt::skip] // A table.
pub const INTEGER: &[Form] = &[
    form("add adc sbb sub cmp, bytes", &[&[0x00], &[0x02], &[0x10], &[0x12], &[0x18], &[0x1a], &[0x28], &[0x2a], &[0x38], &[0x3a]], One, Both, I::None),
    form("add adc sbb sub cmp", &[&[0x01], &[0x03], &[0x11], &[0x13], &[0x19], &[0x1b], &[0x29], &[0x2b], &[0x39], &[0x3b]], All, Both, I::None),
    undefined(AF, form("or and xor, bytes", &[&[0x08], &[0x0a], &[0x20], &[0x22], &[0x30], &[0x32]], One, Both, I::None)),
    undefined(AF, form("or and xor", &[&[0x09], &[0x0b], &[0x21], &[0x23], &[0x31], &[0x33]], All, Both, I::None)),
    undefined(AF, form("arithmetic, al", &[&[0x04], &[0x0c], &[0x14], &[0x1c], &[0x24], &[0x2c], &[0x34], &[0x3c], &[0xa8]], One, None, I::B1)),
    undefined(AF, form("arithmetic, rax", &[&[0x05], &[0x0d], &[0x15], &[0x1d], &[0x25], &[0x2d], &[0x35], &[0x3d], &[0xa9]], All, None, I::Operand)),
    undefined(AF, form("arithmetic with an immediate, bytes", &[&[0x80]], One, Group(&[0, 1, 2, 3, 4, 5, 6, 7]), I::B1)),
    undefined(AF, form("arithmetic with an immediate", &[&[0x81]], All, Group(&[0, 1, 2, 3, 4, 5, 6, 7]), I::Operand)),
    undefined(AF, form("arithmetic with a small immediate", &[&[0x83]], All, Group(&[0, 1, 2, 3, 4, 5, 6, 7]), I::B1)),
    undefined(AF, form("locked arithmetic", &[&[0xf0, 0x01], &[0xf0, 0x09], &[0xf0, 0x11], &[0xf0, 0x19], &[0xf0, 0x21], &[0xf0, 0x29], &[0xf0, 0x31]], All, Memory, I::None)),
    undefined(AF, form("locked arithmetic with an immediate", &[&[0xf0, 0x83]], All, GroupMemory(&[0, 1, 2, 3, 4, 5, 6]), I::B1)),
    form("push", &[&[0x50]], Wide, InOpcode, I::None),
    form("pop", &[&[0x58]], Wide, InOpcode, I::None),
    form("push an immediate", &[&[0x68]], Wide, None, I::B4),
    form("push a small immediate", &[&[0x6a]], Wide, None, I::B1),
    form("push memory", &[&[0xff]], Wide, Group(&[6]), I::None),
    form("movsxd", &[&[0x63]], Wide, Both, I::None),
    undefined(SF | ZF | AF | PF, form("imul with an immediate", &[&[0x69]], All, Both, I::Operand)),
    undefined(SF | ZF | AF | PF, form("imul with a small immediate", &[&[0x6b]], All, Both, I::B1)),
    undefined(SF | ZF | AF | PF, form("imul", &[&[0x0f, 0xaf]], All, Both, I::None)),
    form("jcc", &[&[0x70], &[0x71], &[0x72], &[0x73], &[0x74], &[0x75], &[0x76], &[0x77], &[0x78], &[0x79], &[0x7a], &[0x7b], &[0x7c], &[0x7d], &[0x7e], &[0x7f], &[0xe3], &[0xeb]], One, None, I::Branch1),
    form("jcc, far", &[&[0x0f, 0x80], &[0x0f, 0x81], &[0x0f, 0x82], &[0x0f, 0x83], &[0x0f, 0x84], &[0x0f, 0x85], &[0x0f, 0x86], &[0x0f, 0x87], &[0x0f, 0x88], &[0x0f, 0x89], &[0x0f, 0x8a], &[0x0f, 0x8b], &[0x0f, 0x8c], &[0x0f, 0x8d], &[0x0f, 0x8e], &[0x0f, 0x8f], &[0xe9], &[0xe8]], One, None, I::Branch4),
    kind(Kind::Branch, form("call jmp, indirect", &[&[0xff]], Wide, Group(&[2, 4]), I::None)),
    kind(Kind::Return, form("ret", &[&[0xc3], &[0xf3, 0xc3]], One, None, I::None)),
    kind(Kind::Frame, form("leave", &[&[0xc9]], One, None, I::None)),
    undefined(AF, form("test, bytes", &[&[0x84]], One, Both, I::None)),
    undefined(AF, form("test", &[&[0x85]], All, Both, I::None)),
    undefined(AF, form("test with an immediate, bytes", &[&[0xf6]], One, Group(&[0]), I::B1)),
    undefined(AF, form("test with an immediate", &[&[0xf7]], All, Group(&[0]), I::Operand)),
    form("xchg, bytes", &[&[0x86]], One, Both, I::None),
    form("xchg", &[&[0x87]], All, Both, I::None),
    form("xchg rax", &[&[0x90]], All, InOpcode, I::None),
    form("mov, bytes", &[&[0x88], &[0x8a]], One, Both, I::None),
    form("mov", &[&[0x89], &[0x8b]], All, Both, I::None),
    form("mov an immediate, bytes", &[&[0xc6]], One, Group(&[0]), I::B1),
    form("mov an immediate", &[&[0xc7]], All, Group(&[0]), I::Operand),
    form("mov an immediate to a register, bytes", &[&[0xb0]], One, InOpcode, I::B1),
    form("mov an immediate to a register", &[&[0xb8]], All, InOpcode, I::Full),
    form("lea", &[&[0x8d]], All, Memory, I::None),
    form("cbw cwd sahf lahf", &[&[0x98], &[0x99], &[0x9e], &[0x9f]], All, None, I::None),
    form("cmc clc stc cld", &[&[0xf5], &[0xf8], &[0xf9], &[0xfc]], One, None, I::None),
    form("std", &[&[0xfd]], One, None, I::None),
    form("movzx movsx", &[&[0x0f, 0xb6], &[0x0f, 0xb7], &[0x0f, 0xbe], &[0x0f, 0xbf]], All, Both, I::None),
    form("setcc", &[&[0x0f, 0x90], &[0x0f, 0x91], &[0x0f, 0x92], &[0x0f, 0x93], &[0x0f, 0x94], &[0x0f, 0x95], &[0x0f, 0x96], &[0x0f, 0x97], &[0x0f, 0x98], &[0x0f, 0x99], &[0x0f, 0x9a], &[0x0f, 0x9b], &[0x0f, 0x9c], &[0x0f, 0x9d], &[0x0f, 0x9e], &[0x0f, 0x9f]], One, Group(&[0]), I::None),
    form("cmovcc", &[&[0x0f, 0x40], &[0x0f, 0x41], &[0x0f, 0x42], &[0x0f, 0x43], &[0x0f, 0x44], &[0x0f, 0x45], &[0x0f, 0x46], &[0x0f, 0x47], &[0x0f, 0x48], &[0x0f, 0x49], &[0x0f, 0x4a], &[0x0f, 0x4b], &[0x0f, 0x4c], &[0x0f, 0x4d], &[0x0f, 0x4e], &[0x0f, 0x4f]], All, Both, I::None),
    form("inc dec, bytes", &[&[0xfe]], One, Group(&[0, 1]), I::None),
    form("inc dec", &[&[0xff]], All, Group(&[0, 1]), I::None),
    form("locked inc dec", &[&[0xf0, 0xff]], All, GroupMemory(&[0, 1]), I::None),
    form("not neg, bytes", &[&[0xf6]], One, Group(&[2, 3]), I::None),
    form("not neg", &[&[0xf7]], All, Group(&[2, 3]), I::None),
    form("locked not neg", &[&[0xf0, 0xf7]], All, GroupMemory(&[2, 3]), I::None),
    undefined(SF | ZF | AF | PF, form("mul imul, bytes", &[&[0xf6]], One, Group(&[4, 5]), I::None)),
    undefined(SF | ZF | AF | PF, form("mul imul", &[&[0xf7]], All, Group(&[4, 5]), I::None)),
    undefined(STATUS, kind(Kind::Divide, form("div idiv, bytes", &[&[0xf6]], One, Group(&[6, 7]), I::None))),
    undefined(STATUS, kind(Kind::Divide, form("div idiv", &[&[0xf7]], All, Group(&[6, 7]), I::None))),
    undefined(AF, form("shift by one, bytes", &[&[0xd0]], One, Group(&[0, 1, 2, 3, 4, 5, 7]), I::None)),
    undefined(AF, form("shift by one", &[&[0xd1]], All, Group(&[0, 1, 2, 3, 4, 5, 7]), I::None)),
    undefined(AF | OF, kind(Kind::Shift, form("shift, bytes", &[&[0xd2]], One, Group(&[4, 5, 7]), I::None))),
    undefined(AF | OF, kind(Kind::Shift, form("shift", &[&[0xd3]], All, Group(&[4, 5, 7]), I::None))),
    undefined(AF | OF, kind(Kind::Shift, form("shift by a constant, bytes", &[&[0xc0]], One, Group(&[4, 5, 7]), I::B1))),
    undefined(AF | OF, kind(Kind::Shift, form("shift by a constant", &[&[0xc1]], All, Group(&[4, 5, 7]), I::B1))),
    undefined(OF, form("rotate, bytes", &[&[0xd2]], One, Group(&[0, 1, 2, 3]), I::None)),
    undefined(OF, form("rotate", &[&[0xd3]], All, Group(&[0, 1, 2, 3]), I::None)),
    undefined(OF, form("rotate by a constant, bytes", &[&[0xc0]], One, Group(&[0, 1, 2, 3]), I::B1)),
    undefined(OF, form("rotate by a constant", &[&[0xc1]], All, Group(&[0, 1, 2, 3]), I::B1)),
    undefined(AF | OF, kind(Kind::Shift, form("shld shrd", &[&[0x0f, 0xa5], &[0x0f, 0xad]], All, Both, I::None))),
    undefined(AF | OF, kind(Kind::Shift, form("shld shrd by a constant", &[&[0x0f, 0xa4], &[0x0f, 0xac]], All, Both, I::B1))),
    undefined(OF | SF | AF | PF, kind(Kind::BitNumber, form("bt bts btr btc", &[&[0x0f, 0xa3], &[0x0f, 0xab], &[0x0f, 0xb3], &[0x0f, 0xbb]], All, Both, I::None))),
    undefined(OF | SF | AF | PF, kind(Kind::BitNumber, form("locked bts btr btc", &[&[0xf0, 0x0f, 0xab], &[0xf0, 0x0f, 0xb3], &[0xf0, 0x0f, 0xbb]], All, Memory, I::None))),
    undefined(OF | SF | AF | PF, form("bt bts btr btc by a constant", &[&[0x0f, 0xba]], All, Group(&[4, 5, 6, 7]), I::B1)),
    undefined(OF | SF | AF | PF | CF, form("bsf bsr", &[&[0x0f, 0xbc], &[0x0f, 0xbd]], All, Both, I::None)),
    undefined(OF | SF | AF | PF, form("tzcnt lzcnt", &[&[0xf3, 0x0f, 0xbc], &[0xf3, 0x0f, 0xbd]], Wide, Both, I::None)),
    form("bswap", &[&[0x0f, 0xc8]], Wide, InOpcode, I::None),
    kind(Kind::Compare, form("cmpxchg, bytes", &[&[0x0f, 0xb0]], One, Memory, I::None)),
    kind(Kind::Compare, form("cmpxchg", &[&[0x0f, 0xb1]], All, Memory, I::None)),
    kind(Kind::Compare, form("locked cmpxchg", &[&[0xf0, 0x0f, 0xb1]], All, Memory, I::None)),
    kind(Kind::Aligned, form("cmpxchg8b cmpxchg16b", &[&[0xf0, 0x0f, 0xc7], &[0x0f, 0xc7]], Wide, GroupMemory(&[1]), I::None)),
    form("xadd, bytes", &[&[0x0f, 0xc0]], One, Both, I::None),
    form("xadd", &[&[0x0f, 0xc1]], All, Both, I::None),
    form("locked xadd", &[&[0xf0, 0x0f, 0xc1]], All, Memory, I::None),
    form("movnti", &[&[0x0f, 0xc3]], Wide, Memory, I::None),
    kind(Kind::String, form("movs stos", &[&[0xa4], &[0xa5], &[0xaa], &[0xab]], All, None, I::None)),
    kind(Kind::String, form("rep movs, rep stos", &[&[0xf3, 0xa4], &[0xf3, 0xa5], &[0xf3, 0xaa], &[0xf3, 0xab]], All, None, I::None)),
    form("nop prefetch", &[&[0x0f, 0x1f], &[0x0f, 0x18], &[0x0f, 0x0d]], All, GroupMemory(&[0, 1]), I::None),
    form("pause endbr64", &[&[0xf3, 0x90], &[0xf3, 0x0f, 0x1e, 0xfa]], One, None, I::None),
    form("fences", &[&[0x0f, 0xae]], One, GroupRegister(&[5, 6, 7]), I::None),
    form("movzx registers", &[&[0x0f, 0xb6]], All, Registers, I::None),
];
