//! Which requests to move threads init takes (`process::EMULATE`): how many of a program, and for when.
//!
//! Each program has a list of its own, so a program that fills its list is refused, and no other program. One entry is kept
//! for the launcher, which asks for the user of the system. An entry is used for a bounded time: the request waits for
//! [`LATEST_NS`] at most before init begins with it, and init gives a thread up that cannot be stopped.

use dyad_abi::{Error, Result};

/// Most requests of a program at a time.
pub const OWN: usize = 8;
/// Entries of a program's list: those for its own requests, and one for the launcher.
pub const ENTRIES: usize = OWN + 1;
/// The latest time for which a move can be requested, from now on, in ns.
pub const LATEST_NS: u64 = 10_000_000_000;

/// The author of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The program that the thread is part of.
    Program,
    /// The launcher, in the name of the user.
    Launcher,
}

/// The entry for a new request: the number of one that is not in use.
///
/// # Errors
///
/// `Full` if there is none for this asker.
pub fn free_entry(asker: Asker, in_use: [bool; ENTRIES]) -> Result<usize> {
    let mut entries = 0..ENTRIES;
    let is_free = |n: &usize| !in_use[*n];
    let found = match asker {
        Asker::Program => entries.find(|n| *n < OWN && is_free(n)),
        // From the end, where the entry is that is kept for the launcher.
        Asker::Launcher => entries.rfind(is_free),
    };
    found.ok_or(Error::Full)
}

/// The time at which a request is due that was made for the time `at`: `now` if that has passed.
///
/// # Errors
///
/// `BadArgument` if `at` is later than [`LATEST_NS`] from now.
pub fn due(now: u64, at: u64) -> Result<u64> {
    match at.saturating_sub(now) > LATEST_NS {
        true => Err(Error::BadArgument),
        false => Ok(at.max(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_leaves_an_entry_for_the_launcher() {
        let mut in_use = [false; ENTRIES];
        for _ in 0..OWN {
            let entry = free_entry(Asker::Program, in_use).unwrap();
            assert!(!in_use[entry]);
            in_use[entry] = true;
        }
        assert_eq!(free_entry(Asker::Program, in_use), Err(Error::Full));
        let kept = free_entry(Asker::Launcher, in_use).unwrap();
        assert!(!in_use[kept]);
        in_use[kept] = true;
        assert_eq!(free_entry(Asker::Launcher, in_use), Err(Error::Full));
        // An entry that comes free is the program's again, but not the one that is kept.
        in_use[kept] = false;
        assert_eq!(free_entry(Asker::Program, in_use), Err(Error::Full));
        in_use[3] = false;
        assert_eq!(free_entry(Asker::Program, in_use), Ok(3));
    }

    #[test]
    fn the_launcher_may_have_all_entries_and_begins_with_the_one_that_is_kept() {
        let mut in_use = [false; ENTRIES];
        for n in 0..ENTRIES {
            let entry = free_entry(Asker::Launcher, in_use).unwrap();
            assert_eq!(n == 0, entry == OWN);
            in_use[entry] = true;
        }
        assert_eq!(free_entry(Asker::Launcher, in_use), Err(Error::Full));
    }

    #[test]
    fn nothing_is_requested_for_a_time_that_never_comes() {
        let now = 5_000;
        assert_eq!(due(now, 0), Ok(now));
        assert_eq!(due(now, now - 1), Ok(now));
        assert_eq!(due(now, now + 7), Ok(now + 7));
        assert_eq!(due(now, now + LATEST_NS), Ok(now + LATEST_NS));
        for never in [now + LATEST_NS + 1, 1 << 62, u64::MAX] {
            assert_eq!(due(now, never), Err(Error::BadArgument));
        }
        assert_eq!(due(u64::MAX, u64::MAX), Ok(u64::MAX));
    }
}
