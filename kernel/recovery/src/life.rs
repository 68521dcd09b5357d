//! Nodes that die, and nodes that are slow.
//!
//! No node decides by itself that another one is dead: the launcher kills and reaps the machine,
//! then writes DEAD and rings the others. The live node with the lowest number recovers
//! (the [crate]):
//!
//! ```text
//! DEAD ──claim──▶ RECOVERING ──(rows, counts, threads)──▶ VACANT        a new machine may join now
//! LIVE ◀──heart beats again── SUSPECT ◀──no heartbeat for 2 s── LIVE
//! ```
//!
//! SUSPECT tells others, by `NodeState`, who keeps frames from being reused. It changes nothing else:
//! a suspect node counts as before.
//!
//! Each node tells the threads that have attached to the reserved interrupts
//! [`NODE_DIED`] and [`NODE_JOINED`]
//! there what it has noticed; a death once all is recovered, so that what has been the dead node's
//! can be used.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::NodeId;
use dyad_abi::boot::BootMode;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::service::{NODE_DIED, NODE_JOINED};
use dyad_shm::superblock::NodeState;
use spin::Mutex;

use crate::{Pace, Recovery};
use dyad_core::run_loop;
use dyad_core::run_loop::shutdown;
use dyad_core::sched::timer::TICK_NS;
use dyad_machine::cpu::{CpuLocal, FIRST_CPU};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, console, error, inbox, warn};
use dyad_object::node::Node;

/// How long a node may be without a heartbeat before others suspect it. A live node beats every 100 ms.
pub const SUSPECT_NS: u64 = 2_000_000_000;
/// Pause before the next turn, in which threads of this CPU run.
const PAUSE_NS: u64 = 20_000;

/// What a node knows about the life of other nodes, and the recovery that it carries out. Private to the
/// node. Its CPUs share it; a CPU that does not get a lock does something else.
#[derive(Debug)]
pub struct Life {
    watch: Mutex<Watch>,
    recovery: Mutex<Option<Recovery>>,
}

#[derive(Debug)]
struct Watch {
    nodes: [NodeSnapshot; MAX_NODES],
}

#[derive(Clone, Copy, Debug)]
struct NodeSnapshot {
    heartbeat: u64,
    /// Local time at which the heartbeat was last seen to move.
    moved: u64,
    /// The incarnation that is known to have joined; 0 if none.
    joined: u32,
}

impl Watch {
    const fn new() -> Watch {
        Watch {
            nodes: [NodeSnapshot {
                heartbeat: 0,
                moved: 0,
                joined: 0,
            }; MAX_NODES],
        }
    }
}

impl Default for Life {
    fn default() -> Life {
        Life::new()
    }
}

impl Life {
    /// The state of a node that has not checked others yet.
    pub const fn new() -> Life {
        Life {
            watch: Mutex::new(Watch::new()),
            recovery: Mutex::new(None),
        }
    }

    /// Looks at the life of other nodes; recovers dead ones if that is this node's job. A bounded
    /// piece of it, with interrupts taken before and after.
    pub fn look<P: Platform>(&self, cx: &KernelCtx) {
        self.watch::<P>(cx);
        let Some(mut state) = self.recovery.try_lock() else {
            return;
        };
        if state.is_some() {
            // What this turn has done so far is a stretch of its own.
            P::breathe();
        }
        let pace = crate::step::<P>(cx, &mut state);
        if pace != Pace::Idle {
            P::breathe();
        }
        match pace {
            Pace::Idle => return,
            Pace::Soon | Pace::Later => {}
            Pace::Done(dead) => {
                nobody_left::<P>(cx, dead);
                for n in cx.node.others() {
                    inbox::notify::<P>(n, FIRST_CPU);
                }
                drop(state);
                self.watch::<P>(cx);
                return;
            }
        }
        // The next tick comes soon.
        let now = clock::now::<P>().0;
        let last = now.wrapping_add(PAUSE_NS).wrapping_sub(TICK_NS);
        if last < now {
            cx.local.last_tick.set(last);
        }
    }

    /// Does one piece of the pending recovery, without checking the life of other nodes.
    #[cfg(any(test, feature = "host"))]
    pub fn step<P: Platform>(&self, cx: &KernelCtx) -> Pace {
        crate::step::<P>(cx, &mut self.recovery.lock())
    }

    /// Resets the state to that of [`new`](Life::new), for tests that restore the node.
    #[cfg(any(test, feature = "host"))]
    pub fn forget(&self) {
        *self.watch.lock() = Watch::new();
        *self.recovery.lock() = None;
    }

    /// Whether this node is recovering another one.
    #[cfg(any(test, feature = "host"))]
    pub fn recovers(&self) -> bool {
        self.recovery.lock().is_some()
    }

    /// Compares the node table with what this node knew: which nodes are silent, which have joined, which are
    /// gone. Skipped if another CPU of the node does it: that CPU reads the same words.
    fn watch<P: Platform>(&self, cx: &KernelCtx) {
        let Some(mut watch) = self.watch.try_lock() else {
            return;
        };
        let node = cx.node;
        let now = P::clock_ns();
        // A node that suspects this one is wrong.
        if node.word_of(node.id()).state == NodeState::Suspect {
            let _ = cx.epochs().trust(node.id());
        }
        let (mut died, mut came) = (false, false);
        for n in node.others() {
            let seen = &mut watch.nodes[n.index()];
            let word = node.word_of(n);
            match word.state {
                NodeState::Live | NodeState::Suspect => {
                    if seen.joined != word.incarnation {
                        died |= seen.joined != 0;
                        came = true;
                        seen.joined = word.incarnation;
                        seen.moved = now;
                    }
                    suspect::<P>(cx, n, word.state, seen, now);
                }
                NodeState::Vacant | NodeState::Joining if seen.joined != 0 => {
                    died = true;
                    seen.joined = 0;
                }
                _ => {}
            }
        }
        drop(watch);
        for (number, _) in [(NODE_DIED, died), (NODE_JOINED, came)]
            .into_iter()
            .filter(|e| e.1)
        {
            run_loop::deliver::<P>(cx, number as usize);
        }
    }
}

/// Ends the run if the dead node was to start the programs and did not get to start any on this node: no
/// other node would start them.
fn nobody_left<P: Platform>(cx: &KernelCtx, dead: NodeId) {
    let node = cx.node;
    // A node that has come back waits for its programs.
    let waits = node.params.mode == BootMode::App && node.incarnation() == 1;
    let started = |root: &AtomicU64| root.load(Ordering::Acquire) != 0;
    if dead.index() != 0 || !waits || node.roots.iter().any(started) {
        return;
    }
    let why = format_args!("node {dead} has died while it was starting the system");
    error!(P, "{why}; ending the run");
    console::check::<P>(dyad_abi::record::name::INIT, false, why);
    shutdown::shut_down::<P>(node, EXIT_FAILED);
}

/// Suspects a node, or trusts it again.
fn suspect<P: Platform>(
    cx: &KernelCtx,
    n: NodeId,
    state: NodeState,
    seen: &mut NodeSnapshot,
    now: u64,
) {
    let beat = cx.words().read(&cx.node.sb.node(n).heartbeat);
    if beat != seen.heartbeat {
        (seen.heartbeat, seen.moved) = (beat, now);
    }
    let silent = now.wrapping_sub(seen.moved);
    // Another node may be faster, with either.
    if state == NodeState::Live && silent > SUSPECT_NS {
        warn!(P, "no heartbeat of node {n} for {} ms", silent / 1_000_000);
        let _ = cx.epochs().suspect(n);
    } else if state == NodeState::Suspect && silent < TICK_NS {
        let _ = cx.epochs().trust(n);
    }
}

/// What the run loop of a node's first CPU does for other nodes in each turn: see
/// [`CpuLocal::look_after_others`](dyad_machine::cpu::CpuLocal).
pub fn look_after_others<P: Platform>(node: &'static Node, local: &'static CpuLocal) {
    static LIFE: Life = Life::new();
    LIFE.look::<P>(&KernelCtx { node, local });
}
