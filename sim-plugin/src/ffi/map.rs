// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that the plugins of all machines share.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
}

/// Linux's `MADV_HUGEPAGE`.
const HUGE_PAGES: c_int = 14;
const READ_AND_WRITE: c_int = 3;
const SHARED: c_int = 1;

/// Maps a file of `count` words, for as long as the process lives.
///
/// # Errors
///
/// A sentence, if it cannot be mapped or is too short.
pub fn map_words(path: &Path, count: usize) -> Result<&'static [AtomicU64], String> {
    let cannot = |e: std::io::Error| format!("cannot map {}: {e}", path.display());
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(cannot)?;
    let (bytes, has) = (count * 8, file.metadata().map_err(cannot)?.len());
    if has < bytes as u64 {
        let path = path.display();
        return Err(format!("{path} has {has} bytes, {bytes} are needed"));
    }
    if bytes == 0 {
        return Ok(&[]);
    }
    // SAFETY: 1. A new mapping, anywhere, of a file that is long enough.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            READ_AND_WRITE,
            SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at.addr() == usize::MAX {
        return Err(cannot(std::io::Error::last_os_error()));
    }
    // Words are used in no order, so that the host's TLB would miss nearly every time. If it has no large
    // pages for files, nothing is lost.
    // SAFETY: 1. The mapping that was just made; the content stays what it is.
    let _ = unsafe { madvise(at, bytes, HUGE_PAGES) };
    // SAFETY: 1. The mapping is aligned, as long as the slice, and is never removed. 2. Nobody makes the
    // file shorter: its only other users are plugins and the launcher. 3. Other processes change the words
    // atomically, as this one does.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), count) })
}

/// Words as pairs of shorter ones. They must be used in no other way, by nobody.
pub fn halves(words: &'static [AtomicU64]) -> &'static [AtomicU32] {
    // SAFETY: 1. As many bytes, aligned better than needed, for ever. 2. Every content is valid.
    // 3. All accesses are atomic and of one size (the caller's promise).
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 2) }
}
