//! Plain threads that go back and forth between two machines by jumps, of which one dies: whether the thread
//! is there then, here, or on its way, and whether its CPU lingers for it, the program ends soon and says
//! why.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::RunConfig;
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console;
use crate::kill::{self, Ended, Kill, says};
use crate::times;

/// How soon the run ends after the machine has died.
const PROMPT: Duration = Duration::from_secs(20);

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("jumping");
    vec![
        test(Tiers::FULL, "to_a_machine_that_dies_fails", || {
            dies(&[X86_64, Aarch64], false)?;
            dies(&[Aarch64, X86_64], false)
        }),
        // Paused before: the thread is on its way when it dies, and its CPU has lingered in vain.
        test(
            Tiers::FULL,
            "to_a_machine_that_is_paused_and_dies_fails",
            || {
                dies(&[X86_64, Aarch64], true)?;
                dies(&[Aarch64, X86_64], true)
            },
        ),
    ]
}

/// A thread goes back and forth all the time; the second machine dies meanwhile, once or a moment after it
/// has been stopped.
fn dies(nodes: &[Isa], paused: bool) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        work: console::app("bench", "--what threads --kinds empty --times 100000"),
        on_death: OnDeath::Survive,
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let kill = Kill {
        node: 1,
        after: Duration::from_millis(100),
        paused,
    };
    let ended = kill::run(&config, kill, says("From node"));
    let Ended { report, text, .. } = &ended;
    ended.within(PROMPT)?;
    // It has been there, or it was told so by the jump on its way.
    let why = report.failure().unwrap_or_default();
    let was_there = why.contains("its thread was lost with a node that has died");
    let was_told = why.contains("ended with code 1") && text.contains("error: the node is dead");
    match was_there || was_told {
        true => Ok(()),
        false => ended.because(format_args!(
            "on {nodes:?}, it does not say why it ends: {why}"
        )),
    }
}
