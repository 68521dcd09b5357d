//! Endpoints after a node has died: what its schedulers had not been told goes to where the threads
//! are now, threads that do not wait are no waiters, and those that wait have nothing to take.
//!
//! Each endpoint is looked at once, after all threads of the dead node have other owners and nobody
//! has an older owner in hand. There it also turns out which threads are on lists; what is on none
//! although its event says so was in the dead node's hand: see [`dyad_object::endpoint`].

use dyad_abi::NodeId;
use dyad_abi::cap::Woken;
use dyad_abi::ident::MAX_CPUS;
use dyad_shm::FrameRef;

use super::{OBJECTS, RECORDS, Walked, is_endpoints, next_object};
use dyad_audit::scan::Cursor;
use dyad_core::cx::Cx;
use dyad_core::{Platform, dispatch};
use dyad_object::endpoint::{Endpoints, LINES, Line, Vouched, waiting};
use dyad_object::thread::{State, Thread};
use dyad_object::{find, reference};

/// Threads that one piece takes off lists.
const EVENTS: u32 = 64;
/// How often somebody is found at a list before it is left as it is: a machine that is stopped while
/// it takes a thread off must not hold recovery up.
const TRIES: u32 = 10_000;

/// A walk over all endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    cursor: Cursor,
    /// Endpoints in the middle of which it is.
    at: Option<FrameRef>,
    /// How often somebody has been found at a list.
    tries: u32,
    /// Whether there are lists of which nobody knows who is on them.
    pub unsure: bool,
}

impl Walk {
    /// Before the first.
    pub const START: Walk = Walk {
        cursor: Cursor::START,
        at: None,
        tries: 0,
        unsure: false,
    };

    /// A piece. `true`: that was the last one.
    pub fn piece<P: Platform>(&mut self, cx: &Cx, dead: NodeId) -> bool {
        let mut records = RECORDS;
        let mut events = EVENTS;
        for _ in 0..OBJECTS {
            let frame = match self.at {
                Some(frame) => frame,
                None => match next_object(cx, &mut self.cursor, &mut records, is_endpoints) {
                    Walked::Object(frame, _) => frame,
                    Walked::Working => return false,
                    Walked::End => return true,
                },
            };
            let Some(endpoints) = cx.node.map.get::<Endpoints>(frame.address()) else {
                self.at = None;
                continue;
            };
            self.at = Some(frame);
            endpoints.repair(cx.node, dead);
            if !lists::<P>(cx, endpoints, dead, &mut events) {
                return false;
            }
            if !lacks!("endpoints::piece::vouch") && !self.vouch(cx, endpoints) {
                return false;
            }
            for line in &endpoints.lines {
                waiter::<P>(cx, line);
            }
            self.at = None;
        }
        false
    }

    /// Ends the doubt about threads on lists. `false`: somebody is just at one of them.
    fn vouch(&mut self, cx: &Cx, endpoints: &Endpoints) -> bool {
        for line in &endpoints.lines {
            match line.vouch(cx.node) {
                Vouched::All => {}
                Vouched::Busy if self.tries < TRIES => {
                    self.tries += 1;
                    return false;
                }
                Vouched::Busy | Vouched::Endless => self.unsure = true,
            }
        }
        true
    }
}

/// Tells the schedulers of other CPUs what those of the dead node's had not been told. `false`:
/// there is more.
fn lists<P: Platform>(cx: &Cx, e: &'static Endpoints, dead: NodeId, events: &mut u32) -> bool {
    for line in e.lines.iter().skip(dead.index() * MAX_CPUS).take(MAX_CPUS) {
        while let Some((t, why)) = line.take_thread(cx.node) {
            let owner = t.owner(cx.words());
            if let Some(why) = Woken::from_number(why)
                && owner.is_some_and(|o| o.node != dead)
            {
                // Refused if the scheduler is gone: nobody wants to know.
                let _ = dispatch::tell_scheduler::<P>(cx, t, why);
            }
            *events = events.saturating_sub(1);
            if *events == 0 {
                return false;
            }
        }
    }
    true
}

/// Takes a waiter off that does not wait: whoever was stopping it has died before. One that waits although
/// there is something for it is woken: whoever has sent that has died before.
fn waiter<P: Platform>(cx: &Cx, line: &'static Line) {
    let word = cx.words().read(&line.waiter);
    let Some(frame) = waiting(word) else {
        return;
    };
    let Some(t) = cx.node.map.get::<Thread>(frame.address()) else {
        return;
    };
    let is_thread = reference::<Thread>(cx.node, t)
        .is_some_and(|r| find::<Thread>(cx.node, r, Thread::KIND).is_ok());
    if !is_thread {
        cx.words().exchange(&line.waiter, word, 0);
        return;
    }
    let blocked = t
        .owner(cx.words())
        .is_some_and(|o| o.state == State::Blocked);
    if !blocked {
        dispatch::withdraw::<P>(cx, t, line);
    } else if line.has_news(cx.node)
        && !lacks!("endpoints::waiter::news")
        && let Some(waiter) = line.take_waiter(cx.node)
    {
        // Refused if it has been stopped meanwhile.
        let _ = dispatch::wake::<P>(cx, waiter, Woken::Ready);
    }
}

const _: () = assert!(LINES == dyad_abi::ident::MAX_NODES * MAX_CPUS);
