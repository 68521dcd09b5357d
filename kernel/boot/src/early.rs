//! What both machines do between their first instruction and [`primary`](crate::primary): read the boot parameters, and
//! keep what the boot phase has found out while the CPU changes stacks.
//!
//! | step | order |
//! |---|---|
//! | everything here | one CPU, before others are started; the locks are never contended |

use dyad_abi::boot::{FW_CFG_NAME, MAX_TEXT};
use dyad_machine::Platform;
use spin::{Mutex, MutexGuard};

use crate::device::fw_cfg::FwCfgError;
use crate::{BootMachine, refuse};

/// The text of the boot parameters, read from the firmware configuration. `read` reads a file of it. Ends the machine
/// if there is none, or if it has been read before: the text lives as long as the machine.
pub fn boot_text<P: Platform>(
    read: impl FnOnce(&str, &mut [u8]) -> Result<usize, FwCfgError>,
) -> &'static str {
    static BUFFER: Mutex<[u8; MAX_TEXT]> = Mutex::new([0; MAX_TEXT]);
    let Some(buffer) = BUFFER.try_lock() else {
        refuse::<P>(format_args!("the boot parameters have been taken already"));
    };
    // Locked for good.
    let buffer = MutexGuard::leak(buffer);
    match read(FW_CFG_NAME, buffer) {
        Ok(len) => match core::str::from_utf8(&buffer[..len]) {
            Ok(text) => text,
            Err(e) => refuse::<P>(format_args!("the boot parameters are not text: {e}")),
        },
        Err(e) => refuse::<P>(format_args!("no boot parameters ({FW_CFG_NAME}): {e}")),
    }
}

static KEPT: Mutex<Option<BootMachine>> = Mutex::new(None);

/// Stores the machine while the boot CPU changes to its kernel stack.
pub fn keep(machine: BootMachine) {
    *KEPT.lock() = Some(machine);
}

/// The machine that [`keep`] has stored. Ends the machine if there is none.
pub fn kept<P: Platform>() -> BootMachine {
    let machine = KEPT.lock().take();
    machine.unwrap_or_else(|| refuse::<P>(format_args!("the boot phase left nothing behind")))
}
