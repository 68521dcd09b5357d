//! Threads that are moved wherever they are.
//!
//! ```text
//!  noted by init ─▶ ASKED ─▶ PENDING ─▶ EMULATED ─▶ LANDED: moved
//!                     │                    └──────▶ BACK: refused, with the instruction
//!                     └─ left alone: IDLE
//! ```
//!
//! What becomes of it says the thread's page, of which init gives a word at a time. What init has noted
//! cannot be taken back: whoever goes away meanwhile has not changed anything.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use dyad_abi::Error as Refused;
use dyad_abi::emulation::{Page, refused, status};

use super::super::channel::Word;
use super::super::threads::{self, Look};
use super::super::{Interpreted, MAX_WAIT, Moved, Refusal, Wanted};
use super::{Begun, LOOK, Subject};

/// Number of a word of a page.
macro_rules! word {
    ($field:ident) => {
        (offset_of!(Page, $field) / 8) as u8
    };
}

impl Subject {
    fn page(&self, of: Word, word: u8) -> Result<u64, Refusal> {
        match self.channel.page(of, word)? {
            Ok(value) => Ok(value),
            Err(Refused::NotReady) => Err(not_ready()),
            Err(e) => Err(Refusal::Refused { why: e.to_string() }),
        }
    }

    /// Why a thread has come back.
    fn back(&self, of: Word) -> Result<Refusal, Refusal> {
        let outcome = self.page(of, word!(outcome))?;
        let Some(what) = refused::text(outcome) else {
            let e = Refused::from_code(outcome).unwrap_or(Refused::Corrupt);
            return Ok(Refusal::Refused { why: e.to_string() });
        };
        let mut bytes = String::new();
        if outcome == refused::UNKNOWN {
            let words = [0, 1].map(|i| self.page(of, word!(refused_bytes) + i));
            let [low, high] = words;
            let all = (u128::from(low?) | u128::from(high?) << 64).to_le_bytes();
            let len = usize::from(all[15]).min(15);
            let text = all[..len].iter().map(|b| format!("{b:02x}"));
            bytes = text.collect::<Vec<_>>().join(" ");
        }
        Ok(Refusal::Back {
            outcome,
            what: what.into(),
            at: self.page(of, word!(refused_at))?,
            bytes,
            instructions: self.page(of, word!(steps))?,
        })
    }

    /// Moves a thread wherever it is.
    pub(super) fn emulate(
        &self,
        wanted: &Wanted,
        gone: &dyn Fn() -> bool,
    ) -> Result<Moved, Refusal> {
        let begin = Instant::now();
        let state = self.channel.state();
        let Begun {
            word,
            found,
            first,
            to,
            name,
            ..
        } = self.begin(&state, wanted)?;
        let from = first.at().unwrap_or(first.owner.node).index();
        let moved = |already, interpreted| {
            let now = match threads::look(&state, found) {
                Look::Seen(now) => now,
                _ => first,
            };
            Moved {
                program: name.clone(),
                thread: wanted.thread,
                from,
                to: to.index(),
                now: now.at().unwrap_or(now.owner.node).index(),
                already,
                ms: begin.elapsed().as_secs_f64() * 1e3,
                migrations: now.migrations,
                interpreted,
            }
        };
        if first.at() == Some(to) {
            return Ok(moved(true, None));
        }
        match self.channel.emulate(word, to)? {
            Ok(_) => {}
            Err(Refused::NotFound) => {
                return Err(Refusal::NoThread {
                    program: name,
                    thread: wanted.thread,
                });
            }
            Err(Refused::NodeDead) => return Err(Refusal::NodeDead { node: to.index() }),
            Err(Refused::NotReady) => return Err(not_ready()),
            Err(Refused::Exists) => return Err(Refusal::Replaced),
            Err(e) => return Err(Refusal::Refused { why: e.to_string() }),
        }
        let wait = Duration::from_millis(wanted.wait_ms).min(MAX_WAIT);
        loop {
            if self.is_over() {
                return Err(Refusal::Ended);
            }
            let now = self.page(word, word!(status))?;
            match now {
                status::LANDED => {
                    let interpreted = Interpreted {
                        instructions: self.page(word, word!(steps))?,
                        calls: self.page(word, word!(calls))?,
                    };
                    return Ok(moved(false, Some(interpreted)));
                }
                status::BACK => return Err(self.back(word)?),
                status::IDLE => match self.page(word, word!(outcome))? {
                    // To a node of its own ISA nothing has to be interpreted.
                    0 => return Ok(moved(false, None)),
                    _ => return Err(self.back(word)?),
                },
                _ => {}
            }
            if matches!(threads::look(&state, found), Look::Gone) {
                return Err(Refusal::Gone);
            }
            if gone() {
                return Err(Refusal::Withdrawn { taken: true });
            }
            if begin.elapsed() >= wait {
                return Err(Refusal::TimedOut {
                    program: name,
                    thread: wanted.thread,
                    ms: wait.as_millis() as u64,
                    // By init, which tries for a second or two.
                    taken: true,
                });
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn not_ready() -> Refusal {
    Refusal::Refused {
        why: "the program does not interpret its threads (dyad::emulation::enable)".into(),
    }
}
