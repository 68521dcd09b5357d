//! Patterns of names: `*` stands for any characters.

/// Whether a name matches a pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            ends.into_iter().any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, does) in [
            ("ST-F9", "ST-F9", true),
            ("ST-F9", "ST-F90", false),
            ("FL-*", "FL-T2", true),
            ("*", "", true),
            ("*-F*", "CH-F3", true),
            ("*-F*", "CH-T2", false),
            ("is, *: ring", "is, shared: ring", true),
            ("is, *: ring", "is, shared: ring by 2", false),
        ] {
            assert_eq!(matches(pattern, name), does, "{pattern} {name}");
        }
    }
}
