//! From where to where something is measured, and what is reported about it.
//!
//! A figure is a counter of the run, `migration.ISA.OP.WHAT`, where the ISA is the one that the
//! operation begins on (a fault: is taken on):
//!
//! | figure | what |
//! |---|---|
//! | `slot` | the number of the windows, see below |
//! | `n` | how often the operation was done, by the clock |
//! | `ns` | how long that took together |
//! | `phased`, `phased_ns` | how often it was done with looks at the clock in between, and how long that took |
//! | `out_ns`, `there_ns`, `back_ns` | until the thread was there, what it did there, until it was back |
//! | others | by operation |
//!
//! Slot `s` has two windows: number `FREE + 2 s` on the CPU where the operation begins, `FREE + 2 s + 1`
//! on the other one.

use dyad::prelude::task::*;
use dyad::report;
use dyad_abi::marker::WindowId;

/// The window of a slot where operations begin.
pub const fn at_home(slot: u16) -> u16 {
    WindowId::FREE + 2 * slot
}

/// The window of a slot on the other side.
pub const fn away(slot: u16) -> u16 {
    at_home(slot) + 1
}

/// From which node to which other one operations lead; the nodes have different ISAs.
#[derive(Clone, Copy, Debug)]
pub struct Direction {
    /// Where operations begin.
    pub home: NodeId,
    /// The ISA there.
    pub isa: Isa,
    /// Where they lead.
    pub away: NodeId,
}

impl Direction {
    /// Takes the task to a node of that ISA, and finds one of the other.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn settle(isa: Isa) -> Result<Direction> {
        migrate(isa)
            .await
            .map_err(|e| Error::msg(format_args!("cannot begin on {isa}: {e}")))?;
        Direction::of_here()
    }

    /// With this node as the home.
    ///
    /// # Errors
    ///
    /// If there is no node of the other ISA.
    pub fn of_here() -> Result<Direction> {
        let (isa, home) = (isa(), node());
        let away = system()?
            .nearest(isa.other(), home)
            .ok_or_else(|| Error::msg(format_args!("there is no node of {}", isa.other())))?;
        Ok(Direction { home, isa, away })
    }

    /// Takes the task to the other side.
    pub async fn go(&self) -> Result<()> {
        Ok(migrate_to(self.away).await?)
    }

    /// Takes it back.
    pub async fn come_back(&self) -> Result<()> {
        Ok(migrate_to(self.home).await?)
    }

    /// Reports a figure of an operation. At home: reports are made by the thread itself, and not
    /// while something is measured.
    pub fn figure(&self, op: &str, what: &str, value: u64) {
        report::counter(&format!("migration.{}.{op}.{what}", self.isa), value);
    }

    /// Reports how often something was done, and how long it took.
    pub fn took(&self, op: &str, n: u64, time: Duration) {
        self.figure(op, "n", n);
        self.figure(op, "ns", nanos(time));
    }
}

/// Whole nanoseconds.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
