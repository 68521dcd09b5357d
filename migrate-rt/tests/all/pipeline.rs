//! The whole pipeline on a program with a dependency, outside of this workspace.

use crate::common;

use common::{build_sample, fixture, scratch, shared, workspace};
use dyad_abi::Isa;
use dyad_abi::bundle::{Bundle, Scope};
use goblin::elf::{Elf, sym};
use migrate_rt::build::{AppRequest, BuildError, BuiltApp, Progress, Stage, build_app};
use migrate_rt::frontend::FrontendError;
use migrate_rt::ir::{IrError, ViolationKind};
use migrate_rt::link::LinkError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Addresses of functions and data by name, without those of library code.
fn symbols(elf: &[u8]) -> BTreeMap<String, u64> {
    let elf = Elf::parse(elf).unwrap();
    let outside: Vec<usize> = elf
        .section_headers
        .iter()
        .enumerate()
        .filter(|(_, s)| {
            elf.shdr_strtab
                .get_at(s.sh_name)
                .is_some_and(|n| n == ".text.outside" || n.starts_with(".isa_"))
        })
        .map(|(i, _)| i)
        .collect();
    elf.syms
        .iter()
        .filter(|s| {
            matches!(s.st_type(), sym::STT_FUNC | sym::STT_OBJECT) && !outside.contains(&s.st_shndx)
        })
        .map(|s| (elf.strtab.get_at(s.st_name).unwrap().to_owned(), s.st_value))
        .collect()
}

fn bytes(app: &BuiltApp) -> Vec<u8> {
    std::fs::read(&app.bundle).unwrap()
}

#[test]
fn one_program_two_isas() {
    let app = build_sample(&shared(), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(app.name, "sample");
    let elfs = app.elfs.each_ref().map(|p| std::fs::read(p).unwrap());

    // Checked here without any of the pipeline's own code: every symbol, the same address.
    let [x, a] = elfs.each_ref().map(|e| symbols(e));
    assert_eq!(x, a);
    assert!(x.len() > 150, "{}", x.len());
    for part in [
        "5TABLE",
        "5WORDS",
        "7COUNTER",
        "7SCRATCH",
        "4jump",
        "dyad_syscall",
        "dyad_frame",
        "dyad_isa",
    ] {
        assert!(x.keys().any(|n| n.contains(part)), "{part}");
    }
    assert!(app.report.figures.equal_symbols >= x.len() as u64);

    // Every shared byte as well: sections of linked programs against the bundle's one copy.
    let file = bytes(&app);
    let bundle = Bundle::parse(&file).unwrap();
    assert_eq!(bundle.entry(), x["_dyad_start"]);
    for (isa, elf) in Isa::ALL.into_iter().zip(&elfs) {
        let sections = Elf::parse(elf).unwrap().section_headers;
        let mut found = 0;
        for s in bundle.segments_of(isa) {
            let section = sections
                .iter()
                .find(|h| h.sh_addr == s.va && h.is_alloc() && h.sh_size > 0)
                .unwrap();
            assert_eq!(section.sh_size, s.mem_len);
            let range = section.file_range().unwrap_or(0..0);
            assert_eq!(&elf[range], s.bytes, "{isa} {:#x}", s.va);
            found += usize::from(s.scope == Scope::Shared);
        }
        assert_eq!(found, 3, "constants, data, zeros");
    }
    let constants = bundle
        .segments()
        .find(|s| s.scope == Scope::Shared && !s.write)
        .unwrap();
    let has = |text: &[u8]| constants.bytes.windows(text.len()).any(|w| w == text);
    assert!(
        has(b"sixteen letters!") && has(b"eight 8!") && has(b"thirty-two letters, no more, ok!")
    );
    let pointer = x.iter().find(|(n, _)| n.contains("4jump")).unwrap();
    assert_eq!(pointer.1 % 16, 0);
}

#[test]
fn line_tables_survive_on_every_isa() {
    let app = build_sample(&shared(), &[]).unwrap();
    for elf in &app.elfs {
        let symbols = symbols(&std::fs::read(elf).unwrap());
        let jump = symbols
            .iter()
            .find(|(n, _)| n.contains("6sample4jump"))
            .unwrap()
            .1;
        let loader = addr2line::Loader::new(elf).unwrap();
        let location = loader.find_location(*jump).unwrap().unwrap();
        assert!(location.file.unwrap().ends_with("main.rs"));
        let source = std::fs::read_to_string(fixture("sample/src/main.rs")).unwrap();
        let line = source
            .lines()
            .nth(location.line.unwrap() as usize - 1)
            .unwrap();
        assert!(line.starts_with("fn jump("), "{line}");
    }
}

#[test]
fn nothing_is_done_again_unless_something_is_missing() {
    let out = scratch("incremental");
    let stages = RefCell::new(Vec::new());
    let build = |features: &[&str]| {
        stages.borrow_mut().clear();
        let app = build_app(&AppRequest {
            features: features.iter().map(|f| f.to_string()).collect(),
            progress: &|p| {
                if let Progress::Stage(s) = p {
                    stages.borrow_mut().push(s);
                }
            },
            ..AppRequest::new(&fixture("sample"), workspace(), &out)
        });
        app.unwrap_or_else(|e| panic!("{e}"))
    };
    let first = build(&[]);
    assert_eq!(stages.borrow().last(), Some(&Stage::Bundle));
    let good = bytes(&first);

    let again = build(&[]);
    assert!(again.report.up_to_date);
    assert_eq!(again.report.figures, first.report.figures);
    assert_eq!(*stages.borrow(), [Stage::FrontEnd, Stage::Join]);
    let total: Duration = again.report.stages.iter().map(|s| s.wall).sum();
    assert!(total < Duration::from_millis(1500), "{total:?}");

    // Another program from the same source, and back: cargo has both, the IR must be the right one.
    let variant = build(&["variant"]);
    assert_ne!(bytes(&variant), good);
    let back = build(&[]);
    assert!(!back.report.up_to_date);
    assert_eq!(bytes(&back), good);

    let damage = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    damage(&back.bundle);
    assert_eq!(bytes(&build(&[])), good);
    std::fs::remove_file(&back.elfs[1]).unwrap();
    build(&[]);
    assert!(back.elfs[1].is_file());
    damage(&out.join("sample/sample.stamp"));
    assert!(!build(&[]).report.up_to_date);

    // The IR is no output that cargo knows of.
    let deps = out.join(".front/aarch64-unknown-none-softfloat/user/deps");
    for e in std::fs::read_dir(deps).unwrap().map(Result::unwrap) {
        if e.path().extension().is_some_and(|e| e == "bc") {
            std::fs::remove_file(e.path()).unwrap();
        }
    }
    assert_eq!(bytes(&build(&[])), good);

    // What an interrupted build leaves behind.
    std::fs::create_dir_all(out.join("sample/unfinished/x86_64/app.o")).unwrap();
    std::fs::remove_file(out.join("sample/sample.stamp")).unwrap();
    assert_eq!(bytes(&build(&[])), good);
    assert!(!out.join("sample/unfinished").exists());
}

/// The sample under another name, outside of every workspace.
fn copy_of_sample(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.join(name);
    std::fs::create_dir_all(copy.join("src")).unwrap();
    let from = fixture("sample");
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("name = \"sample\"", &format!("name = \"{name}\""));
    std::fs::write(copy.join("Cargo.toml"), manifest).unwrap();
    let lock = std::fs::read_to_string(from.join("Cargo.lock")).unwrap();
    let lock = lock.replace("name = \"sample\"", &format!("name = \"{name}\""));
    std::fs::write(copy.join("Cargo.lock"), lock).unwrap();
    std::fs::copy(from.join("src/main.rs"), copy.join("src/main.rs")).unwrap();
    copy
}

#[test]
fn builds_side_by_side_do_not_disturb_each_other() {
    let out = scratch("parallel");
    let other = copy_of_sample(&out, "my-app");
    let build = |dir: &Path| {
        build_app(&AppRequest::new(dir, workspace(), &out)).unwrap_or_else(|e| panic!("{e}"))
    };
    let (sample, other) = (fixture("sample"), other);
    let results: Vec<_> = std::thread::scope(|scope| {
        let builds = [&sample, &sample, &other, &other];
        let threads: Vec<_> = builds.map(|dir| scope.spawn(|| build(dir))).into();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for app in &results {
        let file = bytes(app);
        assert_eq!(Bundle::parse(&file).unwrap().name(), app.name);
    }
    for pair in results.chunks(2) {
        assert_eq!(pair[0].bundle, pair[1].bundle);
        let fresh = pair.iter().filter(|a| a.report.up_to_date).count();
        assert_eq!(fresh, 1, "the second one finds the work done");
    }
    assert_eq!(results[2].name, "my-app");
}

#[test]
fn programs_that_cannot_migrate_are_refused() {
    let out = shared();
    let refused = |feature: &str| build_sample(&out, &[feature]).unwrap_err();
    let kind = |error: BuildError| match error {
        BuildError::Ir(IrError::Refused(mut all)) => all.remove(0).kind,
        e => panic!("{e}"),
    };
    assert!(matches!(
        kind(refused("target-intrinsic")),
        ViolationKind::TargetIntrinsic(n) if n == "llvm.aarch64.neon.tbl1.v16i8"
    ));
    assert!(
        matches!(kind(refused("inline-asm")), ViolationKind::InlineAsm(t) if t.starts_with("add "))
    );
    // Statics have no line tables, and are named with their lines all the same.
    let line = |of: &str| {
        let text = std::fs::read_to_string(fixture("sample/src/main.rs")).unwrap();
        let line = text.lines().position(|l| l.contains(of)).unwrap();
        format!("sample/src/main.rs:{}", line + 1)
    };
    for (feature, says, name, at) in [
        (
            "builtin-address",
            "takes the address of memcmp",
            "_dyad_start",
            "fn _dyad_start",
        ),
        (
            "undefined-static",
            "takes the address of nobody_has_this",
            "define it",
            "fn _dyad_start",
        ),
        (
            "constructor",
            "call them from main",
            "sample::BEFORE_MAIN",
            "static BEFORE_MAIN",
        ),
    ] {
        let text = refused(feature).to_string();
        for part in [says, name, &line(at)] {
            assert!(text.contains(part), "{text}");
        }
    }
    match refused("undefined") {
        BuildError::Link(LinkError::Undefined { symbols, .. }) => {
            let [(name, Some(user))] = &symbols[..] else {
                panic!("{symbols:?}")
            };
            assert_eq!(name, "nobody_defines_this");
            // From where the crate was compiled.
            let line = line("nobody_defines_this(x)");
            assert!(line.ends_with(user), "{user}");
        }
        e => panic!("{e}"),
    }
    match refused("mistake") {
        BuildError::Frontend(FrontendError::Compile { diagnostics, .. }) => {
            assert!(diagnostics.contains("error[E0308]"), "{diagnostics}");
        }
        e => panic!("{e}"),
    }
    assert!(
        refused("no-such-feature")
            .to_string()
            .contains("no-such-feature")
    );
    assert!(
        build_sample(&out, &[]).is_ok(),
        "failures leave nothing behind that matters"
    );
}

#[test]
fn requests_that_make_no_sense_are_explained() {
    let out = scratch("requests");
    let build = |request: AppRequest<'_>| build_app(&request).unwrap_err();
    let nowhere = build(AppRequest::new(&out, workspace(), &out));
    assert!(
        nowhere.to_string().contains("no user program here"),
        "{nowhere}"
    );
    std::fs::write(out.join("Cargo.toml"), "[workspace]\n").unwrap();
    let virtual_manifest = build(AppRequest::new(&out, workspace(), &out));
    assert!(
        virtual_manifest.to_string().contains("package.name"),
        "{virtual_manifest}"
    );
    let name = build(AppRequest {
        bin: Some("../evil".to_owned()),
        ..AppRequest::new(&fixture("sample"), workspace(), &out)
    });
    assert!(
        matches!(name, BuildError::Frontend(FrontendError::Name { .. })),
        "{name}"
    );
    let bin = build(AppRequest {
        bin: Some("other".to_owned()),
        ..AppRequest::new(&fixture("sample"), workspace(), &out)
    });
    assert!(
        bin.to_string().contains("no bin target named `other`"),
        "{bin}"
    );
}
