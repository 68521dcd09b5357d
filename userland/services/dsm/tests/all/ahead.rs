//! Several pages are asked for at a time on behalf of one thread, as a peer does before that thread comes.

use dyad_dsm::{Access, Action, Event, Outcome, Range, Right};

use crate::group::{Group, fault, page, range};

/// Whether the record of a page on a node still has the thread among those that wait.
fn waits(g: &Group, n: usize, p: u64) -> bool {
    g.record(n, p).waiters != 0
}

#[test]
fn each_page_is_answered() {
    for (from, to) in [(0, 1), (1, 0), (1, 2)] {
        let mut g = Group::new(None);
        for p in 2..7 {
            g.access(from, p, Access::Write);
        }
        // One of them is read by the third node as well.
        g.access(3 - from - to, 4, Access::Read);
        for p in 2..7 {
            g.event(to, fault(p, Access::Write)).unwrap();
        }
        let all = g.settle_all();
        for p in 2..7 {
            assert_eq!(g.nodes[to].right(page(p)), Right::Write);
            assert_eq!(g.nodes[from].right(page(p)), Right::None);
            assert!(!waits(&g, to, p));
        }
        let wakes = |(n, a): &&(usize, Action)| *n == to && matches!(a, Action::Wake { .. });
        // At the origin, a page can be there at once.
        assert!(all.iter().filter(wakes).count() <= 5);
        assert_eq!(
            g.nodes.iter().map(|n| n.counters().refusals()).sum::<u64>(),
            0
        );
    }
}

/// A range is given back while its pages are asked for: one wake-up may stand for several pages, and none waits any more.
#[test]
fn pages_that_go_are_answered_together() {
    let mut g = Group::new(None);
    for p in 2..5 {
        g.access(0, p, Access::Write);
    }
    for p in 2..5 {
        g.event(1, fault(p, Access::Write)).unwrap();
    }
    let all: Range = range(0, 16);
    g.event(0, Event::Unmap { range: all }).unwrap();
    let done = g.settle_all();
    assert!((2..5).all(|p| !waits(&g, 1, p)));
    let gone = |(n, a): &(usize, Action)| {
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_));
        *n == 1 && matches!(a, Action::Wake { outcome, .. } if refused(outcome))
    };
    assert_eq!(done.iter().filter(|d| gone(d)).count(), 1);
}
