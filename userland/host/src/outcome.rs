//! What a run of a program is given, and what has come of it.

use std::collections::HashMap;

use dyad_abi::{Isa, NodeId};

/// The system a program is run on.
#[derive(Clone, Debug)]
pub struct Config {
    /// ISA of each node.
    pub nodes: Vec<Isa>,
    /// Argument text.
    pub args: String,
    /// Copy the program's output to the host's standard output.
    pub echo: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            nodes: Isa::ALL.to_vec(),
            args: String::new(),
            echo: false,
        }
    }
}

/// A recorded check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// What it says about that.
    pub detail: String,
}

/// What a program has done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its exit code.
    pub code: u32,
    /// All it wrote.
    pub output: String,
    /// Its checks, in order.
    pub checks: Vec<Check>,
    /// Its counters, summed by name.
    pub counters: HashMap<String, u64>,
    /// Its migrations, in order.
    pub migrations: Vec<(NodeId, NodeId)>,
}
