//! Blocks that are taken from nodes for others: what [`dyad_blocks::evict`] decides is carried out here, by
//! the warden that leads, beside the program.
//!
//! If the leader dies another one goes on: everything is in the books. If it had the books in hand they are
//! not to be relied on; then all parked pages are made usable again where they are, and no block is handed
//! out any more.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::cap::{Counted, Step};
use dyad_abi::clock::SimCounter;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_blocks::evict::{LATER_NS, PATIENCE, make_usable};
use dyad_blocks::{Cost, Kernel, Run};
use dyad_services::frames::Pool;
use dyad_services::pool::PoolMemory;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Space};

use crate::blocks::{self, Who, here, pool};
use crate::memory::CXL;
use crate::program::HOME;
use crate::wardens;

/// The kernel, by system calls, for an address space; `None`: for none any more.
#[derive(Clone, Copy)]
pub struct Calls(pub Option<Cap<Space>>);

impl Calls {
    fn space(&self) -> Result<Cap<Space>> {
        self.0.ok_or(Error::NoMemory)
    }
}

impl Kernel for Calls {
    fn nodes(&self) -> usize {
        rt::info().map_or(1, |info| info.system.node_count as usize)
    }

    fn here(&self) -> NodeId {
        here()
    }

    fn lives(&self, node: NodeId) -> Result<bool> {
        Ok(rt::hardware(node).node_state(node)?.is_live())
    }

    fn now(&self) -> Cost {
        Cost {
            instructions: dyad_sys::sim_count(SimCounter::Instructions).unwrap_or(0),
            ns: rt::hardware(HOME).now().unwrap_or(0),
        }
    }

    fn count(&self, run: &Run) -> Result<Counted> {
        pool(run.pool).count(run.first, run.frames)
    }

    fn supply(&self, node: NodeId, n: usize, run: Option<&Run>) -> Result<()> {
        let memory = run.map(|r| (pool(r.pool), r.first, r.frames));
        self.space()?.supply_run(node, n as u64, memory)
    }

    fn evacuate(
        &self,
        step: Step,
        places: (u64, u64),
        run: &Run,
        node: NodeId,
    ) -> Result<(u64, u64)> {
        let memory = (pool(run.pool), run.first, run.frames);
        // SAFETY: 1. The space is a program's, not init's. 2. `dyad_blocks::evict` moves pages only when all
        // CPUs have dropped their translations since they were parked; its tests leave that out and see it.
        unsafe { self.space()?.evacuate(step, places, memory, node) }
    }

    fn shootdown(&self, at: u64) -> Result<()> {
        self.space()?.shootdown(at, PAGE_SIZE)
    }

    fn give_back_lost(&self, run: &Run) -> Result<()> {
        for at in run.first..run.first + run.frames {
            let word = pool(run.pool).inspect(at)?;
            // Type 4 is user memory, the lowest 24 bits count references.
            if word >> 29 & 7 == 4 && word & 0xff_ffff == 0 {
                // Another node may have been faster.
                let _ = pool(run.pool).retype_untyped(at);
            }
        }
        Ok(())
    }

    fn call_leader(&self) {
        wardens::call_leader();
    }
}

/// Does a piece of what there is to do. Gives how long to wait before the next one, in ns; `None` if there
/// is nothing.
pub fn tend(node: NodeId) -> Option<u64> {
    let me = Who::warden(node)?;
    match blocks::with(me, |bank| Ok(bank.books.tend(&bank.calls()))) {
        Ok(tended) => {
            if let Some(e) = tended.trouble {
                crate::service::say(format_args!("cannot move memory: {e}"));
            }
            tended.pause
        }
        // Another thread has the books.
        Err(Error::Again) => Some(LATER_NS),
        Err(_) => {
            static DONE: AtomicBool = AtomicBool::new(false);
            if !DONE.swap(true, Ordering::AcqRel) {
                crate::service::say(format_args!(
                    "the books of memory were lost with a node: no more blocks"
                ));
                blocks::give_up();
            }
            None
        }
    }
}

/// Makes all parked pages of an address space usable again, whatever the books say.
pub fn unpark_all(space: Cap<Space>) {
    let calls = Calls(Some(space));
    for n in 0..=CXL {
        let frames = Pool::frames(&PoolMemory::or_none(n));
        let run = Run {
            pool: n,
            first: 0,
            frames,
        };
        let mut in_vain = 0;
        // Each time further than the last, but for a page that is being changed just then.
        while frames != 0
            && let Err(e) = make_usable(&calls, &run, here())
        {
            in_vain += 1;
            if e != Error::Again || in_vain > PATIENCE {
                crate::service::say(format_args!("pages stay parked: {e}"));
                break;
            }
            dyad_sys::yield_now();
        }
    }
}
