//! Wardens: a thread of init on every node, which hears there of nodes that die and come back.
//!
//! One of them *leads*: it waits for the end of the program, does what the launcher asks, and starts what
//! belongs to a node again when that has come back. The others wait for its death.
//!
//! ```text
//!   waits ──its leader's node has died──▶ leads: schedulers, `quiesced` and wardens of nodes that
//!     ▲                                     │    come back; the end of the program
//!     └── started again with its node ──────┴──its node dies──▶ lost, or ends
//! ```
//!
//! One word says who leads: the leader's node and its incarnation. It is taken over by the warden that first
//! sees that this incarnation has died, so that there never are two that live.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::service::{ASKED, NODE_DIED, NODE_JOINED};
use dyad_abi::{Error, NodeId, Result};
use dyad_services::rt;
use dyad_sys::cap::{Cap, NodeState, Send, Thread, Until};

use crate::ask;
use crate::evict;
use crate::service::{
    ended, is_over, records_lost, say, shut_down, start_failed, threads_ended, with_system,
};
use crate::system::{ENDED_LINE, ENDPOINT};

/// Bit that reports that a node has died or come back.
pub const NEWS: u64 = 1 << 63;
/// Bit that says that the launcher asks something.
pub const ASKED_BIT: u64 = 1 << 62;
/// Line at which a warden that does not lead waits: this number plus that of its node.
pub const WARDEN_LINE: u64 = 2;
/// How often a leader looks again at what it could not do, or once nodes have died at what may have
/// been lost with them.
const LOOK_NS: u64 = 100_000_000;
/// How often the leader may look in vain for the records that another warden has.
const PATIENCE: u32 = 50;

/// How often a check must find that the program has ended before that is accepted.
const OVER: u32 = 3;

/// What a warden needs before, and whatever happens to, the books of init.
struct Warden {
    /// Its thread.
    thread: AtomicU64,
    /// Sends news to where it waits.
    news: AtomicU64,
    /// The [life](name) of its node in which it has begun; 0: none.
    serves: AtomicU64,
}

static WARDENS: [Warden; MAX_NODES] = [const {
    Warden {
        thread: AtomicU64::new(0),
        news: AtomicU64::new(0),
        serves: AtomicU64::new(0),
    }
}; MAX_NODES];
/// Sends news to where the leader waits.
static LEADER_NEWS: AtomicU64 = AtomicU64::new(0);
/// Sends what the launcher asks to where the leader waits.
static LEADER_ASKED: AtomicU64 = AtomicU64::new(0);
/// `incarnation << 32 | node + 1` of the leader.
static LEADER: AtomicU64 = AtomicU64::new(0);

/// Makes the warden of a node known.
pub fn enter(node: NodeId, thread: Cap<Thread>, news: Cap<Send>) {
    let w = &WARDENS[node.index()];
    w.thread
        .store(thread.index().get().into(), Ordering::Relaxed);
    w.news.store(news.index().get().into(), Ordering::Relaxed);
}

/// The first leader.
///
/// # Errors
///
/// As the kernel says.
pub fn appoint(node: NodeId, news: Cap<Send>, asked: Cap<Send>) -> Result<()> {
    LEADER_NEWS.store(news.index().get().into(), Ordering::Relaxed);
    LEADER_ASKED.store(asked.index().get().into(), Ordering::Relaxed);
    let state = rt::hardware(node).node_state(node)?;
    LEADER.store(name(node, state.incarnation), Ordering::Release);
    Ok(())
}

/// A life of a node as one word; not 0.
pub fn name(node: NodeId, incarnation: u32) -> u64 {
    u64::from(incarnation) << 32 | (node.index() as u64 + 1)
}

/// The warden of a node.
pub fn own(node: NodeId) -> Option<Cap<Thread>> {
    known(&WARDENS[node.index()].thread)
}

/// Whether the warden of a node has begun in that life of it. One that still runs elsewhere, where it is
/// about to end, has not.
pub fn serves(node: NodeId, incarnation: u32) -> bool {
    WARDENS[node.index()].serves.load(Ordering::Acquire) == name(node, incarnation)
}

/// Whether a node is, as far as it shows, still in that life (24 bits of its incarnation): not after it has come back
/// in another one.
pub fn is_in_life(node: NodeId, life: u32) -> bool {
    let now = rt::hardware(node).node_state(node);
    now.is_ok_and(|now| !now.is_live() || now.incarnation & 0xff_ffff == life)
}

fn known<T>(word: &AtomicU64) -> Option<Cap<T>> {
    CapIndex::new(word.load(Ordering::Relaxed)).map(Cap::at)
}

/// Whether that life of a node goes on.
pub fn lives(node: NodeId, incarnation: u32) -> bool {
    let now = rt::hardware(node).node_state(node);
    now.is_ok_and(|now: NodeState| now.is_live() && now.incarnation == incarnation)
}

/// Whether this is the leader, or is now, because the one before has died.
fn leads(node: NodeId) -> bool {
    let Ok(now) = rt::hardware(node).node_state(node) else {
        return false;
    };
    let mine = name(node, now.incarnation);
    let holder = LEADER.load(Ordering::Acquire);
    if holder == mine {
        return true;
    }
    let alive = NodeId::new((holder & 0xff).wrapping_sub(1))
        .is_some_and(|n| lives(n, (holder >> 32) as u32));
    !alive
        && LEADER
            .compare_exchange(holder, mine, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Has all wardens look at what is to be done.
pub fn look_all() {
    for news in WARDENS.iter().map(|w| &w.news).chain([&LEADER_NEWS]) {
        // One that is not there does not look.
        let _ = known::<Send>(news).map(Cap::<Send>::send);
    }
}

fn is_on(node: NodeId) -> bool {
    rt::hardware(node)
        .where_am_i()
        .is_ok_and(|w| w.node == node)
}

/// Has the kernel of this node tell what it notices.
fn attach(node: NodeId, news: &AtomicU64) -> Result<()> {
    for number in [NODE_DIED, NODE_JOINED] {
        rt::hardware(node).attach_irq(number, known(news))?;
    }
    Ok(())
}

/// Has the leader look at what there is to do.
pub fn call_leader() {
    if let Some(news) = known::<Send>(&LEADER_NEWS) {
        // If it cannot be told it has been told already, or the next leader looks.
        let _ = news.send();
    }
}

/// The life of the warden of a node.
pub fn serve(node: NodeId) -> ! {
    let me = &WARDENS[node.index()];
    if let Ok(now) = rt::hardware(node).node_state(node)
        && is_on(node)
    {
        let life = name(node, now.incarnation);
        me.serves.store(life, Ordering::Release);
    }
    let mut in_vain = 0;
    // When that was counted last: who looks often, for other reasons, must not run out of patience with
    // one that has the books and waits for a CPU.
    let mut counted = 0u64;
    // How often the program has been seen to have ended.
    let mut over = 0;
    loop {
        if !is_on(node) {
            // The node has died while this slept, or before it had begun; a new warden will be started there.
            let e = known::<Thread>(&me.thread).map(|t| t.exit(0));
            say(format_args!("a warden without a node does not end: {e:?}"));
            shut_down(EXIT_FAILED);
        }
        let leads = leads(node);
        let (line, news) = match leads {
            true => (ENDED_LINE, &LEADER_NEWS),
            false => (WARDEN_LINE + node.index() as u64, &me.news),
        };
        // What happens from here on is told; what has happened before is looked at.
        let attached = attach(node, news);
        let mut quiet = attached.is_ok();
        if leads {
            let asked = rt::hardware(node).attach_irq(ASKED, known(&LEADER_ASKED));
            quiet &= asked.is_ok();
            ask::attend();
            let looked = with_system(node, |system| {
                // First, because a program may have ended by a death.
                let all_well = system.look_after_nodes();
                crate::emulate::show_wanted(system);
                if threads_ended(system) {
                    over = OVER;
                }
                match over {
                    0..OVER => all_well,
                    _ => ended(system),
                }
            });
            match looked {
                Some(all_well) => {
                    in_vain = 0;
                    quiet &= all_well;
                }
                None => {
                    start_failed();
                    let now = rt::hardware(node).now().unwrap_or(u64::MAX);
                    if now >= counted.saturating_add(LOOK_NS) {
                        in_vain += 1;
                        counted = now;
                    }
                    quiet = false;
                }
            }
            if in_vain > PATIENCE {
                records_lost();
            }
        }
        // Blocks of memory that are taken from nodes, a piece at a time.
        let pause = if leads { evict::tend(node) } else { None };
        let wait = match (pause, quiet) {
            (Some(ns), true) => Some(ns),
            (Some(ns), false) => Some(ns.min(LOOK_NS)),
            (None, true) => None,
            (None, false) => Some(LOOK_NS),
        };
        // Threads that are moved, wherever they are.
        let moves = crate::emulate::attend(node);
        let until = match (wait, rt::hardware(node).now()) {
            (Some(ns), Ok(now)) => Until::Deadline(moves.map_or(now + ns, |at| at.min(now + ns))),
            _ => moves.map_or(Until::Never, Until::Deadline),
        };
        match ENDPOINT.receive(line, until) {
            // That it has ended may have been told to a leader that died.
            Err(Error::TimedOut) if leads && pause.is_none() && is_over() => over += 1,
            Ok(_) | Err(Error::TimedOut | Error::NodeDead) => {}
            // The leader before has not been taken off its place yet.
            Err(_) if leads => {
                in_vain += 1;
                dyad_sys::raw::relax();
            }
            Err(e) => {
                say(format_args!("cannot wait for the end: {e}"));
                shut_down(EXIT_FAILED);
            }
        }
    }
}
