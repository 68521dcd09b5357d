//! Multicast.

use alloc::vec::Vec;

use dyad::msg::{Config, Error as MsgError, Level, Mode, Network};
use dyad::prelude::task::*;
use dyad::report;
use dyad::thread;

use crate::{Random, contents, in_ms, is_contents, nodes};

const MEMBERS: usize = 4;
/// The group, and the station that writes it.
const GROUP: usize = 0;
/// Says that a member is there.
const READY: u64 = u64::MAX;

/// A member that receives everything; gives how many were as they should be.
fn member(network: Network, own: usize, count: u64) -> Result<u64> {
    let mut end = network.endpoint(own, Mode::Adaptive(500))?;
    end.join(GROUP)?;
    end.send(0, Level::Normal, READY, &[], None)?;
    let mut good = 0;
    let mut bytes = Vec::new();
    for n in 0..count {
        let e = end.recv(&mut bytes, None)?;
        good += u64::from(e.group == Some(GROUP) && e.tag == n && is_contents(n, &bytes));
    }
    Ok(good)
}

/// Members on all nodes get what is written once.
pub fn group(count: u64) -> Result<()> {
    let nodes = nodes()?;
    let network = Network::new(Config::new(MEMBERS + 2))?;
    let mut end = network.endpoint(0, Mode::Adaptive(500))?;
    end.open_group(GROUP)?;
    let members: Vec<_> = (1..=MEMBERS)
        .map(|own| {
            let theirs = network.clone();
            let node = nodes[own % nodes.len()];
            let member = thread::spawn_on(node, move || member(theirs, own, count))?;
            network.reserve(own, member.thread())?;
            Ok(member)
        })
        .collect::<Result<_>>()?;
    let mut bytes = Vec::new();
    for _ in 0..MEMBERS {
        end.recv(&mut bytes, Some(in_ms(10_000)))?;
    }
    let mut random = Random(7);
    for n in 0..count {
        contents(
            n,
            random.below(4097) as usize >> random.below(6),
            &mut bytes,
        );
        end.multicast(GROUP, n, &bytes, Some(in_ms(10_000)))?;
    }
    let good: Vec<u64> = members
        .into_iter()
        .map(|m| m.join()?)
        .collect::<Result<_>>()?;
    let c = end.counters();
    report::check(
        "messages.group",
        c.multicasts == count
            && c.multicast_members == MEMBERS as u64 * count
            && c.put_out == 0
            && c.sent == 0
            && good.iter().all(|&g| g == count),
        format_args!(
            "{} writes, {} doorbells; {good:?} received by {MEMBERS} members",
            c.multicasts, c.doorbells
        ),
    );
    report::counter("messages.multicasts", c.multicasts);
    report::counter("messages.multicast-members", c.multicast_members);
    slow(&network, &mut end)
}

/// A member that does not read is put out when the writer's time has come, and not before; it is told.
fn slow(network: &Network, end: &mut dyad::msg::Endpoint) -> Result<()> {
    // The others have left the group when their threads ended.
    let mut slow = network.endpoint(MEMBERS + 1, Mode::Polling)?;
    slow.join(GROUP)?;
    let mut written = 0;
    while end.try_multicast(GROUP, written, &[1; 64]).is_ok() {
        written += 1;
    }
    let start = Instant::now();
    let members = end.multicast(GROUP, written, &[1; 64], Some(in_ms(5)))?;
    let waited = start.elapsed();
    let mut bytes = Vec::new();
    let told = slow.try_recv(&mut bytes);
    let out = end.counters().put_out;
    let expected = MsgError::PutOut { group: GROUP };
    report::check(
        "messages.slow-member",
        written > 0
            && members == 0
            && out == 1
            && waited >= Duration::from_millis(4)
            && told == Err(expected),
        format_args!("{out} put out after {waited:?}; told: {told:?}"),
    );
    // It comes again.
    slow.join(GROUP)?;
    end.multicast(GROUP, 0, b"again", Some(in_ms(5000)))?;
    let again = slow.try_recv(&mut bytes)?;
    report::check(
        "messages.member-again",
        again.is_some_and(|e| e.group == Some(GROUP)) && bytes == b"again",
        format_args!("{again:?}"),
    );
    slow.leave(GROUP)?;
    Ok(())
}
