//! What a client has asked and learned. It outlives the client, which may be lost between any two steps.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_linear::{NEVER, Operation};
use dyad_ycsb::Mix;

use crate::Plan;

/// An operation. The client alone writes it.
#[derive(Default)]
struct Slot {
    /// Twice the register, and one if it is written.
    what: AtomicU64,
    value: AtomicU64,
    /// 0: it has not begun.
    begin: AtomicU64,
    /// 0: it has not ended.
    end: AtomicU64,
}

/// All operations of a client.
pub struct Log(Box<[Slot]>);

impl Log {
    /// Room for what a client asks.
    pub fn new(plan: &Plan) -> Log {
        let each = if plan.mix == Mix::F { 2 } else { 1 };
        Log((0..plan.requests * each).map(|_| Slot::default()).collect())
    }

    /// Operation `n` begins: the read of a register, or the write of a value.
    pub fn begin(&self, n: usize, register: u64, writes: Option<u64>, begin: u64) {
        let Some(slot) = self.0.get(n) else { return };
        let what = register << 1 | u64::from(writes.is_some());
        slot.what.store(what, Ordering::Relaxed);
        slot.value.store(writes.unwrap_or(0), Ordering::Relaxed);
        slot.begin.store(begin, Ordering::Release);
    }

    /// It ends, with what was read or written.
    pub fn end(&self, n: usize, value: u64, end: u64) {
        let Some(slot) = self.0.get(n) else { return };
        slot.value.store(value, Ordering::Relaxed);
        slot.end.store(end, Ordering::Release);
    }

    /// All operations that have begun.
    pub fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        let begun = self.0.iter().map_while(|slot| {
            let begin = slot.begin.load(Ordering::Acquire);
            (begin != 0).then_some((slot, begin))
        });
        begun.map(|(slot, begin)| {
            let end = match slot.end.load(Ordering::Acquire) {
                0 => NEVER,
                end => end,
            };
            let what = slot.what.load(Ordering::Relaxed);
            Operation {
                register: what >> 1,
                value: slot.value.load(Ordering::Relaxed),
                writes: what & 1 != 0,
                begin,
                end,
            }
        })
    }
}
