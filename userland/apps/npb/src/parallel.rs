//! Benchmarks that threads share.

use alloc::sync::Arc;

use dyad::prelude::thread::*;
use dyad::sync::Barrier;
use dyad::sys::marker;
use dyad::{report, thread};
use npb_kernels::ep::{Batch, Sums};
use npb_kernels::is::shared::{Findings, Shared};
use npb_kernels::kernel::Verdict;

use crate::{Bench, Options, REGION};

/// What a thread makes in one piece.
type Share = Vec<Batch>;

/// Runs a benchmark, which the options say can be shared.
pub(crate) fn main(options: &Options) -> Result<()> {
    match options.benches[..] {
        [Bench::Is] => keys(options),
        _ => pairs(options),
    }
}

/// Has each thread of a team do its part, on a node of its own as far as there are any. Gives what they give, in their order,
/// and the number of nodes.
fn team<T: Send + 'static>(
    count: u32,
    own: impl FnOnce() -> T,
    part: impl Fn(u32) -> T + Clone + Send + 'static,
) -> Result<(Vec<T>, usize)> {
    let nodes: Vec<NodeId> = system()?.nodes().filter(|n| n.live).map(|n| n.id).collect();
    let here = nodes.iter().position(|&n| n == node()).unwrap_or(0);
    let mut others = Vec::new();
    for t in 1..count {
        let node = nodes[(here + t as usize) % nodes.len()];
        let part = part.clone();
        others.push(thread::spawn_on(node, move || part(t))?);
    }
    let mut all = vec![own()];
    for other in others {
        all.push(other.join()?);
    }
    Ok((all, nodes.len()))
}

/// EP. Thread `t` of `n` makes each `n`th batch from `t` on. Only the batches' results are looked at by others, at the end.
fn pairs(options: &Options) -> Result<()> {
    let (class, count) = (options.class, options.threads);
    let began = Instant::now();
    let part = move |t| share(class.batches(), t, count);
    let (shares, nodes) = team(count, || part(0), part)?;
    let time = began.elapsed();
    let batches = (0..class.batches()).filter_map(|batch| {
        let (t, n) = (batch % count, batch / count);
        shares[t as usize].get(n as usize).copied()
    });
    let sums = Sums::of(class, &batches.collect::<Vec<_>>());
    let verdict = sums.verify();
    conclude(options, "ep", nodes, time, (verdict, sums.checksum()))
}

/// IS. Keys and ranks are shared out, and all threads meet several times in each iteration.
fn keys(options: &Options) -> Result<()> {
    let (class, count) = (options.class, options.threads);
    let (shared, mut findings) = Shared::new(class, options.buckets, count);
    let (shared, barrier) = (Arc::new(shared), Arc::new(Barrier::new(count)));
    let own = (shared.clone(), barrier.clone());
    let part = {
        let shared = shared.clone();
        move |t| rank((&shared, &barrier), t, None)
    };
    let own = || rank((&own.0, &own.1), 0, Some(&mut findings));
    let (times, nodes) = team(count, own, part)?;
    let times: Result<Vec<Duration>> = times.into_iter().collect();
    let time = times?.into_iter().max().unwrap_or_default();
    conclude(options, "is", nodes, time, shared.conclude(findings))
}

/// The part of a thread: the iterations, which are timed, and the sort.
#[inline(never)]
fn rank(
    (shared, barrier): (&Shared, &Barrier),
    me: u32,
    findings: Option<&mut Findings>,
) -> Result<Duration> {
    let wait = || barrier.wait().map(drop);
    wait()?;
    let began = Instant::now();
    marker::window::<REGION, _>(|| shared.iterate(me, findings, wait))?;
    let time = began.elapsed();
    shared.sort(me, wait)?;
    Ok(time)
}

/// Prints and reports how a benchmark has ended.
fn conclude(
    options: &Options,
    name: &str,
    nodes: usize,
    time: Duration,
    (verdict, checksum): (Verdict, u64),
) -> Result<()> {
    let (class, count) = (options.class, options.threads);
    println!("NPB {name} class {class}: {count} threads on {nodes} nodes");
    println!("{}", verdict.detail);
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    report::counter(&format!("{name}.timed-ns"), ns);
    let ok = report::check(&format!("{name}.verification"), verdict.ok, &verdict.detail);
    println!("Checksum of all results = {checksum:016x}");
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
