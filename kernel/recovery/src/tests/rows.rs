//! Every row, stopped at every step, recovered by one node or by two, one after the other.

use std::format;
use std::string::String;
use std::vec::Vec;

use dyad_abi::cap::{CapType, Rights, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_captbl::{Contents, Filling, SlotPlace};
use dyad_pgtbl::{Level, Perms, Pte};
use dyad_retype::{FrameType, KernelKind, Use, plain};
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;
use dyad_shm::superblock::NodeState;

use super::{Trio, VA, this};
use crate::Pace;
use dyad_core::host::system::{System, memory_cap};
use dyad_core::host::{MockA64, MockX86, crash};
use dyad_core::syscall::ops::reclaim::reclaim;
use dyad_core::syscall::ops::space::{link, map, unlink, unmap};
use dyad_core::syscall::ops::{component, memory};
use dyad_machine::capcache::frames::{OneFrame, Range};
use dyad_machine::capcache::{CachedCap, leaf};
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_machine::platform::FaultKind;
use dyad_object::component::Component;
use dyad_object::find;
use dyad_object::kinds::{CAPTBL_LEAF, CAPTBL_ROOT};
use dyad_object::space::Supply;
use dyad_space::mapping::{FastRows, SpaceCtx, page, refusal};
use dyad_space::resolve::resolve;
use dyad_tier::size;

/// What the rows of a test are about.
struct Things {
    space: WeakRef,
    tables: Vec<WeakRef>,
    spare: Operand,
    page: Operand,
    second: Operand,
    other: WeakRef,
    untyped: FrameRef,
    single: FrameRef,
    root: WeakRef,
    leaf: WeakRef,
    hung: WeakRef,
    component: WeakRef,
}

const MAPPED: u64 = VA;
const FREE: u64 = VA + PAGE_SIZE;
/// Covered by a level-2 table without entries.
const EMPTY: u64 = VA + (1 << 30);
const LARGE: u64 = VA + (2 << 20);
/// First slot of the leaf that hangs in the root.
const HUNG: u64 = 3 * 64;

fn at(isa: Isa, level: u8) -> TableAt {
    TableAt { isa, level }
}

impl Things {
    /// Everything is made by node 0. `isa` is that of the tables the rows are about.
    fn new(s: &Trio, isa: Isa) -> Things {
        let space = s.supplied_space();
        let tables = s.tables(space, isa, VA, Level::L1);
        let empty = s.table(at(isa, 2));
        let (page, second) = (s.user(0), s.user(0));
        let c = s.cx(0);
        let t = this(&c, space);
        let third = VA & !((1 << 39) - 1);
        assert!(EMPTY - third < 1 << 39);
        link(&t, at(isa, 2), EMPTY, &empty).unwrap();
        map::<MockX86>(&t, at(isa, 1), MAPPED, &page, 0, Perms::READ).unwrap();
        let (root, leaf) = (s.object(CAPTBL_ROOT), s.object(CAPTBL_LEAF));
        let hung = s.object(CAPTBL_LEAF);
        c.captbls().cons(root, 3, hung, &c, &c).unwrap();
        let component = s.object(Component::KIND);
        let object: &'static Component = find(c.node, component, Component::KIND).unwrap();
        component::set_parts(&c, object, root, space).unwrap();
        let slot = SlotPlace::new(hung, 1).unwrap();
        let contents = capability(component);
        c.captbls().slot_activate(slot, &contents, &c).unwrap();
        let things = Things {
            space,
            tables,
            spare: s.table(at(isa, 1)),
            page,
            second,
            other: s.take(0, Use::User, 0),
            untyped: s.untyped(0, 3),
            single: s.untyped(0, 0),
            root,
            leaf,
            hung,
            component,
        };
        s.rounds();
        assert_eq!(s.faults(), Vec::<String>::new(), "to begin with");
        things
    }
}

fn capability(object: WeakRef) -> Contents {
    Contents {
        ty: CapType::Component,
        rights: Rights::ALL,
        object: Some(object),
        guard: None,
        payload: [0; 3],
    }
}

/// A frame, for the fast paths.
fn one(c: &KernelCtx, frame: FrameRef) -> Result<OneFrame, Error> {
    let cap = memory_cap(frame, 1);
    let range = Range::of(c, &cap).ok_or(Error::NotReady)?;
    range
        .frame(c.local, cap.payload[0], 0)
        .ok_or(Error::BadArgument)
}

type Act = fn(&KernelCtx, &Things, Isa) -> Result<u64, Error>;

/// All that a CPU may be in the middle of.
const ACTS: &[(&str, Act)] = &[
    ("user to untyped", |c, t, _| {
        memory::to_untyped(c, t.other.frame)
    }),
    ("untyped to user", |c, t, _| {
        let order = dyad_retype::Order::new(1).unwrap();
        let claim = memory::claim::<MockA64>(c, t.untyped, order)?;
        c.frames()
            .from_untyped_finish(claim, Use::User, &c.intents())?;
        Ok(0)
    }),
    ("untyped to kernel", |c, t, _| {
        let kind = dyad_abi::cap::ObjectKind::Thread;
        memory::retype_kernel::<MockA64>(c, t.untyped, kind).map(|_| 0)
    }),
    ("split and merge", |c, t, _| {
        c.frames().split(t.untyped, &c.intents())?;
        c.frames().merge(t.untyped, &c.intents())?;
        Ok(0)
    }),
    ("activate", |c, t, _| {
        let slot = SlotPlace::new(t.leaf, 5).unwrap();
        let contents = capability(t.component);
        c.captbls().slot_activate(slot, &contents, c)?;
        Ok(0)
    }),
    ("deactivate", |c, t, _| {
        let slot = SlotPlace::new(t.hung, 1).unwrap();
        Ok(c.captbls().slot_deactivate(slot, None, c)?.get())
    }),
    ("cons", |c, t, _| {
        c.captbls().cons(t.root, 9, t.leaf, c, c)?;
        Ok(0)
    }),
    ("decons", |c, t, _| {
        c.captbls().decons(t.root, 3, c, c)?;
        Ok(0)
    }),
    ("map", |c, t, isa| {
        let s = this(c, t.space);
        let d = s.driver(isa)?;
        let place = d.find(FREE, Level::L1).map_err(refusal)?;
        let head = t.page.object.unwrap();
        let leaf = page(head.frame.address(), Perms::READ);
        s.map(&d, &place, head, leaf)?;
        Ok(0)
    }),
    ("unmap", |c, t, isa| {
        let s = this(c, t.space);
        let d = s.driver(isa)?;
        let place = d.find(MAPPED, Level::L1).map_err(refusal)?;
        match d.meaning(&place) {
            Pte::Leaf(leaf) => Ok(s.unmap(&d, &place, &leaf)?.get()),
            _ => Err(Error::BadAddress),
        }
    }),
    ("link", |c, t, isa| {
        link(&this(c, t.space), at(isa, 1), LARGE, &t.spare)
    }),
    ("unlink", |c, t, isa| {
        unlink(&this(c, t.space), at(isa, 2), EMPTY)
    }),
    ("map quickly", |c, t, isa| {
        let cached = CachedCap::of_block(c, &t.second).ok_or(Error::Corrupt)?;
        let (block, page) = cached.page(t.second.object.unwrap().frame.address(), 0);
        let perms = Perms::READ | Perms::USER;
        let fast = this(c, t.space).fast();
        let done = fast.map(isa, FREE, &block, page, perms);
        done.map(|()| 0).ok_or(Error::NotReady)
    }),
    ("unmap quickly", |c, t, isa| {
        let done = this(c, t.space).fast().unmap(isa, MAPPED);
        Ok(done.ok_or(Error::NotReady)??.get())
    }),
    ("activate quickly", |c, t, _| {
        let slot = leaf::slot(c.local, t.root.bits(), true, HUNG + 5).ok_or(Error::NotFound)?;
        let to = Filling::of(&Contents {
            ty: CapType::Component,
            rights: Rights::ALL,
            object: Some(t.component),
            guard: None,
            payload: [0; 3],
        });
        let done = slot.activate(&to, |s| c.node.tables.quiesced(s));
        done.map(|()| 0).ok_or(Error::NotReady)
    }),
    ("deactivate quickly", |c, t, _| {
        let slot = leaf::slot(c.local, t.root.bits(), true, HUNG + 1).ok_or(Error::NotFound)?;
        Ok(slot.deactivate().ok_or(Error::NotReady)?.get())
    }),
    ("user to untyped quickly", |c, t, _| {
        Ok(one(c, t.other.frame)?
            .untype(0)
            .ok_or(Error::NotReady)?
            .get())
    }),
    ("untyped to kernel quickly", |c, t, _| {
        let used = plain::used(Use::Kernel(KernelKind::TIME));
        let done = one(c, t.single)?.retype(used, |s| c.node.tables.quiesced(s), || true);
        done.map(|()| 0).ok_or(Error::NotReady)
    }),
    ("fault", |c, t, _| {
        resolve::<MockA64>(c, t.space, FREE, FaultKind::Write).map(|_| 0)
    }),
    ("fault and reclaim", |c, t, _| {
        resolve::<MockA64>(c, t.space, FREE, FaultKind::Write)?;
        reclaim(&this(c, t.space), FREE, 1)
    }),
    ("park and unpark", |c, t, _| {
        let (s, range) = filled(c, t)?;
        s.park(FREE, &range)?;
        s.unpark(FREE, &range).map(|_| 0)
    }),
    ("move", |c, t, _| {
        let (s, range) = filled(c, t)?;
        s.park(FREE, &range)?;
        s.move_parked::<MockA64>(FREE, &range, c.node.id())
            .map(|_| 0)
    }),
    ("move, and then unmap", |c, t, _| {
        let (s, range) = filled(c, t)?;
        s.park(FREE, &range)?;
        s.move_parked::<MockA64>(FREE, &range, c.node.id())?;
        reclaim(&s, FREE, 1)
    }),
    ("link and unlink a root", |c, t, isa| {
        let s = this(c, t.space);
        let other = match isa {
            Isa::X86_64 => Isa::Aarch64,
            Isa::Aarch64 => Isa::X86_64,
        };
        let bits = s.space.roots[other.index()].load(core::sync::atomic::Ordering::Relaxed);
        s.unlink_root(other)?;
        s.link_root(other, WeakRef::from_bits(bits).unwrap())
            .or_else(|e| match e {
                Error::Again => Ok(()),
                e => Err(e),
            })?;
        Ok(0)
    }),
    ("configure", |c, t, _| {
        let object: &'static Component = find(c.node, t.component, Component::KIND)?;
        component::set_parts(c, object, t.root, t.space)?;
        Ok(0)
    }),
    ("give up a component", |c, t, _| {
        memory::to_untyped(c, t.component.frame)
    }),
];

/// A page that a fault has put at [`FREE`], and the frame that it is to be moved from. It may be parked, or
/// have been moved in one of the tables.
fn filled<'c>(c: &'c KernelCtx, t: &Things) -> Result<(SpaceCtx<'c>, Supply), Error> {
    let s = this(c, t.space);
    match resolve::<MockA64>(c, t.space, FREE, FaultKind::Write) {
        Ok(_) | Err(Error::Again) => {}
        Err(e) => return Err(e),
    }
    let (mut parked, mut usable) = (None, None);
    for isa in Isa::ALL {
        let d = s.driver(isa)?;
        match d.meaning(&d.find(FREE, Level::L1).map_err(refusal)?) {
            Pte::Parked { pa, .. } => parked = Some(pa),
            Pte::Leaf(leaf) => usable = Some(leaf.pa),
            _ => {}
        }
    }
    let pa = parked.or(usable).ok_or(Error::NotFound)?;
    let first = FrameRef::of(pa).ok_or(Error::Corrupt)?;
    Ok((s, Supply { first, frames: 1 }))
}

/// Does an act on node 1 until it dies after `changes`. Whether it died.
fn dies_in(s: &Trio, t: &Things, act: Act, isa: Isa, changes: u32) -> bool {
    let c = s.cx(1);
    let done = crash::after(changes, || act(&c, t, isa));
    if let Some(Err(e)) = done {
        panic!("the act by itself: {e}");
    }
    s.dies(1);
    done.is_none()
}

fn check(s: &Trio, what: &str) {
    assert_eq!(s.faults(), Vec::<String>::new(), "{what}");
    assert_eq!(s.leaked(), 0, "{what}: frames that nothing refers to");
    assert_eq!(s.state(1).state, NodeState::Vacant);
}

#[test]
fn every_row_is_repaired_wherever_its_cpu_dies() {
    for isa in Isa::ALL {
        let s = Trio::new();
        let t = Things::new(&s, isa);
        let saved = s.save();
        for (name, act) in ACTS {
            for changes in 0.. {
                s.restore(&saved);
                let died = dies_in(&s, &t, *act, isa, changes);
                s.recover(0);
                check(
                    &s,
                    &format!("{name} of {isa}, dead after {changes} changes"),
                );
                if !died {
                    assert!(changes > 2, "{name} changes nothing");
                    break;
                }
            }
        }
    }
}

/// What a dead node was in the middle of can be done by another one afterwards.
#[test]
fn what_was_begun_can_be_done_by_others_afterwards() {
    let s = Trio::new();
    let t = Things::new(&s, Isa::X86_64);
    let saved = s.save();
    for (name, act) in ACTS {
        for changes in 0.. {
            s.restore(&saved);
            let died = dies_in(&s, &t, *act, Isa::X86_64, changes);
            s.recover(0);
            s.rounds();
            let c = s.cx(2);
            let what = format!("{name}, dead after {changes} changes");
            match act(&c, &t, Isa::X86_64) {
                Ok(_) => {}
                // It had come so far that there is nothing left to do.
                Err(
                    Error::Exists
                    | Error::NotFound
                    | Error::NoCap
                    | Error::BadAddress
                    | Error::BadArgument
                    | Error::Revoked
                    | Error::NotReady,
                ) => {}
                Err(e) => panic!("{what}: {e}"),
            }
            check(&s, &what);
            if !died {
                break;
            }
        }
    }
}

/// A page that was shown in the middle of a row might be one that has been unmapped where it came
/// from; one that a fault has put there may hold what others have written.
#[test]
fn half_mapped_pages_are_taken_out_and_those_of_faults_stay() {
    let s = Trio::new();
    let t = Things::new(&s, Isa::X86_64);
    let saved = s.save();
    for (name, stays) in [("map", false), ("fault", true)] {
        let act = ACTS.iter().find(|(n, _)| *n == name).unwrap().1;
        let mut seen = [0; 2];
        for changes in 0.. {
            s.restore(&saved);
            let died = dies_in(&s, &t, act, Isa::X86_64, changes);
            let there = |s: &Trio| {
                let c = s.cx(0);
                let d = this(&c, t.space).driver(Isa::X86_64).unwrap();
                let place = d.find(FREE, Level::L1).unwrap();
                matches!(d.meaning(&place), Pte::Leaf(_))
            };
            let before = there(&s);
            s.recover(0);
            if !died {
                assert!(there(&s));
                break;
            }
            assert_eq!(there(&s), before && stays, "{name} after {changes}");
            seen[before as usize] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{name}: {seen:?}");
    }
}

/// The recoverer dies, too: the last node does everything again.
#[test]
fn a_recoverer_may_die_at_any_step() {
    let s = Trio::new();
    let t = Things::new(&s, Isa::Aarch64);
    let saved = s.save();
    for (name, act) in ACTS {
        for changes in [3, 6] {
            for steps in (0..).step_by(size(5, 3, 1)) {
                s.restore(&saved);
                dies_in(&s, &t, *act, Isa::Aarch64, changes);
                let ended = crash::after(steps, || while s.step(0) != Pace::Idle {}).is_some();
                s.dies(0);
                s.recover(2);
                let what = format!("{name}, dead after {changes}, recoverer after {steps}");
                assert_eq!(s.faults(), Vec::<String>::new(), "{what}");
                assert_eq!(s.leaked(), 0, "{what}");
                if ended {
                    break;
                }
            }
        }
    }
}

/// Two nodes die in the middle of rows about the same things.
#[test]
fn two_nodes_may_die_at_once() {
    let named = |wanted: &str| ACTS.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let s = Trio::new();
    let t = Things::new(&s, Isa::X86_64);
    let saved = s.save();
    for (a, b) in [
        ("map", "unmap"),
        ("unmap", "unmap"),
        ("fault", "fault"),
        ("link", "map"),
        ("unlink", "unlink"),
        ("decons", "decons"),
        ("decons", "give up a component"),
    ] {
        let each = size(3, 2, 1);
        for first in (0..18).step_by(each) {
            for second in (0..18).step_by(each) {
                s.restore(&saved);
                let c = s.cx(2);
                crash::after(first, || named(a)(&c, &t, Isa::X86_64));
                let c = s.cx(1);
                crash::after(second, || named(b)(&c, &t, Isa::X86_64));
                s.dies(1);
                s.dies(2);
                s.recover(0);
                let what = format!("{a} after {first}, {b} after {second}");
                assert_eq!(s.faults(), Vec::<String>::new(), "{what}");
                assert_eq!(s.leaked(), 0, "{what}");
            }
        }
    }
}

/// Others go on mapping and unmapping what is counted.
#[test]
fn counts_are_right_while_others_are_at_work() {
    let times = size(2, 4, 10);
    for changes in (0..times).flat_map(|_| [2, 3, 4, 5, 6]) {
        for (name, isa) in [("map", Isa::X86_64), ("unmap", Isa::X86_64)] {
            let s = Trio::new();
            let t = Things::new(&s, isa);
            let act = ACTS.iter().find(|(n, _)| *n == name).unwrap().1;
            dies_in(&s, &t, act, isa, changes);
            let (space, page) = (t.space, t.page);
            let stop = std::sync::atomic::AtomicBool::new(false);
            let done = std::sync::atomic::AtomicU64::new(0);
            let System {
                world, machines, ..
            } = s.system;
            let relaxed = core::sync::atomic::Ordering::Relaxed;
            // Machines are one thread's; memory is everybody's.
            let world = std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let world = world;
                    let m = world.machine(2);
                    let c = super::cx(m);
                    let s = this(&c, space);
                    let mut page_number = 2;
                    while !stop.load(relaxed) {
                        let va = VA + page_number % 500 * PAGE_SIZE;
                        page_number += 1;
                        match map::<MockX86>(&s, at(isa, 1), va, &page, 0, Perms::READ) {
                            Ok(_) => {
                                done.fetch_add(1, relaxed);
                                while let Err(Error::Again) = unmap(&s, isa, va) {}
                            }
                            Err(Error::Again | Error::Exists) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                    world
                });
                let c = super::cx(machines[0]);
                let life = crate::life::Life::new();
                let mut left = 10_000_000u64;
                while life.step::<MockX86>(&c) != Pace::Idle {
                    left -= 1;
                    assert_ne!(left, 0, "recovery does not end");
                }
                stop.store(true, relaxed);
                worker.join().unwrap()
            });
            let c = super::cx(machines[0]);
            let mut faults = Vec::new();
            dyad_audit::walk(&c, &mut |f| faults.push(f));
            assert_eq!(faults, Vec::new(), "{name} {changes}");
            drop(world);
        }
    }
}

/// Counting waits for an entry that a live node has closed and may open again, and for rows that
/// are about to give references back.
#[test]
fn recovery_waits_for_rows_of_live_nodes() {
    let s = Trio::new();
    let t = Things::new(&s, Isa::X86_64);
    dies_in(&s, &t, ACTS[8].1, Isa::X86_64, 4);
    let c = s.cx(2);
    let record = IntentRecord {
        row: Row::Unmap,
        frame: t.page.object.unwrap(),
        table: Some(t.tables[2]),
        place: t.tables[2].frame.address(),
    };
    c.intents().begin(&record);
    for _ in 0..1000 {
        assert_ne!(s.step(0), Pace::Idle);
    }
    assert_eq!(s.state(1).state, NodeState::Recovering);
    let frozen = s.word(t.page.object.unwrap().frame);
    assert!(matches!(frozen.ty, FrameType::Frozen(Use::User)));
    // What is frozen takes no new references, and still is what it was.
    let m = map::<MockX86>(
        &this(&s.cx(2), t.space),
        at(Isa::X86_64, 1),
        FREE,
        &t.page,
        0,
        Perms::READ,
    );
    assert_eq!(m, Err(Error::Again));
    s.cx(2).intents().clear();
    s.recover(0);
    check(&s, "after all");
}

/// The bound of a piece: none looks at more than its share, whatever there is.
#[test]
fn recovery_goes_in_pieces() {
    let s = Trio::new();
    let t = Things::new(&s, Isa::X86_64);
    dies_in(&s, &t, ACTS[8].1, Isa::X86_64, 4);
    let mut pieces = 0;
    while s.step(0) != Pace::Idle {
        pieces += 1;
    }
    assert!(pieces > 12, "{pieces} pieces");
    check(&s, "pieces");
}
