//! Accesses are not earlier than the writing of what they take.

use std::cell::Cell;

use crate::coherent::{FlushKind, Kind, Releases, Storage, System};
use crate::config::*;
use crate::fixture;
use crate::memory::view_of;

thread_local! {
    static TIMES: [Cell<u64>; 3] = const { [Cell::new(0), Cell::new(0), Cell::new(0)] };
}

fn now(cpu: u32) -> u64 {
    TIMES.with(|times| times[cpu as usize].get())
}

fn set(node: usize, ps: u64) {
    TIMES.with(|times| times[node].set(ps));
}

/// Three nodes, whose CPUs have times of their own or do not.
fn system<'a>(config: &SimConfig, storage: &'a Storage, timed: bool) -> System<'a> {
    let mut system = System::new(config, storage);
    for node in 0..3 {
        set(node, 0);
        if timed {
            let cycle_ps = config.nodes[node].cycle_ps;
            let releases = Releases::new(storage.lines(), now, node as u32, cycle_ps);
            system.core(node, 0).heed_releases(releases);
        }
    }
    system
}

/// Cycles that the last of some accesses waits for a release: node, its time, what it does. All are to a line of the CXL pool,
/// in the node's own view without coherence.
fn waits(coherence: Coherence, accesses: &[(usize, u64, char)]) -> u64 {
    let mut config = fixture::config(3, 1);
    config.coherence = coherence;
    let line = config.pools[3].base / LINE_BYTES;
    let cycles = [false, true].map(|timed| {
        let storage = Storage::new(&config);
        let mut system = system(&config, &storage, timed);
        let mut last = (0, 0);
        for &(node, time, what) in accesses {
            set(node, time);
            let line = match coherence {
                Coherence::Coherent => line,
                Coherence::Incoherent => view_of(node, line),
            };
            let before = system.counts(node, 0).release_cycles;
            let cycles = match what {
                'r' => system.access(node, 0, Kind::Load, line),
                'w' => system.access(node, 0, Kind::Store, line),
                'x' => system.access(node, 0, Kind::Rmw, line),
                'f' => system.flush(node, 0, FlushKind::Flush, line),
                'a' => system.flush(node, 0, FlushKind::Everything, line),
                _ => system.flush(node, 0, FlushKind::Clean, line),
            };
            last = (cycles, system.counts(node, 0).release_cycles - before);
        }
        last
    });
    let [(plain, none), (timed, waited)] = cycles;
    assert_eq!(none, 0);
    assert_eq!(timed, plain + waited, "the wait is all that is added");
    waited
}

/// 1000 cycles of these nodes.
const LATER: u64 = 1000 * 476;

#[test]
fn an_access_waits_until_what_it_takes_has_been_written() {
    use Coherence::Coherent;
    // A store to the line takes 650 cycles itself.
    for what in ['r', 'w', 'x'] {
        assert_eq!(waits(Coherent, &[(1, LATER, 'w'), (0, 0, what)]), 1650);
        let soon = (0, LATER + 649 * 476 + 1, what);
        assert_eq!(waits(Coherent, &[(1, LATER, 'w'), soon]), 1);
        let late = (0, LATER + 650 * 476, what);
        assert_eq!(waits(Coherent, &[(1, LATER, 'w'), late]), 0);
    }
}

#[test]
fn what_is_at_hand_or_only_read_is_not_waited_for() {
    use Coherence::Coherent;
    let mine = [(1, LATER, 'w'), (0, 0, 'r'), (0, 0, 'r')];
    assert_eq!(waits(Coherent, &mine), 0, "the copy is there");
    let read = [(1, LATER, 'r'), (0, 0, 'r')];
    assert_eq!(waits(Coherent, &read), 0, "a read leaves no time");
    let upgrade = [(0, 0, 'r'), (1, LATER, 'r'), (0, 0, 'w')];
    assert_eq!(waits(Coherent, &upgrade), 0, "a sharer has written nothing");
}

#[test]
fn what_has_come_to_memory_has_its_time_still() {
    use Coherence::Coherent;
    let third = [(1, LATER, 'w'), (2, 9 * LATER, 'r'), (0, 0, 'r')];
    assert_eq!(waits(Coherent, &third), 1650);
    let flushed = [(1, LATER, 'w'), (1, 9 * LATER, 'f'), (0, 0, 'r')];
    assert_eq!(waits(Coherent, &flushed), 1650);
}

#[test]
fn the_store_for_which_a_line_is_taken_back_has_its_time() {
    // As a sender whose receiver polls the line.
    let polled = [
        (1, 0, 'w'),
        (0, LATER, 'r'),
        (1, 3 * LATER, 'w'),
        (0, 2 * LATER, 'r'),
    ];
    let upgrade = 71 + 4;
    assert_eq!(waits(Coherence::Coherent, &polled), 1000 + upgrade);
}

#[test]
fn without_coherence_what_is_written_back_has_the_time_of_that() {
    use Coherence::Incoherent;
    assert_eq!(waits(Incoherent, &[(1, LATER, 'w'), (0, 0, 'r')]), 0);
    for back in ['f', 'c', 'a'] {
        let read = [(1, LATER, 'w'), (1, 2 * LATER, back), (0, 0, 'r')];
        assert_eq!(waits(Incoherent, &read), 2000, "{back}");
        let kept = [(0, 0, 'r'), (1, 0, 'w'), (1, 2 * LATER, back), (0, 0, 'r')];
        assert_eq!(waits(Incoherent, &kept), 0, "the old copy is read");
    }
}
