//! Questions and answers, on threads and in tasks; and nobody left to answer.

use alloc::vec::Vec;

use dyad::msg::{Config, Delay, Error as MsgError, Kind, Level, Mode, Network};
use dyad::prelude::task::*;
use dyad::report;
use dyad::thread;

use crate::{contents, far, in_ms};

/// The message that ends a server.
const END: u64 = u64::MAX;

/// Answers with the contents turned round, until it is told to end.
fn serve(network: Network, own: usize, mode: Mode) -> Result<u64> {
    let mut end = network.endpoint(own, mode)?;
    let mut bytes = Vec::new();
    let mut served = 0;
    loop {
        let e = end.recv(&mut bytes, None)?;
        match e.kind {
            Kind::Call => {
                bytes.reverse();
                end.reply(&e, e.tag + 1, &bytes, None)?;
                served += 1;
            }
            _ if e.tag == END => return Ok(served),
            _ => {}
        }
    }
}

/// Round trips in each mode.
pub fn calls(count: u64) -> Result<()> {
    let cases = [
        ("polling", Mode::Polling, Delay::NONE),
        ("doorbell", Mode::Doorbell, Delay::NONE),
        ("adaptive", Mode::Adaptive(2000), Delay::NONE),
        ("tcp", Mode::Adaptive(2000), Delay::TCP),
    ];
    for (name, mode, delay) in cases {
        let network = Network::new(Config {
            delay,
            ..Config::new(2)
        })?;
        let serving = network.clone();
        let server = thread::spawn_on(far()?, move || serve(serving, 1, mode))?;
        network.reserve(1, server.thread())?;
        let mut end = network.endpoint(0, mode)?;
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        let mut good = 0;
        let (mut total, mut least) = (0, u64::MAX);
        for n in 0..count {
            contents(n, n as usize % 300, &mut bytes);
            let start = Instant::now();
            let answer = end.call(1, Level::Normal, n, &bytes, &mut reply, Some(in_ms(10_000)))?;
            let took = start.elapsed().as_nanos() as u64;
            total += took;
            least = least.min(took);
            reply.reverse();
            good += u64::from(answer.tag == n + 1 && reply == bytes);
        }
        end.send(1, Level::Normal, END, &[], Some(in_ms(10_000)))?;
        let served = server.join()??;
        let floor = 2 * delay.of(0);
        report::check(
            &format!("messages.calls-{name}"),
            good == count && served == count && least >= floor,
            format_args!("{good} of {count} answered; {least} ns at least, {floor} expected"),
        );
        let doorbells = end.counters().doorbells;
        println!(
            "calls, {name}: {} ns on average, {least} ns at least, {doorbells} doorbells to the server",
            total / count
        );
    }
    Ok(())
}

/// Two tasks of the first thread ask; a third one counts its turns meanwhile.
pub async fn tasks(count: u64) -> Result<()> {
    let network = Network::new(Config::new(3))?;
    let serving = network.clone();
    let server = thread::spawn_on(far()?, move || serve(serving, 2, Mode::Doorbell))?;
    network.reserve(2, server.thread())?;
    let ask = |own: usize| {
        let network = network.clone();
        async move {
            let mut end = network.endpoint(own, Mode::Doorbell)?;
            let (mut bytes, mut reply) = (Vec::new(), Vec::new());
            let mut good = 0;
            for n in 0..count {
                contents(n, n as usize % 300, &mut bytes);
                let deadline = Some(in_ms(10_000));
                let answer = end
                    .call_async(2, Level::Normal, n, &bytes, &mut reply, deadline)
                    .await?;
                reply.reverse();
                good += u64::from(answer.tag == n + 1 && reply == bytes);
            }
            end.close();
            Ok::<u64, Error>(good)
        }
    };
    let (first, second) = (dyad::task::spawn(ask(0)), dyad::task::spawn(ask(1)));
    let mut turns = 0u64;
    while !(first.is_finished() && second.is_finished()) {
        turns += 1;
        dyad::task::sleep(Duration::from_micros(500)).await;
    }
    let good = first.await? + second.await?;
    let mut end = network.endpoint(0, Mode::Doorbell)?;
    // A time that comes is one for tasks, too.
    let mut bytes = Vec::new();
    let nothing = end.recv_async(&mut bytes, Some(in_ms(1))).await;
    end.send_async(2, Level::Bulk, END, &[], Some(in_ms(10_000)))
        .await?;
    let served = server.join()??;
    report::check(
        "messages.tasks",
        good == 2 * count && served == 2 * count && turns > 0 && nothing == Err(MsgError::TimedOut),
        format_args!("{good} answers, {turns} turns of another task; then {nothing:?}"),
    );
    Ok(())
}

/// Node 1 dies while the thread there answers.
pub fn lost() -> Result<()> {
    let there = NodeId::new(1).ok_or(Error::msg("there is no node 1"))?;
    let network = Network::new(Config::new(2))?;
    let serving = network.clone();
    let server = thread::spawn_on(there, move || serve(serving, 1, Mode::Adaptive(500)))?;
    network.reserve(1, server.thread())?;
    // It never comes to open its station.
    let late = Network::new(Config::new(2))?;
    let idle = thread::spawn_on(there, || -> () {
        loop {
            thread::yield_now();
        }
    })?;
    late.reserve(1, idle.thread())?;
    let mut end = network.endpoint(0, Mode::Adaptive(500))?;
    end.open_group(0)?;
    let mut reply = Vec::new();
    let mut answered = 0u64;
    let dead = MsgError::NodeDead { station: 1 };
    let called = loop {
        match end.call(1, Level::Normal, 0, b"are you there?", &mut reply, None) {
            Ok(_) if answered == 0 => println!("messages: node 1 may die now"),
            Ok(_) => {}
            Err(e) => break e,
        }
        answered += 1;
    };
    report::check(
        "messages.lost-call",
        called == dead && answered > 0,
        format_args!("{called:?} after {answered} answers"),
    );
    // There is room, and nobody who will ever read: the first message is refused, without a wait.
    let waits = end.counters().full_waits;
    let sent = end.send(1, Level::Bulk, 0, &[0; 4096], None);
    let asleep = end.is_asleep(1).map(drop);
    report::check(
        "messages.lost-send",
        (sent, asleep) == (Err(dead), Err(dead)) && end.counters().full_waits == waits,
        format_args!("{sent:?}, {asleep:?}"),
    );
    let written = end.multicast(0, 0, &[], Some(in_ms(100)));
    report::check(
        "messages.lost-group",
        written == Ok(0),
        format_args!("{written:?}"),
    );
    let mut waits = late.endpoint(0, Mode::Adaptive(500))?;
    let called = waits
        .call(1, Level::Normal, 0, &[], &mut reply, None)
        .map(drop);
    let received = waits.recv(&mut reply, None).map(drop);
    report::check(
        "messages.lost-before-open",
        (called, received) == (Err(dead), Err(dead)),
        format_args!("{called:?}, {received:?}"),
    );
    // Whoever is left goes on.
    let other = Network::new(Config::new(2))?;
    let serving = other.clone();
    let server = thread::spawn(move || serve(serving, 1, Mode::Doorbell))?;
    let mut end = other.endpoint(0, Mode::Doorbell)?;
    end.call(
        1,
        Level::Urgent,
        0,
        b"you?",
        &mut reply,
        Some(in_ms(10_000)),
    )?;
    end.send(1, Level::Normal, END, &[], None)?;
    let served = server.join()??;
    report::check("messages.lost-others", served == 1, "");
    Ok(())
}
