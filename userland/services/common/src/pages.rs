//! What the pager does in an invocation, for whichever kernel: that of a machine, or the model of the tests.
//!
//! | invocation by | what it may |
//! |---|---|
//! | a client | map and take back what is in its own book, in its own address space |
//! | the kernel, for a client's fault (badge with [`pager::FAULT`]) | have it judged |
//! | init | take back all that a client has |
//!
//! The client is named by the badge, which it cannot choose.

use dyad_abi::service::{pager, process, program};
use dyad_abi::user::{
    FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT, HEAP_BASE, HEAP_END, INCOHERENT_BASE, PAGE_SIZE,
};
use dyad_abi::{Error, NodeId, Result};

use crate::mappings::{Mappings, Regions};
use crate::ranges::{Limits, Range};
use crate::robust::{RobustGuard, RobustLock};
use crate::rt::{self, Call};

/// Most ranges of a client.
const RANGES: usize = 64;
/// Limits of a client. Frames are bounded by its supplies; these bound its page tables.
const LIMITS: Limits = Limits {
    start: HEAP_BASE,
    end: INCOHERENT_BASE,
    bytes: 256 << 30,
    window: 256 << 20,
};
/// The same, of memory whose caches the client keeps coherent.
const LIMITS_INCOHERENT: Limits = Limits {
    start: INCOHERENT_BASE,
    end: HEAP_END,
    ..LIMITS
};
/// Pages reclaimed at a time.
const PIECE: u64 = 256;
/// Most attempts at a piece that another thread is changing.
const TRIES: u32 = 1000;
const CLIENTS: usize = program::MAX as usize;

/// Operations on the address space of a client.
pub trait Space {
    /// Adds a region: `home` is the node that its memory comes from.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn add_region(&self, range: Range, home: Option<NodeId>) -> Result<()>;

    /// Takes pages, the value tells how many have been looked at.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn reclaim(&self, at: u64, pages: u64) -> Result<u64>;

    /// Takes the region that begins there.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn remove_region(&self, start: u64) -> Result<()>;

    /// Has all CPUs drop their translations of a range.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn shootdown(&self, range: Range) -> Result<()>;
}

/// What the pager needs besides its books.
pub trait World {
    /// The address space of a client.
    fn space(&self, client: u64) -> impl Space;

    /// Whether an invocation of the pager may still go on.
    fn is_inside(&self, token: u64) -> bool;

    /// Asks init: the words of a request.
    ///
    /// # Errors
    ///
    /// As init says.
    fn ask(&self, words: [u64; 4]) -> Result<u64>;
}

/// The pager.
pub struct Pager {
    /// The books, by client. Each is for the threads of one client, and for init when the client has ended.
    books: [RobustLock<Mappings<RANGES>>; CLIENTS],
    /// The same, of memory whose caches the client keeps coherent.
    incoherent: [RobustLock<Mappings<RANGES>>; CLIENTS],
}

impl Pager {
    /// Nothing is mapped.
    pub const fn new() -> Pager {
        Pager {
            books: [const { RobustLock::new(Mappings::new(LIMITS)) }; CLIENTS],
            incoherent: [const { RobustLock::new(Mappings::new(LIMITS_INCOHERENT)) }; CLIENTS],
        }
    }

    /// Answers an invocation.
    pub fn invoked(&self, k: &impl World, call: &Call) -> [u64; 4] {
        if call.badge & pager::FAULT != 0 {
            return fault(k, call);
        }
        let [what, a, b, _] = call.words;
        rt::words(match what {
            pager::MAP_ANON => self.map(k, call, a, b),
            pager::UNMAP => self.unmap(k, call, a, b),
            pager::END if call.badge == program::INIT => self.end(k, call, a),
            pager::END => Err(Error::Denied),
            _ => Err(Error::BadArgument),
        })
    }

    /// The book of a client.
    ///
    /// # Errors
    ///
    /// `Denied` if there is no such client; `Again` if another thread has the book.
    fn book(
        &self,
        k: &impl World,
        call: &Call,
        client: u64,
        is_incoherent: bool,
    ) -> Result<RobustGuard<'_, Mappings<RANGES>>> {
        let books = match is_incoherent {
            false => &self.books,
            true => &self.incoherent,
        };
        usize::try_from(client)
            .ok()
            .and_then(|c| books.get(c))
            .ok_or(Error::Denied)?
            .try_lock_as(call.token, |other| k.is_inside(other))
    }

    fn map(&self, k: &impl World, call: &Call, len: u64, home: u64) -> Result<u64> {
        let is_incoherent = home & pager::INCOHERENT != 0;
        let home = match home & !pager::INCOHERENT {
            0 => None,
            n => Some(NodeId::new(n - 1).ok_or(Error::NoSuchNode)?),
        };
        let mut book = self.book(k, call, call.badge, is_incoherent)?;
        book.map(&Client(k.space(call.badge)), len, home)
    }

    fn unmap(&self, k: &impl World, call: &Call, start: u64, len: u64) -> Result<u64> {
        let mut book = self.book(k, call, call.badge, start >= INCOHERENT_BASE)?;
        book.unmap(&Client(k.space(call.badge)), start, len)?;
        Ok(0)
    }

    fn end(&self, k: &impl World, call: &Call, client: u64) -> Result<u64> {
        // No thread of the client runs any more. One that has ended here is succeeded.
        let space = Client(k.space(client));
        let mut taken = 0;
        for is_incoherent in [false, true] {
            let mut book = self.book(k, call, client, is_incoherent)?;
            while book.unmap_first(&space)? {
                taken += 1;
            }
        }
        Ok(taken)
    }
}

impl Default for Pager {
    fn default() -> Pager {
        Pager::new()
    }
}

/// The address space of a client.
struct Client<S>(S);

impl<S: Space> Regions for Client<S> {
    fn add(&self, range: Range, home: Option<NodeId>) -> Result<()> {
        self.0.add_region(range, home)
    }

    fn take(&self, range: Range) -> Result<()> {
        let mut at = range.start;
        let mut tries = 0;
        while at < range.end() {
            let pages = ((range.end() - at) / PAGE_SIZE).min(PIECE);
            match self.0.reclaim(at, pages) {
                Ok(looked @ 1..) => {
                    at += looked * PAGE_SIZE;
                    tries = 0;
                }
                Ok(0) | Err(Error::Again) if tries < TRIES => tries += 1,
                Ok(_) => return Err(Error::TimedOut),
                Err(e) => return Err(e),
            }
        }
        match self.0.remove_region(range.start) {
            Err(Error::NotFound) => Ok(()),
            done => done,
        }
    }

    fn flush(&self, range: Range) -> Result<()> {
        self.0.shootdown(range)
    }
}

fn fault(k: &impl World, call: &Call) -> [u64; 4] {
    let client = call.badge & (pager::FAULT - 1);
    let [address, kind, pc, _] = call.words;
    if kind & FAULT_NO_MEMORY != 0 {
        // There may be memory that the program has not been given yet.
        let node = kind >> FAULT_SUPPLY_SHIFT & 0xf;
        match k.ask([process::MEMORY | client << 8 | node << 16, 0, 0, 0]) {
            Ok(_) | Err(Error::Again) => return [0; 4],
            Err(_) => {}
        }
    }
    // If init does not take it, the thread ends all the same.
    let faulted = process::FAULTED | client << 8 | (kind & process::FAULT_KIND) << 16;
    let _ = k.ask([faulted, address, pc, 0]);
    [1, 0, 0, 0]
}

#[cfg(test)]
mod tests;
