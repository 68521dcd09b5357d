//! Running the tool with machines that are shell scripts (`machine.sh` beside this file).

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use dyad_shm::superblock::{NodeEntry, Superblock};
use dyad_sim_model::config::Level;
use dyad_sim_model::report::{
    Breakdown, ClockReport, Counters, CpuReport, Durations, MachineReport, RoiReport, SCHEMA,
};
use rustix::process::{Pid, Signal, kill_process};

/// A directory that goes away with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The tool, with logs in a directory of its own.
pub fn tool(dir: &Scratch) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_xtask"));
    c.env("CARGO_TARGET_DIR", dir.0.join("target"))
        .env("NO_COLOR", "1")
        .current_dir(&dir.0)
        .stdin(Stdio::null());
    c
}

/// A file with the symbols that the launcher looks for in kernels, and nothing else.
fn stub_kernel() -> &'static Path {
    static KERNEL: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-kernel.o");
        let made = path.with_extension(std::process::id().to_string());
        // The linker driver that every build on this host needs also assembles.
        let mut cc = Command::new("cc");
        cc.args(["-c", "-x", "assembler", "-", "-o"]).arg(&made);
        let mut cc = cc.stdin(Stdio::piped()).spawn().unwrap();
        let symbols =
            b".globl vector_stubs, exception_vectors\nvector_stubs:\nexception_vectors:\n";
        cc.stdin.take().unwrap().write_all(symbols).unwrap();
        assert!(cc.wait().unwrap().success());
        std::fs::rename(&made, &path).unwrap();
        path
    });
    &KERNEL
}

/// `run` with machines that play these parts, one per node.
pub fn stub_run(dir: &Scratch, parts: &[&str], args: &[&str]) -> Command {
    let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/common/machine.sh");
    let mut c = tool(dir);
    for isa in ["X86_64", "AARCH64"] {
        c.env(format!("DYAD_TEST_QEMU_{isa}"), &stub);
        c.env(format!("DYAD_TEST_KERNEL_{isa}"), stub_kernel());
    }
    for (node, part) in parts.iter().enumerate() {
        c.env(format!("STUB_{node}"), part);
    }
    let state = offset_of!(Superblock, nodes) + offset_of!(NodeEntry, state);
    c.env("STUB_NODES", state.to_string());
    c.env("STUB_NODE_SIZE", size_of::<NodeEntry>().to_string());
    c.env("STUB_CONTROL", offset_of!(Superblock, control).to_string());
    c.args(["run", "--ktest", "none", "--json", "out.json"]);
    c.args(["--mem-local", "32MiB", "--mem-cxl", "32MiB"]);
    c.args(args);
    c
}

/// What the plugin of a machine with one CPU may report: `time` picoseconds, half of them for
/// instructions, and an event history that is the seed's.
pub fn plugin_report(node: u8, time: u64) -> MachineReport {
    let counters = Counters {
        instructions: 1000 + u64::from(node),
        accesses: 400,
        l1d_hits: 390,
        l1d_misses: 10,
        l2_misses: 10,
        l3_misses: 10,
        remote: 10,
        ..Counters::default()
    };
    let breakdown_ps = Breakdown {
        inst: time / 2,
        mem_remote: time - time / 2,
        ..Breakdown::default()
    };
    MachineReport {
        schema: SCHEMA.into(),
        target: "stub".into(),
        node: Some(node),
        plugin_api: 4,
        level: Level::Timing,
        unit: "block".into(),
        instructions: counters.instructions,
        cpus: vec![CpuReport {
            time_ps: time,
            counters,
            breakdown_ps,
            ..CpuReport::default()
        }],
        clock: Some(ClockReport {
            total_ps: time,
            ..ClockReport::default()
        }),
        roi: [(
            0x8000,
            RoiReport {
                n: 3,
                pass_ps: Durations::of(vec![time / 6; 3]),
                time_ps: time / 2,
                counters,
                breakdown_ps: Breakdown {
                    inst: time / 2,
                    ..Breakdown::default()
                },
                ..RoiReport::default()
            },
        )]
        .into(),
        windows: None,
        masked: None,
        abandoned: None,
        unmatched: None,
        sanitizer: None,
    }
}

/// As [`stub_run`], with plugins that leave these reports.
pub fn stub_sim(
    dir: &Scratch,
    parts: &[&str],
    reports: &[MachineReport],
    args: &[&str],
) -> Command {
    let mut c = stub_run(dir, parts, args);
    add_reports(&mut c, dir, reports);
    c
}

/// Lets the plugins of stubs leave these reports. Event histories depend on the seed.
pub fn add_reports(c: &mut Command, dir: &Scratch, reports: &[MachineReport]) {
    c.env("DYAD_TEST_PLUGIN", "/dev/null");
    for (node, report) in reports.iter().enumerate() {
        let file = dir.0.join(format!("stub{node}.json"));
        let text = serde_json::to_string(report).unwrap();
        let text = text.replace("\"0000000000000000\"", "\"%seed\"");
        std::fs::write(&file, text).unwrap();
        c.env(format!("STUB_SIM_{node}"), file);
    }
}

/// The JSON report of the last run in this directory.
pub fn report(dir: &Scratch) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.0.join("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

/// A tool that runs in the background.
pub struct Background {
    pub child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    pub seen: String,
}

impl Background {
    pub fn start(mut command: Command) -> Background {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, lines) = std::sync::mpsc::channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for stream in streams {
            let to = to.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = to.send(line);
                }
            });
        }
        Background {
            child,
            lines,
            seen: String::new(),
        }
    }

    /// Waits until `n` lines that contain `what` have been printed and returns them.
    pub fn wait_for(&mut self, what: &str, n: usize) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let found = self.seen.lines().filter(|l| l.contains(what));
            let found: Vec<String> = found.map(str::to_string).collect();
            if found.len() >= n {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no {what:?} in:\n{}", self.seen));
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
    }

    /// Waits for its end; the exit status and everything it has printed.
    pub fn finish(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.seen.push_str(&line);
            self.seen.push('\n');
        }
        (status.code(), self.seen)
    }

    pub fn signal(&self, signal: Signal) {
        send_signal(self.child.id(), signal);
    }
}

pub fn send_signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The number at the end of a line.
pub fn last_number(line: &str) -> u32 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until a process is gone (a zombie is).
pub fn wait_until_gone(pid: u32) {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        if state.is_empty() || state.starts_with('Z') {
            return;
        }
        assert!(
            Instant::now() < until,
            "process {pid} is still there: {stat}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fails if anything of the launcher with this process number is left outside of its directory.
pub fn assert_nothing_left(launcher: u32) {
    let mark = format!("dyad-{launcher}-");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&mark), "a socket is left");
    for entry in std::fs::read_dir("/dev/shm").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(!name.starts_with(&mark), "{name} is left in /dev/shm");
    }
}
