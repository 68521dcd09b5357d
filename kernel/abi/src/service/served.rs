//! What a client can make a service of the system spend: stacks of its threads' invocations.

use super::{INVOKE_DEPTH, INVOKE_STACK_SIZE, INVOKE_STACK_STRIDE};
use crate::ident::{ISA_COUNT, MAX_NODES};
use crate::user::PAGE_SIZE;

/// What an invocation of a service of the system may cost: how deep it may be, and how large its stack is. The
/// service's supply is made for that ([`Served::frames`]), and nothing that a client does makes it spend more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Invocations within each other, this one included. The service's entry refuses deeper ones
    /// ([`Error::TooDeep`](crate::Error::TooDeep)) before it touches a stack.
    pub depth: u64,
    /// Bytes of the stack of each; below them is guard.
    pub stack: u64,
}

/// Of console and pager.
pub const SERVED: Served = Served {
    depth: 4,
    stack: 8 << 10,
};
/// Of init. The other services invoke it within invocations of theirs, and it handles faults in all of them and in
/// itself.
pub const SERVED_BY_INIT: Served = Served {
    depth: SERVED.depth + 2,
    ..SERVED
};
/// Thread ids of init that invoke services: its first thread and its wardens.
pub const INIT_THREADS: u64 = 16;
/// Programs that are no services, of a run.
pub const GUESTS: u64 = 2;

impl Served {
    /// The most frames that the stacks of the threads with so many ids take, with their page tables, if all of that
    /// is touched on one node. The ids begin at a multiple of 16. The table of level 3 is not among them: it is the
    /// same for all clients.
    ///
    /// The stacks of an id lie in one page table of level 1, those of 16 ids in one of level 2.
    pub const fn frames(self, ids: u64) -> u64 {
        let pages = self.stack / PAGE_SIZE * self.depth;
        let tables = ids + ids.div_ceil(IDS_OF_TABLE);
        ids * pages + ISA_COUNT as u64 * tables
    }
}

/// Thread ids whose stacks of invocations share a page table of level 2.
const IDS_OF_TABLE: u64 = (PAGE_SIZE << 18) / (INVOKE_STACK_STRIDE << 8);

const _: () = {
    // Depths count from 1, and the stack of depth 0 is guard.
    assert!((SERVED_BY_INIT.depth + 1) * INVOKE_STACK_STRIDE <= PAGE_SIZE << 9);
    assert!(SERVED_BY_INIT.depth <= INVOKE_DEPTH as u64);
    assert!(SERVED.stack.is_power_of_two() && SERVED.stack <= INVOKE_STACK_SIZE);
    assert!(IDS_OF_TABLE == 16 && INIT_THREADS > MAX_NODES as u64);
};

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::{INVOKE_STACKS, invoke_stack, program, thread_id};
    use super::*;
    use crate::user::MAX_PROGRAM_THREADS;
    use std::collections::BTreeSet;

    /// The pages and page tables of all stacks that these threads can have in a service, one by one.
    fn counted(served: Served, number: u64, ids: u64) -> u64 {
        let mut frames = BTreeSet::new();
        for n in 0..ids {
            for depth in 1..=served.depth {
                let (_, top) = invoke_stack(u64::from(thread_id(number, n)) << 8 | depth);
                for va in (top - served.stack..top).step_by(PAGE_SIZE as usize) {
                    assert!(frames.insert((0, 0, va >> 12)));
                    for isa in 0..ISA_COUNT {
                        frames.insert((isa, 1, va >> 21));
                        frames.insert((isa, 2, va >> 30));
                    }
                }
            }
        }
        frames.len() as u64
    }

    #[test]
    fn what_is_reserved_for_a_client_is_all_that_its_threads_can_take() {
        for served in [SERVED, SERVED_BY_INIT] {
            for number in [program::FIRST, program::FIRST + 1, program::MAX - 1] {
                let all = counted(served, number, MAX_PROGRAM_THREADS);
                assert_eq!(served.frames(MAX_PROGRAM_THREADS), all, "{served:?}");
            }
            let own = counted(served, program::INIT, INIT_THREADS);
            assert_eq!(served.frames(INIT_THREADS), own, "{served:?}");
        }
        assert_eq!(INVOKE_STACKS % (PAGE_SIZE << 27), 0, "one table of level 3");
    }

    /// Pager and console invoke init, and init handles faults in them.
    #[test]
    fn init_is_deep_enough_for_all_that_is_within_other_services() {
        let fault_in_init = SERVED.depth + 1 + 1;
        assert_eq!(SERVED_BY_INIT.depth, fault_in_init);
    }
}
