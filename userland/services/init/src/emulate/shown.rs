//! Which programs have all mapped that it takes to interpret their threads, and what init needs of these programs then.
//!
//! Mapping it changes the books of init, which no thread of a program may hold: the program's thread asks, and the warden
//! that leads does it.
//!
//! ```text
//!            ask, by a thread of the program      look, by the leader
//!   UNKNOWN ───────────────────────────────▶ WANTED ─────────────────▶ SHOWN; or the code of an error
//!      ▲                                                                 │ taken down, by the leader
//!      └─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | step | order |
//! |---|---|
//! | parts, then SHOWN | release |
//! | SHOWN read, then parts | acquire |

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::emulation::WINDOWS;
use dyad_abi::service::program;
use dyad_abi::{Error, Result};
use dyad_sys::cap::{Cap, Component, Receive};

use crate::service::changing;
use crate::system::System;
use crate::threads::GUESTS;
use crate::wardens;

const UNKNOWN: u64 = 0;
const WANTED: u64 = 1;
const SHOWN: u64 = 2;
/// With the code of an error: why it could not be mapped.
const FAILED: u64 = 1 << 32;

/// What init needs of a program whose threads are interpreted.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub component: Cap<Component>,
    pub entry: u64,
    pub windows: [[[u64; 2]; WINDOWS]; dyad_abi::ident::ISA_COUNT],
    pub events: Cap<Receive>,
}

struct Slot {
    state: AtomicU64,
    parts: UnsafeCell<Option<Parts>>,
}

// SAFETY: 1. The leader alone writes the parts, while the state is not SHOWN; everybody reads them only while it is.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; GUESTS] = [const {
    Slot {
        state: AtomicU64::new(UNKNOWN),
        parts: UnsafeCell::new(None),
    }
}; GUESTS];

fn slot(number: u64) -> Result<&'static Slot> {
    number
        .checked_sub(program::FIRST)
        .and_then(|n| SLOTS.get(usize::try_from(n).ok()?))
        .ok_or(Error::NotFound)
}

/// A thread of a program asks that all be mapped.
///
/// # Errors
///
/// `Again` until that has been done; why it could not be.
pub(super) fn ask(number: u64) -> Result<u64> {
    let state = &slot(number)?.state;
    match state.load(Ordering::Acquire) {
        SHOWN => return Ok(0),
        failed if failed & FAILED != 0 => {
            return Err(Error::from_code(failed & !FAILED).unwrap_or(Error::Corrupt));
        }
        UNKNOWN => {
            let _ = state.compare_exchange(UNKNOWN, WANTED, Ordering::AcqRel, Ordering::Relaxed);
        }
        _ => {}
    }
    wardens::call_leader();
    Err(Error::Again)
}

/// What init needs of a program.
///
/// # Errors
///
/// `NotFound` if there is no such program; `NotReady` if not all is mapped.
pub(super) fn parts(number: u64) -> Result<Parts> {
    let slot = slot(number)?;
    if slot.state.load(Ordering::Acquire) != SHOWN {
        return Err(Error::NotReady);
    }
    // SAFETY: 1. They are not written in this state.
    unsafe { *slot.parts.get() }.ok_or(Error::NotReady)
}

/// The leader does what has been asked.
pub fn look(system: &mut System) {
    for (number, slot) in (program::FIRST..).zip(&SLOTS) {
        if slot.state.load(Ordering::Acquire) != WANTED {
            continue;
        }
        let state = match changing(|| system.show(number)) {
            Ok(parts) => {
                // SAFETY: 1. They are not read in this state, and there is one leader.
                unsafe { *slot.parts.get() = Some(parts) };
                SHOWN
            }
            Err(e) => FAILED | e.code(),
        };
        slot.state.store(state, Ordering::Release);
    }
}

/// A program is being taken down.
pub(super) fn forget(number: u64) {
    if let Ok(slot) = slot(number) {
        slot.state.store(UNKNOWN, Ordering::Release);
    }
}
