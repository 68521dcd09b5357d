//! A cache as a textbook has it: blocks with the time of their last use.

use crate::config::CacheShape;

/// Which line a block is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// The same for all nodes.
    Common(u64),
    /// One node's.
    Own(usize, u64),
}

impl Id {
    pub(super) fn line(self) -> u64 {
        match self {
            Id::Common(line) | Id::Own(_, line) => line,
        }
    }
}

#[derive(Clone, Debug)]
struct Block {
    id: Id,
    valid: bool,
    used: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Level {
    sets: Vec<Vec<Block>>,
    ways: usize,
}

impl Level {
    pub(super) fn new(shape: CacheShape) -> Self {
        Self {
            sets: vec![Vec::new(); shape.sets() as usize],
            ways: shape.ways as usize,
        }
    }

    fn set(&mut self, id: Id) -> &mut Vec<Block> {
        let sets = self.sets.len() as u64;
        &mut self.sets[(id.line() % sets) as usize]
    }

    fn block(&mut self, id: Id) -> Option<&mut Block> {
        self.set(id).iter_mut().find(|block| block.id == id)
    }

    /// Whether there is a valid copy.
    pub(super) fn has(&mut self, id: Id) -> bool {
        self.block(id).is_some_and(|block| block.valid)
    }

    /// Uses a copy that is there.
    pub(super) fn use_it(&mut self, id: Id, now: u64) {
        self.block(id).expect("found before").used = now;
    }

    /// The valid line that would have to go if a line were brought in.
    pub(super) fn evicts(&mut self, id: Id) -> Option<Id> {
        let ways = self.ways;
        let set = self.set(id);
        if set.len() < ways || set.iter().any(|block| block.id == id) {
            return None;
        }
        let oldest = set.iter().min_by_key(|b| (b.valid, b.used))?;
        oldest.valid.then_some(oldest.id)
    }

    /// Brings a line in. Returns the valid line that had to go.
    pub(super) fn bring(&mut self, id: Id, now: u64) -> Option<Id> {
        let new = Block {
            id,
            valid: true,
            used: now,
        };
        if let Some(block) = self.block(id) {
            *block = new;
            return None;
        }
        let ways = self.ways;
        let set = self.set(id);
        if set.len() < ways {
            set.push(new);
            return None;
        }
        // An invalid block goes first, otherwise the one that was used longest ago.
        let oldest = set.iter_mut().min_by_key(|b| (b.valid, b.used))?;
        let gone = std::mem::replace(oldest, new);
        gone.valid.then_some(gone.id)
    }

    /// Marks a copy as no longer good. The next fill of its full set takes its place.
    pub(super) fn invalidate(&mut self, id: Id) {
        if let Some(block) = self.block(id) {
            block.valid = false;
        }
    }

    /// Takes all blocks out. Returns the lines of the valid ones.
    pub(super) fn empty(&mut self) -> Vec<Id> {
        let blocks = self.sets.iter_mut().flat_map(std::mem::take);
        blocks.filter(|block| block.valid).map(|b| b.id).collect()
    }

    /// Takes a block out, if there is one and `which` likes it. Returns whether that is so.
    fn take_out(&mut self, id: Id, which: impl Fn(&Block) -> bool) -> bool {
        let set = self.set(id);
        let before = set.len();
        set.retain(|block| block.id != id || !which(block));
        set.len() != before
    }

    /// Takes a valid copy out. Returns whether there was one.
    pub(super) fn take_valid(&mut self, id: Id) -> bool {
        self.take_out(id, |block| block.valid)
    }

    /// The lines of the blocks, valid or not, in the set of a line.
    pub(super) fn in_set(&mut self, id: Id) -> Vec<Id> {
        self.set(id).iter().map(|block| block.id).collect()
    }

    /// Takes a block out, valid or not.
    pub(super) fn take_any(&mut self, id: Id) {
        self.take_out(id, |_| true);
    }
}
