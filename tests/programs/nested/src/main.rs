//! Invokes itself as deep as kernels let it, on as many threads as it can have, and asks every service at each depth:
//! what it can make the services spend is all that was reserved for it, and nothing of what others need.
//! It runs beside the program `victim`, with the same arguments:
//! `cargo xtask run --app nested --beside victim --grant all -- --scene memory`.
//!
//! | check | |
//! |---|---|
//! | `nested.depth` | every thread was within [`INVOKE_DEPTH`] invocations |
//! | `nested.doors` | console, pager and init answered in each invocation that is not deeper than what they promise, and refused all others with `TooDeep` |
//! | `nested.later` | all of them serve a thread that comes afterwards |
//!
//! It needs `--grant all`: other programs have no entry to themselves.
#![no_std]
#![no_main]
// The entry and the stacks of its own invocations.
#![deny(unsafe_code)]

extern crate alloc;

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::service::Call;
use dyad::sys::cap::{Cap, Captbl, Component, Place, Sinv, Space};
use dyad::{report, sys, thread};
use dyad_abi::cap::{Rights, Stripes};
use dyad_abi::service::{
    INVOKE_DEPTH, INVOKE_STACK_SIZE, INVOKE_STACK_STRIDE, INVOKE_STACKS, SERVED, SERVED_BY_INIT,
    invoke_stack, program, slot, thread_id,
};
use dyad_abi::user::MAX_PROGRAM_THREADS;

/// Threads beside the first, which looks afterwards.
const THREADS: u64 = MAX_PROGRAM_THREADS - 2;
/// How long the victim works at most; the run ends with this program.
const LENGTH: Duration = Duration::from_secs(9);
/// An operation that no service has: it comes back with an error.
const NO_OPERATION: u64 = 0xee;
const DEEPEST: u64 = INVOKE_DEPTH as u64;

/// Invokes this program.
const OWN: Cap<Sinv> = Cap::at(slot::FIRST_FREE);
/// Answers that were not what they must be.
static WRONG: AtomicU64 = AtomicU64::new(0);
/// The last of them: service, depth and status.
static WHAT: AtomicU64 = AtomicU64::new(0);
/// Answers of services, and refusals at their doors.
static ANSWERED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Asks a service from within so many invocations.
fn ask(service: Cap<Sinv>, within: u64, promised: u64) {
    let answer = service.request([NO_OPERATION, 0, 0, 0]).err();
    let deep = within + 1 > promised;
    // The kernel refuses what it has no room for, in the same way.
    let expected = match deep {
        true => sys::Error::TooDeep,
        false => sys::Error::BadArgument,
    };
    if answer != Some(expected) {
        let status = answer.map_or(0, sys::Error::code);
        WHAT.store(within << 16 | promised << 8 | status, Ordering::Relaxed);
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
    let counter = if deep { &REFUSED } else { &ANSWERED };
    counter.fetch_add(1, Ordering::Relaxed);
}

fn ask_all(within: u64) {
    ask(Cap::at(slot::CONSOLE), within, SERVED.depth);
    ask(Cap::at(slot::PAGER), within, SERVED.depth);
    ask(Cap::at(slot::PROCESS), within, SERVED_BY_INIT.depth);
}

/// Goes one deeper, and asks on the way back: how deep it was.
fn nested(call: Call) -> [u64; 4] {
    let within = call.token.depth();
    let deepest = match OWN.invoke([0; 4]) {
        Ok(deepest) => deepest,
        Err(_) => within,
    };
    ask_all(within);
    [deepest, 0, 0, 0]
}

dyad::service!(nested);

/// Where kernels enter this program.
#[allow(unsafe_code)]
fn entry() -> u64 {
    unsafe extern "C" {
        fn _dyad_invoked();
    }
    _dyad_invoked as *const () as u64
}

/// Makes the entry, and room for the stacks of the invocations.
#[allow(unsafe_code)]
fn prepare() -> sys::Result<()> {
    let table: Cap<Captbl> = Cap::at(slot::TABLE);
    let component: Cap<Component> = Cap::at(slot::COMPONENT);
    let space: Cap<Space> = Cap::at(slot::SPACE);
    let stripes = Stripes::new(INVOKE_STACK_STRIDE, INVOKE_STACK_SIZE);
    let first = u64::from(thread_id(program::FIRST, 0)) << 8;
    space.add_stacks(
        INVOKE_STACKS + first * INVOKE_STACK_STRIDE,
        (MAX_PROGRAM_THREADS << 8) * INVOKE_STACK_STRIDE,
        stripes.ok_or(sys::Error::BadArgument)?,
    )?;
    // SAFETY: 1. The entry is that of this program.
    unsafe { component.make_sinv(Place::of(table, OWN.index()), entry(), 0, Rights::ALL) }.map(drop)
}

/// Touches all stacks of invocations, while a fault that needs memory is not deep.
#[allow(unsafe_code)]
fn touch() {
    for n in 0..MAX_PROGRAM_THREADS {
        for depth in 1..=DEEPEST {
            let token = u64::from(thread_id(program::FIRST, n)) << 8 | depth;
            let (_, top) = invoke_stack(token);
            let word = with_exposed_provenance_mut::<u64>(top as usize - 8);
            // SAFETY: 1. The region is this program's. 2. No thread has invoked it yet.
            let old = unsafe { word.read_volatile() };
            // SAFETY: 1. The region is this program's. 2. All write what was there.
            unsafe { word.write_volatile(old) };
        }
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    // The victim's.
    args.expect_options(&["--scene"])?;
    let end = Instant::now() + LENGTH;
    prepare()?;
    let nodes: Vec<NodeId> = dyad::system()?.nodes().map(|n| n.id).collect();
    for &node in &nodes {
        thread::spawn_on(node, touch)?.join()?;
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let node = nodes[n as usize % nodes.len()];
            thread::spawn_on(node, || OWN.invoke([0; 4]).unwrap_or(0))
        })
        .collect::<Result<_>>()?;
    let mut deep = 0;
    for thread in threads {
        deep += u64::from(thread.join()? == DEEPEST);
    }
    report::check("nested.depth", deep == THREADS, deep);
    let answered = ANSWERED.load(Ordering::Relaxed);
    let refused = REFUSED.load(Ordering::Relaxed);
    let doors = [SERVED.depth, SERVED.depth, SERVED_BY_INIT.depth];
    let promised: u64 = doors.iter().map(|depth| depth - 1).sum();
    let all = DEEPEST * doors.len() as u64;
    let wrong = WRONG.load(Ordering::Relaxed);
    report::check(
        "nested.doors",
        wrong == 0 && answered == THREADS * promised && refused == THREADS * (all - promised),
        format!(
            "{answered} answers, {refused} refusals, {wrong} wrong, {:#x}",
            WHAT.load(Ordering::Relaxed)
        ),
    );
    let later = thread::spawn_on(nodes[nodes.len() - 1], || {
        ask_all(0);
        let at = sys::map_anon(1 << 16)?;
        println!("nested: a thread that comes later");
        Ok::<_, sys::Error>(at.as_ptr() as usize)
    })?
    .join()?;
    let wrong = WRONG.load(Ordering::Relaxed) - wrong;
    report::check(
        "nested.later",
        later.is_ok() && wrong == 0,
        format!("{later:?}, {wrong}"),
    );
    while Instant::now() < end {
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
