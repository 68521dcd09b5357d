//! fancy-regex: backreferences, lookaround and replacements, moving within a `Replacer` and closures.
#![no_std]
#![no_main]

use fancy_regex::{Captures, Regex, RegexBuilder, Replacer};
use gallery::*;

/// Puts words in brackets, and moves the thread for each.
struct Brackets(usize);

impl Replacer for Brackets {
    fn replace_append(&mut self, captures: &Captures<'_, str>, out: &mut String) {
        hop();
        self.0 += 1;
        out.push('[');
        out.push_str(captures.get(0).map_or("", |m| m.as_str()));
        out.push(']');
    }
}

const PATTERNS: [&str; 8] = [
    r"(\w+) \1",
    r"\b(?=\w*e\b)[a-t]+",
    r"(?<!of )the\b",
    r"(?<=node )\w+",
    r"(?>a|of)\s+\w+",
    r"(\w)\w*\1",
    r"(?<x>a|t)\w* (?!\k<x>)\w+",
    r"(?i)(?<=ÜBER )\p{L}{4,}",
];

fn program() -> Result<()> {
    let mut seed = Seeded(17);
    let text = seed.prose(120);
    for pattern in PATTERNS {
        let re = Regex::new(pattern).map_err(failed)?;
        let mut brackets = Brackets(0);
        let replaced = re.replace_all(&text, brackets.by_ref());
        say!(
            "{pattern}: {} in {:016x}",
            brackets.0,
            digest(replaced.as_bytes())
        );
        let found = re.find_iter(&text).take(6).map(|m| {
            hop();
            m.map(|m| (m.start(), m.as_str()))
        });
        say!(
            "  {:?}",
            found.collect::<Result<Vec<_>, _>>().map_err(failed)?
        );
    }
    let re = Regex::new(r"(?<one>\w+) (?<two>\w+) (?:of|the)").map_err(failed)?;
    say!("{}", re.replace_all(&text, "$two $one,"));
    let swapped = re.replace_all(&text, |c: &Captures<'_, str>| {
        hop();
        let group = |name| c.name(name).map_or("", |m| m.as_str());
        format!("<{}{}>", group("two"), group("one").len())
    });
    say!("{swapped}");
    for c in re.captures_iter(&text).take(5) {
        let c = c.map_err(failed)?;
        hop();
        say!(
            "{:?}",
            c.iter().flatten().map(|m| m.range()).collect::<Vec<_>>()
        );
    }
    let split: Result<Vec<&str>, _> = Regex::new(r"\s+(?=t)")
        .map_err(failed)?
        .split(&text)
        .take(20)
        .collect();
    say!("{:?}", split.map_err(failed)?);
    let quoted = Regex::new(r#"(["'])((?:(?!\1).)*)\1"#).map_err(failed)?;
    let line = r#"say "it's" or 'a "b" c' but not "d'"#;
    let inner: Vec<String> = quoted
        .captures_iter(line)
        .flatten()
        .map(|c| {
            hop();
            c.get(2).map_or("", |m| m.as_str()).to_owned()
        })
        .collect();
    say!("{inner:?}");
    let slow = RegexBuilder::new(r"(?=(a*)*b)c")
        .backtrack_limit(2000)
        .build()
        .map_err(failed)?;
    say!(
        "{:?}",
        slow.is_match(&*"a".repeat(60)).map_err(|e| e.to_string())
    );
    for wrong in ["(a", "[z-a]", r"\2", "(?<=a+", "*"] {
        say!(
            "{wrong}: {}",
            Regex::new(wrong)
                .err()
                .map_or_else(String::new, |e| e.to_string())
        );
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
