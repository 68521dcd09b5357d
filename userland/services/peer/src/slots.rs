//! The slots of the process's threads, at the lines of this peer.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::peer::slot;
use dyad_abi::service::slot::ENDPOINT;
use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::{Error, NodeId};
use dyad_services::slots::{ANSWER, Lines, QUESTION, Slots};
use dyad_sys::cap::{Cap, Receive, Send, Until};

use crate::service::ORIGIN;

/// All slots.
pub static SLOTS: Slots<{ MAX_PROGRAM_THREADS as usize }> = Slots::new();

/// Nodes of whose death init has told, by bit.
static DEATHS: AtomicU64 = AtomicU64::new(0);

/// The lines of the peer on a node.
struct At(NodeId);

impl Lines for At {
    fn tell_actor(&self) -> Result<(), Error> {
        Cap::<Send>::at(slot::doorbell(self.0)).send()
    }

    fn wait(&self, n: u64) -> Result<(), Error> {
        Cap::<Receive>::at(ENDPOINT)
            .receive(n, Until::Never)
            .map(drop)
    }

    fn wake(&self, n: u64) {
        // It waits there, or will find the bit.
        let _ = Cap::<Send>::at(slot::waiter(n)).send();
    }
}

/// Asks the actor on behalf of thread `n`, and waits for the answer.
///
/// # Errors
///
/// As [`Slots::ask`].
pub fn ask(here: NodeId, n: u64, words: [u64; QUESTION]) -> Result<[u64; ANSWER], Error> {
    SLOTS.ask(&At(here), n, words)
}

/// Answers thread `n`, if it waits. For the actor.
pub fn answer(n: u64, words: [u64; ANSWER]) {
    // The lines of threads are those of this peer, wherever it is.
    SLOTS.answer(&At(ORIGIN), n, words);
}

/// A node has died: the actor here is told.
///
/// # Errors
///
/// As the kernel says.
pub fn died(here: NodeId, node: NodeId) -> Result<(), Error> {
    DEATHS.fetch_or(1 << node.index(), Ordering::AcqRel);
    At(here).tell_actor()
}

/// Nodes that have died, by bit.
pub fn deaths() -> u64 {
    DEATHS.load(Ordering::Acquire)
}

/// The group has ended: all threads that wait go on.
pub fn end(here: NodeId) {
    // An actor that cannot be told has ended with the group.
    let _ = SLOTS.end(&At(here));
}
