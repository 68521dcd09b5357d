//! Invocations.

#![allow(unsafe_code)]

use dyad_abi::cap::RegionKind;
use dyad_abi::service::{pager, process, program, slot};
use dyad_abi::user::{FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT, HEAP_BASE, HEAP_END, PAGE_SIZE};
use dyad_abi::{Error, NodeId, Result};
use dyad_services::mappings::{Mappings, Regions};
use dyad_services::ranges::{Limits, Range};
use dyad_services::robust::{RobustGuard, RobustLock};
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{Cap, Sinv, Space};

/// Most ranges of a client.
const RANGES: usize = 64;
/// Limits of a client. Frames are bounded by its supplies; these bound its page tables.
const LIMITS: Limits = Limits {
    start: HEAP_BASE,
    end: HEAP_END,
    bytes: 256 << 30,
    window: 256 << 20,
};
/// Pages reclaimed at a time.
const PIECE: u64 = 256;
/// Most attempts at a piece that another thread is changing.
const TRIES: u32 = 1000;

const CLIENTS: usize = program::MAX as usize;
/// The books, by client. Each is for the threads of one client, and for init when the client has ended.
static BOOKS: [RobustLock<Mappings<RANGES>>; CLIENTS] =
    [const { RobustLock::new(Mappings::new(LIMITS)) }; CLIENTS];

dyad_services::entry!(start, invoked, to 4);

fn start(_: u64) -> ! {
    rt::give_up(format_args!("pager has no thread of its own"))
}

fn invoked(call: Call) -> [u64; 4] {
    if call.badge & pager::FAULT != 0 {
        return fault(call);
    }
    let [what, a, b, _] = call.words;
    rt::words(match what {
        pager::MAP_ANON => map(&call, a, b),
        pager::UNMAP => unmap(&call, a, b),
        pager::END if call.badge == program::INIT => end(&call, a),
        pager::END => Err(Error::Denied),
        _ => Err(Error::BadArgument),
    })
}

/// The book of a client, and its address space.
///
/// # Errors
///
/// `Denied` if there is no such client; `Again` if another thread has the book.
fn book(call: &Call, client: u64) -> Result<(RobustGuard<'static, Mappings<RANGES>>, Client)> {
    let book = usize::try_from(client)
        .ok()
        .and_then(|c| BOOKS.get(c))
        .ok_or(Error::Denied)?;
    Ok((book.try_lock(call)?, Client(Cap::at(pager::space(client)))))
}

fn map(call: &Call, len: u64, home: u64) -> Result<u64> {
    let home = match home {
        0 => None,
        n => Some(NodeId::new(n - 1).ok_or(Error::NoSuchNode)?),
    };
    let (mut book, client) = book(call, call.badge)?;
    book.map(&client, len, home)
}

fn unmap(call: &Call, start: u64, len: u64) -> Result<u64> {
    let (mut book, client) = book(call, call.badge)?;
    book.unmap(&client, start, len).map(|()| 0)
}

fn end(call: &Call, client: u64) -> Result<u64> {
    // No thread of the client runs any more. One that has ended here is succeeded.
    let (mut book, client) = book(call, client)?;
    let mut taken = 0;
    while book.unmap_first(&client)? {
        taken += 1;
    }
    Ok(taken)
}

/// The address space of a client.
struct Client(Cap<Space>);

impl Regions for Client {
    fn add(&self, range: Range, home: Option<NodeId>) -> Result<()> {
        match home {
            None => (self.0).add_region(range.start, range.len, RegionKind::Anonymous, true),
            Some(node) => self.0.add_region_of(range.start, range.len, node),
        }
    }

    fn take(&self, range: Range) -> Result<()> {
        let mut at = range.start;
        let mut tries = 0;
        while at < range.end() {
            let pages = ((range.end() - at) / PAGE_SIZE).min(PIECE);
            // SAFETY: 1. The space is a client's, not this program's own.
            match unsafe { self.0.reclaim(at, pages) } {
                Ok(looked @ 1..) => {
                    at += looked * PAGE_SIZE;
                    tries = 0;
                }
                Ok(0) | Err(Error::Again) if tries < TRIES => tries += 1,
                Ok(_) => return Err(Error::TimedOut),
                Err(e) => return Err(e),
            }
        }
        // SAFETY: 1. The space is a client's, not this program's own.
        match unsafe { self.0.remove_region(range.start) } {
            Err(Error::NotFound) => Ok(()),
            done => done,
        }
    }

    fn flush(&self, range: Range) -> Result<()> {
        self.0.shootdown(range.start, range.len)
    }
}

fn fault(call: Call) -> [u64; 4] {
    let client = call.badge & (pager::FAULT - 1);
    let [address, kind, pc, _] = call.words;
    let init: Cap<Sinv> = Cap::at(slot::PROCESS);
    if kind & FAULT_NO_MEMORY != 0 {
        // There may be memory that the program has not been given yet.
        let node = kind >> FAULT_SUPPLY_SHIFT & 0xf;
        match init.request([process::MEMORY | client << 8 | node << 16, 0, 0, 0]) {
            Ok(_) | Err(Error::Again) => return [0; 4],
            Err(_) => {}
        }
    }
    // If init does not take it, the thread ends all the same.
    let _ = init.invoke([
        process::FAULTED | client << 8 | (kind & process::FAULT_KIND) << 16,
        address,
        pc,
        0,
    ]);
    [1, 0, 0, 0]
}
