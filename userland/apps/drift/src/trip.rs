//! Moves to and fro.

use core::fmt;
use core::time::Duration;

use dyad::emulation::{self, status};
use dyad::prelude::*;
use dyad::sys;

use crate::work;

/// How long a move may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames of a round.
const DEPTH: u64 = 3;

/// Moves of a thread.
pub struct Trips {
    /// Number of the thread.
    number: u64,
    /// How many.
    pub trips: u64,
    turns: u64,
    random: u64,
}

/// What came out of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Moves that ended where they were to.
    pub moved: u64,
    /// Rounds of work.
    pub rounds: u64,
    /// Rounds after which something was not what it was.
    pub damaged: u64,
    /// Instructions interpreted.
    pub steps: u64,
    /// System calls among them.
    pub calls: u64,
}

impl Sum {
    /// Both.
    pub fn add(&mut self, other: &Sum) {
        self.moved += other.moved;
        self.rounds += other.rounds;
        self.damaged += other.damaged;
        self.steps += other.steps;
        self.calls += other.calls;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum {
            moved,
            rounds,
            damaged,
            steps,
            calls,
        } = self;
        write!(
            f,
            "{moved} moves in {rounds} rounds, {steps} instructions and {calls} calls interpreted, {damaged} damaged"
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
        let expected = work::round(DEPTH, 7, self.turns);
        for trip in 0..self.trips {
            self.one(trip, expected, &mut sum)?;
        }
        Ok(sum)
    }

    fn one(
        &mut self,
        trip: u64,
        expected: core::result::Result<u64, &'static str>,
        sum: &mut Sum,
    ) -> Result<()> {
        let (from, to) = (dyad::isa(), other_node()?);
        let thread = self.number as usize;
        let begin = Instant::now();
        let at = begin + Duration::from_nanos(self.random(200_000));
        emulation::request_thread(thread, to, at)?;
        loop {
            let result = work::round(DEPTH, 7, self.turns);
            sum.rounds += 1;
            if result != expected || result.is_err() {
                sum.damaged += 1;
                println!("trip {trip}: {result:?} instead of {expected:?}");
            }
            let p = emulation::progress_of(thread).ok_or(sys::Error::NotReady)?;
            if p.status == status::LANDED && p.landings == trip + 1 {
                sum.steps += p.steps;
                sum.calls += p.calls;
                break;
            }
            if begin.elapsed() > PATIENCE || matches!(p.status, status::BACK | status::IDLE) {
                return Err(Error::msg(format!("thread {thread}, trip {trip}: it {p}")));
            }
        }
        let there = dyad::node() == to && dyad::isa() == from.other();
        if there {
            sum.moved += 1;
        } else {
            println!("trip {trip}: on {} of {}", dyad::node(), dyad::isa());
        }
        Ok(())
    }
}
