//! One CPU among the others: its quantum, its sleep, whom it wakes and whom it waits for.

use std::sync::atomic::{AtomicU64, Ordering};

use super::events::{self, Event};
use super::state::{State, StateWord};
use super::supervise::{Over, Wait};
use super::words::{ARRIVED, OPEN, OPENED, OPENING, Words, cpu, dead, who};
use super::{Host, Interrupt, Order, Shape, Times, Who, mix};

/// How long the start waits for machines that have not announced themselves, in nanoseconds of the host.
const START_NS: u64 = 60_000_000_000;

/// A statistic that its CPU's own thread changes.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }

    fn raise(&self, to: u64) {
        if self.get() < to {
            self.set(to);
        }
    }
}

macro_rules! stats {
    ($($(#[$m:meta])* $name:ident),* $(,)?) => {
        /// Events of a CPU so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$m])* pub $name: u64,)*
        }

        /// Statistics while a run is under way. The CPU's own thread changes them, and others read them at the
        /// end.
        #[derive(Debug, Default)]
        pub(super) struct Tally {
            $(pub(super) $name: Count,)*
        }

        impl Tally {
            fn stats(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* }
            }
        }
    };
}

stats! {
    /// Looks around.
    quanta,
    /// Looks after which the CPU had to wait for another one.
    waits,
    /// Farthest that the CPU was ahead of one that ran, when it went on, in picoseconds.
    skew,
    /// Timer interrupts.
    timers,
    /// Doorbell interrupts.
    doorbells,
    /// Doorbells rung for others.
    rung,
    /// In strict order, digest of everything that happened on all machines until this CPU ran last;
    /// otherwise, of the interrupts of this CPU and when they came. Equal histories have equal ones.
    digest,
    /// Longest from when an interrupt was due to the end of the block after which it is taken, in
    /// picoseconds.
    late,
    /// Longest from when the timer was due to the beginning of the block after which it is taken, in
    /// picoseconds. 0: the deadline was in that block, and no interrupt can come earlier.
    overdue,
    /// Sleeps that ended because of something outside of simulated time.
    outside,
    /// Waits that were abandoned.
    given_up,
    /// Doorbells that came later because too many were on their way.
    merged,
    /// Jumps of the time forward to that of the others, in picoseconds.
    followed,
}

/// The next stretch of a CPU's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Time of the CPU in picoseconds; it does not go back.
    pub now: u64,
    /// The time at which the CPU must check the others again.
    pub until: u64,
    /// The time of its next known event.
    pub event: u64,
}

/// The state of a CPU that wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Time of the CPU in picoseconds; it does not go back. The CPU must check the others at once.
    pub now: u64,
    /// The event that has woken it, whose interrupt is pending.
    pub event: Option<Interrupt>,
}

/// A CPU, coupled to all others. Used by the CPU's own thread.
pub struct Coupling<W, H> {
    pub(super) words: W,
    pub(super) host: H,
    pub(super) shape: Shape,
    pub(super) times: Times,
    pub(super) order: Order,
    /// After this many nanoseconds without progress a CPU whose threads do not run is not waited
    /// for any more; `None`: it always is.
    pub(super) patience: Option<u64>,
    pub(super) me: Who,
    pub(super) tally: Tally,
}

impl<W: Words, H: Host> Coupling<W, H> {
    /// A CPU.
    pub fn new(
        words: W,
        host: H,
        (shape, times, order): (Shape, Times, Order),
        patience: Option<u64>,
        me: Who,
    ) -> Coupling<W, H> {
        Coupling {
            words,
            host,
            shape,
            times,
            order,
            patience,
            me,
            tally: Tally::default(),
        }
    }

    /// Events so far.
    pub fn stats(&self) -> Stats {
        self.tally.stats()
    }

    /// The process around it.
    pub fn host(&self) -> &H {
        &self.host
    }

    pub(super) fn word(&self, of: Who) -> StateWord {
        StateWord(self.words.get(who(of, cpu::STATE)))
    }

    /// The state of a CPU with this word. A CPU whose machine the launcher has found ended is gone.
    pub(super) fn state(&self, of: Who, word: StateWord) -> State {
        match word.state() {
            State::Absent => State::Absent,
            _ if self.is_dead(of) => State::Gone,
            state => state,
        }
    }

    pub(super) fn time(&self, of: Who) -> u64 {
        self.words.get(who(of, cpu::TIME))
    }

    fn set_time(&self, time: u64) {
        self.words.set(who(self.me, cpu::TIME), time);
    }

    /// Opens the gates of CPUs that wait for this CPU to reach a time.
    fn tell(&self, time: u64) {
        self.words.fence();
        for other in self.shape.others(self.me) {
            if self.words.get(who(other, cpu::WANT)) == self.me.index() as u64 + 1
                && self.words.get(who(other, cpu::WANT_TIME)) <= time
            {
                self.host.open(other);
            }
        }
    }

    /// Opens the gate of a CPU that may wait in front of it.
    pub(super) fn tell_one(&self, other: Who) {
        self.words.fence();
        if self.words.get(who(other, cpu::WANT)) != 0 {
            self.host.open(other);
        }
    }

    /// Changes a CPU's state if its word has not changed since it was read.
    pub(super) fn change(&self, of: Who, from: StateWord, to: State) -> bool {
        let at = who(of, cpu::STATE);
        self.words.exchange(at, from.0, from.next(to).0).is_ok()
    }

    /// Sets this CPU's state unconditionally.
    fn become_state(&self, to: State) {
        while !self.change(self.me, self.word(self.me), to) {}
    }

    pub(super) fn next(&self, of: Who) -> Option<Event> {
        events::next(&self.words, self.shape, of)
    }

    // --- begin and end -----------------------------------------------------------------------

    /// Says which process and thread this CPU is. Before the CPU executes anything; it is
    /// [`Absent`](State::Absent) until it begins.
    pub fn enrol(&self, pid: u64, tid: u64) {
        self.words.set(who(self.me, cpu::PID), pid);
        self.words.set(who(self.me, cpu::TID), tid);
        events::forget(&self.words, self.shape, self.me);
        self.become_state(State::Absent);
    }

    /// The CPU begins to execute. At the start of the system it waits here until the first CPU of
    /// every machine has come so far. One that begins later begins at the time of the others.
    pub fn begin(&self, time: u64, path: u64) -> Slice {
        let first = self.me.cpu() == 0 && self.words.get(OPEN) != OPENED;
        let now = match first {
            true => time,
            false => self.others_time(time),
        };
        self.set_time(now);
        self.become_state(State::Running);
        self.words.fence();
        if first {
            self.wait_for_start();
        }
        self.quantum(now, 0, path, &mut |_| {})
    }

    fn wait_for_start(&self) {
        let mine = 1 << self.me.node();
        let mut arrived = self.words.get(ARRIVED);
        while let Err(now) = self.words.exchange(ARRIVED, arrived, arrived | mine) {
            arrived = now;
        }
        let begin = self.host.host_ns();
        let mut wait = Wait::new();
        while self.words.get(OPEN) != OPENED {
            let missing = (0..self.shape.nodes)
                .filter(|n| self.words.get(ARRIVED) >> n & 1 == 0 && self.words.get(dead(*n)) == 0)
                .find_map(|n| self.shape.all().find(|w| w.node() == n && w.cpu() == 0));
            let over = match missing {
                None => true,
                Some(who_is) if self.words.get(who(who_is, cpu::PID)) != 0 => {
                    let open = || self.words.get(OPEN) == OPENED;
                    self.wait_for(who_is, &mut wait, u64::MAX, &open) == Over::Declared
                }
                Some(_) => {
                    self.host.block(self.me, self.host.gate(self.me));
                    false
                }
            };
            let late = self.host.host_ns() - begin > START_NS;
            // One of them decides who is first, before the others go on.
            if (over || late) && self.words.exchange(OPEN, 0, OPENING).is_ok() {
                self.first_turn();
                self.words.set(OPEN, OPENED);
            } else if late {
                self.words.set(OPEN, OPENED);
            }
        }
    }

    /// Ends the CPU at this time. No CPU waits for it any more.
    pub fn end(&self, time: u64, path: u64) {
        if matches!(self.word(self.me).state(), State::Gone | State::Absent) {
            return;
        }
        self.words.set(who(self.me, cpu::DEADLINE), 0);
        self.set_time(time);
        self.become_state(State::Gone);
        self.words.fence();
        self.leave(time, path);
    }

    /// A time for a CPU that has been away: the time of the slowest running CPU, or of the CPU that is furthest
    /// ahead if none runs. Not before `own`.
    fn others_time(&self, own: u64) -> u64 {
        let others = || {
            let began = |w: &Who| self.state(*w, self.word(*w)) != State::Absent;
            self.shape.others(self.me).filter(began)
        };
        let running = others()
            .filter(|w| self.state(*w, self.word(*w)) == State::Running)
            .map(|w| self.time(w))
            .min();
        let any = || others().map(|w| self.time(w)).max();
        running.or_else(any).unwrap_or(0).max(own)
    }

    // --- running -----------------------------------------------------------------------------

    /// A CPU that runs looks around: at `time`, which is that at the end of the block that it is
    /// about to execute and that takes `block`. Waits until others have come far enough, or have had
    /// their turns, and has `deliver` make interrupts pending that are due; they are taken after the
    /// block.
    ///
    /// `path` stands for what has been executed, in strict order.
    pub fn quantum(
        &self,
        time: u64,
        block: u64,
        path: u64,
        deliver: &mut dyn FnMut(Interrupt),
    ) -> Slice {
        self.tally.quanta.add(1);
        let mut now = time;
        self.set_time(now);
        self.tell(now);
        loop {
            self.note_return(&mut now);
            match self.order {
                Order::Parallel => self.couple(now),
                Order::Strict { .. } => self.take_turn(now, path),
            }
            // Somebody may have given up this CPU while it waited itself.
            if self.word(self.me).state() == State::Running {
                break;
            }
        }
        let next = self.deliver(now, now.saturating_sub(block), deliver);
        let limit = match self.order {
            Order::Parallel => now + self.times.quantum,
            Order::Strict { .. } => self.turn_end().max(now + 1),
        };
        let event = next.map_or(u64::MAX, |e| e.at);
        self.note_skew(now);
        Slice {
            now,
            until: limit.min(event),
            event,
        }
    }

    /// In the middle of a block, which has come to `now` and may have passed an event's time just
    /// then: has `deliver` make interrupts pending that are due; they are taken after the block.
    pub fn overtake(&self, now: u64, deliver: &mut dyn FnMut(Interrupt)) {
        self.deliver(now, 0, deliver);
    }

    /// Delivers the events that are due by `now`, in a block that began at `begun`. Returns the next one.
    fn deliver(&self, now: u64, begun: u64, deliver: &mut dyn FnMut(Interrupt)) -> Option<Event> {
        loop {
            let next = self.next(self.me);
            let Some(event) = next.filter(|e| e.at <= now) else {
                return next;
            };
            events::take(&self.words, self.me, event);
            self.tally.count(event, now, begun);
            deliver(event.what);
        }
    }

    /// Records how far this CPU is ahead of other running CPUs when it continues.
    fn note_skew(&self, now: u64) {
        let running = |w: &Who| self.state(*w, self.word(*w)) == State::Running;
        let behind = self.shape.others(self.me).filter(running);
        if let Some(slowest) = behind.map(|w| self.time(w)).min() {
            self.tally.skew.raise(now.saturating_sub(slowest));
        }
    }

    /// Returns to the time of the others if this CPU was given up.
    fn note_return(&self, now: &mut u64) {
        let word = self.word(self.me);
        if word.state() != State::Running {
            let back = self.others_time(*now);
            self.tally.followed.add(back - *now);
            *now = back;
            self.set_time(back);
            self.become_state(State::Running);
        }
    }

    /// Waits until no running CPU is more than the lag behind, and wakes those whose event is due by now.
    fn couple(&self, now: u64) {
        let mut waited = false;
        for other in self.shape.others(self.me) {
            let mut wait = Wait::new();
            while let Some(front) = self.front(other, now) {
                let ahead = now.saturating_sub(front);
                if ahead <= self.times.lag {
                    break;
                }
                waited = true;
                let need = now - self.times.lag;
                let enough = || self.time(other) >= need;
                if self.wait_for(other, &mut wait, need, &enough) == Over::GivenUp {
                    break;
                }
            }
        }
        if waited {
            self.tally.waits.add(1);
        }
    }

    /// The time that another CPU has reached, or `None` if it need not be waited for. Wakes it if its event
    /// is due by now.
    fn front(&self, other: Who, now: u64) -> Option<u64> {
        loop {
            let word = self.word(other);
            let time = self.time(other);
            let front = match self.state(other, word) {
                State::Absent | State::Stalled | State::Gone => return None,
                State::Running => Some(time),
                State::Waking => Some(self.next(other).map_or(time, |e| e.at.max(time))),
                State::Idle => {
                    let due = self.next(other).filter(|e| e.at <= now)?;
                    self.wake(other, word, due);
                    None
                }
            };
            // What was read belongs together only if the CPU has not moved on meanwhile.
            if front.is_some() && self.word(other) == word {
                return front;
            }
        }
    }

    /// Claims a sleeping CPU, if it has not changed since it was examined, and rings for its event.
    pub(super) fn wake(&self, other: Who, word: StateWord, event: Event) -> bool {
        let claimed = self.change(other, word, State::Waking);
        if claimed {
            self.host.ring(other, event.what);
        }
        claimed
    }

    // --- sleeping ----------------------------------------------------------------------------

    /// The CPU falls asleep, at this time, or at that of the others if it was given up. Does not
    /// wait. Returns its time.
    pub fn sleep(&self, time: u64, path: u64) -> u64 {
        if matches!(self.word(self.me).state(), State::Gone | State::Absent) {
            return time;
        }
        let mut now = time;
        loop {
            self.note_return(&mut now);
            self.set_time(now);
            let word = self.word(self.me);
            // Unless somebody has given it up just now.
            if word.state() == State::Running && self.change(self.me, word, State::Idle) {
                break;
            }
        }
        self.words.fence();
        self.leave(now, path);
        now
    }

    /// Notes that this CPU does not run any more, and lets another one run if there is anything to do.
    fn leave(&self, time: u64, path: u64) {
        self.tell(u64::MAX);
        match self.order {
            Order::Parallel => self.wake_first(),
            Order::Strict { .. } => self.pass_turn(time, path),
        }
    }

    /// If all CPUs sleep, lets time jump to the first event.
    ///
    /// Who falls asleep says so before it looks at the others. So of those that fall asleep at the
    /// same time at least one finds all asleep. If a CPU moves while they are being looked at, it
    /// runs, and will look itself when it falls asleep again.
    pub(super) fn wake_first(&self) {
        let mut words = [StateWord(0); super::MAX_WHO];
        let mut first: Option<(Event, Who)> = None;
        for w in self.shape.all() {
            let word = self.word(w);
            words[w.index()] = word;
            match self.state(w, word) {
                State::Running | State::Waking => return,
                State::Absent | State::Stalled | State::Gone => continue,
                State::Idle => {}
            }
            if let Some(event) = self.next(w)
                && first.is_none_or(|(f, _)| event.at < f.at)
            {
                first = Some((event, w));
            }
        }
        self.words.fence();
        if self.shape.all().any(|w| self.word(w) != words[w.index()]) {
            return;
        }
        if let Some((event, sleeper)) = first {
            self.wake(sleeper, words[sleeper.index()], event);
        }
    }

    /// The CPU wakes up: it was asleep, at this time, since then. Does not wait.
    pub fn resume(&self, time: u64) -> Option<Resumed> {
        loop {
            let word = self.word(self.me);
            let (now, event) = match word.state() {
                State::Absent | State::Gone | State::Running => return None,
                State::Waking => match self.next(self.me) {
                    Some(event) => (time.max(event.at), Some(event)),
                    None => (time, None),
                },
                State::Idle | State::Stalled => (self.others_time(time), None),
            };
            self.set_time(now);
            if !self.change(self.me, word, State::Running) {
                continue;
            }
            self.tell(u64::MAX);
            if let Some(event) = event {
                events::take(&self.words, self.me, event);
                self.tally.count(event, now, now);
            } else {
                self.tally.outside.add(1);
            }
            return Some(Resumed {
                now,
                event: event.map(|e| e.what),
            });
        }
    }

    // --- calls of the guest ------------------------------------------------------------------

    /// Sets this CPU's deadline, in picoseconds; `None`: there is none. It has to look around by
    /// then.
    pub fn set_deadline(&self, deadline: Option<u64>) {
        let word = deadline.map_or(0, |at| at.max(1));
        self.words.set(who(self.me, cpu::DEADLINE), word);
    }

    /// Rings the doorbell of a CPU at this time. A CPU that does not exist is ignored.
    pub fn ring(&self, time: u64, to: Who) {
        if self.shape.all().any(|w| w == to) {
            let alone = events::send(&self.words, self.me, to, time + self.times.ipi);
            self.tally.rung.add(1);
            self.tally.merged.add(u64::from(!alone));
        }
    }

    /// The time of this CPU's next event, if there is one.
    pub fn next_event(&self) -> Option<u64> {
        self.next(self.me).map(|e| e.at)
    }
}

impl Tally {
    /// An interrupt comes at the end of a block, at `now`; the block has begun at `begun`.
    fn count(&self, event: Event, now: u64, begun: u64) {
        self.late.raise(now - event.at);
        match event.what {
            Interrupt::Timer => {
                self.timers.add(1);
                self.overdue.raise(begun.saturating_sub(event.at));
            }
            Interrupt::Doorbell => self.doorbells.add(1),
        }
        let digest = mix(self.digest.get() ^ now) ^ event.what as u64;
        self.digest.set(digest);
    }
}
