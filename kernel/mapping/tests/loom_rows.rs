//! Model checks of rows that race, done by each instantiation: all interleavings with all weak orderings. The register of
//! mutants takes away each step that only races need.

mod common;

use std::sync::Arc;

use common::*;
use dyad_coherence::GlobalMem;
use dyad_coherence::model::{Lacks, LoomMem, explore, race};
use dyad_mapping::{NotMapped, NotUnmapped};
use dyad_pgtbl::plain;
use dyad_retype::{Epoch, FrameTable, FrameWord, Refused, Use};
use dyad_shm::intent::IntentRecord;
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents, Log};
use loom::sync::atomic::Ordering;

const EPOCH: PhysAddr = PhysAddr(0x1000);
/// Set by a row that is under way.
const INTENT: PhysAddr = PhysAddr(0x1080);

/// Time in the memory of the model; every stamp is quiesced. Intents, if they are looked at.
#[derive(Clone, Copy)]
struct Here<'m> {
    mem: &'m LoomMem,
    recorded: bool,
}

impl EpochSource for Here<'_> {
    fn now(&self) -> Epoch {
        self.mem.fence();
        Epoch::saturating(self.mem.load(EPOCH, Ordering::Relaxed))
    }

    fn quiesced(&self, _: Epoch) -> bool {
        true
    }
}

impl Intents for Here<'_> {
    fn begin(&self, _: &IntentRecord) {
        if self.recorded {
            self.mem.store_through(INTENT, 1, Ordering::Release);
        }
    }

    fn clear(&self) {
        if self.recorded {
            self.mem.store_through(INTENT, 0, Ordering::Release);
        }
    }
}

impl Log for Here<'_> {
    fn line(&self, _: PhysAddr) {}

    fn object(&self, _: dyad_shm::frame::FrameRef) {}
}

fn here(mem: &LoomMem) -> Here<'_> {
    Here {
        mem,
        recorded: false,
    }
}

/// Both tables hang where they are, each with one entry; the page has as many references as entries show it.
fn memory(lacks: Lacks, entries: [u64; 2]) -> Arc<LoomMem> {
    let shown = |raw: &u64| u32::from(*raw == page_word());
    let refs: u32 = entries.iter().map(shown).sum();
    let mut words = vec![(w0(PAGE).0, word(USER, refs)), (EPOCH.0, 7), (INTENT.0, 0)];
    words.push((w1(PAGE).0, 0));
    for (table, raw) in [TABLE, OTHER_TABLE].into_iter().zip(entries) {
        words.push((at(table).entry.0, raw));
        words.push((at(table).above.0, link(table)));
        words.push((w0(table).0, table_word(1 + shown(&raw))));
    }
    Arc::new(LoomMem::new(lacks, &words, &[]))
}

fn read(mem: &LoomMem, at: PhysAddr) -> u64 {
    mem.load(at, Ordering::Acquire)
}

fn refs(mem: &LoomMem, index: u64) -> u32 {
    FrameWord::from_bits(read(mem, w0(index)))
        .unwrap()
        .refs
        .get()
}

fn explore_both(race: impl Fn(By) + Copy + Send + Sync + 'static) {
    for by in BOTH {
        explore(None, move || race(by));
    }
}

/// As the row unlink does it: closes the link, and opens it again if something else than the link pins the table.
fn unlink(mem: &LoomMem) -> bool {
    let above = at(TABLE).above;
    let closing = plain::closing(ISA, node(0));
    mem.cas(above, link(TABLE), closing).unwrap();
    mem.fence();
    if refs(mem, TABLE) == 1 {
        return true;
    }
    mem.cas(above, closing, link(TABLE)).unwrap();
    false
}

/// One maps a page in a table that the other takes out.
fn map_and_unlink(by: By, lacks: Lacks) {
    let mem = memory(lacks, [0, 0]);
    let (unlinked, mapped) = race(&mem, unlink, move |m| by.maps(m, 1, at(TABLE), &here(m)));
    assert!(
        !(unlinked && mapped.is_ok()),
        "a page in a table that is gone"
    );
    let shown = u32::from(mapped.is_ok());
    assert_eq!((refs(&mem, TABLE), refs(&mem, PAGE)), (1 + shown, shown));
    assert_eq!(read(&mem, at(TABLE).entry) == page_word(), mapped.is_ok());
}

#[test]
fn a_page_comes_or_its_table_goes() {
    explore_both(|by| map_and_unlink(by, Lacks::Nothing));
}

#[test]
#[should_panic(expected = "a page in a table that is gone")]
fn mutant_the_link_is_looked_at_without_a_fence() {
    explore(None, || map_and_unlink(By::FastPath, Lacks::Fences));
}

/// Two map a page at one place.
#[test]
fn one_of_two_pages_comes() {
    explore_both(|by| {
        let mem = memory(Lacks::Nothing, [0, 0]);
        let (a, b) = race(
            &mem,
            |m| By::Walk.maps(m, 0, at(TABLE), &here(m)),
            move |m| by.maps(m, 1, at(TABLE), &here(m)),
        );
        assert!(a.is_ok() != b.is_ok());
        assert_eq!((refs(&mem, TABLE), refs(&mem, PAGE)), (2, 1));
        assert_eq!(read(&mem, at(TABLE).entry), page_word());
    });
}

/// One maps a page that the other gives up.
fn map_and_give_up(by: By) {
    let mem = memory(Lacks::Nothing, [0, 0]);
    let (mapped, up) = race(
        &mem,
        move |m| by.maps(m, 1, at(TABLE), &here(m)),
        |m| {
            let t = FrameTable::new(m, pools(), node(0));
            let (epochs, none) = (here(m), here(m));
            let up = t.to_untyped(weak(PAGE), Use::User, &epochs, &none, &none);
            // And it has another owner.
            up.map(|_| {
                let next = FrameWord::from_bits(read(m, w0(PAGE))).unwrap();
                let theirs = FrameWord { ty: USER, ..next };
                m.cas(w0(PAGE), next.bits(), theirs.bits()).unwrap();
            })
        },
    );
    assert!(
        !(mapped.is_ok() && up.is_ok()),
        "a page of another owner is mapped"
    );
    if up.is_ok() {
        assert_eq!((refs(&mem, TABLE), refs(&mem, PAGE)), (1, 0));
    } else {
        assert_eq!(up, Err(Refused::InUse));
    }
}

#[test]
fn a_page_is_mapped_or_given_up() {
    explore_both(map_and_give_up);
}

/// The owner unmaps a page and then looks where it is shown; the other one shows it there.
fn copy_and_unmap(by: By, lacks: Lacks) {
    let mem = memory(lacks, [page_word(), 0]);
    let (unmapped, shown) = race(
        &mem,
        |m| {
            let first = By::Walk.unmaps(m, 0, at(TABLE), &here(m));
            m.fence();
            let _ = By::Walk.unmaps(m, 0, at(OTHER_TABLE), &here(m));
            first
        },
        move |m| by.copies(m, 1, (at(TABLE), at(OTHER_TABLE)), &here(m)),
    );
    assert!(unmapped.is_ok());
    assert!(
        read(&mem, at(OTHER_TABLE).entry) != page_word(),
        "shown after it has gone"
    );
    assert!(matches!(
        shown,
        Ok(()) | Err(NotMapped::Gone | NotMapped::Occupied(_))
    ));
    let left = [TABLE, OTHER_TABLE, PAGE].map(|n| refs(&mem, n));
    assert_eq!(left, [1, 1, 0]);
}

#[test]
fn a_page_that_is_unmapped_while_it_is_shown_does_not_stay() {
    explore_both(|by| copy_and_unmap(by, Lacks::Nothing));
}

#[test]
#[should_panic(expected = "shown after it has gone")]
fn mutant_the_source_is_looked_at_again_without_a_fence() {
    explore(None, || copy_and_unmap(By::FastPath, Lacks::Fences));
}

/// One unmaps; the other freezes the page, and counts its entries if no row is at work.
fn unmap_and_recount(by: By) {
    let mem = memory(Lacks::Nothing, [page_word(), 0]);
    let (unmapped, counted) = race(
        &mem,
        move |m| {
            let services = Here {
                mem: m,
                recorded: true,
            };
            by.unmaps(m, 1, at(TABLE), &services)
        },
        |m| {
            let t = FrameTable::new(m, pools(), node(0));
            t.freeze(frame(PAGE)).unwrap();
            m.fence();
            (m.load_fresh(INTENT, Ordering::Acquire) == 0).then(|| {
                let shown =
                    u32::from(m.load_fresh(at(TABLE).entry, Ordering::Acquire) == page_word());
                (shown, refs(m, PAGE))
            })
        },
    );
    if let Some((shown, refs)) = counted {
        assert_eq!(shown, refs, "counted while a reference was given back");
    }
    assert!(matches!(
        unmapped,
        Ok(_) | Err(NotUnmapped::Refused(Refused::Frozen | Refused::Stale))
    ));
}

#[test]
fn no_reference_is_given_back_while_its_block_is_counted() {
    explore_both(unmap_and_recount);
}

/// The stamp of an entry is not older than a round that began before the entry was closed: a node that has still used the
/// page publishes less.
fn unmap_during_a_round(by: By, lacks: Lacks) {
    let mem = memory(lacks, [page_word(), 0]);
    let (stamp, (round, used)) = race(
        &mem,
        move |m| by.unmaps(m, 1, at(TABLE), &here(m)).unwrap(),
        |m| {
            let round = m.add(EPOCH, 1) + 1;
            m.fence();
            (
                round,
                m.load(at(TABLE).entry, Ordering::Relaxed) == page_word(),
            )
        },
    );
    assert!(!used || stamp.get() >= round, "used after its stamp");
    let left = plain::empty_in(ISA, read(&mem, at(TABLE).entry));
    assert_eq!(left, Some(stamp));
}

#[test]
fn a_stamp_covers_the_last_use() {
    explore_both(|by| unmap_during_a_round(by, Lacks::Nothing));
}

#[test]
#[should_panic(expected = "used after its stamp")]
fn mutant_the_epoch_is_read_without_a_fence() {
    explore(None, || unmap_during_a_round(By::FastPath, Lacks::Fences));
}
