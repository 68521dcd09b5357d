//! What a CPU caches of quiescence never says more than the nodes do.

use crate::common;

use common::*;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use dyad_coherence::{GlobalMem, HostMem};
use dyad_quiesce::{Epoch, Idle, Known};
use dyad_shm::superblock::Superblock;

fn epoch(n: u64) -> Epoch {
    Epoch::new(n).unwrap()
}

#[test]
fn it_answers_as_the_nodes_do_and_remembers() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let (known, hw) = (Known::new(), Hardware::default());
    let stamp = q.now();
    assert!(!q.quiesced_or_known(&known, stamp));
    whole_round(&q, 0, &mut a, &hw);
    assert!(!q.quiesced_or_known(&known, stamp), "one has not moved on");
    whole_round(&q, 1, &mut b, &hw);
    assert!(!known.covers(stamp));
    assert!(q.quiesced_or_known(&known, stamp));
    assert!(known.covers(stamp));
    // Damage later on does not matter to what was quiet before.
    mem.store(
        SUPERBLOCK.add(offset_of!(Superblock, nodes) as u64 + 128),
        99,
        Ordering::SeqCst,
    );
    assert!(q.quiesced_or_known(&known, stamp));
    assert!(!q.quiesced_or_known(&known, q.now()), "blocks reuse");
    assert!(!q.quiesced_or_known(&Known::new(), Epoch::MAX));
}

/// The stamp of today is quiesced while all others sleep, but tomorrow's with the same number is
/// not: it must not be remembered.
#[test]
fn the_present_epoch_is_never_remembered() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let (known, hw) = (Known::new(), Hardware::default());
    for (n, round) in [(0, &mut a), (1, &mut b)] {
        let idle = round.idle_step(&q, &hw, cpu(0), 1000, || false);
        assert_eq!(idle, Idle::Asleep, "node {n}");
    }
    let stamp = q.now();
    assert!(q.quiesced_or_known(&known, stamp), "everybody sleeps");
    assert!(!known.covers(stamp));
    assert!(known.covers(epoch(stamp.get() - 1)));
    q.wake(node(1), cpu(0));
    assert_eq!(q.now(), stamp);
    assert!(
        !q.quiesced_or_known(&known, stamp),
        "it may have found it since"
    );
}

#[test]
fn a_node_that_wakes_up_takes_nothing_back() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let (known, hw) = (Known::new(), Hardware::default());
    let stamp = q.now();
    let idle = b.idle_step(&q, &hw, cpu(0), 1000, || false);
    assert_eq!(idle, Idle::Asleep);
    whole_round(&q, 0, &mut a, &hw);
    assert!(q.quiesced_or_known(&known, stamp));
    q.wake(node(1), cpu(0));
    let later = q.now();
    assert!(q.quiesced(stamp).is_err(), "its old epoch counts again");
    assert!(q.quiesced_or_known(&known, stamp), "but it held nothing");
    assert!(!q.quiesced_or_known(&known, later));
    // A look at it now makes nothing of what is remembered less.
    assert!(known.covers(stamp));
}

/// A suspected node may still be alive. It may then use translations of epochs that it has not published, so those epochs
/// are not remembered as quiet.
#[test]
fn a_suspect_holds_up_what_is_remembered() {
    let mem = HostMem::new();
    let q = words(&mem);
    let [mut a, mut b] = pair(&q);
    let (known, hw) = (Known::new(), Hardware::default());
    let stamp = q.now();
    q.suspect(node(1)).unwrap();
    for _ in 0..3 {
        whole_round(&q, 0, &mut a, &hw);
        assert!(!q.quiesced_or_known(&known, stamp), "it may use it");
        assert!(!known.covers(stamp), "it may use it");
    }
    whole_round(&q, 1, &mut b, &hw);
    assert!(q.quiesced_or_known(&known, stamp));
    assert!(known.covers(stamp));
}
