//! Base instructions but for loads and stores.

use super::{Form, Kind, form};

const fn any(name: &'static str, bits: &'static str) -> Form {
    form(name, bits, Kind::Any)
}

pub const FORMS: &[Form] = &[
    any("adr", "0xx10000xxxxxxxxxxxxxxxxxxxxxxxx"),
    any("adrp", "1xx10000xxxxxxxxxxxxxxxxxxxxxxxx"),
    any("add immediate", "xxx100010xxxxxxxxxxxxxxxxxxxxxxx"),
    any("logical immediate", "xxx100100xxxxxxxxxxxxxxxxxxxxxxx"),
    any("wide move", "xxx100101xxxxxxxxxxxxxxxxxxxxxxx"),
    any("bitfield, wide", "1xx1001101xxxxxxxxxxxxxxxxxxxxxx"),
    any("bitfield", "0xx10011000xxxxx0xxxxxxxxxxxxxxx"),
    any("extr, wide", "10010011110xxxxxxxxxxxxxxxxxxxxx"),
    any("extr", "00010011100xxxxx0xxxxxxxxxxxxxxx"),
    any("logical shifted, wide", "1xx01010xxxxxxxxxxxxxxxxxxxxxxxx"),
    any("logical shifted", "0xx01010xxxxxxxx0xxxxxxxxxxxxxxx"),
    any("add shifted", "xxx01011xx0xxxxxxxxxxxxxxxxxxxxx"),
    any("add extended", "xxx01011001xxxxxxxx0xxxxxxxxxxxx"),
    any("adc", "xxx11010000xxxxx000000xxxxxxxxxx"),
    any("ccmp register", "xx111010010xxxxxxxxx00xxxxx0xxxx"),
    any("ccmp immediate", "xx111010010xxxxxxxxx10xxxxx0xxxx"),
    any("csel", "xx011010100xxxxxxxxx0xxxxxxxxxxx"),
    any("one source", "x101101011000000000xxxxxxxxxxxxx"),
    any("divide", "x0011010110xxxxx00001xxxxxxxxxxx"),
    any("shift", "x0011010110xxxxx0010xxxxxxxxxxxx"),
    any("madd", "x0011011000xxxxxxxxxxxxxxxxxxxxx"),
    any("smaddl", "10011011001xxxxxxxxxxxxxxxxxxxxx"),
    any("smulh", "10011011010xxxxx0iiiiixxxxxxxxxx"),
    any("umaddl", "10011011101xxxxxxxxxxxxxxxxxxxxx"),
    any("umulh", "10011011110xxxxx0iiiiixxxxxxxxxx"),
    any("b forward", "x00101000000000000000000000xxxxx"),
    any("b back", "x001011111111111111111111111xxxx"),
    any("b.cond forward", "0101010000000000000000xxxxx0xxxx"),
    any("b.cond back", "01010100111111111111111xxxx0xxxx"),
    any("cbz forward", "x011010x00000000000000xxxxxxxxxx"),
    any("cbz back", "x011010x111111111111111xxxxxxxxx"),
    any("tbz forward", "x011011xxxxxx000000000xxxxxxxxxx"),
    any("tbz back", "x011011xxxxxx1111111111xxxxxxxxx"),
    form("br", "1101011000011111000000xxxxx00000", Kind::Branch),
    form("blr", "1101011000111111000000xxxxx00000", Kind::Branch),
    form("ret", "1101011001011111000000xxxxx00000", Kind::Branch),
    any("hint", "1101010100000011001000000xx11111"),
    any("barrier", "11010101000000110011xxxx1xx11111"),
    any("nzcv", "1101010100x1101101000010000xxxxx"),
    any("fpcr", "110101010011101101000100000xxxxx"),
    any("fpsr", "1101010100x1101101000100001xxxxx"),
];
