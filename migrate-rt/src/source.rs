//! Places in the source, for messages: of instructions, by line tables, and of statics, which line tables
//! do not have.

mod groups;
mod lines;
mod symbols;

pub(crate) use groups::{Group, by_function, findings, remedy_of_others};
pub(crate) use lines::Lines;
pub(crate) use symbols::Symbols;

use std::fmt;

/// A place in the program's source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The file, as the compiler was told.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl Source {
    /// Whether it is in the program's own source. What cargo has fetched, the standard library and the
    /// runtime of programs are not: somebody who wants to change the program looks elsewhere.
    pub fn is_own(&self) -> bool {
        const FETCHED: [&str; 4] = [
            "/rustc/",
            "/rustlib/src/rust/library/",
            "/registry/src/",
            "/git/checkouts/",
        ];
        const RUNTIME: [&str; 8] = [
            "userland/dyad/",
            "userland/msg/src/",
            "userland/rt/",
            "userland/sys/",
            "kernel/abi/src/",
            "kernel/ring/",
            "migrate-rt/emulate/src/",
            "migrate-rt/transform/src/",
        ];
        let is_below = |dir: &&str| {
            let mut found = self.file.match_indices(*dir);
            found.any(|(at, _)| at == 0 || self.file[..at].ends_with('/'))
        };
        !FETCHED.iter().any(|dir| self.file.contains(dir)) && !RUNTIME.iter().any(is_below)
    }
}

/// Where a function comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The program, or a package beside it.
    Own {
        /// The crate.
        name: String,
    },
    /// A package that cargo has fetched.
    Fetched {
        /// The package.
        name: String,
        /// Its version.
        version: String,
    },
    /// The standard library.
    Standard,
    /// The runtime of programs.
    Runtime,
}

impl Origin {
    /// Of a function by its demangled name, with what is known of lines in it. Lines can be of other crates, because
    /// functions of these are inlined.
    pub fn of<'a>(function: &str, lines: impl IntoIterator<Item = &'a Source>) -> Origin {
        let path = function.trim_start_matches(['<', '&', '*']);
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &path[..end.unwrap_or(path.len())];
        if matches!(name, "core" | "alloc" | "std") {
            return Origin::Standard;
        }
        let mut is_own = true;
        for line in lines {
            let package = line.package();
            if let Some((package, version)) = package.filter(|(n, _)| n.replace('-', "_") == name) {
                return Origin::Fetched {
                    name: package.to_owned(),
                    version: version.to_owned(),
                };
            }
            is_own &= line.is_own() || package.is_some();
        }
        let is_runtime = name == "dyad" || name.starts_with("dyad_");
        match is_runtime && !is_own {
            true => Origin::Runtime,
            false => Origin::Own {
                name: name.to_owned(),
            },
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own { name } => write!(f, "crate {name}"),
            Origin::Fetched { name, version } => write!(f, "crate {name} {version}"),
            Origin::Standard => f.write_str("the standard library"),
            Origin::Runtime => f.write_str("the runtime of programs"),
        }
    }
}

impl Source {
    /// Name and version of the package from the registry that the file is of.
    fn package(&self) -> Option<(&str, &str)> {
        let (_, path) = self.file.split_once("/registry/src/")?;
        let package = path.split('/').nth(1)?;
        // The version is behind the first dash before a digit.
        let is_number = |at: usize| package[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        let (at, _) = package.match_indices('-').find(|(at, _)| is_number(*at))?;
        Some((&package[..at], &package[at + 1..]))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Where something is: the line that it comes from, and the line of the program that has brought it there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub at: Source,
    /// If that is not in the program's own source: the innermost line there that it was inlined into, or
    /// that calls its function.
    pub used_at: Option<Source>,
}

impl Place {
    /// Of a chain of inlined calls, the innermost first.
    pub(crate) fn of_chain(chain: impl IntoIterator<Item = Source>) -> Option<Place> {
        let mut chain = chain.into_iter();
        let at = chain.next()?;
        let used_at = match at.is_own() {
            true => None,
            false => chain.find(Source::is_own),
        };
        Some(Place { at, used_at })
    }

    /// The line of the program's own source, if one is known.
    pub fn own(&self) -> Option<&Source> {
        match self.at.is_own() {
            true => Some(&self.at),
            false => self.used_at.as_ref(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        match &self.used_at {
            Some(own) => write!(f, ", used at {own}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod origins {
    use super::*;

    #[test]
    fn functions_are_of_the_crate_that_their_path_begins_with() {
        let line = |file: &str| Source {
            file: file.to_owned(),
            line: 1,
        };
        let own = line("src/main.rs");
        let far = line("/h/.cargo/registry/src/index-1a/regex-automata-0.4.9/src/dfa.rs");
        let rust = line("/rustc/5980/library/core/src/num/uint_macros.rs");
        let said = |function: &str, lines: &[&Source]| {
            Origin::of(function, lines.iter().copied()).to_string()
        };
        assert_eq!(
            said("<regex_automata::dfa::Dfa>::next", &[&rust, &far]),
            "crate regex-automata 0.4.9"
        );
        assert_eq!(said("app::f", &[&far, &rust, &own]), "crate app");
        assert_eq!(
            said("<alloc::vec::Vec<app::T>>::push", &[&own]),
            "the standard library"
        );
        assert_eq!(said("app::f", &[]), "crate app");
        assert_eq!(
            said("dyad_rt::spine::run", &[&line("userland/rt/src/spine.rs")]),
            "the runtime of programs"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(file: &str) -> Source {
        Source {
            file: file.to_owned(),
            line: 7,
        }
    }

    #[test]
    fn libraries_are_not_the_program() {
        for file in [
            "/rustc/59807616e1fa/library/core/src/num/mod.rs",
            "/usr/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs",
            "/home/me/.cargo/registry/src/index-1949cf8c6b5b557f/libm-0.2.16/src/lib.rs",
            "/home/me/dyad/userland/dyad/src/heap.rs",
            "userland/sys/src/raw.rs",
        ] {
            assert!(!source(file).is_own(), "{file}");
        }
        for file in [
            "/home/me/dyad/userland/apps/npb/src/drive.rs",
            "/home/me/userland-dyad/src/main.rs",
            "/home/me/myuserland/dyad/src/main.rs",
            "src/main.rs",
        ] {
            assert!(source(file).is_own(), "{file}");
        }
    }

    #[test]
    fn the_innermost_own_line_is_named() {
        let chain = |files: &[&str]| {
            let place = Place::of_chain(files.iter().map(|f| source(f)));
            place.map(|p| p.to_string())
        };
        let core = "/rustc/1/library/core/src/hint.rs";
        assert_eq!(chain(&[]), None);
        assert_eq!(chain(&["a.rs", "b.rs"]).as_deref(), Some("a.rs:7"));
        assert_eq!(
            chain(&[core, core, "a.rs", "b.rs"]),
            Some(format!("{core}:7, used at a.rs:7"))
        );
        assert_eq!(chain(&[core, core]), Some(format!("{core}:7")));
    }
}
