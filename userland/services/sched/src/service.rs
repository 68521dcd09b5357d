//! The loop of one CPU.

#![allow(unsafe_code)]

use core::cell::Cell;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{Event, Stopped};
use dyad_abi::service::{sched, scheduler_line, slot};
use dyad_abi::{NodeId, Result};
use dyad_sched::{Entry, GROUPS, Group, News, Next, Priority, SHARED, Scheduler, Stop};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Hardware, Receive, Send, Thread, Until};

const THREADS: usize = sched::THREADS as usize;
/// Threads that init can hold.
const HELD: usize = sched::HELD as usize;
const ENDPOINTS: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// How often it is looked whether threads are still held if there is nothing else to do, in nanoseconds.
const LOOK_NS: u64 = 1_000_000;
/// Most events that are taken before a thread runs: a flood of wake-ups does not keep the CPU from work.
const BATCH: usize = 2 * THREADS;

const _: () = assert!(GROUPS == sched::GROUPS as usize);
const _: () = assert!(SHARED.get() == sched::PROGRAM_PRIORITY);

dyad_services::entry!(start);

fn start(_: u64) -> ! {
    let hardware = rt::hardware(const { NodeId::new(0).unwrap() });
    let here = match hardware.where_am_i() {
        Ok(here) => here,
        Err(e) => rt::give_up(format_args!("sched cannot learn where it is: {e}")),
    };
    let mut cpu = Cpu {
        line: scheduler_line(here.node, here.cpu),
        hardware,
        scheduler: Scheduler::new(),
        held: Held([const { Cell::new(0) }; HELD.div_ceil(64)]),
    };
    loop {
        if let Err(e) = cpu.round() {
            rt::give_up(format_args!(
                "sched of CPU {} of node {} cannot go on: {e}",
                here.cpu, here.node
            ));
        }
    }
}

/// The entry of a thread in the table.
fn entry(thread: usize) -> Option<Entry> {
    if thread >= THREADS {
        return None;
    }
    let table = with_exposed_provenance::<u64>(sched::TABLE as usize);
    // SAFETY: 1. The table is mapped readable and has that many words. 2. Nobody writes it.
    let word = unsafe { table.add(thread).read() };
    if word == 0 {
        return None;
    }
    let (priority, slice_us, group, on_allowance) = sched::entry_parts(word);
    Some(Entry {
        priority: Priority::new(priority)?,
        group: Group::new(group)?,
        slice_ns: u64::from(slice_us) * 1000,
        on_allowance,
    })
}

/// Whether init keeps a thread from being dispatched.
fn is_held(thread: usize) -> bool {
    let words = with_exposed_provenance::<AtomicU64>(sched::HOLD as usize);
    // SAFETY: 1. The page is mapped readable and has a word for each thread that can be held. 2. The word is atomic
    // for all who use it.
    thread < HELD && unsafe { &*words.add(thread) }.load(Ordering::Acquire) != 0
}

fn thread_cap(thread: usize) -> Cap<Thread> {
    Cap::at(dyad_abi::cap::CapIndex(sched::tag(thread as u32)))
}

/// The deadline of a thread that waits with one.
fn waits_until(thread: usize) -> Option<u64> {
    thread_cap(thread).deadline().ok().flatten()
}

/// Threads that were ready and have not been dispatched because init holds them. Each round looks through it, so it has no more
/// words than it needs.
struct Held([Cell<u64>; HELD.div_ceil(64)]);

impl Held {
    fn enter(&self, thread: usize) {
        let word = &self.0[thread / 64];
        word.set(word.get() | 1 << (thread % 64));
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.get() == 0)
    }

    /// Takes out one that is not held any more.
    fn take(&self) -> Option<usize> {
        for (n, word) in self.0.iter().enumerate() {
            let mut left = word.get();
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                if !is_held(64 * n + bit) {
                    word.set(word.get() & !(1 << bit));
                    return Some(64 * n + bit);
                }
                left &= left - 1;
            }
        }
        None
    }
}

struct Cpu {
    line: u64,
    held: Held,
    hardware: Cap<Hardware>,
    scheduler: Scheduler<THREADS>,
}

impl Cpu {
    fn round(&mut self) -> Result<()> {
        let now = self.hardware.now()?;
        while let Some(thread) = self.scheduler.expired(now) {
            // There will be an event, also if another thread has woken it in this moment. It is taken before
            // it is decided which thread runs: an event that is there already does not interrupt the thread that runs.
            let _ = thread_cap(thread).resume();
        }
        for _ in 0..BATCH {
            // An error is that there is none; a line that cannot be read is found out when waiting.
            match ENDPOINTS.event(self.line, Until::Now) {
                Ok(event) => self.take(event),
                Err(_) => break,
            }
        }
        while let Some(thread) = self.held.take() {
            if let Some(entry) = entry(thread) {
                self.scheduler.told(thread, entry, News::Ready);
            }
        }
        let held = &self.held;
        let free = |t| {
            entry(t).filter(|_| {
                let is_held = is_held(t);
                if is_held {
                    held.enter(t);
                }
                !is_held
            })
        };
        match self.scheduler.next(now, free) {
            Next::Run {
                thread,
                priority,
                slice_ns,
            } => self.run(thread, priority, slice_ns),
            Next::Wait(deadline) => {
                let look = (!self.held.is_empty()).then_some(now + LOOK_NS);
                let until = deadline.into_iter().chain(look).min();
                let until = until.map_or(Until::Never, Until::Deadline);
                match ENDPOINTS.event(self.line, until) {
                    Ok(event) => self.take(event),
                    // The deadline, or a wake-up that another thread has answered.
                    Err(dyad_abi::Error::TimedOut) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        let thread = event.tag.wrapping_sub(sched::tag(0)) as usize;
        let Some(entry) = entry(thread) else {
            return;
        };
        match News::of(event.why, || waits_until(thread)) {
            Some(news) => self.scheduler.told(thread, entry, news),
            None => {
                let _ = Cap::<Send>::at(sched::ended(thread as u32)).send();
                self.scheduler.stopped(thread, entry, Stop::Gone);
            }
        }
    }

    fn run(&mut self, thread: usize, priority: Priority, slice_ns: u64) {
        let stopped = thread_cap(thread).dispatch(slice_ns, priority.get(), None);
        let Some(entry) = entry(thread) else {
            return;
        };
        let how = match stopped {
            Ok(stop) => match stop.why {
                Stopped::Yielded => Stop::Turn,
                Stopped::Preempted | Stopped::Interrupted => Stop::Interrupted,
                Stopped::Blocked => Stop::Blocked((stop.detail != 0).then_some(stop.detail)),
                Stopped::Exited | Stopped::Faulted => {
                    // Init may be gone; the thread is, in any case.
                    let _ = Cap::<Send>::at(sched::ended(thread as u32)).send();
                    Stop::Gone
                }
                Stopped::Left => Stop::Gone,
            },
            // Not here, or not ready any more: if it comes back there is an event.
            Err(_) => Stop::Refused(waits_until(thread)),
        };
        self.scheduler.stopped(thread, entry, how);
    }
}
