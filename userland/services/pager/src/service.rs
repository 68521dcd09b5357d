//! Invocations.

#![allow(unsafe_code)]

use dyad_abi::cap::RegionKind;
use dyad_abi::service::{pager, process, program, slot};
use dyad_abi::user::{FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT, HEAP_BASE, HEAP_END, PAGE_SIZE};
use dyad_abi::{Error, NodeId, Result};
use dyad_services::ranges::{Limits, Range, Ranges};
use dyad_services::rt::{self, Call};
use dyad_sys::Lock;
use dyad_sys::cap::{Cap, Sinv, Space};

/// Most ranges of a client.
const RANGES: usize = 64;
/// What a client may have: frames are bounded by its supplies, so this bounds page tables.
const LIMITS: Limits = Limits {
    start: HEAP_BASE,
    end: HEAP_END,
    bytes: 256 << 30,
    window: 256 << 20,
};
/// Pages reclaimed at a time.
const PIECE: u64 = 256;
/// Most attempts at a piece that somebody else is in the way of.
const TRIES: u32 = 1000;

const CLIENTS: usize = program::MAX as usize;
static BOOKS: [Lock<Ranges<RANGES>>; CLIENTS] = [const { Lock::new(Ranges::new(LIMITS)) }; CLIENTS];

dyad_services::entry!(start, invoked);

fn start(_: u64) -> ! {
    rt::give_up(format_args!("pager has no thread of its own"))
}

fn invoked(call: Call) -> [u64; 4] {
    if call.badge & pager::FAULT != 0 {
        return fault(call);
    }
    let [what, a, b, _] = call.words;
    rt::words(match what {
        pager::MAP_ANON => map(call.badge, a, b),
        pager::UNMAP => unmap(call.badge, a, b),
        pager::END if call.badge == program::INIT => end(a),
        pager::END => Err(Error::Denied),
        _ => Err(Error::BadArgument),
    })
}

fn book(client: u64) -> Result<(&'static Lock<Ranges<RANGES>>, Cap<Space>)> {
    let book = usize::try_from(client)
        .ok()
        .and_then(|c| BOOKS.get(c))
        .ok_or(Error::Denied)?;
    Ok((book, Cap::at(pager::space(client))))
}

fn map(client: u64, len: u64, home: u64) -> Result<u64> {
    let home = match home {
        0 => None,
        n => Some(NodeId::new(n - 1).ok_or(Error::NoSuchNode)?),
    };
    let (book, space) = book(client)?;
    let mut book = book.try_lock().ok_or(Error::Again)?;
    let range = book.map(len)?;
    let (start, len) = (range.start, range.len);
    let added = match home {
        None => space.add_region(start, len, RegionKind::Anonymous, true),
        Some(node) => space.add_region_of(start, len, node),
    };
    if let Err(e) = added {
        book.unmap(range)?;
        return Err(e);
    }
    Ok(range.start)
}

fn unmap(client: u64, start: u64, len: u64) -> Result<u64> {
    let (book, space) = book(client)?;
    let mut book = book.try_lock().ok_or(Error::Again)?;
    let range = book.find(start, len)?;
    take(space, range)?;
    // Without it the client could go on using frames that are not its own any more until the next
    // round; they are not given to others before that, so it harms nobody but the client.
    let flushed = space.shootdown(range.start, range.len);
    book.unmap(range)?;
    flushed.map(|()| 0)
}

/// Takes the pages of a range, then the region.
fn take(space: Cap<Space>, range: Range) -> Result<()> {
    let mut at = range.start;
    let mut tries = 0;
    while at < range.end() {
        let pages = ((range.end() - at) / PAGE_SIZE).min(PIECE);
        // SAFETY: 1. The space is a client's, not this program's own.
        match unsafe { space.reclaim(at, pages) } {
            Ok(looked @ 1..) => {
                at += looked * PAGE_SIZE;
                tries = 0;
            }
            Ok(0) | Err(Error::Again) if tries < TRIES => tries += 1,
            Ok(_) => return Err(Error::TimedOut),
            Err(e) => return Err(e),
        }
    }
    // SAFETY: 1. As above.
    unsafe { space.remove_region(range.start) }
}

fn end(client: u64) -> Result<u64> {
    let (book, space) = book(client)?;
    // Nobody of the client runs any more, so nobody gives the lock back either.
    let mut book = book.try_lock().ok_or(Error::Again)?;
    let mut taken = 0;
    while let Some(&range) = book.list().first() {
        take(space, range)?;
        book.unmap(range)?;
        taken += 1;
    }
    Ok(taken)
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
