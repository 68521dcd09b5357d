//! Budgets of time.

use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{CapType, ThreadOp, TimeOp};
use dyad_abi::service::slot;
use dyad_services::first::TABLE;
use dyad_sys::cap::{Cap, Narrow, Time};

use super::thread::{WITH_HELPER, begin_helper, helper, resume_helper_at};
use super::{Case, IDLE};
use crate::me::{achieved, call, here, note, now, odd, tried};
use crate::shared::at;
use crate::store::patiently;
use crate::{refuse, work};

const FIRST: u32 = at::full(CapType::Time);
const SECOND: u32 = FIRST + 64;
/// Nanoseconds that each of two budgets has.
const BUDGET: u64 = 2_000_000;
/// What a thread may run on them, by its own looks at the clock: what they have, how late a timer may be each
/// time, and what others run between two looks.
const MOST: u64 = 8 * BUDGET;

/// Word of the case: nanoseconds that the helper has run.
const RAN: usize = 4;
/// More than this between two looks at the clock: others ran.
const GAP: u64 = 100_000;

/// Gives the attacker two budgets, in slots of its own.
fn budgets(s: &mut crate::run::Scene<'_>, ns: u64) -> dyad_abi::Result<()> {
    let time: Cap<Time> = s
        .attacker
        .object(s.store, dyad_abi::cap::ObjectKind::Time)?;
    for (n, to) in (0..).zip([FIRST, SECOND]) {
        let part = s.store.slot()?.index();
        let all = dyad_abi::cap::Rights::ALL;
        let budget = patiently(|| TABLE.copy_in(part, time, all, None, Narrow::range(n, 1)))?;
        Cap::<Time>::at(slot::TIME).transfer(budget, ns)?;
        s.attacker.give(to, budget, all)?;
    }
    Ok(())
}

fn left(of: u32) -> u64 {
    work!(call(of, TimeOp::Read as u32, [0; 5]))
}

pub const CASES: [Case; 5] = [
    Case {
        name: "time_budget_without_end",
        grant: |s| {
            super::thread::control_alone(s)?;
            budgets(s, BUDGET)
        },
        act: || {
            begin_helper();
            resume_helper_at(here().0, 0);
            let (mut on, mut refusals) = (0u64, 0);
            // The helper gives away what it runs on, and runs on the other one next.
            while refusals < 4 && note(RAN).load(Relaxed) <= MOST {
                note(0).store(on, Relaxed);
                let budget = [FIRST, SECOND][on as usize % 2];
                match helper(ThreadOp::Dispatch, [400_000, budget.into(), 0]) {
                    Ok(_) => refusals = 0,
                    Err(dyad_abi::Error::NoTime) => refusals += 1,
                    Err(e) => {
                        odd(line!(), e.code());
                        break;
                    }
                }
                on += 1;
            }
            let ran = note(RAN).load(Relaxed);
            if ran > MOST {
                achieved(line!(), ran);
            }
            // If the host has run others all the time, nothing has been tried.
            if ran > 0 {
                tried();
            }
        },
        help: |_| {
            let on = note(0).load(Relaxed) as usize % 2;
            let (from, to) = ([FIRST, SECOND][on], [SECOND, FIRST][on]);
            // What it has run is what passes between two looks at the clock, if it ran meanwhile.
            let (before, clock) = (note(3).load(Relaxed), now());
            note(3).store(clock, Relaxed);
            if clock - before < GAP {
                note(RAN).fetch_add(clock - before, Relaxed);
            }
            let unspent = left(from);
            // Only once in a dispatch: then it runs to the end of its slice.
            if note(2).swap(on as u64 + 1, Relaxed) != on as u64 + 1 {
                let _ = call(from, TimeOp::Transfer as u32, [to.into(), unspent, 0, 0, 0]);
            }
        },
        ..WITH_HELPER
    },
    Case {
        name: "time_made_of_nothing",
        grant: |s| budgets(s, BUDGET),
        act: || {
            let transfer = |from: u32, to: u32, ns: u64| {
                call(from, TimeOp::Transfer as u32, [to.into(), ns, 0, 0, 0])
            };
            for ns in [
                BUDGET + 1,
                2 * BUDGET,
                1 << 63,
                u64::MAX,
                u64::MAX - BUDGET,
                u64::MAX - BUDGET + 1,
            ] {
                refuse!(transfer(FIRST, SECOND, ns), NoTime);
                refuse!(transfer(FIRST, FIRST, ns), NoTime);
            }
            work!(transfer(FIRST, FIRST, BUDGET));
            work!(transfer(FIRST, SECOND, BUDGET));
            work!(transfer(SECOND, FIRST, BUDGET / 2));
            refuse!(transfer(FIRST, at::THREAD, 1), WrongCap);
            refuse!(transfer(FIRST, at::EMPTY, 1), NoCap);
            tried();
            let all = left(FIRST) + left(SECOND);
            if all != 2 * BUDGET {
                achieved(line!(), all);
            }
        },
        ..IDLE
    },
    Case {
        name: "time_of_others",
        // The victim's budget is beside the attacker's, in one frame.
        grant: |s| {
            super::generic::own_table(s)?;
            let time: Cap<Time> = s
                .attacker
                .object(s.store, dyad_abi::cap::ObjectKind::Time)?;
            let all = dyad_abi::cap::Rights::ALL;
            Cap::<Time>::at(slot::TIME).transfer(time, BUDGET)?;
            s.victim.give(at::SUBJECT, time, all)?;
            let part = Narrow::range(1, 2);
            s.attacker.give_part(FIRST, time, all, part)?;
            // What the victim may be given, and nothing else.
            s.attacker.give(SECOND, time, dyad_abi::cap::Rights::NONE)?;
            s.tell(8, time.index().get().into());
            Ok(())
        },
        act: || {
            refuse!(call(SECOND, TimeOp::Read as u32, [0; 5]), Denied);
            let args = [FIRST.into(), 1, 0, 0, 0];
            refuse!(call(SECOND, TimeOp::Transfer as u32, args), Denied);
            let args = [SECOND.into(), 1, 0, 0, 0];
            refuse!(call(FIRST, TimeOp::Transfer as u32, args), NoTime);
            for (first, count) in [(2, 1), (0, 3), (u64::MAX, 1), (u64::MAX, 2), (1, 2)] {
                let rights: u64 = u32::MAX.into();
                let args = [at::FREE.into(), FIRST.into(), rights, first, count];
                refuse!(call(at::TABLE, 2, args), BadArgument);
            }
            tried();
            if left(FIRST) != 0 {
                achieved(line!(), left(FIRST));
            }
        },
        look: |s| {
            let index = dyad_abi::cap::CapIndex::new(s.note(8));
            let left = index.map(|i| Cap::<Time>::at(i).left());
            (left != Some(Ok(BUDGET))).then_some("the victim's budget has changed")
        },
        ..IDLE
    },
    Case {
        name: "time_child_without_a_budget_leaves_the_node",
        act: || child(false),
        ..WITH_CHILD
    },
    Case {
        name: "time_child_without_a_budget_is_sent_away",
        act: || child(true),
        ..WITH_CHILD
    },
];

/// The child of the helper, which has no budget of its own.
const CHILD: u32 = at::SUBJECT;
/// Words of the case: the child has come to where it leaves; it has run on another node.
const LEAVES: usize = 5;
const ELSEWHERE: usize = 6;
/// Whether the helper sends the child away, rather than that it goes.
const SENT: usize = 7;

/// The attacker dispatches the helper on a budget, and the helper the child without one.
const WITH_CHILD: Case = Case {
    helpers: 2,
    far: true,
    grant: |s| {
        super::thread::control_alone(s)?;
        budgets(s, BUDGET)?;
        let child = s.thread(2)?;
        s.attacker.give(CHILD, child, dyad_abi::cap::Rights::ALL)
    },
    help: |n| match n {
        1 => parent(),
        _ => leave(),
    },
    ..WITH_HELPER
};

fn of_child(o: ThreadOp, args: [u64; 3]) -> dyad_abi::Result<u64> {
    call(CHILD, o as u32, [args[0], args[1], args[2], 0, 0])
}

/// Runs both until the budget is used up, then waits: nothing dispatches the child on the other node.
fn child(sent: bool) {
    note(SENT).store(sent.into(), Relaxed);
    work!(configure_child());
    work!(of_child(ThreadOp::Resume, [1 << 63 | here().0, 0, 0]));
    begin_helper();
    resume_helper_at(here().0, 0);
    for _ in 0..40 {
        let _ = helper(ThreadOp::Dispatch, [400_000, FIRST.into(), 0]);
        if note(LEAVES).load(Relaxed) != 0 {
            break;
        }
        crate::me::yield_now();
    }
    // If the host has run others all the time, nothing has been tried.
    if note(LEAVES).load(Relaxed) != 0 {
        tried();
    }
    let end = now() + 10 * BUDGET;
    while now() < end {
        crate::me::yield_now();
    }
    if note(ELSEWHERE).load(Relaxed) != 0 {
        achieved(line!(), note(ELSEWHERE).load(Relaxed));
    }
}

fn configure_child() -> dyad_abi::Result<u64> {
    let case = crate::shared::report(crate::shared::word::NOTES - 1).load(Relaxed);
    let entry = crate::warden::entry_address();
    let id = u64::from(crate::run::ATTACKERS.start) + 2;
    let tag = u64::from(crate::sched::TAG) + 3;
    let ends = u64::from(super::thread::SCHEDULER) | u64::from(at::IDS) << 32;
    let arg = crate::shared::ATTACKER | case << 8 | 2;
    let args = [at::COMPONENT.into(), entry, arg, id | tag << 32, ends];
    call(CHILD, ThreadOp::Configure as u32, args)
}

/// The helper: gives its time to the child, or sends it to the last node.
fn parent() {
    let last = crate::me::nodes() - 1;
    if note(SENT).load(Relaxed) != 0 {
        if of_child(ThreadOp::Stop, [0; 3]).is_ok()
            && of_child(ThreadOp::Resume, [1 << 63 | last, 0, 0]).is_ok()
        {
            note(LEAVES).store(1, Relaxed);
        }
        return;
    }
    let _ = of_child(ThreadOp::Dispatch, [300_000, 0, 0]);
}

/// The child: goes to the last node, unless it is sent there. Whatever it does there is uncharged.
fn leave() {
    if here().0 != 0 {
        note(ELSEWHERE).fetch_add(1, Relaxed);
        return;
    }
    if note(SENT).load(Relaxed) == 0 {
        note(LEAVES).store(1, Relaxed);
        let _ = of_child(ThreadOp::Migrate, [crate::me::nodes() - 1, 0, 0]);
    }
}
