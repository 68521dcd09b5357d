//! Errors of programs.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

/// The result of a program or of one of its steps.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why a program, or a step of it, failed. Any error that is `Send`, `Sync` and `'static` converts
/// into it with `?`.
pub struct Error {
    cause: Cause,
}

enum Cause {
    Failed(String),
    Usage(String),
    Limit(dyad_sys::Error, String),
    Other(Box<dyn core::error::Error + Send + Sync>),
}

impl Error {
    /// A failure described by a text.
    pub fn msg(text: impl fmt::Display) -> Error {
        Error {
            cause: Cause::Failed(text.to_string()),
        }
    }

    /// A wrong command line. The text should say what is wrong, what is possible and what to do. The program
    /// ends with exit code 2.
    pub fn usage(text: impl fmt::Display) -> Error {
        Error {
            cause: Cause::Usage(text.to_string()),
        }
    }

    /// A limit of the system that was met, by name and number; [`system`](Error::system) gives `why`.
    pub(crate) fn limit(why: dyad_sys::Error, text: impl fmt::Display) -> Error {
        Error {
            cause: Cause::Limit(why, text.to_string()),
        }
    }

    /// The error of a system call, if this is one.
    pub fn system(&self) -> Option<dyad_sys::Error> {
        match self.cause {
            Cause::Limit(why, _) => Some(why),
            _ => self.downcast_ref().copied(),
        }
    }

    /// The underlying error, if it has this type and no text of its own.
    pub fn downcast_ref<E: core::error::Error + 'static>(&self) -> Option<&E> {
        match &self.cause {
            Cause::Other(e) => e.downcast_ref(),
            _ => None,
        }
    }

    /// Exit code of a program that ends with this error: 2 for a wrong command line, else 1.
    pub fn exit_code(&self) -> u32 {
        match self.cause {
            Cause::Usage(_) => 2,
            _ => 1,
        }
    }
}

impl<E: core::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(e: E) -> Error {
        Error {
            cause: Cause::Other(Box::new(e)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Failed(text) | Cause::Usage(text) | Cause::Limit(_, text) => f.write_str(text),
            Cause::Other(e) => {
                write!(f, "{e}")?;
                let mut source = e.source();
                while let Some(s) = source {
                    write!(f, ": {s}")?;
                    source = s.source();
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
