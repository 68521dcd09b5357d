//! Budgets of processor time.
//!
//! A dispatch takes the time of its slice off the budget before the thread runs, and gives back what the thread
//! has not used when it stops. So time that a thread may still use is in no budget meanwhile: nobody can
//! transfer it or dispatch another thread on it.
//!
//! ```text
//!   left ──dispatch: reserve──▶ the thread's slice ──stop: refund of what was not used──▶ left
//!                                   └─ used longer than reserved: off `left`, the rest is `debt`
//! ```
//!
//! Timers end slices late. What a thread has run beyond its reservation is taken off the budget, and what the
//! budget does not hold is noted as debt, which the next dispatch on the budget pays first.
//!
//! | step | order |
//! |---|---|
//! | dispatch: reserve; the thread is taken | time is reserved before anybody runs; a dispatch that is refused gives it back |
//! | stop: refund or debt; the owner word | while the thread is this CPU's |
//!
//! A node that dies loses what its threads had reserved.

use core::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_retype::KernelKind;
use dyad_shm::{LayoutHash, shared_layout, shared_struct};

use crate::endpoint::LINES;

/// A budget that does not run out.
pub const UNLIMITED: u64 = u64::MAX;
const REST: usize = PAGE_SIZE as usize / 8 - 2 * LINES;

shared_struct! {
    /// A frame of budgets.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Budgets {
        /// Nanoseconds left, by budget.
        pub left: [AtomicU64; LINES],
        /// Nanoseconds that threads have run beyond what there was, by budget.
        pub debt: [AtomicU64; LINES],
        /// Unused; zero.
        pub rest: [AtomicU64; REST],
    }
}

const _: () = assert!(size_of::<Budgets>() as u64 == PAGE_SIZE);

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h; Budgets { left, debt, rest })
}

impl Budgets {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::TIME;
}
