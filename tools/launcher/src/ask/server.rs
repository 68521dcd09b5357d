//! The launcher's side of questions: a socket, a thread for each that asks.
//!
//! ```text
//!  question ─▶ thread found, request put ─▶ waits ──seen at the node──────────────▶ moved
//!                                             ├──time is up, asker gone──▶ withdrawn
//!                                             ├──node dead, thread gone, newer request
//!                                             └──system ends
//! ```
//!
//! A thread that waits looks into the pool every [`LOOK`]; nothing of the system runs for that. However a wait
//! ends, the request is taken back, unless the thread or a newer request has done so already.
//!
//! Only processes of the same user are served.

mod emulate;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dyad_abi::service::{program, thread_id};
use dyad_abi::user::request;
use dyad_abi::{Error as Refused, Isa, NodeId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::channel::{Channel, Word};
use super::threads::{self, Found, Glance, Look};
use super::waits::{self, Waits};
use super::{
    Interpreted, MAX_LINE, MAX_WAIT, Moved, Named, Question, RUN_FILE, RUN_SCHEMA, Refusal, Reply,
    Run, Target, Wanted, again,
};
use crate::broker::pid_of;
use crate::state::SharedState;

/// How often it is looked whether a thread has arrived.
pub const LOOK: Duration = Duration::from_millis(1);
/// How often it is asked about a thread that moves, but not where it was asked to go.
const ASK: Duration = Duration::from_millis(50);
/// How long a thread that has taken a request at the last moment may take to arrive.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// How long a question may take to come.
const QUESTION: Duration = Duration::from_secs(2);
/// Questions at the same time.
const MOST: usize = 32;

/// What is asked about.
#[derive(Debug)]
struct Subject {
    channel: Channel,
    programs: Vec<Named>,
    nodes: Vec<Isa>,
    /// The newest request to each thread.
    newest: Mutex<Newest>,
    /// Held while a request is put: the one that is put last is the newest.
    putting: Mutex<()>,
    stop: AtomicBool,
}

/// Requests that are waited for.
#[derive(Debug, Default)]
struct Newest {
    /// How many there have been.
    count: u64,
    /// Number of the newest to each thread, by id.
    of: HashMap<u32, u64>,
}

/// Server for questions; it accepts them until it is dropped.
#[derive(Debug)]
pub struct Server {
    file: PathBuf,
    subject: Arc<Subject>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Takes questions about a system at the abstract socket `socket`, and says so in the run's
    /// directory.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a socket, a thread, or the file.
    pub fn start(
        dir: &Path,
        socket: &str,
        channel: Channel,
        programs: Vec<Named>,
        nodes: Vec<Isa>,
        pools: Vec<PathBuf>,
    ) -> std::io::Result<Server> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket)?)?;
        listener.set_nonblocking(true)?;
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = Arc::new(eventfd(0, flags)?);
        let run = Run {
            schema: RUN_SCHEMA.into(),
            pid: std::process::id(),
            socket: socket.into(),
            programs: programs.clone(),
            nodes: nodes.iter().map(Isa::to_string).collect(),
            pools,
            dir: PathBuf::new(),
        };
        let subject = Arc::new(Subject {
            channel,
            programs,
            nodes,
            newest: Mutex::default(),
            putting: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new()
            .name("questions".into())
            .spawn({
                let (subject, wake) = (Arc::clone(&subject), Arc::clone(&wake));
                move || serve(&listener, &subject, &wake)
            })?;
        let server = Server {
            file: dir.join(RUN_FILE),
            subject,
            wake,
            thread: Some(thread),
        };
        // In one step, for commands that look at the same time.
        let new = dir.join(format!("{RUN_FILE}.new"));
        std::fs::write(&new, format!("{:#}\n", serde_json::to_value(&run)?))?;
        std::fs::rename(&new, &server.file)?;
        Ok(server)
    }
}

impl Server {
    /// What the threads of programs do, and what they wait for: lines for a report about a run that hangs.
    pub fn story(&self) -> Vec<String> {
        self.subject.story()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
        self.subject.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, subject: &Arc<Subject>, wake: &OwnedFd) {
    let mut asked: Vec<JoinHandle<()>> = Vec::new();
    while !subject.is_over() {
        let mut fds =
            [listener.as_fd(), wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if poll(&mut fds, None).is_err() {
            continue;
        }
        asked.retain(|a| !a.is_finished());
        while let Ok((stream, _)) = listener.accept() {
            if pid_of(&stream).is_none() {
                continue;
            }
            if asked.len() >= MOST {
                let why = format!("{MOST} questions are being answered: ask again later");
                let _ = reply(&stream, &Reply::Refused(Refusal::Bad { why }));
                continue;
            }
            let subject = Arc::clone(subject);
            let answer = std::thread::Builder::new()
                .name("question".into())
                .spawn(move || subject.answer(&stream));
            asked.extend(answer);
        }
    }
    for a in asked {
        let _ = a.join();
    }
}

fn reply(mut stream: &UnixStream, reply: &Reply) -> std::io::Result<()> {
    let text = serde_json::to_string(reply)?;
    stream.set_nonblocking(false)?;
    stream.write_all(format!("{text}\n").as_bytes())
}

/// The question on a connection, if one comes in time.
fn question(stream: &UnixStream) -> Result<Question, Refusal> {
    let bad = |e: &dyn std::fmt::Display| Refusal::Bad {
        why: format!("not a question: {e}"),
    };
    let mut line = String::new();
    stream
        .set_read_timeout(Some(QUESTION))
        .and_then(|()| BufReader::new(stream.take(MAX_LINE)).read_line(&mut line))
        .map_err(|e| bad(&e))?;
    serde_json::from_str(&line).map_err(|e| bad(&e))
}

/// Whether the command that asked has closed the connection, or said that it waits no longer.
fn has_gone(mut stream: &UnixStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(n) => n == 0,
        Err(e) => !again(&e),
    }
}

/// A thread that is to be moved.
struct Begun {
    since: Instant,
    id: u32,
    word: Word,
    found: Found,
    /// Where it was.
    first: Glance,
    /// Where it is to go.
    to: NodeId,
    /// Name of its program.
    name: String,
}

impl Begun {
    /// Whether it was there when it was looked at first.
    fn was_there(&self) -> bool {
        self.first.at() == Some(self.to)
    }

    /// That it has been moved, and is as it is seen now.
    fn moved(&self, now: Glance, interpreted: Option<Interpreted>) -> Moved {
        let index = |glance: Glance| glance.at().unwrap_or(glance.owner.node).index();
        Moved {
            program: self.name.clone(),
            thread: self.word.thread,
            from: index(self.first),
            to: self.to.index(),
            now: index(now),
            already: self.was_there(),
            ms: self.since.elapsed().as_secs_f64() * 1e3,
            migrations: now.migrations,
            interpreted,
        }
    }

    fn timed_out(&self, wait: Duration, taken: bool) -> Refusal {
        Refusal::TimedOut {
            program: self.name.clone(),
            thread: self.word.thread,
            ms: wait.as_millis() as u64,
            taken,
        }
    }

    /// That init has refused to ask it.
    fn refused(&self, why: Refused) -> Refusal {
        match why {
            Refused::NotFound => Refusal::NoThread {
                program: self.name.clone(),
                thread: self.word.thread,
            },
            Refused::NodeDead => Refusal::NodeDead {
                node: self.to.index(),
            },
            e => Refusal::Refused { why: e.to_string() },
        }
    }
}

/// A request that is waited for.
struct Pending {
    id: u32,
    word: Word,
    what: u64,
    /// Its number among those to any thread.
    number: u64,
}

impl Subject {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn answer(&self, stream: &UnixStream) {
        let answer = match question(stream) {
            Ok(Question::Threads) => {
                let nodes: Vec<String> = self.nodes.iter().map(Isa::to_string).collect();
                Reply::Threads(threads::rows(&self.channel.state(), &self.programs, &nodes))
            }
            Ok(Question::Migrate(wanted)) => {
                let nonblocking = stream.set_nonblocking(true).is_ok();
                match self.migrate(&wanted, &|| nonblocking && has_gone(stream)) {
                    Ok(moved) => Reply::Moved(moved),
                    Err(why) => Reply::Refused(why),
                }
            }
            Ok(Question::Emulate(wanted)) => {
                let nonblocking = stream.set_nonblocking(true).is_ok();
                match self.emulate(&wanted, &|| nonblocking && has_gone(stream)) {
                    Ok(moved) => Reply::Moved(moved),
                    Err(why) => Reply::Refused(why),
                }
            }
            Err(why) => Reply::Refused(why),
        };
        // There may be nobody left who wants to know.
        let _ = reply(stream, &answer);
    }

    fn story(&self) -> Vec<String> {
        let state = self.channel.state();
        let mut all = Vec::new();
        let mut answers = true;
        for found in threads::all(&state) {
            let Some((number, thread)) = threads::of_id(found.id) else {
                continue;
            };
            let named = self.programs.iter().find(|p| p.number == number);
            let (Some(named), Look::Seen(now)) = (named, threads::look(&state, found)) else {
                continue;
            };
            let of = Word {
                program: number as u8,
                thread: thread as u16,
            };
            // A system that does not answer once is not waited for again.
            let waiting = answers.then(|| self.channel.waiting(of));
            let waiting = match waiting {
                Some(Ok(waiting)) => waiting.unwrap_or(None),
                _ => {
                    answers = false;
                    None
                }
            };
            all.push(Waits {
                program: named.name.clone(),
                thread,
                node: now.owner.node.index(),
                state: threads::state_name(now.owner.state),
                waiting,
            });
        }
        let mut lines = waits::story(&all);
        if !answers && !all.is_empty() {
            lines.push("init does not answer: what threads wait for is not known".into());
        }
        lines
    }

    fn is_alive(&self, node: NodeId) -> bool {
        let word = self.channel.state().node(node);
        word.is_some_and(|w| w.state.is_live())
    }

    fn named(&self, wanted: &Wanted) -> Result<&Named, Refusal> {
        let found = match &wanted.program {
            Some(name) => self.programs.iter().find(|p| p.name == *name),
            None => self.programs.iter().find(|p| p.number == program::FIRST),
        };
        found.ok_or_else(|| Refusal::NoProgram {
            name: wanted.program.clone().unwrap_or_default(),
            there: self.programs.iter().map(|p| p.name.clone()).collect(),
        })
    }

    /// The node that is meant, for a thread that is on `here`.
    fn target(&self, to: Target, here: Option<NodeId>) -> Result<NodeId, Refusal> {
        let all = || NodeId::first(self.nodes.len());
        let found = match to {
            Target::Node(n) => all().find(|node| node.index() as u64 == n),
            Target::Isa(isa) => {
                let fits = |&n: &NodeId| self.nodes[n.index()].index() as u64 == isa;
                here.filter(fits)
                    .or_else(|| all().filter(fits).find(|&n| self.is_alive(n)))
            }
        };
        let node = found.ok_or_else(|| Refusal::NoNode {
            to: to.to_string(),
            there: all()
                .map(|n| format!("{n} {}", self.nodes[n.index()]))
                .collect(),
        })?;
        match self.is_alive(node) {
            true => Ok(node),
            false => Err(Refusal::NodeDead { node: node.index() }),
        }
    }

    /// Finds the thread, and where it is to go.
    fn begin(&self, state: &SharedState<'_>, wanted: &Wanted) -> Result<Begun, Refusal> {
        let since = Instant::now();
        let named = self.named(wanted)?;
        let none = || Refusal::NoThread {
            program: named.name.clone(),
            thread: wanted.thread,
        };
        let id = thread_id(named.number, wanted.thread.into());
        if threads::of_id(id.into()) != Some((named.number, wanted.thread.into())) {
            return Err(none());
        }
        let found = threads::find(state, id).ok_or_else(none)?;
        let first = match threads::look(state, found) {
            Look::Seen(first) if !first.is_gone() => first,
            Look::Blurred => {
                let why = "the thread changes hands too fast to be looked at: ask again".into();
                return Err(Refusal::Bad { why });
            }
            Look::Seen(_) | Look::Gone => return Err(none()),
        };
        Ok(Begun {
            since,
            id,
            word: Word {
                program: named.number as u8,
                thread: wanted.thread,
            },
            found,
            first,
            to: self.target(wanted.to, first.at())?,
            name: named.name.clone(),
        })
    }

    fn migrate(&self, wanted: &Wanted, gone: &dyn Fn() -> bool) -> Result<Moved, Refusal> {
        let state = self.channel.state();
        let begun = self.begin(&state, wanted)?;
        if begun.was_there() {
            return Ok(begun.moved(begun.first, None));
        }
        let (found, to) = (begun.found, begun.to);
        let pending = self.put(&begun)?;
        let wait = Duration::from_millis(wanted.wait_ms).min(MAX_WAIT);
        let mut until = begun.since + wait;
        let mut next_ask = Instant::now() + ASK;
        let mut taken = false;
        let mut took: Option<Instant> = None;
        loop {
            if self.is_over() {
                return Err(Refusal::Ended);
            }
            if self.is_replaced(&pending) {
                return Err(Refusal::Replaced);
            }
            let seen = match threads::look(&state, found) {
                Look::Seen(now) if now.at() == Some(to) => {
                    // It may have come by itself.
                    let _ = self.withdraw(&pending);
                    return Ok(begun.moved(now, None));
                }
                Look::Seen(now) if !now.is_gone() => Some(now),
                Look::Blurred => None,
                Look::Seen(_) | Look::Gone => {
                    let _ = self.withdraw(&pending);
                    return Err(Refusal::Gone);
                }
            };
            if !self.is_alive(to) {
                let _ = self.withdraw(&pending);
                return Err(Refusal::NodeDead { node: to.index() });
            }
            if gone() {
                let taken = !self.withdraw(&pending)?;
                return Err(Refusal::Withdrawn { taken });
            }
            let instant = Instant::now();
            let hops = seen.filter(|now| now.migrations != begun.first.migrations);
            if let Some(now) = hops.filter(|_| instant >= next_ask) {
                // It goes to and fro, and may have been there between two looks. Or it has only been in
                // services elsewhere, and has not left yet.
                next_ask = instant + ASK;
                if took.is_some_and(|at| instant >= at + LAST_MOMENT) {
                    self.forget(&pending);
                    return Ok(begun.moved(now, None));
                }
                let asked = self
                    .channel
                    .change(pending.word, request::NONE, request::NONE);
                if matches!(asked, Ok(Ok(request::NONE))) {
                    took.get_or_insert(instant);
                }
            }
            if instant >= until {
                let late = begun.timed_out(wait, taken);
                if taken || self.withdraw(&pending)? {
                    return Err(late);
                }
                taken = true;
                until = instant + LAST_MOMENT;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks the thread, in the place of what it was asked before.
    fn put(&self, begun: &Begun) -> Result<Pending, Refusal> {
        let (id, word) = (begun.id, begun.word);
        let what = request::word(begun.to);
        let _one = self.putting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = {
            let mut newest = self.newest();
            newest.count += 1;
            let number = newest.count;
            newest.of.insert(id, number);
            number
        };
        match self.channel.put(word, what)? {
            Ok(_) => Ok(Pending {
                id,
                word,
                what,
                number,
            }),
            Err(e) => Err(begun.refused(e)),
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_replaced(&self, pending: &Pending) -> bool {
        let newest = self.newest().of.get(&pending.id).copied();
        newest.is_some_and(|n| n != pending.number)
    }

    fn forget(&self, pending: &Pending) {
        let mut newest = self.newest();
        if newest.of.get(&pending.id) == Some(&pending.number) {
            newest.of.remove(&pending.id);
        }
    }

    /// Takes a request back. `false`: the thread has taken it.
    fn withdraw(&self, pending: &Pending) -> Result<bool, Refusal> {
        let was = self
            .channel
            .change(pending.word, pending.what, request::NONE)?;
        self.forget(pending);
        // A program that has ended takes nothing.
        Ok(was.map_or(true, |was| was == pending.what))
    }
}
