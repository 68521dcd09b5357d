//! For tests on the host: which machine the calling thread plays, and where it dies.

pub mod crash;

use core::cell::Cell;

use crate::node::Node;

std::thread_local! {
    static CURRENT: Cell<Option<&'static Node>> = const { Cell::new(None) };
}

/// From here on the calling thread plays a CPU of this node.
pub fn play(node: &'static Node) {
    CURRENT.set(Some(node));
}

/// The node the calling thread plays, if it plays one.
pub fn current_node() -> Option<&'static Node> {
    CURRENT.get()
}
