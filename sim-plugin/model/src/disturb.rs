//! Who changes a word of the directory tells the CPUs whose copies that concerns, so that these need
//! not look at the directory for copies that nobody has disturbed.
//!
//! Each CPU of each node has a word:
//!
//! ```text
//!  63           38 37      0
//! | disturbances  |  line   |
//! ```
//!
//! | who | does, in this order |
//! |---|---|
//! | changes a line's word in the directory | the change; then counts one more in the word of each CPU that may have had a copy, and puts the line there |
//! | has copies | before each access: looks at its word. As it was: all promises of its memo hold. One more: those for that line are forgotten. Several more: all are |
//!
//! A promise is made after its CPU has looked here, from what it then finds in the directory. A change
//! that it has not found is announced after that, and the next access sees that. An access between a
//! change and its announcement counts as if it had been made before the change, as it could have been:
//! the two are not ordered by anything. Where they are, by the guests' own memory, the
//! announcement comes first, because whoever changes the directory does so before it goes on.
//!
//! A CPU whose process is killed between the two leaves one promise that does not hold, until its
//! copy is evicted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::SimConfig;
use crate::directory::{Agent, State, Word};
use crate::memory::{LINE_BITS, LINE_MASK};

/// Words from a CPU's to the next: lines of the host that are theirs alone, also where it fetches
/// two at a time.
const STRIDE: usize = 16;

/// What has happened to the copies of a CPU since it looked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// Another CPU has changed this line's word.
    Line(u64),
    /// Those of several lines.
    Lines,
}

/// The words of all CPUs, as one of them sees them.
#[derive(Clone, Debug)]
pub struct Disturbed<'a> {
    own: &'a AtomicU64,
    seen: u64,
    words: &'a [AtomicU64],
    /// The first CPU of each node, and last the number of all.
    first: Box<[usize]>,
    me: Agent,
}

impl<'a> Disturbed<'a> {
    /// Number of words that a system needs. They are zero at first.
    pub fn words(config: &SimConfig) -> usize {
        config.nodes.iter().map(|n| n.cpus).sum::<usize>() * STRIDE
    }

    /// For a CPU.
    ///
    /// # Panics
    ///
    /// If there are too few words, or no such CPU.
    pub fn new(config: &SimConfig, me: Agent, words: &'a [AtomicU64]) -> Self {
        let mut first = vec![0];
        for node in &config.nodes {
            first.push(first[first.len() - 1] + node.cpus);
        }
        let own = &words[(first[me.node] + me.cpu) * STRIDE];
        Self {
            own,
            seen: own.load(Ordering::Acquire),
            words,
            first: first.into(),
            me,
        }
    }

    /// 0 if nothing has happened since [`heed`](Self::heed).
    #[inline(always)]
    pub fn news(&self) -> u64 {
        // Acquire: what is then read of the directory is not older than what was announced.
        self.own.load(Ordering::Acquire) ^ self.seen
    }

    /// What has happened since this was asked last.
    #[inline]
    pub fn heed(&mut self) -> Disturbance {
        let now = self.own.load(Ordering::Acquire);
        let since =
            (now >> LINE_BITS).wrapping_sub(self.seen >> LINE_BITS) & (u64::MAX >> LINE_BITS);
        self.seen = now;
        match since {
            0 => Disturbance::None,
            1 => Disturbance::Line(now & LINE_MASK),
            _ => Disturbance::Lines,
        }
    }

    /// This CPU has changed a line's word: tells all CPUs whose copies that concerns.
    #[inline]
    pub fn announce(&self, line: u64, before: Word, after: Word) {
        if before.sharers() == 0 || before == after {
            return;
        }
        self.tell(line, before, after);
    }

    fn tell(&self, line: u64, before: Word, after: Word) {
        for node in 0..self.first.len() - 1 {
            if !concerns(node, before, after) || (node == self.me.node && self.me.alone) {
                continue;
            }
            for cpu in self.first[node]..self.first[node + 1] {
                if cpu != self.first[self.me.node] + self.me.cpu {
                    count(&self.words[cpu * STRIDE], line);
                }
            }
        }
    }
}

/// Whether a change of a word may take away what CPUs of a node could do with their copies, other than
/// the one that made it.
fn concerns(node: usize, before: Word, after: Word) -> bool {
    let still_readable = before.state() == State::Shared
        && after.version() == before.version()
        && after.shared_by(node);
    before.shared_by(node) && !still_readable
}

fn count(word: &AtomicU64, line: u64) {
    let next = |now: u64| Some(((now >> LINE_BITS) + 1) << LINE_BITS | line & LINE_MASK);
    // Release: see `news`. It never fails.
    let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn agent(node: usize, cpu: usize, alone: bool) -> Agent {
        Agent {
            through_home: false,
            node,
            cpu,
            alone,
            one_last_level: false,
        }
    }

    fn storage(config: &SimConfig) -> Vec<AtomicU64> {
        let words = 0..Disturbed::words(config);
        words.map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn one_disturbance_names_its_line_and_several_do_not() {
        let config = fixture::config(2, 1);
        let words = storage(&config);
        let me = agent(0, 0, true);
        let other = agent(1, 0, true);
        let mut heeding = Disturbed::new(&config, me, &words);
        let announcing = Disturbed::new(&config, other, &words);
        assert_eq!((heeding.news(), heeding.heed()), (0, Disturbance::None));
        let mine = Word::default().store(me).next;
        let theirs = mine.store(other).next;
        announcing.announce(77, mine, theirs);
        assert_ne!(heeding.news(), 0);
        assert_eq!(heeding.heed(), Disturbance::Line(77));
        assert_eq!((heeding.news(), heeding.heed()), (0, Disturbance::None));
        for line in [77, 78] {
            announcing.announce(line, mine, theirs);
        }
        assert_eq!(heeding.heed(), Disturbance::Lines);
        // The same line again is news too.
        announcing.announce(78, mine, theirs);
        assert_eq!(heeding.heed(), Disturbance::Line(78));
        // It is not news to the one who did it.
        assert_eq!(announcing.news(), 0);
    }

    #[test]
    fn the_count_wraps() {
        let config = fixture::config(2, 1);
        let words = storage(&config);
        words[0].store(u64::MAX << LINE_BITS | 5, Ordering::Relaxed);
        let mut heeding = Disturbed::new(&config, agent(0, 0, true), &words);
        count(&words[0], 6);
        assert_eq!(words[0].load(Ordering::Relaxed), 6);
        assert_eq!(heeding.heed(), Disturbance::Line(6));
    }

    /// A CPU that may do something before a change and not after it is told of the change: for all words that a
    /// few requests lead to.
    #[test]
    fn who_loses_something_is_told() {
        let config = fixture::config(3, 2);
        let words = storage(&config);
        let agents = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)].map(|(n, c)| agent(n, c, false));
        let mut reached = std::collections::HashSet::from([Word::default()]);
        let mut told_for_nothing = 0;
        for _ in 0..4 {
            for before in reached.clone() {
                for me in agents {
                    let afters = [
                        Some(before.load(me, before.shared_by(me.node)).next),
                        Some(before.store(me).next),
                        before.flush(me).map(|s| s.next),
                        before.clean(me).map(|s| s.next),
                    ];
                    for after in afters.into_iter().flatten() {
                        let mut all = agents.map(|a| (a, Disturbed::new(&config, a, &words)));
                        let announcing = Disturbed::new(&config, me, &words);
                        announcing.announce(1, before, after);
                        for (a, disturbed) in &mut all {
                            let can = |word: Word| {
                                let mine = crate::directory::Mine::new(*a);
                                let reads = mine.shared(word);
                                (
                                    reads.then_some(word.version()),
                                    reads && mine.modified(word),
                                )
                            };
                            let (was, is) = (can(before), can(after));
                            let loses = (was.0.is_some() && was.0 != is.0) || (was.1 && !is.1);
                            let own = (a.node, a.cpu) == (me.node, me.cpu);
                            let told = disturbed.heed() == Disturbance::Line(1);
                            assert!(told || own || !loses, "{before:?} {after:?} {a:?} {me:?}");
                            told_for_nothing += usize::from(told && !loses);
                        }
                        // Versions are all alike.
                        if after.version() >> LINE_BITS < 3 {
                            reached.insert(after);
                        }
                    }
                }
            }
        }
        assert!(reached.len() > 30, "{}", reached.len());
        assert!(told_for_nothing > 0, "readers of what was exclusive");
    }
}
