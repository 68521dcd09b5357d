//! Functions that run on one ISA only: what they may take and return, and where they are put.
//!
//! A call of one from the other ISA is carried over by kernels, register by register, without knowing its
//! signature. So what it takes and returns must be in the same registers on both ISAs, and nothing may
//! be on the stack. `#[dyad::isa]` checks the types; what the compiler has made of them is checked here,
//! as optimisations may change how functions are called that only the program itself calls.

use super::ViolationKind;
use dyad_abi::Isa;

const SECTION: &str = " section \"";

/// The section of such functions in the front end's IR.
fn section(isa: Isa) -> &'static str {
    crate::align::only(isa)
}

/// The section of a function, from its header.
fn section_of(define: &str) -> Option<&str> {
    let at = define.rfind(SECTION)? + SECTION.len();
    let rest = &define[at..];
    rest.find('"').map(|end| &rest[..end])
}

/// Whether a function is one of those.
pub(super) fn is_only(define: &str) -> bool {
    let only = |name: &str| {
        let all = Isa::ALL.map(section);
        all.iter()
            .any(|s| name == *s || name.starts_with(&format!("{s}.")))
    };
    section_of(define).is_some_and(only)
}

/// Gives the function a section of its own.
pub(super) fn own_section(define: &str, function: &str) -> String {
    let Some(now) = section_of(define).filter(|_| is_only(define)) else {
        return define.to_owned();
    };
    let shared = Isa::ALL.map(section).contains(&now);
    match shared {
        true => define.replacen(
            &format!("{SECTION}{now}\""),
            &format!("{SECTION}{now}.{function}\""),
            1,
        ),
        false => define.to_owned(),
    }
}

/// What of a list of parameters, or a result, goes where.
fn count(ty: &str, integers: &mut usize, floats: &mut usize) -> bool {
    match ty {
        "i32" | "i64" | "ptr" => *integers += 1,
        "float" | "double" => *floats += 1,
        _ => return false,
    }
    true
}

/// Words between the name of the linkage and the type of the result that change nothing of where
/// arguments are.
const HARMLESS: [&str; 12] = [
    "internal",
    "hidden",
    "protected",
    "dso_local",
    "noundef",
    "nonnull",
    "signext",
    "zeroext",
    "noalias",
    "unnamed_addr",
    "local_unnamed_addr",
    "weak",
];

/// Attributes of the result without the parentheses of those that have some.
fn without_groups(text: &str) -> String {
    let mut depth = 0;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => (),
        }
    }
    out
}

/// Calls `refuse` for a function of one ISA only whose arguments or result kernels cannot carry.
pub(super) fn check(define: &str, refuse: &mut dyn FnMut(ViolationKind)) {
    if !is_only(define) {
        return;
    }
    let mut no = |what: String| refuse(ViolationKind::Crossing(what));
    let Some((head, rest)) = define.split_once('@') else {
        return no("has no name".to_owned());
    };
    let head = without_groups(head);
    let words: Vec<_> = head.split_whitespace().skip(1).collect();
    let is_attribute = |w: &&&str| {
        HARMLESS.contains(*w)
            || ["range", "align", "dereferenceable"]
                .iter()
                .any(|p| w.starts_with(p))
    };
    let kinds: Vec<_> = words.iter().filter(|w| !is_attribute(w)).collect();
    let (mut integers, mut floats) = (0, 0);
    match kinds.as_slice() {
        [ty] if **ty == "void" || count(ty, &mut integers, &mut floats) => (),
        _ => no(format!(
            "returns {}",
            kinds.iter().map(|w| **w).collect::<Vec<_>>().join(" ")
        )),
    }
    let Some(list) = parameters(rest) else {
        return no("its parameters cannot be read".to_owned());
    };
    (integers, floats) = (0, 0);
    for parameter in list {
        let ty = parameter.split_whitespace().next().unwrap_or_default();
        if !count(ty, &mut integers, &mut floats)
            || ["byval", "sret", "inreg", "swift", "nest"]
                .iter()
                .any(|w| parameter.contains(w))
        {
            no(format!("takes {}", parameter.trim()));
        }
    }
    if integers > 6 || floats > 8 {
        no(format!(
            "takes {integers} integers or pointers and {floats} floating-point numbers"
        ));
    }
}

/// The parameters in a header, from the function's name on.
fn parameters(rest: &str) -> Option<Vec<&str>> {
    // A name in quotes may have parentheses in it.
    let from = match rest.strip_prefix('"') {
        Some(quoted) => quoted.find('"')? + 2,
        None => 0,
    };
    let open = from + rest.get(from..)?.find('(')? + 1;
    let (mut depth, mut start, mut list) = (0, open, Vec::new());
    for (i, c) in rest.bytes().enumerate().skip(open) {
        match c {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' if depth == 0 => {
                let last = rest[start..i].trim();
                if !last.is_empty() {
                    list.push(last);
                }
                return Some(list);
            }
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                list.push(rest[start..i].trim());
                start = i + 1;
            }
            _ => (),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(define: &str) -> Vec<String> {
        let mut all = Vec::new();
        check(define, &mut |kind| match kind {
            ViolationKind::Crossing(what) => all.push(what),
            other => panic!("{other}"),
        });
        all
    }

    const END: &str = "unnamed_addr #1 section \".text.only_aarch64\" {";

    #[test]
    fn what_fits_registers_of_both_isas_may_cross() {
        for head in [
            "define internal void @f()",
            "define internal noundef i64 @f(i64 noundef %a, ptr noalias noundef align 8 dereferenceable(8) %p)",
            "define internal range(i64 0, 5) i64 @f(i32 noundef range(i32 0, 7) %a)",
            "define double @\"a(b\"(double %0, float %1, double, double, double, double, double, double)",
            "define internal ptr @f(i64, i64, i64, i64, i64, i64, double)",
        ] {
            assert_eq!(found(&format!("{head} {END}")), [""; 0], "{head}");
        }
    }

    #[test]
    fn what_does_not_is_refused() {
        for (head, what) in [
            ("define internal fastcc void @f()", "returns fastcc void"),
            ("define internal { i64, i64 } @f()", "returns { i64, i64 }"),
            ("define internal i128 @f()", "returns i128"),
            ("define void @f([2 x i64] %0)", "takes [2 x i64] %0"),
            (
                "define void @f(ptr sret([24 x i8]) align 8 %0)",
                "takes ptr sret([24 x i8]) align 8 %0",
            ),
            ("define void @f(i128 %0)", "takes i128 %0"),
            ("define void @f(...)", "takes ..."),
            (
                "define void @f(i64, i64, i64, i64, i64, i64, i64)",
                "takes 7 integers or pointers and 0 floating-point numbers",
            ),
        ] {
            assert_eq!(found(&format!("{head} {END}")), [what], "{head}");
        }
        // Other functions are nobody's concern.
        assert_eq!(
            found("define fastcc void @f(i128 %0) section \".text.f\" {"),
            [""; 0]
        );
    }

    #[test]
    fn each_gets_a_section_of_its_own() {
        let line = format!("define void @f() {END}");
        let own = own_section(&line, "f");
        assert!(own.contains("section \".text.only_aarch64.f\""), "{own}");
        assert_eq!(own_section(&own, "f"), own);
        assert!(is_only(&own));
        let other = "define void @f() section \".text.only_aarch64x\" {";
        assert!(!is_only(other));
        assert_eq!(own_section(other, "f"), other);
    }
}
