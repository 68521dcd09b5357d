//! What stops a machine: signals, a debugger, death.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dyad_launcher::launch::Event;

use super::LIMIT;
use crate::kill::signal;

/// Something that can stop a machine.
pub trait Hold: Send {
    /// Stops it; it has been seen to stand still when this returns.
    fn stop(&mut self) -> Result<(), String>;
    /// Lets it go on.
    fn go_on(&mut self) -> Result<(), String>;
}

/// A process, stopped by signals.
struct Process(u32);

impl Hold for Process {
    fn stop(&mut self) -> Result<(), String> {
        signal(self.0, "STOP")?;
        let begin = Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0));
            let stat = stat.map_err(|e| format!("the process is gone: {e}"))?;
            let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            if state.starts_with('T') {
                return Ok(());
            }
            if begin.elapsed() > LIMIT {
                return Err(format!("not stopped: {stat}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn go_on(&mut self) -> Result<(), String> {
        signal(self.0, "CONT")
    }
}

/// A machine in a debugger: as much of gdb's remote protocol as it takes to stop it and to let it go
/// on.
struct Debugger(TcpStream);

impl Debugger {
    /// Connects to a machine that may not have been started yet, and which does not run before it is
    /// told to.
    fn connect(port: u16) -> Result<Debugger, String> {
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) if begin.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(format!("no debugger's port {port}: {e}")),
            }
        };
        let limit = stream.set_read_timeout(Some(LIMIT));
        limit.map_err(|e| e.to_string())?;
        Ok(Debugger(stream))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.0.write_all(bytes);
        sent.map_err(|e| format!("the debugger cannot send: {e}"))
    }

    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        let read = self.0.read_exact(&mut byte);
        read.map_err(|e| format!("the debugger hears nothing: {e}"))?;
        Ok(byte[0])
    }

    /// The next packet's text, confirmed.
    fn packet(&mut self) -> Result<String, String> {
        while self.byte()? != b'$' {}
        let mut text = String::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => text.push(char::from(byte)),
            }
        }
        // Its checksum.
        self.byte()?;
        self.byte()?;
        self.send(b"+")?;
        Ok(text)
    }
}

impl Hold for Debugger {
    fn stop(&mut self) -> Result<(), String> {
        self.send(b"\x03")?;
        // "T05...", or "T02...": why it stands still.
        let said = self.packet()?;
        match said.starts_with('T') {
            true => Ok(()),
            false => Err(format!("the machine did not stop: {said:?}")),
        }
    }

    fn go_on(&mut self) -> Result<(), String> {
        self.send(b"$c#63")
    }
}

/// A process that is killed.
struct Killed(u32);

impl Hold for Killed {
    fn stop(&mut self) -> Result<(), String> {
        signal(self.0, "KILL")?;
        let begin = Instant::now();
        // Until it has been reaped, or is about to be.
        while let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.0)) {
            let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            if state.starts_with('Z') {
                break;
            }
            if begin.elapsed() > LIMIT {
                return Err(format!("not dead: {stat}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// By what a machine is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Stop,
    Debugger,
    Kill,
}

/// Something that will be able to.
pub type Holder = JoinHandle<Result<Box<dyn Hold>, String>>;

impl By {
    /// Node and holder, if the launcher tells of a machine that can be held up so.
    pub fn find(self, event: &Event<'_>) -> Option<(usize, Holder)> {
        match (self, event) {
            (By::Stop, &Event::Started { node, pid, .. }) => Some((
                node,
                std::thread::spawn(move || Ok(Box::new(Process(pid)) as _)),
            )),
            (By::Kill, &Event::Started { node, pid, .. }) => Some((
                node,
                std::thread::spawn(move || Ok(Box::new(Killed(pid)) as _)),
            )),
            (By::Debugger, Event::Note(text)) => {
                let (node, rest) = text.strip_prefix("node ")?.split_once(' ')?;
                let (_, port) = rest.split_once("target remote 127.0.0.1:")?;
                let port = port.trim_end_matches('\'').parse().ok()?;
                // The machine waits for a debugger that starts it.
                let start = move || {
                    let mut debugger = Debugger::connect(port)?;
                    debugger.go_on()?;
                    Ok(Box::new(debugger) as _)
                };
                Some((node.parse().ok()?, std::thread::spawn(start)))
            }
            _ => None,
        }
    }
}
