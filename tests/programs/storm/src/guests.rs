//! Guests: threads that may come to harm. Workers make them, run them, stop them and make them anew.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{CapType, Event, ObjectKind, ReceiveOp, Rights, Stopped, ThreadOp};
use dyad_abi::service::{INFO_BASE, scheduler_line, slot};
use dyad_abi::{CpuId, Error, NodeId};
use dyad_rt::Lock;
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{Cap, Memory, Place, Thread, ThreadSetup, Until};

use crate::actor::{Actor, GUESTS, WORKERS, actor};
use crate::calls;
use crate::hostile;
use crate::setup::{self, COMPONENT, ENDPOINTS, GUEST, TABLE, WAITING};
use crate::wild;
use crate::world::{GUEST_MEMORY, HERE, WINDOW, WINDOW_PAGES, WORLD, guest, slot_of, there};

/// Tags of guests at the workers.
const TAG: u32 = 1000;
/// Invocations handled.
pub static INVOKED: AtomicU64 = AtomicU64::new(0);
/// Faults handled.
pub static FAULTS: AtomicU64 = AtomicU64::new(0);
/// Guests made.
pub static MADE: AtomicU64 = AtomicU64::new(0);
/// Times guests have run until they stopped, by [`Stopped`].
pub static STOPS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// Who is making a guest.
static MAKING: [Lock<bool>; GUESTS] = [const { Lock::new(false) }; GUESTS];

/// Takes the guests that have become ready at this worker, and runs one.
pub fn run(n: usize) {
    let a = actor(n);
    let line = n as u64;
    for _ in 0..4 {
        match ENDPOINTS.receive(line, Until::Now) {
            Ok(0) | Err(_) => break,
            Ok(v) => {
                if let Some(event) = Event::from_bits(v)
                    && let Some(k) = event.tag.checked_sub(TAG)
                    && (k as usize) < GUESTS
                {
                    a.ready.fetch_or(1 << k, Ordering::Relaxed);
                }
            }
        }
    }
    let ready = a.ready.load(Ordering::Relaxed);
    if ready == 0 {
        return;
    }
    let mut k = a.below(GUESTS as u64);
    while ready & 1 << k == 0 {
        k = (k + 1) % GUESTS as u64;
    }
    let thread: Cap<Thread> = Cap::at(guest(k as usize));
    let slice = 50_000 + a.below(2_000_000);
    let keep = match thread.dispatch(slice, a.below(64) as u8, None) {
        Ok(stop) => {
            STOPS[stop.why as usize].fetch_add(1, Ordering::Relaxed);
            matches!(
                stop.why,
                Stopped::Preempted | Stopped::Yielded | Stopped::Interrupted
            )
        }
        Err(_) => false,
    };
    if !keep {
        a.ready.fetch_and(!(1 << k), Ordering::Relaxed);
    }
}

/// Stops a guest, ends its thread's frame and makes another one, as far as it gets.
pub fn renew(a: &Actor, k: usize) {
    let Some(mut made) = MAKING[k].try_lock() else {
        return;
    };
    let memory: Cap<Memory> = Cap::at(GUEST_MEMORY);
    let thread: Cap<Thread> = Cap::at(guest(k));
    if *made {
        if thread.stop().is_err() {
            return;
        }
        // Mostly it begins anew as what it is.
        if !a.rarely(4) {
            let _ = begin(a, k);
            return;
        }
        if memory.retype_untyped(k as u64).is_err() {
            let _ = begin(a, k);
            return;
        }
        *made = false;
        let _ = TABLE.deactivate(guest(k));
    }
    // Both want quiescence first.
    let ready = match memory.retype_kernel(k as u64, ObjectKind::Thread) {
        Ok(()) => Ok(()),
        // It is one, but the slot was not to be had.
        Err(Error::Exists) => Ok(()),
        Err(e) => Err(e),
    };
    let place = Place::of(TABLE, guest(k));
    let activated = ready.and_then(|()| memory.activate::<Thread>(k as u64, place, Rights::ALL));
    if activated.is_ok() {
        *made = true;
        MADE.fetch_add(1, Ordering::Relaxed);
        let _ = begin(a, k);
    }
}

/// Makes a guest that has never been, on the first CPU of a node.
///
/// # Errors
///
/// As the kernel says.
pub fn make_on(k: usize, node: u64) -> dyad_abi::Result<()> {
    let memory: Cap<Memory> = Cap::at(GUEST_MEMORY);
    memory.retype_kernel(k as u64, ObjectKind::Thread)?;
    let place = Place::of(TABLE, guest(k));
    memory.activate::<Thread>(k as u64, place, Rights::ALL)?;
    begin_on(k, (node, 0))
}

/// Lets a guest that has been ended begin anew, on the first node.
pub fn again(k: usize) {
    let thread: Cap<Thread> = Cap::at(guest(k));
    // If it is on its way there is nothing to do.
    if thread.stop().is_ok() {
        let _ = begin_on(k, (0, 0));
    }
}

fn begin(a: &Actor, k: usize) -> dyad_abi::Result<()> {
    let node = a.below(WORLD.nodes.load(Ordering::Relaxed));
    let cpu = a.below(WORLD.cpus.load(Ordering::Relaxed));
    begin_on(k, (node, cpu))
}

fn begin_on(k: usize, (node, cpu): (u64, u64)) -> dyad_abi::Result<()> {
    let n = (WORKERS + k) as u64;
    let setup = ThreadSetup {
        component: COMPONENT,
        entry: setup::entry()?,
        arg: INFO_BASE | GUEST | k as u64,
        id: n as u32,
        layout: 0,
        ids: Cap::at(slot::THREAD_IDS),
        tag: TAG + k as u32,
        scheduler: Some(ENDPOINTS),
    };
    let thread: Cap<Thread> = Cap::at(guest(k));
    // SAFETY: 1. The entry is that of this program, and the number of the thread its own, by the
    // lock of this guest: nobody else has its stacks.
    unsafe { thread.configure(&setup)? };
    match (NodeId::new(node), CpuId::new(cpu)) {
        (Some(node), Some(cpu)) => thread.resume_on(node, cpu),
        _ => Err(Error::Corrupt),
    }
}

/// A guest's life, from wherever it comes.
pub fn live(k: usize) -> ! {
    let a = actor(WORKERS + k);
    let me: Cap<Thread> = Cap::at(guest(k));
    loop {
        if WORLD.is_done() {
            let _ = me.exit(0);
        }
        for _ in 0..16 {
            wild::step(a);
        }
        act(a, k);
    }
}

/// What only guests dare.
fn act(a: &Actor, k: usize) {
    let me = guest(k);
    match a.below(12) {
        0 | 1 => {
            let nodes = WORLD.nodes.load(Ordering::Relaxed);
            let to = a.below(nodes + 1);
            let op = ThreadOp::Migrate as u64;
            // Nothing that this function knows is used afterwards: it may not return for long.
            let _ = calls::make(a, CapType::Thread, me, op, [to, 0, 0, 0, 0]);
        }
        2 => {
            let _ = calls::make(a, CapType::Thread, me, ThreadOp::Yield as u64, [0; 5]);
        }
        3 | 4 => {
            let line = WAITING.start + a.below(WAITING.end - WAITING.start);
            let until = match a.below(4) {
                0 => 0,
                _ => rt::hardware(setup::HOME).now().unwrap_or(0) + a.below(3_000_000),
            };
            let args = [line, until, 0, 0, 0];
            let op = ReceiveOp::Receive as u64;
            let _ = calls::make(a, CapType::Receive, slot::ENDPOINT, op, args);
        }
        5 | 6 => {
            let cap = match a.below(4) {
                0 => HERE,
                1 => there(a.below(WORLD.nodes.load(Ordering::Relaxed))),
                _ => slot_of(CapType::Sinv, a.next()),
            };
            let words = [a.below(20), a.next(), a.next(), a.next()];
            let _ = calls::invoke(a, cap, words);
        }
        7 | 8 => touch(a),
        9 if a.rarely(20) => {
            let _ = Cap::<Thread>::at(me).exit(7);
        }
        _ => {}
    }
}

/// Reads or writes somewhere in the window, where anything may be.
fn touch(a: &Actor) {
    let at = WINDOW + a.below(WINDOW_PAGES) * 4096 + a.below(512) * 8;
    let at = if a.rarely(8) {
        a.pick(&[0, 8, 1 << 46, 0xffff_8000_0000_0000, u64::MAX - 7])
    } else {
        at
    };
    let p = with_exposed_provenance_mut::<u64>(at as usize);
    if a.rarely(2) {
        // SAFETY: 1. Nothing of the program is there: it is storm memory, or faults, which ends the
        // guest at most.
        core::hint::black_box(unsafe { p.read_volatile() });
    } else {
        // SAFETY: 1. As above.
        unsafe { p.write_volatile(at) };
    }
}

/// Invocations of this program: faults, and recursion.
pub fn invoked(call: Call) -> [u64; 4] {
    let [depth, a, b, c] = call.words;
    if call.badge == 1 {
        FAULTS.fetch_add(1, Ordering::Relaxed);
        if hostile::is_on() {
            // As long as the scene lasts, let it go on: endless faults.
            return [u64::from(hostile::is_over()), 0, 0, 0];
        }
        // Now and then another attempt, in case somebody maps it: bounded by whoever stops it.
        return [u64::from(a & 7 != 0 || c & 3 != 0), 0, 0, 0];
    }
    INVOKED.fetch_add(1, Ordering::Relaxed);
    if depth > 0 && depth < 64 {
        // Deeper until the kernel says no.
        let there = there(b % WORLD.nodes.load(Ordering::Relaxed));
        let to = if c & 3 == 0 { there } else { HERE };
        let op = dyad_abi::cap::SinvOp::Invoke as u32;
        let word = dyad_abi::cap::call_word(to, op);
        let r = dyad_sys::raw::invoke1(word, [depth - 1, a, b >> 3, c >> 2]);
        return [r.value, 0, 0, 0];
    }
    [a ^ b ^ c, a, b, c]
}

/// The scheduler line of a worker is its number.
const _: () = {
    let last = match (NodeId::new(7), CpuId::new(7)) {
        (Some(n), Some(c)) => scheduler_line(n, c),
        _ => 0,
    };
    assert!(last as usize == WORKERS - 1);
};
