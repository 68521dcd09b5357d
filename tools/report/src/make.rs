//! Runs commands and keeps their results as records.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dyad_launcher::error::Error;
use dyad_launcher::signals;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bounds::Bounds;
use crate::document::Records;
use crate::measurements::{self, Measurement, Size};
use crate::records::{Fingerprint, Record, SCHEMA, Unusable};
use crate::rows::Row;

/// How often a command that runs is looked at.
const POLL: Duration = Duration::from_millis(200);
/// How long a command that was told to end may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is made, and what is reused.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much is measured.
    pub size: Size,
    /// Where records are.
    pub dir: PathBuf,
    /// Whether records of this version are reused.
    pub resume: bool,
    /// Whether nothing is measured: rows come from the records that there are.
    pub offline: bool,
    /// Records of other versions are kept and shown.
    pub mixed: bool,
    /// The end of all measurements, if there is one.
    pub limit: Option<Duration>,
}

/// The measurements that rows need, in the order in which they are made.
pub fn needed(rows: &[Row]) -> Vec<&'static Measurement> {
    let is = |m: &&Measurement| rows.iter().any(|r| r.measurements().contains(&m.name));
    measurements::ALL.iter().filter(is).collect()
}

impl Plan {
    /// The file of a measurement's record.
    pub fn file(&self, measurement: &str) -> PathBuf {
        self.dir.join(format!("{measurement}.json"))
    }

    fn read(&self, one: &Measurement) -> Result<Record, Unusable> {
        let command = one.command(self.size).unwrap_or_default();
        Record::read(&self.file(one.name), one.name, &command)
    }

    /// Reads records, and measures what is missing. Whether it was interrupted stands beside them.
    ///
    /// # Errors
    ///
    /// If a record cannot be written.
    pub fn records(
        &self,
        rows: &[Row],
        bounds: &Bounds,
        fingerprint: &Fingerprint,
        say: &mut dyn FnMut(&str),
    ) -> Result<(Records, bool), Error> {
        let mut records = Records::new();
        let mut to_make = Vec::new();
        for one in needed(rows) {
            let found = self.read(one);
            let is_present = match &found {
                Ok(record) => record.fingerprint == *fingerprint,
                Err(_) => false,
            };
            let reuse =
                self.offline || (self.resume && (is_present || (self.mixed && found.is_ok())));
            if !reuse && one.command(self.size).is_some() {
                to_make.push(one);
                continue;
            }
            records.insert(one.name, found.map_err(|why| why.to_string()));
        }
        let begin = Instant::now();
        let mut interrupted = false;
        for (n, one) in to_make.iter().enumerate() {
            let left: u32 = to_make[n..].iter().map(|m| m.seconds(self.size)).sum();
            let deadline = self.limit.map(|limit| begin + limit);
            let over = || "not run: the time of the report was over".to_string();
            let why = match () {
                () if interrupted => Some("not run: the report was interrupted".to_string()),
                () if deadline.is_some_and(|end| Instant::now() >= end) => Some(over()),
                () => None,
            };
            if let Some(why) = why {
                records.insert(one.name, Err(why));
                continue;
            }
            say(&format!(
                "[{}/{}] {}: about {} left",
                n + 1,
                to_make.len(),
                one.command(self.size).unwrap_or_default(),
                minutes(left)
            ));
            match self.make(one, bounds, fingerprint, deadline)? {
                Made::Record(record) => _ = records.insert(one.name, Ok(*record)),
                Made::Failed(why) => {
                    say(&format!("{}: {why}", one.name));
                    records.insert(one.name, Err(why));
                }
                Made::Over => _ = records.insert(one.name, Err(over())),
                Made::Interrupted => {
                    interrupted = true;
                    records.insert(one.name, Err("not run: the report was interrupted".into()));
                }
            }
        }
        Ok((records, interrupted))
    }

    /// Makes one measurement and writes its record.
    fn make(
        &self,
        one: &Measurement,
        bounds: &Bounds,
        fingerprint: &Fingerprint,
        deadline: Option<Instant>,
    ) -> Result<Made, Error> {
        let io = |e: std::io::Error| Error::io(format_args!("cannot measure {}", one.name), e);
        std::fs::create_dir_all(&self.dir).map_err(io)?;
        let beside = |what: &str| self.dir.join(format!("{}.{what}", one.name));
        let (document, log) = (beside("document"), beside("log"));
        // What an earlier report has left would be taken for the result of a command that writes none.
        for file in [&document, &self.file(one.name)] {
            remove(file).map_err(io)?;
        }
        let log = File::create(log).map_err(io)?;
        let mut command = Command::new(std::env::current_exe().map_err(io)?);
        command.args(one.arguments(self.size).unwrap_or_default());
        if one.has_table {
            let (csv, svg) = (beside("csv"), beside("svg"));
            // The table has the versions of its runs: the command makes those again that are of others.
            match self.resume {
                true => _ = command.arg("--resume"),
                false => remove(&csv).map_err(io)?,
            }
            command.arg("--csv").arg(csv).arg("--svg").arg(svg);
        }
        command.arg("--json").arg(&document);
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(io)?).stderr(log);
        let begin = Instant::now();
        let child = command.spawn().map_err(io)?;
        let end = wait(child, deadline).map_err(io)?;
        let text = std::fs::read_to_string(&document).unwrap_or_default();
        remove(&document).map_err(io)?;
        let status = match end {
            End::Exited(status) => status,
            // What a command writes that was ended is a failure, or a part.
            End::Over => return Ok(Made::Over),
            End::Interrupted => return Ok(Made::Interrupted),
        };
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            let log = format!("{}.log", one.name);
            return Ok(Made::Failed(format!(
                "the command left no result; see {log}"
            )));
        };
        // Of all rows: another report reads the record for rows that this one was not asked for.
        let of = crate::rows::all().filter(|r| r.measurements().contains(&one.name));
        let digests: BTreeMap<String, String> = of
            .map(|r| (r.id.to_string(), bounds.digest(r.id)))
            .collect();
        let record = Record {
            schema: SCHEMA.into(),
            measurement: one.name.into(),
            command: one.command(self.size).unwrap_or_default(),
            fingerprint: fingerprint.clone(),
            bounds: digests,
            seconds: begin.elapsed().as_secs(),
            status: status.code(),
            document: value,
            sha256: String::new(),
        }
        .sealed();
        record.write(&self.file(one.name)).map_err(io)?;
        Ok(Made::Record(Box::new(record)))
    }
}

/// How making a measurement ended.
enum Made {
    Record(Box<Record>),
    Failed(String),
    Over,
    Interrupted,
}

/// How a command ended.
enum End {
    Exited(ExitStatus),
    Over,
    Interrupted,
}

fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Waits for a command until a deadline, or until the user ends it all.
fn wait(mut child: Child, deadline: Option<Instant>) -> std::io::Result<End> {
    let signals_before = signals::count();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match signals::count() > signals_before {
                true => End::Interrupted,
                false => End::Exited(status),
            });
        }
        if signals::count() > signals_before {
            stop(&mut child)?;
            return Ok(End::Interrupted);
        }
        if deadline.is_some_and(|end| Instant::now() >= end) {
            stop(&mut child)?;
            return Ok(End::Over);
        }
        std::thread::sleep(POLL);
    }
}

/// Ends a command: it is asked first, so that it ends its machines.
fn stop(child: &mut Child) -> std::io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        kill_process(pid, Signal::TERM)?;
    }
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait().map(drop)
}

/// Seconds as text.
fn minutes(seconds: u32) -> String {
    match seconds {
        s if s < 90 => format!("{s} s"),
        s => format!("{} min", s.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::{Scratch, record};

    fn plan(dir: &Path) -> Plan {
        Plan {
            size: Size::Quick,
            dir: dir.into(),
            resume: false,
            offline: true,
            mixed: false,
            limit: None,
        }
    }

    #[test]
    fn records_that_are_there_are_read_and_others_are_said_to_be_missing() {
        let dir = Scratch::new("make");
        let plan = plan(&dir.0);
        let rows: Vec<Row> = crate::rows::all()
            .filter(|r| r.id.starts_with("CH-"))
            .collect();
        let names: Vec<&str> = needed(&rows).iter().map(|m| m.name).collect();
        assert_eq!(names, ["kernel", "kv"]);
        let kv = measurements::named("kv").unwrap();
        let command = kv.command(Size::Quick).unwrap();
        let good = record("kv", &command, Value::Null);
        good.write(&plan.file("kv")).unwrap();
        let bounds = Bounds::default();
        let read = || {
            plan.records(&rows, &bounds, &Fingerprint::default(), &mut |_| ())
                .unwrap()
        };
        let (records, interrupted) = read();
        assert!(!interrupted);
        assert_eq!(records["kv"], Ok(good));
        assert_eq!(records["kernel"], Err("there is no record".into()));
        let text = std::fs::read_to_string(plan.file("kv")).unwrap();
        std::fs::write(plan.file("kv"), &text[..text.len() / 2]).unwrap();
        let why = read().0["kv"].clone().unwrap_err();
        assert!(why.starts_with("the record is not whole"), "{why}");
        std::fs::write(plan.file("kv"), text.replace("null", "3")).unwrap();
        let why = read().0["kv"].clone().unwrap_err();
        assert!(why.contains("changed after it was written"), "{why}");
    }

    #[test]
    fn commands_end_at_the_deadline() {
        let child = || Command::new("sleep").arg("60").spawn().unwrap();
        let end = wait(child(), Some(Instant::now())).unwrap();
        assert!(matches!(end, End::Over));
        let done = Command::new("true").spawn().unwrap();
        assert!(matches!(wait(done, None).unwrap(), End::Exited(s) if s.success()));
    }

    #[test]
    fn times_are_shown_in_minutes() {
        assert_eq!(
            (minutes(40).as_str(), minutes(121).as_str()),
            ("40 s", "3 min")
        );
    }
}
