//! The reasons why an operation is refused.

use core::fmt;

use dyad_abi::NodeId;
use dyad_shm::frame::Epoch;
use dyad_shm::superblock::NodeState;

use crate::words::Publication;

/// The reasons why an operation on nodes or rounds was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The words do not lie in shared memory.
    NoMemory,
    /// The epoch word has reached its end, or is damaged.
    EpochsExhausted,
    /// The state of the node does not allow it.
    State(NodeState),
    /// The node's state word is damaged.
    Damaged,
    /// Another node was faster; the caller may try again.
    Contended,
    /// A CPU of this live node, or another node, recovers it already.
    Claimed(NodeId),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoMemory => f.write_str("the protocol's words do not lie in shared memory"),
            Error::EpochsExhausted => f.write_str("the epoch word has reached its end"),
            Error::State(s) => write!(f, "the node is {}", s.name()),
            Error::Damaged => f.write_str("the node's state word is damaged"),
            Error::Contended => f.write_str("another node was faster"),
            Error::Claimed(n) => write!(f, "node {n} is recovering already"),
        }
    }
}

impl core::error::Error for Error {}

/// A node that keeps something from being reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotQuiesced {
    /// The node.
    pub node: NodeId,
    /// The epoch and the awake CPUs that the node has published.
    pub published: Publication,
    /// The epoch that the node has to exceed.
    pub stamp: Epoch,
}

impl fmt::Display for NotQuiesced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {} has published {}, which does not exceed {}",
            self.node,
            self.published.epoch().get(),
            self.stamp.get()
        )
    }
}

impl core::error::Error for NotQuiesced {}
