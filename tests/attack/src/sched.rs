//! The scheduler of all components: each CPU's worker gives slices to the threads that are ready there.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use dyad_abi::cap::{CapIndex, Event, Stopped, Woken};
use dyad_abi::service::{scheduler_line, slot};
use dyad_abi::{CpuId, NodeId};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Thread, Until};

/// Endpoints of the workers as schedulers.
pub const ENDPOINTS: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// Slice of a thread.
const SLICE_NS: u64 = 60_000;
/// Tags of threads are below.
pub const TAGS: usize = 16;
/// What is added to a tag, so that no tag of a thread is 0.
pub const TAG: u32 = 100;

/// Threads that are ready, by tag, of each scheduler line.
static READY: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Slot of the thread with a tag; 0: none is to be dispatched.
static THREADS: [AtomicU64; TAGS] = [const { AtomicU64::new(0) }; TAGS];
/// Priority of the thread with a tag.
static PRIORITIES: [AtomicU64; TAGS] = [const { AtomicU64::new(0) }; TAGS];
/// Why the thread with a tag has stopped last.
static STOPPED: [AtomicU64; TAGS] = [const { AtomicU64::new(0) }; TAGS];
/// How often each worker has gone round.
static TURNS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// A thread that workers are to dispatch.
pub fn add(tag: usize, thread: Cap<Thread>, priority: u8) {
    STOPPED[tag].store(0, Relaxed);
    PRIORITIES[tag].store(priority.into(), Relaxed);
    THREADS[tag].store(thread.index().get().into(), Release);
}

/// No worker dispatches the thread any more, once each has gone round.
pub fn remove(tag: usize) {
    THREADS[tag].store(0, Release);
    for line in &READY {
        line.fetch_and(!(1 << tag), AcqRel);
    }
}

/// Why the thread has stopped last, if it has.
pub fn stopped(tag: usize) -> Option<Stopped> {
    Stopped::from_number(STOPPED[tag].load(Acquire))
}

/// Whether a thread has ended, by itself or by a fault.
pub fn has_ended(tag: usize) -> bool {
    matches!(stopped(tag), Some(Stopped::Exited | Stopped::Faulted))
}

/// How often the worker of a line has gone round.
pub fn turns(line: usize) -> u64 {
    TURNS[line].load(Acquire)
}

/// The lines of all CPUs.
pub fn lines(nodes: u64, cpus: u64) -> impl Iterator<Item = usize> {
    NodeId::first(nodes as usize).flat_map(move |node| {
        CpuId::first(cpus as usize).map(move |cpu| scheduler_line(node, cpu) as usize)
    })
}

/// One turn of a worker: takes what has become ready, gives a slice to each thread that is, and drives
/// the round of its node.
pub fn turn(line: usize) {
    for _ in 0..2 * TAGS {
        match ENDPOINTS.receive(line as u64, Until::Now) {
            Ok(0) | Err(_) => break,
            Ok(v) => {
                let Some(event) = Event::from_bits(v) else {
                    continue;
                };
                let tag = event.tag.wrapping_sub(TAG) as usize;
                if tag >= TAGS {
                    continue;
                }
                match event.why {
                    Woken::Ready | Woken::Arrived | Woken::NodeDied => {
                        READY[line].fetch_or(1 << tag, AcqRel);
                    }
                    Woken::Ended => STOPPED[tag].store(Stopped::Exited as u64, Release),
                    Woken::Sleeps => {}
                }
            }
        }
    }
    let ready = READY[line].load(Acquire);
    for tag in (0..TAGS).filter(|tag| ready & 1 << tag != 0) {
        if !dispatch(line, tag) {
            READY[line].fetch_and(!(1 << tag), AcqRel);
        }
    }
    if let Some(node) = NodeId::new(line as u64 / 8) {
        // Another CPU of the node may be at it.
        let _ = rt::hardware(node).flush_step(16);
    }
    TURNS[line].fetch_add(1, AcqRel);
}

/// Gives a thread a slice. Whether it stays ready here.
fn dispatch(_: usize, tag: usize) -> bool {
    let Some(slot) = CapIndex::new(THREADS[tag].load(Acquire)).filter(|s| s.get() != 0) else {
        return false;
    };
    let thread: Cap<Thread> = Cap::at(slot);
    match thread.dispatch(SLICE_NS, PRIORITIES[tag].load(Relaxed) as u8, None) {
        Ok(stop) => {
            STOPPED[tag].store(stop.why as u64, Release);
            matches!(
                stop.why,
                Stopped::Preempted | Stopped::Yielded | Stopped::Interrupted
            )
        }
        Err(_) => false,
    }
}
