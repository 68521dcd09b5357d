//! What has been built, set aside: jobs that run later, and on other computers, run exactly that and build nothing.
//!
//! ```text
//! DIR/kept.json        place that a build would have ─▶ file below DIR
//! DIR/0/kernel-x86_64  DIR/4/npb.bundle  DIR/4/npb.x86_64.elf ...
//! ```
//!
//! Places are those of the computer that has built; below the workspace they are relative to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::paths;

const LIST: &str = "kept.json";

/// The list: by place, the file that stands for it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List(BTreeMap<PathBuf, PathBuf>);

static IN_USE: OnceLock<(PathBuf, List)> = OnceLock::new();

fn relative(place: &Path) -> &Path {
    // A place outside of the workspace is the same on all computers.
    place.strip_prefix(paths::workspace_root()).unwrap_or(place)
}

/// Copies what has been built ([`built`](crate::build::built)) into a directory, which then has nothing else in it.
///
/// # Errors
///
/// If a file cannot be copied, or the directory cannot be made.
pub fn keep(built: &[(PathBuf, Vec<PathBuf>)], dir: &Path) -> Result<(), Error> {
    let cannot = |e: std::io::Error| {
        Error::io(
            format_args!("cannot keep what was built in {}", dir.display()),
            e,
        )
    };
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(cannot)?;
    }
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let mut list = List::default();
    for (n, (place, files)) in built.iter().enumerate() {
        let to = PathBuf::from(n.to_string());
        std::fs::create_dir_all(dir.join(&to)).map_err(cannot)?;
        for (i, file) in files.iter().enumerate() {
            let copy = to.join(file.file_name().unwrap_or_default());
            std::fs::copy(file, dir.join(&copy)).map_err(cannot)?;
            if i == 0 {
                list.0.insert(relative(place).into(), copy);
            }
        }
    }
    let text = serde_json::to_string_pretty(&list).map_err(|e| cannot(e.into()))?;
    std::fs::write(dir.join(LIST), text).map_err(cannot)
}

/// From here on this process builds nothing, and runs what was kept in a directory.
///
/// # Errors
///
/// If nothing was kept there, or the process uses another directory already.
pub fn use_kept(dir: &Path) -> Result<(), Error> {
    let file = dir.join(LIST);
    let wrong =
        |e: &dyn std::fmt::Display| Error::Setup(format!("cannot read {}: {e}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|e| wrong(&e))?;
    let list = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
    IN_USE
        .set((dir.into(), list))
        .map_err(|_| Error::Setup("this process already uses what was kept for other jobs".into()))
}

/// Whether this process builds nothing.
pub fn is_in_use() -> bool {
    IN_USE.get().is_some()
}

/// The file that was kept for a place; `None` if things are built.
///
/// # Errors
///
/// If nothing was kept for it.
pub fn find(place: &Path) -> Result<Option<PathBuf>, Error> {
    let Some((dir, list)) = IN_USE.get() else {
        return Ok(None);
    };
    let found = list.0.get(relative(place)).map(|file| dir.join(file));
    let missing = || {
        Error::Build(format!(
            "{} was not built when the jobs were submitted",
            place.display()
        ))
    };
    found.map(Some).ok_or_else(missing)
}
