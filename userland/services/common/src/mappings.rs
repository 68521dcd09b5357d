//! The mappings of one client: its [`Ranges`] and the regions of its address space, in agreement whenever a thread of
//! the client ends in the middle of a change.
//!
//! A change has two parts, in the kernel and here, and the thread that makes it can end between any two steps. So it
//! begins with a record of the range that it is about, and the next thread finishes what the record says:
//!
//! ```text
//!   map:    record ──▶ region added ──▶ range listed ──▶ record cleared
//!   unmap:  record ──▶ pages and region taken ──▶ range unlisted ──▶ record cleared
//!   finish: pages and region of the recorded range taken ──▶ range unlisted ──▶ record cleared
//! ```
//!
//! Finishing is the same for both: the client has not been told the address of a mapping that was not finished, and does
//! not use one any more that it was taking back. Every step can be repeated, so the one who finishes can end as well.
//!
//! | step | order |
//! |---|---|
//! | record: start, then length, which is not 0 | release: a record with a length is whole |
//! | ranges: the other copy, then which copy it is ([`Shadowed`]) | release |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{NodeId, Result};

use crate::ranges::{Limits, Range, Ranges};
use crate::robust::Shadowed;

/// Kernel operations for mappings of one address space.
pub trait Regions {
    /// Adds a region: `home` is the node that its memory comes from.
    ///
    /// # Errors
    ///
    /// As the kernel says; there is no region then.
    fn add(&self, range: Range, home: Option<NodeId>) -> Result<()>;

    /// Takes pages and region of a range. There need not be a region.
    ///
    /// # Errors
    ///
    /// As the kernel says; it can be tried again.
    fn take(&self, range: Range) -> Result<()>;

    /// Has all CPUs drop their translations of a range.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn flush(&self, range: Range) -> Result<()>;

    /// Called behind every store that a thread can end behind; for tests.
    fn stored(&self) {}
}

/// The mappings of one client.
pub struct Mappings<const N: usize> {
    ranges: Shadowed<Ranges<N>>,
    start: AtomicU64,
    /// 0: nothing is recorded.
    len: AtomicU64,
}

impl<const N: usize> Mappings<N> {
    /// No mappings.
    pub const fn new(limits: Limits) -> Mappings<N> {
        Mappings {
            ranges: Shadowed::new(Ranges::new(limits)),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
        }
    }

    /// The ranges, by address.
    pub fn list(&self) -> &[Range] {
        self.ranges.get().list()
    }

    fn record(&mut self, k: &impl Regions, range: Range) {
        self.start.store(range.start, Ordering::Relaxed);
        k.stored();
        self.len.store(range.len, Ordering::Release);
        k.stored();
    }

    fn clear(&mut self, k: &impl Regions) {
        self.len.store(0, Ordering::Release);
        k.stored();
    }

    fn commit(&mut self, k: &impl Regions) {
        k.stored();
        self.ranges.commit();
        k.stored();
    }

    /// Finishes a change that was left unfinished by a thread that has ended. Must be called before every
    /// other operation.
    ///
    /// # Errors
    ///
    /// Those of [`Regions::take`]: the record stays.
    pub fn finish(&mut self, k: &impl Regions) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        if len == 0 {
            return Ok(());
        }
        let start = self.start.load(Ordering::Relaxed);
        let range = Range { start, len };
        k.take(range)?;
        k.flush(range)?;
        self.ranges.prepare(|r| {
            if r.find(start, len) == Ok(range) {
                r.unmap(range)?;
            }
            // The addresses are used again late, as those of any range that is given back.
            r.pass(range);
            Ok(())
        })?;
        self.commit(k);
        self.clear(k);
        Ok(())
    }

    /// Maps `len` bytes somewhere. Gives the address.
    ///
    /// # Errors
    ///
    /// As [`Ranges::map`]; as [`Regions::add`].
    pub fn map(&mut self, k: &impl Regions, len: u64, home: Option<NodeId>) -> Result<u64> {
        self.finish(k)?;
        let range = self.ranges.prepare(|r| r.map(len))?;
        self.record(k, range);
        if let Err(e) = k.add(range, home) {
            self.clear(k);
            return Err(e);
        }
        self.commit(k);
        self.clear(k);
        Ok(range.start)
    }

    /// Takes a range back that [`map`](Mappings::map) has given.
    ///
    /// # Errors
    ///
    /// As [`Ranges::find`]; as [`Regions::take`]: the range is still mapped; as [`Regions::flush`]: it is not.
    pub fn unmap(&mut self, k: &impl Regions, start: u64, len: u64) -> Result<()> {
        self.finish(k)?;
        let range = self.ranges.get().find(start, len)?;
        self.unmap_range(k, range)
    }

    /// Takes the first range back; `false`: there is none.
    ///
    /// # Errors
    ///
    /// As [`unmap`](Mappings::unmap).
    pub fn unmap_first(&mut self, k: &impl Regions) -> Result<bool> {
        self.finish(k)?;
        match self.list().first() {
            Some(&range) => self.unmap_range(k, range).map(|()| true),
            None => Ok(false),
        }
    }

    fn unmap_range(&mut self, k: &impl Regions, range: Range) -> Result<()> {
        self.record(k, range);
        if let Err(e) = k.take(range) {
            self.clear(k);
            return Err(e);
        }
        // Without it the client could go on using frames that are not its own any more until the next
        // round; they are not given to others before that, so it harms the client only.
        let flushed = k.flush(range);
        self.ranges.prepare(|r| r.unmap(range))?;
        self.commit(k);
        self.clear(k);
        flushed
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::cell::{Cell, RefCell};
    use dyad_abi::Error;
    use dyad_abi::user::PAGE_SIZE;
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::vec::Vec;

    const LIMITS: Limits = Limits {
        start: 0x10_0000,
        end: 0x10_0000 + 64 * PAGE_SIZE,
        bytes: 48 * PAGE_SIZE,
        window: 16 * PAGE_SIZE,
    };

    /// The regions of a client, and when its thread ends: 0 never, else before or behind that step.
    #[derive(Default)]
    struct Fake {
        regions: RefCell<BTreeMap<u64, u64>>,
        ends: Cell<u32>,
        flushed: RefCell<Vec<Range>>,
        refuses: Cell<bool>,
    }

    /// The thread that runs this has ended.
    struct Ended;

    impl Fake {
        fn step(&self) {
            match self.ends.get() {
                0 => {}
                1 => {
                    self.ends.set(0);
                    resume_unwind(std::boxed::Box::new(Ended));
                }
                n => self.ends.set(n - 1),
            }
        }
    }

    impl Regions for Fake {
        fn add(&self, range: Range, _: Option<NodeId>) -> Result<()> {
            self.step();
            if self.refuses.get() {
                return Err(Error::Full);
            }
            let overlaps =
                |(&start, &len): (&u64, &u64)| start < range.end() && range.start < start + len;
            assert!(
                !self.regions.borrow().iter().any(overlaps),
                "{range:x?} is there already"
            );
            self.regions.borrow_mut().insert(range.start, range.len);
            self.step();
            Ok(())
        }

        fn take(&self, range: Range) -> Result<()> {
            self.step();
            if self.refuses.get() {
                return Err(Error::TimedOut);
            }
            self.regions.borrow_mut().remove(&range.start);
            self.step();
            Ok(())
        }

        fn flush(&self, range: Range) -> Result<()> {
            self.step();
            self.flushed.borrow_mut().push(range);
            Ok(())
        }

        fn stored(&self) {
            self.step();
        }
    }

    /// Whether it came to its end.
    fn lives(f: impl FnOnce()) -> bool {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(()) => true,
            Err(e) if e.is::<Ended>() => false,
            Err(e) => resume_unwind(e),
        }
    }

    fn agree(book: &Mappings<8>, k: &Fake) {
        let listed: BTreeMap<u64, u64> = book.list().iter().map(|r| (r.start, r.len)).collect();
        assert_eq!(listed, *k.regions.borrow());
    }

    /// A thread ends at every step of mapping and unmapping, and the one that finishes at every step, too. The client
    /// goes on being served, and keeps what it has been given.
    #[test]
    fn whatever_a_thread_leaves_unfinished_is_finished() {
        for maps in [true, false] {
            let (mut first, mut ended) = (1, true);
            while ended {
                let mut second = 0;
                loop {
                    let what = std::format!("maps: {maps}, ends at {first}, then at {second}");
                    let (mut book, k) = (Mappings::<8>::new(LIMITS), Fake::default());
                    let kept = book.map(&k, PAGE_SIZE, None).unwrap();
                    let other = book.map(&k, 2 * PAGE_SIZE, None).unwrap();
                    k.ends.set(first);
                    ended = !lives(|| {
                        if maps {
                            book.map(&k, 3 * PAGE_SIZE, None).unwrap();
                        } else {
                            book.unmap(&k, other, 2 * PAGE_SIZE).unwrap();
                        }
                    });
                    k.ends.set(second);
                    let finished = lives(|| book.finish(&k).unwrap());
                    k.ends.set(0);
                    book.finish(&k).unwrap();
                    agree(&book, &k);
                    let has = |start, pages| {
                        book.list().contains(&Range {
                            start,
                            len: pages * PAGE_SIZE,
                        })
                    };
                    assert!(has(kept, 1), "{what}");
                    assert!(!maps || has(other, 2), "{what}");
                    // The client is served.
                    let start = book.map(&k, 4 * PAGE_SIZE, None).unwrap();
                    book.unmap(&k, start, 4 * PAGE_SIZE).unwrap();
                    while book.unmap_first(&k).unwrap() {}
                    agree(&book, &k);
                    assert!(k.regions.borrow().is_empty(), "{what}");
                    second += 1;
                    if second > 1 && finished {
                        break;
                    }
                }
                first += 1;
            }
            assert!(first > 5, "only {first} steps");
        }
    }

    /// Pages that are taken back are flushed also by the thread that finishes the work of another one.
    #[test]
    fn what_is_finished_is_flushed() {
        let (mut book, k) = (Mappings::<8>::new(LIMITS), Fake::default());
        let start = book.map(&k, PAGE_SIZE, None).unwrap();
        // Behind the record and the region.
        k.ends.set(4);
        assert!(!lives(|| book.unmap(&k, start, PAGE_SIZE).unwrap()));
        assert!(k.flushed.borrow().is_empty());
        book.finish(&k).unwrap();
        assert_eq!(k.flushed.borrow().first().map(|r| r.start), Some(start));
    }

    #[test]
    fn what_is_taken_back_is_flushed() {
        let (mut book, k) = (Mappings::<8>::new(LIMITS), Fake::default());
        for first in [false, true] {
            let start = book.map(&k, 3 * PAGE_SIZE, None).unwrap();
            assert!(k.flushed.take().is_empty());
            match first {
                false => book.unmap(&k, start, 3 * PAGE_SIZE).unwrap(),
                true => assert!(book.unmap_first(&k).unwrap()),
            }
            let len = 3 * PAGE_SIZE;
            assert_eq!(k.flushed.take(), [Range { start, len }]);
        }
    }

    #[test]
    fn what_the_kernel_refuses_leaves_things_as_they_were() {
        let (mut book, k) = (Mappings::<8>::new(LIMITS), Fake::default());
        let start = book.map(&k, PAGE_SIZE, None).unwrap();
        k.refuses.set(true);
        assert_eq!(book.map(&k, PAGE_SIZE, None), Err(Error::Full));
        assert_eq!(book.unmap(&k, start, PAGE_SIZE), Err(Error::TimedOut));
        assert_eq!(book.unmap(&k, start + 1, PAGE_SIZE), Err(Error::NotFound));
        agree(&book, &k);
        // What was unfinished stays so until it can be finished.
        k.refuses.set(false);
        k.ends.set(2);
        assert!(!lives(|| book.unmap(&k, start, PAGE_SIZE).unwrap()));
        k.refuses.set(true);
        assert_eq!(book.map(&k, PAGE_SIZE, None), Err(Error::TimedOut));
        k.refuses.set(false);
        book.map(&k, PAGE_SIZE, None).unwrap();
        agree(&book, &k);
    }

    /// Another CPU may still have translations for the range of a thread that has ended. The addresses are given out again
    /// late, as others that are given back.
    #[test]
    fn addresses_of_what_was_unfinished_are_used_again_late() {
        let (mut book, k) = (Mappings::<8>::new(LIMITS), Fake::default());
        // Behind the region.
        k.ends.set(4);
        assert!(!lives(|| _ = book.map(&k, PAGE_SIZE, None).unwrap()));
        let left = *k.regions.borrow().keys().next().expect("a region");
        assert_ne!(book.map(&k, PAGE_SIZE, None), Ok(left));
        agree(&book, &k);
    }
}
