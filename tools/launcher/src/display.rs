//! Printing a run: the merged consoles, and what the launcher itself has to say.
//!
//! Console lines go to standard output, with node, ISA, CPU and time before them; progress goes
//! to standard error: a status line that is rewritten on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use dyad_abi::Isa;
use dyad_abi::record::{EXIT_FAILED, Level};

use crate::console::{Line, Record};
use crate::launch::{Event, RunReport, Sink};
use crate::out::{People, people};
use crate::sim::Outcome;
use crate::{paths, size};

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// The program's output and failures.
    Quiet,
    /// What is going on.
    Normal,
    /// Everything.
    Verbose,
}

const NODE_COLOURS: [&str; 8] = ["36", "33", "35", "32", "34", "96", "93", "95"];
const RED: &str = "31";
const YELLOW: &str = "33";
const GREEN: &str = "32";
const GREY: &str = "90";

/// Prints events.
#[derive(Debug)]
pub struct Display<O: Write = People> {
    out: O,
    verbosity: Verbosity,
    colour: bool,
    /// Standard error is a terminal on which a status line can be rewritten.
    status_line: bool,
    status: String,
    shown: bool,
    started: Instant,
}

impl Display {
    /// A display on the streams for people.
    pub fn new(verbosity: Verbosity) -> Display {
        let out = people();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Display {
            colour: out.is_terminal() && !plain,
            status_line: std::io::stderr().is_terminal() && !plain && verbosity != Verbosity::Quiet,
            out,
            verbosity,
            status: String::new(),
            shown: false,
            started: Instant::now(),
        }
    }
}

impl Display<Vec<u8>> {
    /// A display that collects plain text.
    pub fn to_buffer(verbosity: Verbosity) -> Display<Vec<u8>> {
        Display {
            out: Vec::new(),
            verbosity,
            colour: false,
            status_line: false,
            status: String::new(),
            shown: false,
            started: Instant::now(),
        }
    }

    /// What has been collected.
    pub fn into_inner(self) -> Vec<u8> {
        self.out
    }
}

impl<O: Write> Display<O> {
    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    fn hide_status(&mut self) {
        if self.shown {
            eprint!("\r\x1b[2K");
            self.shown = false;
        }
    }

    fn show_status(&mut self) {
        if self.status_line && !self.status.is_empty() {
            let seconds = self.started.elapsed().as_secs_f64();
            let text: String = format!("[{seconds:5.1} s] {}", self.status)
                .chars()
                .take(terminal_width().saturating_sub(1))
                .collect();
            eprint!("\r\x1b[2K{text}");
            let _ = std::io::stderr().flush();
            self.shown = true;
        }
    }

    fn print(&mut self, text: &str) {
        self.hide_status();
        // A closed pipe must not end the run.
        let _ = writeln!(self.out, "{text}");
        let _ = self.out.flush();
        self.show_status();
    }

    fn prefix(&self, node: usize, isa: Isa, cpu: Option<u32>, time: &str) -> String {
        let cpu = cpu.map_or_else(|| "-".to_string(), |c| c.to_string());
        let place = format!("[{node} {:<9} {time:>11}]", format!("{isa}/{cpu}"));
        self.paint(NODE_COLOURS[node % NODE_COLOURS.len()], &place)
    }

    fn line(&mut self, node: usize, isa: Isa, at: Duration, line: &Line) {
        let host = format!("+{:.3}", at.as_secs_f64());
        match line {
            Line::Log {
                cpu,
                ns,
                level,
                text,
            } => {
                let wanted = match level {
                    Level::Debug => Verbosity::Verbose,
                    Level::Info => Verbosity::Normal,
                    Level::Warn | Level::Error | Level::User => Verbosity::Quiet,
                };
                if self.verbosity < wanted {
                    return;
                }
                let time = format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000);
                let prefix = self.prefix(node, isa, Some(*cpu), &time);
                let text = match level {
                    Level::Debug => self.paint(GREY, text),
                    Level::Warn => self.paint(YELLOW, text),
                    Level::Error => self.paint(RED, text),
                    Level::Info | Level::User => text.clone(),
                };
                self.print(&format!("{prefix} {text}"));
            }
            Line::Piece { line: piece, .. } => self.line(node, isa, at, piece),
            Line::Raw(text) => {
                if self.verbosity > Verbosity::Quiet && !text.trim().is_empty() {
                    let prefix = self.prefix(node, isa, None, &host);
                    self.print(&format!("{prefix} {text}"));
                }
            }
            Line::Record(record) => self.record(node, isa, &host, record),
        }
    }

    fn record(&mut self, node: usize, isa: Isa, host: &str, record: &Record) {
        // What the program beside reports does not count, and looks like it.
        let whose = record.beside().map(|n| format!("program {n}: "));
        let whose = whose.as_deref().unwrap_or_default();
        let (wanted, cpu, text) = match record {
            Record::Phase { name } => (
                Verbosity::Verbose,
                None,
                self.paint(GREY, &format!("phase: {name}")),
            ),
            Record::Check {
                name,
                ok: true,
                detail,
                ..
            } => {
                let text = format!("{whose}check {name}: ok{}", tail(detail));
                (Verbosity::Normal, None, self.paint(GREEN, &text))
            }
            Record::Check {
                name,
                ok: false,
                detail,
                ..
            } => {
                let text = format!("{whose}check {name}: FAILED{}", tail(detail));
                (Verbosity::Quiet, None, self.paint(RED, &text))
            }
            Record::Counter { name, value, .. } => {
                let text = format!("{whose}counter {name} += {value}");
                (Verbosity::Verbose, None, self.paint(GREY, &text))
            }
            Record::Panic {
                cpu,
                message,
                location,
            } => {
                let text = format!("kernel panic: {message} ({location})");
                (Verbosity::Quiet, Some(*cpu), self.paint(RED, &text))
            }
            Record::Status { cpu, doing } => {
                (Verbosity::Quiet, Some(*cpu), format!("was doing: {doing}"))
            }
            Record::Ktest {
                name,
                state,
                detail,
            } => {
                let text = format!("test {name}: {state}{}", tail(detail));
                match state.as_str() {
                    "start" => (Verbosity::Verbose, None, self.paint(GREY, &text)),
                    "ok" | "skipped" => (Verbosity::Normal, None, text),
                    _ => (Verbosity::Quiet, None, self.paint(RED, &text)),
                }
            }
            Record::Exit { code: 0, reason } => {
                let text = format!("exits with code 0{}", tail(reason));
                (Verbosity::Verbose, None, self.paint(GREY, &text))
            }
            Record::Exit { code, reason } => {
                let text = format!("exits with code {code}{}", tail(reason));
                let wanted = match *code {
                    // What has failed is said elsewhere.
                    EXIT_FAILED => Verbosity::Normal,
                    _ => Verbosity::Quiet,
                };
                (wanted, None, self.paint(YELLOW, &text))
            }
            // The supervisor sends it again, with names.
            Record::Backtrace { .. } => return,
        };
        if self.verbosity >= wanted {
            let prefix = self.prefix(node, isa, cpu, host);
            self.print(&format!("{prefix} {text}"));
        }
    }

    /// Prints how the run went.
    pub fn summary(&mut self, report: &RunReport) {
        self.status.clear();
        self.hide_status();
        let logs = match report.nodes.is_empty() {
            true => String::new(),
            false => format!("; logs in {}", paths::shown(&report.dir)),
        };
        let table = report.simulation.as_ref().map(Outcome::table);
        if let Some(table) = table.filter(|t| !t.is_empty())
            && self.verbosity > Verbosity::Quiet
        {
            self.print(table.trim_end());
        }
        if let Some(failure) = report.failure() {
            let text = self.paint(RED, "failed");
            let line = format!("{text}: {failure}{logs}");
            self.hide_status();
            eprintln!("{line}");
            return;
        }
        if self.verbosity == Verbosity::Quiet {
            return;
        }
        let h = report.host_ms;
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let checked = match report.ktests.len() {
            0 => plural(report.checks.len(), "check"),
            n => plural(n, "test result"),
        };
        let mut line = format!(
            "{}: {checked} passed on {} (build {:.1} s, boot {:.1} s, run {:.1} s, pools {})",
            self.paint(GREEN, "ok"),
            plural(report.nodes.len(), "node"),
            seconds(h.build),
            seconds(h.boot),
            seconds(h.run),
            size::show(report.config.pool_bytes()),
        );
        for (name, value) in &report.counters {
            line.push_str(&format!("; {name} {value}"));
        }
        line.push_str(&logs);
        self.print(&line);
    }
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn tail(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |w| match w.ws_col {
        0 => 80,
        n => n.into(),
    })
}

impl<O: Write> Sink for Display<O> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Progress(text) if self.status_line => {
                self.status = text.to_string();
                self.show_status();
            }
            Event::Progress(text) => {
                // In a log, one line per thing that is built will do.
                let head = text.split(": ").next().unwrap_or(text);
                if self.verbosity > Verbosity::Quiet && head != self.status {
                    eprintln!("{head}");
                }
                self.status = head.to_string();
            }
            Event::Status(text) => {
                self.hide_status();
                self.status = text.to_string();
                self.show_status();
            }
            Event::Detail(text) => {
                if self.verbosity == Verbosity::Verbose {
                    let text = self.paint(GREY, text);
                    self.print(&text);
                }
            }
            Event::Note(text) => {
                let text = self.paint(YELLOW, text);
                self.print(&text);
            }
            Event::Started { node, isa, pid } => {
                if self.verbosity == Verbosity::Verbose {
                    let text = self.paint(GREY, &format!("node {node} ({isa}) is process {pid}"));
                    self.print(&text);
                }
            }
            Event::Line {
                node,
                isa,
                host,
                line,
            } => self.line(node, isa, host, line),
            Event::Emulator {
                node,
                isa,
                host,
                text,
            } => {
                let prefix = self.prefix(node, isa, None, &format!("+{:.3}", host.as_secs_f64()));
                self.print(&format!("{prefix} {text}"));
            }
            Event::Backtrace {
                node,
                isa,
                title,
                lines,
            } => {
                self.print(&format!("node {node} ({isa}), {title}:"));
                for line in lines {
                    self.print(&format!("  {line}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(verbosity: Verbosity, lines: &[&str]) -> String {
        let mut d = Display::to_buffer(verbosity);
        for text in lines {
            for line in Line::decode(text.as_bytes()) {
                d.event(Event::Line {
                    node: 1,
                    isa: Isa::Aarch64,
                    host: Duration::from_millis(1500),
                    line: &line,
                });
            }
        }
        String::from_utf8(d.out).unwrap()
    }

    const LINES: [&str; 6] = [
        "firmware",
        "\u{1f}2 1234567890 D detail",
        "\u{1f}0 5000 I news",
        "\u{1f}0 6000 U output",
        "\u{1e}{\"type\":\"check\",\"name\":\"sum\",\"ok\":false,\"detail\":\"1 != 2\"}",
        "\u{1e}{\"type\":\"phase\",\"name\":\"joining\"}",
    ];

    #[test]
    fn lines_carry_node_cpu_and_time() {
        let text = printed(Verbosity::Verbose, &LINES);
        let expected = "\
[1 aarch64/-      +1.500] firmware
[1 aarch64/2    1.234567] detail
[1 aarch64/0    0.000005] news
[1 aarch64/0    0.000006] output
[1 aarch64/-      +1.500] check sum: FAILED (1 != 2)
[1 aarch64/-      +1.500] phase: joining
";
        assert_eq!(text, expected);
    }

    #[test]
    fn reports_of_the_program_beside_look_like_it() {
        let of = |program: &str| {
            let check = format!(
                "\u{1e}{{\"type\":\"check\",\"name\":\"a\",\"ok\":false,\"detail\":\"\\n[0]\"{program}}}"
            );
            let counter =
                format!("\u{1e}{{\"type\":\"counter\",\"name\":\"n\",\"value\":2{program}}}");
            printed(Verbosity::Verbose, &[&check, &counter])
        };
        let at = "[1 aarch64/-      +1.500]";
        let own = format!("{at} check a: FAILED (\\n[0])\n{at} counter n += 2\n");
        assert_eq!(of(""), own);
        assert_eq!(of(",\"program\":8"), own);
        let beside =
            format!("{at} program 9: check a: FAILED (\\n[0])\n{at} program 9: counter n += 2\n");
        assert_eq!(of(",\"program\":9"), beside);
    }

    #[test]
    fn quiet_keeps_output_and_failures() {
        let text = printed(Verbosity::Quiet, &LINES);
        assert!(text.contains("output") && text.contains("FAILED"));
        for dropped in ["news", "detail", "firmware", "phase"] {
            assert!(!text.contains(dropped), "{text}");
        }
        let text = printed(Verbosity::Normal, &LINES);
        assert!(text.contains("news") && !text.contains("detail") && !text.contains("phase"));
    }
}
