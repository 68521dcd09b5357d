//! The sending half of a [`Station`].

use super::*;

impl<W: Words, H: Host> Station<W, H> {
    fn ring_of(&self, to: usize, ring: usize, bytes: usize) -> Result<usize, Error> {
        if to >= self.config.stations {
            return Err(Error::NotFound);
        }
        if bytes > MAX_MESSAGE_BYTES {
            return Err(Error::TooLarge);
        }
        Ok(to * RINGS + ring)
    }

    fn visible_at(&self, bytes: usize) -> u64 {
        match self.config.delay.of(bytes) {
            0 => 0,
            delay => self.host.now().saturating_add(delay),
        }
    }

    /// Pushes all records of a message, or none.
    fn push(&mut self, to: usize, ring: usize, message: &Message<'_>) -> Result<(), Error> {
        let n = self.ring_of(to, ring, message.bytes.len())?;
        let lines = message.lines();
        if lines > self.config.lines {
            return Err(Error::TooLarge);
        }
        self.check(to)?;
        let producer = &mut self.to[n];
        let full = |e| match e {
            RingError::Full => Error::Full,
            RingError::Corrupt => Error::Corrupt { station: to },
        };
        producer.reserve(&self.w, lines).map_err(full)?;
        let visible_at = self.visible_at(message.bytes.len());
        for (header, part) in message.records(visible_at) {
            self.to[n].push(&self.w, &header, part).map_err(full)?;
        }
        self.sent(to, message.bytes.len());
        Ok(())
    }

    fn sent(&mut self, to: usize, bytes: usize) {
        self.tell(to);
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes as u64;
    }

    /// Sends a message, if there is room for all of it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if not; [`Error::TooLarge`], [`Error::NotFound`], [`Error::Closed`],
    /// [`Error::NodeDead`], [`Error::Corrupt`].
    pub fn try_send(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let message = Message {
            kind: Kind::Message,
            id: 0,
            tag,
            bytes,
        };
        self.push(to, level as usize, &message)
    }

    /// Asks to be told when there is room for a message that found none. Try once more afterwards,
    /// before you wait.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::TooLarge`], [`Error::Closed`], [`Error::NodeDead`].
    pub fn want_room(&mut self, to: usize, level: Level, bytes: usize) -> Result<(), Error> {
        let n = self.ring_of(to, level as usize, bytes)?;
        self.check(to)?;
        let lines = message_lines(bytes).min(self.config.lines);
        self.counters.full_waits += 1;
        self.want(to, n, lines);
        Ok(())
    }

    fn want(&mut self, to: usize, n: usize, lines: u64) {
        self.to[n].want(&self.w, lines);
        self.tell(to);
    }

    /// Sends a message, waiting for room until a point of time (fused, in ns). A large message may
    /// go in several parts; if the rest finds no room in time the receiver drops it.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; and those of [`try_send`](Station::try_send).
    pub fn send(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
        deadline: Option<u64>,
    ) -> Result<(), Error> {
        let message = Message {
            kind: Kind::Message,
            id: 0,
            tag,
            bytes,
        };
        self.push_waiting(to, level as usize, &message, deadline)
    }

    fn push_waiting(
        &mut self,
        to: usize,
        ring: usize,
        message: &Message<'_>,
        deadline: Option<u64>,
    ) -> Result<(), Error> {
        match self.push(to, ring, message) {
            Err(Error::Full | Error::TooLarge) => {}
            done => return done,
        }
        let n = self.ring_of(to, ring, message.bytes.len())?;
        // All at once if that is possible at all: so a message that finds no room is not cut short.
        if message.lines() <= self.config.lines {
            return self.when_there_is_room(to, n, message.lines(), deadline, |s| {
                s.push(to, ring, message)
            });
        }
        self.check(to)?;
        let visible_at = self.visible_at(message.bytes.len());
        for (header, part) in message.records(visible_at) {
            self.when_there_is_room(to, n, header.lines(), deadline, |s| {
                s.check(to)?;
                s.to[n].push(&s.w, &header, part).map_err(|e| match e {
                    RingError::Full => Error::Full,
                    RingError::Corrupt => Error::Corrupt { station: to },
                })
            })?;
            self.tell(to);
        }
        self.sent(to, message.bytes.len());
        Ok(())
    }

    /// Tries until it is not [`Error::Full`].
    fn when_there_is_room(
        &mut self,
        to: usize,
        n: usize,
        lines: u64,
        deadline: Option<u64>,
        mut push: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match push(self) {
            Err(Error::Full) => {}
            done => return done,
        }
        self.counters.full_waits += 1;
        let outcome = loop {
            self.want(to, n, lines);
            match push(self) {
                Err(Error::Full) => {}
                done => break done,
            }
            let until = match self.check(to).and_then(|()| self.in_time(deadline)) {
                Ok(until) => until,
                Err(e) => break Err(e),
            };
            // Replies to others of this thread must not stand in the way of the one it waits for.
            self.look();
            self.next_visible = u64::MAX;
            self.take_replies();
            match push(self) {
                Err(Error::Full) => self.wait(until),
                done => break done,
            }
        };
        self.to[n].want(&self.w, 0);
        outcome
    }

    /// Begins a call: sends a message that is to be answered, if there is room, and returns the call's
    /// number. Poll for the answer with [`take_reply`](Station::take_reply), or [`cancel`](Station::cancel)
    /// the call.
    ///
    /// # Errors
    ///
    /// Those of [`try_send`](Station::try_send).
    pub fn begin_call(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
    ) -> Result<u64, Error> {
        let message = Message {
            kind: Kind::Call,
            id: self.next_id,
            tag,
            bytes,
        };
        self.push(to, level as usize, &message)?;
        Ok(self.note_call(to))
    }

    fn note_call(&mut self, to: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.calls.push((id, to));
        id
    }

    /// Sends a message and waits for its answer, whose contents replace those of `reply`.
    ///
    /// # Errors
    ///
    /// As [`send`](Station::send).
    pub fn call(
        &mut self,
        to: usize,
        level: Level,
        tag: u64,
        bytes: &[u8],
        reply: &mut Vec<u8>,
        deadline: Option<u64>,
    ) -> Result<Envelope, Error> {
        let message = Message {
            kind: Kind::Call,
            id: self.next_id,
            tag,
            bytes,
        };
        // Noted first: while it waits for room for the rest of it, the answer may come.
        let id = self.note_call(to);
        let sent = self.push_waiting(to, level as usize, &message, deadline);
        let answer = sent.and_then(|()| self.wait_for_reply(to, id, reply, deadline));
        self.cancel(id);
        answer
    }

    fn wait_for_reply(
        &mut self,
        to: usize,
        id: u64,
        reply: &mut Vec<u8>,
        deadline: Option<u64>,
    ) -> Result<Envelope, Error> {
        loop {
            if let Some(envelope) = self.take_reply(id, reply)? {
                return Ok(envelope);
            }
            if self.broken >> to & 1 != 0 {
                return Err(Error::Corrupt { station: to });
            }
            let until = self.in_time(deadline)?;
            if let Err(e) = self.check(to) {
                // What it has said before is still there.
                return self.take_reply(id, reply)?.ok_or(e);
            }
            self.wait(until.min(self.next_visible));
        }
    }

    /// Gives a call up: its answer is dropped when it comes.
    pub fn cancel(&mut self, id: u64) {
        self.calls.retain(|c| c.0 != id);
        self.replies.retain(|r| r.envelope.id != id);
    }

    /// Answers a call, if there is room.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if the message was no call; and those of [`try_send`](Station::try_send).
    pub fn try_reply(&mut self, call: &Envelope, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        let message = Message::answer(call, tag, bytes)?;
        self.push(call.from, REPLY, &message)
    }

    /// Answers a call, waiting for room until a point of time.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if the message was no call; and those of [`send`](Station::send).
    pub fn reply(
        &mut self,
        call: &Envelope,
        tag: u64,
        bytes: &[u8],
        deadline: Option<u64>,
    ) -> Result<(), Error> {
        let message = Message::answer(call, tag, bytes)?;
        self.push_waiting(call.from, REPLY, &message, deadline)
    }

    /// Makes this station the writer of a group, until the station is closed or dead. A group has one writer.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Denied`] if another station is the writer.
    pub fn open_group(&mut self, group: usize) -> Result<(), Error> {
        if group >= self.config.groups {
            return Err(Error::NotFound);
        }
        let place = self.config.group(group);
        match place.writer(&self.w) {
            Some(other)
                if other != self.own
                    && other < self.config.stations
                    && self.check(other).is_ok() =>
            {
                return Err(Error::Denied);
            }
            Some(_) if self.written.iter().any(|x| x.group == group) => return Ok(()),
            _ => {}
        }
        let writer = Writer::attach(&self.w, place, self.own);
        self.written.push(Written { group, writer });
        Ok(())
    }

    /// Writes a message to a group, once for all its members, if the slowest one has made room.
    /// Members whose nodes are dead are put out. Gives the number of members.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if not; [`Error::TooLarge`], [`Error::NotFound`], [`Error::Denied`].
    pub fn try_multicast(&mut self, group: usize, tag: u64, bytes: &[u8]) -> Result<u32, Error> {
        self.multicast_or_blocked(group, tag, bytes)?
            .map_err(|_| Error::Full)
    }

    fn multicast_or_blocked(
        &mut self,
        group: usize,
        tag: u64,
        bytes: &[u8],
    ) -> Result<Result<u32, u64>, Error> {
        if bytes.len() > MAX_MESSAGE_BYTES || message_lines(bytes.len()) > self.config.group_lines {
            return Err(Error::TooLarge);
        }
        let visible_at = self.visible_at(bytes.len());
        let message = Message {
            kind: Kind::Message,
            id: 0,
            tag,
            bytes,
        };
        let Some(at) = self.written.iter().position(|x| x.group == group) else {
            return Err(if group < self.config.groups {
                Error::Denied
            } else {
                Error::NotFound
            });
        };
        let members = stations(self.written[at].writer.members(&self.w));
        let dead = members
            .filter(|&s| s < self.config.stations && self.is_dead(s))
            .fold(0, |dead, s| dead | 1 << s);
        if dead != 0 {
            self.put_out(group, dead);
        }
        let g = &mut self.written[at];
        if let Err(blocked) = g.writer.reserve(&self.w, message.lines()) {
            return Ok(Err(blocked.by));
        }
        let mut members = 0;
        for (header, part) in message.records(visible_at) {
            match g.writer.push(&self.w, &header, part) {
                // Who has joined between two parts gets the rest only, and drops it.
                Ok(now) => members |= now,
                Err(blocked) => return Ok(Err(blocked.by)),
            }
        }
        for s in stations(members & ((1 << self.config.stations) - 1)) {
            self.tell(s);
        }
        self.counters.multicasts += 1;
        self.counters.multicast_members += u64::from(members.count_ones());
        Ok(Ok(members.count_ones()))
    }

    /// Writes a message to a group, and waits until the deadline for slow members. Members whose nodes are
    /// dead or whose stations are closed are removed from the group. At the deadline members that are too
    /// slow are removed as well, and the message is written.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::NotFound`], [`Error::Denied`]; [`Error::Full`] if a new member joins at
    /// each attempt.
    pub fn multicast(
        &mut self,
        group: usize,
        tag: u64,
        bytes: &[u8],
        deadline: Option<u64>,
    ) -> Result<u32, Error> {
        let mut late = 0;
        loop {
            let by = match self.multicast_or_blocked(group, tag, bytes)? {
                Ok(members) => return Ok(members),
                Err(by) => by,
            };
            let timely = self.in_time(deadline);
            let out = stations(by)
                .filter(|&s| timely.is_err() || s >= self.config.stations || self.check(s).is_err())
                .fold(0, |out, s| out | 1 << s);
            if out != 0 {
                self.put_out(group, out);
            }
            let Ok(until) = timely else {
                late += 1;
                if late > 2 {
                    return Err(Error::Full);
                }
                continue;
            };
            if out != 0 {
                continue;
            }
            self.counters.full_waits += 1;
            if let Some(g) = self.written.iter_mut().find(|x| x.group == group) {
                g.writer.want(&self.w, message_lines(bytes.len()));
            }
            stations(by).for_each(|s| self.tell(s));
            self.look();
            self.next_visible = u64::MAX;
            self.take_replies();
            if let Ok(members) = self.multicast_or_blocked(group, tag, bytes)? {
                return Ok(members);
            }
            self.wait(until);
        }
    }

    /// Puts members, by bit, out of a group that this station writes.
    pub fn put_out(&mut self, group: usize, members: u64) {
        if let Some(g) = self.written.iter_mut().find(|x| x.group == group) {
            let there = g.writer.members(&self.w) & members;
            g.writer.put_out(&self.w, members);
            self.counters.put_out += u64::from(there.count_ones());
        }
    }
}

/// Lines that a message of `bytes` bytes takes.
fn message_lines(bytes: usize) -> u64 {
    let whole = (bytes / MAX_RECORD_BYTES) as u64;
    match bytes % MAX_RECORD_BYTES {
        0 if whole > 0 => whole * record_lines(MAX_RECORD_BYTES),
        rest => whole * record_lines(MAX_RECORD_BYTES) + record_lines(rest),
    }
}

/// A message to be sent.
struct Message<'a> {
    kind: Kind,
    id: u64,
    tag: u64,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    fn answer(call: &Envelope, tag: u64, bytes: &'a [u8]) -> Result<Message<'a>, Error> {
        if call.kind != Kind::Call {
            return Err(Error::Denied);
        }
        Ok(Message {
            kind: Kind::Reply,
            id: call.id,
            tag,
            bytes,
        })
    }

    fn lines(&self) -> u64 {
        message_lines(self.bytes.len())
    }

    /// The records it is sent as: one at least.
    fn records(&self, visible_at: u64) -> impl Iterator<Item = (Header, &'a [u8])> + use<'a> {
        let (kind, id, tag, bytes) = (self.kind, self.id, self.tag, self.bytes);
        let count = bytes.len().div_ceil(MAX_RECORD_BYTES).max(1);
        (0..count).map(move |n| {
            let start = n * MAX_RECORD_BYTES;
            let part = &bytes[start..bytes.len().min(start + MAX_RECORD_BYTES)];
            let first = if n == 0 { Header::FIRST } else { 0 };
            let more = if n + 1 < count { Header::MORE } else { 0 };
            let header = Header {
                flags: first | more,
                visible_at,
                ..Header::new(kind, id, tag, part.len())
            };
            (header, part)
        })
    }
}
