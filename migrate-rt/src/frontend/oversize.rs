//! Programs whose statics cannot fit into the window for data, found before anybody reads them.
//!
//! Every byte of a static that is not zero is at least one character of IR, so a program that is too
//! large has gigabytes of it, which the later steps would work on for many minutes, in as much memory,
//! only to find in the end that there is no place for it. What a global is made of stands before its
//! contents: the first characters of each line are enough.

use dyad_abi::user::SHARED_BASE;
use std::io::{BufRead, Read as _};

use crate::align::SHARED_LIMIT;
use crate::llvm::{Global, Line, leading_type};

/// Characters at the start of a line in which a global's name and type are.
const HEAD: u64 = 4096;

/// What is too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// Bytes of all statics together, as far as they are arrays of bytes.
    pub bytes: u64,
    /// Bytes that there is room for.
    pub limit: u64,
    /// The symbol of the largest one, and its bytes.
    pub largest: (String, u64),
}

/// Whether IR of this length can be that of a program that is too large.
pub(super) const fn is_suspect(length: u64) -> bool {
    length > SHARED_LIMIT - SHARED_BASE
}

/// Adds up the statics of a program in textual IR, and tells if they are more than there is room for.
///
/// # Errors
///
/// Those of reading.
pub(super) fn look(ir: impl BufRead) -> std::io::Result<Option<Oversize>> {
    beyond(ir, SHARED_LIMIT - SHARED_BASE)
}

fn beyond(mut ir: impl BufRead, limit: u64) -> std::io::Result<Option<Oversize>> {
    let mut found = Oversize {
        bytes: 0,
        limit,
        largest: (String::new(), 0),
    };
    let mut head = Vec::new();
    loop {
        head.clear();
        if ir.by_ref().take(HEAD).read_until(b'\n', &mut head)? == 0 {
            break;
        }
        if head.last() != Some(&b'\n') {
            ir.skip_until(b'\n')?;
        }
        let line = String::from_utf8_lossy(&head);
        // Globals stand before functions.
        let found_in = match Line::of(&line) {
            Line::Define(_) => break,
            Line::Global(read) => global(&read),
            _ => None,
        };
        if let Some((symbol, bytes)) = found_in {
            found.bytes = found.bytes.saturating_add(bytes);
            if bytes > found.largest.1 {
                found.largest = (symbol.to_owned(), bytes);
            }
        }
    }
    Ok((found.bytes > limit).then_some(found))
}

/// The symbol of a global, and the bytes in it that its type says: the compiler makes contents arrays of bytes
/// with pointers in between.
fn global<'a>(global: &Global<'a>) -> Option<(&'a str, u64)> {
    let ty = leading_type(global.content()?)?;
    // `[N x i8]`
    let array = |i: usize| {
        let is_array = ty.is_mark(i, b'[') && ty.is_word(i + 2, "x") && ty.is_word(i + 3, "i8");
        ty.text(i + 1).parse::<u64>().ok().filter(|_| is_array)
    };
    let bytes = (0..ty.tokens.len()).filter_map(array);
    Some((global.name, bytes.fold(0, u64::saturating_add)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "\
; ModuleID = 'p'
@_RNv1p3BIG = internal constant <{ [3000 x i8], ptr, [96 x i8] }> <{ [3000 x i8] c\"[9999 x i8]\", ptr @x, ...
@alloc_1 = private unnamed_addr constant [40 x i8] c\"a constant [7 x i8]\", align 1
@\"a b\" = internal global [4000 x i8] zeroinitializer
@n = internal global i64 5
@x = external global ptr
define void @f() {
@not = internal global [70000 x i8] zeroinitializer
";

    #[test]
    fn statics_are_added_up_by_their_types() {
        assert_eq!(beyond(IR.as_bytes(), 7136).unwrap(), None);
        let found = beyond(IR.as_bytes(), 7135).unwrap().unwrap();
        assert_eq!((found.bytes, found.limit), (7136, 7135));
        assert_eq!(found.largest, ("a b".to_owned(), 4000));
    }

    #[test]
    fn contents_are_not_kept() {
        let long = "x".repeat(3 * HEAD as usize);
        let ir = format!("@a = global [5 x i8] c\"{long}\"\n@b = global [6 x i8] c\"{long}\"\n");
        let found = beyond(ir.as_bytes(), 10).unwrap().unwrap();
        assert_eq!((found.bytes, found.largest.0), (11, "b".to_owned()));
    }

    #[test]
    fn most_programs_are_not_looked_at() {
        assert!(!is_suspect(50 << 20));
        assert!(is_suspect(800 << 20));
    }
}
