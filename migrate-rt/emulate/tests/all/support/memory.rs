//! Memory of tests: windows of bytes.

use dyad_emulate::{Access, Fault, FaultKind, Memory, Width};

/// What may be done with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Not even data is read from it.
    Code,
    Data,
    ReadOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub va: u64,
    pub bytes: Vec<u8>,
    pub r#use: Use,
}

/// Memory of one thread, in windows that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    pub windows: Vec<Window>,
    /// Data accesses that succeed before all further ones fail.
    pub budget: Option<u32>,
    /// Data accesses so far.
    pub accesses: u32,
}

impl Windows {
    pub fn add(&mut self, va: u64, bytes: Vec<u8>, r#use: Use) {
        self.windows.push(Window { va, bytes, r#use });
    }

    pub fn window(&self, va: u64) -> &Window {
        self.windows.iter().find(|w| w.va == va).unwrap()
    }

    fn find(&mut self, va: u64, len: usize, access: Access) -> Result<&mut [u8], Fault> {
        let fault = |kind| Fault { va, access, kind };
        if access != Access::Fetch {
            if self.budget.is_some_and(|b| self.accesses >= b) {
                return Err(fault(FaultKind::Unmapped));
            }
            self.accesses += 1;
        }
        let window = self
            .windows
            .iter_mut()
            .find(|w| va >= w.va && va - w.va < w.bytes.len() as u64)
            .ok_or(fault(FaultKind::Unmapped))?;
        let allowed = match access {
            Access::Fetch => window.r#use == Use::Code,
            Access::Load => window.r#use != Use::Code,
            Access::Store | Access::Update => window.r#use == Use::Data,
        };
        if !allowed {
            return Err(fault(FaultKind::Protection));
        }
        let at = (va - window.va) as usize;
        let end = match access {
            Access::Fetch => window.bytes.len().min(at + len),
            _ => at + len,
        };
        window
            .bytes
            .get_mut(at..end)
            .ok_or(fault(FaultKind::Unmapped))
    }
}

impl Memory for Windows {
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let found = self.find(va, bytes.len(), Access::Fetch)?;
        bytes[..found.len()].copy_from_slice(found);
        Ok(found.len())
    }

    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        Ok((&*self.find(va, N, Access::Load)?).try_into().unwrap())
    }

    fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault> {
        self.find(va, N, Access::Store)?.copy_from_slice(&bytes);
        Ok(())
    }

    fn compare_exchange(
        &mut self,
        va: u64,
        width: Width,
        expected: u128,
        new: u128,
    ) -> Result<u128, Fault> {
        let len = width.bytes() as usize;
        let bytes = self.find(va, len, Access::Update)?;
        let mut old = [0; 16];
        old[..len].copy_from_slice(bytes);
        let old = u128::from_le_bytes(old);
        if old == expected {
            bytes.copy_from_slice(&new.to_le_bytes()[..len]);
        }
        Ok(old)
    }
}

/// Puts a number into memory.
pub fn put(memory: &mut Windows, va: u64, value: u64) {
    memory.store(va, value.to_le_bytes()).unwrap();
}
