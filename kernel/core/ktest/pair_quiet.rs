//! Pair tests of quiescence: who counts, and when.

use dyad_abi::cap::{MemoryOp, ObjectKind, Rights};
use dyad_abi::{Error, NodeId};
use dyad_shm::frame::Epoch;
use dyad_shm::superblock::NodeState;

use super::rig::Rig;
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest};

/// Gives a new object up; the stamp.
fn given_up(rig: &Rig<'_>) -> Result<Epoch, Stop> {
    let object = rig.object(ObjectKind::Time)?;
    let m = rig.memory(object.frame, 1, Rights::ALL)?;
    let stamp = rig.sys(m, MemoryOp::RetypeUntyped as u32, &[0])?;
    Ok(Epoch::new(stamp).ok_or(Error::Corrupt)?)
}

fn first(cx: &TestCtx<'_>) -> NodeId {
    cx.node.all().next().unwrap_or(cx.node.id())
}

#[ktest(pair)]
fn epochs_published_by_all_nodes_differ_and_grow(cx: &TestCtx<'_>) -> Outcome {
    const ROUNDS: usize = 40;
    cx.meet()?;
    let mut mine = [0; ROUNDS];
    for e in &mut mine {
        *e = cx.round()?;
    }
    ensure!(
        mine.is_sorted_by(|a, b| a < b),
        "epochs do not grow: {mine:?}"
    );
    let me = cx.node.id().index();
    for (i, &e) in mine.iter().enumerate() {
        let word = &cx.node.sb.scratch[16 + me * 5 + i / 8].words[i % 8];
        word.store(e, core::sync::atomic::Ordering::Release);
    }
    cx.meet()?;
    for other in cx.node.others() {
        for i in 0..ROUNDS {
            let word = &cx.node.sb.scratch[16 + other.index() * 5 + i / 8].words[i % 8];
            let theirs = word.load(core::sync::atomic::Ordering::Acquire);
            ensure!(!mine.contains(&theirs), "epoch {theirs} twice");
        }
    }
    cx.meet()?;
    Ok(None)
}

/// All nodes but the first fall asleep; the first alone then makes enough rounds.
#[ktest(pair)]
fn nodes_that_sleep_count_as_quiet(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    rig.stand_down();
    let awake = |n: NodeId| rig.k.epochs().publication(n).awake() & 1 != 0;
    cx.meet()?;
    if cx.node.id() != first(cx) {
        ensure!(cx.machine.sleep(&rig.k), "it does not fall asleep");
        // What follows looks at nothing that is reclaimed.
        cx.meet()?;
        cx.meet()?;
        rig.k.epochs().wake(cx.node.id(), rig.k.cpu());
        cx.meet()?;
        ensure!(awake(cx.node.id()), "awake, and does not say so");
        cx.meet()?;
        return Ok(None);
    }
    cx.meet()?;
    for n in cx.node.others() {
        ensure!(!awake(n), "CPU 0 of node {n} is awake");
    }
    rig.run(rig.thread)?;
    let stamp = given_up(rig)?;
    ensure!(!cx.node.tables.quiesced(stamp), "quiesced without a round");
    rig.stand_down();
    rig.round()?;
    // Other CPUs of the nodes asleep may be awake: those make no rounds.
    let all_asleep = cx
        .node
        .others()
        .all(|n| rig.k.epochs().publication(n).awake() == 0);
    let quiet = cx.node.tables.quiesced(stamp);
    ensure!(quiet || !all_asleep, "not quiesced");
    cx.meet()?;
    cx.meet()?;
    // From here on the others count again.
    rig.run(rig.thread)?;
    let later = given_up(rig)?;
    rig.stand_down();
    rig.round()?;
    ensure!(
        !cx.node.tables.quiesced(later),
        "quiesced without the others"
    );
    cx.meet()?;
    Ok(None)
}

/// A node that is suspected counts on, and goes on publishing.
#[ktest(pair)]
fn suspicion_blocks_reuse_and_nothing_else(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let last = cx.node.all().last().unwrap_or(cx.node.id());
    cx.meet()?;
    if cx.node.id() == first(cx) {
        let suspected = rig.k.epochs().suspect(last);
        ensure!(suspected.is_ok(), "{suspected:?}");
        let again = rig.k.epochs().suspect(last);
        ensure!(again.is_err(), "suspected twice");
    }
    cx.meet()?;
    gives!(cx.node.word_of(last).state, NodeState::Suspect);
    let stamp = given_up(rig)?;
    cx.meet()?;
    if cx.node.id() != last {
        rig.round()?;
    }
    cx.meet()?;
    ensure!(
        !cx.node.tables.quiesced(stamp),
        "quiesced without the suspect"
    );
    // It is heard, and hears.
    let m = dyad_ring::Message([dyad_machine::inbox::kind::TEST, 0, 0, 0, 0, 0, 0, 0]);
    if cx.node.id() != last {
        gives!(
            cx.machine.send(
                last,
                dyad_abi::CpuId::first(1).next().unwrap_or(rig.k.cpu()),
                &m
            ),
            Ok(())
        );
    }
    cx.meet()?;
    cx.machine.drain();
    rig.round()?;
    cx.meet()?;
    rig.round()?;
    cx.meet()?;
    ensure!(
        cx.node.tables.quiesced(stamp),
        "not quiesced with the suspect"
    );
    if cx.node.id() == first(cx) {
        let trusted = rig.k.epochs().trust(last);
        ensure!(trusted.is_ok(), "{trusted:?}");
    }
    cx.meet()?;
    gives!(cx.node.word_of(last).state, NodeState::Live);
    cx.meet()?;
    Ok(None)
}

/// How many steps a round takes does not depend on what there is, only on what has been touched.
#[ktest(pair)]
fn rounds_take_a_bounded_number_of_steps(cx: &TestCtx<'_>) -> Outcome {
    cx.meet()?;
    let k = cx.kernel();
    let mut steps = 0u64;
    while cx.flush_step(&k, 1)? == 0 {
        steps += 1;
        ensure!(steps < 10_000, "a round of more than {steps} steps");
        cx.machine.drain();
    }
    cx.meet()?;
    super::remark!("{steps} steps")
}

/// A node that makes no rounds blocks reuse for good, and nothing else: others publish on.
#[ktest(pair)]
fn slow_nodes_hold_back_reuse_and_no_round(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let slow = cx.node.all().last().unwrap_or(cx.node.id());
    let stamp = given_up(rig)?;
    cx.meet()?;
    if cx.node.id() != slow {
        let mut last = 0;
        for _ in 0..20 {
            let epoch = rig.round()?;
            ensure!(epoch > last, "epoch {epoch} after {last}");
            last = epoch;
        }
        ensure!(
            !cx.node.tables.quiesced(stamp),
            "quiesced without node {slow}"
        );
    }
    cx.meet()?;
    rig.round()?;
    cx.meet()?;
    ensure!(cx.node.tables.quiesced(stamp), "not quiesced");
    cx.meet()?;
    Ok(None)
}
