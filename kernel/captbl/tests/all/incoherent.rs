//! Capability tables between nodes without coherent caches: rows see what is so in
//! memory, lookups what was so at most one round ago, and no write-back undoes anything. The
//! register of mutants leaves out each flush and each entry in the log.

use crate::common;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::{Mutex, MutexGuard};

use common::*;
use dyad_captbl::{Log, Refused, RootEntry, SlotHeader, Table};
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::{Flushes, Mutant};
use dyad_coherence::stale::{Fault, StaleMem, StaleNode, Task, pause};
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::IntentRecord;
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents};

const SEEDS: u64 = if cfg!(miri) { 2 } else { 40 };
const STEPS: u64 = 40_000;
/// Nodes 0 and 1 live; 2 dies.
const NODES: usize = 3;
/// The cache of whatever carries out read-modify-writes, in between the nodes.
const FABRIC: usize = NODES;

type Outcome = Result<(), String>;

/// Memory of which every node has old copies.
fn memory(seed: u64) -> StaleMem {
    let mem = StaleMem::new(NODES + 1, seed);
    for n in 0..NODES {
        for slot in 1..4 {
            mem.node(n).load(place(LEAF, slot).address(), Relaxed);
        }
        mem.node(n).load(entry_place(3), Relaxed);
        mem.node(n).load(frame(LIVENESS).address(), Relaxed);
    }
    mem
}

/// A node whose read-modify-writes are carried out elsewhere: they do not write its own copy of the
/// line back before, but it is dropped afterwards. So what has not been written back in time undoes
/// them.
#[derive(Clone, Copy)]
struct Far<'m> {
    own: StaleNode<'m>,
    fabric: StaleNode<'m>,
}

impl<'m> Far<'m> {
    fn node(mem: &'m StaleMem, n: usize) -> Far<'m> {
        Far {
            own: mem.node(n),
            fabric: mem.node(FABRIC),
        }
    }

    fn then_drop<T>(&self, at: PhysAddr, result: T) -> T {
        self.own.invalidate(at, 8);
        result
    }
}

impl GlobalMem for Far<'_> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.own.contains(at, len)
    }

    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.own.load(at, order)
    }

    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.own.store(at, value, order);
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.then_drop(at, self.fabric.cas(at, old, new))
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.then_drop(at, self.fabric.swap(at, value))
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.then_drop(at, self.fabric.add(at, n))
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.then_drop(at, self.fabric.or(at, bits))
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.then_drop(at, self.fabric.and(at, bits))
    }

    fn fence(&self) {
        self.own.fence();
    }

    fn writeback(&self, at: PhysAddr, len: u64) {
        self.own.writeback(at, len);
    }

    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.own.invalidate(at, len);
    }

    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.own.load_fresh(at, order)
    }
}

/// Epochs, publications and logs: what is right without a test here.
#[derive(Debug, Default)]
struct Book {
    now: u64,
    published: [u64; 2],
    lines: Vec<PhysAddr>,
    read: [usize; 2],
}

struct Rounds<'m> {
    mem: &'m StaleMem,
    book: Mutex<Book>,
    /// Everybody goes through a round as soon as a stamp has been taken.
    eager: bool,
    /// Every stamp counts as quiesced.
    quiet: bool,
}

impl<'m> Rounds<'m> {
    fn new(mem: &'m StaleMem) -> Rounds<'m> {
        Rounds {
            mem,
            book: Mutex::new(Book {
                now: 1,
                published: [1; 2],
                ..Book::default()
            }),
            eager: false,
            quiet: false,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// A round of a node that is not in the kernel. The lock is not held while memory is used:
    /// others go on meanwhile.
    fn round(&self, n: usize) {
        let (epoch, lines) = {
            let mut book = self.book();
            book.now += 1;
            let lines = book.lines[book.read[n]..].to_vec();
            book.read[n] = book.lines.len();
            (book.now, lines)
        };
        for line in lines {
            self.mem.node(n).invalidate(line, 8);
        }
        self.book().published[n] = epoch;
    }

    fn rounds(&self) {
        for n in [0, 1, 0] {
            self.round(n);
        }
    }
}

impl EpochSource for Rounds<'_> {
    fn now(&self) -> Epoch {
        let now = self.book().now;
        if self.eager {
            self.rounds();
        }
        Epoch::new(now).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.quiet || self.book().published.iter().all(|&p| p > stamp.get())
    }
}

impl Intents for Rounds<'_> {
    fn begin(&self, _: &IntentRecord) {}

    fn clear(&self) {}
}

impl Log for Rounds<'_> {
    fn line(&self, at: PhysAddr) {
        self.book().lines.push(at);
    }

    fn object(&self, _: dyad_shm::FrameRef) {}
}

fn text<T>(what: &str, result: Result<T, Refused>) -> Result<T, String> {
    result.map_err(|why| format!("{what}: {why}"))
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?}, not {expected:?}"))
    }
}

/// Lookups read old copies, as they may. Nothing may be lost.
fn nothing_undone(mem: &StaleMem) -> Outcome {
    let lost = |f: &Fault| !matches!(f, Fault::StaleRead { .. });
    match mem.faults().iter().find(|f| lost(f)) {
        None => Ok(()),
        Some(fault) => Err(fault.to_string()),
    }
}

/// The capability a node finds.
fn seen<M: GlobalMem>(t: &Table<'_, M>, entry: u32, slot: u32) -> Result<Option<u32>, String> {
    let Ok(found) = t.lookup(frame(ROOT).address(), cap(entry, slot)) else {
        return Ok(None);
    };
    let n = found.rights.0;
    same("contents", t.contents(&found), Ok(sample(n)))?;
    Ok(Some(n))
}

/// A table goes from node to node, each of which must see what the other has done.
fn hand_over(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let rounds = Rounds::new(mem);
    let view = |n| -> Mutant<'_, Far<'_>> { flushes.on(Far::node(mem, n)) };
    let (zero, one, two) = (view(0), view(1), view(2));
    let (a, b) = (table(&zero, 0), table(&one, 1));
    let nodes = Nodes::default();
    let (root, leaf, other) = (weak(ROOT), weak(LEAF), weak(OTHER_LEAF));
    text("cons", a.cons(root, 3, leaf, &nodes, &rounds))?;
    text("fill", a.slot_activate(place(LEAF, 1), &sample(7), &rounds))?;
    rounds.round(1);
    same("after a round", seen(&b, 3, 1)?, Some(7))?;
    // The other node has not been told of these, but rows do not go by what they have been told.
    text("fill", a.slot_activate(place(LEAF, 2), &sample(8), &rounds))?;
    text("empty", b.slot_deactivate(place(LEAF, 2), None, &rounds))?;
    text("cons", a.cons(root, 4, leaf, &nodes, &rounds))?;
    let used = b.cons(root, 4, other, &nodes, &rounds);
    same("cons", used, Err(Refused::Occupied))?;
    text("decons", b.decons(root, 4, &nodes, &rounds))?;
    let early = a.cons(root, 4, other, &nodes, &rounds);
    same("cons", early, Err(Refused::NotQuiesced))?;
    let early = a.slot_activate(place(LEAF, 2), &sample(9), &rounds);
    same("fill", early, Err(Refused::NotQuiesced))?;
    let expected = RootEntry::Empty(Epoch::new(2).unwrap());
    let entry = a.entry(frame(ROOT).address(), 4);
    same("entry", entry, Ok(expected))?;
    rounds.rounds();
    same("after a round", seen(&a, 3, 2)?, None)?;
    same("after a round", seen(&a, 3, 1)?, Some(7))?;
    text("fill", a.slot_activate(place(LEAF, 2), &sample(9), &rounds))?;
    rounds.round(1);
    same("after a round", seen(&b, 3, 2)?, Some(9))?;
    text("decons", b.decons(root, 3, &nodes, &rounds))?;
    rounds.rounds();
    same("after a round", seen(&a, 3, 2)?, None)?;
    text("cons", b.cons(root, 3, other, &nodes, &rounds))?;
    text("cons", b.cons(root, 4, leaf, &nodes, &rounds))?;
    rounds.round(0);
    same("after a round", seen(&a, 3, 2)?, None)?;
    same("after a round", seen(&a, 4, 2)?, Some(9))?;
    // Node 2 dies right after it has filled a slot: no other node has been told.
    let untold = dyad_captbl::Parts {
        epochs: &rounds,
        intents: &rounds,
        log: &Lines(|_| {}),
    };
    let dying = table(&two, 2);
    let filled = dying.slot_activate(place(LEAF, 3), &sample(10), &untold);
    text("fill", filled)?;
    let recovered = b.recover_slot(place(LEAF, 3), owner(2, 1), &rounds);
    same("recover", recovered, Ok(false))?;
    rounds.round(0);
    same("after a recovery", seen(&a, 4, 3)?, Some(10))?;
    same("references", nodes.refs(ROOT), 2)?;
    nothing_undone(mem)
}

/// What one node revokes is dead for the other after a round.
fn revoked(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let rounds = Rounds::new(mem);
    let (zero, one) = (flushes.on(Far::node(mem, 0)), flushes.on(Far::node(mem, 1)));
    let (a, b) = (table(&zero, 0), table(&one, 1));
    let live = |f: WeakRef| f == weak(LIVENESS);
    let guard = text("guard", b.expected(weak(LIVENESS), 1))?;
    same("guard", b.guard_alive(guard, live), Ok(()))?;
    text("revoke", a.revoke(frame(LIVENESS), 1, &rounds))?;
    let next = text("guard", b.expected(weak(LIVENESS), 1))?;
    same("count", next.expected(), guard.expected() + 1)?;
    same("guard", b.guard_alive(next, live), Ok(()))?;
    text("revoke", a.revoke(frame(LIVENESS), 1, &rounds))?;
    rounds.round(1);
    let dead = b.guard_alive(next, live);
    same("after a round", dead, Err(Refused::Revoked))?;
    nothing_undone(mem)
}

/// Everybody goes through a round right after the stamp has been taken: the slot may be filled
/// again, so no lookup may find the old capability.
fn round_at_the_stamp(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let mut rounds = Rounds::new(mem);
    let (zero, one) = (flushes.on(Far::node(mem, 0)), flushes.on(Far::node(mem, 1)));
    let (a, b) = (table(&zero, 0), table(&one, 1));
    let nodes = Nodes::default();
    let cons = |entry, leaf| a.cons(weak(ROOT), entry, weak(leaf), &nodes, &rounds);
    text("cons", cons(3, LEAF))?;
    text("cons", cons(300, LEAF))?;
    text("fill", a.slot_activate(place(LEAF, 1), &sample(7), &rounds))?;
    rounds.rounds();
    for entry in [3, 300] {
        same("found", seen(&b, entry, 1)?, Some(7))?;
    }
    rounds.eager = true;
    let out = text("decons", a.decons(weak(ROOT), 300, &nodes, &rounds))?;
    same("quiesced", rounds.quiesced(out.stamp), true)?;
    same("taken out, and quiesced", seen(&b, 300, 1)?, None)?;
    let stamp = text("empty", a.slot_deactivate(place(LEAF, 1), None, &rounds))?;
    same("quiesced", rounds.quiesced(stamp), true)?;
    same("emptied, and quiesced", seen(&b, 3, 1)?, None)?;
    nothing_undone(mem)
}

/// Both survivors recover the slot of a dead node, and one of them fills it as soon as it can.
fn recover_twice(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let (at, dead) = (place(LEAF, 1), owner(2, 1));
    let closing = SlotHeader::Closing(dead).bits();
    same("start", mem.node(2).cas(at.address(), 0, closing), Ok(0))?;
    let rounds = Rounds {
        quiet: true,
        ..Rounds::new(mem)
    };
    let (recovered, filled) = (AtomicU32::new(0), AtomicU32::new(0));
    let task = |n: usize| -> Task<'_> {
        let (rounds, recovered, filled) = (&rounds, &recovered, &filled);
        Box::new(move || {
            let far = flushes.on(Far::node(mem, n));
            let t = table(&far, n as u64);
            let mine = text("recover", t.recover_slot(at, dead, rounds))?;
            recovered.fetch_add(mine as u32, Relaxed);
            if n == 0 && t.slot_activate(at, &sample(7), rounds).is_ok() {
                filled.fetch_add(1, Relaxed);
            }
            Ok(())
        })
    };
    mem.interleave(STEPS, vec![task(0), task(1)])?;
    same("recovered", recovered.load(Relaxed), 1)?;
    let expected = (filled.load(Relaxed) == 1).then(|| sample(7));
    let reader = Far::node(mem, 1);
    let slot = text("read", table(&reader, 1).read(at.address()))?;
    same("filled", slot.contents, expected)?;
    nothing_undone(mem)
}

/// Both nodes fill, find and empty the same slots, and move leaves within one line of entries,
/// going through rounds now and then.
fn churn(mem: &StaleMem, flushes: &Flushes) -> Outcome {
    let rounds = Rounds::new(mem);
    let changes = AtomicU32::new(0);
    let task = |n: usize| -> Task<'_> {
        let (rounds, changes) = (&rounds, &changes);
        Box::new(move || {
            let far = flushes.on(Far::node(mem, n));
            let t = table(&far, n as u64);
            let nodes = Nodes::default();
            let said = |n: usize, i: u32| 16 * (i + 1) + n as u32;
            for i in 0..12 {
                let slot = 1 + i % 2;
                let entry = 3 + (i / 2) % 2;
                let _ = t.cons(weak(ROOT), entry, weak(LEAF), &nodes, rounds);
                let at = place(LEAF, slot);
                let filled = t.slot_activate(at, &sample(said(n, i)), rounds);
                seen(&t, entry, slot)?;
                pause();
                seen(&t, entry, slot)?;
                let emptied = match i % 3 {
                    0 => Err(Refused::NoCap),
                    _ => t.slot_deactivate(at, None, rounds).map(|_| ()),
                };
                for change in [filled, emptied] {
                    changes.fetch_add(change.is_ok() as u32, Relaxed);
                    same("owner", change == Err(Refused::Lost), false)?;
                    same("words", change == Err(Refused::Corrupt), false)?;
                }
                if i % 4 == 3 {
                    let out = t.decons(weak(ROOT), entry, &nodes, rounds);
                    same("owner", out.err() == Some(Refused::Lost), false)?;
                }
                rounds.round(n);
            }
            Ok(())
        })
    };
    mem.interleave(STEPS, vec![task(0), task(1)])?;
    same("no change at all", changes.load(Relaxed) > 2, true)?;
    nothing_undone(mem)
}

type Scenario = fn(&StaleMem, &Flushes) -> Outcome;

fn scenarios() -> [Scenario; 5] {
    [hand_over, revoked, round_at_the_stamp, recover_twice, churn]
}

#[test]
fn rows_see_memory_and_lookups_are_late_by_one_round() {
    for scenario in scenarios() {
        for seed in 0..SEEDS {
            let outcome = scenario(&memory(seed), &Flushes::all());
            assert_eq!(outcome, Ok(()), "seed {seed}");
        }
    }
}

/// Accesses to memory of each row, and of the way of every system call.
#[test]
fn rows_take_a_fixed_number_of_steps() {
    let mem = StaleMem::new(1, 0);
    let (zero, world, nodes) = (mem.node(0), World::default(), Nodes::default());
    let t = table(&zero, 0);
    let steps = |row: &dyn Fn()| {
        let count = || {
            let c = mem.counts(0);
            c.loads + c.stores + c.rmws
        };
        let before = count();
        row();
        count() - before
    };
    let root = frame(ROOT).address();
    let cons = steps(&|| {
        t.cons(weak(ROOT), 3, weak(LEAF), &nodes, &world).unwrap();
    });
    let fill = steps(&|| {
        t.slot_activate(place(LEAF, 1), &sample(7), &world).unwrap();
    });
    let lookup = steps(&|| {
        t.lookup(root, cap(3, 1)).unwrap();
    });
    let empty = steps(&|| {
        t.slot_deactivate(place(LEAF, 1), None, &world).unwrap();
    });
    let decons = steps(&|| {
        t.decons(weak(ROOT), 3, &nodes, &world).unwrap();
    });
    assert_eq!((lookup, cons, decons, fill, empty), (2, 2, 3, 9, 4));
}
