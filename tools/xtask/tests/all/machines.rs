//! Real emulators, with images that do nothing: that what the launcher starts really starts, and
//! that nothing of it is left.

use crate::common;

use std::path::PathBuf;

use common::{
    Background, Scratch, assert_nothing_left, last_number, send_signal, tool, wait_until_gone,
};
use rustix::process::Signal;

/// An ELF file with one segment of code at `address`, and a note that names the entry to PVH
/// loaders.
fn image(machine: u16, address: u64, code: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 2 * 56;
    let entry = address + 0x1000;
    let mut note = Vec::new();
    for word in [4u32, 4, 18] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"Xen\0");
    note.extend((entry as u32).to_le_bytes());

    let mut f = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    f.extend([2u16, machine].iter().flat_map(|h| h.to_le_bytes()));
    f.extend(1u32.to_le_bytes());
    f.extend([entry, 64, 0].iter().flat_map(|w| w.to_le_bytes()));
    f.extend(0u32.to_le_bytes());
    f.extend(
        [64u16, 56, 2, 64, 0, 0]
            .iter()
            .flat_map(|h| h.to_le_bytes()),
    );
    let mut header = |kind: u32, flags: u32, offset: u64, va: u64, len: u64, align: u64| {
        f.extend([kind, flags].iter().flat_map(|w| w.to_le_bytes()));
        let words = [offset, va, va, len, len, align];
        f.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    };
    header(4, 4, HEADERS, address + HEADERS, note.len() as u64, 4);
    header(1, 5, 0, address, 0x1000 + code.len() as u64, 0x1000);
    f.extend(&note);
    f.resize(0x1000, 0);
    f.extend(code);
    f
}

/// Starts a run whose machines loop for ever; returns it and the machines' process numbers.
fn looping(dir: &Scratch, nodes: &str) -> (Background, Vec<u32>) {
    let mut needs = dyad_launcher::setup::Requirements::ALL;
    needs.toolchain = false;
    dyad_launcher::setup::ensure(&needs, &mut |t| eprintln!("{t}")).unwrap();
    // `jmp .` after `out 0x3f8, 'k', '\n'`; `b .` after two stores to the UART.
    let x86 = [
        0x66, 0xba, 0xf8, 0x03, 0xb0, b'k', 0xee, 0xb0, b'\n', 0xee, 0xeb, 0xfe,
    ];
    let arm: Vec<u8> = [
        0xd2a1_2000u32, // mov x0, #0x0900_0000
        0x5280_0d61,    // mov w1, #'k'
        0xb900_0001,    // str w1, [x0]
        0x5280_0141,    // mov w1, #'\n'
        0xb900_0001,    // str w1, [x0]
        0x1400_0000,    // b .
    ]
    .iter()
    .flat_map(|w| w.to_le_bytes())
    .collect();
    let mut c = tool(dir);
    for (isa, bytes) in [
        ("X86_64", image(62, 0x10_0000, &x86)),
        ("AARCH64", image(183, 0x4020_0000, &arm)),
    ] {
        let path: PathBuf = dir.0.join(isa);
        std::fs::write(&path, bytes).unwrap();
        c.env(format!("DYAD_TEST_KERNEL_{isa}"), path);
    }
    c.args(["run", "--ktest", "none", "--verbose", "--nodes", nodes]);
    c.args([
        "--mem-local",
        "32MiB",
        "--mem-cxl",
        "32MiB",
        "--timeout",
        "60",
    ]);
    let count = nodes.split(',').count();
    let mut run = Background::start(c);
    let lines = run.wait_for("is process", count);
    run.wait_for("] k", count);
    (run, lines.iter().map(|l| last_number(l)).collect())
}

#[test]
fn real_machines_start_and_die_with_their_launcher() {
    let dir = Scratch::new("real");
    let (run, machines) = looping(&dir, "x86_64,aarch64");
    let launcher = run.child.id();
    run.signal(Signal::KILL);
    run.finish();
    machines.into_iter().for_each(wait_until_gone);
    assert_nothing_left(launcher);
}

#[test]
fn a_real_machine_that_is_killed_ends_the_run() {
    let dir = Scratch::new("realkill");
    let (run, machines) = looping(&dir, "aarch64,x86_64,aarch64");
    let launcher = run.child.id();
    let start = std::time::Instant::now();
    send_signal(machines[1], Signal::KILL);
    let (status, t) = run.finish();
    assert_eq!(status, Some(1), "{t}");
    assert!(start.elapsed().as_secs() < 5, "{t}");
    assert!(
        t.contains("node 1 (x86_64) died: it was killed by signal 9"),
        "{t}"
    );
    machines.into_iter().for_each(wait_until_gone);
    assert_nothing_left(launcher);
}
