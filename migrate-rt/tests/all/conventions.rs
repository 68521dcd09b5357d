//! No attribute changes what a call without preserved registers preserves.

use crate::common;

use common::{neutral, scratch, tools};
use dyad_abi::Isa;
use std::process::Command;

/// Attributes of parameters, as far as they may be on parameters of functions that are no intrinsics.
const PARAMETERS: [&str; 34] = [
    "align 8",
    "alignstack(8)",
    "allocalign",
    "allocptr",
    "byref(i64)",
    "byval(i64)",
    "captures(none)",
    "dead_on_return",
    "dead_on_unwind",
    "dereferenceable(8)",
    "dereferenceable_or_null(8)",
    "inreg",
    "initializes((0, 8))",
    "nest",
    "noalias",
    "nofree",
    "noext",
    "nofpclass(nan)",
    "nonnull",
    "noundef",
    "range(i64 0, 9)",
    "readnone",
    "readonly",
    "returned",
    "signext",
    "sret(i64)",
    "swiftasync",
    "swifterror",
    "swiftself",
    "writable",
    "writeonly",
    "zeroext",
    "noundef nonnull returned align 8",
    "noundef returned",
];

/// Attributes of functions and of calls; `optnone` is not without `noinline`.
const FUNCTIONS: [&str; 45] = [
    "allockind(\"alloc\")",
    "alwaysinline",
    "cold",
    "convergent",
    "disable_sanitizer_instrumentation",
    "hot",
    "hybrid_patchable",
    "inlinehint",
    "memory(none)",
    "minsize",
    "mustprogress",
    "naked",
    "nobuiltin",
    "nocallback",
    "nodivergencesource",
    "noduplicate",
    "nofree",
    "noimplicitfloat",
    "noinline",
    "nomerge",
    "nonlazybind",
    "noprofile",
    "norecurse",
    "noredzone",
    "nosanitize_bounds",
    "nosync",
    "nounwind",
    "null_pointer_is_valid",
    "optforfuzzing",
    "noinline optnone",
    "optsize",
    "returns_twice",
    "safestack",
    "shadowcallstack",
    "skipprofile",
    "ssp",
    "strictfp",
    "uwtable",
    "willreturn",
    "\"disable-tail-calls\"=\"true\"",
    "\"no_callee_saved_registers\"",
    "\"no_caller_saved_registers\"",
    "\"no-realign-stack\"",
    "\"patchable-function\"=\"prologue-short-redirect\"",
    "\"thunk\"",
];

/// A direct and an indirect call, with attributes of first parameter, function and result.
fn calls(ty: &str, parameter: &str, function: &str, result: &str) -> String {
    format!(
        "declare preserve_nonecc {result} {ty} @f({ty} {parameter}, i64) {function}\n\
         define preserve_nonecc {ty} @g({ty} %a, ptr %q, ptr %out) {{\n\
         %x = call preserve_nonecc {result} {ty} @f({ty} {parameter} %a, i64 1000) {function}\n\
         %z = call preserve_nonecc {result} {ty} %q({ty} {parameter} %a, i64 1000) {function}\n\
         store {ty} %x, ptr %out\n\
         ret {ty} %z\n\
         }}"
    )
}

/// What calls preserve, as the back end has it before it allocates registers; `None` if it refuses the module.
fn preserved(
    isa: Isa,
    body: &str,
    dir: &std::path::Path,
    llc: &std::path::Path,
) -> Option<Vec<String>> {
    let input = dir.join(format!("{isa}.ll"));
    std::fs::write(&input, neutral(body).for_isa(isa).text()).unwrap();
    let flags = migrate_rt::codegen::flags(isa).filter(|f| !f.starts_with("-filetype"));
    let out = Command::new(llc)
        .args(flags)
        .args(["-stop-after=finalize-isel", "-o", "-"])
        .arg(&input)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    // Flags may be before the instruction.
    let is_call = |w: &str| matches!(w, "BL" | "BLR") || w.starts_with("CALL64");
    let mask = |line: &str| {
        line.split(' ').any(is_call).then(|| {
            let mut words = line.split([' ', ',']);
            let mask = words.find(|w| w.starts_with("csr_") || w.starts_with("Custom"));
            mask.unwrap_or("nothing said").to_owned()
        })
    };
    out.status
        .success()
        .then(|| text.lines().filter_map(mask).collect())
}

#[test]
fn no_attribute_overrides_the_convention_of_a_call() {
    let (tools, dir) = (tools(), scratch("conventions"));
    let mut judged = 0;
    let mut check = |what: &str, body: &str| {
        for isa in Isa::ALL {
            // A back end that refuses the attribute makes no code.
            let Some(masks) = preserved(isa, body, &dir, &tools.llc) else {
                continue;
            };
            judged += 1;
            let nothing = |m: &String| m.ends_with("_noneregs") || m == "csr_noregs";
            assert!(
                masks.len() == 2 && masks.iter().all(nothing),
                "{what}, {isa}: {masks:?}\n{body}"
            );
        }
    };
    for parameter in PARAMETERS {
        for ty in ["ptr", "i64", "i32", "double"] {
            check(parameter, &calls(ty, parameter, "", ""));
        }
    }
    for function in FUNCTIONS {
        check(function, &calls("i64", "", function, ""));
    }
    for result in [
        "inreg", "noalias", "nonnull", "noundef", "signext", "zeroext", "align 8",
    ] {
        check(result, &calls("i64", "", "", result));
        check(result, &calls("ptr", "", "", result));
    }
    assert!(judged > 200, "{judged}");
}

/// Passes that find out which registers a callee leaves alone would do the same.
#[test]
fn no_pass_looks_at_what_callees_use() {
    let (tools, dir) = (tools(), scratch("conventions-passes"));
    for isa in Isa::ALL {
        let input = dir.join(format!("{isa}.ll"));
        std::fs::write(
            &input,
            neutral(&calls("i64", "", "", "")).for_isa(isa).text(),
        )
        .unwrap();
        let out = Command::new(&tools.llc)
            .args(migrate_rt::codegen::flags(isa))
            .args(["-debug-pass=Structure", "-o"])
            .arg(dir.join("out.o"))
            .arg(&input)
            .output()
            .unwrap();
        let passes = String::from_utf8(out.stderr).unwrap();
        assert!(passes.contains("Register Allocator"), "{passes}");
        assert!(!passes.contains("Register Usage Information"), "{passes}");
    }
}
