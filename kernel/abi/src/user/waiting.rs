//! The word of a thread control block that says what the thread waits for. The runtime of programs writes it before a
//! thread sleeps, for reports about runs that hang. Nothing depends on it, and it is not ordered with other words.

use super::{MAX_PROGRAM_THREADS, Tcb, tcb_address};

/// The address of the word of a thread.
pub const fn address(thread: u32) -> u64 {
    tcb_address(thread) + core::mem::offset_of!(Tcb, waiting) as u64
}

/// What threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum What {
    /// A word of memory to change.
    Word = 1,
    /// A mutex.
    Mutex = 2,
    /// A reader-writer lock, to read.
    Read = 3,
    /// A reader-writer lock, to write.
    Write = 4,
    /// What happens once: another thread is at it.
    Once = 5,
    /// A condition variable.
    Condition = 6,
    /// Threads that have not come to a barrier.
    Barrier = 7,
    /// A permit of a semaphore.
    Permit = 8,
    /// The end of a thread.
    End = 9,
    /// To be unparked.
    Unpark = 10,
    /// A spin lock.
    Spin = 11,
}

impl What {
    /// All of them.
    pub const ALL: [What; 11] = [
        What::Word,
        What::Mutex,
        What::Read,
        What::Write,
        What::Once,
        What::Condition,
        What::Barrier,
        What::Permit,
        What::End,
        What::Unpark,
        What::Spin,
    ];

    /// What a thread waits for, in a few words.
    pub const fn name(self) -> &'static str {
        match self {
            What::Word => "a change of the word",
            What::Mutex => "the mutex",
            What::Read => "the reader-writer lock, to read,",
            What::Write => "the reader-writer lock, to write,",
            What::Once => "what happens once",
            What::Condition => "the condition variable",
            What::Barrier => "the other threads at the barrier",
            What::Permit => "a permit of the semaphore",
            What::End => "the end of a thread",
            What::Unpark => "being unparked",
            What::Spin => "the spin lock",
        }
    }
}

/// A thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For what.
    pub what: What,
    /// The number of the thread that has it, if it names one.
    pub owner: Option<u8>,
    /// The address of its word.
    pub at: u64,
}

impl Waiting {
    /// Packs: what in bits 0..8, 1 and the owner in bits 8..16, the address above.
    pub const fn pack(self) -> u64 {
        let owner = match self.owner {
            Some(n) => n as u64 + 1,
            None => 0,
        };
        self.what as u64 | owner << 8 | self.at << 16
    }

    /// Undoes [`pack`](Waiting::pack). `None` for 0, and for what no runtime writes.
    pub fn unpack(word: u64) -> Option<Waiting> {
        let what = What::ALL.into_iter().find(|&w| w as u64 == word & 0xff)?;
        let owner = match word >> 8 & 0xff {
            0 => None,
            n if n <= MAX_PROGRAM_THREADS => Some(n as u8 - 1),
            _ => return None,
        };
        Some(Waiting {
            what,
            owner,
            at: word >> 16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Waiting, What};

    #[test]
    fn waits_are_packed_and_unpacked() {
        for what in What::ALL {
            for owner in [None, Some(0), Some(63)] {
                let waiting = Waiting {
                    what,
                    owner,
                    at: 0x7fff_ffff_fff8,
                };
                assert_eq!(Waiting::unpack(waiting.pack()), Some(waiting));
            }
        }
        for odd in [0, u64::MAX, What::Mutex as u64 | 65 << 8, 0xff, 12] {
            assert_eq!(Waiting::unpack(odd), None, "{odd:#x}");
        }
    }
}
