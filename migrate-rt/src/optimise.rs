//! Link-time optimisation, with the registers that programs have.
//!
//! The front end's target has no floating-point registers, so that crates take the paths that need no
//! intrinsics of an ISA. Its functions say so in their attributes. What is compiled is as neutral as ever:
//! operations on floating-point numbers are operations in IR, whatever the registers. The optimiser of the same
//! toolchain runs the pipeline that the compiler would run. It adds the vector and floating-point registers that both
//! ISAs have: where attributes disagree, the last one counts.
//!
//! The attributes change before the optimisation, not after it: what decides about vectors, unrolling and tables
//! asks what an operation costs.

mod float;

use crate::files;
use crate::frontend::{FrontendError, PostLto, PreLto, check_size};
use crate::llvm::{Line, Unreadable};
use crate::process::run_quiet;
use crate::toolchain::{Toolchain, clean_command};
use std::path::Path;

/// Registers that functions may use: those of the hard-float target.
const FEATURES: &str = "+v8a,+strict-align,+neon,+fp-armv8";

/// In the path of the square roots of the crate libm.
const ROOT: &str = "4libm4math4sqrt";
/// Square roots of the crate libm, by the end of their path: the ISAs have instructions that give the same bits.
const ROOTS: [(&str, &str, &str, &str); 2] = [
    ("4libm4math4sqrt4sqrt", "double", "i64", "f64"),
    ("4libm4math4sqrt5sqrtf", "float", "i32", "f32"),
];

/// Optimises a program. Its text is in `dir` afterwards.
///
/// # Errors
///
/// If the optimiser fails, a file cannot be read, or the program is too large.
pub fn optimise(
    tools: &Toolchain,
    bin: &str,
    program: &PreLto,
    dir: &Path,
) -> Result<PostLto, FrontendError> {
    let output = dir.join("optimised.ll");
    let mut command = clean_command(&tools.opt, dir);
    // The compiler has made the module, or `llvm-as` has verified it.
    command
        .args(["-disable-verify", "-passes=globaldce,lto<O3>"])
        .arg(format!("-mattr={FEATURES}"))
        .args(["-vectorize-slp", "-enable-merge-functions", "-S", "-o"])
        .args([&output, &program.path]);
    run_quiet(&mut command).map_err(FrontendError::Optimiser)?;
    check_size(bin, &output)?;
    let bytes = files::read(&output).map_err(FrontendError::File)?;
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    Ok(PostLto { path: output, text })
}

/// Whether [`prepared`] would change this bitcode. Names of symbols are in it as they are.
pub(crate) fn concerns(bitcode: &[u8]) -> bool {
    let has = |name: &str| {
        let name = name.as_bytes();
        bitcode.windows(name.len()).any(|w| w == name)
    };
    has(ROOT) || has(float::KINDS)
}

/// The program with what is done to it before it is optimised, as text: instructions for square roots, and functions of
/// one ISA with floating-point arguments.
///
/// # Errors
///
/// If a line cannot be read.
pub(crate) fn prepared(text: &str) -> Result<String, Unreadable> {
    float::in_registers(&with_roots(text))
}

/// The module with instructions for square roots.
fn with_roots(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1024);
    let mut root: Option<String> = None;
    for line in text.lines() {
        if let Some(body) = &root {
            if line == "}" {
                out.push_str(body);
                out.push_str("}\n");
                root = None;
            }
            continue;
        }
        out.push_str(line);
        if let Line::Define(Some(name)) = Line::of(line) {
            root = square_root(line, name);
        }
        out.push('\n');
    }
    out
}

/// The body of the function with this header, if it is a square root of libm. The front end's target passes
/// floating-point numbers as integers.
fn square_root(header: &str, name: &str) -> Option<String> {
    let (_, ty, bits, suffix) = ROOTS.iter().find(|(end, ..)| name.ends_with(end))?;
    if !header.contains(&format!(" {bits} @{name}({bits} ")) {
        return None;
    }
    // Intrinsics need no declaration.
    Some(format!(
        "  %dyad.x = bitcast {bits} %0 to {ty}\n  %dyad.root = call {ty} @llvm.sqrt.{suffix}({ty} %dyad.x)\n\
         \x20 %dyad.bits = bitcast {ty} %dyad.root to {bits}\n  ret {bits} %dyad.bits\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_roots_get_instructions() {
        let name = "_RNvNtNtCs1_4libm4math4sqrt4sqrt";
        let text = format!(
            "define internal i64 @{name}(i64 %0) unnamed_addr #1 {{\nstart:\n  br label %a\n\na:\n  ret i64 0\n}}\n\
             define i64 @other(i64 %0) #1 {{\n  ret i64 %0\n}}\n\
             attributes #1 = {{ nounwind \"target-cpu\"=\"generic\" \"target-features\"=\"+v8a,-neon,-fp-armv8\" }}\n\
             attributes #2 = {{ nounwind }}\n"
        );
        let expected = format!(
            "define internal i64 @{name}(i64 %0) unnamed_addr #1 {{\n  %dyad.x = bitcast i64 %0 to double\n\
             \x20 %dyad.root = call double @llvm.sqrt.f64(double %dyad.x)\n\
             \x20 %dyad.bits = bitcast double %dyad.root to i64\n  ret i64 %dyad.bits\n}}\n\
             define i64 @other(i64 %0) #1 {{\n  ret i64 %0\n}}\n\
             attributes #1 = {{ nounwind \"target-cpu\"=\"generic\" \"target-features\"=\"+v8a,-neon,-fp-armv8\" }}\n\
             attributes #2 = {{ nounwind }}\n"
        );
        assert_eq!(with_roots(&text), expected);
        // A version of libm that passes something else stays as it is.
        let other = text.replace("i64 %0) unnamed", "ptr %0) unnamed");
        assert!(!with_roots(&other).contains("llvm.sqrt"));
    }
}
