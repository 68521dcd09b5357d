//! When two states are the same state.

use std::hash::{Hash, Hasher};

use dyad_dsm::{Action as Do, Body, Message, Outcome, Time};

use super::{DsmState, NODES, node};

fn write_message(h: &mut Vec<u8>, m: &Message, asked: [Option<u64>; NODES], n: usize, txn: u64) {
    let is_mine = |seq: u64| u8::from(asked[n] == Some(seq));
    let is_open = |t: u64| u8::from(t == txn);
    h.extend(match m.body {
        Body::Request { want, seq, .. } => [1, want as u8, is_mine(seq.0), 0],
        Body::Pull {
            want, txn, node, ..
        } => [2, want as u8, is_open(txn.0), node.index() as u8],
        Body::Invalidate { txn, node, .. } => [3, 0, is_open(txn.0), node.index() as u8],
        Body::Ack { txn, .. } => [4, 0, is_open(txn.0), 0],
        Body::Contents { txn, .. } => [5, 0, is_open(txn.0), 0],
        Body::Grant {
            seq, grant, right, ..
        } => [6, grant as u8, is_mine(seq.0), right as u8],
        Body::Nak { seq, cause, .. } => [7, cause as u8, is_mine(seq.0), 0],
        Body::Drop { .. } => [8, 0, 0, 0],
        Body::Dropped { .. } => [9, 0, 0, 0],
    });
}

impl Hash for DsmState {
    /// Numbers count as equal or not equal to the one that is awaited.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut h: Vec<u8> = Vec::with_capacity(256);
        let asked = [0, 1, 2].map(|n| self.record(n).pend.map(|p| p.seq.0));
        let directory = self.record(0);
        let txn = directory.busy.map_or(0, |b| b.txn.0);
        let owner = |n: usize, to: usize| if n == 0 { to } else { n };
        for n in 0..NODES {
            let (r, o) = (self.record(n), &self.outside[n]);
            h.extend([
                r.right as u8,
                u8::from(r.frame) | u8::from(r.leaf) << 1 | u8::from(r.hold_until != Time(0)) << 2,
                r.pend.map_or(2, |p| p.want as u8),
                u8::from(r.waiters != 0),
                r.deferred.map_or(9, |d| {
                    let open = u8::from(d.txn.0 == txn);
                    d.want as u8 | u8::from(d.contents) << 1 | open << 2 | u8::from(n == 0) << 3
                }),
                o.ops,
                o.want.map_or(2, |w| w as u8),
                u8::from(o.waits) | u8::from(o.fresh) << 1,
                u8::from(o.copied) | u8::from(o.received) << 1,
                o.leaf as u8,
                o.translation as u8,
                o.todo.len() as u8,
            ]);
            for action in &o.todo {
                match action {
                    Do::Send { to, message } => {
                        h.extend([20, to.index() as u8]);
                        write_message(&mut h, message, asked, owner(n, to.index()), txn);
                    }
                    Do::Protect { right, .. } => h.extend([21, *right as u8]),
                    Do::Map { right, .. } => h.extend([22, *right as u8]),
                    Do::Fill { source, .. } => h.extend([23, *source as u8]),
                    Do::Wake { outcome, .. } => {
                        h.extend([24, u8::from(*outcome == Outcome::Retry)])
                    }
                    Do::Quiesce { .. } => h.push(25),
                    Do::CopyOut { to, .. } => h.extend([26, to.index() as u8]),
                    Do::Defer { .. } => h.push(27),
                    Do::Unmap { .. } => h.push(28),
                    Do::Free { .. } => h.push(29),
                    Do::Unmapped { .. } => h.push(30),
                    Do::End => h.push(31),
                }
            }
            for to in 0..NODES {
                h.push(self.rings[n][to].len() as u8);
                for p in &self.rings[n][to] {
                    h.push(u8::from(p.fresh));
                    write_message(&mut h, &p.message, asked, owner(n, to), txn);
                }
                let unsent = self.nodes[n].unsent_to(node(to));
                h.push(unsent.clone().count() as u8);
                for m in unsent {
                    write_message(&mut h, m, asked, owner(n, to), txn);
                }
            }
        }
        hasher.write(&h);
        directory.copies.hash(hasher);
        for q in directory.queue.iter() {
            let mine = asked[q.node.index()] == Some(q.seq.0);
            (q.node, q.want, mine, q.had).hash(hasher);
        }
        if let Some(b) = directory.busy {
            let mine = b.node.map(|n| asked[n.index()] == Some(b.seq.0));
            (b.node, b.want, mine, b.wait, b.source, b.filled).hash(hasher);
        }
        for region in self.nodes[0].regions() {
            region.hash(hasher);
        }
        (self.written, self.dead, self.told, self.unmaps).hash(hasher);
        self.violation.is_some().hash(hasher);
    }
}
