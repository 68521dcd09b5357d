//! Errors with the action during which they occurred.

use core::fmt;

use dyad_abi::{Error, Result};

/// An error, its action and its program.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// The action.
    what: &'static str,
    /// Name of the program.
    program: &'static str,
    /// The error.
    error: Error,
}

/// A result whose error names the action.
pub type Done<T> = core::result::Result<T, Trouble>;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program {
            "" => write!(f, "{}: {}", self.what, self.error),
            name => write!(f, "{name}: {}: {}", self.what, self.error),
        }
    }
}

/// Adds the action to an error.
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
    /// Adds the name of the program, unless there is one already.
    pub fn of(self, program: &'static str) -> Trouble {
        match self.program {
            "" => Trouble { program, ..self },
            _ => self,
        }
    }
}
