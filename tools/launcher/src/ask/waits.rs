//! Who waits for whom, for reports about runs that hang.

use dyad_abi::user::waiting::{Waiting, What};

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Name of its program.
    pub program: String,
    /// Number in it.
    pub thread: u64,
    /// The node that it is on.
    pub node: usize,
    /// Its state, in a word.
    pub state: &'static str,
    /// What it waits for, as its runtime says.
    pub waiting: Option<Waiting>,
}

/// A line for each thread, and one for each ring of threads that wait for each other.
pub fn story(all: &[Waits]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().map(line).collect();
    let mut told: Vec<usize> = Vec::new();
    for start in 0..all.len() {
        let Some(ring) = ring(all, start).filter(|ring| !ring.iter().any(|n| told.contains(n)))
        else {
            continue;
        };
        let numbers: Vec<String> = ring.iter().map(|&n| all[n].thread.to_string()).collect();
        let program = &all[start].program;
        lines.push(match &numbers[..] {
            [one] => format!("{program}: thread {one} waits for itself"),
            more => {
                let names = more.join(", ");
                format!("{program}: threads {names} wait for each other: they never go on")
            }
        });
        told.extend(ring);
    }
    lines
}

fn line(of: &Waits) -> String {
    let Waits {
        program,
        thread,
        node,
        state,
        waiting,
    } = of;
    let mut text = format!("{program}: thread {thread} on node {node} ");
    let Some(Waiting { what, owner, at }) = *waiting else {
        return text + "is " + state;
    };
    text.push_str("waits for ");
    match (what, owner) {
        (What::End, Some(n)) => text.push_str(&format!("the end of thread {n}")),
        _ => {
            text.push_str(&format!("{} at {at:#x}", what.name()));
            if let Some(n) = owner {
                text.push_str(&format!(", which thread {n} has"));
            }
        }
    }
    text
}

/// The threads that wait for each other, by their places, if the one at `start` is the first of them.
fn ring(all: &[Waits], start: usize) -> Option<Vec<usize>> {
    let mut ring = vec![start];
    loop {
        let last = &all[*ring.last()?];
        let owner = u64::from(last.waiting?.owner?);
        let is_next = |w: &Waits| w.program == last.program && w.thread == owner;
        let next = all.iter().position(is_next)?;
        if next == start {
            return Some(ring);
        }
        if ring.contains(&next) {
            return None;
        }
        ring.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_threads_are_found() {
        let waits = |thread, what, owner| Waits {
            program: "app".into(),
            thread,
            node: 1,
            state: "blocked",
            waiting: Some(Waiting {
                what,
                owner,
                at: 0x10_0000_0040,
            }),
        };
        let all = [
            waits(0, What::End, Some(3)),
            Waits {
                waiting: None,
                ..waits(1, What::Word, None)
            },
            waits(2, What::Mutex, Some(3)),
            waits(3, What::Write, Some(2)),
            waits(4, What::Spin, Some(4)),
            waits(5, What::Barrier, None),
            waits(6, What::Mutex, Some(60)),
        ];
        assert_eq!(
            story(&all),
            [
                "app: thread 0 on node 1 waits for the end of thread 3",
                "app: thread 1 on node 1 is blocked",
                "app: thread 2 on node 1 waits for the mutex at 0x1000000040, which thread 3 has",
                "app: thread 3 on node 1 waits for the reader-writer lock, to write, at 0x1000000040, which thread 2 has",
                "app: thread 4 on node 1 waits for the spin lock at 0x1000000040, which thread 4 has",
                "app: thread 5 on node 1 waits for the other threads at the barrier at 0x1000000040",
                "app: thread 6 on node 1 waits for the mutex at 0x1000000040, which thread 60 has",
                "app: threads 2, 3 wait for each other: they never go on",
                "app: thread 4 waits for itself",
            ]
        );
        assert!(story(&[]).is_empty());
    }
}
