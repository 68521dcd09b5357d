//! What the verifier has found, for the program's author: by crate and function, with one thing to do for each.

use super::finding::{Finding, Kind};
use crate::source::{Group, Origin, by_function, findings, remedy_of_others};
use std::collections::BTreeMap;
use std::fmt;

/// Everything because of which a program's threads cannot migrate. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError(pub Vec<Finding>);

/// Most functions that are shown.
const FUNCTIONS: usize = 8;
/// Most kinds of findings that are shown of a function.
const KINDS: usize = 3;

/// The findings of one function, by what is wrong.
struct Kinds<'a> {
    group: &'a Group<'a, Finding>,
    kinds: BTreeMap<Kind, Vec<&'a Finding>>,
}

impl<'a> Kinds<'a> {
    fn of(group: &'a Group<'a, Finding>) -> Kinds<'a> {
        let mut kinds: BTreeMap<Kind, Vec<&'a Finding>> = BTreeMap::new();
        for finding in &group.found {
            kinds.entry(finding.kind).or_default().push(finding);
        }
        Kinds { group, kinds }
    }
}

impl fmt::Display for Kinds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group {
            origin,
            function,
            found,
        } = self.group;
        write!(
            f,
            "{} in {origin}, function {function}",
            findings(found.len())
        )?;
        for (kind, found) in self.kinds.iter().take(KINDS) {
            if let Some(first) = found.first() {
                write!(f, "\n    {}: {kind:?}", first.isa)?;
                first.place(f)?;
                if found.len() > 1 {
                    write!(f, ", and {} more", found.len() - 1)?;
                }
                write!(f, "\n      {}", kind.meaning())?;
            }
        }
        if self.kinds.len() > KINDS {
            let others = self.kinds.values().skip(KINDS).map(Vec::len).sum();
            write!(f, "\n    {} of other kinds", findings(others))?;
        }
        match (origin, self.kinds.keys().next()) {
            (Origin::Own { .. }, Some(kind)) => write!(f, "\n    do: {}", kind.remedy()),
            _ => {
                let places = found.iter().filter_map(|f| f.source.as_ref());
                write!(f, "\n    do: {}", remedy_of_others(places))
            }
        }
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = by_function(&self.0, |f| (&f.function, f.source.as_ref()));
        let all = findings(self.0.len());
        write!(f, "threads of the program cannot migrate: {all}")?;
        for group in groups.iter().take(FUNCTIONS) {
            write!(f, "\n  {}", Kinds::of(group))?;
        }
        if let Some(rest) = groups.get(FUNCTIONS..).filter(|rest| !rest.is_empty()) {
            let count = findings(rest.iter().map(|g| g.found.len()).sum());
            write!(f, "\n  and {count} in {} more functions", rest.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for VerifyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Place, Source};
    use dyad_abi::Isa;

    fn finding(function: &str, kind: Kind, file: &str, used_at: Option<&str>) -> Finding {
        let source = |file: &str| Source {
            file: file.to_owned(),
            line: 7,
        };
        Finding {
            isa: Isa::Aarch64,
            kind,
            function: function.to_owned(),
            va: 0x1000,
            instruction: "mov x0, x19".to_owned(),
            source: Some(Place {
                at: source(file),
                used_at: used_at.map(source),
            }),
            detail: String::new(),
        }
    }

    #[test]
    fn findings_are_told_by_crate_and_function() {
        let far = "/home/u/.cargo/registry/src/index-1a/memchr-2.7.4/src/memrchr.rs";
        let foreign = |kind| finding("memchr::memrchr", kind, far, Some("src/main.rs"));
        let all = VerifyError(vec![
            foreign(Kind::RegisterAcrossSite),
            finding("app::own", Kind::DynamicStack, "src/main.rs", None),
            foreign(Kind::RegisterAcrossSite),
            foreign(Kind::UndefinedSlot),
        ]);
        let text = all.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "threads of the program cannot migrate: 4 findings"
        );
        assert_eq!(
            lines[1],
            "  3 findings in crate memchr 2.7.4, function memchr::memrchr"
        );
        assert!(lines[2].starts_with("    aarch64: RegisterAcrossSite at 0x1000"));
        assert!(lines[2].ends_with(", and 1 more"));
        assert!(lines[6].starts_with(
            "    do: call it only where it reaches no migration point (from src/main.rs:7)"
        ));
        assert_eq!(lines[7], "  1 finding in crate app, function app::own");
        assert_eq!(
            lines.last(),
            Some(&format!("    do: {}", Kind::DynamicStack.remedy()).as_str())
        );
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let names: Vec<String> = (0..10).map(|n| format!("app::f{n}")).collect();
        let found = names
            .iter()
            .map(|n| finding(n, Kind::DynamicStack, "src/main.rs", None));
        let text = VerifyError(found.collect()).to_string();
        assert!(text.ends_with("\n  and 2 findings in 2 more functions"));
    }
}
