//! Integers of more than 64 bits among the arguments of the spine: each is passed as words of 64 bits.
//!
//! The convention of the spine has no place that both back ends agree on for an integer of 128 bits that meets the last
//! register: the x86-64 back end ends with an error, the AArch64 back end puts one half on the stack. Words have
//! places everywhere. Where an integer is in registers, its words are in the same registers.
//!
//! ```text
//!   define @f(i128 %a) {               define @f(i64 %w0, i64 %w1) {
//!                                        %a = %w1 << 64 | %w0
//!   call @f(i128 %b)                     call @f(i64 %b, i64 %b >> 64)
//! ```

use super::error::SpineError;
use crate::llvm::{Kind, Lexed};
use std::ops::Range;

/// Bits of a word.
const WORD: u32 = 64;

/// What stands in place of a parameter or an argument: instructions and the list, in the order that each function says.
type Replaced = (Vec<String>, Vec<String>);

/// Names for the words of a function.
#[derive(Default)]
pub(super) struct Words {
    named: usize,
}

impl Words {
    fn name(&mut self) -> String {
        self.named += 1;
        format!("%spine.word.{}", self.named - 1)
    }

    /// The words in place of the parameter `name`: their parameters, and the instructions that make the parameter of them.
    /// `None`: the type has no more than a word.
    pub fn parameters(&mut self, ty: &str, name: &str) -> Option<Replaced> {
        let count = words(ty)?;
        let names: Vec<String> = (0..count).map(|_| self.name()).collect();
        let mut insts = Vec::new();
        let mut whole = String::new();
        for (n, word) in (0u32..).zip(&names) {
            let wide = self.name();
            insts.push(format!("{wide} = zext i64 {word} to {ty}"));
            if n == 0 {
                whole = wide;
                continue;
            }
            let (moved, sum) = (self.name(), self.name());
            insts.push(format!("{moved} = shl {ty} {wide}, {}", n * WORD));
            let sum = match n + 1 == count {
                true => format!("%{name}"),
                false => sum,
            };
            insts.push(format!("{sum} = or disjoint {ty} {whole}, {moved}"));
            whole = sum;
        }
        let parameters = names.iter().map(|w| format!("i64 {w}")).collect();
        Some((parameters, insts))
    }

    /// The words in place of an argument, which has `end` behind its type: the instructions that make them, and the
    /// arguments. `None`: the type has no more than a word.
    ///
    /// # Errors
    ///
    /// If the argument's value cannot be told from its attributes.
    pub fn arguments(
        &mut self,
        l: &Lexed<'_>,
        part: &Range<usize>,
        end: usize,
    ) -> Result<Option<Replaced>, SpineError> {
        let ty = l.span(part.start, end);
        let Some(count) = words(ty) else {
            return Ok(None);
        };
        let Some(at) = value(l, end..part.end) else {
            return Err(SpineError::unreadable("", l.line));
        };
        let nothing = ["poison", "undef"].iter().any(|w| l.is_word(at, w));
        if nothing {
            let zeros = (0..count).map(|_| "i64 0".to_owned());
            return Ok(Some((Vec::new(), zeros.collect())));
        }
        let value = l.span(at, part.end);
        let (mut insts, mut arguments) = (Vec::new(), Vec::new());
        for n in 0..count {
            let mut from = value.to_owned();
            if n > 0 {
                from = self.name();
                insts.push(format!("{from} = lshr {ty} {value}, {}", n * WORD));
            }
            let word = self.name();
            insts.push(format!("{word} = trunc {ty} {from} to i64"));
            arguments.push(format!("i64 {word}"));
        }
        Ok(Some((insts, arguments)))
    }
}

/// How many words an integer of more than one has.
fn words(ty: &str) -> Option<u32> {
    let bits: u32 = ty.strip_prefix('i')?.parse().ok()?;
    (bits > WORD && !lacks!("spine::words")).then(|| bits.div_ceil(WORD))
}

/// The token where the value of an argument starts, in what is behind its type: attributes stand before it.
fn value(l: &Lexed<'_>, behind: Range<usize>) -> Option<usize> {
    let last = behind.end.checked_sub(1).filter(|i| behind.contains(i))?;
    match l.kind(last)? {
        Kind::Word | Kind::Local => Some(last),
        // A constant expression: an operation and its operands.
        Kind::Mark(b')') => behind
            .filter(|i| l.is_mark(*i + 1, b'(') && l.past_bracket(*i + 1) == Some(last + 1))
            .find(|i| l.kind(*i) == Some(Kind::Word)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llvm::{lex, parts};

    fn arguments(list: &str) -> Option<Replaced> {
        let line = format!("f({list})");
        let l = lex(&line).unwrap();
        let part = parts(&l, 2..l.tokens.len() - 1).remove(0);
        let end = l.past_type(part.start).unwrap();
        Words::default().arguments(&l, &part, end).unwrap()
    }

    #[test]
    fn arguments_become_words() {
        for narrow in ["i64 noundef %x", "ptr %x", "<4 x i32> %x", "[2 x i128] %x"] {
            assert_eq!(arguments(narrow), None, "{narrow}");
        }
        for value in [
            "%x",
            "-170141183460469231731687303715884105728",
            "ptrtoint (ptr @x to i128)",
        ] {
            let (insts, words) =
                arguments(&format!("i128 noundef range(i128 0, 5) {value}")).unwrap();
            assert_eq!(
                insts,
                [
                    format!("%spine.word.0 = trunc i128 {value} to i64"),
                    format!("%spine.word.1 = lshr i128 {value}, 64"),
                    "%spine.word.2 = trunc i128 %spine.word.1 to i64".to_owned(),
                ]
            );
            assert_eq!(words, ["i64 %spine.word.0", "i64 %spine.word.2"]);
        }
        assert_eq!(arguments("i129 %x").unwrap().1.len(), 3);
        for nothing in ["i96 poison", "i128 undef"] {
            let zeros = vec!["i64 0".to_owned(); 2];
            assert_eq!(arguments(nothing), Some((Vec::new(), zeros)));
        }
    }

    #[test]
    fn parameters_are_made_of_words() {
        assert_eq!(Words::default().parameters("i64", "a"), None);
        assert_eq!(Words::default().parameters("double", "a"), None);
        let (words, insts) = Words::default().parameters("i80", "\"a b\"").unwrap();
        assert_eq!(words, ["i64 %spine.word.0", "i64 %spine.word.1"]);
        assert_eq!(
            insts,
            [
                "%spine.word.2 = zext i64 %spine.word.0 to i80",
                "%spine.word.3 = zext i64 %spine.word.1 to i80",
                "%spine.word.4 = shl i80 %spine.word.3, 64",
                "%\"a b\" = or disjoint i80 %spine.word.2, %spine.word.4",
            ]
        );
        let (words, insts) = Words::default().parameters("i256", "a").unwrap();
        assert_eq!((words.len(), insts.len()), (4, 10));
        assert!(insts[9].starts_with("%a = or disjoint i256 "));
    }
}
