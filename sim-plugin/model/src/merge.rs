//! Puts the traces of all machines of a run in strict order together, exactly as things happened.
//!
//! In strict order one CPU runs at a time, and turns have numbers. A machine's trace says by a time
//! record in which turn what follows was done, so the records of all machines are those of the first
//! turn, then those of the second, and so on.

use std::io::Read;

use crate::trace::{Event, Reader, Record, TraceError};

struct Source<R: Read> {
    records: Reader<R>,
    /// The turn of what is next.
    turn: u64,
    /// The next record that is none of a turn; `None` at the end.
    next: Option<Result<Record, TraceError>>,
}

impl<R: Read> Source<R> {
    fn advance(&mut self) {
        loop {
            self.next = self.records.next();
            match self.next {
                Some(Ok(Record {
                    event: Event::Time(turn),
                    ..
                })) => self.turn = turn,
                _ => return,
            }
        }
    }
}

/// The records of all traces, in the order of their turns. Records of turns are left out.
pub struct Merged<R: Read> {
    sources: Vec<Source<R>>,
}

impl<R: Read> Merged<R> {
    /// Traces of different machines of one run.
    pub fn new(traces: impl IntoIterator<Item = Reader<R>>) -> Merged<R> {
        let sources = traces.into_iter().map(|records| {
            let mut source = Source {
                records,
                turn: 0,
                next: None,
            };
            source.advance();
            source
        });
        Merged {
            sources: sources.collect(),
        }
    }
}

impl<R: Read> Iterator for Merged<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let with_more = self.sources.iter_mut().filter(|s| s.next.is_some());
        let first = with_more.min_by_key(|s| s.turn)?;
        let record = first.next.take();
        first.advance();
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherent::Kind;
    use crate::trace::Writer;

    fn trace(node: usize, parts: &[(u64, &[u64])]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), "").unwrap();
        for (turn, addresses) in parts {
            let time = Event::Time(*turn);
            let accesses = addresses.iter().map(|&address| Event::Access {
                kind: Kind::Load,
                address,
                size: 8,
            });
            for event in [time].into_iter().chain(accesses) {
                let cpu = 0;
                writer.write(&Record { node, cpu, event }).unwrap();
            }
        }
        writer.finish().unwrap()
    }

    #[test]
    fn records_come_in_the_order_of_turns() {
        let a = trace(0, &[(1, &[10, 11]), (4, &[]), (5, &[12])]);
        let b = trace(1, &[(2, &[20]), (3, &[21, 22]), (6, &[23])]);
        let readers = [&a[..], &b[..]].map(|bytes| Reader::new(bytes).unwrap());
        let merged = Merged::new(readers).map(|r| match r.unwrap().event {
            Event::Access { address, .. } => address,
            other => panic!("{other:?}"),
        });
        assert_eq!(merged.collect::<Vec<_>>(), [10, 11, 20, 21, 22, 12, 23]);
    }

    #[test]
    fn what_is_cut_off_is_said_in_its_place() {
        let a = trace(0, &[(1, &[10]), (3, &[11, 12])]);
        let b = trace(1, &[(2, &[20])]);
        let cut = &a[..a.len() - 3];
        let readers = [cut, &b[..]].map(|bytes| Reader::new(bytes).unwrap());
        let all: Vec<_> = Merged::new(readers).collect();
        assert_eq!(all.len(), 4);
        assert!(all[..3].iter().all(Result::is_ok));
        assert!(matches!(all[3], Err(TraceError::CutOff { .. })));
    }
}
