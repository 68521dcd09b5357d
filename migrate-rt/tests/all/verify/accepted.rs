//! What is told about sites, and code that is as it should be.

use super::fixture::Shape::{Bare, Framed};
use super::fixture::{Case, Program, case};
use crate::common::TRIPLES;
use dyad_abi::Isa;
use migrate_rt::verify::{Coverage, Kind, SpineInfo, program};

/// A function with a loop, a site by name and one by pointer, spills between sites, a plain call with
/// a value in a callee-saved register, and two ways out.
fn good(isa: Isa) -> Case {
    let bodies = [
        "movq %r12, %rbx
         1: movq %rbx, (%rsp)
         callq plain
         addq (%rsp), %rbx
         movq %rbx, %rdi
         testq %rdi, %rdi
         je 2f
         movq %fs:0, %rcx
         movq 16(%rcx), %r12
         site callq reader
         movq %fs:0, %rcx
         movq 16(%rcx), %rbx
         movq %rbx, %r12
         site callq *8(%rbx)
         movsd %xmm0, 8(%rsp)
         movsd 8(%rsp), %xmm1
         addsd %xmm1, %xmm0
         movq %fs:0, %rcx
         movq 16(%rcx), %rbx
         jmp 1b
         2: cmpl $3, %eax
         cmovel %eax, %edi
         jne 3f
         callq never
         3: xorps %xmm0, %xmm0",
        "mov x19, x20
         1: str x19, [sp]
         bl plain
         ldr x8, [sp]
         add x19, x19, x8
         cbz x19, 2f
         mrs x9, tpidr_el0
         ldr x20, [x9, #16]
         site bl reader
         mrs x9, tpidr_el0
         ldr x19, [x9, #16]
         ldr x8, [x19, #8]
         mov x20, x19
         site blr x8
         str d0, [sp, #8]
         ldr d1, [sp, #8]
         fadd d0, d0, d1
         mrs x9, tpidr_el0
         ldr x19, [x9, #16]
         b 1b
         2: cmp x0, #3
         csel x0, x0, xzr, eq
         b.ne 3f
         bl never
         3: movi d0, #0",
    ];
    case("good", Framed, bodies[isa.index()])
}

#[test]
fn good_code_is_accepted_and_all_of_it_is_counted() {
    for isa in Isa::ALL {
        let case = &good(isa);
        let program = Program::new(isa, "good", std::slice::from_ref(case));
        let coverage = program.judge(case).unwrap_or_else(|found| {
            let text: Vec<_> = found.iter().map(ToString::to_string).collect();
            panic!("{}", text.join("\n"))
        });
        // The case and the reader; everything in them is reached.
        assert_eq!((coverage.instructions, coverage.sites), (33, 2), "{isa}");
        let Coverage {
            functions,
            padding,
            slot_loads,
            plain_indirect_calls,
            ..
        } = coverage;
        assert_eq!(
            (functions, padding, slot_loads, plain_indirect_calls),
            (2, 0, 2, 0)
        );
    }
}

/// A site table that does not fit the code.
#[test]
fn sites_that_do_not_fit_are_found() {
    for isa in Isa::ALL {
        let case = &good(isa);
        let fixture = Program::new(isa, "sites", std::slice::from_ref(case));
        let good = fixture.spine(case);
        let judge = |change: &dyn Fn(&mut SpineInfo)| {
            let mut spine = good.clone();
            change(&mut spine);
            let found = program(isa, &fixture.file, &spine).unwrap_err().0;
            let mut kinds: Vec<Kind> = found.iter().map(|f| f.kind).collect();
            kinds.dedup();
            kinds
        };
        assert_eq!(judge(&|s| s.sites[1].id = 0), [Kind::DuplicateSite]);
        assert_eq!(
            judge(&|s| s.sites.push(s.sites[0].clone())),
            [Kind::DuplicateSite]
        );
        assert!(judge(&|s| s.sites[0].ret += 4).contains(&Kind::NoCallAtSite));
        assert!(judge(&|s| s.sites[0].ret = 0x4200_0000).contains(&Kind::NoCallAtSite));
        // A call of a spine function that the table does not have, and one that it cannot know of.
        assert!(judge(&|s| drop(s.sites.remove(0))).contains(&Kind::CallWithoutSite));
        assert_eq!(judge(&|s| s.sites[0].frame += 8), [Kind::FrameSize]);
        assert_eq!(judge(&|s| s.sites[0].frame = u64::MAX), [Kind::FrameSize]);
        assert!(judge(&|s| drop(s.functions.remove(0))).contains(&Kind::NoFunction));
        assert_eq!(
            judge(&|s| s.functions.push("missing".into())),
            [Kind::NoFunction]
        );
    }
}

/// Which functions a call through a pointer can reach decides what it reads.
#[test]
fn targets_of_pointers_are_used() {
    let body = [
        "site callq leaf; site callq *%rax",
        "site bl leaf; site blr x0",
    ];
    for isa in Isa::ALL {
        let case = case("pointer", Framed, body[isa.index()]);
        let fixture = Program::new(isa, "pointer", std::slice::from_ref(&case));
        let judge = |target: &str| {
            let mut spine = fixture.spine(&case);
            spine.sites[1].targets = vec![target.to_owned()];
            program(isa, &fixture.file, &spine).is_ok()
        };
        assert!(judge("pointer") && !judge("reader"));
    }
}

/// What a callee needs of its caller's registers is known to the byte: the upper part of a register in
/// which one byte was made is not needed because it is put by along with it, or because it is computed with in a
/// slot of which only the low bytes are used, and a function that
/// cannot migrate has no arguments in registers that the C convention preserves.
#[test]
fn callees_need_what_they_use() {
    let made = "testq %rdi, %rdi; sete %bl; movl %ebx, -24(%rbp)";
    // A back end makes a word alone, and adds all of the register to a slot in which another word is.
    let counted = "lzcntw %di, %r13w; movl %edi, -24(%rbp); addl %r13d, -24(%rbp)";
    let spilled = "lzcntw %di, %r13w; movl %edi, %ecx; movl %r13d, -24(%rbp)";
    let bodies = [
        (
            "byte",
            Framed,
            format!("{made}; cmpb $0, -24(%rbp); je 1f; nop; 1:"),
            true,
        ),
        (
            "word",
            Framed,
            format!("{made}; cmpl $0, -24(%rbp); je 1f; nop; 1:"),
            false,
        ),
        (
            "copied_byte",
            Framed,
            format!("{made}; movl -24(%rbp), %ecx; testb %cl, %cl; je 1f; nop; 1: xorl %ecx, %ecx"),
            true,
        ),
        (
            "copied_word",
            Framed,
            format!(
                "{made}; movl -24(%rbp), %ecx; testl %ecx, %ecx; je 1f; nop; 1: xorl %ecx, %ecx"
            ),
            false,
        ),
        (
            "word_computed_in_a_slot",
            Framed,
            format!(
                "{counted}; movl -24(%rbp), %ecx; testw %cx, %cx; je 1f; nop; 1: xorl %ecx, %ecx"
            ),
            true,
        ),
        (
            "slot_used_whole",
            Framed,
            format!("{counted}; cmpl $0, -24(%rbp); je 1f; nop; 1:"),
            false,
        ),
        (
            "flags_of_a_slot",
            Framed,
            format!("{counted}; je 1f; nop; 1:"),
            false,
        ),
        (
            "word_of_a_slot",
            Framed,
            format!(
                "{spilled}; addl -24(%rbp), %ecx; testw %cx, %cx; je 1f; nop; 1: xorl %ecx, %ecx"
            ),
            true,
        ),
        (
            "sum_of_a_slot",
            Framed,
            format!(
                "{spilled}; addl -24(%rbp), %ecx; testl %ecx, %ecx; je 1f; nop; 1: xorl %ecx, %ecx"
            ),
            false,
        ),
        (
            "lowest_byte_of_a_slot",
            Framed,
            "movl %r13d, -24(%rbp); addl $1, -24(%rbp)".to_owned(),
            false,
        ),
        (
            "memory_that_is_no_slot",
            Framed,
            "lzcntw %di, %r13w; addl %r13d, (%rdi)".to_owned(),
            false,
        ),
        ("jump", Bare(0), "jmp plain".to_owned(), true),
    ];
    for (name, shape, body, good) in bodies {
        let caller = case("caller", Framed, "site callq leaf; site callq callee");
        let callee = case("callee", shape, &body);
        let cases = [caller, callee];
        let fixture = Program::new(Isa::X86_64, &format!("needs_{name}"), &cases);
        let mut spine = fixture.spine(&cases[0]);
        spine.functions.push("callee".to_owned());
        let verdict = program(Isa::X86_64, &fixture.file, &spine);
        assert_eq!(verdict.is_ok(), good, "{name}: {verdict:?}");
    }
}

#[test]
fn files_that_are_no_programs_are_refused() {
    let case = case("empty", Bare(0), "nop");
    let fixture = Program::new(Isa::X86_64, "files", std::slice::from_ref(&case));
    let spine = fixture.spine(&case);
    let bad = |isa, file: &[u8]| {
        let found = program(isa, file, &spine).unwrap_err().0;
        found.iter().map(|f| f.kind).collect::<Vec<_>>() == [Kind::BadImage]
    };
    assert!(bad(Isa::Aarch64, &fixture.file));
    assert!(bad(Isa::X86_64, b"no program"));
    // Whatever is cut off or broken: no panic, and nothing is accepted.
    for i in (0..fixture.file.len()).step_by(7) {
        assert!(
            program(Isa::X86_64, &fixture.file[..i], &spine).is_err(),
            "{i}"
        );
    }
}

/// A finding names the line of the program's source.
#[test]
fn findings_have_source_lines() {
    const BODY: &str = r#"
define void @leaf() { ret void }
define void @_RNvCs1_3app4work() "frame-pointer"="all" !dbg !4 {
  call void @leaf(), !dbg !6
  ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "src/main.rs", directory: "/app")
!2 = !{i32 2, !"Dwarf Version", i32 4}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "work", file: !1, line: 40, type: !5, unit: !0)
!5 = !DISubroutineType(types: !8)
!6 = !DILocation(line: 42, column: 5, scope: !4)
!7 = !DILocation(line: 43, column: 1, scope: !4)
!8 = !{}
"#;
    for isa in Isa::ALL {
        let ir = format!("target triple = \"{}\"\n{BODY}", TRIPLES[isa.index()]);
        let fixture = Program::compile(isa, "lines", &ir, &["-filetype=obj"]);
        let spine = SpineInfo {
            plain: Default::default(),
            functions: vec!["_RNvCs1_3app4work".to_owned()],
            leaves: vec!["leaf".to_owned()],
            sites: Vec::new(),
            conventions: None,
        };
        let error = program(isa, &fixture.file, &spine).unwrap_err();
        let [found] = &error.0[..] else {
            panic!("{error}")
        };
        assert_eq!(
            (found.kind, found.function.as_str()),
            (Kind::CallWithoutSite, "app::work")
        );
        let source = found.source.clone().unwrap();
        assert_eq!(source.to_string(), "/app/src/main.rs:42");
        let text = error.to_string();
        for part in [
            "CallWithoutSite",
            "app::work",
            "src/main.rs:42",
            "do: ",
            found.remedy(),
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// A finding in a library names the line of the program too: the one that the code was inlined into, or
/// the one that calls its function.
#[test]
fn findings_in_libraries_lead_to_the_program() {
    const BODY: &str = r#"
define void @leaf() { ret void }
define internal void @_RNvCs2_5alloc4grow() noinline "frame-pointer"="all" !dbg !20 {
  call void @leaf(), !dbg !21
  ret void, !dbg !21
}
define internal void @_RNvCs2_5alloc4push() noinline "frame-pointer"="all" !dbg !22 {
  call void @_RNvCs2_5alloc4grow(), !dbg !23
  ret void, !dbg !23
}
define void @_RNvCs1_3app4work() "frame-pointer"="all" !dbg !4 {
  call void @leaf(), !dbg !24
  call void @_RNvCs2_5alloc4push(), !dbg !7
  ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "src/main.rs", directory: "/app")
!2 = !{i32 2, !"Dwarf Version", i32 4}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "work", file: !1, line: 40, type: !5, unit: !0)
!5 = !DISubroutineType(types: !8)
!6 = distinct !DILocation(line: 42, column: 5, scope: !4)
!7 = !DILocation(line: 43, column: 1, scope: !4)
!8 = !{}
!9 = !DIFile(filename: "/rustc/1/library/alloc/src/vec.rs", directory: "/rustc/1")
!20 = distinct !DISubprogram(name: "grow", file: !9, line: 100, type: !5, unit: !0)
!21 = !DILocation(line: 101, column: 5, scope: !20)
!22 = distinct !DISubprogram(name: "push", file: !9, line: 200, type: !5, unit: !0)
!23 = !DILocation(line: 201, column: 5, scope: !22)
!24 = !DILocation(line: 201, column: 5, scope: !22, inlinedAt: !6)
"#;
    for isa in Isa::ALL {
        let ir = format!("target triple = \"{}\"\n{BODY}", TRIPLES[isa.index()]);
        let fixture = Program::compile(isa, "libraries", &ir, &["-filetype=obj"]);
        let functions = ["_RNvCs2_5alloc4grow", "_RNvCs1_3app4work"];
        let spine = SpineInfo {
            plain: Default::default(),
            functions: functions.map(str::to_owned).into(),
            leaves: vec!["leaf".to_owned()],
            sites: Vec::new(),
            conventions: None,
        };
        let error = program(isa, &fixture.file, &spine).unwrap_err();
        let places = error.0.iter().map(|f| {
            let place = f.source.as_ref().map(ToString::to_string);
            (f.function.as_str(), place.unwrap_or_default())
        });
        let library = |line: u32, own: u32| {
            format!("/rustc/1/library/alloc/src/vec.rs:{line}, used at /app/src/main.rs:{own}")
        };
        assert_eq!(
            places.collect::<Vec<_>>(),
            [
                ("alloc::grow", library(101, 43)),
                ("app::work", library(201, 42)),
            ],
            "{error}"
        );
    }
}
