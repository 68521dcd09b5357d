//! Trips: to the other ISA and back, each way by interpretation.

use core::fmt;
use core::time::Duration;

use dyad::emulation::{self, status};
use dyad::prelude::thread::*;
use dyad::sys;

use crate::work;

/// How long a move may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames of a round, but one.
const DEPTH: u64 = 3;
/// What rounds begin with.
const SEED: u64 = 7;
/// A move is asked for so long from then on at most, at random, in nanoseconds: about a round.
const SPREAD: u64 = 200_000;

/// Trips of a thread.
pub struct Trips {
    /// Number of the thread.
    number: u64,
    /// How many.
    pub trips: u64,
    turns: u64,
    random: u64,
}

/// What came out of them.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Moves that ended where they were to.
    pub moved: u64,
    /// Trips both of whose moves did.
    pub returned: u64,
    /// Rounds of work.
    pub rounds: u64,
    /// Rounds after which something was not what it was.
    pub damaged: u64,
    /// Moves of threads that were stopped before a point, not just at one.
    pub between: u64,
    /// Moves of threads that had canaries in all kinds of registers, by the ISA that they were on.
    pub held: [u64; 2],
    /// Instructions interpreted.
    pub steps: u64,
    /// System calls among them.
    pub calls: u64,
    /// Where threads were stopped, in order.
    pub places: Vec<u64>,
}

impl Sum {
    /// Both.
    pub fn add(&mut self, other: &Sum) {
        self.moved += other.moved;
        self.returned += other.returned;
        self.rounds += other.rounds;
        self.damaged += other.damaged;
        self.between += other.between;
        for (held, more) in self.held.iter_mut().zip(other.held) {
            *held += more;
        }
        self.steps += other.steps;
        self.calls += other.calls;
        for &place in &other.places {
            self.stopped_at(place);
        }
    }

    fn stopped_at(&mut self, place: u64) {
        if let Err(at) = self.places.binary_search(&place) {
            self.places.insert(at, place);
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum {
            moved,
            returned,
            rounds,
            damaged,
            between,
            held,
            steps,
            calls,
            places,
        } = self;
        write!(
            f,
            "{returned} times there and back, {moved} moves in {rounds} rounds; stopped {between} times between points, \
             at {} instructions, {held} times with canaries in registers of all kinds; {steps} instructions and \
             {calls} calls interpreted; {damaged} damaged",
            places.len(),
            held = held.iter().sum::<u64>(),
        )
    }
}

/// The nearest node of the other ISA.
pub fn other_node() -> Result<NodeId> {
    let node = dyad::system()?.nearest(dyad::isa().other(), dyad::node());
    Ok(node.ok_or(sys::Error::NoIsa)?)
}

impl Trips {
    /// Of thread `number`, with `turns` between points.
    pub fn new(number: u64, trips: u64, turns: u64) -> Trips {
        Trips {
            number,
            trips,
            turns,
            random: number + 1,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Makes them all.
    pub fn go(&mut self) -> Result<Sum> {
        let mut sum = Sum::default();
        let expected = work::round(DEPTH, SEED, self.turns);
        for trip in 0..self.trips {
            let home = dyad::node();
            let there = self.one(2 * trip, other_node()?, expected, &mut sum)?;
            let back = self.one(2 * trip + 1, home, expected, &mut sum)?;
            sum.returned += u64::from(there && back);
        }
        Ok(sum)
    }

    /// One way. Whether it has come to `to`.
    fn one(
        &mut self,
        way: u64,
        to: NodeId,
        expected: core::result::Result<u64, &'static str>,
        sum: &mut Sum,
    ) -> Result<bool> {
        let from = dyad::isa();
        let thread = self.number as usize;
        let begin = Instant::now();
        let at = begin + Duration::from_nanos(self.random(SPREAD));
        emulation::request_thread(thread, to, at)?;
        loop {
            let result = work::round(DEPTH, SEED, self.turns);
            sum.rounds += 1;
            if result != expected || result.is_err() {
                sum.damaged += 1;
                println!("way {way}: {result:?} instead of {expected:?}");
            }
            let p = emulation::progress_of(thread).ok_or(sys::Error::NotReady)?;
            if p.status == status::LANDED && p.landings == way + 1 {
                sum.steps += p.steps;
                sum.calls += p.calls;
                sum.between += u64::from(p.steps > 0);
                break;
            }
            if begin.elapsed() > PATIENCE || matches!(p.status, status::BACK | status::IDLE) {
                return Err(Error::msg(format!("thread {thread}, way {way}: it {p}")));
            }
        }
        if let Some(registers) = emulation::stopped_with(thread) {
            sum.held[from.index()] += u64::from(work::is_held(&registers, DEPTH, SEED));
            sum.stopped_at(registers.pc);
        }
        let there = dyad::node() == to && dyad::isa() == from.other();
        if there {
            sum.moved += 1;
        } else {
            println!("way {way}: on {} of {}", dyad::node(), dyad::isa());
        }
        Ok(there)
    }
}
