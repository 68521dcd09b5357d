//! Frames that CPUs of a dead node had taken from the supply of one of several spaces.

use std::string::String;
use std::vec::Vec;

use dyad_shm::frame::WeakRef;

use super::{Trio, VA};
use dyad_core::host::{MockA64, crash};
use dyad_machine::platform::FaultKind;
use dyad_space::resolve::resolve;

/// Makes two spaces, one by `supplied`, and one without a supply. `first`: walks reach the one with the supply first.
/// Returns the one with the supply.
fn beside_another(s: &Trio, first: bool, supplied: impl Fn() -> WeakRef) -> WeakRef {
    // Frames are taken from the end of the pool, and walks begin at its start.
    let [object, other] = match first {
        false => [supplied(), s.space()],
        true => {
            let other = s.space();
            [supplied(), other]
        }
    };
    assert_eq!(object.frame.address() < other.frame.address(), first);
    object
}

/// Node 1 dies before each change of a fault in turn. The frame that the fault has taken is given back, although only one of
/// two spaces has it in its supply.
#[test]
fn a_frame_that_only_one_of_two_spaces_supplies_is_given_back() {
    for first in [false, true] {
        let mut taken = 0;
        for changes in 0.. {
            let s = Trio::new();
            let object = beside_another(&s, first, || s.supplied_space());
            let c = s.cx(1);
            let whole = crash::after(changes, || {
                resolve::<MockA64>(&c, object, VA, FaultKind::Write).unwrap();
            });
            s.dies(1);
            taken += s.leaked();
            s.recover(0);
            assert_eq!(s.leaked(), 0, "first {first}, dead after {changes} changes");
            assert_eq!(s.faults(), Vec::<String>::new());
            if whole.is_some() {
                break;
            }
        }
        assert!(taken > 0, "no frame was taken and not used");
    }
}
