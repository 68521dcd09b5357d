//! Endpoints: bits, lines, badges of messages.

use dyad_abi::Error;
use dyad_abi::cap::{CapType, ReceiveOp, Rights, SendOp};
use dyad_sys::cap::{Cap, Narrow, Send};

use super::generic::own_table;
use super::{Case, IDLE};
use crate::me::{call, copy, odd, place, tried};
use crate::shared::{at, word};
use crate::{refuse, work};

const RECEIVE: u32 = at::full(CapType::Receive);
const SEND: u32 = at::full(CapType::Send);
/// The bit that the attacker may send to the victim.
const BIT: u64 = 4;

fn op(o: ReceiveOp, args: [u64; 3]) -> Result<u64, Error> {
    call(RECEIVE, o as u32, [args[0], args[1], args[2], 0, 0])
}

/// A part of the victim's endpoints, without its line 0.
fn part(s: &mut crate::run::Scene<'_>, rights: Rights) -> dyad_abi::Result<()> {
    own_table(s)?;
    let endpoints = s.victim.endpoints;
    s.attacker
        .give_part(RECEIVE, endpoints, rights, Narrow::range(60, 4))
}

/// Numbers that are none of the four lines: those before them, by wrapping, among them.
const BEYOND: [u64; 7] = [4, 5, 64, 1 << 32, u64::MAX, u64::MAX - 59, 1 << 63];

pub const CASES: [Case; 4] = [
    Case {
        name: "send_bits_beyond_the_badge",
        grant: |s| {
            own_table(s)?;
            let send: Cap<Send> = s.victim.endpoints.make_send(0, s.store.slot()?, BIT)?;
            s.attacker.give(SEND, send, Rights::ALL)?;
            s.tell_victim(word::EXPECTED, BIT);
            Ok(())
        },
        act: || {
            work!(copy(at::FREE, SEND, Rights::ALL));
            let all: u64 = u32::MAX.into();
            for (n, (first, count)) in (1..).zip([(1, 0), (0, 1), (0, u64::MAX), (1, 1), (BIT, 2)])
            {
                let args = [(at::FREE + n).into(), SEND.into(), all, first, count];
                refuse!(call(at::TABLE, 2, args), BadArgument);
            }
            for n in 0..200 {
                tried();
                let cap = [SEND, at::FREE][n as usize % 2];
                // Whatever the arguments are: the bits are the capability's.
                let words = [u64::MAX, n, u64::MAX, 1, n];
                if let Err(e) = call(cap, SendOp::Send as u32, words) {
                    odd(line!(), e.code());
                }
                if n % 16 == 0 {
                    crate::me::yield_now();
                }
            }
        },
        ..IDLE
    },
    Case {
        name: "receive_lines_of_others",
        grant: |s| part(s, Rights::ALL),
        act: || {
            for line in BEYOND {
                refuse!(op(ReceiveOp::Receive, [line, 1, 0]), BadArgument);
                refuse!(
                    op(ReceiveOp::MakeSend, [line, place(at::FREE), 1]),
                    BadArgument
                );
                refuse!(op(ReceiveOp::Bind, [line, 0, 0]), BadArgument);
            }
            // Its own lines are its own.
            for line in 0..4 {
                work!(op(ReceiveOp::Receive, [line, 1, 0]));
            }
            // A narrower copy does not reach the lines between.
            let all: u64 = u32::MAX.into();
            let args = [at::FREE.into(), RECEIVE.into(), all, 1, 2];
            work!(call(at::TABLE, 2, args));
            for line in [2, 3, u64::MAX, u64::MAX - 60] {
                let receive = ReceiveOp::Receive as u32;
                refuse!(call(at::FREE, receive, [line, 1, 0, 0, 0]), BadArgument);
            }
        },
        ..IDLE
    },
    Case {
        name: "receive_sending_end_without_the_right",
        grant: |s| part(s, ReceiveOp::Receive.right()),
        act: || {
            for line in 0..4 {
                refuse!(op(ReceiveOp::MakeSend, [line, place(at::FREE), 1]), Denied);
                refuse!(op(ReceiveOp::Bind, [line, 0, 0]), Denied);
            }
            refuse!(copy(at::FREE, RECEIVE, Rights::ALL), Denied);
        },
        ..IDLE
    },
    Case {
        name: "receive_bound_to_a_cpu_that_is_not",
        grant: |s| part(s, Rights::ALL),
        act: || {
            let (nodes, cpus) = (crate::me::nodes(), crate::me::cpus());
            for node in [nodes, 7, 8, 0xff] {
                if node >= nodes {
                    refuse!(op(ReceiveOp::Bind, [0, node, 0]), NoSuchNode);
                }
            }
            for cpu in [cpus, 8, 0xff] {
                refuse!(op(ReceiveOp::Bind, [0, cpu << 8, 0]), BadArgument);
            }
            refuse!(
                op(ReceiveOp::MakeSend, [0, place(at::FREE), 0]),
                BadArgument
            );
        },
        ..IDLE
    },
];
