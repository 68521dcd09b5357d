//! Ways through a scene, and what comes of them.

use dyad::prelude::*;

use journey::way;
pub use journey::way::{between_two, point};

/// When to move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// At every Nth point; 0: never.
    pub every: u64,
    /// Whether it begins on the other node.
    pub away: bool,
}

/// What a scene has written on one way, and how it got there.
pub struct Run {
    /// What it has written.
    pub text: String,
    /// Points that it has passed.
    pub points: u64,
    /// Moves it has made.
    pub moves: u64,
    /// Moves that came to nothing.
    pub mishaps: u64,
}

/// Goes through a scene.
#[inline(never)]
pub fn through(scene: fn(&mut String), way: Way) -> Result<Run> {
    let points = way::Way {
        every: way.every,
        at: 0,
    };
    way::begin(&points, way.away)?;
    let mut text = String::new();
    scene(&mut text);
    Ok(Run {
        text,
        points: way::points(),
        moves: way::moves(),
        mishaps: way::mishaps(),
    })
}
