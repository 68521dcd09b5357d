//! Taking down what hostile programs have made of their spaces, on a model of page tables.

extern crate std;

use core::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::*;

/// Attempts that a caller makes.
const TRIES: u32 = 50;

/// Tables and pages, by ISA, level and first address; a page has level 0.
#[derive(Default)]
struct Model {
    there: RefCell<BTreeSet<(Isa, u8, u64)>>,
    /// What an operation is refused with, and after how many the next ones are.
    refusal: Cell<Option<Error>>,
    every: Cell<u32>,
    lasts: Cell<u32>,
    operations: Cell<u32>,
    has_a64: bool,
}

const fn size(level: u8) -> u64 {
    PAGE_SIZE << (9 * level as u32)
}

impl Model {
    /// A page at an address, with all tables above it.
    fn map(&self, isa: Isa, va: u64) {
        for level in 0..=4 {
            let start = if level == 4 {
                0
            } else {
                va & !(size(level) - 1)
            };
            self.there.borrow_mut().insert((isa, level, start));
        }
    }

    fn is_refused(&self, isa: Isa) -> Result<()> {
        if isa == Isa::Aarch64 && !self.has_a64 {
            return Err(Error::NoIsa);
        }
        let n = self.operations.get();
        self.operations.set(n + 1);
        match self.refusal.get() {
            Some(e) if n % self.every.get() < self.lasts.get() => Err(e),
            _ => Ok(()),
        }
    }
}

impl Tables for &Model {
    fn unlink(self, at: TableAt, va: u64) -> Result<()> {
        self.is_refused(at.isa)?;
        let mut there = self.there.borrow_mut();
        // Looks for the table above first.
        if at.level < 4 && !there.contains(&(at.isa, 4, 0)) {
            return Err(Error::NoIsa);
        }
        if !there.contains(&(at.isa, at.level, va)) {
            return Err(Error::NotFound);
        }
        let end = if at.level == 4 {
            u64::MAX
        } else {
            va + size(at.level)
        };
        let below = (at.isa, at.level - 1, va)..(at.isa, at.level - 1, end);
        if there.range(below).next().is_some() {
            return Err(Error::Exists);
        }
        there.remove(&(at.isa, at.level, va));
        Ok(())
    }

    fn unmap(self, at: TableAt, va: u64) -> Result<()> {
        self.is_refused(at.isa)?;
        match self.there.borrow_mut().remove(&(at.isa, 0, va)) {
            true => Ok(()),
            false => Err(Error::BadAddress),
        }
    }
}

/// Waits so often.
struct Waits(u32);

impl Patience for Waits {
    fn pause(&mut self) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(Error::TimedOut)?;
        Ok(())
    }
}

/// A space of a program that has mapped pages in odd places.
fn hostile(has_a64: bool) -> Model {
    let model = Model {
        has_a64,
        ..Model::default()
    };
    let top = USER_END - PAGE_SIZE;
    for (isa, va) in [
        (Isa::X86_64, 0x1_0000),
        (Isa::X86_64, 0x4000_0000),
        (Isa::X86_64, 0x401f_f000),
        (Isa::X86_64, top),
        (Isa::Aarch64, 0x7fff_0000_0000),
        (Isa::Aarch64, top),
    ] {
        if has_a64 || isa == Isa::X86_64 {
            model.map(isa, va);
        }
    }
    // Tables without pages.
    for level in 1..=3 {
        let va = 0x80_0000_0000;
        model.there.borrow_mut().insert((Isa::X86_64, level, va));
    }
    model
}

#[test]
fn nothing_is_left_of_a_space_however_often_others_are_in_the_way() {
    for has_a64 in [true, false] {
        for refusal in [None, Some(Error::Again), Some(Error::NotReady)] {
            for (every, lasts) in [(2, 1), (7, 3), (TRIES + 20, TRIES)] {
                let model = hostile(has_a64);
                model.refusal.set(refusal);
                model.every.set(every);
                model.lasts.set(lasts);
                let done = clear_space(&|| Waits(TRIES), &model);
                assert_eq!(done, Ok(()), "{refusal:?}, {lasts} of {every}");
                assert!(model.there.borrow().is_empty(), "{:x?}", model.there);
            }
        }
    }
}

#[test]
fn what_stays_in_the_way_is_told_and_not_passed_over() {
    for refusal in [Error::Again, Error::NotReady] {
        let model = hostile(true);
        model.refusal.set(Some(refusal));
        model.every.set(u32::MAX);
        model.lasts.set(u32::MAX);
        let done = clear_space(&|| Waits(TRIES), &model);
        assert_eq!(done, Err(Error::TimedOut));
        assert_eq!(model.operations.get(), TRIES + 1);
    }
    let model = hostile(true);
    model.refusal.set(Some(Error::Corrupt));
    model.every.set(40);
    model.lasts.set(1);
    model.operations.set(1);
    let done = clear_space(&|| Waits(TRIES), &model);
    assert_eq!(done, Err(Error::Corrupt));
}
