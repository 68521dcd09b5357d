//! Building what runs: kernels, and programs through `migrate-rt`.
//!
//! Whether anything has to be rebuilt is cargo's decision; a build with nothing to do takes a
//! fraction of a second. It is asked once for each thing that is built: a command that starts many systems
//! builds before the first that needs it, and all run the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use dyad_abi::Isa;
use dyad_abi::service::archive::INPUT;
use migrate_rt::build::{AppRequest, BuildError, BuiltApp, Progress as PipelineProgress};

use crate::apps::{Program, Source};
use crate::error::Error;
use crate::{apps, archive, kept, paths, signals};

/// What a build tells people.
#[derive(Clone, Copy, Debug)]
pub enum Said<'a> {
    /// A step begins.
    Step(&'a str),
    /// The compiler warns about a program that it has built.
    Warning(&'a str),
}

/// Gets what a build tells people.
pub type Progress<'a> = &'a mut dyn FnMut(Said<'_>);

/// Package, target triple of the kernel of an ISA.
pub const fn kernel_package(isa: Isa) -> (&'static str, &'static str) {
    match isa {
        Isa::X86_64 => ("kernel-x86_64", "x86_64-unknown-none"),
        Isa::Aarch64 => ("kernel-aarch64", "aarch64-unknown-none-softfloat"),
    }
}

/// What a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Programs.
    Plain,
    /// Programs, with the list of its reads that may be stale, which costs instructions.
    Listed,
    /// In-kernel tests; with the list, too.
    Ktest,
}

impl Kernel {
    /// Folder under `target/`, profile, features, and what it is called.
    const fn form(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Kernel::Plain => ("kernel", "kernel", "", ""),
            Kernel::Listed => ("kernel-listed", "kernel", "listed", " for the sanitizer"),
            Kernel::Ktest => ("kernel-ktest", "kernel-checked", "ktest", " with its tests"),
        }
    }
}

/// What this process has built, by its place.
struct Done<T>(Mutex<BTreeMap<PathBuf, T>>);

impl<T: Clone> Done<T> {
    const fn new() -> Done<T> {
        Done(Mutex::new(BTreeMap::new()))
    }

    /// What has been built at a place, or else is built now. Two who need the same at the same time may both
    /// build it; that does no harm.
    fn or(&self, place: &Path, build: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let done = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = done().get(place) {
            return Ok(built.clone());
        }
        let built = build()?;
        done().insert(place.into(), built.clone());
        Ok(built)
    }

    fn all(&self) -> BTreeMap<PathBuf, T> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

static FILES: Done<PathBuf> = Done::new();
static APPS: Done<BuiltApp> = Done::new();

/// What this process has built: by place, the files that belong to it, the most important one first.
pub fn built() -> Vec<(PathBuf, Vec<PathBuf>)> {
    let files = FILES.all().into_iter();
    let files = files.map(|(place, file)| (place, vec![file]));
    let apps = APPS.all().into_iter().map(|(place, app)| {
        let elfs = app.elfs.into_iter().filter(|elf| elf.is_file());
        (place, std::iter::once(app.bundle).chain(elfs).collect())
    });
    files.chain(apps).collect()
}

/// A file that is kept, or that has been built, or else is built now.
fn file(place: &Path, build: impl FnOnce() -> Result<PathBuf, Error>) -> Result<PathBuf, Error> {
    match kept::find(place)? {
        Some(file) => Ok(file),
        None => FILES.or(place, build),
    }
}

/// Builds the kernel of an ISA, with fast paths, and returns its image.
///
/// # Errors
///
/// If cargo fails; the message has its output.
pub fn kernel(isa: Isa, kind: Kernel, progress: Progress<'_>) -> Result<PathBuf, Error> {
    kernel_with(isa, kind, true, progress)
}

/// Builds the kernel of an ISA, with fast paths or without, and returns its image.
///
/// # Errors
///
/// If cargo fails; the message has its output.
pub fn kernel_with(
    isa: Isa,
    kind: Kernel,
    fastpaths: bool,
    progress: Progress<'_>,
) -> Result<PathBuf, Error> {
    let (package, triple) = kernel_package(isa);
    let (dir, profile, mut features, suffix) = kind.form();
    let mut dir = paths::target_dir().join(dir);
    let mut suffix = suffix.to_string();
    let both = format!("slowpath,{features}");
    if !fastpaths {
        dir.as_mut_os_string().push("-slowpath");
        suffix += " without fast paths";
        features = both.trim_end_matches(',');
    }
    let mut c = cargo();
    c.args(["build", "--package", package, "--target", triple]);
    c.args(["--profile", profile, "--target-dir"]).arg(&dir);
    if !features.is_empty() {
        c.args(["--features", features]);
    }
    let what = format!("{package}{suffix}");
    let image = dir.join(triple).join(profile).join(package);
    file(&image, || {
        run_cargo(c, &what, progress)?;
        if image.is_file() {
            return Ok(image.clone());
        }
        let image = image.display();
        Err(Error::Build(format!(
            "cargo built {what} but there is no {image}"
        )))
    })
}

/// Builds the simulator's plugin.
///
/// # Errors
///
/// If cargo fails; the message has its output.
pub fn plugin(progress: Progress<'_>) -> Result<PathBuf, Error> {
    let dir = paths::target_dir().join("sim");
    let mut c = cargo();
    c.args([
        "build",
        "--package",
        "dyad-sim",
        "--profile",
        "plugin",
        "--target-dir",
    ]);
    c.arg(&dir);
    if let Some(level) = host_level() {
        c.args([
            "--config",
            &format!("build.rustflags=['-C','target-cpu={level}']"),
        ]);
    }
    let library = dir.join("plugin").join("libdyad_sim.so");
    file(&library, || {
        run_cargo(c, "the simulator plugin", progress)?;
        Ok(library.clone())
    })
}

/// The level of the x86-64 architecture that this machine has, if it is more than the first: sets of
/// caches are then searched with its vector instructions.
fn host_level() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("movbe")
    {
        return Some("x86-64-v3");
    }
    None
}

/// Cargo in the workspace, without the settings of the environment that would change what it
/// builds: flags in variables replace those of the workspace's own configuration.
pub fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(paths::workspace_root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let changes_build = text.ends_with("RUSTFLAGS") || text == "CARGO_BUILD_TARGET";
        // What cargo has set for this very program.
        let ours = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if changes_build || ours {
            c.env_remove(&name);
        }
    }
    c
}

/// Runs a cargo command, reporting what it compiles.
fn run_cargo(mut c: Command, what: &str, progress: Progress<'_>) -> Result<(), Error> {
    progress(Said::Step(&format!("building {what}")));
    let mut child = c
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::Build(format!("cannot start cargo: {e}")))?;
    let mut output = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some(step) = compiling(&line) {
                progress(Said::Step(&format!("building {what}: {step}")));
            } else {
                output.push_str(&line);
                output.push('\n');
            }
        }
    }
    let status = child
        .wait()
        .map_err(|e| Error::Build(format!("cannot wait for cargo: {e}")))?;
    if status.success() {
        Ok(())
    } else if signals::count() > 0 {
        Err(Error::Interrupted)
    } else {
        Err(Error::Build(format!(
            "{output}{what} does not build (cargo: {status})"
        )))
    }
}

/// What every run needs beside its program, in the order of the archive.
pub const SERVICES: [&str; 6] = ["init", "sched", "console", "pager", "quiesced", "peer"];

/// Builds init and the services, in the order of [`SERVICES`].
///
/// # Errors
///
/// If one does not build.
pub fn services(progress: Progress<'_>) -> Result<Vec<Program>, Error> {
    let dir = paths::workspace_root().join("userland/services");
    SERVICES
        .iter()
        .map(|name| app(&Source::Package(dir.join(name)), progress))
        .collect()
}

/// The archive of a run: init, the services, the program, what runs beside it, and the program's standard input.
///
/// # Errors
///
/// If a program has the name of a service, or of the other one.
pub fn archive(
    services: &[Program],
    programs: &[&Program],
    input: &[u8],
) -> Result<Vec<u8>, Error> {
    let name = |p: &Program| apps::name(&p.bundle);
    let all = || services.iter().chain(programs.iter().copied());
    let names = all().map(name).collect::<Result<Vec<_>, _>>()?;
    let bundles = all().map(|p| p.bundle.as_slice());
    let input = Some((INPUT, input)).filter(|(_, input)| !input.is_empty());
    let items = names.iter().map(String::as_str).zip(bundles).chain(input);
    let items: Vec<_> = items.collect();
    archive::pack(&items)
}

/// Builds a program, or reads a finished bundle.
///
/// # Errors
///
/// If it does not build, or the bundle is not valid.
pub fn app(source: &Source, progress: Progress<'_>) -> Result<Program, Error> {
    let (path, elfs, report) = match source {
        Source::Bundle(path) => (path.clone(), apps::elfs_beside(path), None),
        Source::Package(dir) => match kept::find(dir)? {
            Some(bundle) => (bundle.clone(), apps::elfs_beside(&bundle), None),
            None => {
                let built = APPS.or(dir, || package(dir, progress))?;
                (built.bundle, built.elfs.map(Some), Some(built.report))
            }
        },
    };
    let bundle = apps::read_bundle(&path)?;
    Ok(Program {
        bundle,
        path,
        elfs,
        report,
    })
}

fn package(dir: &Path, progress: Progress<'_>) -> Result<BuiltApp, Error> {
    let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy();
    let what = format!("building {name}");
    let said = RefCell::new(String::new());
    let progress = RefCell::new(progress);
    let tell = |p: PipelineProgress<'_>| match p {
        PipelineProgress::Stage(stage) => {
            let step = format!("{what}: {}", stage.text());
            (progress.borrow_mut())(Said::Step(&step));
        }
        PipelineProgress::Output(line) => {
            if let Some(step) = compiling(line) {
                let step = format!("{what}: {step}");
                (progress.borrow_mut())(Said::Step(&step));
            } else {
                let mut said = said.borrow_mut();
                said.push_str(line);
                said.push('\n');
            }
        }
    };
    let request = AppRequest {
        progress: &tell,
        ..AppRequest::new(
            dir,
            &paths::workspace_root(),
            &paths::target_dir().join("user"),
        )
    };
    let built = migrate_rt::build::build_app(&request).map_err(|e| {
        if signals::count() > 0 {
            return Error::Interrupted;
        }
        // What the compiler has said comes first. Errors of the front end quote of it what matters.
        let said = match e {
            BuildError::Frontend(_) => String::new(),
            _ => said.take(),
        };
        Error::Build(format!("{said}{name} does not build: {e}"))
    })?;
    for warning in warnings(&said.borrow()) {
        (progress.borrow_mut())(Said::Warning(warning));
    }
    Ok(built)
}

/// The warnings in what cargo and the compiler have said of a program that they have built. Cargo says those
/// of earlier builds again, and none of crates from a registry.
fn warnings(said: &str) -> impl Iterator<Item = &str> {
    let blocks = said.split("\n\n").map(|b| b.trim_matches('\n'));
    blocks.filter_map(|block| {
        // Lines about cargo's own work can come before.
        let at = match block.starts_with("warning") {
            true => 0,
            false => block.find("\nwarning")? + 1,
        };
        // So can its last line come behind.
        let end = block.find("\n    Finished").unwrap_or(block.len());
        block.get(at..end)
    })
}

/// The package a line of cargo's says it compiles.
fn compiling(line: &str) -> Option<&str> {
    let step = line.trim_start().strip_prefix("Compiling ")?;
    Some(step.split(" (").next().unwrap_or(step))
}
