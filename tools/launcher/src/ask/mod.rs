//! Asking a system that runs: which threads there are, and to move one.
//!
//! ```text
//!  cargo xtask migrate ──┐ a line of JSON each way              request line, doorbell
//!  cargo xtask ps ───────┼──▶ launcher of the run ([`server`]) ─────────────────────────▶ init
//!  tests ────────────────┘        │                      ◀───────────────────────────── answer line
//!                                 └── looks into the CXL pool: where threads are ([`threads`])
//! ```
//!
//! The launcher is the only one that writes to the system, so commands cannot be in each other's way,
//! whatever becomes of them: one that is ended while it waits has closed its connection, and the
//! launcher takes the request back. What only has to be read it reads from the pool's file, so that
//! works also for a system that does not answer.
//!
//! A run is found by its directory: as long as it takes questions there is a file [`RUN_FILE`] in it, with
//! the launcher's process, its socket, and the files of the pools for tools that read for themselves.

pub mod channel;
pub mod server;
pub mod threads;
mod waits;

use std::fmt;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use dyad_abi::Isa;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{paths, signals};

pub use threads::ThreadRow;

/// In a run's directory while it takes questions.
pub const RUN_FILE: &str = "control.json";
/// Name and version of that file's form.
pub const RUN_SCHEMA: &str = "dyad.control/1";
/// Longest line either way.
const MAX_LINE: u64 = 256 << 10;
/// How long a request may be waited for when nothing is said.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// The longest that may be asked for.
pub const MAX_WAIT: Duration = Duration::from_secs(3600);
/// How much longer than the request the launcher is waited for.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// A program of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
}

/// A run that takes questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// The launcher.
    pub pid: u32,
    /// Its abstract socket.
    pub socket: String,
    /// The programs that are no services.
    pub programs: Vec<Named>,
    /// ISA of each node.
    pub nodes: Vec<String>,
    /// Files of the pools, readable as long as the run lasts: local ones by node, then the CXL pool.
    pub pools: Vec<PathBuf>,
    /// Its directory.
    #[serde(skip)]
    pub dir: PathBuf,
}

/// Where a thread is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// To this node.
    Node(u64),
    /// To a node of this ISA, by [`Isa::index`]: where it is if that has it, else the live one with the
    /// lowest number.
    Isa(u64),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Target, String> {
        if let Some(isa) = Isa::parse(word) {
            return Ok(Target::Isa(isa.index() as u64));
        }
        let node = word.parse().map(Target::Node);
        node.map_err(|_| {
            format!("{word:?} is neither the number of a node nor an ISA (x86_64, aarch64)")
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Target::Node(n) => write!(f, "node {n}"),
            Target::Isa(n) => match Isa::from_index(n) {
                Some(isa) => isa.fmt(f),
                None => write!(f, "ISA {n}"),
            },
        }
    }
}

/// A move that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Name of the program; `None`: the run's.
    pub program: Option<String>,
    /// Number of the thread in it.
    pub thread: u16,
    /// Where to.
    pub to: Target,
    /// How long to wait.
    pub wait_ms: u64,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// Which threads there are.
    Threads,
    /// Moves one, at its next migration point.
    Migrate(Wanted),
    /// Moves one wherever it is: it is interpreted on its new node up to its next migration point.
    Emulate(Wanted),
}

/// What has come of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The program.
    pub program: String,
    /// The thread.
    pub thread: u16,
    /// Where it was.
    pub from: usize,
    /// Where it was asked to go.
    pub to: usize,
    /// Where it was seen last: it may have gone on by itself.
    pub now: usize,
    /// It was there already, and was asked nothing.
    pub already: bool,
    /// Host time from the request to when it was seen there.
    pub ms: f64,
    /// How often the thread has been handed to another node in all its life: by migrations, and each
    /// way by invocations of services that are elsewhere.
    pub migrations: u64,
    /// What was interpreted on the way, if it was moved wherever it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreted: Option<Interpreted>,
}

/// What was interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreted {
    /// Instructions.
    pub instructions: u64,
    /// System calls among them.
    pub calls: u64,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Refusal {
    /// The run has no such program.
    NoProgram {
        /// What it was called.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// The program has no such thread, or it has ended.
    NoThread {
        /// The program.
        program: String,
        /// The thread.
        thread: u16,
    },
    /// The system has no such node, or none of that ISA that lives.
    NoNode {
        /// What was asked for.
        to: String,
        /// The nodes that there are.
        there: Vec<String>,
    },
    /// The node is dead, or died meanwhile.
    NodeDead {
        /// The node.
        node: usize,
    },
    /// The thread has not come in time.
    TimedOut {
        /// The program.
        program: String,
        /// The thread.
        thread: u16,
        /// How long it was waited.
        ms: u64,
        /// It has taken the request, but has not arrived; if not, the request was withdrawn.
        taken: bool,
    },
    /// The command that asked has gone.
    Withdrawn {
        /// The thread had taken the request by then.
        taken: bool,
    },
    /// Another command has asked the same thread to go somewhere, or has withdrawn this.
    Replaced,
    /// The thread has ended meanwhile, or was lost with its node.
    Gone,
    /// The system is ending.
    Ended,
    /// The thread has come to something that is not interpreted, and goes on where it was.
    Back {
        /// A word for it: [`refused`](dyad_abi::emulation::refused).
        outcome: u64,
        /// What it was.
        what: String,
        /// Address of the instruction.
        at: u64,
        /// The first bytes of one that is not known, in hexadecimal; else empty.
        bytes: String,
        /// Instructions that had been interpreted before.
        instructions: u64,
    },
    /// Init does not answer.
    NoAnswer,
    /// Init refuses.
    Refused {
        /// Why.
        why: String,
    },
    /// Not a question, or too many at once.
    Bad {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoProgram { name, there } => write!(
                f,
                "the run has no program {name:?} that can be asked: there is {}",
                there.join(", ")
            ),
            Refusal::NoThread { program, thread } => {
                write!(
                    f,
                    "program {program:?} has no thread {thread} now: `cargo xtask ps` lists those that \
                     there are"
                )
            }
            Refusal::NoNode { to, there } => write!(
                f,
                "there is no {to} that lives: the nodes are {}",
                there.join(", ")
            ),
            Refusal::NodeDead { node } => write!(f, "node {node} is dead"),
            Refusal::TimedOut {
                program,
                thread,
                ms,
                taken: false,
            } => write!(
                f,
                "thread {thread} of {program:?} has come to no migration point within {ms} ms \
                 (--wait); the request was withdrawn"
            ),
            Refusal::TimedOut {
                program,
                thread,
                ms,
                taken: true,
            } => write!(
                f,
                "thread {thread} of {program:?} has taken the request, but was not seen there \
                 within {ms} ms (--wait)"
            ),
            Refusal::Withdrawn { taken: false } => {
                f.write_str("the request was withdrawn before the thread had seen it")
            }
            Refusal::Withdrawn { taken: true } => {
                f.write_str("the thread had taken the request before it could be withdrawn")
            }
            Refusal::Replaced => f.write_str("a newer request has taken the place of this one"),
            Refusal::Gone => f.write_str("the thread has ended, or was lost with its node"),
            Refusal::Ended => f.write_str("the system is ending"),
            Refusal::Back {
                what,
                at,
                bytes,
                instructions,
                ..
            } => {
                write!(
                    f,
                    "after {instructions} interpreted instructions the thread has come to {what}, at \
                     {at:#x}"
                )?;
                if !bytes.is_empty() {
                    write!(f, " ({bytes})")?;
                }
                f.write_str("; it goes on where it was")
            }
            Refusal::NoAnswer => f.write_str(
                "init does not answer: it is not there yet, or not at all (--ktest, or a program in its place), or \
                 the system hangs",
            ),
            Refusal::Refused { why } => write!(f, "init refuses: {why}"),
            Refusal::Bad { why } => f.write_str(why),
        }
    }
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The threads.
    Threads(Vec<ThreadRow>),
    /// The move is done.
    Moved(Moved),
    /// Neither.
    Refused(Refusal),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The launcher says so.
    Refused(Refusal),
    /// There is no launcher to be asked, or it has gone.
    Unreachable(Error),
    /// Ctrl-C; what has come of it, if that is known.
    Interrupted(Option<Refusal>),
}

impl Run {
    /// The run with its logs in `dir`.
    ///
    /// # Errors
    ///
    /// If it takes no questions.
    pub fn at(dir: &Path) -> Result<Run, Error> {
        let none = |why: String| {
            Error::Usage(format!(
                "no system runs with its logs in {}: {why}",
                paths::shown(dir)
            ))
        };
        let text = std::fs::read_to_string(dir.join(RUN_FILE))
            .map_err(|_| none(format!("there is no {RUN_FILE}")))?;
        let mut run: Run =
            serde_json::from_str(&text).map_err(|e| none(format!("{RUN_FILE}: {e}")))?;
        if run.schema != RUN_SCHEMA {
            return Err(none(format!("{RUN_FILE} has schema {}", run.schema)));
        }
        run.dir = dir.to_path_buf();
        // What a launcher that was killed has left behind.
        run.connect()
            .map_err(|_| none("its launcher has gone".into()))?;
        Ok(run)
    }

    /// All runs that take questions, below a directory or one below that.
    pub fn all(runs: &Path) -> Vec<Run> {
        let mut found = Vec::new();
        for dir in subdirectories(runs) {
            match Run::at(&dir) {
                Ok(run) => found.push(run),
                Err(_) => {
                    let below = subdirectories(&dir).into_iter();
                    found.extend(below.filter_map(|d| Run::at(&d).ok()));
                }
            }
        }
        found.sort_by(|a, b| a.dir.cmp(&b.dir));
        found
    }

    /// The run in a directory, or the only one that there is.
    ///
    /// # Errors
    ///
    /// If there is none, or several and no directory.
    pub fn find(dir: Option<&Path>) -> Result<Run, Error> {
        if let Some(dir) = dir {
            return Run::at(dir);
        }
        let runs = paths::runs_dir();
        let mut all = Run::all(&runs);
        match all.len() {
            1 => Ok(all.remove(0)),
            0 => Err(Error::Usage(format!(
                "no system runs: start one (cargo xtask run --app NAME), or name the directory of \
                 its logs (--run DIR) if it is not below {}",
                paths::shown(&runs)
            ))),
            n => {
                let list: Vec<String> = all.iter().map(Run::describe).collect();
                Err(Error::Usage(format!(
                    "{n} systems run, name one (--run DIR):\n  {}",
                    list.join("\n  ")
                )))
            }
        }
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.programs.iter().map(|p| p.name.as_str()).collect();
        format!(
            "{}  {} on {}",
            paths::shown(&self.dir),
            names.join(", "),
            self.nodes.join(",")
        )
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&self.socket)?)
    }

    /// Asks, and waits for the answer or Ctrl-C.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub fn ask(&self, question: &Question) -> Result<Reply, Failed> {
        let signals_before = signals::count();
        self.ask_until(question, &|| signals::count() > signals_before)
    }

    /// Asks, and waits for the answer, or until that is given up: then the request is withdrawn.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub fn ask_until(
        &self,
        question: &Question,
        given_up: &dyn Fn() -> bool,
    ) -> Result<Reply, Failed> {
        let gone = |e: std::io::Error| {
            Failed::Unreachable(Error::Run(format!(
                "the launcher of {} does not answer: {e}",
                paths::shown(&self.dir)
            )))
        };
        let wait = match question {
            Question::Threads => Duration::ZERO,
            Question::Migrate(wanted) | Question::Emulate(wanted) => {
                Duration::from_millis(wanted.wait_ms).min(MAX_WAIT)
            }
        };
        let mut stream = self.connect().map_err(gone)?;
        let line = serde_json::to_string(question).map_err(|e| gone(e.into()))?;
        stream
            .write_all(format!("{line}\n").as_bytes())
            .map_err(gone)?;
        stream.set_read_timeout(Some(LOOK)).map_err(gone)?;
        let mut until = Instant::now() + wait + GRACE;
        let mut interrupted = false;
        let mut text = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            if !interrupted && given_up() {
                interrupted = true;
                // It answers all the same: what has come of it.
                let _ = stream.shutdown(Shutdown::Write);
                until = until.min(Instant::now() + GRACE);
            }
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => text.extend_from_slice(&bytes[..n]),
                Err(e) if again(&e) => {}
                Err(e) => return Err(gone(e)),
            }
            if text.len() as u64 > MAX_LINE || Instant::now() > until {
                return Err(gone(std::io::ErrorKind::TimedOut.into()));
            }
        }
        if interrupted && text.is_empty() {
            return Err(Failed::Interrupted(None));
        }
        match serde_json::from_slice(&text) {
            Ok(Reply::Refused(why @ Refusal::Withdrawn { .. })) if interrupted => {
                Err(Failed::Interrupted(Some(why)))
            }
            Ok(Reply::Refused(why)) => Err(Failed::Refused(why)),
            Ok(reply) => Ok(reply),
            Err(e) => Err(gone(e.into())),
        }
    }
}

/// Whether reading has to be tried again.
fn again(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), Interrupted | TimedOut | WouldBlock)
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}
