//! The form of console output: what a kernel writes to its serial line and the launcher reads.
//!
//! Every line a kernel writes starts with one of two control bytes; a line without either was
//! written by firmware, by a kernel that had not got so far, or is damaged, and is shown as it is.
//!
//! | first byte | rest of the line |
//! |---|---|
//! | [`LOG`] | `CPU` space `NS` space `LEVEL` space text; `NS` is fused time in decimal, `LEVEL` one of [`Level`]'s letters |
//! | [`RECORD`] | one JSON object, whose `"type"` is one of the names below |
//!
//! | type | further members |
//! |---|---|
//! | `phase` | `name`: what the node is doing (boot progress) |
//! | `check` | `name`, `ok`, `detail`; `program` |
//! | `counter` | `name`, `value`: the run's counter is the sum over nodes; `program` |
//! | `panic` | `cpu`, `message`, `location` |
//! | `backtrace` | `cpu`, `what` (`kernel` or `user`), `pcs`: array of hexadecimal strings, innermost first |
//! | `status` | `cpu`, `doing`: what a CPU was doing when a report was asked for |
//! | `ktest` | `name`, `state`: `start`, `ok`, `failed` or `skipped`, `detail` |
//! | `exit` | `code`: the exit code the node is about to return, `reason` |
//!
//! `program` is the number of the program that has reported a check or counter through the console
//! service. It is not there if the kernel, init or another holder of a node's hardware has: such reports
//! are trusted. The names of what the kernel, init and the launcher find are [reserved](name) for them.
//!
//! A line that is longer than a log line can be is written in pieces. The text of each begins with [`PIECE`], the
//! number of its stream in decimal, and [`MORE`] or [`LAST`]; the launcher joins those of a stream. Pieces end
//! at characters, and those of different streams may alternate.
//!
//! Text from user programs is escaped before it is written: the three bytes and other ASCII control
//! characters never come from a program. The launcher escapes everything else that could change how
//! text looks.

/// First byte of a log line.
pub const LOG: u8 = 0x1f;
/// First byte of a record.
pub const RECORD: u8 = 0x1e;
/// First byte of the text of a log line that is a piece of a longer line.
pub const PIECE: u8 = 0x1d;
/// Ends the head of a piece that others follow.
pub const MORE: u8 = b'+';
/// Ends the head of the last piece of a line.
pub const LAST: u8 = b'.';

/// Names of the checks and counters that the kernel, init and the launcher record.
pub mod name {
    use crate::{Error, Result};

    /// Check of the kernel: the node could boot.
    pub const BOOT: &str = "boot";
    /// Check of the kernel: atomics are atomic between the machines.
    pub const SELF_TEST: &str = "boot.self-test";
    /// Check of the kernel: all tables agree when the run ends.
    pub const TABLES: &str = "tables.agree";
    /// Check of init and the kernel: the system could be built.
    pub const INIT: &str = "init.start";
    /// Check of init: the leader of the wardens can access init's records of the system. Recorded only if not.
    pub const RECORDS: &str = "init.records";
    /// Check of init: none of its threads has faulted, in a service or elsewhere. Recorded only if not.
    pub const WARDEN: &str = "init.faulted";
    /// Check of init: how the program ended.
    pub const EXIT: &str = "app.exit";
    /// Check of init: all frames of the program have been returned.
    pub const FRAMES: &str = "frames.returned";
    /// Check of init: each process of a group had frames of its own node's pool only.
    pub const POOLS: &str = "group.pools";
    /// Check of init: all frames of the program beside have been returned.
    pub const BESIDE: &str = "beside.returned";
    /// Counter of the kernel.
    pub const MIGRATIONS: &str = "migrations";
    /// Counter of the kernel.
    pub const CROSSINGS: &str = "crossing_calls";
    /// Counter of the kernel.
    pub const DOORBELLS: &str = "doorbells_rung";
    /// Counter of the kernel.
    pub const MESSAGES: &str = "messages_sent";
    /// Counter of the kernel.
    pub const RECOVERED: &str = "nodes_recovered";
    /// Prefix of all checks of the launcher.
    pub const SIM: &str = "sim.";

    /// All names.
    pub const ALL: [&str; 14] = [
        BOOT, SELF_TEST, TABLES, INIT, RECORDS, WARDEN, EXIT, FRAMES, BESIDE, MIGRATIONS,
        CROSSINGS, DOORBELLS, MESSAGES, RECOVERED,
    ];

    /// Whether a program may give this name to a check or counter.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if it is empty, or has something else than visible ASCII characters;
    /// [`Error::Denied`] if it is reserved.
    pub fn of_program(name: &str) -> Result<()> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::BadArgument);
        }
        match ALL.contains(&name) || name.starts_with(SIM) {
            true => Err(Error::Denied),
            false => Ok(()),
        }
    }
}

/// Importance of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Detail, shown with `--verbose`.
    Debug,
    /// Progress, shown unless `--quiet`.
    Info,
    /// An error after which the node continues.
    Warn,
    /// A failure.
    Error,
    /// Output of the user program; always shown.
    User,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 5] = [
        Level::Debug,
        Level::Info,
        Level::Warn,
        Level::Error,
        Level::User,
    ];

    /// The letter in a log line.
    pub const fn letter(self) -> char {
        match self {
            Level::Debug => 'D',
            Level::Info => 'I',
            Level::Warn => 'W',
            Level::Error => 'E',
            Level::User => 'U',
        }
    }

    /// The level with this letter.
    pub fn from_letter(c: char) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.letter() == c)
    }
}

/// Exit code of a node whose work is done and was successful.
pub const EXIT_OK: u32 = 0;
/// Exit code of a node whose program failed (a check failed or the program's code was not 0).
pub const EXIT_FAILED: u32 = 1;
/// Exit code of a node that could not boot or join.
pub const EXIT_BOOT: u32 = 2;
/// Exit code of a node that stopped because another died or because it was told to.
pub const EXIT_STOPPED: u32 = 3;
/// Exit code after a kernel panic.
pub const EXIT_PANIC: u32 = 4;

/// QEMU's exit status for an x86-64 node that exits with `code`: the debug-exit device returns
/// `value << 1 | 1`, so 0 is impossible, and small values are kept clear of QEMU's own 1.
pub const fn x86_exit_value(code: u32) -> u32 {
    code + 0x10
}

/// Exit code of a node from QEMU's exit status, if the kernel ended it.
pub const fn exit_code_from_status(isa: crate::Isa, status: i32) -> Option<u32> {
    match isa {
        crate::Isa::X86_64 => {
            let value = (status as u32) >> 1;
            if status & 1 == 1 && value >= 0x10 {
                Some(value - 0x10)
            } else {
                None
            }
        }
        // Semihosting returns the code itself; 0x20 is added so that it differs from QEMU's own 1.
        crate::Isa::Aarch64 => {
            if status >= 0x20 {
                Some(status as u32 - 0x20)
            } else {
                None
            }
        }
    }
}

/// Exit status given to semihosting by an AArch64 node that exits with `code`.
pub const fn aarch64_exit_value(code: u32) -> u32 {
    code + 0x20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Isa};

    #[test]
    fn programs_have_names_of_their_own() {
        for good in [
            "is.full",
            "beside",
            "boot.self-tes",
            "sim-loads.0.none",
            "a\"b\\c",
        ] {
            assert_eq!(name::of_program(good), Ok(()), "{good}");
        }
        for reserved in name::ALL.into_iter().chain(["sim.closure", "sim."]) {
            assert_eq!(name::of_program(reserved), Err(Error::Denied), "{reserved}");
        }
        // What looks like another name, or breaks a line.
        for bad in [
            "",
            "app.exit ",
            "a b",
            "a\nb",
            "a\u{9b}31m",
            "a\u{202e}b",
            "\u{430}pp.exit",
        ] {
            assert_eq!(name::of_program(bad), Err(Error::BadArgument), "{bad:?}");
        }
    }

    #[test]
    fn exit_codes_survive_qemu() {
        for code in 0..5 {
            let x = (x86_exit_value(code) << 1 | 1) as i32;
            assert_eq!(exit_code_from_status(Isa::X86_64, x), Some(code));
            let a = aarch64_exit_value(code) as i32;
            assert_eq!(exit_code_from_status(Isa::Aarch64, a), Some(code));
        }
        for isa in Isa::ALL {
            assert_eq!(exit_code_from_status(isa, 0), None);
            assert_eq!(exit_code_from_status(isa, 1), None);
        }
    }
}
