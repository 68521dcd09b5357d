//! Programs whose crates want `std`, told with the lines of the manifest that take it away.
//!
//! Programs have `core`, `alloc` and `dyad`. Most crates of the registry use `std` unless their default features are
//! turned off, and the compiler answers with thousands of errors about missing preludes. Which dependency has turned `std`
//! on is in cargo's metadata.

use super::clean_command;
use crate::process::run_quiet;
use crate::toolchain::Toolchain;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// What the compiler says of a crate that wants `std`.
const MISSING: &str = "can't find crate for `std`";
/// How cargo names a crate that did not compile.
const FAILED: &str = "error: could not compile `";
/// The features that decide.
const STD: &str = "std";
const ALLOC: &str = "alloc";
const DEFAULT: &str = "default";

/// Why a program wants `std`, and what its author can do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NeedsStd {
    /// Name of the binary.
    pub bin: String,
    /// The crates that did not compile for it.
    pub crates: Vec<String>,
    /// Lines for the program's manifest, under `[dependencies]`.
    pub manifest: Vec<String>,
    /// Dependencies of dependencies with `std` on: who has asked, for whom.
    pub indirect: Vec<(String, String)>,
    /// Whether the program's own source lacks `#![no_std]`.
    pub own: bool,
}

impl fmt::Display for NeedsStd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NeedsStd { bin, .. } = self;
        if self.own {
            return write!(
                f,
                "{bin} does not compile: its source uses the standard library, and programs have `core`, `alloc` and `dyad`\n\
                 do: write `#![no_std]` and `#![no_main]` at its top, or see what `cargo xtask new` makes"
            );
        }
        write!(
            f,
            "{bin} does not compile: crates use the standard library, and programs have `core`, `alloc` and `dyad`: {}",
            self.crates.join(", ")
        )?;
        if !self.manifest.is_empty() {
            write!(f, "\ndo: turn it off in the manifest of {bin}:")?;
        }
        for line in &self.manifest {
            write!(f, "\n  {line}")?;
        }
        if !self.manifest.is_empty() {
            return Ok(());
        }
        for (who, of) in &self.indirect {
            write!(f, "\n{who} turns on `std` of {of}")?;
        }
        match self.indirect.is_empty() {
            true => write!(
                f,
                "\nno feature `std` is on that could be turned off: such a crate needs a system with files and a network; \
                 the gallery in the book names crates that do not"
            ),
            false => write!(f, "\ndo: look for a feature of these crates without it"),
        }
    }
}

/// The part of `cargo metadata` that is needed.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Option<Resolve>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    source: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    req: String,
    kind: Option<String>,
    uses_default_features: bool,
    features: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

impl Package {
    /// Whether the feature turns on `std` of this package.
    fn leads_to_std(&self, feature: &str, seen: &mut HashSet<String>) -> bool {
        feature == STD
            || seen.insert(feature.to_owned())
                && self
                    .features
                    .get(feature)
                    .is_some_and(|on| on.iter().any(|f| self.leads_to_std(f, seen)))
    }

    fn is_macro(&self) -> bool {
        let mut kinds = self.targets.iter().flat_map(|t| &t.kind);
        kinds.any(|k| k == "proc-macro")
    }
}

impl Dependency {
    /// Whether this asks for `std` of `package`.
    fn asks_for_std(&self, package: &Package) -> bool {
        let mut asked: Vec<&str> = self.features.iter().map(String::as_str).collect();
        if self.uses_default_features {
            asked.push(DEFAULT);
        }
        asked
            .iter()
            .any(|f| package.leads_to_std(f, &mut HashSet::new()))
    }

    /// The line of a manifest that asks for the same without `std`.
    fn without_std(&self, package: &Package) -> String {
        let mut features: Vec<&str> = self
            .features
            .iter()
            .map(String::as_str)
            .filter(|f| !package.leads_to_std(f, &mut HashSet::new()))
            .collect();
        if package.features.contains_key(ALLOC) && !features.contains(&ALLOC) {
            features.push(ALLOC);
        }
        let name = self.rename.as_ref().unwrap_or(&self.name);
        let mut line = format!("{name} = {{ ");
        if self.rename.is_some() {
            line += &format!("package = {:?}, ", self.name);
        }
        line += &format!(
            "version = {:?}, default-features = false",
            self.req.trim_start_matches('^')
        );
        if !features.is_empty() {
            line += &format!(", features = {features:?}");
        }
        line + " }"
    }
}

/// The crates that could not be compiled because they want `std`.
fn failed(diagnostics: &str) -> Vec<String> {
    if !diagnostics.contains(MISSING) {
        return Vec::new();
    }
    let mut crates: Vec<String> = diagnostics
        .lines()
        .filter_map(|l| l.strip_prefix(FAILED)?.split('`').next())
        .map(str::to_owned)
        .collect();
    crates.sort();
    crates.dedup();
    crates
}

/// Looks in what cargo knows of the package `program` for who turns on `std`.
fn explain(metadata: &Metadata, program: &str, bin: &str, crates: Vec<String>) -> NeedsStd {
    let own = crates.iter().all(|c| c == program || c == bin);
    let mut why = NeedsStd {
        bin: bin.to_owned(),
        own,
        crates,
        ..NeedsStd::default()
    };
    let packages: HashMap<&str, &Package> = metadata.packages.iter().map(|p| (&*p.id, p)).collect();
    let nodes = metadata.resolve.iter().flat_map(|r| &r.nodes);
    let needs: HashMap<&str, &[String]> = nodes.map(|n| (&*n.id, &*n.dependencies)).collect();
    let root = |p: &&Package| p.source.is_none() && p.name == program;
    let Some(root) = metadata.packages.iter().find(root) else {
        return why;
    };
    let (mut reached, mut open) = (HashSet::from([&*root.id]), vec![root]);
    while let Some(package) = open.pop() {
        let on = needs.get(&*package.id).copied().unwrap_or_default();
        for other in on.iter().filter_map(|id| packages.get(&**id).copied()) {
            // What macros, tests and build scripts need runs on the host.
            let links = || {
                let of = package.dependencies.iter();
                of.filter(|d| d.name == other.name && d.kind.is_none() && !other.is_macro())
            };
            if links().next().is_some() && reached.insert(&other.id) {
                open.push(other);
            }
            let Some(link) = links().find(|d| d.asks_for_std(other)) else {
                continue;
            };
            if package.id == root.id {
                why.manifest.push(link.without_std(other));
            } else if why.crates.contains(&other.name) {
                why.indirect.push((
                    format!("{} {}", package.name, package.version),
                    format!("{} {}", other.name, other.version),
                ));
            }
        }
    }
    why.manifest.sort();
    why.indirect.sort();
    why
}

/// Why the package `program` at `manifest_dir` does not compile, if the reason is `std`.
pub(super) fn look(
    tools: &Toolchain,
    manifest_dir: &Path,
    (program, bin): (&str, &str),
    diagnostics: &str,
) -> Option<NeedsStd> {
    let crates = failed(diagnostics);
    if crates.is_empty() {
        return None;
    }
    let mut command = clean_command(&tools.cargo, manifest_dir);
    command
        .args([
            "metadata",
            "--format-version=1",
            "--offline",
            "--filter-platform",
        ])
        .arg(crate::toolchain::FRONT_TARGET)
        .arg("--manifest-path")
        .arg(manifest_dir.join(OsStr::new("Cargo.toml")));
    let answer = run_quiet(&mut command).ok()?.stdout;
    let metadata = serde_json::from_str(&answer).ok()?;
    Some(explain(&metadata, program, bin, crates))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package of the registry.
    fn package(name: &str, features: &[(&str, &[&str])], dependencies: &str) -> String {
        let features: Vec<String> = features
            .iter()
            .map(|(name, on)| format!("{name:?}: {on:?}"))
            .collect();
        format!(
            r#"{{"id": "{name}", "name": "{name}", "version": "1.2.3", "source": {},
                "features": {{{}}}, "dependencies": [{dependencies}], "targets": [{{"kind": ["lib"]}}]}}"#,
            if name == "app" {
                "null"
            } else {
                "\"registry\""
            },
            features.join(", "),
        )
    }

    fn needs(name: &str, default: bool, features: &[&str]) -> String {
        format!(
            r#"{{"name": "{name}", "rename": null, "req": "^1.2", "kind": null,
                "uses_default_features": {default}, "features": {features:?}}}"#
        )
    }

    /// What is said of an app that needs `json` in the given way, which needs `core_crate` in the given way.
    fn said(app: &str, json: &str, failed: &str) -> String {
        let with_std: &[(&str, &[&str])] =
            &[("default", &["std"]), ("std", &["alloc"]), ("alloc", &[])];
        let packages = [
            package("app", &[], app),
            package("json", with_std, json),
            package("core_crate", &[("default", &["std"]), ("std", &[])], ""),
        ];
        let text = format!(
            r#"{{"packages": [{}], "resolve": {{"nodes": [
                {{"id": "app", "dependencies": ["json"]}},
                {{"id": "json", "dependencies": ["core_crate"]}},
                {{"id": "core_crate", "dependencies": []}}]}}}}"#,
            packages.join(", ")
        );
        let metadata: Metadata = serde_json::from_str(&text).expect("metadata");
        explain(&metadata, "app", "app", vec![failed.to_owned()]).to_string()
    }

    #[test]
    fn the_remedy_is_a_line_for_the_manifest() {
        let text = said(
            &needs("json", true, &["raw"]),
            &needs("core_crate", false, &[]),
            "core_crate",
        );
        let line =
            r#"json = { version = "1.2", default-features = false, features = ["raw", "alloc"] }"#;
        assert!(
            text.contains("do: turn it off") && text.ends_with(line),
            "{text}"
        );

        // By its name, without default features.
        let text = said(
            &needs("json", false, &["std"]),
            &needs("core_crate", false, &[]),
            "json",
        );
        let line = r#"json = { version = "1.2", default-features = false, features = ["alloc"] }"#;
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn what_the_manifest_cannot_take_away_is_said() {
        let text = said(
            &needs("json", false, &[]),
            &needs("core_crate", true, &[]),
            "core_crate",
        );
        assert!(
            text.contains("json 1.2.3 turns on `std` of core_crate 1.2.3"),
            "{text}"
        );
        let text = said(
            &needs("json", false, &[]),
            &needs("core_crate", false, &[]),
            "core_crate",
        );
        assert!(text.contains("no feature `std` is on"), "{text}");
        // What only tests need does not matter.
        let tests = needs("core_crate", true, &[]).replace("\"kind\": null", "\"kind\": \"dev\"");
        let text = said(&needs("json", false, &[]), &tests, "core_crate");
        assert!(text.contains("no feature `std` is on"), "{text}");
        let text = said(
            &needs("json", false, &[]),
            &needs("core_crate", false, &[]),
            "app",
        );
        assert!(text.contains("write `#![no_std]`"), "{text}");
    }

    #[test]
    fn only_errors_about_std_are_told_so() {
        let diagnostics = format!(
            "error[E0463]: {MISSING}\n{FAILED}serde_core` (lib) due to 3 previous errors\n"
        );
        assert_eq!(failed(&diagnostics), ["serde_core"]);
        assert_eq!(failed(&diagnostics.replace("std", "abc")), [""; 0]);
    }
}
