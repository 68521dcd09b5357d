//! Sizes and alignments of IR types, as in the data layout that both ISAs share.

use crate::llvm::{Kind, Lexed, lex};

/// Size and alignment in bytes.
pub(super) type Layout = (u64, u64);

/// Largest integers: optimisers make one of several neighbours, or of a whole structure.
const MAX_INTEGER_BITS: u64 = 4096;

/// The layout of a type; none if it has none that is known here.
pub(super) fn layout(ty: &str) -> Option<Layout> {
    let lexed = lex(ty).ok()?;
    let (layout, end) = at(&lexed, 0)?;
    (end == lexed.tokens.len()).then_some(layout)
}

/// The class of a type in calls: one letter for each scalar that is passed, by register file and width. Types
/// of one class are passed alike on both ISAs. Types that Rust promises to pass alike have one class: `i1`
/// and `i8` (`bool`, `MaybeUninit<bool>`), pointers and integers of 64 bits. A type that is not known here is
/// a class of its own.
pub(super) fn class(ty: &str) -> String {
    match letters(ty) {
        Some(letters) => letters.replace('L', "ll").replace('u', "v"),
        None => format!("<{ty}>"),
    }
}

/// The scalars of a type, as [`Signature`](crate::verify::Signature) has them; none if the type is not known
/// here.
pub(super) fn letters(ty: &str) -> Option<String> {
    let lexed = lex(ty).ok()?;
    let mut out = String::new();
    let end = scalars(&lexed, 0, &mut out)?;
    (end == lexed.tokens.len()).then_some(out)
}

/// Adds the letters of the type at token `i`. Gives the token behind it.
fn scalars(l: &Lexed<'_>, i: usize, out: &mut String) -> Option<usize> {
    // More scalars than registers and arguments can have.
    const MOST: usize = 1024;
    match l.kind(i)? {
        Kind::Mark(b'[') => {
            let count: usize = l.text(i + 1).parse().ok()?;
            let mut one = String::new();
            let end = scalars(l, i + 3, &mut one)?;
            if !l.is_word(i + 2, "x") || !l.is_mark(end, b']') || count * one.len() > MOST {
                return None;
            }
            out.push_str(&one.repeat(count));
            Some(end + 1)
        }
        Kind::Mark(b'<') if l.is_mark(i + 1, b'{') => {
            let end = scalars(l, i + 1, out)?;
            l.is_mark(end, b'>').then_some(end + 1)
        }
        Kind::Mark(b'<') => {
            let ((size, _), end) = at(l, i)?;
            let vectors = usize::try_from(size / 16).ok()?;
            match vectors {
                0 => out.push('u'),
                1..=MOST => out.push_str(&"v".repeat(vectors)),
                _ => return None,
            }
            Some(end)
        }
        Kind::Mark(b'{') => {
            let mut i = i + 1;
            while !l.is_mark(i, b'}') {
                i = scalars(l, i, out)?;
                if l.is_mark(i, b',') {
                    i += 1;
                } else if !l.is_mark(i, b'}') {
                    return None;
                }
            }
            Some(i + 1)
        }
        Kind::Word => {
            match l.text(i) {
                "void" => {}
                "half" | "bfloat" => out.push('e'),
                "float" => out.push('f'),
                "double" => out.push('d'),
                "ptr" => out.push('l'),
                name => {
                    let (_, _) = word(name)?;
                    let bits: usize = name.strip_prefix('i')?.parse().ok()?;
                    match bits {
                        0..=8 => out.push('b'),
                        9..=16 => out.push('h'),
                        17..=32 => out.push('i'),
                        33..=64 => out.push('l'),
                        65..=128 => out.push('L'),
                        _ => return None,
                    }
                }
            }
            Some(i + 1)
        }
        _ => None,
    }
}

fn at(l: &Lexed<'_>, i: usize) -> Option<(Layout, usize)> {
    match l.kind(i)? {
        Kind::Mark(b'[') => {
            let count: u64 = l.text(i + 1).parse().ok()?;
            let ((size, align), end) = at(l, i + 3)?;
            let good = l.is_word(i + 2, "x") && l.is_mark(end, b']');
            good.then_some(((size.checked_mul(count)?, align), end + 1))
        }
        // A packed structure: alignment 1, no gaps.
        Kind::Mark(b'<') if l.is_mark(i + 1, b'{') => {
            let (layout, end) = fields(l, i + 2, true)?;
            l.is_mark(end, b'>').then_some((layout, end + 1))
        }
        Kind::Mark(b'<') => {
            let count: u64 = l.text(i + 1).parse().ok()?;
            let ((size, _), end) = at(l, i + 3)?;
            if !l.is_word(i + 2, "x") || !l.is_mark(end, b'>') || l.is_word(i + 3, "i1") {
                return None;
            }
            let size = size.checked_mul(count)?.checked_next_power_of_two()?;
            Some(((size, size.min(16)), end + 1))
        }
        Kind::Mark(b'{') => fields(l, i + 1, false),
        Kind::Word => Some((word(l.text(i))?, i + 1)),
        _ => None,
    }
}

/// The fields of a structure up to its closing brace.
fn fields(l: &Lexed<'_>, mut i: usize, packed: bool) -> Option<(Layout, usize)> {
    let (mut size, mut align) = (0u64, 1u64);
    while !l.is_mark(i, b'}') {
        let ((s, a), end) = at(l, i)?;
        let a = if packed { 1 } else { a };
        size = size.checked_next_multiple_of(a)?.checked_add(s)?;
        align = align.max(a);
        i = end;
        if l.is_mark(i, b',') {
            i += 1;
        } else if !l.is_mark(i, b'}') {
            return None;
        }
    }
    Some(((size.checked_next_multiple_of(align)?, align), i + 1))
}

fn word(name: &str) -> Option<Layout> {
    Some(match name {
        "ptr" | "double" => (8, 8),
        "float" => (4, 4),
        "half" | "bfloat" => (2, 2),
        "fp128" => (16, 16),
        _ => {
            let bits: u64 = name.strip_prefix('i')?.parse().ok()?;
            if !(1..=MAX_INTEGER_BITS).contains(&bits) {
                return None;
            }
            // Larger ones are aligned as the largest that the layout names, of 128 bits.
            let align = bits.div_ceil(8).next_power_of_two().min(16);
            (bits.div_ceil(8).next_multiple_of(align), align)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{class, layout};

    #[test]
    fn types_that_are_passed_alike_have_one_class() {
        for (all, expected) in [
            (&["i1", "i8"][..], "b"),
            (&["ptr", "i64", "{ i64 }", "[1 x ptr]"], "l"),
            (
                &["i128", "[2 x i64]", "{ ptr, i64 }", "<{ i64, i64 }>"],
                "ll",
            ),
            (&["<2 x float>"], "v"),
            (&["{ i64, i1 }", "{ ptr, i8 }"], "lb"),
            (&["void", "{}", "[0 x i8]"], ""),
            (&["<4 x float>", "<2 x i64>"], "v"),
            (&["float"], "f"),
            (&["double"], "d"),
            (&["i32", "i24"], "i"),
            (&["i16"], "h"),
        ] {
            for ty in all {
                assert_eq!(class(ty), expected, "{ty}");
            }
        }
        for ty in ["%T", "<8 x i1>", "x86_fp80", "[2000 x i8]", "i256"] {
            assert_eq!(class(ty), format!("<{ty}>"));
        }
    }

    #[test]
    fn layouts_are_those_of_the_data_layout() {
        for (ty, expected) in [
            ("i1", (1, 1)),
            ("i24", (4, 4)),
            ("i128", (16, 16)),
            ("i136", (32, 16)),
            ("i256", (32, 16)),
            ("i384", (48, 16)),
            ("ptr", (8, 8)),
            ("[3 x i32]", (12, 4)),
            ("{ i8, i64, i16 }", (24, 8)),
            ("{ i128, i8 }", (32, 16)),
            ("<{ i8, i64 }>", (9, 1)),
            ("<4 x float>", (16, 16)),
            ("<2 x i32>", (8, 8)),
            ("<8 x double>", (64, 16)),
            ("[2 x { ptr, [2 x i8] }]", (32, 8)),
            ("[0 x i8]", (0, 1)),
        ] {
            assert_eq!(layout(ty), Some(expected), "{ty}");
        }
        for unknown in [
            "void",
            "%T",
            "x86_fp80",
            "<vscale x 2 x i64>",
            "i4097",
            "[2 x",
            "<8 x i1>",
        ] {
            assert_eq!(layout(unknown), None, "{unknown}");
        }
    }
}
