// SPDX-License-Identifier: GPL-2.0-or-later
//! The process around the model: rings, pauses, the host's time, threads of other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dyad_abi::CpuId;
use dyad_abi::boot::{doorbell_vector, timer_vector};
use dyad_sim_model::clock::{Host, Interrupt, Thread, Who};
use rustix::event::Timespec;
use rustix::thread::futex;

use super::doorbells::Doorbells;

/// How often a waiting CPU spins before it lets other threads run.
const SPIN: u32 = 64;
/// How often it lets others run, before it sleeps.
const YIELD: u32 = 4096;
/// For how long it sleeps at a time.
pub const SLEEP: Duration = Duration::from_micros(200);
/// Longest sleep in front of a gate.
const BLOCK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Passes a little time, in a loop. Returns whether it is so long already that this thread has slept.
pub fn pause(turn: u32) -> bool {
    match turn {
        0..SPIN => std::hint::spin_loop(),
        SPIN..YIELD => std::thread::yield_now(),
        _ => std::thread::sleep(SLEEP),
    }
    turn >= YIELD
}

/// This process.
#[derive(Clone)]
pub struct Process {
    doorbells: Arc<Doorbells>,
    cpus: usize,
    /// By CPU of the system: the words on which waiting CPUs sleep; shared with other processes.
    gates: &'static [AtomicU32],
    start: Instant,
}

impl Process {
    /// This process, in a system of machines with that many CPUs.
    pub fn new(doorbells: Arc<Doorbells>, cpus: usize, gates: &'static [AtomicU32]) -> Process {
        Process {
            doorbells,
            cpus,
            gates,
            start: Instant::now(),
        }
    }

    /// Whether this process's main loop, which is its first thread, sleeps.
    pub fn main_loop_sleeps(&self) -> bool {
        let pid = u64::from(std::process::id());
        self.thread(pid, pid) == Thread::Sleeping
    }

    /// The vector that interrupts a CPU so.
    pub fn vector(&self, cpu: usize, what: Interrupt) -> usize {
        match (what, CpuId::new(cpu as u64)) {
            (Interrupt::Doorbell, Some(cpu)) => doorbell_vector(cpu),
            (Interrupt::Timer, Some(cpu)) => timer_vector(self.cpus, cpu),
            (_, None) => usize::MAX,
        }
    }
}

impl Host for Process {
    fn ring(&self, who: Who, what: Interrupt) {
        self.doorbells
            .ring(who.node(), self.vector(who.cpu(), what));
    }

    fn pause(&self) {
        std::hint::spin_loop();
    }

    fn gate(&self, who: Who) -> u32 {
        self.gates[who.index()].load(Ordering::SeqCst)
    }

    fn block(&self, who: Who, gate: u32) {
        // Whatever ends it: who waits looks again.
        let _ = futex::wait(
            &self.gates[who.index()],
            futex::Flags::empty(),
            gate,
            Some(&BLOCK),
        );
    }

    fn open(&self, who: Who) {
        self.gates[who.index()].fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.gates[who.index()], futex::Flags::empty(), 1);
    }

    fn host_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn thread(&self, pid: u64, tid: u64) -> Thread {
        match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")) {
            Ok(text) => parse_state(&text),
            // Who has not said who it is has not begun.
            Err(_) => Thread::Gone,
        }
    }
}

/// The state in a thread's `stat` file: after the name, which is in parentheses and may contain
/// anything.
fn parse_state(stat: &str) -> Thread {
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    match after.trim_start().chars().next() {
        Some('R' | 'D') => Thread::Runnable,
        Some('Z' | 'X' | 'x') | None => Thread::Gone,
        Some(_) => Thread::Sleeping,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_threads_are_understood() {
        for (text, state) in [
            ("12 (qemu-system-x86) R 1 2 3", Thread::Runnable),
            ("12 (CPU 0/TCG) S 1 2 3", Thread::Sleeping),
            ("12 (odd ) R name) T 1", Thread::Sleeping),
            ("12 (x) t 1", Thread::Sleeping),
            ("12 (x) Z 1", Thread::Gone),
            ("", Thread::Gone),
        ] {
            assert_eq!(parse_state(text), state, "{text}");
        }
    }

    #[test]
    fn this_thread_runs_and_none_that_there_is_not() {
        let process = Process::new(Arc::new(Doorbells::new(3)), 1, &[]);
        let pid = u64::from(std::process::id());
        assert_eq!(process.thread(pid, pid + (1 << 40)), Thread::Gone);
        let me = std::fs::read_link("/proc/thread-self").unwrap();
        let tid = me.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(process.thread(pid, tid), Thread::Runnable);
    }
}
