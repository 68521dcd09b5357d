//! What the back ends make of what the spine pass has made: modules whose machine code once kept something
//! across a site that did not travel. The verifier has to have nothing against it.

mod common;

use common::{migrating, neutral, scratch, tools};
use dyad_abi::Isa;
use migrate_rt::codegen::{self, Needs};
use migrate_rt::object::Object;
use migrate_rt::spine::{Spine, sites, transform};
use migrate_rt::verify::Coverage;
use migrate_rt::{align, link, verify};
use std::process::Command;

/// What every program has.
const REST: &str = "define void @_dyad_start(i64 %x) {\nret void\n}\n\
     define void @dyad_spine_leave(i64 %f, i64 %b) {\nret void\n}\n\
     define void @dyad_spine_done(i64 %c) {\nret void\n}\n";

/// Builds a program from a module and verifies both ISAs' code.
fn verified(name: &str, body: &str) -> [Coverage; 2] {
    let (tools, dir) = (tools(), scratch(&format!("spine-code-{name}")));
    let body = format!("{}{REST}", migrating(body));
    let spine: Spine = transform(&tools, &neutral(&body), &dir)
        .unwrap_or_else(|e| panic!("{e}"))
        .unwrap();
    let needs = Needs {
        migrates: Some(spine.sites.len() as u64),
        ..Needs::default()
    };
    let objects = Isa::ALL.map(|isa| {
        let dir = dir.join(isa.name());
        std::fs::create_dir_all(&dir).unwrap();
        let app = codegen::compile(&tools, &spine.ir.for_isa(isa), &dir, "app").unwrap();
        let stubs = codegen::compile_stubs(&tools, isa, needs, &dir, "stubs").unwrap();
        [("app.o", app), ("stubs.o", stubs)]
            .map(|(name, bytes)| Object::parse(isa, name, &bytes).unwrap())
    });
    let plan = align::plan([&objects[0], &objects[1]]).unwrap();
    Isa::ALL.map(|isa| {
        let (files, dir) = (["app.o", "stubs.o"], dir.join(isa.name()));
        let program = link::link(&tools, isa, &dir, &plan.script(isa), &files, "linked.elf");
        let program = program.unwrap_or_else(|e| panic!("{e}"));
        let info = sites::of_program(isa, &program, &spine).unwrap();
        verify::program(isa, &program, &info).unwrap_or_else(|e| panic!("{name}: {e}"))
    })
}

/// Back ends make a constant once for each block, and may make it before the call what is needed behind it: so
/// there is nothing behind a site in its block, in the back ends' own terms.
#[test]
fn sites_end_their_blocks() {
    let body = migrating(
        "define internal void @work(i64 %n) {\nstart:\n  %p = inttoptr i64 %n to ptr\n  store volatile double 1.0, ptr %p\n\
         call void @dyad_migrate_point()\n  br label %loop\n\
         loop:\n  %x = phi double [ 1.0, %start ], [ %y, %loop ]\n  %y = load volatile double, ptr %p\n\
         call void @dyad_migrate_point()\n  store volatile double %x, ptr %p\n\
         %c = fcmp oeq double %y, 1.0\n  br i1 %c, label %out, label %loop\n\
         out:\n  ret void\n}\n",
    );
    let (tools, dir) = (tools(), scratch("spine-code-blocks"));
    let spine = transform(&tools, &neutral(&body), &dir).unwrap().unwrap();
    for isa in Isa::ALL {
        let input = dir.join(format!("{isa}.ll"));
        std::fs::write(&input, spine.ir.for_isa(isa).text()).unwrap();
        let output = Command::new(&tools.llc)
            .args(codegen::flags(isa))
            .args(["-stop-after=finalize-isel", "-o", "-"])
            .arg(&input)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut sites = 0;
        for (_, behind) in text
            .split("  bb.")
            .filter_map(|b| b.split_once(" STACKMAP "))
        {
            sites += 1;
            let is_code = |l: &&str| {
                let l = l.trim();
                !l.is_empty()
                    && !["ADJCALLSTACKUP", "JMP_1 ", "B "]
                        .iter()
                        .any(|w| l.starts_with(w))
            };
            assert_eq!(
                behind.lines().skip(1).find(is_code),
                None,
                "{isa}: {behind}"
            );
        }
        // The root's and two of the function.
        assert_eq!(sites, 3, "{text}");
    }
}

/// Optimisers make one integer of a structure that is only moved, `Range<u128>` for example.
#[test]
fn wide_integers_cross_sites() {
    let coverage = verified(
        "wide",
        "define internal void @work(i64 %n) {\nstart:\n  %p = inttoptr i64 %n to ptr\n\
         %v = load i256, ptr %p, align 16\n  %w = load i192, ptr %p, align 8\n\
         call void @dyad_migrate_point()\n\
         store i256 %v, ptr %p, align 16\n  store i192 %w, ptr %p, align 8\n  ret void\n}\n",
    );
    assert!(coverage.iter().all(|c| c.sites == 2), "{coverage:?}");
}

/// Builder-style code: a function gives back its first argument. AArch64 has a convention of its own for that,
/// in which a constant would be taken to survive the call.
#[test]
fn what_gives_back_its_argument_is_called_like_all_others() {
    let coverage = verified(
        "returned",
        "define internal ptr @with(ptr returned %b, ptr %f, double %v) {\nstart:\n  store double %v, ptr %b\n\
         call void @dyad_migrate_point()\n  ret ptr %b\n}\n\
         define internal void @work(i64 %n) {\nstart:\n  %p = inttoptr i64 %n to ptr\n\
         %a = call ptr @with(ptr returned %p, ptr @work, double 3.25)\n\
         %b = call ptr @with(ptr returned %a, ptr @work, double 3.25)\n\
         %c = call ptr @with(ptr returned %b, ptr @work, double 3.25)\n  ret void\n}\n",
    );
    assert!(coverage.iter().all(|c| c.sites == 5), "{coverage:?}");
}

/// Arguments on the native stack, of every width, and calls through pointers of another type: the places that
/// the verifier knows are those that the back ends use.
#[test]
fn arguments_of_every_kind_are_verified() {
    let many = |ty: &str, value: &str| vec![format!("{ty} {value}"); 13].join(", ");
    let takes = |ty: &str| -> String {
        let one = |i: usize| format!("{ty} %a{i}");
        (0..13).map(one).collect::<Vec<_>>().join(", ")
    };
    let mut functions = String::new();
    let mut calls = String::new();
    let kinds = [
        "i1 zeroext",
        "i8",
        "i16 signext",
        "i32",
        "i64",
        "float",
        "double",
        "<2 x double>",
    ];
    for (n, ty) in kinds.into_iter().enumerate() {
        let plain = ty.split(" z").next().unwrap().split(" s").next().unwrap();
        functions.push_str(&format!(
            "define internal {plain} @f{n}(i64 %x, {}) noinline {{\nstart:\n  store volatile {plain} %a12, ptr @kept\n\
             call void @dyad_migrate_point()\n  store volatile {plain} %a11, ptr @kept\n  ret {plain} %a3\n}}\n",
            takes(ty)
        ));
        calls.push_str(&format!(
            "%v{n} = load volatile {plain}, ptr @kept\n\
             %r{n} = call {plain} @f{n}(i64 %n, {})\n  store volatile {plain} %r{n}, ptr @kept\n",
            many(ty, &format!("%v{n}"))
        ));
    }
    let coverage = verified(
        "kinds",
        &format!(
            "@kept = internal global [16 x i8] zeroinitializer, align 16\n{functions}\
             define internal void @work(i64 %n) {{\nstart:\n{calls}  ret void\n}}\n"
        ),
    );
    assert!(coverage.iter().all(|c| c.sites == 17), "{coverage:?}");
}
