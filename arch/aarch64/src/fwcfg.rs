//! Firmware configuration: where its registers are on this machine.

use dyad_boot::device::fw_cfg::{self, FwCfgError, FwCfgPort};

use crate::mmu::FW_CFG;

const DATA: u64 = 0;
const SELECTOR: u64 = 8;

struct Port;

impl FwCfgPort for Port {
    fn select(&mut self, key: u16) {
        // Big-endian when memory-mapped.
        FW_CFG.write16(SELECTOR, key.to_be());
    }

    fn read(&mut self) -> u8 {
        FW_CFG.read8(DATA)
    }
}

/// Reads the file `name` into `buf`; returns its length.
pub fn read_file(name: &str, buf: &mut [u8]) -> Result<usize, FwCfgError> {
    fw_cfg::read_file(&mut Port, name, buf)
}
