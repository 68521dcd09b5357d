//! The gallery: programs on widely used crates from the registry, which print on a system what they print on the host.
//!
//! The programs are in `tests/programs/gallery`, one package each; its library says how they work. A program is
//! played on the host first, in the emulated system, and then on pairs. The JSON form has the schema `dyad.gallery/1`:
//!
//! | member | |
//! |---|---|
//! | `ok`, `failure` | whether every program that can be built printed what it printed on the host, and moved as often as it should; why not, or null |
//! | `programs` | per program: `crate`, `version`, `description`, `refused` (what the build says of a program that is known not to build, or null), `build_ms` and `runs` |
//! | `runs` | per order of nodes: `nodes`, `moves`, `run_ms`, `lines` (that it printed), `failure` |

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::service::peer::Kernels;
use migrate_rt::build::Stage;
use serde_json::{Value, json};

use dyad_launcher::config::{RunConfig, Work};
use dyad_launcher::console::Line;
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, Event, Sink};
use dyad_launcher::{apps, build, paths, signals, suggest};

/// Where the programs are.
pub const PLACE: &str = "tests/programs/gallery";
/// The orders of nodes in which each program is played.
pub const ORDERS: [[Isa; 2]; 2] = [[X86_64, Aarch64], [Aarch64, X86_64]];
/// The lines around a program's results, as its library writes them.
const BEGIN: &str = "--- results";
const END: &str = "--- end of results";
/// The counter with a program's moves, and how many there are at least.
const COUNTER: &str = "gallery.moves";
const LEAST_MOVES: u64 = 100;

/// A program of the gallery.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of its directory.
    pub name: String,
    /// The crate that it uses.
    pub of: String,
    /// The crate's version, by `Cargo.lock`.
    pub version: String,
    /// What the program does.
    pub description: String,
    /// What the build says, if the program is known not to build.
    pub refused: Option<String>,
    dir: PathBuf,
    package: String,
}

/// All programs, by name.
///
/// # Errors
///
/// If a manifest or `Cargo.lock` cannot be read, or lacks something.
pub fn programs() -> Result<Vec<Program>, Error> {
    let root = paths::workspace_root();
    let lock = table(&root.join("Cargo.lock"))?;
    let place = root.join(PLACE);
    let entries = std::fs::read_dir(&place)
        .map_err(|e| Error::io(format_args!("cannot read {}", paths::shown(&place)), e))?;
    let mut all = Vec::new();
    for entry in entries.flatten().filter(|e| e.path().is_dir()) {
        all.push(program(entry.path(), &lock)?);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The programs of these names, or all if there are none.
///
/// # Errors
///
/// Those of [`programs`], and if there is no program of a name.
pub fn chosen(names: &[String]) -> Result<Vec<Program>, Error> {
    let all = programs()?;
    let known: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
    if let Some(wrong) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(Error::Usage(suggest::not_one_of("program", wrong, &known)));
    }
    let is_chosen = |p: &Program| names.is_empty() || names.contains(&p.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn table(path: &Path) -> Result<toml::Table, Error> {
    let shown = paths::shown(path);
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format_args!("cannot read {shown}"), e))?;
    text.parse()
        .map_err(|e| Error::io(format_args!("cannot use {shown}"), e))
}

fn program(dir: PathBuf, lock: &toml::Table) -> Result<Program, Error> {
    let manifest = dir.join("Cargo.toml");
    let package = table(&manifest)?;
    let lacks = |what: &str| Error::Run(format!("{} lacks {what}", paths::shown(&manifest)));
    let package = package.get("package").ok_or_else(|| lacks("[package]"))?;
    let text = |v: &toml::Value, key: &str| Some(v.get(key)?.as_str()?.to_owned());
    let own = |key: &str| text(package, key).ok_or_else(|| lacks(key));
    let metadata = package.get("metadata").and_then(|m| m.get("gallery"));
    let metadata = metadata.ok_or_else(|| lacks("[package.metadata.gallery]"))?;
    let of = text(metadata, "crate").ok_or_else(|| lacks("the crate that it shows"))?;
    let package = own("name")?;
    Ok(Program {
        name: dir.file_name().unwrap_or_default().display().to_string(),
        version: version(lock, &package, &of)
            .ok_or_else(|| Error::Run(format!("Cargo.lock has no {of} for {package}")))?,
        of,
        description: own("description")?,
        refused: text(metadata, "refused"),
        dir,
        package,
    })
}

/// The version of a crate that a package depends on.
fn version(lock: &toml::Table, package: &str, of: &str) -> Option<String> {
    let packages = lock.get("package")?.as_array()?;
    let text = |v: &toml::Value, key: &str| Some(v.get(key)?.as_str()?.to_owned());
    let named = |name: &str| {
        let is_it = move |p: &&toml::Value| text(p, "name").as_deref() == Some(name);
        packages.iter().find(is_it)
    };
    // A dependency has its version here if the lock file has several.
    let dependencies = named(package)?.get("dependencies")?.as_array()?;
    let mut dependencies = dependencies.iter().filter_map(toml::Value::as_str);
    let dependency = dependencies.find(|d| d.split(' ').next() == Some(of))?;
    match dependency.split(' ').nth(1) {
        Some(version) => Some(version.to_owned()),
        None => text(named(of)?, "version"),
    }
}

/// A program on a pair.
#[derive(Clone, Debug)]
pub struct Run {
    /// The ISA of each node.
    pub nodes: [Isa; 2],
    /// How often its thread moved.
    pub moves: u64,
    /// How long it took, boot included.
    pub took: Duration,
    /// The lines of its results.
    pub lines: usize,
    /// Why it was not good.
    pub failure: Option<String>,
}

/// Keeps what a program prints.
struct Results<'a> {
    lines: Vec<String>,
    sink: &'a mut dyn Sink,
}

impl Sink for Results<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Line {
            line: Line::Log { text, .. },
            ..
        } = &event
        {
            self.lines.push(text.clone());
        }
        self.sink.event(event);
    }
}

/// The lines between those that the library writes.
fn results(lines: Vec<String>) -> Option<Vec<String>> {
    let begin = lines.iter().position(|l| l == BEGIN)?;
    let end = lines.iter().rposition(|l| l == END)?;
    lines.get(begin + 1..end).map(<[String]>::to_vec)
}

impl Program {
    /// What the program prints on the host.
    ///
    /// # Errors
    ///
    /// If it does not build there, or fails.
    pub fn on_host(&self) -> Result<Vec<String>, Error> {
        let output = build::cargo()
            .args(["run", "--quiet", "--locked", "--package", &self.package])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Error::io("cannot start cargo", e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = results(text.lines().map(str::to_owned).collect());
        match (lines, output.status.success()) {
            (Some(lines), true) => Ok(lines),
            _ if signals::count() > 0 => Err(Error::Interrupted),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let why = format!(
                    "{} fails on the host: {}\n{text}{said}",
                    self.name, output.status
                );
                Err(Error::Run(why))
            }
        }
    }

    /// Builds the program for a pair. Says how long its pipeline took after its crates were compiled; that is 0 if
    /// nothing has changed since it was built.
    ///
    /// # Errors
    ///
    /// If it does not build.
    pub fn build(&self) -> Result<Duration, Error> {
        let mut compiled = None;
        let mut progress = |said: build::Said<'_>| {
            if let build::Said::Step(step) = said
                && step.ends_with(Stage::Optimise.text())
            {
                compiled = Some(Instant::now());
            }
        };
        build::app(&apps::Source::Package(self.dir.clone()), &mut progress)?;
        Ok(compiled.map(|start| start.elapsed()).unwrap_or_default())
    }

    /// Forgets what was built of the program for a pair, so that its pipeline runs again. Its crates stay compiled.
    pub fn forget(&self) {
        // A program that was never built has nothing to forget.
        let _ = std::fs::remove_dir_all(paths::target_dir().join("user").join(&self.package));
    }

    /// Plays the program on a pair; compares its results with those of the host.
    pub fn play(
        &self,
        (nodes, kernels): ([Isa; 2], Kernels),
        expected: &[String],
        sink: &mut dyn Sink,
    ) -> Run {
        let config = RunConfig {
            kernels,
            nodes: nodes.to_vec(),
            work: Work::App {
                app: self.dir.display().to_string(),
                args: String::new(),
            },
            timeout: Some(Duration::from_secs(240)),
            ..RunConfig::default()
        };
        let mut kept = Results {
            lines: Vec::new(),
            sink,
        };
        let report = launch::run(&config, &mut kept);
        let moves = report.counters.get(COUNTER).copied().unwrap_or(0);
        let found = results(kept.lines).unwrap_or_default();
        let failure = report.failure().map(|why| why.to_string());
        let failure = failure
            .or_else(|| difference(expected, &found))
            .or_else(|| (moves < LEAST_MOVES).then(|| format!("it moved {moves} times only")));
        Run {
            nodes,
            moves,
            took: Duration::from_millis(report.host_ms.boot + report.host_ms.run),
            lines: found.len(),
            failure,
        }
    }
}

/// The first line that differs.
fn difference(expected: &[String], found: &[String]) -> Option<String> {
    let lines = expected.len().max(found.len());
    let n = (0..lines).find(|&n| expected.get(n) != found.get(n))?;
    let line = |all: &[String]| all.get(n).map_or("nothing".into(), |l| format!("{l:?}"));
    let (expected, found) = (line(expected), line(found));
    Some(format!(
        "line {}: {found} instead of the host's {expected}",
        n + 1
    ))
}

/// A program with what came of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The program.
    pub program: Program,
    /// How long its pipeline took.
    pub build: Option<Duration>,
    /// Why it could not be played, beside what its manifest says.
    pub failure: Option<String>,
    /// Its runs.
    pub runs: Vec<Run>,
}

/// The gallery with what came of it.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    /// The programs, by name.
    pub entries: Vec<Entry>,
}

/// Builds programs anew and plays each in both orders of nodes. `say` hears what is done.
///
/// # Errors
///
/// If the user has had enough.
pub fn gallery(
    programs: Vec<Program>,
    say: &mut dyn FnMut(&str),
    sink: &mut dyn Sink,
) -> Result<Gallery, Error> {
    let mut all = Gallery::default();
    let count = programs.len();
    for (n, program) in programs.into_iter().enumerate() {
        say(&format!(
            "{} of {count}: {} {}",
            n + 1,
            program.of,
            program.version
        ));
        let entry = one(program, say, sink)?;
        for failure in entry.failures() {
            say(&format!("  {failure}"));
        }
        all.entries.push(entry);
    }
    Ok(all)
}

fn one(program: Program, say: &mut dyn FnMut(&str), sink: &mut dyn Sink) -> Result<Entry, Error> {
    let mut entry = Entry {
        program,
        build: None,
        failure: None,
        runs: Vec::new(),
    };
    let program = &entry.program;
    program.forget();
    let built = program.build();
    match (built, &program.refused) {
        (Err(Error::Interrupted), _) => return Err(Error::Interrupted),
        (Err(e), Some(why)) if e.to_string().contains(why) => return Ok(entry),
        (Err(e), _) => {
            entry.failure = Some(e.to_string());
            return Ok(entry);
        }
        (Ok(_), Some(_)) => {
            entry.failure = Some("it builds, although its manifest says that it does not".into());
            return Ok(entry);
        }
        (Ok(took), None) => entry.build = Some(took),
    }
    let expected = match program.on_host() {
        Ok(expected) => expected,
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(e) => {
            entry.failure = Some(e.to_string());
            return Ok(entry);
        }
    };
    for nodes in ORDERS {
        let run = program.play((nodes, Kernels::Fused), &expected, sink);
        if signals::count() > 0 {
            return Err(Error::Interrupted);
        }
        let build = entry.build.unwrap_or_default();
        say(&format!(
            "  {} first: {} moves, built in {:.1} s, ran for {:.1} s",
            nodes[0],
            run.moves,
            build.as_secs_f64(),
            run.took.as_secs_f64()
        ));
        entry.runs.push(run);
    }
    Ok(entry)
}

impl Program {
    /// How the program's row in the table begins.
    fn head(&self) -> String {
        format!("| {} | {} | {} | ", self.of, self.version, self.description)
    }
}

impl Entry {
    /// The row of the table.
    fn row(&self) -> String {
        let builds = match (&self.program.refused, &self.failure) {
            (Some(why), _) => format!("no: {why}"),
            (None, Some(_)) => "failed".into(),
            (None, None) => "yes".into(),
        };
        let run = |n: usize| self.runs.get(n).filter(|r| r.failure.is_none());
        let moves = |n| run(n).map_or("-".into(), |r| r.moves.to_string());
        let lines = run(0).map_or("-".into(), |r| r.lines.to_string());
        let seconds = |d: Duration| format!("{:.1}", d.as_secs_f64());
        let build = self.build.map_or("-".into(), seconds);
        let took = run(0).map_or("-".into(), |r| seconds(r.took));
        format!(
            "{}{builds} | {lines} | {} | {} | {build} | {took} |\n",
            self.program.head(),
            moves(0),
            moves(1)
        )
    }

    /// Why it was not good.
    fn failures(&self) -> Vec<String> {
        let name = &self.program.name;
        let of_runs = self.runs.iter().filter_map(|r| {
            let why = r.failure.as_ref()?;
            Some(format!("{name}, {} first: {why}", r.nodes[0]))
        });
        let own = self.failure.iter().map(|why| format!("{name}: {why}"));
        own.chain(of_runs).collect()
    }
}

const COLUMNS: &str = "\
| crate | version | what was run | builds unchanged | lines | moves, x86-64 first | moves, AArch64 first | build, s | run, s |
|---|---|---|---|---:|---:|---:|---:|---:|
";

const HEAD: &str = "\
# The gallery

Widely used crates that need no `std`, from the registry and unchanged, in programs of `tests/programs/gallery`, as

```console
$ cargo xtask gallery --page book/src/reference/gallery.md
```

has built and played them. Each program computes over seeded data and prints its results. The host runs it in the
emulated system first. Then a pair runs it, with either ISA on node 0, and what it prints is compared with what the host
has printed, byte for byte. The thread moves below the crate's own frames: in a trait implementation, a closure or an
iterator that the crate calls, or at the head of a loop.

*Build* is how long the pipeline takes once the crates are compiled: optimising, making both programs, aligning, linking,
verifying. *Run* includes the boot of the pair. Both are seconds of the host that made this page.

";

impl Gallery {
    /// Why it was not good, if it was not.
    pub fn problem(&self) -> Option<String> {
        let all: Vec<String> = self.entries.iter().flat_map(Entry::failures).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let rows: String = self.entries.iter().map(Entry::row).collect();
        format!("{COLUMNS}{rows}")
    }

    /// The page of the book. Programs of `all` that were not played now keep the rows that they have in `old`, the page
    /// as it was, if their versions and descriptions are still the same.
    pub fn page(&self, all: &[Program], old: &str) -> String {
        let rows = all.iter().filter_map(|p| {
            match self.entries.iter().find(|e| e.program.name == p.name) {
                Some(entry) => Some(entry.row()),
                None => old
                    .lines()
                    .find(|l| l.starts_with(&p.head()))
                    .map(|l| format!("{l}\n")),
            }
        });
        format!("{HEAD}{COLUMNS}{}", rows.collect::<String>())
    }

    /// The JSON form.
    pub fn json(&self) -> Value {
        let ms = |d: Duration| d.as_millis() as u64;
        let run = |r: &Run| {
            json!({
                "nodes": r.nodes.map(|isa| isa.to_string()), "moves": r.moves, "run_ms": ms(r.took),
                "lines": r.lines, "failure": r.failure,
            })
        };
        let entry = |e: &Entry| {
            json!({
                "crate": e.program.of, "version": e.program.version,
                "description": e.program.description, "refused": e.program.refused,
                "build_ms": e.build.map(ms), "failure": e.failure,
                "runs": e.runs.iter().map(run).collect::<Vec<_>>(),
            })
        };
        let problem = self.problem();
        json!({
            "schema": "dyad.gallery/1", "ok": problem.is_none(), "failure": problem,
            "programs": self.entries.iter().map(entry).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of the book lists all programs with the versions of their crates. After a change, `cargo xtask gallery --page`
    /// writes the page again.
    #[test]
    fn the_page_has_the_programs_and_their_versions() {
        let page = paths::workspace_root().join("book/src/reference/gallery.md");
        let page = std::fs::read_to_string(page).unwrap();
        let shown: Vec<&str> = page
            .lines()
            .filter(|l| l.starts_with("| "))
            .skip(1)
            .collect();
        let programs = programs().unwrap();
        assert_eq!(shown.len(), programs.len(), "{shown:#?}");
        for (line, p) in shown.iter().zip(&programs) {
            let begin = p.head();
            assert!(
                line.starts_with(&begin),
                "{line}\nshould begin with\n{begin}"
            );
            let is_good = line.contains("| yes |") && !line.contains("| - |");
            assert_eq!(is_good, p.refused.is_none(), "{line}");
        }
        assert!(page.starts_with(HEAD));
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        let lines = |all: &[&str]| all.iter().map(|l| l.to_string()).collect::<Vec<_>>();
        let (a, b) = (lines(&["1", "2", "3"]), lines(&["1", "4", "3"]));
        assert_eq!(difference(&a, &a), None);
        let why = difference(&a, &b).unwrap();
        assert_eq!(why, "line 2: \"4\" instead of the host's \"2\"");
        let why = difference(&a, &a[..2]).unwrap();
        assert_eq!(why, "line 3: nothing instead of the host's \"3\"");
    }

    #[test]
    fn results_are_between_two_lines() {
        let lines = |all: &[&str]| all.iter().map(|l| l.to_string()).collect::<Vec<_>>();
        let found = results(lines(&["boot", BEGIN, "1", "", END, "off"]));
        assert_eq!(found, Some(lines(&["1", ""])));
        assert_eq!(results(lines(&["boot", BEGIN, "1"])), None);
        assert_eq!(results(lines(&[END, BEGIN])), None);
    }
}
