//! One way: streams, doorbells, priorities.

use alloc::vec::Vec;

use dyad::msg::{Config, Counters, Endpoint, Level, MAX_MESSAGE_BYTES, Mode, Network, STARVATION};
use dyad::prelude::task::*;
use dyad::report;
use dyad::thread;

use crate::{Random, contents, far, in_ms, is_contents};

/// Sends messages of random sizes: few are large.
fn send(mut end: Endpoint, to: usize, count: u64) -> Result<Counters> {
    let mut random = Random(to as u64);
    let mut numbers = [0; 3];
    let mut bytes = Vec::new();
    for _ in 0..count {
        let level = random.below(3) as usize;
        let len = random.below(4097) as usize >> random.below(8);
        contents(numbers[level] * 3 + level as u64, len, &mut bytes);
        end.send(to, Level::ALL[level], numbers[level], &bytes, None)?;
        numbers[level] += 1;
    }
    Ok(end.counters())
}

/// What has arrived.
struct Arrived {
    counters: Counters,
    /// Messages out of their order.
    disorder: u64,
    /// Messages with wrong contents.
    wrong: u64,
}

fn receive(mut end: Endpoint, count: u64) -> Result<Arrived> {
    let mut next = [0; 3];
    let (mut disorder, mut wrong) = (0, 0);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let e = end.recv(&mut bytes, None)?;
        let level = e.level as usize - 1;
        disorder += u64::from(e.tag != next[level]);
        next[level] = e.tag + 1;
        wrong += u64::from(!is_contents(e.tag * 3 + level as u64, &bytes));
    }
    Ok(Arrived {
        counters: end.counters(),
        disorder,
        wrong,
    })
}

/// A stream to the far node, then one from there.
pub fn stream(count: u64) -> Result<()> {
    let here = dyad::node();
    let there = far()?;
    let mode = Mode::Adaptive(2000);
    for (name, from, to) in [("there", here, there), ("back", there, here)] {
        let network = Network::new(Config::new(2))?;
        let receiving = network.clone();
        let sending = network.clone();
        let receiver = thread::spawn_on(to, move || receive(receiving.endpoint(1, mode)?, count))?;
        network.reserve(1, receiver.thread())?;
        let sender = thread::spawn_on(from, move || send(sending.endpoint(0, mode)?, 1, count))?;
        network.reserve(0, sender.thread())?;
        let sent = sender.join()??;
        let arrived = receiver.join()??;
        let got = arrived.counters;
        report::check(
            &format!("messages.stream-{name}"),
            arrived.disorder == 0
                && arrived.wrong == 0
                && (got.received, got.received_bytes) == (sent.sent, sent.sent_bytes)
                && sent.sent == count,
            format_args!(
                "{} messages, {} bytes from node {from} to node {to}; {} out of order, {} wrong",
                got.received, got.received_bytes, arrived.disorder, arrived.wrong
            ),
        );
        // Both count: who sends rings when the receiver sleeps, who receives when there is room.
        let doorbells = sent.doorbells + got.doorbells;
        report::check(
            &format!("messages.busy-{name}"),
            doorbells < count,
            format_args!(
                "{doorbells} doorbells for {count} messages, {} waits for room",
                sent.full_waits
            ),
        );
        report::counter("messages.sent", sent.sent);
        report::counter("messages.doorbells", doorbells);
    }
    Ok(())
}

/// Messages that are larger than their ring go in parts.
pub fn large() -> Result<()> {
    const COUNT: u64 = 50;
    let network = Network::new(Config::new(2))?;
    let receiving = network.clone();
    let receiver = thread::spawn_on(far()?, move || -> Result<(u64, u64)> {
        let mut end = receiving.endpoint(1, Mode::Adaptive(2000))?;
        let (mut good, mut bytes, mut most) = (0, Vec::new(), 0);
        for n in 0..COUNT {
            let e = end.recv(&mut bytes, None)?;
            good += u64::from(e.tag == n && is_contents(n, &bytes));
            most = most.max(bytes.len() as u64);
        }
        Ok((good, most))
    })?;
    network.reserve(1, receiver.thread())?;
    let mut end = network.endpoint(0, Mode::Adaptive(2000))?;
    let mut random = Random(3);
    let mut bytes = Vec::new();
    for n in 0..COUNT {
        let len = match n {
            0 => MAX_MESSAGE_BYTES,
            _ => random.below(MAX_MESSAGE_BYTES as u64 + 1) as usize,
        };
        contents(n, len, &mut bytes);
        end.send(1, Level::Normal, n, &bytes, None)?;
    }
    let (good, most) = receiver.join()??;
    report::check(
        "messages.large",
        good == COUNT && most == MAX_MESSAGE_BYTES as u64,
        format_args!("{good} of {COUNT} messages of up to {most} bytes, through rings of 16 KiB"),
    );
    Ok(())
}

/// Each message finds a receiver that sleeps.
pub fn idle(count: u64) -> Result<()> {
    let network = Network::new(Config::new(2))?;
    let receiving = network.clone();
    let receiver = thread::spawn_on(far()?, move || {
        receive(receiving.endpoint(1, Mode::Doorbell)?, count)
    })?;
    network.reserve(1, receiver.thread())?;
    let mut end = network.endpoint(0, Mode::Polling)?;
    let mut bytes = Vec::new();
    for n in 0..count {
        let patience = in_ms(5000);
        while !end.is_asleep(1)? && Instant::now().as_nanos() < patience {
            dyad::sys::raw::relax();
        }
        // It has said that it is going to sleep: let it.
        thread::sleep(Duration::from_micros(200));
        contents(n * 3 + 1, n as usize % 100, &mut bytes);
        end.send(1, Level::Normal, n, &bytes, Some(in_ms(5000)))?;
    }
    let arrived = receiver.join()??;
    let (c, there) = (end.counters(), arrived.counters);
    // A wake-up that comes late, as it can over kernels that only exchange messages, wakes the receiver once more and in vain. A
    // message that comes just then finds it awake.
    let in_vain = (there.sleeps + there.called_off).saturating_sub(count);
    let rung = c.doorbells..=c.doorbells + in_vain;
    report::check(
        "messages.idle",
        rung.contains(&count) && arrived.disorder == 0 && arrived.wrong == 0,
        format_args!(
            "{} doorbells for {count} messages, woken in vain {in_vain} times",
            c.doorbells
        ),
    );
    report::counter("messages.idle", count);
    report::counter("messages.idle-doorbells", c.doorbells);
    Ok(())
}

/// The receiver finds a full ring of bulk messages, and urgent ones that were sent later.
pub fn priority() -> Result<()> {
    const URGENT: u64 = 100;
    let network = Network::new(Config::new(2))?;
    let sending = network.clone();
    let sent = thread::spawn_on(far()?, move || -> Result<u64> {
        let mut end = sending.endpoint(1, Mode::Polling)?;
        let mut bulk = 0;
        while end.try_send(0, Level::Bulk, bulk, &[]).is_ok() {
            bulk += 1;
        }
        for n in 0..URGENT {
            end.try_send(0, Level::Urgent, n, &[])?;
        }
        Ok(bulk)
    })?;
    let bulk = sent.join()??;
    let mut end = network.endpoint(0, Mode::Polling)?;
    let mut bytes = Vec::new();
    let mut levels = Vec::new();
    while let Some(e) = end.try_recv(&mut bytes)? {
        levels.push(e.level);
    }
    let first_bulk = levels.iter().position(|&l| l == Level::Bulk);
    let last_urgent = levels.iter().rposition(|&l| l == Level::Urgent);
    let most = URGENT as usize + URGENT.div_ceil(STARVATION.into()) as usize;
    report::check(
        "messages.priority",
        levels.len() as u64 == bulk + URGENT
            && first_bulk == Some(STARVATION as usize)
            && last_urgent.is_some_and(|n| n < most),
        format_args!(
            "{URGENT} urgent ones after {bulk} bulk ones; first bulk one received as number \
             {first_bulk:?}, last urgent one as {last_urgent:?}"
        ),
    );
    Ok(())
}
