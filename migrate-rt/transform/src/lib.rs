//! The frame transform: a thread's native stack on one ISA, as one of the other ISA.
//!
//! At a migration point a native stack holds nothing that matters but frame records: everything else
//! is on the data stack, which is the same memory on every ISA (that is what `migrate-rt` sees to and
//! proves when the program is built). So the transform is a walk along the frame records, one look
//! into the table of sites for each, and a record on the other stack.
//!
//! ```text
//!            native stack here                         native stack there
//!   top  ┌─────────────────────────┐             ┌─────────────────────────┐
//!        │ record: 0, end of chain │             │ record: 0, end of chain │
//!        │ frame of the root       │  site: its  │ frame of the root       │
//!        │ record: fp, return ─────┼─ address ─▶ │ record: fp, return      │
//!   fp ─▶│ frame of the caller     │  and size   │ frame of the caller     │◀─ sp
//!        └─────────────────────────┘  there      └─────────────────────────┘
//! ```
//!
//! On both ISAs a frame record lies directly below the CFA (the stack pointer before the call): the
//! outer frame's pointer at CFA - 16, where the frame pointer points, and the return address at
//! CFA - 8.
//!
//! # The table
//!
//! 64-bit words: [`MAGIC`], slots per ISA (a power of two), [`Places`] as a word, number of sites; then the
//! slots with x86-64 as the source, then those with AArch64 as the source. A return address is at one of
//! its two places, so that no frame costs more than a second look, wherever the linker has put its call
//! (R. Pagh, F. F. Rodler: Cuckoo hashing, J. Algorithms 51, 2004). [`Places::put`] makes such a table.
//!
//! No allocation, no recursion; time is linear in the number of frames and every chain is bounded by
//! the stack's size.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(test)]
mod tests;

/// First word of a table: "DYADSITE".
pub const MAGIC: u64 = u64::from_le_bytes(*b"DYADSITE");
/// Words before the slots.
pub const HEADER_WORDS: usize = 4;
/// Words of a slot.
pub const SLOT_WORDS: usize = 2;
/// As the step of a slot: the return address of the first frame's caller, where chains end.
pub const BASE: u32 = u32::MAX;

/// A return address of the source ISA. All addresses of a program's code have 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The return address; 0 if the slot is free.
    pub ret: u32,
    /// The return address of the same call on the other ISA.
    pub other: u32,
    /// Bytes between the stack pointer before the call and the CFA, on the other ISA; or [`BASE`].
    pub step: u32,
}

impl Slot {
    /// The slot as words of a table: what is looked for, and what is found.
    pub const fn words(self) -> [u64; SLOT_WORDS] {
        [
            self.ret as u64,
            self.other as u64 | (self.step as u64) << 32,
        ]
    }
}

/// Bytes that a transform leaves free on the other stack. Frames of one ISA are larger than those of the other,
/// so a thread could come to the end of its stack by moving; with less than this it stays where it is.
pub const HEADROOM: u64 = 128 << 10;

/// Frames of which the first walk keeps what the second one needs. Those beyond are looked up again.
pub const KEPT: usize = 64;

/// Return address and step on the other ISA, from the second word of a [`Slot`].
#[inline(always)]
const fn target(word: u64) -> (u64, u64) {
    (word & 0xffff_ffff, word >> 32)
}

/// How often [`Places::put`] moves slots out of the way of one before it gives up.
const MOVES: usize = 500;

/// Where the return addresses of a table can be: the two hash functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// 32 less the logarithm of the number of slots, so below 32.
    shift: u32,
    /// The odd factor of the second function.
    factor: u32,
}

impl Places {
    /// The `nth` try for a table of so many slots, a power of two from 2 on.
    pub const fn new(slots: u64, nth: u32) -> Places {
        Places {
            shift: 32 - slots.trailing_zeros(),
            factor: 0x85eb_ca6b_u32.wrapping_add(nth.wrapping_mul(0x2c1b_3c6c)),
        }
    }

    /// As the word of a table.
    pub const fn word(self) -> u64 {
        self.shift as u64 | (self.factor as u64) << 32
    }

    /// What a word of a table of so many slots says; `None` if it cannot be in one.
    #[inline(always)]
    const fn of_word(word: u64, slots: u64) -> Option<Places> {
        let (shift, factor) = (word as u32, (word >> 32) as u32);
        let good = slots.is_power_of_two()
            && slots > 1
            && slots.trailing_zeros() as u64 + shift as u64 == 32
            && factor & 1 == 1;
        match good {
            true => Some(Places { shift, factor }),
            false => None,
        }
    }

    /// The first place of a return address in the table.
    #[inline(always)]
    const fn first(self, ret: u64) -> usize {
        ((ret as u32).wrapping_mul(0x9e37_79b9) >> (self.shift & 31)) as usize
    }

    /// The second place of a return address in the table.
    #[inline(always)]
    const fn second(self, ret: u64) -> usize {
        ((ret as u32).wrapping_mul(self.factor) >> (self.shift & 31)) as usize
    }

    /// Whether a slot is at its first place in a table.
    pub fn is_at_first(self, slots: &[Slot], slot: Slot) -> bool {
        slots.get(self.first(slot.ret.into())) == Some(&slot)
    }

    /// Puts a slot into a table, moving others to their other places if it has to. `false`: the table is to
    /// be made anew, with the next try.
    pub fn put(self, slots: &mut [Slot], mut slot: Slot) -> bool {
        let mut at = self.first(slot.ret.into());
        if slots[at].ret != 0 {
            at = self.second(slot.ret.into());
        }
        for _ in 0..MOVES {
            core::mem::swap(&mut slots[at], &mut slot);
            if slot.ret == 0 {
                return true;
            }
            let (first, second) = (self.first(slot.ret.into()), self.second(slot.ret.into()));
            at = if first == at { second } else { first };
        }
        false
    }
}

/// The memory that both native stacks are in.
pub trait Memory {
    /// The word at an address.
    fn read(&self, at: u64) -> u64;
    /// Changes the word at an address.
    fn write(&mut self, at: u64, value: u64);
    /// Keeps a word for [`kept`](Memory::kept); `n` is below [`KEPT`].
    fn keep(&mut self, n: usize, word: u64);
    /// The word that has been kept under this number.
    fn kept(&self, n: usize) -> u64;

    /// Changes the word at an address, unless it is that already: most records are as the last migration
    /// has left them, and then their lines stay where they are, in the caches of both sides.
    #[inline(always)]
    fn set(&mut self, at: u64, value: u64) {
        if self.read(at) != value {
            self.write(at, value);
        }
    }
}

/// The sites of one ISA as the source.
#[derive(Clone, Copy, Debug)]
pub struct Sites<'a> {
    slots: &'a [u64],
    places: Places,
}

/// Why a stack cannot be transformed. It is as it was, and of the other one nothing counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A return address that is in no table: a function on the stack was not transformed.
    UnknownReturn(u64),
    /// The chain of frame records ends too early or too late.
    Broken(u64),
    /// The frames leave less than [`HEADROOM`] of the other stack.
    TooDeep,
}

/// Where a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// Number of frames.
    pub frames: u64,
}

impl<'a> Sites<'a> {
    /// The sites of a table with the ISA of index `source` as the source. `None` if it is no table.
    #[inline(always)]
    pub fn of(table: &'a [u64], source: usize) -> Option<Sites<'a>> {
        let (&[magic, capacity, places, _], slots) = table.split_first_chunk()?;
        let places = Places::of_word(places, capacity)?;
        let per_isa = usize::try_from(capacity).ok()?.checked_mul(SLOT_WORDS)?;
        let start = per_isa.checked_mul(source)?;
        let slots = slots.get(start..start.checked_add(per_isa)?)?;
        (magic == MAGIC).then_some(Sites { slots, places })
    }

    /// What a return address is on the other ISA: for [`target`].
    #[inline(always)]
    fn find(&self, ret: u64) -> Option<u64> {
        let (slots, _) = self.slots.as_chunks::<SLOT_WORDS>();
        let &[looked_for, found] = slots.get(self.places.first(ret))?;
        if looked_for == ret {
            return Some(found);
        }
        let &[looked_for, found] = slots.get(self.places.second(ret))?;
        (looked_for == ret).then_some(found)
    }
}

/// Walks on from the frame of number [`KEPT`]. A function of its own leaves more registers to the loop in [`transform`].
/// Gives the frame, return address, room and number of frames at the end, and what the table says of that return address.
#[cold]
#[inline(never)]
fn walk_on(
    sites: &Sites<'_>,
    memory: &impl Memory,
    (mut frame, mut back): (u64, u64),
    mut room: u64,
    most: u64,
) -> Result<(u64, u64, u64, usize, u64), Fault> {
    let mut frames = KEPT;
    loop {
        let found = sites.find(back).ok_or(Fault::UnknownReturn(back))?;
        let (_, step) = target(found);
        // Bounds the walk: from here on every frame takes some room.
        if step < 16 || room + step > most || frame == 0 {
            return Ok((frame, back, room, frames, found));
        }
        room += step;
        frames += 1;
        back = memory.read(frame.wrapping_add(8));
        frame = memory.read(frame);
    }
}

/// Lays out the frames from number [`KEPT`] on. The record of the first one is `at`, and is written to `record`. Gives the
/// address of the last record.
#[cold]
#[inline(never)]
fn lay_out_on(
    sites: &Sites<'_>,
    memory: &mut impl Memory,
    mut at: (u64, u64),
    frames: usize,
    mut record: u64,
) -> Result<u64, Fault> {
    for n in KEPT..frames {
        if n > KEPT {
            at = (memory.read(at.0), memory.read(at.0 + 8));
        }
        let found = sites.find(at.1);
        record = write_record(memory, record, found.ok_or(Fault::UnknownReturn(at.1))?);
    }
    Ok(record)
}

/// Writes the record of a frame: the return address that was `found`, and the address of the caller's record. Gives that
/// address.
#[inline(always)]
fn write_record(memory: &mut impl Memory, record: u64, found: u64) -> u64 {
    let (other, step) = target(found);
    memory.set(record + 8, other);
    memory.set(record, record + step);
    record + step
}

/// How a thread goes on that keeps its stack, on a node of its own ISA where another kernel thread waits: at `ret`, with the
/// frame pointer `fp`.
///
/// `sites` are those of this ISA as the source, `back` those of the other ISA. Nothing is written.
///
/// # Errors
///
/// See [`Fault`]: a thread that could not go to the other ISA does not go to this one either.
pub fn stay(
    sites: &Sites<'_>,
    back: &Sites<'_>,
    memory: &impl Memory,
    (fp, ret): (u64, u64),
) -> Result<Landing, Fault> {
    let there = |ret| sites.find(ret).map(target).ok_or(Fault::UnknownReturn(ret));
    let (other, _) = there(ret)?;
    let (pc, step) = back.find(other).map(target).ok_or(Fault::Broken(ret))?;
    let (mut frame, mut at, mut frames) = (fp, ret, 0);
    loop {
        let (_, step) = there(at)?;
        if step == u64::from(BASE) {
            break;
        }
        // Bounds the walk: callers' frames lie above.
        if frame == 0 {
            return Err(Fault::Broken(at));
        }
        let outer = memory.read(frame);
        if outer != 0 && outer <= frame {
            return Err(Fault::Broken(at));
        }
        at = memory.read(frame + 8);
        frame = outer;
        frames += 1;
    }
    match frame == 0 && frames != 0 && pc == ret {
        true => Ok(Landing {
            pc,
            sp: fp + 16 - step,
            fp,
            frames,
        }),
        false => Err(Fault::Broken(at)),
    }
}

/// Lays out the frames of a thread on its other stack, which is `size` bytes below `top`.
///
/// `fp` is the frame pointer at a migration point and `ret` where that returns to. Nothing above the
/// lowest record that is written is read afterwards, and nothing but records is written, and of these only
/// what is not there already.
///
/// # Errors
///
/// See [`Fault`].
#[inline]
pub fn transform(
    sites: &Sites<'_>,
    memory: &mut impl Memory,
    (fp, ret): (u64, u64),
    (top, size): (u64, u64),
) -> Result<Landing, Fault> {
    // How much room the frames take decides where the innermost one is.
    let most = size.saturating_sub(HEADROOM);
    let (mut frame, mut back, mut room, mut frames) = (fp, ret, 0u64, 0usize);
    let mut beyond = (0, 0);
    let last = loop {
        let found = sites.find(back).ok_or(Fault::UnknownReturn(back))?;
        if frames == KEPT {
            beyond = (frame, back);
            let last;
            (frame, back, room, frames, last) = walk_on(sites, memory, beyond, room, most)?;
            break last;
        }
        memory.keep(frames, found);
        let (_, step) = target(found);
        // The base has the largest step of all, which fits no stack.
        if room + step > most || frame == 0 {
            break found;
        }
        room += step;
        frames += 1;
        back = memory.read(frame.wrapping_add(8));
        frame = memory.read(frame);
    };
    let (base, step) = target(last);
    if step != u64::from(BASE) {
        return Err(match frame {
            0 => Fault::Broken(back),
            _ => Fault::TooDeep,
        });
    }
    if frame != 0 || frames == 0 {
        return Err(Fault::Broken(back));
    }
    let sp = top - room;
    let (pc, step) = target(memory.kept(0));
    let first = sp + step - 16;
    // Where the next frame's record goes: right below its CFA.
    let mut record = first;
    for n in 1..frames.min(KEPT) {
        let found = memory.kept(n);
        record = write_record(memory, record, found);
    }
    if frames > KEPT {
        record = lay_out_on(sites, memory, beyond, frames, record)?;
    }
    // The outermost frame's record ends the chain.
    memory.set(record + 8, base);
    memory.set(record, 0);
    Ok(Landing {
        pc,
        sp,
        fp: first,
        frames: frames as u64,
    })
}
