//! Where the peer is entered.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::peer::{POLLS, SETUP, Setup, door, node_of, op, process_on};
use dyad_abi::service::{
    CONSOLE_BUFFER, CONSOLE_THREADS, pager, process, program, slot, thread_id, thread_of_id,
};
use dyad_abi::user::{
    DATA_STACKS_BASE, FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT, PAGE_SIZE, Tcb, data_stack, stack_slot,
    tcb_address, thread_at,
};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{Cap, Sinv};

use crate::port::told;
use crate::slots::{self, SLOTS};
use crate::{actor, heap, parts};

pub use dyad_abi::service::peer::ORIGIN;

/// Invokes init.
pub const INIT: Cap<Sinv> = Cap::at(slot::PROCESS);

/// What handlers ask the actor, as the first word of a slot.
pub mod ask {
    /// `(address, access, pc)`.
    pub const FAULT: u64 = 1;
    /// `(node, pc, sp, fp)`.
    pub const MOVE: u64 = 2;
    /// `()`.
    pub const ARRIVED: u64 = 3;
    /// `()`: the thread has ended.
    pub const END_THREAD: u64 = 4;
    /// `(n, place)`.
    pub const START: u64 = 5;
    /// `(n)`.
    pub const WAKE: u64 = 6;
    /// `(n, old, new)`.
    pub const REQUEST: u64 = 7;
    /// `(address)`.
    pub const FUTEX_BEGIN: u64 = 8;
    /// `(address)`.
    pub const FUTEX_END: u64 = 9;
    /// `(address, count)`.
    pub const FUTEX_WAKE: u64 = 10;
    /// `(operation, offset, length)`.
    pub const CONSOLE: u64 = 11;
    /// `(n)`, from the origin: the thread begins on this node.
    pub const BEGIN: u64 = 12;
    /// Operations of the pager have this number and theirs.
    pub const FIRST_OF_PAGER: u64 = 16;
    /// `(length)`.
    pub const MAP: u64 = FIRST_OF_PAGER + dyad_abi::service::pager::MAP_ANON;
    /// `(address, length)`.
    pub const UNMAP: u64 = FIRST_OF_PAGER + dyad_abi::service::pager::UNMAP;
}

dyad_services::entry!(start, invoked, to 4);

fn start(arg: u64) -> ! {
    if arg & POLLS == 0 {
        heap::begin();
    }
    let place = rt::hardware(ORIGIN).where_am_i();
    let (number, polls) = (arg % POLLS, arg & POLLS != 0);
    let done = match (NodeId::new(number), place) {
        (Some(node), Ok(_)) if polls => actor::poll(node),
        (Some(node), Ok(place)) => actor::run(node, place.isa, setup()),
        _ => Err(Error::BadArgument),
    };
    match done {
        Ok(never) => match never {},
        Err(e) => rt::give_up(format_args!("peer of node {number}: {e}")),
    }
}

fn setup() -> &'static Setup {
    // SAFETY: 1. Init maps the page there, read-only, for as long as the peer lives. 2. Every pattern of bits is a value.
    unsafe { &*with_exposed_provenance::<Setup>(SETUP as usize) }
}

/// The words of the control block of thread `n`.
pub fn control_block(n: u64) -> &'static [AtomicU64; size_of::<Tcb>() / 8] {
    let at = tcb_address(thread_id(program::FIRST, n % 64));
    // SAFETY: 1. Init maps the control blocks of the process here, at the addresses that they have there. 2. All who
    // access them use whole words.
    unsafe { &*with_exposed_provenance::<[AtomicU64; size_of::<Tcb>() / 8]>(at as usize) }
}

/// The words of the buffers of the console.
pub fn console_buffer() -> &'static [AtomicU64; BUFFER_WORDS] {
    // SAFETY: 1. Init maps the buffers of the process here, at the address that they have there. 2. All who access them
    // here use whole words, and a page is filled or read by one at a time.
    unsafe { &*with_exposed_provenance::<[AtomicU64; BUFFER_WORDS]>(CONSOLE_BUFFER as usize) }
}

/// Words of all buffers of the console.
pub const BUFFER_WORDS: usize = (CONSOLE_THREADS * PAGE_SIZE / 8) as usize;

fn invoked(call: Call) -> [u64; 4] {
    if call.badge == program::INIT {
        return rt::words(from_init(&call));
    }
    let client = call.badge & 0xff;
    let (number, n) = thread_of_id(call.token >> 8);
    let Some(here) = node_of(client).filter(|_| number == client) else {
        return rt::words(Err(Error::Denied));
    };
    match call.badge & !0xff {
        door::FAULT => fault(here, n, &call),
        door::PAGER => rt::words(paging(here, n, &call)),
        door::PROCESS => process(here, n, &call),
        door::CONSOLE => {
            let [what, a, b, _] = call.words;
            rt::words(value(slots::ask(here, n, [ask::CONSOLE, what, a, b, 0])))
        }
        _ => rt::words(Err(Error::Denied)),
    }
}

fn from_init(call: &Call) -> Result<u64> {
    let [what, a, ..] = call.words;
    match what {
        op::END => {
            slots::end(rt::hardware(ORIGIN).where_am_i()?.node);
            Ok(SLOTS.has_stopped().into())
        }
        op::DIED => {
            let node = NodeId::new(a).ok_or(Error::NoSuchNode)?;
            let here = rt::hardware(ORIGIN).where_am_i()?.node;
            slots::died(here, node).map(|()| 0)
        }
        op::COUNTER => counted(a),
        _ => Err(Error::BadArgument),
    }
}

/// What has been counted under a number.
fn counted(n: u64) -> Result<u64> {
    let counter = usize::try_from(n).ok().and_then(|n| actor::COUNTERS.get(n));
    Ok(counter.ok_or(Error::BadArgument)?.load(Ordering::Relaxed))
}

/// The peer cannot go on: the group ends. Does not return.
pub fn group_fails(here: NodeId, what: &str, e: Error) -> ! {
    let process = process_on(here);
    // Init ends the group as for an error of a thread.
    let _ = INIT.invoke([process::FAULTED | process << 8 | 1 << 16, 0, 0, 0]);
    slots::end(here);
    SLOTS.stop();
    rt::give_up(format_args!("peer of node {here}: {what}: {e}"))
}

/// Whether an address is between stacks.
fn is_guard(address: u64) -> bool {
    let Some(id) = thread_at(address) else {
        return false;
    };
    let stacks = Isa::ALL.map(|isa| stack_slot(isa, id));
    let inside = |&(bottom, top): &(u64, u64)| (bottom..top).contains(&address);
    address >= DATA_STACKS_BASE && !stacks.iter().any(inside) && !inside(&data_stack(id))
}

fn fault(here: NodeId, n: u64, call: &Call) -> [u64; 4] {
    let [address, kind, pc, _] = call.words;
    let access = kind & 0xff;
    let mut told = told::GONE;
    if matches!(access, 1 | 2) && !is_guard(address) {
        let Some(handler) = parts::enters(n, address, access == 2) else {
            return [0; 4];
        };
        told = match slots::ask(here, n, [ask::FAULT, address, access, pc, 0]) {
            Ok([told, ..]) => told,
            Err(_) => told::GONE,
        };
        handler.ends();
    }
    let more = match told {
        told::RETRY => return [0; 4],
        // Frames of a process are its node's.
        told::NO_MEMORY => FAULT_NO_MEMORY | (here.index() as u64 + 1) << FAULT_SUPPLY_SHIFT,
        // The page was on a node that has died, and nowhere else: so is the thread.
        told::LOST if !SLOTS.has_ended() => {
            let _ = INIT.invoke([process::LOST, 1 << n, 0, 0]);
            return [1, 0, 0, 0];
        }
        _ => 0,
    };
    if !SLOTS.has_ended() {
        let client = call.badge & 0xff;
        let kind = (kind | more) & process::FAULT_KIND;
        // If init does not take it, the thread ends all the same.
        let what = process::FAULTED | client << 8 | kind << 16;
        let _ = INIT.invoke([what, address, pc, 0]);
    }
    [1, 0, 0, 0]
}

fn paging(here: NodeId, n: u64, call: &Call) -> Result<u64> {
    let [what, a, b, _] = call.words;
    match what {
        // Pages of a group have no home.
        pager::MAP_ANON if b != 0 => return Err(Error::Denied),
        pager::MAP_ANON | pager::UNMAP => {}
        // Init alone may do that.
        pager::END => return Err(Error::Denied),
        _ => return Err(Error::BadArgument),
    }
    value(slots::ask(
        here,
        n,
        [ask::FIRST_OF_PAGER + what, a, b, 0, 0],
    ))
}

/// The value of an answer with a status.
fn value(answer: Result<[u64; 4]>) -> Result<u64> {
    let [status, value, ..] = answer?;
    match Error::from_code(status) {
        None if status == 0 => Ok(value),
        e => Err(e.unwrap_or(Error::Corrupt)),
    }
}

fn process(here: NodeId, n: u64, call: &Call) -> [u64; 4] {
    let [what, a, b, c] = call.words;
    let asked = match what {
        _ if what & 0xff == process::MOVE => slots::ask(here, n, [ask::MOVE, what >> 8, a, b, c]),
        process::ARRIVED => slots::ask(here, n, [ask::ARRIVED, 0, 0, 0, 0]),
        process::EXIT => {
            let refused = INIT.request([process::EXIT, a, 0, 0]);
            return rt::words(Err(refused.err().unwrap_or(Error::Corrupt)));
        }
        process::COUNTED => return rt::words(counted(a)),
        process::END_THREAD => slots::ask(here, n, [ask::END_THREAD, 0, 0, 0, 0]),
        process::START => slots::ask(here, n, [ask::START, a, b, 0, 0]),
        process::WAKE => slots::ask(here, n, [ask::WAKE, a, 0, 0, 0]),
        process::REQUEST => slots::ask(here, n, [ask::REQUEST, a, b, c, 0]),
        process::FUTEX_BEGIN => slots::ask(here, n, [ask::FUTEX_BEGIN, a, 0, 0, 0]),
        process::FUTEX_END => slots::ask(here, n, [ask::FUTEX_END, a, 0, 0, 0]),
        process::FUTEX_WAKE => slots::ask(here, n, [ask::FUTEX_WAKE, a, b, 0, 0]),
        // What init does for peers alone, or not for a group.
        process::MEMORY_STATE | process::EMULATE | process::LOST => Err(Error::Denied),
        _ if matches!(what & 0xff, process::FAULTED | process::MEMORY) => Err(Error::Denied),
        _ => Err(Error::BadArgument),
    };
    asked.unwrap_or_else(|e| rt::words(Err(e)))
}
