//! Requests of the launcher to init while a system runs, and init's answers.
//!
//! Two pages of the CXL pool, one line of words each: the launcher alone writes the first, init alone
//! the second. There is one request at a time; all other programs ask the launcher.
//!
//! ```text
//!   launcher                                     init, on the node where it leads
//!   request line written, number last
//!   control word counted on, doorbells ─────────▶ told by its kernel (ASKED)
//!                                                 request line read; whole? new? carried out
//!   answer line looked at, with a limit  ◀─────── answer line written, number last
//! ```
//!
//! | line | word 0 | 1 | 2 | 3 | 4 |
//! |---|---|---|---|---|---|
//! | request | number, not 0 | what, program << 8, thread << 16 | old | new | check |
//! | answer | number of the request | status | value | fused ns | check |
//!
//! | what | is | old | new |
//! |---|---|---|---|
//! | 1 | [`Ask::Change`] | word | word |
//! | 2 | [`Ask::Emulate`] | 0 | the node's number plus one |
//! | 3 | [`Ask::Page`] | number of the word | 0 |
//! | 4 | [`Ask::Waiting`] | 0 | 0 |
//!
//! The check is a hash of the words before it: a line that is being written is no line yet. A line that is
//! whole and makes no sense is answered with an error.
//!
//! | who has died | then |
//! |---|---|
//! | the node where init leads | the next leader looks at the request line first: a request without an answer is carried out then, perhaps for the second time, which changes nothing the second time |
//! | the launcher | all machines end |

use crate::emulation::PAGE_WORDS;
use crate::ident::MAX_NODES;
use crate::service::program;
use crate::{Error, NodeId};

/// Pages in all.
pub const PAGES: u64 = 2;
/// Pages of requests, the first of the two.
pub const REQUEST_PAGES: u64 = 1;
/// Words of a line.
pub const WORDS: usize = 8;
/// Changes with the meaning of the words; part of the layout hash.
pub const LAYOUT: u64 = u64::from_le_bytes(*b"DYADASK3");

const PROGRAM_SHIFT: u32 = 8;
const THREAD_SHIFT: u32 = 16;
const CHANGE: u64 = 1;
const EMULATE: u64 = 2;
const PAGE: u64 = 3;
const WAITING: u64 = 4;

/// A line as it lies in memory.
pub type Line = [u64; WORDS];

/// A question of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Changes the request to a thread of a program for its next migration point from `old` to `new`, words
    /// of [`user::request`](crate::user::request). Value of the answer: the previous word; it has been
    /// changed if that is `old`.
    Change {
        /// Number of the program.
        program: u8,
        /// Number of the thread in it.
        thread: u16,
        /// The value that the word must have.
        old: u64,
        /// The value that the word gets.
        new: u64,
    },
    /// Moves a thread of a program wherever it is, interpreted until it can go on natively
    /// ([`process::EMULATE`](crate::service::process::EMULATE)). Value of the answer: 0, when that has
    /// been noted.
    Emulate {
        /// Number of the program.
        program: u8,
        /// Number of the thread in it.
        thread: u16,
        /// The requested node.
        node: NodeId,
    },
    /// Reads the progress of an emulation. Value of the answer: a word of the thread's
    /// [`Page`](crate::emulation::Page).
    Page {
        /// Number of the program.
        program: u8,
        /// Number of the thread in it.
        thread: u16,
        /// The number of the word, below [`PAGE_WORDS`].
        word: u8,
    },
    /// Reads what a thread waits for. Value of the answer: a word of [`waiting`](crate::user::waiting).
    Waiting {
        /// Number of the program.
        program: u8,
        /// Number of the thread in it.
        thread: u16,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the request, which distinguishes it from earlier ones; not 0.
    pub number: u64,
    /// The request itself.
    pub ask: Ask,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the request.
    pub number: u64,
    /// Value, or why not.
    pub result: crate::Result<u64>,
    /// Fused time at which it was carried out.
    pub at: u64,
}

/// The reasons why a line is no request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLine {
    /// The line is empty, or not completely written yet.
    Nothing,
    /// The line is complete but malformed. Contains the number of the request.
    Senseless(u64),
}

/// A hash of the first words of a line.
const fn check(words: [u64; 4]) -> u64 {
    let mut hash = LAYOUT;
    let mut i = 0;
    while i < words.len() {
        hash = (hash ^ words[i]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
        i += 1;
    }
    hash
}

const fn line(words: [u64; 4]) -> Line {
    let [a, b, c, d] = words;
    [a, b, c, d, check(words), 0, 0, 0]
}

/// The words of a line that is whole.
const fn whole(line: &Line) -> Option<[u64; 4]> {
    let [a, b, c, d, sum, rest @ ..] = *line;
    let words = [a, b, c, d];
    let unused = rest[0] | rest[1] | rest[2];
    if a != 0 && sum == check(words) && unused == 0 {
        Some(words)
    } else {
        None
    }
}

impl Request {
    /// The encoded line. Word 0 must be written last.
    pub const fn line(self) -> Line {
        let (kind, program, thread, old, new) = match self.ask {
            Ask::Change {
                program,
                thread,
                old,
                new,
            } => (CHANGE, program, thread, old, new),
            Ask::Emulate {
                program,
                thread,
                node,
            } => (EMULATE, program, thread, 0, node.index() as u64 + 1),
            Ask::Page {
                program,
                thread,
                word,
            } => (PAGE, program, thread, word as u64, 0),
            Ask::Waiting { program, thread } => (WAITING, program, thread, 0, 0),
        };
        let what = kind | (program as u64) << PROGRAM_SHIFT | (thread as u64) << THREAD_SHIFT;
        line([self.number, what, old, new])
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// [`BadLine`].
    pub const fn read(line: &Line) -> Result<Request, BadLine> {
        let Some([number, what, old, new]) = whole(line) else {
            return Err(BadLine::Nothing);
        };
        let program = what >> PROGRAM_SHIFT & 0xff;
        let thread = what >> THREAD_SHIFT;
        if program >= program::MAX || thread > u16::MAX as u64 {
            return Err(BadLine::Senseless(number));
        }
        let nodes = MAX_NODES as u64;
        let (program, thread) = (program as u8, thread as u16);
        let ask = match (what & 0xff, old, new) {
            (CHANGE, old, new) if old <= nodes && new <= nodes => Ask::Change {
                program,
                thread,
                old,
                new,
            },
            (EMULATE, 0, 1..) => match NodeId::new(new - 1) {
                Some(node) => Ask::Emulate {
                    program,
                    thread,
                    node,
                },
                None => return Err(BadLine::Senseless(number)),
            },
            (PAGE, word, 0) if word < PAGE_WORDS => Ask::Page {
                program,
                thread,
                word: word as u8,
            },
            (WAITING, 0, 0) => Ask::Waiting { program, thread },
            _ => return Err(BadLine::Senseless(number)),
        };
        Ok(Request { number, ask })
    }
}

impl Answer {
    /// The encoded line. Word 0 must be written last.
    pub const fn line(self) -> Line {
        let (status, value) = match self.result {
            Ok(value) => (0, value),
            Err(e) => (e.code(), 0),
        };
        line([self.number, status, value, self.at])
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// [`BadLine`].
    pub const fn read(line: &Line) -> Result<Answer, BadLine> {
        let Some([number, status, value, at]) = whole(line) else {
            return Err(BadLine::Nothing);
        };
        let result = match (status, Error::from_code(status)) {
            (0, _) => Ok(value),
            (_, Some(e)) => Err(e),
            (_, None) => return Err(BadLine::Senseless(number)),
        };
        Ok(Answer { number, result, at })
    }
}

const _: () = assert!(program::MAX <= 1 << (THREAD_SHIFT - PROGRAM_SHIFT));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        let nodes = MAX_NODES as u64;
        let parts = (1u64.., 0..program::MAX as u8, 0u16.., 0..=nodes, 0..=nodes);
        (parts, 0..4).prop_map(move |((number, program, thread, old, new), kind)| Request {
            number,
            ask: match kind {
                0 => Ask::Change {
                    program,
                    thread,
                    old,
                    new,
                },
                1 => Ask::Emulate {
                    program,
                    thread,
                    node: NodeId::new(old % nodes).unwrap(),
                },
                2 => Ask::Page {
                    program,
                    thread,
                    word: (old % PAGE_WORDS) as u8,
                },
                _ => Ask::Waiting { program, thread },
            },
        })
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let result = prop_oneof![
            any::<u64>().prop_map(Ok),
            (0..Error::ALL.len()).prop_map(|i| Err(Error::ALL[i])),
        ];
        (1u64.., result, any::<u64>()).prop_map(|(number, result, at)| Answer {
            number,
            result,
            at,
        })
    }

    proptest! {
        #[test]
        fn lines_are_read_as_they_were_written(r in requests(), a in answers()) {
            prop_assert_eq!(Request::read(&r.line()), Ok(r));
            prop_assert_eq!(Answer::read(&a.line()), Ok(a));
        }

        /// What one sees while a line is being written over another one, in any order of words, is the
        /// old one, the new one, or no line.
        #[test]
        fn half_a_line_is_none(old in requests(), new in requests(), which in any::<u8>()) {
            let (was, is) = (old.line(), new.line());
            let seen: Line =
                core::array::from_fn(|i| if which >> i & 1 == 0 { was[i] } else { is[i] });
            match Request::read(&seen) {
                Ok(r) => prop_assert!(r == old || r == new),
                Err(e) => prop_assert_eq!(e, BadLine::Nothing),
            }
        }

        #[test]
        fn damaged_lines_are_no_lines(r in requests(), at in 0..WORDS, with in 1u64..) {
            let mut damaged = r.line();
            damaged[at] ^= with;
            prop_assert_eq!(Request::read(&damaged), Err(BadLine::Nothing));
        }

        /// A line whose check is right may say anything.
        #[test]
        fn what_is_read_is_in_bounds(words in any::<[u64; 4]>()) {
            match Request::read(&line(words)) {
                Ok(r) => {
                    prop_assert_eq!(r.line(), line(words));
                    let program = match r.ask {
                        Ask::Change { program, old, new, .. } => {
                            prop_assert!(old <= MAX_NODES as u64 && new <= MAX_NODES as u64);
                            program
                        }
                        Ask::Emulate { program, .. } | Ask::Waiting { program, .. } => program,
                        Ask::Page { program, word, .. } => {
                            prop_assert!(u64::from(word) < PAGE_WORDS);
                            program
                        }
                    };
                    prop_assert!(u64::from(program) < program::MAX);
                }
                Err(BadLine::Senseless(number)) => prop_assert_eq!(number, words[0]),
                Err(BadLine::Nothing) => prop_assert_eq!(words[0], 0),
            }
        }
    }

    #[test]
    fn a_new_page_has_no_line() {
        assert_eq!(Request::read(&[0; WORDS]), Err(BadLine::Nothing));
        assert_eq!(Answer::read(&[0; WORDS]), Err(BadLine::Nothing));
    }

    #[test]
    fn what_makes_no_sense_is_told_from_what_is_not_there() {
        let senseless = |what, old, new| Request::read(&line([7, what, old, new]));
        for bad in [
            senseless(0, 0, 1),
            senseless(4, 0, 1),
            senseless(4, 1, 0),
            senseless(5, 0, 0),
            senseless(2, 1, 1),
            senseless(2, 0, 0),
            senseless(2, 0, 9),
            senseless(3, PAGE_WORDS, 0),
            senseless(3, 0, 1),
            senseless(1 | 32 << 8, 0, 1),
            senseless(1 | 1 << 32, 0, 1),
            senseless(1, 9, 1),
            senseless(1, 0, 9),
        ] {
            assert_eq!(bad, Err(BadLine::Senseless(7)));
        }
        let answer = Answer::read(&line([7, 9999, 0, 0]));
        assert_eq!(answer, Err(BadLine::Senseless(7)));
    }
}
