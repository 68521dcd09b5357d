// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin in real emulators: guests of a few instructions whose number is known.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use dyad_abi::marker::{Marker, MarkerOp, PREFIX, WindowId};
use dyad_sim_model::report::{MachineReport, SCHEMA, Spread, WindowReport};

const LOOPS: u64 = 1000;

/// The plugin, built as every simulated run builds it.
fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| dyad_launcher::build::plugin(&mut |_| {}).expect("the plugin builds"))
}

/// A directory of this test that is removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("dyad-sim-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        Scratch(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A firmware image that counts down from `LOOPS` and leaves through the debug-exit device.
fn x86_firmware() -> Vec<u8> {
    let mut image = vec![0; 64 << 10];
    let [low, high] = (LOOPS as u16).to_le_bytes();
    let mut body = vec![0xb9, low, high]; // mov cx, LOOPS
    body.extend([0xe2, 0xfe]); // loop to itself
    body.extend([0xb0, 0x10, 0xe6, 0xf4]); // mov al, 0x10; out 0xf4, al
    // The device asks QEMU to end; the CPU goes on until then, so it is given nothing to do.
    body.push(0xf4); // hlt
    image[0xe000..0xe000 + body.len()].copy_from_slice(&body);
    // Reset vector: jmp 0xf000:0xe000.
    image[0xfff0..0xfff5].copy_from_slice(&[0xea, 0x00, 0xe0, 0x00, 0xf0]);
    image
}
/// Without the last one: whether the CPU still gets to it is up to the host.
const X86_INSTRUCTIONS: u64 = 1 + 1 + LOOPS + 2;

/// A program for AArch64 that ends by semihosting.
fn aarch64_program() -> Vec<u8> {
    let words: [u32; 9] = [
        0xd280_0000 | (LOOPS as u32) << 5, // mov x0, #LOOPS
        0xf100_0400,                       // subs x0, x0, #1
        0x54ff_ffe1,                       // b.ne to the subs
        0xd280_0300,                       // mov x0, #0x18 (exit)
        0x1000_0041,                       // adr x1, two instructions on
        0xd45e_0000,                       // hlt #0xf000
        0x0002_0026,                       // reason: application exit
        0,
        0x20, // exit status
    ];
    words
        .iter()
        .take(6)
        .chain([&words[6], &0, &words[8], &0])
        .flat_map(|w| w.to_le_bytes())
        .collect()
}
const AARCH64_INSTRUCTIONS: u64 = 1 + 2 * LOOPS + 3;

fn run(emulator: &str, machine: &[&str], options: &str) -> Option<Output> {
    let result = Command::new(emulator)
        .args(machine)
        .args(["-accel", "tcg,thread=multi", "-smp", "1,maxcpus=2"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .arg("-plugin")
        .arg(format!("{},{options}", plugin().display()))
        .stdin(Stdio::null())
        .output();
    match result {
        Ok(output) => Some(output),
        Err(e) => {
            eprintln!("skipped: {emulator} cannot be started: {e}");
            None
        }
    }
}

fn run_x86(scratch: &Scratch, options: &str) -> Option<Output> {
    run_x86_image(scratch, &x86_firmware(), options)
}

fn run_x86_image(scratch: &Scratch, firmware: &[u8], options: &str) -> Option<Output> {
    let image = scratch.file("firmware");
    std::fs::write(&image, firmware).expect("the firmware can be written");
    let image = path(&image);
    let exit = "isa-debug-exit,iobase=0xf4,iosize=4";
    let machine = ["-machine", "q35", "-bios", image, "-device", exit];
    run("qemu-system-x86_64", &machine, options)
}

fn run_aarch64(scratch: &Scratch, code: &[u8], options: &str) -> Option<Output> {
    let program = scratch.file("program");
    std::fs::write(&program, code).expect("the program can be written");
    let loader = format!(
        "loader,file={},addr=0x40200000,cpu-num=0",
        program.display()
    );
    let mut machine = vec!["-machine", "virt", "-cpu", "max", "-device", &loader];
    machine.extend(["-semihosting-config", "enable=on,target=native"]);
    run("qemu-system-aarch64", &machine, options)
}

fn report(json: &Path) -> MachineReport {
    let text = std::fs::read_to_string(json).expect("there is a report");
    serde_json::from_str(&text).expect("the report has its form")
}

fn path(p: &Path) -> &str {
    p.to_str().expect("temporary paths are text")
}

#[test]
fn counts_exactly_on_x86_64() {
    for unit in ["instruction", "block"] {
        let scratch = Scratch::new(&format!("x86-{unit}"));
        let json = scratch.file("count.json");
        let options = format!("out={},unit={unit},node=0", json.display());
        let Some(output) = run_x86(&scratch, &options) else {
            return;
        };
        assert_eq!(output.status.code(), Some(0x21), "{output:?}");
        let report = report(&json);
        assert_eq!((report.schema.as_str(), report.node), (SCHEMA, Some(0)));
        assert_eq!(
            (report.target.as_str(), report.unit.as_str()),
            ("x86_64", unit)
        );
        let halted = [X86_INSTRUCTIONS, X86_INSTRUCTIONS + 1];
        assert!(halted.contains(&report.instructions), "{report:?}");
        assert_eq!(report.cpus[0].counters.instructions, report.instructions);
    }
}

#[test]
fn counts_exactly_on_aarch64() {
    let scratch = Scratch::new("aarch64");
    let json = scratch.file("count.json");
    let options = format!("out={},unit=instruction", json.display());
    let Some(output) = run_aarch64(&scratch, &aarch64_program(), &options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0x20), "{output:?}");
    assert_eq!(report(&json).instructions, AARCH64_INSTRUCTIONS);
}

/// A marker as programs have it.
fn marker(op: MarkerOp, id: u16) -> Vec<u8> {
    let id = WindowId(id);
    [PREFIX, Marker { op, id }.word()]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// Window `id` around this code.
fn window(id: u16, code: &[u8]) -> Vec<u8> {
    let (begin, end) = (marker(MarkerOp::Begin, id), marker(MarkerOp::End, id));
    [&begin, code, &end].concat()
}

/// The guests' windows, in kernel mode: what is in them, and what must be counted.
const EMPTY: u16 = 1;
const NOPS: u16 = 2;
const KINDS: u16 = 3;
const CROSSING: u16 = 4;
const WAITING: u16 = 5;

fn assert_windows(report: &MachineReport) {
    let value = |v| {
        let (min, median, max) = (v, v, v);
        Some(Spread { min, median, max })
    };
    let window = |id, n, instructions, lines, accesses, other| WindowReport {
        id,
        n,
        interrupted: 0,
        total: n * instructions,
        instructions: value(instructions),
        lines: value(lines),
        fused_lines: value(0),
        accesses: value(accesses),
        devices: value(0),
        atomics: value(other),
        flushes: value(other),
        fences: value(other),
        lead: value(instructions),
        waits: value(0),
        sites: Vec::new(),
    };
    let expected = vec![
        window(EMPTY, 2, 0, 0, 0, 0),
        window(NOPS, 1, 7, 0, 0, 0),
        window(KINDS, 1, 4, 2, 2, 1),
        window(CROSSING, 1, 1, 2, 1, 0),
        WindowReport {
            lead: value(7),
            waits: value(1),
            ..window(WAITING, 1, 14, 0, 0, 0)
        },
    ];
    assert_eq!(report.windows, Some(expected));
    assert_eq!((report.abandoned, report.unmatched), (Some(1), Some(1)));
}

/// Puts a window of each sort one after the other.
fn windows(nops: &[u8], kinds: &[u8], crossing: &[u8]) -> Vec<u8> {
    [
        window(EMPTY, &[]),
        window(EMPTY, &[]),
        window(NOPS, nops),
        window(KINDS, kinds),
        window(CROSSING, crossing),
        // What is done while waiting is no part of it, accesses neither.
        window(
            WAITING,
            &[
                nops,
                &marker(MarkerOp::Idle, Marker::WAITS.id.0),
                crossing,
                &marker(MarkerOp::Idle, Marker::WORKS.id.0),
                nops,
            ]
            .concat(),
        ),
        // One abandoned, then an end without beginning.
        window(NOPS, &marker(MarkerOp::Abandon, 0)),
        // Forgotten.
        window(9, nops),
        marker(MarkerOp::Forget, 9),
    ]
    .concat()
}

#[test]
fn windows_count_exactly_on_x86_64() {
    let kinds = [
        &[0xf0, 0xff, 0x05, 0, 0x10, 0, 0][..], // lock inc dword [0x1000]
        &[0xa1, 0x40, 0x10, 0, 0],              // mov eax, [0x1040]
        &[0x0f, 0xae, 0xf0],                    // mfence
        &[0x0f, 0xae, 0x3d, 0, 0x10, 0, 0],     // clflush [0x1000]
    ]
    .concat();
    let crossing = [0xa1, 0x3e, 0x10, 0, 0]; // mov eax, [0x103e]
    let protected = [
        &[0x66, 0xb8, 0x10, 0, 0x8e, 0xd8][..], // mov ax, 0x10; mov ds, ax
        &windows(&[0x90; 7], &kinds, &crossing),
        &[0xb0, 0x10, 0xe6, 0xf4, 0xf4], // mov al, 0x10; out 0xf4, al; hlt
    ]
    .concat();
    let real = [
        &[0x2e, 0x66, 0x0f, 0x01, 0x16, 0, 0xe1][..], // lgdt cs:[0xe100]
        &[0x0f, 0x20, 0xc0, 0x0c, 1, 0x0f, 0x22, 0xc0], // mov eax, cr0; or al, 1; mov cr0, eax
        &[0x66, 0xea, 0, 0xe2, 0x0f, 0, 8, 0],        // jmp 8:0xfe200
    ]
    .concat();
    let mut tables = vec![0x17, 0, 0x08, 0xe1, 0x0f, 0, 0, 0]; // limit, base 0xfe108
    for descriptor in [0, 0x00cf_9a00_0000_ffff_u64, 0x00cf_9200_0000_ffff] {
        tables.extend(descriptor.to_le_bytes());
    }
    let mut image = x86_firmware();
    for (at, part) in [(0xe000, real), (0xe100, tables), (0xe200, protected)] {
        image[at..at + part.len()].copy_from_slice(&part);
    }
    let scratch = Scratch::new("x86-windows");
    let json = scratch.file("count.json");
    let options = format!("out={},windows=on", json.display());
    let Some(output) = run_x86_image(&scratch, &image, &options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0x21), "{output:?}");
    assert_windows(&report(&json));
}

#[test]
fn windows_count_exactly_on_aarch64() {
    let code = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let kinds = code(&[
        0xf820_0022, // ldadd x0, x2, [x1]
        0xf940_2022, // ldr x2, [x1, #64]
        0xd503_3fbf, // dmb sy
        0xd50b_7a21, // dc cvac, x1
    ]);
    let crossing = code(&[0xa943_8c22]); // ldp x2, x3, [x1, #56]
    let program = [
        code(&[0xd2a8_0601]), // mov x1, #0x40300000
        windows(&code(&[0xd503_201f; 7]), &kinds, &crossing),
        aarch64_program(),
    ]
    .concat();
    let scratch = Scratch::new("aarch64-windows");
    let json = scratch.file("count.json");
    let options = format!("out={},windows=on", json.display());
    let Some(output) = run_aarch64(&scratch, &program, &options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0x20), "{output:?}");
    assert_windows(&report(&json));
}

#[test]
fn wrong_options_stop_the_emulator_with_a_reason() {
    let scratch = Scratch::new("wrong");
    for (options, message) in [
        (
            "level=count",
            "dyad-sim: option out is missing; write out=FILE",
        ),
        (
            "out=/nonexistent/file",
            "dyad-sim: cannot write /nonexistent/file: ",
        ),
        ("out=x,level=all", "dyad-sim: level cannot be \"all\""),
    ] {
        let Some(output) = run_x86(&scratch, options) else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
