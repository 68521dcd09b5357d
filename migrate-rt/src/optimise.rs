//! Link-time optimisation, with the registers that programs have.
//!
//! The front end's target has no floating-point registers, so that crates take the paths that need no
//! intrinsics of an ISA. Its functions say so in their attributes. What is compiled is as neutral as ever:
//! operations on floating-point numbers are operations in IR, whoever executes them. So the attributes are
//! replaced, and the optimiser of the same toolchain runs the pipeline that the compiler would run, with the
//! vector and floating-point registers that both ISAs have.
//!
//! The attributes change before the optimisation, not after it: what decides about vectors, unrolling and tables
//! asks what an operation costs.

mod float;

use crate::files;
use crate::frontend::{FrontendError, PostLto, PreLto, check_size};
use crate::llvm::Line;
use crate::process::run_quiet;
use crate::toolchain::{Toolchain, clean_command};
use std::path::{Path, PathBuf};

/// Registers that functions may use: those of the hard-float target.
const FEATURES: &str = "+v8a,+strict-align,+neon,+fp-armv8";
const KEY: &str = "\"target-features\"=\"";

/// Square roots of the crate libm, by the end of their path: the ISAs have instructions that give the same bits.
const ROOTS: [(&str, &str, &str, &str); 2] = [
    ("4libm4math4sqrt4sqrt", "double", "i64", "f64"),
    ("4libm4math4sqrt5sqrtf", "float", "i32", "f32"),
];

/// Optimises a program. Files in `dir` keep the steps in between.
///
/// # Errors
///
/// If a tool fails, a file cannot be written, or the program is too large.
pub fn optimise(
    tools: &Toolchain,
    bin: &str,
    program: &PreLto,
    dir: &Path,
) -> Result<PostLto, FrontendError> {
    let text_of = |path: &Path| {
        check_size(bin, path)?;
        let bytes = files::read(path).map_err(FrontendError::File)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    };
    let [linked, input, output] =
        ["linked.ll", "with-registers.ll", "optimised.ll"].map(|n| dir.join(n));
    opt(tools, dir, &["-passes=globaldce"], &program.path, &linked)?;
    let text = with_registers(&text_of(&linked)?);
    let text = float::in_registers(&text).map_err(FrontendError::Unreadable)?;
    files::write(&input, text.as_bytes()).map_err(FrontendError::File)?;
    drop(text);
    let passes = [
        "-passes=lto<O3>",
        "-vectorize-slp",
        "-enable-merge-functions",
    ];
    opt(tools, dir, &passes, &input, &output)?;
    let text = text_of(&output)?;
    // They are as large as the result, and help with nothing that the result does not help with.
    for path in [linked, input] {
        let _ = std::fs::remove_file(path);
    }
    Ok(PostLto { path: output, text })
}

fn opt(
    tools: &Toolchain,
    dir: &Path,
    options: &[&str],
    input: &PathBuf,
    output: &PathBuf,
) -> Result<(), FrontendError> {
    let mut command = clean_command(&tools.opt, dir);
    command
        .args(options)
        .args(["-S", "-o"])
        .arg(output)
        .arg(input);
    run_quiet(&mut command).map_err(FrontendError::Optimiser)?;
    Ok(())
}

/// The module with hardware floating point.
fn with_registers(text: &str) -> String {
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
        match Line::of(line) {
            Line::Attributes => out.push_str(&features(line)),
            Line::Define(Some(name)) => {
                out.push_str(line);
                root = square_root(line, name);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// An attribute group with the registers that all functions may use.
fn features(line: &str) -> String {
    let Some((before, rest)) = line.split_once(KEY) else {
        return line.to_owned();
    };
    match rest.split_once('"') {
        Some((_, after)) => format!("{before}{KEY}{FEATURES}\"{after}"),
        None => line.to_owned(),
    }
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
    fn functions_get_registers_and_square_roots_instructions() {
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
             attributes #1 = {{ nounwind \"target-cpu\"=\"generic\" \"target-features\"=\"{FEATURES}\" }}\n\
             attributes #2 = {{ nounwind }}\n"
        );
        assert_eq!(with_registers(&text), expected);
        // A version of libm that passes something else stays as it is.
        let other = text.replace("i64 %0) unnamed", "ptr %0) unnamed");
        assert!(!with_registers(&other).contains("llvm.sqrt"));
    }
}
