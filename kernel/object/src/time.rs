//! Budgets of processor time.
//!
//! A dispatch subtracts the time of its slice from the budget before the thread runs, and the unused part is
//! returned when the thread stops. Time that a thread may still use is therefore in no budget: it can be
//! neither transferred nor dispatched on twice.
//!
//! ```text
//!   left ──dispatch: reserve──▶ the thread's slice ──stop: refund of what was not used──▶ left
//!                                   └─ used longer than reserved: off `left`, the rest is `debt`
//! ```
//!
//! Timers end slices late. Time that a thread has run beyond its reservation is subtracted from the budget.
//! If the budget has less, the rest is recorded as debt, which the next dispatch on the budget pays first.
//!
//! | step | order |
//! |---|---|
//! | dispatch: reserve; the thread is taken | time is reserved before any thread runs; a refused dispatch gives it back |
//! | stop: refund or debt; the owner word | while the thread belongs to this CPU |
//!
//! A node that dies loses what its threads had reserved.

use core::sync::atomic::AtomicU64;

use dyad_abi::user::PAGE_SIZE;
use dyad_retype::KernelKind;
use dyad_shm::{LayoutHash, shared_layout, shared_struct};

use crate::endpoint::LINES;

/// The value of a budget that never runs out.
pub const UNLIMITED: u64 = u64::MAX;
/// In a thread's word `budget`: the thread has no budget of its own, and runs within the slice of a thread that has one.
/// No reference has this value.
pub const INHERITED: u64 = u64::MAX;
const REST: usize = PAGE_SIZE as usize / 8 - 2 * LINES;

shared_struct! {
    /// A frame of budgets.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Budgets {
        /// Nanoseconds left, by budget.
        pub left: [AtomicU64; LINES],
        /// Debt in nanoseconds, by budget: time that threads have run beyond the budget.
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
