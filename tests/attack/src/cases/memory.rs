//! Memory and frames: what retyping, activating and mapping must not bring.

use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{CapType, MAP_NONE, MemoryOp, Rights, SpaceOp, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::first::CXL;
use dyad_sys::cap::{Cap, Frame, Narrow};

use super::generic::own_table;
use super::{Case, IDLE};
use crate::me::{achieved, call, here, note, place, tried};
use crate::run::Scene;
use crate::shared::{NOWHERE, SECRET_WORD, at, word_of};
use crate::store::patiently;
use crate::{refuse, work};

const MEMORY: u32 = at::full(CapType::Memory);
const FRAME: u32 = at::full(CapType::Frame);

/// The frame at an offset of the attacker's scratch memory.
fn scratch(s: &mut Scene<'_>, at: u64, frames: u64, rights: Rights) -> Result<()> {
    let (first, _) = s.attacker.scratch();
    let memory = s.store.memory(CXL, first + at, frames)?;
    s.attacker.give(MEMORY, memory, rights)
}

/// The attacker's own space, to map into, with tables at `NOWHERE`.
pub fn own_space(s: &mut Scene<'_>) -> Result<()> {
    for isa in Isa::ALL {
        if s.store.isas & 1 << isa.index() != 0 {
            s.attacker.tables(s.store, isa, NOWHERE)?;
        }
    }
    s.attacker.give(at::SPACE, s.attacker.space, Rights::ALL)
}

/// Page `n` of `NOWHERE`, on the ISA that this code runs on.
pub fn page_at() -> u64 {
    TableAt {
        isa: here().1,
        level: 1,
    }
    .bits()
}

fn op(cap: u32, op: MemoryOp, args: [u64; 3]) -> Result<u64> {
    call(cap, op as u32, [args[0], args[1], args[2], 0, 0])
}

pub const CASES: [Case; 7] = [
    Case {
        name: "memory_frames_beyond_the_range",
        grant: |s| {
            own_table(s)?;
            // Behind the eight frames there are others of the same pool.
            scratch(s, 8, 8, Rights::ALL)
        },
        act: || {
            use MemoryOp::*;
            for at in [8, 9, 1 << 20, 1 << 32, u64::MAX, u64::MAX - 7] {
                for o in [
                    RetypeKernel,
                    RetypeUntyped,
                    Split,
                    Merge,
                    Inspect,
                    RetypeUser,
                ] {
                    refuse!(op(MEMORY, o, [at, 0, 0]), BadArgument);
                }
                refuse!(op(MEMORY, Activate, [at, place(at::FREE), 1]), BadArgument);
                refuse!(op(MEMORY, Count, [at, 1, 0]), BadArgument);
            }
            for (at, n) in [
                (0, 9),
                (7, 2),
                (1, u64::MAX),
                (0, u64::MAX),
                (7, u64::MAX - 6),
            ] {
                refuse!(op(MEMORY, Count, [at, n, 0]), BadArgument);
            }
            // A block that begins here and ends elsewhere.
            for order in [4, 9, 20, 63, 64, u64::MAX] {
                refuse!(
                    op(MEMORY, RetypeUser, [0, order, 0]),
                    BadArgument | TooLarge | Exists
                );
            }
        },
        ..IDLE
    },
    Case {
        name: "memory_block_across_two_owners",
        // One block of sixteen: eight frames are the attacker's, eight are not.
        grant: |s| {
            let memory = s.store.small(0, 8)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            use MemoryOp::*;
            work!(op(MEMORY, RetypeUser, [0, 2, 0]));
            work!(op(MEMORY, RetypeUser, [4, 2, 0]));
            work!(op(MEMORY, RetypeUntyped, [0, 0, 0]));
            work!(op(MEMORY, RetypeUntyped, [4, 0, 0]));
            work!(op(MEMORY, Merge, [0, 0, 0]));
            // Its eight are one block; the other half is somebody else's.
            refuse!(op(MEMORY, Merge, [0, 0, 0]), BadArgument);
            refuse!(op(MEMORY, RetypeUser, [0, 4, 0]), BadArgument);
        },
        look: |s| {
            // The other half is as it was: untyped frames.
            let other = s.store.small(8, 8).and_then(|m| m.count(0, 8));
            match other {
                Ok(c) if c.untyped == c.looked => None,
                _ => Some("frames beyond the range have changed"),
            }
        },
        ..IDLE
    },
    Case {
        name: "memory_given_up_while_it_is_mapped",
        grant: |s| {
            let (first, _) = s.attacker.scratch();
            let memory = s.store.memory(CXL, first, 8)?;
            patiently(|| memory.retype_user(0, 0))?;
            let frame: Cap<Frame> = memory.activate(0, s.store.slot()?, Rights::ALL)?;
            own_space(s)?;
            s.attacker.give(MEMORY, memory, Rights::ALL)?;
            s.attacker.give(FRAME, frame, Rights::ALL)
        },
        act: || {
            let frame: u64 = FRAME.into();
            work!(call(
                at::SPACE,
                SpaceOp::Map as u32,
                [page_at(), NOWHERE, frame, 0, 1]
            ));
            word_of(NOWHERE, 3).store(7, Relaxed);
            for _ in 0..8 {
                refuse!(op(MEMORY, MemoryOp::RetypeUntyped, [0; 3]), Exists);
                refuse!(op(MEMORY, MemoryOp::RetypeKernel, [0; 3]), Exists);
            }
            tried();
            if word_of(NOWHERE, 3).load(Relaxed) != 7 {
                achieved(line!(), 0);
            }
        },
        ..IDLE
    },
    Case {
        name: "memory_contents_of_others",
        // A frame that the victim has used and given back is the attacker's next.
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let memory = s.store.small(128, 8)?;
            patiently(|| memory.retype_user(0, 1))?;
            let frame: Cap<Frame> = memory.activate(0, s.store.slot()?, Rights::ALL)?;
            for page in 0..2 {
                let va = s.store.show(frame, page)?;
                for i in 0..512 {
                    word_of(va, i).store(SECRET_WORD, Relaxed);
                }
                s.store.hide(va)?;
            }
            patiently(|| memory.retype_untyped(0))?;
            s.attacker.give(MEMORY, memory, Rights::ALL)
        },
        act: || {
            // Not before it is quiesced, and then zero.
            for _ in 0..100_000 {
                match op(MEMORY, MemoryOp::RetypeUser, [0, 1, 0]) {
                    Ok(_) => break,
                    Err(_) => crate::me::yield_now(),
                }
            }
            work!(op(
                MEMORY,
                MemoryOp::Activate,
                [0, place(at::FREE), u32::MAX.into()]
            ));
            for page in 0..2 {
                let va = NOWHERE + page * PAGE_SIZE;
                let args = [page_at(), va, at::FREE.into(), page, 0];
                work!(call(at::SPACE, SpaceOp::Map as u32, args));
                for i in 0..512 {
                    tried();
                    let word = word_of(va, i).load(Relaxed);
                    if word != 0 {
                        achieved(line!(), word);
                    }
                }
            }
        },
        ..IDLE
    },
    Case {
        name: "frame_written_through_a_read_only_capability",
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let rights = Rights(1).or(Rights::COPY).or(Rights::INTROSPECT);
            s.attacker.give(FRAME, s.victim.shown, rights)
        },
        act: || {
            let frame: u64 = FRAME.into();
            let (page, map) = (page_at(), SpaceOp::Map as u32);
            work!(crate::me::copy(at::FREE, FRAME, Rights::ALL));
            for cap in [frame, at::FREE.into()] {
                refuse!(call(at::SPACE, map, [page, NOWHERE, cap, 0, 1]), Denied);
                refuse!(call(at::SPACE, map, [page, NOWHERE, cap, 0, 2]), Denied);
                refuse!(
                    call(at::SPACE, map, [page, NOWHERE, cap, 0, 3]),
                    Denied | BadArgument
                );
                refuse!(
                    call(at::SPACE, map, [page, NOWHERE, cap, 0, 4]),
                    BadArgument
                );
            }
            work!(call(at::SPACE, map, [page, NOWHERE, frame, 0, 0]));
            let protect = SpaceOp::Protect as u32;
            for how in [1, 2, 3] {
                refuse!(
                    call(at::SPACE, protect, [page, NOWHERE, how, 0, 0]),
                    Denied | BadArgument
                );
            }
            // Without any access it may no more than before, and is still there.
            let exchange = SpaceOp::Exchange as u32;
            work!(call(at::SPACE, protect, [page, NOWHERE, MAP_NONE, 0, 0]));
            for how in [1, 2] {
                refuse!(call(at::SPACE, protect, [page, NOWHERE, how, 0, 0]), Denied);
            }
            for how in [MAP_NONE | 1, MAP_NONE | 2, 8] {
                let args = [page, NOWHERE, how, 0, 0];
                refuse!(call(at::SPACE, protect, args), BadArgument);
            }
            let translate = SpaceOp::Translate as u32;
            refuse!(
                call(at::SPACE, translate, [page, NOWHERE, 0, 0, 0]),
                BadAddress
            );
            refuse!(call(at::SPACE, exchange, [NOWHERE, 0, 1, 0, 0]), BadAddress);
            refuse!(call(at::SPACE, map, [page, NOWHERE, frame, 0, 0]), Exists);
            work!(call(at::SPACE, protect, [page, NOWHERE, 0, 0, 0]));
            let was = word_of(NOWHERE, 0).load(Relaxed);
            refuse!(
                call(at::SPACE, exchange, [NOWHERE, was, 1, 0, 0]),
                BadAddress
            );
        },
        ..IDLE
    },
    Case {
        name: "frame_pages_beyond_the_block",
        grant: |s| {
            own_table(s)?;
            own_space(s)?;
            let memory = s.store.small(64, 16)?;
            // Eight pages; the attacker has the middle four.
            patiently(|| memory.retype_user(0, 3))?;
            let frame: Cap<Frame> = memory.activate(0, s.store.slot()?, Rights::ALL)?;
            s.attacker
                .give_part(FRAME, frame, Rights::ALL, Narrow::range(2, 4))
        },
        act: || {
            let frame: u64 = FRAME.into();
            let (page, map) = (page_at(), SpaceOp::Map as u32);
            for first in [4, 5, 6, 1 << 32, u64::MAX, u64::MAX - 1, 1 << 20] {
                refuse!(
                    call(at::SPACE, map, [page, NOWHERE, frame, first, 0]),
                    BadArgument
                );
            }
            // Two mebibytes of four pages; levels that pages do not have.
            let large = page & 0xff | 2 << 8;
            refuse!(
                call(at::SPACE, map, [large, NOWHERE, frame, 0, 0]),
                BadArgument | Exists
            );
            for level in [0, 3, 4, 5] {
                let at = page & 0xff | level << 8;
                refuse!(
                    call(at::SPACE, map, [at, NOWHERE, frame, 0, 0]),
                    BadArgument
                );
            }
            refuse!(
                call(at::SPACE, map, [page, NOWHERE + 8, frame, 0, 0]),
                BadArgument
            );
        },
        ..IDLE
    },
    Case {
        name: "frame_large_page_out_of_line",
        // A block of four mebibytes, of which the attacker has all but the first page.
        grant: |s| {
            own_space(s)?;
            let memory = s.store.large()?;
            patiently(|| memory.retype_user(0, 10))?;
            let frame: Cap<Frame> = memory.activate(0, s.store.slot()?, Rights::ALL)?;
            s.attacker
                .give_part(FRAME, frame, Rights::ALL, Narrow::range(1, 1023))
        },
        act: || {
            let frame: u64 = FRAME.into();
            let at = page_at() & 0xff | 2 << 8;
            // Level 2 has a table there: another range of the same gibibyte.
            let va = NOWHERE + (8 << 20);
            for first in [0, 1, 510, 512, 1023] {
                tried();
                match call(at::SPACE, SpaceOp::Map as u32, [at, va, frame, first, 0]) {
                    Ok(_) => {
                        // The machine would show what is below the capability's first page.
                        let seen = call(at::SPACE, SpaceOp::Translate as u32, [at, va, 0, 0, 0]);
                        achieved(line!(), seen.unwrap_or(first));
                    }
                    Err(Error::BadArgument) => {}
                    Err(e) => crate::me::odd(line!(), e.code()),
                }
            }
            // The one that is in line is the capability's as a whole.
            work!(call(
                at::SPACE,
                SpaceOp::Map as u32,
                [at, va, frame, 511, 0]
            ));
            note(0).store(1, Relaxed);
        },
        ..IDLE
    },
];
