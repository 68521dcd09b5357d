//! Repair of endpoints after a node has died. Events that its schedulers had not taken are told to the
//! schedulers that the threads have now; threads that do not wait are removed as waiters; waiters that have
//! something to take are woken.
//!
//! Each endpoint is visited once, after all threads of the dead node have other owners and no CPU works with
//! an older owner word. The visit also finds out which threads are on lists. A thread that is on no list
//! although its event says so was in the dead node's hand: see [`dyad_object::endpoint`].

use dyad_abi::NodeId;
use dyad_abi::cap::Woken;
use dyad_abi::ident::MAX_CPUS;
use dyad_retype::KernelKind;
use dyad_shm::frame::WeakRef;

use crate::budget::{self, Budget};
use crate::walk::{Walked, is_still, next_object};
use dyad_audit::scan::Cursor;
use dyad_core::sched::dispatch;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::endpoint::{Endpoints, LINES, Line, Vouched, Vouching, waiting};
use dyad_object::thread::{State, Thread};
use dyad_object::{find, reference};

/// How often a list may be found in use before recovery leaves it as it is: a machine that is stopped while
/// it takes a thread off must not hold recovery up.
const TRIES: u32 = 10_000;

/// The stages of repairing one endpoint object, in this order, each with the number of the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Lists that the dead node was taking from, or had closed.
    Repair(usize),
    /// Threads that its schedulers had not been told of.
    Lists(usize),
    /// Doubt about threads on lists.
    Vouch(usize, Option<Vouching>),
    /// Threads that wait.
    Waiters(usize),
}

/// A walk over all endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    cursor: Cursor,
    /// Endpoints in the middle of which it is.
    at: Option<(WeakRef, Stage)>,
    /// How often the current list has been found in use.
    tries: u32,
    /// Whether the threads of some list could not be determined.
    pub unsure: bool,
}

impl Walk {
    /// A walk that has not begun.
    pub const START: Walk = Walk {
        cursor: Cursor::START,
        at: None,
        tries: 0,
        unsure: false,
    };

    /// A piece. `true`: that was the last one.
    pub fn piece<P: Platform>(&mut self, cx: &KernelCtx, dead: NodeId) -> bool {
        let mut budget = Budget::WHOLE;
        while budget.is_left() {
            let (object, mut stage) = match self.at.take() {
                Some(at) => at,
                None => match next_object(cx, &mut self.cursor, &mut budget, is_endpoints) {
                    Walked::Object(object, ..) => (object, Stage::Repair(0)),
                    Walked::Working => return false,
                    Walked::End => return true,
                },
            };
            // Endpoints that have been given up since the last piece have no threads.
            if !is_still(cx, object, Endpoints::KIND) {
                continue;
            }
            let Some(endpoints) = cx.node.map.get::<Endpoints>(object.frame.address()) else {
                continue;
            };
            while let Some(now) = self.stage::<P>(cx, endpoints, (dead, stage), &mut budget) {
                stage = now;
                if !budget.is_left() {
                    self.at = Some((object, stage));
                    return false;
                }
            }
        }
        false
    }

    /// Does the next step for one line, and returns the stage that follows. `None`: all lines are done.
    fn stage<P: Platform>(
        &mut self,
        cx: &KernelCtx,
        endpoints: &'static Endpoints,
        (dead, stage): (NodeId, Stage),
        budget: &mut Budget,
    ) -> Option<Stage> {
        let lists = dead.index() * MAX_CPUS..(dead.index() + 1) * MAX_CPUS;
        budget.spend(budget::LINE);
        Some(match stage {
            Stage::Repair(at) => match endpoints.lines.get(at) {
                Some(line) => {
                    line.repair(cx.node, dead);
                    Stage::Repair(at + 1)
                }
                None => Stage::Lists(lists.start),
            },
            Stage::Lists(at) if at == lists.end => Stage::Vouch(0, None),
            Stage::Lists(at) => match endpoints.lines.get(at)?.take_thread(cx.node) {
                Some((t, why)) => {
                    budget.spend(budget::TOLD);
                    tell_elsewhere::<P>(cx, dead, (t, why));
                    stage
                }
                None => Stage::Lists(at + 1),
            },
            Stage::Vouch(at, begun) => match endpoints.lines.get(at) {
                _ if lacks!("endpoints::piece::vouch") => Stage::Waiters(0),
                Some(line) => self.vouch(cx, line, (at, begun), budget),
                None => Stage::Waiters(0),
            },
            Stage::Waiters(at) => {
                let line = endpoints.lines.get(at)?;
                if waiter::<P>(cx, line) {
                    budget.spend(budget::TOLD);
                }
                Stage::Waiters(at + 1)
            }
        })
    }

    /// Ends the doubt about the next few threads on a line's lists. While another CPU takes a thread off a
    /// list, the rest of the budget is used up, because recovery has to wait.
    fn vouch(
        &mut self,
        cx: &KernelCtx,
        line: &Line,
        (at, begun): (usize, Option<Vouching>),
        budget: &mut Budget,
    ) -> Stage {
        let threads = budget.affords(budget::LISTED) as usize;
        let (vouched, looked) = line.vouch(cx.node, begun, threads);
        budget.spend(looked as u64 * budget::LISTED);
        match vouched {
            Vouched::Working(vouching) => return Stage::Vouch(at, Some(vouching)),
            Vouched::All => {}
            Vouched::Busy if self.tries < TRIES => {
                self.tries += 1;
                budget.spend(budget::BUDGET);
                return Stage::Vouch(at, None);
            }
            Vouched::Busy | Vouched::Endless => self.unsure = true,
        }
        Stage::Vouch(at + 1, None)
    }
}

/// Tells the scheduler where a thread is now what one of the dead node's had not been told.
fn tell_elsewhere<P: Platform>(cx: &KernelCtx, dead: NodeId, (t, why): (&'static Thread, u64)) {
    let owner = t.owner(cx.words());
    if let Some(why) = Woken::from_number(why)
        && owner.is_some_and(|o| o.node != dead)
    {
        // Refused if the scheduler is gone: there is no scheduler to tell.
        let _ = dispatch::tell_scheduler::<P>(cx, t, why);
    }
}

/// Whether an object of a kind has endpoints.
fn is_endpoints(kind: KernelKind) -> bool {
    kind == Endpoints::KIND
}

/// Takes a waiter off that does not wait, because the CPU that was stopping it has died. Wakes a waiter that
/// has something to receive, because the CPU that sent it has died. `true` if there was a waiter.
fn waiter<P: Platform>(cx: &KernelCtx, line: &'static Line) -> bool {
    let word = cx.words().read(&line.waiter);
    let Some(frame) = waiting(word) else {
        return false;
    };
    let Some(t) = cx.node.map.get::<Thread>(frame.address()) else {
        return false;
    };
    let is_thread = reference::<Thread>(cx.node, t)
        .is_some_and(|r| find::<Thread>(cx.node, r, Thread::KIND).is_ok());
    if !is_thread {
        cx.words().exchange(&line.waiter, word, 0);
        return true;
    }
    let blocked = t
        .owner(cx.words())
        .is_some_and(|o| o.state == State::Blocked);
    if !blocked {
        dispatch::withdraw::<P>(cx, t, line);
    } else if line.has_pending(cx.node)
        && !lacks!("endpoints::waiter::news")
        && let Some(waiter) = line.take_waiter(cx.node)
    {
        // Refused if it has been stopped meanwhile.
        let _ = dispatch::wake::<P>(cx, waiter, Woken::Ready);
    }
    true
}

const _: () = assert!(LINES == dyad_abi::ident::MAX_NODES * MAX_CPUS);
