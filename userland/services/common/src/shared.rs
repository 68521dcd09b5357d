//! Memory that another program writes at the same time.
//!
//! It is never looked at through references: bytes are copied out, once, and what was copied is
//! judged. A program that writes meanwhile decides what is in the copy, but nothing else.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, Ordering};

/// A window of mapped memory shared with others.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start: u64,
    len: u64,
}

impl Window {
    /// The window `[start, start + len)`.
    ///
    /// # Safety
    ///
    /// It is mapped readable as long as the window is used, no reference to it is made, and no code
    /// else accesses it other than atomically or from another program.
    pub const unsafe fn new(start: u64, len: u64) -> Window {
        Window { start, len }
    }

    /// Copies bytes from `offset` on. `None` if they are not all inside.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(into.len() as u64)?;
        if end > self.len {
            return None;
        }
        let first = (self.start + offset) as *const AtomicU8;
        for (i, byte) in into.iter_mut().enumerate() {
            // SAFETY: 1. Inside the window, which is mapped. 2. Atomic loads may race with
            // whatever the other program does; bytes need no alignment.
            *byte = unsafe { (*first.add(i)).load(Ordering::Relaxed) };
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_read() {
        let bytes = [1u8, 2, 3, 4];
        // SAFETY: 1. The array outlives the window and is only read.
        let w = unsafe { Window::new(bytes.as_ptr() as u64, 4) };
        let mut two = [0; 2];
        assert_eq!((w.read(2, &mut two), two), (Some(()), [3, 4]));
        assert_eq!(w.read(3, &mut two), None);
        assert_eq!(w.read(u64::MAX, &mut two), None);
        assert_eq!(w.read(4, &mut []), Some(()));
    }
}
