//! A peer that writes anything anywhere: nothing is read or written outside of the layer, nothing
//! panics, no call runs for ever; and the layer works again after repair.

use crate::common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Node, Threads};
use dyad_msg::words::{Line, Words, lines};
use dyad_msg::{Config, Error, Level, Mode, Station};
use proptest::prelude::*;

/// Memory that counts accesses. Those to words that it has not panic.
struct Watched {
    words: Arc<[Line]>,
    accesses: Cell<u64>,
}

impl Watched {
    fn see(&self, at: u64) {
        assert!(at < self.words.count(), "word {at}");
        self.accesses.set(self.accesses.get() + 1);
    }
}

impl Words for &Watched {
    fn count(&self) -> u64 {
        self.words.count()
    }
    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.see(at);
        self.words.load(at, order)
    }
    fn store(&self, at: u64, value: u64, order: Ordering) {
        self.see(at);
        self.words.store(at, value, order);
    }
    fn or(&self, at: u64, bits: u64) -> u64 {
        self.see(at);
        self.words.or(at, bits)
    }
    fn and(&self, at: u64, bits: u64) -> u64 {
        self.see(at);
        self.words.and(at, bits)
    }
    fn swap(&self, at: u64, value: u64) -> u64 {
        self.see(at);
        self.words.swap(at, value)
    }
    fn fence(&self) {}
}

const CONFIG: Config = Config {
    lines: Config::MIN_LINES,
    groups: 2,
    group_lines: Config::MIN_LINES,
    ..Config::new(2)
};

#[derive(Clone, Debug)]
enum Step {
    /// The peer writes a word.
    Write(u64, u64),
    /// It goes on with what it should.
    PeerSends(usize),
    PeerReceives,
    Send(usize),
    Receive,
    Call,
    Multicast(usize),
    Join,
}

/// Words that matter are few: the first ones of lines, and small or extreme values.
fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        any::<u64>(),
        0..300u64,
        (0..300u64).prop_map(|n| n.wrapping_neg()),
        (0..4u64, 0..5000u64).prop_map(|(flags, len)| flags << 40 | len),
    ];
    let line = 1..CONFIG.memory_lines() as u64;
    prop_oneof![
        4 => (line, prop_oneof![3 => Just(0u64), 1 => 0..8u64], value)
            .prop_map(|(line, word, value)| Step::Write(8 * line + word, value)),
        2 => (0..5000usize).prop_map(Step::PeerSends),
        1 => Just(Step::PeerReceives),
        2 => (0..5000usize).prop_map(Step::Send),
        4 => Just(Step::Receive),
        1 => Just(Step::Call),
        1 => (0..5000usize).prop_map(Step::Multicast),
        1 => Just(Step::Join),
    ]
}

fn station<'a>(w: &'a Watched, threads: &Threads, n: usize) -> Station<&'a Watched, Node> {
    Station::open(w, threads.node(n), n, Mode::Polling).expect("the layout is whole")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_a_peer_writes_does_harm(steps in prop::collection::vec(step(), 1..200)) {
        let w = Watched {
            words: lines(CONFIG.memory_lines()),
            accesses: Cell::new(0),
        };
        CONFIG.format(&&w).unwrap();
        let threads = Threads::new(2);
        threads.set_time(1_000);
        let mut own = station(&w, &threads, 0);
        let mut peer = station(&w, &threads, 1);
        own.open_group(0).unwrap();
        peer.open_group(1).unwrap();
        peer.join(0).unwrap();
        let mut got = vec![];
        for step in steps {
            w.accesses.set(0);
            match step {
                Step::Write(at, value) => w.words.store(at, value, Ordering::Relaxed),
                Step::PeerSends(len) => {
                    let _ = peer.try_send(0, Level::Normal, 0, &vec![1; len]);
                    let _ = peer.try_multicast(1, 0, &vec![2; len]);
                }
                Step::PeerReceives => drop(peer.try_recv(&mut got)),
                Step::Send(len) => drop(own.send(1, Level::Normal, 0, &vec![3; len], Some(0))),
                Step::Receive => match own.try_recv(&mut got) {
                    Err(Error::Corrupt { station }) => drop(own.repair(station)),
                    Ok(Some(e)) => prop_assert!(e.from < 2 && got.len() <= 65536),
                    _ => {}
                },
                Step::Call => {
                    let _ = own.call(1, Level::Urgent, 0, &[], &mut got, Some(0));
                }
                Step::Multicast(len) => drop(own.multicast(0, 0, &vec![4; len], Some(0))),
                Step::Join => drop(own.join(1)),
            }
            // At most all rings are read once.
            prop_assert!(w.accesses.get() < 40_000, "{} accesses", w.accesses.get());
        }
        // Somebody clears the memory up, and it goes on.
        let fresh = lines(CONFIG.memory_lines());
        for at in 8..w.words.count() {
            w.words.store(at, fresh.load(at, Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut own = station(&w, &threads, 0);
        let mut peer = station(&w, &threads, 1);
        own.try_send(1, Level::Normal, 77, b"again").unwrap();
        prop_assert_eq!(peer.try_recv(&mut got).unwrap().unwrap().tag, 77);
    }
}

#[test]
fn impossible_indices_and_headers_are_corrupt_and_repaired() {
    let w = Watched {
        words: lines(CONFIG.memory_lines()),
        accesses: Cell::new(0),
    };
    CONFIG.format(&&w).unwrap();
    let threads = Threads::new(2);
    threads.set_time(1_000);
    let mut own = station(&w, &threads, 0);
    let mut got = vec![];
    let corrupt = Err(Error::Corrupt { station: 1 });
    // The ring of normal messages from station 1 to 0: behind the stations' lines.
    let ring = 8 + 2 * 24 + (2 * 4 + 2) * dyad_msg::ring::ring_words(CONFIG.lines);
    let tail = |value| w.words.store(ring, value, Ordering::Relaxed);
    let mut sends = |own: &mut Station<_, _>, value| {
        tail(value);
        w.words.or(8, 2);
        let first = own.try_recv(&mut got);
        // It is said once; then the ring is not looked at any more.
        assert_eq!(own.try_recv(&mut got), Ok(None));
        tail(0);
        own.repair(1).unwrap();
        first
    };
    assert_eq!(sends(&mut own, CONFIG.lines + 1), corrupt);
    assert_eq!(sends(&mut own, u64::MAX), corrupt);
    // A header of more lines than there are; of an unknown kind; with unknown flags; to be seen in
    // a year.
    let header = ring + 16;
    for word in [4096, 9 << 32, 0xff << 40, 1 << 48, u64::MAX, 5000] {
        w.words.store(header, word, Ordering::Relaxed);
        assert_eq!(sends(&mut own, 1), corrupt, "{word:#x}");
    }
    w.words.store(header, 1 << 40, Ordering::Relaxed);
    w.words.store(header + 2, 1 << 60, Ordering::Relaxed);
    assert_eq!(sends(&mut own, 1), corrupt);
    // A head that is ahead of the tail.
    let mut peer = station(&w, &threads, 1);
    let to_peer = 8 + 2 * 24 + (4 + 2) * dyad_msg::ring::ring_words(CONFIG.lines);
    w.words.store(to_peer + 8, 5, Ordering::Relaxed);
    assert_eq!(
        own.try_send(1, Level::Normal, 0, &[]),
        Err(Error::Corrupt { station: 1 })
    );
    let _ = peer.try_recv(&mut got);
}

#[test]
fn nothing_is_looked_at_while_nothing_comes_in() {
    let w = Watched {
        words: lines(CONFIG.memory_lines()),
        accesses: Cell::new(0),
    };
    CONFIG.format(&&w).unwrap();
    let threads = Threads::new(2);
    let mut own = station(&w, &threads, 0);
    let mut peer = station(&w, &threads, 1);
    let mut got = vec![];
    peer.try_send(0, Level::Bulk, 0, &[]).unwrap();
    while own.try_recv(&mut got).unwrap().is_some() {}
    w.accesses.set(0);
    assert_eq!(own.try_recv(&mut got), Ok(None));
    assert_eq!(w.accesses.get(), 1);
}
