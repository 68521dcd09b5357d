//! QEMU's own plugins, as peers: its cache model `contrib/plugins/cache.c` and its counters
//! `tests/tcg/plugins/insn.c` and `bb.c`, built from the source package of the very QEMU that is installed.
//!
//! No package has them in a form that could be loaded. The source comes by the distribution's own
//! tools: `apt-get` with a configuration of its own below the target directory, whose entries are
//! those of this computer with source packages added. Nothing outside of the target directory is
//! changed, no authority is needed, and nothing of it ever becomes part of this project.
//!
//! ```text
//! target/qemu-plugins/VERSION/apt/       apt's state
//! target/qemu-plugins/VERSION/source/    the files needed
//! target/qemu-plugins/VERSION/*.so       the plugins
//! ```
//!
//! Where the computer is offline or has no apt, [`SOURCE_VAR`] names a directory with the source.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dyad_launcher::error::Error;
use dyad_launcher::{paths, setup};

/// Environment variable with the directory of QEMU's source, of the version that is installed.
pub const SOURCE_VAR: &str = "DYAD_QEMU_SOURCE";

/// What is taken from the source: plugins, and the header they include.
const CACHE: &str = "contrib/plugins/cache.c";
const INSN: &str = "tests/tcg/plugins/insn.c";
const BB: &str = "tests/tcg/plugins/bb.c";
const HEADER_DIR: &str = "include/qemu";
const HEADER: &str = "include/qemu/qemu-plugin.h";
/// The library that the plugins use, which QEMU has loaded; its headers are in this package.
const GLIB: &str = "glib-2.0";
const GLIB_PACKAGE: &str = "libglib2.0-dev";

/// The plugins, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuPlugins {
    /// The cache model.
    pub cache: PathBuf,
    /// The counter of instructions, by instruction.
    pub insn: PathBuf,
    /// The counter of instructions, by translated block.
    pub bb: PathBuf,
    /// What they were built from, for people.
    pub origin: String,
}

/// Builds the plugins unless that has been done. `say` gets what people should see.
///
/// # Errors
///
/// If the source cannot be had or does not compile; the message says what to do.
pub fn ensure(say: &mut dyn FnMut(&str)) -> Result<QemuPlugins, Error> {
    let base = paths::target_dir().join("qemu-plugins");
    match std::env::var_os(SOURCE_VAR) {
        Some(source) => {
            let source = PathBuf::from(source);
            let dir = base.join("own");
            make_dir(&dir)?;
            let origin = source.display().to_string();
            build(
                &source,
                &dir,
                &glib_flags().unwrap_or_default(),
                origin,
                say,
            )
        }
        None => from_packages(&base, say),
    }
}

fn from_packages(base: &Path, say: &mut dyn FnMut(&str)) -> Result<QemuPlugins, Error> {
    let (package, version) = installed()?;
    let dir = base.join(version.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    let origin = format!("{package} {version}");
    let built = plugins(&dir, origin.clone());
    if [&built.cache, &built.insn, &built.bb]
        .into_iter()
        .all(|p| p.is_file())
    {
        return Ok(built);
    }
    let apt = Apt::new(&dir.join("apt"))?;
    let source = dir.join("source");
    make_dir(&source)?;
    if [CACHE, INSN, BB, HEADER]
        .iter()
        .any(|f| !source.join(f).is_file())
    {
        say(&format!("getting the source of {origin} with apt-get"));
        apt.update()?;
        apt.source(&package, &version, &source)?;
    }
    let glib = match glib_flags() {
        Some(flags) => flags,
        None => {
            say(&format!("getting the headers of {GLIB} with apt-get"));
            apt.headers(&dir.join("glib"))?
        }
    };
    build(&source, &dir, &glib, origin, say)
}

fn plugins(dir: &Path, origin: String) -> QemuPlugins {
    QemuPlugins {
        cache: dir.join("libcache.so"),
        insn: dir.join("libinsn.so"),
        bb: dir.join("libbb.so"),
        origin,
    }
}

/// Name and version of the source package of the emulators that are installed.
fn installed() -> Result<(String, String), Error> {
    let output = Command::new("dpkg-query")
        .args([
            "--show",
            "--showformat",
            "${source:Package} ${source:Version}\n",
        ])
        .args(["qemu-system-x86", "qemu-system-arm"])
        .stdin(Stdio::null())
        .output()
        .map_err(|_| no_package("this computer has no dpkg"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    match (output.status.success(), lines.next(), lines.next()) {
        (true, Some(x86), Some(arm)) if x86 == arm => {
            let (package, version) = x86
                .split_once(' ')
                .ok_or_else(|| no_package("dpkg-query says nothing that is understood"))?;
            Ok((package.into(), version.into()))
        }
        (true, Some(x86), Some(arm)) => Err(no_package(&format!(
            "the emulators are of different versions, {x86} and {arm}"
        ))),
        _ => Err(no_package(
            "the emulators were not installed from packages of the distribution",
        )),
    }
}

fn no_package(why: &str) -> Error {
    Error::Setup(format!(
        "QEMU's own plugins are built from the source of the QEMU that is installed, but {why}. \
         Set {SOURCE_VAR} to a directory with that source, which has {CACHE}"
    ))
}

/// apt with a configuration and state of its own.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(dir: &Path) -> Result<Apt, Error> {
        for part in ["sources", "lists/partial", "cache/archives/partial"] {
            make_dir(&dir.join(part))?;
        }
        let entries = setup::apt::with_source_packages(&setup::apt::sources(Path::new("/")));
        if entries.is_empty() {
            return Err(no_package("apt has no sources on this computer"));
        }
        write(&dir.join("sources/dyad.sources"), &entries)?;
        Ok(Apt { dir: dir.into() })
    }

    fn command(&self, program: &str) -> Command {
        let mut c = Command::new(program);
        let dir = self.dir.display();
        for option in [
            "Dir::Etc::SourceList=/dev/null".to_string(),
            format!("Dir::Etc::SourceParts={dir}/sources"),
            format!("Dir::State::Lists={dir}/lists"),
            format!("Dir::Cache={dir}/cache"),
            // It is nobody else's state, and the administrator's need not be writable.
            "Debug::NoLocking=true".into(),
        ] {
            c.arg("-o").arg(option);
        }
        c
    }

    fn update(&self) -> Result<(), Error> {
        let mut c = self.command("apt-get");
        c.arg("update");
        // One entry that cannot be read need not be the one that matters; what is missing then is
        // said by the next step.
        match output(c) {
            Err(e @ Error::Interrupted) => Err(e),
            _ => Ok(()),
        }
    }

    /// Puts the files needed below `to`.
    fn source(&self, package: &str, version: &str, to: &Path) -> Result<(), Error> {
        let mut c = self.command("apt-get");
        // The distribution's changes do not matter: they leave these files alone.
        c.args(["source", "--download-only", "--tar-only"]);
        c.arg(format!("{package}={version}")).current_dir(to);
        output(c).map_err(|e| {
            no_package(&format!(
                "its source package {package} {version} cannot be had (is this computer offline?):\n\
                 {e}\n"
            ))
        })?;
        let archive = find(to, |name| name.contains(".orig.tar."))
            .ok_or_else(|| no_package("apt-get source has left no archive"))?;
        let mut c = Command::new("tar");
        c.args(["--extract", "--strip-components=1", "--wildcards", "--file"]);
        c.arg(&archive).current_dir(to);
        c.args([CACHE, INSN, BB, HEADER].map(|file| format!("*/{file}")));
        output(c)?;
        std::fs::remove_file(&archive)
            .map_err(|e| Error::io(format_args!("cannot remove {}", archive.display()), e))
    }

    /// Unpacks the headers of the library below `to`; flags for the compiler.
    fn headers(&self, to: &Path) -> Result<Vec<String>, Error> {
        make_dir(to)?;
        let mut c = self.command("apt-get");
        c.args(["download", GLIB_PACKAGE]).current_dir(to);
        output(c)?;
        let package = find(to, |name| name.ends_with(".deb"));
        let package = package.ok_or_else(|| no_package("apt-get download has left no package"))?;
        let mut c = Command::new("dpkg-deb");
        c.arg("--extract").arg(&package).arg(to);
        output(c)?;
        let general = to.join("usr/include").join(GLIB);
        // The part that depends on the machine is in the directory of its libraries.
        let own = std::fs::read_dir(to.join("usr/lib")).into_iter().flatten();
        let own = own.flatten().map(|e| e.path().join(GLIB).join("include"));
        let dirs = [general].into_iter().chain(own).filter(|d| d.is_dir());
        Ok(dirs.map(|d| format!("-I{}", d.display())).collect())
    }
}

/// Flags for the headers of the library, if they are installed.
fn glib_flags() -> Option<Vec<String>> {
    let mut c = Command::new("pkg-config");
    c.args(["--cflags", GLIB]);
    let text = output(c).ok()?;
    Some(text.split_whitespace().map(str::to_string).collect())
}

fn build(
    source: &Path,
    dir: &Path,
    glib: &[String],
    origin: String,
    say: &mut dyn FnMut(&str),
) -> Result<QemuPlugins, Error> {
    let plugins = plugins(dir, origin);
    for (file, to) in [
        (CACHE, &plugins.cache),
        (INSN, &plugins.insn),
        (BB, &plugins.bb),
    ] {
        say(&format!("compiling QEMU's {file}"));
        let mut c = Command::new("cc");
        c.args(["-shared", "-fPIC", "-O2", "-o"]).arg(to);
        c.arg(source.join(file));
        c.arg(format!("-I{}", source.join(HEADER_DIR).display()));
        c.args(glib);
        output(c)?;
    }
    Ok(plugins)
}

/// The file in `dir` whose name is the one wanted.
fn find(dir: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let mut named = entries.filter(|e| e.file_name().to_str().is_some_and(&wanted));
    named.next().map(|e| e.path())
}

/// Runs a command; what it prints, or an error with what it has complained about.
fn output(mut c: Command) -> Result<String, Error> {
    let shown = c.get_program().to_string_lossy().into_owned();
    let out = c
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|e| Error::Setup(format!("cannot run {shown}: {e}")))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    if dyad_launcher::signals::count() > 0 {
        return Err(Error::Interrupted);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::Setup(format!(
        "{shown} failed ({}):\n{said}",
        out.status
    )))
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir)
        .map_err(|e| Error::io(format_args!("cannot create {}", dir.display()), e))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text)
        .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
}

/// What the cache model has counted, on all CPUs of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Accesses of data.
    pub data: u64,
    /// Those that missed.
    pub data_misses: u64,
    /// Fetches of instructions.
    pub fetches: u64,
    /// Those that missed.
    pub fetch_misses: u64,
    /// Accesses of the second level; 0 if there is none.
    pub l2: u64,
    /// Those that missed.
    pub l2_misses: u64,
}

impl CacheCounts {
    /// Reads what the cache model prints at the end.
    ///
    /// # Errors
    ///
    /// A sentence, if it is not that.
    pub fn parse(text: &str) -> Result<CacheCounts, String> {
        let mut lines = text
            .lines()
            .skip_while(|l| !l.starts_with("core #, data accesses"));
        lines.next().ok_or("the cache model has printed no table")?;
        // One line per CPU, and their sum if there is more than one.
        let rows: Vec<&str> = lines.take_while(|l| !l.trim().is_empty()).collect();
        let row = rows.last().ok_or("the table of the cache model is empty")?;
        let words = row.split_whitespace().skip(1).filter(|w| !w.ends_with('%'));
        let numbers: Option<Vec<u64>> = words.map(|w| w.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[data, data_misses, fetches, fetch_misses, ref l2 @ ..]) => Ok(CacheCounts {
                data,
                data_misses,
                fetches,
                fetch_misses,
                l2: l2.first().copied().unwrap_or(0),
                l2_misses: l2.get(1).copied().unwrap_or(0),
            }),
            _ => Err(format!("the cache model has printed {row:?}")),
        }
    }
}

/// Reads what a counter of instructions prints at the end: those of all CPUs.
///
/// # Errors
///
/// A sentence, if it is not that.
pub fn instructions(text: &str) -> Result<u64, String> {
    let number = |line: &str| {
        let by_block = || line.strip_prefix("Total: ")?.split_once("insns: ");
        match line.strip_prefix("total insns: ") {
            Some(n) => n.trim().parse().ok(),
            None => by_block()?.1.trim().parse().ok(),
        }
    };
    let total = text.lines().find_map(number);
    total.ok_or_else(|| "QEMU's counter of instructions has printed no total".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "core #, data accesses, data misses, dmiss rate, insn accesses, insn misses, \
                        imiss rate, l2 accesses, l2 misses, l2 miss rate\n";

    #[test]
    fn tables_of_the_cache_model_are_read() {
        let one = format!(
            "{HEAD}0       996695         508             0.0510%  2642799        18617           \
             0.7044%  19125          1434            7.4980%\n\naddress, data misses, instruction\n"
        );
        let counts = CacheCounts {
            data: 996_695,
            data_misses: 508,
            fetches: 2_642_799,
            fetch_misses: 18_617,
            l2: 19_125,
            l2_misses: 1_434,
        };
        assert_eq!(CacheCounts::parse(&one), Ok(counts));
        let two = format!("{HEAD}0 1 2 3% 4 5 6%\n1 1 2 3% 4 5 6%\nsum 2 4 3% 8 10 6%\n\n");
        let sum = CacheCounts::parse(&two).unwrap();
        assert_eq!((sum.data, sum.fetch_misses, sum.l2), (2, 10, 0));
        for bad in ["", HEAD, "core #, data accesses\n0 x\n"] {
            assert!(CacheCounts::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn totals_of_the_counter_are_read() {
        let text = "cpu 0 insns: 5\ncpu 1 insns: 6\ntotal insns: 11\n";
        assert_eq!(instructions(text), Ok(11));
        let blocks = "CPU0: bb's: 2, insns: 9\nTotal: bb's: 2, insns: 9\n";
        assert_eq!(instructions(blocks), Ok(9));
        assert!(instructions("total insns: many\n").is_err());
    }
}
