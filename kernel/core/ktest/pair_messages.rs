//! Pair tests of inboxes, doorbells and waking.

use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, Error};
use dyad_ring::Message;

use super::{LATE_NS, Outcome, SLEEP_NS, Stop, TestCtx, Text, ensure, ktest, remark};
use dyad_machine::inbox::kind;

/// Messages each node sends in the storm.
const STORM: u64 = 100_000;

fn cpu0() -> CpuId {
    CpuId::first(1).next().unwrap_or_else(|| unreachable!())
}

fn test_message(cx: &TestCtx<'_>, number: u64) -> Message {
    let from = cx.node.id().index() as u64;
    Message([kind::TEST, from, number, 0, 0, 0, 0, 0])
}

fn reset(cx: &TestCtx<'_>) -> Result<(), Stop> {
    cx.meet()?;
    cx.machine.drain();
    for w in &cx.node.test_received {
        w.store(0, Ordering::Relaxed);
    }
    cx.node.test_disorder.store(0, Ordering::Relaxed);
    cx.meet()
}

/// Sleeps until something comes in, or the time is up.
fn sleep(cx: &TestCtx<'_>, limit_ns: u64) {
    if cx.machine.prepare_sleep() {
        let deadline = cx.machine.clock_ns() + limit_ns;
        cx.machine.set_timer(Some(deadline));
        cx.machine.wait();
        cx.machine.attentive();
    }
    cx.machine.drain();
}

/// Every node sends to the next one, as fast as it can, while it receives from the previous one,
/// asleep whenever it has nothing to do. No message may be lost, doubled or overtaken.
#[ktest(pair)]
fn doorbell_storm(cx: &TestCtx<'_>) -> Outcome {
    reset(cx)?;
    let m = cx.machine;
    let from = &cx.node.test_received[cx.previous().index()];
    let start = m.clock_ns();
    let doorbells = m.interrupts().0;
    let (mut sent, mut full, mut sleeps) = (0, 0u64, 0u64);
    while sent < STORM || from.load(Ordering::Acquire) < STORM {
        let mut progress = false;
        // Bursts, so that the receiver gets to sleep between them.
        for _ in 0..97 {
            if sent == STORM {
                break;
            }
            match m.send(cx.next(), cpu0(), &test_message(cx, sent)) {
                Ok(()) => {
                    sent += 1;
                    progress = true;
                }
                Err(Error::Full) => {
                    full += 1;
                    break;
                }
                Err(e) => return Err(e.into()),
            }
        }
        let before = from.load(Ordering::Relaxed);
        m.drain();
        progress |= from.load(Ordering::Relaxed) != before;
        if !progress {
            sleeps += 1;
            // A sender is not told that its ring has room again: look soon.
            sleep(cx, if sent == STORM { 50_000_000 } else { 300_000 });
        }
        ensure!(
            m.clock_ns().wrapping_sub(start) < 50_000_000_000,
            "stuck: sent {sent}, received {}",
            from.load(Ordering::Relaxed)
        );
    }
    let taken = m.interrupts().0 - doorbells;
    cx.meet()?;
    m.drain();
    let received = from.load(Ordering::Acquire);
    let disorder = cx.node.test_disorder.load(Ordering::Relaxed);
    ensure!(
        received == STORM,
        "{received} messages received instead of {STORM}"
    );
    ensure!(disorder == 0, "{disorder} messages out of order");
    remark!("{taken} doorbell interrupts, {sleeps} sleeps, ring full {full} times")
}

/// One message at a time, the receiver always asleep: every one needs its wake-up.
#[ktest(pair)]
fn sleepers_are_always_woken(cx: &TestCtx<'_>) -> Outcome {
    const TRIPS: u64 = 500;
    reset(cx)?;
    let m = cx.machine;
    let first = cx.node.id().index() == 0;
    let from = &cx.node.test_received[cx.previous().index()];
    let mut timeouts = 0;
    for i in 0..TRIPS {
        if first {
            m.send(cx.next(), cpu0(), &test_message(cx, i))?;
        }
        let start = m.clock_ns();
        while from.load(Ordering::Acquire) <= i {
            let before = m.clock_ns();
            sleep(cx, SLEEP_NS);
            // Woken by the timer although a message was there: a lost wake-up.
            let late = m.clock_ns().wrapping_sub(before) > LATE_NS;
            timeouts += (late && from.load(Ordering::Acquire) > i) as u64;
            ensure!(
                m.clock_ns().wrapping_sub(start) < 10_000_000_000,
                "message {i} never came"
            );
        }
        if !first {
            m.send(cx.next(), cpu0(), &test_message(cx, i))?;
        }
        // One time-out may be a slow host; a protocol that loses wake-ups has many.
        ensure!(
            timeouts <= TRIPS / 50,
            "{timeouts} of {TRIPS} wake-ups came from the timer, after trip {i}"
        );
    }
    cx.meet()?;
    remark!("{timeouts} of {TRIPS} waits ended by the timer")
}

/// A ring that no receiver empties takes its capacity and refuses more.
#[ktest(pair)]
fn full_rings_refuse_and_recover(cx: &TestCtx<'_>) -> Outcome {
    reset(cx)?;
    let m = cx.machine;
    let mut sent = 0;
    let refused = loop {
        match m.send(cx.next(), cpu0(), &test_message(cx, sent)) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
        if sent > 10_000 {
            return Err(Stop::Failed(Text::new(format_args!(
                "the ring never fills"
            ))));
        }
    };
    ensure!(refused == Error::Full, "refused with {refused:?}");
    ensure!(sent == dyad_ring::SLOTS, "{sent} messages fit");
    cx.meet()?;
    let from = &cx.node.test_received[cx.previous().index()];
    let all = cx.wait_for(5_000_000_000, || from.load(Ordering::Acquire) == sent);
    ensure!(
        all,
        "only {} of {sent} arrived",
        from.load(Ordering::Relaxed)
    );
    cx.meet()?;
    m.send(cx.next(), cpu0(), &test_message(cx, sent))?;
    let one = cx.wait_for(5_000_000_000, || from.load(Ordering::Acquire) == sent + 1);
    ensure!(one, "nothing arrives after the ring was full");
    ensure!(
        cx.node.test_disorder.load(Ordering::Relaxed) == 0,
        "out of order"
    );
    cx.meet()?;
    Ok(None)
}
