//! Eviction as a whole, on a model of the kernel: a program fills memory on one node and then on another,
//! and at every point of what is done meanwhile nodes die, frames are in the hands of faults, pages are
//! written, given back, or cannot be touched, kernel objects turn up. Whatever happens:
//!
//! - no frame has two owners, is open to two nodes, or is two pages;
//! - what was written last to a page is there, and no page stays parked;
//! - who waits for memory gets some or is told that there is none;
//! - in the end all frames come back.
//!
//! With anything left out that the model's kernel does, one of these is seen not to hold.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::{Error, NodeId};
use dyad_blocks::evict::{PATIENCE, make_usable};
use dyad_blocks::{Books, Kernel, Run, State};
use proptest::prelude::*;
use world::{Act, Died, Lacks, NODES, PAGES, POOLS, World, at};

/// Frames of a block.
const BLOCK: u64 = 4;
/// Frames that each node begins with.
const HOME: u64 = 8;
/// Everything is over long before that.
const ROUNDS: u32 = 40_000;

/// What happens.
#[derive(Clone, Debug)]
struct Case {
    /// Pages that the first node has written, and of how many of them every one but one is given back.
    first: usize,
    every: usize,
    /// Pages that the second and the third one want then.
    wants: [usize; 2],
    /// Who leads, if it lives.
    order: [usize; NODES],
    script: Vec<(u32, Act)>,
}

impl Case {
    /// Nothing happens but that the second node wants more than there is.
    fn plain(order: [usize; NODES]) -> Case {
        Case {
            first: 20,
            every: 2,
            wants: [9, 3],
            order,
            script: Vec::new(),
        }
    }
}

/// What has come of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    points: u32,
    evicted: u64,
    moved: u64,
    stayed: u64,
    /// Nodes that were told that there is no memory.
    refused: usize,
    /// The books were lost with their holder.
    lost: bool,
}

struct Run3 {
    world: World,
    books: Books<16>,
    order: [usize; NODES],
    /// Pages that each node wants next, and up to which.
    wants: [(usize, usize); NODES],
    /// Whether nothing happens but what the program does.
    undisturbed: bool,
    out: Outcome,
}

fn id(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

impl Run3 {
    fn new(order: [usize; NODES], lacks: Lacks) -> Run3 {
        let world = World::new(lacks);
        let mut books = Books::new();
        books.book.set_block(BLOCK);
        for (pool, frames) in POOLS {
            // Of the pool that is nobody's, nobody begins with any.
            let home = if pool < NODES { HOME } else { 0 };
            if frames > home {
                let blocks = (frames - home) / BLOCK;
                books.book.add_pool(pool, home, blocks).unwrap();
            }
            if home > 0 {
                let run = Run {
                    pool,
                    first: 0,
                    frames: home,
                };
                books.holdings[pool].add(run).unwrap();
                books.holdings[pool].open_to_limit();
                books.apply(&world, id(pool)).unwrap();
            }
        }
        Run3 {
            world,
            books,
            order,
            wants: [(0, 0); NODES],
            undisturbed: true,
            out: Outcome::default(),
        }
    }

    /// Does something with the books in hand; `None` if its node has died meanwhile.
    fn held<T>(&mut self, by: usize, f: impl FnOnce(&mut Books<16>, &World) -> T) -> Option<T> {
        self.world.leads.set(Some(by));
        let done = catch_unwind(AssertUnwindSafe(|| f(&mut self.books, &self.world)));
        self.world.leads.set(None);
        match done {
            Ok(value) => Some(value),
            Err(e) if e.is::<Died>() => {
                self.out.lost = true;
                None
            }
            Err(e) => resume_unwind(e),
        }
    }

    /// The books are lost: the leader makes all pages usable, and if its node dies too, the next leader does.
    fn recover(&mut self) {
        while let Some(leader) = self.world.leader(self.order) {
            let whole = |_: &mut Books<16>, world: &World| {
                for (pool, frames) in POOLS {
                    let run = Run {
                        pool,
                        first: 0,
                        frames,
                    };
                    while let Err(e) = make_usable(world, &run, world.here()) {
                        assert_eq!(e, Error::Again);
                    }
                }
            };
            if self.held(leader, whole).is_some() {
                break;
            }
        }
    }

    /// What the program does on a node: all that it can. Whether it has come to its end there.
    fn program(&mut self, node: usize) -> bool {
        loop {
            let (next, end) = self.wants[node];
            if next == end || !self.world.lives_now(node) {
                self.wants[node] = (end, end);
                return true;
            }
            match self.world.act(Act::Write(node, next)) {
                Ok(()) => self.wants[node].0 += 1,
                Err(Error::Again) => return false,
                Err(Error::NoMemory) if self.out.lost => self.end(node),
                Err(Error::NoMemory) => {
                    let wish =
                        |books: &mut Books<16>, world: &World| books.request(world, id(node));
                    match self.held(node, wish) {
                        Some(Ok(())) => {}
                        Some(Err(Error::Again)) => return false,
                        Some(Err(Error::NoMemory)) => {
                            self.out.refused += 1;
                            self.end(node);
                        }
                        Some(Err(e)) => panic!("a request is told {e}"),
                        None => self.recover(),
                    }
                    self.owners();
                }
                Err(e) => panic!("a write is told {e}"),
            }
        }
    }

    fn end(&mut self, node: usize) {
        self.wants[node].0 = self.wants[node].1;
    }

    /// Everybody goes on until nobody has anything to do.
    fn go(&mut self) {
        for _ in 0..ROUNDS {
            let mut over = true;
            for node in 0..NODES {
                over &= self.program(node);
            }
            // Whatever has been written is written again, on all nodes.
            for page in (0..PAGES).filter(|&p| self.world.is_mapped(p)) {
                for node in 0..NODES {
                    let _ = self.world.act(Act::Write(node, page));
                }
            }
            self.world.pause();
            let busy = self.books.is_busy() && !self.out.lost;
            match self.world.leader(self.order) {
                Some(leader) if busy => self.piece(leader),
                _ if over => return,
                _ => {}
            }
            self.world.laws(self.out.lost || !self.books.is_busy());
            self.owners();
        }
        panic!("it does not come to an end: {:?}", self.books.leaving);
    }

    fn piece(&mut self, leader: usize) {
        let was_busy = self.books.leaving.is_busy();
        let tended = self.held(leader, |books, world| books.tend(world));
        let Some(tended) = tended else {
            return self.recover();
        };
        // Nobody waits for nothing.
        assert!(tended.pause.is_some());
        assert!(matches!(
            tended.trouble,
            None | Some(Error::Again | Error::TimedOut)
        ));
        if self.undisturbed && !was_busy {
            self.is_below();
        }
    }

    /// Without the block that it has just begun to give, a node is under less pressure than the one that
    /// wants it.
    fn is_below(&self) {
        let Some(block) = self.books.leaving.block() else {
            return;
        };
        let State::Leaving { from, to } = self.books.book.state(block) else {
            panic!("the block on its way is not on its way");
        };
        let need = |n: NodeId| {
            let holding = &self.books.holdings[n.index()];
            let (kept, mut runs) = (holding.kept(), holding.runs().to_vec());
            runs[0].frames -= kept;
            let used: u64 = runs.iter().map(|r| self.world.used(r)).sum();
            (used + kept, holding.frames())
        };
        let ((gives, left), (asks, has)) = (need(from), need(to));
        let gives = gives + self.world.used(&self.books.run(block));
        let asks = (asks + 1 + has / 128).min(has);
        assert!(
            gives * has < asks * left,
            "{gives} of {left} is not below {asks} of {has}"
        );
    }

    /// Each block is where the books say, and nowhere else.
    fn owners(&self) {
        if self.out.lost {
            return;
        }
        for block in self.books.book.blocks() {
            let run = self.books.run(block);
            let leaves = matches!(self.books.book.state(block), State::Leaving { .. });
            assert_eq!(leaves, self.books.leaving.block() == Some(block));
            let owner = match self.books.book.state(block) {
                State::Owned(n) => Some(n.index()),
                State::Free | State::Leaving { .. } => None,
            };
            for node in 0..NODES {
                let has = |f| {
                    let there =
                        |r: &&Run| r.pool == run.pool && (r.first..r.first + r.frames).contains(&f);
                    self.books.holdings[node]
                        .runs()
                        .iter()
                        .filter(there)
                        .count()
                };
                let times = usize::from(owner == Some(node));
                for f in run.first..run.first + run.frames {
                    assert_eq!(
                        has(f),
                        times,
                        "frame {f} of pool {} on node {node}",
                        run.pool
                    );
                }
            }
        }
    }
}

/// Runs a case, and checks everything that must hold whatever happens.
fn run(case: &Case, lacks: Lacks) -> Outcome {
    let mut r = Run3::new(case.order, lacks);
    // The first node takes what it can, up to what is said, and gives most of it back.
    r.wants[0] = (0, case.first);
    r.go();
    for page in (0..case.first).filter(|p| p % case.every != 0) {
        let _ = r.world.act(Act::Unmap(page));
    }
    r.books.counts = Default::default();
    r.out = Outcome::default();
    r.world.begin(&case.script);
    r.undisturbed = case.script.is_empty();
    let mut next = case.first;
    for (node, pages) in [1, 2].into_iter().zip(case.wants) {
        r.wants[node] = (next, (next + pages).min(PAGES));
        next = r.wants[node].1;
    }
    r.go();
    r.world.finish_faults();
    r.world.laws(true);
    for counts in &r.books.counts {
        r.out.evicted += counts.evicted;
        r.out.moved += counts.moved;
        r.out.stayed += counts.refused;
    }
    r.out.points = r.world.points.get();
    r.world.comes_back();
    r.out
}

const ORDERS: [[usize; NODES]; 3] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];

#[test]
fn blocks_are_taken_until_everybody_has_what_it_wants() {
    for order in ORDERS {
        let out = run(&Case::plain(order), Lacks::Nothing);
        assert!(out.evicted > 0 && out.moved > 0, "{out:?}");
        assert!(!out.lost && out.refused == 0 && out.stayed == 0, "{out:?}");
    }
}

/// All that may happen at one point.
fn events() -> Vec<Act> {
    let mut all = vec![Act::Again(1), Act::Again(40), Act::Unmap(4)];
    for node in 0..NODES {
        all.push(Act::Kill(node));
        all.push(Act::Take(node, PAGES - 1 - node));
        all.push(Act::Table(node));
        all.extend([0, 8, 16].map(|page| Act::Write(node, page)));
    }
    for (pool, n) in [
        (0, HOME),
        (0, HOME + BLOCK),
        (MAX_NODES, 1),
        (MAX_NODES, BLOCK),
    ] {
        all.push(Act::Object(at(pool, n)));
    }
    all
}

/// One event at each point, under every leader.
fn one_each(lacks: Lacks) -> Vec<(Act, Outcome)> {
    let mut seen = Vec::new();
    for order in ORDERS {
        let whole = run(&Case::plain(order), lacks);
        for act in events() {
            for at in 0..whole.points {
                let case = Case {
                    script: vec![(at, act)],
                    ..Case::plain(order)
                };
                seen.push((act, run(&case, lacks)));
            }
        }
    }
    seen
}

#[test]
fn anything_may_happen_at_any_point() {
    let seen = one_each(Lacks::Nothing);
    let with = |is: fn(&Act) -> bool, so: fn(&Outcome) -> bool| {
        seen.iter().any(|(act, out)| is(act) && so(out))
    };
    let kill = |a: &Act| matches!(a, Act::Kill(_));
    // Each of these ends is among them.
    assert!(with(kill, |o| o.lost));
    assert!(with(kill, |o| !o.lost && o.evicted > 0));
    assert!(with(kill, |o| !o.lost && o.stayed > 0));
    assert!(with(|a| matches!(a, Act::Again(40)), |o| o.evicted > 0));
    assert!(with(|a| matches!(a, Act::Table(_)), |o| o.stayed > 0));
    println!("{} runs", seen.len());
}

/// An obstacle stays for too long: the block stays, and the waiting thread is told so.
#[test]
fn what_does_not_come_to_an_end_is_given_up() {
    let order = ORDERS[1];
    let whole = run(&Case::plain(order), Lacks::Nothing).points;
    let mut stayed = 0;
    for at in (0..whole).step_by(7) {
        let case = Case {
            script: vec![(at, Act::Again(PATIENCE + 100))],
            ..Case::plain(order)
        };
        let out = run(&case, Lacks::Nothing);
        assert!(!out.lost);
        stayed += out.stayed;
    }
    assert!(stayed > 0);
}

/// Who wants more than anybody can give is told so: nobody has another block and is under less pressure
/// without it, or all have page tables in them.
#[test]
fn who_cannot_be_helped_is_told_so() {
    for order in ORDERS {
        let case = Case {
            first: 20,
            wants: [28, 0],
            ..Case::plain(order)
        };
        let out = run(&case, Lacks::Nothing);
        assert!(out.refused == 1 && out.evicted > 0 && !out.lost, "{out:?}");
        // One frame of each block that is not in use.
        let blocks = [
            (0, HOME),
            (0, HOME + BLOCK),
            (MAX_NODES, 0),
            (MAX_NODES, BLOCK),
        ];
        let frames = blocks
            .into_iter()
            .flat_map(|(p, n)| (n..n + BLOCK).map(move |n| at(p, n)));
        let case = Case {
            script: frames.map(|at| (0, Act::Object(at))).collect(),
            ..case
        };
        let less = run(&case, Lacks::Nothing);
        assert!(less.refused == 1 && less.evicted < out.evicted, "{less:?}");
    }
}

/// Two things, the second of which is a death, at every `step`th point.
fn two_each(lacks: Lacks, step: usize) {
    for order in ORDERS {
        let whole = run(&Case::plain(order), lacks).points;
        for (n, first) in (0..whole).step_by(step).enumerate() {
            for second in (first..whole).step_by(step) {
                for node in 0..NODES {
                    let other = match n % 6 {
                        0 => Act::Kill((node + 1) % NODES),
                        1 => Act::Take(node, PAGES - 1),
                        2 => Act::Take((node + 1) % NODES, PAGES - 1),
                        3 => Act::Again(3),
                        4 => Act::Table(node),
                        _ => Act::Object(at(0, HOME)),
                    };
                    let script = vec![(first, other), (second, Act::Kill(node))];
                    let case = Case {
                        script,
                        ..Case::plain(order)
                    };
                    run(&case, lacks);
                }
            }
        }
    }
}

/// Two nodes die, or one dies and something else happens: samples, more of them in the tier `full`, and all in the tier `long`.
#[test]
fn two_things_may_happen_at_any_two_points() {
    two_each(Lacks::Nothing, dyad_tier::size(13, 5, 1));
}

fn acts() -> impl Strategy<Value = Act> {
    let page = 0..PAGES;
    prop_oneof![
        4 => (0..NODES, page.clone()).prop_map(|(n, p)| Act::Write(n, p)),
        2 => (0..NODES, page.clone()).prop_map(|(n, p)| Act::Take(n, p)),
        2 => page.prop_map(Act::Unmap),
        1 => (0..NODES).prop_map(Act::Table),
        1 => (0..NODES).prop_map(Act::Kill),
        1 => prop_oneof![9 => 1..60u32, 1 => Just(PATIENCE + 100)].prop_map(Act::Again),
        1 => (HOME..HOME + 2 * BLOCK).prop_map(|n| Act::Object(at(0, n))),
        1 => (0..2 * BLOCK).prop_map(|n| Act::Object(at(MAX_NODES, n))),
    ]
}

proptest! {
    #[test]
    fn everything_may_happen(
        first in 4usize..24,
        every in 1usize..5,
        wants in [0usize..12, 0usize..12],
        order in 0usize..3,
        script in prop::collection::vec((0u32..1500, acts()), 0..14),
    ) {
        let case = Case { first, every, wants, order: ORDERS[order], script };
        run(&case, Lacks::Nothing);
    }
}

/// Whether some run does not keep the laws.
fn is_noticed(lacks: Lacks) -> bool {
    catch_unwind(|| {
        one_each(lacks);
        two_each(lacks, 13);
    })
    .is_err()
}

#[test]
fn all_that_the_kernel_does_is_needed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let all = [
        Lacks::Shootdown,
        Lacks::Closing,
        Lacks::Hands,
        Lacks::Moved,
        Lacks::Contents,
        Lacks::Unparking,
    ];
    let missed: Vec<_> = all.into_iter().filter(|l| !is_noticed(*l)).collect();
    std::panic::set_hook(hook);
    assert_eq!(missed, [], "nobody notices");
}
