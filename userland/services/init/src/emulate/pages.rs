//! What init and others have mapped of threads that are moved: hold words, pages, windows.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Result;
use dyad_abi::cap::{RegionKind, Stripes};
use dyad_abi::emulation::{self, Page, other_text, status};
use dyad_abi::service::{sched, thread_id};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{Error, NodeId};
use dyad_sys::cap::{Access, Cap, Frame};

use super::shown::Parts;
use crate::memory::Store;
use crate::program::{HOME, Program, Window, isas_of};
use crate::system::System;
use crate::takedown::unmap;

/// Where init sees the hold words of `sched`.
const HOLD: u64 = 0x1_D000_0000;
/// Where init sees the page of a thread of a program: this, and a page for each thread id.
const PAGES: u64 = 0x1_D100_0000;

/// Makes the page of hold words, for `sched` and for init.
///
/// # Errors
///
/// As the kernel says.
pub fn hold_words(store: &mut Store, window: &mut Window, sched: &mut Program) -> Result<()> {
    let frame = sched.shared_page(store, window, sched::HOLD, false, |_| {})?;
    own_page(store, window, HOLD, frame)
}

/// Maps a page of a program for init, too.
fn own_page(store: &mut Store, window: &mut Window, va: u64, frame: Cap<Frame>) -> Result<()> {
    let own = &mut window.own;
    own.space
        .add_region(va, PAGE_SIZE, RegionKind::Shared, true)?;
    own.map(store, own.isas, va, (frame, 0), Access::Write)
}

/// Keeps `sched` from dispatching a thread, or not any more.
pub fn hold(tag: u32, held: bool) {
    let words = with_exposed_provenance::<AtomicU64>(HOLD as usize);
    let n = tag.wrapping_sub(sched::tag(0)) as usize % (PAGE_SIZE / 8) as usize;
    // SAFETY: 1. The page is mapped writable from before the first request on, and has that many words.
    // 2. The words are atomic for all who use them.
    let word = unsafe { &*words.add(n) };
    word.store(held.into(), Ordering::Release);
}

/// The page of a thread, by its id, which is mapped.
pub struct Mapped(*mut Page);

impl Mapped {
    /// That of the thread with this id.
    pub fn of(id: u32) -> Mapped {
        let va = PAGES + u64::from(id) * PAGE_SIZE;
        Mapped(with_exposed_provenance_mut(va as usize))
    }

    /// The word at an offset.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: 1. The page is mapped writable: there is no request without it. 2. All access but that
        // to what is init's by its status is atomic. 3. The offset is that of a word of a `Page`.
        unsafe { &*self.0.byte_add(offset).cast::<AtomicU64>() }
    }

    /// The word that says whose the others are.
    pub fn status(&self) -> &AtomicU64 {
        self.word(core::mem::offset_of!(Page, status))
    }

    /// Why nothing was done.
    pub fn set_outcome(&self, code: u64) {
        let word = self.word(core::mem::offset_of!(Page, outcome));
        word.store(code, Ordering::Relaxed);
    }

    /// Where the thread was stopped, if the page says something that makes sense.
    pub fn origin(&self) -> Option<NodeId> {
        let word = self.word(core::mem::offset_of!(Page, origin));
        NodeId::new(word.load(Ordering::Relaxed))
    }

    /// The ISA of its registers, as a word.
    pub fn isa(&self) -> u64 {
        let word = self.word(core::mem::offset_of!(Page, registers.isa));
        word.load(Ordering::Relaxed)
    }

    /// Writes all of it.
    pub fn write(&self, page: Page) {
        // SAFETY: 1. As in `word`. 2. It is init's: the program does nothing with it meanwhile, as its
        // thread is stopped; and if it does, it gets numbers that make no sense.
        unsafe { self.0.write_volatile(page) };
    }
}

/// Whether a page is init's.
pub const fn is_free(s: u64) -> bool {
    matches!(s, status::IDLE | status::LANDED | status::BACK)
}

impl System {
    /// The program with a number that is no service, and what it takes to change it.
    ///
    /// # Errors
    ///
    /// `Denied` if there is none.
    pub(super) fn guest(&mut self, number: u64) -> Result<(&mut Program, &mut Store, &mut Window)> {
        let guest = [Some(&mut self.guest), self.beside.as_mut()]
            .into_iter()
            .flatten()
            .find(|g| g.program.number == number)
            .ok_or(Error::Denied)?;
        let builder = &mut self.builder;
        Ok((&mut guest.program, &mut builder.store, &mut builder.window))
    }

    /// Makes all that it takes to interpret threads of a program, unless it is there.
    ///
    /// # Errors
    ///
    /// As [`guest`](System::guest); `Full` if it is too much; as the kernel says.
    pub(super) fn show(&mut self, number: u64) -> Result<Parts> {
        let events = self.events;
        let (p, store, window) = self.guest(number)?;
        if !p.texts.shown {
            if !p.texts.whole {
                return Err(Error::Full);
            }
            // What has been done in part cannot be done again.
            p.texts.whole = false;
            show(store, window, p)?;
            p.texts.shown = true;
            p.texts.whole = true;
        }
        Ok(Parts {
            component: p.component,
            entry: p.entry,
            windows: p.texts.windows,
            events,
        })
    }
}

/// Where init sees the pages of a program's threads, and how long that is.
const fn pages(program: u64) -> (u64, u64) {
    let start = PAGES + thread_id(program, 0) as u64 * PAGE_SIZE;
    (start, MAX_PROGRAM_THREADS * PAGE_SIZE)
}

/// The pages of a program's threads, the stacks of what interprets them, and what ISAs see of each other.
fn show(store: &mut Store, window: &mut Window, p: &mut Program) -> Result<()> {
    let stacks = Stripes::new(emulation::STACK_STRIDE, emulation::STACK_SIZE);
    let len = MAX_PROGRAM_THREADS * emulation::STACK_STRIDE;
    p.space.add_stacks(
        emulation::STACKS_BASE,
        len,
        stacks.ok_or(Error::BadArgument)?,
    )?;
    let (own_start, len) = pages(p.number);
    (p.space).add_region(emulation::page(0), len, RegionKind::Shared, true)?;
    (window.own.space).add_region(own_start, len, RegionKind::Shared, true)?;
    let mut n = 0;
    while n < MAX_PROGRAM_THREADS {
        let (frame, pages) = store.user(HOME.index(), &mut p.user, MAX_PROGRAM_THREADS - n)?;
        for page in 0..pages {
            window.fill(store, (frame, page), |_| {})?;
            let isas = p.isas;
            p.map(
                store,
                isas,
                emulation::page(n),
                (frame, page),
                Access::Write,
            )?;
            let own = &mut window.own;
            let va = own_start + n * PAGE_SIZE;
            own.map(store, own.isas, va, (frame, page), Access::Write)?;
            n += 1;
        }
    }
    for run in p.texts.runs.into_iter().flatten() {
        let others = p.isas & !(1 << run.isa.index());
        for i in 0..run.pages {
            let va = other_text(run.isa, run.va + i * PAGE_SIZE);
            p.map(store, others, va, (run.frame, i), Access::Read)?;
        }
    }
    Ok(())
}

/// Init does not see the pages of a program any more. No thread may look at them: there are no requests.
///
/// # Errors
///
/// As the kernel says.
pub fn unshow(p: &Program, own: &Program) -> Result<()> {
    if !p.texts.shown {
        return Ok(());
    }
    super::shown::forget(p.number);
    let (start, len) = pages(p.number);
    for isa in isas_of(own.isas) {
        for n in 0..MAX_PROGRAM_THREADS {
            unmap(own.space, isa, start + n * PAGE_SIZE)?;
        }
    }
    // SAFETY: 1. Only a thread with a request looks at the pages, and there are no requests.
    unsafe { own.space.remove_region(start)? };
    own.space.shootdown(start, len)
}
