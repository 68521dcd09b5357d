//! Sleep and wake, one step at a time: who has to ring, and what each step leaves behind.

use std::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, HostMem};
use dyad_ring::wake::{WakeLine, attentive, notify, prepare, take_pending};
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity::{ASLEEP, ATTENTIVE, OFFLINE, USER};

const LINE: WakeLine = WakeLine {
    pending: PhysAddr(0x40_0000_1000),
    activity: PhysAddr(0x40_0000_1040),
};

#[test]
fn only_those_who_do_not_look_are_rung_and_only_once() {
    for (doing, ring) in [
        (OFFLINE, false),
        (ATTENTIVE, false),
        (USER, true),
        (ASLEEP, true),
    ] {
        let mem = HostMem::new();
        mem.store(LINE.activity, doing, Ordering::Relaxed);
        assert_eq!(notify(&mem, &LINE, 63), ring);
        assert!(!notify(&mem, &LINE, 63), "already pending");
        assert_eq!(notify(&mem, &LINE, 0), ring, "another sender");
        assert_eq!(take_pending(&mem, &LINE), 1 << 63 | 1);
        assert_eq!(take_pending(&mem, &LINE), 0);
        assert_eq!(notify(&mem, &LINE, 63), ring, "taken since");
    }
}

#[test]
fn nobody_goes_while_something_is_pending() {
    let mem = HostMem::new();
    let doing = || mem.load(LINE.activity, Ordering::Relaxed);
    for away in [USER, ASLEEP] {
        attentive(&mem, &LINE);
        assert!(!notify(&mem, &LINE, 5));
        assert!(!prepare(&mem, &LINE, away));
        assert_eq!(doing(), ATTENTIVE);
        assert_eq!(take_pending(&mem, &LINE), 1 << 5);
        assert!(prepare(&mem, &LINE, away));
        assert_eq!(doing(), away);
        assert!(notify(&mem, &LINE, 5));
        assert_eq!(take_pending(&mem, &LINE), 1 << 5);
    }
}
