//! Two nodes on which a task works in turn: its home, and another one.
//!
//! ```no_run
//! # use dyad::prelude::task::*;
//! # async fn f() -> Result<()> {
//! let sides = dyad::sides::Sides::settle(None, true).await?;
//! for phase in 0..10 {
//!     sides.go_to_turn(phase).await?;
//!     dyad::println!("phase {phase} on {}", isa());
//! }
//! sides.go_home().await?;
//! # Ok(())
//! # }
//! ```

use alloc::format;
use alloc::string::String;

use crate::task::{migrate, migrate_to};
use crate::{Error, Isa, NodeId, Result, isa, node, system};

/// The two nodes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    home: NodeId,
    away: Option<NodeId>,
}

impl Sides {
    /// Moves to a node of ISA `home`, if one is given: the task's node is its home from then on. With `hop`,
    /// the other side is a node of the other ISA, or another node if there is none.
    ///
    /// # Errors
    ///
    /// If no live node has that ISA, or if there is no other live node.
    pub async fn settle(home: Option<Isa>, hop: bool) -> Result<Sides> {
        if let Some(isa) = home {
            migrate(isa)
                .await
                .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
        }
        let home = node();
        let away = match hop {
            true => {
                let away = system()?.partner(home);
                let none =
                    || Error::msg("there is no other live node; stay on this one (--hop off)");
                Some(away.ok_or_else(none)?)
            }
            false => None,
        };
        Ok(Sides { home, away })
    }

    /// The home node.
    pub fn home(&self) -> NodeId {
        self.home
    }

    /// The node of the phase after `before` phases: home and away in turn.
    pub fn turn(&self, before: u32) -> NodeId {
        match self.away {
            Some(away) if before % 2 == 1 => away,
            _ => self.home,
        }
    }

    /// Moves to the other side, if there is one and that is asked for, or else home. Returns whether that was a migration.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub async fn go_to_side(&self, away: bool) -> Result<bool> {
        go(self.away.filter(|_| away).unwrap_or(self.home)).await
    }

    /// Moves to the node of the phase after `before` phases. Returns whether that was a migration.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub async fn go_to_turn(&self, before: u32) -> Result<bool> {
        go(self.turn(before)).await
    }

    /// Moves home. Returns whether that was a migration.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub async fn go_home(&self) -> Result<bool> {
        go(self.home).await
    }

    /// A line that describes where phases run. Must be called at home.
    pub fn describe(&self) -> String {
        let home = self.home;
        match self.away {
            Some(away) => format!("Phases in turn on node {home} ({}) and node {away}", isa()),
            None => format!("Staying on node {home} ({})", isa()),
        }
    }
}

async fn go(to: NodeId) -> Result<bool> {
    if node() == to {
        return Ok(false);
    }
    migrate_to(to).await?;
    Ok(true)
}
