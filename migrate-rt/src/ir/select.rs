//! Conditional moves that the crate `cmov` writes as AArch64 assembly.
//!
//! Crates that handle secrets (`cmov`, below `ctutils`, below `aead` and others) choose between two values by one
//! instruction, so that no branch depends on a secret. AArch64 and x86-64 have such an instruction each, and the back
//! ends use it for `select`. The optimiser has run before, so that it cannot make branches of these. What a back
//! end makes of them is not checked: a program has no promise about the time that instructions take.
//!
//! | assembly | meaning |
//! |---|---|
//! | `tst c, 0xff`, `csel r, a, b, NE` | `a` if the byte `c` is not 0, else `b` |
//! | `eor t, x, y`, `cmp t, 0` or `tst t, 0xffff`, `csel r, a, b, NE` | `a` if `x` and `y` differ, else `b` |
//!
//! Both exist with `EQ`, which is the opposite. Only this text with these constraints and types is known; everything else
//! stays, and is refused as assembly.

use std::borrow::Cow;

/// What follows the result, up to the template.
const CALLS: [&str; 2] = ["tail call ", "call "];

/// A form of the assembly: its template without the condition, its constraints, the types of its result and operands.
struct Form {
    template: &'static str,
    constraints: &'static str,
    result: &'static str,
    operands: &'static [&'static str],
}

const MOVE: &str = "=r,r,0,r,r,~{cc}";
const MOVE_W: &str = "tst ${1:w}, 0xff\\0Acsel ${0:w}, ${3:w}, ${4:w}, ";
const MOVE_X: &str = "tst ${1:x}, 0xff\\0Acsel ${0:x}, ${3:x}, ${4:x}, ";
const COMPARE: &str = "=&r,=r,r,r,1,r,r,~{cc}";
const PAIR: &str = "{ i32, i16 }";

const FORMS: [Form; 6] = [
    Form {
        template: MOVE_W,
        constraints: MOVE,
        result: "i16",
        operands: &["i8", "i16", "i16", "i16"],
    },
    Form {
        template: MOVE_W,
        constraints: MOVE,
        result: "i32",
        operands: &["i8", "i32", "i32", "i32"],
    },
    Form {
        template: MOVE_X,
        constraints: MOVE,
        result: "i64",
        operands: &["i8", "i64", "i64", "i64"],
    },
    Form {
        template: "eor ${0:w}, ${2:w}, ${3:w}\\0Atst ${0:w}, 0xffff\\0Acsel ${1:w}, ${5:w}, ${6:w}, ",
        constraints: COMPARE,
        result: PAIR,
        operands: &["i16", "i16", "i16", "i16", "i16"],
    },
    Form {
        template: "eor ${0:w}, ${2:w}, ${3:w}\\0Acmp ${0:w}, 0\\0Acsel ${1:w}, ${5:w}, ${6:w}, ",
        constraints: COMPARE,
        result: PAIR,
        operands: &["i32", "i32", "i16", "i16", "i16"],
    },
    Form {
        template: "eor ${0:x}, ${2:x}, ${3:x}\\0Acmp ${0:x}, 0\\0Acsel ${1:x}, ${5:x}, ${6:x}, ",
        constraints: COMPARE,
        result: PAIR,
        operands: &["i64", "i64", "i16", "i16", "i16"],
    },
];

/// The line, or the lines that mean the same on every ISA.
pub(super) fn portable(line: &str) -> Cow<'_, str> {
    match line.contains("csel ") {
        true => rewritten(line).map_or(Cow::Borrowed(line), Cow::Owned),
        false => Cow::Borrowed(line),
    }
}

fn rewritten(line: &str) -> Option<String> {
    let (result, call) = line.trim_start().split_once(" = ")?;
    let number = result.strip_prefix('%')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    if number.is_empty() || !number.chars().all(plain) {
        return None;
    }
    let call = CALLS.iter().find_map(|c| call.strip_prefix(c))?;
    let (of, rest) = call.split_once(" asm \"")?;
    let (template, rest) = rest.split_once("\", \"")?;
    let (constraints, rest) = rest.split_once("\"(")?;
    let (operands, rest) = rest.split_once(')')?;
    let (template, condition) = (
        template.get(..template.len().checked_sub(2)?)?,
        template.get(template.len() - 2..)?,
    );
    let form = FORMS
        .iter()
        .find(|f| (f.template, f.constraints, f.result) == (template, constraints, of))?;

    let operands: Vec<&str> = operands.split(", ").collect();
    if operands.len() != form.operands.len() {
        return None;
    }
    let values: Option<Vec<&str>> = operands
        .iter()
        .zip(form.operands)
        .map(|(o, of)| value(o, of))
        .collect();
    let values = values?;
    // The last two are what is chosen between; the tied operand before the first of them is not read.
    let (x, y, first, second) = match values[..] {
        [c, _, a, b] => (c, "0", a, b),
        [x, y, _, a, b] => (x, y, a, b),
        _ => return None,
    };
    let (first, second) = match condition {
        "NE" => (first, second),
        "EQ" => (second, first),
        _ => return None,
    };
    let debug = rest.find(", !dbg !").map_or("", |at| {
        let end = rest[at + 2..].find(',').map_or(rest.len(), |n| at + 2 + n);
        &rest[at..end]
    });
    let of_x = form.operands[0];
    let test = format!("  %dyad.test.{number} = icmp ne {of_x} {x}, {y}{debug}");
    let choice = |name: &str, of: &str| {
        format!("  {name} = select i1 %dyad.test.{number}, {of} {first}, {of} {second}{debug}")
    };
    Some(match form.result {
        PAIR => {
            let chosen = choice(&format!("%dyad.choice.{number}"), "i16");
            // The other part of the pair is the scratch register, which nobody reads.
            format!(
                "{test}\n{chosen}\n  {result} = insertvalue {PAIR} zeroinitializer, i16 %dyad.choice.{number}, 1{debug}"
            )
        }
        of => format!("{test}\n{}", choice(result, of)),
    })
}

/// The value of an operand of this type, if it is a plain one.
fn value<'a>(operand: &'a str, of: &str) -> Option<&'a str> {
    let mut words = operand.split(' ');
    let (Some(found), Some(first)) = (words.next(), words.next()) else {
        return None;
    };
    let value = match first {
        "noundef" => words.next()?,
        _ => first,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '.' | '_' | '-' | '$');
    (found == of && words.next().is_none() && value.chars().all(plain)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::portable;

    #[test]
    fn a_move_becomes_a_selection() {
        let line = "  %7 = tail call i32 asm \"tst ${1:w}, 0xff\\0Acsel ${0:w}, ${3:w}, ${4:w}, NE\", \
                    \"=r,r,0,r,r,~{cc}\"(i8 noundef %c, i32 %d, i32 %s, i32 %d) #1, !dbg !4, !srcloc !2";
        let want = "  %dyad.test.7 = icmp ne i8 %c, 0, !dbg !4\n  \
                    %7 = select i1 %dyad.test.7, i32 %s, i32 %d, !dbg !4";
        assert_eq!(portable(line), want);
        let opposite = line.replace("NE\"", "EQ\"");
        assert_eq!(
            portable(&opposite),
            want.replace("i32 %s, i32 %d", "i32 %d, i32 %s")
        );
    }

    #[test]
    fn a_comparison_becomes_a_selection() {
        let line = "  %1323 = call { i32, i16 } asm \"eor ${0:x}, ${2:x}, ${3:x}\\0Acmp ${0:x}, 0\\0Acsel ${1:x}, ${5:x}, \
                    ${6:x}, NE\", \"=&r,=r,r,r,1,r,r,~{cc}\"(i64 %a.b, i64 %12, i16 %9, i16 0, i16 %9) #44, !dbg !3, !srcloc !5";
        let want = "  %dyad.test.1323 = icmp ne i64 %a.b, %12, !dbg !3\n  \
                    %dyad.choice.1323 = select i1 %dyad.test.1323, i16 0, i16 %9, !dbg !3\n  \
                    %1323 = insertvalue { i32, i16 } zeroinitializer, i16 %dyad.choice.1323, 1, !dbg !3";
        assert_eq!(portable(line), want);
    }

    /// Whatever is not exactly known stays assembly, which is refused.
    #[test]
    fn other_assembly_stays() {
        let line = "  %7 = call i64 asm \"tst ${1:x}, 0xff\\0Acsel ${0:x}, ${3:x}, ${4:x}, NE\", \
                    \"=r,r,0,r,r,~{cc}\"(i8 %c, i64 %d, i64 %s, i64 %d) #1";
        assert_ne!(portable(line), line);
        for (from, to) in [
            ("0xff\\", "0xfe\\"),
            ("NE\"", "LT\""),
            ("i8 %c", "i16 %c"),
            ("i64 %s", "i64 ptrtoint (ptr @s to i64)"),
            ("${3:x}, ${4:x}", "${4:x}, ${3:x}"),
            ("=r,r,0,r,r", "=r,r,r,r,r"),
            ("call i64 asm", "call i64 asm sideeffect"),
            ("call i64 asm", "call i32 asm"),
            (", i64 %d)", ")"),
        ] {
            let other = line.replace(from, to);
            assert_ne!(other, line, "{from}");
            assert_eq!(portable(&other), other);
        }
    }
}
