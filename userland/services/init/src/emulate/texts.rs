//! What the ISAs of a program have in versions of their own: the interpreter of one ISA has to see them.

use dyad_abi::Isa;
use dyad_abi::emulation::WINDOWS;
use dyad_abi::user::PAGE_SIZE;
use dyad_sys::cap::{Cap, Frame};

/// Pages of text or constants of one ISA.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub isa: Isa,
    pub va: u64,
    pub frame: Cap<Frame>,
    pub pages: u64,
}

/// Most runs of a program.
const RUNS: usize = 64;

/// What the ISAs of a program do not share.
pub struct Texts {
    pub(super) runs: [Option<Run>; RUNS],
    pub(super) windows: [[[u64; 2]; WINDOWS]; dyad_abi::ident::ISA_COUNT],
    pub(super) whole: bool,
    pub(super) shown: bool,
}

impl Texts {
    /// Nothing.
    pub const fn new() -> Texts {
        Texts {
            runs: [None; RUNS],
            windows: [[[0; 2]; WINDOWS]; dyad_abi::ident::ISA_COUNT],
            whole: true,
            shown: false,
        }
    }

    /// Notes what has been loaded. What does not fit makes the program one that is not interpreted.
    pub fn note(&mut self, isa: Isa, va: u64, frame: Cap<Frame>, pages: u64) {
        let slot = self.runs.iter_mut().find(|r| r.is_none());
        let windows = &mut self.windows[isa.index()];
        let end = va + pages * PAGE_SIZE;
        let window = match windows
            .iter()
            .position(|&[start, at]| start != 0 && at == va)
        {
            Some(grows) => Some(grows),
            None => windows.iter().position(|&[start, _]| start == 0),
        };
        match (slot, window) {
            (Some(slot), Some(window)) => {
                *slot = Some(Run {
                    isa,
                    va,
                    frame,
                    pages,
                });
                let [start, at] = &mut windows[window];
                if *start == 0 {
                    *start = va;
                }
                *at = end;
            }
            _ => self.whole = false,
        }
    }
}
