//! Where things are: the workspace, its target directory, what runs leave behind.

use std::path::{Path, PathBuf};

/// Root of the workspace this program was started in.
///
/// Cargo names the package's directory when it runs the program; a binary started by hand looks
/// upwards from the current directory, and last of all where it was built.
pub fn workspace_root() -> PathBuf {
    let from_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    for start in [from_cargo, here].into_iter().flatten() {
        if let Some(root) = start.ancestors().find(|d| is_root(d)) {
            return root.to_path_buf();
        }
    }
    let built_at = Path::new(env!("CARGO_MANIFEST_DIR"));
    built_at
        .ancestors()
        .find(|d| is_root(d))
        .unwrap_or(built_at)
        .to_path_buf()
}

fn is_root(dir: &Path) -> bool {
    dir.join("tools/xtask/Cargo.toml").is_file() && dir.join("Cargo.toml").is_file()
}

/// Cargo's target directory: `CARGO_TARGET_DIR` if set, else `target` in the workspace.
pub fn target_dir() -> PathBuf {
    let root = workspace_root();
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

/// Where each run has a directory of its own.
pub fn runs_dir() -> PathBuf {
    target_dir().join("run")
}

/// A path as shown to people: relative to the current directory if it is below it.
pub fn shown(path: &Path) -> String {
    std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf))
        .unwrap_or_else(|| path.to_path_buf())
        .display()
        .to_string()
}
