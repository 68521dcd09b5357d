//! Frames: every frame once, all of them back, damage noticed.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::vec::Vec;

use dyad_abi::{Error, Isa};
use dyad_shm::PhysAddr;

use super::{World, word};
use crate::frames::Frames;

#[test]
fn every_frame_is_given_out_once_zeroed_and_taken_back() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 20);
    let m = w.machine(0);
    let frames = m.node().frames();
    let mut seen: Vec<PhysAddr> = core::iter::from_fn(|| frames.alloc().ok()).collect();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(frames.alloc(), Err(Error::NoMemory));
    assert_eq!(frames.used(), 20);
    for &pa in &seen {
        word(m.node(), pa.add(4088)).store(!0, Ordering::Relaxed);
        Frames::free(&m.node().map, pa).unwrap();
    }
    assert_eq!(frames.used(), 0);
    let mut again: Vec<PhysAddr> = core::iter::from_fn(|| frames.alloc().ok()).collect();
    for &pa in &again {
        assert_eq!(word(m.node(), pa.add(4088)).load(Ordering::Relaxed), 0);
        assert_eq!(word(m.node(), pa).load(Ordering::Relaxed), 0);
    }
    seen.sort();
    again.sort();
    assert_eq!(seen, again);
}

#[test]
fn what_is_no_frame_is_not_taken() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 4);
    let m = w.machine(0);
    let pa = m.node().frames().alloc().unwrap();
    let table = PhysAddr(pa.0 & !0xffff_ffff);
    for bad in [
        pa.add(8),
        table,
        PhysAddr(0),
        PhysAddr(!0xfff),
        PhysAddr(pa.0 + (1 << 32)),
    ] {
        assert_eq!(
            Frames::free(&m.node().map, bad),
            Err(Error::BadArgument),
            "{bad}"
        );
    }
}

#[test]
fn a_damaged_free_list_is_an_error_and_no_panic() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 4);
    let m = w.machine(0);
    let e = &m.node().sb.pools[0];
    for head in [1, 0xffff_ffff, 1 << 20] {
        e.free.store(head, Ordering::Relaxed);
        assert_eq!(m.node().frames().alloc(), Err(Error::Corrupt), "{head:#x}");
    }
    // The end of the pool itself may be damaged too.
    e.end_frame.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(m.node().frames().alloc(), Err(Error::Corrupt));
}

#[test]
fn threads_that_allocate_and_free_at_once_lose_nothing() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 64);
    let node = w.machine(0).node();
    std::thread::scope(|s| {
        for t in 0..4u64 {
            s.spawn(move || {
                for i in 0..3_000u64 {
                    let Ok(pa) = node.frames().alloc() else {
                        continue;
                    };
                    let mark = t << 32 | i;
                    word(node, pa.add(64)).store(mark, Ordering::Relaxed);
                    std::thread::yield_now();
                    assert_eq!(word(node, pa.add(64)).load(Ordering::Relaxed), mark);
                    Frames::free(&node.map, pa).unwrap();
                }
            });
        }
    });
    assert_eq!(node.frames().used(), 0);
    let all: BTreeSet<_> = core::iter::from_fn(|| node.frames().alloc().ok()).collect();
    assert_eq!(all.len(), 64);
}
