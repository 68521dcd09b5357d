//! Loads and stores.

use super::{Form, Kind, form};

const fn memory(name: &'static str, bits: &'static str) -> Form {
    form(name, bits, Kind::Memory)
}

pub const FORMS: &[Form] = &[
    memory("unsigned offset", "xx111x01xx0000000xxxxxxxxxxxxxxx"),
    memory("unscaled", "xx111x00xx0xxxxxxxxx00xxxxxxxxxx"),
    memory("post-index", "xx111x00xx0xxxxxxxxx01xxxxxxxxxx"),
    memory("pre-index", "xx111x00xx0xxxxxxxxx11xxxxxxxxxx"),
    memory("register offset", "xx111x00xx1xxxxxxxxx10xxxxxxxxxx"),
    any_base("literal", "xx011x0000001000001xxxxxxxxxxxxx"),
    memory("pair forward", "xx101x0xxx000xxxxxxxxxxxxxxxxxxx"),
    memory("pair back", "xx101x0xxx111xxxxxxxxxxxxxxxxxxx"),
    memory("ordered", "xx0010001x0111111111 11xxxxxxxxxx"),
    memory("cas", "xx0010001x1xxxxxx11111xxxxxxxxxx"),
    memory("casp", "0x0010000x1xxxx0x11111xxxxxxxxx0"),
    memory("stxr without a monitor", "xx001000000xxxxxx11111xxxxxxxxxx"),
    memory("stxp without a monitor", "1x001000001xxxxxxxxxxxxxxxxxxxxx"),
    memory("ldxr", "xx00100001011111x11111xxxxxxxxxx"),
    memory("ldxp", "1x00100001111111xxxxxxxxxxxxxxxx"),
    memory("update", "xx111000xx1xxxxx0xxx00xxxxxxxxxx"),
    memory("swap", "xx111000xx1xxxxx100000xxxxxxxxxx"),
    memory("structures", "0x0011000x000000xxxxxxxxxxxxxxxx"),
    memory("structures, post-index", "0x0011001x0xxxxxxxxxxxxxxxxxxxxx"),
    memory("one structure", "0x0011010xx00000xxxxxxxxxxxxxxxx"),
    memory(
        "one structure, post-index",
        "0x0011011xxxxxxxxxxxxxxxxxxxxxxx",
    ),
];

const fn any_base(name: &'static str, bits: &'static str) -> Form {
    form(name, bits, Kind::Any)
}
