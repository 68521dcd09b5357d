//! Classes: the sizes of problems.

use core::fmt;

/// Problem size. What it means is up to each benchmark; its module has the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sample.
    S,
    /// Workstation.
    W,
    /// The smallest of the standard ones.
    A,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 3] = [Class::S, Class::W, Class::A];

    /// Its letter.
    pub const fn name(self) -> &'static str {
        match self {
            Class::S => "S",
            Class::W => "W",
            Class::A => "A",
        }
    }

    /// The class with this letter.
    pub fn parse(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|c| c.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
