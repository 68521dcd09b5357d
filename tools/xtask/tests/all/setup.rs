//! Set-up on computers that lack something, played by scripts: nothing is installed for real.

use crate::common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Scratch, text, tool};

/// A computer: programs that come first in `PATH`, and files below a root directory.
struct Computer {
    scratch: Scratch,
}

impl Computer {
    /// Debian 12 without QEMU, whose `apt-get install` brings a QEMU of this version.
    fn bookworm(name: &str, qemu: &str) -> Computer {
        let c = Computer {
            scratch: Scratch::new(name),
        };
        c.file(
            "root/etc/os-release",
            "ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME=\"Debian 12\"\n",
        );
        c.file(
            "root/etc/apt/sources.list",
            "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main\n",
        );
        std::fs::create_dir_all(c.path("root/etc/apt/sources.list.d")).unwrap();
        let bin = c.path("bin").display().to_string();
        c.program("apt-cache", "for p in \"$@\"; do [ $p = policy ] || printf '%s:\\n  Candidate: 1:7.2+dfsg-7\\n  Version table:\\n     1:7.2+dfsg-7 500\\n        500 http://mirror.example/debian bookworm/main amd64 Packages\\n' $p; done");
        c.program(
            "apt-get",
            &format!(
                "echo \"apt-get $*\" >> {bin}/log\ncase \"$*\" in *install*)\nfor isa in x86_64 \
                 aarch64; do printf '#!/bin/sh\\necho QEMU emulator version {qemu}\\n' > \
                 {bin}/qemu-system-$isa; chmod +x {bin}/qemu-system-$isa; done;; esac"
            ),
        );
        c
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, script: &str) {
        self.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let path = self.path(&format!("bin/{name}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The tool on this computer. Only the programs it must have are reachable besides.
    fn tool(&self) -> Command {
        for name in ["tee", "env", "cat", "chmod", "rustc", "sh"] {
            let to = self.path("bin").join(name);
            if !to.exists() {
                std::os::unix::fs::symlink(find(name), to).unwrap();
            }
        }
        let mut c = tool(&self.scratch);
        c.env("PATH", self.path("bin"));
        c.env("DYAD_TEST_ROOT", self.path("root"));
        c
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("bin/log")).unwrap_or_default()
    }

    /// Whether the tests run as the administrator, as the steps need it.
    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }
}

fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| p.is_file());
    found.unwrap_or_else(|| panic!("{name} not found"))
}

const ENTRY: &str = "Suites: bookworm-backports\n";

#[test]
fn missing_emulators_are_installed_and_said() {
    let c = Computer::bookworm("install", "10.0.2");
    // A program that is not there ends the run before kernels are built.
    let out = c
        .tool()
        .args(["run", "--app", "nothing-of-that-name"])
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(2), "{t}");
    assert!(t.contains("qemu-system-x86_64: not found"), "{t}");
    assert!(t.contains("apt-get update"), "{t}");
    if !Computer::is_root() {
        assert!(t.contains("sudo apt-get update"), "{t}");
        return;
    }
    assert!(
        t.contains("unknown program"),
        "set-up must have succeeded: {t}"
    );
    let entry = c.path("root/etc/apt/sources.list.d/dyad-backports.sources");
    let entry = std::fs::read_to_string(entry).unwrap();
    assert!(
        entry.contains(ENTRY) && entry.contains("URIs: http://mirror.example/debian\n"),
        "{entry}"
    );
    let log = c.log();
    let mut steps = log.lines();
    assert_eq!(steps.next(), Some("apt-get update"));
    let install = steps.next().unwrap();
    assert!(
        install.contains("--target-release bookworm-backports qemu-system-x86 qemu-system-arm"),
        "{log}"
    );
    // The second time there is nothing to do.
    let out = c
        .tool()
        .args(["run", "--app", "nothing-of-that-name"])
        .output()
        .unwrap();
    assert!(!text(&out).contains("apt-get"), "{}", text(&out));
    assert_eq!(c.log(), log);
}

#[test]
fn an_emulator_that_is_too_old_is_said() {
    let c = Computer::bookworm("old", "9.2.1");
    for isa in ["x86_64", "aarch64"] {
        c.program(
            &format!("qemu-system-{isa}"),
            "echo QEMU emulator version 7.2.1",
        );
    }
    let out = c.tool().arg("run").output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(2), "{t}");
    assert!(
        t.contains("too old: version 7.2, at least 10.0 is needed"),
        "{t}"
    );
    if Computer::is_root() {
        assert!(
            t.contains("packages were installed, but") && t.contains("PATH"),
            "{t}"
        );
    }
}

#[test]
fn an_emulator_without_plugins_is_said() {
    let c = Computer::bookworm("plugins", "10.0.2");
    for isa in ["x86_64", "aarch64"] {
        let script = "[ \"$1\" = --version ] || exit 1; echo QEMU emulator version 10.1.0";
        c.program(&format!("qemu-system-{isa}"), script);
    }
    let out = c.tool().arg("doctor").output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(t.contains("version 10.1 without plugin support"), "{t}");
    assert!(c.log().is_empty(), "doctor changes nothing");
}

#[test]
fn doctor_names_what_is_missing_and_the_remedy() {
    let c = Computer::bookworm("doctor", "10.0.2");
    let json = c.path("doctor.json");
    let out = c
        .tool()
        .args(["doctor", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(t.contains("MISSING   QEMU for aarch64"), "{t}");
    assert!(t.contains(ENTRY.trim()), "{t}");
    assert!(!Path::new(&c.path("root/etc/apt/sources.list.d/dyad-backports.sources")).exists());
    let r: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(
        (&r["schema"], &r["ok"]),
        (&"dyad.doctor/1".into(), &false.into())
    );
}
