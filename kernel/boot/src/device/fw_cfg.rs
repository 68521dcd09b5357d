//! Reading items of QEMU's firmware configuration device.
//!
//! The device is a selector and a byte stream: writing a key to the selector rewinds the stream
//! to the start of that item, and every read takes one byte. Key 0 is a signature, key 0x19 the
//! directory of named files: a count, then one 64-byte entry per file, all big-endian.

use core::fmt;

const KEY_SIGNATURE: u16 = 0x0000;
const KEY_DIRECTORY: u16 = 0x0019;
/// Length of the name field of a directory entry, terminating NUL included.
const NAME_FIELD: usize = 56;
/// The most files of a directory. A larger number means a damaged or absent device.
const MAX_FILES: u32 = 4096;

/// The two registers of the device.
pub trait FwCfgPort {
    /// Selects an item and rewinds it.
    fn select(&mut self, key: u16);
    /// Takes the next byte of the selected item.
    fn read(&mut self) -> u8;
}

/// The reasons why a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FwCfgError {
    /// No firmware configuration device answers.
    NoDevice,
    /// There is no file of that name.
    NoSuchFile,
    /// The file is longer than the buffer.
    TooLong {
        /// Length of the file.
        len: usize,
        /// Length of the buffer.
        room: usize,
    },
}

impl fmt::Display for FwCfgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FwCfgError::NoDevice => f.write_str("the machine has no firmware configuration device"),
            FwCfgError::NoSuchFile => f.write_str(
                "the firmware configuration has no such file: start the machine with the launcher",
            ),
            FwCfgError::TooLong { len, room } => write!(
                f,
                "the firmware configuration file has {len} bytes, at most {room} are possible"
            ),
        }
    }
}

impl core::error::Error for FwCfgError {}

fn big_endian<const N: usize>(port: &mut impl FwCfgPort) -> u32 {
    (0..N).fold(0, |v, _| v << 8 | u32::from(port.read()))
}

/// Reads the file `name` into `buf`; returns its length.
///
/// # Errors
///
/// See [`FwCfgError`]; the contents of `buf` are then unspecified.
pub fn read_file(
    port: &mut impl FwCfgPort,
    name: &str,
    buf: &mut [u8],
) -> Result<usize, FwCfgError> {
    port.select(KEY_SIGNATURE);
    let mut signature = [0; 4];
    signature.fill_with(|| port.read());
    if &signature != b"QEMU" {
        return Err(FwCfgError::NoDevice);
    }
    port.select(KEY_DIRECTORY);
    let count = big_endian::<4>(port);
    if count > MAX_FILES {
        return Err(FwCfgError::NoDevice);
    }
    for _ in 0..count {
        let len = big_endian::<4>(port) as usize;
        let key = big_endian::<2>(port) as u16;
        big_endian::<2>(port);
        let mut field = [0; NAME_FIELD];
        field.fill_with(|| port.read());
        let end = field.iter().position(|&b| b == 0).unwrap_or(NAME_FIELD);
        if &field[..end] != name.as_bytes() {
            continue;
        }
        let room = buf.len();
        let Some(target) = buf.get_mut(..len) else {
            return Err(FwCfgError::TooLong { len, room });
        };
        port.select(key);
        target.fill_with(|| port.read());
        return Ok(len);
    }
    Err(FwCfgError::NoSuchFile)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// A model of the device.
    struct Model {
        items: Vec<(u16, Vec<u8>)>,
        selected: Vec<u8>,
        at: usize,
    }

    impl Model {
        fn new(files: &[(&str, &[u8])]) -> Model {
            let mut directory = (files.len() as u32).to_be_bytes().to_vec();
            let mut items = Vec::new();
            for (i, (name, bytes)) in files.iter().enumerate() {
                let key = 0x20 + i as u16;
                directory.extend((bytes.len() as u32).to_be_bytes());
                directory.extend(key.to_be_bytes());
                directory.extend([0, 0]);
                let mut field = name.as_bytes().to_vec();
                field.resize(NAME_FIELD, 0);
                directory.extend(field);
                items.push((key, bytes.to_vec()));
            }
            items.push((KEY_SIGNATURE, b"QEMU".to_vec()));
            items.push((KEY_DIRECTORY, directory));
            Model {
                items,
                selected: Vec::new(),
                at: 0,
            }
        }
    }

    impl FwCfgPort for Model {
        fn select(&mut self, key: u16) {
            self.at = 0;
            self.selected = self
                .items
                .iter()
                .find(|i| i.0 == key)
                .map(|i| i.1.clone())
                .unwrap_or_default();
        }
        fn read(&mut self) -> u8 {
            self.at += 1;
            self.selected.get(self.at - 1).copied().unwrap_or(0)
        }
    }

    #[test]
    fn finds_files_by_their_whole_name() {
        let mut m = Model::new(&[("opt/a/boots", b"no"), ("opt/a/boot", b"yes"), ("e", b"")]);
        let mut buf = [0; 8];
        assert_eq!(read_file(&mut m, "opt/a/boot", &mut buf), Ok(3));
        assert_eq!(&buf[..3], b"yes");
        assert_eq!(read_file(&mut m, "e", &mut buf), Ok(0));
        assert_eq!(
            read_file(&mut m, "opt/a", &mut buf),
            Err(FwCfgError::NoSuchFile)
        );
    }

    #[test]
    fn refuses_what_does_not_fit_and_absent_devices() {
        let mut m = Model::new(&[("f", b"12345")]);
        assert_eq!(
            read_file(&mut m, "f", &mut [0; 4]),
            Err(FwCfgError::TooLong { len: 5, room: 4 })
        );
        assert_eq!(read_file(&mut m, "f", &mut [0; 5]), Ok(5));
        m.items.clear();
        assert_eq!(
            read_file(&mut m, "f", &mut [0; 4]),
            Err(FwCfgError::NoDevice)
        );
    }
}
