//! Parts of the Rust toolchain: what the workspace asks for and what is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;

/// What `rust-toolchain.toml` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The toolchain.
    pub channel: String,
    /// Components.
    pub components: Vec<String>,
    /// Targets.
    pub targets: Vec<String>,
}

impl Wanted {
    /// Reads the workspace's file.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn of_workspace() -> Result<Wanted, String> {
        let path = paths::workspace_root().join("rust-toolchain.toml");
        let text = std::fs::read_to_string(&path)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Wanted::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn parse(text: &str) -> Result<Wanted, String> {
        let table: toml::Table = text.parse().map_err(|e| format!("{e}"))?;
        let toolchain = table.get("toolchain").and_then(|t| t.as_table());
        let toolchain = toolchain.ok_or("no [toolchain] table")?;
        let list = |key: &str| -> Vec<String> {
            let values = toolchain.get(key).and_then(|v| v.as_array());
            let words = values.into_iter().flatten().filter_map(|v| v.as_str());
            words.map(str::to_string).collect()
        };
        Ok(Wanted {
            channel: toolchain
                .get("channel")
                .and_then(|c| c.as_str())
                .ok_or("no channel")?
                .into(),
            components: list("components"),
            targets: list("targets"),
        })
    }
}

/// Directory of the toolchain that builds the workspace.
pub fn sysroot() -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(paths::workspace_root());
    let output = rustc.args(["--print", "sysroot"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

/// Which of the wanted targets and components are not installed.
pub fn missing(wanted: &Wanted, sysroot: &Path) -> (Vec<String>, Vec<String>) {
    let rustlib = sysroot.join("lib/rustlib");
    // Written by the installer; other distributions of Rust have no such list, but may still
    // have the files.
    let list = std::fs::read_to_string(rustlib.join("components")).unwrap_or_default();
    let has_component = |name: &str| {
        let installed = list.lines().any(|l| is_component(l, name));
        installed || (list.is_empty() && name != "llvm-tools")
    };
    let missing_of = |names: &[String], has: &dyn Fn(&str) -> bool| -> Vec<String> {
        names.iter().filter(|n| !has(n)).cloned().collect()
    };
    (
        missing_of(&wanted.targets, &|t| rustlib.join(t).join("lib").is_dir()),
        missing_of(&wanted.components, &has_component),
    )
}

/// Whether a line such as `llvm-tools-preview-x86_64-unknown-linux-gnu` is this component.
fn is_component(line: &str, name: &str) -> bool {
    line.strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_file_says_what_is_needed() {
        let w = Wanted::of_workspace().unwrap();
        assert!(w.components.iter().any(|c| c == "llvm-tools"));
        assert!(
            w.targets
                .iter()
                .any(|t| t == "aarch64-unknown-none-softfloat")
        );
        assert!(Wanted::parse("[toolchain]\n").is_err());
        assert!(Wanted::parse("x = 1").is_err());
    }

    #[test]
    fn what_is_not_in_the_installers_list_is_missing() {
        let dir = std::env::temp_dir().join(format!("dyad-sysroot-{}", std::process::id()));
        let rustlib = dir.join("lib/rustlib");
        std::fs::create_dir_all(rustlib.join("x86_64-unknown-none/lib")).unwrap();
        let list = "clippy-preview-x86_64-unknown-linux-gnu\nrust-std-x86_64-unknown-none\n";
        std::fs::write(rustlib.join("components"), list).unwrap();
        let words = |w: &[&str]| w.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
        let wanted = Wanted {
            channel: "1".into(),
            components: words(&["clippy", "llvm-tools"]),
            targets: words(&["x86_64-unknown-none", "aarch64-unknown-none"]),
        };
        let (targets, components) = missing(&wanted, &dir);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(targets, ["aarch64-unknown-none"]);
        assert_eq!(components, ["llvm-tools"]);
    }
}
