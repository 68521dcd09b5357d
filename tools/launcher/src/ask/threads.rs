//! Which threads a system has, as the CXL pool says: found by the kinds of frames, so of every program
//! and service, whether the system answers or not.
//!
//! What is read changes meanwhile. A thread whose owner word is the same before and after has been
//! where it says all the time between.

use std::mem::offset_of;

use dyad_abi::NodeId;
use dyad_abi::service::{program, thread_id};
use dyad_object::thread::{Frame, Owner, State, Thread, info};
use dyad_retype::{FrameType, FrameWord, KernelKind};
use serde::{Deserialize, Serialize};

use super::Named;
use crate::state::SharedState;

/// Attempts at a thread that changes hands.
const TRIES: u32 = 8;
/// Invocations that a thread can be in.
const DEPTH: u64 = dyad_abi::service::INVOKE_DEPTH as u64;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    /// Name of the program or service.
    pub program: String,
    /// Number in it.
    pub thread: u16,
    /// The node it is on, or on its way to.
    pub node: usize,
    /// ISA of that node.
    pub isa: String,
    /// The CPU of the node that it belongs to.
    pub cpu: usize,
    /// What it does: running, ready, blocked, moving, stopped.
    pub state: String,
    /// The node that it has crossed from, to a service that is elsewhere.
    pub crossed_from: Option<usize>,
    /// How often it has been handed to another node, by migrations and, each way, by invocations of
    /// services that are elsewhere.
    pub migrations: u64,
}

/// A thread at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Who owns it.
    pub owner: Owner,
    /// Its CPU.
    pub cpu: u64,
    /// The node that it returns to from services that are elsewhere.
    pub crossed_from: Option<NodeId>,
    /// As in [`ThreadRow`].
    pub migrations: u64,
}

impl Glance {
    /// The node that its own code runs on, if it is not on its way.
    pub fn at(&self) -> Option<NodeId> {
        match self.owner.state {
            State::Running | State::Ready | State::Blocked => {
                Some(self.crossed_from.unwrap_or(self.owner.node))
            }
            _ => None,
        }
    }

    /// Whether it will never go on by itself.
    pub fn is_gone(&self) -> bool {
        matches!(self.owner.state, State::None | State::Gone | State::Stopped)
    }
}

/// Where a thread's frame is, and which one it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset in the CXL pool.
    pub offset: u64,
    /// Id.
    pub id: u64,
}

const fn word(offset: usize) -> usize {
    offset / 8
}

/// All threads that are configured.
pub fn all(state: &SharedState<'_>) -> Vec<Found> {
    let is_thread =
        |w| FrameWord::from_bits(w).is_some_and(|w| w.ty == FrameType::Kernel(KernelKind::THREAD));
    let Some(frames) = state.frames() else {
        return Vec::new();
    };
    let mut found: Vec<Found> = frames
        .filter(|&(_, w)| is_thread(w))
        .filter_map(|(offset, _)| {
            let page = state.page(offset)?;
            let owner = Owner::from_bits(page[word(offset_of!(Thread, owner))])?;
            let id = page[word(offset_of!(Thread, id))];
            let there = !matches!(owner.state, State::None | State::Gone);
            there.then_some(Found { offset, id })
        })
        .collect();
    found.sort_by_key(|f| f.id);
    found
}

/// The thread with an id.
pub fn find(state: &SharedState<'_>, id: u32) -> Option<Found> {
    all(state).into_iter().find(|f| f.id == u64::from(id))
}

/// What a look at a thread shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// This.
    Seen(Glance),
    /// It changes too fast.
    Blurred,
    /// It is another thread by now, or none.
    Gone,
}

/// Looks at a thread.
pub fn look(state: &SharedState<'_>, found: Found) -> Look {
    for _ in 0..TRIES {
        let pages = (state.page(found.offset), state.page(found.offset));
        let (Some(before), Some(after)) = pages else {
            return Look::Gone;
        };
        let owner = before[word(offset_of!(Thread, owner))];
        if after[word(offset_of!(Thread, owner))] == owner {
            return glance(&before, found.id).map_or(Look::Gone, Look::Seen);
        }
    }
    Look::Blurred
}

fn glance(page: &[u64], id: u64) -> Option<Glance> {
    let field = |offset| page[word(offset)];
    if field(offset_of!(Thread, id)) != id {
        return None;
    }
    let depth = field(offset_of!(Thread, depth)).min(DEPTH);
    let crossed = (0..depth).find_map(|i| {
        let at = offset_of!(Thread, frames) + i as usize * size_of::<Frame>();
        let info = field(at + offset_of!(Frame, info));
        (info & info::CROSSED != 0)
            .then(|| NodeId::new(info >> 8 & 0xff))
            .flatten()
    });
    Some(Glance {
        owner: Owner::from_bits(field(offset_of!(Thread, owner)))?,
        cpu: field(offset_of!(Thread, cpu)),
        crossed_from: crossed,
        migrations: field(offset_of!(Thread, trail)) >> 8,
    })
}

/// The program and the number in it of the thread with an id.
pub fn of_id(id: u64) -> Option<(u64, u64)> {
    let starts = |p| u64::from(thread_id(p, 0));
    // The scheduler's may need more than one program has.
    let owner = match (program::INIT..program::MAX).find(|&p| id < starts(p + 1))? {
        p if (program::SCHED..program::CONSOLE).contains(&p) => program::SCHED,
        p => p,
    };
    Some((owner, id - starts(owner)))
}

/// Name of a program by number.
pub fn name(number: u64, programs: &[Named]) -> String {
    let service = match number {
        program::INIT => "init",
        program::SCHED => "sched",
        program::CONSOLE => "console",
        program::PAGER => "pager",
        program::QUIESCED => "quiesced",
        _ => {
            let named = programs.iter().find(|p| p.number == number);
            return named.map_or_else(|| format!("program {number}"), |p| p.name.clone());
        }
    };
    service.into()
}

/// What a state is called.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::None | State::Gone => "ended",
        State::Ready => "ready",
        State::Running => "running",
        State::Transit => "moving",
        State::Blocked => "blocked",
        State::Stopped => "stopped",
        State::Changing => "changing",
        State::Orphaned | State::Stranded => "recovered",
    }
}

/// All threads, for people.
pub fn rows(state: &SharedState<'_>, programs: &[Named], nodes: &[String]) -> Vec<ThreadRow> {
    let row = |found: Found| {
        let Look::Seen(now) = look(state, found) else {
            return None;
        };
        let (number, thread) = of_id(found.id)?;
        let node = now.owner.node.index();
        Some(ThreadRow {
            program: name(number, programs),
            thread: thread as u16,
            node,
            isa: nodes.get(node).cloned().unwrap_or_default(),
            cpu: now.cpu as usize,
            state: state_name(now.owner.state).into(),
            crossed_from: now.crossed_from.map(NodeId::index),
            migrations: now.migrations,
        })
    };
    all(state).into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_programs() {
        for p in [
            program::INIT,
            program::CONSOLE,
            program::PAGER,
            program::QUIESCED,
            program::FIRST,
            program::MAX - 1,
        ] {
            for n in [0, 1, 7] {
                assert_eq!(of_id(thread_id(p, n).into()), Some((p, n)));
            }
        }
        assert_eq!(
            of_id(thread_id(program::SCHED, 63).into()),
            Some((program::SCHED, 63))
        );
        assert_eq!(of_id(thread_id(program::MAX, 0).into()), None);
        assert_eq!(of_id(u64::MAX), None);
    }

    fn page(owner: Owner, depth: u64, infos: &[u64]) -> Vec<u64> {
        let mut page = vec![0; 512];
        page[word(offset_of!(Thread, owner))] = owner.bits();
        page[word(offset_of!(Thread, id))] = 128;
        page[word(offset_of!(Thread, depth))] = depth;
        page[word(offset_of!(Thread, trail))] = 5 << 8 | 1;
        for (i, info) in infos.iter().enumerate() {
            let at = offset_of!(Thread, frames) + i * size_of::<Frame>() + offset_of!(Frame, info);
            page[word(at)] = *info;
        }
        page
    }

    #[test]
    fn a_thread_in_a_service_elsewhere_is_at_home() {
        let node = |n| NodeId::new(n).unwrap();
        let running = Owner {
            state: State::Running,
            node: node(0),
            incarnation: 1,
            seq: 9,
        };
        let crossed = info::CROSSED | 1 << 8;
        let now = glance(&page(running, 1, &[crossed]), 128).unwrap();
        assert_eq!((now.at(), now.migrations), (Some(node(1)), 5));
        // What is left of an invocation that is over counts for nothing.
        let now = glance(&page(running, 0, &[crossed]), 128).unwrap();
        assert_eq!((now.at(), now.crossed_from), (Some(node(0)), None));
        // It left home with the first.
        let twice = [0, crossed, info::CROSSED | 2 << 8];
        let now = glance(&page(running, 3, &twice), 128).unwrap();
        assert_eq!(now.at(), Some(node(1)));
        let moving = running.with(State::Transit);
        let now = glance(&page(moving, 0, &[]), 128).unwrap();
        assert!(now.at().is_none() && !now.is_gone());
        let ended = running.with(State::Stopped);
        assert!(glance(&page(ended, 0, &[]), 128).unwrap().is_gone());
        assert_eq!(glance(&page(running, 0, &[]), 129), None);
        let damaged = page(running, u64::MAX, &[u64::MAX; 16]);
        assert!(glance(&damaged, 128).is_some());
    }
}
