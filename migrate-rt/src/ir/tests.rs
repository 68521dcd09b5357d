use super::*;
use dyad_abi::marker::PREFIX;

fn module(body: &str) -> String {
    format!(
        "; ModuleID = 'x'\ntarget datalayout = \"{AARCH64_LAYOUT}\"\ntarget triple = \"{AARCH64_TRIPLE}\"\n\n{body}\n"
    )
}

/// What becomes of `body`, without the module header.
fn neutral(body: &str) -> String {
    let ir = NeutralIr::from_post_lto(&module(body)).unwrap();
    let text = ir.text();
    text[text.find("\n\n").unwrap() + 2..].trim_end().to_owned()
}

fn refused(body: &str) -> Vec<Violation> {
    match NeutralIr::from_post_lto(&module(body)) {
        Err(IrError::Refused(all)) => all,
        other => panic!("{other:?}"),
    }
}

fn kinds(body: &str) -> Vec<ViolationKind> {
    refused(body).into_iter().map(|v| v.kind).collect()
}

#[test]
fn data_keeps_an_address_and_a_name_of_its_own() {
    // Golden: what is before the kind of global is rewritten, what is after it is not.
    assert_eq!(
        neutral(
            "@a = private unnamed_addr constant [16 x i8] c\"private unnamed_addr global\", align 1"
        ),
        "@a = internal constant [16 x i8] c\"private unnamed_addr global\", align 1"
    );
    assert_eq!(
        neutral("@\"a b\" = private local_unnamed_addr global i32 0, align 4"),
        "@\"a b\" = internal global i32 0, align 4"
    );
    assert_eq!(
        neutral("@0 = private unnamed_addr constant i8 0"),
        "@0 = internal constant i8 0"
    );
    assert_eq!(
        neutral("@b = dso_local unnamed_addr alias void (), ptr @f"),
        "@b = dso_local alias void (), ptr @f"
    );
    let kept = "@c = internal global [8 x i8] zeroinitializer, section \".x\", align 8";
    assert_eq!(neutral(kept), kept);
    assert_eq!(
        neutral("define private void @f() unnamed_addr #0 {\n  ret void\n}"),
        "define internal void @f() unnamed_addr #0 {\n  ret void\n}"
    );
}

#[test]
fn a_pass_cannot_bring_mergeable_data_back() {
    for prefix in [
        "private",
        "internal unnamed_addr",
        "private local_unnamed_addr",
    ] {
        let text = module(&format!("@a = {prefix} constant [16 x i8] zeroinitializer"));
        let Err(IrError::Refused(all)) = NeutralIr::check(text) else {
            panic!("{prefix} accepted");
        };
        assert_eq!(all[0].kind, ViolationKind::Mergeable("a".to_owned()));
    }
}

#[test]
fn attributes_no_longer_name_a_target() {
    let line = "attributes #0 = { nounwind \"probe-stack\"=\"inline-asm\" \"target-cpu\"=\"generic\" \"target-features\"=\"+v8a,+neon\" }";
    let want = "attributes #0 = { nounwind \"probe-stack\"=\"inline-asm\" }";
    assert_eq!(neutral(line), want);
    assert!(NeutralIr::check(module(line)).is_err());
}

#[test]
fn the_spin_hint_becomes_a_call_of_the_stub() {
    let body = "define void @f() {\n  tail call void @llvm.aarch64.isb(i32 15) #2, !dbg !7\n  ret void\n}\n\
                declare void @llvm.aarch64.isb(i32) unnamed_addr #16";
    let want = "define void @f() {\n  tail call void @dyad_relax() #2, !dbg !7\n  ret void\n}\n\
                declare void @dyad_relax() nounwind";
    assert_eq!(neutral(body), want);
    // The program may have declared the stub itself.
    let own = "declare void @dyad_relax() unnamed_addr #0";
    let text = neutral(&format!("{body}\n{own}"));
    assert_eq!(text.matches("declare void @dyad_relax").count(), 1);
}

#[test]
fn what_one_target_only_has_is_refused_by_function() {
    let all = refused(
        "define void @_RNvC1a4main() {\n  %x = call <16 x i8> @llvm.aarch64.neon.tbl1.v16i8(<16 x i8> %y)\n}\n\
         declare <16 x i8> @llvm.aarch64.neon.tbl1.v16i8(<16 x i8>)",
    );
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].function.as_deref(), Some("_RNvC1a4main"));
    let text = IrError::Refused(all).to_string();
    assert!(
        text.contains("a::main: uses the intrinsic llvm.aarch64.neon.tbl1.v16i8"),
        "{text}"
    );
    // With the line, if the program has line tables.
    let all = refused(
        "define void @_RNvC1a4main() !dbg !4 {\n  call void asm sideeffect \"cli\", \"\"(), !dbg !6\n  \
         call void @llvm.va_start(ptr null), !dbg !6\n}\n\
         !1 = !DIFile(filename: \"src/main.rs\", directory: \"/app\")\n\
         !4 = distinct !DISubprogram(name: \"main\", file: !1, line: 40)\n\
         !6 = !DILocation(line: 42, column: 5, scope: !4)",
    );
    let place = all[0].source.as_ref().map(ToString::to_string);
    assert_eq!(place.as_deref(), Some("/app/src/main.rs:42"));
    let text = IrError::Refused(all).to_string();
    for part in [
        "a::main (/app/src/main.rs:42): has inline assembly (\"cli\")",
        "call a function of dyad instead",
        "takes varying arguments",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let call = |code: &str| kinds(&format!("define void @f() {{\n  {code}\n}}"));
    assert_eq!(
        call("%a = call i64 asm sideeffect \"mrs $0, cntvct_el0\", \"=r\"() #1"),
        [ViolationKind::InlineAsm("mrs $0, cntvct_el0".to_owned())]
    );
    assert_eq!(
        call("call void asm sideeffect \"\", \"{x8}\"(i64 %a)"),
        [ViolationKind::InlineAsm(String::new())]
    );
    assert_eq!(
        call("%v = load <vscale x 4 x i32>, ptr %p"),
        [ViolationKind::ScalableVector]
    );
    assert_eq!(
        kinds("module asm \"nop\""),
        [ViolationKind::ModuleAsm("module asm \"nop\"".to_owned())]
    );
    assert_eq!(
        kinds("@t = internal thread_local(localexec) global i32 0"),
        [ViolationKind::ThreadLocal("t".to_owned())]
    );
    assert_eq!(
        kinds("@i = dso_local ifunc void (), ptr @f"),
        [ViolationKind::Ifunc("i".to_owned())]
    );
}

#[test]
fn what_only_looks_like_a_target_is_accepted() {
    let body = "define void @f() {\n  \
                call void asm sideeffect \"\", \"r,~{memory}\"(ptr %x)\n  \
                %asm = load i8, ptr %\"@llvm.aarch64.isb( asm \"\n  \
                call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 1, i1 false)\n}\n\
                !1 = !{!\"call void asm @llvm.x86.pause\"}";
    assert_eq!(neutral(body), body);
}

/// What markers look like when `dyad_sys::marker` has been compiled.
#[test]
fn markers_and_nothing_like_them_pass() {
    let (begin, end) = (0xd825_000f_u32, 0xd845_000f_u32);
    let asm = |template: &str| {
        let line = format!("call void asm sideeffect \"{template}\", \"~{{memory}}\"() #3");
        format!("define void @f() {{\n  {line}\n}}")
    };
    let markers =
        format!(".4byte {PREFIX}\\0A.4byte {begin}\\0Anop\\0A.4byte {PREFIX}\\0A.4byte {end}");
    for template in [markers.as_str(), "nop", "nop\\0Anop"] {
        assert_eq!(neutral(&asm(template)), asm(template));
    }
    for template in [
        format!(".4byte {PREFIX}"),
        format!(".4byte {begin}"),
        format!(".4byte {PREFIX}\\0A.4byte {PREFIX}"),
        format!(".4byte {PREFIX}\\0A.4byte {}", 0xd503_201f_u32),
        format!("{markers}\\0Ahlt"),
    ] {
        let refused = [ViolationKind::InlineAsm(template.clone())];
        assert_eq!(kinds(&asm(&template)), refused);
    }
}

#[test]
fn ir_of_another_target_is_refused() {
    let text = module("").replace(AARCH64_TRIPLE, "x86_64-unknown-linux-gnu");
    assert_eq!(NeutralIr::from_post_lto(&text), Err(IrError::OtherTarget));
    let text = module("").replace("n32:64", "n64");
    assert_eq!(NeutralIr::from_post_lto(&text), Err(IrError::OtherTarget));
    assert_eq!(NeutralIr::from_post_lto(""), Err(IrError::OtherTarget));
}

#[test]
fn isas_differ_in_target_only() {
    let ir = NeutralIr::from_post_lto(&module("@a = internal global i32 0")).unwrap();
    let [x, a] = Isa::ALL.map(|isa| ir.for_isa(isa));
    assert_eq!(a.text(), ir.text());
    let differing: Vec<_> = x
        .text()
        .lines()
        .zip(a.text().lines())
        .filter(|(x, a)| x != a)
        .collect();
    assert_eq!(differing.len(), 2);
    assert!(
        x.text()
            .contains("target triple = \"x86_64-unknown-none-elf\"")
    );
}

#[test]
fn nothing_survives_the_call_of_an_invocation() {
    let body = "define i64 @f(i64 %a) {\n  \
                %r = tail call [2 x i64] @dyad_request(i64 noundef %a, i64 1) #2, !dbg !7\n  \
                %s = call noundef i64 @dyad_invoke(i64 %a, ptr noundef nonnull %p) #2\n  \
                %t = call i64 @dyad_invoke_not(i64 %a)\n  \
                ret i64 0\n}\n\
                declare dso_local [2 x i64] @dyad_request(i64 noundef, i64) unnamed_addr #3\n\
                declare i64 @dyad_invoke(i64, ptr)\n\
                !7 = !{!\"@dyad_invoke\"}";
    let ir = NeutralIr::from_post_lto(&module(body)).unwrap();
    let text = ir.text();
    assert!(
        text.contains(body.lines().nth(1).unwrap()),
        "neutral: {text}"
    );
    for (isa, skipped) in [(Isa::X86_64, 4), (Isa::Aarch64, 9)] {
        let (values, types) = ("i64 poison, ".repeat(skipped), "i64, ".repeat(skipped));
        let ir = ir.for_isa(isa);
        for line in [
            format!(
                "  %r = tail call preserve_nonecc [2 x i64] @dyad_request({values}i64 noundef %a, i64 1) #2, !dbg !7"
            ),
            format!(
                "  %s = call preserve_nonecc noundef i64 @dyad_invoke({values}i64 %a, ptr noundef nonnull %p) #2"
            ),
            "  %t = call i64 @dyad_invoke_not(i64 %a)".to_owned(),
            format!(
                "declare dso_local preserve_nonecc [2 x i64] @dyad_request({types}i64 noundef, i64) unnamed_addr #3"
            ),
            format!("declare preserve_nonecc i64 @dyad_invoke({types}i64, ptr)"),
            "!7 = !{!\"@dyad_invoke\"}".to_owned(),
        ] {
            assert!(
                ir.text().lines().any(|l| l == line),
                "{line}\n{}",
                ir.text()
            );
        }
    }
}

#[test]
fn stubs_of_invocations_can_only_be_called() {
    for code in [
        "store ptr @dyad_invoke1, ptr %p",
        "%r = call i64 @f(ptr @dyad_request)",
        "%r = call i64 @dyad_invoke(i64 1, ptr @dyad_invoke)",
    ] {
        assert!(
            matches!(
                kinds(&format!("define void @g() {{\n  {code}\n}}"))[..],
                [ViolationKind::InvocationStub(_)]
            ),
            "{code}"
        );
    }
    // In data as well.
    assert!(matches!(
        kinds("@t = constant [1 x ptr] [ptr @dyad_invoke]")[..],
        [ViolationKind::InvocationStub(_)]
    ));
}
