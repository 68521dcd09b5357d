//! Page tables of both ISAs: the meaning of their entries, and how any node changes them.
//!
//! Both formats are always compiled, so that every kernel can read and write the tables of every
//! other. Both have the same shape: four levels of 512 entries over 4 KiB frames, user half in
//! root entries 0 to 255, kernel half in 256 to 511 (AArch64 with T0SZ = T1SZ = 17, `TTBR1` =
//! root + 0x800).
//!
//! # States of an entry
//!
//! ```text
//!              map                               unmap
//!   Empty(s) ───────▶ Leaf ──────────────────────────────────────────▶ Closing(n)
//!      ▲   │           ▲ └─ protect, harvest, hardware setting A/D ─┐      │
//!      │   │           └─────────────────────────────────────────────┘     │
//!      │   └────────▶ Table            stamp s = epoch read after the CAS  │
//!      └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A leaf of 4 KiB can be *parked* while its contents are copied to another frame, and be unparked
//! with that one: absent for hardware, a reference for a count of references. It can be unmapped meanwhile.
//!
//! ```text
//!   Leaf(f) ──park──▶ Parked(f) ──every CPU has dropped its translations, copy──▶ unpark ──▶ Leaf(g)
//! ```
//!
//! `Empty(s)`: unmapped since epoch `s`; another translation may be put there once every CPU that
//! may hold the old one has flushed it, that is when `s` is quiesced. `Closing(n)`: node `n` is
//! unmapping; if it dies, its recovery finishes. Zero is `Empty(0)`: never used, free at
//! once. Each state has exactly one encoding; any other word decodes as [`Pte::Other`], which
//! nothing here overwrites.
//!
//! # Rows of the protocol
//!
//! | row | here | order |
//! |---|---|---|
//! | map | [`RemoteCpu::map_when`]: quiesced(s) → CAS Empty(s) → leaf | the caller pins frame and table before, unpins on failure |
//! | map (missing tables) | [`RemoteCpu::entry_for`]: zeroed table written back, then CAS Empty(s) → table | the loser of a race frees its frame and uses the winner's |
//! | unmap | [`RemoteCpu::unmap`]: CAS leaf → Closing(n) (again if only A/D changed), log, fence, s = epoch, CAS Closing(n) → Empty(s) | the stamp is read after the CAS and the log |
//! | protect | [`RemoteCpu::protect`]: one CAS, again if only A/D changed | no in-line break-before-make: only permissions change |
//! | link, unlink | [`RemoteCpu::fill`] and [`RemoteCpu::close_table`] with [`RemoteCpu::empty`] | as map and unmap |
//! | another frame or size | unmap, quiesce, map | AArch64 demands break-before-make |
//! | move | [`RemoteCpu::park`], translations dropped, copy, [`RemoteCpu::unpark`] | break-before-make, with the frame kept in between |
//!
//! Rows that pin frames and record intents between looking and changing work on the [`PteSlot`] they
//! have found: [`RemoteCpu::find`], then `fill`, `close` and so on.
//!
//! Every change of an entry is a CAS: the owner's hardware sets accessed and dirty bits by atomic
//! updates at the same time, and several nodes may change entries of one line. Flushing TLBs is
//! the caller's business (quiescence, or a doorbell shootdown).
//!
//! # Incoherent machines
//!
//! | flush | without it |
//! |---|---|
//! | a new table's zeros are written back before it is linked | others follow the link into what the frame held before |
//! | every look at an entry is at memory | a page is used, or reported, that has been unmapped or replaced |
//!
//! The owner's hardware walks tables through its cache, which nothing here can reach. So leaves
//! have accessed and dirty preset ([`RemoteCpu::preset`]), or hardware that sets them in its cache undoes
//! what others have done to the line; rounds invalidate the tables that have been written, before
//! they flush TLBs; and a CPU that faults looks with [`RemoteCpu::walk`], which also replaces its
//! stale copies of the entries on the way.
//!
//! # Owner's rules
//!
//! | | x86-64 | AArch64 |
//! |---|---|---|
//! | no execution | NX | UXN, PXN |
//! | user-executable | kernel kept off by SMEP | PXN |
//! | kernel-executable | U/S = 0 | UXN |
//! | normal memory | PAT 0: write-back | AttrIdx 0: Normal, write-back, read/write-allocate; inner shareable |
//! | devices | PCD (PAT 2: UC-) | AttrIdx 1: Device-nGnRE |
//! | dirty | D | writable: DBM and not AP\[2\]; read-only: software bit 55 |
//! | software's notes | bits 9 to 11 | bits 56 to 58 |
//! | absent states | stored inverted (see [`X86`]) | stored plainly |
//!
//! AArch64 CPUs run with `TCR_EL1.HA` and `HD` set. Tables are always as permissive as can be:
//! leaves decide. W^X: a leaf that is writable and executable cannot be encoded.
#![no_std]
#![forbid(unsafe_code)]

mod a64;
mod absent;
mod driver;
mod error;
mod pte;
mod pte_slot;
mod x86;

pub use dyad_shm::Epoch;

pub use a64::A64;
pub use driver::{FrameSource, RemoteCpu, Walk, is_canonical};
pub use error::{EncodeError, MapError};
pub use pte::{Format, Leaf, Level, Memory, Perms, Pte, decode, encode, layout};
pub use pte_slot::{PteSlot, plain};
pub use x86::X86;
