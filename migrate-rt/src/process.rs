//! Running tools: captured output, and errors that say which tool and why.

use crate::toolchain::Toolchain;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::cell::Cell;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A tool that could not be run or that failed.
#[derive(Debug)]
pub struct ToolError {
    /// The program.
    pub program: PathBuf,
    /// What happened.
    pub kind: ToolErrorKind,
}

/// How a tool failed.
#[derive(Debug)]
pub enum ToolErrorKind {
    /// It could not be started.
    Start(std::io::Error),
    /// It ended with this status, having said this.
    Failed {
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its standard error.
        stderr: String,
    },
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        let name = name.to_string_lossy();
        match &self.kind {
            ToolErrorKind::Start(e) => write!(f, "{name} could not be started: {e}"),
            ToolErrorKind::Failed { status, stderr } => {
                write!(f, "{name} failed ({status})")?;
                if !stderr.trim().is_empty() {
                    write!(f, ":\n{}", stderr.trim_end())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ToolError {}

thread_local! {
    /// Processor time of the tools that this thread has run.
    static SPENT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The unit of processor times in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// Processor time of the tools that this thread has run.
pub(crate) fn spent_by_tools() -> Duration {
    SPENT.get()
}

/// Waits until a tool has ended, and returns the processor time that the tool and its children took. The tool still has
/// to be waited for.
fn spent(child: &Child) -> Duration {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Duration::ZERO;
    };
    // Without this the time is only not counted: `Child::wait` comes in any case.
    let _ = waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    );
    processor_time(Path::new("/proc").join(child.id().to_string()).as_path(), 4)
}

/// Processor time that `stat` in this directory of `/proc` tells: user and system time of a thread or process, and
/// with four fields also those of its children that have been waited for. Zero if there is no such file.
pub(crate) fn processor_time(dir: &Path, fields: usize) -> Duration {
    let text = std::fs::read_to_string(dir.join("stat")).unwrap_or_default();
    // The name in parentheses may have anything in it; the state comes behind, then ten other fields.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields = behind.split_whitespace().skip(11).take(fields);
    TICK * fields.map_while(|f| f.parse::<u32>().ok()).sum::<u32>()
}

/// What a tool that succeeded has said.
pub(crate) struct Output {
    pub stdout: String,
}

/// Runs a tool to its end, giving every line of its standard error to `on_line` as it comes.
pub(crate) fn run(
    command: &mut Command,
    on_line: &mut dyn FnMut(&str),
) -> Result<Output, ToolError> {
    let program = PathBuf::from(command.get_program());
    let error = |kind| ToolError {
        program: program.clone(),
        kind,
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| error(ToolErrorKind::Start(e)))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Both pipes are drained at once: a tool that fills one of them would wait forever.
    let (stdout, stderr) = std::thread::scope(|scope| {
        let out = scope.spawn(|| out.map(std::io::read_to_string).and_then(Result::ok));
        let mut stderr = String::new();
        for line in err.into_iter().flat_map(|e| BufReader::new(e).split(b'\n')) {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            on_line(&line);
            stderr.push_str(&line);
            stderr.push('\n');
        }
        (out.join().ok().flatten().unwrap_or_default(), stderr)
    });
    SPENT.set(SPENT.get() + spent(&child));
    let status = child.wait().map_err(|e| error(ToolErrorKind::Start(e)))?;
    if !status.success() {
        return Err(error(ToolErrorKind::Failed { status, stderr }));
    }
    Ok(Output { stdout })
}

/// [`run`] for tools whose standard error matters only when they fail.
pub(crate) fn run_quiet(command: &mut Command) -> Result<Output, ToolError> {
    run(command, &mut |_| ())
}

/// Makes bitcode of textual IR, and verifies it. Tools read bitcode in a third of the time, so what needs text makes it
/// once.
pub(crate) fn assemble(tools: &Toolchain, text: &Path, bitcode: &Path) -> Result<(), ToolError> {
    let mut command = Command::new(&tools.assembler);
    command.arg("-o").args([bitcode, text]);
    run_quiet(&mut command).map(|_| ())
}
