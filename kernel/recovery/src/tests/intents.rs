//! Intents of long ago: what a dead CPU was about may have become something else since.

use core::sync::atomic::Ordering;

use dyad_abi::Isa;
use dyad_abi::cap::TableAt;
use dyad_captbl::{Owner, SlotHeader, SlotPlace};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Perms, Pte};
use dyad_retype::{Use, Version};
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;

use super::{Trio, VA, node, this};
use dyad_core::host::MockX86;
use dyad_core::syscall::ops::space::map;

/// Node 1 dies with this intent, and node 0 recovers it.
fn dies_with(s: &Trio, intent: &IntentRecord) {
    s.cx(1).intents().begin(intent);
    s.dies(1);
    s.recover(0);
}

#[test]
fn what_looks_like_a_slot_in_user_memory_stays() {
    let s = Trio::new();
    let leaf = s.take(0, Use::User, 0);
    let place = SlotPlace::new(leaf, 5).unwrap();
    let left = SlotHeader::Reserved(Owner {
        node: node(1),
        incarnation: s.state(1).incarnation,
    });
    let c = s.cx(0);
    c.words()
        .store(place.address(), left.bits(), Ordering::Relaxed);
    let intent = IntentRecord {
        row: Row::SlotActivate,
        frame: leaf,
        table: None,
        place: place.address(),
    };
    assert_eq!(SlotPlace::of_intent(&intent), Some(place));
    dies_with(&s, &intent);
    let now = c.words().load(place.address(), Ordering::Relaxed);
    assert_eq!(now, left.bits(), "a word of a user's");
}

/// What the entry of a page says after node 1 has died mapping it, with this version of its table.
fn after_a_death(table_version: impl Fn(Version) -> Version) -> Pte {
    let s = Trio::new();
    let (space, isa) = (s.supplied_space(), Isa::X86_64);
    let table = s.tables(space, isa, VA, Level::L1)[2];
    let page = s.user(0);
    let c = s.cx(0);
    let at = TableAt { isa, level: 1 };
    map::<MockX86>(&this(&c, space), at, VA, &page, 0, Perms::READ).unwrap();
    let d = this(&c, space).driver(isa).unwrap();
    let place = d.find(VA, Level::L1).unwrap();
    let intent = IntentRecord {
        row: Row::Map,
        frame: page.object.unwrap(),
        table: Some(WeakRef {
            version: table_version(table.version),
            ..table
        }),
        place: place.entry,
    };
    dies_with(&s, &intent);
    d.meaning(&d.again(&place))
}

#[test]
fn entries_of_a_table_that_has_been_made_since_stay() {
    let older = |v: Version| Version(v.0 - 1);
    assert!(matches!(after_a_death(older), Pte::Leaf(_)));
}

#[test]
fn entries_that_recovery_empties_are_stamped() {
    let Pte::Empty { epoch } = after_a_death(|v| v) else {
        panic!("it has stayed");
    };
    assert_ne!(epoch, Epoch::ZERO);
}
