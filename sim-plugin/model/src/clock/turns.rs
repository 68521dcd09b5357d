//! Strict order: one CPU runs at a time, and who is next depends on the seed and on what has been
//! executed, on nothing else.
//!
//! The turn is a word, `number:56 | holder + 1`, 0 in the low byte if nobody has it. Only who has it
//! runs, changes the random numbers and the hash, and gives it away: when its slice is over, when it
//! falls asleep, when it ends. All others wait, or sleep and move only when they are given it. So
//! what the holder sees of them is the same in every run.
//!
//! *Who is next* is drawn among those who could run: a CPU that waits could, at its time; one that
//! sleeps could, at its next event. Those further ahead of the first of them than the lag have to
//! stay. *How long* it runs is drawn too: up to a quantum, and often far less, so that CPUs meet at
//! many places.
//!
//! Two things that come from outside can end this, and are counted: a CPU whose process is gone or
//! stopped loses its turn, and one that is woken from outside while nobody has the turn takes it.

use super::coupling::Coupling;
use super::events::Event;
use super::state::{State, StateWord};
use super::supervise::{Over, Wait};
use super::words::{HASH, RANDOM, TAKEN, TURN, TURN_END, TURNS, Words};
use super::{Host, MAX_WHO, Order, Who, mix, random};

/// A turn.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turn(u64);

impl Turn {
    fn holder(self, among: super::Shape) -> Option<Who> {
        among.all().find(|w| self.0 as u8 == w.index() as u8 + 1)
    }

    fn next(self, holder: Option<Who>) -> Turn {
        let low = holder.map_or(0, |w| w.index() as u64 + 1);
        Turn(((self.0 >> 8) + 1) << 8 | low)
    }
}

const _: () = assert!(MAX_WHO < 255);

/// By how much slices are shorter than a quantum, as powers of two; drawn with equal chances. Half of them
/// are not, or a run would consist of little else than turns.
const SHORTER: [u32; 8] = [0, 0, 0, 0, 1, 2, 4, 6];

/// A CPU that could run.
struct Candidate {
    who: Who,
    word: StateWord,
    at: u64,
    event: Option<Event>,
}

impl<W: Words, H: Host> Coupling<W, H> {
    fn turn(&self) -> Turn {
        Turn(self.words.get(TURN))
    }

    /// The time at which the current turn ends.
    pub(super) fn turn_end(&self) -> u64 {
        self.words.get(TURN_END)
    }

    /// In strict order, how often a turn was taken from a CPU that made no progress.
    pub fn turns_taken(&self) -> u64 {
        self.words.get(TAKEN)
    }

    /// In strict order, the number of the current turn, counted from 1; in parallel order 0.
    pub fn turn_number(&self) -> u64 {
        self.words.get(TURN) >> 8
    }

    fn draw(&self) -> u64 {
        let (state, number) = random(self.words.get(RANDOM));
        self.words.set(RANDOM, state);
        number
    }

    fn fold(&self, time: u64, path: u64) {
        let stats = self.stats();
        let events = stats.timers + stats.doorbells;
        let mut hash = self.words.get(HASH);
        for part in [self.me.index() as u64, time, path, events] {
            hash = mix(hash ^ part).wrapping_add(part);
        }
        self.words.set(HASH, hash);
        self.tally.digest.set(hash);
        self.words.set(TURNS, self.words.get(TURNS) + 1);
    }

    /// Decides at the start which CPU has the first turn. Called by a CPU that waits for it.
    pub(super) fn first_turn(&self) {
        let Order::Strict { seed } = self.order else {
            return;
        };
        let (state, number) = random(seed);
        let running = |w: &Who| self.state(*w, self.word(*w)) == State::Running;
        let all = self.shape.all().filter(running).count().max(1) as u64;
        let first = self
            .shape
            .all()
            .filter(running)
            .nth((number % all) as usize);
        self.words.set(RANDOM, state);
        self.words.set(TURN_END, 1);
        self.words.set(TURN, self.turn().next(first).0);
    }

    /// Waits for the turn; returns when this CPU has it and its slice is not over. `now` is the time of the
    /// CPU.
    pub(super) fn take_turn(&self, now: u64, path: u64) {
        let mut wait = Wait::new();
        let mut waited = false;
        loop {
            let turn = self.turn();
            match turn.holder(self.shape) {
                Some(holder) if holder == self.me => {
                    if now < self.turn_end() {
                        break;
                    }
                    self.fold(now, path);
                    self.hand_on(turn);
                    wait = Wait::new();
                }
                Some(holder) => {
                    waited = true;
                    let moved = || self.turn() != turn;
                    let mut over = || self.wait_for(holder, &mut wait, u64::MAX, &moved);
                    if over() != Over::No || self.is_lost(holder) {
                        self.seize(turn, now);
                    }
                }
                // Nobody has anything to do; this CPU was woken from outside.
                None => {
                    self.seize(turn, now);
                }
            }
        }
        if waited {
            self.tally.waits.add(1);
        }
    }

    /// Whether a CPU will not go on, and so not give the turn away. One that has just ended will:
    /// it is gone first, so that whom it gives the turn does not take it for one that runs.
    fn is_lost(&self, holder: Who) -> bool {
        match self.word(holder).state() {
            State::Stalled | State::Absent => true,
            State::Gone => self.is_process_gone(holder),
            _ => self.is_dead(holder),
        }
    }

    fn seize(&self, turn: Turn, now: u64) -> bool {
        let mine = turn.next(Some(self.me)).0;
        let seized = self.words.exchange(TURN, turn.0, mine).is_ok();
        if seized {
            self.words.set(TURN_END, now + 1);
            self.words.set(TAKEN, self.words.get(TAKEN) + 1);
        }
        seized
    }

    /// Gives the turn to another CPU if the CPU that has it does not run any more.
    pub(super) fn take_lost_turn(&self) {
        let turn = self.turn();
        let lost = turn.holder(self.shape).is_some_and(|h| self.is_lost(h));
        if lost && self.seize(turn, 0) {
            self.hand_on(self.turn());
        }
    }

    /// Gives the turn away if this CPU has it, because the CPU sleeps or has ended.
    pub(super) fn pass_turn(&self, time: u64, path: u64) {
        let turn = self.turn();
        if turn.holder(self.shape) == Some(self.me) {
            self.fold(time, path);
            self.hand_on(turn);
        }
    }

    /// Draws the CPU of the next turn, and the length of the turn.
    fn hand_on(&self, turn: Turn) {
        loop {
            let could = |who: Who| {
                let word = self.word(who);
                let (at, event) = match self.state(who, word) {
                    State::Running => (self.time(who), None),
                    State::Idle => {
                        let event = self.next(who)?;
                        (event.at.max(self.time(who)), Some(event))
                    }
                    _ => return None,
                };
                Some(Candidate {
                    who,
                    word,
                    at,
                    event,
                })
            };
            let all = || self.shape.all().filter_map(could);
            let Some(first) = all().map(|c| c.at).min() else {
                self.words.set(TURN, turn.next(None).0);
                return;
            };
            let limit = first + self.times.lag;
            let near = all().filter(|c| c.at <= limit).count() as u64;
            let number = self.draw();
            let chosen = all()
                .filter(|c| c.at <= limit)
                .nth((number % near.max(1)) as usize);
            let Some(chosen) = chosen else {
                continue;
            };
            let longest = self.times.quantum >> SHORTER[(number >> 32 & 7) as usize];
            let length = 1 + (number >> 40) % longest.max(1);
            self.words.set(TURN_END, chosen.at + length);
            self.words.set(TURN, turn.next(Some(chosen.who)).0);
            self.tell_one(chosen.who);
            if let Some(event) = chosen.event {
                // If it has been woken from outside at this moment, it has the turn all the same.
                self.wake(chosen.who, chosen.word, event);
            }
            return;
        }
    }
}
