//! The end of a program: all of its resources are taken back and counted.
//!
//! ```text
//!   threads that still run ──▶ pager, console: END ──▶ stacks of its invocations ──▶ buffer in the console
//!      ──▶ every page and page table of its address space ──▶ its runs of frames, until nothing
//!          moves ──▶ quiescence ──▶ count
//! ```
//!
//! Init does not keep a list of what a program has. Page tables are found by trying to take them
//! out, which the kernel refuses as long as there is something in them; frames are found by looking
//! through the runs they come from. So it does not matter who has made what, and nothing can be
//! forgotten.

#![allow(unsafe_code)]

use dyad_abi::cap::{ROOT_ENTRIES, TableAt};
use dyad_abi::service::{CONSOLE_THREADS, console, console_client, pager};
use dyad_abi::user::{ISA_RO_BASE, PAGE_SIZE, TEXT_BASE, USER_END};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::frames::Arena;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Space, Stamp, Until};

use crate::blocks::{self, Who};
use crate::group::Group;
use crate::memory::{CXL, Store};
use crate::program::{HOME, Program, invocations, isas_of};
use crate::system::{ENDPOINT, SLEEP_LINE, System};
use crate::threads;
use crate::trouble::{Done, During};

/// Largest number of passes over the frames: a pass frees objects whose references kept other frames from
/// being freed.
const PASSES: u32 = 8;
/// Most attempts at something another CPU is in the way of.
const TRIES: u32 = 1000;
/// The longest time that quiescence may take.
const QUIESCENCE_NS: u64 = 10_000_000_000;
/// Interval of checks for quiescence.
const LOOK_NS: u64 = 5_000_000;
/// How long threads may take to end, and how often it is looked whether they have.
const HALT_NS: u64 = 10_000_000_000;
const STEP_NS: u64 = 500_000;

/// Frames of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Frames that the program was given.
    pub given: u64,
    /// Frames that have come back.
    pub returned: u64,
}

/// Repeats an operation on the address space of a thread that may still be on a CPU elsewhere.
fn patiently<T>(mut f: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        match f() {
            Err(Error::Again) if tries < TRIES => {
                tries += 1;
                dyad_sys::yield_now();
            }
            result => return result,
        }
    }
}

/// Unmaps what covers an address, if something does.
pub fn unmap(space: Cap<Space>, isa: Isa, va: u64) -> Result<()> {
    let at = TableAt { isa, level: 1 };
    // SAFETY: 1. The space is that of another program.
    match patiently(|| unsafe { space.unmap(at, va) }) {
        Ok(_) | Err(Error::BadAddress) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Takes the table of `level` at `va` out, with everything in it.
fn clear(space: Cap<Space>, isa: Isa, level: u8, va: u64) -> Result<()> {
    let at = TableAt { isa, level };
    match space.unlink(at, va) {
        Ok(_) | Err(Error::NotFound) => return Ok(()),
        // Something is in there.
        Err(Error::Exists) => {}
        Err(e) => return Err(e),
    }
    let size = PAGE_SIZE << (9 * (level as u32 - 1));
    for i in 0..512 {
        let va = va + i * size;
        if va >= USER_END {
            break;
        }
        match level {
            1 => unmap(space, isa, va)?,
            _ => clear(space, isa, level - 1, va)?,
        }
    }
    match patiently(|| space.unlink(at, va)) {
        Ok(_) | Err(Error::NotFound) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Takes back what invocations by the threads of a program have used in a service.
fn dismiss(service: &Program, number: u64) -> Result<()> {
    let (start, len) = invocations(number);
    let (mut at, end) = (start, start + len);
    while at < end {
        let pages = (end - at) / PAGE_SIZE;
        // SAFETY: 1. No invocation of those threads is under way, so nothing is on their stacks, also
        // if they are init's own.
        let looked = patiently(|| unsafe { service.space.reclaim(at, pages) })?;
        if looked == 0 {
            return Err(Error::Corrupt);
        }
        at += looked * PAGE_SIZE;
    }
    service.space.shootdown(start, len)?;
    // SAFETY: 1. No invocation of those threads is under way: nothing is on the stacks.
    unsafe { service.space.remove_region(start) }
}

/// Ends the threads of a program that still run, wherever they are: what they execute is taken away
/// from under them, so that each faults, and ends. One that is in a service first does there what it
/// was invoked for, and holds nothing there when it ends; one that waits is woken for this.
fn halt(p: &Program, isas: u8) -> Result<()> {
    let threads = threads::of(p.number)?;
    let end = rt::hardware(HOME).now()? + HALT_NS;
    threads.close();
    // From here on no thread goes on that was stopped in order to be moved.
    loop {
        match crate::emulate::forget(p.number) {
            Err(Error::Again) => {}
            done => break done?,
        }
        let now = rt::hardware(HOME).now()?;
        if now > end {
            return Err(Error::TimedOut);
        }
        sleep(now + STEP_NS)?;
    }
    if threads.have_stopped(p.number) && threads.have_stopped(p.number) {
        return Ok(());
    }
    for isa in isas_of(isas) {
        let mut va = TEXT_BASE;
        while va < ISA_RO_BASE {
            clear(p.space, isa, 1, va)?;
            va += PAGE_SIZE << 9;
        }
    }
    p.space.shootdown(TEXT_BASE, ISA_RO_BASE - TEXT_BASE)?;
    let mut seen = 0;
    // Twice: one that has been seen to have stopped may have been started since, by a thread that was just
    // about to, and by no other.
    while seen < 2 {
        if threads.have_stopped(p.number) {
            seen += 1;
            continue;
        }
        seen = 0;
        let now = rt::hardware(HOME).now()?;
        if now > end {
            return Err(Error::TimedOut);
        }
        sleep(now + STEP_NS)?;
    }
    Ok(())
}

/// Sleeps until a time, or less.
fn sleep(until: u64) -> Result<()> {
    match ENDPOINT.receive(SLEEP_LINE, Until::Deadline(until)) {
        Ok(_) | Err(Error::TimedOut) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The runs of frames of a program, with their pools.
fn runs(p: &Program) -> impl Iterator<Item = (usize, Arena)> + '_ {
    let supplies =
        NodeId::first(p.supplies.len()).filter_map(|n| Some((n.index(), p.supplies[n.index()]?)));
    let lent = p
        .lent
        .iter()
        .enumerate()
        .filter_map(|(pool, arena)| Some((pool, (*arena)?)));
    [(CXL, p.objects), (p.home.index(), p.user)]
        .into_iter()
        .chain(supplies)
        .chain(lent)
}

/// Makes everything untyped that can be, until nothing moves any more.
fn sweep(store: &Store, p: &Program) -> Result<()> {
    for _ in 0..PASSES {
        let (mut returned, mut held) = (0, 0);
        for (pool, arena) in runs(p) {
            let swept = arena.sweep(store.pool(pool))?;
            returned += swept.returned;
            held += swept.held;
        }
        if held == 0 || returned == 0 {
            break;
        }
    }
    Ok(())
}

/// Does something for which no thread may be on a scheduler's list. One that was lost with its node, or told
/// of by recovery, is on it until the scheduler comes to that.
fn unlisted<T>(mut f: impl FnMut() -> Result<T>) -> Result<T> {
    let end = rt::hardware(HOME).now()? + HALT_NS;
    loop {
        let now = rt::hardware(HOME).now()?;
        match f() {
            Err(Error::NotReady) if now < end => sleep(now + STEP_NS)?,
            result => return result,
        }
    }
}

fn count(store: &Store, p: &Program) -> Result<Count> {
    let mut count = Count {
        given: 0,
        returned: 0,
    };
    for (pool, arena) in runs(p) {
        count.given += arena.frames();
        count.returned += arena.free(store.pool(pool))?;
    }
    Ok(count)
}

/// Waits until what was given up at `stamp` can be used again.
fn wait(stamp: Stamp) -> Result<()> {
    let hardware = rt::hardware(HOME);
    let end = hardware.now()? + QUIESCENCE_NS;
    while !hardware.quiesced(stamp)? {
        let now = hardware.now()?;
        if now > end {
            return Err(Error::TimedOut);
        }
        sleep(now + LOOK_NS)?;
    }
    Ok(())
}

impl System {
    /// Takes a program down that has ended: all of its processes, if it is a group.
    pub fn take_down(&self, p: &Program) -> Done<Count> {
        crate::ask::leave(p.number);
        let group = self.group.as_ref();
        if let Some(group) = group {
            group.end()?;
        }
        let others = || group.into_iter().flat_map(Group::processes);
        for p in others().chain([p]) {
            halt(p, p.isas).during("ending the threads")?;
        }
        let mut count = Count {
            given: 0,
            returned: 0,
        };
        for p in others().chain([p]) {
            let one = self.take_one_down(p)?;
            count.given += one.given;
            count.returned += one.returned;
        }
        Ok(count)
    }

    /// What services have for a program is theirs again.
    fn leave_services(&self, p: &Program) -> Done<()> {
        let (number, builder) = (p.number, &self.builder);
        let peer = self.group.as_ref().and_then(|g| g.peer_of(p));
        // A process has its peer in the place of the pager, and the console on its node.
        let has_console = peer.is_none() || p.home.index() as u64 == builder.info.console_node;
        let console = has_console.then(|| self.to_console.request([console::END, number, 0, 0]));
        let pager = peer
            .is_none()
            .then(|| self.to_pager.request([pager::END, number, 0, 0]));
        for (ended, what) in [(console, "end at the console"), (pager, "end at the pager")] {
            match ended {
                // The console's node, or a thread in the middle of the service, was lost. What the
                // program had is found nevertheless.
                Some(Err(Error::NodeDead | Error::Again)) if self.deaths > 0 => {}
                Some(other) => drop(other.during(what)?),
                None => {}
            }
        }
        if let Some(me) = Who::warden(blocks::here()) {
            blocks::end(me, number);
        }
        let services = [
            has_console.then_some(&self.console),
            peer.map_or(Some(&self.pager), |p| Some(&p.program)),
            Some(&builder.window.own),
        ];
        for service in services.into_iter().flatten() {
            dismiss(service, number).during("stacks of invocations")?;
        }
        if has_console {
            self.leave_console(p).during("buffer in the console")?;
        }
        match &self.group {
            Some(group) => group.leave(p).during("the window of a peer"),
            None => Ok(()),
        }
    }

    fn take_one_down(&self, p: &Program) -> Done<Count> {
        self.leave_services(p)?;
        let builder = &self.builder;
        patiently(|| crate::emulate::leave(p, &builder.window.own))
            .during("threads that were moved")?;
        let mut last = Stamp(0);
        for isa in isas_of(p.isas) {
            for i in 0..256 {
                clear(p.space, isa, 3, i << 39).during("address space")?;
            }
            let at = TableAt { isa, level: 4 };
            let stamp = p.space.unlink(at, 0).during("root of the page table")?;
            last = last.max(stamp);
        }
        // A program that may has hung leaves of its own in.
        for entry in 0..ROOT_ENTRIES {
            match p.table.decons(entry) {
                Ok(_) | Err(Error::NotFound) => {}
                Err(e) => return Err(e).during("capability table"),
            }
        }
        unlisted(|| sweep(&builder.store, p)).during("frames")?;
        wait(last).during("quiescence")?;
        count(&builder.store, p).during("counting frames")
    }

    /// Takes a program's pages out of the console.
    fn leave_console(&self, p: &Program) -> Result<()> {
        let there = console_client(p.number);
        let space = self.console.space;
        for page in 0..CONSOLE_THREADS {
            for isa in isas_of(self.builder.isas) {
                unmap(space, isa, there + page * PAGE_SIZE)?;
            }
        }
        // SAFETY: 1. The space is that of another program.
        unsafe { space.remove_region(there)? };
        space.shootdown(there, CONSOLE_THREADS * PAGE_SIZE)
    }
}
