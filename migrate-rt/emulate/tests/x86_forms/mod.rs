//! Forms of x86-64 instructions.

mod integer;

use crate::support::x86::Form;
use integer::INTEGER;

pub const FORMS: &[Form] = INTEGER;
