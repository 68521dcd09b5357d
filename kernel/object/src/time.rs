//! Budgets of processor time.

use core::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_retype::KernelKind;
use dyad_shm::{LayoutHash, shared_layout, shared_struct};

use crate::endpoint::LINES;

/// A budget that does not run out.
pub const UNLIMITED: u64 = u64::MAX;
const REST: usize = PAGE_SIZE as usize / 8 - LINES;

shared_struct! {
    /// A frame of budgets.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Budgets {
        /// Nanoseconds left, by budget.
        pub left: [AtomicU64; LINES],
        /// Unused; zero.
        pub rest: [AtomicU64; REST],
    }
}

const _: () = assert!(size_of::<Budgets>() as u64 == PAGE_SIZE);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h; Budgets { left, rest })
}

impl Budgets {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::TIME;
}
