//! Starting threads, and sharing memory between them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::sync::Barrier;
use dyad::{report, sys, thread};

use crate::{nodes, on_all};

/// What a thread has seen: its places and its identity.
struct Seen {
    node: NodeId,
    isa: Isa,
    id: u32,
    number: usize,
    text: String,
}

/// Threads on every node, which say where they are.
pub fn spawn() -> Result<()> {
    let nodes = nodes()?;
    let me = thread::current();
    let gate: &Barrier = Box::leak(Box::new(Barrier::new(2 * nodes.len() as u32)));
    let seen = on_all(2, move |n| {
        // All live at the same time, so that their ids must differ.
        gate.wait().map(|_| Seen {
            node: dyad::node(),
            isa: dyad::isa(),
            id: thread::current().id(),
            number: thread::current().number(),
            text: format!("thread {n} on {}", dyad::isa()),
        })
    })?;
    let mut seen = seen.into_iter().collect::<Result<Vec<_>, _>>()?;
    let system = dyad::system()?;
    let mut there = true;
    for (n, s) in seen.iter().enumerate() {
        let node = nodes[n % nodes.len()];
        let isa = system.node(node).map(|n| n.isa);
        there &= s.node == node && Some(s.isa) == isa;
        there &= s.text == format!("thread {n} on {}", s.isa);
    }
    report::check(
        "threads.spawn",
        there,
        format_args!("{} threads", seen.len()),
    );
    // Ids are numbers of the system, and the same wherever they are asked for.
    let base = me.id() - me.number() as u32;
    let known = seen.iter().all(|s| s.id == base + s.number as u32);
    seen.sort_by_key(|s| s.id);
    let distinct =
        seen.windows(2).all(|w| w[0].id != w[1].id) && seen.iter().all(|s| s.id != me.id());
    report::check(
        "threads.ids",
        known && distinct,
        format_args!("from {base}"),
    );

    // Wrong places are refused, and cost no thread.
    let nowhere = NodeId::new(nodes.len() as u64);
    if let Some(nowhere) = nowhere {
        let refused = thread::spawn_on(nowhere, || ())
            .err()
            .and_then(|e| e.system());
        report::check(
            "threads.nowhere",
            refused == Some(sys::Error::NoSuchNode),
            format_args!("{refused:?}"),
        );
    }
    let cpu = dyad::CpuId::new(7).ok_or(sys::Error::Corrupt)?;
    if system.node(nodes[0]).is_some_and(|n| n.cpus < 8) {
        let refused = thread::Builder::new().cpu(cpu).spawn(|| ()).err();
        report::check(
            "threads.no-cpu",
            refused.and_then(|e| e.system()) == Some(sys::Error::BadArgument),
            "",
        );
    }
    Ok(())
}

/// Allocates blocks of many sizes, filled with a number of its own; every other one is freed at once.
fn allocate(n: usize) -> Vec<Vec<u64>> {
    let mut kept = Vec::new();
    let mut random = n as u64 * 77 + 1;
    for round in 0..400u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let len = 1 + (random >> 33) as usize % 200;
        let block = vec![((n as u64) << 32) | round; len];
        if round % 2 == 0 {
            kept.push(block);
        } else {
            core::hint::black_box(&block);
        }
    }
    kept
}

/// One heap for all nodes: what a thread allocates there is whole here, and freed here.
pub fn heap() -> Result<()> {
    let before = dyad::heap_usage().map_or(0, |u| u.allocated);
    for _ in 0..3 {
        let all = on_all(4, allocate)?;
        let mut whole = true;
        for (n, blocks) in all.iter().enumerate() {
            for (at, block) in blocks.iter().enumerate() {
                let expected = ((n as u64) << 32) | (2 * at as u64);
                whole &= block.iter().all(|&w| w == expected);
            }
        }
        report::check("threads.heap", whole, format_args!("{} threads", all.len()));
    }
    let after = dyad::heap_usage().map_or(0, |u| u.allocated);
    report::check(
        "threads.heap-returned",
        after <= before + 4096,
        format_args!("{before} bytes before, {after} after"),
    );
    Ok(())
}

fn tree(depth: u32, sum: &AtomicU64, nodes: &[NodeId]) -> Result<()> {
    sum.fetch_add(1, Ordering::Relaxed);
    if depth == 0 {
        return Ok(());
    }
    let before = sum.load(Ordering::Relaxed);
    thread::scope(|s| -> Result<()> {
        let mut below = Vec::new();
        for &node in nodes.iter().take(2) {
            below.push(s.spawn_on(node, move || tree(depth - 1, sum, nodes))?);
        }
        for thread in below {
            thread.join()??;
        }
        Ok(())
    })?;
    let more = sum.load(Ordering::Relaxed) > before;
    more.then_some(())
        .ok_or_else(|| Error::msg("nothing was added"))
}

/// Threads that borrow from the stacks of others.
pub fn scope() -> Result<()> {
    let nodes = nodes()?;
    let mut words = vec![0u64; 4096];
    let parts = 8;
    thread::scope(|s| -> Result<()> {
        for (n, part) in words.chunks_mut(4096 / parts).enumerate() {
            s.spawn_on(nodes[n % nodes.len()], move || {
                for (at, word) in part.iter_mut().enumerate() {
                    *word = (n * 4096 / parts + at) as u64;
                }
            })?;
        }
        Ok(())
    })?;
    let whole = words.iter().enumerate().all(|(n, &w)| w == n as u64);
    report::check("threads.scope", whole, format_args!("{parts} threads"));
    let sum = AtomicU64::new(0);
    // 1 + 2 + 4 + 8 + 16: nested four deep, 30 threads beside this one.
    let depth = if nodes.len() > 1 { 4 } else { 0 };
    tree(depth, &sum, &nodes)?;
    let expected = (1 << (depth + 1)) - 1;
    let sum = sum.into_inner();
    report::check(
        "threads.scope-nested",
        sum == expected,
        format_args!("{sum} of {expected}"),
    );
    Ok(())
}

/// As many threads as there can be; the next one is refused, and all can be started again.
pub fn many() -> Result<()> {
    let nodes = nodes()?;
    for round in 0..2 {
        let gate = Arc::new(dyad::sync::Barrier::new(thread::MAX as u32));
        let threads: Vec<_> = (1..thread::MAX)
            .map(|n| {
                let gate = gate.clone();
                thread::spawn_on(nodes[n % nodes.len()], move || {
                    gate.wait().map(|_| thread::current().number())
                })
            })
            .collect::<Result<_>>()?;
        let refused = thread::spawn(|| ()).err().and_then(|e| e.system());
        report::check(
            "threads.full",
            refused == Some(sys::Error::Full),
            format_args!("{refused:?}"),
        );
        gate.wait()?;
        let mut numbers = Vec::new();
        for thread in threads {
            numbers.push(thread.join()??);
        }
        numbers.sort_unstable();
        let all = numbers.iter().copied().eq(1..thread::MAX);
        report::check("threads.many", all, format_args!("round {round}"));
    }
    Ok(())
}
