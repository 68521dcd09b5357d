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
    /// The environment: `NAME=VALUE` texts.
    pub env: Vec<String>,
    /// Wall-clock time at the start, in nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
    /// Seed of random numbers.
    pub random: u64,
    /// Standard input; `None`: that of the host process, which is read when the program asks for it.
    pub input: Option<Vec<u8>>,
    /// Copy the program's output to the host's standard output.
    pub echo: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            nodes: Isa::ALL.to_vec(),
            args: String::new(),
            env: Vec::new(),
            wall_ns: 0,
            random: 0,
            input: Some(Vec::new()),
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
