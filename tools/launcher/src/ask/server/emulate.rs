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
use std::time::Duration;

use dyad_abi::Error as Refused;
use dyad_abi::emulation::{Page, refused, status};

use super::super::channel::Word;
use super::super::threads::{self, Look};
use super::super::{Interpreted, MAX_WAIT, Moved, Refusal, Wanted};
use super::{LOOK, Subject};

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
        let state = self.channel.state();
        let begun = self.begin(&state, wanted)?;
        let (word, found, to) = (begun.word, begun.found, begun.to);
        let moved = |interpreted| {
            let now = match threads::look(&state, found) {
                Look::Seen(now) => now,
                _ => begun.first,
            };
            begun.moved(now, interpreted)
        };
        if begun.was_there() {
            return Ok(moved(None));
        }
        match self.channel.emulate(word, to)? {
            Ok(_) => {}
            Err(Refused::NotReady) => return Err(not_ready()),
            Err(Refused::Exists) => return Err(Refusal::Replaced),
            Err(e) => return Err(begun.refused(e)),
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
                    return Ok(moved(Some(interpreted)));
                }
                status::BACK => return Err(self.back(word)?),
                status::IDLE => match self.page(word, word!(outcome))? {
                    // To a node of its own ISA nothing has to be interpreted.
                    0 => return Ok(moved(None)),
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
            if begun.since.elapsed() >= wait {
                // Taken by init, which tries for a second or two.
                return Err(begun.timed_out(wait, true));
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
