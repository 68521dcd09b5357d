//! The book is true: the tutorial's commands run as written, and links lead somewhere.
//!
//! In the tier `full` the tutorial is run in a copy of the workspace below the target directory, so that the tree
//! stays as it is. In the other tiers its core is: the steps before the line [`CORE_ENDS`], in the workspace itself,
//! with the program in a directory below the target directory (`cargo xtask new NAME --path DIR`). In its text
//!
//! | block | means |
//! |---|---|
//! | `console` | lines that start with `$ ` are commands of one shell; each must succeed, and print the lines that follow it, in this order, perhaps with others between; `...` stands for anything |
//! | `rust`, first line `// file: PATH` | that file gets the rest of the block |
//! | others | not looked at |
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dyad_launcher::paths;
use dyad_tier::Tier;

/// Bound on one command; the first one builds everything.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// The program that the tutorial makes: a reader's own one is not copied.
const READERS_OWN: &str = "userland/apps/myapp";
/// The line of the tutorial that ends its core.
const CORE_ENDS: &str = "<!-- The core ends here. -->";
/// What the shell prints after each command, before its status.
const END: &str = "--- end of command:";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Write {
        path: String,
        text: String,
    },
    Run {
        command: String,
        output: Vec<String>,
    },
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        match (
            kind,
            block.first().and_then(|l| l.strip_prefix("// file: ")),
        ) {
            ("console", _) => console(&block, &mut steps),
            ("rust", Some(path)) => steps.push(Step::Write {
                path: path.into(),
                text: block[1..].join("\n") + "\n",
            }),
            _ => {}
        }
    }
    steps
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
            if !own && cargos.iter().any(|p| text.starts_with(p)) {
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

#[test]
fn the_tutorial_runs_as_written() {
    match Tier::now() {
        Tier::Full => whole(),
        Tier::Quick | Tier::Long => core(),
    }
}

/// Every step, in a copy of the workspace.
fn whole() {
    let root = paths::workspace_root();
    let copy = paths::target_dir().join("qemu-tests/tutorial");
    copy_tree(&root, &root, &copy).expect("copy of the workspace");
    let text = fs::read_to_string(copy.join("book/src/tutorial.md")).expect("tutorial");
    let steps = steps(&text);
    assert!(steps.len() > 10, "the tutorial has commands: {steps:?}");
    play(steps, &copy);
}

/// The first steps, where everything has been built already.
fn core() {
    let root = paths::workspace_root();
    let text = fs::read_to_string(root.join("book/src/tutorial.md")).expect("tutorial");
    let (core, _) = text.split_once(CORE_ENDS).expect("the tutorial has a core");
    let dir = paths::target_dir().join("qemu-tests/core");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    let apps = dir.display().to_string();
    let core = core
        .replace(
            "cargo xtask new myapp",
            &format!("cargo xtask new myapp --path {apps}"),
        )
        .replace("--app myapp", &format!("--app {apps}/myapp"))
        .replace("made userland/apps/myapp", "made .../myapp")
        .replace(
            "run it with: cargo xtask run --app",
            "... cargo xtask run --app",
        )
        .replace("userland/apps", &apps)
        .replace("--json out.json", &format!("--json {apps}/out.json"));
    let steps = steps(&core);
    let is_run = |s: &&Step| matches!(s, Step::Run { command, .. } if command.contains(&apps));
    assert!(steps.iter().filter(is_run).count() >= 3, "{steps:?}");
    // The tool as this test was built with it, so that no command builds it again.
    let tool = Step::Run {
        command: format!(
            "cargo() {{ test \"$1\" = xtask && shift && {} \"$@\"; }}",
            env!("CARGO_BIN_EXE_xtask")
        ),
        output: Vec::new(),
    };
    play([vec![tool], steps].concat(), &root);
}

/// Runs the commands in a directory, and compares what they print.
fn play(steps: Vec<Step>, dir: &Path) {
    let mut shell = Shell::start(dir);
    for step in steps {
        match step {
            Step::Write { path, text } => fs::write(dir.join(path), text).expect("write"),
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

fn documents(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Targets of links and images in a Markdown text, without fragments and other places' addresses.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|after| after.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default().to_string())
        .filter(|t| !t.is_empty() && !t.contains("://"))
        .collect()
}

#[test]
fn links_lead_somewhere_and_every_chapter_is_in_the_summary() {
    let root = paths::workspace_root();
    let book = root.join("book/src");
    let mut all: Vec<PathBuf> = ["README.md", "CAVEATS.md", "CHANGELOG.md"]
        .map(|f| root.join(f))
        .into();
    documents(&book, &mut all);
    let mut wrong = Vec::new();
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("summary");
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|l| book.join(l)).collect();
    for document in &all {
        let text = fs::read_to_string(document).expect("document");
        let dir = document.parent().unwrap_or(&root);
        for link in links(&text) {
            if !dir.join(&link).exists() {
                wrong.push(format!("{}: {link} leads nowhere", document.display()));
            }
        }
        let chapter = document.starts_with(&book) && !document.ends_with("SUMMARY.md");
        if chapter && !listed.contains(document) {
            wrong.push(format!("{} is not in the summary", document.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
