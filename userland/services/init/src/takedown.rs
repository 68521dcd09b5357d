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
use dyad_abi::user::{ISA_RO_BASE, PAGE_SIZE, TEXT_BASE};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::frames::Arena;
use dyad_services::halting::{Clock, Threads, halt, unlisted, wait};
use dyad_services::rt;
use dyad_services::takedown::{self, Patience, clear, patiently};
use dyad_sys::cap::{Cap, Space, Stamp, Until};

use crate::blocks::{self, Who};
use crate::group::Group;
use crate::memory::{CXL, Store};
use crate::program::{HOME, Program, invocations, isas_of};
use crate::separate::{self, Found};
use crate::service::check_pools;
use crate::system::{ENDPOINT, SLEEP_LINE, System};
use crate::threads;
use crate::trouble::{Done, During};

/// Largest number of passes over the frames: a pass frees objects whose references kept other frames from
/// being freed.
const PASSES: u32 = 8;
/// Most attempts at something another CPU is in the way of.
const TRIES: u32 = 1000;

/// Frames of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Frames that the program was given.
    pub given: u64,
    /// Frames that have come back.
    pub returned: u64,
}

/// Attempts at an operation on the address space of a thread that may still be on a CPU elsewhere.
struct Yields(u32);

impl Patience for Yields {
    fn pause(&mut self) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(Error::TimedOut)?;
        dyad_sys::yield_now();
        Ok(())
    }
}

fn yields() -> Yields {
    Yields(TRIES)
}

/// Unmaps what covers an address, if something does.
pub fn unmap(space: Cap<Space>, isa: Isa, va: u64) -> Result<()> {
    takedown::unmap(&yields, space, isa, va)
}

/// Takes back what invocations by the threads of a program have used in a service.
fn dismiss(service: &Program, number: u64) -> Result<()> {
    let (start, len) = invocations(number);
    let (mut at, end) = (start, start + len);
    while at < end {
        let pages = (end - at) / PAGE_SIZE;
        // SAFETY: 1. No invocation of those threads is under way, so nothing is on their stacks, also
        // if they are init's own.
        let looked = patiently(yields(), || unsafe { service.space.reclaim(at, pages) })?;
        if looked == 0 {
            return Err(Error::Corrupt);
        }
        at += looked * PAGE_SIZE;
    }
    service.space.shootdown(start, len)?;
    // SAFETY: 1. No invocation of those threads is under way: nothing is on the stacks.
    unsafe { service.space.remove_region(start) }
}

/// The threads of a program.
struct ThreadsOf<'a> {
    program: &'a Program,
    guest: &'static threads::Guest,
}

impl Threads for ThreadsOf<'_> {
    fn close(&self) {
        self.guest.close();
    }

    fn forget(&self) -> Result<()> {
        crate::emulate::forget(self.program.number)
    }

    fn have_stopped(&self) -> bool {
        self.guest.have_stopped(self.program.number)
    }

    fn take_code(&self) -> Result<()> {
        let space = self.program.space;
        for isa in isas_of(self.program.isas) {
            let mut va = TEXT_BASE;
            while va < ISA_RO_BASE {
                clear(&yields, space, isa, 1, va)?;
                va += PAGE_SIZE << 9;
            }
        }
        space.shootdown(TEXT_BASE, ISA_RO_BASE - TEXT_BASE)
    }
}

/// The fused clock, and the endpoint where the caller sleeps.
struct Fused;

impl Clock for Fused {
    fn now(&self) -> Result<u64> {
        rt::hardware(HOME).now()
    }

    fn sleep(&self, until: u64) -> Result<()> {
        sleep(until)
    }
}

/// Waits until something is so.
///
/// # Errors
///
/// `TimedOut`; as the question.
pub fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..STOP_LOOKS {
        if is_so()? {
            return Ok(());
        }
        sleep(rt::hardware(HOME).now()? + STOP_LOOK_NS)?;
    }
    Err(Error::TimedOut)
}

/// How often it is looked whether something has stopped, and how long between two looks.
const STOP_LOOKS: u32 = 10_000;
const STOP_LOOK_NS: u64 = 500_000;

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

impl System {
    /// Takes a program down that has ended: all of its processes, if it is a group.
    pub fn take_down(&self, p: &Program) -> Done<Count> {
        let group = self.group.as_ref();
        for p in group.into_iter().flat_map(Group::processes).chain([p]) {
            crate::ask::leave(p.number);
        }
        if let Some(group) = group {
            group.end(|node| self.is_going(node))?;
        }
        let others = || group.into_iter().flat_map(Group::processes);
        for p in others().chain([p]) {
            let guest = threads::of(p.number).during("ending the threads")?;
            let threads = ThreadsOf { program: p, guest };
            halt(&Fused, &threads).during("ending the threads")?;
        }
        if group.is_some() {
            let mut found = Found::default();
            for p in others().chain([p]) {
                separate::look(p, &mut found).during("pages of processes")?;
            }
            check_pools(&found);
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
        // What is sent to a node that has come back waits until this leader has started its schedulers: the leader
        // itself would wait for ever.
        let answers = NodeId::new(builder.info.console_node).is_some_and(|n| self.is_going(n));
        let console = has_console.then(|| match answers {
            true => self.to_console.request([console::END, number, 0, 0]),
            false => Err(Error::NodeDead),
        });
        let pager = peer
            .is_none()
            .then(|| self.to_pager.request([pager::END, number, 0, 0]));
        for (ended, what) in [(console, "end at the console"), (pager, "end at the pager")] {
            match ended {
                // The console's node, or a thread in the middle of the service, was lost. What the
                // program had is found nevertheless.
                Some(Err(Error::NodeDead)) => {}
                Some(Err(Error::Again)) if self.deaths > 0 => {}
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
        patiently(yields(), || crate::emulate::leave(p, &builder.window.own))
            .during("threads that were moved")?;
        let mut last = Stamp(0);
        for isa in isas_of(p.isas) {
            for i in 0..256 {
                clear(&yields, p.space, isa, 3, i << 39).during("address space")?;
            }
            let at = TableAt { isa, level: 4 };
            let stamp =
                patiently(yields(), || p.space.unlink(at, 0)).during("root of the page table")?;
            last = last.max(stamp);
        }
        // A program that may has hung leaves of its own in.
        for entry in 0..ROOT_ENTRIES {
            match p.table.decons(entry) {
                Ok(_) | Err(Error::NotFound) => {}
                Err(e) => return Err(e).during("capability table"),
            }
        }
        unlisted(&Fused, || sweep(&builder.store, p)).during("frames")?;
        wait(&Fused, || rt::hardware(HOME).quiesced(last)).during("quiescence")?;
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
