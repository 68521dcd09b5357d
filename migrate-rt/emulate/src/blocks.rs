//! Code that has been taken apart: straight runs of operations, found by the address of their first one.
//!
//! The code of a program never changes, so nothing here is ever taken back because of that. When there is no
//! room, everything is forgotten.

/// Operations that are kept.
const OPERATIONS: usize = 512;
/// Runs that can be found.
const RUNS: usize = 256;
/// Operations of a run at most, the one at its end included.
const LONGEST_RUN: usize = 48;

/// Where the run that begins at an address is noted.
const fn place(pc: u64) -> usize {
    (pc ^ pc >> 7) as usize % RUNS
}

/// No run: an address that has its place elsewhere.
const NONE: [u64; RUNS] = {
    let mut tags = [0; RUNS];
    tags[place(0)] = 1;
    assert!(place(0) != place(1));
    tags
};

/// Runs of operations of one program and ISA. An operation is whatever an ISA makes of an instruction.
#[derive(Debug)]
pub struct Blocks<T> {
    /// The address of the run in each place, or one that has its place elsewhere.
    tags: [u64; RUNS],
    /// Where it begins.
    starts: [u16; RUNS],
    operations: [T; OPERATIONS],
    /// Operations that are there.
    used: usize,
}

impl<T: Copy> Blocks<T> {
    /// Without any code. `empty` is any operation.
    #[inline(always)]
    pub(crate) fn new(empty: T) -> Blocks<T> {
        Blocks {
            tags: NONE,
            starts: [0; RUNS],
            operations: [empty; OPERATIONS],
            used: 0,
        }
    }

    /// Where the run that begins at `pc` is.
    #[inline(always)]
    pub(crate) fn find(&self, pc: u64) -> Option<usize> {
        let place = place(pc);
        (self.tags[place] == pc).then(|| usize::from(self.starts[place]))
    }

    /// The operation with a number.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> &T {
        &self.operations[at % OPERATIONS]
    }

    /// Keeps a run that begins at `pc`: `next` gives its operations, and whether the run ends with this one.
    /// It ends after so many as well, with `end`, for the address where it goes on.
    pub(crate) fn keep(
        &mut self,
        pc: u64,
        mut next: impl FnMut() -> (T, bool),
        end: impl FnOnce() -> T,
    ) -> usize {
        if self.used + LONGEST_RUN > OPERATIONS {
            self.tags = NONE;
            self.used = 0;
        }
        let start = self.used;
        let place = place(pc);
        self.tags[place] = pc;
        self.starts[place] = start as u16;
        let mut put = |operation| {
            self.operations[self.used % OPERATIONS] = operation;
            self.used += 1;
        };
        for _ in 1..LONGEST_RUN {
            let (operation, is_last) = next();
            put(operation);
            if is_last {
                return start;
            }
        }
        put(end());
        start
    }
}
