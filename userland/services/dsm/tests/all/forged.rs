//! Any messages and events, in any order: no panic, and the invariants of the node stay.

use dyad_dsm::wire::{CONTENTS, HEADER, encode};
use dyad_dsm::{Access, Action, Event, Incarnation, Message, Refusal, Right, Time};
use proptest::prelude::*;

use crate::group::{FRAMES, Log, Node, config, fault_at, node, page, range};
use crate::wire::bodies;

#[derive(Clone, Debug)]
enum Input {
    Bytes { from: u64, bytes: Vec<u8> },
    Local(Event),
    Room(bool),
}

/// A message, as it is, cut, with a changed byte, or twice.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let damage = (0..10u8, any::<prop::sample::Index>(), any::<u8>());
    (bodies(), 0..8u16, damage).prop_map(|(body, incarnation, (damage, at, value))| {
        let incarnation = Incarnation(if incarnation == 0 { 2 } else { 1 });
        let mut bytes = encode(&Message { incarnation, body }).to_vec();
        if body.has_contents() {
            bytes.resize(HEADER + CONTENTS, 0);
        }
        match damage {
            0 => bytes.truncate(at.index(bytes.len())),
            1 => {
                let at = at.index(HEADER);
                bytes[at] = value;
            }
            _ => {}
        }
        bytes
    })
}

fn inputs() -> impl Strategy<Value = Input> {
    let local = (0..8u8, 0..4u8, 0..20u64, any::<bool>(), 0..4usize, 1..20u64);
    let local = local.prop_map(|(kind, thread, p, writes, n, pages)| {
        let want = [Access::Read, Access::Write][usize::from(writes)];
        let range = range(p, pages);
        match kind {
            0..3 => Event::Fault {
                thread: crate::group::thread(thread * 21),
                page: page(p),
                want,
                pc: pages,
            },
            3 => Event::Expired { page: page(p) },
            4 => Event::Room { to: node(n) },
            5 => Event::Map { range },
            6 => Event::Unmap { range },
            // Deaths would end most runs early.
            _ if pages > 2 => fault_at(1, p, want, 1),
            _ if writes => Event::Down { node: node(n) },
            _ => Event::Up {
                node: node(n),
                incarnation: Incarnation(2),
            },
        }
    });
    prop_oneof![
        6 => (0..4u64, bytes()).prop_map(|(from, bytes)| Input::Bytes { from, bytes }),
        3 => local.prop_map(Input::Local),
        1 => any::<bool>().prop_map(Input::Room),
    ]
}

/// What one node must keep, whatever it is told.
fn check(n: &Node, log: &Log) {
    let table = n.table();
    let records = || (0..table.places()).filter_map(|i| n.record(table.page_at(i)?));
    let frames = records().filter(|r| r.frame).count() as u32;
    assert_eq!(n.free_frames() + frames, FRAMES, "frames are lost");
    for r in records() {
        assert!(r.right == Right::None || r.frame && r.leaf, "{r:?}");
        assert!(r.waiters == 0 || r.pend.is_some(), "{r:?}");
        assert!(r.pend.is_none() || r.waiters != 0, "{r:?}");
        assert!(r.deferred.is_none() || r.right != Right::None, "{r:?}");
        assert!(r.busy.is_some() || r.queue.is_empty(), "{r:?}");
        assert!(r.busy.is_none_or(|b| !b.wait.is_empty()), "{r:?}");
    }
    for (i, action) in log.actions.iter().enumerate() {
        if let Action::CopyOut { to: copied, .. } = action {
            let next = log.actions.get(i + 1);
            let sent = |a| matches!(a, &Action::Send { to, message } if to == *copied && message.body.has_contents());
            assert!(next.is_some_and(sent), "{:?}", log.actions);
        }
    }
}

fn run(me: usize, inputs: Vec<Input>) {
    let mut n = Node::new(config(me, None));
    let mut log = Log {
        actions: Vec::new(),
        room: [100; 3],
        not_resumed: 0,
    };
    let mut refused = 0;
    for (i, input) in inputs.into_iter().enumerate() {
        log.actions.clear();
        let now = Time(i as u64 * 700);
        let done: Result<(), Refusal> = match input {
            Input::Bytes { from, bytes } => {
                let from = node(from as usize);
                n.receive(now, from, &bytes, &mut log)
            }
            Input::Local(event) => n.step(now, event, &mut log),
            Input::Room(room) => {
                log.room = [if room { 100 } else { 0 }; 3];
                Ok(())
            }
        };
        refused += u64::from(done.is_err());
        check(&n, &log);
    }
    assert!(n.counters().refusals() >= refused);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(dyad_tier::size(300, 10_000, 200_000)))]

    #[test]
    fn a_holder_stands_whatever_comes(inputs in prop::collection::vec(inputs(), 1..80)) {
        run(1, inputs);
    }

    #[test]
    fn the_origin_stands_whatever_comes(inputs in prop::collection::vec(inputs(), 1..80)) {
        run(0, inputs);
    }
}
