//! Reports of programs on a run: checks and counters, which become records of the console.
//!
//! Texts come from user memory and go into lines that the launcher parses: lengths are bounded, and the
//! console escapes characters that could end a record or begin another one. A text is copied once, before it
//! is checked: a concurrent write by another thread is reported or not, but the checked text is the reported
//! one.

use core::fmt;

use dyad_abi::Error;
use dyad_abi::user::{MAX_REPORT_DETAIL, MAX_REPORT_NAME, ReportArgs, ReportKind};

use dyad_machine::Platform;
use dyad_machine::console::{check_of, counter_of};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_space::copy::copy_in;

/// A bounded text from user memory, on the kernel's stack; bytes that are not valid UTF-8 show as question
/// marks.
struct UserText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> UserText<N> {
    /// Copies a text of `len` bytes from user memory.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if it is longer than `N`; the errors of [`copy_in`].
    fn read<P: Platform>(cx: &KernelCtx, ptr: u64, len: u64) -> dyad_abi::Result<Self> {
        // Before anything is copied: `N` is what fits into a line.
        if len > N as u64 {
            return Err(Error::TooLarge);
        }
        let mut t = UserText {
            bytes: [0; N],
            len: len as usize,
        };
        copy_in::<P>(cx, cx.space()?, ptr, &mut t.bytes[..len as usize])?;
        Ok(t)
    }
}

impl<const N: usize> fmt::Display for UserText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes[..self.len].utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                // One byte each, so that a line with the longest text is never cut.
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

/// `Report`: reports a check or counter of the run, described by the caller's [`ReportArgs`].
///
/// # Errors
///
/// [`Error::BadAddress`], [`Error::BadArgument`] (no such kind or program, no name), [`Error::TooLarge`]; the
/// errors of [`copy_in`]. Nothing has been reported then.
pub fn report<P: Platform>(cx: &KernelCtx, ptr: u64) -> dyad_abi::Result<u64> {
    let mut bytes = [0u8; size_of::<ReportArgs>()];
    copy_in::<P>(cx, cx.space()?, ptr, &mut bytes)?;
    let word = |i: usize| {
        let mut w = [0; 8];
        w.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
        u64::from_le_bytes(w)
    };
    // In the order of the structure, whose words are little-endian on both ISAs.
    let [kind, value, name, name_len, detail, detail_len] = core::array::from_fn(word);
    let (kind, program) = ReportKind::from_word(kind).ok_or(Error::BadArgument)?;
    let name: UserText<MAX_REPORT_NAME> = UserText::read::<P>(cx, name, name_len)?;
    // Counters are added up by name, and checks found by it.
    if name.len == 0 {
        return Err(Error::BadArgument);
    }
    let detail: UserText<MAX_REPORT_DETAIL> = UserText::read::<P>(cx, detail, detail_len)?;
    match kind {
        ReportKind::Check => check_of::<P>(program, name, value == 1, format_args!("{detail}")),
        ReportKind::Counter => counter_of::<P>(program, name, value),
    }
    Ok(0)
}
