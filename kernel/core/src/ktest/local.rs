//! Tests that every node runs by itself.

use core::sync::atomic::Ordering;

use dyad_abi::user::{HEAP_BASE, PAGE_SIZE, USER_END};
use dyad_abi::{CpuId, Error, NodeId};
use dyad_pgtbl::{Level, Memory, Perms};
use dyad_ring::Message;
use dyad_shm::superblock::MAGIC;
use dyad_shm::{FUSED_BASE, FUSED_END, IMAGE_BASE, PhysAddr, PoolId};

use super::{Cx, Outcome, ensure, ktest, remark};
use crate::frames::Frames;
use crate::space::{Region, RegionKind, Space};

#[ktest]
fn frames_are_zeroed_distinct_and_come_back(cx: &Cx<'_>) -> Outcome {
    let frames = cx.node.frames();
    let before = frames.used();
    let mut got = [PhysAddr(0); 64];
    for round in 0..3 {
        for i in 0..got.len() {
            let pa = frames.alloc()?;
            ensure!(pa.offset() == 0, "{pa} is not the start of a frame");
            ensure!(!got[..i].contains(&pa), "{pa} handed out twice");
            for w in 0..PAGE_SIZE / 8 {
                let word = cx.node.map.word(pa.add(w * 8));
                ensure!(
                    word.load(Ordering::Relaxed) == 0,
                    "round {round}: {pa} is not zero"
                );
                word.store(!0, Ordering::Relaxed);
            }
            got[i] = pa;
        }
        for &pa in &got {
            Frames::free(&cx.node.map, pa)?;
        }
    }
    ensure!(
        frames.used() == before,
        "{} frames lost",
        frames.used() - before
    );
    Ok(None)
}

#[ktest]
fn frames_that_are_none_are_refused(cx: &Cx<'_>) -> Outcome {
    let local = PoolId::Local(cx.node.id());
    let past = local.base().add(cx.node.map.size(local));
    for pa in [
        PhysAddr(0),
        PhysAddr(0x1000),
        local.base(),
        local.base().add(cx.node.map.size(local) - 1),
        past,
        PoolId::Cxl.base(),
    ] {
        let refused = Frames::free(&cx.node.map, pa) == Err(Error::BadArgument);
        ensure!(refused, "{pa} was taken as a frame to free");
    }
    Ok(None)
}

#[ktest]
fn clock_runs_forward(cx: &Cx<'_>) -> Outcome {
    let start = cx.machine.clock_ns();
    let (mut last, mut changes) = (start, 0u64);
    // Counted in readings: the host may stop this machine for any time between two.
    for _ in 0..200_000 {
        let now = cx.machine.clock_ns();
        ensure!(now >= last, "the clock went back by {} ns", last - now);
        changes += (now != last) as u64;
        last = now;
    }
    ensure!(
        changes > 1_000,
        "only {changes} of 200000 readings differ from the one before"
    );
    ensure!(
        last - start < 60_000_000_000,
        "200000 readings took {} ns",
        last - start
    );
    Ok(None)
}

#[ktest]
fn timer_interrupts_at_its_deadline(cx: &Cx<'_>) -> Outcome {
    let m = cx.machine;
    let mut worst = 0;
    for delay in [0, 10_000, 1_000_000, 30_000_000] {
        let (_, before, _) = m.interrupts();
        let deadline = m.clock_ns() + delay;
        m.set_timer(Some(deadline));
        // Doorbells of other tests' leftovers may end a wait early.
        while m.interrupts().1 == before {
            m.wait();
            ensure!(
                m.clock_ns() < deadline + 5_000_000_000,
                "no interrupt 5 s after a deadline {delay} ns ahead"
            );
        }
        let now = m.clock_ns();
        ensure!(now >= deadline, "{} ns early", deadline - now);
        worst = worst.max(now.saturating_sub(deadline));
    }
    m.set_timer(None);
    remark!("at most {worst} ns late")
}

#[ktest]
fn kernel_memory_is_never_writable_and_executable(cx: &Cx<'_>) -> Outcome {
    let (mut image, mut text, mut bad) = (0, 0, None);
    cx.machine.kernel_leaves(&mut |va, _, leaf| {
        let (w, x) = (
            leaf.perms.contains(Perms::WRITE),
            leaf.perms.contains(Perms::EXECUTE),
        );
        if (w && x)
            || leaf.perms.contains(Perms::USER)
            || (x && va < IMAGE_BASE && !is_code_window(va))
        {
            bad = Some((va, leaf.perms));
        }
        image += (va >= IMAGE_BASE) as u64;
        text += x as u64;
    });
    ensure!(bad.is_none(), "page with wrong permissions: {bad:x?}");
    ensure!(
        image > 0 && text > 0,
        "the image is not mapped: {image} leaves, {text} of text"
    );
    Ok(None)
}

/// The window that tests execute code in lies in the per-CPU range.
fn is_code_window(va: u64) -> bool {
    (dyad_shm::PERCPU_BASE..IMAGE_BASE).contains(&va)
}

#[ktest]
fn pools_are_mapped_at_the_fused_base(cx: &Cx<'_>) -> Outcome {
    let (mut bytes, mut bad) = (0, None);
    cx.machine.kernel_leaves(&mut |va, level, leaf| {
        if (FUSED_BASE..FUSED_END).contains(&va) {
            bytes += level.size();
            let right = leaf.pa.0 == va - FUSED_BASE
                && leaf.perms == Perms::READ | Perms::WRITE
                && leaf.memory == Memory::Normal
                && leaf.global
                && level >= Level::L2;
            if !right {
                bad = Some((va, leaf));
            }
        }
    });
    ensure!(bad.is_none(), "wrong mapping: {bad:x?}");
    let pools: u64 = cx
        .node
        .all()
        .map(|n| cx.node.map.size(PoolId::Local(n)))
        .sum();
    let expected = pools + cx.node.map.size(PoolId::Cxl);
    ensure!(
        bytes == expected,
        "{bytes:#x} bytes are mapped, the pools have {expected:#x}"
    );
    ensure!(
        cx.node.sb.magic.load(Ordering::Relaxed) == MAGIC,
        "no superblock"
    );
    Ok(None)
}

#[ktest]
fn mappings_are_the_same_in_both_tables(cx: &Cx<'_>) -> Outcome {
    let node = cx.node;
    let before = (node.frames().used(), node.cxl_frames().used());
    let (space, reference) = Space::create(node)?;
    let result = both_tables(cx, &space);
    space.destroy(reference);
    let after = (node.frames().used(), node.cxl_frames().used());
    result?;
    ensure!(before == after, "frames before {before:?}, after {after:?}");
    Ok(None)
}

fn both_tables(cx: &Cx<'_>, space: &Space<'_>) -> Outcome {
    let len = 40 * PAGE_SIZE;
    let base = space.map_anonymous(len)?;
    ensure!(base == HEAP_BASE, "first region at {base:#x}");
    for i in (0..40).step_by(3) {
        let va = base + i * PAGE_SIZE + 17;
        cx.machine.copy_out(space, va, b"seen by all")?;
        let mut frames = [PhysAddr(0); 2];
        for (k, isa) in cx.node.isas().enumerate() {
            let found = space.with_table(isa, |t| t.translate(va)).flatten();
            let Some((pa, leaf, level)) = found else {
                ensure!(false, "{va:#x} is not in the table of {isa}");
                break;
            };
            ensure!(level == Level::L1, "{va:#x} at level {level:?}");
            let perms = Perms::READ | Perms::WRITE | Perms::USER;
            ensure!(leaf.perms == perms, "{va:#x} has {:?} on {isa}", leaf.perms);
            frames[k] = pa;
        }
        let n = cx.node.isas().count();
        ensure!(
            frames[0] == frames[n - 1],
            "{va:#x}: different frames {frames:?}"
        );
        let mut back = [0; 11];
        ensure!(cx.node.map.read_bytes(frames[0], &mut back), "no memory");
        ensure!(&back == b"seen by all", "wrong bytes");
    }
    space.unmap_region(base, len)?;
    for isa in cx.node.isas() {
        let found = space.with_table(isa, |t| t.translate(base)).flatten();
        ensure!(found.is_none(), "still mapped for {isa}");
    }
    let again = space.unmap_region(base, len);
    ensure!(
        again == Err(Error::BadArgument),
        "unmapped twice: {again:?}"
    );
    Ok(None)
}

#[ktest]
fn user_pointers_are_not_trusted(cx: &Cx<'_>) -> Outcome {
    let (space, reference) = Space::create(cx.node)?;
    let result = bad_pointers(cx, &space);
    space.destroy(reference);
    result
}

fn bad_pointers(cx: &Cx<'_>, space: &Space<'_>) -> Outcome {
    let base = space.map_anonymous(2 * PAGE_SIZE)?;
    space.add_region(Region {
        start: 0x5000_0000,
        end: 0x5000_1000,
        kind: RegionKind::Image,
        write: false,
    })?;
    let mut buf = [0; 64];
    for va in [
        0,
        8,
        0xfff,
        base - 1,
        base + 2 * PAGE_SIZE - 63,
        base + 2 * PAGE_SIZE,
        0x5000_0000,
        USER_END - 64,
        USER_END - 1,
        USER_END,
        FUSED_BASE,
        FUSED_BASE + PoolId::Cxl.base().0,
        IMAGE_BASE,
        u64::MAX - 63,
        u64::MAX,
    ] {
        let r = cx.machine.copy_in(space, va, &mut buf);
        ensure!(r == Err(Error::BadAddress), "read of {va:#x}: {r:?}");
        let w = cx.machine.copy_out(space, va, &buf);
        ensure!(w == Err(Error::BadAddress), "write to {va:#x}: {w:?}");
    }
    cx.machine.copy_out(space, base + PAGE_SIZE - 32, &buf)?;
    Ok(None)
}

#[ktest]
fn regions_do_not_overlap(cx: &Cx<'_>) -> Outcome {
    let (space, reference) = Space::create(cx.node)?;
    let add = |start, end| {
        space.add_region(Region {
            start,
            end,
            kind: RegionKind::Fixed,
            write: true,
        })
    };
    let tries = [
        (0x10_0000, 0x20_0000, Ok(())),
        (0x10_0000, 0x10_1000, Err(Error::Exists)),
        (0x1f_f000, 0x21_0000, Err(Error::Exists)),
        (0x0f_0000, 0x30_0000, Err(Error::Exists)),
        (0x20_0000, 0x21_0000, Ok(())),
        (0x20_0800, 0x30_0000, Err(Error::BadArgument)),
        (0x40_0000, 0x40_0000, Err(Error::BadArgument)),
        (0, 0x1000, Err(Error::BadArgument)),
        (
            USER_END - 0x1000,
            USER_END + 0x1000,
            Err(Error::BadArgument),
        ),
    ];
    let wrong = tries.iter().find(|(s, e, want)| add(*s, *e) != *want);
    let wrong = wrong.map(|t| (t.0, t.1));
    let mut slots = 2;
    while add(
        0x1_0000_0000 + slots * 0x10_0000,
        0x1_0000_1000 + slots * 0x10_0000,
    )
    .is_ok()
    {
        slots += 1;
        if slots > 1000 {
            break;
        }
    }
    let full = space.map_anonymous(PAGE_SIZE);
    space.destroy(reference);
    ensure!(wrong.is_none(), "wrong answer for {wrong:x?}");
    ensure!(
        slots as usize == crate::space::MAX_REGIONS,
        "{slots} regions fit"
    );
    ensure!(full == Err(Error::Full), "with all slots in use: {full:?}");
    Ok(None)
}

#[ktest]
fn messages_to_nobody_are_refused(cx: &Cx<'_>) -> Outcome {
    let m = Message([0; 8]);
    let count = cx.node.params.node_count;
    let first = CpuId::first(1).next();
    for n in NodeId::first(8).skip(count) {
        let r = first.map(|c| cx.machine.send(n, c, &m));
        ensure!(r == Some(Err(Error::NoSuchNode)), "node {n}: {r:?}");
    }
    for c in CpuId::first(8).skip(cx.node.params.cpus) {
        let r = cx.machine.send(cx.node.id(), c, &m);
        ensure!(r == Err(Error::NoSuchNode), "CPU {c}: {r:?}");
    }
    Ok(None)
}
