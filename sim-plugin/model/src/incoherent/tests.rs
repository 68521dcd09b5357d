//! Against a naive memory that holds real bytes, and the cases that the rules are made for.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::access::Sink;
use super::shape::WORDS;
use super::*;
use crate::config::Pool;

const BASE: u64 = 0x40_0000_0000;

#[derive(Default)]
struct Seen {
    findings: Vec<Finding>,
    pending: Vec<Pending>,
}

impl Sink for Seen {
    fn finding(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
    fn pending(&mut self, pending: Pending) {
        self.pending.push(pending);
    }
}

struct Rig {
    shape: Shape,
    words: Vec<AtomicU64>,
    seen: Seen,
}

impl Rig {
    fn new(nodes: usize) -> Rig {
        let pool = Pool {
            base: BASE,
            size: 128,
        };
        let shape = Shape::new(nodes, &[pool]).unwrap();
        let words = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        Rig {
            shape,
            words,
            seen: Seen::default(),
        }
    }

    fn with(&mut self, f: impl FnOnce(Incoherent<'_>, &mut Seen)) -> &mut Rig {
        f(Incoherent::new(&self.shape, &self.words), &mut self.seen);
        self
    }

    fn load(&mut self, node: u8, word: u64, value: u64) -> &mut Rig {
        self.with(|m, s| m.load(who(node, 1), BASE + 8 * word, 8, value as u128, s))
    }

    fn store(&mut self, node: u8, word: u64, value: u64) -> &mut Rig {
        self.with(|m, s| m.store(who(node, 2), BASE + 8 * word, 8, value as u128, s))
    }

    fn rmw(&mut self, node: u8, word: u64, old: u64, new: u64) -> &mut Rig {
        self.with(|m, s| m.modify(who(node, 3), BASE + 8 * word, 8, old, Some(new), s))
    }

    fn write_back(&mut self, node: u8) -> &mut Rig {
        self.with(|m, s| m.write_back(who(node, 4), BASE, s))
    }

    fn flush(&mut self, node: u8) -> &mut Rig {
        self.with(|m, s| m.flush(who(node, 5), BASE, s))
    }

    /// Kinds of what has been found, pending ones included, since the last call.
    fn kinds(&mut self) -> Vec<Kind> {
        let seen = std::mem::take(&mut self.seen);
        let pending = seen.pending.iter().map(|p| p.finding.kind);
        seen.findings
            .iter()
            .map(|f| f.kind)
            .chain(pending)
            .collect()
    }
}

fn who(node: u8, pc: u64) -> Who {
    Who { node, cpu: 0, pc }
}

#[test]
fn a_copy_that_is_not_dropped_is_stale() {
    let mut r = Rig::new(2);
    r.load(1, 3, 0).store(0, 3, 7).write_back(0);
    r.load(1, 4, 0);
    assert_eq!(r.kinds(), [], "another word has changed");
    r.load(1, 3, 7);
    let found = r.seen.findings[0];
    assert_eq!(r.kinds(), [Kind::StaleRead]);
    assert_eq!((found.who, found.writer), (who(1, 1), Some(who(0, 2))));
    assert_eq!((found.fetched, found.at), (Some(who(1, 1)), BASE + 24));
    assert_eq!((found.old, found.new), (0, 7));
    r.flush(1).load(1, 3, 7);
    assert_eq!(r.kinds(), []);
    r.store(0, 3, 0).write_back(0).store(0, 3, 7).write_back(0);
    r.load(1, 3, 7);
    assert_eq!(r.kinds(), [], "the bytes are the same");
}

#[test]
fn a_node_that_is_switched_on_has_no_copies() {
    let on = |r: &mut Rig, node| {
        r.with(|m, _| m.switch_on(node));
    };
    let mut r = Rig::new(2);
    on(&mut r, 0);
    on(&mut r, 1);
    // It dies with a line that it has stored to, and another node has changed.
    r.store(1, 0, 1).store(1, 1, 2);
    r.rmw(0, 0, 0, 5);
    on(&mut r, 1);
    r.load(1, 0, 5).store(1, 2, 3).write_back(1);
    assert_eq!(r.kinds(), [], "neither stale nor lost");
    r.load(0, 0, 5).load(0, 2, 3).load(0, 1, 2);
    assert_eq!(r.kinds(), [], "what it had stored last is in memory");
    // And without having been switched on, both would be.
    r.flush(0).rmw(0, 0, 5, 6).load(1, 0, 6);
    assert_eq!(r.kinds(), [Kind::StaleRead]);
    r.flush(1).store(1, 0, 7).rmw(0, 0, 6, 8).store(1, 1, 1);
    r.write_back(1);
    assert_eq!(r.kinds(), [Kind::LostUpdate]);
}

#[test]
fn who_has_died_owes_nothing() {
    let mut r = Rig::new(2);
    r.store(1, 0, 1).load(0, 0, 1);
    let owed = r.seen.pending[0];
    assert_eq!(r.kinds(), [Kind::Unpublished]);
    r.with(|m, _| assert_eq!(m.settle(&owed), Settled::Open));
    r.with(|m, _| m.switch_on(1));
    for i in 0..2 * GRACE {
        r.store(1, 7, i);
    }
    r.with(|m, _| assert_eq!(m.settle(&owed), Settled::Published));
    // Nor does its copy hide what has been written since.
    r.flush(0).store(0, 0, 2).write_back(0).load(1, 0, 2);
    assert_eq!(r.kinds(), [Kind::StaleRead], "it has fetched the line anew");
    r.with(|m, _| m.switch_on(1)).load(1, 0, 2);
    assert_eq!(r.kinds(), []);
}

#[test]
fn a_copy_is_late_two_rounds_after_the_change() {
    let mut r = Rig::new(2);
    let round = |r: &mut Rig, node| {
        r.with(|m, _| m.round_done(node));
    };
    for _ in 0..3 {
        round(&mut r, 1);
    }
    r.load(1, 0, 0).store(0, 0, 1).write_back(0);
    for rounds in 0..4 {
        r.load(1, 0, 1);
        assert_eq!(r.seen.findings[0].late, rounds >= 2, "{rounds}");
        assert_eq!(r.kinds(), [Kind::StaleRead]);
        // Rounds of others do not count.
        round(&mut r, 0);
        round(&mut r, 1);
        round(&mut r, 0);
    }
    r.rmw(0, 0, 1, 2).load(1, 0, 2);
    assert!(!r.seen.findings[0].late, "it has just changed again");
}

#[test]
fn what_is_read_before_it_is_written_back_has_to_be_soon() {
    for publish in [true, false] {
        let mut r = Rig::new(2);
        r.store(0, 0, 1).store(0, 1, 2);
        r.load(1, 0, 1).load(1, 1, 2);
        let pending = r.seen.pending[0];
        assert_eq!(
            r.kinds(),
            [Kind::Unpublished],
            "the line was there as a whole"
        );
        r.with(|m, _| assert_eq!(m.settle(&pending), Settled::Open));
        if publish {
            r.write_back(0);
        }
        for _ in 0..=GRACE {
            r.load(0, 5, 0);
        }
        let expected = if publish {
            Settled::Published
        } else {
            Settled::Never
        };
        r.with(|m, _| assert_eq!(m.settle(&pending), expected));
        r.load(1, 0, 1);
        assert_eq!(r.kinds(), []);
    }
}

#[test]
fn a_copy_from_before_the_store_is_stale_whether_that_is_published_or_not() {
    let mut r = Rig::new(2);
    r.load(1, 0, 0).store(0, 0, 1).load(1, 0, 1);
    assert_eq!(r.kinds(), [Kind::StaleRead]);
}

#[test]
fn writing_a_line_back_takes_neighbours_back() {
    let mut r = Rig::new(2);
    r.store(0, 0, 1).store(1, 1, 2).write_back(1).write_back(0);
    let found = r.seen.findings[0];
    assert_eq!(r.kinds(), [Kind::LostUpdate]);
    assert_eq!((found.who, found.writer), (who(0, 4), Some(who(1, 2))));
    assert_eq!((found.at, found.old, found.new), (BASE + 8, 0, 2));
    // A read-modify-write by another node is as good as a store.
    let mut r = Rig::new(2);
    r.store(0, 0, 1).rmw(1, 1, 0, 4).flush(0);
    assert_eq!(r.kinds(), [Kind::LostUpdate]);
    // The same word: what was stored first comes last.
    let mut r = Rig::new(2);
    r.store(0, 0, 1).store(1, 0, 2).write_back(1).write_back(0);
    assert_eq!(r.kinds(), [Kind::LostUpdate]);
    let mut r = Rig::new(2);
    r.store(0, 0, 1).store(1, 0, 2).write_back(0).write_back(1);
    assert_eq!(r.kinds(), [], "in their order");
}

#[test]
fn modifying_what_is_cached_is_found() {
    let mut r = Rig::new(2);
    r.flush(0).rmw(0, 0, 0, 1).rmw(0, 0, 1, 2);
    assert_eq!(r.kinds(), []);
    r.load(0, 0, 2).rmw(0, 0, 2, 3);
    assert_eq!(r.kinds(), [Kind::CachedRmw]);
    // Another CPU of the node may have fetched it between the flush and the read-modify-write.
    r.load(0, 0, 3);
    let other = Who {
        cpu: 1,
        ..who(0, 3)
    };
    r.with(|m, s| m.modify(other, BASE, 8, 3, Some(4), s));
    assert_eq!(r.kinds(), []);
}

#[test]
fn values_of_unknown_origin_are_no_findings() {
    let mut r = Rig::new(2);
    // The launcher has written 5, then 6.
    r.load(0, 0, 5).load(0, 0, 5).flush(0).load(0, 0, 6);
    assert_eq!(r.kinds(), []);
    // Another CPU's store whose report is on the way.
    r.store(0, 0, 7).load(0, 0, 8);
    assert_eq!(r.kinds(), []);
}

#[test]
fn a_change_at_memory_to_what_is_not_known_is_seen_all_the_same() {
    let mut r = Rig::new(2);
    r.load(1, 0, 0);
    r.with(|m, s| m.modify(who(0, 3), BASE, 8, 0, None, s));
    r.load(1, 0, 0);
    assert_eq!(r.kinds(), [], "it has not succeeded");
    r.with(|m, s| m.modify(who(0, 3), BASE, 8, 0, None, s));
    r.load(1, 0, 9);
    assert_eq!(r.kinds(), [Kind::StaleRead]);
}

#[test]
fn accesses_are_taken_apart_by_word_and_byte() {
    let mut r = Rig::new(2);
    // Sixteen bytes, over the end of the line: its last word and the next one's first.
    let value = 0x1111_2222_3333_4444_5555_6666_7777_8888u128;
    r.with(|m, s| m.store(who(0, 2), BASE + 56, 16, value, s));
    r.with(|m, s| {
        m.write_back(who(0, 4), BASE, s);
        m.write_back(who(0, 4), BASE + 64, s);
        m.load(who(1, 1), BASE + 60, 8, 0x3333_4444_5555_6666, s);
        m.load(who(1, 1), BASE + 71, 1, 0x11, s);
    });
    r.with(|m, s| m.store(who(0, 2), BASE + 71, 1, 0x99, s));
    r.write_back(0).with(|m, s| {
        m.write_back(who(0, 4), BASE + 64, s);
        m.load(who(1, 1), BASE + 64, 4, 0x3333_4444, s);
        m.load(who(1, 1), BASE + 68, 2, 0x2222, s);
    });
    assert_eq!(r.kinds(), [], "bytes that have not changed");
    r.with(|m, s| m.load(who(1, 1), BASE + 70, 2, 0x9911, s));
    assert_eq!(r.kinds(), [Kind::StaleRead]);
    r.with(|m, s| m.load(who(1, 1), BASE + 4096, 8, 1, s));
    assert_eq!(r.kinds(), [], "in no pool");
}

/// A word and how many stores there had been when it was stored.
type Stamped = (u64, u64);

#[derive(Clone, Copy)]
struct Copy {
    words: [Stamped; WORDS],
    dirty: [bool; WORDS],
}

/// What the machines would have: bytes in memory and in caches.
struct Naive {
    memory: [Stamped; WORDS],
    /// What the emulator has.
    coherent: [Stamped; WORDS],
    copies: Vec<Option<Copy>>,
    stores: u64,
    /// What differs.
    wrong: Vec<Kind>,
}

impl Naive {
    fn new(nodes: usize) -> Naive {
        Naive {
            memory: [(0, 0); WORDS],
            coherent: [(0, 0); WORDS],
            copies: vec![None; nodes],
            stores: 0,
            wrong: Vec::new(),
        }
    }

    fn fetch(&mut self, node: usize) -> &mut Copy {
        let memory = self.memory;
        self.copies[node].get_or_insert(Copy {
            words: memory,
            dirty: [false; WORDS],
        })
    }

    fn load(&mut self, node: usize, word: usize) {
        let fresh = self.copies[node].is_none();
        let got = self.fetch(node).words[word].0;
        if got == self.coherent[word].0 {
            return;
        }
        if fresh {
            self.wrong.push(Kind::Unpublished);
            self.evict_writer(word);
            self.copies[node] = None;
            self.fetch(node);
        } else {
            self.wrong.push(Kind::StaleRead);
        }
    }

    /// The node with the newest value of a word evicts its line to memory.
    fn evict_writer(&mut self, word: usize) {
        let newest = self.coherent[word];
        let holds = |c: &&mut Option<Copy>| c.is_some_and(|c| c.words[word] == newest);
        let writer = self
            .copies
            .iter_mut()
            .find(holds)
            .unwrap()
            .as_mut()
            .unwrap();
        for w in 0..WORDS {
            if writer.dirty[w] && writer.words[w].1 > self.memory[w].1 {
                writer.dirty[w] = false;
                self.memory[w] = writer.words[w];
            }
        }
    }

    fn store(&mut self, node: usize, word: usize, value: u64) {
        self.stores += 1;
        let new = (value, self.stores);
        let copy = self.fetch(node);
        copy.words[word] = new;
        copy.dirty[word] = true;
        self.coherent[word] = new;
    }

    fn rmw(&mut self, node: usize, word: usize, value: u64) {
        if self.copies[node].is_some() {
            self.wrong.push(Kind::CachedRmw);
            self.flush(node);
        }
        if self.memory[word].0 != self.coherent[word].0 {
            self.wrong.push(Kind::Unpublished);
            self.evict_writer(word);
        }
        self.stores += 1;
        self.memory[word] = (value, self.stores);
        self.coherent[word] = (value, self.stores);
    }

    /// How many other nodes have stored to a word.
    fn dirty(&self, word: usize, node: usize) -> usize {
        let others = self.copies.iter().enumerate().filter(|c| c.0 != node);
        others
            .filter(|c| c.1.is_some_and(|c| c.dirty[word]))
            .count()
    }

    /// The whole line goes to memory.
    fn write_back(&mut self, node: usize) {
        let Some(copy) = self.copies[node].as_mut() else {
            return;
        };
        if copy.dirty.iter().all(|d| !d) {
            return;
        }
        for w in 0..WORDS {
            let (mine, memory) = (copy.words[w], self.memory[w]);
            if mine.1 < memory.1 {
                if mine.0 != memory.0 {
                    self.wrong.push(Kind::LostUpdate);
                }
                // Only said: the program goes on with what it has.
                copy.words[w] = memory;
            } else {
                self.memory[w] = mine;
            }
            copy.dirty[w] = false;
        }
    }

    fn flush(&mut self, node: usize) {
        self.write_back(node);
        self.copies[node] = None;
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Load(usize),
    Store(usize, u64),
    Rmw(usize, u64),
    WriteBack,
    Flush,
    Everything,
}

fn ops(nodes: usize) -> impl Strategy<Value = Vec<(usize, Op)>> {
    let word = 0..3usize;
    let op = prop_oneof![
        6 => word.clone().prop_map(Op::Load),
        3 => (word.clone(), 0..3u64).prop_map(|(w, v)| Op::Store(w, v)),
        1 => (word, 0..3u64).prop_map(|(w, v)| Op::Rmw(w, v)),
        2 => Just(Op::WriteBack),
        2 => Just(Op::Flush),
        1 => Just(Op::Everything),
    ];
    prop::collection::vec((0..nodes, op), 1..60)
}

/// Plays the same on both, and compares after each step. Of three nodes only two have stored to a
/// word at a time, and different values: who was the last of them is known, not who was the second.
fn same(nodes: usize, ops: &[(usize, Op)]) -> Result<(), TestCaseError> {
    let mut naive = Naive::new(nodes);
    let mut rig = Rig::new(nodes);
    for (i, &(node, op)) in ops.iter().enumerate() {
        let n = node as u8;
        let own = |v: u64| if nodes > 2 { v * 4 + n as u64 } else { v };
        match op {
            Op::Load(w) => {
                naive.load(node, w);
                rig.load(n, w as u64, naive.coherent[w].0);
            }
            Op::Store(w, _) if naive.dirty(w, node) > 1 => {}
            Op::Store(w, v) => {
                naive.store(node, w, own(v));
                rig.store(n, w as u64, own(v));
            }
            Op::Rmw(w, v) => {
                let old = naive.coherent[w].0;
                naive.rmw(node, w, own(v));
                rig.rmw(n, w as u64, old, own(v));
            }
            Op::WriteBack => {
                naive.write_back(node);
                rig.write_back(n);
            }
            Op::Flush => {
                naive.flush(node);
                rig.flush(n);
            }
            // What it leads to is reported when somebody comes to the line.
            Op::Everything => {
                naive.flush(node);
                rig.with(|m, _| m.flush_everything(who(n, 6)));
                rig.with(|m, s| m.write_back(who(n, 6), BASE, s));
            }
        }
        let (mut expected, mut found) = (std::mem::take(&mut naive.wrong), rig.kinds());
        expected.sort();
        found.sort();
        prop_assert_eq!(&expected, &found, "step {}: {:?} of node {}", i, op, node);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reports_what_real_caches_would_do_with_two_nodes(ops in ops(2)) {
        same(2, &ops)?;
    }

    #[test]
    fn reports_what_real_caches_would_do_with_three_nodes(ops in ops(3)) {
        same(3, &ops)?;
    }
}
