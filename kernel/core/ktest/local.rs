//! Tests that every node runs by itself.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{ObjectKind, RegionKind, SpaceOp};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::{HEAP_BASE, PAGE_SIZE, USER_END};
use dyad_abi::{CpuId, Error, NodeId};
use dyad_pgtbl::{Level, Memory, Perms};
use dyad_retype::{Order, Use};
use dyad_ring::Message;
use dyad_shm::superblock::MAGIC;
use dyad_shm::{FUSED_BASE, FUSED_END, FrameRef, IMAGE_BASE, PhysAddr, PoolId};

use super::rig::{self, Rig};
use super::{Outcome, TestCtx, ensure, fail, gives, ktest, remark, spaces};

const ANONYMOUS: u64 = RegionKind::Anonymous as u64;

#[ktest]
fn frames_are_zeroed_and_distinct_when_retyped_and_come_back(cx: &TestCtx<'_>) -> Outcome {
    for round in 0..3 {
        rig::with(cx, |rig| {
            let mut got = [PhysAddr(0); 48];
            for i in 0..got.len() {
                let pa = rig.user()?.frame.address();
                ensure!(!got[..i].contains(&pa), "{pa} handed out twice");
                for w in 0..PAGE_SIZE / 8 {
                    let word = cx.node.map.word(pa.add(w * 8));
                    let is = word.load(Ordering::Relaxed);
                    ensure!(is == 0, "round {round}: {pa} has {is:#x}");
                    word.store(!0, Ordering::Relaxed);
                }
                got[i] = pa;
            }
            Ok(None)
        })?;
    }
    Ok(None)
}

#[ktest(ops)]
fn frames_of_the_system_cannot_be_retyped(cx: &TestCtx<'_>) -> Outcome {
    let local = PoolId::Local(cx.node.id());
    let k = cx.kernel();
    for pool in [local, PoolId::Cxl] {
        let at = dyad_object::tables::Layout::of(&cx.node.params, pool);
        for pa in [
            pool.base(),
            at.records,
            pool.base().add((at.usable.start - 1) * PAGE_SIZE),
        ] {
            let frame = FrameRef::of(pa.frame_start()).ok_or(Error::BadArgument)?;
            let up = crate::syscall::ops::memory::to_untyped(&k, frame);
            ensure!(up == Err(Error::Denied), "{pa} given up: {up:?}");
            let taken = cx.machine.retype(&k, frame, Order::FRAME, Some(Use::User));
            ensure!(taken == Err(Error::Denied), "{pa} taken: {taken:?}");
        }
        let past = pool.base().add(cx.node.map.size(pool));
        if let Some(frame) = FrameRef::of(past) {
            let up = crate::syscall::ops::memory::to_untyped(&k, frame);
            ensure!(up == Err(Error::BadArgument), "{past} given up: {up:?}");
        }
    }
    Ok(None)
}

#[ktest]
fn clock_runs_forward(cx: &TestCtx<'_>) -> Outcome {
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
fn timer_interrupts_at_its_deadline(cx: &TestCtx<'_>) -> Outcome {
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
fn kernel_memory_is_never_writable_and_executable(cx: &TestCtx<'_>) -> Outcome {
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
fn pools_are_mapped_at_the_fused_base(cx: &TestCtx<'_>) -> Outcome {
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

#[ktest(ops)]
fn anonymous_pages_are_the_same_in_both_tables(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let space = spaces::create(rig)?;
    let len = 40 * PAGE_SIZE;
    spaces::region(&rig.k, space, HEAP_BASE, len, ANONYMOUS | 1 << 8)?;
    // A fault makes only so many tables: the first one, those for this node.
    cx.machine
        .copy_out(space, HEAP_BASE + PAGE_SIZE, b"tables")?;
    for i in (0..40).step_by(3) {
        let va = HEAP_BASE + i * PAGE_SIZE + 17;
        cx.machine.copy_out(space, va, b"seen by all")?;
        let mut frames = [PhysAddr(0); 2];
        for (k, isa) in cx.node.isas().enumerate() {
            let Some((_, leaf)) = spaces::look(&rig.k, space, isa, va) else {
                return fail(format_args!("{va:#x} is not in the table of {isa}"));
            };
            let perms = Perms::READ | Perms::WRITE | Perms::USER;
            let is = leaf.perms & (perms | Perms::EXECUTE);
            ensure!(is == perms, "{va:#x} has {is:?} on {isa}");
            frames[k] = leaf.pa;
        }
        let n = cx.node.isas().count();
        let same = frames[0] == frames[n - 1];
        ensure!(same, "{va:#x}: different frames {frames:?}");
        let mut back = [0; 11];
        ensure!(
            cx.node.map.read_bytes(frames[0].add(17), &mut back),
            "no memory"
        );
        ensure!(&back == b"seen by all", "wrong bytes");
    }
    spaces::dissolve(&rig.k, space);
    for isa in cx.node.isas() {
        let found = spaces::look(&rig.k, space, isa, HEAP_BASE);
        ensure!(found.is_none(), "still mapped for {isa}");
    }
    Ok(None)
}

#[ktest(ops)]
fn words_of_user_memory_are_exchanged_in_one_step(rig: &Rig<'_>) -> Outcome {
    let object = spaces::create(rig)?;
    let at = HEAP_BASE + 24;
    spaces::region(&rig.k, object, HEAP_BASE, PAGE_SIZE, ANONYMOUS | 1 << 8)?;
    let end = HEAP_BASE + PAGE_SIZE;
    spaces::region(&rig.k, object, end, PAGE_SIZE, ANONYMOUS)?;
    let exchange = SpaceOp::Exchange as u32;
    let space = rig.cap(ObjectKind::Space, object, rig::only(exchange))?;
    let words = |va, old, new| rig.sys(space, exchange, &[va, old, new]);
    // The page comes with it, and is zero.
    gives!(words(at, 0, 5), Ok(0));
    gives!(words(at, 0, 7), Ok(5));
    gives!(words(at, 5, u64::MAX), Ok(5));
    gives!(words(at, u64::MAX, 9), Ok(u64::MAX));
    let mut word = [0; 8];
    rig.cx.machine.copy_in(object, at, &mut word)?;
    gives!(u64::from_le_bytes(word), 9);
    for bad in [at + 1, at + 4, end - 4] {
        gives!(words(bad, 0, 1), Err(Error::BadArgument));
    }
    for bad in [
        0,
        8,
        end,
        end + PAGE_SIZE,
        USER_END,
        USER_END - 4,
        FUSED_BASE,
        !7,
    ] {
        gives!(words(bad, 0, 1), Err(Error::BadAddress));
    }
    let without = rig.cap(ObjectKind::Space, object, rig::all_but(exchange))?;
    gives!(rig.sys(without, exchange, &[at, 9, 1]), Err(Error::Denied));
    gives!(words(at, 9, 9), Ok(9));
    Ok(None)
}

/// The home of a region is a node that there is. What is refused leaves nothing in the way.
#[ktest(ops)]
fn regions_have_no_home_where_there_is_no_node(rig: &Rig<'_>) -> Outcome {
    let object = spaces::create(rig)?;
    let add = SpaceOp::AddRegion as u32;
    let space = rig.cap(ObjectKind::Space, object, rig::only(add))?;
    let of = |home: u64| {
        let kind = ANONYMOUS | 1 << 8 | home << 9;
        rig.sys(space, add, &[HEAP_BASE, PAGE_SIZE, kind])
    };
    // Homes are numbered from 1.
    let nodes = rig.cx.node.params.node_count as u64;
    for none in [nodes + 1, MAX_NODES as u64 + 1, 15] {
        gives!(of(none), Err(Error::NoSuchNode));
    }
    gives!(of(16), Err(Error::BadArgument));
    gives!(of(nodes), Ok(0));
    gives!(of(nodes), Err(Error::Exists));
    Ok(None)
}

#[ktest(ops)]
fn user_pointers_are_not_trusted(rig: &Rig<'_>) -> Outcome {
    let space = spaces::create(rig)?;
    let base = HEAP_BASE;
    spaces::region(&rig.k, space, base, 2 * PAGE_SIZE, ANONYMOUS | 1 << 8)?;
    spaces::region(
        &rig.k,
        space,
        0x5000_0000,
        PAGE_SIZE,
        RegionKind::PerIsa as u64,
    )?;
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
        let r = rig.cx.machine.copy_in(space, va, &mut buf);
        ensure!(r == Err(Error::BadAddress), "read of {va:#x}: {r:?}");
        let w = rig.cx.machine.copy_out(space, va, &buf);
        ensure!(w == Err(Error::BadAddress), "write to {va:#x}: {w:?}");
    }
    rig.cx
        .machine
        .copy_out(space, base + PAGE_SIZE - 32, &buf)?;
    Ok(None)
}

#[ktest(ops)]
fn regions_do_not_overlap(rig: &Rig<'_>) -> Outcome {
    let space = rig.object(ObjectKind::Space)?;
    let add =
        |start: u64, end: u64| spaces::region(&rig.k, space, start, end.wrapping_sub(start), 2);
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
    for (start, end, want) in tries {
        let is = add(start, end);
        ensure!(is == want, "{start:#x} to {end:#x}: {is:?}");
    }
    let mut slots = 2;
    let full = loop {
        let at = 0x1_0000_0000 + slots * 0x10_0000;
        match add(at, at + 0x1000) {
            Ok(()) if slots < 1000 => slots += 1,
            Ok(()) => return fail(format_args!("there is no end of regions")),
            Err(e) => break e,
        }
    };
    ensure!(full == Error::Full, "with all slots in use: {full:?}");
    ensure!(
        slots as usize == dyad_object::space::MAX_REGIONS,
        "{slots} regions fit"
    );
    Ok(None)
}

#[ktest]
fn messages_to_nobody_are_refused(cx: &TestCtx<'_>) -> Outcome {
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
