//! Text of the process: from where the console is not, it is sent to where it is.

use core::sync::atomic::Ordering;

use dyad_abi::service::slot::CONSOLE;
use dyad_abi::service::{CONSOLE_THREADS, ReportText, console};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_msg::bulk::Record;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Sinv};

use super::asks::Asker;
use super::{Actor, Vec};
use crate::port::{kind, tag};
use crate::service::{BUFFER_WORDS, console_buffer};

/// The bytes that an operation of the console is about, within one buffer. Refused as the console refuses it.
fn text_len(what: u64, offset: u64, len: u64) -> Result<u64> {
    let len = match what {
        console::WRITE if len > PAGE_SIZE => return Err(Error::TooLarge),
        console::WRITE => len,
        console::REPORT => size_of::<ReportText>() as u64,
        console::END => return Err(Error::Denied),
        _ => return Err(Error::BadArgument),
    };
    let is_inside = offset < CONSOLE_THREADS * PAGE_SIZE && offset % PAGE_SIZE + len <= PAGE_SIZE;
    match is_inside && offset.is_multiple_of(8) {
        true => Ok(len),
        false => Err(Error::BadArgument),
    }
}

impl Actor {
    /// A thread of the process writes or reports.
    pub(super) fn text(&mut self, asker: Asker, [what, offset, len]: [u64; 3]) {
        let Some(to) = rt::info().ok().and_then(|i| NodeId::new(i.console_node)) else {
            return self.answer(asker, Err(Error::Corrupt));
        };
        let bytes = match text_len(what, offset, len) {
            Ok(bytes) => bytes,
            Err(e) => return self.answer(asker, Err(e)),
        };
        let first = (offset / 8) as usize;
        let words = console_buffer()[first..].iter();
        let words: Vec<u64> = words
            .take(bytes.div_ceil(8) as usize)
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let lines = tag(kind::TEXT, bytes.div_ceil(64));
        let Asker { n, number, .. } = asker;
        if self.deaths.has(to) {
            return self.answer(asker, Err(Error::NodeDead));
        }
        self.asks.passed_on(asker, to);
        self.send(to, [lines, n, what, offset, len, number, 0, 0], &words);
    }

    /// Text has come for the console here. The buffer with the same number is the thread's in all processes.
    pub(super) fn text_has_come(&mut self, link: usize, record: &Record) {
        let [_, n, what, offset, len, number, ..] = record.head;
        let from = &self.outside.links[link];
        let node = from.node;
        let done = text_len(what, offset, len).and_then(|_| {
            let first = (offset / 8) as usize;
            let to = console_buffer();
            from.receiver.copy(&from.back, record, |i, word| {
                if i < (PAGE_SIZE / 8) as usize && first + i < BUFFER_WORDS {
                    to[first + i].store(word, Ordering::Relaxed);
                }
            });
            Cap::<Sinv>::at(CONSOLE).request([what, offset, len, 0])
        });
        self.answer(Asker { node, n, number }, done);
    }
}
