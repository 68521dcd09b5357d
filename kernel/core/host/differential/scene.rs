//! What the steps of a trace act on, and how they are drawn.

use core::sync::atomic::Ordering;
use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, ComponentOp, FrameOp, INTROSPECT, LEAF_SLOTS, LivenessOp,
    MAP_WRITE, MemoryOp, ObjectKind, ReceiveOp, RegionKind, Rights, SendOp, SpaceOp, TableAt,
    ThreadOp, call_word,
};
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_captbl::{Contents, GuardRef, SlotPlace};
use dyad_pgtbl::Perms;
use dyad_random::SplitMix64;
use dyad_retype::{Order, Use};
use dyad_shm::frame::WeakRef;

use crate::ktest::rig::{Rig, behind};
use crate::ktest::spaces;
use crate::syscall::ops;
use dyad_machine::platform::FaultKind;
use dyad_object::thread::{State, Thread};
use dyad_space::mapping::page;

/// Where pages are. What a CPU remembers of a table is found by bits 21 to 24 of the address: the second
/// is remembered in the place of the first.
const BASES: [u64; 3] = [0x4000_0000, 0x4000_0000 + (16 << 21), 0x4020_0000];
/// The first addresses that programs may use, in a table that covers pages below them as well.
const LOWEST: u64 = USER_MIN;
/// Pages at each that the steps use.
const PAGES: u64 = 6;
/// Frames that the steps retype.
const RAW: u64 = 16;
/// The second leaf of the table: its slots are remembered in the place of those of the first.
const FAR: u32 = 16;

/// One step of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A system call with this word: an operation, an invocation, or the end of one.
    Call(u64, [u64; 5]),
    /// A fault in user mode.
    Fault(u64, FaultKind),
    /// A round of quiescence.
    Round,
}

/// Indices of the capabilities that steps name.
pub(super) struct Scene {
    /// By type; the last few are free slots.
    tables: Vec<u64>,
    spaces: Vec<u64>,
    components: Vec<u64>,
    sinvs: Vec<u64>,
    memory: Vec<u64>,
    frames: Vec<u64>,
    liveness: Vec<u64>,
    receive: Vec<u64>,
    send: Vec<u64>,
    threads: Vec<u64>,
    page_tables: Vec<u64>,
    free: Vec<u64>,
    /// The thread that runs.
    pub(super) thread: &'static Thread,
    /// Runs when no other thread does: the CPU never sleeps.
    pub(super) root: WeakRef,
}

fn n(cap: CapIndex) -> u64 {
    cap.get().into()
}

/// An address: mostly one of the pages that steps use, sometimes one that no operation takes.
fn address(rng: &mut SplitMix64) -> u64 {
    let base = match rng.below(16) {
        0 => LOWEST,
        _ => BASES[below(rng, BASES.len())],
    };
    let page = base + rng.below(PAGES) * PAGE_SIZE;
    match rng.below(12) {
        0 => page | 1 << rng.below(12),
        // The tables do not tell it from the page: their levels cover 48 bits.
        1 => page | 1 << (48 + rng.below(16)),
        2 => page | USER_END,
        3 => rng.below(LOWEST),
        4 => LOWEST - PAGE_SIZE,
        5 => (USER_END - PAGE_SIZE).wrapping_add(rng.below(3) * PAGE_SIZE),
        _ => page,
    }
}

/// A choice among `n`.
fn below(rng: &mut SplitMix64, n: usize) -> usize {
    rng.below(n as u64) as usize
}

impl Scene {
    pub(super) fn new(rig: &Rig<'_>) -> dyad_abi::Result<Scene> {
        spaces::furnish(rig, rig.space)?;
        let k = &rig.k;
        let far = rig.object(ObjectKind::CaptblLeaf)?;
        rig.hang(FAR, far)?;
        let (component, _, leaf) = rig.other_component()?;
        let put = |at: u64, cap: Contents| {
            let place = SlotPlace::new(far, (at % u64::from(LEAF_SLOTS)) as u32).unwrap();
            ops::captbl::activate(k, place, &cap).map(|()| at)
        };
        let spare = rig.object(ObjectKind::CaptblLeaf)?;
        let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
        let tables = [rig.root, rig.leaf, far, spare, leaf]
            .into_iter()
            .enumerate()
            .map(|(i, t)| {
                let kind = match i {
                    0 => ObjectKind::CaptblRoot,
                    _ => ObjectKind::CaptblLeaf,
                };
                rig.cap(kind, t, Rights::ALL).map(n)
            })
            .collect::<Result<_, _>>()?;
        let components = [rig.component, component];
        let components = components
            .into_iter()
            .map(|c| rig.cap(ObjectKind::Component, c, Rights::ALL).map(n))
            .collect::<Result<_, _>>()?;
        let sinvs = [(component, 7), (rig.component, 8)]
            .into_iter()
            .map(|(c, badge)| rig.sinv(c, 0x4100_1000, badge).map(n))
            .collect::<Result<_, _>>()?;
        // The other component calls back.
        let back = Contents {
            ty: CapType::Sinv,
            rights: Rights::ALL,
            object: Some(rig.component),
            guard: None,
            payload: [0x4100_2000, 9, 0],
        };
        let place = SlotPlace::new(leaf, 10).unwrap();
        ops::captbl::activate(k, place, &back)?;
        let raw = rig.take(Order::new(RAW.ilog2().into()).unwrap(), None)?;
        let mut memory = Vec::new();
        for (first, frames, rights) in [
            (0, RAW, Rights::ALL),
            (4, 4, Rights::ALL),
            (0, RAW, MemoryOp::RetypeUser.right()),
        ] {
            memory.push(n(rig.memory(behind(raw.frame, first)?, frames, rights)?));
        }
        let liveness = rig.object(ObjectKind::Liveness)?;
        let guard = GuardRef::new(liveness, 3, 0).unwrap();
        let mut frames = Vec::new();
        let block = rig.take(Order::new(3).unwrap(), Some(Use::User))?;
        let all = FrameOp::Map.right().or(FrameOp::Write.right());
        for (object, payload, rights, guard) in [
            (rig.user()?, [0, 1, 0], Rights::ALL, None),
            (rig.user()?, [0, 1, 0], all, None),
            (rig.user()?, [0, 1, 0], FrameOp::Map.right(), None),
            (rig.user()?, [0, 1, 0], Rights::ALL, Some(guard)),
            (block, [0, 8, 0], Rights::ALL, None),
            (block, [2, 3, 0], Rights::ALL, None),
        ] {
            let cap = rig.put_guarded(CapType::Frame, rights, Some(object), payload, guard)?;
            frames.push(n(cap));
        }
        let frame = Contents {
            ty: CapType::Frame,
            rights: Rights::ALL,
            object: Some(rig.user()?),
            guard: None,
            payload: [0, 1, 0],
        };
        // Remembered in the place of others: 1,024 and 64 slots apart.
        let first = u64::from(FAR) * u64::from(LEAF_SLOTS);
        frames.push(put(first + frames[0], frame)?);
        let ends = rig.object(ObjectKind::Endpoints)?;
        let receive = [[0, 64, 0], [20, 2, 0]]
            .into_iter()
            .map(|part| {
                rig.put(CapType::Receive, Rights::ALL, Some(ends), part)
                    .map(n)
            })
            .collect::<Result<_, _>>()?;
        let send = [[20, 4, 0], [21, 1, 0], [22, 1, 0]]
            .into_iter()
            .map(|to| rig.put(CapType::Send, Rights::ALL, Some(ends), to).map(n))
            .collect::<Result<_, _>>()?;
        let entries = [[0, 512, 0], [3, 1, 0]]
            .into_iter()
            .map(|part| {
                rig.put(CapType::Liveness, Rights::ALL, Some(liveness), part)
                    .map(n)
            })
            .collect::<Result<_, _>>()?;
        let mut threads = Vec::new();
        for state in [State::Stopped, State::Ready] {
            let t = rig.thread_of(rig.component, state)?;
            rig.as_thread(t)?
                .scheduler
                .store(ends.bits(), Ordering::Relaxed);
            threads.push(n(rig.cap(ObjectKind::Thread, t, Rights::ALL)?));
        }
        let mut page_tables = Vec::new();
        for kind in [
            ObjectKind::PageTableX86L1,
            ObjectKind::PageTableX86L2,
            ObjectKind::PageTableA64L1,
            ObjectKind::PageTableA64L1,
        ] {
            page_tables.push(n(rig.new_cap(kind)?.0));
        }
        // Tables for most of the addresses.
        let mapped = rig.user()?;
        for (isa, base) in [
            (Isa::X86_64, BASES[0]),
            (Isa::X86_64, BASES[1]),
            (Isa::Aarch64, BASES[0]),
            (Isa::Aarch64, BASES[2]),
            (Isa::X86_64, LOWEST),
            (Isa::Aarch64, LOWEST),
        ] {
            let leaf = page(mapped.frame.address(), Perms::READ);
            spaces::map(rig, rig.space, isa, base + 100 * PAGE_SIZE, leaf)?;
        }
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        spaces::region(k, rig.space, BASES[0], 4 * PAGE_SIZE, kind)?;
        let kind = RegionKind::Shared as u64 | 1 << 8;
        spaces::region(k, rig.space, BASES[2], 3 * PAGE_SIZE, kind)?;
        let last = n(rig.free_slot());
        Ok(Scene {
            tables,
            spaces: [n(space)].into(),
            components,
            sinvs,
            memory,
            frames,
            liveness: entries,
            receive,
            send,
            threads,
            page_tables,
            free: (last..last + 6).chain([first + last, first + 64]).collect(),
            thread: rig.as_thread(rig.thread)?,
            root: rig.thread_of(rig.component, State::Ready)?,
        })
    }

    fn any<'a>(&'a self, rng: &mut SplitMix64) -> &'a [u64] {
        let all = [
            &self.tables,
            &self.spaces,
            &self.components,
            &self.sinvs,
            &self.memory,
            &self.frames,
            &self.liveness,
            &self.receive,
            &self.send,
            &self.threads,
            &self.page_tables,
            &self.free,
        ];
        all[below(rng, all.len())]
    }

    /// An operation on a capability of a kind, with arguments that it mostly takes.
    pub(super) fn step(&self, rng: &mut SplitMix64) -> Step {
        let one = |rng: &mut SplitMix64, of: &[u64]| of[below(rng, of.len())];
        let va = address;
        let at = |rng: &mut SplitMix64| {
            let isa = if rng.below(2) == 0 {
                Isa::X86_64
            } else {
                Isa::Aarch64
            };
            let level = if rng.below(8) == 0 {
                1 + rng.below(4) as u8
            } else {
                1
            };
            TableAt { isa, level }.bits()
        };
        let slot = |rng: &mut SplitMix64| match rng.below(3) {
            0 => one(rng, &self.free),
            1 => rng.below(64),
            _ => {
                let of = self.any(rng);
                one(rng, of)
            }
        };
        let call =
            |cap: u64, op: u32, a: [u64; 5]| Step::Call(call_word(CapIndex(cap as u32), op), a);
        let table = |rng: &mut SplitMix64| one(rng, &self.tables[..self.tables.len().min(3)]);
        let space = self.spaces[0];
        match rng.below(100) {
            0..14 => {
                let (t, v, f) = (at(rng), va(rng), one(rng, &self.frames));
                let first = rng.below(4).saturating_sub(1);
                let how = [0, MAP_WRITE, MAP_WRITE, 2, 5][below(rng, 5)];
                call(space, SpaceOp::Map as u32, [t, v, f, first, how])
            }
            14..24 => call(space, SpaceOp::Unmap as u32, [at(rng), va(rng), 0, 0, 0]),
            24..28 => {
                let a = [at(rng), va(rng), rng.below(6), 0, 0];
                call(space, SpaceOp::Protect as u32, a)
            }
            28..44 => {
                let kind = [FaultKind::Read, FaultKind::Write, FaultKind::Execute];
                Step::Fault(va(rng), kind[below(rng, 3)])
            }
            44..54 => {
                let (t, to) = (table(rng), slot(rng));
                let of = self.any(rng);
                let from = one(rng, of);
                let rights = [u32::MAX, u32::MAX, 3, 0][below(rng, 4)];
                let part = if rng.below(6) == 0 { [0, 1] } else { [0, 0] };
                let a = [to, from, rights.into(), part[0], part[1]];
                call(t, CaptblOp::CopyIn as u32, a)
            }
            54..60 => call(
                table(rng),
                CaptblOp::Deactivate as u32,
                [slot(rng), 0, 0, 0, 0],
            ),
            60..72 => {
                let m = one(rng, &self.memory);
                let at = rng.below(RAW + 1);
                match rng.below(8) {
                    0..3 => call(m, MemoryOp::RetypeUser as u32, [at, rng.below(2), 0, 0, 0]),
                    3..5 => call(
                        m,
                        MemoryOp::RetypeKernel as u32,
                        [at, rng.below(17), 0, 0, 0],
                    ),
                    5 => call(m, MemoryOp::Inspect as u32, [at, 0, 0, 0, 0]),
                    _ => call(m, MemoryOp::RetypeUntyped as u32, [at, 0, 0, 0, 0]),
                }
            }
            72..76 => call(one(rng, &self.send), SendOp::Send as u32, [0; 5]),
            76..80 => {
                // Mostly what is there now.
                let until = u64::from(rng.below(8) != 0);
                let a = [20 + rng.below(4), until, 0, 0, 0];
                let a = if rng.below(2) == 0 {
                    a
                } else {
                    [rng.below(3), 1, 0, 0, 0]
                };
                call(one(rng, &self.receive), ReceiveOp::Receive as u32, a)
            }
            80..82 => {
                let a = [rng.below(5), 0, 0, 0, 0];
                call(one(rng, &self.liveness), LivenessOp::Revoke as u32, a)
            }
            82..86 => Step::Call(
                [self.sinvs[0], self.sinvs[1], 10][below(rng, 3)],
                [1, 2, 3, 4, 5],
            ),
            86..90 => Step::Call(0, [rng.below(2), 6, 7, 8, 9]),
            90..92 => Step::Round,
            92 => {
                let op = [
                    ThreadOp::Dispatch,
                    ThreadOp::Stop,
                    ThreadOp::Resume,
                    ThreadOp::Jump,
                ];
                call(one(rng, &self.threads), op[below(rng, 4)] as u32, [0; 5])
            }
            93 => {
                let op = [
                    SpaceOp::Harvest,
                    SpaceOp::Translate,
                    SpaceOp::Unlink,
                    SpaceOp::Link,
                ];
                let a = [at(rng), va(rng), one(rng, &self.page_tables), 0, 0];
                call(space, op[below(rng, 4)] as u32, a)
            }
            94 => {
                let op = [ComponentOp::SetFaultHandler, ComponentOp::SetHome];
                let a = [one(rng, &self.sinvs), 0, 0, 0, 0];
                call(one(rng, &self.components), op[below(rng, 2)] as u32, a)
            }
            _ => {
                let of = self.any(rng);
                let cap = one(rng, of);
                let any = |rng: &mut SplitMix64| match rng.below(5) {
                    0 => rng.next(),
                    1 => slot(rng),
                    2 => va(rng),
                    3 => 1 << rng.below(64),
                    _ => rng.below(4),
                };
                let a = core::array::from_fn(|_| any(rng));
                let op = match rng.below(10) {
                    0 => INTROSPECT,
                    1 => rng.below(64) as u32,
                    _ => rng.below(15) as u32,
                };
                call(cap, op, a)
            }
        }
    }
}
