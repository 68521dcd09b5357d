//! What is asked of the kernel, as it is done in the model: every change of an entry is a point.

use dyad_abi::cap::{Counted, Step};
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, NodeId, Result};
use dyad_blocks::{Cost, Kernel, Run};

use super::{At, Entry, LOOKS, Lacks, NODES, PAGES, World, frames};

impl World {
    /// All frames that a run has.
    fn counts(&self, run: &Run) -> Counted {
        let s = self.state.borrow();
        let mut counted = Counted::default();
        for frame in &s.frames[frames(run)][..LOOKS.min(run.frames as usize)] {
            let in_hand = frame.refs == 0 && self.lacks == Lacks::Hands;
            counted.looked += 1;
            counted.user += u64::from(frame.user && !in_hand);
            counted.untyped += u64::from(!frame.object && (!frame.user || in_hand));
        }
        counted
    }

    /// One entry is changed, if it still is what it was.
    fn change(&self, page: usize, isa: usize, from: Entry, to: Entry) -> Result<()> {
        self.point();
        let s = &mut *self.state.borrow_mut();
        if s.pages[page].entries[isa] != from {
            return Err(Error::Again);
        }
        s.pages[page].entries[isa] = to;
        if from.frame() != to.frame() {
            if let Some(at) = to.frame() {
                s.frames[at].refs += 1;
            }
            if let Some(at) = from.frame() {
                s.let_go(at);
            }
        }
        Ok(())
    }

    /// A step for one page: whether something was done.
    fn step(&self, step: Step, page: usize, run: &Run, node: usize) -> Result<bool> {
        let lies = |at: At| frames(run).contains(&at);
        let entries = self.state.borrow().pages[page].entries;
        let elsewhere = |old: At| {
            entries.iter().find_map(|e| match e {
                Entry::Leaf(at) if *at != old => Some(*at),
                _ => None,
            })
        };
        let mut done = false;
        match step {
            Step::Park => {
                for (isa, e) in entries.into_iter().enumerate() {
                    if let Entry::Leaf(at) = e
                        && lies(at)
                    {
                        self.change(page, isa, e, Entry::Parked(at))?;
                        done = true;
                    }
                }
            }
            Step::Unpark => {
                for (isa, e) in entries.into_iter().enumerate() {
                    if let Entry::Parked(at) = e
                        && lies(at)
                        && self.lacks != Lacks::Unparking
                    {
                        let known = |to: &At| self.lacks != Lacks::Moved || !lies(*to);
                        let moved = elsewhere(at).filter(known);
                        self.change(page, isa, e, Entry::Leaf(moved.unwrap_or(at)))?;
                        done = true;
                    }
                }
            }
            Step::Move => {
                let parked = entries.into_iter().find_map(|e| match e {
                    Entry::Parked(at) if lies(at) => Some(at),
                    _ => None,
                });
                let Some(old) = parked else { return Ok(false) };
                if entries.contains(&Entry::Leaf(old)) {
                    return Err(Error::Again);
                }
                let to = match elsewhere(old) {
                    Some(to) => to,
                    None => self.state.borrow_mut().copy(old, node, self.lacks)?,
                };
                let mut result = Ok(true);
                for (isa, e) in entries.into_iter().enumerate() {
                    if e == Entry::Parked(old)
                        && let Err(why) = self.change(page, isa, e, Entry::Leaf(to))
                    {
                        result = Err(why);
                    }
                }
                let s = &mut *self.state.borrow_mut();
                s.new = None;
                s.give_back(to);
                return result;
            }
        }
        Ok(done)
    }
}

impl Kernel for World {
    fn nodes(&self) -> usize {
        NODES
    }

    fn here(&self) -> NodeId {
        NodeId::new(self.leads.get().unwrap_or(0) as u64).unwrap()
    }

    fn lives(&self, node: NodeId) -> Result<bool> {
        self.point();
        Ok(self.lives_now(node.index()))
    }

    fn now(&self) -> Cost {
        Cost {
            instructions: self.points.get().into(),
            ns: self.points.get().into(),
        }
    }

    fn count(&self, run: &Run) -> Result<Counted> {
        self.point();
        Ok(self.counts(run))
    }

    fn supply(&self, node: NodeId, n: usize, run: Option<&Run>) -> Result<()> {
        self.point();
        let old = self.state.borrow().supplies[node.index()][n];
        let shrinks = old.is_some_and(|old| run.is_none_or(|r| r.frames < old.frames));
        if self.lacks == Lacks::Closing && shrinks {
            return Ok(());
        }
        let s = &mut *self.state.borrow_mut();
        s.supplies[node.index()][n] = run.copied();
        for at in run.into_iter().flat_map(frames) {
            // What another node had is empty.
            let before = s.owners[at].replace(node.index());
            let frame = &s.frames[at];
            let unused = !frame.user && !frame.object;
            assert!(
                before.is_none_or(|n| n == node.index()) || unused,
                "frame {at} goes to node {node} with something in it"
            );
        }
        Ok(())
    }

    fn evacuate(
        &self,
        step: Step,
        (start, pages): (u64, u64),
        run: &Run,
        node: NodeId,
    ) -> Result<(u64, u64)> {
        self.way(Error::Again)?;
        let first = (start - USER_MIN) / PAGE_SIZE;
        assert!(start + pages * PAGE_SIZE <= USER_END);
        let mut done = 0;
        for n in 0..pages.min(LOOKS as u64) {
            let page = (first + n) as usize;
            if page >= PAGES {
                // Nothing is there, which is seen at once.
                return Ok((pages, done));
            }
            match self.step(step, page, run, node.index()) {
                Ok(taken) => done += u64::from(taken),
                Err(_) if n > 0 => return Ok((n, done)),
                Err(e) => return Err(e),
            }
        }
        self.point();
        Ok((pages.min(LOOKS as u64), done))
    }

    fn shootdown(&self, _: u64) -> Result<()> {
        self.point();
        let late = self.way(Error::TimedOut);
        for node in 0..NODES {
            self.state.borrow_mut().finish(node);
            // One that is late drops them some other time.
            if self.lacks != Lacks::Shootdown && (late.is_ok() || node == 0) {
                self.state.borrow_mut().translations[node] = [None; PAGES];
            }
        }
        late
    }

    fn give_back_lost(&self, run: &Run) -> Result<()> {
        self.point();
        let s = &mut *self.state.borrow_mut();
        for at in frames(run) {
            if !s.frames[at].user || s.frames[at].refs != 0 {
                continue;
            }
            for node in 0..NODES {
                if s.hands[node].is_some_and(|(_, held)| held == at) {
                    assert!(!s.live[node], "a fault of node {node} loses its frame");
                    s.hands[node] = None;
                }
            }
            s.give_back(at);
        }
        Ok(())
    }

    fn call_leader(&self) {}
}
