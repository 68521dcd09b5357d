//! Errors with what was being done.

use core::fmt;

use dyad_abi::{Error, Result};

/// What went wrong.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// What was being done.
    what: &'static str,
    /// For which program.
    program: &'static str,
    /// The error.
    error: Error,
}

/// A result with what was being done.
pub type Done<T> = core::result::Result<T, Trouble>;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program {
            "" => write!(f, "{}: {}", self.what, self.error),
            name => write!(f, "{name}: {}: {}", self.what, self.error),
        }
    }
}

/// Says what was being done.
pub trait During<T> {
    /// `what` was being done.
    fn during(self, what: &'static str) -> Done<T>;
}

impl<T> During<T> for Result<T> {
    fn during(self, what: &'static str) -> Done<T> {
        self.map_err(|error| Trouble {
            what,
            program: "",
            error,
        })
    }
}

impl Trouble {
    /// It was about this program.
    pub fn of(self, program: &'static str) -> Trouble {
        match self.program {
            "" => Trouble { program, ..self },
            _ => self,
        }
    }
}
