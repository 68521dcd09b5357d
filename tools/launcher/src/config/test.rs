//! What only tests ask for. There are no options for it: tests of systems set the fields, tests of the tool
//! its environment.

use std::path::PathBuf;

use dyad_abi::{Isa, NodeId};

use crate::error::Error;
use crate::size;

/// Things only tests ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestOptions {
    /// Start the machines with `-smp 1` alone, which breaks atomics between machines.
    pub no_maxcpus: bool,
    /// XORed into the layout hash of a node.
    pub layout_xor: Vec<(NodeId, u64)>,
    /// The call, as `file:line`, that does without its flush, in kernels that are built with their
    /// tests for it.
    pub seeded: String,
    /// Pretend that this much shared memory is available.
    pub shm_limit: Option<u64>,
    /// Programs that stand in for the emulators, by ISA.
    pub qemu: [Option<PathBuf>; 2],
    /// Images that stand in for the kernels, by ISA.
    pub kernel: [Option<PathBuf>; 2],
    /// A file that stands in for the plugin.
    pub plugin: Option<PathBuf>,
    /// Run the program in the place of `init`, with all its capabilities and without services.
    pub bare: bool,
    /// The plugin compares every translation that it remembers with the emulator's.
    pub check_translations: bool,
    /// A program that runs beside the program, with the same arguments; nothing is expected of it.
    pub beside: Option<String>,
    /// Plugins that are not ours, loaded beside it or in its place: each with its options, as QEMU
    /// takes them; `{node}` is the number of the node. What they print goes to a file, see
    /// [`crate::launch::NodeReport::plugins`].
    pub plugins: Vec<String>,
}

impl TestOptions {
    /// The plugins of a node that are not ours.
    pub fn plugins_of(&self, node: NodeId) -> Vec<String> {
        let number = node.to_string();
        let plugins = self.plugins.iter();
        plugins.map(|p| p.replace("{node}", &number)).collect()
    }

    /// What the environment asks for: the tool is run by its tests with machines, kernels and plugins that are
    /// not its own.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `DYAD_TEST_QEMU_ISA`, `DYAD_TEST_KERNEL_ISA` | stands in for the emulator, the kernel of that ISA |
    /// | `DYAD_TEST_PLUGIN` | stands in for the plugin |
    /// | `DYAD_TEST_SHM_LIMIT` | pretends that this much shared memory is available |
    /// | `DYAD_TEST_NO_MAXCPUS` | if set, starts the machines with `-smp 1` alone; the boot self-test must fail |
    /// | `DYAD_TEST_LAYOUT_XOR` | `NODE=HEX,...`: changes nodes' layout hashes; they must refuse to join |
    /// | `DYAD_TEST_SEEDED` | `FILE:LINE`: the call that does without its flush |
    ///
    /// # Errors
    ///
    /// If a value has no meaning.
    pub fn from_env() -> Result<TestOptions, Error> {
        let path = |name: String| std::env::var_os(name).map(PathBuf::from);
        let by_isa = |what: &str| {
            Isa::ALL.map(|isa| path(format!("DYAD_TEST_{what}_{}", isa.name().to_uppercase())))
        };
        let word = |name| std::env::var(name).unwrap_or_default();
        let limit = std::env::var("DYAD_TEST_SHM_LIMIT").ok();
        let limit = limit.map(|text| size::parse(&text)).transpose();
        let xor = word("DYAD_TEST_LAYOUT_XOR");
        let xor = xor.split(',').filter(|pair| !pair.is_empty());
        Ok(TestOptions {
            no_maxcpus: std::env::var_os("DYAD_TEST_NO_MAXCPUS").is_some(),
            layout_xor: xor.map(layout_xor).collect::<Result<_, _>>()?,
            seeded: word("DYAD_TEST_SEEDED"),
            shm_limit: limit.map_err(|e| Error::Usage(format!("DYAD_TEST_SHM_LIMIT: {e}")))?,
            qemu: by_isa("QEMU"),
            kernel: by_isa("KERNEL"),
            plugin: path("DYAD_TEST_PLUGIN".into()),
            ..TestOptions::default()
        })
    }
}

/// Reads `NODE=HEX`.
fn layout_xor(pair: &str) -> Result<(NodeId, u64), Error> {
    let read = |(node, hex): (&str, &str)| {
        let node = NodeId::new(node.parse().ok()?)?;
        let xor = u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok()?;
        Some((node, xor))
    };
    let bad = || Error::Usage(format!("DYAD_TEST_LAYOUT_XOR: {pair:?} is not NODE=HEX"));
    pair.split_once('=').and_then(read).ok_or_else(bad)
}
