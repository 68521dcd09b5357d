//! Functions of one ISA: what they may take and return, where they are put, and how they begin on the
//! other one.
//!
//! A call of one from the other ISA is carried over by kernels, register by register, without knowing its
//! signature. So what it takes and returns must be in the same registers on both ISAs, and nothing may
//! be on the stack. `#[dyad::isa]` checks the types; what the compiler has made of them is checked here,
//! as optimisations may change how functions are called that only the program itself calls.
//!
//! Both ISAs have the function at the same address. On the other one it begins with
//!
//! ```text
//!   Tcb::local == 0?  ──yes──▶ jump to its place in the away window: a fault, and the call crosses
//!        │ no
//!        ▼ the function's body, for this ISA
//! ```
//!
//! which are bytes that the back end puts in front of everything else (`prologue`). They use nothing but
//! flags on x86-64, and the register that linkers may use between a call and a function on AArch64. A
//! function that always crosses begins with the jump.

use super::ViolationKind;
use crate::llvm::{Header, Kind, Lexed, Line, lex, parts};
use dyad_abi::Isa;
use dyad_abi::user::{Tcb, gate};
use std::fmt::Write;
use std::ops::Range;

/// After the section's name, of functions that always cross.
const ALWAYS: &str = "..always";

/// The section of such functions in the front end's IR.
fn section(isa: Isa) -> &'static str {
    crate::align::only(isa)
}

/// The header of a function that is put into a section, and the name of the section with its place.
///
/// Functions without a section are not looked into.
fn section_of(define: &str) -> Option<(Lexed<'_>, Header, Range<usize>)> {
    let l = Some(define).filter(|d| d.contains(" section \""))?;
    let l = lex(l).ok()?;
    let header = Header::read(&l)?;
    let quoted = l.tokens[header.section(&l)?].at.clone();
    Some((l, header, quoted.start + 1..quoted.end - 1))
}

/// Whether a section is that of functions of one ISA.
fn is_of_one_isa(name: &str) -> bool {
    let rest = |isa| name.strip_prefix(section(isa));
    let mut rests = Isa::ALL.into_iter().filter_map(rest);
    rests.any(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a function is one of those.
pub(super) fn is_only(define: &str) -> bool {
    section_of(define).is_some_and(|(.., at)| is_of_one_isa(&define[at]))
}

/// Gives the function a section of its own.
pub(super) fn own_section(define: &str, function: &str) -> String {
    let shared = |name: &str| {
        let is_of = |isa| name == section(isa) || name == format!("{}{ALWAYS}", section(isa));
        Isa::ALL.into_iter().any(is_of)
    };
    let at = section_of(define).map(|(.., at)| at);
    match at.filter(|at| shared(&define[at.clone()])) {
        Some(at) => format!("{}.{function}{}", &define[..at.end], &define[at.end..]),
        None => define.to_owned(),
    }
}

/// The module with functions of the other ISA as they are on `isa`.
pub(super) fn lower(text: &str, isa: Isa) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match Line::of(line) {
            Line::Define(_) => out.push_str(&with_beginning(line, isa)),
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// The header of a function with its beginning on `isa`, if it is the other one's.
fn with_beginning(define: &str, isa: Isa) -> String {
    let foreign = format!("{}.", section(isa.other()));
    let Some((l, header, at)) = section_of(define) else {
        return define.to_owned();
    };
    let Some(name) = define[at].strip_prefix(&foreign) else {
        return define.to_owned();
    };
    let always = name
        .strip_prefix(&ALWAYS[1..])
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let bytes = beginning(isa, always);
    let text = bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "\\{b:02X}");
        text
    });
    let constant = format!(" prologue [{} x i8] c\"{text}\"", bytes.len());
    // What may follow it: a personality, metadata, the body.
    let follows = |i: &usize| {
        l.is_word(*i, "personality") || l.kind(*i) == Some(Kind::Meta) || l.is_mark(*i, b'{')
    };
    let next = (header.end()..l.tokens.len()).find(follows);
    let end = next.unwrap_or(l.tokens.len()) - 1;
    let at = l.tokens[end].at.end;
    format!("{}{constant}{}", &define[..at], &define[at..])
}

/// The first instructions of functions of the other ISA, on `isa`.
fn beginning(isa: Isa, always: bool) -> Vec<u8> {
    const LOCAL: u32 = core::mem::offset_of!(Tcb, local) as u32;
    const AWAY: u32 = gate::AWAY as u32;
    const _: () = assert!(LOCAL.is_multiple_of(8) && LOCAL / 8 < 1 << 12);
    const _: () = assert!(AWAY.is_multiple_of(4) && AWAY < 1 << 27);
    let mut code = Vec::new();
    match isa {
        Isa::X86_64 => {
            if !always {
                // cmpq $0, %fs:LOCAL; jne over the jump
                code.extend([0x64, 0x48, 0x83, 0x3c, 0x25]);
                code.extend(LOCAL.to_le_bytes());
                code.extend([0, 0x75, 5]);
            }
            // jmp, relative to what follows it
            code.push(0xe9);
            let from = code.len() as u32 + 4;
            code.extend((AWAY - from).to_le_bytes());
        }
        Isa::Aarch64 => {
            let mut words = Vec::new();
            if !always {
                // mrs x16, tpidr_el0; ldr x16, [x16, #LOCAL]; cbnz x16, over the jump
                words.extend([0xd53b_d050, 0xf940_0210 | ((LOCAL / 8) << 10), 0xb500_0050]);
            }
            // b, relative to itself
            let from = words.len() as u32 * 4;
            words.push(0x1400_0000 | ((AWAY - from) / 4));
            code.extend(words.iter().flat_map(|w: &u32| w.to_le_bytes()));
        }
    }
    code
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

/// Words between `define` and the type of the result that change nothing of where arguments are. Some have
/// values in parentheses.
const HARMLESS: [&str; 16] = [
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
    "range",
    "align",
    "dereferenceable",
    "dereferenceable_or_null",
];

/// Attributes of parameters that put them elsewhere.
const ELSEWHERE: [&str; 10] = [
    "byval",
    "byref",
    "inalloca",
    "preallocated",
    "sret",
    "inreg",
    "nest",
    "swiftself",
    "swiftasync",
    "swifterror",
];

/// Calls `refuse` for a function of one ISA only whose arguments or result kernels cannot carry.
pub(super) fn check(define: &str, refuse: &mut dyn FnMut(ViolationKind)) {
    // The name of the section decides; a header with it that cannot be read is refused.
    if !Isa::ALL.iter().any(|isa| define.contains(section(*isa))) {
        return;
    }
    let mut no = |what: String| refuse(ViolationKind::Crossing(what));
    let read = lex(define).ok().and_then(|l| Some((Header::read(&l)?, l)));
    let Some((h, l)) = read else {
        return no("has a header that cannot be read".to_owned());
    };
    if !is_only(define) {
        return;
    }
    let (mut integers, mut floats) = (0, 0);
    let mut result = Vec::new();
    let mut i = 1;
    while i < h.result.start {
        let is_harmless = HARMLESS.iter().any(|w| l.is_word(i, w));
        match is_harmless || l.is_word(i - 1, "align") {
            true if l.is_mark(i + 1, b'(') => i = l.past_bracket(i + 1).unwrap_or(h.result.start),
            true => i += 1,
            false => {
                result.push(l.text(i));
                i += 1;
            }
        }
    }
    let ty = l.span(h.result.start, h.result.end);
    if !result.is_empty() || ty != "void" && !count(ty, &mut integers, &mut floats) {
        result.push(ty);
        no(format!("returns {}", result.join(" ")));
    }
    (integers, floats) = (0, 0);
    for parameter in parts(&l, h.parameters.clone()) {
        let at_fault = |w: &&str| parameter.clone().any(|i| l.is_word(i, w));
        if !count(l.text(parameter.start), &mut integers, &mut floats)
            || ELSEWHERE.iter().any(at_fault)
        {
            no(format!("takes {}", l.span(parameter.start, parameter.end)));
        }
    }
    if integers > 6 || floats > 8 {
        no(format!(
            "takes {integers} integers or pointers and {floats} floating-point numbers"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disarm64::InsnDisplay;
    use dyad_abi::user::only_window;
    use iced_x86::Formatter;

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
        let always = line.replace("only_aarch64", "only_aarch64..always");
        let own = own_section(&always, "f");
        assert!(
            own.contains("section \".text.only_aarch64..always.f\""),
            "{own}"
        );
        assert_eq!(own_section(&own, "f"), own);
        let other = "define void @f() section \".text.only_aarch64x\" {";
        assert!(!is_only(other));
        assert_eq!(own_section(other, "f"), other);
    }

    /// What the decoders say that are used to verify programs.
    fn decoded(isa: Isa, code: &[u8]) -> Vec<String> {
        let at = only_window(isa.other()).0 + 0x240;
        match isa {
            Isa::X86_64 => {
                let decoder = iced_x86::Decoder::with_ip(64, code, at, 0);
                let text = |i: iced_x86::Instruction| {
                    let mut out = String::new();
                    let mut formatter = iced_x86::GasFormatter::new();
                    formatter.options_mut().set_uppercase_hex(false);
                    formatter.options_mut().set_branch_leading_zeros(false);
                    formatter.format(&i, &mut out);
                    out
                };
                decoder.into_iter().map(text).collect()
            }
            Isa::Aarch64 => {
                let (words, rest) = code.as_chunks::<4>();
                assert!(rest.is_empty());
                let words = words.iter().map(|w| u32::from_le_bytes(*w));
                let text = |(i, w): (usize, u32)| {
                    let insn = disarm64::decoder::decode(w).unwrap();
                    let text = insn.display_at(at + 4 * i as u64).to_string();
                    let words: Vec<_> = text.split_whitespace().collect();
                    words.join(" ")
                };
                words.enumerate().map(text).collect()
            }
        }
    }

    #[test]
    fn on_the_other_isa_a_word_decides() {
        let local = core::mem::offset_of!(Tcb, local);
        let at = |isa: Isa, of: u64| format!("{:#x}", only_window(isa.other()).0 + of);
        let [x, a] = Isa::ALL.map(|isa| decoded(isa, &beginning(isa, false)));
        let away = |isa| at(isa, 0x240 + gate::AWAY);
        let expected = [
            format!("cmpq $0,%fs:{local:#x}"),
            format!("jne {}", at(Isa::X86_64, 0x251)),
            format!("jmp {}", away(Isa::X86_64)),
        ];
        assert_eq!(x, expected);
        let expected = [
            "mrs x16, tpidr_el0".to_owned(),
            format!("ldr x16, [x16, #{local:#x}]"),
            format!("cbnz x16, {}", at(Isa::Aarch64, 0x250)),
            format!("b {}", away(Isa::Aarch64)),
        ];
        assert_eq!(a, expected);
        for isa in Isa::ALL {
            let always = decoded(isa, &beginning(isa, true));
            assert_eq!(always.len(), 1);
            assert!(always[0].ends_with(&away(isa)), "{always:?}");
        }
    }

    #[test]
    fn functions_begin_so_on_the_other_isa_only() {
        let of =
            |name: &str, rest: &str| format!("define void @f() #1 section \"{name}\" {rest}\n");
        for rest in [
            "{",
            "personality ptr @p {",
            "!dbg !3 {",
            "align 16 !dbg !3 {",
        ] {
            for (name, other) in [
                (".text.only_aarch64.f", Isa::X86_64),
                (".text.only_x86_64.f", Isa::Aarch64),
                (".text.only_x86_64..always.f", Isa::Aarch64),
            ] {
                let line = of(name, rest);
                assert_eq!(lower(&line, other.other()), line);
                let lowered = lower(&line, other);
                let length = beginning(other, name.contains("always")).len();
                let (head, tail) = lowered.split_once(" prologue ").unwrap();
                assert!(
                    tail.starts_with(&format!("[{length} x i8] c\"\\")),
                    "{lowered}"
                );
                let tail = tail.split_once("\" ").unwrap().1;
                let (whole, align) = (format!("{head} {tail}"), "align 16 ");
                assert_eq!(whole, line, "{lowered}");
                assert!(!tail.contains(align), "{lowered}");
            }
        }
        let line = of(".text.only_aarch64x.f", "{");
        assert_eq!(lower(&line, Isa::X86_64), line);
    }
}
