//! Plain threads that go back and forth between two machines by jumps, of which one dies: whether the thread
//! is there then, here, or on its way, and whether its CPU lingers for it, the program ends soon and says
//! why.

use std::process::Command;
use std::time::{Duration, Instant};

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use libtest_mimic::{Failed, Trial};
use xtask::config::{RunConfig, Work};
use xtask::console::Line;
use xtask::launch::{self, Event};

use crate::console::Kept;
use crate::times;

/// How soon the run ends after the machine has died.
const PROMPT: Duration = Duration::from_secs(20);

/// All of them.
pub fn trials() -> Vec<Trial> {
    let test = |name: &str, f: fn() -> Result<(), Failed>| {
        times::test(format!("jumping::{name}"), f).with_kind("system")
    };
    vec![
        test("to_a_machine_that_dies_fails", || {
            dies(&[X86_64, Aarch64], false)?;
            dies(&[Aarch64, X86_64], false)
        }),
        // Paused before: the thread is on its way when it dies, and its CPU has lingered in vain.
        test("to_a_machine_that_is_paused_and_dies_fails", || {
            dies(&[X86_64, Aarch64], true)?;
            dies(&[Aarch64, X86_64], true)
        }),
    ]
}

/// A thread goes back and forth all the time; the second machine dies meanwhile, once or a moment after it
/// has been stopped.
fn dies(nodes: &[Isa], paused: bool) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        work: Work::App {
            app: "bench-threads".into(),
            args: "--kinds empty --times 100000".into(),
        },
        on_death: OnDeath::Survive,
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let (mut pid, mut killed) = (None, None);
    let mut kept = Kept::new(|e: &Event<'_>| match e {
        Event::Started {
            node: 1, pid: p, ..
        } => pid = Some(*p),
        Event::Line {
            line: Line::Log { text, .. },
            ..
        } if text.contains("From node") => {
            let Some(pid) = pid else { return };
            let send = |signal: &str| {
                let _ = Command::new("kill")
                    .args([signal, &pid.to_string()])
                    .status();
            };
            std::thread::sleep(Duration::from_millis(100));
            if paused {
                send("-STOP");
                std::thread::sleep(Duration::from_millis(200));
            }
            send("-9");
            killed = Some(Instant::now());
        }
        _ => {}
    });
    let report = launch::run(&config, &mut kept);
    let text = kept.text(&report);
    let went_on = killed.map(|at: Instant| at.elapsed());
    let because = |why: String| Err(format!("{nodes:?}: {why}\n\nconsole:\n{text}").into());
    let Some(went_on) = went_on else {
        return because("nobody was killed".into());
    };
    if went_on > PROMPT {
        return because(format!("the run went on for {went_on:?}"));
    }
    // It has been there, or it was told so by the jump on its way.
    let why = report.failure().unwrap_or_default();
    let was_there = why.contains("its thread was lost with a node that has died");
    let was_told = why.contains("ended with code 1") && text.contains("error: the node is dead");
    match was_there || was_told {
        true => Ok(()),
        false => because(format!("it does not say why it ends: {why}")),
    }
}
