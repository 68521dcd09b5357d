//! Text and reports, through the pages that the program shares with the console service.
//!
//! A page belongs to the thread that has claimed it, from filling it to the service's reply:
//!
//! ```text
//!  free ── claim (CAS, Acquire) ──▶ filled ── invoke console ──▶ read by it ── release (Release) ──▶ free
//! ```
//!
//! A thread takes the page with its own number, so that the beginnings of lines of different threads
//! do not mix; if that page is in use, in an invocation for example, another free one. A thread
//! that dies with a page keeps it.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Result;
use dyad_abi::service::{CONSOLE_THREADS, ReportText, console, slot};
use dyad_abi::user::{MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE, ReportKind};

use crate::cap::{Cap, Sinv};
use crate::raw;

/// A bit for each page that is in use.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

const PAGE: usize = PAGE_SIZE as usize;
const CONSOLE: Cap<Sinv> = Cap::at(slot::CONSOLE);

/// A page of the buffer.
struct Page {
    number: u32,
}

impl Page {
    fn claim() -> Page {
        let own = crate::thread::number().map_or(0, |n| n.get() as u32);
        loop {
            let claimed = CLAIMED.load(Ordering::Relaxed);
            let number = match claimed >> own & 1 {
                0 => own,
                _ => claimed.trailing_ones(),
            };
            if u64::from(number) < CONSOLE_THREADS {
                let with = claimed | 1 << number;
                if CLAIMED
                    .compare_exchange_weak(claimed, with, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return Page { number };
                }
            } else {
                crate::yield_now();
            }
        }
    }

    fn offset(&self) -> u64 {
        u64::from(self.number) * PAGE_SIZE
    }

    fn start(&self) -> *mut u8 {
        with_exposed_provenance_mut((raw::text_buffer() + self.offset()) as usize)
    }

    fn put(&mut self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(PAGE)];
        // SAFETY: 1. The page is mapped writable in every program, and only its owner writes it.
        // 2. At most a page is written. 3. `text` lies elsewhere: nobody has references into these
        // pages.
        unsafe {
            self.start()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    fn put_report(&mut self, report: ReportText) {
        // SAFETY: 1. The page is mapped writable, and only its owner writes it; a report is not larger than a page and needs less alignment.
        unsafe { self.start().cast::<ReportText>().write(report) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        CLAIMED.fetch_and(!(1 << self.number), Ordering::Release);
    }
}

/// Writes text to the console. At most a page is taken, and whole characters only; returns how many
/// bytes.
///
/// # Errors
///
/// Those of the console service.
pub fn write(text: &str) -> Result<usize> {
    let text = &text[..text.floor_char_boundary(PAGE)];
    let mut page = Page::claim();
    page.put(text);
    let taken = CONSOLE.request([console::WRITE, page.offset(), text.len() as u64, 0])?;
    Ok((taken as usize).min(text.len()))
}

/// Records a check of this run. A name or detail that is too long is cut.
///
/// # Errors
///
/// `Denied` if the name is of the kernel, init or the launcher; `BadArgument` if it is empty, or has
/// something else than visible ASCII characters; `Again` if the program has written more than it may, or
/// another thread of it is writing; and others of the console service.
pub fn report_check(name: &str, ok: bool, detail: &str) -> Result<()> {
    report(ReportKind::Check, ok.into(), name, detail)
}

/// Adds `n` to a counter of this run. A name that is too long is cut.
///
/// # Errors
///
/// `Denied` if the name is of the kernel, init or the launcher; `BadArgument` if it is empty, or has
/// something else than visible ASCII characters; `Again` if the program has written more than it may, or
/// another thread of it is writing; and others of the console service.
pub fn report_counter(name: &str, n: u64) -> Result<()> {
    report(ReportKind::Counter, n, name, "")
}

fn report(kind: ReportKind, value: u64, name: &str, detail: &str) -> Result<()> {
    let (name, name_len) = cut::<MAX_REPORT_NAME>(name);
    let (detail, detail_len) = cut::<MAX_REPORT_DETAIL>(detail);
    let mut page = Page::claim();
    page.put_report(ReportText {
        kind: kind as u64,
        value,
        name_len,
        detail_len,
        name,
        detail,
    });
    CONSOLE
        .request([console::REPORT, page.offset(), 0, 0])
        .map(drop)
}

fn cut<const N: usize>(text: &str) -> ([u8; N], u64) {
    let len = text.floor_char_boundary(N);
    let mut bytes = [0; N];
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    (bytes, len as u64)
}
