//! Hardware and liveness: other nodes, pointers, entries of others.

use dyad_abi::cap::{CapType, HardwareOp, LivenessOp, Rights, ThreadOp};
use dyad_abi::user::USER_END;
use dyad_abi::{Error, NodeId};
use dyad_services::first::HOME;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Liveness, Narrow, Send};

use super::generic::{own_table, sample};
use super::{Case, IDLE};
use crate::me::{call, copy, nodes};
use crate::shared::{HEAP, NOWHERE, REPORT, at, word_of};
use crate::{refuse, work};

const HARDWARE: u32 = at::full(CapType::Hardware);
const LIVENESS: u32 = at::full(CapType::Liveness);

fn op(o: HardwareOp, args: [u64; 2]) -> Result<u64, Error> {
    call(HARDWARE, o as u32, [args[0], args[1], 0, 0, 0])
}

const fn of(ops: &[HardwareOp]) -> Rights {
    let (mut rights, mut i) = (Rights::NONE, 0);
    while i < ops.len() {
        rights = rights.or(ops[i].right());
        i += 1;
    }
    rights
}

pub const CASES: [Case; 7] = [
    Case {
        name: "hardware_of_another_node",
        grant: |s| {
            use HardwareOp::*;
            let rights = of(&[FlushStep, FlushTlb, AttachIrq, Write, Report]);
            let last = NodeId::new(s.store.nodes - 1).ok_or(Error::NoSuchNode)?;
            let send = sample(s, CapType::Send)?;
            s.attacker
                .give(at::full(CapType::Send), send, Rights::ALL)?;
            s.attacker.give(HARDWARE, rt::hardware(last), rights)
        },
        act: || {
            use HardwareOp::*;
            let send: u64 = at::full(CapType::Send).into();
            for (o, args) in [
                (FlushStep, [1, 0]),
                (FlushTlb, [0, 0]),
                (AttachIrq, [5, send]),
                (AttachIrq, [5, 0]),
                (Write, [HEAP, 1]),
                (Report, [HEAP, 0]),
            ] {
                refuse!(op(o, args), NotReady);
            }
            for o in [Shutdown, StartCpu, Now, Quiesced, Where, NodeState, Count] {
                refuse!(op(o, [0, 0]), Denied);
            }
        },
        ..IDLE
    },
    Case {
        name: "hardware_inside_of_others",
        grant: |s| {
            let rights = of(&[HardwareOp::Inside]);
            s.attacker.give(HARDWARE, rt::hardware(HOME), rights)
        },
        act: || {
            for id in 0..dyad_abi::service::MAX_THREAD_IDS {
                for depth in [1, 2, 16, 255] {
                    let told = op(HardwareOp::Inside, [id << 8 | depth, 0]);
                    // More than one bit about others would be an answer to another question.
                    let one_bit = if told.is_ok_and(|v| v > 1) {
                        Err(Error::Corrupt)
                    } else {
                        told
                    };
                    work!(one_bit);
                }
                refuse!(op(HardwareOp::Inside, [id << 8, 0]), BadArgument);
            }
            for token in [0, 4096 << 8 | 1, 1 << 32 | 1, u64::MAX] {
                refuse!(op(HardwareOp::Inside, [token, 0]), BadArgument);
            }
        },
        ..IDLE
    },
    Case {
        name: "hardware_pointers_into_the_kernel",
        grant: |s| {
            let rights = of(&[HardwareOp::Write, HardwareOp::Report]);
            let _ = s;
            s.attacker.give(HARDWARE, rt::hardware(HOME), rights)
        },
        act: || {
            use HardwareOp::*;
            for at in [
                0,
                8,
                NOWHERE,
                USER_END - 4,
                USER_END,
                1 << 48,
                1 << 63,
                0xffff_8000_0000_0000,
                0xffff_8040_0000_0000,
                u64::MAX - 3,
                u64::MAX,
            ] {
                refuse!(op(Write, [at, 16]), BadAddress);
                refuse!(op(Write, [at, u64::MAX]), BadAddress);
                refuse!(op(Report, [at, 0]), BadAddress);
                // A good page of words, with pointers to such places.
                for (i, w) in [0, 1, at, 8, at, 8].into_iter().enumerate() {
                    word_of(HEAP, i).store(w, core::sync::atomic::Ordering::Relaxed);
                }
                refuse!(op(Report, [HEAP, 0]), BadAddress);
            }
            // No such kind, and kinds of programs that there are not.
            for kind in [2, 0xff, 32 << 8, 1 << 63] {
                for (i, w) in [kind, 1, REPORT, 8, REPORT, 8].into_iter().enumerate() {
                    word_of(HEAP, i).store(w, core::sync::atomic::Ordering::Relaxed);
                }
                refuse!(op(Report, [HEAP, 0]), BadArgument);
            }
            // Lengths that nobody has.
            for (i, w) in [0, 1, REPORT, u64::MAX, REPORT, 1].into_iter().enumerate() {
                word_of(HEAP, i).store(w, core::sync::atomic::Ordering::Relaxed);
            }
            refuse!(op(Report, [HEAP, 0]), TooLarge);
        },
        ..IDLE
    },
    Case {
        name: "hardware_cpu_given_to_a_thread_without_authority",
        grant: |s| {
            own_table(s)?;
            let rights = of(&[HardwareOp::StartCpu]);
            s.attacker.give(HARDWARE, rt::hardware(HOME), rights)?;
            let thread = s.victim_thread;
            let rights = Rights(!ThreadOp::Resume.right().0);
            s.attacker.give(at::SUBJECT, thread, rights)
        },
        act: || {
            use HardwareOp::StartCpu;
            let thread: u64 = at::SUBJECT.into();
            refuse!(op(StartCpu, [0, thread]), Denied);
            refuse!(op(StartCpu, [0, at::SERVICE.into()]), WrongCap);
            for cpu in [crate::me::cpus(), 8, 64, 1 << 32, u64::MAX] {
                refuse!(op(StartCpu, [cpu, thread]), BadArgument);
            }
            // The attacker itself, which runs.
            refuse!(op(StartCpu, [0, at::THREAD.into()]), Denied);
        },
        ..IDLE
    },
    Case {
        name: "hardware_interrupts_with_a_guarded_end",
        grant: |s| {
            let rights = of(&[HardwareOp::AttachIrq]);
            s.attacker.give(HARDWARE, rt::hardware(HOME), rights)?;
            let liveness: Cap<Liveness> = s
                .attacker
                .object(s.store, dyad_abi::cap::ObjectKind::Liveness)?;
            let send: Cap<Send> = Cap::at(sample(s, CapType::Send)?.index());
            s.attacker.give_guarded(
                at::guarded(CapType::Send),
                send,
                Rights::ALL,
                liveness.guard(0),
            )?;
            s.attacker.give(at::full(CapType::Send), send, Rights::ALL)
        },
        act: || {
            use HardwareOp::AttachIrq;
            refuse!(
                op(AttachIrq, [5, at::guarded(CapType::Send).into()]),
                Denied
            );
            refuse!(op(AttachIrq, [5, at::THREAD.into()]), WrongCap);
            for number in [64, 1 << 32, u64::MAX] {
                refuse!(
                    op(AttachIrq, [number, at::full(CapType::Send).into()]),
                    BadArgument
                );
            }
        },
        ..IDLE
    },
    Case {
        name: "liveness_entries_of_others",
        // Entry 0 guards a capability of the victim; the attacker has entries 8 to 15.
        grant: |s| {
            let liveness: Cap<Liveness> = s
                .attacker
                .object(s.store, dyad_abi::cap::ObjectKind::Liveness)?;
            let time = sample(s, CapType::Time)?;
            s.victim
                .give_guarded(at::SUBJECT, time, Rights::ALL, liveness.guard(0))?;
            s.attacker
                .give_part(LIVENESS, liveness, Rights::ALL, Narrow::range(8, 8))
        },
        act: || {
            for entry in [
                8,
                9,
                504,
                512,
                1 << 32,
                u64::MAX,
                u64::MAX - 7,
                u64::MAX - 8,
                1 << 63,
            ] {
                let revoke = LivenessOp::Revoke as u32;
                refuse!(call(LIVENESS, revoke, [entry, 0, 0, 0, 0]), BadArgument);
            }
            for entry in 0..8 {
                work!(call(
                    LIVENESS,
                    LivenessOp::Revoke as u32,
                    [entry, 0, 0, 0, 0]
                ));
            }
        },
        ..IDLE
    },
    Case {
        name: "liveness_guard_taken_off",
        grant: |s| {
            own_table(s)?;
            let liveness: Cap<Liveness> = s
                .attacker
                .object(s.store, dyad_abi::cap::ObjectKind::Liveness)?;
            let time = sample(s, CapType::Time)?;
            s.attacker.give_guarded(
                at::full(CapType::Time),
                time,
                Rights::ALL,
                liveness.guard(3),
            )?;
            let part = Narrow::range(8, 8);
            s.attacker
                .give_part(LIVENESS, liveness, Rights::ALL, part)?;
            s.attacker
                .give_part(at::bare(CapType::Liveness), liveness, Rights(1 << 2), part)?;
            s.tell(8, liveness.index().get().into());
            Ok(())
        },
        act: || {
            let guard = |liveness: u32, entry: u64| {
                let bits = u64::from(liveness) & 0x7fff | entry << 15;
                bits << 32 | u64::from(u32::MAX)
            };
            let copied = |to: u32, from: u32, how: u64| {
                call(at::TABLE, 2, [to.into(), from.into(), how, 0, 0])
            };
            let time = at::full(CapType::Time);
            // Another guard instead of the one it has.
            refuse!(copied(at::FREE, time, guard(LIVENESS, 0)), Exists);
            // Entries beyond its own, and without the right to guard.
            for entry in [8, 16, 500, 511] {
                refuse!(
                    copied(at::FREE, at::THREAD, guard(LIVENESS, entry)),
                    Denied | BadArgument
                );
                refuse!(
                    copied(at::FREE, LIVENESS, guard(LIVENESS, entry)),
                    BadArgument
                );
            }
            let bare = at::bare(CapType::Liveness);
            refuse!(copied(at::FREE, LIVENESS, guard(bare, 0)), Denied);
            // Copies keep it.
            work!(copy(at::FREE + 1, time, Rights::ALL));
            crate::me::step();
            refuse!(call(at::FREE + 1, 2, [0; 5]), Revoked);
            refuse!(call(time, 2, [0; 5]), Revoked);
            let _ = nodes();
        },
        step: |s, _| {
            let index = dyad_abi::cap::CapIndex::new(s.note(8)).ok_or(Error::Corrupt)?;
            Cap::<Liveness>::at(index).revoke(3)
        },
        ..IDLE
    },
];
