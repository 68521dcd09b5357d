//! Supervision: from the start of the first machine to the end of the last.
//!
//! ```text
//!            all machines have ended
//! RUNNING ─────────────────────────────▶ done
//!    │  a node died (policy `end`), time limit, Ctrl-C, a node lingers
//!    ▼
//! STOPPING: survivors asked to report and to exit ──2 s──▶ KILLING ──▶ done
//! ```
//!
//! With policy `survive` or `restart` a dead node is marked DEAD in the superblock once its
//! machine has been reaped, and the others are told by doorbell; with `restart` its machine is
//! started again as soon as the others have freed its place.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use dyad_abi::boot::OnDeath;
use dyad_abi::record::{EXIT_BOOT, EXIT_OK, Level};
use dyad_shm::superblock::NodeState;

use super::dir::{plugins_file, sim_file};
use super::node::{Message, Node, Outcome, Stream};
use super::prepare::System;
use super::report::{KtestResult, NodeReport};
use super::{Event, RunReport, Sink};
use crate::config::RunConfig;
use crate::console::{Line, Record, printable};
use crate::error::Error;
use crate::signals;
use crate::state::SharedState;
use crate::symbol;

/// How often the loop looks at machines and clocks when no line arrives.
const TICK: Duration = Duration::from_millis(20);
/// Lines waiting to be handled before machines are held back.
const BACKLOG: usize = 4096;
/// How long survivors may take to report and exit.
const REPORT_TIME: Duration = Duration::from_secs(2);
/// How long a machine may take to end after its kernel has panicked.
const PANIC_TIME: Duration = Duration::from_secs(1);
/// How long a machine may go on after another has shut down in good order.
const LINGER: Duration = Duration::from_secs(20);
/// After this long a dead node's machine is started again even if no node has freed its place.
const RESTART_WAIT: Duration = Duration::from_secs(5);
/// How often one node is started again.
const MAX_RESTARTS: u32 = 3;
/// Last lines of an emulator that are quoted when it dies.
const QUOTED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Stopping(Instant),
    Killing,
}

/// A running system.
pub(super) struct Supervisor<'a> {
    config: &'a RunConfig,
    system: System,
    report: &'a mut RunReport,
    sink: &'a mut dyn Sink,
    to: SyncSender<Message>,
    from: Receiver<Message>,
    stage: Stage,
    started: Instant,
    live_at: Option<Instant>,
    first_exit: Option<(usize, Instant)>,
    status: String,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        config: &'a RunConfig,
        system: System,
        report: &'a mut RunReport,
        sink: &'a mut dyn Sink,
    ) -> Supervisor<'a> {
        let (to, from) = sync_channel(BACKLOG);
        Supervisor {
            config,
            system,
            report,
            sink,
            to,
            from,
            stage: Stage::Running,
            started: Instant::now(),
            live_at: None,
            first_exit: None,
            status: String::new(),
        }
    }

    /// Starts the machines and stays until they have ended.
    pub(super) fn run(mut self) -> Result<(), Error> {
        self.started = Instant::now();
        self.sink.event(Event::Status("starting the machines"));
        for i in 0..self.system.nodes.len() {
            self.start(i)?;
        }
        while self
            .nodes()
            .iter()
            .any(|n| n.is_running() || n.waits_since.is_some())
        {
            match self.from.recv_timeout(TICK) {
                Ok(message) => {
                    self.handle(message);
                    // A node that floods its console must not keep the clocks from being read.
                    for _ in 0..BACKLOG {
                        let Ok(message) = self.from.try_recv() else {
                            break;
                        };
                        self.handle(message);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.look_at_machines();
            self.look_at_clocks();
        }
        self.finish();
        Ok(())
    }

    fn nodes(&self) -> &[Node] {
        &self.system.nodes
    }

    fn start(&mut self, i: usize) -> Result<(), Error> {
        let node = &mut self.system.nodes[i];
        node.start(&self.to)?;
        let pid = node.pid().unwrap_or_default();
        let isa = node.isa;
        self.sink.event(Event::Started { node: i, isa, pid });
        Ok(())
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::End { node, life } => {
                if self.system.nodes[node].life == life {
                    let host = self.started.elapsed();
                    let begun: Vec<_> = self.system.nodes[node].joiner.finish().collect();
                    for line in begun {
                        self.line(node, host, line);
                    }
                }
                self.system.nodes[node].stream_ended(life);
            }
            Message::Line {
                node,
                life,
                stream,
                bytes,
                at,
            } => {
                if self.system.nodes[node].life != life {
                    return;
                }
                let host = at.duration_since(self.started);
                match stream {
                    Stream::Console => {
                        self.system.nodes[node].keep(&bytes);
                        for line in Line::decode(&bytes) {
                            if let Some(line) = self.system.nodes[node].joiner.join(line) {
                                self.line(node, host, line);
                            }
                        }
                    }
                    Stream::Emulator => {
                        let text = printable(&bytes);
                        let isa = self.nodes()[node].isa;
                        self.sink.event(Event::Emulator {
                            node,
                            isa,
                            host,
                            text: &text,
                        });
                        self.system.nodes[node].emulator.push(text);
                    }
                }
            }
        }
    }

    fn line(&mut self, i: usize, host: Duration, mut line: Line) {
        let node = &mut self.system.nodes[i];
        match &mut line {
            Line::Raw(text) => *text = node.symbols.annotate(text),
            Line::Log { level, text, .. } if *level >= Level::Warn && *level != Level::User => {
                *text = node.symbols.annotate(text);
            }
            // Only what init says about programs, and where programs say that they panic: what else they say is
            // theirs.
            Line::Log { text, .. } => {
                let fault = symbol::fault(text);
                if let Some((pc, service)) = fault.and_then(|f| Some((f.pc, f.service?))) {
                    node.faulted = Some((pc, service.into()));
                }
                if let Some(fault) = fault
                    && let Some(of) = self.system.nodes.iter_mut().find(|n| n.isa == fault.isa)
                    && let Some(name) = of.symbols_of(fault.service).name(fault.pc)
                {
                    let end = fault.end;
                    text.insert_str(end, &format!(" <{name}>"));
                } else if let Some((pcs, isa)) = symbol::callers(text)
                    && let Some(of) = self.system.nodes.iter_mut().find(|n| n.isa == isa)
                    && let Some(own) = of.symbols.own_callers(&pcs)
                {
                    *text = format!("  called from {own}");
                }
            }
            Line::Record(Record::Status { cpu, doing }) => {
                *doing = node.symbols.annotate(doing);
                node.status.push(format!("cpu {cpu}: {doing}"));
            }
            Line::Record(Record::Panic {
                cpu,
                message,
                location,
            }) => {
                node.panic.get_or_insert_with(|| {
                    (format!("{message} (cpu {cpu}, {location})"), Instant::now())
                });
            }
            Line::Record(_) | Line::Piece { .. } => {}
        }
        let isa = self.system.nodes[i].isa;
        self.sink.event(Event::Line {
            node: i,
            isa,
            host,
            line: &line,
        });
        if let Line::Record(record) = line {
            self.record(i, record);
        }
    }

    fn record(&mut self, i: usize, record: Record) {
        match record {
            Record::Phase { name } => {
                self.system.nodes[i].phase = name;
                self.show_status();
            }
            Record::Check { .. } | Record::Counter { .. } => self.report.take(i, record),
            Record::Ktest {
                name,
                state,
                detail,
            } => {
                let tests = &mut self.report.ktests;
                let known = tests.iter_mut().find(|t| t.node == i && t.name == name);
                match known {
                    Some(t) => (t.state, t.detail) = (state, detail),
                    None => tests.push(KtestResult {
                        node: i,
                        name,
                        state,
                        detail,
                    }),
                }
            }
            Record::Backtrace { cpu, what, pcs } => {
                let pcs = Record::addresses(&pcs);
                let node = &mut self.system.nodes[i];
                let lines = match what.as_str() {
                    "invoked" => node.backtrace_of_invoked(&pcs),
                    what => node.symbols.backtrace(&pcs, what == "user"),
                };
                let isa = node.isa;
                self.sink.event(Event::Backtrace {
                    node: i,
                    isa,
                    title: &format!("{what} backtrace of cpu {cpu}"),
                    lines: &lines,
                });
            }
            Record::Exit { reason, .. } => self.system.nodes[i].reason = Some(reason),
            Record::Status { .. } | Record::Panic { .. } => {}
        }
    }

    /// Tells people who wait what the nodes are doing.
    fn show_status(&mut self) {
        let parts: Vec<String> = self
            .nodes()
            .iter()
            .filter(|n| n.is_running())
            .map(|n| {
                let phase = if n.phase.is_empty() {
                    "starting"
                } else {
                    &n.phase
                };
                format!("{}: {phase}", n.name())
            })
            .collect();
        let status = parts.join(", ");
        if status != self.status {
            self.sink.event(Event::Status(&status));
            self.status = status;
        }
    }

    // --- machines that end -------------------------------------------------------------------

    fn look_at_machines(&mut self) {
        for i in 0..self.system.nodes.len() {
            if self.system.nodes[i].reap() {
                self.ended(i);
            }
            self.restart_if_due(i);
        }
    }

    fn ended(&mut self, i: usize) {
        let node = &self.system.nodes[i];
        let Some(outcome) = node.outcome.clone() else {
            return;
        };
        if let (Some(clock), Some(pid)) = (&self.system.clock, node.last_pid) {
            // Before the others are told: who is asleep looks again when it is rung.
            clock.mark_ended(node.id, pid);
        }
        let text = format!("{} {}", node.name(), outcome.text());
        self.sink.event(Event::Detail(&text));
        if !outcome.is_death() {
            self.first_exit.get_or_insert((i, Instant::now()));
            return;
        }
        let _ = self.mark_dead(i);
        if self.stage != Stage::Running {
            return;
        }
        let story = self.death_story(i);
        let alone = !self.nodes().iter().any(Node::is_running);
        let formatted = SharedState::new(self.system.pools.cxl()).is_ready();
        match self.config.on_death {
            // Before the superblock is formatted there is no system that could go on.
            OnDeath::Survive | OnDeath::Restart if formatted && !alone => {
                self.go_on_without(i, &story);
            }
            _ => self.stop(Error::Run(story)),
        }
    }

    fn mark_dead(&self, i: usize) -> Result<(), Error> {
        let state = SharedState::new(self.system.pools.cxl());
        let node = &self.nodes()[i];
        // A node that never joined leaves its place free for its next life.
        let vacant = state
            .node(node.id)
            .is_some_and(|w| w.state == NodeState::Vacant);
        if vacant && self.config.on_death == OnDeath::Restart {
            return Ok(());
        }
        state.mark_dead(node.id)
    }

    fn go_on_without(&mut self, i: usize, story: &str) {
        self.sink.event(Event::Note(&format!(
            "{story}; the others go on (--on-death {})",
            self.config.on_death.name()
        )));
        self.system.broker.ring_all(self.config.cpus);
        let node = &mut self.system.nodes[i];
        if self.config.on_death == OnDeath::Survive {
            node.excused = true;
        } else if node.life > MAX_RESTARTS {
            self.stop(Error::Run(format!(
                "{story}, after it had been started again {MAX_RESTARTS} times"
            )));
        } else {
            node.waits_since = Some(Instant::now());
        }
    }

    fn restart_if_due(&mut self, i: usize) {
        let Some(since) = self.nodes()[i].waits_since else {
            return;
        };
        let others_run = self.nodes().iter().any(Node::is_running);
        if self.stage != Stage::Running || !others_run {
            // No node is left that it could join.
            self.system.nodes[i].waits_since = None;
            self.system.nodes[i].excused = others_run || self.first_exit.is_some();
            return;
        }
        let state = SharedState::new(self.system.pools.cxl());
        let word = state.node(self.nodes()[i].id);
        let vacant = word.is_some_and(|w| w.state == NodeState::Vacant);
        if vacant || since.elapsed() >= RESTART_WAIT {
            let name = self.nodes()[i].name();
            self.sink
                .event(Event::Note(&format!("starting {name} again")));
            if let Err(e) = self.start(i) {
                self.stop(e);
            }
        }
    }

    /// What is known about the death of a node.
    fn death_story(&self, i: usize) -> String {
        let node = &self.nodes()[i];
        let how = node.outcome.as_ref().map(Outcome::text).unwrap_or_default();
        let mut story = match node.outcome {
            Some(Outcome::Code(EXIT_BOOT)) => format!("{} could not boot or join", node.name()),
            _ => format!("{} died: it {how}", node.name()),
        };
        if let Some((panic, _)) = &node.panic {
            story.push_str(&format!(": {panic}"));
        } else if let Some(reason) = node.reason.as_ref().filter(|r| !r.is_empty()) {
            story.push_str(&format!(": {reason}"));
        } else if matches!(node.outcome, Some(Outcome::Died(_))) {
            let from = node.emulator.len().saturating_sub(QUOTED);
            for line in &node.emulator[from..] {
                story.push_str(&format!(": {line}"));
            }
        }
        story
    }

    // --- stopping ----------------------------------------------------------------------------

    /// Ends the run: the survivors are asked what they are doing, and get a moment to say it.
    fn stop(&mut self, why: Error) {
        if self.stage != Stage::Running {
            return;
        }
        self.sink
            .event(Event::Note(&format!("{why}; ending the run")));
        self.report.error = Some(why);
        self.stage = Stage::Stopping(Instant::now() + REPORT_TIME);
        let dead = |n: &&Node| n.outcome.as_ref().is_some_and(Outcome::is_death);
        let mask: u64 = self
            .nodes()
            .iter()
            .filter(dead)
            .map(|n| 1 << n.id.index())
            .sum();
        if SharedState::new(self.system.pools.cxl())
            .stop_all(mask)
            .is_ok()
        {
            self.system.broker.ring_all(self.config.cpus);
        }
    }

    fn kill_all(&mut self) {
        self.stage = Stage::Killing;
        for node in &mut self.system.nodes {
            node.kill();
        }
    }

    fn look_at_clocks(&mut self) {
        let now = Instant::now();
        match signals::count() {
            0 => {}
            1 => self.stop(Error::Interrupted),
            _ => {
                self.stop(Error::Interrupted);
                self.kill_all();
            }
        }
        if let Stage::Stopping(until) = self.stage
            && now >= until
        {
            self.kill_all();
        }
        for node in &mut self.system.nodes {
            if node
                .panic
                .as_ref()
                .is_some_and(|(_, at)| now - *at >= PANIC_TIME)
            {
                node.kill();
            }
        }
        if self.stage == Stage::Running {
            self.look_at_limits(now);
        }
        if self.live_at.is_none() && self.all_live() {
            self.live_at = Some(now);
        }
    }

    fn look_at_limits(&mut self, now: Instant) {
        if let Some(limit) = self.config.timeout
            && now - self.started >= limit
        {
            // While it still answers.
            for line in self.system.questions.story() {
                self.sink.event(Event::Note(&line));
            }
            self.stop(Error::Run(format!(
                "the time limit of {} s has passed (--timeout)",
                limit.as_secs()
            )));
        }
        if let Some((first, at)) = self.first_exit
            && now - at >= LINGER
            && !self.config.gdb
        {
            let late: Vec<String> = self
                .nodes()
                .iter()
                .filter(|n| n.is_running())
                .map(Node::name)
                .collect();
            self.stop(Error::Run(format!(
                "{} still running {} s after {} had ended",
                late.join(", "),
                LINGER.as_secs(),
                self.nodes()[first].name()
            )));
        }
    }

    fn all_live(&self) -> bool {
        let state = SharedState::new(self.system.pools.cxl());
        let up = |n: &Node| {
            let word = state.node(n.id).map(|w| w.state);
            matches!(word, Some(NodeState::Live | NodeState::Left))
        };
        state.is_ready() && self.nodes().iter().all(up)
    }

    // --- the end -----------------------------------------------------------------------------

    fn finish(self) {
        let end = Instant::now();
        let live_at = self.live_at.unwrap_or(end);
        let ms = |d: Duration| d.as_millis() as u64;
        self.report.host_ms.boot = ms(live_at.duration_since(self.started));
        self.report.host_ms.run = ms(end.duration_since(live_at));
        if let Some(Error::Run(story)) = &mut self.report.error {
            for node in self.system.nodes.iter().filter(|n| !n.status.is_empty()) {
                let doing = node.status.join(", ");
                story.push_str(&format!("; {}: {doing}", node.name()));
            }
            for node in &self.system.nodes {
                let silent = node.status.is_empty() && node.outcome == Some(Outcome::Killed);
                if silent && !node.phase.is_empty() {
                    story.push_str(&format!("; {}: last phase {:?}", node.name(), node.phase));
                }
            }
        }
        for mut node in self.system.nodes {
            let outcome = node.outcome.take();
            let exit = match &outcome {
                Some(Outcome::Code(code)) => Some(*code),
                _ => None,
            };
            self.report.nodes.push(NodeReport {
                id: node.id.index(),
                isa: node.isa.name(),
                cpus: self.config.cpus,
                exit,
                ended: outcome.map_or_else(|| "was not started".into(), |o| o.text()),
                excused: node.excused && exit != Some(EXIT_OK),
                restarts: node.life.saturating_sub(1),
                sim: sim_report(&self.report.dir, node.id.index()),
                plugins: std::fs::read_to_string(plugins_file(&self.report.dir, node.id.index()))
                    .ok(),
                log: node.log.clone(),
                console: std::mem::take(&mut node.console),
            });
        }
        super::judge(self.report, self.config.kernels, self.config.work_name());
    }
}

/// What the plugin of a node's machine has reported, if there was one.
fn sim_report(dir: &Path, node: usize) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(sim_file(dir, node)).ok()?;
    serde_json::from_str(&text).ok()
}
