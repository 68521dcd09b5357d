//! Why a command did not do its work, and the exit status that follows from it.

use std::fmt;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The command line or a configuration file is wrong.
    Usage(String),
    /// This computer lacks something.
    Setup(String),
    /// A kernel or a program does not build.
    Build(String),
    /// The run itself failed.
    Run(String),
    /// The user ended it.
    Interrupted,
}

impl Error {
    /// Exit status of the process.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Setup(_) => 2,
            Error::Build(_) | Error::Run(_) => 1,
            Error::Interrupted => 130,
        }
    }

    /// An input/output error while doing `what`.
    pub fn io(what: impl fmt::Display, e: impl fmt::Display) -> Error {
        Error::Run(format!("{what}: {e}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(s) | Error::Setup(s) | Error::Build(s) | Error::Run(s) => f.write_str(s),
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {}
