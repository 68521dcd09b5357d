//! The other component: the program's code and data once more, in an address space of its own.
//!
//! ```text
//!  program ──copy of every page──▶ server: capability table, space and component of its own
//!          ◀──Invoke / RETURN────  (badge ECHO)   gives the four words back
//!          ◀──faults─────────────  (badge FAULT)  maps the next page, retries
//! ```

#![allow(unsafe_code)]

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use dyad::service::Call;
use dyad::sys::cap::{Access, Cap, Captbl, Component, Frame, RegionKind, Rights, Space, TableAt};
use dyad::sys::{Error, Isa, NodeId, Result};
use dyad_abi::cap::{CapIndex, MAP_WRITE, SpaceOp, call_word};
use dyad_abi::service::INVOKE_STACK_SIZE;
use dyad_abi::service::invoke_stack;
use dyad_abi::user::{ISA_RO_BASE, PAGE_SIZE, SHARED_BASE, TEXT_BASE};

use super::memory::{SPACE, Stock};

/// Badge: give the words back.
pub const ECHO: u64 = 1;
/// Badge: a fault of the worker; the ISA is in the bits from 8 on.
pub const FAULT: u64 = 2;

/// In the server's table: the space whose faults it handles.
pub const CLIENT: Cap<Space> = Cap::at(CapIndex(1));
/// In the server's table: what it maps there.
pub const PAGES: Cap<Frame> = Cap::at(CapIndex(2));
/// Order of the block of user memory that is mapped in benchmarks.
pub const PAGES_ORDER: u32 = 6;

/// Pages of each part of the image that are looked at.
const LOOK: u64 = 2048;
/// Pages without anything after which a part has ended.
const GAP: u64 = 64;
/// Where copies are written: addresses that nothing else has.
const WINDOW: u64 = 0x2800_0000_0000;
/// Order of the blocks that the image is copied into.
const BLOCK: u32 = 5;
const PAGE: usize = PAGE_SIZE as usize;

dyad::service!(invoked);

/// What invocations of the server enter.
#[inline(always)]
fn invoked(call: Call) -> [u64; 4] {
    if call.badge == ECHO {
        return call.words;
    }
    [handle(call.badge >> 8, call.words[0]), 0, 0, 0]
}

/// A fault at `address`: maps the page of that number there. 0: try again.
fn handle(isa: u64, address: u64) -> u64 {
    let va = address & !(PAGE_SIZE - 1);
    let page = va / PAGE_SIZE % (1 << PAGES_ORDER);
    let word = call_word(CLIENT.index(), SpaceOp::Map as u32);
    let args = [
        isa | 1 << 8,
        va,
        PAGES.index().get().into(),
        page,
        MAP_WRITE,
    ];
    // SAFETY: 1. The address space is another program's. 2. Nothing was mapped there.
    unsafe { dyad::sys::raw::call_raw(word, args) }.status
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    /// Where kernels enter invocations.
    fn _dyad_invoked();
}

/// A server on one ISA.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The component.
    pub component: Cap<Component>,
    /// Its table, as the program names it.
    pub table: Cap<Captbl>,
    space: Cap<Space>,
}

impl Server {
    /// Makes a server for the ISA that this runs on, all of it in one pool.
    pub fn new(
        stock: &mut Stock,
        pool: usize,
        (node, isa): (NodeId, Isa),
        window: &mut u64,
    ) -> Result<Server> {
        let table = stock.table(pool, 64)?;
        let space = stock.space(pool, &[isa])?;
        let supply = stock.supply(pool, 6)?;
        space.supply(node, supply)?;
        for base in [TEXT_BASE, ISA_RO_BASE, SHARED_BASE] {
            copy(stock, pool, (space, isa), base, window)?;
        }
        let component = stock.component(pool, table, space)?;
        Ok(Server {
            component,
            table,
            space,
        })
    }

    /// Lets a thread come.
    pub fn admit(&self, thread: u32) -> Result<()> {
        for depth in 1..=2 {
            let (bottom, _) = invoke_stack(u64::from(thread) << 8 | depth);
            self.space
                .add_region(bottom, INVOKE_STACK_SIZE, RegionKind::Anonymous, true)?;
        }
        Ok(())
    }

    /// A capability that invokes it.
    pub fn entry(&self, stock: &mut Stock, badge: u64) -> Result<Cap<dyad::sys::cap::Sinv>> {
        let place = stock.slot()?;
        #[cfg(target_os = "none")]
        let entry = _dyad_invoked as *const () as u64;
        // The emulated system of the host has no components.
        #[cfg(not(target_os = "none"))]
        let entry = 0;
        // SAFETY: 1. That is where invocations enter, in the copy as in the original.
        unsafe { self.component.make_sinv(place, entry, badge, Rights::ALL) }
    }
}

/// Copies a part of the image into another space, page by page.
fn copy(
    stock: &mut Stock,
    pool: usize,
    (space, isa): (Cap<Space>, Isa),
    base: u64,
    window: &mut u64,
) -> Result<()> {
    let (mut block, mut used, mut gap) = (None, 0, 0);
    for n in 0..LOOK {
        let va = base + n * PAGE_SIZE;
        let there = match SPACE.translate(isa, va) {
            Ok(there) => there,
            Err(Error::BadAddress) => {
                gap += 1;
                if gap == GAP {
                    break;
                }
                continue;
            }
            Err(e) => return Err(e),
        };
        gap = 0;
        let frame: Cap<Frame> = match block {
            Some(frame) if used < 1 << BLOCK => frame,
            _ => {
                used = 0;
                let frame = stock.user(pool, BLOCK)?.0;
                block = Some(frame);
                frame
            }
        };
        let here = WINDOW + *window * PAGE_SIZE;
        *window += 1;
        stock.map(pool, (SPACE, isa), here, (frame, used), Access::Write)?;
        let from = with_exposed_provenance::<[u8; PAGE]>(va as usize);
        let to = with_exposed_provenance_mut::<[u8; PAGE]>(here as usize);
        // SAFETY: 1. The page at `va` is mapped, by `translate`, and every page can be read. 2. The
        // one at `here` has just been mapped writable, at an unused address. 3. They
        // do not overlap. 4. What others change while it is copied is not relied on: the server
        // reads constants.
        unsafe { core::ptr::copy_nonoverlapping(from, to, 1) };
        let access = match (there.write, there.exec) {
            (_, true) => Access::Execute,
            (true, _) => Access::Write,
            _ => Access::Read,
        };
        stock.map(pool, (space, isa), va, (frame, used), access)?;
        used += 1;
    }
    Ok(())
}

/// The badge of a fault handler.
pub const fn fault_badge(isa: Isa) -> u64 {
    FAULT | (isa as u64) << 8
}

/// Reads nothing: a `TableAt` of pages.
pub const fn pages_of(isa: Isa) -> TableAt {
    TableAt { isa, level: 1 }
}
