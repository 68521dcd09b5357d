//! Windows of the patterns of access: numbers of windows are part of instructions.

use dyad_abi::marker::{Marker, MarkerOp};
use dyad_abi::patterns::{WINDOWS, window};

use dyad_machine::Platform;

const fn word(op: MarkerOp, number: usize) -> u32 {
    let id = window(number);
    Marker { op, id }.word()
}

/// Does something in the window of this number.
pub(super) fn counted<P: Platform>(number: usize, act: &mut dyn FnMut()) {
    macro_rules! choose {
        ($($n:literal)*) => {
            match number {
                $($n => {
                    P::mark::<{ word(MarkerOp::Begin, $n) }>();
                    act();
                    P::mark::<{ word(MarkerOp::End, $n) }>();
                })*
                _ => act(),
            }
            const { assert!([$($n),*].len() == WINDOWS) }
        };
    }
    choose!(
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35
        36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68
        69 70 71 72 73 74
    );
}

/// What was counted in that window was for warming up.
pub(super) fn forget<P: Platform>(number: usize) {
    macro_rules! choose {
        ($($n:literal)*) => {
            match number {
                $($n => P::mark::<{ word(MarkerOp::Forget, $n) }>(),)*
                _ => {}
            }
        };
    }
    choose!(
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35
        36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68
        69 70 71 72 73 74
    );
}
