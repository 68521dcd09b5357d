//! The launcher's end of the request line: one request at a time, each with a limit.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dyad_abi::ask::{Ask, Request};
use dyad_abi::user::waiting::Waiting;
use dyad_abi::{Error as Refused, NodeId};

use super::Refusal;
use crate::broker::Ringer;
use crate::state::SharedState;

/// How long init may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);
/// How often the nodes are rung again meanwhile: one that has taken over from another was not.
const RING: Duration = Duration::from_millis(100);
/// Attempts at what init says can be tried again.
const TRIES: u32 = 16;

/// Asks init.
#[derive(Debug)]
pub struct Channel {
    cxl: File,
    ringer: Ringer,
    /// Number of the last request.
    last: Mutex<u64>,
}

/// The word that says where a thread is asked to go, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The program.
    pub program: u8,
    /// Its thread.
    pub thread: u16,
}

impl Channel {
    /// The channel of a system with this CXL pool.
    pub fn new(cxl: File, ringer: Ringer) -> Channel {
        Channel {
            cxl,
            ringer,
            last: Mutex::new(0),
        }
    }

    /// What is in the pool.
    pub fn state(&self) -> SharedState<'_> {
        SharedState::new(&self.cxl)
    }

    /// Asks, and waits for the answer.
    fn ask(&self, ask: Ask) -> Result<Result<u64, Refused>, Refusal> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        let number = *last;
        let state = self.state();
        let request = Request { number, ask };
        state
            .ask(request)
            .map_err(|e| Refusal::Bad { why: e.to_string() })?;
        let until = Instant::now() + PATIENCE;
        let mut ring = Instant::now();
        loop {
            let now = Instant::now();
            if now >= ring {
                // Requests are looked after by the first CPU of a node.
                self.ringer.ring_all(1);
                ring = now + RING;
            }
            if let Some(answer) = state.answer().filter(|a| a.number == number) {
                return Ok(answer.result);
            }
            if now >= until {
                return Err(Refusal::NoAnswer);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Changes a word from `old` to `new`; what it was.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoAnswer`], or what init has against it.
    pub fn change(&self, of: Word, old: u64, new: u64) -> Result<Result<u64, Refused>, Refusal> {
        let ask = Ask::Change {
            program: of.program,
            thread: of.thread,
            old,
            new,
        };
        for _ in 0..TRIES {
            match self.ask(ask)? {
                Err(Refused::Again) => {}
                answer => return Ok(answer),
            }
        }
        Ok(Err(Refused::Again))
    }

    /// Asks for what init may have no time for at once.
    fn patiently(&self, ask: Ask) -> Result<Result<u64, Refused>, Refusal> {
        for _ in 0..TRIES {
            match self.ask(ask)? {
                Err(Refused::Again) => std::thread::sleep(LOOK),
                answer => return Ok(answer),
            }
        }
        Ok(Err(Refused::Again))
    }

    /// Has a thread moved wherever it is.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoAnswer`], or what init has against it.
    pub fn emulate(&self, of: Word, node: NodeId) -> Result<Result<u64, Refused>, Refusal> {
        self.patiently(Ask::Emulate {
            program: of.program,
            thread: of.thread,
            node,
        })
    }

    /// A word of the [page](dyad_abi::emulation::Page) of a thread.
    ///
    /// # Errors
    ///
    /// As [`Channel::emulate`].
    pub fn page(&self, of: Word, word: u8) -> Result<Result<u64, Refused>, Refusal> {
        self.patiently(Ask::Page {
            program: of.program,
            thread: of.thread,
            word,
        })
    }

    /// What a thread waits for; `None`: nothing that its runtime has said.
    ///
    /// # Errors
    ///
    /// As [`Channel::emulate`].
    pub fn waiting(&self, of: Word) -> Result<Result<Option<Waiting>, Refused>, Refusal> {
        let answer = self.patiently(Ask::Waiting {
            program: of.program,
            thread: of.thread,
        })?;
        Ok(answer.map(Waiting::unpack))
    }

    /// Puts a word in the place of whatever is there; what that was.
    ///
    /// # Errors
    ///
    /// As [`Channel::change`].
    pub fn put(&self, of: Word, new: u64) -> Result<Result<u64, Refused>, Refusal> {
        let mut old = 0;
        for _ in 0..TRIES {
            match self.change(of, old, new)? {
                Ok(was) if was != old => old = was,
                answer => return Ok(answer),
            }
        }
        Ok(Err(Refused::Again))
    }
}
