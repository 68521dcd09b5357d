//! What the back ends make of what the spine pass has made: modules whose machine code once kept something
//! across a site that did not travel. The verifier has to have nothing against it.

use crate::common;

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
    let spine: Spine = transform(&neutral(&body), &dir)
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
    let spine = transform(&neutral(&body), &dir).unwrap().unwrap();
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

/// Integers of 128 bits among arguments and as results: in registers, behind the last register, on the stack, of functions
/// that migrate and of plain ones behind a site, by name and through tables.
#[test]
fn integers_of_128_bits_are_passed_everywhere() {
    let (mut functions, mut calls) = (String::new(), String::new());
    let before = [0, 1, 3, 5, 6, 7, 8, 10, 11, 12, 13, 22, 23, 24, 25];
    for n in before {
        let words = |value: &str| format!("i64 {value}, ").repeat(n);
        let named: String = (0..n).map(|i| format!("i64 %a{i}, ")).collect();
        let takes = format!("{named}i128 %b, i8 %c, i128 %d, i64 %e");
        let body = "  %s = add i128 %b, %d\n  %x = zext i64 %e to i128\n  %t = add i128 %s, %x\n  store volatile i8 %c, ptr @kept\n";
        functions.push_str(&format!(
            "define internal i128 @moves{n}({takes}) noinline {{\nstart:\n  call void @dyad_migrate_point()\n{body}  ret i128 %t\n}}\n\
             define internal i128 @stays{n}({takes}) noinline {{\nstart:\n{body}  ret i128 %t\n}}\n"
        ));
        let passes = format!("{}i128 %w, i8 3, i128 %v, i64 %n", words("%n"));
        for (k, callee) in [format!("@moves{n}"), format!("@stays{n}"), format!("%p{n}")]
            .iter()
            .enumerate()
        {
            if k == 2 {
                calls.push_str(&format!("  %p{n} = load volatile ptr, ptr @table\n"));
            }
            calls.push_str(&format!(
                "  %r{n}.{k} = call i128 {callee}({passes})\n  store volatile i128 %r{n}.{k}, ptr @kept\n"
            ));
        }
    }
    let table = |what: &str| before.map(|n| format!("ptr @{what}{n}")).join(", ");
    let coverage = verified(
        "integers",
        &format!(
            "@kept = internal global [16 x i8] zeroinitializer, align 16\n\
             @table = internal global [15 x ptr] [{}], align 8\n{functions}\
             define internal void @work(i64 %n) {{\nstart:\n  %w = load volatile i128, ptr @kept\n\
             call void @dyad_migrate_point()\n  %v = load volatile i128, ptr @kept\n{calls}  ret void\n}}\n",
            table("moves")
        ),
    );
    // The root's, a point in each and in `work`, two calls of each.
    let sites = 2 + 3 * before.len();
    assert!(coverage.iter().all(|c| c.sites == sites), "{coverage:?}");
}

/// A value that may be anything is passed in a register or a slot that the function has written.
#[test]
fn what_may_be_anything_is_written() {
    let words = "i64 %n, ".repeat(24);
    let takes: String = (0..24).map(|i| format!("i64 %a{i}, ")).collect();
    let coverage = verified(
        "anything",
        &format!(
            "@kept = internal global [16 x i8] zeroinitializer, align 16\n\
             define internal void @many({takes}i64 %f, i64 %z) noinline {{\nstart:\n  call void @dyad_migrate_point()\n\
             store volatile i64 %f, ptr @kept\n  store volatile i64 %z, ptr @kept\n  ret void\n}}\n\
             define internal void @work(i64 %n) {{\nstart:\n  call void @dyad_migrate_point()\n\
             %f = freeze i64 poison\n  %g = freeze i128 poison\n  %h = lshr i128 %g, 64\n  %z = trunc i128 %h to i64\n\
             call void @many({words}i64 %f, i64 %z)\n  ret void\n}}\n"
        ),
    );
    // The root's, two points and a call.
    assert!(coverage.iter().all(|c| c.sites == 4), "{coverage:?}");
}

/// Plain calls through pointers of several kinds: each passes what it passes, and no slot that another one takes.
#[test]
fn plain_calls_through_pointers_are_known_apart() {
    let words = "i64 %n, ".repeat(9);
    let coverage = verified(
        "apart",
        &format!(
            "@table = internal global [2 x ptr] [ptr @few, ptr @many], align 8\n\
             @kept = internal global [16 x i8] zeroinitializer, align 16\n\
             define internal void @few(ptr sret([16 x i8]) %r, i8 %a) noinline {{\nstart:\n  store volatile i8 %a, ptr %r\n  ret void\n}}\n\
             define internal void @many({}i64 %z) noinline {{\nstart:\n  store volatile i64 %z, ptr @kept\n  ret void\n}}\n\
             define internal void @work(i64 %n) {{\nstart:\n  %r = alloca [16 x i8], align 8\n  %p = load volatile ptr, ptr @table\n\
             %q = load volatile ptr, ptr getelementptr inbounds (i8, ptr @table, i64 8)\n\
             call void %q({words}i64 3)\n  call void @dyad_migrate_point()\n  call void %p(ptr sret([16 x i8]) %r, i8 7)\n\
             call void @dyad_migrate_point()\n  call void %q({words}i64 4)\n  call void %p(ptr sret([16 x i8]) %r, i8 8)\n  ret void\n}}\n",
            (0..9).map(|i| format!("i64 %a{i}, ")).collect::<String>(),
        ),
    );
    // The root's, and two points.
    assert!(coverage.iter().all(|c| c.sites == 3), "{coverage:?}");
    assert!(
        coverage.iter().all(|c| c.plain_indirect_calls == 4),
        "{coverage:?}"
    );
}

/// Addresses of local variables that meet in a phi, and values that cross sites in only some of the ways that meet
/// behind them, within loops: `llvm-as` finds names that do not hold everywhere, the verifier what is kept in registers.
#[test]
fn names_of_one_value_meet_where_control_does() {
    let coverage = verified(
        "meet",
        "define internal i64 @own(i64 %x) {\nstart:\n  ret i64 %x\n}\n\
         define internal void @work(i64 %n) {\nstart:\n  %x = alloca i64, align 8\n  %y = alloca [4 x i64], align 8\n\
         %v = call i64 @own(i64 %n)\n  %c = icmp eq i64 %v, 3\n  br i1 %c, label %left, label %right\n\
         left:\n  store i64 %v, ptr %x\n  call void @dyad_migrate_point()\n  br label %both\n\
         right:\n  store i64 %n, ptr %y\n  br label %both\n\
         both:\n  %p = phi ptr [ %x, %left ], [ %y, %right ]\n  %w = load i64, ptr %p\n  br label %outer\n\
         outer:\n  %i = phi i64 [ 0, %both ], [ %i2, %end ]\n  br label %inner\n\
         inner:\n  %j = phi i64 [ %i, %outer ], [ %j2, %again ]\n  %j2 = add i64 %j, %w\n\
         %d = icmp ult i64 %j2, %v\n  br i1 %d, label %move, label %again\n\
         move:\n  call void @dyad_migrate_point()\n  br label %again\n\
         again:\n  %e = icmp ult i64 %j2, %n\n  br i1 %e, label %inner, label %end\n\
         end:\n  %i2 = add i64 %i, %j2\n  %f = icmp ult i64 %i2, %n\n  br i1 %f, label %outer, label %out\n\
         out:\n  store i64 %w, ptr %p\n  %r = load i64, ptr %y\n  %s = call i64 @own(i64 %r)\n  ret void\n}\n",
    );
    assert!(coverage.iter().all(|c| c.sites == 3), "{coverage:?}");
}

/// An end that traps already gets no second trap: the back ends share the second with other ends and jump to it, from where
/// nothing comes.
#[test]
fn ends_that_trap_are_reached() {
    verified(
        "trap",
        "declare void @llvm.trap()\ndefine internal i64 @own(i64 %x) {\nstart:\n  ret i64 %x\n}\n\
         define internal void @work(i64 %n) {\nstart:\n\
         call void @dyad_migrate_point()\n  %c = icmp eq i64 %n, 3\n  br i1 %c, label %a, label %b\n\
         a:\n  call void @llvm.trap()\n  unreachable\n\
         b:\n  %d = icmp eq i64 %n, 4\n  br i1 %d, label %e, label %f\n\
         e:\n  call void @dyad_migrate_point()\n  unreachable\n\
         f:\n  %g = icmp eq i64 %n, 5\n  br i1 %g, label %h, label %out\n\
         h:\n  %r = call i64 @own(i64 7)\n  call void @dyad_migrate_point()\n  unreachable\n\
         out:\n  ret void\n}\n",
    );
}
