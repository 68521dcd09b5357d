//! How a node takes its place in the system: superblock, handshake, clock, LIVE.
//!
//! ```text
//! superblock:  EMPTY ──CAS, one winner──▶ FORMATTING(n) ──▶ READY
//! node:        VACANT ──CAS──▶ JOINING ──(rings, CPUs, clock)──▶ LIVE
//! ```
//!
//! Any node may be first. The others wait, bounded, for READY and then compare magic, ABI
//! version, layout hash and shape with their own; any difference and they refuse to join, saying
//! both values. A node that comes back after its death joins with the next incarnation.

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::{ABI_VERSION, CpuId, NodeId};
use dyad_shm::PoolId;
use dyad_shm::superblock::{MAGIC, NodeState, NodeWord, activity, format};

use dyad_coherence::GlobalMem;
use dyad_core::run_loop::barrier;
use dyad_machine::clock::{self, FusedTime};
use dyad_machine::cpu::FIRST_CPU;
use dyad_machine::{Platform, fused, inbox, info};
use dyad_object::node::Node;
use dyad_object::tables::Layout;

/// The reasons why a node could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The formatting node did not finish in time.
    FormatTimeout {
        /// Value of the format word.
        word: u64,
    },
    /// A field of the superblock is not what this kernel has.
    Mismatch {
        /// The value that differs.
        what: &'static str,
        /// The value in the superblock.
        theirs: u64,
        /// The value in this kernel.
        ours: u64,
    },
    /// The node's place is taken.
    Taken {
        /// State found there.
        state: NodeState,
    },
    /// No node answered the clock exchange in time.
    ClockTimeout,
    /// A pool is too small for its tables.
    PoolTooSmall,
    /// The epochs are used up.
    EpochsExhausted,
    /// The system is shutting down in good order, with this exit code.
    Ended {
        /// The code.
        code: u32,
    },
    /// Not every node came up in time.
    NodesMissing {
        /// Bit set of those that did not.
        missing: u8,
    },
}

impl core::fmt::Display for JoinError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            JoinError::FormatTimeout { word } => {
                write!(
                    f,
                    "the superblock was not formatted in time (format word {word:#x})"
                )
            }
            JoinError::Mismatch { what, theirs, ours } => write!(
                f,
                "{what} mismatch: the superblock has {theirs:#018x}, this kernel has {ours:#018x}; \
                 refusing to join"
            ),
            JoinError::Taken { state } => {
                write!(
                    f,
                    "this node's place is taken: its state is {}",
                    state.name()
                )
            }
            JoinError::PoolTooSmall => f.write_str("a pool is too small for its frame table"),
            JoinError::EpochsExhausted => f.write_str("the epochs of reclamation are used up"),
            JoinError::ClockTimeout => f.write_str("no node answered the clock exchange in time"),
            JoinError::Ended { .. } => f.write_str("the system has come to its end"),
            JoinError::NodesMissing { missing } => {
                write!(f, "nodes did not come up in time (bit set {missing:#b})")
            }
        }
    }
}

fn shape(node: &Node) -> u64 {
    let isas = node
        .params
        .node_isas()
        .iter()
        .enumerate()
        .fold(0, |set, (i, isa)| set | (*isa as u64) << i);
    node.params.node_count as u64 | (node.params.cpus as u64) << 8 | isas << 16
}

/// This node's layout hash (with the test option's change applied).
pub fn layout_hash(node: &Node) -> u64 {
    dyad_core::LAYOUT_HASH ^ node.params.test_layout_xor
}

/// Formats the superblock if no node has, or checks its contents.
///
/// # Errors
///
/// [`JoinError::FormatTimeout`], [`JoinError::Mismatch`].
pub fn superblock<P: Platform>(node: &Node) -> Result<bool, JoinError> {
    let sb = node.sb;
    let claim = format::FORMATTING | (node.id().index() as u64) << 8;
    let words = node.words;
    if words.exchange(&sb.format, format::EMPTY, claim) {
        // No other node changes anything on these lines before all of it is there.
        words.write(&sb.magic, MAGIC);
        words.write(&sb.abi_version, ABI_VERSION as u64);
        words.write(&sb.layout_hash, layout_hash(node));
        words.write(&sb.shape, shape(node));
        words.write(&sb.epoch, 1);
        words.write(&sb.coherence, !node.params.coherent as u64);
        format_pool(node, PoolId::Cxl)?;
        clock::set(P::clock_ns(), FusedTime(0));
        words.write(&sb.clock_owner, node.id().index() as u64 + 1);
        words.write(&sb.format, format::READY);
        info!(
            P,
            "formatted the superblock: {} nodes, layout hash {:#018x}",
            node.params.node_count,
            layout_hash(node)
        );
        return Ok(true);
    }
    let limit = node.boot_limit();
    if !clock::wait_long_until::<P>(limit, || words.read(&sb.format) == format::READY) {
        return Err(JoinError::FormatTimeout {
            word: words.read(&sb.format),
        });
    }
    for (what, theirs, ours) in [
        ("magic number", &sb.magic, MAGIC),
        ("ABI version", &sb.abi_version, ABI_VERSION as u64),
        ("layout hash", &sb.layout_hash, layout_hash(node)),
        ("system shape", &sb.shape, shape(node)),
        (
            "coherence mode",
            &sb.coherence,
            !node.params.coherent as u64,
        ),
    ] {
        let theirs = words.read(theirs);
        if theirs != ours {
            return Err(JoinError::Mismatch { what, theirs, ours });
        }
    }
    Ok(false)
}

/// Writes the frame records of a pool, unless an earlier incarnation has: its frames may be in use.
fn format_pool(node: &Node, pool: PoolId) -> Result<(), JoinError> {
    let words = node.words;
    let e = &node.sb.pools[pool.index()];
    if words.read(&e.formatted) != 0 {
        return Ok(());
    }
    let layout = Layout::of(&node.params, pool);
    node.tables
        .format(&node.params, pool)
        .map_err(|_| JoinError::PoolTooSmall)?;
    words.write(&e.base, pool.base().0);
    words.write(&e.size, node.map.size(pool));
    words.write(&e.frame_table, layout.records.0);
    words.write(&e.first_frame, layout.usable.start);
    words.write(&e.end_frame, layout.usable.end);
    words.write(&e.formatted, 1);
    Ok(())
}

/// Publishes this ISA's kernel-half root entries, or checks that they are what another node of
/// the ISA has published: user roots are shared by all nodes of an ISA, so their kernel halves
/// must be equal.
///
/// # Errors
///
/// [`JoinError::Mismatch`].
pub fn roots<P: Platform>(node: &Node) -> Result<(), JoinError> {
    let r = &node.sb.roots[P::ISA.index()];
    let words = node.words;
    let ours = P::root_entries();
    let image = P::image_id().max(2);
    // 1 in the image word: being written. Writers of one ISA write the same values.
    if words.exchange(&r.image, 0, 1) {
        for (e, v) in r.entries.iter().zip(ours) {
            words.write(e, v);
        }
        words.write(&r.image, image);
        return Ok(());
    }
    clock::wait_until::<P>(node.boot_limit(), || words.read(&r.image) != 1);
    let theirs = words.read(&r.image);
    if theirs != image {
        return Err(JoinError::Mismatch {
            what: "kernel image",
            theirs,
            ours: image,
        });
    }
    for (e, v) in r.entries.iter().zip(ours) {
        let theirs = words.read(e);
        if theirs != v {
            return Err(JoinError::Mismatch {
                what: "kernel root entry",
                theirs,
                ours: v,
            });
        }
    }
    Ok(())
}

/// [`JoinError::Ended`] once the shutdown word is set.
fn ended(node: &Node) -> Option<JoinError> {
    let code = node.words.read(&node.sb.shutdown).checked_sub(1)?;
    Some(JoinError::Ended { code: code as u32 })
}

/// Takes this node's place in the node table: VACANT to JOINING with the next incarnation.
///
/// # Errors
///
/// [`JoinError::Taken`] if it does not become VACANT in time.
pub fn claim<P: Platform>(node: &Node, doorbell: u64) -> Result<u32, JoinError> {
    let (e, words) = (node.entry(), node.words);
    let mut claimed = None;
    clock::wait_until::<P>(node.boot_limit(), || {
        let now = node.word_of(node.id());
        if now.state != NodeState::Vacant {
            // The node that would have to free the place may have left.
            return ended(node).is_some();
        }
        let next = NodeWord {
            state: NodeState::Joining,
            incarnation: now.incarnation + 1,
        };
        if words.exchange(&e.state, now.bits(), next.bits()) {
            claimed = Some(next.incarnation);
        }
        claimed.is_some()
    });
    let incarnation = claimed.ok_or_else(|| {
        ended(node).unwrap_or(JoinError::Taken {
            state: node.word_of(node.id()).state,
        })
    })?;
    // What an older incarnation's CPUs were doing is not what this one's are: no CPU may take them
    // for started, nor send them anything before they are.
    for cpu in CpuId::first(MAX_CPUS) {
        let c = node.sb.cpu(node.id(), cpu);
        words.write(&c.activity, activity::OFFLINE);
        words.replace(&c.pending, 0);
    }
    // Others change the state on this line: no word of it is written by a write-back.
    words.replace(&e.kind, P::ISA as u64 | (node.params.cpus as u64) << 8);
    words.replace(&e.image, P::image_id());
    words.replace(&e.doorbell, doorbell + 1);
    format_pool(node, PoolId::Local(node.id()))?;
    node.set_incarnation(incarnation);
    Ok(incarnation)
}

/// Declares this node LIVE; everything it shares has been set up before.
pub fn live(node: &Node) {
    let word = NodeWord {
        state: NodeState::Live,
        incarnation: node.incarnation(),
    };
    node.words.replace(&node.entry().state, word.bits());
    node.words.fence();
}

/// Waits until every node has come up (or has already gone again), answering clock exchanges
/// meanwhile.
///
/// # Errors
///
/// [`JoinError::NodesMissing`].
pub fn wait_for_all<P: Platform>(node: &Node) -> Result<(), JoinError> {
    // A node that has been there before has died since; no node waits for its return.
    let missing = || {
        node.all()
            .filter(|&n| {
                let word = node.word_of(n);
                match word.state {
                    NodeState::Vacant => word.incarnation == 0,
                    state => state == NodeState::Joining,
                }
            })
            .fold(0u8, |set, n| set | 1 << n.index())
    };
    for n in node.others() {
        inbox::notify::<P>(n, FIRST_CPU);
    }
    let all = clock::wait_until::<P>(node.boot_limit(), || {
        barrier::while_waiting::<P>(node);
        missing() == 0
    });
    if all {
        Ok(())
    } else {
        Err(JoinError::NodesMissing { missing: missing() })
    }
}

/// The duration of an exchange that cannot be improved; a few more are made all the same.
const GOOD_TRIP_NS: u64 = 3_000;
const FEW: u64 = 8;
/// When to accept the best exchange so far. On a busy host most exchanges take a time slice, until both CPUs
/// happen to run at once.
const ENOUGH_NS: u64 = 1_000_000_000;

/// Whether a node answers clock exchanges, or will.
fn can_answer(node: &Node, n: NodeId) -> bool {
    let word = node.word_of(n);
    match word.state {
        NodeState::Live | NodeState::Suspect | NodeState::Joining => true,
        // It has formatted but not joined yet; one that has died is not coming back for this.
        NodeState::Vacant => word.incarnation == 0,
        _ => false,
    }
}

/// The node to ask for the time: the owner of the clock, else any live node.
fn whom_to_ask(node: &Node) -> Option<NodeId> {
    NodeId::new(node.words.read(&node.sb.clock_owner).wrapping_sub(1))
        .filter(|&n| n != node.id() && can_answer(node, n))
        .or_else(|| node.others().find(|&n| node.is_live(n)))
}

/// Sets this node's fused clock: asks a node that has it, several times, and keeps the exchange
/// that took least. Returns that round trip in nanoseconds; half of it bounds the error, which is
/// left in the node's entry.
///
/// # Errors
///
/// [`JoinError::ClockTimeout`].
pub fn sync_clock<P: Platform>(node: &Node) -> Result<u64, JoinError> {
    // All nodes read one clock.
    if fused::is_on() {
        return Ok(0);
    }
    let Some(mut asked) = whom_to_ask(node) else {
        // The others may have ended while this node was on its way back.
        return Err(ended(node).unwrap_or(JoinError::ClockTimeout));
    };
    let (e, words) = (node.entry(), node.words);
    let base = words.read(&e.clock_request) >> 8;
    let mut best = u64::MAX;
    let begin = P::clock_ns();
    for i in 1.. {
        let passed = P::clock_ns().wrapping_sub(begin);
        if i > FEW && (best < GOOD_TRIP_NS || passed > ENOUGH_NS) {
            break;
        }
        let request = (base + i) << 8 | (asked.index() as u64 + 1);
        let start = P::clock_ns();
        words.replace(&e.clock_request, request);
        inbox::notify::<P>(asked, FIRST_CPU);
        let answered = || words.read(&e.clock_answer) == request;
        clock::wait_until::<P>(node.boot_limit(), || {
            answered() || !can_answer(node, asked) || ended(node).is_some()
        });
        if !answered() {
            if let Some(end) = ended(node) {
                return Err(end);
            }
            // Dead or gone: another may answer. Alive and silent for so long: nothing will help.
            match whom_to_ask(node) {
                Some(other) if other != asked => asked = other,
                _ => return Err(JoinError::ClockTimeout),
            }
            continue;
        }
        let end = P::clock_ns();
        let theirs = words.read(&e.clock_time);
        let trip = end.wrapping_sub(start);
        if trip < best {
            best = trip;
            clock::set(end, FusedTime(theirs + trip / 2));
        }
    }
    let asked_error = words.read(&node.sb.node(asked).clock_error);
    words.replace(&e.clock_error, best / 2 + asked_error);
    Ok(best)
}
