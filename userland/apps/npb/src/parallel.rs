//! A benchmark that threads share.

use dyad::prelude::thread::*;
use dyad::sys::marker;
use dyad::{report, thread};
use npb_kernels::ep::{Batch, Sums};

use crate::{Options, REGION};

/// What a thread makes in one piece.
type Share = Vec<Batch>;

/// EP. Thread `t` of `n` makes each `n`th batch from `t` on. Only the batches' results are looked at by others, at the end.
pub(crate) fn pairs(options: &Options) -> Result<()> {
    let (class, count) = (options.class, options.threads);
    let nodes: Vec<NodeId> = system()?.nodes().filter(|n| n.live).map(|n| n.id).collect();
    let here = nodes.iter().position(|&n| n == node()).unwrap_or(0);
    let began = Instant::now();
    let mut others = Vec::new();
    for t in 1..count {
        let node = nodes[(here + t as usize) % nodes.len()];
        others.push(thread::spawn_on(node, move || {
            share(class.batches(), t, count)
        })?);
    }
    let own = share(class.batches(), 0, count);
    let mut shares = vec![own];
    for other in others {
        shares.push(other.join()?);
    }
    let time = began.elapsed();
    let batches = (0..class.batches()).filter_map(|batch| {
        let (t, n) = (batch % count, batch / count);
        shares[t as usize].get(n as usize).copied()
    });
    let sums = Sums::of(class, &batches.collect::<Vec<_>>());
    let verdict = sums.verify();
    println!(
        "NPB ep class {class}: {count} threads on {} nodes",
        nodes.len()
    );
    println!("{}", verdict.detail);
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    report::counter("ep.timed-ns", ns);
    let ok = report::check("ep.verification", verdict.ok, &verdict.detail);
    println!("Checksum of all results = {:016x}", sums.checksum());
    match ok {
        true => Ok(()),
        false => Err(Error::msg("verification failed")),
    }
}

/// The batches of a thread. It has no migration points: with them, functions of tasks that are called through pointers would be
/// taken for functions that may migrate, and tasks of this program could not move.
#[inline(never)]
fn share(batches: u32, first: u32, step: u32) -> Share {
    marker::window::<REGION, _>(|| {
        let mut own = Share::with_capacity(batches.div_ceil(step) as usize);
        let mut batch = first;
        while batch < batches {
            own.push(Batch::make(batch));
            batch += step;
        }
        own
    })
}
