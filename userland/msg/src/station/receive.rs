//! The receiving half of a [`Station`].

use super::*;

/// The result of taking a record.
enum Taken {
    /// The end of a message.
    Message(Header),
    /// A part of one, or the rest of one whose beginning is missing.
    Part,
}

impl Partial {
    /// Adds the record to the partial message. The first record of a message drops what was there. `false`:
    /// the record belongs to no message.
    fn begin(&mut self, header: &Header, cut_short: &mut u64) -> bool {
        if header.flags & Header::FIRST != 0 {
            *cut_short += u64::from(self.begun);
            self.bytes.clear();
            self.begun = true;
        }
        self.begun
    }

    /// Completes the step after the contents of a record have been appended.
    fn end(&mut self, header: &Header, limit: usize) -> Option<Taken> {
        if self.bytes.len() > limit {
            return None;
        }
        if header.flags & Header::MORE != 0 {
            return Some(Taken::Part);
        }
        self.begun = false;
        Some(Taken::Message(*header))
    }
}

impl<W: Words, H: Host> Station<W, H> {
    /// Whether a record is to be seen now; if not, notes when it will be. `None` if its time is impossible.
    fn is_visible(&mut self, from: usize, header: &Header) -> Option<bool> {
        if header.visible_at == 0 {
            return Some(true);
        }
        let now = self.host.now();
        if header.visible_at > now.saturating_add(MAX_DELAY_NS) {
            return None;
        }
        let visible = header.visible_at <= now;
        if !visible {
            self.delayed |= 1 << from;
            self.next_visible = self.next_visible.min(header.visible_at);
        }
        Some(visible)
    }

    fn corrupt(&mut self, station: usize) -> Error {
        self.broken |= 1 << station;
        Error::Corrupt { station }
    }

    /// Whether a ring has a record that is to be seen now.
    fn look_at(&mut self, from: usize, level: usize) -> Result<bool, Error> {
        let Ok(header) = self.from[from * RINGS + level].ring.peek(&self.w) else {
            return Err(self.corrupt(from));
        };
        match header {
            None => Ok(false),
            Some(header) => self
                .is_visible(from, &header)
                .ok_or_else(|| self.corrupt(from)),
        }
    }

    /// Takes the record that was peeked at; the message is in the ring's partial one.
    fn take(&mut self, from: usize, level: usize) -> Result<Option<Header>, Error> {
        let inbound = &mut self.from[from * RINGS + level];
        let partial = &mut inbound.partial;
        let Some(header) = inbound.ring.peek(&self.w).ok().flatten() else {
            return Ok(None);
        };
        let mut nowhere = Vec::new();
        let belongs = partial.begin(&header, &mut self.counters.cut_short);
        let to = if belongs {
            &mut partial.bytes
        } else {
            &mut nowhere
        };
        inbound.ring.pop(&self.w, to);
        let taken = match belongs {
            true => partial.end(&header, MAX_MESSAGE_BYTES),
            false => Some(Taken::Part),
        };
        self.give_room(from);
        match taken {
            None => Err(self.corrupt(from)),
            Some(Taken::Part) => Ok(None),
            Some(Taken::Message(header)) => Ok(Some(header)),
        }
    }

    /// Moves the replies that have come to where waiting threads look for them.
    pub(super) fn take_replies(&mut self) {
        if self.calls.is_empty() && self.ready == 0 {
            return;
        }
        for s in stations(self.ready & !self.broken) {
            // An error is found again by a call that receives, or waits for this station.
            while let Ok(true) = self.look_at(s, REPLY) {
                let Ok(Some(header)) = self.take(s, REPLY) else {
                    continue;
                };
                let wanted = header.kind == Kind::Reply && self.calls.contains(&(header.id, s));
                let waits = self.replies.iter().any(|r| r.envelope.id == header.id);
                if !wanted || waits {
                    self.counters.late_replies += 1;
                    continue;
                }
                let bytes = core::mem::take(&mut self.from[s * RINGS + REPLY].partial.bytes);
                self.replies.push(Reply {
                    envelope: Envelope {
                        from: s,
                        level: Level::Urgent,
                        kind: header.kind,
                        id: header.id,
                        tag: header.tag,
                        group: None,
                    },
                    bytes,
                });
            }
        }
    }

    /// The answer to a call, if it has come: its contents replace those of `reply`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such call; [`Error::NodeDead`] if there is no answer and the called
    /// station is dead.
    pub fn take_reply(&mut self, id: u64, reply: &mut Vec<u8>) -> Result<Option<Envelope>, Error> {
        let Some(&(_, to)) = self.calls.iter().find(|c| c.0 == id) else {
            return Err(Error::NotFound);
        };
        // Before the look: what the station had said before it died counts.
        let dead = self.is_dead(to);
        self.look();
        self.next_visible = u64::MAX;
        self.take_replies();
        let Some(n) = self.replies.iter().position(|r| r.envelope.id == id) else {
            return match dead {
                true => Err(Error::NodeDead { station: to }),
                false => Ok(None),
            };
        };
        let Reply { envelope, bytes } = self.replies.swap_remove(n);
        *reply = bytes;
        self.calls.retain(|c| c.0 != id);
        self.received(reply.len());
        Ok(Some(envelope))
    }

    fn received(&mut self, bytes: usize) {
        self.counters.received += 1;
        self.counters.received_bytes += bytes as u64;
    }

    /// A sender, or a group, that has a message of a level.
    fn find(&mut self, level: usize) -> Result<Option<Source>, Error> {
        let count = self.config.stations;
        for n in 0..count {
            let s = (self.turn + n) % count;
            if self.ready & !self.broken & 1 << s == 0 {
                continue;
            }
            if self.look_at(s, level)? {
                return Ok(Some(Source::Ring(s)));
            }
            if level != Level::Normal as usize {
                continue;
            }
            for j in 0..self.joined.len() {
                if self.joined[j].writer == s && self.look_group(j)? {
                    return Ok(Some(Source::Group(j)));
                }
            }
        }
        Ok(None)
    }

    fn look_group(&mut self, j: usize) -> Result<bool, Error> {
        match self.joined[j].member.peek(&self.w) {
            Ok(None) => Ok(false),
            Ok(Some(header)) => {
                let writer = self.joined[j].writer;
                let visible = self.is_visible(writer, &header);
                visible.ok_or_else(|| self.out_of(j, MemberError::Corrupt))
            }
            Err(e) => Err(self.out_of(j, e)),
        }
    }

    /// Ends this station's membership in a group.
    fn out_of(&mut self, j: usize, why: MemberError) -> Error {
        let joined = self.joined.swap_remove(j);
        match why {
            MemberError::PutOut => Error::PutOut {
                group: joined.group,
            },
            MemberError::Corrupt => {
                joined.member.leave(&self.w);
                Error::Corrupt {
                    station: joined.writer,
                }
            }
        }
    }

    fn take_from_group(&mut self, j: usize) -> Result<Option<Header>, Error> {
        let Joined {
            member, partial, ..
        } = &mut self.joined[j];
        let header = match member.peek(&self.w) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(e) => return Err(self.out_of(j, e)),
        };
        let mut nowhere = Vec::new();
        let belongs = partial.begin(&header, &mut self.counters.cut_short);
        let to = if belongs {
            &mut partial.bytes
        } else {
            &mut nowhere
        };
        if let Err(e) = member.pop(&self.w, to) {
            return Err(self.out_of(j, e));
        }
        let taken = match belongs {
            true => partial.end(&header, MAX_MESSAGE_BYTES),
            false => Some(Taken::Part),
        };
        let writer = self.joined[j].writer;
        self.give_room(writer);
        match taken {
            None => Err(self.out_of(j, MemberError::Corrupt)),
            Some(Taken::Part) => Ok(None),
            Some(Taken::Message(header)) => Ok(Some(header)),
        }
    }

    /// The level and sender whose turn it is: the most urgent one, but for levels that have been
    /// passed too often.
    fn pick(&mut self) -> Result<Option<(Level, Source)>, Error> {
        for level in Level::ALL.into_iter().rev() {
            let n = level as usize;
            if self.passed[n] < STARVATION {
                continue;
            }
            match self.find(n)? {
                Some(source) => return Ok(Some((level, source))),
                None => self.passed[n] = 0,
            }
        }
        for level in Level::ALL {
            if let Some(source) = self.find(level as usize)? {
                return Ok(Some((level, source)));
            }
        }
        Ok(None)
    }

    /// Takes the next message, if there is one: its contents replace those of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::PutOut`]: once each; other messages can be received afterwards.
    pub fn try_recv(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Envelope>, Error> {
        self.look();
        self.delayed = 0;
        self.next_visible = u64::MAX;
        self.take_replies();
        loop {
            let Some((level, source)) = self.pick()? else {
                // All have been found empty since their bits were taken.
                self.ready = self.delayed;
                return Ok(None);
            };
            let (from, group, header) = match source {
                Source::Ring(s) => (s, None, self.take(s, level as usize)?),
                Source::Group(j) => {
                    let Joined { group, writer, .. } = self.joined[j];
                    (writer, Some(group), self.take_from_group(j)?)
                }
            };
            // A part: the next one may be there.
            let Some(header) = header else {
                continue;
            };
            let partial = match source {
                Source::Ring(s) => &mut self.from[s * RINGS + level as usize].partial,
                Source::Group(j) => &mut self.joined[j].partial,
            };
            bytes.clear();
            core::mem::swap(bytes, &mut partial.bytes);
            for passed in &mut self.passed[level as usize + 1..] {
                *passed += 1;
            }
            self.passed[level as usize] = 0;
            self.turn = (from + 1) % self.config.stations;
            self.received(bytes.len());
            return Ok(Some(Envelope {
                from,
                level,
                kind: header.kind,
                id: header.id,
                tag: header.tag,
                group,
            }));
        }
    }

    /// Takes the next message, waiting for one until a point of time (fused, in ns): its contents
    /// replace those of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; [`Error::NodeDead`], once for each station that has been open, and again if no other
    /// station is left; and those of [`try_recv`](Station::try_recv).
    pub fn recv(&mut self, bytes: &mut Vec<u8>, deadline: Option<u64>) -> Result<Envelope, Error> {
        loop {
            if let Some(envelope) = self.try_recv(bytes)? {
                return Ok(envelope);
            }
            let until = self.in_time(deadline)?;
            self.check_all()?;
            self.wait(until.min(self.next_visible));
        }
    }

    /// Makes this station a member of a group: it receives what is written from now on.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such group, or it has no writer; [`Error::NodeDead`] if its writer
    /// is dead; [`Error::Denied`] if this station is a member already.
    pub fn join(&mut self, group: usize) -> Result<(), Error> {
        if group >= self.config.groups {
            return Err(Error::NotFound);
        }
        if self.joined.iter().any(|j| j.group == group) {
            return Err(Error::Denied);
        }
        let place = self.config.group(group);
        let writer = place.writer(&self.w).ok_or(Error::NotFound)?;
        if writer >= self.config.stations {
            return Err(Error::NotFound);
        }
        if self.is_dead(writer) {
            return Err(Error::NodeDead { station: writer });
        }
        self.joined.push(Joined {
            group,
            writer,
            member: Member::join(&self.w, place, self.own),
            partial: Partial::default(),
        });
        // The writer may have set this station's bit before it was looked at.
        self.ready |= 1 << writer;
        Ok(())
    }

    /// Ends the membership in a group: what has been written and not received is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if this station is not a member.
    pub fn leave(&mut self, group: usize) -> Result<(), Error> {
        let joined = self.joined.iter().position(|j| j.group == group);
        let joined = self.joined.swap_remove(joined.ok_or(Error::Denied)?);
        let writer = joined.writer;
        joined.member.leave(&self.w);
        // It may be this member that the writer waits for.
        self.tell(writer);
        Ok(())
    }
}
