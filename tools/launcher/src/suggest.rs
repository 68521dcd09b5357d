//! "Did you mean": the valid word nearest to one that is not.

/// The candidate nearest to `word`, if any is near enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&word, &c.to_lowercase()), c))
        .filter(|&(d, c)| d <= 1 + c.len().max(word.len()) / 3)
        .min_by_key(|&(d, _)| d)
        .map(|(_, c)| c)
}

/// A sentence about a word that is not one of the possible ones.
pub fn not_one_of(what: &str, word: &str, possible: &[&str]) -> String {
    let list = possible.join(", ");
    match nearest(word, possible.iter().copied()) {
        Some(n) => format!("unknown {what} {word:?}: did you mean {n:?}? (possible: {list})"),
        None => format!("unknown {what} {word:?} (possible: {list})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_nearest_or_nothing() {
        let keys = ["nodes", "cpus", "mem-local", "mem-cxl", "on-death"];
        assert_eq!(nearest("node", keys), Some("nodes"));
        assert_eq!(nearest("mem_cxl", keys), Some("mem-cxl"));
        assert_eq!(nearest("ondeath", keys), Some("on-death"));
        assert_eq!(nearest("colour-of-the-sky", keys), None);
        assert_eq!(
            not_one_of("key", "nods", &keys),
            "unknown key \"nods\": did you mean \"nodes\"? \
             (possible: nodes, cpus, mem-local, mem-cxl, on-death)"
        );
    }
}
