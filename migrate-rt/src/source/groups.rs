//! Findings by function, for the program's author.

use super::{Origin, Place, Source};
use std::collections::BTreeSet;

/// What was found in one function.
pub(crate) struct Group<'a, T> {
    pub(crate) origin: Origin,
    pub(crate) function: &'a str,
    pub(crate) found: Vec<&'a T>,
}

/// Findings by function, in the order in which the first of each was found. `of` gives the function and the place of
/// one.
pub(crate) fn by_function<'a, T>(
    all: &'a [T],
    of: impl Fn(&'a T) -> (&'a str, Option<&'a Place>),
) -> Vec<Group<'a, T>> {
    let mut functions: Vec<(&'a str, Vec<&'a T>)> = Vec::new();
    for one in all {
        let (function, _) = of(one);
        match functions.iter_mut().find(|(f, _)| *f == function) {
            Some((_, found)) => found.push(one),
            None => functions.push((function, vec![one])),
        }
    }
    let groups = functions.into_iter().map(|(function, found)| {
        let lines = found.iter().filter_map(|one| Some(&of(one).1?.at));
        Group {
            origin: Origin::of(function, lines),
            function,
            found,
        }
    });
    groups.collect()
}

/// A number of findings.
pub(crate) fn findings(count: usize) -> String {
    match count {
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    }
}

/// Most lines of the program that are named.
const USERS: usize = 3;

/// What the author can do about a function of another crate that is used at these places.
pub(crate) fn remedy_of_others<'a>(places: impl IntoIterator<Item = &'a Place>) -> String {
    let lines = places.into_iter().filter_map(|p| p.used_at.as_ref());
    let users: BTreeSet<&Source> = lines.collect();
    let from: Vec<String> = users.iter().take(USERS).map(|s| s.to_string()).collect();
    let from = match from.is_empty() {
        true => String::new(),
        false => format!(" (from {})", from.join(", ")),
    };
    format!(
        "call it only where it reaches no migration point{from}: none in the closures and trait \
         implementations that it gets; or report it with the crate and its version"
    )
}
