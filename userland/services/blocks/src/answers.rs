//! What programs may ask about the books ([`Question`]), in atomic words.
//!
//! The holder of the books stores the answers when it has changed the books, before it gives them back. A program that
//! asks loads one word. It needs no lock, so programs that ask cannot hold up the node whose faults need memory.
//!
//! A program may ask several questions, one after the other. The order of the stores makes the answers fit together:
//!
//! | step | order |
//! |---|---|
//! | store amounts, then numbers of events, then [`Question::Busy`] | each releases: a program that reads the end of an event finds its results |
//! | load an answer | acquires |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::memory::Question;
use dyad_abi::user::PAGE_SIZE;

use crate::Books;

const QUESTIONS: usize = Question::ALL.len();

/// Frames that nodes owned when the program began.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Frames of each node.
    pub nodes: [u64; MAX_NODES],
    /// Frames of the CXL pool, of all nodes.
    pub shared: u64,
}

/// The answers to all questions. All zeros: nothing has been stored.
#[derive(Debug)]
pub struct Answers([[AtomicU64; QUESTIONS]; MAX_NODES]);

impl Answers {
    /// No answers.
    pub const fn new() -> Answers {
        Answers([const { [const { AtomicU64::new(0) }; QUESTIONS] }; MAX_NODES])
    }

    /// Stores what the books say.
    pub fn store<const N: usize>(&self, books: &Books<N>, start: &Start) {
        for step in 0..=LAST_STEP {
            let questions = || Question::ALL.into_iter().filter(|&q| step_of(q) == step);
            for node in NodeId::first(MAX_NODES) {
                for question in questions() {
                    let answer = books.answer(start, question, node);
                    self.word(question, node).store(answer, Ordering::Release);
                }
            }
        }
    }

    /// The answer to a question about a node.
    pub fn load(&self, question: Question, node: NodeId) -> u64 {
        self.word(question, node).load(Ordering::Acquire)
    }

    fn word(&self, question: Question, node: NodeId) -> &AtomicU64 {
        &self.0[node.index()][question as usize]
    }
}

impl Default for Answers {
    fn default() -> Answers {
        Answers::new()
    }
}

/// The step of [`Answers::store`] that stores the answer to [`Question::Busy`].
const LAST_STEP: u32 = 2;

/// The step of [`Answers::store`] that stores the answer to a question.
const fn step_of(question: Question) -> u32 {
    match question {
        Question::Assigned | Question::Evicted | Question::Refused => 1,
        Question::Busy => LAST_STEP,
        _ => 0,
    }
}

impl<const N: usize> Books<N> {
    /// The answer to a question. Its cost does not depend on the number of blocks.
    fn answer(&self, start: &Start, question: Question, node: NodeId) -> u64 {
        let n = node.index();
        let (counts, holding) = (&self.counts[n], &self.holdings[n]);
        match question {
            Question::BlockSize => self.book.block_frames() * PAGE_SIZE,
            Question::Blocks => self.book.blocks().len() as u64,
            Question::Free => self.book.count_free(),
            Question::Owned => self.book.count_owned(node),
            Question::Frames => holding.frames(),
            Question::AtStart => start.nodes[n],
            Question::Open => holding.open(),
            Question::SharedAtStart => start.shared,
            Question::Requests => counts.requests,
            Question::Assigned => counts.assigned,
            Question::Evicted => counts.evicted,
            Question::Moved => counts.moved,
            Question::Refused => counts.refused,
            Question::Busy => self.is_busy().into(),
            Question::Online => counts.online.instructions,
            Question::Offline => counts.offline.instructions,
            Question::Again => counts.again.instructions,
            Question::OnlineTime => counts.online.ns,
            Question::OfflineTime => counts.offline.ns,
            Question::AgainTime => counts.again.ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are those of the books when they were stored, while another thread has the books and changes them.
    #[test]
    fn answers_need_no_books() {
        let node = |n| NodeId::new(n).unwrap();
        let mut books = Books::<16>::new();
        books.book.set_block(8192);
        books.book.add_pool(1, 0, 5).unwrap();
        let start = Start {
            nodes: core::array::from_fn(|n| n as u64 * 100),
            shared: 7,
        };
        let answers = Answers::new();
        answers.store(&books, &start);
        let held = &mut books;
        let block = held.book.blocks().next().unwrap();
        held.book.assign(block, node(1)).unwrap();
        held.counts[1].assigned = 1;
        let seen = |question| answers.load(question, node(1));
        assert_eq!(
            (seen(Question::Free), seen(Question::Owned)),
            (5, 0),
            "not stored yet"
        );
        answers.store(held, &start);
        let stored = [
            (Question::BlockSize, 32 << 20),
            (Question::Blocks, 5),
            (Question::Free, 4),
            (Question::Owned, 1),
            (Question::AtStart, 100),
            (Question::SharedAtStart, 7),
            (Question::Assigned, 1),
            (Question::Busy, 0),
        ];
        for (question, answer) in stored {
            assert_eq!(seen(question), answer, "{question:?}");
        }
        assert_eq!(answers.load(Question::Owned, node(0)), 0);
    }

    /// A program that waits until nothing is taken, or until a block has been taken, finds what has become of it.
    #[test]
    fn results_are_stored_before_the_end_of_an_event() {
        for question in Question::ALL {
            let is_end = matches!(
                question,
                Question::Busy | Question::Evicted | Question::Assigned | Question::Refused
            );
            assert_eq!(step_of(question) > step_of(Question::Moved), is_end);
            assert!(question == Question::Busy || step_of(question) < LAST_STEP);
        }
    }
}
