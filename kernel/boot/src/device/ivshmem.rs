//! Setting the ivshmem doorbell up: a PCI function whose only job here is to carry interrupts
//! between machines.
//!
//! Nothing is left to firmware. The function is found on bus 0 by its identity, its base address
//! registers are sized and placed in a window of the caller, memory access and bus mastering are
//! switched on (without bus mastering the device drops its interrupts), and every MSI-X table
//! entry is written: entries for which the caller has a message are open, the others masked.
//!
//! | BAR | content | use |
//! |---|---|---|
//! | 0 | registers, 256 bytes | [`Doorbell`] |
//! | 1 | MSI-X table | written here, once |
//! | 2 | the device's shared memory | placed, never touched |

use core::fmt;

use super::Mmio;

/// Device and vendor identifier of ivshmem.
const IDENTITY: u32 = 0x1110_1af4;
const REG_COMMAND: u64 = 0x04;
const REG_BAR0: u64 = 0x10;
const REG_CAPABILITIES: u64 = 0x34;
/// Memory space, bus master; legacy interrupts off.
const COMMAND: u32 = 1 << 1 | 1 << 2 | 1 << 10;
const CAPABILITY_MSIX: u32 = 0x11;
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_FUNCTION_MASK: u32 = 1 << 30;
const ENTRY_MASKED: u32 = 1;

/// Offset of the doorbell's own identifier in BAR 0.
const REG_IV_POSITION: u64 = 8;
/// Offset of the register that rings.
const REG_DOORBELL: u64 = 12;

/// Configuration space of a PCI host bridge, memory-mapped.
#[derive(Clone, Copy, Debug)]
pub struct Ecam {
    /// Physical address of bus 0, device 0, function 0.
    pub base: u64,
}

impl Ecam {
    /// Physical address of a register of function 0 of a device on bus 0.
    pub const fn register(self, device: u64, register: u64) -> u64 {
        self.base + (device << 15) + register
    }
}

/// Physical addresses where base address registers may be placed; must be reachable through the
/// caller's [`Mmio`].
#[derive(Clone, Copy, Debug)]
pub struct BarWindow {
    /// First address, below 4 GiB.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The write of the device that interrupts a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiMessage {
    /// The address of the write.
    pub address: u64,
    /// The data of the write.
    pub data: u32,
}

/// The registers of a doorbell that has been set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Physical address of its registers.
    pub registers: u64,
}

impl Doorbell {
    /// Identifier under which other machines ring this one. The broker gives them in the order
    /// in which machines connect.
    pub fn id(self, mmio: &impl Mmio) -> u64 {
        u64::from(mmio.read32(self.registers + REG_IV_POSITION))
    }

    /// Rings a vector of another machine. The caller must have stored whatever the receiver must see, and
    /// ordered these stores before this call.
    pub fn ring(self, mmio: &impl Mmio, peer: u64, vector: u32) {
        let value = (peer as u32) << 16 | (vector & 0xffff);
        mmio.write32(self.registers + REG_DOORBELL, value);
    }
}

/// The reasons why there is no doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IvshmemError {
    /// No such function on bus 0.
    NotFound,
    /// The device has no MSI-X: it is an ivshmem without doorbells.
    NoDoorbell,
    /// The device has fewer vectors than are needed.
    TooFewVectors {
        /// Vectors of the device.
        found: usize,
        /// Vectors needed.
        needed: usize,
    },
    /// The memory of a base address register does not fit the window.
    NoRoom {
        /// The number of the register.
        bar: usize,
        /// The size of the memory.
        size: u64,
    },
}

impl fmt::Display for IvshmemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IvshmemError::NotFound => f.write_str("no ivshmem device on PCI bus 0"),
            IvshmemError::NoDoorbell => {
                f.write_str("the ivshmem device has no MSI-X: use ivshmem-doorbell")
            }
            IvshmemError::TooFewVectors { found, needed } => write!(
                f,
                "the doorbell has {found} vectors, {needed} are needed: set vectors={needed}"
            ),
            IvshmemError::NoRoom { bar, size } => {
                write!(
                    f,
                    "BAR {bar} of the doorbell ({size:#x} bytes) does not fit its window"
                )
            }
        }
    }
}

impl core::error::Error for IvshmemError {}

/// Finds the doorbell, places its registers in `window` and routes its interrupts: vector `v`
/// sends `message(v)`, or is masked if that is `None`. It must have at least `vectors` of them.
///
/// # Errors
///
/// See [`IvshmemError`].
pub fn set_up(
    mmio: &impl Mmio,
    ecam: Ecam,
    window: BarWindow,
    vectors: usize,
    message: impl Fn(usize) -> Option<MsiMessage>,
) -> Result<Doorbell, IvshmemError> {
    let device = (0..32)
        .find(|&d| mmio.read32(ecam.register(d, 0)) == IDENTITY)
        .ok_or(IvshmemError::NotFound)?;
    let register = |r: u64| ecam.register(device, r);
    let msix = register(find_capability(mmio, &register).ok_or(IvshmemError::NoDoorbell)?);

    let control = mmio.read32(msix);
    let found = (control >> 16 & 0x7ff) as usize + 1;
    if found < vectors {
        return Err(IvshmemError::TooFewVectors {
            found,
            needed: vectors,
        });
    }
    // No decoding while the base addresses hold nonsense.
    mmio.write32(register(REG_COMMAND), 0);
    let bars = place_bars(mmio, &register, window)?;
    mmio.write32(register(REG_COMMAND), COMMAND);

    let table = mmio.read32(msix + 4);
    let entries = bars[(table & 7) as usize % bars.len()] + u64::from(table & !7);
    // QEMU tells its interrupt routing only about writes to the table of an enabled function.
    mmio.write32(msix, (control & !MSIX_FUNCTION_MASK) | MSIX_ENABLE);
    for v in 0..found {
        let entry = entries + v as u64 * 16;
        match message(v) {
            Some(m) => {
                mmio.write32(entry, m.address as u32);
                mmio.write32(entry + 4, (m.address >> 32) as u32);
                mmio.write32(entry + 8, m.data);
                mmio.write32(entry + 12, 0);
            }
            None => mmio.write32(entry + 12, ENTRY_MASKED),
        }
    }
    Ok(Doorbell { registers: bars[0] })
}

/// Offset of the MSI-X capability.
fn find_capability(mmio: &impl Mmio, register: &impl Fn(u64) -> u64) -> Option<u64> {
    let mut at = u64::from(mmio.read32(register(REG_CAPABILITIES)) & 0xfc);
    // Capabilities are at least a word long, so there cannot be more in the 192 bytes they share.
    for _ in 0..48 {
        if at == 0 {
            return None;
        }
        let head = mmio.read32(register(at));
        if head & 0xff == CAPABILITY_MSIX {
            return Some(at);
        }
        at = u64::from(head >> 8 & 0xfc);
    }
    None
}

/// Sizes and places all base address registers; returns their addresses (0: not there).
fn place_bars(
    mmio: &impl Mmio,
    register: &impl Fn(u64) -> u64,
    window: BarWindow,
) -> Result<[u64; 6], IvshmemError> {
    let mut bars = [0; 6];
    let mut next = window.base;
    let mut bar = 0;
    while bar < bars.len() {
        let low = register(REG_BAR0 + 4 * bar as u64);
        mmio.write32(low, !0);
        let mask = mmio.read32(low);
        let wide = mask & 0b110 == 0b100 && bar + 1 < bars.len();
        let mut full = u64::from(mask & !0xf) | 0xffff_ffff_0000_0000;
        if wide {
            mmio.write32(low + 4, !0);
            full = u64::from(mask & !0xf) | u64::from(mmio.read32(low + 4)) << 32;
        }
        // An absent register reads as 0; one for I/O ports (bit 0) is not used by this device.
        if mask & !0xf == 0 && !wide || mask & 1 != 0 {
            bar += 1;
            continue;
        }
        let size = full.wrapping_neg();
        let no_room = IvshmemError::NoRoom { bar, size };
        let at = next.checked_next_multiple_of(size).ok_or(no_room)?;
        if at > window.base + window.len || size > window.base + window.len - at {
            return Err(no_room);
        }
        mmio.write32(low, at as u32);
        if wide {
            mmio.write32(low + 4, (at >> 32) as u32);
        }
        bars[bar] = at;
        // A page each, so that registers can be mapped alone.
        next = at + size.next_multiple_of(4096);
        bar += if wide { 2 } else { 1 };
    }
    Ok(bars)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const ECAM: Ecam = Ecam { base: 0x3f00_0000 };
    const WINDOW: BarWindow = BarWindow {
        base: 0x1000_0000,
        len: 0x100_0000,
    };
    const DEVICE: u64 = 8;
    const MSIX_AT: u64 = 0x40;

    /// A model of the machine: configuration space of one ivshmem-doorbell function, and memory
    /// where its registers have been placed.
    struct Model {
        config: RefCell<BTreeMap<u64, u32>>,
        memory: RefCell<BTreeMap<u64, u32>>,
        order: RefCell<Vec<u64>>,
        /// Size of BAR 0, 1, 2 (64 bits wide).
        sizes: [u64; 3],
    }

    impl Model {
        fn new(vectors: u32, shm: u64) -> Model {
            let config = [
                (0, IDENTITY),
                (REG_CAPABILITIES, 0x50),
                // Another capability first.
                (0x50, 0x0000_0001 | (MSIX_AT as u32) << 8),
                (
                    MSIX_AT,
                    CAPABILITY_MSIX | (vectors - 1) << 16 | MSIX_FUNCTION_MASK,
                ),
                (MSIX_AT + 4, 1 | 0x100),
            ];
            Model {
                config: RefCell::new(config.into()),
                memory: RefCell::default(),
                order: RefCell::default(),
                sizes: [256, 4096, shm],
            }
        }

        fn config(&self, r: u64) -> u32 {
            self.config.borrow().get(&r).copied().unwrap_or(0)
        }

        fn mem(&self, pa: u64) -> u32 {
            self.memory.borrow().get(&pa).copied().unwrap_or(0)
        }
    }

    impl Mmio for Model {
        fn read32(&self, pa: u64) -> u32 {
            if pa < ECAM.base {
                return self.mem(pa);
            }
            let (device, r) = ((pa - ECAM.base) >> 15, pa & 0x7fff);
            if device == DEVICE { self.config(r) } else { !0 }
        }

        fn write32(&self, pa: u64, value: u32) {
            self.order.borrow_mut().push(pa);
            if pa < ECAM.base {
                self.memory.borrow_mut().insert(pa, value);
                return;
            }
            assert_eq!((pa - ECAM.base) >> 15, DEVICE, "write to another device");
            let r = pa & 0x7fff;
            let sized = |i: usize| !(self.sizes[i] - 1);
            let kept = match r {
                0x10 => value & sized(0) as u32,
                0x14 => value & sized(1) as u32,
                0x18 => value & sized(2) as u32 | 0xc,
                0x1c => value & (sized(2) >> 32) as u32,
                0x20..=0x27 => 0,
                _ => value,
            };
            self.config.borrow_mut().insert(r, kept);
        }
    }

    fn message(v: usize) -> Option<MsiMessage> {
        (v < 2).then_some(MsiMessage {
            address: 0x1_0802_0040,
            data: 80 + v as u32,
        })
    }

    #[test]
    fn places_registers_and_routes_interrupts() {
        let m = Model::new(5, 1 << 20);
        let d = set_up(&m, ECAM, WINDOW, 5, message).unwrap();
        assert_eq!(d.registers, WINDOW.base);
        assert_eq!(m.config(0x10) as u64, WINDOW.base);
        assert_eq!(m.config(0x14) as u64, WINDOW.base + 0x1000);
        assert_eq!(m.config(0x18) as u64 & !0xf, WINDOW.base + 0x10_0000);
        assert_eq!(m.config(0x1c), 0);
        assert_eq!(m.config(REG_COMMAND) & 6, 6);
        assert_eq!(m.config(MSIX_AT) >> 30, 0b10);
        let entry = |v: u64, w: u64| m.mem(WINDOW.base + 0x1100 + 16 * v + 4 * w);
        for v in 0..2 {
            let words = [0, 1, 2, 3].map(|w| entry(v, w));
            assert_eq!(words, [0x0802_0040, 1, 80 + v as u32, 0]);
        }
        for v in 2..5 {
            assert_eq!(entry(v, 3), ENTRY_MASKED);
        }
        // The table is written after the function has been enabled.
        let order = m.order.borrow();
        let enabled = order.iter().position(|&a| a == ECAM.register(8, MSIX_AT));
        let first = order.iter().position(|&a| a == WINDOW.base + 0x1100);
        assert!(enabled.unwrap() < first.unwrap());
    }

    #[test]
    fn rings_by_identifier_and_vector() {
        let m = Model::new(5, 1 << 20);
        let d = set_up(&m, ECAM, WINDOW, 5, message).unwrap();
        m.write32(d.registers + 8, 3);
        assert_eq!(d.id(&m), 3);
        d.ring(&m, 2, 4);
        assert_eq!(m.mem(d.registers + 12), 2 << 16 | 4);
    }

    #[test]
    fn says_what_is_wrong() {
        let up = |m: &Model| set_up(m, ECAM, WINDOW, 5, message);
        let (found, needed) = (4, 5);
        assert_eq!(
            up(&Model::new(4, 1 << 20)),
            Err(IvshmemError::TooFewVectors { found, needed })
        );
        let (bar, size) = (2, 1 << 33);
        assert_eq!(
            up(&Model::new(5, size)),
            Err(IvshmemError::NoRoom { bar, size })
        );
        let plain = Model::new(5, 1 << 20);
        plain.config.borrow_mut().insert(0x50, 1);
        assert_eq!(up(&plain), Err(IvshmemError::NoDoorbell));
        plain.config.borrow_mut().insert(0, !0);
        assert_eq!(up(&plain), Err(IvshmemError::NotFound));
        // A chain of capabilities that never ends is no reason to hang.
        let chain = Model::new(5, 1 << 20);
        chain.config.borrow_mut().insert(0x50, 1 | 0x50 << 8);
        assert_eq!(up(&chain), Err(IvshmemError::NoDoorbell));
    }
}
