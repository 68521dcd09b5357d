//! Operations on address spaces. Nothing runs in the space that they are performed on.

use dyad_abi::cap::{MAP_EXECUTE, MAP_WRITE, RegionKind, Rights, Step};
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa, Result};
use dyad_sys::cap::{Cap, Frame, Memory, Narrow, Space, TableAt};

use crate::call::expect_one_of;
use crate::stock::{HOME, Stock, TABLE, patiently};
use crate::{operation, succeed};

/// Where anonymous memory is, and how much a table of the second level covers.
const FILLED: u64 = 0x1000_0000_0000;
const SPARSE: u64 = 1 << 30;
/// Where pages are mapped by hand.
const MAPPED: u64 = 0x2000_0000_0000;
/// Regions of a space.
const REGIONS: u64 = 94;
/// Frames of a supply.
const SUPPLY: u64 = 1 << 11;

/// Performs every operation on address spaces.
pub fn run(stock: &mut Stock) -> Result<()> {
    let space = stock.space()?;
    mapping(stock, space)?;
    regions(space)?;
    let other = stock.space()?;
    let supply = supplies(stock, other)?;
    filling(stock, other)?;
    evacuation(stock, other, supply)?;
    reclaiming(other)?;
    let ticket = succeed!(Space, SpaceOp::Shootdown, space, 0x10000, PAGE_SIZE);
    succeed!(Space, SpaceOp::Shootdown, space, ticket, 0);
    Ok(())
}

fn mapping(stock: &mut Stock, space: Cap<Space>) -> Result<()> {
    let memory = stock.memory();
    let at = stock.frame()?;
    memory.retype_user(at, 0)?;
    let frame: Cap<Frame> = memory.activate(at, stock.slot()?, Rights::ALL)?;
    let frame = u64::from(frame.index().get());
    for isa in Isa::ALL {
        for level in [3, 2, 1] {
            let table = stock.page_table(TableAt { isa, level })?;
            let at = TableAt { isa, level }.bits();
            succeed!(
                Space,
                SpaceOp::Link,
                space,
                at,
                MAPPED,
                table.index().get().into()
            );
        }
        let at = TableAt { isa, level: 1 }.bits();
        succeed!(Space, SpaceOp::Map, space, at, MAPPED, frame, 0, MAP_WRITE);
        succeed!(Space, SpaceOp::Translate, space, at, MAPPED);
        succeed!(Space, SpaceOp::Harvest, space, at, MAPPED);
        succeed!(Space, SpaceOp::Protect, space, at, MAPPED, 0);
        // Code is written anew on every node that has executed something else in the frame.
        let r = operation!(Space, SpaceOp::Protect, space, at, MAPPED, MAP_EXECUTE);
        expect_one_of("Space.Protect of code", r.status, &[0, Error::Again.code()]);
        succeed!(Space, SpaceOp::Unmap, space, at, MAPPED);
        patiently(stock, || {
            let r = operation!(
                Space,
                SpaceOp::Map,
                space,
                at,
                MAPPED,
                frame,
                0,
                MAP_EXECUTE
            );
            Error::from_code(r.status).map_or(Ok(()), Err)
        })?;
        succeed!(Space, SpaceOp::Unmap, space, at, MAPPED);
        for level in [1, 2, 3] {
            succeed!(
                Space,
                SpaceOp::Unlink,
                space,
                TableAt { isa, level }.bits(),
                MAPPED
            );
        }
        succeed!(
            Space,
            SpaceOp::Unlink,
            space,
            TableAt { isa, level: 4 }.bits(),
            0
        );
    }
    // A block of 2 MiB, on this ISA's tables and the other's, in another space.
    let space = stock.space()?;
    let at = stock.largest()?.0;
    memory.retype_user(at, 9)?;
    let block: Cap<Frame> = memory.activate(at, stock.slot()?, Rights::ALL)?;
    for isa in Isa::ALL {
        for level in [3, 2] {
            let table = stock.page_table(TableAt { isa, level })?;
            space.link(TableAt { isa, level }, MAPPED, table)?;
        }
        let at = TableAt { isa, level: 2 }.bits();
        succeed!(
            Space,
            SpaceOp::Map,
            space,
            at,
            MAPPED,
            block.index().get().into(),
            0,
            MAP_WRITE
        );
        succeed!(Space, SpaceOp::Unmap, space, at, MAPPED);
    }
    Ok(())
}

fn regions(space: Cap<Space>) -> Result<()> {
    let how = RegionKind::Anonymous as u64 | 1 << 8;
    for n in 0..REGIONS {
        succeed!(
            Space,
            SpaceOp::AddRegion,
            space,
            0x100_0000 + n * 0x10_0000,
            PAGE_SIZE,
            how
        );
    }
    let full = operation!(
        Space,
        SpaceOp::AddRegion,
        space,
        0x4000_0000_0000,
        PAGE_SIZE,
        how
    );
    expect_one_of(
        "Space.AddRegion of too many",
        full.status,
        &[Error::Full.code()],
    );
    for n in (0..REGIONS).rev() {
        succeed!(
            Space,
            SpaceOp::RemoveRegion,
            space,
            0x100_0000 + n * 0x10_0000
        );
    }
    Ok(())
}

/// Runs of which each is one untouched block: taking its frames splits it down.
fn supplies(stock: &mut Stock, space: Cap<Space>) -> Result<Cap<Memory>> {
    let whole = stock.largest()?;
    let place = stock.slot()?;
    let all = Cap::<Memory>::at(slot::memory(8));
    let narrow = Narrow::range(whole.0, (1 << whole.1).min(SUPPLY * 5));
    let memory: Cap<Memory> = TABLE.copy_in(place.index(), all, Rights::ALL, None, narrow)?;
    for run in 0..5 {
        succeed!(
            Space,
            SpaceOp::Supply,
            space,
            HOME.index() as u64,
            memory.index().get().into(),
            run,
            run * SUPPLY,
            SUPPLY
        );
    }
    Ok(memory)
}

fn filling(stock: &mut Stock, space: Cap<Space>) -> Result<()> {
    for start in [FILLED, MAPPED] {
        space.add_region(start, 64 * SPARSE, RegionKind::Anonymous, true)?;
    }
    // Each of the first is in tables of its own.
    let sparse = (0..16).map(|n| MAPPED + n * SPARSE);
    let dense = (0..64).map(|n| FILLED + n * PAGE_SIZE);
    for va in sparse.chain(dense) {
        patiently(stock, || {
            let r = operation!(Space, SpaceOp::Exchange, space, va, 0, 1);
            Error::from_code(r.status).map_or(Ok(()), Err)
        })?;
    }
    Ok(())
}

fn evacuation(stock: &mut Stock, space: Cap<Space>, memory: Cap<Memory>) -> Result<()> {
    let how = |step: Step| 64 | (HOME.index() as u64) << 40 | (step as u64) << 48;
    let from = u64::from(memory.index().get());
    for step in [Step::Park, Step::Unpark, Step::Park] {
        succeed!(
            Space,
            SpaceOp::Evacuate,
            space,
            FILLED,
            how(step),
            from,
            0,
            SUPPLY * 5
        );
    }
    stock.settle()?;
    // The parked pages get frames of the runs that are not emptied.
    let r = operation!(
        Space,
        SpaceOp::Evacuate,
        space,
        FILLED,
        how(Step::Move),
        from,
        0,
        SUPPLY * 5
    );
    expect_one_of("Space.Evacuate", r.status, &[0, Error::Again.code()]);
    succeed!(
        Space,
        SpaceOp::Evacuate,
        space,
        FILLED,
        how(Step::Unpark),
        from,
        0,
        SUPPLY * 5
    );
    Ok(())
}

fn reclaiming(space: Cap<Space>) -> Result<()> {
    for start in [FILLED, MAPPED] {
        let (mut at, end) = (start, start + 64 * SPARSE);
        let mut calls = 0;
        while at < end && calls < 1024 {
            let pages = (end - at) / PAGE_SIZE;
            let r = operation!(Space, SpaceOp::Reclaim, space, at, pages);
            expect_one_of("Space.Reclaim", r.status, &[0, Error::Again.code()]);
            at += r.value * PAGE_SIZE;
            calls += 1;
        }
    }
    Ok(())
}
