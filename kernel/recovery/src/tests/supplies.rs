//! Frames that CPUs of a dead node had taken from the supply of one of several spaces.

use std::string::String;
use std::vec::Vec;

use dyad_abi::ident::MAX_CPUS;
use dyad_retype::{FrameType, Use};
use dyad_shm::frame::WeakRef;

use super::{Trio, VA, this};
use crate::{Pace, Phase, step};
use dyad_core::host::system::memory_cap;
use dyad_core::host::{MockA64, MockX86, crash};
use dyad_core::syscall::ops::space::supply;
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

/// The last rows of all CPUs are more than one piece examines. Whichever piece examines a frame, it is given back.
#[test]
fn the_frames_of_all_cpus_are_given_back_if_a_piece_ends_between_them() {
    const FRAMES: usize = 2 * MAX_CPUS;
    for first in [false, true] {
        let s = Trio::new();
        let frames: Vec<WeakRef> = (0..FRAMES).map(|_| s.take(1, Use::User, 0)).collect();
        beside_another(&s, first, || {
            let object = s.space();
            let lowest = frames[FRAMES - 1].frame;
            let memory = memory_cap(lowest, FRAMES as u64);
            supply(&this(&s.cx(0), object), 1, Some(&memory)).unwrap();
            object
        });
        s.dies(1);
        let c = s.cx(0);
        let mut recovery = None;
        let (mut noted, mut ends) = (false, 0);
        loop {
            match step::<MockX86>(&c, &mut recovery) {
                Pace::Done(_) => break,
                Pace::Later => s.rounds(),
                Pace::Soon | Pace::Idle => {}
            }
            let Some(r) = &mut recovery else { continue };
            let Phase::Threads(walk) = r.phase else {
                continue;
            };
            // As if each CPU of the node had died in a fault that was replacing one frame by another.
            if !noted {
                noted = true;
                let all = r.last.iter_mut().chain(&mut r.replaced);
                for (last, &what) in all.zip(&frames) {
                    *last = Some((what, false));
                }
            }
            ends += usize::from(matches!(walk.within, Some((.., from)) if from > 1));
        }
        assert!(ends > 0, "no piece has ended between two frames");
        for (n, what) in frames.iter().enumerate() {
            let ty = s.word(what.frame).ty;
            assert!(
                matches!(ty, FrameType::Untyped(_)),
                "first {first}, frame {n}: {ty:?}"
            );
        }
    }
}
