//! Supervision: every wait for another CPU ends, whatever happens to that CPU.
//!
//! A CPU that makes no progress is looked at: if its process is gone it is
//! [`Gone`](State::Gone), if its threads do not run (a debugger, SIGSTOP) it is
//! [`Stalled`](State::Stalled) after the patience is over. One that only does not get the host's CPUs is
//! waited for.

use super::coupling::Coupling;
use super::state::{State, StateWord};
use super::words::{Words, cpu, dead, who};
use super::{Host, Order, Thread, Who};

/// CPUs of a machine can wait for each other inside the emulator, which does not know about waits here. So
/// with several CPUs a wait is abandoned after this time.
const SIBLINGS_NS: u64 = 2_000_000;
/// How often a waiting CPU polls before it sleeps at its gate.
const SPIN: u32 = 300;

/// The observed progress of a CPU that is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    word: StateWord,
    time: u64,
    beat: u64,
}

/// How long a CPU has made no progress.
#[derive(Clone, Copy, Default)]
struct Still {
    /// The start of this time, and the progress then.
    since: Option<(u64, Progress)>,
}

impl Still {
    /// Looks at a CPU: its state, and for how long it has not moved on.
    fn look<W: Words, H: Host>(
        &mut self,
        at: &Coupling<W, H>,
        who_is: Who,
        now: u64,
    ) -> (StateWord, u64) {
        let seen = Progress {
            word: at.word(who_is),
            time: at.time(who_is),
            beat: at.words.get(who(who_is, cpu::BEAT)),
        };
        let since = match self.since {
            Some((since, before)) if before == seen => since,
            _ => now,
        };
        self.since = Some((since, seen));
        (seen.word, now - since)
    }
}

/// A wait for another CPU.
pub(super) struct Wait {
    turn: u32,
    begin: Option<u64>,
    still: Still,
}

impl Wait {
    pub(super) const fn new() -> Wait {
        Wait {
            turn: 0,
            begin: None,
            still: Still { since: None },
        }
    }
}

/// Supervises CPUs that no CPU waits for because all others sleep; see [`Coupling::oversee`].
pub struct Overseer {
    still: [Still; super::MAX_WHO],
}

impl Default for Overseer {
    fn default() -> Overseer {
        Overseer {
            still: [Still::default(); super::MAX_WHO],
        }
    }
}

/// The reason why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The wait is not over.
    No,
    /// The other CPU has been declared stalled or gone.
    Declared,
    /// The other CPU may continue, but this CPU does not wait any longer.
    GivenUp,
}

impl<W: Words, H: Host> Coupling<W, H> {
    /// Whether there is no process any more that could do anything in a CPU's name.
    pub(super) fn is_process_gone(&self, of: Who) -> bool {
        let word = |w| self.words.get(who(of, w));
        self.is_dead(of) || self.host.thread(word(cpu::PID), word(cpu::PID)) == Thread::Gone
    }

    pub(super) fn is_dead(&self, of: Who) -> bool {
        let dead = self.words.get(dead(of.node()));
        dead != 0 && self.words.get(who(of, cpu::PID)) == dead
    }

    /// The nodes whose machines have ended and not come again, as far as the launcher has found out: a
    /// set, as bits.
    pub fn ended(&self) -> u64 {
        let first = self.shape.all().filter(|w| w.cpu() == 0);
        first
            .filter(|w| self.is_dead(*w))
            .fold(0, |set, w| set | 1 << w.node())
    }

    /// One turn of a wait for another CPU to go on: until it has come to `need`, or does something
    /// else than it did, or `enough`.
    pub(super) fn wait_for(
        &self,
        other: Who,
        wait: &mut Wait,
        need: u64,
        enough: &dyn Fn() -> bool,
    ) -> Over {
        wait.turn = wait.turn.saturating_add(1);
        if wait.turn < SPIN {
            self.host.pause();
            return Over::No;
        }
        let gate = self.host.gate(self.me);
        let word = self.word(other);
        self.words.set(who(self.me, cpu::WANT_TIME), need);
        self.words
            .set(who(self.me, cpu::WANT), other.index() as u64 + 1);
        // Either the other one sees what is wanted, or this one sees that it is there.
        self.words.fence();
        if self.word(other) == word && !enough() {
            self.host.block(self.me, gate);
        }
        self.words.set(who(self.me, cpu::WANT), 0);
        let beat = who(self.me, cpu::BEAT);
        self.words.set(beat, self.words.get(beat).wrapping_add(1));
        let now = self.host.host_ns();
        let begin = *wait.begin.get_or_insert(now);
        let (word, still) = wait.still.look(self, other, now);
        if self.shape.cpus > 1 && now - begin > SIBLINGS_NS {
            self.tally.given_up.add(1);
            return Over::GivenUp;
        }
        match self.declare(other, word, still) {
            true => Over::Declared,
            false => Over::No,
        }
    }

    /// Takes a CPU without progress for so long for stalled or gone, if it is.
    fn declare(&self, other: Who, word: StateWord, still: u64) -> bool {
        let declared = self
            .judge(other, word, still)
            .is_some_and(|state| self.change(other, word, state));
        if declared {
            self.tally.given_up.add(1);
        }
        declared
    }

    /// What a CPU without progress for so long is to be taken for, if not for what it is.
    fn judge(&self, other: Who, word: StateWord, still: u64) -> Option<State> {
        let pid = self.words.get(who(other, cpu::PID));
        let tid = self.words.get(who(other, cpu::TID));
        if self.is_dead(other) {
            return Some(State::Gone);
        }
        // Looking at a process takes its time.
        if still < 20_000_000 {
            return None;
        }
        let thread = self.host.thread(pid, tid);
        let stopped = || {
            // Interrupts of a CPU that is being woken pass through the process's first thread.
            let waking = word.state() == State::Waking;
            thread == Thread::Sleeping
                && !(waking && self.host.thread(pid, pid) == Thread::Runnable)
        };
        match thread {
            Thread::Gone => Some(State::Gone),
            _ if self.patience.is_some_and(|p| still >= p) && stopped() => Some(State::Stalled),
            _ => None,
        }
    }

    /// Called once in a while by a thread that is no CPU's: if a CPU has been rung, or runs, and has
    /// been stopped meanwhile, the others may all be asleep, and nobody would notice. Then it
    /// does what the last that falls asleep does.
    pub fn oversee(&self, memory: &mut Overseer) {
        let now = self.host.host_ns();
        let mut declared = false;
        for w in self.shape.all() {
            let (word, still) = memory.still[w.index()].look(self, w, now);
            if matches!(word.state(), State::Running | State::Waking) {
                declared |= self.declare(w, word, still);
            }
        }
        if declared {
            match self.order {
                Order::Parallel => self.wake_first(),
                Order::Strict { .. } => self.take_lost_turn(),
            }
        }
    }
}
