//! A scenario for each rule that keeps frames safe one step at a time: the register of mutants names those that fail
//! without a rule. Rules about races are in `loom_frames.rs` and `loom_recovery.rs`.

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Clock, Unrecorded, frame, node, retype, table, w0};
use dyad_coherence::{GlobalMem, HostMem};
use dyad_retype::{FrameType, FrameWord, KernelKind, Order, Refs, Refused, Use, Version, WeakRef};
use dyad_shm::pool::PoolId;

const THREAD: Use = Use::Kernel(KernelKind::THREAD);

/// Both halves of a block of two frames, the second one in use as what is wanted.
fn pair(mem: &HostMem, clock: &Clock, used: Use) -> WeakRef {
    let t = table(mem, 0);
    t.format(PoolId::Cxl, &(0..2), 0..2).unwrap();
    t.split(frame(0), &Unrecorded).unwrap();
    retype(&t, mem, frame(1), used, clock).unwrap()
}

#[test]
fn an_old_capability_maps_nothing() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = table(&mem, 0);
    let old = pair(&mem, &clock, Use::User);
    t.to_untyped(old, Use::User, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    clock.rounds();
    retype(&t, &mem, frame(1), Use::User, &clock).unwrap();
    let mapped = t.pin_user(old, Order::FRAME);
    assert_eq!(mapped, Err(Refused::Stale), "foreign memory mapped");
}

#[test]
fn kernel_objects_are_not_mapped() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let object = pair(&mem, &clock, THREAD);
    let mapped = table(&mem, 0).pin_user(object, Order::FRAME);
    assert_eq!(mapped, Err(Refused::WrongType), "kernel object mapped");
}

#[test]
fn frozen_frames_get_no_references() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = table(&mem, 0);
    let page = pair(&mem, &clock, Use::User);
    t.freeze(page.frame).unwrap();
    let mapped = t.pin_user(page, Order::FRAME);
    assert_eq!(mapped, Err(Refused::Frozen), "counted already");
}

#[test]
fn references_do_not_run_over() {
    let mem = HostMem::new();
    let t = table(&mem, 0);
    let full = FrameWord {
        version: Version(1),
        ty: FrameType::User(Order::FRAME),
        refs: Refs::MAX,
    };
    mem.store(w0(0), full.bits(), Relaxed);
    let pinned = t.pin_user(t.current(frame(0)).unwrap(), Order::FRAME);
    assert_eq!(pinned, Err(Refused::TooManyRefs), "no room");
    assert_eq!(t.read(frame(0)).unwrap().0, full);
}

#[test]
fn old_references_die() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = table(&mem, 0);
    let old = pair(&mem, &clock, THREAD);
    t.to_untyped(old, THREAD, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    clock.rounds();
    retype(&t, &mem, frame(1), THREAD, &clock).unwrap();
    let check = t.check(old, THREAD);
    assert_eq!(check, Err(Refused::Stale), "resolves to a new object");
}

/// The node dies between the first and the second half of giving the object up.
fn dies(mem: &HostMem, clock: &Clock) -> WeakRef {
    let old = pair(mem, clock, THREAD);
    let dying = FrameWord::new(old.version, FrameType::Retyping(node(1)));
    mem.store(w0(1), dying.bits(), Relaxed);
    let t = table(mem, 0);
    assert_eq!(t.recover_frame(old, node(1), clock, &Unrecorded), Ok(true));
    old
}

#[test]
fn references_die_with_the_node_that_retypes() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let old = dies(&mem, &clock);
    clock.rounds();
    let t = table(&mem, 0);
    retype(&t, &mem, frame(1), THREAD, &clock).unwrap();
    let check = t.check(old, THREAD);
    assert_eq!(check, Err(Refused::Stale), "resolves to a new object");
}

fn not_yet(mem: &HostMem, clock: &Clock, head: u64) {
    let t = table(mem, 0);
    let claim = || t.from_untyped_begin(frame(head), None, clock, &Unrecorded);
    let early = claim().map(|_| ());
    assert_eq!(early, Err(Refused::NotQuiesced), "reused too early");
    clock.round(1);
    let early = claim().map(|_| ());
    assert_eq!(early, Err(Refused::NotQuiesced), "reused too early");
    clock.round(0);
    assert!(claim().is_ok());
}

#[test]
fn recovered_frames_wait_for_a_round() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    dies(&mem, &clock);
    not_yet(&mem, &clock, 1);
}

#[test]
fn given_up_frames_wait_for_a_round() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let old = pair(&mem, &clock, Use::User);
    let t = table(&mem, 0);
    t.to_untyped(old, Use::User, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    not_yet(&mem, &clock, 1);
}

#[test]
fn merged_blocks_wait_for_both() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let old = pair(&mem, &clock, Use::User);
    let t = table(&mem, 0);
    t.to_untyped(old, Use::User, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    t.merge(frame(0), &Unrecorded).unwrap();
    not_yet(&mem, &clock, 0);
}

#[test]
fn halves_of_blocks_wait_as_the_block() {
    let (mem, clock) = (HostMem::new(), Clock::default());
    let t = table(&mem, 0);
    t.format(PoolId::Cxl, &(0..2), 0..2).unwrap();
    let whole = retype(&t, &mem, frame(0), Use::User, &clock).unwrap();
    t.to_untyped(whole, Use::User, &clock, &Unrecorded, &Unrecorded)
        .unwrap();
    t.split(frame(0), &Unrecorded).unwrap();
    not_yet(&mem, &clock, 1);
}
