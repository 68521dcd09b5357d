//! Forms of x86-64 instructions.

mod integer;
mod sse;

use crate::support::x86::Form;
use integer::INTEGER;
use sse::SSE;

/// All forms.
pub fn forms() -> impl Iterator<Item = &'static Form> {
    INTEGER.iter().chain(SSE)
}
