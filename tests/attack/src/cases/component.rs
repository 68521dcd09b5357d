//! Components: handlers, entries, parts, homes.

use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::Error;
use dyad_abi::cap::{CapType, ComponentOp, Rights, SinvOp};
use dyad_abi::user::{TEXT_BASE, USER_END};
use dyad_sys::cap::{Cap, Component};

use super::generic::{own_table, sample};
use super::thread::{WITH_HELPER, play_helper};
use super::{Case, IDLE};
use crate::me::{achieved, call, invoke, note, odd, place};
use crate::shared::{NOWHERE, SECRET_WORD, VICTIM, at, call as ask, report, word, word_of};
use crate::{refuse, work};

const SUBJECT: u32 = at::SUBJECT;

fn op(cap: u32, o: ComponentOp, args: [u64; 4]) -> Result<u64, Error> {
    call(cap, o as u32, [args[0], args[1], args[2], args[3], 0])
}

/// The victim's component with one right only.
fn with(s: &mut crate::run::Scene<'_>, o: ComponentOp) -> dyad_abi::Result<()> {
    own_table(s)?;
    s.attacker.give(SUBJECT, s.victim.component, o.right())
}

pub const CASES: [Case; 7] = [
    Case {
        name: "component_fault_handler_redirected",
        grant: |s| {
            with(s, ComponentOp::SetHome)?;
            let sinv = sample(s, CapType::Sinv)?;
            s.attacker
                .give(at::full(CapType::Sinv), sinv, Rights::ALL)?;
            let own = SinvOp::Invoke.right();
            s.attacker
                .give(at::bare(CapType::Sinv), sinv, Rights(!own.0))?;
            s.attacker
                .give(at::COMPONENT, s.attacker.component, Rights::ALL)
        },
        act: || {
            use ComponentOp::*;
            let handler = at::full(CapType::Sinv).into();
            refuse!(op(SUBJECT, SetFaultHandler, [handler, 0, 0, 0]), Denied);
            refuse!(op(SUBJECT, SetFaultHandler, [0, 0, 0, 0]), Denied);
            // Its own, to an entry that it may not invoke.
            let bare = at::bare(CapType::Sinv).into();
            refuse!(op(at::COMPONENT, SetFaultHandler, [bare, 0, 0, 0]), Denied);
            let other = at::THREAD.into();
            refuse!(
                op(at::COMPONENT, SetFaultHandler, [other, 0, 0, 0]),
                WrongCap
            );
        },
        ..IDLE
    },
    Case {
        name: "component_entry_forged",
        grant: |s| with(s, ComponentOp::SetHome),
        act: || {
            use ComponentOp::*;
            let all: u64 = u32::MAX.into();
            let args = [place(at::FREE), TEXT_BASE, crate::shared::OWNER, all];
            refuse!(op(SUBJECT, MakeSinv, args), Denied);
            // The badge of an entry it has cannot be changed by a copy.
            let entry = at::SERVICE.into();
            for (first, count) in [(0, 1), (1, 0), (1, 1), (TEXT_BASE, 1), (1, 0x101)] {
                let args = [at::FREE.into(), entry, all, first, count];
                refuse!(call(at::TABLE, 2, args), BadArgument | Denied);
            }
        },
        ..IDLE
    },
    Case {
        name: "component_entry_in_the_kernel",
        // Its own component: the entry must be an address of programs all the same.
        grant: |s| {
            own_table(s)?;
            s.attacker
                .give(at::COMPONENT, s.attacker.component, Rights::ALL)
        },
        act: || {
            let all: u64 = u32::MAX.into();
            for entry in [0, USER_END, 1 << 63, 0xffff_8000_0000_0000, u64::MAX] {
                let args = [place(at::FREE), entry, 1, all];
                refuse!(op(at::COMPONENT, ComponentOp::MakeSinv, args), BadAddress);
            }
            // The last address of programs: the return there is not the kernel's fault.
            let args = [place(at::FREE), USER_END - 1, 1, all];
            work!(op(at::COMPONENT, ComponentOp::MakeSinv, args));
        },
        ..IDLE
    },
    Case {
        name: "component_made_of_parts_of_others",
        // A component of its own, and the victim's table and space without the right to copy them.
        grant: |s| {
            own_table(s)?;
            let component: Cap<Component> = Cap::at(sample(s, CapType::Component)?.index());
            s.attacker.give(at::COMPONENT, component, Rights::ALL)?;
            let no_copy = Rights(!Rights::COPY.0);
            s.attacker.give(
                at::full(CapType::Captbl),
                s.victim.table,
                no_copy.and(Rights(1 << 5)),
            )?;
            s.attacker.give(
                at::full(CapType::Space),
                s.victim.space,
                no_copy.and(Rights(1 << 4)),
            )?;
            s.attacker
                .give(at::SUBJECT, s.attacker.table, Rights::COPY)?;
            s.attacker
                .give(at::SUBJECT + 1, s.attacker.space, Rights::COPY)?;
            let leaf = sample(s, CapType::Captbl)?;
            s.attacker.give(at::SUBJECT + 2, leaf, Rights::ALL)
        },
        act: || {
            let (table, space): (u64, u64) = (
                at::full(CapType::Captbl).into(),
                at::full(CapType::Space).into(),
            );
            let (own_table, own_space): (u64, u64) = (at::SUBJECT.into(), (at::SUBJECT + 1).into());
            let configure = |a, b| op(at::COMPONENT, ComponentOp::Configure, [a, b, 0, 0]);
            refuse!(configure(table, own_space), Denied);
            refuse!(configure(own_table, space), Denied);
            refuse!(configure(table, space), Denied);
            // A leaf is no table of a component.
            refuse!(configure((at::SUBJECT + 2).into(), own_space), BadArgument);
            refuse!(configure(own_space, own_table), WrongCap);
        },
        ..IDLE
    },
    Case {
        name: "component_home_of_nobody",
        grant: |s| {
            s.attacker
                .give(at::COMPONENT, s.attacker.component, Rights::ALL)?;
            s.attacker
                .give(SUBJECT, s.victim.component, ComponentOp::Configure.right())
        },
        act: || {
            use ComponentOp::SetHome;
            for home in [1 << crate::me::nodes(), 1 << 8, 1 << 63, u64::MAX] {
                refuse!(op(at::COMPONENT, SetHome, [home, 0, 0, 0]), NoSuchNode);
            }
            refuse!(op(SUBJECT, SetHome, [1, 0, 0, 0]), Denied);
        },
        ..IDLE
    },
    Case {
        name: "component_victims_service_as_fault_handler",
        // Faults become calls of the victim's service, at addresses and with kinds of the attacker's choice.
        act: || {
            let service = at::SERVICE.into();
            work!(op(
                at::COMPONENT,
                ComponentOp::SetFaultHandler,
                [service, 0, 0, 0]
            ));
            for address in [ask::SECRET, ask::ECHO, ask::WORK, NOWHERE, u64::MAX - 7] {
                note(0).store(address, Relaxed);
                note(1).store(0, Relaxed);
                play_helper();
                if note(1).load(Relaxed) == SECRET_WORD {
                    achieved(line!(), address);
                }
            }
            work!(op(at::COMPONENT, ComponentOp::SetFaultHandler, [0; 4]));
        },
        help: |_| {
            let address = note(0).load(Relaxed);
            // Small numbers are words of a call; the page of address 0 is nobody's.
            note(1).store(word_of(address & !7, 0).load(Relaxed), Relaxed);
            let _ = invoke(at::SERVICE, [ask::ECHO, 1, 2, 0]);
            loop {
                let _ = call(at::HELPER, dyad_abi::cap::ThreadOp::Exit as u32, [0; 5]);
            }
        },
        look: |s| {
            (s.victim_says(word::CALLS) == 0).then_some("no fault has come to the victim's service")
        },
        ..WITH_HELPER
    },
    Case {
        name: "component_thread_begins_in_the_victim",
        // A thread of its own, and the victim's component without the right to configure it.
        grant: |s| {
            super::thread::control(s)?;
            let rights = Rights(!ComponentOp::Configure.right().0);
            let rights = rights.and(Rights(!ComponentOp::SetHome.right().0));
            s.attacker.give(SUBJECT, s.victim.component, rights)
        },
        act: || {
            let id = u64::from(crate::run::ATTACKERS.start + 1);
            let configure = |component: u32| {
                let gadget = super::service::gadget as extern "C" fn() as usize as u64;
                super::thread::configure_helper(component, gadget, VICTIM, (id, 1), 0)
            };
            refuse!(configure(SUBJECT), Denied);
            refuse!(configure(at::SERVICE), WrongCap);
            refuse!(configure(at::EMPTY), NoCap);
            if report(word::NODES).load(Relaxed) == 0 {
                odd(line!(), 0);
            }
        },
        ..WITH_HELPER
    },
];
