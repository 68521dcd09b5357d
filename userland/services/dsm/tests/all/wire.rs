//! Each message has one encoding, and everything else is refused.

use dyad_abi::NodeId;
use dyad_dsm::wire::{CONTENTS, HEADER, decode, encode};
use dyad_dsm::{
    Access, Body, Cause, Grant, Incarnation, Message, Page, Range, Right, Seq, Time, Txn, WireError,
};
use proptest::prelude::*;

pub fn bodies() -> impl Strategy<Value = Body> {
    let fields = (0..9u8, 0..20u64, 0..4u64, 0..6u8, 0..3u64, 1..20u64);
    fields.prop_map(|(kind, page, number, detail, node, pages)| {
        let page = Page::new(page).unwrap();
        let range = Range::new(page, pages).unwrap();
        let (seq, txn, since) = (Seq(number), Txn(number), Time(pages * 100));
        let node = NodeId::new(node).unwrap();
        let want = [Access::Read, Access::Write][usize::from(detail % 2)];
        match kind {
            0 => Body::Request {
                page,
                want,
                seq,
                since,
            },
            1 => Body::Pull {
                page,
                want,
                txn,
                node,
                since,
            },
            2 => Body::Invalidate {
                page,
                txn,
                node,
                since,
            },
            3 => Body::Ack { page, txn },
            4 => Body::Contents { page, txn },
            5 => Body::Grant {
                page,
                seq,
                grant: [Grant::Same, Grant::Zero, Grant::Contents][usize::from(detail / 2)],
                right: [Right::Read, Right::Write][usize::from(detail % 2)],
            },
            6 => Body::Nak {
                page,
                seq,
                cause: [Cause::Gone, Cause::Lost, Cause::NoMemory][usize::from(detail % 3)],
            },
            7 => Body::Drop { range },
            _ => Body::Dropped { range },
        }
    })
}

/// The bytes of a message, with contents if it has some.
fn whole(message: &Message) -> Vec<u8> {
    let mut bytes = encode(message).to_vec();
    if message.body.has_contents() {
        bytes.resize(HEADER + CONTENTS, 7);
    }
    bytes
}

proptest! {
    #[test]
    fn messages_come_back(body in bodies(), incarnation: u16) {
        let message = Message { incarnation: Incarnation(incarnation), body };
        let bytes = whole(&message);
        let (back, contents) = decode(&bytes).unwrap();
        prop_assert_eq!(back, message);
        prop_assert_eq!(contents.len(), bytes.len() - HEADER);
    }

    #[test]
    fn cut_and_long_messages_are_refused(body in bodies(), cut: prop::sample::Index) {
        let message = Message { incarnation: Incarnation(1), body };
        let mut bytes = whole(&message);
        prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]), Err(WireError::Short));
        bytes.push(0);
        prop_assert_eq!(decode(&bytes), Err(WireError::Long));
    }

    #[test]
    fn what_is_accepted_has_one_encoding(mut bytes in prop::collection::vec(any::<u8>(), HEADER), kind in 0..12u8, small: bool) {
        bytes[0] = kind;
        if small {
            // Otherwise nearly all random bytes have something in a field that is to be zero.
            bytes[1] %= 4;
            bytes[4..8].fill(0);
            bytes[19..24].fill(0);
            bytes[24..32].fill(0);
        }
        if let Ok((message, _)) = decode(&bytes) {
            prop_assert_eq!(&encode(&message)[..], &bytes[..]);
        }
    }
}

#[test]
fn each_error_has_its_name() {
    let page = Page::new(5).unwrap();
    let good = |body| {
        let incarnation = Incarnation(1);
        encode(&Message { incarnation, body })
    };
    let ack = good(Body::Ack { page, txn: Txn(3) });
    let range = Range::new(page, 2).unwrap();
    let drop = good(Body::Drop { range });
    let node = NodeId::new(1).unwrap();
    let txn = Txn(1);
    let invalidate = good(Body::Invalidate {
        page,
        txn,
        node,
        since: Time(0),
    });
    let cases: [(&[u8; HEADER], usize, u8, WireError); 8] = [
        (&ack, 0, 0, WireError::Kind),
        (&ack, 0, 10, WireError::Kind),
        (&ack, 1, 1, WireError::Detail),
        (&ack, 4, 1, WireError::Reserved),
        (&ack, 24, 1, WireError::Reserved),
        (&invalidate, 4, 99, WireError::Node),
        (&ack, 23, 1, WireError::Page),
        (&drop, 24, 0, WireError::Page),
    ];
    for (bytes, at, value, error) in cases {
        let mut bytes = *bytes;
        bytes[at] = value;
        assert_eq!(decode(&bytes), Err(error), "byte {at} is {value}");
    }
    assert_eq!(decode(&[]), Err(WireError::Short));
}
