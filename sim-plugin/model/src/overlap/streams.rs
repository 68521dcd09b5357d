//! Streams of lines, which are asked for before they are needed.

use std::collections::VecDeque;

const LINES_OF_PAGE: u64 = 64;

/// A stream: lines of one page, each as far from the last one.
#[derive(Debug)]
struct Stream {
    last: u64,
    stride: i64,
    /// How often the stride has been seen.
    seen: u32,
    /// When the last lines had come and were used, since the stream is known: the first of them makes room for the next one.
    times: VecDeque<u64>,
}

/// The streams that a CPU notices.
#[derive(Debug)]
pub(super) struct Streams {
    most: usize,
    ahead: usize,
    /// The one that was used last is the last.
    all: Vec<Stream>,
    line: u64,
}

impl Streams {
    pub(super) fn new(most: u64, ahead: u64) -> Self {
        Self {
            most: most as usize,
            ahead: ahead as usize,
            all: Vec::new(),
            line: u64::MAX,
        }
    }

    /// A line is accessed that takes this long. Gives when it was asked for, if that was before it was accessed.
    pub(super) fn see(&mut self, line: u64, now: u64, time: u64) -> Option<u64> {
        if self.most == 0 || line == self.line {
            return None;
        }
        self.line = line;
        let page = |line: u64| line / LINES_OF_PAGE;
        let near = |s: &Stream| page(s.last) == page(line);
        // The one that the line continues, or one of the same page that does not know yet where it leads.
        let continues = |s: &Stream| s.seen > 0 && s.last.wrapping_add_signed(s.stride) == line;
        let mut found = self.all.iter().position(|s| near(s) && continues(s));
        if found.is_none() {
            found = self.all.iter().position(|s| near(s) && s.seen < 2);
        }
        let Some(at) = found else {
            if self.all.len() == self.most {
                self.all.remove(0);
            }
            self.all.push(Stream {
                last: line,
                stride: 0,
                seen: 0,
                times: VecDeque::new(),
            });
            return None;
        };
        let mut stream = self.all.remove(at);
        let stride = line.wrapping_sub(stream.last).cast_signed();
        if stride == 0 {
            self.all.push(stream);
            return None;
        }
        (stream.seen, stream.stride) = match stride == stream.stride {
            true => (stream.seen + 1, stride),
            false => (1, stride),
        };
        stream.last = line;
        let asked = match stream.seen {
            0..2 => None,
            2 => {
                // It is known from here on.
                stream.times.push_back(now);
                None
            }
            _ => {
                let asked = stream.times.front().copied();
                let comes = asked.map_or(0, |asked| asked + time);
                stream.times.push_back(comes.max(now));
                if stream.times.len() > self.ahead {
                    stream.times.pop_front();
                }
                asked
            }
        };
        self.all.push(stream);
        asked
    }
}
