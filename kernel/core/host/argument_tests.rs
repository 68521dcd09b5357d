//! Arguments that no path takes, with everything cached that a fast path needs: each check of a fast path by
//! itself. The random traces of [`super::differential`] draw such arguments, too.

// Outcomes of in-kernel tests carry their text.
#![allow(clippy::result_large_err)]

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, ComponentOp, MAP_EXECUTE, MAP_NONE, MAP_WRITE, ObjectKind, RETURN, Rights,
    SpaceOp, TableAt,
};
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, Isa};
use dyad_pgtbl::Perms;
use dyad_shm::frame::WeakRef;

use super::ktests::{joined, passes};
use super::system::PAIR;
use super::thread_tests::ready;
use super::{Left, Machine, MockX86, World};
use crate::ktest::rig::{self, Rig};
use crate::ktest::{Outcome, run_here, spaces};
use crate::syscall::entry::{page_fault, user_fault};
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_machine::{Platform, capcache};
use dyad_space::mapping::page;

const VA: u64 = 0x4000_0000;
/// Where the fault handler begins.
const HANDLER: u64 = 0x4200_3000;
/// Where a program faults.
const ENTRY: u64 = 0x4100_0040;
const MAP: u32 = SpaceOp::Map as u32;
const UNMAP: u32 = SpaceOp::Unmap as u32;
const PROTECT: u32 = SpaceOp::Protect as u32;

/// A rig on the first node of a pair, with paths that are fast and such as are not.
fn both_paths(test: impl Fn(&Rig<'_>, Machine) -> Outcome) {
    for slow in [false, true] {
        let w = World::new(&PAIR, 2048);
        let m = joined::<MockX86>(&w, 0);
        passes::<MockX86>(run_here::<MockX86>(m.node(), |cx| {
            rig::with(cx, |rig| {
                ready::<MockX86>(rig)?;
                m.local().cache.set_slow(slow);
                test(rig, m)
            })
        }));
    }
}

/// Addresses that lead to the entry of a page, as far as tables tell, and are not addresses of programs.
fn aliases(va: u64) -> impl Iterator<Item = u64> {
    (47..64).map(move |bit| va | 1 << bit)
}

/// Pages of both tables, next to each of which there is a free place.
struct Pages {
    space: CapIndex,
    frame: CapIndex,
    object: WeakRef,
}

impl Pages {
    fn new(rig: &Rig<'_>) -> dyad_abi::Result<Pages> {
        let object = rig.user()?;
        let pages = Pages {
            space: rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?,
            frame: rig.put(CapType::Frame, Rights::ALL, Some(object), [0, 1, 0])?,
            object,
        };
        for isa in Isa::ALL {
            for va in [VA, USER_MIN] {
                let leaf = page(object.frame.address(), Perms::READ);
                spaces::map(rig, rig.space, isa, va + PAGE_SIZE, leaf)?;
                // The CPU remembers block and capability.
                pages.op(rig, MAP, isa, va + 2 * PAGE_SIZE, 0)?;
            }
        }
        Ok(pages)
    }

    /// Carries an operation out on a page, which is then what it was.
    fn op(&self, rig: &Rig<'_>, op: u32, isa: Isa, va: u64, how: u64) -> dyad_abi::Result<u64> {
        let at = TableAt { isa, level: 1 }.bits();
        match op {
            MAP => rig.sys(self.space, MAP, &[at, va, self.frame.get().into(), 0, how]),
            UNMAP => rig.sys(self.space, UNMAP, &[at, va]),
            _ => rig.sys(self.space, PROTECT, &[at, va, how]),
        }
    }

    /// The operation is refused, whatever the CPU has cached, and nothing has changed.
    fn refuses(
        &self,
        rig: &Rig<'_>,
        op: u32,
        va: u64,
        how: u64,
        why: Error,
    ) -> Result<(), crate::ktest::Stop> {
        for isa in Isa::ALL {
            let entry = |va| spaces::look(&rig.k, rig.space, isa, va).map(|(_, leaf)| leaf);
            // The CPU remembers space and table.
            for near in [VA, USER_MIN] {
                self.op(rig, PROTECT, isa, near + PAGE_SIZE, 0)?;
            }
            let before = [VA, VA + PAGE_SIZE, 0, USER_MIN].map(entry);
            let refs = rig.k.frames().read(self.object.frame)?.0.refs;
            let is = self.op(rig, op, isa, va, how);
            assert_eq!(is, Err(why), "operation {op} at {va:#x}, {how}, {isa:?}");
            assert_eq!([VA, VA + PAGE_SIZE, 0, USER_MIN].map(entry), before);
            assert_eq!(rig.k.frames().read(self.object.frame)?.0.refs, refs);
        }
        Ok(())
    }
}

#[test]
fn map_takes_aligned_addresses_of_programs_only() {
    both_paths(|rig, _| {
        let pages = Pages::new(rig)?;
        for within in [1, 8, 0x800, PAGE_SIZE - 1] {
            pages.refuses(rig, MAP, VA + within, 0, Error::BadArgument)?;
        }
        for va in aliases(VA).chain([0, USER_MIN - PAGE_SIZE, USER_END, !0xfff]) {
            pages.refuses(rig, MAP, va, 0, Error::BadAddress)?;
        }
        Ok(None)
    });
}

#[test]
fn unmap_and_protect_take_addresses_of_programs_only() {
    both_paths(|rig, _| {
        let pages = Pages::new(rig)?;
        for op in [UNMAP, PROTECT] {
            for va in aliases(VA + PAGE_SIZE) {
                pages.refuses(rig, op, va, 0, Error::BadAddress)?;
            }
            for va in [0, USER_MIN - PAGE_SIZE, USER_END, !0xfff] {
                pages.refuses(rig, op, va, 0, Error::BadAddress)?;
            }
        }
        Ok(None)
    });
}

#[test]
fn map_and_protect_take_known_ways_to_map_only() {
    both_paths(|rig, _| {
        let pages = Pages::new(rig)?;
        // No access is for pages that are there.
        pages.refuses(rig, MAP, VA, MAP_NONE, Error::BadArgument)?;
        for how in [
            MAP_NONE | MAP_WRITE,
            MAP_NONE | MAP_EXECUTE,
            MAP_NONE << 1,
            MAP_WRITE | 1 << 32,
            1 << 63,
            u64::MAX,
        ] {
            pages.refuses(rig, MAP, VA, how, Error::BadArgument)?;
            pages.refuses(rig, PROTECT, VA + PAGE_SIZE, how, Error::BadArgument)?;
        }
        Ok(None)
    });
}

#[test]
fn protect_makes_pages_of_either_isa_what_it_is_asked_for() {
    both_paths(|rig, _| {
        let pages = Pages::new(rig)?;
        for isa in Isa::ALL {
            pages.op(rig, MAP, isa, VA, MAP_WRITE)?;
            for how in [0, MAP_WRITE, 0] {
                pages.op(rig, PROTECT, isa, VA, how)?;
                let leaf = spaces::look(&rig.k, rig.space, isa, VA).map(|(_, leaf)| leaf);
                let writes = leaf.map(|leaf| leaf.perms.contains(Perms::WRITE));
                assert_eq!(writes, Some(how == MAP_WRITE), "{isa:?}, {how}");
            }
        }
        Ok(None)
    });
}

#[test]
fn map_takes_pages_of_the_capability_only() {
    both_paths(|rig, _| {
        let pages = Pages::new(rig)?;
        for isa in Isa::ALL {
            let at = TableAt { isa, level: 1 }.bits();
            for first in [1, 512, 1 << 32, u64::MAX] {
                let a = [at, VA, pages.frame.get().into(), first, 0];
                assert_eq!(rig.sys(pages.space, MAP, &a), Err(Error::BadArgument));
                assert!(spaces::look(&rig.k, rig.space, isa, VA).is_none());
            }
        }
        Ok(None)
    });
}

/// A component may go on where it is although its home has become another one. So a CPU can have cached a
/// component that it may not enter anew, and a fault does not lead there.
#[test]
fn no_fault_enters_a_handler_that_is_at_home_elsewhere() {
    both_paths(|rig, m| {
        let k = &rig.k;
        let (handler, _, _) = rig.other_component()?;
        let sinv = rig.sinv(handler, HANDLER, 7)?;
        let faulty = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
        let of_handler = rig.cap(ObjectKind::Component, handler, Rights::ALL)?;
        rig.sys(
            faulty,
            ComponentOp::SetFaultHandler as u32,
            &[sinv.get().into()],
        )?;
        let t = rig.as_thread(rig.thread)?;
        let fault = |address| {
            MockX86::set_user_pc_sp(t.regs(Isa::X86_64), ENTRY, 0);
            let fault = UserFault {
                kind: FaultKind::Illegal,
                address,
                raw: 0,
            };
            m.kernel(|| user_fault::<MockX86>(t.regs(Isa::X86_64), fault))
        };
        // Faults go there, and everything is cached.
        for _ in 0..2 {
            assert_eq!(fault(1), Left::User(HANDLER));
            assert_eq!(k.local.component.get(), handler.bits());
            assert_eq!(m.call::<MockX86>(t, RETURN, &[0]), Left::User(ENTRY));
        }
        rig.sys(of_handler, ComponentOp::SetHome as u32, &[2])?;
        // It was there already, and goes on: what is cached is cached anew.
        capcache::enter::<MockX86>(k, handler.bits())?;
        capcache::enter::<MockX86>(k, rig.component.bits())?;
        assert_eq!(
            capcache::enter_component::<MockX86>(k.local, rig.component.bits()),
            k.local.cache.fast()
        );
        let depth = t.depth.load(Ordering::Relaxed);
        assert_ne!(fault(2), Left::User(HANDLER), "it has been entered");
        assert_eq!(t.depth.load(Ordering::Relaxed), depth);
        assert_eq!(t.fault.load(Ordering::Relaxed), 0);
        Ok(None)
    });
}

/// A page that the tables allow and the machine refuses would fault for ever: another component runs on this CPU by then, or
/// the machine takes a cache operation for a write.
#[test]
fn a_fault_that_repeats_without_progress_goes_to_the_handler() {
    both_paths(|rig, m| {
        let user = rig.user()?.frame.address();
        let leaf = page(user, Perms::READ);
        spaces::map(rig, rig.space, Isa::X86_64, VA, leaf)?;
        let (handler, _, _) = rig.other_component()?;
        let sinv = rig.sinv(handler, HANDLER, 7)?;
        let faulty = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
        let set = ComponentOp::SetFaultHandler as u32;
        rig.sys(faulty, set, &[sinv.get().into()])?;
        let area = rig.as_thread(rig.thread)?.regs(Isa::X86_64);
        let fault = |pc| {
            MockX86::set_user_pc_sp(area, pc, 0);
            let fault = UserFault {
                kind: FaultKind::Read,
                address: VA,
                raw: 0,
            };
            m.kernel(|| page_fault::<MockX86>(area, fault))
        };
        // Another instruction in between is progress.
        for round in 0..2_000 {
            let pc = ENTRY + 4 * (round % 2);
            assert_eq!(fault(pc), Left::User(pc), "fault {round}");
        }
        let repeats = (0..2_000).take_while(|_| fault(ENTRY) == Left::User(ENTRY));
        let repeats = repeats.count();
        assert!((100..2_000).contains(&repeats), "{repeats} times");
        assert_eq!(rig.k.local.component.get(), handler.bits());
        let now = spaces::look(&rig.k, rig.space, Isa::X86_64, VA);
        let perms = now.map(|(_, leaf)| leaf.perms);
        assert_eq!(perms, Some(leaf.perms), "it may still only be read");
        assert_eq!(
            m.call::<MockX86>(rig.as_thread(rig.thread)?, RETURN, &[0]),
            Left::User(ENTRY)
        );
        Ok(None)
    });
}

/// The address of an invocation endpoint is the program's choice, and the return instruction of x86-64 faults in the kernel at
/// one that is none of user mode. The fast path does not look any more.
#[test]
fn no_fast_path_enters_at_an_address_that_is_none_of_user_mode() {
    both_paths(|rig, m| {
        let (callee, _, _) = rig.other_component()?;
        let t = rig.as_thread(rig.thread)?;
        for address in [USER_END, 1 << 63, u64::MAX] {
            let sinv = rig.sinv(callee, address, 0)?;
            for time in 0..3 {
                MockX86::set_user_pc_sp(t.regs(Isa::X86_64), ENTRY, 0);
                let left = m.call::<MockX86>(t, sinv.get().into(), &[]);
                assert_eq!(left, Left::User(0), "{address:#x}, {time}");
                let left = m.call::<MockX86>(t, RETURN, &[]);
                assert_eq!(left, Left::User(ENTRY + 4), "{address:#x}, {time}");
            }
        }
        Ok(None)
    });
}
