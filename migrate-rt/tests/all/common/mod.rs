//! What the tests of the pipeline share.

use dyad_abi::Isa;
use migrate_rt::build::{AppRequest, BuildError, BuiltApp, build_app};
use migrate_rt::ir::NeutralIr;
use migrate_rt::llvm::Line;
use migrate_rt::object::Object;
use migrate_rt::toolchain::Toolchain;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// A directory of this test run, empty.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory that test runs share, so that the sample's dependencies are compiled once. Results in
/// it are built again when anything has changed, the pipeline included.
pub fn shared() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared")
}

pub fn tools() -> Toolchain {
    Toolchain::find(workspace()).unwrap()
}

/// Builds the sample program into `out`.
pub fn build_sample(out: &Path, features: &[&str]) -> Result<BuiltApp, BuildError> {
    build_app(&AppRequest {
        features: features.iter().map(|f| f.to_string()).collect(),
        ..AppRequest::new(&fixture("sample"), workspace(), out)
    })
}

pub const LAYOUTS: [&str; 2] = [
    "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
];
pub const TRIPLES: [&str; 2] = ["x86_64-unknown-none-elf", "aarch64-unknown-none"];

/// The module header of an ISA, by index.
pub fn module(isa: Isa, body: &str) -> String {
    let i = isa.index();
    format!(
        "target datalayout = \"{}\"\ntarget triple = \"{}\"\n{body}",
        LAYOUTS[i], TRIPLES[i]
    )
}

/// `body` compiled for `isa` with exactly these options besides `-filetype=obj`.
pub fn llc(tools: &Toolchain, isa: Isa, body: &str, dir: &Path, flags: &[&str]) -> Object {
    let (input, output) = (dir.join(format!("{isa}.ll")), dir.join(format!("{isa}.o")));
    std::fs::write(&input, module(isa, body)).unwrap();
    let status = Command::new(&tools.llc)
        .args(flags)
        .arg("-filetype=obj")
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .status()
        .unwrap();
    assert!(status.success());
    Object::parse(isa, "app.o", &std::fs::read(output).unwrap()).unwrap()
}

/// `body` compiled for both ISAs with the options of the pipeline, less those that contain one of
/// `without`.
pub fn objects(body: &str, name: &str, without: &[&str]) -> [Vec<Object>; 2] {
    let (tools, dir) = (tools(), scratch(name));
    Isa::ALL.map(|isa| {
        let flags: Vec<_> = migrate_rt::codegen::flags(isa)
            .filter(|f| !without.iter().any(|w| f.contains(w)))
            .collect();
        vec![llc(&tools, isa, body, &dir, &flags)]
    })
}

/// A module as the front end leaves it, but for the indentation, which LLVM's printer has.
pub fn neutral(body: &str) -> NeutralIr {
    let a = Isa::Aarch64.index();
    let mut text = format!(
        "target datalayout = \"{}\"\ntarget triple = \"{}\"\n",
        LAYOUTS[a], TRIPLES[a]
    );
    let mut inside = false;
    for line in body.lines().map(str::trim) {
        inside &= line != "}";
        if inside && !line.ends_with(':') {
            text.push_str("  ");
        }
        text.push_str(line);
        text.push('\n');
        inside |= matches!(Line::of(line), Line::Define(_));
    }
    NeutralIr::check(text).unwrap()
}

/// A module in which `work` is called by the root, with declarations that most bodies need.
pub fn migrating(work: &str) -> String {
    format!(
        "define i64 @dyad_spine_root(i64 %x) {{\nstart:\n  call void @work(i64 %x)\n  ret i64 0\n}}\n\
         {work}\n\
         declare void @dyad_migrate_point()\ndeclare void @use(ptr)\ndeclare i64 @plain(i64)\n\
         !llvm.dbg.cu = !{{!0}}\n!llvm.module.flags = !{{!2, !3}}\n\
         !0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)\n\
         !1 = !DIFile(filename: \"src/main.rs\", directory: \"/app\")\n\
         !2 = !{{i32 2, !\"Dwarf Version\", i32 4}}\n!3 = !{{i32 2, !\"Debug Info Version\", i32 3}}\n\
         !4 = distinct !DISubprogram(name: \"work\", file: !1, line: 40, type: !5, unit: !0)\n\
         !5 = !DISubroutineType(types: !8)\n!6 = !DILocation(line: 42, column: 5, scope: !4)\n!8 = !{{}}\n"
    )
}
