//! Forms of AArch64 instructions.

mod integer;
mod memory;
mod simd;

use crate::support::a64::{Form, Kind};

const fn form(name: &'static str, bits: &'static str, kind: Kind) -> Form {
    Form { name, bits, kind }
}

/// All forms.
pub fn forms() -> impl Iterator<Item = &'static Form> {
    integer::FORMS
        .iter()
        .chain(memory::FORMS)
        .chain(simd::FORMS)
}
