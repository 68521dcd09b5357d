//! Tasks on several nodes that wait for each other and for time.
//!
//! | check | what happens |
//! |---|---|
//! | `tasks.channel` | tasks at home on all nodes send through one channel that is mostly full; each one's values come in order, and the channel ends with the last sender |
//! | `tasks.closed` | a sender that waits for room learns that the receiver has gone |
//! | `tasks.select` | of two tasks on different nodes the first one that is done counts |
//! | `tasks.timeout` | what takes too long is given up after the time, not before it |
//! | `tasks.given-up` | a migration that is given up is not made later |
//! | `tasks.requested` | the thread that runs the tasks goes where it is asked to go, with all of them |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::task::*;
use dyad::report;
use dyad::task::{Either, Elapsed, SendError, channel, select, timeout};

/// Values of each sender.
const EACH: u64 = 100;

/// The live nodes.
fn nodes() -> Result<Vec<NodeId>> {
    Ok(system()?.nodes().filter(|n| n.live).map(|n| n.id).collect())
}

async fn channels() -> Result<()> {
    let nodes = nodes()?;
    let (send, mut receive) = channel(3);
    for (n, &node) in nodes.iter().enumerate() {
        let send = send.clone();
        drop(spawn(async move {
            if migrate_to(node).await.is_err() {
                return;
            }
            for i in 0..EACH {
                if send.send((n, i)).await.is_err() {
                    return;
                }
            }
        }));
    }
    drop(send);
    let mut next = vec![0; nodes.len()];
    let mut in_order = true;
    while let Some((from, i)) = receive.recv().await {
        in_order &= next[from] == i;
        next[from] += 1;
    }
    report::check(
        "tasks.channel",
        in_order && next.iter().all(|n| *n == EACH),
        format_args!("{next:?}"),
    );

    let (send, receive) = channel(1);
    let sent = send.send(1).await;
    let waits = spawn(async move { send.send(2).await });
    yield_now().await;
    drop(receive);
    let told = waits.await;
    report::check(
        "tasks.closed",
        sent == Ok(()) && told == Err(SendError(2)),
        format_args!("{told:?}"),
    );
    Ok(())
}

/// Sleeps on a node, and says where.
async fn nap(on: NodeId, time: Duration) -> Result<NodeId> {
    migrate_to(on).await?;
    sleep(time).await;
    Ok(node())
}

async fn times() -> Result<()> {
    let nodes = nodes()?;
    let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
    let (short, long) = (Duration::from_millis(3), Duration::from_secs(60));
    let start = Instant::now();
    let one = spawn(nap(first, long));
    let other = spawn(nap(last, short));
    let woken = select(one, other).await;
    report::check(
        "tasks.select",
        matches!(&woken, Either::Right(Ok(on)) if *on == last) && start.elapsed() < long,
        format_args!("{:?}", start.elapsed()),
    );

    let start = Instant::now();
    let given_up = timeout(short, sleep(long)).await;
    let took = start.elapsed();
    let in_time = timeout(long, async { 7 }).await;
    report::check(
        "tasks.timeout",
        given_up == Err(Elapsed) && took >= short && took < long && in_time == Ok(7),
        format_args!("after {took:?}"),
    );

    let here = node();
    let moved = timeout(Duration::ZERO, async {
        yield_now().await;
        migrate_to(last).await
    });
    let moved = moved.await;
    yield_now().await;
    report::check(
        "tasks.given-up",
        moved == Err(Elapsed) && node() == here,
        format_args!("on node {}", node()),
    );
    Ok(())
}

async fn requested() -> Result<()> {
    let nodes = nodes()?;
    let (home, last) = (node(), nodes[nodes.len() - 1]);
    let other = spawn(async {
        for _ in 0..3 {
            yield_now().await;
        }
        node()
    });
    let before = request_migration(last)?;
    yield_now().await;
    let (here, there) = (node(), other.await);
    report::check(
        "tasks.requested",
        before.is_none() && here == last && there == last,
        format_args!("nodes {here} and {there}"),
    );
    Ok(migrate_to(home).await?)
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&[])?;
    channels().await?;
    times().await?;
    requested().await
}
