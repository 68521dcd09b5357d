//! What a node is told, what its peer has to do, and why something is refused.

use dyad_abi::NodeId;

use crate::ids::{Access, Incarnation, Page, Range, Right, ThreadNo, Time};
use crate::wire::{Cause, Message, WireError};

/// What a node is told. The types of the fields say what they are.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A thread of this node lacks a right. `pc` is the address of its instruction.
    Fault {
        thread: ThreadNo,
        page: Page,
        want: Access,
        pc: u64,
    },
    /// A message has come.
    Received { from: NodeId, message: Message },
    /// The time that an [`Action::Defer`] named has come.
    Expired { page: Page },
    /// A ring has room again.
    Room { to: NodeId },
    /// At the origin: pages of this range may be used.
    Map { range: Range },
    /// At the origin: the pages of a range that was mapped are not used any more.
    Unmap { range: Range },
    /// A node has died, and all that it had sent has been received.
    Down { node: NodeId },
    /// At the origin: a node has joined again.
    Up {
        node: NodeId,
        incarnation: Incarnation,
    },
}

/// What a peer has to do. The actions of a step are executed in their order.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Give the page's leaf this right. The leaf is there.
    Protect { page: Page, right: Right },
    /// Wait until no CPU of this node has a translation that is wider than the leaves.
    Quiesce { range: Range },
    /// Copy the page's frame into the ring to a node: the next action sends the message that it belongs to.
    CopyOut { page: Page, to: NodeId },
    /// Send a message.
    Send { to: NodeId, message: Message },
    /// Fill the page's frame. The frame was set aside when the page was asked for.
    Fill { page: Page, source: Source },
    /// Make a leaf with this right for the page's frame.
    Map { page: Page, right: Right },
    /// Let threads of this node go on.
    Wake { threads: u64, outcome: Outcome },
    /// Tell [`Event::Expired`] at this time.
    Defer { page: Page, until: Time },
    /// Remove all leaves of a range.
    Unmap { range: Range },
    /// Give back all frames of a range.
    Free { range: Range },
    /// The range that was to be unmapped is on no node any more.
    Unmapped { range: Range },
    /// End the group: its origin has died, or the outbox has run over.
    End,
}

/// What fills a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Zeros.
    Zero,
    /// The contents behind the message of this step.
    Message,
}

/// What a thread that waited is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Execute the instruction again. If the right is too weak for this thread, it faults again.
    Retry,
    /// The page is not there.
    Refused(Cause),
    /// The group has ended.
    Ended,
}

/// The outside of a node.
pub trait Port {
    /// Whether the ring to a node has room for one more message, beside those that this step has sent.
    fn has_room(&self, to: NodeId) -> bool;
    /// Those of these threads, by bit, that have been woken and have not run since.
    fn not_resumed(&self, threads: u64) -> u64;
    /// Takes down an action, or executes it.
    fn act(&mut self, action: Action);
}

/// Why a message or a call is refused. It is counted, and nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The bytes are no message.
    Wire(WireError),
    /// There is no such node, or it is dead, or it is this node.
    Sender,
    /// This sender may not send messages of this kind to this node.
    Role,
    /// It is of another life of the node, or about one.
    Incarnation,
    /// A request that is not newer than an earlier one, or a grant or refusal of another request.
    Stale,
    /// The answer belongs to no order that is out, or was given already.
    NotAwaited,
    /// The order comes while another order of the page waits.
    SecondOrder,
    /// The grant is for contents that this node does not have.
    NoContents,
    /// The range is no region, overlaps one, or is being dropped already.
    Region,
    /// There is no room for another region.
    Full,
    /// The group has ended.
    Ended,
    /// The message is left in its ring (a weakened rule).
    Blocked,
}

impl Refusal {
    /// Number of reasons.
    pub const COUNT: usize = 12;

    /// Index into arrays by reason.
    pub const fn index(self) -> usize {
        match self {
            Refusal::Wire(_) => 0,
            Refusal::Sender => 1,
            Refusal::Role => 2,
            Refusal::Incarnation => 3,
            Refusal::Stale => 4,
            Refusal::NotAwaited => 5,
            Refusal::SecondOrder => 6,
            Refusal::NoContents => 7,
            Refusal::Region => 8,
            Refusal::Full => 9,
            Refusal::Ended => 10,
            Refusal::Blocked => 11,
        }
    }
}
