//! The end: everything is taken back, and looked at.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;

use dyad_abi::cap::{CapIndex, CapType, RegionKind, Rights};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::frames::What;
use dyad_services::rt;
use dyad_services::takedown::{self, Patience, drain};
use dyad_sys::cap::{Access, Cap, Captbl, Frame, Memory, Place, Space, Stamp, Thread};

use crate::actor::GUESTS;
use crate::deaths;
use crate::guests;
use crate::setup::{ENDPOINTS, FRAME, HOME, SPACE, TABLE, at, table_start};
use crate::world::{
    FRAMES, GUEST_MEMORY, LAST_ENTRIES, WILD_ENTRIES, WINDOW, WINDOW_PAGES, WORLD, guest, memory,
};

/// How long another thread may be in the way.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Largest order of which a used block is zeroed by one operation.
const ZEROED: u32 = 4;
/// Passes over all frames.
const PASSES: u32 = 12;
/// Where frames are looked at: what one page table covers, which the storm has not used.
const LOOKED_AT: core::ops::Range<u64> = WINDOW + (1 << 30)..WINDOW + (1 << 30) + (1 << 21);
/// Stuck frames that are named.
pub const NAMED: usize = 6;

/// What is left.
pub struct Left {
    /// Frames of storm memory.
    pub frames: u64,
    /// Untyped again.
    pub untyped: u64,
    /// Of those: have been used once more, and were zero where that was looked at.
    pub reused: u64,
    /// Frames that are not: pool, frame, word, status of the last attempt.
    pub stuck: [[u64; 4]; NAMED],
    /// What has gone wrong otherwise.
    pub trouble: Option<(&'static str, Error)>,
}

/// Drives this node's round meanwhile, and guests: one within an invocation stops when it has left, or a second after it
/// was asked to, which is minutes of a simulated machine.
fn pause() {
    guests::run(0);
    let _ = rt::hardware(HOME).flush_step(64);
    deaths::look();
    for _ in 0..50 {
        dyad_sys::raw::relax();
    }
}

/// Waits at most [`PATIENCE_NS`], and drives this node's round meanwhile.
struct Waits {
    end: Option<u64>,
}

impl Waits {
    const fn new() -> Waits {
        Waits { end: None }
    }
}

impl Patience for Waits {
    fn pause(&mut self) -> Result<()> {
        let now = rt::hardware(HOME).now()?;
        if now > *self.end.get_or_insert(now + PATIENCE_NS) {
            return Err(Error::TimedOut);
        }
        pause();
        Ok(())
    }
}

fn patiently<T>(f: impl FnMut() -> Result<T>) -> Result<T> {
    takedown::patiently(Waits::new(), f)
}

/// Slots that have not been used: each once.
struct Slots(u32);

impl Slots {
    fn next(&mut self) -> Result<CapIndex> {
        let at = self.0;
        self.0 += 1;
        if at >= LAST_ENTRIES.end * 64 {
            return Err(Error::Full);
        }
        Ok(CapIndex(at))
    }
}

fn clear(space: Cap<Space>, isa: Isa, level: u8, va: u64) -> Result<()> {
    takedown::clear(&Waits::new, space, isa, level, va)
}

fn unmap(space: Cap<Space>, isa: Isa, va: u64) -> Result<()> {
    takedown::unmap(&Waits::new, space, isa, va)
}

fn clear_space(space: Cap<Space>) -> Result<()> {
    takedown::clear_space(&Waits::new, space)
}

/// The ranges of storm memory, guests' included.
fn ranges() -> impl Iterator<Item = (u64, Cap<Memory>, u64)> {
    WORLD
        .pools()
        .map(|p| (p, Cap::at(memory(p)), FRAMES))
        .chain([(99, Cap::at(GUEST_MEMORY), GUESTS as u64)])
}

/// Calls `f` with each block: range, number of its first frame, what it is.
fn blocks(mut f: impl FnMut(u64, Cap<Memory>, u64, What) -> Result<()>) -> Result<()> {
    for (pool, memory, frames) in ranges() {
        let mut at = 0;
        while at < frames {
            let what = What::of_word(memory.inspect(at)?);
            f(pool, memory, at, what)?;
            at += what.frames();
        }
    }
    Ok(())
}

/// Puts every object out of use.
fn quieten(slots: &mut Slots) -> Result<()> {
    // All of them at first: they stop, or their time runs out, while this waits for one.
    for k in 0..GUESTS {
        let _ = Cap::<Thread>::at(guest(k)).stop();
    }
    for k in 0..GUESTS {
        let thread: Cap<Thread> = Cap::at(guest(k));
        match patiently(|| thread.stop()) {
            // One that was never configured cannot be stopped, and need not.
            Ok(()) | Err(Error::NoCap | Error::Revoked | Error::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    for pass in 0..2 {
        drain(ENDPOINTS, 64);
        blocks(|_, memory, n, what| {
            if what != What::Kernel {
                return Ok(());
            }
            let place = Place::of(TABLE, slots.next()?);
            let cap: Cap<Thread> = memory.activate(n, place, Rights::ALL)?;
            let known = cap.introspect()?;
            match known.kind {
                CapType::Thread if pass == 0 => {
                    // If it is new there is nothing to stop; if it cannot be stopped, its frame will
                    // be found. One that is within an invocation ends there after the grace period: its scheduler
                    // does not run any more.
                    let stopped = patiently(|| match cap.stop() {
                        Err(Error::NotReady) => Ok(()),
                        done => done,
                    });
                    let _ = stopped;
                }
                CapType::Receive => drain(Cap::at(cap.index()), 64),
                CapType::Space if pass == 0 => clear_space(Cap::at(cap.index()))?,
                CapType::Captbl if pass == 0 && known.detail == 1 => {
                    let root: Cap<Captbl> = Cap::at(cap.index());
                    for entry in 0..512 {
                        match patiently(|| root.decons(entry)) {
                            Ok(()) | Err(Error::NotFound) => {}
                            Err(e) => return Err(e),
                        }
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn own_parts() -> Result<()> {
    for entry in WILD_ENTRIES {
        match patiently(|| TABLE.decons(entry)) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    for page in 0..WINDOW_PAGES + 8 {
        let va = WINDOW + page * PAGE_SIZE;
        // SAFETY: 1. Nothing of the program is in the window.
        match unsafe { SPACE.remove_region(va) } {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    for isa in Isa::ALL {
        clear(SPACE, isa, 3, table_start(WINDOW, 3))?;
        // Programs begin behind the first GiB: for address 0, which is among those that the storm
        // tries, there is an empty place in a table of the program's own.
        clear(SPACE, isa, 2, 0)?;
    }
    Ok(())
}

/// Waits until what has been given up can be used again.
fn quiesce(stamp: Stamp) -> Result<()> {
    let hardware = rt::hardware(HOME);
    let end = hardware.now()? + 20_000_000_000;
    while !hardware.quiesced(stamp)? {
        if hardware.now()? > end {
            return Err(Error::TimedOut);
        }
        pause();
    }
    Ok(())
}

/// Uses a block once more; a single frame is looked at.
fn reuse(memory: Cap<Memory>, n: u64, order: u32, slots: &mut Slots, va: u64) -> Result<bool> {
    patiently(|| memory.retype_user(n, order))?;
    let mut zero = true;
    if order == 0
        && va < LOOKED_AT.end
        && let Ok(slot) = slots.next()
    {
        let frame: Cap<Frame> = memory.activate(n, Place::of(TABLE, slot), FRAME)?;
        let here = rt::hardware(HOME).where_am_i()?.isa;
        // SAFETY: 1. An address of the window that has not been used, page by page.
        patiently(|| unsafe { SPACE.map(at(here, 1), va, frame, 0, Access::Read) })?;
        let words = with_exposed_provenance::<u64>(va as usize);
        // SAFETY: 1. Just mapped, readable, aligned.
        zero = (0..512).all(|i| unsafe { words.add(i).read_volatile() } == 0);
        unmap(SPACE, here, va)?;
    }
    patiently(|| memory.retype_untyped(n))?;
    Ok(zero)
}

/// Tables for the addresses at which frames are looked at.
fn window_tables() -> Result<u64> {
    // Tables come from the supply of the fault that touches it first.
    let va = LOOKED_AT.start;
    SPACE.add_region(va, PAGE_SIZE, RegionKind::Anonymous, true)?;
    let word = with_exposed_provenance::<u64>(va as usize);
    // SAFETY: 1. An anonymous region of the program's own.
    core::hint::black_box(unsafe { word.read_volatile() });
    Ok(va + PAGE_SIZE)
}

/// All of it.
pub fn take_down() -> Left {
    let mut left = Left {
        frames: 0,
        untyped: 0,
        reused: 0,
        stuck: [[0; 4]; NAMED],
        trouble: None,
    };
    let mut slots = Slots(LAST_ENTRIES.start * 64);
    if let Err(e) = own_parts() {
        left.trouble = Some(("own table and window", e));
    }
    if let Err(e) = quieten(&mut slots) {
        left.trouble = Some(("threads, spaces and tables", e));
    }
    let mut last = Stamp(0);
    for _ in 0..PASSES {
        let mut moved = 0;
        let swept = blocks(|_, memory, n, what| {
            if matches!(what, What::User { .. } | What::Kernel)
                && let Ok(stamp) = memory.retype_untyped(n)
            {
                last = last.max(stamp);
                moved += 1;
            }
            Ok(())
        });
        if let Err(e) = swept {
            left.trouble = Some(("sweeping", e));
        }
        if moved == 0 {
            break;
        }
        drain(ENDPOINTS, 64);
    }
    if let Err(e) = quiesce(last) {
        left.trouble = Some(("quiescence", e));
    }
    let mut named = 0;
    let counted = blocks(|pool, memory, n, what| {
        left.frames += what.frames();
        if matches!(what, What::Untyped { .. }) {
            left.untyped += what.frames();
        } else if named < NAMED {
            let status = memory.retype_untyped(n).err().map_or(0, Error::code);
            left.stuck[named] = [pool, n, memory.inspect(n)?, status];
            named += 1;
        }
        Ok(())
    });
    if let Err(e) = counted {
        left.trouble = Some(("counting", e));
    }
    let used = window_tables().and_then(|mut va| {
        blocks(|_, memory, n, what| {
            if let What::Untyped { order } = what
                && order <= ZEROED
                && reuse(memory, n, order, &mut slots, va)?
            {
                left.reused += what.frames();
                va += PAGE_SIZE;
            } else if let What::Untyped { order } = what
                && order > ZEROED
            {
                left.reused += what.frames();
            }
            Ok(())
        })
    });
    if let Err(e) = used {
        left.trouble = Some(("using it again", e));
    }
    left
}
