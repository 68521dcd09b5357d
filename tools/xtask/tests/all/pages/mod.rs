//! Pages of the book whose commands and edits are carried out as written.
//!
//! | block | means |
//! |---|---|
//! | `console` | lines that start with `$ ` are commands of one shell; each must succeed, and print the lines that follow it, in this order, perhaps with others between; `...` stands for anything |
//! | any language, first line `// file: PATH`, `# file: PATH` or `<!-- file: PATH -->` | that file gets the rest of the block |
//! | `diff`, first line `+++ PATH` | the file is edited: between lines that start with `@@`, lines with a space or a minus sign are found in the file, at one place, and lines with a plus sign are put there |
//! | others | not looked at |

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dyad_launcher::paths;

/// Bound on one command; the first one builds everything.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// The program that the tutorial makes: a reader's own one is not copied.
const READERS_OWN: &str = "userland/apps/myapp";
/// What the shell prints after each command, before its status.
const END: &str = "--- end of command:";

/// Tries what pages say in a copy of the workspace. All pages share the copy and its target directory, one after the
/// other.
pub fn in_fresh_copy(try_it: impl FnOnce(&Path)) {
    static ONE: Mutex<()> = Mutex::new(());
    // A page that has failed leaves nothing behind: the copy is made anew.
    let _turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = paths::workspace_root();
    let copy = paths::target_dir().join("qemu-tests/tutorial");
    copy_tree(&root, &root, &copy).expect("copy of the workspace");
    try_it(&copy);
}

/// What a page tells a reader to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a file.
    Write {
        /// Its path in the workspace.
        path: String,
        /// Its contents.
        text: String,
    },
    /// Edit a file.
    Edit {
        /// Its path in the workspace.
        path: String,
        /// The edits, in any order.
        hunks: Vec<Hunk>,
    },
    /// Run a command.
    Run {
        /// The command.
        command: String,
        /// Lines that it prints.
        output: Vec<String>,
    },
}

/// One edit: lines that are in the file, and what they become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// The lines as they are.
    old: Vec<String>,
    /// The lines as they shall be.
    new: Vec<String>,
}

impl Step {
    /// The file that the step touches.
    pub fn file(&self) -> Option<&str> {
        match self {
            Step::Write { path, .. } | Step::Edit { path, .. } => Some(path),
            Step::Run { .. } => None,
        }
    }
}

/// The steps of a page.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        let first = block.first().copied().unwrap_or_default();
        if kind == "console" {
            console(&block, &mut steps);
        } else if let (true, Some(path)) = (kind == "diff", first.strip_prefix("+++ ")) {
            steps.push(Step::Edit {
                path: path.into(),
                hunks: hunks(&block[1..]),
            });
        } else if let Some(path) = file_named(first) {
            steps.push(Step::Write {
                path: path.into(),
                text: block[1..].join("\n") + "\n",
            });
        }
    }
    steps
}

/// The file that the first line of a block names.
fn file_named(line: &str) -> Option<&str> {
    let html = |l: &'static str| line.strip_prefix(l)?.strip_suffix(" -->");
    let path = line.strip_prefix("// file: ");
    path.or_else(|| line.strip_prefix("# file: "))
        .or_else(|| html("<!-- file: "))
}

fn hunks(block: &[&str]) -> Vec<Hunk> {
    let mut hunks = vec![Hunk::default()];
    for line in block {
        if line.starts_with("@@") {
            hunks.push(Hunk::default());
            continue;
        }
        let hunk = hunks.last_mut().expect("there is one");
        let (sign, rest) = line.split_at(line.len().min(1));
        if sign != "+" {
            hunk.old.push(rest.into());
        }
        if sign != "-" {
            hunk.new.push(rest.into());
        }
    }
    hunks.retain(|h| h.old != h.new);
    hunks
}

/// A text with one edit made.
fn edited(text: &str, hunk: &Hunk) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let places: Vec<usize> = (0..lines.len())
        .filter(|&at| {
            let old = hunk.old.iter().map(String::as_str);
            lines[at..].iter().copied().take(hunk.old.len()).eq(old)
        })
        .collect();
    let [at] = places[..] else {
        let old = hunk.old.join("\n");
        return Err(format!("{} places are like\n{old}", places.len()));
    };
    let new = hunk.new.iter().map(String::as_str);
    let (before, after) = (&lines[..at], &lines[at + hunk.old.len()..]);
    let all: Vec<&str> = (before.iter().copied())
        .chain(new)
        .chain(after.iter().copied())
        .collect();
    Ok(all.join("\n") + "\n")
}

fn console(block: &[&str], steps: &mut Vec<Step>) {
    for line in block {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step::Run {
                command: command.into(),
                output: Vec::new(),
            }),
            (None, Some(Step::Run { output, .. })) => output.push((*line).into()),
            (None, _) => panic!("a console block must start with a command: {line}"),
        }
    }
}

/// Whether a line is what the book says, where `...` stands for anything.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The first line of the book that the output does not have in its place.
fn missing<'a>(expected: &'a [String], output: &[String]) -> Option<&'a String> {
    let mut output = output.iter().map(|l| l.trim_end());
    expected
        .iter()
        .find(|e| !output.any(|line| matches(e.trim_end(), line)))
}

/// Makes `to` equal to `from`. Files that are equal are not touched, so that a second run has
/// little to build; build directories are neither copied nor removed.
fn copy_tree(root: &Path, from: &Path, to: &Path) -> std::io::Result<()> {
    let not_copied = |path: &Path| {
        path.join("CACHEDIR.TAG").is_file()
            || path == root.join(".git")
            || path == root.join("target")
            || path == root.join(READERS_OWN)
    };
    fs::create_dir_all(to)?;
    let mut kept = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|e| (e.path(), e.file_name()))?;
        if not_copied(&path) {
            continue;
        }
        let copy = to.join(&name);
        if path.is_dir() {
            copy_tree(root, &path, &copy)?;
        } else if fs::read(&path)? != fs::read(&copy).unwrap_or_default() || !copy.exists() {
            fs::copy(&path, &copy)?;
        }
        kept.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let path = entry.path();
        if kept.contains(&entry.file_name()) || path.join("CACHEDIR.TAG").is_file() {
            continue;
        }
        if path.is_dir() && entry.file_name() != "target" {
            fs::remove_dir_all(path)?;
        } else if path.is_file() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// A shell that runs one command after the other; it and what it started end with this.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(dir: &Path) -> Shell {
        let mut bash = Command::new("bash");
        // What cargo has set for this test would make the commands build elsewhere.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().into_owned();
            let cargos = [
                "CARGO_PKG_",
                "CARGO_BIN_",
                "CARGO_MANIFEST_",
                "CARGO_TARGET_",
            ];
            // The target directory is that of this workspace, if it is not moved.
            let own = text == "CARGO_TARGET_DIR" && dir == paths::workspace_root();
            let tier = text == dyad_tier::VARIABLE;
            if tier || !own && cargos.iter().any(|p| text.starts_with(p)) {
                bash.env_remove(name);
            }
        }
        let mut child = bash
            .args(["--norc", "--noprofile"])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("bash");
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "exec 2>&1").expect("bash reads");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                if to
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
            }
        });
        Shell {
            child,
            input,
            lines,
        }
    }

    /// Status and output of a command.
    fn run(&mut self, command: &str) -> Result<(String, Vec<String>), String> {
        // Commands must not read those that follow them.
        writeln!(self.input, "{{ {command}\n}} </dev/null; echo \"{END} $?\"")
            .map_err(|e| format!("the shell is gone: {e}"))?;
        let until = Instant::now() + LIMIT;
        let mut output = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .map_err(|e| format!("{e}; so far:\n{}", output.join("\n")))?;
            match line.strip_prefix(END) {
                Some(status) => return Ok((status.trim().into(), output)),
                None => output.push(line),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // Nobody may be left, which is as well.
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }
}

fn write(dir: &Path, path: &str, text: &str) {
    let file = dir.join(path);
    let parent = file.parent().expect("a file is in a directory");
    fs::create_dir_all(parent).expect("directory");
    fs::write(file, text).expect(path);
}

fn edit_file(dir: &Path, path: &str, hunks: &[Hunk]) {
    let mut text = fs::read_to_string(dir.join(path)).expect(path);
    for hunk in hunks {
        text = edited(&text, hunk).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    write(dir, path, &text);
}

/// Carries out the edits among steps in a directory, but for those of files that commands make.
pub fn edit(steps: Vec<Step>, dir: &Path) {
    let mut has_run = false;
    for step in steps {
        match step {
            Step::Write { path, text } => write(dir, &path, &text),
            Step::Edit { path, .. } if has_run && !dir.join(&path).exists() => {}
            Step::Edit { path, hunks } => edit_file(dir, &path, &hunks),
            Step::Run { .. } => has_run = true,
        }
    }
}

/// Carries steps out in a directory, and compares what commands print.
pub fn play(steps: Vec<Step>, dir: &Path) {
    let mut shell = Shell::start(dir);
    for step in steps {
        match step {
            Step::Write { path, text } => write(dir, &path, &text),
            Step::Edit { path, hunks } => edit_file(dir, &path, &hunks),
            Step::Run { command, output } => {
                eprintln!("$ {command}");
                let (status, printed) = shell.run(&command).expect(&command);
                let printed_text = printed.join("\n");
                assert_eq!(status, "0", "$ {command}\n{printed_text}");
                if let Some(line) = missing(&output, &printed) {
                    panic!("$ {command}\nthe book has the line\n{line}\nin\n{printed_text}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_exact_but_for_the_dots() {
        for (pattern, line, good) in [
            ("plain", "plain", true),
            ("plain", "plain text", false),
            ("... on x86_64, in ...", "[0] 12 on x86_64, in 3 us", true),
            ("... on x86_64, in ...", "[0] 12 on aarch64, in 3 us", false),
            ("a...b...c", "a b b c", true),
            ("a...b...c", "a c", false),
            ("run 1: ok, ...", "run 1: FAILED, ok, 2 s", false),
        ] {
            assert_eq!(matches(pattern, line), good, "{pattern} / {line}");
        }
        let lines = |l: &[&str]| l.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
        let output = lines(&["one", "two", "three"]);
        assert_eq!(missing(&lines(&["one", "three"]), &output), None);
        assert_eq!(
            missing(&lines(&["two", "one"]), &output),
            Some(&"one".into())
        );
    }

    #[test]
    fn edits_are_made_at_one_place() {
        let page = "```diff\n+++ a/b.rs\n@@\n fn a() {\n-    one\n+    two\n@@ further on\n }\n+last\n```\n";
        let [Step::Edit { path, hunks }] = &steps(page)[..] else {
            panic!("one step");
        };
        assert_eq!((path.as_str(), hunks.len()), ("a/b.rs", 2));
        let once = edited("fn a() {\n    one\n}\n", &hunks[0]).unwrap();
        assert_eq!(once, "fn a() {\n    two\n}\n");
        assert_eq!(edited(&once, &hunks[1]).unwrap(), once.clone() + "last\n");
        assert!(
            edited(&once, &hunks[0])
                .unwrap_err()
                .starts_with("0 places")
        );
        assert!(
            edited("}\n}\n", &hunks[1])
                .unwrap_err()
                .starts_with("2 places")
        );
    }
}
