//! State of a CPU as one word: `number:56 | state:8`.

/// State of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The CPU has not begun.
    Absent = 0,
    /// The CPU executes, or waits in the middle of a block.
    Running = 1,
    /// The CPU sleeps until its next event.
    Idle = 2,
    /// The CPU's event is due and it has been rung.
    Waking = 3,
    /// The CPU has been stopped from outside, and no CPU waits for it.
    Stalled = 4,
    /// The CPU has ended.
    Gone = 5,
}

/// A state and how many there were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWord(pub u64);

impl StateWord {
    /// The state. An invalid number, which nothing writes, is treated as gone.
    pub const fn state(self) -> State {
        match self.0 as u8 {
            0 => State::Absent,
            1 => State::Running,
            2 => State::Idle,
            3 => State::Waking,
            4 => State::Stalled,
            _ => State::Gone,
        }
    }

    /// The word after it.
    #[must_use]
    pub const fn next(self, state: State) -> StateWord {
        StateWord(((self.0 >> 8) + 1) << 8 | state as u64)
    }
}
