//! The rounds of one node.

use dyad_abi::cap::CapIndex;
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Thread, Until};

/// Steps of one piece of a round.
const STEPS: u64 = 64;
/// Most pieces of one round: beyond that something is wrong with the node, and the next period is
/// as good a time as any.
const PIECES: u32 = 100_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
const DEFAULT_ROUNDS: u64 = 30;
/// Interval in which a thread whose node has died checks whether the node has come back.
const HOMELESS_NS: u64 = 20_000_000;
/// The largest number of rounds per second: with more, the CPU would do nothing else.
const MAX_ROUNDS: u64 = 10_000;

dyad_services::entry!(start);

fn start(arg: u64) -> ! {
    let Some(node) = NodeId::new(arg % PAGE_SIZE) else {
        rt::give_up(format_args!("quiesced: no node {}", arg % PAGE_SIZE));
    };
    match rounds(node) {
        Ok(never) => match never {},
        Err(e) => rt::give_up(format_args!("quiesced of node {node} cannot go on: {e}")),
    }
}

enum Never {}

fn rounds(node: NodeId) -> Result<Never> {
    let hardware = rt::hardware(node);
    let me: Cap<Thread> = Cap::at(CapIndex(slot::FIRST_FREE.get() + node.index() as u32));
    let sleep: Cap<Receive> = Cap::at(slot::ENDPOINT);
    let per_second = match rt::info()?.rounds_per_second {
        0 => DEFAULT_ROUNDS,
        n => n.min(MAX_ROUNDS),
    };
    let period = NS_PER_SECOND / per_second;
    let mut next = hardware.now()?;
    loop {
        // Init starts it there, if it can. If the node dies while it sleeps or before it has begun, it is on another one.
        go_home(node, me, sleep)?;
        for _ in 0..PIECES {
            match hardware.flush_step(STEPS) {
                Ok(Some(_)) => break,
                // Others of this CPU first: some of them may have to acknowledge.
                Ok(None) | Err(Error::Again) => me.yield_now()?,
                // Not on its node any more.
                Err(Error::NotReady) => break,
                Err(e) => return Err(e),
            }
        }
        let now = hardware.now()?;
        next = (next + period).max(now);
        match sleep.receive(node.index() as u64, Until::Deadline(next)) {
            Ok(_) | Err(Error::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Goes to its node, as soon as that lives.
fn go_home(node: NodeId, me: Cap<Thread>, sleep: Cap<Receive>) -> Result<()> {
    let hardware = rt::hardware(node);
    while hardware.where_am_i()?.node != node {
        if me.migrate(node).is_ok() {
            continue;
        }
        let again = hardware.now()? + HOMELESS_NS;
        match sleep.receive(node.index() as u64, Until::Deadline(again)) {
            Ok(_) | Err(Error::TimedOut | Error::NodeDead) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
