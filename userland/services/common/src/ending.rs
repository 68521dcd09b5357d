//! The way in which a program has ended: its exit code and its message.
//!
//! A program can exit with any code, also with those that stand for a fault or a lost thread. So the text is made of
//! what has happened, never of the code.

use core::fmt;

use dyad_abi::service::process::{FAULT_CODE, LOST_CODE};
use dyad_abi::{Error, Result};

/// The way in which a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program has exited with this code.
    Exited(u32),
    /// A thread of it has made an error that has no handler.
    Faulted,
    /// This thread of the program has stopped: it has neither ended by the process service nor made an error
    /// that was reported.
    Stopped(u64),
    /// The program's first thread was lost with its node.
    Lost,
}

impl Ending {
    /// The exit code.
    pub const fn code(self) -> u64 {
        match self {
            Ending::Exited(code) => code as u64,
            Ending::Faulted | Ending::Stopped(_) => FAULT_CODE,
            Ending::Lost => LOST_CODE,
        }
    }

    /// Whether the program was successful.
    pub const fn is_success(self) -> bool {
        matches!(self, Ending::Exited(0))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended with code {}", self.code())?;
        match self {
            Ending::Exited(_) => Ok(()),
            Ending::Faulted => f.write_str(": a thread faulted"),
            Ending::Stopped(n) => write!(f, ": thread {n} stopped without saying why"),
            Ending::Lost => f.write_str(": its thread was lost with a node that has died"),
        }
    }
}

/// The exit code in a word of `process::EXIT`.
///
/// # Errors
///
/// `BadArgument` if it has more than 32 bits.
pub fn exit_code(word: u64) -> Result<u32> {
    u32::try_from(word).map_err(|_| Error::BadArgument)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;

    #[test]
    fn no_exit_code_reads_like_another_ending() {
        for ending in [Ending::Faulted, Ending::Stopped(3), Ending::Lost] {
            let code = u32::try_from(ending.code()).unwrap();
            let exited = Ending::Exited(code);
            assert_eq!(format!("{exited}"), format!("ended with code {code}"));
            assert_ne!(format!("{exited}"), format!("{ending}"));
            assert!(!ending.is_success() && !exited.is_success());
        }
        assert!(Ending::Exited(0).is_success());
    }

    #[test]
    fn exit_codes_have_32_bits() {
        assert_eq!(exit_code(0), Ok(0));
        assert_eq!(exit_code(u32::MAX.into()), Ok(u32::MAX));
        for large in [1 << 32, 1 << 63, u64::MAX] {
            assert_eq!(exit_code(large), Err(Error::BadArgument));
        }
    }
}
