//! One machine: starting it, reading it, reaping it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use dyad_abi::record::{EXIT_BOOT, EXIT_FAILED, EXIT_OK, EXIT_PANIC, EXIT_STOPPED};
use dyad_abi::{Isa, NodeId, record};

use crate::console::{Joiner, Splitter};
use crate::error::Error;
use crate::machine::Command;
use crate::symbol::Symboliser;

/// How long a machine's pipes may stay open after it has ended.
const DRAIN: Duration = Duration::from_secs(1);
/// Most bytes of a console that are kept in memory.
const KEPT: usize = 4 << 20;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The serial line.
    Console,
    /// What the emulator itself says.
    Emulator,
}

/// What reader threads send.
pub(super) enum Message {
    /// A line.
    Line {
        /// Node.
        node: usize,
        /// Number of the node's life that the line is from.
        life: u32,
        /// The output stream.
        stream: Stream,
        /// The line without its line end.
        bytes: Vec<u8>,
        /// Time at which the line was read.
        at: Instant,
    },
    /// A stream has ended.
    End {
        /// Node.
        node: usize,
        /// Which life of it.
        life: u32,
    },
}

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The kernel ended it with this code.
    Code(u32),
    /// It ended without the kernel's doing.
    Died(String),
    /// The launcher has killed it, because it did not end when it should have.
    Killed,
}

impl Outcome {
    fn of(isa: Isa, status: ExitStatus) -> Outcome {
        if let Some(signal) = status.signal() {
            return Outcome::Died(format!("was killed by {}", signal_name(signal)));
        }
        let status = status.code().unwrap_or_default();
        match record::exit_code_from_status(isa, status) {
            Some(code) => Outcome::Code(code),
            None => Outcome::Died(format!(
                "ended without its kernel's doing (status {status} of the emulator)"
            )),
        }
    }

    /// Whether the others must be told: the node is gone without having shut down.
    pub(super) fn is_death(&self) -> bool {
        !matches!(self, Outcome::Code(EXIT_OK | EXIT_FAILED | EXIT_STOPPED))
    }

    /// For people, as the rest of a sentence about a node.
    pub(super) fn text(&self) -> String {
        match self {
            Outcome::Died(how) => how.clone(),
            Outcome::Killed => "did not end by itself and was killed".into(),
            Outcome::Code(code) => {
                let meaning = match *code {
                    EXIT_OK => "success",
                    EXIT_FAILED => "the program or a check failed",
                    EXIT_BOOT => "it could not boot or join",
                    EXIT_STOPPED => "it was told to stop",
                    EXIT_PANIC => "its kernel panicked",
                    _ => "unknown meaning",
                };
                format!("exited with code {code} ({meaning})")
            }
        }
    }
}

fn signal_name(signal: i32) -> String {
    use signal_hook::consts as c;
    let name = match signal {
        c::SIGKILL => "SIGKILL",
        c::SIGTERM => "SIGTERM",
        c::SIGINT => "SIGINT",
        c::SIGSEGV => "SIGSEGV",
        c::SIGABRT => "SIGABRT",
        c::SIGBUS => "SIGBUS (is the shared memory full?)",
        c::SIGILL => "SIGILL",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal}, {name}")
}

/// A node of the run and its machine.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) isa: Isa,
    pub(super) command: Command,
    pub(super) log: PathBuf,
    pub(super) symbols: Symboliser,
    /// Those of the services, by name.
    services: Vec<(String, Symboliser)>,
    /// Where the last fault in a service was that init on this node has told of, and the service.
    pub(super) faulted: Option<(u64, String)>,
    /// How often it has been started.
    pub(super) life: u32,
    child: Option<Child>,
    /// Process of the last machine that has ended.
    pub(super) last_pid: Option<u32>,
    open_streams: u32,
    ended: Option<(ExitStatus, Instant)>,
    killed: bool,
    /// How the machine ended, once its output has been read.
    pub(super) outcome: Option<Outcome>,
    /// First panic of this life, and when it was seen.
    pub(super) panic: Option<(String, Instant)>,
    /// Why it said it exits.
    pub(super) reason: Option<String>,
    /// Last boot phase reported.
    pub(super) phase: String,
    /// Answers to a request for a report.
    pub(super) status: Vec<String>,
    /// Pieces of long lines of its console.
    pub(super) joiner: Joiner,
    /// When it died, while it waits to be started again.
    pub(super) waits_since: Option<Instant>,
    /// Its death does not fail the run.
    pub(super) excused: bool,
    /// Last words of the emulator.
    pub(super) emulator: Vec<String>,
    /// Raw console.
    pub(super) console: Vec<u8>,
}

impl Node {
    pub(super) fn new(
        id: NodeId,
        isa: Isa,
        command: Command,
        log: PathBuf,
        symbols: Symboliser,
        services: Vec<(String, Symboliser)>,
    ) -> Node {
        Node {
            id,
            isa,
            command,
            log,
            symbols,
            services,
            faulted: None,
            life: 0,
            child: None,
            last_pid: None,
            open_streams: 0,
            ended: None,
            killed: false,
            outcome: None,
            panic: None,
            reason: None,
            phase: String::new(),
            status: Vec::new(),
            joiner: Joiner::default(),
            waits_since: None,
            excused: false,
            emulator: Vec::new(),
            console: Vec::new(),
        }
    }

    /// Starts the machine. The thread that calls this must outlive it: the machine is killed when
    /// that thread ends, which is what makes it end with this process whatever happens.
    pub(super) fn start(&mut self, to: &SyncSender<Message>) -> Result<(), Error> {
        let mut process = self.command.process();
        // A process group of its own: Ctrl-C on the terminal is the launcher's business.
        process
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process.spawn().map_err(|e| {
            Error::Setup(format!(
                "cannot start setpriv (package util-linux): {e}; see `cargo xtask doctor`"
            ))
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.life += 1;
        self.child = Some(child);
        self.outcome = None;
        self.ended = None;
        self.killed = false;
        self.panic = None;
        self.reason = None;
        self.waits_since = None;
        self.open_streams = 0;
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|e| Error::io(format_args!("cannot write {}", self.log.display()), e))?;
        if let Some(out) = stdout {
            self.read(out, Stream::Console, to, move |b| {
                // A full disk must not end the run.
                let _ = log.write_all(b);
            })?;
        }
        if let Some(err) = stderr {
            self.read(err, Stream::Emulator, to, |_| ())?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        mut from: impl Read + Send + 'static,
        stream: Stream,
        to: &SyncSender<Message>,
        mut raw: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<(), Error> {
        let (node, life, to) = (self.id.index(), self.life, to.clone());
        let work = move || {
            let mut splitter = Splitter::default();
            let mut buffer = [0; 16 * 1024];
            let send = |bytes: &[u8]| {
                let bytes = bytes.to_vec();
                let at = Instant::now();
                // Nobody listens any more once the run is over.
                let _ = to.send(Message::Line {
                    node,
                    life,
                    stream,
                    bytes,
                    at,
                });
            };
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => {
                        raw(&buffer[..n]);
                        splitter.push(&buffer[..n], send);
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            splitter.finish(send);
            let _ = to.send(Message::End { node, life });
        };
        std::thread::Builder::new()
            .name(format!("console {node}"))
            .spawn(work)
            .map_err(|e| Error::io("cannot start a thread", e))?;
        self.open_streams += 1;
        Ok(())
    }

    /// Names of the code of a service, or of the program.
    pub(super) fn symbols_of(&mut self, service: Option<&str>) -> &mut Symboliser {
        let mut of = self.services.iter_mut();
        match of.find(|(name, _)| service == Some(name)) {
            Some((_, symbols)) => symbols,
            None => &mut self.symbols,
        }
    }

    /// The lines of the backtrace of a thread that was within an invocation: with names if init has just said which
    /// service has faulted there.
    pub(super) fn backtrace_of_invoked(&mut self, pcs: &[u64]) -> Vec<String> {
        let said = self.faulted.take();
        match said.filter(|(pc, _)| pcs.first() == Some(pc)) {
            Some((_, service)) => self.symbols_of(Some(&service)).backtrace(pcs, true),
            None => Symboliser::default().backtrace(pcs, true),
        }
    }

    pub(super) fn stream_ended(&mut self, life: u32) {
        if life == self.life {
            self.open_streams = self.open_streams.saturating_sub(1);
        }
    }

    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if self.console.len() < KEPT {
            self.console.extend_from_slice(bytes);
            self.console.push(b'\n');
        }
    }

    /// Looks whether the machine has ended; `true` once, when its outcome has become known.
    pub(super) fn reap(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return false;
        };
        if self.ended.is_none() {
            self.ended = child.try_wait().ok().flatten().map(|s| (s, Instant::now()));
        }
        let Some((status, at)) = self.ended else {
            return false;
        };
        if self.open_streams > 0 && at.elapsed() < DRAIN {
            return false;
        }
        self.last_pid = self.child.take().map(|c| c.id());
        let outcome = Outcome::of(self.isa, status);
        self.outcome = Some(match outcome {
            Outcome::Died(_) if self.killed => Outcome::Killed,
            outcome => outcome,
        });
        true
    }

    /// Whether there is a machine now.
    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Process of the machine.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the machine; it still has to be reaped.
    pub(super) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // Fails only if it has ended already.
            let _ = child.kill();
            self.killed = true;
        }
    }

    /// Name for people.
    pub(super) fn name(&self) -> String {
        format!("node {} ({})", self.id, self.isa)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_told_from_orderly_ends() {
        for isa in Isa::ALL {
            let exit = |code: u32| match isa {
                Isa::X86_64 => (record::x86_exit_value(code) << 1 | 1) as i32,
                Isa::Aarch64 => record::aarch64_exit_value(code) as i32,
            };
            let of = |raw: i32| Outcome::of(isa, ExitStatus::from_raw(raw));
            assert!(!of(exit(EXIT_OK) << 8).is_death());
            assert!(!of(exit(EXIT_FAILED) << 8).is_death());
            assert!(of(exit(EXIT_PANIC) << 8).is_death());
            assert!(of(exit(EXIT_BOOT) << 8).is_death());
            assert!(of(0).is_death() && of(1 << 8).is_death());
            assert_eq!(of(9).text(), "was killed by signal 9, SIGKILL");
        }
    }
}
