//! Single cases of the remote CPU drivers: what is refused and stays intact, and races between
//! host threads.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use common::{Frames, at, hardware_use};
use dyad_abi::user::USER_END;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_pgtbl::{
    EncodeError, Epoch, FrameSource, Leaf, Level, MapError, Memory, Perms, Pte, RemoteCpu, encode,
};
use dyad_shm::PhysAddr;

const VA: u64 = 0x10_0000_3000;
const FRAME: PhysAddr = PhysAddr(0x40_0000_7000);

fn page(n: u64) -> Leaf {
    Leaf::user(FRAME.add(4096 * n), Perms::WRITE)
}

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

/// Runs a test on an empty table of each ISA.
fn on_both(test: impl Fn(&RemoteCpu<'_, HostMem>, &Frames<'_>, &HostMem)) {
    for isa in Isa::ALL {
        let mem = HostMem::new();
        let frames = Frames::new(&mem);
        let root = frames.alloc_table().unwrap();
        test(&RemoteCpu::new(&mem, isa, root), &frames, &mem);
    }
}

#[test]
fn bad_requests_change_nothing() {
    on_both(|t, frames, _| {
        let kernel = Leaf::kernel(FRAME, Perms::READ, Memory::Normal);
        let wx = Leaf::user(FRAME, Perms::WRITE | Perms::EXECUTE);
        for (va, leaf, level, error) in [
            (USER_END, page(0), Level::L1, MapError::BadAddress),
            (USER_END, kernel, Level::L1, MapError::BadAddress),
            (!0xfff, page(0), Level::L1, MapError::BadAddress),
            (VA + 8, page(0), Level::L1, MapError::Misaligned),
            (
                VA,
                Leaf::user(PhysAddr(0x40_0000_0000), Perms::READ),
                Level::L2,
                MapError::Misaligned,
            ),
            (
                0,
                page(0),
                Level::L2,
                MapError::Encode(EncodeError::Misaligned),
            ),
            (
                VA,
                wx,
                Level::L1,
                MapError::Encode(EncodeError::WriteAndExecute),
            ),
            (
                0,
                Leaf::user(PhysAddr(0), Perms::READ),
                Level::L4,
                MapError::Encode(EncodeError::NoLeafInRoot),
            ),
        ] {
            assert_eq!(t.map(va, leaf, level, frames), Err(error), "{va:#x}");
        }
        assert_eq!(frames.in_use(), [t.root()]);
        for va in [USER_END, VA] {
            let none = if va == VA {
                MapError::NotMapped
            } else {
                MapError::BadAddress
            };
            assert_eq!(t.unmap(va, node(0), |_, _| (), || at(1)), Err(none));
            assert_eq!(t.protect(va, Perms::READ), Err(none));
            assert_eq!(t.harvest(va), Err(none));
            assert_eq!(t.translate(va), None);
        }
        t.map(VA, page(0), Level::L1, frames).unwrap();
        let bad = t.protect(VA, Perms::READ | Perms::WRITE | Perms::EXECUTE);
        assert_eq!(bad, Err(MapError::Encode(EncodeError::WriteAndExecute)));
        let bad = t.protect(VA, Perms::WRITE);
        assert_eq!(bad, Err(MapError::Encode(EncodeError::NotReadable)));
        assert_eq!(
            t.translate(VA + 5),
            Some((FRAME.add(5), page(0), Level::L1))
        );
        // The same bits below an address that is not canonical lead nowhere.
        assert_eq!(t.translate(VA | 1 << 52), None);
        assert!(matches!(t.walk(VA | 1 << 52).pte, Pte::Other(_)));
    });
}

#[test]
fn both_halves_of_a_root_are_apart() {
    on_both(|t, frames, _| {
        let kernel = Leaf::kernel(PhysAddr(0x40_0000_0000), Perms::WRITE, Memory::Normal);
        let fused = 0xffff_8040_0000_0000;
        let top = u64::MAX - 4095;
        t.map(fused, kernel, Level::L3, frames).unwrap();
        t.map(top, kernel, Level::L1, frames).unwrap();
        t.map(USER_END - 4096, page(0), Level::L1, frames).unwrap();
        let entry = t.walk(fused).entry;
        assert!(entry.0 >= 4096 && t.walk(u64::MAX).level == Level::L1);
        let byte = t.translate(fused + 0x1234_5678).unwrap().0;
        assert_eq!(byte, PhysAddr(0x40_1234_5678));
        let mut seen = vec![];
        t.for_each_leaf(0..u64::MAX, &mut |va, _, _| seen.push(va));
        assert_eq!(seen, [USER_END - 4096, fused, top]);
        // Preset bits of kernel pages stay.
        assert_eq!(t.harvest(fused), Ok((true, true)));
        assert_eq!(t.harvest(fused), Ok((true, true)));
        t.free_tables(frames);
        let mut seen = vec![];
        t.for_each_leaf(0..u64::MAX, &mut |va, _, _| seen.push(va));
        assert_eq!(seen, [fused, top], "the kernel half is not touched");
    });
}

#[test]
fn running_out_of_frames_leaks_none_and_can_be_tried_again() {
    for isa in Isa::ALL {
        let mem = HostMem::new();
        let frames = Frames::with_limit(&mem, 3);
        let t = RemoteCpu::new(&mem, isa, frames.alloc_table().unwrap());
        let no = Err(MapError::NoMemory);
        assert_eq!(t.map(VA, page(0), Level::L1, &frames), no);
        assert_eq!(t.map(VA, page(0), Level::L1, &frames), no);
        assert_eq!(frames.in_use().len(), 3);
        let large = Leaf::user(PhysAddr(0x40_0000_0000), Perms::READ);
        assert_eq!(t.map(VA & !0x1f_ffff, large, Level::L2, &frames), Ok(()));
        t.free_tables(&frames);
        assert_eq!(frames.in_use(), [t.root()]);
    }
}

#[test]
fn unknown_entries_and_tables_outside_of_memory_are_left_alone() {
    on_both(|t, frames, mem| {
        t.map(VA, page(0), Level::L1, frames).unwrap();
        t.unmap(VA, node(1), |_, _| (), || at(1)).unwrap();
        let walk = t.walk(VA);
        mem.store(walk.entry, 0xdead_beec, Ordering::Relaxed);
        let conflict = |level| MapError::Conflict(level);
        let e = conflict(Level::L1);
        assert_eq!(t.map(VA, page(1), Level::L1, frames), Err(e));
        assert_eq!(t.unmap(VA, node(1), |_, _| (), || at(1)), Err(e));
        assert_eq!(t.walk(VA).pte, Pte::Other(0xdead_beec));

        // A table where no shared memory is, low or so high that it would wrap.
        for table in [0x5000, 0xffff_ffff_f000] {
            let wild = encode(t.isa(), Pte::Table(PhysAddr(table)), Level::L4).unwrap();
            mem.store(t.root().add(8), wild, Ordering::Relaxed);
            let va = 1 << 39;
            let e = conflict(Level::L4);
            assert_eq!(t.walk(va).pte, Pte::Other(wild));
            assert_eq!(t.translate(va), None);
            assert_eq!(t.map(va, page(1), Level::L1, frames), Err(e));
            assert_eq!(t.protect(va, Perms::READ), Err(e));
        }
        let before = frames.in_use().len();
        t.for_each_leaf(0..USER_END, &mut |_, _, _| panic!("no leaf"));
        t.free_tables(frames);
        assert_eq!((before, frames.in_use().len()), (4, 1));
    });
}

#[test]
fn an_entry_that_a_node_is_closing_belongs_to_it() {
    on_both(|t, frames, mem| {
        t.map(VA, page(0), Level::L1, frames).unwrap();
        let done = t.unmap(
            VA,
            node(1),
            |_, _| (),
            || {
                assert_eq!(
                    t.map(VA, page(1), Level::L1, frames),
                    Err(MapError::Closing)
                );
                assert_eq!(
                    t.unmap(VA, node(2), |_, _| (), || at(9)),
                    Err(MapError::Closing)
                );
                assert_eq!(t.protect(VA, Perms::READ), Err(MapError::Closing));
                assert_eq!(t.harvest(VA), Err(MapError::Closing));
                Epoch::MAX
            },
        );
        assert_eq!(done, Ok((page(0), Level::L1)));
        let epoch = Epoch::MAX;
        assert_eq!(t.walk(VA).pte, Pte::Empty { epoch });
        let late = t.map_when(VA, page(1), Level::L1, frames, |s| at(1 << 40) > s);
        assert_eq!(late, Err(MapError::NotQuiesced(Epoch::MAX)));

        // Finished by a recoverer: not overwritten.
        t.map(VA, page(0), Level::L1, frames).unwrap();
        let recovered = encode(t.isa(), Pte::Empty { epoch: at(77) }, Level::L1).unwrap();
        let done = t.unmap(
            VA,
            node(1),
            |_, _| (),
            || {
                mem.store(t.walk(VA).entry, recovered, Ordering::Relaxed);
                at(78)
            },
        );
        assert_eq!(done, Err(MapError::Contended));
        assert_eq!(t.walk(VA).pte, Pte::Empty { epoch: at(77) });
    });
}

#[test]
fn written_pages_stay_dirty_when_they_become_read_only() {
    on_both(|t, frames, mem| {
        t.map(VA, page(0), Level::L1, frames).unwrap();
        let walk = t.walk(VA);
        let used = hardware_use(t.isa(), walk.raw, true);
        mem.store(walk.entry, used, Ordering::Relaxed);
        let before = t.protect(VA, Perms::READ).unwrap();
        assert!(before.dirty && before.perms.contains(Perms::WRITE));
        let (_, leaf, _) = t.translate(VA).unwrap();
        assert_eq!(leaf.perms, Perms::READ | Perms::USER);
        assert!(leaf.dirty && leaf.accessed);
        assert_eq!(t.harvest(VA), Ok((true, true)));
        assert_eq!(t.harvest(VA), Ok((false, false)));
        t.protect(VA, Perms::READ | Perms::WRITE).unwrap();
        assert_eq!(t.translate(VA).unwrap().1, page(0));
    });
}

/// Two nodes map the same pages, and tables for them, at the same time: each page goes to one of
/// them, the other is told to whom, and no table frame is lost or used twice.
#[test]
fn of_two_nodes_that_map_a_page_one_wins() {
    const PAGES: u64 = if cfg!(miri) { 6 } else { 24 };
    const TIMES: u64 = if cfg!(miri) { 1 } else { 40 };
    for isa in Isa::ALL {
        for _ in 0..TIMES {
            let mem = HostMem::new();
            let frames = Frames::new(&mem);
            let t = RemoteCpu::new(&mem, isa, frames.alloc_table().unwrap());
            // Every page needs an L1 table of its own, every fourth an L2 table.
            let va = |n: u64| (n / 4) << 30 | (n % 4) << 21;
            let start = Barrier::new(2);
            let wins = thread::scope(|s| {
                let work = [0, 1].map(|who| {
                    let (start, frames) = (&start, &frames);
                    s.spawn(move || {
                        start.wait();
                        (0..PAGES)
                            .map(|n| {
                                let mine = page(2 * n + who);
                                let theirs = page(2 * n + 1 - who);
                                match t.map(va(n), mine, Level::L1, frames) {
                                    Ok(()) => true,
                                    Err(e) => {
                                        assert_eq!(e, MapError::Exists(theirs));
                                        false
                                    }
                                }
                            })
                            .collect::<Vec<_>>()
                    })
                });
                work.map(|w| w.join().unwrap())
            });
            for n in 0..PAGES {
                let won = wins.each_ref().map(|w| w[n as usize]);
                assert_ne!(won[0], won[1], "page {n}");
                let leaf = page(2 * n + won[1] as u64);
                assert_eq!(t.translate(va(n)), Some((leaf.pa, leaf, Level::L1)));
            }
            let expected = 1 + 1 + PAGES.div_ceil(4) + PAGES;
            assert_eq!(frames.in_use().len() as u64, expected);
            t.free_tables(&frames);
            assert_eq!(frames.in_use(), [t.root()]);
        }
    }
}

/// Two nodes unmap the same page while its CPU keeps using it: one of them gets it, with an epoch
/// taken after it was gone, and what hardware has written is in what it gets.
#[test]
fn of_two_nodes_that_unmap_a_page_one_wins() {
    const TIMES: u64 = if cfg!(miri) { 6 } else { 300 };
    for isa in Isa::ALL {
        let mem = HostMem::new();
        let frames = Frames::new(&mem);
        let t = RemoteCpu::new(&mem, isa, frames.alloc_table().unwrap());
        let epoch = AtomicU64::new(1);
        for round in 0..TIMES {
            t.map(VA, page(round), Level::L1, &frames).unwrap();
            let entry = t.walk(VA).entry;
            let start = Barrier::new(3);
            let written = Mutex::new(false);
            let won = thread::scope(|s| {
                s.spawn(|| {
                    start.wait();
                    for write in [false, true] {
                        let raw = mem.load(entry, Ordering::Acquire);
                        if raw & 1 != 0 {
                            let used = hardware_use(isa, raw, write);
                            if mem.cas(entry, raw, used).is_ok() {
                                *written.lock().unwrap() = write;
                            }
                        }
                    }
                });
                let work = [1, 2].map(|n| {
                    let (start, epoch) = (&start, &epoch);
                    s.spawn(move || {
                        start.wait();
                        t.unmap(
                            VA,
                            node(n),
                            |_, _| (),
                            || at(epoch.fetch_add(1, Ordering::SeqCst)),
                        )
                    })
                });
                work.map(|w| w.join().unwrap())
            });
            let ok: Vec<_> = won.iter().flatten().collect();
            assert_eq!(ok.len(), 1, "{won:?}");
            assert!(ok[0].0.same_mapping(&page(round)));
            assert_eq!(ok[0].0.dirty, *written.lock().unwrap());
            for e in won.iter().filter_map(|w| w.err()) {
                assert!(matches!(e, MapError::Closing | MapError::NotMapped));
            }
            let stamp = at(epoch.load(Ordering::SeqCst) - 1);
            assert_eq!(t.walk(VA).pte, Pte::Empty { epoch: stamp });
        }
    }
}

/// Accessed and dirty bits are not lost between the CPU that sets them, a node that harvests and
/// a node that changes permissions.
#[test]
fn no_use_of_a_page_goes_unnoticed() {
    const WRITES: u64 = if cfg!(miri) { 40 } else { 2_000 };
    for isa in Isa::ALL {
        let mem = HostMem::new();
        let frames = Frames::new(&mem);
        let t = RemoteCpu::new(&mem, isa, frames.alloc_table().unwrap());
        t.map(VA, page(0), Level::L1, &frames).unwrap();
        let entry = t.walk(VA).entry;
        let (set, running) = (AtomicU64::new(0), AtomicU64::new(2));
        let mut harvested = 0;
        thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..WRITES {
                    let raw = mem.load(entry, Ordering::Acquire);
                    let used = hardware_use(isa, raw, true);
                    let clean = matches!(t.walk(VA).pte, Pte::Leaf(l) if !l.dirty);
                    let writable = hardware_use(isa, raw, false) != used;
                    if clean && writable && mem.cas(entry, raw, used).is_ok() {
                        set.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::yield_now();
                }
                running.fetch_sub(1, Ordering::Release);
            });
            s.spawn(|| {
                for n in 0..WRITES {
                    let perms = Perms::READ
                        | if n % 2 == 0 {
                            Perms::empty()
                        } else {
                            Perms::WRITE
                        };
                    match t.protect(VA, perms) {
                        Ok(_) | Err(MapError::Contended) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
            loop {
                let last = running.load(Ordering::Acquire) == 0;
                match t.harvest(VA) {
                    Ok((_, dirty)) => harvested += dirty as u64,
                    Err(MapError::Contended) if !last => continue,
                    Err(e) => panic!("{e}"),
                }
                if last {
                    break;
                }
            }
        });
        assert_eq!(harvested, set.load(Ordering::Relaxed));
    }
}

/// Logged earlier, a walk brings the lines back that a round has dropped; later, a round that counts
/// for the stamp has not dropped them.
#[test]
fn an_unmap_is_logged_between_the_entry_and_the_stamp() {
    on_both(|t, frames, _| {
        t.map(VA, page(0), Level::L1, frames).unwrap();
        let table = t.walk(VA).entry.frame_start();
        let logged = std::cell::Cell::new(None);
        let log = |at: PhysAddr, leaf: &Leaf| {
            assert_eq!(t.walk(VA).pte, Pte::Closing { node: node(1) });
            logged.set(Some((at, *leaf)));
        };
        let done = t.unmap(VA, node(1), log, || {
            assert_eq!(logged.get(), Some((table, page(0))), "not logged yet");
            at(3)
        });
        assert!(done.is_ok());
        // What is not unmapped is not logged.
        let none = t.unmap(VA, node(1), |_, _| panic!("logged"), || at(4));
        assert_eq!(none, Err(MapError::NotMapped));
    });
}
