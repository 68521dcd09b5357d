//! The bundler on linked programs: what it writes, and what it refuses although linkers do not.

use crate::common;

use common::{scratch, tools};
use dyad_abi::Isa;
use dyad_abi::bundle::{Bundle, BundleError, INFO_ABI, INFO_CHECKSUM, INFO_SIZE, Scope, checksum};
use dyad_abi::user::{ISA_RO_BASE, PAGE_SIZE, SHARED_BASE, TEXT_BASE};
use migrate_rt::align::{Plan, plan};
use migrate_rt::bundle::{PackError, describe, pack};
use migrate_rt::link::{LinkError, link};
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
@text = internal constant [5 x i8] c"hello", align 1
@table = internal constant { ptr, ptr } { ptr @text, ptr @_dyad_start }, align 8
@count = internal global i64 41, align 8
@zeros = internal global [5000 x i8] zeroinitializer, align 8
declare double @fmod(double, double)
define double @pool(double %x) {
  %y = frem double %x, 0x3FF1C71C71C71C72
  ret double %y
}
define void @_dyad_start(i64 %x) {
  %c = atomicrmw add ptr @count, i64 %x seq_cst
  %t = load volatile ptr, ptr @table
  store volatile i64 %c, ptr @zeros
  %p = call double @pool(double 0x3FF1C71C71C71C77)
  store volatile double %p, ptr @zeros
  ret void
}
"#;

struct Linked {
    plan: Plan,
    dir: PathBuf,
    programs: [Vec<u8>; 2],
}

/// `PROGRAM` linked for both ISAs, with each ISA's script changed by `edit`.
fn linked(
    name: &str,
    program: [&str; 2],
    edit: impl Fn(Isa, String) -> String,
) -> Result<Linked, LinkError> {
    let (tools, dir) = (tools(), scratch(name));
    let objects = Isa::ALL.map(|isa| {
        let isa_dir = dir.join(isa.name());
        std::fs::create_dir_all(&isa_dir).unwrap();
        let flags: Vec<_> = migrate_rt::codegen::flags(isa).collect();
        let object = common::llc(&tools, isa, program[isa.index()], &isa_dir, &flags);
        let from = isa_dir.join(format!("{isa}.o"));
        std::fs::rename(from, isa_dir.join("app.o")).unwrap();
        migrate_rt::codegen::compile_stubs(&tools, isa, Default::default(), &isa_dir, "stubs")
            .unwrap();
        vec![object]
    });
    let [x, a] = &objects;
    let plan = plan([x, a]).unwrap();
    let program = |isa: Isa| {
        let script = edit(isa, plan.script(isa));
        // To the plan the stubs are a library: they end up among the builtins.
        link(
            &tools,
            isa,
            &dir.join(isa.name()),
            &script,
            &["app.o", "stubs.o"],
            "linked.elf",
        )
    };
    let programs = [program(Isa::X86_64)?, program(Isa::Aarch64)?];
    Ok(Linked {
        plan,
        dir,
        programs,
    })
}

fn pack_edited(name: &str, edit: impl Fn(Isa, String) -> String) -> Result<Vec<u8>, PackError> {
    let l = linked(name, [PROGRAM; 2], edit).unwrap();
    let [x, a] = &l.programs;
    pack("hop", &l.plan, [x, a]).map(|p| p.bytes)
}

fn on(isa: Isa, which: Isa, script: String, edit: impl Fn(&str) -> String) -> String {
    match isa == which {
        true => {
            let edited = edit(&script);
            assert_ne!(edited, script, "the edit does nothing");
            edited
        }
        false => script,
    }
}

#[test]
fn a_bundle_has_shared_memory_once_and_code_per_isa() {
    let l = linked("bundle-golden", [PROGRAM; 2], |_, s| s).unwrap();
    let [x, a] = &l.programs;
    let packed = pack("hop", &l.plan, [x, a]).unwrap();
    // table, text, count, zeros, pool, _dyad_start
    assert_eq!(packed.equal_symbols, 6);
    assert_eq!(packed.equal_bytes, 24 + 8);
    let bundle = Bundle::parse(&packed.bytes).unwrap();
    assert_eq!(bundle.name(), "hop");
    let of = |isa: Isa| {
        bundle
            .segments_of(isa)
            .map(|s| (s.va, s.scope == Scope::Shared, s.write, s.exec))
            .collect::<Vec<_>>()
    };
    let outside = TEXT_BASE + PAGE_SIZE;
    let want = [
        (TEXT_BASE, false, false, true),
        (outside, false, false, true),
        (ISA_RO_BASE, false, false, false),
        (SHARED_BASE, true, false, false),
        (SHARED_BASE + PAGE_SIZE, true, true, false),
        (SHARED_BASE + 2 * PAGE_SIZE, true, true, false),
    ];
    for isa in Isa::ALL {
        let segments: Vec<_> = of(isa).into_iter().filter(|s| s.0 >> 24 != 0x4c).collect();
        assert_eq!(segments, want, "{isa}");
    }
    let data = bundle.segments().find(|s| s.va == SHARED_BASE).unwrap();
    let word = |at: usize| u64::from_le_bytes(data.bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&data.bytes[..5], b"hello");
    assert_eq!((word(8), word(16)), (SHARED_BASE, bundle.entry()));
    let zeros = bundle
        .segments()
        .find(|s| s.va == SHARED_BASE + 2 * PAGE_SIZE)
        .unwrap();
    assert_eq!((zeros.mem_len, zeros.bytes.len()), (5000, 0));
    // The same input gives the same file.
    assert_eq!(pack("hop", &l.plan, [x, a]).unwrap(), packed);
    let path = l.dir.join("hop.bundle");
    std::fs::write(&path, &packed.bytes).unwrap();
    let text = describe(&path).unwrap();
    assert!(
        text.contains("shared   rw-    0x50002000           5000          0"),
        "{text}"
    );
    assert!(describe(Path::new("/nowhere")).is_err());
}

/// Trap 2 at the last line of defence: one link has dropped or moved something.
#[test]
fn shared_bytes_that_differ_are_refused() {
    let program = PROGRAM.replace("hello", "hellO");
    let l = linked("bundle-bytes", [PROGRAM, &program], |_, s| s).unwrap();
    let [x, a] = &l.programs;
    assert_eq!(
        pack("hop", &l.plan, [x, a]),
        Err(PackError::Bytes {
            section: ".shared_ro",
            va: SHARED_BASE + 4,
            symbol: Some("text".to_owned()),
        })
    );
    let gone = pack_edited("bundle-gone", |isa, s| {
        on(isa, Isa::Aarch64, s, |s| {
            let without = |l: &&str| !l.contains("(\".rodata.text\")");
            s.lines()
                .filter(without)
                .map(|l| format!("{l}\n"))
                .collect()
        })
    });
    assert!(
        matches!(&gone, Err(PackError::UnknownSection { isa: Isa::Aarch64, section }) if section == ".rodata.text"),
        "{gone:?}"
    );
}

/// Trap 2 as it happens: the linker may collect sections, and does so for one ISA only.
#[test]
fn collected_sections_are_refused() {
    let program = format!("{PROGRAM}@unused = internal constant [8 x i8] c\"unused!!\", align 8\n");
    let l = linked("bundle-collect", [&program; 2], |_, s| s).unwrap();
    let [x, a] = &l.programs;
    assert!(pack("hop", &l.plan, [x, a]).is_ok());
    let tools = tools();
    let collected = Isa::ALL.map(|isa| {
        let dir = l.dir.join(isa.name());
        let status = std::process::Command::new(&tools.lld)
            .current_dir(&dir)
            .args([
                "-flavor",
                "gnu",
                "-static",
                "--gc-sections",
                "-z",
                "max-page-size=4096",
            ])
            .args(["-T", "layout.ld", "-o", "collected.elf", "app.o", "stubs.o"])
            .args(tools.builtins(isa))
            .status();
        assert!(status.unwrap().success());
        std::fs::read(dir.join("collected.elf")).unwrap()
    });
    for programs in [
        [&collected[0], a],
        [x, &collected[1]],
        [&collected[0], &collected[1]],
    ] {
        let programs = programs.map(Vec::as_slice);
        assert!(pack("hop", &l.plan, programs).is_err());
    }
}

#[test]
fn what_is_not_in_its_slot_is_refused() {
    let moved = pack_edited("bundle-moved", |isa, s| {
        on(isa, Isa::X86_64, s, |s| {
            s.replace(
                &format!(". = {:#x}; \"app.o\"(\".rodata.table\")", SHARED_BASE + 8),
                &format!(". = {:#x}; \"app.o\"(\".rodata.table\")", SHARED_BASE + 16),
            )
        })
    });
    assert_eq!(
        moved,
        Err(PackError::Placement {
            section: ".shared_ro"
        })
    );
    // On both ISAs alike, so that only the plan tells.
    let moved = pack_edited("bundle-moved-both", |_, s| {
        s.replace(
            &format!(". = {:#x}; \"app.o\"(\".rodata.table\")", SHARED_BASE + 8),
            &format!(". = {:#x}; \"app.o\"(\".rodata.table\")", SHARED_BASE + 32),
        )
    });
    assert_eq!(
        moved,
        Err(PackError::Slot {
            name: "table".to_owned(),
            isa: Isa::X86_64,
            va: SHARED_BASE + 8,
        })
    );
    // Swallowed by the patterns for the builtins: this has happened.
    let swallowed = pack_edited("bundle-swallowed", |_, s| {
        let (head, tail) = s.split_once("SECTIONS {\n").unwrap();
        format!(
            "{head}SECTIONS {{\n  .isa_ro {ISA_RO_BASE:#x} : {{ *(.rodata.*) }} :p_isa_ro\n{}",
            tail.replace(".isa_ro 0x", ".isa_relro 0x")
        )
    });
    assert!(
        matches!(
            swallowed,
            Err(PackError::Slot { .. } | PackError::UnknownSection { .. })
        ),
        "{swallowed:?}"
    );
}

#[test]
fn writable_data_of_one_isa_is_refused() {
    // As if a library brought the variable: the script places it where those of libraries go.
    let private = pack_edited("bundle-private-data", |isa, s| {
        on(isa, Isa::Aarch64, s, |s| {
            let without = |l: &&str| !l.contains("(\".data.count\")");
            let s: String = s
                .lines()
                .filter(without)
                .map(|l| format!("{l}\n"))
                .collect();
            s.replace("*(EXCLUDE_FILE(\"app.o\") .data.*)", "*(.data.*)")
        })
    });
    assert_eq!(
        private,
        Err(PackError::PrivateData {
            isa: Isa::Aarch64,
            bytes: 8
        })
    );
}

#[test]
fn programs_need_an_entry_point_and_definitions() {
    let program = PROGRAM.replace("_dyad_start", "start");
    let l = linked("bundle-entry", [&program; 2], |_, s| s).unwrap();
    let [x, a] = &l.programs;
    assert_eq!(pack("hop", &l.plan, [x, a]), Err(PackError::NoEntry));
    assert!(matches!(
        pack("hop", &l.plan, [a, x]),
        Err(PackError::Unreadable { .. })
    ));
    assert!(matches!(
        pack("hop", &l.plan, [&x[..100], a]),
        Err(PackError::Unreadable {
            isa: Isa::X86_64,
            ..
        })
    ));

    let program = PROGRAM.replace(
        "frem double %x, 0x3FF1C71C71C71C72",
        "call double @nobody(double %x)",
    ) + "declare double @nobody(double)\n";
    match linked("bundle-undefined", [&program; 2], |_, s| s).map(|_| ()) {
        Err(LinkError::Undefined { symbols, .. }) => {
            let [(name, Some(user))] = &symbols[..] else {
                panic!("{symbols:?}")
            };
            // Without line tables, by section.
            assert!(name == "nobody" && user.ends_with("app.o:(pool)"), "{user}");
        }
        other => panic!("{other:?}"),
    }
}

/// What happens to the files on their way is noticed, down to the last bit.
#[test]
fn truncated_corrupt_and_foreign_bundles_are_refused() {
    let good = pack_edited("bundle-damage", |_, s| s).unwrap();
    let path = scratch("bundle-damaged-file").join("x.bundle");
    let error = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        describe(&path).unwrap_err().to_string()
    };
    assert!(error(&good[..good.len() - 1]).contains("truncated"));
    assert!(error(&good[..50]).contains("truncated"));
    assert!(error(b"hello").contains("not a program bundle"));
    let mut bad = good.clone();
    let at = bad.len() / 2;
    bad[at] ^= 1;
    assert!(error(&bad).contains("corrupted"));
    // An honest bundle of another version.
    let mut other = good.clone();
    let info = u64::from_le_bytes(other[64 + 8..64 + 16].try_into().unwrap()) as usize;
    assert_eq!(INFO_SIZE, 64);
    other[info + INFO_ABI] += 1;
    let sum = checksum(&other, info + INFO_CHECKSUM);
    other[info + INFO_CHECKSUM..][..8].copy_from_slice(&sum.to_le_bytes());
    assert!(error(&other).contains("ABI version 2"));
    assert_eq!(
        Bundle::parse(&other),
        Err(BundleError::AbiVersion { found: 2 })
    );
}
