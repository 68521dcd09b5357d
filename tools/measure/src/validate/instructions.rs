//! Instructions, against QEMU's own inline counters, loaded into the same machine. Both count from
//! the first instruction of the firmware to the last before the machine ends.
//!
//! There are two ways to count, and both have a peer: by translated block, which is what our
//! plugin does unless told otherwise, and by instruction. They differ by what is left of blocks in
//! which a fault or an interrupt occurs.

use std::path::PathBuf;

use super::{Context, Findings};
use crate::qemu_plugins;
use dyad_launcher::build;
use dyad_launcher::config::Sim;
use dyad_launcher::error::Error;
use dyad_launcher::machine::quoted;
use dyad_launcher::paths;
use dyad_launcher::sim::outcome::machine_report;

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let loads = match cx.quick {
        true => "sort:4,is:4",
        false => "matmul:40,sort:40,is:40,cg:1",
    };
    let args = format!("--load {loads} --home x86_64,aarch64");

    let theirs = format!("{},inline=true", quoted(&cx.plugins()?.bb));
    let report = cx.run(Sim::Count, "sim-loads", &args, |c| {
        c.test.plugins = vec![theirs];
    })?;
    for node in &report.nodes {
        let sim = node.sim.as_ref().ok_or_else(no_report)?;
        let ours = of_ours(sim)?;
        findings.exact(
            format!("by block, {}", node.isa),
            ours,
            of_qemu(node.plugins.as_deref())?,
        );
    }

    // Counting by instruction is not an option of runs, so our plugin goes in as another one.
    let plugin = build::plugin(&mut |_| {})?;
    let out = |node: &str| -> PathBuf {
        paths::target_dir().join(format!("validate-instructions-{node}.json"))
    };
    let ours = format!(
        "{},level=count,unit=instruction,node={{node}},out={}",
        quoted(&plugin),
        quoted(&out("{node}"))
    );
    let theirs = format!("{},inline=true", quoted(&cx.plugins()?.insn));
    let report = cx.run(Sim::Off, "sim-loads", &args, |c| {
        c.test.plugins = vec![ours, theirs];
    })?;
    for node in &report.nodes {
        let text = std::fs::read(out(&node.id.to_string())).map_err(|_| no_report())?;
        let sim: serde_json::Value = serde_json::from_slice(&text).map_err(|_| no_report())?;
        let ours = of_ours(&sim)?;
        findings.exact(
            format!("by instruction, {}", node.isa),
            ours,
            of_qemu(node.plugins.as_deref())?,
        );
    }
    Ok(())
}

/// Everything that was executed: QEMU's counters do not know when the kernel says that it ends.
fn of_ours(sim: &serde_json::Value) -> Result<u64, Error> {
    let report = machine_report(sim).map_err(Error::Run)?;
    let report = report.ok_or_else(no_report)?;
    let after: u64 = report.cpus.iter().map(|cpu| cpu.after_end).sum();
    Ok(report.instructions + after)
}

fn of_qemu(text: Option<&str>) -> Result<u64, Error> {
    qemu_plugins::instructions(text.unwrap_or_default()).map_err(Error::Run)
}

fn no_report() -> Error {
    Error::Run("our plugin has left no report".into())
}
