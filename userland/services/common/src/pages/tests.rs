//! The pager on a model of the kernel, with clients that ask for anything: operations that are none, those of init,
//! ranges of each other, in the middle of which threads end and other threads are in the way.

extern crate std;

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::vec::Vec;

use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::FAULT_NO_MEMORY;

use super::*;

const A: u64 = program::FIRST;
const B: u64 = program::FIRST + 1;

/// A source of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// What a client has: regions, and pages in them that have been touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory {
    regions: BTreeMap<u64, u64>,
    pages: BTreeSet<u64>,
}

/// The kernel, and init.
#[derive(Default)]
struct Model {
    pager: Pager,
    /// Steps until init ends the client, in the middle of what that is doing, and what it is told; 0: never.
    init_comes: Cell<u32>,
    told: Cell<Option<[u64; 4]>>,
    memory: RefCell<BTreeMap<u64, Memory>>,
    /// How often an operation on pages is refused because another thread is in the way.
    obstructed: Cell<u32>,
    /// How often it is refused before the next piece is looked at.
    obstructed_each: Cell<u32>,
    /// Whether it then says that it has looked at nothing instead.
    looks_at_nothing: Cell<bool>,
    /// Steps until the thread ends; 0: never.
    ends: Cell<u32>,
    /// Invocations that are over.
    over: RefCell<BTreeSet<u64>>,
    /// What init has been asked, and what it says to requests for memory.
    asked: RefCell<Vec<[u64; 4]>>,
    says: Cell<Option<Error>>,
}

struct Ended;

impl Model {
    fn step(&self) {
        let comes = self.init_comes.get();
        self.init_comes.set(comes.saturating_sub(1));
        if comes == 1 {
            let end = call(program::INIT, 0x900, [pager::END, A, 0, 0]);
            let ends = self.ends.take();
            self.told.set(Some(self.pager.invoked(self, &end)));
            self.ends.set(ends);
        }
        match self.ends.get() {
            0 => {}
            1 => {
                self.ends.set(0);
                resume_unwind(std::boxed::Box::new(Ended));
            }
            n => self.ends.set(n - 1),
        }
    }

    fn of(&self, client: u64) -> Memory {
        self.memory
            .borrow()
            .get(&client)
            .cloned()
            .unwrap_or_default()
    }

    fn is_obstructed(&self) -> bool {
        let left = self.obstructed.get();
        self.obstructed.set(left.saturating_sub(1));
        left != 0
    }
}

struct SpaceOf<'a>(&'a Model, u64);

impl SpaceOf<'_> {
    fn memory<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(self.0.memory.borrow_mut().entry(self.1).or_default())
    }
}

impl Space for SpaceOf<'_> {
    fn add_region(&self, range: Range, _: Option<NodeId>) -> Result<()> {
        self.0.step();
        self.memory(|m| {
            m.regions.insert(range.start, range.len);
            // The client touches the first and the last.
            m.pages.extend([range.start, range.end() - PAGE_SIZE]);
        });
        self.0.step();
        Ok(())
    }

    fn reclaim(&self, at: u64, pages: u64) -> Result<u64> {
        self.0.step();
        if self.0.is_obstructed() {
            return match self.0.looks_at_nothing.get() {
                true => Ok(0),
                false => Err(Error::Again),
            };
        }
        self.0.obstructed.set(self.0.obstructed_each.get());
        // Not all at once.
        let looked = pages.min(3);
        let end = at + looked * PAGE_SIZE;
        self.memory(|m| m.pages.retain(|p| !(at..end).contains(p)));
        Ok(looked)
    }

    fn remove_region(&self, start: u64) -> Result<()> {
        self.0.step();
        let found = self.memory(|m| m.regions.remove(&start));
        found.map(drop).ok_or(Error::NotFound)
    }

    fn shootdown(&self, _: Range) -> Result<()> {
        self.0.step();
        Ok(())
    }
}

impl World for Model {
    fn space(&self, client: u64) -> impl Space {
        SpaceOf(self, client)
    }

    fn is_inside(&self, token: u64) -> bool {
        !self.over.borrow().contains(&token)
    }

    fn ask(&self, words: [u64; 4]) -> Result<u64> {
        self.asked.borrow_mut().push(words);
        self.says.get().map_or(Ok(0), Err)
    }
}

fn call(badge: u64, token: u64, words: [u64; 4]) -> Call {
    Call {
        words,
        badge,
        token,
    }
}

/// An invocation; `None`: its thread has ended in the middle.
fn invoke(pager: &Pager, k: &Model, call: &Call) -> Option<Result<u64>> {
    let done = catch_unwind(AssertUnwindSafe(|| pager.invoked(k, call)));
    k.ends.set(0);
    match done {
        Ok([status, value, ..]) => Some(match Error::from_code(status) {
            None => Ok(value),
            Some(e) => Err(e),
        }),
        Err(e) if e.is::<Ended>() => {
            k.over.borrow_mut().insert(call.token);
            None
        }
        Err(e) => resume_unwind(e),
    }
}

fn map(pager: &Pager, k: &Model, client: u64, pages: u64) -> u64 {
    let words = [pager::MAP_ANON, pages * PAGE_SIZE, 0, 0];
    invoke(pager, k, &call(client, 0x100, words))
        .unwrap()
        .unwrap()
}

#[test]
fn only_init_ends_a_client() {
    let k = Model::default();
    let pager = &k.pager;
    map(pager, &k, A, 5);
    map(pager, &k, B, 2);
    let before = (k.of(A), k.of(B));
    for badge in (0..program::MAX + 2).filter(|&b| b != program::INIT) {
        for victim in 0..program::MAX + 2 {
            let is = invoke(pager, &k, &call(badge, 0x200, [pager::END, victim, 0, 0]));
            assert_eq!(is, Some(Err(Error::Denied)), "{badge} ends {victim}");
        }
    }
    assert_eq!((k.of(A), k.of(B)), before);
    let init = |victim| {
        invoke(
            pager,
            &k,
            &call(program::INIT, 0x300, [pager::END, victim, 0, 0]),
        )
    };
    assert_eq!(init(A), Some(Ok(1)));
    assert_eq!((k.of(A), k.of(B)), (Memory::default(), before.1));
    assert_eq!(init(program::MAX), Some(Err(Error::Denied)));
    assert_eq!(init(u64::MAX), Some(Err(Error::Denied)));
}

/// A client that asks for anything changes what it has itself, and nothing else. In the end all of it comes back,
/// wherever its threads have ended.
#[test]
fn hostile_clients_have_their_own_memory_only() {
    for seed in 0..12 {
        let mut rng = Random(seed);
        let k = Model::default();
        let pager = &k.pager;
        let mut known: Vec<(u64, u64)> = Vec::new();
        for n in 1..120 {
            let me = A + rng.below(2);
            let other = A + B - me;
            let what = [pager::MAP_ANON, pager::UNMAP, pager::END, 0, 7][rng.below(5) as usize];
            // What any of them has been given, or something near it.
            let (at, len) = match known.len() as u64 {
                0 => (HEAP_BASE, PAGE_SIZE),
                n => known[rng.below(n) as usize],
            };
            let words = match what {
                pager::MAP_ANON => {
                    // Homes that there are not, with and without the bit for memory that the client keeps coherent.
                    let home = rng.below(12) | (rng.below(2) * pager::INCOHERENT);
                    [what, rng.below(9) * PAGE_SIZE, home, 0]
                }
                pager::UNMAP => {
                    let (more, less) = (rng.below(2), rng.below(2));
                    let is_whole = rng.below(3) != 0;
                    match is_whole {
                        true => [what, at, len, 0],
                        false => [what, at + more * PAGE_SIZE, len - less * PAGE_SIZE, 0],
                    }
                }
                _ => [what, rng.below(program::MAX + 2), rng.below(4), 0],
            };
            if rng.below(4) == 0 {
                k.ends.set(1 + rng.below(8) as u32);
            }
            k.obstructed.set(rng.below(3) as u32);
            let before = k.of(other);
            let is = invoke(pager, &k, &call(me, n << 8 | 1, words));
            assert_eq!(k.of(other), before, "seed {seed}: {me} with {words:x?}");
            if let (pager::MAP_ANON, Some(Ok(start))) = (what, is) {
                let is_incoherent = words[2] & pager::INCOHERENT != 0;
                assert_eq!(start >= INCOHERENT_BASE, is_incoherent, "{words:x?}");
                known.push((start, words[1]));
            }
        }
        k.obstructed.set(0);
        for client in [A, B] {
            let ended = call(program::INIT, 0xff01, [pager::END, client, 0, 0]);
            assert!(matches!(invoke(pager, &k, &ended), Some(Ok(_))));
            assert_eq!(k.of(client), Memory::default(), "seed {seed}");
        }
    }
}

/// A page that another thread is just changing is taken when that is done. If it is never done, nothing is said to
/// have been taken.
#[test]
fn pages_that_are_in_use_are_waited_for() {
    for nothing in [false, true] {
        for (times, ok) in [(1, true), (TRIES, true), (TRIES + 1, false)] {
            let k = Model::default();
            let pager = &k.pager;
            let start = map(pager, &k, A, 7);
            k.obstructed.set(times);
            k.looks_at_nothing.set(nothing);
            let words = [pager::UNMAP, start, 7 * PAGE_SIZE, 0];
            let is = invoke(pager, &k, &call(A, 0x100, words)).unwrap();
            assert_eq!(is.is_ok(), ok, "{times} times: {is:?}");
            let there = k.of(A);
            assert_eq!(there.pages.is_empty() && there.regions.is_empty(), ok);
            // It can be tried again, as long as it is not done.
            k.obstructed.set(0);
            let again = invoke(pager, &k, &call(A, 0x100, words)).unwrap();
            assert_eq!(again.is_ok(), !ok, "{again:?}");
            assert_eq!(k.of(A), Memory::default());
        }
    }
}

/// A book is one thread's until that has left or ended: init does not go on as if there were nothing in it. Of a
/// thread that has ended it takes the book over, at whichever step that was.
#[test]
fn a_book_that_is_in_use_is_not_ended() {
    for unmaps in [false, true] {
        for ended in [false, true] {
            let mut steps = 1;
            loop {
                let k = Model::default();
                let pager = &k.pager;
                let start = map(pager, &k, A, 4);
                let words = match unmaps {
                    true => [pager::UNMAP, start, 4 * PAGE_SIZE, 0],
                    false => [pager::MAP_ANON, PAGE_SIZE, 0, 0],
                };
                if ended {
                    k.over.borrow_mut().insert(0x100);
                    k.ends.set(steps);
                }
                k.init_comes.set(steps);
                invoke(pager, &k, &call(A, 0x100, words));
                k.init_comes.set(0);
                let Some([status, ..]) = k.told.take() else {
                    break;
                };
                let busy = status == Error::Again.code();
                assert_eq!(busy, !ended, "unmaps: {unmaps}, at step {steps}");
                if ended {
                    assert_eq!(k.of(A), Memory::default(), "unmaps: {unmaps}, {steps}");
                }
                steps += 1;
            }
            assert!(steps > 2, "only {steps} steps");
        }
    }
}

/// A thread that has found no memory tries again if there is some, or if it is not known yet. In any other case it
/// ends, and init is told which program's it is, and why.
#[test]
fn a_fault_ends_the_thread_only_if_there_is_no_memory() {
    let k = Model::default();
    let pager = &k.pager;
    let short = 2 | FAULT_NO_MEMORY | 3 << FAULT_SUPPLY_SHIFT;
    let fault = |kind| {
        pager.invoked(
            &k,
            &call(B | pager::FAULT, 0x700, [0x1234, kind, 0x5678, 9]),
        )
    };
    let memory = [process::MEMORY | B << 8 | 3 << 16, 0, 0, 0];
    for says in [None, Some(Error::Again)] {
        k.says.set(says);
        assert_eq!(fault(short)[0], 0, "init says {says:?}");
        assert_eq!(k.asked.take(), [memory]);
    }
    for says in [Error::NoMemory, Error::Denied, Error::NodeDead] {
        k.says.set(Some(says));
        assert_eq!(fault(short)[0], 1, "init says {says}");
        let [first, told] = k.asked.take()[..] else {
            panic!("it is not told");
        };
        assert_eq!(first, memory);
        let what = process::FAULTED | B << 8 | (short & process::FAULT_KIND) << 16;
        assert_eq!(told, [what, 0x1234, 0x5678, 0]);
    }
    // There is memory; it is something else.
    k.says.set(None);
    assert_eq!(fault(1)[0], 1);
    let what = process::FAULTED | B << 8 | 1 << 16;
    assert_eq!(k.asked.take(), [[what, 0x1234, 0x5678, 0]]);
    // A client that passes a fault's words by itself has not faulted.
    let words = [0x1234, short, 0x5678, 9];
    assert_ne!(
        invoke(pager, &k, &call(B, 0x700, words)),
        Some(Ok(0)),
        "it is no operation"
    );
    assert!(k.asked.take().is_empty());
}

#[test]
fn a_fault_can_lack_memory_of_any_node() {
    let k = Model::default();
    for node in 1..=MAX_NODES as u64 {
        let kind = 2 | FAULT_NO_MEMORY | node << FAULT_SUPPLY_SHIFT;
        let words = [0x1234, kind, 0x5678, 9];
        let done = k.pager.invoked(&k, &call(B | pager::FAULT, 0x700, words));
        assert_eq!(done, [0; 4]);
        let memory = process::MEMORY | B << 8 | node << 16;
        assert_eq!(k.asked.take(), [[memory, 0, 0, 0]]);
    }
}

/// Other threads are in the way at every piece of a range, never for long at one: the range is taken back.
#[test]
fn each_piece_has_its_own_attempts() {
    let k = Model::default();
    let start = map(&k.pager, &k, A, 9);
    k.obstructed.set(TRIES - 1);
    k.obstructed_each.set(TRIES - 1);
    let unmap = call(A, 0x100, [pager::UNMAP, start, 9 * PAGE_SIZE, 0]);
    assert_eq!(invoke(&k.pager, &k, &unmap), Some(Ok(0)));
    assert_eq!(k.of(A), Memory::default());
}
