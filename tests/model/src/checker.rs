//! Breadth-first search over states, so that the first violation found is a shortest one.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::state::{Scenario, State};

/// A step of the trace of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node that acts.
    pub node: u8,
    /// The CPU that acts.
    pub cpu: u8,
    /// What it does.
    pub what: &'static str,
}

/// What came out of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// States visited.
    pub states: usize,
    /// States in which something had been reused: without any, nothing was shown.
    pub reused: usize,
    /// States in which a node had been recovered.
    pub recovered: usize,
    /// The violation and the steps that lead to it.
    pub violation: Option<(&'static str, Vec<Step>)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} states, {} with reuse, {} after a recovery",
            self.states, self.reused, self.recovered
        )?;
        let Some((what, trace)) = &self.violation else {
            return f.write_str(", no violation");
        };
        write!(f, ": {what}")?;
        for s in trace {
            write!(f, "\n  node {} cpu {}: {}", s.node, s.cpu, s.what)?;
        }
        Ok(())
    }
}

/// 64 bits of a state stand for it; the chance that two of a few million collide is one in a
/// million.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let x = (self.0 ^ self.0 >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^ x >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut w = [0; 8];
            w[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(w));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 =
            (self.0.rotate_left(7) ^ n.wrapping_add(0x9E37)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 ^= self.0 >> 31;
    }
}

fn fingerprint(s: &State) -> u64 {
    let mut h = Mix::default();
    s.hash(&mut h);
    h.finish()
}

/// Visits every state of a scenario, up to the first violation.
///
/// # Panics
///
/// If there are more than `limit` states: then nothing was shown.
pub fn check(scenario: &Scenario, limit: usize) -> Report {
    let first = State::first(scenario);
    let root = fingerprint(&first);
    let mut parents: HashMap<u64, u64, BuildHasherDefault<Mix>> = HashMap::default();
    parents.insert(root, root);
    let mut queue = VecDeque::from([first]);
    let (mut reused, mut recovered) = (0, 0);
    let mut next = Vec::new();
    while let Some(s) = queue.pop_front() {
        reused += usize::from(s.has_reused());
        recovered += usize::from(s.has_recovered());
        if let Some(what) = s.violation(scenario) {
            let trace = trace(scenario, &parents, root, fingerprint(&s));
            return Report {
                states: parents.len(),
                reused,
                recovered,
                violation: Some((what, trace)),
            };
        }
        let id = fingerprint(&s);
        s.successors(scenario, &mut next);
        for (_, t) in next.drain(..) {
            if let Entry::Vacant(v) = parents.entry(fingerprint(&t)) {
                v.insert(id);
                queue.push_back(t);
            }
        }
        assert!(
            parents.len() <= limit,
            "more than {limit} states: {scenario:?}"
        );
    }
    Report {
        states: parents.len(),
        reused,
        recovered,
        violation: None,
    }
}

fn trace(
    scenario: &Scenario,
    parents: &HashMap<u64, u64, BuildHasherDefault<Mix>>,
    root: u64,
    mut at: u64,
) -> Vec<Step> {
    let mut path = Vec::new();
    while at != root {
        path.push(at);
        at = parents[&at];
    }
    let mut steps = Vec::new();
    let mut s = State::first(scenario);
    let mut next = Vec::new();
    for id in path.into_iter().rev() {
        s.successors(scenario, &mut next);
        let found = next.drain(..).find(|(_, t)| fingerprint(t) == id);
        let (step, t) = found.expect("a state follows from its parent");
        steps.push(step);
        s = t;
    }
    steps
}
