//! The state of moves of threads, as programs can read it.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::emulation::{Page, Registers, refused, status};

use super::Mapped;

/// The state of a move of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// A [`status`].
    pub status: u64,
    /// Instructions interpreted since it was last stopped.
    pub steps: u64,
    /// System calls among them.
    pub calls: u64,
    /// How often the thread has landed on another node.
    pub landings: u64,
    /// The outcome of the move: see [`Page::outcome`].
    pub outcome: u64,
    /// Fused times: when it had been stopped, when interpreting began, and when it had come to the point.
    pub times: [u64; 3],
    /// Address of the instruction that was refused, after [`status::BACK`].
    pub refused_at: u64,
    /// The bytes of the refused instruction after [`refused::UNKNOWN`], and their number.
    pub refused_bytes: ([u8; 15], u8),
}

impl core::fmt::Display for Progress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let error = |code| Error::from_code(code).map_or("an unknown error", Error::text);
        let what = match self.status {
            status::BACK => match refused::text(self.outcome) {
                Some(what) => what,
                None => return write!(f, "went back: {}", error(self.outcome)),
            },
            status::IDLE if self.outcome == 0 => return f.write_str("has not been asked for"),
            status::IDLE => return write!(f, "was left alone: {}", error(self.outcome)),
            status::ASKED => return f.write_str("has been asked for"),
            status::LANDED => return write!(f, "landed after {} instructions", self.steps),
            _ => return write!(f, "is interpreted, {} instructions so far", self.steps),
        };
        write!(
            f,
            "went back after {} instructions, to {what}, at {:#x}",
            self.steps, self.refused_at
        )?;
        let (bytes, len) = self.refused_bytes;
        for byte in bytes.iter().take(len.into()) {
            write!(f, " {byte:02x}")?;
        }
        Ok(())
    }
}

/// The state of the last [`request`](super::request) for thread `n`; `None` before [`enable`](super::enable).
pub fn progress(n: u64) -> Option<Progress> {
    let page = Mapped::of(n)?;
    let status = word_of!(page, status).load(Ordering::Acquire);
    let first = core::mem::offset_of!(Page, refused_bytes) / 8;
    let bytes = [0, 1].map(|i| page.0[first + i].load(Ordering::Relaxed));
    let bytes = (u128::from(bytes[0]) | u128::from(bytes[1]) << 64).to_le_bytes();
    let [.., len] = bytes;
    let times = [
        word_of!(page, stopped_at),
        word_of!(page, began_at),
        word_of!(page, landed_at),
    ];
    Some(Progress {
        status,
        times: times.map(|word| word.load(Ordering::Relaxed)),
        steps: word_of!(page, steps).load(Ordering::Relaxed),
        calls: word_of!(page, calls).load(Ordering::Relaxed),
        landings: word_of!(page, landings).load(Ordering::Relaxed),
        outcome: word_of!(page, outcome).load(Ordering::Relaxed),
        refused_at: word_of!(page, refused_at).load(Ordering::Relaxed),
        refused_bytes: (core::array::from_fn(|i| bytes[i]), len),
    })
}

/// The registers with which thread `n` was stopped when it was last moved, as long as it has not gone back;
/// `None` before [`enable`](super::enable).
pub fn stopped_with(n: u64) -> Option<Registers> {
    Mapped::of(n).map(Mapped::registers)
}
