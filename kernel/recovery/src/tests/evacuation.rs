//! A page that a node was moving when it died: whichever node goes on, all ISAs have it at one place, and what was
//! written to it last is there.

use std::string::String;
use std::vec::Vec;

use dyad_abi::user::TRANSLATE_PA;
use dyad_abi::{Error, Isa};
use dyad_core::host::system::frame;
use dyad_core::host::{MockA64, MockX86, crash};
use dyad_core::syscall::ops::space::translate;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::FaultKind;
use dyad_object::space::Supply;
use dyad_pgtbl::{Level, Pte};
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_space::copy::{copy_in, copy_out};
use dyad_space::mapping::refusal;
use dyad_space::resolve::resolve;

use super::{Trio, VA, node, this};

/// What survivors do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Empty the frame that it was to leave.
    MoveOn,
    /// Make all parked pages of all pools usable: the books of the mover are lost.
    MakeUsable,
}

/// What each ISA's table has.
fn entries(c: &KernelCtx, space: WeakRef) -> [Pte; 2] {
    let t = this(c, space);
    Isa::ALL.map(|isa| {
        let d = t.driver(isa).unwrap();
        d.meaning(&d.find(VA, Level::L1).map_err(refusal).unwrap())
    })
}

/// The frame that it is to leave: where it is parked, or where it is.
fn leaves(entries: &[Pte; 2]) -> Supply {
    let parked = entries.iter().find_map(|e| match e {
        Pte::Parked { pa, .. } => Some(*pa),
        _ => None,
    });
    let usable = entries.iter().find_map(|e| match e {
        Pte::Leaf(leaf) => Some(leaf.pa),
        _ => None,
    });
    let first = FrameRef::of(parked.or(usable).unwrap()).unwrap();
    Supply { first, frames: 1 }
}

fn go_on(s: &Trio, space: WeakRef, then: Then) {
    let c = s.cx(0);
    let t = this(&c, space);
    match then {
        Then::MoveOn => {
            let range = leaves(&entries(&c, space));
            t.park(VA, &range).unwrap();
            assert!(t.move_parked::<MockX86>(VA, &range, node(2)).unwrap().done);
        }
        Then::MakeUsable => {
            for pool in 0..s.machines.len() {
                let whole = Supply {
                    first: frame(pool, 0),
                    frames: s.frames,
                };
                t.unpark(VA, &whole).unwrap();
            }
        }
    }
}

#[test]
fn a_page_that_a_dead_node_was_moving_has_one_place() {
    for then in [Then::MoveOn, Then::MakeUsable] {
        let s = Trio::new();
        let space = s.supplied_space();
        let c = s.cx(1);
        resolve::<MockA64>(&c, space, VA, FaultKind::Write).unwrap();
        copy_out::<MockA64>(&c, space, VA, &[1; 8]).unwrap();
        let saved = s.save();
        // How often one table had it at its new frame, and another one was parked.
        let mut halves = 0;
        for changes in 0.. {
            s.restore(&saved);
            let c = s.cx(1);
            let whole = crash::after(changes, || {
                let t = this(&c, space);
                let range = leaves(&entries(&c, space));
                t.park(VA, &range).unwrap();
                t.move_parked::<MockA64>(VA, &range, node(1)).unwrap();
            });
            s.dies(1);
            s.recover(0);
            let c = s.cx(0);
            let half = match entries(&c, space) {
                [Pte::Leaf(leaf), Pte::Parked { pa, .. }]
                | [Pte::Parked { pa, .. }, Pte::Leaf(leaf)] => leaf.pa != pa,
                _ => false,
            };
            halves += u32::from(half);
            // Where it is usable it is used.
            let last = match copy_out::<MockX86>(&c, space, VA, &[2; 8]) {
                Ok(()) => [2; 8],
                Err(Error::Again) => [1; 8],
                Err(e) => panic!("{e}"),
            };
            go_on(&s, space, then);
            let told = std::format!("{then:?}, dead after {changes} changes");
            let c = s.cx(0);
            let t = this(&c, space);
            let [x, a] = Isa::ALL.map(|isa| translate(&t, isa, VA).map(|v| v & TRANSLATE_PA));
            assert!(x.is_ok() && x == a, "{told}: {x:x?} and {a:x?}");
            let mut bytes = [0; 8];
            copy_in::<MockX86>(&c, space, VA, &mut bytes).unwrap();
            assert_eq!(bytes, last, "{told}");
            assert_eq!(s.faults(), Vec::<String>::new(), "{told}");
            assert_eq!(s.leaked(), 0, "{told}: frames that nothing refers to");
            if whole.is_some() {
                break;
            }
        }
        assert!(halves > 0, "no node has died between the tables");
    }
}
