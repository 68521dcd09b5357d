//! Setting this computer up.

use dyad_abi::Isa;

use crate::config::RunConfig;
use crate::error::Error;

/// The emulator of an ISA.
pub const fn qemu_program(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "qemu-system-x86_64",
        Isa::Aarch64 => "qemu-system-aarch64",
    }
}

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Emulators.
    pub qemu: [bool; 2],
}

impl Requirements {
    /// What this run needs.
    pub fn to_run(config: &RunConfig) -> Requirements {
        Requirements {
            qemu: Isa::ALL
                .map(|i| config.nodes.contains(&i) && config.test.qemu[i.index()].is_none()),
        }
    }
}

/// Makes sure.
///
/// # Errors
///
/// If something is missing.
pub fn ensure(_: &Requirements, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
    Ok(())
}
