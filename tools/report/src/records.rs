//! Records: the result of a command with what it was made with, and a digest by which changes show.
//!
//! A record is a file `target/report/SIZE/MEASUREMENT.json` of the schema `dyad.record/1`: `fingerprint`, `bounds` (digests of the
//! bounds of rows when it was measured), `seconds`, `status` of the command, `document` (what the command wrote with `--json`), and
//! `sha256` of all of these.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use dyad_launcher::paths;
use dyad_launcher::setup::qemu_program;
use dyad_launcher::sim::versions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Name and version of the form of records.
pub const SCHEMA: &str = "dyad.record/1";

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a measurement was made with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The commit of the sources, with `-dirty` if they have been changed since.
    pub commit: String,
    /// Digest of the changes since the commit; empty without any.
    pub changes: String,
    /// What the emulators say of their version.
    pub qemu: Vec<String>,
    /// Digest of the executable that measured.
    pub executable: String,
}

impl Fingerprint {
    /// Of this executable and its sources.
    pub fn of_this() -> Fingerprint {
        let root = paths::workspace_root();
        let commit = versions::commit(&root).unwrap_or_else(|| "unknown".into());
        let changes = match commit.ends_with("-dirty") {
            true => sha256(&git(&root, &["diff", "HEAD", "--binary"])),
            false => String::new(),
        };
        let qemu = dyad_abi::Isa::ALL.map(|isa| {
            let version = versions::of_program(Path::new(qemu_program(isa)));
            version.unwrap_or_else(|| "unknown".into())
        });
        let executable = std::env::current_exe().and_then(std::fs::read);
        Fingerprint {
            commit,
            changes,
            qemu: qemu.into(),
            executable: executable.map_or_else(|_| "unknown".into(), |bytes| sha256(&bytes)),
        }
    }

    /// In what it differs from another one: the first part that does.
    pub fn difference(&self, other: &Fingerprint) -> Option<String> {
        let short = |digest: &str| digest.chars().take(12).collect::<String>();
        let parts = [
            ("commit", &self.commit, &other.commit),
            ("changes of the sources", &self.changes, &other.changes),
            ("executable", &self.executable, &other.executable),
        ];
        if self.qemu != other.qemu {
            return Some(format!("QEMU {:?} instead of {:?}", self.qemu, other.qemu));
        }
        let differs = parts.into_iter().find(|(_, a, b)| a != b);
        differs.map(|(what, a, b)| format!("{what} {} instead of {}", short(a), short(b)))
    }
}

fn git(root: &Path, words: &[&str]) -> Vec<u8> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output();
    output.map(|o| o.stdout).unwrap_or_default()
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The measurement.
    pub measurement: String,
    /// The command.
    pub command: String,
    /// What it was made with.
    pub fingerprint: Fingerprint,
    /// Digests of the bounds of the rows that read it, when it was measured.
    pub bounds: BTreeMap<String, String>,
    /// How long the command took, in seconds.
    pub seconds: u64,
    /// The exit status of the command; null if a signal ended it.
    pub status: Option<i32>,
    /// What the command wrote.
    pub document: Value,
    /// Digest of all other members.
    pub sha256: String,
}

/// Why there is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There is no file.
    Missing,
    /// The file is not a whole record.
    Cut(String),
    /// Its contents do not have the digest that it names.
    Edited,
    /// It is of another measurement or command.
    Foreign(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Missing => f.write_str("there is no record"),
            Unusable::Cut(why) => write!(f, "the record is not whole: {why}"),
            Unusable::Edited => f.write_str("the record was changed after it was written"),
            Unusable::Foreign(why) => write!(f, "the record is of something else: {why}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl Record {
    /// The digest of all members but `sha256`.
    pub fn digest(&self) -> String {
        let without = Record {
            sha256: String::new(),
            ..self.clone()
        };
        // Members of objects are in the order of their names, or of the struct: the same value has the same text.
        let text = serde_json::to_string(&without).unwrap_or_default();
        sha256(text.as_bytes())
    }

    /// The record with its digest.
    #[must_use]
    pub fn sealed(mut self) -> Record {
        self.sha256 = self.digest();
        self
    }

    /// Reads and checks a record of a measurement that is made by this command.
    ///
    /// # Errors
    ///
    /// If there is none, or it is not as it was written, or of something else.
    pub fn read(file: &Path, measurement: &str, command: &str) -> Result<Record, Unusable> {
        let text = match std::fs::read_to_string(file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Unusable::Missing),
            Err(e) => return Err(Unusable::Cut(e.to_string())),
            Ok(text) => text,
        };
        let record: Record =
            serde_json::from_str(&text).map_err(|e| Unusable::Cut(e.to_string()))?;
        if record.digest() != record.sha256 {
            return Err(Unusable::Edited);
        }
        let expected = (SCHEMA, measurement, command);
        let found = (
            record.schema.as_str(),
            record.measurement.as_str(),
            record.command.as_str(),
        );
        match found == expected {
            true => Ok(record),
            false => Err(Unusable::Foreign(format!("{} by `{}`", found.1, found.2))),
        }
    }

    /// Writes the record: a file that is there is replaced as a whole.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let beside = file.with_extension("json.new");
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&beside, text + "\n")?;
        std::fs::rename(&beside, file)
    }

    /// What the command says went wrong.
    pub fn failure(&self) -> Option<String> {
        let failure = self.document["failure"].as_str();
        match (failure, self.status) {
            (Some(why), _) => Some(why.into()),
            (None, Some(0)) => None,
            // `bench sim` has goals that can be missed, without a text.
            (None, Some(status)) => Some(format!("exit status {status}")),
            (None, None) => Some("a signal ended it".into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A good record of a document.
    pub fn record(measurement: &str, command: &str, document: Value) -> Record {
        Record {
            schema: SCHEMA.into(),
            measurement: measurement.into(),
            command: command.into(),
            fingerprint: Fingerprint::default(),
            bounds: BTreeMap::new(),
            seconds: 3,
            status: Some(0),
            document,
            sha256: String::new(),
        }
        .sealed()
    }

    /// A directory of a test, which is removed at its end.
    pub struct Scratch(pub std::path::PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Scratch {
            let name = format!("dyad-report-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn records_that_are_missing_cut_edited_or_of_something_else_are_refused() {
        let dir = Scratch::new("records");
        let file = dir.0.join("kv.json");
        let read = || Record::read(&file, "kv", "cargo xtask bench kv");
        assert_eq!(read(), Err(Unusable::Missing));
        let document = json!({"rows": [{"b": 1.25e-3, "a": 207_124, "per_second": 1234.5}]});
        let good = record("kv", "cargo xtask bench kv", document);
        good.write(&file).unwrap();
        assert_eq!(read(), Ok(good.clone()));
        let text = std::fs::read_to_string(&file).unwrap();
        for to in [text.len() / 2, text.len() - 3, 0] {
            std::fs::write(&file, &text[..to]).unwrap();
            assert!(matches!(read(), Err(Unusable::Cut(_))), "{to}");
        }
        for (from, to) in [
            ("207124", "207123"),
            ("\"seconds\": 3", "\"seconds\": 4"),
            ("\"commit\": \"\"", "\"commit\": \"c0ffee\""),
        ] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&file, text.replace(from, to)).unwrap();
            assert_eq!(read(), Err(Unusable::Edited), "{from}");
        }
        good.write(&file).unwrap();
        let other = Record::read(&file, "kv", "cargo xtask bench kv --quick");
        assert!(matches!(other, Err(Unusable::Foreign(_))));
    }

    #[test]
    fn fingerprints_say_in_what_they_differ() {
        let one = Fingerprint {
            commit: "c0ffee".into(),
            ..Fingerprint::default()
        };
        assert_eq!(one.difference(&one.clone()), None);
        let why = one.difference(&Fingerprint::default()).unwrap();
        assert!(why.starts_with("commit c0ffee"), "{why}");
    }

    #[test]
    fn failures_of_commands_are_known() {
        let mut one = record("kv", "c", json!({"failure": null}));
        assert_eq!(one.failure(), None);
        one.status = Some(1);
        assert_eq!(one.failure().as_deref(), Some("exit status 1"));
        one.document = json!({"failure": "no run"});
        assert_eq!(one.failure().as_deref(), Some("no run"));
    }
}
