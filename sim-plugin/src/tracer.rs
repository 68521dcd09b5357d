// SPDX-License-Identifier: GPL-2.0-or-later
//! Traces: everything that a CPU does to memory, written to a file as [`dyad_sim_model::trace`] has it.
//!
//! In strict order a time record holds the number of the turn in which what follows it was done, so that
//! the traces of all machines can be put together exactly as things happened. In parallel order there
//! is no such record, and none could tell.

use std::fs::File;
use std::io::BufWriter;

use dyad_abi::user::PAGE_SIZE;
use dyad_sim_model::coherent::{FlushKind, Kind};
use dyad_sim_model::config::LINE_BYTES;
use dyad_sim_model::trace::{Event, Record, Writer};

use crate::cache::{Line, LineAction, Watched, Watcher};
use crate::maintenance::LineOp;

const LINE: u64 = LINE_BYTES;
const PAGE: u64 = PAGE_SIZE;
/// Traces are written in pieces of this many bytes.
const BUFFER: usize = 1 << 20;

/// Writes the trace of a CPU.
pub struct Tracer {
    /// `None` once it is finished, or could not be written.
    to: Option<Writer<BufWriter<File>>>,
    path: String,
    node: usize,
    cpu: usize,
}

impl Tracer {
    /// A trace in a new file, which begins with `text`.
    ///
    /// # Errors
    ///
    /// A sentence, if it cannot be written.
    pub fn new(path: &str, text: &str, node: usize, cpu: usize) -> Result<Tracer, String> {
        let to = File::create(path)
            .and_then(|file| Writer::new(BufWriter::with_capacity(BUFFER, file), text))
            .map_err(|e| format!("cannot write the trace {path}: {e}"))?;
        Ok(Tracer {
            to: Some(to),
            path: path.into(),
            node,
            cpu,
        })
    }

    fn write(&mut self, event: Event) {
        let (node, cpu) = (self.node, self.cpu);
        let record = Record { node, cpu, event };
        if let Some(to) = &mut self.to
            && let Err(e) = to.write(&record)
        {
            eprintln!("dyad-sim: the trace {} is cut off: {e}", self.path);
            self.to = None;
        }
    }
}

impl Watcher for Tracer {
    fn access(&mut self, access: &Watched) {
        let (kind, address) = (access.kind, access.physical);
        // Pages that follow each other need not do so in physical memory; the watcher is told of the
        // second one by another call.
        let size = access.bytes.min(PAGE - address % PAGE);
        self.write(Event::Access {
            kind,
            address,
            size,
        });
    }

    fn walk(&mut self, access: &Watched) {
        self.access(access);
    }

    fn fetch(&mut self, lines: &[Line]) {
        for line in lines {
            self.write(Event::Access {
                kind: Kind::Fetch,
                address: line.number * LINE,
                size: 1,
            });
        }
    }

    fn line(&mut self, action: &LineAction, _: u64, physical: u64) {
        let kind = match action.op {
            LineOp::WriteBack => FlushKind::Clean,
            LineOp::Flush | LineOp::Drop => FlushKind::Flush,
            LineOp::Zero => {
                return self.write(Event::Access {
                    kind: Kind::Store,
                    address: physical - physical % LINE,
                    size: LINE,
                });
            }
        };
        self.write(Event::Flush {
            kind,
            address: physical,
        });
    }

    fn everything(&mut self, _: u64, first: bool) {
        if first {
            self.write(Event::Flush {
                kind: FlushKind::Everything,
                address: 0,
            });
        }
    }

    fn turn(&mut self, number: u64) {
        self.write(Event::Time(number));
    }

    fn finish(&mut self) {
        if let Some(Err(e)) = self.to.take().map(Writer::finish) {
            eprintln!("dyad-sim: the trace {} is cut off: {e}", self.path);
        }
    }
}
