//! What a run was made with.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use dyad_abi::Isa;
use serde::{Deserialize, Serialize};

use crate::paths;

/// A file that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its name.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Digest of its contents, 64-bit FNV-1a in hexadecimal: the same build has the same one.
    pub fnv1a: String,
}

/// Who simulated what: enough to tell whether two runs can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// This tool's version.
    pub xtask: String,
    /// The commit that the sources are of, with `-dirty` if they have been changed since.
    pub commit: Option<String>,
    /// The emulators' own words, by ISA.
    pub qemu: BTreeMap<String, String>,
    /// The kernels, by ISA.
    pub kernel: BTreeMap<String, Image>,
    /// The plugin.
    pub plugin: Option<Image>,
    /// Digest of all programs: init, the services and what was asked for.
    pub programs: Option<Image>,
}

impl Versions {
    /// Names of the columns in tables. A column whose value is not known, or that a run does not have, is empty.
    pub const COLUMNS: [&str; 8] = [
        "commit",
        "xtask",
        "qemu_x86_64",
        "qemu_aarch64",
        "kernel_x86_64",
        "kernel_aarch64",
        "plugin",
        "programs",
    ];

    /// What is known before anything is built: this tool and its sources. It is looked up once, since a process builds
    /// everything once.
    pub fn of_sources() -> Versions {
        static COMMIT: OnceLock<Option<String>> = OnceLock::new();
        let commit = COMMIT.get_or_init(|| commit(&paths::workspace_root()));
        Versions {
            xtask: env!("CARGO_PKG_VERSION").into(),
            commit: commit.clone(),
            ..Versions::default()
        }
    }

    /// The values of [`COLUMNS`](Versions::COLUMNS): of files their digests.
    pub fn columns(&self) -> [String; Versions::COLUMNS.len()] {
        let [x86, arm] = [Isa::X86_64, Isa::Aarch64].map(Isa::name);
        let qemu = |isa| self.qemu.get(isa).cloned().unwrap_or_default();
        let digest = |image: Option<&Image>| image.map_or(String::new(), |i| i.fnv1a.clone());
        [
            self.commit.clone().unwrap_or_default(),
            self.xtask.clone(),
            qemu(x86),
            qemu(arm),
            digest(self.kernel.get(x86)),
            digest(self.kernel.get(arm)),
            digest(self.plugin.as_ref()),
            digest(self.programs.as_ref()),
        ]
    }
}

/// 64-bit FNV-1a.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Image {
    /// Of these contents.
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Image {
        Image {
            file: name.into(),
            bytes: bytes.len() as u64,
            fnv1a: format!("{:016x}", fnv1a(bytes.iter().copied())),
        }
    }

    /// Of this file; nothing, if it cannot be read.
    pub fn of_file(path: &Path) -> Option<Image> {
        let name = path.file_name()?.to_str()?;
        Some(Image::of_bytes(name, &std::fs::read(path).ok()?))
    }
}

/// First line of what a program says about its version.
pub fn of_program(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_string())
}

/// The commit that the sources are of.
pub fn commit(workspace: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(workspace)
        .args([
            "describe",
            "--always",
            "--dirty",
            "--abbrev=40",
            "--exclude=*",
        ])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_algorithm() {
        // Published test vectors.
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
        let image = Image::of_bytes("k", b"a");
        assert_eq!((image.bytes, image.fnv1a.as_str()), (1, "af63dc4c8601ec8c"));
        assert_eq!(Image::of_file(Path::new("/nonexistent")), None);
    }

    #[test]
    fn columns_have_what_is_known() {
        let mut versions = Versions::of_sources();
        assert!(!versions.xtask.is_empty());
        versions.commit = Some("c0ffee-dirty".into());
        versions.qemu.insert("aarch64".into(), "QEMU 10".into());
        let image = Image::of_bytes("k", b"a");
        versions.kernel.insert("x86_64".into(), image);
        let columns = versions.columns();
        let of = |name| {
            let at = Versions::COLUMNS.iter().position(|c| *c == name);
            columns[at.unwrap()].as_str()
        };
        assert_eq!(of("commit"), "c0ffee-dirty");
        assert_eq!((of("qemu_x86_64"), of("qemu_aarch64")), ("", "QEMU 10"));
        assert_eq!(of("kernel_x86_64"), "af63dc4c8601ec8c");
        assert_eq!((of("kernel_aarch64"), of("plugin")), ("", ""));
    }
}
