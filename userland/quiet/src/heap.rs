//! The lines of one writer: which are free, and which will be when older sections have ended. What is known here is the writer's
//! own, in its own memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;

use crate::block::{Blocks, PAYLOAD, Ref};
use crate::section::Sections;

/// Why there is no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapError {
    /// A block of so many words is longer than any.
    TooLarge,
    /// There is no room now, but there will be: blocks have been retired.
    Again,
    /// There is no room.
    Full,
}

/// Lines of a block with a payload of so many words.
pub const fn lines_for(words: usize) -> u64 {
    let lines = words.div_ceil(PAYLOAD);
    if lines == 0 { 1 } else { lines as u64 }
}

/// The longest block, in lines: 4 KiB and what describes them.
pub const LONGEST: u64 = 96;

#[derive(Clone, Copy, Debug)]
struct Retired {
    epoch: u64,
    first: u64,
    lines: u64,
}

/// The lines of a writer.
#[derive(Debug)]
pub struct Heap {
    blocks: Blocks,
    sections: Sections,
    writer: NodeId,
    /// Free lines: length by first line. No two of these ranges touch.
    free: BTreeMap<u64, u64>,
    /// The same, by length.
    by_length: BTreeSet<(u64, u64)>,
    retired: VecDeque<Retired>,
    retired_lines: u64,
    free_lines: u64,
    /// The last stamp of each line that has been used, by its number.
    stamps: Vec<u32>,
}

impl Heap {
    /// The heap of `writer`, with the lines `range` of `blocks`, none of which is in use.
    pub fn new(
        blocks: Blocks,
        sections: Sections,
        writer: NodeId,
        range: core::ops::Range<u64>,
    ) -> Heap {
        assert!(range.start > 0 && range.end <= blocks.lines() + 1);
        let mut heap = Heap {
            blocks,
            sections,
            writer,
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            retired: VecDeque::new(),
            retired_lines: 0,
            free_lines: 0,
            stamps: Vec::new(),
        };
        heap.put(range.start, range.end - range.start);
        heap
    }

    /// Lines that can be had now, though perhaps not in one piece, and lines that have been retired and are not free yet.
    pub fn room(&self) -> (u64, u64) {
        (self.free_lines, self.retired_lines)
    }

    /// Publishes a block.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub fn publish(&mut self, mem: &impl GlobalMem, payload: &[u64]) -> Result<Ref, HeapError> {
        let lines = lines_for(payload.len());
        if lines > LONGEST {
            return Err(HeapError::TooLarge);
        }
        let first = self.take(lines).ok_or(match self.retired.is_empty() {
            true => HeapError::Full,
            false => HeapError::Again,
        })?;
        let stamp = self.next_stamp(first, lines);
        Ok(self.blocks.publish(mem, (first, lines), stamp, payload))
    }

    /// A stamp that none of these lines has had lately: one more than the largest.
    fn next_stamp(&mut self, first: u64, lines: u64) -> u64 {
        let stamps = self.stamps_of(first, lines);
        let next = stamps.iter().max().map_or(1, |s| s.wrapping_add(1));
        stamps.fill(next);
        u64::from(next)
    }

    fn stamps_of(&mut self, first: u64, lines: u64) -> &mut [u32] {
        let range = first as usize..(first + lines) as usize;
        if self.stamps.len() < range.end {
            self.stamps.resize(range.end, 0);
        }
        &mut self.stamps[range]
    }

    /// Takes the lines of a heap over that is no more, because its node has died or begins another life. `in_use` has the blocks
    /// that roots lead to, and how many words they have; they can be retired here. The rest is free when its readers have gone on.
    ///
    /// The roots that lead to these lines are this node's to change, and it has not begun to.
    pub fn adopt(
        &mut self,
        mem: &impl GlobalMem,
        range: core::ops::Range<u64>,
        in_use: impl Iterator<Item = (Ref, usize)>,
    ) {
        for line in range.clone() {
            let stamp = self.blocks.stamp(mem, line);
            self.stamps_of(line, 1).fill(stamp);
        }
        let used = in_use.map(|(block, words)| (block.line(), lines_for(words)));
        let used: BTreeMap<u64, u64> = used.filter(|(first, _)| range.contains(first)).collect();
        let mut next = range.start;
        for (first, lines) in used.into_iter().chain([(range.end, 0)]) {
            if first > next {
                self.retire_lines(mem, next, first - next);
            }
            next = next.max(first + lines);
        }
    }

    /// Takes lines from the shortest range that has so many.
    fn take(&mut self, lines: u64) -> Option<u64> {
        let &(length, first) = self.by_length.range((lines, 0)..).next()?;
        self.remove(first, length);
        if length > lines {
            self.put(first + lines, length - lines);
        }
        Some(first)
    }

    fn remove(&mut self, first: u64, length: u64) {
        self.free.remove(&first);
        self.by_length.remove(&(length, first));
        self.free_lines -= length;
    }

    fn put(&mut self, mut first: u64, mut lines: u64) {
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            self.remove(before, length);
            (first, lines) = (before, lines + length);
        }
        if let Some(&length) = self.free.get(&(first + lines)) {
            self.remove(first + lines, length);
            lines += length;
        }
        if lines != 0 {
            self.free.insert(first, lines);
            self.by_length.insert((lines, first));
            self.free_lines += lines;
        }
    }

    /// A block with a payload of so many words, which no root leads to any more, will be free. The caller has written the
    /// root.
    pub fn retire(&mut self, mem: &impl GlobalMem, block: Ref, words: usize) {
        self.retire_lines(mem, block.line(), lines_for(words));
    }

    fn retire_lines(&mut self, mem: &impl GlobalMem, first: u64, lines: u64) {
        let epoch = self.sections.epoch(mem, self.writer);
        self.retired.push_back(Retired {
            epoch,
            first,
            lines,
        });
        self.retired_lines += lines;
    }

    /// Frees what has no reader on any of these nodes, the live ones, and begins another epoch if something waits. Returns how
    /// many blocks have become free.
    pub fn collect(&mut self, mem: &impl GlobalMem, nodes: impl Iterator<Item = NodeId>) -> usize {
        if self.retired.is_empty() {
            return 0;
        }
        let passed = self.sections.passed(mem, self.writer, nodes);
        let mut freed = 0;
        while let Some(old) = self.retired.front().copied().filter(|r| r.epoch < passed) {
            self.retired.pop_front();
            self.retired_lines -= old.lines;
            self.put(old.first, old.lines);
            freed += 1;
        }
        let newest = self.retired.back().map(|r| r.epoch);
        if newest == Some(self.sections.epoch(mem, self.writer)) {
            self.sections.advance(mem, self.writer);
        }
        freed
    }
}
