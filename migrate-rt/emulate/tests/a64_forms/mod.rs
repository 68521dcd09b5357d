//! Forms of AArch64 instructions.

mod integer;
mod memory;

use crate::support::a64::{Form, Kind};

const fn form(name: &'static str, bits: &'static str, kind: Kind) -> Form {
    Form { name, bits, kind }
}

pub const FORMS: &[Form] = &{
    const LISTS: [&[Form]; 2] = [integer::FORMS, memory::FORMS];
    const LEN: usize = {
        let (mut len, mut i) = (0, 0);
        while i < LISTS.len() {
            len += LISTS[i].len();
            i += 1;
        }
        len
    };
    let mut all = [LISTS[0][0]; LEN];
    let (mut at, mut i) = (0, 0);
    while i < LISTS.len() {
        let mut j = 0;
        while j < LISTS[i].len() {
            all[at] = LISTS[i][j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    all
};
