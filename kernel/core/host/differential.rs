//! Fast and slow paths do the same: random traces of system calls and faults run on two systems in step,
//! one with fast paths and one without. Results are compared after every step, all words of memory after
//! every trace.
//!
//! Addresses are also drawn that no operation takes: within a page, outside of the user half, and such as lead
//! to a page's entry of the tables although they are another address.
//!
//! Besides memory, each step must leave the same intents behind and the same counts of the CPU. Not compared
//! are intents of a step that is refused (a fast path that gives up has begun and ended a row).

#![allow(clippy::result_large_err)]

mod scene;

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

use dyad_abi::{Isa, NodeId};
use dyad_random::SplitMix64;
use dyad_shm::PoolId;
use dyad_shm::intent::IntentRecord;
use dyad_tier::size;

use self::scene::{Scene, Step};
use super::ktests::joined;
use super::system::PAIR;
use super::{Left, Machine, MockX86, World, crash, result, trap};
use crate::ktest::rig::Rig;
use crate::ktest::{TestCtx, run_here};
use crate::syscall::entry::user_fault;
use dyad_machine::console::INTERVAL_NS;
use dyad_machine::inbox;
use dyad_machine::platform::UserFault;
use dyad_object::thread::{Owner, State, begun};

/// Frames of a pool.
const FRAMES: u64 = 1024;
/// Steps of a trace: after these most objects are gone.
const STEPS: usize = 400;
/// What a step led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    left: Left,
    result: (u64, u64),
    /// What the CPU holds then.
    component: u64,
    space: u64,
    /// Page faults, doorbells and messages so far.
    counts: [u64; 3],
    /// Whether the register area is incomplete.
    partial: bool,
}

/// One of the two systems.
struct Side<'a> {
    m: Machine,
    rig: &'a Rig<'a>,
    scene: Scene,
}

impl Side<'_> {
    /// Takes a step. What it led to, and the intents that were open meanwhile.
    fn step(&self, step: Step) -> (Option<Outcome>, Vec<Intent>) {
        self.m.enter();
        let line = self.rig.k.intents().line();
        let words = core::array::from_fn(|i| super::word(self.m.node(), line.add(8 * i as u64)));
        intents_of(words, || self.take(step))
    }

    fn take(&self, step: Step) -> Option<Outcome> {
        let (m, t) = (self.m, self.scene.thread);
        let left = match step {
            Step::Round => {
                self.rig.round().ok()?;
                return None;
            }
            Step::Call(word, a) => {
                let area = t.regs(Isa::X86_64);
                super::put(area, super::PARTIAL, [1]);
                m.kernel(|| trap::<MockX86>(area, word, a))
            }
            Step::Fault(address, kind) => {
                let fault = UserFault {
                    kind,
                    address,
                    raw: 0,
                };
                m.kernel(|| user_fault::<MockX86>(t.regs(Isa::X86_64), fault))
            }
        };
        let local = m.local();
        let outcome = Outcome {
            left,
            result: result::<MockX86>(t),
            component: local.component.get(),
            space: local.space.get(),
            counts: [
                local.faults.get(),
                inbox::rung(m.node()),
                inbox::sent(m.node()),
            ],
            partial: local.partial_frame.get(),
        };
        if !self.rig.runs(self.rig.thread) {
            self.again();
        }
        Some(outcome)
    }

    /// The thread of the rig runs again, in its component, whatever has become of it; no other thread runs.
    fn again(&self) {
        let (rig, t) = (self.rig, self.scene.thread);
        rig.stand_down();
        for word in [&t.depth, &t.fault, &t.event, &t.result] {
            word.store(0, Ordering::Relaxed);
        }
        let component = rig.component.bits();
        t.component.store(component, Ordering::Relaxed);
        t.started[Isa::X86_64.index()].store(begun::HERE, Ordering::Relaxed);
        let owner = |state| Owner {
            state,
            node: self.m.node().id(),
            incarnation: 1,
            seq: 0,
        };
        t.owner
            .store(owner(State::Running).bits(), Ordering::Relaxed);
        let root = rig.as_thread(self.scene.root).unwrap();
        root.owner
            .store(owner(State::Ready).bits(), Ordering::Relaxed);
        let roots = &self.m.node().roots;
        roots[0].store(self.scene.root.bits(), Ordering::Relaxed);
        rig.run(rig.thread).unwrap();
    }
}

/// The words of an intent.
type Intent = [u64; IntentRecord::WORDS];

/// The intents that a CPU has open while `f` runs, as a node would find them that recovers it.
fn intents_of<T>(
    words: [&'static AtomicU64; IntentRecord::WORDS],
    f: impl FnOnce() -> T,
) -> (T, Vec<Intent>) {
    type Noted = Rc<RefCell<Option<Vec<Intent>>>>;
    fn look(words: [&'static AtomicU64; IntentRecord::WORDS], seen: Noted) {
        if let Some(all) = seen.borrow_mut().as_mut() {
            let now = words.map(|w| w.load(Ordering::Relaxed));
            if now[0] != 0 && all.last() != Some(&now) {
                all.push(now);
            }
        } else {
            return;
        }
        crash::later(0, move || look(words, seen));
    }
    let seen: Noted = Rc::new(RefCell::new(Some(Vec::new())));
    look(words, seen.clone());
    let value = f();
    let all = seen.take();
    // Looks no more.
    crash::now();
    (value, all.unwrap_or_default())
}

/// Words of memory that differ: where they are, and what they are.
fn differences(a: &Side<'_>, b: &Side<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let intents = a.rig.k.intents().line();
    let is_clear =
        [a, b].map(|side| super::word(side.m.node(), intents).load(Ordering::Relaxed)) == [0; 2];
    let mut pools: Vec<PoolId> = (0..PAIR.len() as u64)
        .map(|i| PoolId::Local(NodeId::new(i).unwrap()))
        .collect();
    pools.push(PoolId::Cxl);
    for pool in pools {
        let size = a.m.node().map.size(pool);
        for at in (0..size).step_by(8) {
            let pa = pool.base().add(at);
            let x = super::word(a.m.node(), pa).load(Ordering::Relaxed);
            let y = super::word(b.m.node(), pa).load(Ordering::Relaxed);
            // Of a row that is over.
            let of_intent = pa.0 & !63 == intents.0 && pa.0 != intents.0 && is_clear;
            if x != y && !of_intent {
                found.push(format!(
                    "{pa:?} ({pool:?} + {at:#x}): {x:#x}, slowly {y:#x}"
                ));
            }
        }
    }
    found
}

/// Runs a trace on both; memory is compared after the last step, or after each.
fn trace(seed: u64, each: bool) -> Result<(), String> {
    let worlds = [World::new(&PAIR, FRAMES), World::new(&PAIR, FRAMES)];
    let machines = [0, 1].map(|i| joined::<MockX86>(&worlds[i], 0));
    let mut found = Ok(());
    let both = |fast: &TestCtx<'_>| {
        machines[0].enter();
        let rig = Rig::new(fast)?;
        let a = Side {
            m: machines[0],
            rig: &rig,
            scene: Scene::new(&rig)?,
        };
        machines[1].enter();
        run_here::<MockX86>(machines[1].node(), |slow| {
            let rig = Rig::new(slow)?;
            let b = Side {
                m: machines[1],
                rig: &rig,
                scene: Scene::new(&rig)?,
            };
            b.m.local().cache.set_slow(true);
            found = in_step(&a, &b, seed, each);
            Ok(None)
        })
    };
    machines[0].enter();
    super::ktests::passes::<MockX86>(run_here::<MockX86>(machines[0].node(), both));
    found
}

fn in_step(a: &Side<'_>, b: &Side<'_>, seed: u64, each: bool) -> Result<(), String> {
    for side in [a, b] {
        side.m.enter();
        side.again();
    }
    // The paths look at the clock differently often.
    super::stop_time();
    let mut rng = SplitMix64(seed);
    for n in 0..STEPS {
        let step = a.scene.step(&mut rng);
        // Reports of faults have a budget by time, which all tests share.
        super::pass_time(INTERVAL_NS);
        let ((fast, intents), (slow, slowly)) = (a.step(step), b.step(step));
        let outcomes = [fast, slow];
        let at = || format!("seed {seed}, step {n}: {step:x?}");
        if outcomes[0] != outcomes[1] {
            return Err(format!("{}\n{outcomes:#x?}", at()));
        }
        if fast.is_some_and(|o| o.result.0 == 0) && intents != slowly {
            return Err(format!(
                "{}, intents\n{intents:#x?}\nslowly {slowly:#x?}",
                at()
            ));
        }
        if each || n + 1 == STEPS {
            let found = differences(a, b);
            if !found.is_empty() {
                return Err(format!("{MEMORY} {}, {outcomes:x?}\n{found:#?}", at()));
            }
        }
    }
    Ok(())
}

/// What the account of a difference in memory begins with.
const MEMORY: &str = "memory:";

/// Runs traces; of one that differs it is told after which step.
fn traces(seeds: Range<u64>) {
    for seed in seeds {
        if let Err(why) = trace(seed, false) {
            let first = why.starts_with(MEMORY).then(|| trace(seed, true).err());
            panic!("{}", first.flatten().unwrap_or(why));
        }
    }
}

/// In the tier `long` a million steps.
#[test]
fn fast_and_slow_paths_do_the_same() {
    let steps: u64 = size(4_000, 80_000, 1_000_000);
    traces(0..steps.div_ceil(STEPS as u64));
}
