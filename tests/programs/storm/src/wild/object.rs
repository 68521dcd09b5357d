//! Operations on components, threads, endpoints, budgets and guards.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, ComponentOp, INTROSPECT, LivenessOp, ReceiveOp, ThreadOp, TimeOp};
use dyad_abi::service::slot;
use dyad_abi::user::{USER_END, USER_MIN};

use super::{NO_LINE, operand, place, rights};
use crate::actor::{Actor, GUESTS};
use crate::calls::make;
use crate::setup::WAITING;
use crate::world::{WORLD, guest, slot_of};

/// Where threads of components that have no code begin: a fault at once.
fn nowhere(a: &Actor) -> u64 {
    a.pick(&[0x1000, USER_MIN, 0x1000_0000, USER_END, USER_END - 4096])
}

pub(super) fn on_component(a: &Actor) {
    let (ty, cap) = (CapType::Component, slot_of(CapType::Component, a.next()));
    let call = |op: ComponentOp, args| {
        let _ = make(a, ty, cap, op as u64, args);
    };
    match a.below(8) {
        0..4 => {
            // Never the program's own space, of which there are copies among the storm's: code
            // would run that is not made for that.
            let space = operand(a, CapType::Space);
            let table = operand(a, CapType::Captbl).max(NO_LINE);
            call(ComponentOp::Configure, [table, space, 0, 0, 0]);
        }
        4 => call(
            ComponentOp::SetFaultHandler,
            [operand(a, CapType::Sinv), 0, 0, 0, 0],
        ),
        5 => {
            let nodes = WORLD.nodes.load(Ordering::Relaxed);
            let home = a.below(1 << (nodes + 1));
            call(ComponentOp::SetHome, [home, 0, 0, 0, 0]);
        }
        _ => {
            let args = [place(a, CapType::Sinv), nowhere(a), a.next(), rights(a), 0];
            call(ComponentOp::MakeSinv, args);
        }
    }
}

pub(super) fn on_thread(a: &Actor) {
    let ty = CapType::Thread;
    let wild = a.rarely(2);
    let cap = match wild {
        true => slot_of(ty, a.next()),
        false => guest(a.below(GUESTS as u64) as usize),
    };
    let call = |op: ThreadOp, args| {
        let _ = make(a, ty, cap, op as u64, args);
    };
    match a.below(12) {
        // Guests are configured where it is known that nobody has their stacks.
        0..3 if wild => {
            let component = operand(a, CapType::Component).max(NO_LINE);
            let scheduler = operand(a, CapType::Receive);
            let id = 100 + a.below(4200);
            let ids = operand(a, CapType::ThreadIds) << 32;
            let args = [
                component,
                nowhere(a),
                a.next(),
                id | 7 << 32,
                scheduler | ids,
            ];
            call(ThreadOp::Configure, args);
        }
        3 | 4 => {
            let slice = (1 + a.below(1_000_000)) | (a.below(64) << 56);
            let time = match a.below(4) {
                0 => operand(a, CapType::Time),
                _ => 0,
            };
            call(ThreadOp::Dispatch, [slice, time, 0, 0, 0]);
        }
        5 => call(ThreadOp::ReadRegister, [a.below(3), a.below(40), 0, 0, 0]),
        6 => {
            let register = a.pick(&[64, 1000]);
            call(
                ThreadOp::WriteRegister,
                [a.below(3), register, a.next(), 0, 0],
            );
        }
        7 => call(ThreadOp::Stop, [0; 5]),
        8 | 9 => {
            let nodes = WORLD.nodes.load(Ordering::Relaxed);
            let cpus = WORLD.cpus.load(Ordering::Relaxed);
            let place = a.below(nodes + 1) | a.below(cpus + 1) << 8 | a.below(2) << 63;
            call(ThreadOp::Resume, [place, 0, 0, 0, 0]);
        }
        // Only for the caller itself.
        10 if wild => {
            let op = a.pick(&[4, 7, 8]);
            let _ = make(a, ty, cap, op, [a.below(3), 0, 0, 0, 0]);
        }
        _ => {
            let _ = make(a, ty, cap, INTROSPECT.into(), [0; 5]);
        }
    }
}

pub(super) fn on_receive(a: &Actor) {
    let ty = CapType::Receive;
    let own = a.rarely(2);
    let cap = if own {
        slot::ENDPOINT
    } else {
        slot_of(ty, a.next())
    };
    let line = match a.below(8) {
        0 => a.pick(&[64, 65, 1 << 32, u64::MAX]),
        _ => WAITING.start + a.below(WAITING.end - WAITING.start),
    };
    let _ = match a.below(6) {
        // It does not wait: the actor may be the thread that runs when nobody does.
        0 | 1 => make(a, ty, cap, ReceiveOp::Receive as u64, [line, 1, 0, 0, 0]),
        2 | 3 => {
            let bits = a.pick(&[0, 1, 2, 1 << 63, u64::MAX]);
            let args = [line, place(a, CapType::Send), bits, 0, 0];
            make(a, ty, cap, ReceiveOp::MakeSend as u64, args)
        }
        _ => {
            let home = a.below(9) | a.below(9) << 8 | a.next() << 16;
            make(a, ty, cap, ReceiveOp::Bind as u64, [line, home, 0, 0, 0])
        }
    };
}

pub(super) fn on_time(a: &Actor) {
    let (ty, cap) = (CapType::Time, slot_of(CapType::Time, a.next()));
    let op = 1 + a.below(TimeOp::ALL.len() as u64 + 1);
    let ns = if a.rarely(4) {
        a.next()
    } else {
        a.below(1 << 24)
    };
    let _ = make(a, ty, cap, op, [operand(a, ty).max(NO_LINE), ns, 0, 0, 0]);
}

pub(super) fn on_liveness(a: &Actor) {
    let (ty, cap) = (CapType::Liveness, slot_of(CapType::Liveness, a.next()));
    let entry = match a.below(8) {
        0 => a.pick(&[511, 512, 1 << 32, u64::MAX]),
        _ => a.below(16),
    };
    let _ = make(a, ty, cap, LivenessOp::Revoke as u64, [entry, 1, 0, 0, 0]);
}
