//! The test programs of the workspace, as `cargo test` builds them.
//!
//! Programs are built together, whichever of them are run: with other packages on cargo's command line, dependencies
//! would have other features, and most of the workspace would be built again.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Instant, SystemTime};

use dyad_tier::Tier;
use serde_json::Value;

use super::SIZES;
use dyad_launcher::error::Error;
use dyad_launcher::test_times::{self, Taken, cpu_time};
use dyad_launcher::{build, paths, signals};

/// A package of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Whether its tests have sizes.
    pub has_sizes: bool,
    id: String,
    dir: PathBuf,
}

/// All packages of the workspace.
pub fn packages() -> Result<Vec<Package>, Error> {
    let mut cargo = build::cargo();
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = output_of(cargo)?;
    let metadata: Value = serde_json::from_slice(&output)
        .map_err(|e| Error::Build(format!("cargo metadata: {e}")))?;
    let packages = metadata["packages"].as_array();
    Ok(packages.into_iter().flatten().filter_map(package).collect())
}

fn package(value: &Value) -> Option<Package> {
    let dependencies = value["dependencies"].as_array()?;
    Some(Package {
        name: value["name"].as_str()?.to_owned(),
        has_sizes: dependencies.iter().any(|d| d["name"] == SIZES),
        id: value["id"].as_str()?.to_owned(),
        dir: Path::new(value["manifest_path"].as_str()?).parent()?.into(),
    })
}

/// A test program.
struct Program {
    /// Package and target, such as `dyad-ring::wake`.
    name: String,
    package: String,
    dir: PathBuf,
    file: PathBuf,
}

/// All test programs of the workspace's default members.
pub struct Programs {
    all: Vec<Program>,
    /// Where tests of procedural macros find the standard library.
    libraries: PathBuf,
}

impl Programs {
    /// Builds them, or finds that they are built.
    pub fn build(packages: &[Package]) -> Result<Programs, Error> {
        let mut cargo = build::cargo();
        cargo.args(["test", "--no-run"]);
        cargo.arg("--message-format=json-render-diagnostics");
        let output = output_of(cargo)?;
        let messages = String::from_utf8_lossy(&output);
        let values = messages
            .lines()
            .filter_map(|l| serde_json::from_str(l).ok());
        let mut all: Vec<Program> = values.filter_map(|v| program(&v, packages)).collect();
        // Cargo writes messages as builds end; it runs programs by name.
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let mut rustc = Command::new("rustc");
        // There rustup chooses the toolchain of the workspace.
        rustc.current_dir(paths::workspace_root());
        rustc.args(["--print", "target-libdir"]);
        let libraries = output_of(rustc)?;
        Ok(Programs {
            all,
            libraries: String::from_utf8_lossy(&libraries).trim().into(),
        })
    }

    /// Runs the programs of these packages, or all, one after the other, and returns the status: 0 if all have
    /// passed.
    pub fn run(&self, of: Option<&[String]>, tier: Tier, args: &[&str]) -> Result<u8, Error> {
        let mut failed = Vec::new();
        for program in &self.all {
            if of.is_some_and(|of| !of.contains(&program.package)) {
                continue;
            }
            println!("--- {}", program.name);
            let status = program.run(&self.libraries, tier, args)?;
            if signals::count() > 0 {
                return Err(Error::Interrupted);
            }
            if !status.success() {
                failed.push(program.name.as_str());
                println!("--- {}: FAILED with status {}", program.name, code(status));
            }
        }
        if !failed.is_empty() {
            println!("failed: {}", failed.join(", "));
        }
        Ok(u8::from(!failed.is_empty()))
    }
}

impl Program {
    /// Runs the program with the variables that cargo would set, and writes how long it takes.
    fn run(&self, libraries: &Path, tier: Tier, args: &[&str]) -> Result<ExitStatus, Error> {
        let (start, began, cpu) = (Instant::now(), SystemTime::now(), cpu_time());
        let mut command = Command::new(&self.file);
        command
            .args(args)
            .current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .env("CARGO_PKG_NAME", &self.package)
            .env("LD_LIBRARY_PATH", libraries)
            .env(dyad_tier::VARIABLE, tier.name())
            .stdin(Stdio::null());
        let status = command
            .status()
            .map_err(|e| Error::io(format_args!("cannot start {}", self.file.display()), e))?;
        let taken = Taken {
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: Some((cpu_time() - cpu).max(0.0)),
            ok: status.success(),
        };
        test_times::write_whole(tier, &self.name, began, taken);
        Ok(status)
    }
}

/// The program that a message of cargo is about, if it is about one of tests.
fn program(message: &Value, packages: &[Package]) -> Option<Program> {
    let file = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let package = packages.iter().find(|p| message["package_id"] == p.id)?;
    let target = &message["target"];
    let name = match target["kind"][0].as_str()? {
        "test" => target["name"].as_str()?,
        "bin" => "main",
        _ => "unit",
    };
    Some(Program {
        name: format!("{}::{name}", package.name),
        package: package.name.clone(),
        dir: package.dir.clone(),
        file: file.into(),
    })
}

/// What a command prints. What it says on stderr is for whoever waits.
fn output_of(mut command: Command) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Error::io(format_args!("cannot start {name}"), e))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false if signals::count() > 0 => Err(Error::Interrupted),
        false => Err(Error::Build(format!("{name}: {}", output.status))),
    }
}

/// The status of a program, as shells give it.
fn code(status: ExitStatus) -> i32 {
    let code = status.code().or(status.signal().map(|n| 128 + n));
    code.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(name: &str, dependency: &str) -> Package {
        let value = json!({
            "name": name, "id": format!("path+file:///w/{name}#0.1.0"),
            "manifest_path": format!("/w/{name}/Cargo.toml"), "dependencies": [{ "name": dependency }],
        });
        package(&value).unwrap()
    }

    #[test]
    fn packages_have_sizes_if_they_depend_on_tiers() {
        assert!(read("dyad-msg", SIZES).has_sizes);
        assert!(!read("hop", "dyad").has_sizes);
    }

    #[test]
    fn programs_of_tests_are_named_by_package_and_target() {
        let packages = [read("dyad-ring", "loom")];
        let message = |kind: &str, test: bool| {
            json!({
                "executable": "/w/target/debug/deps/wake-0123456789abcdef",
                "package_id": packages[0].id, "profile": { "test": test },
                "target": { "kind": [kind], "name": "wake" },
            })
        };
        let name = |kind, test| program(&message(kind, test), &packages).map(|p| p.name);
        assert_eq!(name("test", true).as_deref(), Some("dyad-ring::wake"));
        assert_eq!(name("lib", true).as_deref(), Some("dyad-ring::unit"));
        assert_eq!(name("bin", false), None);
    }
}
