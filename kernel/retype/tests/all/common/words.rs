//! Words of frames, put there and read.

use std::sync::atomic::Ordering::Relaxed;

use dyad_coherence::{GlobalMem, HostMem};
use dyad_retype::{FrameTable, FrameType, FrameWord, Order, Refs, Version, WeakRef};

use crate::common::{frame, table, w0};

pub fn frames(mem: &HostMem) -> FrameTable<'_, HostMem> {
    table(mem, 0)
}

pub fn set(mem: &HostMem, index: u64, version: u32, ty: FrameType, refs: u32) -> WeakRef {
    let word = FrameWord {
        version: Version(version),
        ty,
        refs: Refs::new(refs).unwrap(),
    };
    mem.store(w0(index), word.bits(), Relaxed);
    WeakRef {
        frame: frame(index),
        version: Version(version),
    }
}

pub fn get(mem: &HostMem, index: u64) -> FrameWord {
    frames(mem).read(frame(index)).unwrap().0
}

pub fn order(n: u64) -> Order {
    Order::new(n).unwrap()
}
