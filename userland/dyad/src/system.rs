//! The system that a program runs on.

use core::fmt;

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::peer::Counted;
use dyad_sys as sys;
use dyad_sys::{Isa, NodeId};

/// The ISA that the calling code runs on now.
pub fn isa() -> Isa {
    sys::isa()
}

/// The node that the calling code runs on now.
pub fn node() -> NodeId {
    // The executor knows where the tasks are. In a call that has crossed, they are on a node of another ISA.
    let known = match sys::thread::number() {
        Some(sys::thread::Number::FIRST) if !crate::plain::is_used() => {
            Some(crate::executor::here()).filter(|&here| isa_of(here) == Some(isa()))
        }
        _ => None,
    };
    known.unwrap_or_else(crate::executor::ask_where)
}

fn isa_of(node: NodeId) -> Option<Isa> {
    let system = &sys::info().ok()?.system;
    Isa::from_index(system.nodes[node.index()].isa.into())
}

/// The nodes and pools, in their present state.
///
/// # Errors
///
/// If the kernel's description is not that of this ABI version.
pub fn system() -> Result<System, sys::Error> {
    let info = sys::sys_info()?;
    let mut nodes = [None; MAX_NODES];
    for (id, (slot, node)) in
        NodeId::first(info.node_count as usize).zip(nodes.iter_mut().zip(&info.nodes))
    {
        *slot = Some(Node {
            id,
            isa: Isa::from_index(node.isa.into()).ok_or(sys::Error::Corrupt)?,
            cpus: node.cpus,
            live: node.live == 1,
            incarnation: node.incarnation,
            pool: Pool {
                owner: Some(id),
                start: node.pool_base,
                len: node.pool_size,
            },
        });
    }
    Ok(System {
        nodes,
        cxl: Pool {
            owner: None,
            start: info.cxl_base,
            len: info.cxl_size,
        },
    })
}

/// What the pages of a program have cost so far that runs over kernels which only exchange messages, as the node counts it
/// where this is asked. Over kernels that share memory all is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages about pages that this node has sent or received: of two nodes, all.
    pub messages: u64,
    /// Of these, those with the contents of a page.
    pub contents: u64,
    /// Pages of which this node has got a copy; 0 on the first node, which all pages begin at.
    pub replicas: u64,
    /// Faults of this node that needed another node.
    pub faults: u64,
    /// Messages about threads, waits and ranges of memory that this node has sent.
    pub others: u64,
}

impl Traffic {
    /// What this node has counted.
    ///
    /// # Errors
    ///
    /// If the program's peer does not answer.
    pub fn here() -> Result<Traffic, sys::Error> {
        Ok(Traffic {
            messages: sys::counted(Counted::PageMessages)? + sys::counted(Counted::Received)?,
            contents: sys::counted(Counted::Contents)? + sys::counted(Counted::Filled)?,
            replicas: sys::counted(Counted::Replicas)?,
            faults: sys::counted(Counted::Faults)?,
            others: sys::counted(Counted::OtherMessages)?,
        })
    }
}

/// What a process has of a node's memory that is one of those of a program over kernels which only exchange messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Frames of pages, also of those whose contents are on another node now.
    pub frames: u64,
    /// Page tables.
    pub tables: u64,
}

impl Footprint {
    /// That of the process on this node. Without such processes all is 0.
    ///
    /// # Errors
    ///
    /// If the program's peer does not answer.
    pub fn here() -> Result<Footprint, sys::Error> {
        Ok(Footprint {
            frames: sys::counted(Counted::Frames)?,
            tables: sys::counted(Counted::Tables)?,
        })
    }
}

/// When each step of the last move of a thread to this node was over, in nanoseconds of the fused clock; over kernels that share
/// memory all is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The thread had laid its frames out, and its peer had been asked.
    pub asked: u64,
    /// The other node had been told which pages come before the thread.
    pub listed: u64,
    /// Those pages were there.
    pub pages: u64,
    /// Its registers and its control block were sent.
    pub sent: u64,
    /// They had come.
    pub came: u64,
}

impl Steps {
    /// The steps of the last move to this node.
    ///
    /// # Errors
    ///
    /// If the program's peer does not answer.
    pub fn last() -> Result<Steps, sys::Error> {
        Ok(Steps {
            asked: sys::counted(Counted::MoveAsked)?,
            listed: sys::counted(Counted::MoveListed)?,
            pages: sys::counted(Counted::MovePages)?,
            sent: sys::counted(Counted::MoveSent)?,
            came: sys::counted(Counted::MoveCame)?,
        })
    }
}

/// A node of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's number.
    pub id: NodeId,
    /// The node's instruction set.
    pub isa: Isa,
    /// The number of CPUs.
    pub cpus: u32,
    /// Whether the node is live.
    pub live: bool,
    /// How often the node has joined: 1, and one more each time it has come back after a death.
    pub incarnation: u32,
    /// The node's local memory.
    pub pool: Pool,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}", self.id, self.isa)
    }
}

/// A pool of fused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The node that the pool is local to; `None` for the CXL pool.
    pub owner: Option<NodeId>,
    /// First physical address.
    pub start: u64,
    /// Size in bytes.
    pub len: u64,
}

impl Pool {
    /// Whether a physical address lies in the pool.
    pub const fn contains(&self, physical: u64) -> bool {
        physical >= self.start && physical - self.start < self.len
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(node) => write!(f, "node {node}"),
            None => f.pad("CXL"),
        }
    }
}

/// All nodes and pools.
#[derive(Clone, Copy, Debug)]
pub struct System {
    nodes: [Option<Node>; MAX_NODES],
    cxl: Pool,
}

impl System {
    /// The nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.nodes.iter().flatten().copied()
    }

    /// The node with this number.
    pub fn node(&self, id: NodeId) -> Option<Node> {
        self.nodes[id.index()]
    }

    /// The CXL pool.
    pub fn cxl(&self) -> Pool {
        self.cxl
    }

    /// The pool that contains a physical address.
    pub fn pool_of(&self, physical: u64) -> Option<Pool> {
        self.nodes()
            .map(|n| n.pool)
            .chain([self.cxl])
            .find(|p| p.contains(physical))
    }

    /// The node that a task on `here` moves to when it asks for `isa`: its own if that has the ISA, else the
    /// live one with the lowest number.
    pub fn nearest(&self, isa: Isa, here: NodeId) -> Option<NodeId> {
        let own = self.node(here).filter(|n| n.isa == isa);
        own.or_else(|| self.nodes().find(|n| n.live && n.isa == isa))
            .map(|n| n.id)
    }

    /// Another live node, for work that alternates with `home`: the first one of the other ISA, else the
    /// first one.
    pub fn partner(&self, home: NodeId) -> Option<NodeId> {
        let isa = self.node(home)?.isa.other();
        let other = || self.nodes().find(|n| n.live && n.id != home);
        self.nearest(isa, home).or_else(|| other().map(|n| n.id))
    }
}

/// As [`System::nearest`], without looking at more nodes than it takes.
///
/// # Errors
///
/// `NoIsa` if no live node has that ISA; those of [`system`].
pub(crate) fn nearest(isa: Isa, here: NodeId) -> Result<NodeId, sys::Error> {
    let system = &sys::info()?.system;
    let nodes = NodeId::first(system.node_count as usize).zip(&system.nodes);
    let mut lowest = None;
    for (id, _) in nodes.filter(|(_, n)| n.isa as usize == isa.index()) {
        if id == here {
            return Ok(here);
        }
        if lowest.is_none() && sys::is_live(id)? {
            lowest = Some(id);
        }
    }
    lowest.ok_or(sys::Error::NoIsa)
}
