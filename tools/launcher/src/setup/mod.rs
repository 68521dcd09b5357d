//! Set-up: what this computer needs, whether it has it, and getting what is missing.
//!
//! [`ensure`] is called by commands before they work: it checks what they need and installs what
//! is missing, saying what it runs; [`check`] is what `doctor` shows. Package sources are derived
//! from the computer's own configuration, see [`apt`].

pub mod apt;
pub mod plan;
pub mod toolchain;
pub mod version;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use dyad_abi::Isa;
use dyad_abi::ident::ISA_COUNT;
use serde::Serialize;

use crate::config::RunConfig;
use crate::error::Error;
use crate::kept;
use plan::{Authority, Facts, Step};
use toolchain::Wanted;
use version::{MIN_QEMU, Version};

/// The emulator of an ISA.
pub const fn qemu_program(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "qemu-system-x86_64",
        Isa::Aarch64 => "qemu-system-aarch64",
    }
}

/// Its package on Debian and Ubuntu.
const fn qemu_package(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "qemu-system-x86",
        Isa::Aarch64 => "qemu-system-arm",
    }
}

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Emulators, by ISA.
    pub qemu: [bool; ISA_COUNT],
    /// The parts of the Rust toolchain that build kernels and programs.
    pub toolchain: bool,
}

impl Requirements {
    /// Everything.
    pub const ALL: Requirements = Requirements {
        qemu: [true; ISA_COUNT],
        toolchain: true,
    };
    /// What building needs.
    pub const BUILD: Requirements = Requirements {
        qemu: [false; ISA_COUNT],
        toolchain: true,
    };

    /// What this run needs.
    pub fn to_run(config: &RunConfig) -> Requirements {
        let stands_in = |isa: Isa| config.test.qemu[isa.index()].is_some();
        Requirements {
            qemu: Isa::ALL.map(|i| config.nodes.contains(&i) && !stands_in(i)),
            toolchain: true,
        }
    }
}

/// State of a requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What is required.
    pub name: String,
    /// Whether it is there.
    pub ok: bool,
    /// Whether the system can do without.
    pub optional: bool,
    /// What was found.
    pub state: String,
    /// What to do about it, if something is to be done.
    pub remedy: Option<String>,
}

/// What was found out about an emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Qemu {
    Missing,
    Unreadable(String),
    TooOld(Version),
    NoPlugins(Version),
    Good(Version),
}

impl Qemu {
    fn find(program: &str) -> Qemu {
        let output = |arg: &[&str]| {
            Command::new(program)
                .args(arg)
                .stdin(Stdio::null())
                .output()
        };
        let out = match output(&["--version"]) {
            Ok(out) => out,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Qemu::Missing,
            Err(e) => return Qemu::Unreadable(e.to_string()),
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let Some(version) = Version::of_qemu(&text) else {
            let first = text.lines().next().unwrap_or_default();
            return Qemu::Unreadable(format!("`{program} --version` says {first:?}"));
        };
        if version < MIN_QEMU {
            return Qemu::TooOld(version);
        }
        match output(&["-plugin", "help"]) {
            Ok(out) if out.status.success() => Qemu::Good(version),
            _ => Qemu::NoPlugins(version),
        }
    }

    fn is_good(&self) -> bool {
        matches!(self, Qemu::Good(_))
    }

    fn text(&self) -> String {
        match self {
            Qemu::Missing => "not found".into(),
            Qemu::Unreadable(why) => format!("cannot be used: {why}"),
            Qemu::TooOld(v) => format!("too old: version {v}, at least {MIN_QEMU} is needed"),
            Qemu::NoPlugins(v) => format!("version {v} without plugin support"),
            Qemu::Good(v) => format!("version {v} with plugin support"),
        }
    }
}

/// Makes sure that everything a command needs is there, installing what is missing. `say` gets
/// what people should see, commands before they run among it.
///
/// # Errors
///
/// If something is missing and could not be installed; the message says what to do.
pub fn ensure(needs: &Requirements, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    // Jobs on other computers install nothing.
    if kept::is_in_use() {
        return Ok(());
    }
    if needs.toolchain {
        ensure_toolchain(say)?;
    }
    let wanted = Isa::ALL.into_iter().filter(|i| needs.qemu[i.index()]);
    let bad: Vec<(Isa, Qemu)> = wanted
        .map(|isa| (isa, Qemu::find(qemu_program(isa))))
        .filter(|(_, q)| !q.is_good())
        .collect();
    if !bad.is_empty() {
        ensure_qemu(&bad, say)?;
    }
    Ok(())
}

/// Makes sure that a program is there, of a package of the distribution; see [`ensure`].
///
/// # Errors
///
/// If it is missing and could not be installed; the message says what to do.
pub fn ensure_tool(program: &str, package: &str, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let there = || {
        let mut c = Command::new(program);
        c.arg("--version").stdin(Stdio::null());
        c.output().is_ok_and(|out| out.status.success())
    };
    if there() {
        return Ok(());
    }
    let why = format!("{program} is missing");
    let facts = facts(&[package]).ok_or_else(|| {
        Error::Setup(format!(
            "{why}, and this computer has no apt: install it with its own package manager"
        ))
    })?;
    let steps = plan::install_package(&facts, package);
    plan::carry_out(&steps, Authority::here(), &why, say)?;
    match there() {
        true => Ok(()),
        false => Err(Error::Setup(format!(
            "package {package} was installed, but {program} cannot be run"
        ))),
    }
}

fn ensure_toolchain(say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let wanted = Wanted::of_workspace().map_err(Error::Setup)?;
    let steps = toolchain_steps(&wanted)?;
    if steps.is_empty() {
        return Ok(());
    }
    let why = "parts of the Rust toolchain are missing";
    // They belong to the user, so no authority is needed.
    plan::carry_out(&steps, Authority::Root, why, say)?;
    if toolchain_steps(&wanted)?.is_empty() {
        Ok(())
    } else {
        Err(Error::Setup(
            "rustup has run but parts of the Rust toolchain are still missing; see `cargo xtask \
             doctor`"
                .into(),
        ))
    }
}

/// What to run for the parts of the toolchain that are missing.
fn toolchain_steps(wanted: &Wanted) -> Result<Vec<Step>, Error> {
    let sysroot = toolchain::sysroot().ok_or_else(|| {
        Error::Setup("rustc cannot be run: install Rust with rustup (the README says how)".into())
    })?;
    let (targets, components) = toolchain::missing(wanted, &sysroot);
    let step = |what: &str, names: &[String]| {
        let words = ["rustup", what, "add", "--toolchain", &wanted.channel];
        let words = words.iter().map(|w| (*w).to_string());
        (!names.is_empty()).then(|| Step::Run(words.chain(names.iter().cloned()).collect()))
    };
    let steps = [step("target", &targets), step("component", &components)];
    Ok(steps.into_iter().flatten().collect())
}

/// Root directory of package configuration; tests have their own.
fn root() -> PathBuf {
    std::env::var_os("DYAD_TEST_ROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

fn facts(packages: &[&str]) -> Option<Facts> {
    let policy = Command::new("apt-cache")
        .arg("policy")
        .args(packages)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let root = root();
    let release = std::fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    Some(Facts {
        distribution: apt::Distribution::parse(&release),
        sources: apt::sources(&root),
        policies: apt::parse_policy(&String::from_utf8_lossy(&policy.stdout)),
        root,
    })
}

/// Steps that install emulators.
fn qemu_steps(isas: &[Isa]) -> Result<Vec<Step>, String> {
    let packages: Vec<&str> = isas.iter().map(|&i| qemu_package(i)).collect();
    let Some(facts) = facts(&packages) else {
        return Err(format!(
            "this computer has no apt: install QEMU >= {MIN_QEMU} with plugin support with its \
             own package manager"
        ));
    };
    plan::install_qemu(&facts, &packages)
}

fn ensure_qemu(bad: &[(Isa, Qemu)], say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let problem = |(isa, q): &(Isa, Qemu)| format!("{}: {}", qemu_program(*isa), q.text());
    let why = bad.iter().map(problem).collect::<Vec<_>>().join("; ");
    let isas: Vec<Isa> = bad.iter().map(|(i, _)| *i).collect();
    let steps = qemu_steps(&isas).map_err(|e| Error::Setup(format!("{why}. {e}")))?;
    plan::carry_out(&steps, Authority::here(), &why, say)?;
    for isa in isas {
        let now = Qemu::find(qemu_program(isa));
        if !now.is_good() {
            return Err(Error::Setup(format!(
                "packages were installed, but {}: {}. Does another directory come first in PATH, or \
                 is that of the packages not in it?",
                qemu_program(isa),
                now.text()
            )));
        }
    }
    Ok(())
}

/// Looks at every requirement; changes nothing.
pub fn check() -> Vec<Item> {
    let mut items = check_toolchain();
    for isa in Isa::ALL {
        let found = Qemu::find(qemu_program(isa));
        let remedy = (!found.is_good()).then(|| match qemu_steps(&[isa]) {
            Ok(steps) => shell_list(&steps),
            Err(e) => e,
        });
        items.push(Item {
            name: format!("QEMU for {isa} ({})", qemu_program(isa)),
            ok: found.is_good(),
            optional: false,
            state: found.text(),
            remedy,
        });
    }
    items.push(program(
        "setpriv",
        "--version",
        false,
        "apt-get install util-linux",
    ));
    items.push(program("cc", "--version", false, "apt-get install gcc"));
    items.push(check_shm());
    items.push(program(
        "gdb-multiarch",
        "--version",
        true,
        "apt-get install gdb-multiarch",
    ));
    items
}

fn shell_list(steps: &[Step]) -> String {
    let sudo = !rustix::process::geteuid().is_root();
    let list: Vec<String> = steps.iter().map(|s| s.shell(sudo)).collect();
    list.join(" && ")
}

fn check_toolchain() -> Vec<Item> {
    let name = "Rust toolchain with targets and components".to_string();
    let item = |ok: bool, state: String, remedy: Option<String>| Item {
        name: name.clone(),
        ok,
        optional: false,
        state,
        remedy,
    };
    let result = Wanted::of_workspace()
        .map_err(Error::Setup)
        .and_then(|w| Ok((toolchain_steps(&w)?, w)));
    vec![match result {
        Ok((steps, w)) if steps.is_empty() => {
            let parts = w.targets.len() + w.components.len();
            item(true, format!("{} with all {parts} parts", w.channel), None)
        }
        Ok((steps, w)) => {
            let list: Vec<String> = steps.iter().map(|s| s.shell(false)).collect();
            item(
                false,
                format!("{}, parts are missing", w.channel),
                Some(list.join(" && ")),
            )
        }
        Err(e) => item(
            false,
            e.to_string(),
            Some("install Rust with rustup".into()),
        ),
    }]
}

fn program(name: &str, arg: &str, optional: bool, remedy: &str) -> Item {
    let output = Command::new(name).arg(arg).stdin(Stdio::null()).output();
    let (ok, state) = match output {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            (true, text.lines().next().unwrap_or_default().to_string())
        }
        Err(e) => (false, format!("cannot be run: {e}")),
    };
    Item {
        name: name.into(),
        ok,
        optional,
        state,
        remedy: (!ok).then(|| remedy.to_string()),
    }
}

fn check_shm() -> Item {
    let c = RunConfig::default();
    let needed = c.pool_bytes();
    let (ok, state) = match crate::pools::available(&c.shm_dir) {
        Ok(room) => (
            room >= needed,
            format!(
                "{} available, a run with defaults needs {}",
                crate::size::show(room),
                crate::size::show(needed)
            ),
        ),
        Err(e) => (false, e.to_string()),
    };
    Item {
        name: format!("shared memory ({})", c.shm_dir.display()),
        ok,
        optional: false,
        state,
        remedy: (!ok).then(|| {
            "use smaller pools (--mem-local, --mem-cxl), enlarge it (as root: mount -o \
             remount,size=2G /dev/shm), or name another memory file system with --shm-dir DIR"
                .to_string()
        }),
    }
}
