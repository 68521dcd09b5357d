//! Invocations.

#![allow(unsafe_code)]

use dyad_abi::cap::RegionKind;
use dyad_abi::service::{pager, slot};
use dyad_abi::{NodeId, Result};
use dyad_services::pages::{Pager, Space, World};
use dyad_services::ranges::Range;
use dyad_services::robust;
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{self, Cap, Sinv};

static PAGER: Pager = Pager::new();

dyad_services::entry!(start, invoked, to 4);

fn start(_: u64) -> ! {
    rt::give_up(format_args!("pager has no thread of its own"))
}

fn invoked(call: Call) -> [u64; 4] {
    PAGER.invoked(&Machine, &call)
}

/// The kernel that this runs on.
struct Machine;

impl World for Machine {
    fn space(&self, client: u64) -> impl Space {
        Client(Cap::at(pager::space(client)))
    }

    fn is_inside(&self, token: u64) -> bool {
        robust::is_inside(token)
    }

    fn ask(&self, words: [u64; 4]) -> Result<u64> {
        Cap::<Sinv>::at(slot::PROCESS).request(words)
    }
}

/// The address space of a client.
struct Client(Cap<cap::Space>);

impl Space for Client {
    fn add_region(&self, range: Range, home: Option<NodeId>) -> Result<()> {
        match home {
            None => (self.0).add_region(range.start, range.len, RegionKind::Anonymous, true),
            Some(node) => self.0.add_region_of(range.start, range.len, node),
        }
    }

    fn reclaim(&self, at: u64, pages: u64) -> Result<u64> {
        // SAFETY: 1. The space is a client's, not this program's own.
        unsafe { self.0.reclaim(at, pages) }
    }

    fn remove_region(&self, start: u64) -> Result<()> {
        // SAFETY: 1. The space is a client's, not this program's own.
        unsafe { self.0.remove_region(start) }
    }

    fn shootdown(&self, range: Range) -> Result<()> {
        self.0.shootdown(range.start, range.len)
    }
}
