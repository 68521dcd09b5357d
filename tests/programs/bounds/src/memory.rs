//! Operations on memory.

use dyad_abi::Result;
use dyad_abi::cap::{CapIndex, Counted, ObjectKind, Rights};
use dyad_abi::service::slot;
use dyad_services::frames::{Pool, What};

use crate::stock::Stock;
use crate::{operation, succeed};

/// Largest order of which a used block is zeroed by one operation.
pub const MAX_ZEROED: u32 = 4;

/// Performs every operation on memory.
pub fn run(stock: &mut Stock) -> Result<()> {
    let memory = stock.memory();
    // The largest block, as a whole, which nobody has used.
    let (at, order) = stock.largest()?;
    succeed!(Memory, MemoryOp::RetypeUser, memory, at, order.into());
    let place = u64::from(slot::TABLE.get()) << 32;
    let index = stock.slot()?.index();
    succeed!(
        Memory,
        MemoryOp::Activate,
        memory,
        at,
        place | u64::from(index.get()),
        Rights::ALL.0.into()
    );
    succeed!(Memory, MemoryOp::RetypeUntyped, memory, at);
    stock.settle()?;
    // Its last frame: everything has to be split. It has been used, so it is zeroed.
    let last = at + (1 << order) - 1;
    let leaf = ObjectKind::CaptblLeaf as u64;
    split_off(|| operation!(Memory, MemoryOp::RetypeKernel, memory, last, leaf).status);
    succeed!(Memory, MemoryOp::RetypeUntyped, memory, last);
    // The largest part that is zeroed at once, and one that is too large.
    let first = at;
    for _ in 0..2 {
        let r = operation!(
            Memory,
            MemoryOp::RetypeUser,
            memory,
            first,
            MAX_ZEROED.into()
        );
        let refused = [
            0,
            dyad_abi::Error::Again.code(),
            dyad_abi::Error::Exists.code(),
        ];
        crate::call::expect_one_of("Memory.RetypeUser", r.status, &refused);
    }
    let more = operation!(
        Memory,
        MemoryOp::RetypeUser,
        memory,
        first + (1 << (MAX_ZEROED + 1)),
        u64::from(MAX_ZEROED) + 1
    );
    let too_large = dyad_abi::Error::TooLarge.code();
    crate::call::expect_one_of(
        "RetypeUser of a large used block",
        more.status,
        &[too_large],
    );
    // A block that nobody has used, for its last frame, as user memory and as an object.
    for user in [true, false] {
        let (at, order) = stock.largest()?;
        let last = at + (1 << order) - 1;
        if user {
            split_off(|| operation!(Memory, MemoryOp::RetypeUser, memory, last, 0).status);
        } else {
            split_off(|| operation!(Memory, MemoryOp::RetypeKernel, memory, last, leaf).status);
        }
        succeed!(Memory, MemoryOp::Inspect, memory, at + 1);
    }
    let (at, order) = stock.largest()?;
    succeed!(Memory, MemoryOp::Split, memory, at);
    succeed!(Memory, MemoryOp::Merge, memory, at);
    let what = stock.pool.inspect(at)?;
    crate::call::expect("Merge", u64::from(what != What::Untyped { order }));
    count(stock)
}

/// A call splits a large block only so many times, and is refused then.
fn split_off(call: impl Fn() -> u64) {
    let again = dyad_abi::Error::Again.code();
    crate::call::expect_one_of("a first call", call(), &[0, again]);
    crate::call::expect_one_of(
        "a second call",
        call(),
        &[0, again, dyad_abi::Error::Exists.code()],
    );
}

/// Counting single frames costs a look for each.
fn count(stock: &mut Stock) -> Result<()> {
    const FRAMES: u64 = 1 << 10;
    let memory = stock.memory();
    let arena = stock.account.carve(&stock.pool, FRAMES)?;
    let first = arena.first();
    for n in 0..FRAMES {
        let mut tries = 0;
        while let What::Untyped { order } = stock.pool.inspect(first + n)?
            && order > 0
            && tries < 32
        {
            memory.split(first + n)?;
            tries += 1;
        }
    }
    let value = succeed!(Memory, MemoryOp::Count, memory, first, FRAMES);
    let counted = Counted::from_bits(value);
    crate::call::expect("Count", u64::from(counted.looked == 0));
    // From the middle of a large block on.
    let (at, order) = stock.largest()?;
    succeed!(Memory, MemoryOp::Count, memory, at + (1 << order) - 1, 1);
    let _ = CapIndex::NONE;
    Ok(())
}
