//! Operations on address spaces: the program's own, in the window, and the storm's.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, CapType, SpaceOp};
use dyad_abi::service::slot;
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};

use super::operand;
use crate::actor::Actor;
use crate::calls::make;
use crate::world::{WINDOW, WINDOW_PAGES, WORLD, slot_of};

fn table_at(a: &Actor, level: u64) -> u64 {
    match a.below(16) {
        0 => a.pick(&[66, 5 << 8, 3 << 8 | 7, u64::MAX]),
        _ => a.below(2) | level << 8,
    }
}

fn permissions(a: &Actor) -> u64 {
    match a.below(16) {
        0 => a.pick(&[4, 8, u64::MAX]),
        // Code is rewritten by all nodes, which takes long.
        1 => a.below(4),
        _ => a.below(2),
    }
}

/// An operation on the window in the program's own address space.
pub(super) fn on_window(a: &Actor) {
    let page = match a.below(8) {
        0 => a.below(WINDOW_PAGES),
        _ => a.below(32),
    };
    let va = WINDOW + page * PAGE_SIZE;
    // Only where it cannot hit the program.
    let va = match a.below(24) {
        0 => a.pick(&[0, 1, USER_MIN - 1, USER_END, 1 << 63, u64::MAX]),
        1 => va + 1,
        _ => va,
    };
    act_on_space(a, slot::SPACE, va);
}

pub(super) fn on_space(a: &Actor) {
    let base = a.pick(&[
        USER_MIN,
        0x4000_0000,
        0x1000_0000_0000,
        USER_END - 0x20_0000,
    ]);
    let va = base + a.below(48) * PAGE_SIZE;
    let va = match a.below(24) {
        0 => a.pick(&[0, USER_MIN - 1, USER_END - 1, USER_END, u64::MAX]),
        1 => va + 1,
        _ => va,
    };
    act_on_space(a, slot_of(CapType::Space, a.next()), va);
}

fn act_on_space(a: &Actor, cap: CapIndex, va: u64) {
    let (ty, own) = (CapType::Space, cap == slot::SPACE);
    let call = |op: SpaceOp, args| {
        let _ = make(a, ty, cap, op as u64, args);
    };
    match a.below(24) {
        0..5 => {
            let level = if a.rarely(8) { 2 } else { 1 };
            let frame = operand(a, CapType::Frame);
            let args = [table_at(a, level), va, frame, a.below(4), permissions(a)];
            call(SpaceOp::Map, args);
        }
        5..8 => call(SpaceOp::Unmap, [table_at(a, 1), va, 0, 0, 0]),
        8 | 9 => call(SpaceOp::Protect, [table_at(a, 1), va, permissions(a), 0, 0]),
        10 => call(SpaceOp::Harvest, [table_at(a, 1), va, 0, 0, 0]),
        11 => call(SpaceOp::Translate, [table_at(a, 1), va, 0, 0, 0]),
        12..16 => {
            let level = 1 + a.below(if own { 3 } else { 4 });
            let start = va & !((PAGE_SIZE << (9 * level.min(3))) - 1);
            // In the program's own space nothing but the window is to be hit.
            let start = if own && start < WINDOW { va } else { start };
            let args = [
                a.below(2) | level << 8,
                start,
                operand(a, CapType::PageTable),
                0,
                0,
            ];
            call(SpaceOp::Link, args);
        }
        16 | 17 => {
            let level = 1 + a.below(if own { 3 } else { 4 });
            let start = va & !((PAGE_SIZE << (9 * level.min(3))) - 1);
            let start = if own && start < WINDOW { va } else { start };
            call(SpaceOp::Unlink, [a.below(2) | level << 8, start, 0, 0, 0]);
        }
        18 => {
            let len = match a.below(4) {
                0 => a.pick(&[0, 1, PAGE_SIZE + 1, u64::MAX]),
                _ => (1 + a.below(8)) * PAGE_SIZE,
            };
            let kind = a.below(6) | a.below(2) << 8;
            // Outside, it would make pages of the program's own.
            if !own || va >= WINDOW {
                call(SpaceOp::AddRegion, [va, len, kind, 0, 0]);
            }
        }
        19 => call(SpaceOp::RemoveRegion, [va, 0, 0, 0, 0]),
        20 if !own => {
            let node = a.below(WORLD.nodes.load(Ordering::Relaxed) + 1);
            let memory = operand(a, CapType::Memory);
            call(SpaceOp::Supply, [node, memory, 0, 0, 0]);
        }
        21 if a.rarely(4) => call(SpaceOp::Shootdown, [va, PAGE_SIZE, 0, 0, 0]),
        22 => {
            let pages = if a.rarely(8) { a.next() } else { a.below(64) };
            let pages = if own { pages % WINDOW_PAGES } else { pages };
            call(SpaceOp::Reclaim, [va, pages, 0, 0, 0]);
        }
        _ => call(SpaceOp::Harvest, [a.next(), va, 0, 0, 0]),
    }
}
