//! regex-automata: searches with all of the crate's engines, moving in a prefilter and between steps.
#![no_std]
#![no_main]

use gallery::*;
use regex_automata::dfa::{Automaton, dense, sparse};
use regex_automata::hybrid::dfa::DFA as Lazy;
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::backtrack::BoundedBacktracker;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::interpolate;
use regex_automata::{Anchored, HalfMatch, Input, MatchError};

const PATTERNS: [&str; 8] = [
    r"\bth\w+",
    r"(?<cap>cap)\s+(?<next>\w+)",
    r"(?i)ÜBER\s",
    r"[a-m]{3,}e\b",
    r"(a|of)\s+(a|of|the)\s",
    r"(?s).{60}$",
    r"\p{L}+y\s+\p{Lowercase}{4,}",
    r"(\w)\w*\s(\w{2})\w*",
];

/// The end of the leftmost match, by a walk over a DFA's states; the thread moves between them.
fn walk<A: Automaton>(dfa: &A, text: &str) -> Result<Option<usize>, MatchError> {
    let mut state = dfa.start_state_forward(&Input::new(text))?;
    let mut last = None;
    for (at, byte) in text.bytes().enumerate() {
        hop_each(100);
        state = dfa.next_state(state, byte);
        if dfa.is_match_state(state) {
            last = Some(at);
        } else if dfa.is_dead_state(state) || dfa.is_quit_state(state) {
            return Ok(last);
        }
    }
    let end = dfa
        .is_match_state(dfa.next_eoi_state(state))
        .then_some(text.len());
    Ok(end.or(last))
}

fn program() -> Result<()> {
    let mut seed = Seeded(16);
    let text = seed.prose(160);
    for pattern in PATTERNS {
        let re = Regex::new(pattern).map_err(failed)?;
        let found: Vec<(usize, usize)> = re
            .find_iter(&text)
            .map(|m| {
                hop_each(2);
                (m.start(), m.end())
            })
            .collect();
        say!(
            "{pattern}: {} matches, {:016x}",
            found.len(),
            digest(format!("{found:?}").as_bytes())
        );
        let pike = PikeVM::new(pattern).map_err(failed)?;
        let back = BoundedBacktracker::new(pattern).map_err(failed)?;
        let (mut cache, mut memory) = (pike.create_cache(), back.create_cache());
        let pikes: Vec<(usize, usize)> = pike
            .find_iter(&mut cache, &text)
            .map(|m| {
                hop_each(2);
                (m.start(), m.end())
            })
            .collect();
        let backs = back.try_find_iter(&mut memory, &text).map(|m| {
            hop_each(2);
            m.map(|m| (m.start(), m.end()))
        });
        let backs = backs.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        say!("  the engines agree: {} {}", pikes == found, backs == found);
        let mut captures = re.create_captures();
        re.captures(&text, &mut captures);
        say!("  {captures:?}");
    }

    for pattern in [
        "[0-9]+|the",
        "(node|frame) (node|frame)",
        "thread( of)?",
        "x",
    ] {
        let dense = dense::DFA::new(pattern).map_err(failed)?;
        let sparse = sparse::DFA::new(pattern).map_err(failed)?;
        let lazy = Lazy::new(pattern).map_err(failed)?;
        let mut cache = lazy.create_cache();
        let of_lazy = lazy
            .try_search_fwd(&mut cache, &Input::new(&text))
            .map_err(failed)?;
        let walks = [
            walk(&dense, &text).map_err(failed)?,
            walk(&sparse, &text).map_err(failed)?,
        ];
        let (bytes, _) = dense.to_bytes_little_endian();
        say!(
            "{pattern}: {:?} {walks:?}, {:016x}",
            of_lazy.map(|h| h.offset()),
            digest(&bytes)
        );
    }
    let many = Regex::new_many(&["table", "retype", r"[[:upper:]]"]).map_err(failed)?;
    let order: Vec<usize> = many
        .find_iter(&text)
        .map(|m| {
            hop();
            m.pattern().as_usize()
        })
        .collect();
    say!("{order:?}");
    let re = Regex::new(r"(?<a>\w+) (?<b>\w+)").map_err(failed)?;
    let mut captures = re.create_captures();
    let mut swapped = String::new();
    for start in (0..text.len())
        .filter(|n| text.is_char_boundary(*n))
        .step_by(9)
    {
        hop();
        re.captures(Input::new(&text).range(start..), &mut captures);
        let group = |n, out: &mut String| {
            hop();
            out.push_str(captures.get_group(n).map_or("", |s| &text[s.range()]));
        };
        interpolate::string(
            "$b-${a};",
            group,
            |name| captures.group_info().to_index(captures.pattern()?, name),
            &mut swapped,
        );
    }
    say!("{swapped}");
    let anchored = Input::new("cap table").anchored(Anchored::Yes);
    say!(
        "{:?} {}",
        re.search_half(&anchored) == Some(HalfMatch::must(0, 9)),
        Regex::new("(a").is_err()
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
