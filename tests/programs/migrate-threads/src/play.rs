//! One play of a scene, and what comes of it.

use dyad::prelude::thread::*;

use crate::schedule::{self, Schedule};

/// When to move, and where to begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Play {
    /// It moves at every Nth point; 0: never.
    pub every: u64,
    /// Whether it begins on the other node.
    pub away: bool,
}

/// What a scene has written in a play, and how often it has moved.
pub struct Outcome {
    /// What it has written.
    pub text: String,
    /// Points that it has passed.
    pub points: u64,
    /// Moves it has made.
    pub moves: u64,
    /// Moves that failed.
    pub failures: u64,
}

impl Play {
    /// Plays a scene.
    #[inline(never)]
    pub fn of(self, scene: fn(&mut String)) -> Result<Outcome> {
        let schedule = Schedule {
            every: self.every,
            at: 0,
        };
        schedule::begin(&schedule, self.away)?;
        let mut text = String::new();
        scene(&mut text);
        Ok(Outcome {
            text,
            points: schedule::points(),
            moves: schedule::moves(),
            failures: schedule::failures(),
        })
    }
}
