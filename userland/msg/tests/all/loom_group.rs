//! Model checks of multicast: members get what is written after they have joined, whole and in
//! order; who is put out notices; and each fence is needed, shown by taking it away.

use crate::common;

use std::sync::Arc;

use common::Loom;
use dyad_coherence::model::mutant::{Kind, Orders, try_each};
use dyad_coherence::model::{Lacks, LoomMem, explore};
use dyad_msg::group::{GroupPlace, Member, MemberError, Writer, group_words};
use dyad_msg::record::{self, Header};
use loom::thread;

const LINES: u64 = 2;
const PLACE: GroupPlace = GroupPlace::new(0, LINES);

fn memory(orders: &Orders) -> Arc<Loom> {
    let lines = group_words(LINES) - 8 * LINES;
    // Tail, members, and the head that a former member 0 has left; of each line the first word, the
    // tag and the contents.
    let words = (0..LINES).flat_map(|l| [0, 3, 4].map(|word| lines + 8 * l + word));
    let tracked: Vec<_> = [(0, 0), (8 * 8, 0), (8 * 16, 77)]
        .into_iter()
        .chain(words.map(|word| (8 * word, 0)))
        .collect();
    let plain: Vec<_> = (0..group_words(LINES))
        .map(|word| 8 * word)
        .filter(|at| !tracked.iter().any(|t| t.0 == *at))
        .collect();
    Arc::new(Loom(
        LoomMem::new(Lacks::Nothing, &tracked, &plain).with_orders(orders),
    ))
}

fn push(writer: &mut Writer, w: &Loom, n: u64) -> bool {
    let header = Header::new(record::Kind::Message, n, n, 8);
    writer.push(w, &header, &n.to_le_bytes()).is_ok()
}

/// What a member gets is a part of what was written, without gaps.
fn read(member: &mut Member, w: &Loom, last: &mut u64) -> Result<bool, MemberError> {
    let Some(header) = member.peek(w)? else {
        return Ok(false);
    };
    assert_eq!(header.tag, header.id, "torn");
    let mut bytes = vec![];
    member.pop(w, &mut bytes)?;
    assert_eq!(bytes, header.tag.to_le_bytes(), "torn");
    assert!(*last == 0 || header.tag == *last + 1, "lost or stale");
    *last = header.tag;
    Ok(true)
}

/// A member joins while the writer writes.
fn join(orders: &Orders, count: u64) {
    let w = memory(orders);
    let mut writer = Writer::attach(&*w, PLACE, 0);
    let sender = {
        let w = w.clone();
        thread::spawn(move || {
            let mut sent = 0;
            for n in 1..=count {
                if !push(&mut writer, &w, n) {
                    break;
                }
                sent = n;
            }
            sent
        })
    };
    let mut member = Member::join(&*w, PLACE, 0);
    let mut last = 0;
    for _ in 0..2 {
        read(&mut member, &w, &mut last).expect("it is a member");
    }
    let sent = sender.join().unwrap();
    while read(&mut member, &w, &mut last).expect("it is a member") {}
    assert!(last == 0 || last == sent, "lost");
}

#[test]
fn who_joins_gets_all_that_comes_afterwards() {
    explore(Some(3), || join(&Orders::all(), 4));
}

#[test]
fn who_is_put_out_notices() {
    explore(Some(3), || put_out(&Orders::all()));
}

/// The writer puts a member out that is reading, and writes over what it reads.
fn put_out(orders: &Orders) {
    let w = memory(orders);
    let mut writer = Writer::attach(&*w, PLACE, 0);
    let mut member = Member::join(&*w, PLACE, 0);
    assert!(push(&mut writer, &w, 1) && push(&mut writer, &w, 2));
    let sender = {
        let w = w.clone();
        thread::spawn(move || {
            writer.put_out(&*w, 1);
            // Two lines, of which the second looks like no header.
            let header = Header::new(record::Kind::Message, 3, 3, 40);
            assert!(writer.push(&*w, &header, &[0xff; 40]).is_ok());
        })
    };
    let mut last = 0;
    let mut outcome = Ok(true);
    for _ in 0..2 {
        if outcome == Ok(true) {
            outcome = read(&mut member, &w, &mut last);
        }
    }
    sender.join().unwrap();
    assert!(last <= 2, "got what was not for it");
    if outcome.is_ok() {
        outcome = read(&mut member, &w, &mut last);
    }
    assert_eq!(outcome, Err(MemberError::PutOut));
}

#[test]
fn every_fence_and_order_is_needed() {
    let verdict = try_each(|orders| {
        let both = orders.clone();
        explore(Some(3), move || join(&both, 4));
        let both = orders.clone();
        explore(Some(3), move || put_out(&both));
    });
    let named = |kind: Kind| {
        verdict
            .caught
            .iter()
            .filter(move |s| s.kind == kind)
            .count()
    };
    assert_eq!(named(Kind::Fence), 4, "{:?}", verdict.caught);
    assert_eq!(named(Kind::Release), 1, "{:?}", verdict.caught);
    assert_eq!(named(Kind::Acquire), 2, "{:?}", verdict.caught);
    // The store of a head and the load that pairs with it order loads before a later store, whose
    // exchange loom does not explore.
    let survived: Vec<_> = verdict.survived.iter().map(|s| s.kind).collect();
    assert_eq!(survived, [Kind::Acquire, Kind::Release]);
}
