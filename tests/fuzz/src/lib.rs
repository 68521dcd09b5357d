//! Random Rust programs that are well defined, migrate everywhere, and print the same wherever they run.
//!
//! A [`Batch`] of programs is one crate: its text for the host, where points do nothing, and for a pair, where
//! each program is run unmoved on both ISAs and moving at every Nth point from both. All of a program follows from its seed.
//! It prints hashes of all that it has computed, at several places of its way.
//!
//! | module | what it writes |
//! |---|---|
//! | [`types`] | types of values and arguments: integers of all widths, floats, structures, enumerations, arrays, references, slices, closures |
//! | [`expr`] | expressions: arithmetic that cannot fail, conversions, comparisons, minima, literals |
//! | [`body`] | statements: points, branches, loops, calls in all ways, collections, text |
//! | `text` | what all programs share, in Rust |
//!
//! What Rust leaves open is not used: bits of NaNs count as one value, and no address is looked at. Integers of
//! 128 bits are among the arguments of every number ([`types::Sig::any`]), as results, and through tables.
#![forbid(unsafe_code)]

pub mod body;
pub mod expr;
mod items;
pub mod types;

pub use items::{Program, program};

use std::fmt::Write as _;
use std::path::Path;

use dyad_random::SplitMix64;

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Those of a seed.
    pub fn of(seed: u64) -> Random {
        Random(SplitMix64(dyad_random::mix(seed)))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }
}

/// How large programs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Functions of each.
    pub functions: usize,
    /// Statements of each function.
    pub statements: usize,
}

impl Default for Size {
    fn default() -> Size {
        Size {
            functions: 3,
            statements: 3,
        }
    }
}

/// Moves that a program makes at most each time that it is run.
pub const MOST_MOVES: u64 = 100;

/// Programs that are built as one.
#[derive(Clone, Debug)]
pub struct Batch {
    seeds: Vec<u64>,
    modules: String,
}

const ALLOWED: &str = "#![allow(warnings, clippy::all)]\n";

impl Batch {
    /// The programs of these seeds.
    pub fn new(seeds: &[u64], size: Size) -> Batch {
        let mut modules = String::new();
        for seed in seeds {
            let text = program(*seed, size).text;
            let _ = write!(modules, "mod p{seed} {{\nuse super::*;\n{text}}}\n");
        }
        Batch {
            seeds: seeds.to_vec(),
            modules,
        }
    }

    fn text(&self, head: &str, common: &str) -> String {
        let each = self
            .seeds
            .iter()
            .map(|s| format!("    ({s}, p{s}::run),\n"));
        let programs: String = each.collect();
        let n = self.seeds.len();
        format!(
            "{ALLOWED}{head}\nstatic PROGRAMS: [(u64, fn(&mut Trail)); {n}] = [\n{programs}];\n{common}\n{}",
            self.modules
        )
    }

    /// The crate for the host.
    pub fn host(&self) -> String {
        let text = self.text(include_str!("text/host.rs"), include_str!("text/common.rs"));
        text.replace("#[points_in_loops]\n", "")
    }

    /// The crate for a pair.
    pub fn pair(&self) -> String {
        let head = include_str!("text/pair.rs").replace("MOST", &MOST_MOVES.to_string());
        let text = self.text(&head, include_str!("text/common.rs"));
        text.replace("#[points_in_loops]", "#[dyad::points(loops)]")
    }

    /// The manifest for a pair.
    pub fn manifest(dyad: &Path) -> String {
        format!(
            "[package]\nname = \"fuzz\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[[bin]]\nname = \"fuzz\"\npath = \"src/main.rs\"\n\
             test = false\nbench = false\n\n[dependencies]\ndyad = {{ path = {:?} }}\n\n[workspace]\n",
            dyad.display().to_string()
        )
    }
}
