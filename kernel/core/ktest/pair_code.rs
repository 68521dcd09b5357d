//! Pair test of the rule for frames that have been executed.

use core::sync::atomic::Ordering;

use dyad_abi::{Error, NodeId};
use dyad_shm::{FrameRef, PhysAddr};

use super::rig::Rig;
use super::{Outcome, Stop, TestCtx, Text, ensure, ktest, remark};

/// Code that another machine has written over code already executed may run in its old form: the
/// translator sees only stores of its own machine. After the executing node has rewritten the
/// frame, the new code must run.
#[ktest(pair)]
fn executed_frames_are_rewritten_before_new_code_runs(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let node = cx.node;
    let me = node.id().index();
    let frame = rig.user()?.frame.address();
    // What the others must write for this ISA, and where.
    for (k, n) in [42u8, 43].into_iter().enumerate() {
        let code = cx.machine.code_returning(n);
        for (i, w) in code.into_iter().enumerate() {
            node.sb.scratch[16 + me].words[2 * k + i].store(w, Ordering::Relaxed);
        }
    }
    cx.word(8 + me).store(frame.0, Ordering::Release);
    cx.meet()?;
    let next = cx.next().index();
    let write_for_next = |k: usize| {
        let at = PhysAddr(cx.word(8 + next).load(Ordering::Acquire));
        for i in 0..2 {
            let w = node.sb.scratch[16 + next].words[2 * k + i].load(Ordering::Relaxed);
            node.map
                .word(at.add(8 * i as u64))
                .store(w, Ordering::Release);
        }
    };
    write_for_next(0);
    cx.meet()?;
    let first = run(cx, frame)?;
    ensure!(first == 42, "the first code returned {first}");
    cx.meet()?;
    write_for_next(1);
    cx.meet()?;
    let unpublished = run(cx, frame)?;
    cx.machine.publish_here(frame)?;
    let published = run(cx, frame)?;
    cx.meet()?;
    ensure!(
        published == 43,
        "after rewriting, the code returned {published}"
    );
    remark!(
        "before rewriting, the code returned {unpublished} ({})",
        if unpublished == 42 { "stale" } else { "new" }
    )
}

fn run(cx: &TestCtx<'_>, frame: PhysAddr) -> Result<u64, Stop> {
    cx.machine
        .call_code(frame)
        .ok_or_else(|| Stop::Failed(Text::new(format_args!("the code cannot be mapped"))))
}

/// Rounds of the test below.
const ROUNDS: u64 = 40;

/// New code in a frame again and again, each written and made executable at another node than runs it, by trying in bursts
/// until it may be executed: the code that runs is always the last, and a burst sends one message.
#[ktest(pair)]
fn code_that_is_asked_for_in_bursts_is_never_the_former(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let node = cx.node;
    let me = node.id().index();
    let frame = rig.user()?.frame;
    for n in 0..ROUNDS {
        let code = cx.machine.code_returning(n as u8 + 1);
        for (i, w) in code.into_iter().enumerate() {
            node.sb.scratch[16 + me].words[i].store(w, Ordering::Relaxed);
        }
        cx.word(8 + me).store(frame.address().0, Ordering::Release);
        cx.meet()?;
        // The next node's code, written and published from here: it handles messages meanwhile, late.
        let next = cx.next();
        let at = PhysAddr(cx.word(8 + next.index()).load(Ordering::Acquire));
        for i in 0..2 {
            let w = node.sb.scratch[16 + next.index()].words[i].load(Ordering::Relaxed);
            node.map
                .word(at.add(8 * i as u64))
                .store(w, Ordering::Release);
        }
        let theirs = FrameRef::of(at).ok_or(Error::Corrupt)?;
        let before = dyad_machine::inbox::sent(node);
        let (mut tries, mut since) = (0u64, 0u64);
        loop {
            tries += 1;
            match cx.machine.make_executable(theirs, node.isa(next)) {
                Ok(()) => break,
                Err(Error::Again) => {}
                Err(e) => return Err(e.into()),
            }
            since += 1;
            ensure!(since < 50_000_000, "not executable after {tries} tries");
            // A burst of tries, and only then what others ask for.
            if tries % 64 == 0 {
                cx.machine.drain();
            }
        }
        let sent = dyad_machine::inbox::sent(node) - before;
        // One, and one more for each time that the node has taken the message and is not done when this node looks.
        ensure!(sent <= 2 + tries / 16, "{tries} tries sent {sent} messages");
        // A node at the barrier handles no messages, so no node goes there before all have been answered.
        cx.word(32 + me).store(n + 1, Ordering::Release);
        let answered = |o: NodeId| cx.word(32 + o.index()).load(Ordering::Acquire) > n;
        let mut turns = 0u64;
        while !node.others().all(answered) {
            cx.machine.drain();
            turns += 1;
            ensure!(turns < 50_000_000, "another node is not answered");
        }
        cx.meet()?;
        let got = run(cx, frame.address())?;
        ensure!(
            got == n + 1,
            "round {n} has run the code that returns {got}"
        );
        cx.meet()?;
    }
    Ok(None)
}
