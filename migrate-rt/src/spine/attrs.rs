//! Attribute groups without what is not true on the spine.

use crate::llvm::{Header, Item, Module, lex};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Attributes that spine functions and calls of them lose: optimisers remove what follows a call that
/// does not return, the site with it, and take it that a function which does not touch memory does not
/// touch the data stack either.
const LOST: [&str; 3] = ["noreturn", "memory", "speculatable"];
/// String attributes that are decided here.
const DECIDED: [&str; 4] = [
    "\"frame-pointer\"",
    "\"probe-stack\"",
    "\"no-jump-tables\"",
    "\"tail-call\"",
];
/// What spine functions have instead.
pub(super) const SPINE: &str = "\"frame-pointer\"=\"all\" \"no-jump-tables\"=\"true\"";

/// The groups of a module.
pub(super) struct Groups {
    by_number: BTreeMap<u32, String>,
    /// Groups without what spine functions lose, by the group that they are made of.
    cut: BTreeMap<u32, u32>,
    next: u32,
}

impl Groups {
    pub fn of(module: &Module) -> Groups {
        let groups = module.lines().filter_map(|line| {
            let (number, text) = line.strip_prefix("attributes #")?.split_once(" = { ")?;
            Some((number.parse().ok()?, text.strip_suffix(" }")?.to_owned()))
        });
        let by_number: BTreeMap<u32, String> = groups.collect();
        let next = by_number.keys().last().map_or(0, |n| n + 1);
        Groups {
            by_number,
            cut: BTreeMap::new(),
            next,
        }
    }

    /// The group with the attributes of group `n` that are true on the spine.
    pub fn on_spine(&mut self, n: &str) -> String {
        let Ok(n) = n.parse::<u32>() else {
            return n.to_owned();
        };
        if let Some(cut) = self.cut.get(&n) {
            return cut.to_string();
        }
        let number = self.next;
        self.next += 1;
        let text = self.by_number.get(&n).map_or("", String::as_str);
        let cut = without(text);
        self.by_number.insert(number, cut);
        self.cut.insert(n, number);
        number.to_string()
    }

    /// Adds the groups that have been made to the module.
    pub fn add_to(&self, module: &mut Module) {
        for number in self.cut.values() {
            let mut line = String::new();
            let _ = write!(
                line,
                "attributes #{number} = {{ {} }}",
                self.by_number[number]
            );
            module.items.push(Item::Line(line));
        }
    }
}

/// Attributes without those that are lost.
fn without(text: &str) -> String {
    let mut out = Vec::new();
    let mut depth = 0usize;
    let mut dropping = false;
    for word in text.split(' ') {
        let name = word.split(['(', '=']).next().unwrap_or(word);
        if depth == 0 {
            dropping = LOST.contains(&name) || DECIDED.contains(&name);
        }
        depth += word.matches('(').count();
        depth = depth.saturating_sub(word.matches(')').count());
        if !dropping {
            out.push(word);
        }
    }
    out.join(" ")
}

/// The header of a function with more attributes.
pub(super) fn insert_attributes(header: &str, what: &str) -> Option<String> {
    let l = lex(header).ok()?;
    let mut at = Header::read(&l)?.end();
    while l.is_word(at, "unnamed_addr") || l.is_word(at, "local_unnamed_addr") {
        at += 1;
    }
    let end = l.tokens.get(at - 1)?.at.end;
    Some(format!("{} {what}{}", &header[..end], &header[end..]))
}
