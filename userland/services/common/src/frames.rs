//! Accounts of frames: init's only record of which memory belongs to whom.
//!
//! The kernel's frame table knows what every frame is, so nothing of that is kept here. An
//! [`Account`] gives contiguous runs of untyped memory away, in order of address; a run is an
//! [`Arena`]. The owner of an arena gets everything from it, so that taking everything back is
//! going through the arena once, whatever has become of its frames in the meantime, and whichever program
//! has split, retyped or lost them.
//!
//! ```text
//!  pool:  | reserved | arena | arena | ... | free (untyped, in large blocks) | reserved |
//!                                          ^ Account::next
//!  arena: | taken: user blocks, kernel objects | untyped, cut on demand |
//!                                              ^ Arena::next
//! ```
//!
//! Both boundaries are always the start of a block. `at` counts frames from the start of the memory
//! capability of the pool, which may be anywhere in it.

use dyad_abi::{Error, Result};

/// The frame table's record of the frame at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Start of an untyped block.
    Untyped {
        /// Size of the block, as the logarithm of its number of frames.
        order: u32,
    },
    /// Start of a block of user memory.
    User {
        /// Size of the block, as the logarithm of its number of frames.
        order: u32,
    },
    /// A kernel object.
    Kernel,
    /// Inside a block.
    Tail,
    /// The frame cannot be had: it is reserved, retired, or being changed.
    Other,
}

impl What {
    /// Reads the word that `Inspect` gives, the frame's own in the frame table:
    /// `version:32 | type:3 | kind:5 | references:24`.
    pub const fn of_word(word: u64) -> What {
        let order = (word >> 24 & 31) as u32;
        match word >> 29 & 7 {
            1 => What::Untyped { order },
            4 => What::User { order },
            5 => What::Kernel,
            6 => What::Tail,
            _ => What::Other,
        }
    }

    /// Number of frames up to the next record.
    pub const fn frames(self) -> u64 {
        match self {
            What::Untyped { order } | What::User { order } => 1 << order,
            What::Kernel | What::Tail | What::Other => 1,
        }
    }
}

/// The frames behind a memory capability.
pub trait Pool {
    /// Number of frames of the pool.
    fn frames(&self) -> u64;

    /// The use of the frame.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn inspect(&self, at: u64) -> Result<What>;

    /// Makes two blocks of the untyped block.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn split(&self, at: u64) -> Result<()>;

    /// Makes a block or object untyped.
    ///
    /// # Errors
    ///
    /// As the kernel says: `Again` or `Exists` while there are references to it.
    fn retype_untyped(&self, at: u64) -> Result<()>;
}

/// Memory of a pool that has not been given away yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    next: u64,
}

/// Memory that has been given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    first: u64,
    end: u64,
    next: u64,
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blocks and objects made untyped.
    pub returned: u64,
    /// Blocks and objects that are still referred to.
    pub held: u64,
}

/// Splits blocks from the head `at` on until `boundary`, inside that block, is a head too.
fn cut(pool: &impl Pool, mut at: u64, boundary: u64) -> Result<()> {
    while at != boundary {
        let What::Untyped { order } = pool.inspect(at)? else {
            return Err(Error::Corrupt);
        };
        let half = order.checked_sub(1).map(|o| 1 << o).ok_or(Error::Corrupt)?;
        pool.split(at)?;
        if at + half <= boundary {
            at += half;
        }
    }
    Ok(())
}

impl Account {
    /// The account of a whole pool.
    pub const fn new() -> Account {
        Account { next: 0 }
    }

    /// The run of untyped frames from `next` on: where it starts, how long it is (no longer than
    /// `enough`, rounded up to a block), and the head of its last block.
    fn run(pool: &impl Pool, next: u64, enough: u64) -> Result<(u64, u64, u64)> {
        let (mut start, mut at, mut last) = (next, next, next);
        while at < pool.frames() && at - start < enough {
            let what = pool.inspect(at)?;
            if matches!(what, What::Untyped { .. }) {
                last = at;
            } else if at > start {
                break;
            } else {
                start = at + what.frames();
            }
            at += what.frames();
        }
        Ok((start, at - start, last))
    }

    /// Gives `frames` contiguous frames away.
    ///
    /// # Errors
    ///
    /// `NoMemory` if no run is that long; what comes before the run is lost to this account.
    pub fn carve(&mut self, pool: &impl Pool, frames: u64) -> Result<Arena> {
        if frames == 0 {
            return Err(Error::BadArgument);
        }
        let mut next = self.next;
        loop {
            let (start, len, last) = Account::run(pool, next, frames)?;
            if len >= frames {
                let end = start + frames;
                if start + len != end {
                    cut(pool, last, end)?;
                }
                self.next = end;
                return Ok(Arena {
                    first: start,
                    end,
                    next: start,
                });
            }
            if len == 0 {
                return Err(Error::NoMemory);
            }
            next = start + len;
        }
    }

    /// The longest run: its first frame and its length. What comes before it is lost to this account:
    /// the next arena begins there.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn longest(&mut self, pool: &impl Pool) -> Result<(u64, u64)> {
        let (mut best, mut next) = ((0, 0), self.next);
        loop {
            let (start, len, _) = Account::run(pool, next, u64::MAX)?;
            if len == 0 {
                break;
            }
            if len > best.1 {
                best = (start, len);
            }
            next = start + len;
        }
        if best.1 != 0 {
            self.next = best.0;
        }
        Ok(best)
    }

    /// The blocks of an order that lie entirely in a run, aligned in the pool: the start of the first and
    /// their number. Nothing of the run may have been given away.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn whole_blocks(
        pool: &impl Pool,
        (start, len): (u64, u64),
        order: u32,
    ) -> Result<(u64, u64)> {
        let end = start + len;
        let mut at = start;
        while at < end {
            let what = pool.inspect(at)?;
            // A capability need not begin at the start of the pool, so alignment is read off blocks,
            // which are as large as it permits.
            if matches!(what, What::Untyped { order: found } if found >= order) {
                return Ok((at, (end - at) >> order));
            }
            at += what.frames();
        }
        Ok((end, 0))
    }
}

impl Default for Account {
    fn default() -> Account {
        Account::new()
    }
}

impl Arena {
    /// First frame.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Number of frames.
    pub const fn frames(&self) -> u64 {
        self.end - self.first
    }

    /// Takes an untyped block of exactly this order; it is for the caller to retype. What lies
    /// between the last one and this one, because of its alignment, stays untyped.
    ///
    /// # Errors
    ///
    /// `NoMemory` if there is no more.
    pub fn take(&mut self, pool: &impl Pool, order: u32) -> Result<u64> {
        let size = 1u64.checked_shl(order).ok_or(Error::BadArgument)?;
        let mut at = self.next;
        while at < self.end {
            let What::Untyped { order: found } = pool.inspect(at)? else {
                return Err(Error::Corrupt);
            };
            // A block is aligned to its size, so it is large enough for one that is aligned.
            if found < order {
                at += 1 << found;
                continue;
            }
            for _ in order..found {
                pool.split(at)?;
            }
            if at + size > self.end {
                break;
            }
            self.next = at + size;
            return Ok(at);
        }
        Err(Error::NoMemory)
    }

    /// Makes everything untyped that nothing refers to any more. It is called again as long as
    /// there is progress: objects hold each other.
    ///
    /// # Errors
    ///
    /// Whatever is not about references.
    pub fn sweep(&self, pool: &impl Pool) -> Result<Swept> {
        let mut swept = Swept::default();
        let mut at = self.first;
        while at < self.end {
            let what = pool.inspect(at)?;
            if matches!(what, What::User { .. } | What::Kernel) {
                match pool.retype_untyped(at) {
                    Ok(()) => swept.returned += 1,
                    Err(Error::Again | Error::Exists | Error::Denied) => swept.held += 1,
                    Err(e) => return Err(e),
                }
            }
            at += what.frames();
        }
        Ok(swept)
    }

    /// Untyped frames of this arena.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn free(&self, pool: &impl Pool) -> Result<u64> {
        count(pool, self.first, self.end)
    }
}

/// Untyped frames of a pool from `first` to before `end`.
///
/// # Errors
///
/// As the kernel says.
pub fn count(pool: &impl Pool, first: u64, end: u64) -> Result<u64> {
    let (mut at, mut free) = (first, 0);
    while at < end {
        let what = pool.inspect(at)?;
        if matches!(what, What::Untyped { .. }) {
            free += what.frames();
        }
        at += what.frames();
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::cell::RefCell;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// A pool with `reserved` frames at both ends; blocks as large as alignment permits.
    struct Fake(RefCell<Vec<What>>);

    impl Fake {
        fn new(frames: u64, reserved: u64) -> Fake {
            let mut table = vec![What::Other; frames as usize];
            let mut at = reserved;
            while at < frames - reserved {
                let mut order = at.trailing_zeros().min(9);
                while at + (1 << order) > frames - reserved {
                    order -= 1;
                }
                table[at as usize] = What::Untyped { order };
                for i in 1..1u64 << order {
                    table[(at + i) as usize] = What::Tail;
                }
                at += 1 << order;
            }
            Fake(RefCell::new(table))
        }

        fn retype(&self, at: u64, to: What) {
            let mut table = self.0.borrow_mut();
            assert!(matches!(table[at as usize], What::Untyped { .. }));
            assert_eq!(table[at as usize].frames(), to.frames());
            table[at as usize] = to;
        }

        fn tails(&self, at: u64, frames: u64) -> bool {
            (1..frames).all(|i| self.0.borrow()[(at + i) as usize] == What::Tail)
        }
    }

    impl Pool for Fake {
        fn frames(&self) -> u64 {
            self.0.borrow().len() as u64
        }

        fn inspect(&self, at: u64) -> Result<What> {
            let what = *self.0.borrow().get(at as usize).ok_or(Error::BadArgument)?;
            assert!(self.tails(at, what.frames()));
            Ok(what)
        }

        fn split(&self, at: u64) -> Result<()> {
            let What::Untyped { order } = self.inspect(at)? else {
                return Err(Error::Denied);
            };
            let order = order.checked_sub(1).ok_or(Error::BadArgument)?;
            let mut table = self.0.borrow_mut();
            table[at as usize] = What::Untyped { order };
            table[at as usize + (1 << order)] = What::Untyped { order };
            Ok(())
        }

        fn retype_untyped(&self, at: u64) -> Result<()> {
            let order = match self.inspect(at)? {
                What::User { order } => order,
                What::Kernel => 0,
                _ => return Err(Error::BadArgument),
            };
            self.0.borrow_mut()[at as usize] = What::Untyped { order };
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn arenas_are_apart_and_everything_comes_back(
            reserved in 1u64..40,
            wishes in prop::collection::vec((1u64..600, prop::collection::vec(0u32..6, 0..30)), 1..6),
        ) {
            let pool = Fake::new(2048, reserved);
            let before = count(&pool, 0, 2048).unwrap();
            prop_assert_eq!(before, 2048 - 2 * reserved);
            let mut account = Account::new();
            let mut arenas: Vec<Arena> = Vec::new();
            for (frames, orders) in wishes {
                let Ok(mut arena) = account.carve(&pool, frames) else { break };
                prop_assert_eq!(arena.frames(), frames);
                prop_assert!(arenas.iter().all(|a| a.end <= arena.first));
                prop_assert_eq!(arena.free(&pool).unwrap(), frames);
                let mut taken = 0;
                for order in orders {
                    match arena.take(&pool, order) {
                        Ok(at) => {
                            prop_assert!(at.is_multiple_of(1 << order));
                            prop_assert!(at >= arena.first && at + (1 << order) <= arena.end);
                            let kernel = order == 0 && at % 2 == 0;
                            pool.retype(at, if kernel { What::Kernel } else { What::User { order } });
                            taken += 1u64 << order;
                        }
                        Err(e) => prop_assert_eq!(e, Error::NoMemory),
                    }
                }
                prop_assert_eq!(arena.free(&pool).unwrap(), frames - taken);
                arenas.push(arena);
            }
            for arena in &arenas {
                prop_assert_eq!(arena.sweep(&pool).unwrap().held, 0);
                prop_assert_eq!(arena.free(&pool).unwrap(), arena.frames());
            }
            prop_assert_eq!(count(&pool, 0, 2048).unwrap(), before);
        }
    }

    #[test]
    fn words_are_those_of_the_frame_table() {
        use dyad_retype::{FrameType, FrameWord, KernelKind, Order, Refs};
        let order = Order::new(11).unwrap();
        for (ty, what) in [
            (FrameType::Reserved, What::Other),
            (FrameType::Untyped(order), What::Untyped { order: 11 }),
            (FrameType::User(order), What::User { order: 11 }),
            (FrameType::Kernel(KernelKind::THREAD), What::Kernel),
            (FrameType::Tail(order), What::Tail),
            (FrameType::Retired, What::Other),
            (
                FrameType::Retyping(dyad_abi::NodeId::new(4).unwrap()),
                What::Other,
            ),
        ] {
            let mut word = FrameWord::new(dyad_shm::frame::Version(77), ty);
            assert_eq!(What::of_word(word.bits()), what);
            word.refs = Refs::MAX;
            if ty.in_use().is_some() {
                assert_eq!(What::of_word(word.bits()), what);
            }
        }
    }

    #[test]
    fn a_hole_is_gone_round() {
        let pool = Fake::new(1024, 8);
        pool.0.borrow_mut()[512] = What::Other;
        for at in 513..520 {
            pool.0.borrow_mut()[at] = What::Untyped { order: 0 };
        }
        for (at, order) in [
            (520u64, 3),
            (528, 4),
            (544, 5),
            (576, 6),
            (640, 7),
            (768, 7),
            (896, 6),
        ] {
            pool.0.borrow_mut()[at as usize] = What::Untyped { order };
        }
        let mut account = Account::new();
        // 504 frames lie before the hole.
        let arena = account.carve(&pool, 505);
        assert_eq!(arena.map(|a| a.first()), Err(Error::NoMemory));
        let mut account = Account::new();
        assert_eq!(account.carve(&pool, 504).map(|a| a.first()), Ok(8));
        // Behind the hole there are 503.
        assert_eq!(account.longest(&pool), Ok((513, 503)));
        assert_eq!(account.carve(&pool, 403).map(|a| a.first()), Ok(513));
        assert_eq!(account.longest(&pool), Ok((916, 100)));
        assert_eq!(Account::whole_blocks(&pool, (8, 504), 6), Ok((64, 7)));
        assert_eq!(Account::whole_blocks(&pool, (8, 504), 9), Ok((512, 0)));
        assert!(account.carve(&pool, 2000).is_err());
        assert!(account.carve(&pool, 0).is_err());
    }

    #[test]
    fn held_objects_are_counted_not_forced() {
        struct Held(Fake);
        impl Pool for Held {
            fn frames(&self) -> u64 {
                self.0.frames()
            }
            fn inspect(&self, at: u64) -> Result<What> {
                self.0.inspect(at)
            }
            fn split(&self, at: u64) -> Result<()> {
                self.0.split(at)
            }
            fn retype_untyped(&self, _: u64) -> Result<()> {
                Err(Error::Again)
            }
        }
        let pool = Held(Fake::new(64, 1));
        let mut arena = Account::new().carve(&pool, 10).unwrap();
        let at = arena.take(&pool, 0).unwrap();
        pool.0.retype(at, What::Kernel);
        let swept = arena.sweep(&pool).unwrap();
        assert_eq!((swept.returned, swept.held), (0, 1));
        assert_eq!(arena.free(&pool), Ok(9));
    }
}
