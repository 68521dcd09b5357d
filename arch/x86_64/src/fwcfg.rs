//! QEMU's firmware configuration: selector at port 0x510, data at 0x511.

use dyad_boot::device::fw_cfg::{self, FwCfgError, FwCfgPort};

use crate::port;

struct Ports;

impl FwCfgPort for Ports {
    fn select(&mut self, key: u16) {
        port::out16(0x510, key);
    }

    fn read(&mut self) -> u8 {
        port::in8(0x511)
    }
}

/// Reads a file of the firmware configuration; returns its length.
pub fn read_file(name: &str, buf: &mut [u8]) -> Result<usize, FwCfgError> {
    fw_cfg::read_file(&mut Ports, name, buf)
}
