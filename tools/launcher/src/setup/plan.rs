//! Deciding what to run to get what is missing, and running it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::apt::{self, Distribution, Policy, Source};
use super::version::MIN_QEMU;
use crate::error::Error;
use crate::signals;

/// File for the backports entry, below the root directory.
pub const BACKPORTS_FILE: &str = "etc/apt/sources.list.d/dyad-backports.sources";

/// One thing to do as the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a file.
    Write {
        /// Where.
        path: PathBuf,
        /// What.
        text: String,
    },
    /// Run a command.
    Run(Vec<String>),
}

fn run(words: &[&str]) -> Step {
    Step::Run(words.iter().map(|w| (*w).to_string()).collect())
}

/// What is known about the package manager.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The distribution.
    pub distribution: Distribution,
    /// apt's sources.
    pub sources: Vec<Source>,
    /// What it says about the packages needed.
    pub policies: Vec<Policy>,
    /// Root directory.
    pub root: PathBuf,
}

/// Steps that install emulators that are new enough.
///
/// # Errors
///
/// A sentence that says why there are none, and what can be done by hand.
pub fn install_qemu(facts: &Facts, packages: &[&str]) -> Result<Vec<Step>, String> {
    let of = |p: &&str| facts.policies.iter().find(|q| q.package == **p);
    let policies: Vec<&Policy> = packages.iter().filter_map(of).collect();
    let all = |good: &dyn Fn(&Policy) -> bool| {
        policies.len() == packages.len() && policies.iter().all(|p| good(p))
    };
    if all(&|p| p.candidate.is_some_and(|v| v >= MIN_QEMU)) {
        return Ok(vec![install(packages, None)]);
    }
    let first = policies.first();
    let good_suite = first.and_then(|p| p.offers.iter().find(|o| o.version >= MIN_QEMU));
    if let Some(offer) = good_suite {
        let offers = |p: &Policy| {
            let mut good = p.offers.iter().filter(|o| o.version >= MIN_QEMU);
            good.any(|o| o.suite == offer.suite)
        };
        if all(&offers) {
            return Ok(vec![install(packages, Some(&offer.suite))]);
        }
    }
    let update = run(&["apt-get", "update"]);
    let needs_backports =
        facts.distribution.id == "debian" && facts.distribution.codename == "bookworm";
    if needs_backports {
        let Some((text, suite)) = apt::backports_entry(&facts.distribution, &facts.sources) else {
            return Err(format!(
                "no apt source on this computer offers {} itself, so there is nothing to derive a \
                 backports entry from. Add {}-backports to apt's sources and run this again",
                facts.distribution.name, facts.distribution.codename
            ));
        };
        let mut steps = Vec::new();
        if !apt::is_configured(&suite, &facts.sources) {
            let path = facts.root.join(BACKPORTS_FILE);
            steps.push(Step::Write { path, text });
        }
        steps.extend([update, install(packages, Some(&suite))]);
        return Ok(steps);
    }
    // Package lists that were never fetched say nothing.
    if !all(&|p| p.candidate.is_some()) {
        return Ok(vec![update, install(packages, None)]);
    }
    let newest = policies
        .iter()
        .flat_map(|p| &p.offers)
        .map(|o| o.version)
        .max();
    let newest = newest.map_or_else(String::new, |v| format!(" (the newest is {v})"));
    Err(format!(
        "{} offers no QEMU of at least {MIN_QEMU}{newest}. Install QEMU >= {MIN_QEMU} with plugin \
         support (x86_64-softmmu and aarch64-softmmu targets, configured with --enable-plugins) \
         so that it comes first in PATH",
        if facts.distribution.name.is_empty() {
            "this distribution"
        } else {
            &facts.distribution.name
        }
    ))
}

/// Steps that install a package of the distribution.
pub fn install_package(facts: &Facts, package: &str) -> Vec<Step> {
    let known = facts.policies.iter().any(|p| p.candidate.is_some());
    // Package lists that were never fetched say nothing.
    let update = (!known).then(|| run(&["apt-get", "update"]));
    update
        .into_iter()
        .chain([install(&[package], None)])
        .collect()
}

/// Waits for another installation rather than failing, asks nothing, and brings no extras.
fn install(packages: &[&str], suite: Option<&str>) -> Step {
    let mut words = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=300",
        "install",
        "--yes",
        "--no-install-recommends",
    ];
    if let Some(suite) = suite {
        words.extend(["--target-release", suite]);
    }
    words.extend(packages);
    run(&words)
}

/// How administrator's steps can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// This is the administrator.
    Root,
    /// `sudo` works without a question.
    Sudo,
    /// Not at all.
    None,
}

impl Authority {
    /// What this process has.
    pub fn here() -> Authority {
        if rustix::process::geteuid().is_root() {
            return Authority::Root;
        }
        let sudo = Command::new("sudo")
            .args(["-n", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match sudo {
            Ok(s) if s.success() => Authority::Sudo,
            _ => Authority::None,
        }
    }
}

impl Step {
    /// The step as one shell command, for people to read and to paste.
    pub fn shell(&self, sudo: bool) -> String {
        let sudo = if sudo { "sudo " } else { "" };
        match self {
            Step::Write { path, text } => {
                let text = text.trim_end().replace('\'', "'\\''");
                let to = path.display();
                format!("printf '%s\\n' '{text}' | {sudo}tee {to} >/dev/null")
            }
            Step::Run(words) => format!("{sudo}{}", words.join(" ")),
        }
    }

    fn execute(&self, authority: Authority) -> Result<(), Error> {
        // Standard output is for what the command was asked for.
        let output = match self {
            Step::Write { .. } => Stdio::null(),
            Step::Run(_) => std::io::stderr().into(),
        };
        let (mut words, input): (Vec<&str>, &str) = match self {
            Step::Write { path, text } => (
                vec!["tee", path.to_str().unwrap_or_default()],
                text.as_str(),
            ),
            Step::Run(words) => (words.iter().map(String::as_str).collect(), ""),
        };
        if authority == Authority::Sudo {
            words.splice(0..0, ["sudo", "-n"]);
        }
        let failed = |why: &dyn std::fmt::Display| {
            if signals::count() > 0 {
                return Error::Interrupted;
            }
            Error::Setup(format!("`{}` failed: {why}", self.shell(false)))
        };
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(output)
            .spawn()
            .map_err(|e| failed(&e))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that reads nothing closes the pipe.
            let _ = stdin.write_all(input.as_bytes());
        }
        let status = child.wait().map_err(|e| failed(&e))?;
        if status.success() {
            Ok(())
        } else {
            Err(failed(&status))
        }
    }
}

/// Says what will be run and runs it; without authority, says what to run and stops.
///
/// # Errors
///
/// If there is no authority or a step fails.
pub fn carry_out(
    steps: &[Step],
    authority: Authority,
    why: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    if authority == Authority::None {
        let list: Vec<String> = steps
            .iter()
            .map(|s| format!("  {}", s.shell(true)))
            .collect();
        return Err(Error::Setup(format!(
            "{why}. This user may not install packages, and sudo is not there or would ask for a \
             password. Run these commands (as root, where there is no sudo), then this one \
             again:\n{}",
            list.join("\n")
        )));
    }
    say(&format!("{why}; will run:"));
    let sudo = authority == Authority::Sudo;
    for step in steps {
        say(&format!("  {}", step.shell(sudo)));
    }
    for step in steps {
        step.execute(authority)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::apt::Offer;
    use crate::setup::version::Version;

    const PACKAGES: [&str; 2] = ["qemu-system-x86", "qemu-system-arm"];

    fn facts(id: &str, codename: &str, offers: &[(u32, &str)], line: &str) -> Facts {
        let offers: Vec<Offer> = offers
            .iter()
            .map(|&(major, suite)| Offer {
                version: Version { major, minor: 2 },
                suite: suite.into(),
            })
            .collect();
        let policy = |package: &&str| Policy {
            package: (*package).into(),
            // The first offer plays the one with the highest priority.
            candidate: offers.first().map(|o| o.version),
            offers: offers.clone(),
        };
        Facts {
            distribution: Distribution {
                id: id.into(),
                codename: codename.into(),
                name: format!("{id} {codename}"),
            },
            sources: Source::parse_one_line(line),
            policies: PACKAGES.iter().map(policy).collect(),
            root: "/".into(),
        }
    }

    fn commands(f: &Facts) -> Vec<String> {
        let steps = install_qemu(f, &PACKAGES).unwrap();
        steps.iter().map(|s| s.shell(false)).collect()
    }

    const LINE: &str = "deb [signed-by=/k] http://mirror.example/debian bookworm main";

    #[test]
    fn newer_distributions_simply_install() {
        for (id, codename) in [("debian", "trixie"), ("ubuntu", "questing")] {
            let c = commands(&facts(id, codename, &[(10, codename)], LINE));
            assert_eq!(c.len(), 1);
            assert!(c[0].ends_with("--no-install-recommends qemu-system-x86 qemu-system-arm"));
        }
    }

    #[test]
    fn bookworm_gets_a_backports_entry() {
        let c = commands(&facts("debian", "bookworm", &[(7, "bookworm")], LINE));
        assert_eq!(c.len(), 3);
        assert!(c[0].contains("Suites: bookworm-backports\n"), "{}", c[0]);
        assert!(
            c[0].contains("URIs: http://mirror.example/debian\n"),
            "{}",
            c[0]
        );
        assert!(c[0].contains("Signed-By: /k'"), "{}", c[0]);
        assert!(c[0].ends_with("| tee /etc/apt/sources.list.d/dyad-backports.sources >/dev/null"));
        assert_eq!(c[1], "apt-get update");
        assert!(c[2].contains("--target-release bookworm-backports qemu-system-x86"));
    }

    #[test]
    fn an_entry_that_is_there_is_used() {
        let both = format!("{LINE}\n{}", LINE.replace(" main", "-backports main"));
        let c = commands(&facts("debian", "bookworm", &[(7, "bookworm")], &both));
        assert_eq!(c.len(), 2, "its lists were never fetched: {c:?}");
        let offers = [(7, "bookworm"), (10, "bookworm-backports")];
        let c = commands(&facts("debian", "bookworm", &offers, &both));
        assert_eq!(c.len(), 1);
        assert!(c[0].contains("--target-release bookworm-backports"));
    }

    #[test]
    fn a_computer_without_package_lists_updates_them_first() {
        let c = commands(&facts("debian", "trixie", &[], LINE));
        assert_eq!((c.len(), c[0].as_str()), (2, "apt-get update"));
        let c = commands(&facts("debian", "bookworm", &[], LINE));
        assert_eq!(c.len(), 3);
    }

    #[test]
    fn other_packages_are_installed_from_the_distribution() {
        let shell = |offers: &[(u32, &str)]| -> Vec<String> {
            let steps = install_package(&facts("debian", "trixie", offers, LINE), "valgrind");
            steps.iter().map(|s| s.shell(false)).collect()
        };
        let c = shell(&[(3, "trixie")]);
        assert!(c.len() == 1 && c[0].ends_with("--no-install-recommends valgrind"));
        let c = shell(&[]);
        assert_eq!((c.len(), c[0].as_str()), (2, "apt-get update"));
    }

    #[test]
    fn where_nothing_helps_it_says_so() {
        let f = facts("ubuntu", "noble", &[(8, "noble")], LINE);
        let e = install_qemu(&f, &PACKAGES).unwrap_err();
        assert!(e.contains("the newest is 8.2") && e.contains("PATH"), "{e}");
        let f = facts("debian", "bookworm", &[(7, "bookworm")], "");
        let e = install_qemu(&f, &PACKAGES).unwrap_err();
        assert!(e.contains("bookworm-backports"), "{e}");
    }

    #[test]
    fn without_authority_the_commands_are_printed() {
        let steps = install_qemu(&facts("debian", "bookworm", &[], LINE), &PACKAGES).unwrap();
        let mut said = Vec::new();
        let e = carry_out(&steps, Authority::None, "QEMU is missing", &mut |t| {
            said.push(t.to_string());
        })
        .unwrap_err();
        assert_eq!(e.exit_status(), 2);
        let text = e.to_string();
        assert!(text.contains("\n  sudo apt-get update\n"), "{text}");
        assert!(text.contains("| sudo tee /etc/apt/"), "{text}");
        assert!(said.is_empty());
    }
}
