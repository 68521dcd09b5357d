//! The program's arguments: words, and options of the form `--name value` or `--name=value`.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::{Error, Result};

/// The arguments of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    words: Vec<String>,
}

impl Args {
    /// Loads the arguments that this program was started with.
    ///
    /// # Errors
    ///
    /// If the kernel cannot deliver them or they are not text.
    pub fn load() -> Result<Args> {
        let mut text = vec![0; dyad_sys::args(&mut [])?];
        let len = dyad_sys::args(&mut text)?.min(text.len());
        let text = core::str::from_utf8(&text[..len])
            .map_err(|_| Error::usage("the arguments are not valid UTF-8"))?;
        Ok(Args::parse(text))
    }

    /// Splits a text at white space.
    pub fn parse(text: &str) -> Args {
        Args {
            words: text.split_whitespace().map(str::to_string).collect(),
        }
    }

    /// The words, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether the word `name` is among the arguments.
    pub fn flag(&self, name: &str) -> bool {
        self.iter().any(|w| w == name)
    }

    /// The value of option `name` (with its dashes), if it is given.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut words = self.iter();
        while let Some(word) = words.next() {
            if word == name {
                return words.next();
            }
            if let Some(value) = word.strip_prefix(name).and_then(|w| w.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }

    /// The value of option `name`, which must be one of `allowed`; `default` if it is not given.
    ///
    /// # Errors
    ///
    /// A usage error that names the possible values.
    pub fn one_of<'a>(&'a self, name: &str, allowed: &[&str], default: &'a str) -> Result<&'a str> {
        match self.value(name) {
            None => Ok(default),
            Some(value) if allowed.contains(&value) => Ok(value),
            Some(value) => Err(Error::usage(format_args!(
                "{name} cannot be {value:?}; possible: {}",
                allowed.join(", ")
            ))),
        }
    }

    /// The value of option `name`, which must be a whole number in `range`; `default` if it is not
    /// given.
    ///
    /// # Errors
    ///
    /// A usage error that names the possible values.
    #[inline(never)]
    pub fn number(&self, name: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64> {
        let Some(text) = self.value(name) else {
            return Ok(default);
        };
        if let Some(n) = text.parse().ok().filter(|n| range.contains(n)) {
            return Ok(n);
        }
        let (least, most) = range.into_inner();
        let bound = match most {
            u64::MAX => "on".to_string(),
            most => alloc::format!("to {most}"),
        };
        Err(Error::usage(format_args!(
            "{name} cannot be {text:?}; possible: a whole number from {least} {bound}"
        )))
    }

    /// Checks that the words are options out of `known` with a value each, none given twice.
    ///
    /// # Errors
    ///
    /// A usage error that names the word and the possible options.
    pub fn expect_options(&self, known: &[&str]) -> Result<()> {
        let mut seen: Vec<&str> = Vec::new();
        let mut words = self.iter();
        let possible = || {
            if known.is_empty() {
                "this program takes none".to_string()
            } else {
                alloc::format!("possible: {}", known.join(", "))
            }
        };
        while let Some(word) = words.next() {
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if !known.contains(&name) {
                let what = if name.starts_with('-') {
                    "option"
                } else {
                    "argument"
                };
                return Err(Error::usage(format_args!(
                    "unknown {what} {name:?}; {}",
                    possible()
                )));
            }
            if seen.contains(&name) {
                return Err(Error::usage(format_args!(
                    "{name} is given twice; give it once"
                )));
            }
            seen.push(name);
            let value = joined.or_else(|| words.next()).unwrap_or_default();
            if value.is_empty() || (joined.is_none() && value.starts_with("--")) {
                return Err(Error::usage(format_args!(
                    "{name} needs a value; write {name} VALUE"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::Args;

    const KNOWN: [&str; 2] = ["--class", "--hop"];

    #[test]
    fn both_forms_of_options_are_read() {
        let args = Args::parse("  --class S  --hop=off ");
        assert!(args.expect_options(&KNOWN).is_ok());
        assert_eq!(args.value("--class"), Some("S"));
        assert_eq!(args.value("--hop"), Some("off"));
        assert_eq!(args.value("--ho"), None);
        assert_eq!(args.one_of("--class", &["S", "W"], "W").unwrap(), "S");
        assert_eq!(args.one_of("--home", &["x"], "y").unwrap(), "y");
    }

    #[test]
    fn numbers_are_in_their_range() {
        let number = |text: &str, range| Args::parse(text).number("--n", 7, range);
        assert_eq!(number("", 1..=3).unwrap(), 7, "whatever the default is");
        assert_eq!(number("--n 3", 1..=3).unwrap(), 3);
        assert_eq!(number("--n=0", 0..=u64::MAX).unwrap(), 0);
        for text in ["4", "0", "-1", "x", "1.5", "99999999999999999999999"] {
            let e = number(&alloc::format!("--n {text}"), 1..=3).unwrap_err();
            let message =
                alloc::format!("--n cannot be \"{text}\"; possible: a whole number from 1 to 3");
            assert_eq!((e.exit_code(), e.to_string()), (2, message));
        }
        let e = number("--n 0", 1..=u64::MAX).unwrap_err().to_string();
        assert!(e.ends_with("a whole number from 1 on"), "{e}");
    }

    #[test]
    fn wrong_command_lines_are_explained() {
        for (text, message) in [
            (
                "--clas S",
                "unknown option \"--clas\"; possible: --class, --hop",
            ),
            ("S", "unknown argument \"S\"; possible: --class, --hop"),
            ("--class", "--class needs a value; write --class VALUE"),
            ("--class=", "--class needs a value; write --class VALUE"),
            (
                "--class --hop on",
                "--class needs a value; write --class VALUE",
            ),
            ("--hop on --hop off", "--hop is given twice; give it once"),
        ] {
            let e = Args::parse(text).expect_options(&KNOWN).unwrap_err();
            assert_eq!((e.exit_code(), e.to_string().as_str()), (2, message));
        }
        let e = Args::parse("--class B")
            .one_of("--class", &["S", "W"], "S")
            .unwrap_err();
        assert_eq!(e.to_string(), "--class cannot be \"B\"; possible: S, W");
    }
}
