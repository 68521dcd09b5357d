//! Two writers of one page both progress, in simulated time, because a granted page stays for a while.

use std::collections::BTreeMap;

use dyad_dsm::{Access, Action, Event, Outcome, Right, WOKEN_NS, Weakening};
use dyad_tier::size;

use crate::group::{Group, fault_at, node, page};

/// What happens at a time: in the order of time, then of their making.
enum Then {
    Receive(usize, usize),
    Expire(usize, u64),
    /// The thread of a node executes its instruction, or faults.
    Run(usize),
}

/// Nanoseconds from sending to receipt.
const DELAY: u64 = 5_000;
/// Nanoseconds from the wake of a thread to its instruction: less than the hold.
const RESUME: u64 = 1_500;

struct World {
    group: Group,
    agenda: BTreeMap<(u64, u64), Then>,
    count: u64,
    done: [u64; 3],
    /// The pages that the instruction of each node's thread writes.
    pages: [Vec<u64>; 3],
    resume: [u64; 3],
    /// The nodes know which threads have not run since they were woken.
    knows: bool,
}

impl World {
    fn new(weakening: Option<Weakening>, pages: [Vec<u64>; 3], resume: [u64; 3]) -> World {
        let (agenda, group) = (BTreeMap::new(), Group::new(weakening));
        let mut world = World {
            group,
            agenda,
            count: 0,
            done: [0; 3],
            pages,
            resume,
            knows: false,
        };
        for n in 0..3 {
            if !world.pages[n].is_empty() {
                world.at(n as u64, Then::Run(n));
            }
        }
        world
    }

    fn at(&mut self, time: u64, then: Then) {
        self.count += 1;
        self.agenda.insert((time, self.count), then);
    }

    fn event(&mut self, n: usize, event: Event) {
        let now = self.group.now;
        for action in self.group.event(n, event).expect("nothing is refused") {
            match action {
                Action::Send { to, .. } => self.at(now + DELAY, Then::Receive(n, to.index())),
                Action::Defer { page, until } => {
                    self.at(until.0, Then::Expire(n, page.number()));
                }
                Action::Wake { outcome, threads } => {
                    assert_eq!(outcome, Outcome::Retry);
                    if self.knows {
                        self.group.not_resumed[n] |= threads;
                    }
                    self.at(now + self.resume[n], Then::Run(n));
                }
                _ => {}
            }
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(((now, _), then)) = self.agenda.pop_first() {
            if now > until {
                return;
            }
            self.group.now = now;
            match then {
                Then::Receive(from, to) => {
                    let message = self.group.rings[from][to].pop_front().expect("a message");
                    let from = node(from);
                    self.event(to, Event::Received { from, message });
                }
                Then::Expire(n, p) => self.event(n, Event::Expired { page: page(p) }),
                Then::Run(n) => {
                    self.group.not_resumed[n] = 0;
                    let has = |p: &&u64| self.group.nodes[n].right(page(**p)) == Right::Write;
                    match self.pages[n].iter().find(|p| !has(p)) {
                        None => {
                            self.done[n] += 1;
                            // It works on something else for a while.
                            self.at(now + 100, Then::Run(n));
                        }
                        Some(&p) => self.event(n, fault_at(0, p, Access::Write, 0x1000)),
                    }
                }
            }
        }
    }
}

/// Simulated nanoseconds.
fn duration() -> u64 {
    size(20_000_000, 200_000_000, 2_000_000_000)
}

fn writers(weakening: Option<Weakening>, a: usize, b: usize) -> World {
    let mut pages: [Vec<u64>; 3] = Default::default();
    (pages[a], pages[b]) = (vec![1], vec![1]);
    let mut world = World::new(weakening, pages, [RESUME; 3]);
    world.run(duration());
    world
}

#[test]
fn two_writers_both_progress() {
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        let done = writers(None, a, b).done;
        // A round of both takes some tens of microseconds.
        let least = duration() / 100_000;
        assert!(done[a] > least && done[b] > least, "{done:?}");
    }
}

#[test]
fn two_nodes_take_two_messages_for_each_fault() {
    for (a, b) in [(0, 1), (0, 2)] {
        let mut world = writers(None, a, b);
        world.group.settle_all();
        let counters = [a, b].map(|n| *world.group.nodes[n].counters());
        let messages: u64 = counters.iter().map(|c| c.page_messages()).sum();
        let faults: u64 = counters.iter().map(|c| c.faults).sum();
        assert!(faults > 100);
        assert_eq!(messages, 2 * faults);
    }
}

#[test]
fn without_a_hold_writers_starve() {
    let done = writers(Some(Weakening::NoHold), 1, 2).done;
    assert!(done[1] < 10 || done[2] < 10, "{done:?}");
}

/// Two writers that run long after they have been woken: other threads of their CPUs come first.
fn slow_writers(weakening: Option<Weakening>) -> [u64; 3] {
    let pages = [vec![1], vec![1], vec![]];
    let mut world = World::new(weakening, pages, [400_000, 300_000, 0]);
    world.knows = true;
    world.run(duration());
    world.done
}

#[test]
fn writers_progress_that_run_long_after_they_have_been_woken() {
    let done = slow_writers(None);
    let least = duration() / 2_000_000;
    assert!(done[0] > least && done[1] > least, "{done:?}");
    let done = slow_writers(Some(Weakening::WokenNotHeeded));
    assert!(done[0] < 3 || done[1] < 3, "{done:?}");
}

/// Who never runs again keeps the page for some slices only.
#[test]
fn a_thread_that_does_not_run_keeps_no_page_for_ever() {
    let mut g = Group::new(None);
    g.event(1, fault_at(0, 3, Access::Write, 0x1000)).unwrap();
    g.deliver(1, 0).unwrap();
    g.deliver(0, 1).unwrap();
    g.not_resumed[1] = 1;
    g.event(0, fault_at(0, 3, Access::Write, 0x1000)).unwrap();
    g.deliver(0, 1).unwrap();
    while let Some(Action::Defer { until, .. }) =
        (g.event(1, Event::Expired { page: page(3) }).unwrap()).first()
    {
        assert!(until.0 > g.now && until.0 <= 2 * WOKEN_NS);
        g.now = until.0;
    }
    assert!(g.now >= WOKEN_NS);
    assert_eq!(g.nodes[1].right(page(3)), Right::None);
}

/// Two nodes whose instruction needs two pages each, in opposite order, with a slow wake.
fn pairs(weakening: Option<Weakening>) -> [u64; 3] {
    let pages = [vec![], vec![1, 2], vec![2, 1]];
    let mut world = World::new(weakening, pages, [RESUME; 3]);
    world.run(duration());
    world.done
}

#[test]
fn instructions_that_need_two_pages_progress_on_both_nodes() {
    let done = pairs(None);
    let least = duration() / 2_000_000;
    assert!(done[1] > least && done[2] > least, "{done:?}");
    let done = pairs(Some(Weakening::LongHoldForAll));
    assert!(done[1] + done[2] < 10, "{done:?}");
}
