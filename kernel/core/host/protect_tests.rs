//! Permissions of pages: no more than the capability permits, and none at all.

use dyad_abi::cap::{FrameOp, MAP_EXECUTE, MAP_WRITE};
use dyad_abi::user::{PAGE_SIZE, TRANSLATE_WRITE};
use dyad_abi::{Error, Isa};
use dyad_pgtbl::{Level, Perms, Pte};

use super::MockX86;
use super::resolve_tests::fault;
use super::space_tests::{l1, map_as, perms};
use super::system::{PAIR, System, VA, cx, this};
use crate::syscall::ops::space::{protect, translate, unmap};
use dyad_machine::kernel_ctx::Operand;
use dyad_machine::platform::FaultKind::{Execute, Read, Write};

const RW: u64 = MAP_WRITE;

#[test]
fn what_a_frame_capability_does_not_permit_stays_forbidden() {
    for isa in PAIR {
        let s = System::new(120);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        let all = s.user(0);
        let read_only = Operand {
            rights: FrameOp::Map.right(),
            ..all
        };
        let c = cx(s.x());
        let t = this(&c, space);
        map_as(s.x(), space, l1(isa), VA, (&read_only, 0), 0).unwrap();
        for more in [MAP_WRITE, MAP_EXECUTE] {
            assert_eq!(
                protect::<MockX86>(&t, isa, VA, perms(more)),
                Err(Error::Denied)
            );
        }
        let va = VA + PAGE_SIZE;
        map_as(s.x(), space, l1(isa), va, (&all, 0), RW).unwrap();
        protect::<MockX86>(&t, isa, va, perms(0)).unwrap();
        assert_eq!(translate(&t, isa, va).unwrap() & TRANSLATE_WRITE, 0);
        protect::<MockX86>(&t, isa, va, perms(RW)).unwrap();
        assert_ne!(translate(&t, isa, va).unwrap() & TRANSLATE_WRITE, 0);
        assert_eq!(
            protect::<MockX86>(&t, isa, va, perms(MAP_WRITE | MAP_EXECUTE)),
            Err(Error::BadArgument)
        );
        assert_eq!(
            protect::<MockX86>(&t, isa, va + PAGE_SIZE, perms(0)),
            Err(Error::BadAddress)
        );
        assert_eq!(s.refs(all.object.unwrap()), 2);
    }
}

/// A page without any access stays where it is, and gets back at once what it may be, and no more.
#[test]
fn pages_without_access_stay_mapped() {
    for isa in PAIR {
        let s = System::new(121);
        let space = s.space();
        s.tables(space, isa, VA, Level::L1);
        let frame = s.user(0);
        let c = cx(s.x());
        let t = this(&c, space);
        let none = |va| protect::<MockX86>(&t, isa, va, Perms::empty());
        for (va, may) in [(VA, RW), (VA + PAGE_SIZE, 0)] {
            let operand = Operand {
                rights: if may == RW {
                    frame.rights
                } else {
                    FrameOp::Map.right()
                },
                ..frame
            };
            map_as(s.x(), space, l1(isa), va, (&operand, 0), may).unwrap();
            let before = translate(&t, isa, va).unwrap();
            none(va).unwrap();
            none(va).unwrap();
            // The frame is still in use, and not to be found by user code.
            assert_eq!(translate(&t, isa, va), Err(Error::BadAddress));
            let found = this(&c, space).driver(isa).unwrap().walk(va);
            assert!(
                matches!(found.pte, Pte::Leaf(leaf) if !leaf.perms.contains(Perms::USER)),
                "{found:?}"
            );
            let here = match isa {
                Isa::X86_64 => s.x(),
                Isa::Aarch64 => s.a(),
            };
            for kind in [Read, Write, Execute] {
                let found = fault(here, space, va, kind);
                assert_eq!(found, Err(Error::BadAddress), "{kind:?}");
            }
            assert_eq!(
                map_as(s.x(), space, l1(isa), va, (&frame, 0), 0),
                Err(Error::Exists)
            );
            if may == 0 {
                let more = protect::<MockX86>(&t, isa, va, perms(RW));
                assert_eq!(more, Err(Error::Denied));
                none(va).unwrap();
            }
            protect::<MockX86>(&t, isa, va, perms(may)).unwrap();
            assert_eq!(translate(&t, isa, va), Ok(before));
            none(va).unwrap();
            unmap(&t, isa, va).unwrap();
        }
        assert_eq!(none(VA), Err(Error::BadAddress));
        assert_eq!(s.refs(frame.object.unwrap()), 0);
    }
}
