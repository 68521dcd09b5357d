//! Walks over the frames of all pools, a bounded number of records at a time.
//!
//! A walk does not show the state at one moment: frames change hands while it is in progress. It finds
//! everything that existed before it began and still exists.

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_retype::{FrameType, FrameWord};
use dyad_shm::pool::MAX_POOLS;
use dyad_shm::{FrameRef, PhysAddr, PoolId};

use dyad_abi::user::PAGE_SIZE;
use dyad_object::node::Node;
use dyad_object::tables::Layout;

/// Position of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pool: usize,
    index: u64,
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A block: its head, and the head's word.
    Block(FrameRef, FrameWord),
    /// The record of this frame is damaged.
    Damaged(FrameRef),
    /// No block yet: all steps are used up.
    Working,
    /// The end.
    End,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor::START
    }
}

impl Cursor {
    /// The position before the first frame.
    pub const START: Cursor = Cursor { pool: 0, index: 0 };

    /// The next block that is used or being changed; unused blocks are passed over. Each record that is read
    /// takes one of `steps`.
    pub fn next(&mut self, node: &Node, steps: &mut u32) -> Next {
        let used = |word: &FrameWord| {
            !matches!(
                word.ty,
                FrameType::Untyped(_) | FrameType::Tail(_) | FrameType::Retired
            )
        };
        self.next_that(node, steps, used)
    }

    /// The next block, used or not. If a block has been changed during the walk, a tail is reported as the
    /// head of the remainder.
    pub fn next_head(&mut self, node: &Node, steps: &mut u32) -> Next {
        self.next_that(node, steps, |_| true)
    }

    /// The next block for which `wanted` holds of the head's word. Each examined record takes one of `steps`.
    pub fn next_that(
        &mut self,
        node: &Node,
        steps: &mut u32,
        wanted: impl Fn(&FrameWord) -> bool,
    ) -> Next {
        while self.pool < MAX_POOLS {
            if *steps == 0 {
                return Next::Working;
            }
            if let Some(found) = self.next_in_pool(node, steps, &wanted) {
                return found;
            }
            *steps = steps.saturating_sub(1);
            self.pool += 1;
            self.index = 0;
        }
        Next::End
    }

    /// The next such block of the pool that the walk is in; `None` at its end.
    fn next_in_pool(
        &mut self,
        node: &Node,
        steps: &mut u32,
        wanted: &impl Fn(&FrameWord) -> bool,
    ) -> Option<Next> {
        let pool = match NodeId::new(self.pool as u64) {
            Some(n) if n.index() < node.params.node_count => PoolId::Local(n),
            Some(_) => return None,
            None => PoolId::Cxl,
        };
        let usable = Layout::of(&node.params, pool).usable;
        self.index = self.index.max(usable.start);
        while self.index < usable.end {
            if *steps == 0 {
                return Some(Next::Working);
            }
            *steps -= 1;
            let frame = FrameRef::of(PhysAddr(pool.base().0 + self.index * PAGE_SIZE))?;
            let Ok((word, _)) = node.tables.frames.read(frame) else {
                self.index += 1;
                return Some(Next::Damaged(frame));
            };
            self.index += match word.ty {
                // A frame that may be used is not RESERVED, once its pool has been formatted.
                FrameType::Reserved => return None,
                FrameType::Untyped(order) | FrameType::Tail(order) | FrameType::User(order) => {
                    order.frames()
                }
                FrameType::Retyping(_)
                | FrameType::Frozen(_)
                | FrameType::Kernel(_)
                | FrameType::Retired => 1,
            };
            if wanted(&word) {
                return Some(Next::Block(frame, word));
            }
        }
        None
    }
}

const _: () = assert!(MAX_POOLS == MAX_NODES + 1);
