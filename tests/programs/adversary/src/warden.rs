//! The warden: starts a worker on every CPU, which are the schedulers of victims and attackers, and judges.
//!
//! A worker takes what has become ready, gives the victim's thread of its node a slice of the victim's time, then each
//! attacker a slice of the attacker's budget, and drives its node's round. The worker of the first CPU fills the
//! attackers' budgets up, has attackers begin anew that have ended themselves, and looks whether anything was found.

#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use dyad_abi::cap::{CapIndex, Event, Stopped};
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::service::slot;
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_hostile::workers;
use dyad_services::first::{HOME, Store, shut_down};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Thread, ThreadSetup, Time, Until};

use crate::build::{BUDGETS, VICTIM_NS, World};
use crate::plan::{Role, SIDES, attacker_id, victim_id, word, wrong};

/// Endpoints of the workers as schedulers.
pub const ENDPOINTS: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// Frames for its faults on each node.
const SUPPLY: u64 = 256;
/// Time that does not run out.
const TIME: Cap<Time> = Cap::at(slot::TIME);
/// Tags of threads begin here: an attacker that forges an event does not know them.
const TAG: u32 = 0x7713_5500;
/// Threads: victims first, then two of each attacker.
const THREADS: usize = SIDES as usize * 3;
/// Slices.
const VICTIM_SLICE_NS: u64 = 200_000;
const ATTACKER_SLICE_NS: u64 = 1_000_000;
/// How much is put into an attacker's budget at once, and how often.
const FILL_NS: u64 = 4_000_000;
const PERIOD_NS: u64 = 8_000_000;
/// What measuring from outside may be wrong by, for each dispatch; and once for a computer that stands still. A
/// thread that runs without a budget runs many times longer than its budget.
const DISPATCH_SLACK_NS: u64 = 150_000;
const SLACK_NS: u64 = 100_000_000;

/// Threads that are ready, by number, of each scheduler line.
static READY: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Slot of each thread.
static SLOTS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// Slots of the budgets that a thread may run on.
static BUDGET_SLOTS: [[AtomicU64; BUDGETS]; THREADS] =
    [const { [const { AtomicU64::new(0) }; BUDGETS] }; THREADS];
/// Fused time that each thread has run, as workers measure it.
static RAN: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// Dispatches of each thread.
static DISPATCHES: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// The longest that each attacker has run beyond a slice, because the timer was late.
static BEYOND: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// Threads that have ended, by bit.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Slices of victims that ended before their time.
static CUT: AtomicU64 = AtomicU64::new(0);
/// The longest that a victim that was ready did not run.
static LATEST: [AtomicU64; SIDES as usize] = [const { AtomicU64::new(0) }; SIDES as usize];
static LAST_END: [AtomicU64; SIDES as usize] = [const { AtomicU64::new(0) }; SIDES as usize];
/// The first event that no thread has caused, and 1 << 63; 0: none.
static FORGED: AtomicU64 = AtomicU64::new(0);
/// Not 0: nobody is dispatched any more but victims.
static OVER: AtomicU64 = AtomicU64::new(0);

const fn is_victim(t: usize) -> bool {
    t < SIDES as usize
}

/// Number of the thread of an attacker.
const fn thread_of(attacker: usize, k: usize) -> usize {
    SIDES as usize + 2 * attacker + k
}

fn now() -> u64 {
    rt::hardware(HOME).now().unwrap_or(0)
}

/// Starts a worker on every CPU but this one.
///
/// # Errors
///
/// As the kernel says.
pub fn start_workers(world: &World, store: &mut Store) -> Result<()> {
    workers::start(store, world.entry, SUPPLY, |line| Role::Worker.arg(line))
}

/// Has a thread begin.
fn begin(world: &World, t: usize) -> Result<()> {
    let (component, role, id, node, cpu, thread) = match is_victim(t) {
        true => {
            let v = &world.victim;
            (
                v.component,
                Role::Victim.arg(t as u64),
                victim_id(t as u64),
                t,
                0,
                world.victims[t],
            )
        }
        false => {
            let (n, k) = ((t - SIDES as usize) / 2, t % 2);
            let Some(a) = &world.attackers[n] else {
                return Ok(());
            };
            let id = attacker_id(n as u64) + k as u64;
            (
                a.part.component,
                Role::Attacker.arg(k as u64),
                id,
                n,
                k,
                a.threads[k],
            )
        }
    };
    if thread.index() == CapIndex::NONE {
        return Ok(());
    }
    let setup = ThreadSetup {
        component,
        entry: world.entry,
        arg: role,
        id: id as u32,
        layout: 0,
        ids: Cap::at(slot::THREAD_IDS),
        tag: TAG + t as u32,
        scheduler: Some(ENDPOINTS),
    };
    // SAFETY: 1. The entry is that of the component's program.
    unsafe { thread.configure(&setup)? };
    SLOTS[t].store(thread.index().get().into(), Release);
    let node = NodeId::new(node as u64).ok_or(Error::NoSuchNode)?;
    let cpu = CpuId::new(cpu as u64).ok_or(Error::BadArgument)?;
    thread.resume_on(node, cpu)
}

/// Has all threads begin.
///
/// # Errors
///
/// As the kernel says.
pub fn begin_all(world: &World) -> Result<()> {
    for (t, time) in world.victim_time.iter().enumerate() {
        BUDGET_SLOTS[t][0].store(time.index().get().into(), Relaxed);
    }
    for (n, attacker) in world.attackers.iter().enumerate() {
        let Some(a) = attacker else { continue };
        for k in 0..2 {
            for (to, budget) in BUDGET_SLOTS[thread_of(n, k)].iter().zip(a.budgets) {
                to.store(budget.index().get().into(), Relaxed);
            }
        }
    }
    (0..THREADS).try_for_each(|t| match is_victim(t) && t as u64 >= world.settings.nodes {
        true => Ok(()),
        false => begin(world, t),
    })
}

/// One turn of the worker of a scheduler line.
pub fn turn(line: usize) {
    for _ in 0..64 {
        match ENDPOINTS.receive(line as u64, Until::Now) {
            Ok(0) | Err(_) => break,
            Ok(bits) => match Event::from_bits(bits) {
                Some(event)
                    if ((TAG as usize)..TAG as usize + THREADS).contains(&(event.tag as usize)) =>
                {
                    READY[line].fetch_or(1 << (event.tag - TAG), AcqRel);
                }
                _ => {
                    let _ = FORGED.compare_exchange(0, bits | 1 << 63, AcqRel, Relaxed);
                }
            },
        }
    }
    let ready = READY[line].load(Acquire);
    for t in (0..THREADS).filter(|t| ready & 1 << t != 0) {
        if OVER.load(Acquire) != 0 && !is_victim(t) {
            continue;
        }
        if !dispatch(t) {
            READY[line].fetch_and(!(1 << t), AcqRel);
        }
    }
    if let Some(node) = NodeId::new(line as u64 / 8) {
        // Another CPU of the node may be at it.
        let _ = rt::hardware(node).flush_step(16);
        if node != HOME && !in_first_life(HOME.index()) {
            // Nobody is left who looks at the limits and ends the run.
            shut_down(EXIT_FAILED);
        }
    }
}

/// Whether a node lives and has never died. On the first one is the worker that judges; on others, a victim that goes
/// on.
pub fn in_first_life(node: usize) -> bool {
    NodeId::new(node as u64).is_some_and(|node| {
        let state = rt::hardware(HOME).node_state(node);
        state.is_ok_and(|now| now.is_live() && now.incarnation == 1)
    })
}

/// A budget of a thread that has something left.
fn budget(t: usize) -> Option<Cap<Time>> {
    BUDGET_SLOTS[t]
        .iter()
        .filter_map(|s| CapIndex::new(s.load(Relaxed)).filter(|&s| s != CapIndex::NONE))
        .map(Cap::<Time>::at)
        .find(|budget| budget.left().is_ok_and(|left| left > 0))
}

/// Gives a thread a slice. Whether it stays ready here.
fn dispatch(t: usize) -> bool {
    let Some(slot) = CapIndex::new(SLOTS[t].load(Acquire)).filter(|&s| s != CapIndex::NONE) else {
        return false;
    };
    let Some(time) = budget(t) else {
        return true;
    };
    let (slice, priority) = match is_victim(t) {
        true => (VICTIM_SLICE_NS, 9),
        false => (ATTACKER_SLICE_NS, 1),
    };
    let thread: Cap<Thread> = Cap::at(slot);
    let from = now();
    if is_victim(t) {
        let last = LAST_END[t].load(Relaxed);
        if last != 0 {
            LATEST[t].fetch_max(from.saturating_sub(last), Relaxed);
        }
    }
    let stop = thread.dispatch(slice, priority, Some(time));
    let end = now();
    let ran = end.saturating_sub(from);
    RAN[t].fetch_add(ran, Relaxed);
    BEYOND[t].fetch_max(ran.saturating_sub(slice), Relaxed);
    DISPATCHES[t].fetch_add(1, Relaxed);
    if is_victim(t) {
        LAST_END[t].store(end, Relaxed);
    }
    match stop.map(|s| s.why) {
        Ok(Stopped::Preempted) => {
            if is_victim(t) && ran < slice / 2 {
                CUT.fetch_add(1, Relaxed);
            }
            true
        }
        Ok(Stopped::Yielded | Stopped::Interrupted) => true,
        Ok(Stopped::Exited | Stopped::Faulted) => {
            ENDED.fetch_or(1 << t, AcqRel);
            false
        }
        Ok(Stopped::Blocked | Stopped::Left) => false,
        // What its budget owes has to be paid first, or another CPU has just changed it.
        Err(e) => matches!(e, Error::NoTime | Error::Again),
    }
}

/// What the run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A component has found something wrong: its name, what, detail.
    Wrong(&'static str, u64, u64),
    /// An event that no thread has caused.
    Forged(u64),
    /// An attacker has run longer than it was given time for: attacker, ran, given, left.
    Time(usize, u64, u64, u64),
    /// The victim's thread on a node has ended.
    Ended(usize),
}

/// What is wrong in words.
pub const fn in_words(finding: &Finding) -> &'static str {
    match finding {
        Finding::Wrong(_, what, _) => wrong::name(*what),
        Finding::Forged(_) => "an event that no thread has caused",
        Finding::Time(..) => "an attacker has run longer than it was given time for",
        Finding::Ended(_) => "a victim has ended",
    }
}

/// What the judge keeps.
pub struct Judge {
    given: [u64; SIDES as usize],
    next_fill: u64,
    /// How often attackers have begun anew.
    pub restarts: u64,
}

impl Judge {
    /// A judge of threads that have been given no time yet.
    pub const fn new() -> Judge {
        Judge {
            given: [0; SIDES as usize],
            next_fill: 0,
            restarts: 0,
        }
    }

    /// Fills budgets up, has attackers begin anew, and looks for what is wrong.
    pub fn look(&mut self, world: &World) -> Option<Finding> {
        let now = now();
        let fill = now >= self.next_fill;
        if fill {
            self.next_fill = now + PERIOD_NS;
        }
        for (n, attacker) in world.attackers.iter().enumerate() {
            let Some(a) = attacker else { continue };
            for k in 0..2 {
                let t = thread_of(n, k);
                if ENDED.load(Acquire) & 1 << t != 0 {
                    ENDED.fetch_and(!(1 << t), AcqRel);
                    self.restarts += 1;
                    if begin(world, t).is_err() {
                        ENDED.fetch_or(1 << t, AcqRel);
                    }
                }
            }
            if !fill {
                continue;
            }
            if let Some(finding) = self.time(n, a.budgets) {
                return Some(finding);
            }
        }
        self.found(world)
    }

    /// Fills an attacker's budget up, and looks whether it has run longer than it had time for.
    fn time(&mut self, n: usize, budgets: [Cap<Time>; BUDGETS]) -> Option<Finding> {
        let left = || {
            budgets
                .iter()
                .map(|b| b.left().unwrap_or(0))
                .fold(0, u64::saturating_add)
        };
        let (mut ran, mut dispatches, mut beyond) = (0, 0, 0);
        for t in [thread_of(n, 0), thread_of(n, 1)] {
            ran += RAN[t].load(Relaxed);
            dispatches += DISPATCHES[t].load(Relaxed);
            beyond += BEYOND[t].load(Relaxed);
        }
        // Read last: time comes back to budgets when threads stop, and was counted as run then.
        let left = left();
        let spent = self.given[n].saturating_sub(left);
        // What a budget owes is paid later: each may owe the time by which a timer was late.
        let slack = SLACK_NS + dispatches * DISPATCH_SLACK_NS + BUDGETS as u64 * beyond;
        if left > self.given[n] || ran > 2 * spent + slack {
            return Some(Finding::Time(n, ran, self.given[n], left));
        }
        if left < FILL_NS && TIME.transfer(budgets[0], FILL_NS).is_ok() {
            self.given[n] += FILL_NS;
        }
        None
    }

    fn found(&self, world: &World) -> Option<Finding> {
        let parts = [
            ("service", &world.services[0]),
            ("homely service", &world.services[1]),
            ("victim", &world.victim),
        ];
        let attackers = ["attacker 0", "attacker 1"]
            .into_iter()
            .zip(&world.attackers);
        let attackers = attackers.filter_map(|(name, a)| Some((name, &a.as_ref()?.part)));
        for (name, part) in parts.into_iter().chain(attackers) {
            match part.word(word::WRONG).load(Acquire) {
                0 => {}
                what => {
                    return Some(Finding::Wrong(
                        name,
                        what,
                        part.word(word::WRONG_DETAIL).load(Relaxed),
                    ));
                }
            }
        }
        match FORGED.load(Acquire) {
            0 => {}
            bits => return Some(Finding::Forged(bits & !(1 << 63))),
        }
        // A victim ends when it is done, and only then.
        let done = |t: usize| {
            let rounds = world.settings.rounds;
            world.victim.word(word::DONE).load(Relaxed) != 0
                || (rounds != 0 && world.victim.word(word::made(t as u64)).load(Acquire) >= rounds)
        };
        let ended = ENDED.load(Acquire);
        (0..SIDES as usize)
            .find(|&t| ended & 1 << t != 0 && !done(t) && in_first_life(t))
            .map(Finding::Ended)
    }

    /// Whether the victim's thread on a node was charged no more than it has run.
    pub fn is_charged_rightly(world: &World, t: usize) -> (bool, u64, u64) {
        let left = world.victim_time[t].left().unwrap_or(0);
        let ran = RAN[t].load(Relaxed);
        let slack = SLACK_NS + DISPATCHES[t].load(Relaxed) * DISPATCH_SLACK_NS;
        let charged = VICTIM_NS.saturating_sub(left);
        (charged <= ran + ran / 4 + slack, ran, charged)
    }
}

/// Slices of victims that were cut short, and the longest that a victim on a node waited.
pub fn lateness() -> (u64, [u64; SIDES as usize]) {
    (
        CUT.load(Relaxed),
        core::array::from_fn(|t| LATEST[t].load(Relaxed)),
    )
}

/// From now on only victims run.
pub fn stop_attackers() {
    OVER.store(1, Release);
}

/// Whether the victim's thread on a node has ended.
pub fn has_ended(t: usize) -> bool {
    ENDED.load(Acquire) & 1 << t != 0
}
