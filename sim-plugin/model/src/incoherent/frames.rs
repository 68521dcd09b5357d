//! Memory of users, which counts as coherent: the frames in a user state.
//!
//! Kernels zero such frames, copy into and out of them, and programs on other nodes use them
//! meanwhile, through caches that somebody else has to keep coherent. What kind a frame is of is in
//! its record in shared memory.

use dyad_retype::word::{FrameType, FrameWord, Use};
use dyad_shm::superblock::CXL_FRAME_TABLE_OFFSET;
use dyad_shm::{FrameEntry, PhysAddr, PoolId};

/// Looks at words of fused memory.
pub trait Peek {
    /// The word at an aligned physical address, as it is now; `None` if it is in no pool.
    fn word(&self, at: u64) -> Option<u64>;
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug)]
pub struct Frames<P>(pub P);

impl<P: Peek + ?Sized> Peek for &P {
    fn word(&self, at: u64) -> Option<u64> {
        (**self).word(at)
    }
}

impl<P: Peek> Frames<P> {
    /// What the record of the frame at an address says, or that of the head of its block; `None` if
    /// it says nothing that anybody writes.
    pub fn word(&self, at: u64) -> Option<FrameWord> {
        let pool = PoolId::of(PhysAddr(at))?;
        let records = match pool {
            PoolId::Cxl => pool.base().0 + CXL_FRAME_TABLE_OFFSET,
            PoolId::Local(_) => pool.base().0,
        };
        let mut index = (at - pool.base().0) / dyad_abi::user::PAGE_SIZE;
        loop {
            let record = records + index * size_of::<FrameEntry>() as u64;
            let word = FrameWord::from_bits(self.0.word(record)?)?;
            if !matches!(word.ty, FrameType::Tail(_)) {
                return Some(word);
            }
            // The head of its block: without the lowest bit, until it is no tail.
            index &= index.checked_sub(1)?;
        }
    }

    /// Whether an address is in memory of a user.
    pub fn is_user(&self, at: u64) -> bool {
        let word = self.word(at);
        let used = word.and_then(|w| w.ty.in_use());
        matches!(used, Some(Use::User))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::NodeId;
    use dyad_retype::{KernelKind, Order, Version};
    use std::collections::BTreeMap;

    struct Words(BTreeMap<u64, u64>);

    impl Peek for Words {
        fn word(&self, at: u64) -> Option<u64> {
            Some(self.0.get(&at).copied().unwrap_or(0))
        }
    }

    #[test]
    fn memory_of_users_is_that_of_blocks_of_users() {
        let cxl = PoolId::Cxl.base().0;
        let local = PoolId::Local(NodeId::new(1).unwrap()).base().0;
        let order = |n| Order::new(n).unwrap();
        let mut words = Words(BTreeMap::new());
        for (pool, records) in [(cxl, cxl + CXL_FRAME_TABLE_OFFSET), (local, local)] {
            for (index, ty) in [
                (12, FrameType::User(order(2))),
                (13, FrameType::Tail(order(0))),
                (14, FrameType::Tail(order(1))),
                (15, FrameType::Tail(order(0))),
                (16, FrameType::Kernel(KernelKind::THREAD)),
                (17, FrameType::Frozen(Use::User)),
                (18, FrameType::Untyped(order(1))),
                (19, FrameType::Tail(order(0))),
            ] {
                let word = FrameWord::new(Version(3), ty).bits();
                words.0.insert(records + 16 * index, word);
            }
            let frames = Frames(&words);
            let user: Vec<u64> = (0..24)
                .filter(|i| frames.is_user(pool + i * 4096 + 8))
                .collect();
            assert_eq!(user, [12, 13, 14, 15, 17], "{pool:#x}");
        }
        assert!(!Frames(&words).is_user(0x1000), "in no pool");
        // Nobody writes such a record.
        words.0.insert(local, u64::MAX);
        assert_eq!(Frames(&words).word(local), None);
    }
}
