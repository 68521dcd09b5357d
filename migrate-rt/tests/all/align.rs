//! The aligner on what the back ends really produce: golden layout, and every way in which back
//! ends, or options that somebody has changed, have been seen to break it.

use crate::common;

use common::objects;
use dyad_abi::Isa;
use dyad_abi::user::{ISA_RO_BASE, ONLY_BASE, PAGE_SIZE, SHARED_BASE, TEXT_BASE};
use migrate_rt::align::{AlignError, Misfit, Plan, plan};
use migrate_rt::object::Object;

/// Constants of the sizes that back ends merge, a table of pointers, statics, a constant pool, a
/// jump table.
const PROGRAM: &str = r#"
@eight = internal constant [8 x i8] c"eight 8!", align 1
@sixteen = internal constant [16 x i8] c"sixteen letters!", align 1
@table = internal constant { ptr, ptr, ptr } { ptr @sixteen, ptr @_dyad_start, ptr @eight }, align 8
@first = internal global i64 41, align 8
@second = internal global i32 42, align 4
@zeros = internal global [100 x i8] zeroinitializer, align 4
declare i32 @memcmp(ptr, ptr, i64)
define double @pool(double %x) {
  %y = fmul double %x, 0x3FF1C71C71C71C72
  ret double %y
}
define internal i64 @jump(i64 %x) {
  switch i64 %x, label %z [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
  ]
a:
  %va = atomicrmw add ptr @first, i64 7 seq_cst
  ret i64 %va
b:
  %vb = atomicrmw add ptr @second, i64 9 seq_cst
  ret i64 %vb
c:
  %vc = load volatile i64, ptr @zeros
  ret i64 %vc
d:
  %vd = load volatile i64, ptr @table
  ret i64 %vd
e:
  %ve = atomicrmw xchg ptr @first, i64 3 seq_cst
  ret i64 %ve
z:
  ret i64 77
}
define void @_dyad_start(i64 %x) {
  %r = call i64 @jump(i64 %x)
  %c = call i32 @memcmp(ptr @table, ptr @zeros, i64 %r)
  ret void
}
"#;

fn plan_of(objects: &[Vec<Object>; 2]) -> Result<Plan, AlignError> {
    let [x, a] = objects;
    plan([x, a])
}

fn misfits(objects: &[Vec<Object>; 2]) -> Vec<Misfit> {
    plan_of(objects).expect_err("accepted").misfits
}

#[test]
fn everything_has_one_address() {
    let plan = plan_of(&objects(PROGRAM, "align-golden", &[])).unwrap();
    let names = |slots: &[migrate_rt::align::Slot]| {
        slots
            .iter()
            .map(|s| (s.section.clone(), s.va))
            .collect::<Vec<_>>()
    };
    assert_eq!(plan.text[0].va, TEXT_BASE);
    let functions: Vec<_> = plan.text.iter().map(|s| s.section.as_str()).collect();
    assert_eq!(functions, [".text.pool", ".text.jump", ".text._dyad_start"]);
    for pair in plan.text.windows(2) {
        assert!(pair[0].va + pair[0].size <= pair[1].va && pair[1].va % 16 == 0);
    }
    // Golden: kinds on pages of their own, in order of definition.
    assert_eq!(
        names(&plan.shared[0]),
        [
            (".rodata.eight".to_owned(), SHARED_BASE),
            (".rodata.sixteen".to_owned(), SHARED_BASE + 8),
            (".rodata.table".to_owned(), SHARED_BASE + 24),
        ]
    );
    let data = SHARED_BASE + PAGE_SIZE;
    assert_eq!(
        names(&plan.shared[1]),
        [
            (".data.first".to_owned(), data),
            (".data.second".to_owned(), data + 8)
        ]
    );
    assert_eq!(
        names(&plan.shared[2]),
        [(".bss.zeros".to_owned(), data + PAGE_SIZE)]
    );
    let private = |isa: Isa| {
        plan.private[isa.index()]
            .iter()
            .map(|p| p.1.as_str())
            .collect::<Vec<_>>()
    };
    // Back ends differ in when a jump table pays.
    assert_eq!(private(Isa::X86_64), [".rodata.cst8", ".rodata.jump"]);
    assert_eq!(private(Isa::Aarch64), [".rodata.cst8"]);
}

#[test]
fn scripts_place_by_file_and_name_and_differ_in_private_sections_only() {
    let plan = plan_of(&objects(PROGRAM, "align-script", &[])).unwrap();
    let [x, a] = Isa::ALL.map(|isa| plan.script(isa));
    assert!(x.contains(&format!(
        ". = {SHARED_BASE:#x}; \"app.o\"(\".rodata.eight\")"
    )));
    assert!(x.contains(&format!(".isa_ro {ISA_RO_BASE:#x} : {{")));
    // The program's sections must not slip into the patterns for the builtins.
    for line in x
        .lines()
        .filter(|l| l.contains("*(") && !l.contains("DISCARD"))
    {
        assert!(line.contains("EXCLUDE_FILE(\"app.o\")"), "{line}");
    }
    let private = |script: &str| -> Vec<String> {
        let other = |l: &&str| !l.trim_start().starts_with("\"app.o\"(\".rodata.");
        script.lines().filter(other).map(str::to_owned).collect()
    };
    assert_eq!(private(&x), private(&a));
}

/// Trap 1: `unnamed_addr` constants of certain sizes end up among the back end's own constants.
#[test]
fn constants_that_back_ends_merge_are_refused() {
    let program = PROGRAM.replace("@sixteen = internal", "@sixteen = internal unnamed_addr");
    let found = misfits(&objects(&program, "align-merge", &[]));
    for isa in Isa::ALL {
        let merged = found.iter().any(|m| {
            matches!(m, Misfit::Mergeable { isa: i, symbol, .. } if *i == isa && symbol == "sixteen")
        });
        assert!(merged, "{isa}: {found:?}");
    }
}

/// Trap 1, when the constant is private as well, so that no symbol gives it away.
#[test]
fn data_that_points_to_private_constants_is_refused() {
    let program = PROGRAM.replace("@sixteen = internal", "@sixteen = private unnamed_addr");
    let found = misfits(&objects(&program, "align-private", &[]));
    let points = |m: &Misfit| {
        matches!(m, Misfit::PointsToPrivate { section, target, .. }
            if section == ".rodata.table" && target == ".rodata.cst16")
    };
    assert!(found.iter().any(points), "{found:?}");
}

/// Trap 2: a section that has been collected for one ISA would be zeros there.
#[test]
fn sections_that_one_isa_lacks_are_refused() {
    for (section, isa) in [
        (".rodata.eight", Isa::Aarch64),
        (".rodata.table", Isa::X86_64),
        (".text.jump", Isa::Aarch64),
    ] {
        let mut all = objects(PROGRAM, "align-collected", &[]);
        all[isa.index()][0].sections.retain(|s| s.name != section);
        let want = Misfit::OnlyIn {
            isa: isa.other(),
            section: section.to_owned(),
            writable: false,
        };
        let found = misfits(&all);
        assert!(found.contains(&want), "{found:?}");
    }
}

/// Code that several functions for size have in common: the back end of AArch64 makes a function of
/// it, unless it is told not to.
#[test]
fn functions_that_one_back_end_has_outlined_are_refused_and_none_are() {
    let calls: String = (0..10)
        .map(|n| format!("call void @sink(i64 {n}, ptr @count)\n"))
        .collect();
    let functions: String = ["one", "two", "three"]
        .iter()
        .map(|name| format!("define void @{name}() minsize optsize {{\n{calls}ret void\n}}\n"))
        .collect();
    let program = format!(
        "@count = internal global i64 41, align 8\n\
         define void @sink(i64 %n, ptr %p) noinline {{\n\
         store volatile i64 %n, ptr %p\nret void\n}}\n{functions}"
    );
    plan_of(&objects(&program, "align-outlined", &[])).unwrap();
    let outlined = objects(
        &program,
        "align-outlined-too",
        &["-enable-machine-outliner=never"],
    );
    let found = misfits(&outlined);
    assert!(
        found.iter().any(|m| m.to_string().contains("OUTLINED")),
        "{found:?}"
    );
}

/// Trap 3: the AArch64 back end merges statics unless it is told not to.
#[test]
fn statics_that_one_back_end_has_merged_are_refused() {
    let error = plan_of(&objects(PROGRAM, "align-global-merge", &["global-merge"])).unwrap_err();
    let merged = |m: &Misfit| {
        matches!(m, Misfit::OnlyIn { isa: Isa::Aarch64, section, writable: true }
            if section.contains("_MergedGlobals"))
    };
    assert!(error.misfits.iter().any(merged), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("global merging has to be off"), "{text}");
}

#[test]
fn sections_that_differ_are_refused() {
    let change = |f: &dyn Fn(&mut migrate_rt::object::Section)| {
        let mut all = objects(PROGRAM, "align-differs", &[]);
        let section = all[1][0]
            .sections
            .iter_mut()
            .find(|s| s.name == ".data.first");
        f(section.unwrap());
        misfits(&all)
    };
    let differs = |found: Vec<Misfit>, what: &str| {
        assert!(
            found
                .iter()
                .any(|m| matches!(m, Misfit::Differs { what: w, .. } if w.starts_with(what))),
            "{found:?}"
        );
    };
    differs(change(&|s| s.size += 8), "size: 8 and 16");
    differs(change(&|s| s.kind = 8), "kind");
    differs(change(&|s| s.flags |= 1 << 9), "flags");
}

#[test]
fn thread_locals_constructors_and_giants_are_refused() {
    let with = |line: &str, name: &str| misfits(&objects(&format!("{PROGRAM}{line}"), name, &[]));
    let found = with(
        "@tls = internal thread_local global i32 1, align 4\n",
        "align-tls",
    );
    assert!(
        found
            .iter()
            .any(|m| matches!(m, Misfit::ThreadLocal { .. })),
        "{found:?}"
    );
    let found = with(
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @_dyad_start, ptr null }]\n",
        "align-ctors",
    );
    assert!(
        found
            .iter()
            .any(|m| matches!(m, Misfit::Constructors { .. })),
        "{found:?}"
    );
    // What is too large says what takes the room, and what can be done.
    let found = with(
        "@big = internal global [1000000000 x i8] zeroinitializer\n",
        "align-big",
    );
    let large = |of: &str, name: &str, remedy: &str, found: &[Misfit]| {
        found.iter().any(|m| {
            let text = m.to_string();
            matches!(m, Misfit::TooLarge { region, .. } if *region == of)
                && text.contains(name)
                && text.contains(remedy)
        })
    };
    assert!(
        large("data", ".bss.big", "on the heap", &found),
        "{found:?}"
    );
    // As if a function were that large: no such program is needed to find it out.
    let mut all = objects(PROGRAM, "align-code", &[]);
    for side in &mut all {
        let mut sections = side[0].sections.iter_mut();
        sections.find(|s| s.name == ".text.jump").unwrap().size = ONLY_BASE - TEXT_BASE - (1 << 20);
    }
    let error = plan_of(&all).unwrap_err();
    assert!(
        large("code", ".text.jump", "with fewer types", &error.misfits),
        "{error}"
    );
    let [Misfit::TooLarge { end, limit, .. }] = error.misfits[..] else {
        panic!("{error}")
    };
    assert!(
        limit == ONLY_BASE && (1..1 << 20).contains(&(end - limit)),
        "{error}"
    );
    for side in &mut all {
        let mut sections = side[0].sections.iter_mut();
        sections.find(|s| s.name == ".text.jump").unwrap().size -= 2 << 20;
    }
    plan_of(&all).unwrap();
    let found = with(
        "module asm \".section .text.only_x86_64.far,\\22ax\\22; .globl far; .type far,STT_FUNC; far: .zero 5000000; .size far, .-far\"\n",
        "align-window",
    );
    assert!(
        large("code of x86_64 only", "far", "#[dyad::isa]", &found),
        "{found:?}"
    );
}

#[test]
fn addresses_of_builtins_are_refused_but_calls_are_not() {
    let program = PROGRAM.replace("ptr @eight }", "ptr @memcmp }");
    let found = misfits(&objects(&program, "align-builtin", &[]));
    let address = |m: &Misfit| {
        matches!(m, Misfit::AddressOfOutside { section, symbol, .. }
            if section == ".rodata.table" && symbol == "memcmp")
    };
    assert!(found.iter().any(address), "{found:?}");
}

#[test]
fn objects_of_the_wrong_isa_are_refused() {
    let dir = common::scratch("align-wrong");
    let tools = common::tools();
    common::llc(&tools, Isa::X86_64, PROGRAM, &dir, &["-O0"]);
    let bytes = std::fs::read(dir.join("x86_64.o")).unwrap();
    assert!(Object::parse(Isa::Aarch64, "app.o", &bytes).is_err());
    assert!(Object::parse(Isa::X86_64, "app.o", &bytes[..bytes.len() / 2]).is_err());
}
