//! Scalar floating point and Advanced SIMD.

use super::{Form, Kind, form};

const fn any(name: &'static str, bits: &'static str) -> Form {
    form(name, bits, Kind::Any)
}

const fn float(name: &'static str, bits: &'static str) -> Form {
    form(name, bits, Kind::Float)
}

pub const FORMS: &[Form] = &[
    float("fmul fdiv fadd fsub", "000111100x1xxxxx00xx10xxxxxxxxxx"),
    float("fmax fmin", "000111100x1xxxxx01xx10xxxxxxxxxx"),
    float("fnmul", "000111100x1xxxxx100010xxxxxxxxxx"),
    float("fmadd", "000111110xxxxxxxxxxxxxxxxxxxxxxx"),
    float("fmov fabs fneg fsqrt", "000111100x10000xx10000xxxxxxxxxx"),
    float("fsqrt", "000111100x100001110000xxxxxxxxxx"),
    float("fcvt", "00011110xx10001xx10000xxxxxxxxxx"),
    float("frint", "000111100x1001xxx10000xxxxxxxxxx"),
    float("fcmp", "000111100x1xxxxx001000xxxxxx0000"),
    float("fcmp zero", "000111100x100000001000xxxxxx1000"),
    float("fccmp", "000111100x1xxxxxxxxx01xxxxxxxxxx"),
    float("fcsel", "000111100x1xxxxxxxxx11xxxxxxxxxx"),
    float("fmov immediate", "000111100x1xxxxxxxx10000000xxxxx"),
    float("fcvt to integer", "x00111100x1xx00x000000xxxxxxxxxx"),
    float("fcvta to integer", "x00111100x10010x000000xxxxxxxxxx"),
    any("scvtf ucvtf", "x00111100x10001x000000xxxxxxxxxx"),
    float("fmov general", "x0011110xx10x11x000000xxxxxxxxxx"),
    any(
        "scvtf ucvtf, fixed point",
        "x00111100x00001xxxxxxxxxxxxxxxxx",
    ),
    float("fcvtz, fixed point", "x00111100x01100xxxxxxxxxxxxxxxxx"),
    any("vector logical", "0xx01110xx1xxxxx000111xxxxxxxxxx"),
    any(
        "vector halving and saturating",
        "0xx01110xx1xxxxx00xxx1xxxxxxxxxx",
    ),
    any("vector compare", "0xx01110xx1xxxxx0011x1xxxxxxxxxx"),
    any(
        "vector shift by register",
        "0xx01110xx1xxxxx010xx1xxxxxxxxxx",
    ),
    any("vector max min abd aba", "0xx01110xx1xxxxx011xx1xxxxxxxxxx"),
    any(
        "vector add cmtst mla mul",
        "0xx01110xx1xxxxx100xx1xxxxxxxxxx",
    ),
    any("vector pairs, sqdmulh", "0xx01110xx1xxxxx101xx1xxxxxxxxxx"),
    any("scalar same, integers", "01x11110xx1xxxxx0xxxx1xxxxxxxxxx"),
    any(
        "scalar add cmtst sqdmulh",
        "01x11110xx1xxxxx10xxx1xxxxxxxxxx",
    ),
    float(
        "vector fadd fsub faddp fabd",
        "0xx01110xx1xxxxx110101xxxxxxxxxx",
    ),
    float("vector fmul fdiv", "0x1011100x1xxxxx11x111xxxxxxxxxx"),
    float("vector fmla fmls", "0x001110xx1xxxxx110011xxxxxxxxxx"),
    float("vector fcm fac", "0xx01110xx1xxxxx1110x1xxxxxxxxxx"),
    float("vector fmax fmin", "0xx01110xx1xxxxx111101xxxxxxxxxx"),
    float("vector fmaxnm fminnm", "0xx01110xx1xxxxx110001xxxxxxxxxx"),
    float("scalar fabd fcm fac", "01x11110xx1xxxxx11xxx1xxxxxxxxxx"),
    any("vector different sizes", "0xx01110xx1xxxxxxxxx00xxxxxxxxxx"),
    any(
        "vector rev cls clz cnt not rbit",
        "0xx01110xx10000000xx10xxxxxxxxxx",
    ),
    any("vector addlp suqadd", "0xx01110xx10000000xx10xxxxxxxxxx"),
    any(
        "vector clz cnt adalp sqabs",
        "0xx01110xx10000001xx10xxxxxxxxxx",
    ),
    any(
        "vector compare zero, abs, neg",
        "0xx01110xx10000010xx10xxxxxxxxxx",
    ),
    any("vector xtn", "0xx01110xx10000100xx10xxxxxxxxxx"),
    any("vector sqxtn", "0xx01110xx100001010010xxxxxxxxxx"),
    any("scalar misc", "01x11110xx10000xxxxx10xxxxxxxxxx"),
    float("vector fcm zero", "0xx011101x100000110x10xxxxxxxxxx"),
    float(
        "vector fcmlt zero, fabs, fneg",
        "0xx011101x100000111x10xxxxxxxxxx",
    ),
    float("vector fcvtn fcvtl", "0x0011100x100001011x10xxxxxxxxxx"),
    float("vector frint", "0xx01110xx100001100x10xxxxxxxxxx"),
    float("vector fcvt to integer", "0xx01110xx100001101x10xxxxxxxxxx"),
    float("vector fcvta", "0xx011100x100001110010xxxxxxxxxx"),
    any("vector scvtf ucvtf", "0xx011100x100001110110xxxxxxxxxx"),
    float("vector fsqrt", "0x1011101x100001111110xxxxxxxxxx"),
    float("scalar fcvt and fcm", "01x11110xx100001xxxx10xxxxxxxxxx"),
    any("across lanes", "0xx01110xx11000xxxxx10xxxxxxxxxx"),
    float("across lanes, floats", "01101110x011000011xx10xxxxxxxxxx"),
    any("scalar addp", "0101111011110001101110xxxxxxxxxx"),
    float("scalar pairs", "01111110xx110000xxxx10xxxxxxxxxx"),
    any("dup ins umov smov", "0xx01110000xxxxx0xxxx1xxxxxxxxxx"),
    any("scalar dup", "01011110000xxxxx000001xxxxxxxxxx"),
    any("vector immediates", "0xx0111100000xxxxxxx01xxxxxxxxxx"),
    any("permute", "0x001110xx0xxxxx0xxx10xxxxxxxxxx"),
    any("ext", "0x101110000xxxxx0xxxx0xxxxxxxxxx"),
    form("tbl tbx", "0x001110000xxxxx0xxx00xxxxxxxxxx", Kind::Indices),
    any("vector shift right", "0xx011110xxxxxxx00xx01xxxxxxxxxx"),
    any(
        "vector shift left, insert",
        "0xx011110xxxxxxx01x001xxxxxxxxxx",
    ),
    any(
        "vector saturating shift left",
        "0xx011110xxxxxxx011x01xxxxxxxxxx",
    ),
    any(
        "vector shift, narrow and long",
        "0xx011110xxxxxxx10xxx1xxxxxxxxxx",
    ),
    any("scalar shift", "01x111110xxxxxxxxxxxx1xxxxxxxxxx"),
    any(
        "vector scvtf, fixed point",
        "0xx011110xxxxxxx111001xxxxxxxxxx",
    ),
    float(
        "vector fcvtz, fixed point",
        "0xx011110xxxxxxx111111xxxxxxxxxx",
    ),
    any("vector by element", "0xx01111xxxxxxxxxxxxx0xxxxxxxxxx"),
    float(
        "vector fmul fmla by element",
        "0x0011111xxxxxxxxx01x0xxxxxxxxxx",
    ),
    float(
        "scalar fmul fmla by element",
        "010111111xxxxxxxxx01x0xxxxxxxxxx",
    ),
    any(
        "scalar sqdmulh by element",
        "01011111xxxxxxxx110xx0xxxxxxxxxx",
    ),
];
