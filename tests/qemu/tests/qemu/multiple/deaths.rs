//! Nodes of a group that die: the group ends with its first node, and outlives all others. All frames come back.

use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::boot::OnDeath;
use dyad_abi::record::name;
use dyad_abi::service::peer::{Kernels, Transport};
use dyad_launcher::config::RunConfig;
use dyad_tier::size;
use libtest_mimic::Failed;

use super::{PAIR, REVERSED, TWO_OF_ONE};
use crate::console;
use crate::kill::{self, Ended, Kill};

/// How long a program may go on that ends by a death.
const SOON: Duration = Duration::from_secs(2);
/// Nodes of the runs, in turn.
const NODES: [&[Isa]; 4] = [PAIR, TWO_OF_ONE, REVERSED, TWO_OF_ONE];
const TRANSPORTS: [Transport; 3] = [Transport::Ring, Transport::Tcp, Transport::Poll];

fn config(nodes: &[Isa], transport: Transport, app: &str, arguments: String) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        kernels: Kernels::Multiple,
        transport,
        on_death: OnDeath::Survive,
        work: console::app(app, arguments),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

/// A sort whose only thread goes to and fro, for some seconds.
const SORT: &str = "--bench is --class W --style";
/// How long after init has begun that sort runs for certain, and for how long at least from then on, in milliseconds.
const BUILT: Duration = Duration::from_millis(600);
const SORTS_MS: u64 = 1000;

/// A moment within so many milliseconds, by a number.
fn moment(n: usize, within: u64) -> Duration {
    let random = kill::mix(kill::seed() ^ (n as u64) << 20);
    Duration::from_micros(random % (within * 1000))
}

/// The system is as it is to be after a death: all frames are back, and each page was where it belongs.
fn is_whole(ended: &Ended) -> Result<(), Failed> {
    ended.killed()?;
    ended.lost_no_more_than(0)?;
    match ended.passed(name::POOLS) {
        true => Ok(()),
        false => ended.because("it was not looked where the pages are"),
    }
}

/// The program has ended soon after what was to end it, by the time from then on.
fn ends_soon(ended: &Ended, time: Option<Duration>) -> Result<(), Failed> {
    match time {
        Some(time) if time <= SOON => Ok(()),
        time => ended.because(format_args!("the program went on for {time:?}")),
    }
}

/// The origin of the pages dies: the program ends.
pub fn of_the_origin() -> Result<(), Failed> {
    for n in 0..size(2, 4, 50) as usize {
        let style = ["thread", "task"][n / 2 % 2];
        let arguments = format!("{SORT} {style}");
        let config = config(NODES[n % 4], TRANSPORTS[n % 3], "npb", arguments);
        let kill = Kill::after(0, BUILT + moment(n, SORTS_MS));
        let ended = kill::run(&config, kill, kill::says("started \"init\""));
        is_whole(&ended)?;
        ends_soon(&ended, ended.program_went_on)?;
        let why = ended.report.failure().unwrap_or_default();
        if !why.contains("lost with a node") {
            return ended.because(format_args!("the program was to end by the death: {why}"));
        }
    }
    Ok(())
}

/// Another node dies while threads on all nodes work: those of the other nodes go on to their end, and find no old page.
pub fn of_another_node() -> Result<(), Failed> {
    for n in 0..size(2, 4, 100) as usize {
        let nodes = NODES[n % 4];
        let config = config(
            nodes,
            TRANSPORTS[n % 3],
            "threads",
            "--scene outlive --seconds 1".into(),
        );
        let node = 1 + n / 2 % (nodes.len() - 1);
        let kill = Kill::after(node, moment(n, 800));
        let ended = kill::run(&config, kill, kill::says("a node may die now"));
        is_whole(&ended)?;
        let lost = ended.report.counters.get("threads.lost").copied();
        let why = ended.report.failure();
        // Threads that want a page that was there only are lost as well.
        if !ended.passed("threads.outlive") || why.is_some() || lost.is_none_or(|lost| lost < 2) {
            return ended.because(format_args!("{lost:?} threads are lost; failure: {why:?}"));
        }
    }
    Ok(())
}

/// Another node dies while threads on all nodes access the same pages at random, or while the only thread goes to and fro: no
/// thread finds a page that is old. Whatever the program needs of that node, it goes on or ends.
pub fn in_the_middle() -> Result<(), Failed> {
    for n in 0..size(2, 4, 100) as usize {
        let nodes = NODES[n % 4];
        let node = 1 + n / 2 % (nodes.len() - 1);
        let transport = TRANSPORTS[n % 3];
        let ended = match n % 2 {
            0 => {
                let arguments = "--scene oracle --players 2 --operations 100000";
                let config = config(nodes, transport, "threads", arguments.into());
                kill::run(&config, Kill::after(node, moment(n, 400)), kill::speaks)
            }
            _ => {
                let config = config(nodes, transport, "npb", format!("{SORT} thread"));
                let kill = Kill::after(node, BUILT + moment(n, SORTS_MS));
                kill::run(&config, kill, kill::says("started \"init\""))
            }
        };
        is_whole(&ended)?;
        let wrong = ended.report.checks.iter();
        let mut wrong = wrong.filter(|c| !c.ok && c.name.starts_with("threads."));
        if let Some(wrong) = wrong.next() {
            return ended.because(format_args!("{}: {}", wrong.name, wrong.detail));
        }
        // A program that does not need the node goes on to its usual end, and one that does goes on until a thread needs it.
        if ended.report.failure().is_some() {
            ends_soon(&ended, ended.program_outlived_thread)?;
        }
    }
    Ok(())
}
