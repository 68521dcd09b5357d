//! Pair tests of shared memory: atomicity, ordering, addresses, clock.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::Error;
use dyad_abi::cap::RegionKind;
use dyad_abi::user::HEAP_BASE;
use dyad_shm::frame::WeakRef;
use dyad_shm::{FUSED_BASE, PhysAddr, PoolId, is_fused};

use super::rig::Rig;
use super::{Outcome, Stop, TestCtx, Text, ensure, ktest, remark, spaces};

/// An anonymous, writable region.
const ANONYMOUS: u64 = RegionKind::Anonymous as u64 | 1 << 8;

const OPS: u64 = 200_000;

fn hammer(cx: &TestCtx<'_>, op: impl Fn(&AtomicU64)) -> Outcome {
    let word = cx.word(0);
    cx.meet()?;
    for _ in 0..OPS {
        op(word);
    }
    cx.meet()?;
    let expected = OPS * cx.node.params.node_count as u64;
    let found = word.load(Ordering::Acquire);
    ensure!(found == expected, "{found} instead of {expected}");
    Ok(None)
}

#[ktest(pair)]
fn atomic_add_hammer(cx: &TestCtx<'_>) -> Outcome {
    hammer(cx, |w| {
        w.fetch_add(1, Ordering::AcqRel);
    })
}

#[ktest(pair)]
fn atomic_cas_hammer(cx: &TestCtx<'_>) -> Outcome {
    hammer(cx, |w| {
        let mut old = w.load(Ordering::Relaxed);
        while let Err(now) = w.compare_exchange(old, old + 1, Ordering::AcqRel, Ordering::Relaxed) {
            old = now;
        }
    })
}

/// Odd nodes count down, even ones up: the sum must be exact although both directions mix.
#[ktest(pair)]
fn atomic_hammer_in_both_directions(cx: &TestCtx<'_>) -> Outcome {
    let word = cx.word(0);
    let up = cx.node.id().index().is_multiple_of(2);
    let step = if up { 1 } else { 1u64.wrapping_neg() };
    cx.meet()?;
    for i in 0..OPS {
        if i % 2 == 0 {
            word.fetch_add(step, Ordering::AcqRel);
        } else {
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |v| {
                Some(v.wrapping_add(step))
            });
        }
    }
    cx.meet()?;
    let ups = cx
        .node
        .all()
        .filter(|n| n.index().is_multiple_of(2))
        .count() as u64;
    let downs = cx.node.params.node_count as u64 - ups;
    let expected = (OPS * ups).wrapping_sub(OPS * downs);
    let found = word.load(Ordering::Acquire);
    ensure!(
        found == expected,
        "{} instead of {}",
        found as i64,
        expected as i64
    );
    Ok(None)
}

/// Rounds of the store-buffer litmus test.
const ROUNDS: u64 = 60_000;
const LINE_X: usize = 0;
const LINE_Y: usize = 1;
const LINE_ROUND: usize = 2;
const LINE_SEEN: usize = 4;

/// Node 0 stores x and reads y, node 1 stores y and reads x. Returns how often both read the old
/// value, as known to both nodes; `None` for nodes that do not take part.
fn store_buffer(cx: &TestCtx<'_>, fenced: bool) -> Result<u64, Stop> {
    let me = cx.node.id().index();
    cx.meet()?;
    if me > 1 {
        cx.meet()?;
        return Ok(0);
    }
    let (mine, theirs) = if me == 0 {
        (cx.word(LINE_X), cx.word(LINE_Y))
    } else {
        (cx.word(LINE_Y), cx.word(LINE_X))
    };
    let (round, peer_round) = (cx.word(LINE_ROUND + me), cx.word(LINE_ROUND + 1 - me));
    let (seen, peer_seen) = (cx.word(LINE_SEEN + me), cx.word(LINE_SEEN + 1 - me));
    // Values grow from one call to the next, so that nothing has to be reset.
    let base = round.load(Ordering::Relaxed);
    let mut both_old = 0;
    for i in base + 1..=base + ROUNDS {
        round.store(i, Ordering::Relaxed);
        let start = cx.machine.clock_ns();
        while peer_round.load(Ordering::Relaxed) < i {
            if cx.machine.clock_ns().wrapping_sub(start) > 10_000_000_000 {
                return Err(Stop::Failed(Text::new(format_args!("the peer is gone"))));
            }
        }
        mine.store(i, Ordering::Relaxed);
        if fenced {
            fence(Ordering::SeqCst);
        }
        let read = theirs.load(Ordering::Relaxed);
        seen.store(i << 1 | (read >= i) as u64, Ordering::Relaxed);
        let peer = loop {
            let p = peer_seen.load(Ordering::Relaxed);
            if p >> 1 >= i {
                break p;
            }
            if cx.machine.clock_ns().wrapping_sub(start) > 20_000_000_000 {
                return Err(Stop::Failed(Text::new(format_args!("the peer is gone"))));
            }
        };
        // The peer may be a round ahead; then its answer to this round is lost, not wrong.
        both_old += (read < i && peer == i << 1) as u64;
    }
    cx.meet()?;
    Ok(both_old)
}

#[ktest(pair)]
fn store_buffer_litmus_with_fence(cx: &TestCtx<'_>) -> Outcome {
    let both_old = store_buffer(cx, true)?;
    ensure!(
        both_old == 0,
        "forbidden outcome {both_old} times in {ROUNDS} rounds"
    );
    Ok(None)
}

/// Shows that the litmus test sees reordering where it is allowed: without that, the test with
/// the fence proves nothing.
#[ktest(pair)]
fn store_buffer_litmus_without_fence(cx: &TestCtx<'_>) -> Outcome {
    let mut both_old = 0;
    let mut rounds = 0;
    for _ in 0..4 {
        both_old += store_buffer(cx, false)?;
        rounds += ROUNDS;
    }
    if cx.node.id().index() <= 1 && both_old == 0 {
        return Err(Stop::Skipped(Text::new(format_args!(
            "the host reordered nothing in {rounds} rounds"
        ))));
    }
    remark!("allowed outcome {both_old} times in {rounds} rounds")
}

/// Every node stores a pointer into its own pool; every other follows it.
#[ktest(pair)]
fn pointers_are_seen_from_every_side(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let node = cx.node;
    let mine = rig.user()?.frame.address();
    let value = |n: usize| 0xc0de_0000 + n as u64 * 0x101;
    node.map
        .word(mine.add(64))
        .store(value(node.id().index()), Ordering::Relaxed);
    let va = node.map.address(mine, 128).unwrap_or(0) + 64;
    ensure!(
        is_fused(va) && va == FUSED_BASE + mine.0 + 64,
        "{va:#x} is not fused"
    );
    cx.word(8 + node.id().index()).store(va, Ordering::Release);
    cx.meet()?;
    for n in node.all() {
        let va = cx.word(8 + n.index()).load(Ordering::Acquire);
        let pa = node.map.physical(va);
        let pool = pa.and_then(PoolId::of);
        ensure!(
            pool == Some(PoolId::Local(n)),
            "node {n}'s pointer {va:#x} is in {pool:?}"
        );
        let seen = node
            .map
            .word(pa.unwrap_or(PhysAddr(0)))
            .load(Ordering::Relaxed);
        ensure!(seen == value(n.index()), "node {n}'s word reads {seen:#x}");
    }
    cx.meet()?;
    Ok(None)
}

/// Copies to user memory; a page that others map at the same time is tried again.
fn put(cx: &TestCtx<'_>, space: WeakRef, va: u64, bytes: &[u8]) -> Result<(), Stop> {
    for _ in 0..1000 {
        match cx.machine.copy_out(space, va, bytes) {
            Err(Error::Again) => cx.machine.relax(),
            other => return Ok(other?),
        }
    }
    Err(Error::Again.into())
}

/// Every node makes an address space and maps pages in it; the next one finds them in the table
/// of its own ISA, and adds pages that the first one then finds in its.
#[ktest(pair)]
fn tables_written_by_the_other_node_translate_here(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let node = cx.node;
    let isa = cx.machine.isa();
    let space = spaces::create(rig)?;
    let base = HEAP_BASE;
    spaces::region(&rig.k, space, base, 32 * 4096, ANONYMOUS)?;
    // The first faults split the supply's blocks. That may use up what a fault may cost before the other
    // ISAs' tables have the page; faults of theirs would show it.
    let mut split = false;
    for i in 16..32 {
        put(cx, space, base + i * 4096, &[0xff; 16])?;
        let shown = |isa| spaces::look(&rig.k, space, isa, base + i * 4096).is_some();
        split = split || node.isas().all(shown);
    }
    ensure!(split, "none of the first pages is in all tables");
    for i in 0..8 {
        put(cx, space, base + i * 4096, &[i as u8 + 1; 16])?;
    }
    spaces::shared_word(cx, 8 + node.id().index(), Some(space));
    cx.meet()?;
    let theirs = spaces::shared_word(cx, 8 + cx.previous().index(), None);
    let other = theirs.ok_or(Error::NotFound)?;
    let mut bytes = [0; 16];
    for i in 0..8 {
        let found = spaces::look(&rig.k, other, isa, base + i * 4096);
        ensure!(found.is_some(), "page {i} is not in this ISA's table");
        cx.machine.copy_in(other, base + i * 4096, &mut bytes)?;
        ensure!(bytes == [i as u8 + 1; 16], "page {i} has {bytes:?}");
    }
    for i in 8..16 {
        put(cx, other, base + i * 4096, &[i as u8 + 1; 16])?;
    }
    cx.meet()?;
    for i in 8..16 {
        let found = spaces::look(&rig.k, space, isa, base + i * 4096);
        let pool = found.and_then(|(_, leaf)| PoolId::of(leaf.pa));
        let expected = Some(PoolId::Local(cx.next()));
        ensure!(
            pool == expected,
            "page {i} is in {pool:?}, not where it was touched"
        );
        cx.machine.copy_in(space, base + i * 4096, &mut bytes)?;
        ensure!(bytes == [i as u8 + 1; 16], "page {i} has {bytes:?}");
    }
    cx.meet()?;
    Ok(None)
}

/// Two nodes touch the same new pages at the same time: one frame each must come out.
#[ktest(pair)]
fn first_touch_races_end_with_one_frame(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    const PAGES: u64 = 64;
    let node = cx.node;
    if node.id().index() == 0 {
        let space = spaces::create(rig)?;
        spaces::region(&rig.k, space, HEAP_BASE, PAGES * 4096, ANONYMOUS)?;
        spaces::shared_word(cx, 8, Some(space));
    }
    cx.meet()?;
    let space = spaces::shared_word(cx, 8, None).ok_or(Error::NotFound)?;
    let at = |i: u64| HEAP_BASE + i * 4096 + node.id().index() as u64 * 8;
    for i in 0..PAGES {
        put(cx, space, at(i), &[0x55; 8])?;
    }
    cx.meet()?;
    let mut bytes = [0; 8];
    for i in 0..PAGES {
        for n in node.all() {
            let va = HEAP_BASE + i * 4096 + n.index() as u64 * 8;
            cx.machine.copy_in(space, va, &mut bytes)?;
            ensure!(bytes == [0x55; 8], "page {i}: node {n}'s bytes are lost");
        }
    }
    cx.meet()?;
    Ok(None)
}

/// Time read here and told to others must not lie in their future by more than the clocks' known
/// errors, and what they have drifted apart since.
#[ktest(pair)]
fn clocks_agree(cx: &TestCtx<'_>) -> Outcome {
    // What 500 ppm make since the first node started.
    let drift = 100_000 + cx.machine.fused_ns() / 2_000;
    let error = |n: dyad_abi::NodeId| cx.node.sb.node(n).clock_error.load(Ordering::Relaxed);
    let mut worst = 0;
    for _ in 0..200 {
        for n in cx.node.all() {
            cx.meet()?;
            if n == cx.node.id() {
                cx.word(8).store(cx.machine.fused_ns(), Ordering::Release);
            } else {
                let told = cx.word(8).load(Ordering::Acquire);
                let ahead = told.saturating_sub(cx.machine.fused_ns());
                let known = error(n) + error(cx.node.id());
                ensure!(
                    ahead <= known + drift,
                    "node {n}'s clock is {ahead} ns ahead; {known} ns are known"
                );
                worst = worst.max(ahead);
            }
        }
    }
    remark!(
        "at most {worst} ns apart where it can be told; own error {} ns",
        error(cx.node.id())
    )
}
