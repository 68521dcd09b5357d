//! Reads that wait for a write-back, until it is known what becomes of them.

use super::{Finding, Pending, Settled};

/// Most reads of a machine that wait; there is one for each two instructions. Further ones are let go, and counted.
pub const MAX_PENDING: usize = 256;

/// The reads of a machine that wait.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    reads: Vec<Pending>,
    let_go: u64,
}

impl Waiting {
    /// A read waits, unless one of the same two instructions does already: that one is settled sooner.
    pub fn add(&mut self, new: Pending) {
        let site = |p: &Pending| (p.finding.who.pc, p.finding.writer.map(|w| w.pc));
        if self.reads.iter().any(|p| site(p) == site(&new)) {
            return;
        }
        match self.reads.len() < MAX_PENDING {
            true => self.reads.push(new),
            false => self.let_go += 1,
        }
    }

    /// Looks what has become of each; those whose line is never written back are `found`.
    pub fn settle(
        &mut self,
        settle: impl Fn(&Pending) -> Settled,
        mut found: impl FnMut(&Finding),
    ) {
        self.reads.retain(|p| match settle(p) {
            Settled::Open => true,
            Settled::Published => false,
            Settled::Never => {
                found(&p.finding);
                false
            }
        });
    }

    /// How many were let go, because there was no room: what has become of them is not known.
    pub const fn let_go(&self) -> u64 {
        self.let_go
    }
}

#[cfg(test)]
mod tests {
    use super::super::Who;
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut waiting = Waiting::default();
        let read = |pc| {
            Pending::of(Who {
                node: 0,
                cpu: 0,
                pc,
            })
        };
        let many = MAX_PENDING as u64;
        for pc in 0..many + 3 {
            waiting.add(read(pc));
            waiting.add(read(0));
        }
        assert_eq!(waiting.let_go(), 3);
        let mut found = Vec::new();
        let odd = |p: &Pending| match p.finding.who.pc % 2 {
            0 => Settled::Published,
            _ => Settled::Never,
        };
        waiting.settle(odd, |f| found.push(f.who.pc));
        assert!(found.iter().copied().eq((0..many).filter(|pc| pc % 2 == 1)));
        // There is room again.
        waiting.add(read(many));
        waiting.settle(|_| Settled::Open, |_| unreachable!());
        assert_eq!((waiting.let_go(), waiting.reads.len()), (3, 1));
    }
}
